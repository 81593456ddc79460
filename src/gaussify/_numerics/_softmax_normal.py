r"""Expectations of softmax and log-sum-exp under independent Gaussian latents, by one integral for each row.

By the Gumbel-max identity, with independent :math:`f_j \sim \mathcal{N}(m_j, v_j)` and standard Gumbel :math:`g_j`,

.. math:: \mathbb{E}[\mathrm{softmax}_k(f)] = P(k = \arg\max_j f_j + g_j) = \int r_k(z)\, W(z)\, dz,

where :math:`F_j` is the distribution function of :math:`f_j + g_j`, :math:`W = \prod_j F_j` that of the maximum and
:math:`r_j = (\log F_j)'`. With :math:`R = \sum_j r_j` and :math:`\Lambda = -\log W`, the same integrand gives

.. math::
    \mathbb{E}[p_j p_k] = \int r_j r_k W\, dz \quad (j \ne k), \qquad
    \mathbb{E}[\log\textstyle\sum_j e^{f_j}] = \mathbb{E}[\max_j (f_j + g_j)] - \gamma
    = \int (z + \log\Lambda)\, R\, W\, dz.

The last equation holds as :math:`-\log\Lambda(z)` is standard Gumbel under :math:`W`, with mean :math:`\gamma`.
Derivatives follow from the identities of Bonnet and Price, so nothing is differentiated through the quadrature.

Probabilities are accurate to 1e-6. The nodes of a row depend on that row only, so neither the batch nor its order
changes an answer.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gaussify._numerics._gumbel_normal import double_log_cdf, rough_double_log_cdf
from gaussify._numerics._logistic_normal import sigmoid_pair, softplus_moment
from gaussify._numerics._softmax_normal_row import expected_softmax_row
from gaussify._numerics._softmax_rule import (
    FARTHEST,
    FIRST,
    LAST,
    N_SEARCH,
    NARROW,
    NARROW_LIMIT,
    SLENDER,
    SLENDER_LIMIT,
    WIDE,
    LaguerreHermite,
    Midpoint,
    Panels,
    bracket,
    hermite,
    laguerre,
    legendre,
    midpoints,
    narrow_bracket,
)
from gaussify._numerics._special import is_constant

_ELEMENTS = 1 << 17  # most rows x nodes x classes at a time, so that they stay in the cache
_PLACED = 8  # nodes are placed for so many times more rows together
_EXPANDED = 0.1  # variance below which an expansion is accurate to 1e-3, where the standard deviation is 0.3
_SAMPLES, _MOST_SAMPLED = 64, 24  # quasi-random points, and the largest number of classes that they cover
_MOST_SPREAD = 4.0  # variance up to which they do: steps of wider latents would fall between points
_STEEP = 1.0  # standard deviation above which Stein's lemma gives the slope
_FEW_ROWS, _FEW_NUMBERS = 8, 1 << 10  # up to these sizes, a loop over rows in NumPy is faster than the batch


def expected_softmax(mean: Float[Tensor, "n c"], variance: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Return the expectation of the softmax, (n, c), for latents of ``mean`` and ``variance`` (n, c).

    Examples
    --------
    >>> mean = torch.tensor([[2.0, 0.0, 0.0]])
    >>> expected_softmax(mean, torch.zeros(1, 3))  # the softmax
    tensor([[0.7870, 0.1065, 0.1065]])
    >>> expected_softmax(mean, torch.full((1, 3), 9.0))
    tensor([[0.5170, 0.2415, 0.2415]])
    """
    if _are_few(mean, variance):
        means, variances = mean.numpy(force=True), variance.numpy(force=True)
        probs = np.empty(means.shape)
        for row in range(means.shape[0]):
            probs[row] = expected_softmax_row(means[row], variances[row])
        return torch.from_numpy(probs)
    if mean.shape[-1] == 2:
        return sigmoid_pair(*_difference(mean, variance))
    return _ExpectedSoftmax.apply(mean, variance)


