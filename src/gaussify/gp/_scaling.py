"""Scaling of inputs as a part of the model: learnt by the first fit, saved with it, the same for all later rows."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import ndtri

_N_KNOTS = 1000


class ScalingKind(StrEnum):
    """How columns are scaled."""

    STANDARD = "standard"
    """Each column gets mean zero and variance one."""
    QUANTILE = "quantile"
    """Ranks become quantiles of a standard normal, which tames heavy tails and outliers."""


class Scaling(NamedTuple):
    """A piecewise linear function of each column from knots to values, constant beyond them if ``is_clamped``.

    Examples
    --------
    >>> rows = np.array([[1.0], [3.0]])
    >>> fit_scaling(rows, np.ones(2), ScalingKind.STANDARD)(np.array([[2.0], [5.0]]))
    array([[0.], [3.]])
    """

    knots: Float[np.ndarray, "q d"]
    values: Float[np.ndarray, "q d"]
    is_clamped: bool

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        if not self.is_clamped:  # a line through two knots
            rise = (self.values[1] - self.values[0]) / (self.knots[1] - self.knots[0])
            return (X - self.knots[0]) * rise + self.values[0]
        columns = zip(X.T, self.knots.T, self.values.T, strict=True)
        return np.column_stack([np.interp(*column) for column in columns])

    def equals(self, other: "Scaling") -> bool:
        """Return whether both scale every row alike."""
        same = np.array_equal(self.knots, other.knots) and np.array_equal(self.values, other.values)
        return same and self.is_clamped == other.is_clamped


def fit_scaling(X: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"], kind: ScalingKind | None) -> Scaling:
    """Return the scaling of this kind for some rows; a constant column becomes zero, and None scales nothing.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [1e9]])
    >>> fit_scaling(rows, np.ones(3), ScalingKind.QUANTILE)(rows).flatten()
    array([-0.9674, 0. , 0.9674])
    """
    if kind is None:
        ends = np.repeat([[0.0], [1.0]], X.shape[1], axis=1)
        return Scaling(ends, ends.copy(), is_clamped=False)
    if kind is ScalingKind.STANDARD:
        share = weight / weight.sum()
        scale = np.abs(X).max(0)
        scale[scale < 1e-290] = 1.0  # the column is constant up to underflow
        rows = X / scale  # so that squares neither overflow nor vanish
        mean = share @ rows
        std = np.sqrt(share @ np.square(rows - mean))
        std[std <= 1e-12 * np.abs(rows).max(0)] = 1.0  # constant up to rounding
        mean, std = mean * scale, std * scale
        return Scaling(np.stack([mean, mean + std]), np.repeat([[0.0], [1.0]], X.shape[1], axis=1), is_clamped=False)
    columns = [_normal_scores(column, weight) for column in X.T]
    n_knots = max(len(knots) for knots, _ in columns)
    padded = [[np.pad(part, (0, n_knots - len(part)), mode="edge") for part in column] for column in columns]
    knots, values = (np.stack(parts, 1) for parts in zip(*padded, strict=True))
    return Scaling(knots, values, is_clamped=True)


def _normal_scores(column: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
    """Return distinct values (at most a thousand) and the normal quantiles of their mid-ranks."""
    values, place = np.unique(column, return_inverse=True)
    own = np.bincount(place, weight)
    rank = (np.cumsum(own) - 0.5 * own) / own.sum()
    if len(values) > _N_KNOTS:
        # Knots lie at even ranks, both ends included.
        wanted = np.searchsorted(rank, np.linspace(rank[0], rank[-1], _N_KNOTS)).clip(max=len(rank) - 1)
        chosen = np.unique(wanted)
        values, rank = values[chosen], rank[chosen]
    return values, ndtri(rank)
