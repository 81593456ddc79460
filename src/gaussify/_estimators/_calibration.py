"""Choosing how labels become Gaussians by how well left-out rows are predicted: alpha_eps, method and temperature."""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod

ALPHA_GRID = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FIRST_ALPHA = 0.1
MOST_ATTEMPTS = 1 + max(ALPHA_GRID.index(FIRST_ALPHA), len(ALPHA_GRID) - ALPHA_GRID.index(FIRST_ALPHA))  # of a method
_PROBABILITIES = 30_000  # rows x classes that a criterion is computed on
_LATTICE, LAST_PLACE = 0.1, 39  # of log-temperatures
_Candidate = TypeVar("_Candidate")


class Criterion(StrEnum):
    """What ``alpha_eps``, ``method`` and ``temperature`` are chosen by."""

    LEAVE_ONE_OUT = "leave-one-out"
    """Predictive log-likelihood of each row from all others, in closed form."""
    TRAINING = "training"
    """Log-likelihood of the rows that were learnt from: the paper's."""


class LabelledRows(NamedTuple):
    """Rows that a criterion is computed on."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]

    @property
    def share(self) -> Float[Tensor, " n"]:
        """Weights that sum to one."""
        return self.weight / self.weight.sum()


def best_label_choice(
    attempt: Callable[[LikelihoodMethod, Float[Tensor, "*c"]], _Candidate],
    score: Callable[[_Candidate], float],
    methods: Sequence[LikelihoodMethod],
    alpha_eps: Float[Tensor, "*c"] | None,
) -> _Candidate:
    """Return the best attempt over methods and, where it is not given, alpha_eps.

    For each method, alpha_eps goes from 0.1 down a grid while the score improves; if it never did, up.

    Examples
    --------
    >>> def attempt(method, alpha_eps):
    ...     return method.value, alpha_eps.item()
    >>> best_label_choice(attempt, lambda choice: -abs(choice[1] - 0.01), [LikelihoodMethod.MOMENT], None)
    ('moment', 0.01)
    """

    def best_of(method: LikelihoodMethod) -> _Candidate:
        if alpha_eps is not None or method is LikelihoodMethod.GAUSS:  # which has no alpha_eps
            return attempt(method, as_alpha(FIRST_ALPHA) if alpha_eps is None else alpha_eps)
        first = ALPHA_GRID.index(FIRST_ALPHA)
        best = start = attempt(method, as_alpha(ALPHA_GRID[first]))
        for way in (ALPHA_GRID[first - 1 :: -1], ALPHA_GRID[first + 1 :]):
            for value in way:
                candidate = attempt(method, as_alpha(value))
                if score(candidate) <= score(best):
                    break
                best = candidate
            if best is not start:
                break
        return best

    return max(map(best_of, methods), key=score)


def as_alpha(value: float) -> Float[Tensor, ""]:
    """Return a concentration as a tensor."""
    return torch.tensor(value, dtype=torch.float64)


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

    A standard normal prior on :math:`\log T`, worth less than one row, keeps it finite where a few rows are separable.
    The loss is followed downhill on a lattice of ten points to a factor of e, from 0.02 to 50; T is the vertex of the
    parabola through the best three, which, unlike a point where a search happened to stop, moves with the data as
    smoothly as the loss itself while the best point stays. Most of the way is gone with rough probabilities, which cost
    a fraction of exact ones; with ``rough`` all of it. With ``of_means`` variances are left alone.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> mean = torch.tensor([[3.0]]).double().repeat(100, 1)  # says 95 %; it is 75 %
    >>> labels = torch.tensor([1, 1, 1, 0] * 25)
    >>> best_temperature(LogisticLikelihood(), mean, torch.zeros_like(mean), labels, torch.ones(100).double())
    2.7
    """
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
    best = _walk(loss, 0, (8, 4, 2, 1))
    if not rough:
        loss = loss_of(mean_nll)
        best = _walk(loss, best, (1,))
    if abs(best) == LAST_PLACE:
        return math.exp(_LATTICE * best)
    before, at, after = (loss(best + shift) for shift in (-1, 0, 1))
    bend = before - 2.0 * at + after
    vertex = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return math.exp(_LATTICE * (best + vertex))


def _walk(loss: Callable[[int], float], start: int, steps: Sequence[int]) -> int:
    """Follow the loss downhill on the lattice, in steps that become smaller."""
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
    """Mean negative log-likelihood of a row."""
    probs = likelihood.predict_proba(mean / temperature, variance / temperature**2)
    own = probs.gather(1, labels[:, None])[:, 0].clamp_min(torch.finfo(probs.dtype).tiny)
    return -float((weight * own.log()).sum() / weight.sum())


def _rough_nll(
    likelihood: ClassLikelihood, mean: Tensor, variance: Tensor, labels: Tensor, weight: Tensor, temperature: float
) -> float:
    r"""The same by the mean-field probability of the label alone, against each other class in turn.

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
    """Return on how many rows a criterion is computed, at most: fewer where each has many classes."""
    return max(100, _PROBABILITIES // n_classes)


def is_usable(rows: LabelledRows) -> bool:
    """Return whether rows say anything about calibration: a handful, of two classes."""
    return float(rows.weight.sum()) >= 8.0 and bool((rows.labels != rows.labels[0]).any())
