"""Choose rows by their scores: several at once, without near-duplicates."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

_EXPLAINED = 1e-8  # a smaller share of a variance is rounding error
# Largest relative error, rounded up, of the distance from a half of the sigmoid of m / sqrt(1 + pi v / 8).
PROBIT_ERROR = 0.05


def greedy(
    scores: Float[np.ndarray, " n"],
    variance: Float[np.ndarray, "n l"],
    covariance_with: Callable[[int], Float[np.ndarray, "n l"]],
    n_rows: int,
    given: Sequence[int] = (),
) -> list[int]:
    r"""Return ``n_rows`` rows with large scores and latents that the rows chosen before do not explain.

    Given the latents of the chosen rows C, the latents of row i keep the variance :math:`\sigma^2_{il\mid C}`, whatever
    the values of those latents are. The next row maximises the score :math:`a_i` times the share of variance left,

    .. math:: a_i\,\frac{\sum_l\sigma^2_{il\mid C}}{\sum_l\sigma^2_{il}}.

    It is zero for rows of C and small for their near-duplicates. Each choice adds a column to a Cholesky factor of the
    covariance, which costs n l for each pair of chosen rows. With few features a few rows explain everything; the
    choice then starts again with an empty C.

    Parameters
    ----------
    scores
        Scores of at least zero; -inf for rows that must not be chosen.
    variance
        Variances of the latents.
    covariance_with
        Function from a row's index to the covariances of all rows with that row.
    n_rows
        Number of rows to choose.
    given
        Rows that were chosen before.

    Examples
    --------
    >>> points = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    >>> covariance = points @ points.T
    >>> greedy(np.array([1.0, 0.9, 0.5]), covariance.diagonal()[:, None], lambda i: covariance[:, [i]], n_rows=2)
    [0, 2]
    """
    explained = Explained(variance, covariance_with)
    for row in given:
        explained.add(row)
    return greedy_beyond(explained, scores, n_rows)


def greedy_beyond(explained: "Explained", scores: Float[np.ndarray, " n"], n_rows: int) -> list[int]:
    """Return rows as ``greedy`` does, given those in ``explained``; all but the last one are added to it."""
    is_open = np.isfinite(scores)
    is_open[explained.rows] = False
    chosen: list[int] = []
    while True:
        share = explained.share_left()
        if share[is_open].max() < _EXPLAINED:
            explained.forget()
            share = np.ones_like(share)
        row = int(np.argmax(np.where(is_open, np.where(is_open, scores, 0.0) * share, -np.inf)))
        chosen.append(row)
        is_open[row] = False
        if len(chosen) == n_rows:
            return chosen
        explained.add(row)


class Explained:
    """Variances of the latents of all rows given the latents of some: a Cholesky factor that grows by columns.

    Examples
    --------
    >>> explained = Explained(np.array([[1.0], [4.0]]), lambda row: np.array([[1.0], [1.0]]))
    >>> explained.add(0)
    >>> explained.rows, explained.share_left()
    ([0], array([0.  , 0.75]))
    """

    def __init__(
        self, variance: Float[np.ndarray, "n l"], covariance_with: Callable[[int], Float[np.ndarray, "n l"]]
    ) -> None:
        self._variance, self._covariance_with = variance, covariance_with
        self.forget()

    def forget(self) -> None:
        """Start again with no rows."""
        self.rows: list[int] = []
        self._columns: list[Float[np.ndarray, "n l"]] = []
        self._left = self._variance.copy()

    def add(self, row: int) -> None:
        """Condition on the latents of one more row."""
        known = self._left[row] <= _EXPLAINED * self._variance[row]  # from earlier rows
        column = self._covariance_with(row) - sum(other[row] * other for other in self._columns)
        column = column / np.sqrt(np.where(known, np.inf, self._left[row]))
        self.rows.append(row)
        self._columns.append(column)
        self._left = np.maximum(self._left - column * column, 0.0)

    def share_left(self) -> Float[np.ndarray, " n"]:
        """Return the share of each row's variance, summed over latents, that is left; 0 if there was none."""
        total = self._variance.sum(1)
        return np.divide(self._left.sum(1), total, out=np.zeros_like(total), where=total > 0.0)


def near_even(mean: Float[np.ndarray, "n l"], variance: Float[np.ndarray, "n l"]) -> Bool[np.ndarray, " n"]:
    r"""Return a mask of the rows that may have the probability nearest to a half; for two classes.

    MacKay's approximation :math:`\sigma(m / \sqrt{1 + \pi v / 8})` gets the distance from a half right to 5 %. So the
    exact integral is needed for the few rows of this mask alone.

    Examples
    --------
    >>> near_even(np.array([[0.1], [-0.105], [3.0]]), np.ones((3, 1)))
    array([ True,  True, False])
    """
    if mean.shape[1] == 2:  # the softmax of two latents is the sigmoid of their difference
        mean, variance = mean[:, 1:] - mean[:, :1], variance[:, 1:] + variance[:, :1]
    distance = np.abs(mean[:, 0]) / np.sqrt(1.0 + math.pi / 8.0 * variance[:, 0])
    excess = 0.5 * np.tanh(0.5 * distance)  # probability above a half
    return excess <= excess.min() * (1.0 + PROBIT_ERROR) / (1.0 - PROBIT_ERROR)


def spread_rows(
    X: Float[np.ndarray, "n d"], is_open: Bool[np.ndarray, " n"], n_rows: int, rng: np.random.Generator
) -> list[int]:
    """Return open rows that are far from each other and from all rows that are not open, drawn as in k-means++.

    Columns are scaled to variance one. The probability of a row is proportional to its squared distance from the
    nearest row taken before.

    Examples
    --------
    >>> X = np.array([[0.0], [0.01], [5.0]])
    >>> spread_rows(X, np.array([False, True, True]), 1, np.random.default_rng(0))
    [2]
    """
    centred = X - X.mean(0)
    scale = centred.std(0)
    is_constant = scale <= 1e-12 * np.abs(X).max(0)
    Z = centred[:, ~is_constant] / scale[~is_constant]
    is_open, distance = is_open.copy(), np.full(len(X), np.inf)
    for taken in (~is_open).nonzero()[0]:
        distance = np.minimum(distance, np.square(Z - Z[taken]).sum(1))
    chosen: list[int] = []
    for _ in range(n_rows):
        weight = np.where(is_open, np.where(np.isinf(distance), 1.0, distance), 0.0)
        weight = weight if weight.sum() > 0.0 else is_open.astype(float)
        row = int(rng.choice(len(X), p=weight / weight.sum()))
        chosen.append(row)
        is_open[row] = False
        distance = np.minimum(distance, np.square(Z - Z[row]).sum(1))
    return chosen