def expected_logsumexp(mean: Float[Tensor, "n c"], variance: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """Return the expectation of the log-sum-exp over the last axis, (n,).

    Examples
    --------
    >>> expected_logsumexp(torch.zeros(1, 3), torch.zeros(1, 3))  # log 3
    tensor([1.0986])
    >>> expected_logsumexp(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([1.3900])
    """
    if mean.shape[-1] == 2:
        return mean[..., 0] + softplus_moment(0, *_difference(mean, variance))
    return _ExpectedLogsumexp.apply(mean, variance)


def softmax_moments(
    mean: Float[Tensor, "n c"], variance: Float[Tensor, "n c"], *, rough: bool = False
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, " n"]]:
    r"""Return :math:`\mathbb{E}[p_k]`, :math:`\mathbb{E}[p_k(1 - p_k)]` and the expected log-sum-exp, without a graph.

    Rows of variances under 0.1 are expanded to first order in the variances, which is ten times faster. Errors grow
    with the square of the variance, from 1e-5 at 0.01 to 1e-3. With p the softmax of the means, and
    :math:`S = \sum_j v_j p_j(1 - 2p_j)`,

    .. math::
        \mathbb{E}[\log\textstyle\sum_j e^{f_j}] \approx \log\sum_j e^{m_j} + \tfrac12\sum_j v_j p_j(1 - p_j), \qquad
        \mathbb{E}[p_k] \approx p_k + \tfrac12 p_k\big(v_k(1 - 2p_k) - S\big),

    and the slope is the derivative of the latter by :math:`m_k`. With ``rough``, rows of variances from 0.25 to 4
    are averages over 64 quasi-random points, which is five times faster than quadrature. Errors are about 0.01, and
    0.05 at most.

    Examples
    --------
    >>> softmax_moments(torch.zeros(1, 3), torch.ones(1, 3))
    (tensor([[0.3333, 0.3333, 0.3333]]), tensor([[0.1728, 0.1728, 0.1728]]), tensor([1.3900]))
    """
    mean, variance = mean.detach(), variance.detach()
    widest, by_sampling = variance.amax(-1), rough and 2 < mean.shape[-1] <= _MOST_SAMPLED
    limits = [(_EXPANDED, _expanded_moments), (SLENDER_LIMIT**2, _all_moments)]
    limits += [(_MOST_SPREAD, _sampled_moments)] if by_sampling else []
    moments = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(widest)
    left = torch.ones_like(widest, dtype=torch.bool)
    for limit, rule in [*limits, (math.inf, _all_moments)]:
        rows = left & (widest < limit)
        if bool(rows.all()):
            return rule(mean, variance)
        if bool(rows.any()):
            for moment, own in zip(moments, rule(mean[rows], variance[rows]), strict=True):
                moment[rows] = own
        left &= ~rows
    return moments


def softmax_uncertainty(
    mean: Float[Tensor, "n c"], variance: Float[Tensor, "n c"]
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, " n"]]:
    r"""Return :math:`\mathbb{E}[p_k]`, :math:`\mathrm{Var}[p_k]` and the expected entropy, without a graph.

    One integral for each row gives all three. The variance is
    :math:`\mathrm{Var}[p_k] = \mathbb{E}[p_k](1 - \mathbb{E}[p_k]) - \mathbb{E}[p_k(1 - p_k)]`. The entropy is
    :math:`H(p) = \log\sum_j e^{f_j} - \sum_k p_k f_k`, and by Stein's lemma
    :math:`\mathbb{E}[p_k f_k] = m_k\mathbb{E}[p_k] + v_k\mathbb{E}[p_k(1 - p_k)]`. In nearly certain rows, where this
    difference loses its digits, it is to second order
    :math:`H(\mathbb{E}[p]) - \frac12\sum_k\mathrm{Var}[p_k]/\mathbb{E}[p_k]`.

    Examples
    --------
    >>> softmax_uncertainty(torch.zeros(1, 3), torch.zeros(1, 3))
    (tensor([[0.3333, 0.3333, 0.3333]]), tensor([[0., 0., 0.]]), tensor([1.0986]))
    """
    mean, variance = mean.detach(), variance.detach()
    probs, slope, logsumexp = _all_moments(mean, variance)
    spread = probs * (1.0 - probs) - slope
    entropy = logsumexp - (mean * probs + variance * slope).sum(-1)
    fall = 0.5 * (spread / probs.clamp_min(torch.finfo(probs.dtype).tiny)).sum(-1)
    better = _is_small(variance.amax(-1), fall)
    return probs, spread, torch.where(better, torch.special.entr(probs).sum(-1) - fall, entropy)


