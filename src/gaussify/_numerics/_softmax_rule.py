"""Quadrature rules for the integral over the maximum, for batches (tensors) and single rows (arrays) alike."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch

FIRST, LAST = -3.5, 17.0  # -log Lambda at the ends, outside of which lie exp(-33) and 4e-8 of the mass
N_SEARCH = 16
FARTHEST = {dtype: torch.finfo(dtype).max / 64.0 for dtype in (torch.float32, torch.float64)}
"""Distance below the largest mean at which a class has probability zero, and nothing overflows."""

Array = TypeVar("Array", np.ndarray, torch.Tensor)
Ends = TypeVar("Ends", float, np.ndarray, torch.Tensor)  # one number for a row, a column for many


class Panels(NamedTuple):
    """A rule of Gauss-Legendre panels: their number, and the number of nodes in each."""

    number: int
    order: int


class LaguerreHermite(NamedTuple):
    r"""A rule of Gauss-Laguerre nodes w: their number, and the number of Gauss-Hermite nodes for the Gaussians.

    With :math:`z = A - \log w`, :math:`A = \log\sum_j \mathbb{E}\,e^{f_j}` and :math:`a_j = e^{f_j - A}`,

    .. math:: F_j = \mathbb{E}\,e^{-w a_j}, \qquad r_j = w\,\mathbb{E}[a_j e^{-w a_j}] / F_j, \qquad
        \int \cdot\,dz = \int_0^\infty \cdot\,dw / w.

    Without variances :math:`W = e^{-w}`, and one node is enough for the factors of W. With small variances these are
    nearly polynomials in w, and :math:`e^{-wa_j}` is nearly a polynomial in :math:`f_j`.
    """

    size: int
    order: int


class Midpoint(NamedTuple):
    r"""A rule of nodes at equal distances h: their number.

    For all variances, the integrand is analytic and bounded for imaginary parts of z below :math:`\pi/2`, so the error
    falls like :math:`e^{-\pi^2/h}`. For scales below one, h is about 0.6 and the error 1e-7. Larger scales need a wider
    range and thus a larger h, but also make the integrand smoother.
    """

    size: int


SLENDER, NARROW, WIDE = LaguerreHermite(12, 6), Midpoint(44), Panels(4, 16)
SLENDER_LIMIT, NARROW_LIMIT = 0.5, 3.0  # below these scales, SLENDER and NARROW err by 2e-7 and about 1e-6


def narrow_bracket(mean: Array, scale: Array, largest: Callable[[Array], Ends], centre: Ends) -> tuple[Ends, Ends]:
    r"""Return points below and above the mass of the maximum, all but 1e-6 of it, for scales up to three.

    The class with the largest left end bounds it on the left. On the right, :math:`1 - W(z) \le e^{A - z}` with
    :math:`A = \log\sum_j\mathbb{E}\,e^{f_j}`, the ``centre``.
    """
    return largest(mean - 4.0 * scale) - 2.9, centre + 15.5


def bracket(mean: Array, scale: Array, largest: Callable[[Array], Ends]) -> tuple[Ends, Ends]:
    """Return points below and above the mass of the maximum; ``largest`` returns the maximum over the classes."""
    low = largest(mean - 7.5 * scale) + (FIRST - 0.3)
    high = largest(mean + 7.0 * scale) + (LAST + 0.5 + math.log(mean.shape[-1]))
    return low, high


@lru_cache
def legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes and weights of Gauss-Legendre quadrature on [-1, 1]."""
    return np.polynomial.legendre.leggauss(order)


@lru_cache
def laguerre(order: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return nodes w, and weights for :math:`\int_0^\infty \cdot\,dw`, without the factor :math:`e^{-w}`."""
    points, weights = np.polynomial.laguerre.laggauss(order)
    return points, weights * np.exp(points)


@lru_cache
def hermite(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for the standard normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    return points, weights / weights.sum()


@lru_cache
def midpoints(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of equal parts of [0, 1]; all weights are one, as rules are normalised."""
    return (np.arange(number) + 0.5) / number, np.ones(number)
