"""How well latents predict labels, and the temperature that makes them predict best."""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from gaussify.likelihoods import ClassLikelihood

_PROBABILITIES = 30_000  # at most so many rows x classes enter a criterion
_LATTICE, LAST_PLACE = 0.1, 39  # step of the lattice of log-temperatures, and its last point on either side


class Criterion(StrEnum):
    """The score that the best ``alpha_eps``, ``method`` and ``temperature`` maximise."""

    LEAVE_ONE_OUT = "leave-one-out"
    """Predictive log-likelihood of each row given all others, in closed form."""
    TRAINING = "training"
    """Log-likelihood of the training rows, as in the paper."""


class LabelledRows(NamedTuple):
    """Rows on which a criterion is computed."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]
    """Weight of each row in the criterion."""
    learnt: Float[Tensor, " n"] | None = None
    """Weight with which the model has learnt each row, if it is another one."""

    @property
    def share(self) -> Float[Tensor, " n"]:
        """The weights, scaled to sum to one."""
        return self.weight / self.weight.sum()

    @property
    def weight_learnt(self) -> Float[Tensor, " n"]:
        """The weight with which the model has learnt each row."""
        return self.weight if self.learnt is None else self.learnt

    def first(self, n: int) -> "LabelledRows":
        """Return the first n rows; each class weighs as much, relative to the others, as in all rows."""
        if n >= len(self.labels):
            return self
        totals = torch.bincount(self.labels, self.weight)
        rows = LabelledRows(self.features[:n], self.labels[:n], self.weight[:n], self.weight_learnt[:n])
        return rows.weighed(totals)

    def weighed(self, totals: Float[Tensor, " c"]) -> "LabelledRows":
        """Return the rows with weights that add up to ``totals`` in each class, up to a common factor.

        The common factor leaves the weights of one class as they are and reduces no weight. So rows that stand for
        themselves alone, as do all rows of a rare class, keep their weights.
        """
        own = torch.bincount(self.labels, self.weight, minlength=len(totals))
        stands = (own > 0.0) & (totals > 0.0)
        if not stands.any():
            return self
        factor = torch.where(stands, totals / own, torch.inf)
        factor = torch.where(stands, factor / factor.min(), 1.0)
        return self._replace(weight=self.weight * factor[self.labels], learnt=self.weight_learnt)


def best_temperature(
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    *,
    rough: bool = False,
    of_means: bool = False,
) -> float:
    r"""Return the temperature T whose latents :math:`(m/T, s/T^2)` give the labels the largest probability.

    A standard normal prior on :math:`\log T`, worth less than one row, keeps T finite where a few rows are separable.
    The search walks downhill on a lattice of temperatures from 0.02 to 50, ten points for each factor of e. T is the
    vertex of the parabola through the best point and its neighbours. So T changes as smoothly with the data as the loss
    does, for as long as the best point stays. Mean-field probabilities, which cost a fraction of the quadrature, lead
    most of the way.

    Parameters
    ----------
    likelihood : ClassLikelihood
        Turns latents into probabilities.
    mean, variance : tensors of shape (n, l)
        Latents of the rows.
    labels, weight : tensors of shape (n,)
        Labels and weights of the rows.
    rough : bool
        Whether mean-field probabilities lead all the way.
    of_means : bool
        Whether T divides only the means.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> mean = torch.tensor([[3.0]]).double().repeat(100, 1)  # says 95 %; it is 75 %
    >>> labels = torch.tensor([1, 1, 1, 0] * 25)
    >>> best_temperature(LogisticLikelihood(), mean, torch.zeros_like(mean), labels, torch.ones(100).double())
    2.7
    """
    return best_temperatures(likelihood, mean, variance, labels, weight, rough=rough, of_means=of_means).best


class Temperatures(NamedTuple):
    """The best temperature, and that by mean-field probabilities: the same if these led all the way."""

    best: float
    mean_field: float


def best_temperatures(
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    *,
    rough: bool = False,
    of_means: bool = False,
) -> Temperatures:
    """Return the best temperature with the one that leads to it, see :func:`best_temperature`."""
    n_rows = float(weight.sum())

    def loss_of(nll: Callable[..., float]) -> Callable[[int], float]:
        @cache
        def loss(place: int) -> float:
            log_temperature = _LATTICE * place
            temperature = math.exp(log_temperature)
            scaled = variance * temperature**2 if of_means else variance
            prior = 0.5 * log_temperature**2 / n_rows
            return prior + nll(likelihood, mean, scaled, labels, weight, temperature)

        return loss

    loss = loss_of(_rough_nll)
    place = _walk(loss, 0, (8, 4, 2, 1))
    mean_field = _vertex(loss, place)
    if rough:
        return Temperatures(mean_field, mean_field)
    loss = loss_of(mean_nll)
    return Temperatures(_vertex(loss, _walk(loss, place, (1,))), mean_field)


def _vertex(loss: Callable[[int], float], best: int) -> float:
    """Return the temperature at the vertex of the parabola through the best point and its neighbours."""
    if abs(best) == LAST_PLACE:
        return math.exp(_LATTICE * best)
    before, at, after = (loss(best + shift) for shift in (-1, 0, 1))
    bend = before - 2.0 * at + after
    vertex = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return math.exp(_LATTICE * (best + vertex))


def _walk(loss: Callable[[int], float], start: int, steps: Sequence[int]) -> int:
    """Return the lowest point that is reached downhill on the lattice, with ever smaller steps."""
    best = start
    for step in steps:
        while True:
            nearby = [place for place in (best - step, best, best + step) if abs(place) <= LAST_PLACE]
            lowest = min(nearby, key=loss)
            if lowest == best:
                break
            best = lowest
    return best


def mean_nll(
    likelihood: ClassLikelihood, mean: Tensor, variance: Tensor, labels: Tensor, weight: Tensor, temperature: float
) -> float:
    """Return the mean negative log-likelihood of a row."""
    probs = likelihood.predict_proba(mean / temperature, variance / temperature**2)
    own = probs.gather(1, labels[:, None])[:, 0].clamp_min(torch.finfo(probs.dtype).tiny)
    return -float((weight * own.log()).sum() / weight.sum())


def _rough_nll(
    likelihood: ClassLikelihood, mean: Tensor, variance: Tensor, labels: Tensor, weight: Tensor, temperature: float
) -> float:
    r"""Return the mean negative log-likelihood by the mean-field probability of the label.

    .. math:: p_y \approx 1 \Big/ \sum_j \exp\frac{m_j - m_y}{\sqrt{1 + \pi(v_j + v_y)/8}}
    """
    if likelihood.n_latents == 1:
        gap, spread = torch.where(labels[:, None] == 1, -mean, mean), variance
    else:
        own = labels[:, None]
        gap, spread = mean - mean.gather(1, own), variance + variance.gather(1, own)
    gap = gap / temperature * torch.rsqrt(1.0 + math.pi / 8.0 / temperature**2 * spread)
    if likelihood.n_latents == 1:
        return float(weight @ softplus(gap[:, 0]) / weight.sum())
    return float(weight @ torch.logsumexp(gap, -1) / weight.sum())


def most_rows(n_classes: int) -> int:
    """Return the largest number of rows that a criterion is computed on, which falls with the number of classes."""
    return max(100, _PROBABILITIES // n_classes)


def is_usable(rows: LabelledRows) -> bool:
    """Return whether there are enough rows to calibrate with: a weight of eight, and two classes."""
    return float(rows.weight.sum()) >= 8.0 and bool((rows.labels != rows.labels[0]).any())