def _all_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return expected softmax (n, c), expected p(1 - p) (n, c) and expected log-sum-exp (n,)."""
    if mean.shape[-1] == 2:
        difference = _difference(mean, variance)
        slope = softplus_moment(2, *difference)
        logsumexp = mean[..., 0] + softplus_moment(0, *difference)
        return sigmoid_pair(*difference), torch.stack([slope, slope], -1), logsumexp
    probs, slope, above_top = _map_rows(_moments, mean, variance)
    spread = _delta_method(probs, variance)
    better = _is_small(variance.amax(-1, keepdim=True), spread)
    return probs, torch.where(better, probs * (1.0 - probs) - spread, slope), mean.amax(-1) + above_top[:, 0]


def _expanded_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``softmax_moments`` does, to first order in the variances."""
    p = torch.softmax(mean, -1)
    q, vp = p * (1.0 - p), variance * p
    lift = variance * (1.0 - 2.0 * p) - (vp * (1.0 - 2.0 * p)).sum(-1, keepdim=True)
    # derivative of lift_k by m_k
    lift_slope = p * (vp * (1.0 - 4.0 * p)).sum(-1, keepdim=True) - 2.0 * variance * q - vp * (1.0 - 4.0 * p)
    logsumexp = torch.logsumexp(mean, -1) + 0.5 * (variance * q).sum(-1)
    return p * (1.0 + 0.5 * lift), q * (1.0 + 0.5 * lift) + 0.5 * p * lift_slope, logsumexp


