r"""Matching of any continuous univariate distribution, given its density :math:`p = e^\ell` in the basis.

Deterministic rules find the Gaussian without a graph, in float64. One more Newton step (for moments, the quadrature sum
itself) is then taken with a graph. At a solution that step is zero, and its first derivative by the parameters of the
distribution is that of the implicit function theorem.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution, Kumaraswamy, Normal, TransformedDistribution, constraints

from gaussify._numerics import cover, first_order
from gaussify.exceptions import NumericalError, UnsupportedMatchError
from gaussify.matching._basis import support_of
from gaussify.matching._methods import MatchMethod

LogDensity = Callable[[Tensor], Tensor]
"""From points of shape (n, *batch) in the basis to log-densities of the same shape."""

_FAR = 700.0  # exp(700) is finite, exp(710) is not


def match_numerically(distribution: Distribution, basis: TransformedDistribution, method: MatchMethod) -> Normal:
    """Return the Normal for ``distribution``, whose density in the basis is that of ``basis``."""
    if method is MatchMethod.MOMENT_ORI:
        return _moment_ori(distribution)
    log_density = _log_density(distribution, basis)
    grid = _Grid(log_density, distribution)
    rule = {MatchMethod.MOMENT: _moment, MatchMethod.LAPLACE: _laplace, MatchMethod.VARIATIONAL: _variational}
    mean, scale = rule[method](log_density, grid)
    if not log_density(grid.mode[None]).requires_grad:  # else what is left is the graph of derivatives by psi
        mean, scale = mean.detach(), scale.detach()
    dtype = _parameter(distribution).dtype
    return Normal(first_order(mean).to(dtype), first_order(scale).to(dtype))


def _parameter(distribution: Distribution) -> Tensor:
    """Return a tensor with the dtype and device of the distribution; some have neither a mean nor named parameters."""
    for name in distribution.arg_constraints:
        if isinstance(value := getattr(distribution, name, None), Tensor):
            return value
    with torch.random.fork_rng():
        return distribution.sample()


def _log_density(distribution: Distribution, basis: TransformedDistribution) -> LogDensity:
    """Return the log-density in the basis; minus infinity where the inverse transform leaves the range of floats."""
    if isinstance(distribution, Kumaraswamy):
        return _kumaraswamy_log_density(distribution)

    basis = copy.copy(basis)  # the distribution belongs to the caller
    basis.base_dist = copy.copy(basis.base_dist)

    def log_density(psi: Tensor) -> Tensor:
        value = basis.log_prob(psi)
        return torch.where(torch.isfinite(value), value, -torch.inf)

    basis._validate_args = False  # points at the edge of the support are expected
    basis.base_dist._validate_args = False
    return log_density


def _kumaraswamy_log_density(distribution: Kumaraswamy) -> LogDensity:
    r"""Return the log-density of a Kumaraswamy, also where :math:`1 - \omega` underflows and torch's own density ends.

    With :math:`\log\omega = -\zeta(-\psi)`, the density
    :math:`ab\,\omega^{a-1}(1-\omega^a)^{b-1}\,\omega(1-\omega)` needs only :math:`\log(1 - \omega^a)`.
    """
    a, b = distribution.concentration1.double(), distribution.concentration0.double()

    def log_density(psi: Tensor) -> Tensor:
        log_omega, log_rest = torch.nn.functional.logsigmoid(psi), torch.nn.functional.logsigmoid(-psi)
        # for psi > 36, omega = 1 in floats: 1 - omega^a is then a (1 - omega)
        near = psi < 30.0
        power = torch.where(near, a * log_omega, -torch.ones_like(psi))
        log_one_minus_power = torch.where(near, torch.log(-torch.expm1(power)), torch.log(a) + log_rest)
        return torch.log(a) + torch.log(b) + a * log_omega + (b - 1.0) * log_one_minus_power + log_rest

    return log_density


class _Grid:
    """The place of a density's mass: its mode, and quadrature nodes and weights that cover it."""

    def __init__(self, log_density: LogDensity, distribution: Distribution) -> None:
        self.family = type(distribution).__name__
        # some densities are computed in the dtype of their parameters, even at points in float64
        self.tolerance = 1e-9 if _parameter(distribution).dtype == torch.float64 else 1e-5
        with torch.no_grad():
            self.mode = _find_mode(log_density, distribution)
            try:
                self.width, self.nodes, self.log_weights = cover(log_density, self.mode, n_nodes=2001)
            except ArithmeticError:
                raise NumericalError(
                    f"match found no end to the density of {self.family} in its basis: it does not fall off, so no "
                    "Gaussian can be matched."
                ) from None
            mass = torch.exp(log_density(self.nodes) + self.log_weights).sum(0)
        if bool(((mass - 1.0).abs() > 5e-6).any()):
            raise NumericalError(
                f"match could not find the whole mass of {self.family} in its basis: the integral of its density is "
                f"{mass.flatten()[(mass - 1).abs().argmax()].item():.7g} within the range of floating-point numbers. "
                "Its tails are too long, or its density is discontinuous or has several distant modes. Add a rule for "
                "it with register_match."
            )


