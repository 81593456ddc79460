"""The offsets and the temperature that together make latents predict best."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from gaussify._calibration._criteria import best_temperatures
from gaussify.likelihoods import ClassLikelihood

_WIDTH = 1.0  # prior standard deviation of shifts and of the bend, as that of log T in best_temperature
_MOST_STEPS, _MOST_HALVINGS = 30, 20
_ROUNDING = 1e-12  # relative; near the minimum, values differ by less
_SMALL_STEP, _ROUGH_STEP = 1e-6, 1e-2  # the last Newton step; it leaves an error of about its square


class Calibration(NamedTuple):
    """Logits are latents divided by the temperature, plus an offset."""

    temperature: float
    offset: Float[Tensor, " l"]


def best_calibration(
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    *,
    rough: bool = False,
    of_means: bool = False,
) -> Calibration:
    r"""Return the temperature T and offsets o whose latents :math:`(m/T + o, s/T^2)` predict the labels best.

    With :math:`T_0` the best temperature alone and :math:`\bar m` the mean latent of the rows, they are

    .. math:: T = T_0 e^{\delta}, \qquad o = \bar m / T_0 - \bar m / T + u.

    So :math:`\delta` turns the logits about their mean, and u shifts them. Both are zero for the best temperature
    alone, and standard normal priors, each worth about one row, keep them near it where rows are few. They minimise
    the loss of mean-field probabilities, by Newton's method. That finds changes well even where it is off in T itself.

    For a class without rows, u is zero. Offsets of several latents add up to zero, as a common shift changes nothing.

    Parameters
    ----------
    likelihood : ClassLikelihood
        Turns latents into probabilities.
    mean, variance : tensors of shape (n, l)
        Latents of the rows.
    labels, weight : tensors of shape (n,)
        Labels and weights of the rows.
    rough : bool
        Whether mean-field probabilities give :math:`T_0` too.
    of_means : bool
        Whether T divides only the means.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> mean = torch.tensor([-1.0, 1.0]).double().repeat_interleave(500)[:, None]  # says 27 % and 73 %
    >>> labels = torch.tensor([0] * 450 + [1] * 50 + [0, 1] * 250)  # it is 10 % and 50 %
    >>> found = best_calibration(LogisticLikelihood(), mean, 0.0 * mean, labels, torch.ones(1000).double())
    >>> torch.sigmoid(mean[[0, -1], 0] / found.temperature + found.offset)
    tensor([0.11, 0.51], dtype=torch.float64)
    """
    start = best_temperatures(likelihood, mean, variance, labels, weight, rough=rough, of_means=of_means)
    scaled = mean / start.mean_field
    spread = variance if of_means else variance / start.mean_field**2
    centre = weight @ scaled / weight.sum()
    bend, shift = _newton(scaled, spread, centre, labels, weight, of_means=of_means, rough=rough)
    pivot = centre * (start.mean_field / start.best)
    offset = pivot - pivot * math.exp(-bend) + shift
    if len(offset) > 1:
        offset = offset - offset.mean()
    return Calibration(start.best * math.exp(bend), offset)


def spread_offset(offset: Float[Tensor, " l"], places: Int64[np.ndarray, " c"], n_classes: int) -> Float[Tensor, " k"]:
    """Return the offsets when more classes are known, of which those so far are at ``places``; new ones have zero.

    Examples
    --------
    >>> spread_offset(torch.tensor([1.0]), np.array([0, 2]), 3)  # of the logistic's single latent
    tensor([-0.5000,  0.0000,  0.5000])
    """
    if n_classes == len(places):
        return offset
    wider = offset.new_zeros(n_classes)
    wider[places] = torch.cat([-0.5 * offset, 0.5 * offset]) if len(offset) == 1 else offset
    return wider


def _newton(
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    centre: Float[Tensor, " l"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    *,
    of_means: bool,
    rough: bool,
) -> tuple[float, Float[Tensor, " l"]]:
    """Return the change of the log-temperature and the shifts that minimise the penalised mean-field loss."""
    n_latents = mean.shape[1]
    if n_latents == 1:  # a second latent, of the other class, is zero
        mean, variance, centre = (torch.nn.functional.pad(part, (1, 0)) for part in (mean, variance, centre))
    problem = _Loss(mean, variance, centre, labels, weight, of_means)
    is_free = torch.bincount(labels, weight, minlength=mean.shape[1]) > 0.0
    if n_latents == 1:
        is_free[0] = False
    free = torch.cat([torch.tensor([True]), is_free]).nonzero()[:, 0]
    x = mean.new_zeros(1 + mean.shape[1])
    now = problem.at(x)
    for _ in range(_MOST_STEPS):
        step, gradient = torch.zeros_like(x), now.gradient[free]
        for hessian in (now.hessian, now.gauss_newton):
            root, failed = torch.linalg.cholesky_ex(hessian[free][:, free])
            if not failed:
                break
        step[free] = -torch.cholesky_solve(gradient[:, None], root)[:, 0]
        if not bool(torch.isfinite(step).all()):
            break
        for _ in range(_MOST_HALVINGS):
            new = problem.at(x + step)
            if new.value <= now.value + _ROUNDING * abs(now.value):
                x, now = x + step, new
                break
            step = 0.5 * step
        else:
            break
        if float(step.abs().max()) < (_ROUGH_STEP if rough else _SMALL_STEP):
            break
    return float(x[0]), x[-n_latents:]


class _Expansion(NamedTuple):
    value: float
    gradient: Float[Tensor, " x"]
    hessian: Float[Tensor, "x x"]
    gauss_newton: Float[Tensor, "x x"]
    """The part of the Hessian that is positive definite."""


class _Loss:
    r"""The mean-field loss of rows, as a function of the bend :math:`\delta` and of the shifts, with its derivatives.

    The loss of a row is :math:`\log \sum_j e^{z_j}`, where

    .. math:: z_j = r_j (g_j e^{-\delta} + h_j), \qquad r_j = \bigl(1 + \tfrac{\pi}{8} s_j e^{-2\delta}\bigr)^{-1/2},

    with differences g and h between the latents of j and of the label, and the sum s of their variances.
    """

    def __init__(
        self, mean: Tensor, variance: Tensor, centre: Tensor, labels: Tensor, weight: Tensor, of_means: bool
    ) -> None:
        own = labels[:, None]
        self.turning = (mean - centre) - (mean - centre).gather(1, own)
        self.fixed = centre - centre[own]
        self.spread = math.pi / 8.0 * (variance + variance.gather(1, own))
        self.labels, self.weight, self.of_means = labels, weight, of_means

    def at(self, x: Float[Tensor, " x"]) -> _Expansion:
        """Return value, gradient and Hessian at (bend, shifts)."""
        labels, weight = self.labels, self.weight
        bend, shift = x[0], x[1:]
        turning = self.turning * (-bend).exp()
        gap = turning + self.fixed + (shift - shift[labels][:, None])
        spread = self.spread if self.of_means else self.spread * (-2.0 * bend).exp()
        r = torch.rsqrt(1.0 + spread)
        z = gap * r
        level = torch.logsumexp(z, 1)
        p = (z - level[:, None]).exp()
        # derivatives of r and z by the bend, and the second ones
        if self.of_means:
            dr = ddr = torch.zeros_like(r)
        else:
            dr = r**3 * spread
            ddr = (3.0 * r**2 * spread - 2.0) * dr
        dz = gap * dr - turning * r
        ddz = turning * (r - 2.0 * dr) + gap * ddr
        mean_dz = (p * dz).sum(1)
        pr, weighted = p * r, weight[:, None]
        gradient = torch.cat([(weight @ mean_dz)[None], self._of_shifts(weighted * pr)])
        # by shifts: the covariance of r e_j under p, minus the part of the label
        curvature = pr * (r - pr.sum(1, keepdim=True))  # sums of its rows
        square = torch.diag(weight @ (pr * r)) - pr.mT @ (weighted * pr)
        cross = torch.zeros_like(square).index_add_(0, labels, weighted * curvature)
        square = square - cross - cross.mT
        square.diagonal().index_add_(0, labels, weight * curvature.sum(1))
        mixed = self._of_shifts(weighted * pr * (dz - mean_dz[:, None]))
        by_bend = weight @ ((p * dz**2).sum(1) - mean_dz**2)
        positive = self._joined(by_bend, mixed, square)
        rest = self._joined(
            weight @ (p * ddz).sum(1), self._of_shifts(weighted * p * dr), torch.zeros_like(square), prior=0.0
        )
        value = weight @ level + 0.5 / _WIDTH**2 * x.square().sum()
        return _Expansion(float(value), gradient + x / _WIDTH**2, positive + rest, positive)

    def _of_shifts(self, by_logit: Float[Tensor, "n c"]) -> Float[Tensor, " c"]:
        """Return derivatives by the shifts from those by z: a shift of the label moves all other gaps down."""
        return by_logit.sum(0).index_add(0, self.labels, -by_logit.sum(1))

    @staticmethod
    def _joined(corner: Tensor, side: Tensor, square: Tensor, prior: float = 1.0 / _WIDTH**2) -> Tensor:
        """Return the symmetric matrix of the blocks, plus the precision of the prior."""
        top = torch.cat([corner[None], side])
        joined = torch.cat([top[None], torch.cat([side[:, None], square], 1)])
        return joined + prior * torch.eye(len(top), dtype=joined.dtype)
