r"""The Gamma distribution in the log basis, and the distributions that are powers of it.

With :math:`\psi = \log\omega`, :math:`\omega \sim \mathrm{Gamma}(a, b)`, the log-density is, up to a constant,
:math:`\log p(\psi) = a\psi - b e^{\psi}` (section 3.2 of the paper). Scaling and powers of :math:`\omega` are
affine maps :math:`\psi \mapsto c + d\psi`, and the ``"laplace"``, ``"variational"`` and ``"moment"`` Gaussians follow
such maps. So one derivation serves Gamma, Exponential, Chi2, Weibull, HalfNormal and InverseGamma.
"""

import torch
from torch import Tensor
from torch.distributions import Exponential, Gamma, HalfNormal, InverseGamma, LogNormal, Normal, Weibull

from gaussify._numerics import trigamma
from gaussify.exceptions import UnsupportedMatchError
from gaussify.matching._methods import MatchMethod
from gaussify.matching._registry import match, register_match


@register_match(Gamma, "laplace")  # and Chi2(k), in torch a subclass: Gamma(k/2, 1/2)
def _gamma_laplace(distribution: Gamma) -> Normal:
    r"""Return mode and curvature of :math:`a\psi - b e^\psi`: :math:`\mathcal{N}(\log(a/b),\; 1/a)`."""
    a, b = distribution.concentration, distribution.rate
    return Normal(a.log() - b.log(), a.rsqrt())


@register_match(Gamma, "variational")
def _gamma_variational(distribution: Gamma) -> Normal:
    r"""Return the minimiser of :math:`-\tfrac12\log\sigma^2 - a\mu + b e^{\mu + \sigma^2/2}`.

    The gradients vanish at :math:`\mathcal{N}(\log(a/b) - 1/(2a),\; 1/a)`.
    """
    a, b = distribution.concentration, distribution.rate
    return Normal(a.log() - b.log() - 0.5 / a, a.rsqrt())


@register_match(Gamma, "moment")
def _gamma_moment(distribution: Gamma) -> Normal:
    r"""Return mean and variance of a log-Gamma: :math:`\mathcal{N}(\Psi(a) - \log b,\; \Psi'(a))`."""
    a, b = distribution.concentration, distribution.rate
    return Normal(torch.digamma(a) - b.log(), trigamma(a).sqrt())


@register_match(Gamma, "moment-ori")
def _gamma_moment_ori(distribution: Gamma) -> Normal:
    r"""Return the log-normal with mean :math:`a/b` and variance :math:`a/b^2` (Milios et al., 2018).

    .. math:: \sigma^2 = \log(1 + 1/a), \qquad \mu = \log(a/b) - \sigma^2/2

    The paper prints :math:`\log(1 + b/a)`, which is right only for :math:`b = 1`.
    """
    a, b = distribution.concentration, distribution.rate
    variance = torch.log1p(1.0 / a)
    return Normal(a.log() - b.log() - 0.5 * variance, variance.sqrt())


def _affine(normal: Normal, shift: Tensor, factor: Tensor) -> Normal:
    r"""Return the normal of :math:`c + d\psi`."""
    return Normal(shift + factor * normal.loc, factor.abs() * normal.scale)


def _unit_gamma(concentration: Tensor) -> Gamma:
    return Gamma(concentration, torch.ones_like(concentration))


def _register_powers_of_gamma(method: MatchMethod) -> None:
    @register_match(Exponential, method)
    def _exponential(distribution: Exponential) -> Normal:
        r"""Exponential(:math:`b`) is Gamma(1, :math:`b`)."""
        return match(Gamma(torch.ones_like(distribution.rate), distribution.rate), method)

    if method is MatchMethod.MOMENT_ORI:
        return  # the moments of a power do not follow from those of the Gamma

    @register_match(Weibull, method)
    def _weibull(distribution: Weibull) -> Normal:
        r"""A Weibull is :math:`\lambda E^{1/k}` with :math:`E` a unit exponential."""
        k, scale = distribution.concentration, distribution.scale
        return _affine(match(_unit_gamma(torch.ones_like(k)), method), scale.log(), 1.0 / k)

    @register_match(HalfNormal, method)
    def _half_normal(distribution: HalfNormal) -> Normal:
        r"""A half-normal is :math:`s\sqrt{2G}` with :math:`G \sim \mathrm{Gamma}(1/2, 1)`."""
        half = torch.full_like(distribution.scale, 0.5)
        shift = distribution.scale.log() + half * torch.log(2.0 * torch.ones_like(half))
        return _affine(match(_unit_gamma(half), method), shift, half)

    @register_match(InverseGamma, method)
    def _inverse_gamma(distribution: InverseGamma) -> Normal:
        r"""An inverse Gamma is :math:`b / G` with :math:`G \sim \mathrm{Gamma}(a, 1)`."""
        a, b = distribution.concentration, distribution.rate
        return _affine(match(_unit_gamma(a), method), b.log(), -torch.ones_like(a))

    @register_match(LogNormal, method)
    def _log_normal(distribution: LogNormal) -> Normal:
        """A log-normal is normal in the log basis: every method returns it."""
        return Normal(distribution.loc, distribution.scale)


for _method in MatchMethod:
    _register_powers_of_gamma(_method)


@register_match(InverseGamma, "moment-ori")
def _inverse_gamma_moment_ori(distribution: InverseGamma) -> Normal:
    r"""Return the log-normal with mean :math:`b/(a-1)` and variance :math:`b^2/((a-1)^2(a-2))`, for :math:`a > 2`.

    .. math:: \sigma^2 = \log(1 + 1/(a-2)), \qquad \mu = \log b - \log(a-1) - \sigma^2/2
    """
    a, b = distribution.concentration, distribution.rate
    if bool((a <= 2).any()):
        raise UnsupportedMatchError(
            "match(InverseGamma, 'moment-ori') needs the mean and variance of the distribution, which exist only for "
            f"a concentration above 2; got {a.min().item():g}. The other methods work for every concentration."
        )
    variance = torch.log1p(1.0 / (a - 2.0))
    return Normal(b.log() - torch.log(a - 1.0) - 0.5 * variance, variance.sqrt())
