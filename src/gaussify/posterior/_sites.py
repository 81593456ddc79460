r"""Refined sites: from matched labels to the Gaussian posterior of the class likelihood, by weighted least squares.

Each row i has a Gaussian factor, its *site*, :math:`\exp(b_{il} f_l - \tfrac12 W_{il} f_l^2)` for each latent l, which
stands for the likelihood of its label. Matching gives sites that depend on the label alone. Here, they are derived
from the class likelihood where the posterior is: with latent mean m and variance v of the row, and
:math:`E = w_i\,\mathbb{E}_{\mathcal{N}(m, v)}[\log p(y_i \mid f)]`,

.. math:: W_{il} = -2\,\partial E / \partial v_l, \qquad b_{il} = \partial E / \partial m_l + W_{il} m_l.

The posterior given these sites is weighted least squares again. A posterior that reproduces its own sites maximises
the variational bound on the evidence,

.. math:: \mathcal{L}(q) = \sum_i w_i\,\mathbb{E}_q[\log p(y_i \mid f_i)] - \mathrm{KL}(q \,\|\, \text{prior}),

over Gaussians q with independent latents: of one latent, over all Gaussians [1]_ [2]_.

References
----------
.. [1] M. Opper, C. Archambeau, "The variational Gaussian approximation revisited", Neural Computation 21, 2009.
.. [2] M. E. Khan, W. Lin, "Conjugate-computation variational inference", AISTATS 2017.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import Map, product, worker_threads
from gaussify.likelihoods import ClassLikelihood
from gaussify.posterior._gaussian import GaussianPosterior, GaussianPrior, NaturalParameters, condition, latent

_ELEMENTS = 1 << 17  # numbers of features that a thread works on, so that they stay in the cache
_SMALLEST_STEP = 1e-3  # below it, rounding decides whether the bound rises
_NEWTON_STEPS = 5  # of the means, for each update of the covariances
_STILL = 1e-2  # change of a latent's variance that is too small to matter
_MOST_LEVERAGE = 0.999
_ENOUGH = 0.05  # share of the largest rise, under which the covariances matter more
_ROW_STEPS, _WIDE_ROW, _NEAR = 6, 1.0, 0.1
_CG_STEPS, _CG_TOLERANCE = 30, 0.03
_SQUARED_CG_TOLERANCE = 1e-3  # share of a Newton step's gain that is left after it
_ROUNDING = 1e-10  # relative error of the bound


class SiteRows(NamedTuple):
    """Rows from which sites are made.

    Examples
    --------
    >>> SiteRows(torch.ones(2, 3), torch.tensor([0, 1])).weight is None
    True
    """

    features: Float[Tensor, "n d"] | Float[Tensor, "l n d"]
    """Features of all latents, or of each latent."""
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"] | None = None
    unexplained: Float[Tensor, " n"] | Float[Tensor, "n l"] | None = None
    """Variance of the latents that is not that of the weights, as a sparse Gaussian process has it."""

    def take(self, part: slice | Int[Tensor, " k"]) -> "SiteRows":
        """Return some of the rows."""
        features, labels, weight, unexplained = self
        return SiteRows(
            features[..., part, :],
            labels[part],
            None if weight is None else weight[part],
            None if unexplained is None else unexplained[part],
        )

    def explained(self, posterior: GaussianPosterior) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return mean and variance of the latents as far as the weights explain them."""
        if self.features.ndim == 2:
            return latent(posterior, self.features)
        each = zip(posterior.mean, posterior.root, self.features, strict=True)
        parts = [latent(GaussianPosterior(mean[None], root[None]), own) for mean, root, own in each]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means, 1), torch.cat(variances, 1)

    def with_unexplained(self, variance: Float[Tensor, "n l"]) -> Float[Tensor, "n l"]:
        """Return a variance of the latents plus what the weights leave unexplained."""
        if self.unexplained is None:
            return variance
        return variance + (self.unexplained if self.unexplained.ndim == 2 else self.unexplained[:, None])

    def latents(self, posterior: GaussianPosterior) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return mean and variance of the latents."""
        mean, variance = self.explained(posterior)
        return mean, self.with_unexplained(variance)

    def times(self, weights: Float[Tensor, "l d"]) -> Float[Tensor, "n l"]:
        """Return the products of features and weights."""
        if self.features.ndim == 2:
            return self.features @ weights.mT
        return _times(self.features, weights).mT

    def transposed_times(self, values: Float[Tensor, "n l"]) -> Float[Tensor, "l d"]:
        """Return the sum over rows of the features, each times the value of its row and latent."""
        if self.features.ndim == 2:
            return values.mT @ self.features
        return _times(self.features.mT, values.mT)

    def gram(self, weight: Float[Tensor, "n 1"], index: int) -> Float[Tensor, "d d"]:
        """Return the sum over rows of the weighted outer products of the features of a latent."""
        scaled = (self.features if self.features.ndim == 2 else self.features[index]) * weight.sqrt()
        return product(scaled.mT, scaled)


class Sites(NamedTuple):
    r"""Natural parameters of the Gaussian factor of each row and latent.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> sites_of(LogisticLikelihood(), torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([1]))
    Sites(precision=tensor([[0.2500]]), linear=tensor([[0.5000]]))
    """

    precision: Float[Tensor, "n l"]
    linear: Float[Tensor, "n l"]


def sites_of(
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    labels: Int[Tensor, " n"],
    *,
    rough: bool = False,
) -> Sites:
    """Return the sites of rows of weight one whose latents have this mean and variance.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> sites_of(SoftmaxLikelihood(2), torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([1])).linear
    tensor([[-0.5000,  0.5000]])
    """
    expected = likelihood.expected_derivatives(mean, variance, labels, rough=rough)
    return Sites(expected.curvature, expected.gradient + expected.curvature * mean)


def sum_of_sites(rows: SiteRows, sites: Sites) -> NaturalParameters:
    """Return the natural parameters that rows with these sites give the weights; weights of rows do not count again.

    Examples
    --------
    >>> rows = SiteRows(torch.tensor([[2.0]]), torch.tensor([1]))
    >>> sum_of_sites(rows, Sites(torch.tensor([[0.25]]), torch.tensor([[0.5]]))).precision
    tensor([[[1.]]])
    """
    precision = torch.stack([rows.gram(own[:, None], index) for index, own in enumerate(sites.precision.mT)])
    linear = rows.transposed_times(sites.linear)
    return NaturalParameters(precision, linear, torch.zeros_like(linear[:, 0]))


def site_of_row(
    likelihood: ClassLikelihood,
    mean: Float[np.ndarray, " l"],
    variance: Float[np.ndarray, " l"],
    label: int,
    weight: float = 1.0,
) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
    r"""Return precision and linear term of the site that a new row gives its own latents, in NumPy.

    The latents had this mean and variance before the label was seen. The site is made where it moves them, so it
    solves :math:`m' = m + v\,\partial E/\partial m` at :math:`(m', v')` with :math:`1/v' = 1/v + W`. Steps towards the
    solution are halved for wide latents, which a full step would throw past it.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> precision, linear = site_of_row(LogisticLikelihood(), np.zeros(1), np.ones(1), label=1)
    >>> precision, linear
    (array([0.1816]), array([0.4371]))
    """
    own = np.zeros(len(mean))
    if len(mean) == 1:
        own[0] = label
    else:
        own[label] = 1.0
    step = 1.0 if variance.max() < _WIDE_ROW else 0.5
    precision = linear = np.zeros(len(mean))
    at, spread = mean, variance
    for _ in range(_ROW_STEPS):
        probs, slope = likelihood.row_moments(at, spread)
        new_precision = weight * np.maximum(slope, 0.0)
        new_linear = weight * (own - probs) + new_precision * at
        precision, linear = precision + step * (new_precision - precision), linear + step * (new_linear - linear)
        before, spread = at, variance / (1.0 + variance * precision)
        at = spread * (mean / variance + linear)
        if np.abs(at - before).max() < _NEAR * math.sqrt(spread.max()):
            break
    return precision, linear


def cavity(
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    sites: Sites,
    sample_weight: Float[Tensor, " n"] | None = None,
) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
    r"""Return mean and variance of the latents of each row, given all rows but that one.

    .. math:: s_- = \frac{s}{1 - sW}, \qquad m_- = \frac{m - s\,b}{1 - sW}

    This is ``leave_one_out`` in natural parameters, where sites without information are no exception. Of a row of
    weight above one, which counts as several equal rows, one is left out. The leverage :math:`sW` is below one if the
    posterior holds these very sites; a larger one is cut to 0.999.

    Examples
    --------
    >>> cavity(torch.tensor([[1.0]]), torch.tensor([[0.5]]), Sites(torch.tensor([[1.0]]), torch.tensor([[2.0]])))
    (tensor([[0.]]), tensor([[1.]]))
    """
    share = 1.0 if sample_weight is None else sample_weight.clamp_max(1.0)[:, None]
    gradient = share * (sites.linear - sites.precision * mean)
    rest = 1.0 - (share * variance * sites.precision).clamp_max(_MOST_LEVERAGE)
    return mean - variance * gradient / rest, variance / rest


class Refined(NamedTuple):
    """The posterior of the class likelihood.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> from gaussify.posterior import GaussianPrior, NaturalParameters, SiteRows, refine
    >>> prior = GaussianPrior.centred(torch.ones(1).double(), n_latents=1)
    >>> rows = [SiteRows(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([1, 0]))]
    >>> nothing = NaturalParameters(*(torch.zeros(1, *shape).double() for shape in ((1, 1), (1,), ())))
    >>> refined = refine(prior, rows, LogisticLikelihood(), nothing)
    >>> refined.posterior.mean, round(refined.bound, 4)
    (tensor([[0.7041]], dtype=torch.float64), -1.2266)
    """

    posterior: GaussianPosterior
    natural: NaturalParameters
    """Sum of the sites of these rows; its ``constant`` is zero."""
    reference: GaussianPosterior | None
    """The posterior at which ``natural`` is the sum of ``sites_of`` the rows; None after a damped step."""
    bound: float
    """Lower bound on the log-evidence of the labels."""
    n_passes: int
    """Number of times that the covariance was computed from all rows."""
    has_converged: bool


def refine(
    prior: GaussianPrior,
    rows: Iterable[SiteRows],
    likelihood: ClassLikelihood,
    start: NaturalParameters,
    *,
    known: NaturalParameters | None = None,
    max_passes: int = 100,
    tolerance: float = 1e-4,
    rough: bool = False,
    report: Callable[[int, float], None] | None = None,
) -> Refined:
    r"""Return the Gaussian posterior of the class likelihood, by repeated weighted least squares.

    Each pass takes two steps, and neither lowers the bound:

    1. The means climb with fixed covariances, by Newton's method. Latents of a softmax share its curvature, so the
       equations are solved by conjugate gradients, preconditioned with the covariance of each latent. This costs
       n l d for an iteration.
    2. The precisions move to the sum of the sites' precisions at these means, :math:`P + \sum_i W_{il}
       \phi_i\phi_i^\top`, which costs n l d². Where a full step lowers the bound, it is halved.

    The search ends when a pass gains no more, or when the means are the best and the variances of latents would stand
    still. If its last step was damped, a full one follows where that lowers the bound by no more than the tolerance, so
    that all sites are those of one posterior.

    Parameters
    ----------
    prior : GaussianPrior
        Prior of the weights.
    rows : iterable of SiteRows
        All rows, in blocks.
    likelihood : ClassLikelihood
        Likelihood of the labels given the latents.
    start : NaturalParameters
        Sum of sites to start from, such as that of matched labels.
    known : NaturalParameters, optional
        Sum of the sites of other rows, which stay as they are.
    max_passes : int
        Largest number of passes.
    tolerance : float
        Rise of the bound in a pass, in nats for each weight, at which the search has converged.
    rough : bool
        Whether expectations are the rough ones of ``expected_derivatives``, which are enough to compare priors.
    report : callable, optional
        Function that is called after each pass with the number of passes and the bound.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> from gaussify.posterior import GaussianPrior, NaturalParameters, SiteRows, refine
    >>> prior = GaussianPrior.centred(torch.full((1,), 4.0).double(), n_latents=1)
    >>> rows = SiteRows(torch.ones(10, 1).double(), torch.tensor([1] * 9 + [0]))  # nine of ten
    >>> nothing = NaturalParameters(*(torch.zeros(1, *shape).double() for shape in ((1, 1), (1,), ())))
    >>> refined = refine(prior, [rows], LogisticLikelihood(), nothing)
    >>> refined.posterior.mean, refined.posterior.covariance.flatten().sqrt()
    (tensor([[1.9]], dtype=torch.float64), tensor([0.9], dtype=torch.float64))
    """
    known = start * 0.0 if known is None else known
    with worker_threads() as over:
        parts = [part for block in rows for part in _split(block)]
        problem = _Problem(prior, known, parts, likelihood, over, rough)
        natural, reference = start, None
        posterior = condition(prior, known + natural)
        now = problem.expect(posterior.mean, problem.variances(posterior.root))
        bound, has_converged, n_passes = problem.bound(posterior, now), False, 0
        while n_passes < max_passes and not has_converged:
            n_passes += 1
            before = bound
            mean, now, is_top = problem.climb(posterior, now, tolerance * start.linear.numel())
            posterior = GaussianPosterior(mean, posterior.root)
            bound = problem.bound(posterior, now)
            target, step = problem.sum_of_sites(mean, now), 1.0
            if is_top and problem.hardly_moves(natural, target, now):
                natural, reference, has_converged = target, posterior, True
                break
            while step > _SMALLEST_STEP:
                candidate = target if step == 1.0 else (1.0 - step) * natural + step * target
                root = condition(prior, known + candidate).root
                there = problem.expect(mean, problem.variances(root))
                new_bound = problem.bound(GaussianPosterior(mean, root), there)
                if new_bound >= bound - _ROUNDING * abs(bound):
                    natural, reference = candidate, posterior if step == 1.0 else None
                    posterior, now, bound = GaussianPosterior(mean, root), there, new_bound
                    break
                step *= 0.5
            has_converged = bound - before <= tolerance * mean.numel()
            if report is not None:
                report(n_passes, bound)
        if reference is None and has_converged:  # a full step in the end, if the bound hardly notices
            target = problem.sum_of_sites(posterior.mean, now)
            root = condition(prior, known + target).root
            there = problem.expect(posterior.mean, problem.variances(root))
            new_bound = problem.bound(GaussianPosterior(posterior.mean, root), there)
            if new_bound >= bound - tolerance * posterior.mean.numel():
                natural, reference, bound = target, posterior, new_bound
    return Refined(condition(prior, known + natural), natural, reference, bound, n_passes, has_converged)


class _Expectation(NamedTuple):
    """Weighted expectations of the rows' log-probabilities, a tuple of blocks each."""

    value: float
    variances: list[Tensor]  # (n, l) of the latents
    curvature: list[Tensor]  # (n, l)
    coupling: list[Tensor | None]  # (n, l)
    slope: Tensor  # (l, d), gradient by the means of the weights


@dataclass(frozen=True)
class _Problem:
    """The bound as a function of the posterior, over blocks of rows."""

    prior: GaussianPrior
    known: NaturalParameters
    parts: list[SiteRows]
    likelihood: ClassLikelihood
    over: Map
    rough: bool

    @cached_property
    def has_known(self) -> bool:
        """True if there are sites that stay as they are."""
        return bool(self.known.precision.any())

    def variances(self, root: Float[Tensor, "l d d"]) -> list[Tensor]:
        """Return the latents' variances of each block."""
        posterior = GaussianPosterior(root.new_zeros(root.shape[:2]), root)

        return list(self.over(lambda part: part.latents(posterior)[1], self.parts))

    def expect(self, mean: Float[Tensor, "l d"], variances: list[Tensor]) -> _Expectation:
        """Return the expectations at a mean of the weights and variances of the latents."""

        def derivatives(part: SiteRows, variance: Tensor) -> tuple[float, Tensor, Tensor, Tensor | None]:
            value, gradient, curvature, coupling = self.likelihood.expected_derivatives(
                part.times(mean), variance, part.labels, rough=self.rough
            )
            if part.weight is not None:
                weight = part.weight[:, None]
                value, gradient, curvature = value * part.weight, gradient * weight, curvature * weight
                coupling = None if coupling is None else coupling * weight.sqrt()
            return float(value.sum()), part.transposed_times(gradient), curvature, coupling

        values, slopes, curvature, coupling = zip(*self.over(derivatives, self.parts, variances), strict=True)
        return _Expectation(sum(values), variances, list(curvature), list(coupling), sum(slopes))

    def bound(self, posterior: GaussianPosterior, expected: _Expectation) -> float:
        """Return the lower bound on the log-evidence; sites that are known count as labels."""
        mean, root = posterior
        alone = expected.value - kl_divergence(posterior, self.prior)
        if not self.has_known:
            return alone
        return alone - 0.5 * float(((root @ self.known.precision) * root).sum()) + self._known_log_density(mean)

    def pull(self, mean: Float[Tensor, "l d"]) -> Float[Tensor, "l d"]:
        """Return the gradient by the means of what does not depend on the rows: the prior and known sites."""
        prior, known = self.prior, self.known
        return (prior.mean - mean) / prior.variance + known.linear - _times(known.precision, mean)

    def _known_log_density(self, mean: Tensor) -> float:
        return float((mean * (self.known.linear - 0.5 * _times(self.known.precision, mean))).sum())

    def sum_of_sites(self, mean: Float[Tensor, "l d"], expected: _Expectation) -> NaturalParameters:
        """Return the sum of the sites of all rows, made at this mean."""
        n_latents, d = mean.shape
        precision = mean.new_zeros(n_latents, d, d)
        for index in range(n_latents):
            columns = [curvature[:, index, None] for curvature in expected.curvature]
            for moment in self.over(partial(SiteRows.gram, index=index), self.parts, columns):
                precision[index] += moment
        linear = expected.slope + _times(precision, mean)
        return NaturalParameters(precision, linear, mean.new_zeros(n_latents))

    def hardly_moves(self, natural: NaturalParameters, target: NaturalParameters, now: _Expectation) -> bool:
        """Return whether the variances of all latents, given other sites, would change by less than ``_STILL``."""
        before, after = (
            1.0 / self.prior.variance + (self.known + part).precision.diagonal(dim1=-2, dim2=-1)
            for part in (natural, target)
        )
        change = float((after / before).log().abs().max())
        return change * max(float(variance.max()) for variance in now.variances) <= _STILL

    def climb(
        self, posterior: GaussianPosterior, now: _Expectation, tolerance: float
    ) -> tuple[Tensor, _Expectation, bool]:
        """Return better means with the same covariances, the expectations there, and whether these are the best means.

        This is Newton's method. It stops early where the gain becomes small beside the largest, as then the
        covariances matter more.
        """
        mean = posterior.mean if now.coupling[0] is None else self._centred(posterior.mean)
        value, rise = self._objective(mean, now), 0.0
        left = math.inf
        for _ in range(_NEWTON_STEPS):
            gradient = now.slope + self.pull(mean)
            direction = self._solve(gradient, posterior.root, now)
            decrement, step = float((gradient * direction).sum()), 1.0
            while step > _SMALLEST_STEP:
                there = self.expect(mean + step * direction, now.variances)
                new_value = self._objective(mean + step * direction, there)
                if new_value >= value:
                    break
                step *= 0.5
            else:
                left = decrement
                break
            mean, now, value = mean + step * direction, there, new_value
            left = _SQUARED_CG_TOLERANCE * decrement if step == 1.0 else decrement
            if left < tolerance or decrement < _ENOUGH * rise:
                break
            rise = max(rise, decrement)
        return mean, now, left <= tolerance

    def _centred(self, mean: Tensor) -> Tensor:
        """Return the means less what all latents have in common, to which a softmax is blind but the prior is not.

        With known sites, or with features of each latent, there is no such freedom.
        """
        if self.has_known or self.parts[0].features.ndim == 3:
            return mean
        return mean - (mean - self.prior.mean).mean(0)

    def _objective(self, mean: Tensor, expected: _Expectation) -> float:
        """Return the part of the bound that depends on the means."""
        prior = 0.5 * float(((mean - self.prior.mean).square() / self.prior.variance).sum())
        return expected.value - prior + self._known_log_density(mean)

    def _solve(self, gradient: Tensor, root: Tensor, now: _Expectation) -> Float[Tensor, "l d"]:
        """Return about the inverse of the curvature matrix of all weights times a gradient."""

        def times(vector: Tensor) -> Tensor:
            def product_with(part: SiteRows, curvature: Tensor, coupling: Tensor | None) -> Tensor:
                u = part.times(vector)
                if coupling is None:
                    curved = curvature * u
                else:
                    curved = coupling * (coupling.sum(-1, keepdim=True) * u - (coupling * u).sum(-1, keepdim=True))
                return part.transposed_times(curved)

            fixed = vector / self.prior.variance + _times(self.known.precision, vector)
            return fixed + sum(self.over(product_with, self.parts, now.curvature, now.coupling))

        def precondition(vector: Tensor) -> Tensor:
            return _times(root.mT, _times(root, vector))

        return conjugate_gradients(times, gradient, precondition, tolerance=_CG_TOLERANCE, max_iterations=_CG_STEPS)


def conjugate_gradients(
    times: Callable[[Tensor], Tensor],
    right: Tensor,
    precondition: Callable[[Tensor], Tensor],
    *,
    tolerance: float,
    max_iterations: int,
) -> Tensor:
    """Return x of about ``times(x) == right``, for a positive definite linear map ``times``.

    Examples
    --------
    >>> scale = torch.tensor([2.0, 4.0])
    >>> conjugate_gradients(lambda x: scale * x, torch.ones(2), lambda x: x / scale, tolerance=1e-9, max_iterations=5)
    tensor([0.5000, 0.2500])
    """
    x, residual = torch.zeros_like(right), right
    search = precondition(residual)
    square = first = float((residual * search).sum())
    for _ in range(max_iterations):
        if square <= tolerance**2 * first or square <= 0.0:
            break
        image = times(search)
        length = square / float((search * image).sum())
        x, residual = x + length * search, residual - length * image
        conditioned = precondition(residual)
        square, before = float((residual * conditioned).sum()), square
        search = conditioned + square / before * search
    return x


def _times(matrices: Float[Tensor, "l e d"], vectors: Float[Tensor, "l d"]) -> Float[Tensor, "l e"]:
    return (matrices @ vectors[..., None])[..., 0]


def _split(rows: SiteRows) -> Iterator[SiteRows]:
    """Yield rows in blocks that fit into the cache, of at least two rows for each feature."""
    n_rows, n_features = rows.features.shape[-2:]
    size = max(1, _ELEMENTS // n_features, 2 * n_features)
    for start in range(0, n_rows, size):
        yield rows.take(slice(start, start + size))


def kl_divergence(posterior: GaussianPosterior, prior: GaussianPrior) -> float:
    r"""Return the divergence of the posterior of all weights from their prior.

    .. math:: \mathrm{KL} = \tfrac12\sum_l\Big[\sum_j\frac{S_{l,jj} + (m_{lj} - \mu_{lj})^2}{p_j} - d
        + \sum_j\log p_j - \log|S_l|\Big], \qquad S_l = R_l^\top R_l \text{ with triangular } R_l

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.ones(1, 1), torch.ones(1, 1, 1))
    >>> kl_divergence(posterior, GaussianPrior.centred(torch.ones(1), n_latents=1))
    0.5
    """
    mean, root = posterior
    diagonal = root.square().sum(-2)  # of the covariances
    squares = ((diagonal + (mean - prior.mean).square()) / prior.variance).sum(-1) - mean.shape[1]
    log_det = 2.0 * root.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
    return 0.5 * float((squares + prior.variance.log().sum() - log_det).sum())
