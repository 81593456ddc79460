"""Independent definitions that gaussify is held against: slow, plain, and never importing gaussify.

Matching works from a log-density :math:`\\ell(\\psi)` on the real line and computes each method from its definition;
expectations work from the characteristic function of a Gaussian plus Gumbel noise, or from high-precision arithmetic.
"""

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
import torch
from mpmath import mp
from scipy import optimize, special
from scipy.fft import irfft, next_fast_len
from torch import Tensor
from torch.distributions import Beta, Distribution, Kumaraswamy, Normal
from torch.nn.functional import logsigmoid

LogDensity = Callable[[Tensor], Tensor]

MATCH_TOLERANCE = {
    "exact": 1e-12,  # a closed form, or 50 digits, in float64
    "solved": 1e-8,  # Newton's method in float64 against 50 digits
    "oracle": 1e-7,  # a closed form against the float64 quadrature and optimisation below
    "numerical": 1e-5,  # numerical matching of an arbitrary density
    torch.float32: 2e-5,  # float32 against float64
}
"""Largest error of a variance, relative to it, and of a mean, relative to the standard deviation or its own size."""


class Gaussian(NamedTuple):
    mean: float
    variance: float


def assert_matches(actual: Normal, mean: object, variance: object, tolerance: float | str | torch.dtype) -> None:
    """Compare a Normal with the mean and variance that it should have (numbers or arrays of its shape)."""
    tol = MATCH_TOLERANCE.get(tolerance, tolerance)
    mean, variance = (
        torch.as_tensor(x.detach() if isinstance(x, Tensor) else np.asarray(x)).double().expand(actual.mean.shape)
        for x in (mean, variance)
    )
    # a mean of many standard deviations is held to its own rounding, in float32 to that of logarithms up to 14
    floor = mean.abs().clamp_min(0.25) if tolerance is torch.float32 else 1e-3 * mean.abs()
    size = torch.maximum(variance.sqrt(), floor)
    errors = [(actual.mean.double() - mean).abs() / size, (actual.variance.double() / variance - 1.0).abs()]
    for name, error in zip(("mean", "variance"), errors, strict=True):
        worst = float(error.detach().nan_to_num(torch.inf).max())
        assert worst <= tol, f"the {name} is off by {worst:.3g}, where {tol:g} is allowed"


# ---------------------------------------------------------------------------------------------------------------------
# Matching, from a log-density on the real line


def log_density(distribution: Distribution, basis: str, lower: float = 0.0, upper: float = 1.0) -> LogDensity:
    r"""Log-density of :math:`\psi`, by the change of variables, for a distribution of a single number.

    ``basis``: "log" of :math:`\omega - lower`, "logit" of :math:`(\omega - lower)/(upper - lower)`, or "real".
    """
    if isinstance(distribution, Beta):
        return _beta_log_density(distribution.concentration1, distribution.concentration0)
    if isinstance(distribution, Kumaraswamy):
        return _kumaraswamy_log_density(distribution.concentration1, distribution.concentration0)
    free = type(distribution).__new__(type(distribution))
    free.__dict__.update(distribution.__dict__)
    free._validate_args = False  # points at the rim of the support

    def ell(psi: Tensor) -> Tensor:
        if basis == "log":
            omega, log_jacobian = lower + torch.exp(psi), psi
        elif basis == "logit":
            omega = lower + (upper - lower) * torch.sigmoid(psi)
            log_jacobian = logsigmoid(psi) + logsigmoid(-psi)
            log_jacobian = log_jacobian + np.log(upper - lower)
        else:
            omega, log_jacobian = psi, torch.zeros_like(psi)
        return free.log_prob(omega) + log_jacobian

    return ell


def _beta_log_density(a: Tensor, b: Tensor) -> LogDensity:
    """Written out, since torch's own ends where one minus the variable is zero in floats."""
    constant = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    return lambda psi: constant + a * logsigmoid(psi) + b * logsigmoid(-psi)


def _kumaraswamy_log_density(a: Tensor, b: Tensor) -> LogDensity:
    """As for the Beta: the density of the unit interval, a b w^(a-1) (1 - w^a)^(b-1), times w (1 - w)."""

    def ell(psi: Tensor) -> Tensor:
        log_omega = logsigmoid(psi)
        # for psi > 25, 1 - w^a = a (1 - w) to the last digit
        log_tail = torch.where(psi < 25.0, torch.log(-torch.expm1(a * log_omega.clamp_max(-1e-12))), torch.log(a) - psi)
        return torch.log(a * b) + a * log_omega + (b - 1.0) * log_tail + logsigmoid(-psi)

    return ell


def laplace(ell: LogDensity) -> Gaussian:
    """Mode, by Newton's method from the best point of a grid, and curvature by autograd."""
    left, right = _window(ell)
    grid = torch.linspace(left, right, 100_001, dtype=torch.float64)
    psi = grid[_finite(ell(grid)).argmax()]
    for _ in range(50):
        slope, curvature = _derivatives(ell, psi)
        psi = psi - slope / curvature
    _, curvature = _derivatives(ell, psi)
    return Gaussian(float(psi), float(-1.0 / curvature))


