r"""Expectations of the softplus and its derivatives under a Gaussian, to about 1e-11, for every variance.

With :math:`f \sim \mathcal{N}(m, v)` and :math:`\zeta(f) = \log(1 + e^f)`, so that :math:`\zeta' = \sigma`
is the logistic sigmoid,

.. math:: E_k(m, v) = \mathbb{E}[\zeta^{(k)}(f)], \qquad
   \partial E_k / \partial m = E_{k+1}, \qquad \partial E_k / \partial v = \tfrac12 E_{k+2}.

The second identity is the heat equation. Together they make one function differentiable to any order.

Two trapezoidal rules, which converge exponentially, share the work (:math:`s = \sqrt v`):

* ``s <= 2.8``: a rule over the Gaussian, as the poles of the sigmoid are then far away, at distance :math:`\pi / s`.
  For ``s <= 1.5``, every other node is enough for the first two orders.
* ``s > 2.8`` (2.5 for orders above 1): a rule over logistic noise :math:`l`, as :math:`\sigma(f) = P(l < f)` gives
  :math:`E_1 = \mathbb{E}_l\,\Phi((m - l) / s)`, whose integrand is smooth on the scale of :math:`s`. Away from the
  tails, a Gaussian rule with fewer nodes is enough for :math:`E_1`.

Class probabilities need :math:`E_1` alone. For ``s <= 4`` it takes a fifth of those nodes. The error that the nearest
poles cause in the first rule is known in closed form, and the next poles are three times as far away. Nodes on both
sides of the mean share their exponential.
"""

import cmath
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial, wraps

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import logsigmoid

from gaussify._numerics._special import is_constant

_WIDE = 2.8  # standard deviation above which the rule over logistic noise is better
_WIDE_STEEP = 2.5  # the same for orders above 1, whose integrands are steeper
_SLIM = 1.5  # standard deviation up to which half the nodes are enough
_STEP = 0.22  # between nodes, in standard deviations
_PAIRED = 4.0  # standard deviation up to which the rule with corrected poles computes order 1
_PAIRED_STEP = 0.5
_NO_POLE = 0.5  # standard deviation up to which the nearest poles cause no error
_EXPANDED = 0.03  # variance below which an expansion is accurate to 1e-6
_FAR = 40.0  # standard deviations, at which the density is zero in floats
_CENTRAL = -2.0  # a mean is in the tail if it is below so many standard deviations
_CHUNK = 1 << 11  # rows at a time: about 100 nodes each then stay in the cache
_FEW = 16  # up to so many sigmoids, a loop in NumPy is faster

_Rule = Callable[..., Tensor]  # from orders, means that are not positive and standard deviations to (orders, n)


