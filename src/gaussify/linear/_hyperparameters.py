"""Hyperparameters of the linear model: prior variance, dispersion, label parameters; from sums and a few rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gaussify._calibration import (
    FIRST_ALPHA,
    Choice,
    Criterion,
    LabelledRows,
    LabelParameters,
    as_alpha,
    best_calibration,
    best_temperature,
    choose,
    log_prior_of_alpha,
    mean_nll,
    with_temperature,
)
from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod, PseudoTargets
from gaussify.posterior import (
    ClassStatistics,
    GaussianPrior,
    best_prior_scale,
    class_posterior,
    latent,
    leave_one_out,
)

LOGIT_VARIANCE = 5.0  # of a row under the prior: the median of the prior of the prior variance
PRIOR_SPREAD = 3.0  # standard deviation of its logarithm
NARROWEST, WIDEST = 1e-6, 1e4  # limits of that prior variance
SHAPE_LEAD = 3.0  # nats that a variance of its own for each feature must gain: units that differ gain more
_FEW_LATENTS, _MOST_LATENTS = 4, 64  # latents over which the evidence is summed, to compare choices and in the end
_ROWS_FOR_ALPHA = 300  # enough to compare methods and alpha_eps, which a temperature makes nearly equal anyway
_INFORMATION_ROUNDS = 3
_LEAST_INFORMATION = 1e-6  # if all rows are certain


@dataclass(frozen=True)
class Options:
    """The values given by the user; None, or several prior shapes, stand for a choice."""

    label: LabelParameters
    n_classes: int
    prior_shapes: Sequence[Float[Tensor, " d"]]
    """Prior variances; if ``chooses_prior``, up to a factor."""
    chooses_prior: bool
    """True if the evidence chooses that factor."""
    of_features: Bool[Tensor, " d"]
    """False for the intercept, to which the factor does not apply."""
    dispersion: float | None

    def likelihood(self, choice: Choice) -> ClassLikelihood:
        """Return the likelihood of a choice."""
        return self.label.likelihood(self.n_classes, choice.method, choice.alpha_eps)

    @property
    def prior_centre(self) -> float:
        """Median, under its own prior, of the prior variance that standardised features have."""
        return LOGIT_VARIANCE / max(1, int(self.of_features.sum()))

    @property
    def shifts(self) -> bool:
        """True if offsets are chosen along with the temperature: an intercept carries them."""
        by_others = self.label.criterion is Criterion.LEAVE_ONE_OUT
        return self.label.temperature is None and by_others and not bool(self.of_features.all())


def choose_hyperparameters(
    statistics: ClassStatistics,
    rows: LabelledRows | None,
    options: Options,
    report: Callable[[float], None] | None = None,
) -> Choice:
    """Return the best choice, from the statistics and, for all but the prior variance, from a few rows.

    Each attempt takes the prior variance of largest evidence. Leave-one-out says little where rows are fewer than
    features, and prefers ever smaller alpha_eps there. So alpha_eps has a prior, worth about one row. Without rows, the
    label parameters that are not given are the first method, 0.1 and 1, there are no offsets, and the dispersion is 1.

    Parameters
    ----------
    statistics : ClassStatistics
        Statistics of all rows.
    rows : LabelledRows or None
        Rows on which the criterion is computed.
    options : Options
        What is given.
    report : callable, optional
        Function that is called after each attempt with the share that is done.
    """
    label = options.label
    if rows is None:
        method = label.methods(options.n_classes)[0]
        alpha_eps = as_alpha(FIRST_ALPHA) if label.alpha_eps is None else label.alpha_eps
        return _with_prior(statistics, None, options, method, alpha_eps, rough=False)
    few = rows.first(_ROWS_FOR_ALPHA)

    def complete(method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"], *, rough: bool) -> Choice:
        some = few if rough else rows
        if options.dispersion is None:
            return _with_dispersion(statistics, some, options, method, alpha_eps, rough=rough)
        return _with_prior(statistics, some, options, method, alpha_eps, rough=rough)

    has_prior = label.alpha_eps is None and label.criterion is Criterion.LEAVE_ONE_OUT
    prior_weight = 1.0 / float(rows.weight.sum()) if has_prior else 0.0

    def log_prior(alpha_eps: Float[Tensor, "*c"]) -> float:
        return prior_weight * float(log_prior_of_alpha(alpha_eps.log()))

    return choose(label, options.n_classes, complete, log_prior=log_prior, report=report)


def _with_prior(
    statistics: ClassStatistics,
    rows: LabelledRows | None,
    options: Options,
    method: LikelihoodMethod,
    alpha_eps: Tensor,
    *,
    rough: bool,
) -> Choice:
    """Complete a choice with the prior variance and the temperature, at the dispersion that is given."""
    label, likelihood = options.label, options.label.likelihood(options.n_classes, method, alpha_eps)
    dispersion = 1.0 if options.dispersion is None else options.dispersion
    table = disperse(likelihood.target_table(), dispersion)
    prior_variance = _prior_variance(statistics, table, options, rough=rough)
    temperature = 1.0 if label.temperature is None else label.temperature
    if options.dispersion is None and not options.chooses_prior:  # then it is that of the logits' weights
        prior_variance = torch.where(options.of_features, prior_variance * temperature**2, prior_variance)
    choice = Choice(method, alpha_eps, temperature, None, prior_variance, dispersion)
    if rows is None:
        return choice
    _, judged = _latents(statistics, rows, label.criterion, table, prior_variance)
    return with_temperature(choice, likelihood, *judged, rows, label, rough=rough, shifts=options.shifts)


def _with_dispersion(
    statistics: ClassStatistics,
    rows: LabelledRows,
    options: Options,
    method: LikelihoodMethod,
    alpha_eps: Tensor,
    *,
    rough: bool,
) -> Choice:
    r"""Complete a choice with the dispersion that gives labels the information of the class likelihood.

    Everything here is on the scale of the logits: labels are observations of mean :math:`y/T` and variance :math:`cv`,
    where c gives them the information of a label. So the temperature moves means only, and the prior is that of the
    logits' weights. As the information hardly depends on either, a few rounds settle all three.
    """
    label, likelihood = options.label, options.label.likelihood(options.n_classes, method, alpha_eps)
    table = likelihood.target_table()
    precision = float(rows.share @ (1.0 / table.variance)[rows.labels].mean(-1))
    information = 0.25 if likelihood.n_latents == 1 else 1.0 / likelihood.n_classes  # of equally probable labels
    temperature = 1.0 if label.temperature is None else label.temperature
    base = _prior_variance(statistics, table, options, rough=rough, free_noise=True)
    for last in [*[False] * _INFORMATION_ROUNDS, True]:
        spread = precision / information
        of_logits = base * spread if options.chooses_prior else base
        prior_variance = torch.where(options.of_features, of_logits, base / temperature**2)
        fitted, judged = _latents(statistics, rows, label.criterion, disperse(table, spread), prior_variance)
        if label.temperature is None and not (last and options.shifts):
            temperature = best_temperature(
                likelihood, *judged, rows.labels, rows.weight, rough=rough or not last, of_means=True
            )
        if not last:
            information = mean_information(likelihood, fitted[0] / temperature, fitted[1], rows.weight)
    offset = None
    if options.shifts:
        temperature, offset = best_calibration(
            likelihood, *judged, rows.labels, rows.weight, rough=rough, of_means=True
        )
    logits = judged[0] / temperature if offset is None else judged[0] / temperature + offset
    score = -mean_nll(likelihood, logits, judged[1], rows.labels, rows.weight, 1.0)
    square = temperature**2
    prior_variance = torch.where(options.of_features, of_logits * square, base)
    return Choice(method, alpha_eps, temperature, score, prior_variance, spread * square, offset)


def _latents(
    statistics: ClassStatistics, rows: LabelledRows, criterion: Criterion, table: PseudoTargets, prior_variance: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the latents of rows, and those that the criterion scores: the same, or each row left out."""
    prior = GaussianPrior.centred(prior_variance, n_latents=table.mean.shape[1])
    fitted = latent(class_posterior(prior, statistics, table), rows.features)
    if criterion is Criterion.TRAINING:
        return fitted, fitted
    targets = PseudoTargets(table.mean[rows.labels], table.variance[rows.labels])
    return fitted, leave_one_out(*fitted, targets, rows.weight_learnt)