def _find_mode(log_density: LogDensity, distribution: Distribution) -> Tensor:
    """Return the mode, by zooming in on the highest point of ever finer grids."""
    low, high = _search_range(distribution)
    for _ in range(20):  # until no mode lies at an end
        ends = log_density(torch.stack([low, 0.5 * low, 0.5 * high, high]))
        rising = (ends[0] > ends[1]) | (ends[3] > ends[2])
        if not bool(rising.any()):
            break
        low, high = torch.where(rising, 2.0 * low, low), torch.where(rising, 2.0 * high, high)
    unit = torch.linspace(0.0, 1.0, 65, dtype=torch.float64, device=low.device).reshape(-1, *[1] * low.ndim)
    for _ in range(14):
        points = low + (high - low) * unit
        mode = points.gather(0, log_density(points).argmax(0, keepdim=True))[0]
        step = (high - low) / 64.0
        low, high = mode - step, mode + step
    return mode


def _search_range(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Return the ends of the search for a mode: 100 standard deviations on the real line, else all of exp's range."""
    if support_of(distribution) is constraints.real:
        try:
            reach = 100.0 * distribution.stddev.double()
        except NotImplementedError:
            raise UnsupportedMatchError(
                f"match needs the mean and standard deviation of {type(distribution).__name__} to find its mode on the "
                "real line, and torch has none. Add a rule with register_match."
            ) from None
        return distribution.mean.double() - reach, distribution.mean.double() + reach
    centre = torch.zeros(distribution.batch_shape, dtype=torch.float64, device=_parameter(distribution).device)
    return centre - _FAR, centre + _FAR


def _moment(log_density: LogDensity, grid: _Grid) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation, by quadrature."""
    mass = torch.softmax(log_density(grid.nodes) + grid.log_weights, 0)
    mean = (mass * grid.nodes).sum(0)
    return mean, torch.sqrt((mass * (grid.nodes - mean).square()).sum(0))


def _laplace(log_density: LogDensity, grid: _Grid) -> tuple[Tensor, Tensor]:
    """Return the mode and the scale that its curvature gives, by Newton's method from the mode of the grid."""
    psi = grid.mode
    for _ in range(20):
        slope, curvature = (x.detach() for x in _slope_and_curvature(log_density, psi))
        if not bool((curvature < 0).all()):
            raise UnsupportedMatchError(
                f"match({grid.family}, 'laplace') is not defined: the log-density has no negative curvature at its "
                "mode."
            )
        step = torch.clamp(slope / curvature, -grid.width, grid.width)
        psi = psi - step
        if bool((step.abs() < grid.tolerance * grid.width).all()):
            break
    else:
        raise NumericalError(
            f"match({grid.family}, 'laplace') did not converge to a mode. Use 'moment' or 'variational'."
        )
    slope, curvature = _slope_and_curvature(log_density, psi)
    psi = psi - slope / curvature.detach()
    _, curvature = _slope_and_curvature(log_density, psi)
    return psi, torch.rsqrt(-curvature)


def _slope_and_curvature(log_density: LogDensity, psi: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        if not psi.requires_grad:
            psi = psi.detach().requires_grad_()
        value = log_density(psi[None])[0]
        (slope,) = torch.autograd.grad(value.sum(), psi, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), psi, create_graph=True)
    return slope, curvature


def _variational(log_density: LogDensity, grid: _Grid) -> tuple[Tensor, Tensor]:
    r"""Return the maximiser of :math:`J(\mu, \rho) = \rho + \mathbb{E}_u\,\ell(\mu + e^\rho u)`, by Newton's method.

    Only values of :math:`\ell` are needed: Stein's identity
    :math:`s^k\,\mathbb{E}[\ell^{(k)}] = \mathbb{E}[\ell\,\mathrm{He}_k(u)] =: h_k` gives the gradient
    :math:`(h_1/s,\; 1 + h_2)` and the Hessian :math:`((h_2/s^2,\; h_3/s), (h_3/s,\; 2h_2 + h_4))`.
    """
    with torch.no_grad():
        # start narrow, at the mode: from too wide a start, the scale leaves steep tails by a factor of e in each step
        mean, log_scale = grid.mode, torch.log(grid.width)
        for _ in range(100):
            objective, gradient, hessian = _expected_log_density(log_density, grid, mean, log_scale)
            # where the objective is not concave, follow the gradient, scaled by the diagonal of the Hessian
            eigenvalues = torch.linalg.eigvalsh(hessian)
            fallback = -torch.diag_embed(torch.diagonal(hessian, dim1=-2, dim2=-1).abs() + 1e-12)
            curvature = torch.where((eigenvalues[..., 1] < 0)[..., None, None], hessian, fallback)
            step = -torch.linalg.solve(curvature, gradient)
            relative = step / torch.stack([torch.exp(log_scale), torch.ones_like(log_scale)], -1)
            if bool((relative.abs() < grid.tolerance).all()):
                break
            step = step / torch.clamp_min(step[..., 1:].abs(), 1.0)
            factor = torch.ones_like(mean)
            for _ in range(30):
                trial = mean + factor * step[..., 0], log_scale + factor * step[..., 1]
                worse = ~(_expected_log_density(log_density, grid, *trial)[0] >= objective - 1e-12 * objective.abs())
                if not bool(worse.any()):
                    break
                factor = torch.where(worse, 0.5 * factor, factor)
            mean, log_scale = trial
        else:
            raise NumericalError(
                f"match({grid.family}, 'variational') did not converge: with these parameters, the density in its "
                "basis is too far from a Gaussian. Use 'moment', or add a rule with register_match."
            )
    _, gradient, hessian = _expected_log_density(log_density, grid, mean, log_scale)
    step = -torch.linalg.solve(hessian.detach(), gradient)
    return mean + step[..., 0], torch.exp(log_scale + step[..., 1])


def _expected_log_density(
    log_density: LogDensity, grid: _Grid, mean: Tensor, log_scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the objective of :func:`_variational`, its gradient (*batch, 2) and its Hessian (*batch, 2, 2)."""
    scale = torch.exp(log_scale)
    # dense at the mode, where a density with long tails may bend on a much smaller scale than that of q
    end = torch.asinh(((mean - grid.mode).abs() + 12.0 * scale) / grid.width)
    t = end * torch.linspace(-1.0, 1.0, 1201, dtype=torch.float64, device=mean.device).reshape(-1, *[1] * mean.ndim)
    psi = grid.mode + grid.width * torch.sinh(t)  # (n, *batch)
    u = (psi - mean) / scale
    weights = torch.softmax(torch.log(torch.cosh(t)) - 0.5 * u.square(), 0)
    value = log_density(psi)
    if not bool(torch.isfinite(value[weights > 1e-20]).all()):
        raise NumericalError(
            f"match({grid.family}, 'variational') left the range of floating-point numbers. Use 'moment', or add a "
            "rule with register_match."
        )
    value = weights * torch.where(torch.isfinite(value), value, 0.0)
    hermite = (torch.ones_like(u), u, u**2 - 1, u**3 - 3 * u, u**4 - 6 * u**2 + 3)
    h0, h1, h2, h3, h4 = ((value * polynomial).sum(0) for polynomial in hermite)
    gradient = torch.stack([h1 / scale, 1.0 + h2], -1)
    cross = h3 / scale
    hessian = torch.stack([torch.stack([h2 / scale.square(), cross], -1), torch.stack([cross, 2.0 * h2 + h4], -1)], -2)
    return log_scale + h0, gradient, hessian


def _moment_ori(distribution: Distribution) -> Normal:
    r"""Return the log-normal with the mean :math:`m` (above the lower end of the support) and variance :math:`v`.

    .. math:: \sigma^2 = \log(1 + v/m^2), \qquad \mu = \log m - \sigma^2/2
    """
    family = type(distribution).__name__
    support = support_of(distribution)
    if not isinstance(support, constraints.greater_than | constraints.greater_than_eq):
        raise UnsupportedMatchError(
            f"match({family}, 'moment-ori') is not defined: it fits a log-normal, whose support is the positive reals; "
            f"that of {family} is {support}. Use 'moment', 'variational' or 'laplace'."
        )
    mean = distribution.mean - support.lower_bound
    ratio = distribution.stddev / mean
    if not bool(torch.isfinite(ratio).all() and (ratio > 0).all()):
        raise UnsupportedMatchError(
            f"match({family}, 'moment-ori') needs the mean and variance of the distribution, which are not finite for "
            "these parameters. The other methods do not need them."
        )
    variance = torch.log1p(ratio.square())
    return Normal(torch.log(mean) - 0.5 * variance, torch.sqrt(variance))
