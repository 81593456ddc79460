"""The numbers that an estimator chooses itself: prior variance, alpha_eps, method, temperature, dispersion."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gaussify._estimators import (
    FIRST_ALPHA,
    MOST_ATTEMPTS,
    Criterion,
    LabelledRows,
    as_alpha,
    best_label_choice,
    best_temperature,
    mean_nll,
)
from gaussify.likelihoods import (
    ClassLikelihood,
    LikelihoodMethod,
    PseudoTargets,
)
from gaussify.posterior import (
    ClassStatistics,
    GaussianPrior,
    best_prior_scale,
    class_posterior,
    latent,
    leave_one_out,
)

_FEW_LATENTS, _MOST_LATENTS = 4, 64  # that the evidence is summed over, roughly and in the end
_ROWS_FOR_ALPHA = 300  # that alpha_eps and method are compared on: a temperature each makes them nearly equal anyway
_INFORMATION_ROUNDS = 3
_LEAST_INFORMATION = 1e-6  # where all rows are certain


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


def choose(
    statistics: ClassStatistics,
    rows: LabelledRows | None,
    options: Options,
    report: Callable[[float], None] | None = None,
) -> Choice:
    """Return the best numbers, from statistics and, for all but the prior variance, a few rows.

    For each method, ``alpha_eps`` climbs from 0.1 along a grid as long as the criterion improves; at each point the
    prior variance has the largest evidence and the temperature is about the best one. Without rows, what is not given
    is the first method, 0.1, 1 and 1. ``report`` hears after each attempt which share is done, of the most that there
    may be.
    """
    method, alpha_eps = options.methods[0], options.alpha_eps
    if rows is not None and (alpha_eps is None or len(options.methods) > 1):
        few = LabelledRows(*(part[:_ROWS_FOR_ALPHA] for part in rows))
        n_done, n_most = 0, 1 + MOST_ATTEMPTS * len(options.methods)

        def attempt(method: LikelihoodMethod, alpha_eps: Tensor) -> Choice:
            nonlocal n_done
            choice = _attempt(statistics, few, options, method, alpha_eps, rough=True)
            n_done += 1
            if report is not None:
                report(n_done / n_most)
            return choice

        found = best_label_choice(attempt, _score, options.methods, alpha_eps)
        method, alpha_eps = found.method, found.alpha_eps
    return _attempt(statistics, rows, options, method, as_alpha(FIRST_ALPHA) if alpha_eps is None else alpha_eps)


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
        score = -mean_nll(likelihood, *judged, rows.labels, rows.weight, temperature)
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
    score = -mean_nll(likelihood, judged[0] / temperature, judged[1], rows.labels, rows.weight, 1.0)
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
    >>> from gaussify import LogisticLikelihood
    >>> zeros = torch.zeros(5, 1).double()
    >>> mean_information(LogisticLikelihood(), zeros, zeros, torch.ones(5).double())
    0.25
    """
    uncertain = likelihood.predict_uncertainty(mean, variance)
    trace = (uncertain.probs * (1.0 - uncertain.probs) - uncertain.std.square()).sum(-1)
    n_shares = 2 if likelihood.n_latents == 1 else likelihood.n_classes - 1
    return max(float(weight @ trace / weight.sum()) / n_shares, _LEAST_INFORMATION)


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
