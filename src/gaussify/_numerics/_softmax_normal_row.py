"""The expected softmax of a single row, in NumPy: the rule of the batch at a tenth of its cost for one row.

A batch calls about 250 tensor operations, which takes two milliseconds however few rows it has. A stream that predicts
row by row would mostly wait for them. The equations are those of ``_softmax_normal`` (the integral and its nodes) and
``_gumbel_normal`` (the table, whose memory is shared). Each step here has its counterpart there and differs from it by
rounding only, so a change of one needs the same change of the other.
"""

import math
import sys
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from gaussify._numerics._gumbel_normal import CELL, CELLS, LOW, ROWS, table
from gaussify._numerics._logistic_normal import expected_sigmoid, sigmoid_moments_row
from gaussify._numerics._softmax_rule import (
    FARTHEST,
    FIRST,
    LAST,
    N_SEARCH,
    NARROW,
    NARROW_LIMIT,
    SLENDER,
    SLENDER_LIMIT,
    WIDE,
    Panels,
    bracket,
    hermite,
    laguerre,
    legendre,
    midpoints,
    narrow_bracket,
)


def expected_softmax_row(mean: Float[np.ndarray, " c"], variance: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
    """Return the expectation of the softmax for one row of float64 latents, without checks.

    Examples
    --------
    >>> expected_softmax_row(np.array([2.0, 0.0, 0.0]), np.full(3, 9.0)).round(4)
    array([0.517 , 0.2415, 0.2415])
    """
    if mean.size == 2:
        difference, total = float(mean[1] - mean[0]), float(variance[0] + variance[1])
        return np.array([expected_sigmoid(-difference, total), expected_sigmoid(difference, total)])
    rate, weights = _rates(mean, variance)
    probs = rate @ weights
    return probs / probs.sum()  # which normalises the rule, too


def softmax_moments_row(
    mean: Float[np.ndarray, " c"], variance: Float[np.ndarray, " c"]
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    r"""Return :math:`\mathbb{E}[p_k]` and :math:`\mathbb{E}[p_k(1 - p_k)]` of one row, as ``softmax_moments`` does.

    Examples
    --------
    >>> [part.round(4) for part in softmax_moments_row(np.zeros(3), np.ones(3))]
    [array([0.3333, 0.3333, 0.3333]), array([0.1728, 0.1728, 0.1728])]
    """
    if mean.size == 2:
        p, slope = sigmoid_moments_row(float(mean[1] - mean[0]), float(variance[0] + variance[1]))
        return np.array([1.0 - p, p]), np.array([slope, slope])
    rate, weights = _rates(mean, variance)
    weights = weights / (rate @ weights).sum()
    return rate @ weights, (rate * (rate.sum(0) - rate)) @ weights


def _rates(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates r_j at the nodes, (c, g), and the weights of the rule times W, (g,), up to a factor."""
    top, widest = mean.max(), variance.max()
    mean, scale = np.maximum(mean, top - FARTHEST[torch.float64]) - top, np.sqrt(variance)
    if widest < SLENDER_LIMIT**2:
        return _slender_row(mean, scale)
    latents = _Latents.of(mean, scale)
    if widest < NARROW_LIMIT**2:
        centre = math.log(np.exp(mean + 0.5 * variance).sum())
        low, high = narrow_bracket(mean, scale, np.ndarray.max, centre)
        middles, weights = midpoints(NARROW.size)
        z = low + (high - low) * middles
    else:
        z, weights = _place_panels(WIDE, mean, scale, latents)
    value, slope = _double_log_cdf(z, latents)
    hazard = np.exp(-value)  # (c, g), -log F_j
    weights = weights * np.exp(-hazard.sum(0))
    slope *= hazard
    slope *= latents.per_cell
    return slope, weights


def _slender_row(mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rates and weights of the Laguerre-Hermite rule, whose nodes are :math:`e^{-z}`."""
    w, weights = laguerre(SLENDER.size)
    x, shares = hermite(SLENDER.order)
    a = np.exp(mean[:, None] + scale[:, None] * x)  # (c, h)
    a /= a.dot(shares).sum()
    decay = np.exp(a[:, :, None] * -w)  # (c, h, g)
    cdf = shares.dot(decay)  # (c, g)
    rate = np.matmul((a * shares)[:, None, :], decay)[:, 0]
    rate /= cdf
    rate *= w
    return rate, weights * cdf.prod(0) / w


class _Latents(NamedTuple):
    """Places of classes in the table, as columns (c, 1)."""

    per_cell: np.ndarray  # cells of x per unit of z
    start: np.ndarray  # cell of x = 0 less that of z = 0
    row: np.ndarray  # row of kappa, with a fraction

    @classmethod
    def of(cls, mean: np.ndarray, scale: np.ndarray) -> "_Latents":
        kappa = 1.0 / (1.0 + scale)
        per_cell = kappa / CELL
        return cls(per_cell[:, None], (per_cell * mean + (LOW / CELL - 1.0))[:, None], (kappa * ROWS)[:, None])

    def locate(self, z: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cell, in the row that begins with cell ``first`` (c, 1), and the place in it, (c, g)."""
        x = z * self.per_cell
        x -= self.start
        # no node lies before the table, as the bracket keeps x above -7.5 for each class
        cell = np.minimum(np.floor(x), CELLS - 1.0)
        x -= cell
        cell += first
        return cell.astype(np.intp), x


def _place_panels(
    panels: Panels, mean: np.ndarray, scale: np.ndarray, latents: _Latents
) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights, (g,)."""
    grid = _grid(panels)
    (_, _, slopes, values), _ = _arrays()
    nearest = np.minimum(np.rint(latents.row), ROWS - 1.0) * CELLS
    low, high = map(float, bracket(mean, scale, np.ndarray.max))
    for _ in range(2):
        z = low + np.expm1(math.log1p(high - low) * grid.search)
        cell, rough = latents.locate(z, nearest)
        rough *= slopes.take(cell)
        rough += values.take(cell)
        level = -np.log(np.exp(-rough).sum(0))  # no overflow, as all classes lie above -4 and one below 60
        points, levels = z.tolist(), level.tolist()
        low = _lookup(_crossing(levels, FIRST), -1, points)
        high = _lookup(_crossing(levels, LAST), +1, points)
    distance = np.log1p(np.maximum(z - low, 0.0))
    progress = 2.0 * distance + np.minimum(level, 2.0 + (level - 2.0) / 3.0)
    first, last = np.interp((low, high), z, progress)
    edges = np.interp(first + (last - first) * grid.steps, progress, distance)
    beyond = np.expm1(edges @ grid.nodes)
    return low + beyond, (edges @ grid.weights) * (1.0 + beyond)


def _double_log_cdf(z: np.ndarray, latents: _Latents) -> tuple[np.ndarray, np.ndarray]:
    """Return L at the nodes, and its slope for one cell, (c, g)."""
    row = np.minimum(np.floor(latents.row), ROWS - 1.0)
    cell, x = latents.locate(z, row * CELLS)
    base, change = (part.take(cell, axis=1) for part in _arrays())
    change *= latents.row - row
    base += change
    c3, c2, c1, c0 = base
    c3 *= x
    c2 += c3
    c2 *= x  # c2 x + c3 x^2
    c1 += c2
    c3 *= x
    c3 += c2
    c3 += c1  # c1 + 2 c2 x + 3 c3 x^2
    c1 *= x
    c0 += c1
    return c0, c3


def _crossing(increasing: list[float], value: float) -> tuple[int, float]:
    """Return where ``increasing`` crosses ``value``: the last index before it, and the fraction up to the next."""
    left = min(max(bisect_left(increasing, value), 1), len(increasing) - 1) - 1
    before, after = increasing[left : left + 2]
    part = (value - before) / max(after - before, sys.float_info.min)
    return left, part if 0.0 <= part <= 1.0 else float(part > 0.0)


def _lookup(index: tuple[int, float], steps: int, values: list[float]) -> float:
    """Return ``values`` some steps from a fractional index, interpolated; constant beyond the ends."""
    left, part = index[0] + steps, index[1]
    if left < 0:
        return values[0]
    if left > len(values) - 2:
        return values[-1]
    return values[left] + part * (values[left + 1] - values[left])


class _Grid(NamedTuple):
    """Matrices (panels + 1, g) from the ends of panels to nodes and weights, the same for all rows."""

    search: np.ndarray  # (s,), from 0 to 1
    steps: np.ndarray  # (panels + 1,), from 0 to 1
    nodes: np.ndarray
    weights: np.ndarray


@lru_cache
def _grid(panels: Panels) -> _Grid:
    search, steps = (torch.linspace(0.0, 1.0, n, dtype=torch.float64) for n in (N_SEARCH, panels.number + 1))
    points, weights = legendre(panels.order)
    left, right = (np.eye(panels.number, panels.number + 1, k).T for k in (0, 1))  # of each panel
    nodes = np.kron(left, 0.5 * (1.0 - points)) + np.kron(right, 0.5 * (1.0 + points))
    return _Grid(search.numpy(), steps.numpy(), nodes, np.kron(right - left, 0.5 * weights))


@lru_cache
def _arrays() -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients in each cell, highest first, and their change to the next row, as views of the table."""
    base, difference = (part.numpy() for part in table(torch.device("cpu"), torch.float64))
    return base, difference