def _prior_variance(
    statistics: ClassStatistics, table: PseudoTargets, options: Options, *, rough: bool, free_noise: bool = False
) -> Tensor:
    if not options.chooses_prior:
        return options.prior_shapes[0]
    n_latents = table.mean.shape[1]
    latents = torch.linspace(0, n_latents - 1, min(n_latents, _FEW_LATENTS if rough else _MOST_LATENTS)).long()
    prior: dict[str, Any] = {"centre": options.prior_centre, "spread": PRIOR_SPREAD, "within": (NARROWEST, WIDEST)}
    found = [
        best_prior_scale(statistics, table, shape, options.of_features, latents, free_noise=free_noise, **prior)
        for shape in options.prior_shapes
    ]
    top = max(range(len(found)), key=lambda index: found[index].log_evidence - index * SHAPE_LEAD)
    shape = options.prior_shapes[top]
    return torch.where(options.of_features, found[top].scale * shape, shape)


def logit_table(likelihood: ClassLikelihood, choice: Choice) -> PseudoTargets:
    """Return the target table on the scale of the logits, which are latents divided by the temperature."""
    table = disperse(likelihood.target_table(), choice.dispersion / choice.temperature**2)
    return table._replace(mean=table.mean / choice.temperature)


def disperse(table: PseudoTargets, dispersion: float) -> PseudoTargets:
    """Return the target table with its variances multiplied by the dispersion."""
    return PseudoTargets(table.mean, table.variance * dispersion)


def mean_information(
    likelihood: ClassLikelihood, mean: Float[Tensor, "n l"], variance: Float[Tensor, "n l"], weight: Float[Tensor, " n"]
) -> float:
    r"""Return the information of a label about a latent by the class likelihood, averaged over the posterior and rows.

    For the logistic likelihood it is :math:`\mathbb{E}[p(1-p)]`, which is also what the optimum of variational
    inference adds to the precision. For the softmax it is :math:`\mathrm{diag}(p) - pp^\top`, which concerns only the
    K - 1 contrasts of the latents. Divided among these, the share of a latent is
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
    """Return two prior variances: the same for every feature, and then the inverse of each feature's own variance.

    The first is the inverse of the mean of those variances, so that a factor means the same for both in any units. If
    the statistics have more than ``n_features`` features, the last one is a constant.
    """
    total = statistics.count.sum().clamp_min(torch.finfo(torch.float64).tiny)
    square = statistics.gram.diagonal(dim1=-2, dim2=-1).sum(0)[:n_features] / total
    mean = statistics.feature_sum.sum(0)[:n_features] / total
    variance = square - mean.square() if statistics.n_features > n_features else square
    variance = torch.where(variance > 1e-14 * square, variance, square)  # a constant column has none
    variance = torch.where(variance > 0.0, variance, 1.0)
    return [torch.full_like(variance, 1.0 / variance.mean().item()), 1.0 / variance]
