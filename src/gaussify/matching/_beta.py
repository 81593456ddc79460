r"""The Beta distribution in the logit basis (section 3.3 of the paper).

With :math:`\psi = \mathrm{logit}(\omega)`, :math:`\omega \sim \mathrm{Beta}(a, b)`, the log-density is, up to a
constant, :math:`\log p(\psi) = a\psi - (a + b)\,\zeta(\psi)`, where :math:`\zeta(\psi) = \log(1 + e^\psi)`.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Beta, Normal

from gaussify._numerics import first_order, softplus_moments, trigamma
from gaussify.exceptions import NumericalError, UnsupportedMatchError
from gaussify.matching._registry import register_match

_MAX_STEPS = 60
_TOLERANCE = 1e-7  # of relative errors; the last Newton step, taken with a graph, squares them


@register_match(Beta, "laplace")
def _beta_laplace(distribution: Beta) -> Normal:
    r"""Return mode and curvature: :math:`\mathcal{N}(\log(a/b),\; 1/a + 1/b)`."""
    a, b = distribution.concentration1, distribution.concentration0
    return Normal(a.log() - b.log(), torch.sqrt(1.0 / a + 1.0 / b))


@register_match(Beta, "moment")
def _beta_moment(distribution: Beta) -> Normal:
    r"""Return the moments of a log-Gamma difference: :math:`\mathcal{N}(\Psi(a) - \Psi(b),\; \Psi'(a) + \Psi'(b))`."""
    a, b = distribution.concentration1, distribution.concentration0
    variance = trigamma(a) + trigamma(b)
    return Normal(torch.digamma(a) - torch.digamma(b), variance.sqrt())


@register_match(Beta, "moment-ori")
def _beta_moment_ori(distribution: Beta) -> Normal:
    """Raise an error, as no log-normal has the unit interval as its support."""
    raise UnsupportedMatchError(
        "match(Beta, 'moment-ori') is not defined: it fits a log-normal, whose support is the positive reals. "
        "Use 'moment', 'variational' or 'laplace'."
    )


@register_match(Beta, "variational")
def _beta_variational(distribution: Beta) -> Normal:
    r"""Return the minimiser of :math:`-\tfrac12\log\sigma^2 - a\mu + (a + b)\,\mathbb{E}_q\,\zeta(\psi)`.

    With :math:`E_k` the expectation of :math:`\zeta^{(k)}` under :math:`q`, the gradients vanish where

    .. math:: E_1 = \frac{a}{a + b}, \qquad \sigma^2 (a + b)\, E_2 = 1.

    There is no closed form. Newton's method finds the solution without a graph. One more step, taken with a graph,
    leaves the solution where it is and gives it the derivatives by ``a`` and ``b`` of the implicit function theorem.
    """
    a, b = torch.broadcast_tensors(distribution.concentration1, distribution.concentration0)
    dtype, shape = a.dtype, a.shape
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    solution, moments, jacobian = _solve(a.detach(), b.detach())
    step = torch.linalg.solve(jacobian, moments - _wanted(a, b))
    mean, log_scale = first_order(solution - step).to(dtype).unbind(-1)
    return Normal(mean.reshape(shape), torch.exp(log_scale).reshape(shape))


def _wanted(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the value that :math:`(\mathrm{logit}\,E_1,\, \log\sigma^2 E_2)` must take, in logarithms."""
    return torch.stack([torch.log(a) - torch.log(b), -torch.log(a + b)], -1)


def _solve(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve for concentrations of shape (n,) by damped Newton steps.

    Returns the solution ``(mean, log_scale)``, (n, 2), and the moments (n, 2) and their Jacobian (n, 2, 2) at it.
    """
    solution = _probit_guess(a, b)
    wanted = _wanted(a, b)
    moments, jacobian = torch.empty_like(wanted), wanted.new_empty(*wanted.shape, 2)
    active = torch.arange(a.shape[0], device=a.device)
    for _ in range(_MAX_STEPS):
        moments[active], jacobian[active] = _moments_and_jacobian(solution[active])
        residual = moments[active] - wanted[active]
        unsolved = ~(residual.abs().amax(-1) < _TOLERANCE)
        if not bool(unsolved.any()):
            return solution, moments, jacobian
        active, residual = active[unsolved], residual[unsolved]
        step = torch.linalg.solve(jacobian[active], residual)
        # far from the solution, a step changes the mean by at most 1 + 3 sigma, and sigma by at most a factor of e
        limit = torch.exp(solution[active][:, 1:]) * step.new_tensor([3.0, 0.0]) + 1.0
        solution[active] -= step / torch.clamp_min((step.abs() / limit).amax(-1, keepdim=True), 1.0)
    raise NumericalError(
        f"match(Beta, 'variational') did not converge in {_MAX_STEPS} steps for concentrations "
        f"({a[active[0]].item():g}, {b[active[0]].item():g}). Use 'moment' or 'laplace', which have closed forms."
    )


def _moments_and_jacobian(solution: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`(\mathrm{logit}\,E_1,\; \log\sigma^2 E_2)` and its derivative by :math:`(\mu, \log\sigma)`.

    The heat equation :math:`\partial E_k / \partial\log\sigma = \sigma^2 E_{k+2}` gives the second column.
    """
    mean, log_scale = solution.unbind(-1)
    variance = torch.exp(2.0 * log_scale)
    # computed for a negative mean, where 1 - E1 loses no digits, and reflected
    E1, E2, E3, E4 = softplus_moments((1, 2, 3, 4), -mean.abs(), variance)
    sign = torch.where(mean > 0, -1.0, 1.0)
    logit = torch.log(E1) - torch.log1p(-E1)
    moments = torch.stack([sign * logit, 2.0 * log_scale + torch.log(E2)], -1)
    logit_row = torch.stack([E2, sign * variance * E3], -1) / (E1 * (1.0 - E1))[:, None]
    variance_row = torch.stack([sign * E3 / E2, 2.0 + variance * E4 / E2], -1)
    return moments, torch.stack([logit_row, variance_row], -2)


def _probit_guess(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the solution for the probit :math:`\Phi(\psi / \tau)`, :math:`\tau^2 = 8/\pi`, in place of the sigmoid.

    Then :math:`E_1 = \Phi(c)` with :math:`c = \mu / \sqrt{\sigma^2 + \tau^2}`, and the second equation is
    quadratic in :math:`\sigma^2`.
    """
    tau2 = 8.0 / math.pi
    c = torch.special.ndtri(torch.minimum(a, b) / (a + b))
    rate = (a + b) * torch.exp(-0.5 * c.square()) / math.sqrt(2.0 * math.pi)
    variance = (1.0 + torch.sqrt(1.0 + 4.0 * rate.square() * tau2)) / (2.0 * rate.square())
    mean = c * torch.sqrt(variance + tau2)
    return torch.stack([torch.where(a > b, -mean, mean), 0.5 * torch.log(variance)], -1)
