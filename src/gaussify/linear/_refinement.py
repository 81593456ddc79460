"""The refined linear model: prior variance and temperature chosen with refined sites, and their sum over rows."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._calibration import Choice, Criterion, LabelledRows, with_temperature
from gaussify.likelihoods import ClassLikelihood
from gaussify.linear._hyperparameters import Options
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
    natural_parameters,
    refine,
    sites_of,
)

RefineOption = Literal["auto", False] | int
"""Values of the parameter ``refine``."""

AUTO_PASSES = 30  # at most, of refine="auto"
_COARSE, _FINE = 9.0, 3.0  # steps between prior variances that are compared
_NARROWEST, _WIDEST = 1e-6, 1e4  # prior variances of standardised features
_PRIOR_SPREAD = 3.0  # standard deviation of the logarithm of the prior variance, around one
_FEW_PRODUCTS = 1e8  # up to so many products in a pass, each prior variance is tried with refined sites
_MOST_PRODUCTS = 1e11  # in a pass, beyond which "auto" does not refine
_BLOCK_PASSES = 10  # over a block of a stream
_LEAD = 3.0  # nats of all rows together
_ROUNDS = 3  # of choosing the prior variance with fixed sites


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
) -> RefinedSites:
    """Return the refined sites of rows, with the prior variance and temperature of the best leave-one-out score.

    Parameters
    ----------
    rows : SiteRows
        All rows.
    judges : LabelledRows or None
        Rows on which the criterion is computed. Without them, prior variance and temperature stay as they are.
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
    """
    likelihood = options.label.likelihood(options.n_classes, matched.method, matched.alpha_eps)
    table = likelihood.target_table()
    square = matched.temperature**2
    table = table._replace(mean=table.mean / matched.temperature, variance=table.variance * matched.dispersion / square)
    start = natural_parameters(statistics, table)

    def fit(prior_variance: Tensor, start: NaturalParameters, rough: bool) -> Refined:
        prior = GaussianPrior.centred(prior_variance, n_latents=likelihood.n_latents)
        tolerance = 1e-3 if rough else 1e-5
        return refine(prior, [rows], likelihood, start, max_passes=max_passes, tolerance=tolerance, rough=rough)

    variance = torch.where(options.of_features, matched.prior_variance / square, matched.prior_variance)
    search = _PriorSearch(likelihood, judges, options, matched, fit, report)
    n_products = rows.features.numel() * start.linear.numel()
    if judges is None or not options.chooses_prior:
        refined, choice = search.one(variance, start)
    elif n_products <= _FEW_PRODUCTS:
        refined, choice = search.with_new_sites(variance, start)
    else:
        refined, choice = search.with_fixed_sites(variance, start)
    return RefinedSites(SiteSum(refined.natural), choice, refined.reference)


def chosen_again(sites: RefinedSites, judges: LabelledRows | None, matched: Choice, options: Options) -> RefinedSites:
    """Return the sites with another choice of prior variance and temperature, for rows that cannot be seen again."""
    if judges is None:
        return sites
    likelihood = options.label.likelihood(options.n_classes, matched.method, matched.alpha_eps)
    search = _PriorSearch(likelihood, judges, options, matched, None, None)
    variance = sites.choice.prior_variance
    if options.chooses_prior:
        variance, _ = search.best_with(sites.total.natural, variance)
    posterior = search.posterior(variance, sites.total.natural)
    return sites._replace(choice=search.judged(variance, posterior, rough=False))


def with_block(sites: RefinedSites, rows: SiteRows, options: Options) -> RefinedSites:
    """Return the sites with those of a block of new rows, refined together while all sites so far stay."""
    choice = sites.choice
    likelihood = options.label.likelihood(options.n_classes, choice.method, choice.alpha_eps)
    prior = GaussianPrior.centred(choice.prior_variance, n_latents=likelihood.n_latents)
    known = sites.total.natural
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
    likelihood = options.label.likelihood(options.n_classes, choice.method, choice.alpha_eps)
    own = sites_of(likelihood, *latent(sites.reference, rows.features), rows.labels)
    total = sites.total.copy()
    share = -1.0 if rows.weight is None else -rows.weight[:, None]
    total.append(rows.features, Sites(share * own.precision, share * own.linear))
    return sites._replace(total=total)


def is_better(refined: Choice, matched: Choice, n_rows: float) -> bool:
    """Return whether the criterion prefers the refined model; a lead of the matched one must be beyond chance.

    The matched model has more values to choose, method and alpha_eps, which fit the criterion better by chance.
    """
    return refined.score is not None and (matched.score is None or refined.score > matched.score - _LEAD / n_rows)


def is_affordable(rows: SiteRows, options: Options) -> bool:
    """Return whether ``refine="auto"`` may refine so many rows: a pass takes seconds, not minutes."""
    n_rows, d = rows.features.shape
    return n_rows * d**2 * options.n_classes <= _MOST_PRODUCTS


class _PriorSearch:
    """Scores prior variances by the criterion."""

    def __init__(
        self,
        likelihood: ClassLikelihood,
        judges: LabelledRows | None,
        options: Options,
        matched: Choice,
        fit: Callable[[Tensor, NaturalParameters, bool], Refined] | None,
        report: Callable[[float], None] | None,
    ) -> None:
        self._likelihood, self._judges, self._options, self._matched = likelihood, judges, options, matched
        self._fit, self._report = fit, report

    def one(self, variance: Tensor, start: NaturalParameters) -> tuple[Refined, Choice]:
        """Return the refined sites for one prior variance."""
        assert self._fit is not None
        refined = self._fit(variance, start, False)
        return refined, self._judged_refined(variance, refined, rough=False)

    def with_new_sites(self, variance: Tensor, start: NaturalParameters) -> tuple[Refined, Choice]:
        """Return the best of several prior variances, each with sites of its own."""
        best = self._tried(variance, start)
        for shape in self._options.prior_shapes:
            other = self._of_shape(shape, variance)
            if not torch.allclose(other, variance, rtol=1e-3):
                best = max(best, self._tried(other, best[1].natural), key=lambda tried: tried[0])
        for factor in (_COARSE, _FINE):
            for direction in (factor, 1.0 / factor):
                improved = False
                while (moved := self._moved(best[2].prior_variance, direction)) is not None:
                    attempt = self._tried(moved, best[1].natural)
                    if attempt[0] <= best[0]:
                        break
                    best, improved = attempt, True
                if improved:
                    break
        _, refined, choice = best
        return self.one(choice.prior_variance, refined.natural)

    def with_fixed_sites(self, variance: Tensor, start: NaturalParameters) -> tuple[Refined, Choice]:
        """Return the best prior variance, compared with the same sites, which are then made anew."""
        assert self._fit is not None
        for _ in range(_ROUNDS):
            start = self._fit(variance, start, True).natural
            better, gain = self.best_with(start, variance)
            if gain <= 1e-4:
                break
            variance = better
        return self.one(variance, start)

    def best_with(self, natural: NaturalParameters, variance: Tensor) -> tuple[Tensor, float]:
        """Return the prior variance that is best with these sites, and what it gains."""
        assert self._judges is not None
        at = latent(self.posterior(variance, natural), self._judges.features)
        sites = sites_of(self._likelihood, *at, self._judges.labels, rough=True)

        def score(candidate: Tensor) -> float:
            posterior = self.posterior(candidate, natural)
            return self._penalised(self.judged(candidate, posterior, sites, rough=True))

        first = best = score(variance)
        for direction in (_FINE, 1.0 / _FINE):
            improved = False
            while (moved := self._moved(variance, direction)) is not None and (value := score(moved)) > best:
                best, variance, improved = value, moved, True
            if improved:
                break
        return variance, best - first

    def posterior(self, variance: Tensor, natural: NaturalParameters) -> GaussianPosterior:
        """Return the posterior given a sum of sites."""
        return condition(GaussianPrior.centred(variance, n_latents=self._likelihood.n_latents), natural)

    def _judged_refined(self, variance: Tensor, refined: Refined, *, rough: bool) -> Choice:
        """Return the choice for refined sites, which are made again for the rows that judge, where they were made."""
        sites = None
        if self._judges is not None and refined.reference is not None:
            at = latent(refined.reference, self._judges.features)
            sites = sites_of(self._likelihood, *at, self._judges.labels, rough=rough)
        return self.judged(variance, refined.posterior, sites, rough=rough)

    def judged(
        self, variance: Tensor, posterior: GaussianPosterior, sites: Sites | None = None, *, rough: bool
    ) -> Choice:
        """Return the choice of a prior variance with its temperature and score.

        Parameters
        ----------
        variance : tensor of shape (d,)
            The prior variance.
        posterior : GaussianPosterior
            Posterior with this prior.
        sites : Sites, optional
            Sites of the rows that judge; made at the posterior by default.
        rough : bool
            Whether the posterior has rough sites, and the choice only serves to compare.
        """
        temperature = self._options.label.temperature
        choice = self._matched._replace(
            prior_variance=variance, dispersion=1.0, score=None, temperature=1.0 if temperature is None else temperature
        )
        rows = self._judges
        if rows is None:
            return choice
        mean, spread = latent(posterior, rows.features)
        if self._options.label.criterion is Criterion.LEAVE_ONE_OUT:
            sites = sites_of(self._likelihood, mean, spread, rows.labels, rough=rough) if sites is None else sites
            mean, spread = cavity(mean, spread, sites, rows.weight)
        return with_temperature(choice, self._likelihood, mean, spread, rows, self._options.label, rough=rough)

    def _tried(self, variance: Tensor, start: NaturalParameters) -> tuple[float, Refined, Choice]:
        assert self._fit is not None
        refined = self._fit(variance, start, True)
        choice = self._judged_refined(variance, refined, rough=True)
        return self._penalised(choice), refined, choice

    def _penalised(self, choice: Choice) -> float:
        """Return the score with a prior of the prior variance, worth one row: log-normal around one."""
        assert self._judges is not None
        assert choice.score is not None
        log_scale = math.log(self._scale(choice.prior_variance))
        return choice.score - 0.5 * (log_scale / _PRIOR_SPREAD) ** 2 / float(self._judges.weight.sum())

    def _scale(self, variance: Tensor) -> float:
        """Return the prior variance that standardised features would have."""
        of_features = self._options.of_features
        shape = self._options.prior_shapes[-1][of_features]  # the inverse variances of features, if the prior is chosen
        return (variance[of_features] / shape).log().mean().exp().item()

    def _of_shape(self, shape: Tensor, variance: Tensor) -> Tensor:
        """Return another shape of prior variances, at the same scale."""
        of_features = self._options.of_features
        scaled = shape * (self._scale(variance) / self._scale(shape))
        return torch.where(of_features, scaled, variance)

    def _moved(self, variance: Tensor, factor: float) -> Tensor | None:
        """Return a multiple of the prior variance, or None beyond the limits."""
        moved = torch.where(self._options.of_features, variance * factor, variance)
        return moved if _NARROWEST <= self._scale(moved) <= _WIDEST else None
