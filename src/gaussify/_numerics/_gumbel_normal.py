r"""The distribution function of a Gaussian plus standard Gumbel noise, from a table by cubic interpolation.

For :math:`f \sim \mathcal{N}(0, \sigma^2)` and :math:`g` standard Gumbel,

.. math::
    F_\sigma(t) = P(f + g \le t) = \mathbb{E}_f\,\exp(-e^{-(t - f)}), \qquad L_\sigma(t) = -\log(-\log F_\sigma(t)).

:math:`L` is tabulated, as it is :math:`t` itself for :math:`\sigma = 0` and nearly straight otherwise. An absolute
error of :math:`L` is a relative error of :math:`-\log F`, so both tails stay accurate. The coordinates
:math:`x = t / (1 + \sigma)` and :math:`\kappa = 1 / (1 + \sigma)` cover every variance from zero (:math:`\kappa = 1`)
to infinity (:math:`\kappa = 0`, where :math:`F` is the normal distribution function). Outside the table, where
:math:`F < 10^{-15}` or :math:`1 - F < 10^{-30}` for wide Gaussians, :math:`L` continues as a straight line.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LOW, HIGH = -8.0, 12.0  # ends of the table in x
CELLS = 162  # in x; the first and the last one are for the straight lines outside
CELL = (HIGH - LOW) / (CELLS - 2)
_COMPUTED_ROWS, ROWS = 160, 960  # in kappa; L errs by 5e-6 below 3 and by 5e-5 at 15, probabilities by 4e-7


class DoubleLog(NamedTuple):
    """:math:`L(z - f)` and its derivatives by z, each of shape (n, c, g)."""

    value: Float[Tensor, "n c g"]
    slope: Float[Tensor, "n c g"]
    curvature: Float[Tensor, "n c g"] | None


def double_log_cdf(
    z: Float[Tensor, "n g"], mean: Float[Tensor, "n c"], scale: Float[Tensor, "n c"], *, curvature: bool = False
) -> DoubleLog:
    """Return L at the points ``z`` (n, g) for Gaussians ``mean``, ``scale`` (n, c) plus Gumbel noise.

    Examples
    --------
    >>> z, zero, one = torch.zeros(1, 1).double(), torch.zeros(1, 1).double(), torch.ones(1, 1).double()
    >>> double_log_cdf(z, zero, zero).value.item()  # no Gaussian: L(t) = t
    0.0
    >>> torch.exp(-torch.exp(-double_log_cdf(z, zero, one).value)).item()
    0.3818
    """
    per_cell, place, x_cell, row, row_cell = _locate(z, mean, scale)
    cell = (row_cell * CELLS + x_cell).to(torch.int32).reshape(-1)
    c3, c2, c1, c0 = _blend_rows(cell, row - row_cell, place.shape)
    half_bend = torch.addcmul(c2, c3, place, value=1.5)
    slope = torch.addcmul(c1, half_bend, place, value=2.0)
    bend = None
    if curvature:
        bend = torch.add(c2, c3 * place, alpha=3.0).mul_(2.0 * per_cell.square())
    value = c0.addcmul_(c1.addcmul_(c2.addcmul_(c3, place), place), place)
    return DoubleLog(value, slope.mul_(per_cell), bend)


def rough_double_log_cdf(
    z: Float[Tensor, "n g"], mean: Float[Tensor, "n c"], scale: Float[Tensor, "n c"]
) -> Float[Tensor, "n c g"]:
    """Return L to about 0.1, (n, c, g), at a third of the cost: enough to locate the mass.

    Examples
    --------
    >>> z, mean, scale = torch.tensor([[1.0]]).double(), torch.zeros(1, 1).double(), torch.zeros(1, 1).double()
    >>> rough_double_log_cdf(z, mean, scale).item()
    1.0
    """
    _, place, x_cell, row, _ = _locate(z, mean, scale)
    row_cell = row.round_().clamp_(0, ROWS - 1)
    cell = (row_cell * CELLS + x_cell).to(torch.int32).reshape(-1)
    (_, _, slope, value), _ = table(z.device, z.dtype)
    return value.index_select(0, cell).view(place.shape).addcmul_(slope.index_select(0, cell).view(place.shape), place)


def _locate(z: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the places of points in the table.

    They are, in this order,

    * the number of cells of x in a unit of z, (n, c, 1);
    * the place within a cell of x, and the index of that cell, (n, c, g) each;
    * the row of kappa, with a fraction and rounded down, (n, c, 1) each.
    """
    mean, scale = mean[..., None], scale[..., None]
    kappa = 1.0 / (1.0 + scale)
    per_cell = kappa / CELL
    x = z[:, None, :] * per_cell
    x.sub_(per_cell * mean + (LOW / CELL - 1.0))
    x_cell = x.floor().clamp_(0, CELLS - 1)
    row = kappa * ROWS
    return per_cell, x.sub_(x_cell), x_cell, row, row.floor().clamp_(0, ROWS - 1)


