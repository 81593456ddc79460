"""The refined linear model: prior variance and temperature chosen with refined sites, and their sum over rows."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._calibration import Choice, Criterion, LabelledRows, best_temperature, mean_nll
from gaussify.likelihoods import ClassLikelihood
from gaussify.linear._hyperparameters import NARROWEST, PRIOR_SPREAD, SHAPE_LEAD, WIDEST, Options, logit_table
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    NaturalParameters,
    Refined,
    SiteRows,
    Sites,
    cavity,
    condition,
    latent,
    log_evidence,
    natural_parameters,
    refine,
    sites_of,
    sum_of_sites,
)

RefineOption = Literal["auto", False] | int
"""Values of the parameter ``refine``."""

AUTO_PASSES = 30  # at most, of refine="auto"
_STEP = math.log(9.0)  # between prior variances that bracket the best
_SECANTS = 2
_FLAT = 0.1  # nats for a factor of e, for which a prior variance that was chosen before is not chosen again
_LEAST_START, _MOST_START = 1e-2, 1e2  # where the search begins: the evidence of matched labels can be at a far end
_FEW_ROWS, _FEW_PER_FEATURE = 4000, 10  # of more, every so many rows stand for all when prior variances are compared
_LEAST_OF_CLASS = 100  # rows of a class, all of which are kept if there are no more
_REFINEMENT = 8  # times more rows in each step from these to all
_MOST_PRODUCTS = 2e10  # in a pass, beyond which "auto" does not refine
_BLOCK_PASSES = 3  # over a block of a stream
_LEAD = 3.0  # nats of all rows together


class RefinedSites(NamedTuple):
    """Sites of all rows, and what was chosen for them."""

    total: "SiteSum"
    choice: Choice
    """Prior variance and temperature. Method and alpha_eps are those of the matched model."""
    reference: GaussianPosterior | None
    """The posterior at which the sites of the rows of ``fit`` were made; None once other sites have joined them."""


class SiteSum:
    """The sum of the sites of rows, of which the last wait until they can be added by one matrix product.

    A sum that was returned never changes, and ``copy`` is cheap.

    Examples
    --------
    >>> zero = NaturalParameters(*(torch.zeros(1, *shape).double() for shape in ((2, 2), (2,), ())))
    >>> total = SiteSum(zero)
    >>> total.append(torch.ones(1, 2).double(), Sites(torch.full((1, 1), 3.0).double(), torch.ones(1, 1).double()))
    >>> total.natural.precision
    tensor([[[3., 3.],
             [3., 3.]]], dtype=torch.float64)
    """

    def __init__(self, natural: NaturalParameters) -> None:
        self._settled = natural
        self._waiting: list[tuple[Tensor, Sites]] = []
        self._n_waiting = 0

    @property
    def natural(self) -> NaturalParameters:
        """The sum over all rows."""
        if self._waiting:
            features = torch.cat([part for part, _ in self._waiting])
            precision = torch.cat([sites.precision for _, sites in self._waiting])
            linear = torch.cat([sites.linear for _, sites in self._waiting])
            gram = torch.stack([features.mT @ (features * column[:, None]) for column in precision.mT])
            more = NaturalParameters(gram, linear.mT @ features, torch.zeros_like(self._settled.constant))
            self._settled, self._waiting, self._n_waiting = self._settled + more, [], 0
        return self._settled

    def copy(self) -> "SiteSum":
        """Return a copy; changes of one do not affect the other."""
        twin = SiteSum(self._settled)
        twin._waiting, twin._n_waiting = list(self._waiting), self._n_waiting
        return twin

    def append(self, features: Float[Tensor, "n d"], sites: Sites) -> None:
        """Add the sites of rows."""
        self._waiting.append((features, sites))
        self._n_waiting += len(features)
        if self._n_waiting >= max(64, features.shape[1]):
            self.natural  # noqa: B018, which settles


def refined_sites(
    rows: SiteRows,
    judges: LabelledRows | None,
    statistics: ClassStatistics,
    matched: Choice,
    options: Options,
    max_passes: int,
    report: Callable[[float], None] | None = None,
    *,
    before: RefinedSites | None = None,
) -> RefinedSites:
    """Return the refined sites of rows, with the prior variance of the largest bound and a temperature.

    Prior variances are compared with rough sites, of some rows that stand for all if there are many.

    Parameters
    ----------
    rows : SiteRows
        All rows.
    judges : LabelledRows or None
        Rows on which the criterion is computed. Without them, the temperature is 1 unless it is given.
    statistics : ClassStatistics
        Statistics of all rows.
    matched : Choice
        The choice of the matched model, whose posterior is the start.
    options : Options
        The values that are given.
    max_passes : int
        Largest number of passes over the rows for one prior variance.
    report : callable, optional
        Function that is called with the share of the work done so far.
    before : RefinedSites, optional
        Sites of about the same rows, to start from instead.
    """
    likelihood = options.likelihood(matched)
    if before is None:
        variance, start = _matched_sites(statistics, matched, likelihood, options)
    else:
        variance, start = _of_nearest_shape(before.choice.prior_variance, options), before.total.natural
    step = max(1, len(rows.labels) // max(_FEW_ROWS, _FEW_PER_FEATURE * rows.features.shape[1]))

    def fit(step: int, prior_variance: Tensor, start: NaturalParameters) -> Refined:
        prior = GaussianPrior.centred(prior_variance, n_latents=likelihood.n_latents)
        some = [_every(rows, step)]
        return refine(prior, some, likelihood, start, max_passes=max_passes, tolerance=1e-3, rough=True)

    if options.chooses_prior:
        near = before is not None
        variance, start = _best_prior_variance(partial(fit, step), variance, start, options, report, is_near=near)
    while step > 1:  # from some rows to all
        step = math.ceil(step / _REFINEMENT)
        start = fit(step, variance, start).natural if step > 1 else start
    prior = GaussianPrior.centred(variance, n_latents=likelihood.n_latents)
    refined = refine(prior, [rows], likelihood, start, max_passes=max_passes)
    at = refined.posterior if refined.reference is None else refined.reference
    choice = _judged(matched, variance, refined.posterior, at, judges, likelihood, options)
    if report is not None:
        report(1.0)
    return RefinedSites(SiteSum(refined.natural), choice, refined.reference)


def started_sites(statistics: ClassStatistics, matched: Choice, options: Options) -> RefinedSites:
    """Return the matched sites of all rows so far, which those of later rows can join."""
    likelihood = options.likelihood(matched)
    variance, natural = _matched_sites(statistics, matched, likelihood, options)
    temperature = 1.0 if options.label.temperature is None else options.label.temperature
    choice = matched._replace(prior_variance=variance, dispersion=1.0, temperature=temperature, offset=None)
    return RefinedSites(SiteSum(natural), choice, reference=None)


def _matched_sites(
    statistics: ClassStatistics, matched: Choice, likelihood: ClassLikelihood, options: Options
) -> tuple[Float[Tensor, " d"], NaturalParameters]:
    """Return prior variance and sum of sites of the matched model, on the scale of the logits.

    A prior variance that was given stays as it is, as refined latents are logits without a temperature.
    """
    variance = options.prior_shapes[0]
    if options.chooses_prior:
        of_logits = matched.prior_variance / matched.temperature**2
        variance = torch.where(options.of_features, of_logits, matched.prior_variance)
    return variance, natural_parameters(statistics, logit_table(likelihood, matched))


def _best_prior_variance(
    fit: Callable[[Tensor, NaturalParameters], Refined],
    variance: Tensor,
    start: NaturalParameters,
    options: Options,
    report: Callable[[float], None] | None,
    *,
    is_near: bool = False,
) -> tuple[Tensor, NaturalParameters]:
    r"""Return the prior variance with the largest bound, and the sites of a fit near it.

    As the posterior maximises the bound, the derivative of the bound by the logarithm of a common factor of the prior
    variances is that of the divergence alone,

    .. math:: \tfrac12\sum_l\sum_j\left(\frac{m_{lj}^2 + S_{l,jj}}{p_j} - 1\right).

    Its root is bracketed by steps of a factor of nine, and then found by two secants, or if the start ``is_near``, by
    a factor of three and one secant. A log-normal prior of the factor keeps it finite where rows are separable.
    """
    free = options.of_features
    scale_of = partial(prior_scale, options)

    def slope(variance: Tensor, refined: Refined) -> float:
        mean, root = refined.posterior
        squares = (mean.square() + root.square().sum(-2))[:, free] / variance[free]
        return (
            0.5 * float((squares - 1.0).sum()) - math.log(scale_of(variance) / options.prior_centre) / PRIOR_SPREAD**2
        )

    def evidence(variance: Tensor, refined: Refined) -> float:
        """Return that of the sites as if they were observations, which is cheap."""
        return float(
            log_evidence(GaussianPrior.centred(variance, n_latents=len(refined.posterior.mean)), refined.natural).sum()
        )

    if not is_near:
        scale = scale_of(variance)
        variance = torch.where(free, variance * (min(max(scale, _LEAST_START), _MOST_START) / scale), variance)
    refined = fit(variance, start)
    for index, shape in enumerate(options.prior_shapes):
        other = torch.where(free, shape * (scale_of(variance) / scale_of(shape)), variance)
        if not torch.allclose(other, variance, rtol=1e-3):
            lead = SHAPE_LEAD if index else -SHAPE_LEAD
            if is_near and evidence(other, refined) < evidence(variance, refined) + lead:
                continue
            candidate = fit(other, refined.natural)
            if candidate.bound > refined.bound + lead:
                variance, refined = other, candidate
    base, n_attempts = variance, 0

    def attempt(to: float) -> tuple[float, float]:
        nonlocal refined, variance, n_attempts
        variance = torch.where(free, base * math.exp(to), base)
        refined = fit(variance, refined.natural)
        n_attempts += 1
        if report is not None:
            report(n_attempts / (n_attempts + 3.0))
        return to, slope(variance, refined)

    here = 0.0, slope(variance, refined)  # logarithm of the factor of the base, and slope
    if is_near and abs(here[1]) < _FLAT:
        return variance, refined.natural
    step = math.copysign(_STEP / 2.0 if is_near else _STEP, here[1])
    while NARROWEST < scale_of(base) * math.exp(here[0] + step) < WIDEST:
        there = attempt(here[0] + step)
        if there[1] * step <= 0.0:  # the slope has changed its sign
            low, high = sorted((here, there))
            for _ in range(1 if is_near else _SECANTS):
                share = low[1] / (low[1] - high[1])
                between = attempt(low[0] + min(max(share, 0.1), 0.9) * (high[0] - low[0]))
                low, high = (between, high) if between[1] > 0.0 else (low, between)
            break
        here = there
    return variance, refined.natural


def scaled_rows(rows: SiteRows, variance: Tensor, options: Options) -> SiteRows:
    """Return the rows with the unexplained variances that go with a prior variance, from those of a variance of one."""
    if rows.unexplained is None:
        return rows
    return rows._replace(unexplained=prior_scale(options, variance) * rows.unexplained)


def _judged(
    matched: Choice,
    variance: Tensor,
    posterior: GaussianPosterior,
    reference: GaussianPosterior,
    rows: LabelledRows | None,
    likelihood: ClassLikelihood,
    options: Options,
) -> Choice:
    """Return the choice of a prior variance with temperature and score, for sites that were made at ``reference``.

    The best temperature by the criterion is damped to its square root. Leaving out the site of a row leaves what the
    sites of others know of that row, so the criterion sees latents that are a little too good.
    """
    label = options.label
    temperature = 1.0 if label.temperature is None else label.temperature
    choice = matched._replace(prior_variance=variance, dispersion=1.0, score=None, temperature=temperature, offset=None)
    if rows is None:
        return choice
    mean, spread = latent(posterior, rows.features)
    if label.criterion is Criterion.LEAVE_ONE_OUT:
        sites = sites_of(likelihood, *latent(reference, rows.features), rows.labels)
        mean, spread = cavity(mean, spread, sites, rows.weight_learnt)
    if label.temperature is None:
        temperature = math.sqrt(best_temperature(likelihood, mean, spread, rows.labels, rows.weight))
    score = -mean_nll(likelihood, mean, spread, rows.labels, rows.weight, temperature)
    return choice._replace(temperature=temperature, score=score)


def prior_scale(options: Options, variance: Tensor) -> float:
    """Return the prior variance that standardised features would have."""
    free = options.of_features
    shape = options.prior_shapes[-1][free]  # the inverse variances of features, if the prior is chosen
    return (variance[free] / shape).log().mean().exp().item()


def _of_nearest_shape(variance: Tensor, options: Options) -> Tensor:
    """Return prior variances of the same scale that are a multiple of a prior shape; shapes change with the rows."""
    if not options.chooses_prior:
        return variance
    free = options.of_features
    ratios = [(variance / shape)[free].log() for shape in options.prior_shapes]
    index = min(range(len(ratios)), key=lambda index: float(ratios[index].var(correction=0)))
    return torch.where(free, options.prior_shapes[index] * ratios[index].mean().exp(), variance)


def chosen_again(sites: RefinedSites, judges: LabelledRows | None, matched: Choice, options: Options) -> RefinedSites:
    """Return the sites with another choice of prior variance and temperature, for rows that cannot be seen again.

    The prior variance has the largest evidence when sites count as observations.
    """
    likelihood = options.likelihood(matched)
    natural, n_latents = sites.total.natural, likelihood.n_latents
    if options.chooses_prior:
        variance = torch.where(options.of_features, sites.choice.prior_variance, options.prior_shapes[-1])
        factors = [math.exp(_STEP * k / 2.0) for k in range(-6, 7)]
        others = [torch.where(options.of_features, variance * factor, variance) for factor in factors]
        candidates = [variance, *(c for c in others if NARROWEST <= prior_scale(options, c) <= WIDEST)]

        def evidence(variance: Tensor) -> float:
            prior = GaussianPrior.centred(variance, n_latents=n_latents)
            log_scale = math.log(prior_scale(options, variance) / options.prior_centre)
            return float(log_evidence(prior, natural).sum()) - 0.5 * (log_scale / PRIOR_SPREAD) ** 2

        variance = max(candidates, key=evidence)
    else:
        variance = options.prior_shapes[0]
    posterior = condition(GaussianPrior.centred(variance, n_latents=n_latents), natural)
    return sites._replace(choice=_judged(matched, variance, posterior, posterior, judges, likelihood, options))


def with_block(sites: RefinedSites, rows: SiteRows, options: Options) -> RefinedSites:
    """Return the sites with those of a block of new rows, refined together while all sites so far stay."""
    choice = sites.choice
    likelihood = options.likelihood(choice)
    prior = GaussianPrior.centred(choice.prior_variance, n_latents=likelihood.n_latents)
    known = sites.total.natural
    rows = scaled_rows(rows, choice.prior_variance, options)
    refined = refine(prior, [rows], likelihood, 0.0 * known, known=known, max_passes=_BLOCK_PASSES)
    # a choice of its own says that the rows were not learnt one by one
    return RefinedSites(SiteSum(known + refined.natural), choice._replace(), reference=None)


def faded(sites: RefinedSites, factor: float) -> RefinedSites:
    """Return the sites with all weights so far multiplied by a factor."""
    return sites._replace(total=SiteSum(factor * sites.total.natural), reference=None)


def without_sites(sites: RefinedSites, rows: SiteRows, options: Options) -> RefinedSites:
    """Return the sites without those of some rows of ``fit``, which are made again where they were made first."""
    assert sites.reference is not None
    choice = sites.choice
    likelihood = options.likelihood(choice)
    rows = scaled_rows(rows, choice.prior_variance, options)
    own = sites_of(likelihood, *rows.latents(sites.reference), rows.labels)
    if rows.weight is not None:
        own = Sites(own.precision * rows.weight[:, None], own.linear * rows.weight[:, None])
    return sites._replace(total=SiteSum(sites.total.natural - sum_of_sites(rows, own)))


def _every(rows: SiteRows, step: int) -> SiteRows:
    """Return about every step-th row, more of rare classes, weighing as much as all rows of their class together."""
    if step == 1:
        return rows
    kept, shares = [], []
    for label in range(int(rows.labels.max()) + 1):
        own = (rows.labels == label).nonzero()[:, 0]
        some = own[:: max(1, min(step, len(own) // _LEAST_OF_CLASS))]
        kept.append(some)
        shares.append(torch.full((len(some),), len(own) / max(1, len(some)), dtype=rows.features.dtype))
    index, order = torch.cat(kept).sort()
    weight = torch.cat(shares)[order]
    weight = weight if rows.weight is None else weight * rows.weight[index]
    return SiteRows(rows.features[index], rows.labels[index], weight)


def is_better(refined: Choice, matched: Choice, n_rows: float) -> bool:
    """Return whether the criterion prefers the refined model; a lead of the matched one must be beyond chance.

    The matched model has more values to choose, method and alpha_eps, which fit the criterion better by chance.
    """
    return refined.score is not None and (matched.score is None or refined.score > matched.score - _LEAD / n_rows)


def is_affordable(n_rows: int, n_weights: int, n_classes: int) -> bool:
    """Return whether ``refine="auto"`` may refine so many rows: a pass takes seconds, not minutes.

    Examples
    --------
    >>> is_affordable(100_000, 50, 10), is_affordable(100_000, 500, 10)
    (True, False)
    """
    return n_rows * n_weights**2 * n_classes <= _MOST_PRODUCTS
