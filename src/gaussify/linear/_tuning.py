"""The numbers that an estimator chooses itself: prior variance, alpha_eps, method, temperature."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gaussify.likelihoods import (
    BETA_METHODS,
    ClassLikelihood,
    LikelihoodMethod,
    LogisticLikelihood,
    PseudoTargets,
    SoftmaxLikelihood,
)
from gaussify.posterior import (
    ClassStatistics,
    GaussianPrior,
    best_prior_scale,
    class_posterior,
    latent,
    leave_one_out,
)

ALPHA_GRID = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_FIRST_ALPHA = 0.1
_MOST_LATENTS = 64  # that the evidence is summed over
_PROBABILITIES = 30_000  # rows x classes that a criterion is computed on
_ROWS_FOR_ALPHA = 300  # that alpha_eps and method are compared on: a temperature each makes them nearly equal anyway
_LATTICE, _LAST_PLACE = 0.1, 39  # of log-temperatures


class Criterion(StrEnum):
    """What ``alpha_eps``, ``method`` and ``temperature`` are chosen by."""

    LEAVE_ONE_OUT = "leave-one-out"
    """Predictive log-likelihood of each row from all others, in closed form."""
    TRAINING = "training"
    """Log-likelihood of the rows that were learnt from: the paper's."""


class LikelihoodKind(StrEnum):
    """Which likelihood labels have."""

    AUTO = "auto"
    """Logistic for two classes where the method allows it, softmax otherwise."""
    SOFTMAX = "softmax"
    """One latent a class."""
    LOGISTIC = "logistic"
    """One latent, for two classes."""


