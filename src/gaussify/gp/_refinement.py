r"""Refined Gaussian processes: the posterior of the class likelihood for kernels that the matched model has learnt.

A sparse Gaussian process is a linear model in the features :math:`\phi(x) = L^{-1}k(Z, x)`, whose weights have variance
one, and its latents have the variance :math:`k(x, x) - |\phi(x)|^2` beside. So it is refined as a linear model is, and
the prior variance of the weights becomes a factor of the kernel. An exact model has features too: those of so many of
its rows that the others are all but functions of them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from gaussify._calibration import Choice, LabelParameters, best_temperature, mean_nll
from gaussify._estimators import Floats
from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._models import (
    ExactModel,
    InducingFeatures,
    LatentModel,
    Latents,
    SparseModel,
    SparsePosterior,
    split_table,
)
from gaussify.gp._rows import SortedRows
from gaussify.likelihoods import ClassLikelihood, PseudoTargets
from gaussify.linear._current import observed_site
from gaussify.linear._hyperparameters import Options, logit_table
from gaussify.linear._refinement import (
    RefinedSites,
    SiteSum,
    prior_scale,
    scaled_rows,
    with_block,
    without_sites,
)
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    NaturalParameters,
    RowLatent,
    SiteRows,
    Sites,
    condition,
    natural_parameters,
    refine,
    sum_of_sites,
)

_N_FOLDS = 5
_LEAD = 1.0  # nats of all scored rows together, so that the refined model is not chosen by chance
_MOST_PRODUCTS = 3e8  # in a pass, of which there are a hundred, beyond which "auto" does not refine
_STEP = 8.0  # between factors of the kernels
_SMALLEST, _LARGEST = 1e-3, 1e4  # of them, beside the matched model
_LEFT = 1e-5  # share of the variance of the latents that the rows of an exact model may leave unexplained


class RefinedGP(NamedTuple):
    """Features of a Gaussian process and the refined sites of its rows."""

    features: list[InducingFeatures]
    sites: RefinedSites
    options: Options

    @property
    def choice(self) -> Choice:
        """Label parameters, temperature, score, and the prior variance of the weights."""
        return self.sites.choice

    @property
    def scale(self) -> float:
        """Factor of the kernels."""
        return prior_scale(self.options, self.choice.prior_variance)

    @property
    def likelihood(self) -> ClassLikelihood:
        """Likelihood of the labels given the latents, which are not divided by the temperature."""
        return self.options.likelihood(self.choice)

    def weights(self) -> GaussianPosterior:
        """Return the posterior of the weights of all latents."""
        prior = GaussianPrior.centred(self.choice.prior_variance, n_latents=self.likelihood.n_latents)
        return condition(prior, self.sites.total.natural)

    def posterior(self) -> SparsePosterior:
        """Return the posterior of the latents of any rows."""
        weights = self.weights()
        if len(self.features) == 1:
            return SparsePosterior(self.features, [weights], self.scale)
        each = [GaussianPosterior(*(part[[index]] for part in weights)) for index in range(len(self.features))]
        return SparsePosterior(self.features, each, self.scale)

    def with_rows(
        self, rows: Float[Tensor, "n d"], labels: Int[Tensor, " n"], weight: Float[Tensor, " n"] | None
    ) -> "RefinedGP":
        """Return the model after more rows, whose sites are made now, all together."""
        return self._replace(sites=with_block(self.sites, site_rows(self.features, rows, labels, weight), self.options))

    def without_rows(
        self, rows: Float[Tensor, "n d"], labels: Int[Tensor, " n"], weight: Float[Tensor, " n"] | None
    ) -> "RefinedGP":
        """Return the model without some of the rows it was fitted to."""
        own = site_rows(self.features, rows, labels, weight)
        return self._replace(sites=without_sites(self.sites, own, self.options))

    def merged(self, other: "RefinedGP") -> "RefinedGP":
        """Return the model of the rows of both, which have the same features."""
        total = SiteSum(self.sites.total.natural + other.sites.total.natural)
        return self._replace(sites=self.sites._replace(total=total, reference=None))

    def target(self, latents: RowLatent, label: int) -> tuple[Floats, Floats]:
        """Return the mean and variance with which a label observes the latents of a row, given these before it.

        All of them are divided by the temperature. What features leave unexplained counts as zero.
        """
        _, _, mean, variance = observed_site(self.likelihood, self.choice.temperature, latents, label)
        return mean, variance

    def blank(self) -> "RefinedGP":
        """Return the model of no rows."""
        return self._replace(sites=RefinedSites(SiteSum(0.0 * self.sites.total.natural), self.choice, None))


def refined_gp(
    model: LatentModel,
    rows: SortedRows,
    n_scored: int,
    matched: Choice,
    label: LabelParameters,
    max_passes: int,
    *,
    must: bool,
) -> RefinedGP | None:
    """Return the refined model with the kernels of the matched one.

    Parameters
    ----------
    model : LatentModel
        The matched model.
    rows : SortedRows
        All its rows, those of each class in random order.
    n_scored : int
        Number of rows that are enough for a score.
    matched : Choice
        The choice of the matched model.
    label : LabelParameters
        The label parameters that are given.
    max_passes : int
        Largest number of passes over the rows for one factor of the kernels.
    must : bool
        Whether to refine at any cost. Otherwise None is returned where a pass would take minutes, or where the matched
        model has the better score.
    """
    if isinstance(model, ExactModel):
        model = SparseModel.of_rows(covering_features(model.kernels, rows.features), rows)
    assert isinstance(model, SparseModel)
    options = options_of(model.features, label, rows.n_classes, matched)
    weight = None if bool((rows.weight == 1.0).all()) else rows.weight
    own = site_rows(model.features, rows.features, rows.labels, weight)
    n, n_features = own.features.shape[-2:]
    if not must and n * n_features**2 * rows.n_classes > _MOST_PRODUCTS:
        return None
    likelihood = label.likelihood(rows.n_classes, matched.method, matched.alpha_eps)
    table, square = logit_table(likelihood, matched), matched.temperature**2
    start = _matched_sites(model.statistics, table)
    n_folds = max(1, math.ceil(n_scored * _N_FOLDS / len(rows.labels)))  # of more rows, some are never left out
    folds = _Folds(own, rows.weight, min(n_folds, _N_FOLDS), options, likelihood, table, start, max_passes)
    matched_score = folds.matched_score(1.0 / square)
    scale, temperature, score = folds.best(1.0 / square, label.temperature)
    if score <= matched_score + _LEAD / n_scored and not must:
        return None
    variance = _prior_variance(options, scale)
    prior = GaussianPrior.centred(variance, n_latents=likelihood.n_latents)
    refined = refine(prior, [scaled_rows(own, variance, options)], likelihood, start, max_passes=max_passes)
    choice = matched._replace(prior_variance=variance, temperature=temperature, score=score)
    return RefinedGP(model.features, RefinedSites(SiteSum(refined.natural), choice, refined.reference), options)


class _Folds:
    """Refined models of all rows but those of one fold, which score factors of the kernels.

    The closed form of leave-one-out is no substitute. It takes out a row's site but not what the row did to the sites
    of others. With large factors its scores are far too good.

    Parameters
    ----------
    rows : SiteRows
        All rows, those of each class in random order.
    weight : tensor of shape (n,)
        Their weights.
    n_folds : int
        Number of folds that are left out in turn, of five.
    options, likelihood, table, start, max_passes
        Options of the linear model, likelihood, matched targets, the sum of their sites over all rows, and the largest
        number of passes.
    """

    def __init__(
        self,
        rows: SiteRows,
        weight: Float[Tensor, " n"],
        n_folds: int,
        options: Options,
        likelihood: ClassLikelihood,
        table: PseudoTargets,
        start: NaturalParameters,
        max_passes: int,
    ) -> None:
        shares = fold_shares(weight, n_folds)
        self._others = [_weighed(rows, weight - share) for share in shares]
        self._left_out = [_weighed(rows, share) for share in shares]
        self._weight = torch.cat([share[share > 0.0] for share in shares])
        self._labels = torch.cat([part.labels for part in self._left_out])
        self._starts = [start - _matched_sites_of(part, table) for part in self._left_out]
        self._options, self._likelihood, self._max_passes = options, likelihood, max_passes

    def best(self, first: float, temperature: float | None) -> tuple[float, float, float]:
        """Return the best factor of the kernels, its temperature and its score, going up or down from the first."""
        best = (first, *self._score(first, temperature))
        for step in (_STEP, 1.0 / _STEP):
            start, scale = best, first * step
            while _SMALLEST <= scale / first <= _LARGEST:
                candidate = (scale, *self._score(scale, temperature))
                if candidate[2] <= best[2]:
                    break
                best, scale = candidate, scale * step
            if best is not start:
                break
        return best

    def _score(self, scale: float, temperature: float | None) -> tuple[float, float]:
        """Return the temperature for a factor of the kernels, the best one unless it is given, and the score."""
        variance = _prior_variance(self._options, scale)
        prior = GaussianPrior.centred(variance, n_latents=self._likelihood.n_latents)
        posteriors = []
        for k, others in enumerate(self._others):
            some = [scaled_rows(others, variance, self._options)]
            refined = refine(
                prior, some, self._likelihood, self._starts[k], max_passes=self._max_passes, tolerance=1e-3, rough=True
            )
            self._starts[k] = refined.natural
            posteriors.append(refined.posterior)
        mean, spread = self._predicted(posteriors, variance)
        if temperature is None:
            temperature = best_temperature(self._likelihood, mean, spread, self._labels, self._weight)
        return temperature, -mean_nll(self._likelihood, mean, spread, self._labels, self._weight, temperature)

    def matched_score(self, scale: float) -> float:
        """Return the score of the matched model, before any other; ``scale`` is the squared inverse temperature."""
        variance = _prior_variance(self._options, scale)
        prior = GaussianPrior.centred(variance, n_latents=self._likelihood.n_latents)
        mean, spread = self._predicted([condition(prior, start) for start in self._starts], variance)
        return -mean_nll(self._likelihood, mean, spread, self._labels, self._weight, 1.0)

    def _predicted(self, posteriors: Sequence[GaussianPosterior], variance: Float[Tensor, " e"]) -> Latents:
        """Return the latents of all rows that are left out, each given the rows of other folds."""
        parts = [
            scaled_rows(left_out, variance, self._options).latents(posterior)
            for left_out, posterior in zip(self._left_out, posteriors, strict=True)
        ]
        mean, spread = zip(*parts, strict=True)
        return torch.cat(mean), torch.cat(spread)


def fold_shares(weight: Float[Tensor, " n"], n_folds: int) -> list[Float[Tensor, " n"]]:
    """Return the weight with which each row is left out with each of the first folds, of five.

    A row of a weight above one counts as several equal rows, which go to different folds.

    Examples
    --------
    >>> fold_shares(torch.tensor([1.0, 3.0]), n_folds=3)
    [tensor([1., 0.]), tensor([0., 1.]), tensor([0., 1.])]
    """
    n_copies = weight.ceil().clamp_min(1.0).long()
    first = n_copies.cumsum(0) - n_copies
    whole, rest = n_copies // _N_FOLDS, n_copies % _N_FOLDS
    return [weight * (whole + ((k - first) % _N_FOLDS < rest)) / n_copies for k in range(n_folds)]


def _weighed(rows: SiteRows, weight: Float[Tensor, " n"]) -> SiteRows:
    """Return the rows whose weight is positive, with these weights."""
    places = (weight > 0.0).nonzero()[:, 0]
    return rows.take(places)._replace(weight=weight[places])


def options_of(
    features: Sequence[InducingFeatures], label: LabelParameters, n_classes: int, matched: Choice
) -> Options:
    """Return the options of the linear model in these features: one factor for all weights but the constant mean."""
    likelihood = label.likelihood(n_classes, matched.method, matched.alpha_eps)
    n_points = len(features[0].points)
    shape = torch.ones(n_points + 1, dtype=torch.float64)
    shape[-1] = constant_variance(likelihood.target_table())
    return Options(
        label=label,
        n_classes=n_classes,
        prior_shapes=[shape],
        chooses_prior=False,
        of_features=torch.arange(n_points + 1) < n_points,
        dispersion=1.0,
    )


def _prior_variance(options: Options, scale: float) -> Float[Tensor, " e"]:
    shape = options.prior_shapes[0]
    return torch.where(options.of_features, scale * shape, shape)


def site_rows(
    features: Sequence[InducingFeatures],
    rows: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"] | None,
) -> SiteRows:
    """Return the features of rows, of all latents or of each, with the variances that these leave unexplained."""
    parts = [own(rows) for own in features]
    if len(parts) == 1:
        return SiteRows(parts[0][0], labels, weight, parts[0][1])
    phi, left = zip(*parts, strict=True)
    return SiteRows(torch.stack(phi), labels, weight, torch.stack(left, -1))


@torch.no_grad()
def covering_features(kernels: Sequence[Kernel], rows: Float[Tensor, "n d"]) -> list[InducingFeatures]:
    """Return features of rows that explain all rows, the same number for each kernel.

    They are the first pivots of Cholesky factorisations of the kernel matrices, in n m² operations for m pivots.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> rows = torch.tensor([[0.0], [0.0], [1.0]]).double()
    >>> covering_features([RBFKernel().double()], rows)[0].points.flatten().sort().values
    tensor([0., 1.], dtype=torch.float64)
    """
    pivots, ranks = [], []
    for kernel in kernels:
        covariance = kernel(rows).to_dense()
        _, places, rank, _ = dpstrf(covariance.numpy(), tol=_LEFT * float(covariance.diagonal().max()), lower=1)
        pivots.append(torch.from_numpy(places - 1).long())
        ranks.append(int(rank))
    most = max(ranks)
    return [InducingFeatures.of(kernel, rows[own[:most]]) for kernel, own in zip(kernels, pivots, strict=True)]


def _matched_sites_of(rows: SiteRows, table: PseudoTargets) -> NaturalParameters:
    """Return the sum of the matched sites of rows."""
    precision = 1.0 / table.variance[rows.labels]
    if rows.weight is not None:
        precision = precision * rows.weight[:, None]
    return sum_of_sites(rows, Sites(precision, precision * table.mean[rows.labels]))


def _matched_sites(statistics: Sequence[ClassStatistics], table: PseudoTargets) -> NaturalParameters:
    """Return the sum of the matched sites of all rows, from statistics for each kernel."""
    tables = [table] if len(statistics) == 1 else split_table(table)
    parts = [natural_parameters(own, part) for own, part in zip(statistics, tables, strict=True)]
    return NaturalParameters(
        torch.cat([part.precision for part in parts]),
        torch.cat([part.linear for part in parts]),
        torch.cat([part.constant for part in parts]),
    )
