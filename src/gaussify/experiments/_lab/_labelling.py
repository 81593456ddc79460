"""Parts that experiments on active learning share: a pool with its first labels, and labels needed for a level."""

from typing import Any

import numpy as np
from jaxtyping import Int64, Num

from gaussify.experiments._lab._records import Record
from gaussify.experiments._lab._splits import Split


def make_pool(
    X: Num[np.ndarray, "n d"], y: Any, number: int, *, n_pool: int, n_test: int, n_initial: int
) -> tuple[Split, Int64[np.ndarray, " i"]]:
    """Return a random pool and test rows of two classes, and the first rows of the pool to label, balanced.

    Examples
    --------
    >>> pool, first = make_pool(np.zeros((9, 1)), np.arange(9) % 2, 0, n_pool=6, n_test=3, n_initial=2)
    >>> pool.y[first]
    array([0, 1])
    """
    rng = np.random.default_rng(number)
    order = rng.permutation(len(y))
    pool, test = order[:n_pool], order[n_pool : n_pool + n_test]
    first = [rng.permutation((y[pool] == label).nonzero()[0])[: n_initial // 2] for label in (0, 1)]
    return Split(X[pool], y[pool], X[test], y[test]), np.concatenate(first)


def labels_needed(curve: list[Record], metric: str, level: float) -> int | None:
    """Return the number of labels with which a curve first reaches a level; None if it never does.

    Examples
    --------
    >>> curve = [{"n_labels": 10, "accuracy": 0.6}, {"n_labels": 11, "accuracy": 0.7}]
    >>> labels_needed(curve, "accuracy", 0.65), labels_needed(curve, "accuracy", 0.9)
    (11, None)
    """
    return min((record["n_labels"] for record in curve if record[metric] >= level), default=None)
