"""The rule for the integral over the maximum, as far as many rows (tensors) and one row (arrays) share it."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

FIRST, LAST = -3.5, 17.0  # -log Lambda at the ends: all but exp(-33) and 4e-8 of the mass lies between
N_SEARCH = 16
FARTHEST = {dtype: torch.finfo(dtype).max / 64.0 for dtype in (torch.float32, torch.float64)}
"""Distance below the largest mean at which a class never wins, and nothing that is computed from it overflows."""

Array = TypeVar("Array", np.ndarray, torch.Tensor)


class Panels(NamedTuple):
    """How many Gauss-Legendre panels, and how many nodes in each."""

    number: int
    order: int


class LaguerreHermite(NamedTuple):
    r"""How many Gauss-Laguerre nodes w, and how many Gauss-Hermite nodes for the Gaussians themselves.

    With :math:`z = A - \log w`, :math:`A = \log\sum_j \mathbb{E}\,e^{f_j}` and :math:`a_j = e^{f_j - A}`,

    .. math:: F_j = \mathbb{E}\,e^{-w a_j}, \qquad r_j = w\,\mathbb{E}[a_j e^{-w a_j}] / F_j, \qquad
        \int \cdot\,dz = \int_0^\infty \cdot\,dw / w.

    Without variances :math:`W = e^{-w}`, and for what multiplies it one node is enough; with small ones that is nearly
    a polynomial in w, and :math:`e^{-wa_j}` nearly one in :math:`f_j`.
    """

    size: int
    order: int


class Midpoint(NamedTuple):
    r"""How many nodes at equal distances h.

    The integrand is analytic and bounded for imaginary parts of z below :math:`\pi/2`, whatever the variances, so the
    error falls like :math:`e^{-\pi^2/h}`. For scales below one, h is about 0.6, which leaves 1e-7; larger ones widen
    the range, and h with it, but make the integrand smoother, too.
    """

    size: int


SLENDER, NARROW, WIDE = LaguerreHermite(12, 6), Midpoint(44), Panels(4, 16)
SLENDER_LIMIT, NARROW_LIMIT = 0.5, 3.0  # scales below which these rules err by 2e-7 and about 1e-6


def narrow_bracket(mean: Array, scale: Array, largest: Callable[[Array], Any], centre: Any) -> tuple[Any, Any]:
    r"""Points outside of which there is less than 1e-6 for scales up to three.

    On the left by the class that ends last, on the right since :math:`1 - W(z) \le e^{A - z}` with
    :math:`A = \log\sum_j\mathbb{E}\,e^{f_j}`, the ``centre``.
    """
    return largest(mean - 4.0 * scale) - 2.9, centre + 15.5


def bracket(mean: Array, scale: Array, largest: Callable[[Array], Any]) -> tuple[Any, Any]:
    """Points below and above the mass of the maximum of c classes, of which ``largest`` finds the largest number."""
    low = largest(mean - 7.5 * scale) + (FIRST - 0.3)
    high = largest(mean + 7.0 * scale) + (LAST + 0.5 + math.log(mean.shape[-1]))
    return low, high


@lru_cache
def legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Gauss and Legendre on [-1, 1]."""
    return np.polynomial.legendre.leggauss(order)


@lru_cache
def laguerre(order: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Points w, and weights for :math:`\int_0^\infty \cdot\,dw`, without the factor :math:`e^{-w}`."""
    points, weights = np.polynomial.laguerre.laggauss(order)
    return points, weights * np.exp(points)


@lru_cache
def hermite(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for the standard normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    return points, weights / weights.sum()


@lru_cache
def midpoints(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Middles of equal parts of [0, 1]; their weights are equal, and as rules are normalised, one."""
    return (np.arange(number) + 0.5) / number, np.ones(number)