def _sampled_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return what ``softmax_moments`` does, as averages over quasi-random points z.

    The slope of a wide latent is :math:`\mathbb{E}[p_k z_k] / \sqrt{v_k}` by Stein's lemma. So it is a derivative of
    the very average that stands for the log-sum-exp, and finds steps that lie between points. In narrow latents, the
    division would magnify the errors of the average.
    """
    points, scale = _normal_points(mean.shape[-1], mean.device, mean.dtype), variance.sqrt()
    latents = torch.addcmul(mean[:, None], scale[:, None], points)  # (n, s, c)
    logsumexp = torch.logsumexp(latents, -1)
    p = latents.sub_(logsumexp[..., None]).exp_()
    probs, wide = p.mean(1), scale > _STEEP
    slope = torch.einsum("nsc,sc->nc", p, points) / (_SAMPLES * scale.clamp_min(_STEEP))
    if not bool(wide.all()):
        slope = torch.where(wide, slope, probs - torch.einsum("nsc,nsc->nc", p, p) / _SAMPLES)
    return probs, slope, logsumexp.mean(1)


@lru_cache
def _normal_points(n_classes: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return quasi-random points (s, c), in pairs of opposite ones, with the covariance of the standard normal."""
    engine = torch.quasirandom.SobolEngine(n_classes, scramble=True, seed=0)
    half = torch.special.ndtri(engine.draw(_SAMPLES // 2, dtype=torch.float64).clamp(1e-6, 1.0 - 1e-6))
    points = torch.cat([half, -half])
    factor = torch.linalg.cholesky(points.mT @ points / _SAMPLES)
    return torch.linalg.solve_triangular(factor, points.mT, upper=False).mT.contiguous().to(device, dtype)


def _is_small(largest_variance: Tensor, value: Tensor) -> Tensor:
    """Return where an expansion in the variances, whose error is about their product, beats quadrature's 1e-7."""
    return (largest_variance < 1.0) & (largest_variance * value < 1e-7)


def _delta_method(probs: Tensor, variance: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{Var}[p_k]` to first order in the variances of the latents.

    .. math:: \mathrm{Var}[p_k] \approx \sum_j (\partial p_k / \partial f_j)^2 v_j
       = p_k^2 \left(v_k (1 - 2 p_k) + \textstyle\sum_j p_j^2 v_j\right)
    """
    return probs.square() * (variance * (1.0 - 2.0 * probs) + (probs.square() * variance).sum(-1, keepdim=True))


def _difference(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the second latent less the first, which are enough for two classes."""
    return mean[..., 1] - mean[..., 0], variance[..., 0] + variance[..., 1]


def _are_few(mean: Tensor, variance: Tensor) -> bool:
    """Return True if a loop over rows in NumPy is faster than the batch, and equivalent to it."""
    return (
        0 < mean.shape[0] <= _FEW_ROWS
        and mean.numel() <= _FEW_NUMBERS
        and mean.dtype is variance.dtype is torch.float64
        and mean.is_cpu
        and is_constant(mean, variance)
    )


class _ExpectedSoftmax(Function):
    @staticmethod
    def forward(ctx, mean: Tensor, variance: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(mean, variance)
        dtype = torch.float32 if mean.dtype is torch.float32 else torch.float64
        (probs,) = _map_rows(_probs, mean, variance, dtype=dtype)
        return probs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        mean, variance = ctx.saved_tensors
        grad_mean, grad_variance = _map_rows(_pull_back, mean, variance, grad)
        return grad_mean, grad_variance


class _ExpectedLogsumexp(Function):
    r"""Gradients :math:`\partial_{m_k} = \mathbb{E}[p_k]`, :math:`\partial_{v_k} = \frac12\mathbb{E}[p_k(1-p_k)]`."""

    @staticmethod
    def forward(ctx, mean: Tensor, variance: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        probs, slope, above_top = _map_rows(_moments, mean, variance)
        ctx.save_for_backward(probs, slope)
        return mean.amax(-1) + above_top[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        probs, slope = ctx.saved_tensors
        return grad[:, None] * probs, 0.5 * grad[:, None] * slope


class _Quadrature(NamedTuple):
    """Quadrature over the distribution of the maximum, for n rows, g nodes and c classes."""

    z: Tensor  # (n, g)
    weight: Tensor  # (n, g), of the rule times W(z); normalised
    log_hazard: Tensor  # (n, g), log Lambda
    rate: Tensor  # (n, c, g), r_j
    rate_slope: Tensor | None  # (n, c, g), r_j'
    total_rate: Tensor  # (n, g), R

    def integrate(self, *integrands: Tensor) -> list[Tensor]:
        return [torch.einsum("ng,ncg->nc", self.weight, integrand) for integrand in integrands]


def _probs(quadrature: _Quadrature) -> tuple[Tensor]:
    (probs,) = quadrature.integrate(quadrature.rate)
    return (probs,)


def _moments(quadrature: _Quadrature) -> tuple[Tensor, Tensor, Tensor]:
    """Return expected softmax, expected p(1 - p), and expected log-sum-exp less the largest mean (n, 1)."""
    total = quadrature.total_rate[:, None]
    probs, slope = quadrature.integrate(quadrature.rate, quadrature.rate * (total - quadrature.rate))
    (value,) = quadrature.integrate((quadrature.z + quadrature.log_hazard)[:, None] * total)
    return probs, slope, value


def _pull_back(quadrature: _Quadrature, grad: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the vector-Jacobian product of the expected softmax with the gradient :math:`h`.

    .. math::
        \partial_{m_j} = \int r_j\,(h_j R - \textstyle\sum_k h_k r_k)\, W\, dz, \qquad
        \partial_{v_j} = -\tfrac12 \int \frac{F_j''}{F_j}\,(h_j R - \textstyle\sum_k h_k r_k)\, W\, dz
    """
    assert quadrature.rate_slope is not None
    against = grad[..., None] * quadrature.total_rate[:, None]
    against = against - torch.einsum("nk,nkg->ng", grad, quadrature.rate)[:, None]
    second = quadrature.rate_slope + quadrature.rate.square()  # F'' / F
    grad_mean, grad_variance = quadrature.integrate(quadrature.rate * against, second * against)
    return grad_mean, -0.5 * grad_variance


def _place_nodes(rule: Midpoint | Panels, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes and weights, (n, g) each."""
    if isinstance(rule, Panels):
        return _place_panels(rule, mean, scale)
    centre = torch.logsumexp(mean + 0.5 * scale.square(), -1, keepdim=True)
    low, high = narrow_bracket(mean, scale, lambda ends: ends.amax(-1, keepdim=True), centre)
    middles, weights = _constants(midpoints, rule.size, mean.device, mean.dtype)
    return low + (high - low) * middles, weights.expand(mean.shape[0], -1)


def _place_panels(panels: Panels, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Locate the mass of the maximum in each row, and return nodes and weights of Gauss-Legendre panels there.

    On the left, the sharpest step of all classes cuts the distribution of the maximum off. At some distance from that
    end it varies on the scale of the distance or more slowly. So nodes are placed in the logarithm of the distance, and
    the ends of panels at equal steps of a sum of it and ``-log Lambda``.
    """
    low, high = bracket(mean, scale, lambda ends: ends.amax(-1, keepdim=True))
    unit = torch.linspace(0.0, 1.0, N_SEARCH, dtype=mean.dtype, device=mean.device)
    for _ in range(2):
        z = low + torch.expm1(torch.log1p(high - low) * unit)  # (n, search)
        level = -torch.logsumexp(rough_double_log_cdf(z, mean, scale).neg_(), 1)
        # one step outwards from where the ends are crossed, as interpolation could cut off mass
        low = _lookup(_crossing(level, FIRST) - 1.0, z)
        high = _lookup(_crossing(level, LAST) + 1.0, z)
    distance = torch.log1p((z - low).clamp_min(0.0))
    # the tail above a level of two has little mass, and needs fewer nodes
    progress = 2.0 * distance + torch.where(level < 2.0, level, 2.0 + (level - 2.0) / 3.0)
    first, last = (_lookup(_crossing(z, end), progress) for end in (low, high))
    steps = torch.linspace(0.0, 1.0, panels.number + 1, dtype=mean.dtype, device=mean.device)
    edges = _lookup(_crossing(progress, first + (last - first) * steps), distance)  # (n, panels + 1)
    points, weights = _constants(legendre, panels.order, mean.device, mean.dtype)
    half = 0.5 * edges.diff(dim=-1)[..., None]
    distance = (edges[:, :-1, None] + half * (1.0 + points)).flatten(1)  # (n, g)
    z = low + torch.expm1(distance)
    return z, (half * weights).flatten(1) * torch.exp(distance)


def _evaluate(z: Tensor, weights: Tensor, mean: Tensor, scale: Tensor, *, curvature: bool) -> _Quadrature:
    """Return the quadrature with nodes ``z`` (n, g), for Gaussians plus Gumbel noise."""
    double_log = double_log_cdf(z, mean, scale, curvature=curvature)
    hazard = torch.exp(-double_log.value)  # -log F_j
    rate = hazard * double_log.slope
    rate_slope = None
    if double_log.curvature is not None:
        rate_slope = hazard * (double_log.curvature - double_log.slope.square())
    return _normalised(z, weights, hazard.sum(1), rate, rate_slope)


def _evaluate_slender(mean: Tensor, scale: Tensor, *, curvature: bool) -> _Quadrature:
    r"""Return the same at the nodes of the Laguerre-Hermite rule, which needs no table.

    With :math:`M = \mathbb{E}[a_j^2 e^{-w a_j}]`, :math:`r_j' = w^2 M / F_j - r_j - r_j^2`.
    """
    w, weights = _constants(laguerre, SLENDER.size, mean.device, mean.dtype)
    x, shares = _constants(hermite, SLENDER.order, mean.device, mean.dtype)
    a = torch.exp(mean[..., None] + scale[..., None] * x)  # (n, c, h)
    total = (a @ shares).sum(-1)  # exp(A)
    a /= total[:, None, None]
    decay = torch.exp(a[..., None] * -w)  # (n, c, h, g)
    cdf = shares @ decay  # (n, c, g)
    moments = [torch.matmul((shares * a**k)[..., None, :], decay)[..., 0, :] for k in ((1, 2) if curvature else (1,))]
    rate = moments[0].mul_(w).div_(cdf)
    rate_slope = moments[1] * w.square() / cdf - rate - rate.square() if curvature else None
    z = total.log()[:, None] - w.log()
    return _normalised(z, weights / w, -cdf.log().sum(1), rate, rate_slope)


def _normalised(z: Tensor, weights: Tensor, sum_hazard: Tensor, rate: Tensor, rate_slope: Tensor | None) -> _Quadrature:
    total_rate = rate.sum(1)
    weight = weights * torch.exp(-sum_hazard)
    weight = weight / (weight * total_rate).sum(-1, keepdim=True)  # so that zero variance gives the softmax exactly
    return _Quadrature(z, weight, torch.log(sum_hazard), rate, rate_slope, total_rate)


def _crossing(increasing: Tensor, value: float | Tensor) -> Tensor:
    """Return the fractional index at which each row of ``increasing`` (n, s) crosses ``value`` (n, q)."""
    if not isinstance(value, Tensor):
        value = increasing.new_full((increasing.shape[0], 1), value)
    right = torch.searchsorted(increasing.contiguous(), value.contiguous()).clamp_(1, increasing.shape[-1] - 1)
    before, after = increasing.gather(-1, right - 1), increasing.gather(-1, right)
    part = (value - before) / (after - before).clamp_min(torch.finfo(value.dtype).tiny)
    return right - 1 + part.clamp(0.0, 1.0)


def _lookup(index: Tensor, values: Tensor) -> Tensor:
    """Return ``values`` (n, s) at fractional indices (n, q), interpolated; constant beyond the ends."""
    index = index.clamp(0.0, values.shape[-1] - 1.0)
    left = index.floor().clamp_max(values.shape[-1] - 2.0)
    before, after = values.gather(-1, left.long()), values.gather(-1, left.long() + 1)
    return before + (index - left) * (after - before)


@lru_cache
def _constants(
    rule: Callable[[int], tuple[np.ndarray, np.ndarray]], size: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of a rule as tensors."""
    nodes, weights = (torch.tensor(x, device=device, dtype=dtype) for x in rule(size))
    return nodes, weights


def _map_rows(
    function: Callable[..., tuple[Tensor, ...]],
    mean: Tensor,
    variance: Tensor,
    *more: Tensor,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Return the results of ``function`` for all rows, computed a few at a time in ``dtype`` and bounded memory."""
    shifted = mean.detach() - mean.detach().amax(-1, keepdim=True)  # the softmax does not change
    arguments = [x.to(dtype) for x in (shifted, variance.detach().sqrt(), *(x.detach() for x in more))]
    arguments[0].clamp_min_(-FARTHEST[dtype])
    widest = arguments[1].amax(-1)
    slender, wide = widest < SLENDER_LIMIT, ~(widest < NARROW_LIMIT)
    order: list[Tensor] = []
    results: list[tuple[Tensor, ...]] = []
    for rows, rule in ((slender, SLENDER), (~slender & ~wide, NARROW), (wide, WIDE)):
        size = max(1, _ELEMENTS // (math.prod(rule) * mean.shape[-1]))
        for index in rows.nonzero()[:, 0].split(_PLACED * size):
            if index.numel() == 0 and (results or rule is not WIDE):
                continue  # but if there are no rows at all, one empty result is needed
            order.append(index)
            chunk = [x[index] for x in arguments]
            if isinstance(rule, LaguerreHermite):
                for part in zip(*(x.split(size) for x in chunk), strict=True):
                    results.append(function(_evaluate_slender(*part[:2], curvature=bool(more)), *part[2:]))
                continue
            placed = _place_nodes(rule, *chunk[:2])
            for part in zip(*(x.split(size) for x in (*placed, *chunk)), strict=True):
                results.append(function(_evaluate(*part[:4], curvature=bool(more)), *part[4:]))
    back = torch.cat(order).argsort()
    return [torch.cat(parts)[back].to(mean.dtype) for parts in zip(*results, strict=True)]
