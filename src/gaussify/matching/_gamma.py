r"""The Gamma distribution in the log basis, and the families that are powers of it.

With :math:`\psi = \log\omega`, :math:`\omega \sim \mathrm{Gamma}(a, b)`, the log-density is, up to a constant,
:math:`\log p(\psi) = a\psi - b e^{\psi}` (section 3.2 of the paper). Scaling and powers of :math:`\omega` are
affine maps :math:`\psi \mapsto c + d\psi`, under which laplace, variational and moment matching are equivariant:
one derivation serves Gamma, Exponential, Chi2, Weibull, HalfNormal and InverseGamma.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Exponential, Gamma, HalfNormal, InverseGamma, LogNormal, Normal, Weibull

from gaussify._numerics import trigamma
from gaussify.exceptions import UnsupportedMatchError
from gaussify.matching._methods import MatchMethod
from gaussify.matching._registry import match, register_match


class LogGamma(NamedTuple):
    r"""The Gaussian that stands for :math:`\log\omega`, :math:`\omega \sim \mathrm{Gamma}(a, 1)`.

    Examples
    --------
    >>> LogGamma(mean=torch.tensor(0.0), variance=torch.tensor(1.0), log_variance=torch.tensor(0.0)).variance
    tensor(1.)
    """

    mean: Float[Tensor, "*n"]
    variance: Float[Tensor, "*n"]
    log_variance: Float[Tensor, "*n"]


def match_log_gamma(concentration: Float[Tensor, "*n"], method: str) -> LogGamma:
    r"""Return the Gaussian of each concentration :math:`a`.

    Every Gaussian for a Gamma in the library comes from here: those of ``match``, of the likelihoods and of the losses
    of networks. Nothing is checked, so that ``torch.compile`` can trace it.

    Examples
    --------
    >>> match_log_gamma(torch.tensor([0.1, 1.1]), "laplace")[:2]
    (tensor([-2.3026,  0.0953]), tensor([10.0000,  0.9091]))
    """
    return _RULES[method](concentration)


def _laplace(a: Tensor) -> LogGamma:
    r"""Mode and curvature of :math:`a\psi - e^\psi`: :math:`\mathcal{N}(\log a,\; 1/a)`."""
    log = a.log()
    return LogGamma(log, a.reciprocal(), -log)


def _variational(a: Tensor) -> LogGamma:
    r"""Minimiser of :math:`-\tfrac12\log\sigma^2 - a\mu + e^{\mu + \sigma^2/2}`.

    The gradients vanish at :math:`\mathcal{N}(\log a - 1/(2a),\; 1/a)`.
    """
    log, variance = a.log(), a.reciprocal()
    return LogGamma(torch.sub(log, variance, alpha=0.5), variance, -log)


def _moment(a: Tensor) -> LogGamma:
    r"""Mean and variance of a log-Gamma: :math:`\mathcal{N}(\Psi(a),\; \Psi'(a))`."""
    variance = trigamma(a)
    return LogGamma(torch.digamma(a), variance, variance.log())


def _moment_ori(a: Tensor) -> LogGamma:
    r"""Log-normal with mean :math:`a` and variance :math:`a` (Milios et al., 2018).

    .. math:: \sigma^2 = \log(1 + 1/a), \qquad \mu = \log a - \sigma^2/2

    For a rate :math:`b` the paper prints :math:`\sigma^2 = \log(1 + b/a)`, which is right only for :math:`b = 1`: the
    rate divides :math:`\omega`, so it shifts the mean by :math:`-\log b` and leaves the variance alone.
    """
    variance = torch.log1p(a.reciprocal())
    return LogGamma(torch.sub(a.log(), variance, alpha=0.5), variance, variance.log())


_RULES: dict[str, Callable[[Tensor], LogGamma]] = {
    MatchMethod.LAPLACE: _laplace,
    MatchMethod.VARIATIONAL: _variational,
    MatchMethod.MOMENT: _moment,
    MatchMethod.MOMENT_ORI: _moment_ori,
}


def _affine(normal: Normal, shift: Tensor, factor: Tensor) -> Normal:
    r"""Normal of :math:`c + d\psi`."""
    return Normal(shift + factor * normal.loc, factor.abs() * normal.scale)


def _unit_gamma(concentration: Tensor) -> Gamma:
    return Gamma(concentration, torch.ones_like(concentration))


def _register_gamma_and_its_powers(method: MatchMethod) -> None:
    @register_match(Gamma, method)  # Chi2 is a Gamma for torch, with concentration k/2 and rate 1/2
    def _gamma(distribution: Gamma) -> Normal:
        r"""Gamma(:math:`a`, :math:`b`) is Gamma(:math:`a`, 1) divided by :math:`b`."""
        matched = match_log_gamma(distribution.concentration, method)
        return Normal(matched.mean - distribution.rate.log(), matched.variance.sqrt())

    @register_match(Exponential, method)
    def _exponential(distribution: Exponential) -> Normal:
        r"""Exponential(:math:`b`) is Gamma(1, :math:`b`)."""
        return match(Gamma(torch.ones_like(distribution.rate), distribution.rate), method)

    if method is MatchMethod.MOMENT_ORI:
        return  # moments in the standard basis are not equivariant under powers

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
    _register_gamma_and_its_powers(_method)


@register_match(InverseGamma, "moment-ori")
def _inverse_gamma_moment_ori(distribution: InverseGamma) -> Normal:
    r"""Log-normal with mean :math:`b/(a-1)` and variance :math:`b^2/((a-1)^2(a-2))`, for :math:`a > 2`.

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
