"""The numbers that an estimator chooses itself: prior variance, alpha_eps, method, temperature, dispersion."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

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
_FEW_LATENTS, _MOST_LATENTS = 4, 64  # that the evidence is summed over, roughly and in the end
_PROBABILITIES = 30_000  # rows x classes that a criterion is computed on
_ROWS_FOR_ALPHA = 300  # that alpha_eps and method are compared on: a temperature each makes them nearly equal anyway
_LATTICE, _LAST_PLACE = 0.1, 39  # of log-temperatures
_INFORMATION_ROUNDS = 3
_LEAST_INFORMATION = 1e-6  # where all rows are certain


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

    @property
    def share(self) -> Float[Tensor, " n"]:
        """Weights that sum to one."""
        return self.weight / self.weight.sum()


class Choice(NamedTuple):
    """The numbers in use."""

    method: LikelihoodMethod
    alpha_eps: Float[Tensor, "*c"]
    temperature: float
    prior_variance: Float[Tensor, " d"]
    dispersion: float
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
    chooses_prior: bool
    """Whether the factor is to be chosen, by the evidence."""
    of_features: Bool[Tensor, " d"]
    """Which entries of the shapes it is chosen for; the others are those of the intercept."""
    dispersion: float | None
    likelihood: Callable[[LikelihoodMethod, Tensor], ClassLikelihood]
    criterion: Criterion


def choose(statistics: ClassStatistics, rows: LabelledRows | None, options: Options) -> Choice:
    """Return the best numbers, from statistics and, for all but the prior variance, a few rows.

    For each method, ``alpha_eps`` climbs from 0.1 along a grid as long as the criterion improves; at each point the
    prior variance has the largest evidence and the temperature is about the best one. Without rows, what is not given
    is the first method, 0.1, 1 and 1.
    """
    method, alpha_eps = options.methods[0], options.alpha_eps
    if rows is not None and (alpha_eps is None or len(options.methods) > 1):
        few = LabelledRows(*(part[:_ROWS_FOR_ALPHA] for part in rows))
        found = [
            _best_of_method(partial(_attempt, statistics, few, options, m, rough=True), m, alpha_eps)
            for m in options.methods
        ]
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
    *,
    rough: bool = False,
) -> Choice:
    """Complete a choice of method and alpha_eps by the prior variance, the temperature and the dispersion."""
    if rows is not None and options.dispersion is None:
        return _matched_attempt(statistics, rows, options, method, alpha_eps, rough=rough)
    likelihood = options.likelihood(method, alpha_eps)
    dispersion = 1.0 if options.dispersion is None else options.dispersion
    table = disperse(likelihood.target_table(), dispersion)
    prior_variance = _prior_variance(statistics, table, options, rough=rough)
    temperature, score = 1.0 if options.temperature is None else options.temperature, None
    if options.dispersion is None and not options.chooses_prior:  # then it is that of the logits' weights
        prior_variance = torch.where(options.of_features, prior_variance * temperature**2, prior_variance)
    if rows is not None:
        _, judged = _latents(statistics, rows, options.criterion, table, prior_variance)
        if options.temperature is None:
            temperature = best_temperature(likelihood, *judged, rows.labels, rows.weight, rough=rough)
        score = -_nll(likelihood, *judged, rows.labels, rows.weight, temperature)
    return Choice(method, alpha_eps, temperature, prior_variance, dispersion, score)


def _matched_attempt(
    statistics: ClassStatistics,
    rows: LabelledRows,
    options: Options,
    method: LikelihoodMethod,
    alpha_eps: Tensor,
    *,
    rough: bool,
) -> Choice:
    r"""The same with the information of the exact likelihood.

    Everything is on the scale of the logits here: labels are observations of mean :math:`y/T` and variance
    :math:`cv`, with c such that they have the information of a label. So the temperature moves means only, the prior is
    that of the logits' weights, and as the information hardly depends on either, a few rounds settle all three.
    """
    likelihood = options.likelihood(method, alpha_eps)
    table = likelihood.target_table()
    precision = float(rows.share @ (1.0 / table.variance)[rows.labels].mean(-1))
    # to begin with, of labels that are equally probable
    information = 0.25 if likelihood.n_latents == 1 else 1.0 / likelihood.n_classes
    temperature = 1.0 if options.temperature is None else options.temperature
    base = _prior_variance(statistics, table, options, rough=rough, free_noise=True)
    for last in [*[False] * _INFORMATION_ROUNDS, True]:
        spread = precision / information
        of_logits = base * spread if options.chooses_prior else base
        prior_variance = torch.where(options.of_features, of_logits, base / temperature**2)
        fitted, judged = _latents(statistics, rows, options.criterion, disperse(table, spread), prior_variance)
        if options.temperature is None:
            temperature = best_temperature(
                likelihood, *judged, rows.labels, rows.weight, rough=rough or not last, of_means=True
            )
        if not last:
            information = mean_information(likelihood, fitted[0] / temperature, fitted[1], rows.weight)
    score = -_nll(likelihood, judged[0] / temperature, judged[1], rows.labels, rows.weight, 1.0)
    square = temperature**2
    prior_variance = torch.where(options.of_features, of_logits * square, base)
    return Choice(method, alpha_eps, temperature, prior_variance, spread * square, score)


def _latents(
    statistics: ClassStatistics, rows: LabelledRows, criterion: Criterion, table: PseudoTargets, prior_variance: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Mean and variance of the latents of rows, and what the criterion judges: the same, or each row left out."""
    prior = GaussianPrior.centred(prior_variance, n_latents=table.mean.shape[1])
    fitted = latent(class_posterior(prior, statistics, table), rows.features)
    if criterion is Criterion.TRAINING:
        return fitted, fitted
    targets = PseudoTargets(table.mean[rows.labels], table.variance[rows.labels])
    return fitted, leave_one_out(*fitted, targets, rows.weight)