class LabelledRows(NamedTuple):
    """Rows that a criterion is computed on."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]


class Choice(NamedTuple):
    """The numbers in use."""

    method: LikelihoodMethod
    alpha_eps: Float[Tensor, "*c"]
    temperature: float
    prior_variance: Float[Tensor, " d"]
    score: float | None
    """Mean log-likelihood by the criterion, where it was computed."""


@dataclass(frozen=True)
class Options:
    """What is given, and None or several possibilities where it is to be chosen."""

    methods: Sequence[LikelihoodMethod]
    alpha_eps: Float[Tensor, "*c"] | None
    temperature: float | None
    prior_shapes: Sequence[Float[Tensor, " d"]]
    """Prior variances, up to the factor where one is to be chosen."""
    scaled: Bool[Tensor, " d"] | None
    """Which entries of the shapes have their factor chosen by the evidence; None where none have."""
    likelihood: Callable[[LikelihoodMethod, Tensor], ClassLikelihood]
    criterion: Criterion


def choose(statistics: ClassStatistics, rows: LabelledRows | None, options: Options) -> Choice:
    """Return the best numbers, from statistics and, for all but the prior variance, a few rows.

    For each method, ``alpha_eps`` climbs from 0.1 along a grid as long as the criterion improves; at each point the
    prior variance has the largest evidence and the temperature is the best one. Without rows, what is not given is the
    first method, 0.1 and 1.
    """
    method, alpha_eps = options.methods[0], options.alpha_eps
    if rows is not None and (alpha_eps is None or len(options.methods) > 1):
        few = LabelledRows(*(part[:_ROWS_FOR_ALPHA] for part in rows))
        found = [_best_of_method(partial(_attempt, statistics, few, options, m), m, alpha_eps) for m in options.methods]
        method, alpha_eps, *_ = max(found, key=_score)
    return _attempt(statistics, rows, options, method, _alpha(_FIRST_ALPHA) if alpha_eps is None else alpha_eps)


def _best_of_method(attempt: Callable[[Tensor], Choice], method: LikelihoodMethod, alpha_eps: Tensor | None) -> Choice:
    if alpha_eps is not None or method is LikelihoodMethod.GAUSS:  # which has no alpha_eps
        return attempt(_alpha(_FIRST_ALPHA) if alpha_eps is None else alpha_eps)
    return _climb(attempt)


def _climb(attempt: Callable[[Tensor], Choice]) -> Choice:
    """Go down the grid of alpha_eps while that improves the score; if it never did, up."""
    first = ALPHA_GRID.index(_FIRST_ALPHA)
    best = start = attempt(_alpha(ALPHA_GRID[first]))
    for way in (ALPHA_GRID[first - 1 :: -1], ALPHA_GRID[first + 1 :]):
        for alpha_eps in way:
            candidate = attempt(_alpha(alpha_eps))
            if _score(candidate) <= _score(best):
                break
            best = candidate
        if best is not start:
            break
    return best


def _alpha(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _score(choice: Choice) -> float:
    return -math.inf if choice.score is None else choice.score


def _attempt(
    statistics: ClassStatistics,
    rows: LabelledRows | None,
    options: Options,
    method: LikelihoodMethod,
    alpha_eps: Tensor,
) -> Choice:
    """Complete a choice of method and alpha_eps by the prior variance and the temperature."""
    likelihood = options.likelihood(method, alpha_eps)
    table = likelihood.target_table()
    prior_variance = _prior_variance(statistics, table, options)
    temperature, score = 1.0 if options.temperature is None else options.temperature, None
    if rows is not None:
        prior = GaussianPrior.centred(prior_variance, n_latents=likelihood.n_latents)
        mean, variance = latent(class_posterior(prior, statistics, table), rows.features)
        if options.criterion is Criterion.LEAVE_ONE_OUT:
            targets = PseudoTargets(table.mean[rows.labels], table.variance[rows.labels])
            mean, variance = leave_one_out(mean, variance, targets, rows.weight)
        if options.temperature is None:
            temperature = best_temperature(likelihood, mean, variance, rows.labels, rows.weight)
        score = -_nll(likelihood, mean, variance, rows.labels, rows.weight, temperature)
    return Choice(method, alpha_eps, temperature, prior_variance, score)


def _prior_variance(statistics: ClassStatistics, table: PseudoTargets, options: Options) -> Tensor:
    if options.scaled is None:
        return options.prior_shapes[0]
    n_latents = table.mean.shape[1]
    latents = torch.linspace(0, n_latents - 1, min(n_latents, _MOST_LATENTS)).long()
    found = [best_prior_scale(statistics, table, shape, options.scaled, latents) for shape in options.prior_shapes]
    top = max(range(len(found)), key=lambda index: found[index].log_evidence)
    shape = options.prior_shapes[top]
    return torch.where(options.scaled, found[top].scale * shape, shape)


def best_temperature(
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
) -> float:
    r"""Return the temperature T whose latents :math:`(m/T, s/T^2)` give the labels the largest probability.

    A standard normal prior on :math:`\log T`, worth less than one row, keeps it finite where a few rows are separable.
    The loss is followed downhill on a lattice of ten points to a factor of e, from 0.02 to 50; T is the vertex of the
    parabola through the best three, which, unlike a point where a search happened to stop, moves with the data as
    smoothly as the loss itself while the best point stays.

    Examples
    --------
    >>> mean = torch.tensor([[3.0]]).double().repeat(100, 1)  # says 95 %; it is 75 %
    >>> labels = torch.tensor([1, 1, 1, 0] * 25)
    >>> best_temperature(LogisticLikelihood(), mean, torch.zeros_like(mean), labels, torch.ones(100).double())
    2.7
    """

    @cache
    def loss(place: int) -> float:
        log_temperature = _LATTICE * place
        prior = 0.5 * log_temperature**2 / float(weight.sum())
        return prior + _nll(likelihood, mean, variance, labels, weight, math.exp(log_temperature))

    best = 0
    for step in (8, 4, 2, 1):
        while True:
            nearby = [k for k in (best - step, best, best + step) if abs(k) <= _LAST_PLACE]
            lowest = min(nearby, key=loss)
            if lowest == best:
                break
            best = lowest
    if abs(best) == _LAST_PLACE:
        return math.exp(_LATTICE * best)
    before, at, after = (loss(best + shift) for shift in (-1, 0, 1))
    bend = before - 2.0 * at + after
    vertex = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return math.exp(_LATTICE * (best + vertex))


def _nll(
    likelihood: ClassLikelihood, mean: Tensor, variance: Tensor, labels: Tensor, weight: Tensor, temperature: float
) -> float:
    """Mean negative log-likelihood of a row."""
    probs = likelihood.predict_proba(mean / temperature, variance / temperature**2)
    own = probs.gather(1, labels[:, None])[:, 0].clamp_min(torch.finfo(probs.dtype).tiny)
    return -float((weight * own.log()).sum() / weight.sum())


def most_rows(n_classes: int) -> int:
    """Return on how many rows a criterion is computed, at most: fewer where each has many classes."""
    return max(100, _PROBABILITIES // n_classes)


def is_usable(rows: LabelledRows) -> bool:
    """Return whether rows say anything about calibration: a handful, of two classes."""
    return float(rows.weight.sum()) >= 8.0 and bool((rows.labels != rows.labels[0]).any())


def prior_shapes(statistics: ClassStatistics, n_features: int) -> list[Float[Tensor, " f"]]:
    """Return the same prior variance for every feature, and the inverse of each feature's own variance.

    The former is the inverse of the mean of those variances, so that a factor means the same for both in any units.

    The last of the statistics' features is a constant if there are more than ``n_features``.
    """
    total = statistics.count.sum().clamp_min(torch.finfo(torch.float64).tiny)
    square = statistics.gram.diagonal(dim1=-2, dim2=-1).sum(0)[:n_features] / total
    mean = statistics.feature_sum.sum(0)[:n_features] / total
    variance = square - mean.square() if statistics.n_features > n_features else square
    variance = torch.where(variance > 1e-14 * square, variance, square)  # a constant column has none
    variance = torch.where(variance > 0.0, variance, 1.0)
    return [torch.full_like(variance, 1.0 / variance.mean().item()), 1.0 / variance]


def make_likelihood(
    kind: LikelihoodKind,
    n_classes: int,
    method: LikelihoodMethod,
    alpha_eps: Float[Tensor, "*c"],
    label_variance: float,
) -> ClassLikelihood:
    """Return the likelihood of this kind; one latent where two classes and the method allow it is the default."""
    # least squares on 0 and 1 puts all latents above zero, where the sigmoid says one: two latents there
    suits = method in BETA_METHODS and method is not LikelihoodMethod.GAUSS
    one_latent = n_classes == 2 and (kind is LikelihoodKind.LOGISTIC or (kind is LikelihoodKind.AUTO and suits))
    if not one_latent:
        return SoftmaxLikelihood(n_classes, alpha_eps, str(method), label_variance=label_variance)
    beta_eps, alpha_eps = alpha_eps.expand(2)
    return LogisticLikelihood(alpha_eps, beta_eps, str(method), label_variance=label_variance)