def softplus_moment(order: int, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the expectation of the ``order``-th derivative of the softplus: 0 is the softplus, 1 the sigmoid.

    It is differentiable to any order by ``mean`` and ``variance``, which broadcast.

    Examples
    --------
    >>> mean, variance = torch.tensor([0.0, 1.0, -3.0]), torch.tensor([4.0, 0.0, 100.0])
    >>> softplus_moment(1, mean, variance)
    tensor([0.5000, 0.7311, 0.3839])
    """
    mean, variance = torch.broadcast_tensors(mean, variance)
    if order == 1 and 0 < mean.numel() <= _FEW and mean.is_cpu and is_constant(mean, variance):
        latents = zip(mean.flatten().tolist(), variance.flatten().tolist(), strict=True)
        return torch.tensor([expected_sigmoid(*latent) for latent in latents], dtype=mean.dtype).view(mean.shape)
    return _SoftplusMoment.apply(mean, variance, order)


def sigmoid_pair(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the expectations of 1 - sigmoid and of sigmoid, (..., 2), the smaller one to full relative accuracy.

    Examples
    --------
    >>> sigmoid_pair(torch.tensor([0.0, -40.0]), torch.tensor([4.0, 0.0]))
    tensor([[5.0000e-01, 5.0000e-01],
            [1.0000e+00, 4.2484e-18]])
    """
    if is_constant(mean, variance):
        smaller = softplus_moment(1, -mean.abs(), variance)
        pair = torch.stack([smaller, 1.0 - smaller], -1)
        return torch.where((mean > 0.0)[..., None], pair, pair.flip(-1))
    # compute both, as the absolute value has no derivative at zero
    return softplus_moment(1, torch.stack([-mean, mean], -1), variance[..., None])


def expected_sigmoid(mean: float, variance: float) -> float:
    """Return the expectation of the sigmoid for a single latent: order 1 of ``softplus_moment``, by the same rules.

    This takes ten microseconds and not 400, which for a single row are spent on calling tensor operations.

    Examples
    --------
    >>> expected_sigmoid(-3.0, 100.0)
    0.3839
    """
    m, s = -abs(mean), math.sqrt(variance)
    v = s * s
    rule = _paired_sigmoid if s <= _PAIRED else _wide_sigmoid
    tail = math.exp(m + 0.5 * v) * (1.0 - rule(m + v, s)) if s > _WIDE_STEEP and m < -v else rule(m, s)
    return 1.0 - tail if mean > 0.0 else tail


class _SoftplusMoment(Function):
    @staticmethod
    def forward(ctx, mean: Tensor, variance: Tensor, order: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(mean, variance)
        ctx.order = order
        (moment,) = softplus_moments((order,), mean, variance)
        return moment

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # type: ignore[no-untyped-def]
        mean, variance = ctx.saved_tensors
        needs_mean, needs_variance, _ = ctx.needs_input_grad
        grad_mean = grad * softplus_moment(ctx.order + 1, mean, variance) if needs_mean else None
        grad_variance = 0.5 * grad * softplus_moment(ctx.order + 2, mean, variance) if needs_variance else None
        return grad_mean, grad_variance, None


def softplus_moments(orders: Sequence[int], mean: Tensor, variance: Tensor) -> list[Tensor]:
    """Return the expectations of several orders, from the same nodes and without a graph."""
    m = mean.detach().double().reshape(-1)
    s = variance.detach().double().reshape(-1).sqrt()
    moments = m.new_empty(len(orders), m.numel())
    for rows, rule in _sigmoid_rules(m, s) if tuple(orders) == (1,) else _rules(s, max(orders)):
        index = rows.nonzero()[:, 0]
        if index.numel():
            moments[:, index] = _tilted(rule, orders, -m[index].abs(), s[index])
    return [
        _reflect(order, m, moment).reshape(mean.shape).to(mean.dtype)
        for order, moment in zip(orders, moments, strict=True)
    ]


def sigmoid_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the expectations of sigmoid, of its slope and of the softplus, without a graph.

    Variances under 0.03 are expanded to second order, which is ten times faster and accurate to 1e-6: an expectation
    is :math:`g + \tfrac v2 g^{(2)} + \tfrac{v^2}8 g^{(4)}`.

    Examples
    --------
    >>> sigmoid_moments(torch.zeros(1), torch.full((1,), 0.01))
    (tensor([0.5000]), tensor([0.2494]), tensor([0.6944]))
    """
    mean, variance = mean.detach(), variance.detach()
    narrow = variance < _EXPANDED
    if not bool(narrow.any()):
        softplus, p, slope = softplus_moments((0, 1, 2), mean, variance)
        return p, slope, softplus
    p, skew = torch.sigmoid(mean), torch.tanh(-0.5 * mean)  # 1 - 2p
    q, v = p * torch.sigmoid(-mean), 0.5 * variance
    third = q * (1.0 - 6.0 * q)
    expanded = (
        p + v * skew * q * (1.0 + 0.5 * v * (1.0 - 12.0 * q)),
        q + v * (third + 0.5 * v * q * (1.0 - 30.0 * q * (1.0 - 4.0 * q))),
        -logsigmoid(-mean) + v * (q + 0.5 * v * third),
    )
    if not bool(narrow.all()):
        wide = ~narrow
        moments = softplus_moments((0, 1, 2), mean[wide], variance[wide])
        for own, order in zip(expanded, (1, 2, 0), strict=True):
            own[wide] = moments[order]
    return expanded


def sigmoid_moments_row(mean: float, variance: float) -> tuple[float, float]:
    """Return the expectations of the sigmoid and of its slope for a single latent, accurate to 1e-6.

    Examples
    --------
    >>> sigmoid_moments_row(0.0, 4.0)
    (0.5, 0.1514)
    """
    s = math.sqrt(variance)
    if s > _PAIRED:  # nodes over the Gaussian would step over the slope
        nodes, weights = _arrays(_gauss_nodes)
        density = np.exp(-0.5 * ((nodes - mean) / s) ** 2) / (math.sqrt(2.0 * math.pi) * s)
        return expected_sigmoid(mean, variance), float(weights @ density)
    nodes, weights = _arrays(_normal_nodes)
    p = 0.5 + 0.5 * np.tanh(0.5 * (mean + s * nodes))
    return float(weights @ p), float(weights @ (p * (1.0 - p)))


def _rules(s: Tensor, order: int) -> Iterator[tuple[Tensor, _Rule]]:
    """Yield the rows of each rule, for orders up to ``order``."""
    narrow, coarse = s <= (_WIDE if order <= 1 else _WIDE_STEEP), (s <= _SLIM) & (order <= 1)
    yield coarse, partial(_narrow_rule, step=2.0 * _STEP)
    yield narrow & ~coarse, _narrow_rule
    yield ~narrow, _wide_rule


def _sigmoid_rules(m: Tensor, s: Tensor) -> Iterator[tuple[Tensor, _Rule]]:
    """Yield the rows of each rule, for order 1 alone."""
    paired = s <= _PAIRED
    central = ~paired & (-m.abs() > _CENTRAL * s)
    yield paired, _paired_rule
    yield central, _central_rule
    yield ~paired & ~central, _wide_rule


def _tilted(rule: _Rule, orders: Sequence[int], m: Tensor, s: Tensor) -> Tensor:
    r"""Return moments by ``rule``; where ``m < -s^2``, through :math:`\sigma(f) = e^f\,\sigma(-f)`, to avoid underflow.

    :math:`E_1(m, v) = e^{m + v/2}\,D_0` with :math:`D_0 = 1 - E_1(m + v, v)`, and its derivatives by m are the others.
    """
    moments = rule(orders, m, s)
    far = (m < -s.square()) & (s > _WIDE_STEEP) if min(orders) > 0 else torch.zeros_like(m, dtype=torch.bool)
    if bool(far.any()):
        v = s[far].square()
        factor = torch.exp(m[far] + 0.5 * v)
        inner = rule(range(1, max(orders) + 1), m[far] + v, s[far])
        inner[0] = inner[0] - 1.0  # -D_0 and its derivatives
        for row, order in enumerate(orders):
            moments[row, far] = -factor * sum(math.comb(order - 1, k) * inner[k] for k in range(order))
    return moments


def _in_chunks(rule: _Rule) -> _Rule:
    """Return the rule, computed for a few rows at a time."""

    @wraps(rule)
    def chunked(orders: Sequence[int], m: Tensor, s: Tensor, **options: float) -> Tensor:
        parts = zip(m.split(_CHUNK), s.split(_CHUNK), strict=True)
        return torch.cat([rule(orders, *part, **options) for part in parts], -1)

    return chunked


def _reflect(order: int, m: Tensor, moment: Tensor) -> Tensor:
    """Undo the reflection to a mean of ``-|m|``, where small moments are accurate in relative terms."""
    if order == 0:
        return moment + m.clamp_min(0.0)
    if order == 1:
        return torch.where(m > 0, 1.0 - moment, moment)
    return moment if order % 2 == 0 else torch.where(m > 0, -moment, moment)


@_in_chunks
def _narrow_rule(orders: Sequence[int], m: Tensor, s: Tensor, step: float = _STEP) -> Tensor:
    """Return moments (orders, n) by the trapezoidal rule over the standard normal."""
    nodes, weights = _normal_nodes(m.device, step)
    f = m[:, None] + s[:, None] * nodes  # (n, nodes)
    p = torch.sigmoid(f)
    return torch.stack([_softplus_derivative(order, f, p) @ weights for order in orders])


def _softplus_derivative(order: int, f: Tensor, p: Tensor) -> Tensor:
    if order == 0:
        return -logsigmoid(-f)
    return p if order == 1 else _horner(_sigmoid_derivative(order), p)


@_in_chunks
def _wide_rule(orders: Sequence[int], m: Tensor, s: Tensor) -> Tensor:
    r"""Return moments (orders, n) by the trapezoidal rule over logistic noise ``l``, with ``a = (m - l) / s``.

    Order 0 is :math:`s(\varphi(a) + a\Phi(a))`, order 1 :math:`\Phi(a)` and order ``k >= 2`` the derivative
    :math:`\Phi^{(k-1)}(a) / s^{k-1} = (-1)^k\,\mathrm{He}_{k-2}(a)\,\varphi(a) / s^{k-1}`.
    """
    nodes, weights = _logistic_nodes(m.device)
    a = (m[:, None] - nodes) / s[:, None]  # (n, nodes)
    cumulative = 0.5 * torch.erfc(-a * math.sqrt(0.5)) if min(orders) < 2 else a
    density = torch.exp(-0.5 * a.square()) / math.sqrt(2.0 * math.pi) if set(orders) != {1} else a
    values = []
    for order in orders:
        if order == 0:
            values.append(s[:, None] * (density + a * cumulative))
        elif order == 1:
            values.append(cumulative)
        else:
            values.append((-1) ** order * _horner(_hermite(order - 2), a) * density / s[:, None] ** (order - 1))
    return torch.stack(values) @ weights


@_in_chunks
def _central_rule(orders: Sequence[int], m: Tensor, s: Tensor) -> Tensor:
    """Return order 1 of ``_wide_rule`` by Gaussian quadrature, (1, n)."""
    nodes, weights = _gauss_nodes(m.device)
    return (0.5 * torch.erfc((nodes - m[:, None]) * (math.sqrt(0.5) / s[:, None])) @ weights)[None]


def _paired_rule(orders: Sequence[int], m: Tensor, s: Tensor) -> Tensor:
    """Return order 1, (1, n), by a trapezoidal rule over the standard normal with its nearest poles corrected."""
    return _paired_sum(orders, m, s) + _nearest_poles(m, s)


@_in_chunks
def _paired_sum(orders: Sequence[int], m: Tensor, s: Tensor) -> Tensor:
    r"""Return the trapezoidal sum, in which the nodes :math:`\pm x` share their exponential.

    With :math:`q = e^m` and :math:`c = q(e^{sx} + e^{-sx})`, both together are
    :math:`\sigma(m + sx) + \sigma(m - sx) = (c + 2q^2) / (c + 1 + q^2)`, without cancellation.
    """
    nodes, weights = _paired_nodes(m.device)
    q = torch.exp(m)
    square = q * q
    c = torch.exp(nodes[:, None] * s)  # (nodes, n); then in place, as memory takes most of the time
    total = c.reciprocal()
    c.add_(total).mul_(q)
    torch.add(c, 1.0 + square, out=total)
    return (weights @ c.add_(2.0 * square).div_(total))[None]


def _nearest_poles(m: Tensor, s: Tensor) -> Tensor:
    r"""Return the error of the rule by the poles of :math:`\varphi(x)\,\sigma(m + sx)` at :math:`(-m \pm i\pi) / s`.

    A rule with step h is the integral of the integrand times :math:`1 / (1 - e^{-2\pi ix/h})` around the real line. So
    the residue :math:`\varphi(x) / s` at the upper pole, and its conjugate, make it smaller than the integral by

    .. math:: \frac{4\pi}{s}\,\mathrm{Im}\,\frac{\varphi(x)}{e^{-2\pi ix/h} - 1}
        = \frac{\sqrt{8\pi}}{s}\,e^{(\pi^2 - m^2) / 2s^2}\,\mathrm{Im}\,\frac{e^{i\pi m/s^2}}{e^{(\pi + im)t} - 1},
        \qquad t = \frac{2\pi}{sh}.
    """
    s = s.clamp_min(_NO_POLE)  # correcting a pole beyond the contour of least error, at 2 pi / h, would do harm
    m = torch.maximum(m, -_FAR * s)
    t = 2.0 * math.pi / _PAIRED_STEP / s
    v, angle, decay = s * s, m * t, torch.exp(-math.pi * t)
    turn = math.pi * m / v
    imaginary = (torch.sin(turn - angle) - decay * torch.sin(turn)) / (1.0 - decay * (2.0 * torch.cos(angle) - decay))
    return math.sqrt(8.0 * math.pi) / s * torch.exp(0.5 * (math.pi**2 - m * m) / v) * decay * imaginary


def _paired_sigmoid(m: float, s: float) -> float:
    """Return order 1 by ``_paired_rule``, for one latent."""
    nodes, weights = _arrays(_paired_nodes)
    q = math.exp(m)
    c = np.exp(s * nodes)
    c = q * (c + 1.0 / c)
    s = max(s, _NO_POLE)
    x = complex(min(-m, _FAR * s), math.pi) / s
    poles = math.sqrt(8.0 * math.pi) / s * cmath.exp(-0.5 * x * x) / (cmath.exp(-2j * math.pi / _PAIRED_STEP * x) - 1.0)
    return float(weights @ ((c + 2.0 * q * q) / (c + (1.0 + q * q)))) + poles.imag


def _wide_sigmoid(m: float, s: float) -> float:
    """Return order 1 by ``_wide_rule`` or ``_central_rule``, for one latent."""
    nodes, weights = _arrays(_gauss_nodes if m > _CENTRAL * s else _logistic_nodes)
    a = torch.from_numpy((nodes - m) * (math.sqrt(0.5) / s))
    return 0.5 * float(weights @ torch.erfc(a).numpy())


@lru_cache
def _arrays(nodes: Callable[[torch.device], tuple[Tensor, Tensor]]) -> list[np.ndarray]:
    return [x.numpy() for x in nodes(torch.device("cpu"))]


@lru_cache
def _normal_nodes(device: torch.device, step: float = _STEP) -> tuple[Tensor, Tensor]:
    last = round(9.46 / step)
    nodes = torch.arange(-last, last + 1, dtype=torch.float64, device=device) * step
    weights = torch.softmax(-0.5 * nodes.square(), 0)  # sum to one, so that zero variance is exact
    return nodes, weights


@lru_cache
def _paired_nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the nodes from zero on; zero has half its weight, as it is its own reflection."""
    nodes, weights = _normal_nodes(device, _PAIRED_STEP)
    weights = weights[nodes >= 0.0]
    weights[0] *= 0.5
    return nodes[nodes >= 0.0], weights


@lru_cache
def _logistic_nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    nodes = torch.arange(-95, 51, dtype=torch.float64, device=device) * 0.6
    weights = torch.softmax(logsigmoid(nodes) + logsigmoid(-nodes), 0)
    return nodes, weights


@lru_cache
def _gauss_nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    r"""Return Gaussian nodes for the logistic density; its polynomials recur with :math:`\pi^2 k^4 / (4 k^2 - 1)`."""
    k = np.arange(1, 64)
    below = np.diag(math.pi * k**2 / np.sqrt(4.0 * k**2 - 1.0), -1)
    nodes, vectors = np.linalg.eigh(below + below.T)
    return torch.from_numpy(nodes).to(device), torch.from_numpy(vectors[0] ** 2).to(device)


@lru_cache
def _sigmoid_derivative(order: int) -> tuple[float, ...]:
    """Return the ``order``-th derivative of the softplus as a polynomial in the sigmoid p, lowest coefficient first."""
    slope = Polynomial([0.0, 1.0, -1.0])  # dp/df = p (1 - p)
    polynomial = Polynomial([0.0, 1.0])
    for _ in range(order - 1):
        polynomial = polynomial.deriv() * slope
    return tuple(polynomial.coef)


@lru_cache
def _hermite(degree: int) -> tuple[float, ...]:
    """Return the coefficients, lowest first, of the probabilists' Hermite polynomial."""
    return tuple(np.polynomial.hermite_e.herme2poly([0.0] * degree + [1.0]))


def _horner(coefficients: Sequence[float], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.mul_(x).add_(coefficient)
    return value