def moment(ell: LogDensity) -> Gaussian:
    """Mean and variance by the trapezoidal rule, equally spaced."""
    psi, weights = _quadrature(ell)
    mean = float((weights * psi).sum())
    return Gaussian(mean, float((weights * (psi - mean).square()).sum()))


def moment_ori(ell: LogDensity) -> Gaussian:
    r"""Log-normal whose first two moments are those of :math:`e^\psi`, by the trapezoidal rule."""
    log_moments = [_log_integral(lambda psi, k=k: ell(psi) + k * psi) for k in (0, 1, 2)]
    log_first, log_second = log_moments[1] - log_moments[0], log_moments[2] - log_moments[0]
    variance = log_second - 2.0 * log_first
    return Gaussian(log_first - 0.5 * variance, variance)


def variational(ell: LogDensity) -> Gaussian:
    """Minimiser of KL(q || p), by optimisation of its quadrature over a dense rule."""
    u = torch.linspace(-9.0, 9.0, 1801, dtype=torch.float64)
    weights = torch.softmax(-0.5 * u.square(), 0)

    def kl(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(parameters, requires_grad=True)
        value = -x[1] - weights @ ell(x[0] + torch.exp(x[1]) * u)
        (gradient,) = torch.autograd.grad(value, x)
        return value.item(), gradient.numpy()

    start = laplace(ell)
    best = optimize.minimize(kl, [start.mean, 0.5 * np.log(start.variance)], jac=True, method="BFGS")
    best = optimize.root(lambda x: kl(x)[1], best.x, tol=1e-13)  # values alone locate it to 1e-8 only
    return Gaussian(best.x[0], np.exp(2.0 * best.x[1]))


DEFINITIONS = {"laplace": laplace, "variational": variational, "moment": moment, "moment-ori": moment_ori}


def _finite(values: Tensor) -> Tensor:
    return torch.where(torch.isfinite(values), values, -torch.inf)


def _derivatives(ell: LogDensity, psi: Tensor) -> tuple[Tensor, Tensor]:
    psi = psi.detach().requires_grad_()
    (slope,) = torch.autograd.grad(ell(psi), psi, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, psi)
    return slope.detach(), curvature


def _window(ell: LogDensity) -> tuple[float, float]:
    """Interval outside of which the density has fallen by exp(-45) from its largest value."""
    grid = torch.linspace(-700.0, 700.0, 140_001, dtype=torch.float64)
    values = _finite(ell(grid))
    inside = (values > values.max() - 45.0).nonzero()[:, 0]
    return float(grid[inside[0]]) - 0.01, float(grid[inside[-1]]) + 0.01


def _quadrature(ell: LogDensity) -> tuple[Tensor, Tensor]:
    psi = torch.linspace(*_window(ell), 200_001, dtype=torch.float64)
    return psi, torch.softmax(_finite(ell(psi)), 0)


def _log_integral(ell: LogDensity) -> float:
    psi = torch.linspace(*_window(ell), 200_001, dtype=torch.float64)
    return float(torch.logsumexp(_finite(ell(psi)), 0) + torch.log(psi[1] - psi[0]))


# ---------------------------------------------------------------------------------------------------------------------
# Gamma in 50 digits


def gamma_in_50_digits(a: float, b: float) -> dict[str, Gaussian]:
    """Every method for Gamma(a, b): roots of the derivatives, and moments by polygamma functions."""
    with mp.workdps(50):
        a, b = mp.mpf(a), mp.mpf(b)
        mode = mp.findroot(lambda psi: mp.log(a) - mp.log(b) - psi, 0)  # log of the slope's two terms
        # KL(q || p) = -log(s2)/2 - a m + b exp(m + s2/2): its gradient vanishes where
        s2 = 1 / a
        mean = mp.findroot(lambda m: mp.log(b) + m + s2 / 2 - mp.log(a), 0)
        first, second = a / b, a * (a + 1) / b**2
        v = mp.log(second / first**2)
        return {
            "laplace": _as_floats(mode, 1 / (b * mp.exp(mode))),
            "variational": _as_floats(mean, s2),
            "moment": _as_floats(mp.psi(0, a) - mp.log(b), mp.psi(1, a)),
            "moment-ori": _as_floats(mp.log(first) - v / 2, v),
        }


def _as_floats(mean: mpmath.mpf, variance: mpmath.mpf) -> Gaussian:
    return Gaussian(float(mean), float(variance))


# ---------------------------------------------------------------------------------------------------------------------
# Softplus under a Gaussian


def softplus_derivative(order: int, f: mpmath.mpf) -> mpmath.mpf:
    """Derivative of log(1 + e^f) of an order from 0 to 4, without cancellation in either tail."""
    e = mp.exp(-abs(f))
    if order == 0:
        return mp.log1p(e) + max(f, 0)
    if order == 1:
        return (1 if f > 0 else e) / (1 + e)
    sign = 1 if f > 0 else -1  # odd derivatives are odd functions of f from the third on
    return {2: e, 3: -sign * e * (1 - e), 4: e * (1 - 4 * e + e * e)}[order] / (1 + e) ** order


def softplus_moments_reference(mean: float, variance: float, orders: tuple[int, ...] = (0, 1, 2, 3, 4)) -> list[float]:
    """Expectations of the derivatives of the softplus under N(mean, variance), in 30 digits.

    A trapezoidal rule in f; where the Gaussian is wide, what the step function and its integral would give is taken
    exactly, which leaves a rest within 80 of zero.
    """
    with mp.workdps(30):
        m, s = mp.mpf(mean), mp.sqrt(mp.mpf(variance))
        if s == 0:
            return [float(softplus_derivative(order, m)) for order in orders]
        if s <= 4:
            h = min(mp.mpf("0.12"), s / 4)
            n = int(mp.ceil(12 * s / h))
            nodes = [(m + i * h, h * mp.npdf(i * h, 0, s)) for i in range(-n, n + 1)]
            return [float(mp.fsum(w * softplus_derivative(order, f) for f, w in nodes)) for order in orders]
        step, ramp = mp.ncdf(m / s), s * mp.npdf(m / s) + m * mp.ncdf(m / s)
        exact = {0: ramp, 1: step}
        # the rests are even (order 0) and odd (order 1) in f, with a kink or step at zero: half lines, tanh-sinh rule
        values = []
        for order in orders:
            parts = 0
            for side in (-1, 1):

                def integrand(f: mpmath.mpf, side: int = side, order: int = order) -> mpmath.mpf:
                    e = mp.exp(-f)
                    rest = {0: mp.log1p, 1: lambda e: -side * e / (1 + e)}.get(order)
                    value = softplus_derivative(order, side * f) if rest is None else rest(e)
                    return value * mp.npdf(side * f, m, s)

                parts += mp.quad(integrand, [0, 2, 10, 30, 80])
            values.append(float(exact.get(order, 0) + parts))
        return values


# ---------------------------------------------------------------------------------------------------------------------
# Softmax under independent Gaussians


def softmax_reference(mean: np.ndarray, variance: np.ndarray, step: float = 0.1) -> tuple[np.ndarray, float]:
    """Expected softmax (c,) and expected log-sum-exp of one row, by the Gumbel-max identity, to about 1e-12.

    Densities and distribution functions of Gaussian plus Gumbel noise come from the characteristic function
    Gamma(1 - iw) exp(imw - vw^2/2), which falls as exp(-pi |w| / 2): the trapezoidal rule in frequency, and then the
    one in z, converge exponentially.
    """
    scale = np.sqrt(variance)
    low, high = (mean - 11.0 * scale).min() - 8.0, (mean + 11.0 * scale).max() + 45.0
    n = next_fast_len(int((high - low) / step) + 1, real=True)
    z = low + step * np.arange(n)
    w = 2.0 * np.pi * np.arange(n // 2 + 1) / (n * step)
    with np.errstate(invalid="ignore", divide="ignore"):
        gumbel = np.exp(special.loggamma(1.0 - 1j * w) + 1j * w * (mean[:, None] - low))
        smoothing = -0.5 * variance[:, None] * w**2
        # distribution function less that of the noise alone, whose transform has no pole at zero
        difference = 1j / w * gumbel * np.expm1(smoothing)
    difference[:, 0] = 0.0
    pdf, extra = (irfft(np.conj(x), n, axis=-1) / step for x in (gumbel * np.exp(smoothing), difference))
    # the transforms use exp(+iwz), irfft exp(+iwz) for the inverse: hence the conjugates
    t = z - mean[:, None]
    cdf = np.exp(-np.exp(-np.maximum(t, -700.0))) + extra
    cdf = np.clip(cdf, 1e-30, None)
    log_all = np.log(cdf).sum(0)
    probs = (pdf * np.exp(log_all - np.log(cdf))).sum(-1) * step
    # E[max] = high - integral of W; Gumbel noise adds its mean
    expected_max = z[-1] + 0.5 * step - step * np.exp(log_all).sum()
    return probs, expected_max - np.euler_gamma


def softmax_tensor_product(mean: np.ndarray, variance: np.ndarray, n: int = 81) -> tuple[np.ndarray, np.ndarray, float]:
    """E[p], E[p(1 - p)] and E[logsumexp] for one row of three classes: a dense rule over all latents at once."""
    u = np.linspace(-9.0, 9.0, n)
    w = np.exp(-0.5 * u**2)
    w /= w.sum()
    f = np.stack(np.meshgrid(*(m + s * u for m, s in zip(mean, np.sqrt(variance), strict=True)), indexing="ij"), -1)
    weights = w[:, None, None] * w[:, None] * w
    top = special.logsumexp(f, axis=-1, keepdims=True)
    p = np.exp(f - top)
    return (
        np.einsum("abc,abck->k", weights, p),
        np.einsum("abc,abck->k", weights, p * (1.0 - p)),
        float((weights * top[..., 0]).sum()),
    )