def _prior_variance(
    statistics: ClassStatistics, table: PseudoTargets, options: Options, *, rough: bool, free_noise: bool = False
) -> Tensor:
    if not options.chooses_prior:
        return options.prior_shapes[0]
    n_latents = table.mean.shape[1]
    latents = torch.linspace(0, n_latents - 1, min(n_latents, _FEW_LATENTS if rough else _MOST_LATENTS)).long()
    found = [
        best_prior_scale(statistics, table, shape, options.of_features, latents, free_noise=free_noise)
        for shape in options.prior_shapes
    ]
    top = max(range(len(found)), key=lambda index: found[index].log_evidence)
    shape = options.prior_shapes[top]
    return torch.where(options.of_features, found[top].scale * shape, shape)


def disperse(table: PseudoTargets, dispersion: float) -> PseudoTargets:
    """Return targets whose variances are multiplied by the dispersion."""
    return PseudoTargets(table.mean, table.variance * dispersion)


def mean_information(
    likelihood: ClassLikelihood, mean: Float[Tensor, "n l"], variance: Float[Tensor, "n l"], weight: Float[Tensor, " n"]
) -> float:
    r"""Return how much a label says about a latent by the exact likelihood, averaged over the posterior and rows.

    By the logistic likelihood that is :math:`\mathbb{E}[p(1-p)]`, which is also what the optimum of variational
    inference adds to the precision. By the softmax it is :math:`\mathrm{diag}(p) - pp^\top`, which knows only the
    K - 1 contrasts of the latents; spread over these, a latent's share is
    :math:`\mathbb{E}[\sum_k p_k(1-p_k)]/(K-1)`.

    Examples
    --------
    >>> zeros = torch.zeros(5, 1).double()
    >>> mean_information(LogisticLikelihood(), zeros, zeros, torch.ones(5).double())
    0.25
    """
    uncertain = likelihood.predict_uncertainty(mean, variance)
    trace = (uncertain.probs * (1.0 - uncertain.probs) - uncertain.std.square()).sum(-1)
    n_shares = 2 if likelihood.n_latents == 1 else likelihood.n_classes - 1
    return max(float(weight @ trace / weight.sum()) / n_shares, _LEAST_INFORMATION)


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
        loss = loss_of(_nll)
        best = _walk(loss, best, (1,))
    if abs(best) == _LAST_PLACE:
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
            nearby = [place for place in (best - step, best, best + step) if abs(place) <= _LAST_PLACE]
            lowest = min(nearby, key=loss)
            if lowest == best:
                break
            best = lowest
    return best


def _nll(
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