def _blend_rows(cell: Tensor, place: Tensor, shape: torch.Size) -> list[Tensor]:
    """Return the four coefficients of the cubic in x, highest first, interpolated linearly between rows of kappa."""
    base, difference = table(cell.device, place.dtype)
    return [
        before.index_select(0, cell).view(shape).addcmul_(change.index_select(0, cell).view(shape), place)
        for before, change in zip(base, difference, strict=True)
    ]


@lru_cache
def table(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cubic coefficients of L in each cell, (4, cells), and their change to the next row of kappa.

    A cubic spline in kappa refines the computed rows. Building the table takes a tenth of a second, on first use.
    """
    from scipy.interpolate import CubicSpline  # imported here, as it takes a third of a second

    x = np.linspace(LOW, HIGH, CELLS - 1)
    kappa = np.linspace(0.0, 1.0, _COMPUTED_ROWS + 1)
    scale = torch.as_tensor(1.0 / np.maximum(kappa, 1e-12) - 1.0)
    L = np.empty((x.size, kappa.size))
    for column, s in enumerate(scale):
        t = torch.as_tensor(x) * (1.0 + s)
        L[:, column] = (_by_normal_rule if s <= 2.0 else _by_gumbel_rule)(t, s)
    fine = CubicSpline(kappa, L, axis=1)(np.linspace(0.0, 1.0, ROWS + 1))  # (x, rows + 1)
    spline = CubicSpline(np.arange(x.size), fine, axis=0)
    zero = np.zeros_like(fine[0])
    first, last = (np.stack([zero, zero, spline(at, 1), spline(at)]) for at in (0, x.size - 1))  # straight lines
    first[3] -= first[2]  # the first line ends where the spline begins
    cubic = np.concatenate([first[:, None], spline.c, last[:, None]], 1).transpose(0, 2, 1)  # (4, rows + 1, cells)
    base = np.ascontiguousarray(cubic[:, :-1]).reshape(4, -1)
    difference = np.ascontiguousarray(np.diff(cubic, axis=1)).reshape(4, -1)
    return torch.as_tensor(base).to(device, dtype), torch.as_tensor(difference).to(device, dtype)


def _by_normal_rule(t: Tensor, scale: Tensor) -> Tensor:
    r"""Return L of a narrow Gaussian by the rule over it, :math:`F(t) = \mathbb{E}_f\,\exp(-e^{-(t - f)})`."""
    u = torch.arange(-80, 81, dtype=torch.float64) / 8.0
    log_weights = torch.log_softmax(-0.5 * u.square(), 0)
    hazard = torch.exp(scale * u - t[:, None])
    log_cdf = torch.logsumexp(log_weights - hazard, -1)
    survival = -torch.expm1(-hazard) @ log_weights.exp()
    return _double_log(log_cdf, survival)


def _by_gumbel_rule(t: Tensor, scale: Tensor) -> Tensor:
    r"""Return L of a wide Gaussian by the rule over the noise, :math:`F(t) = \mathbb{E}_g\,\Phi((t - g)/\sigma)`."""
    g = torch.arange(-20, 241, dtype=torch.float64) / 4.0
    weights = torch.softmax(-g - torch.exp(-g), 0)
    a = (t[:, None] - g) / scale * math.sqrt(0.5)
    return _double_log(torch.log(0.5 * torch.erfc(-a) @ weights), 0.5 * torch.erfc(a) @ weights)


def _double_log(log_cdf: Tensor, survival: Tensor) -> Tensor:
    """Return L, from F or from 1 - F, whichever is small."""
    return -torch.log(torch.where(survival < 0.5, -torch.log1p(-survival), -log_cdf))
