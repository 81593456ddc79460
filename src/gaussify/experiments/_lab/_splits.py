"""Rows to learn from and rows to test on: of tables, of classes in the plane, and of pools to label."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Num

from gaussify import datasets

SIZES = {  # rows to learn from and to test on, as in the paper
    "eeg": (10_980, 4000),
    "htru2": (12_898, 5000),
    "magic": (14_020, 5000),
    "letter": (15_000, 5000),
    "drive": (48_509, 10_000),
}
BUNDLED = ("breast-cancer", "digits", "iris")  # with scikit-learn


class Split(NamedTuple):
    """Rows to learn from and rows to test on."""

    X: Float[np.ndarray, "n d"]
    y: Int64[np.ndarray, " n"]
    X_test: Float[np.ndarray, "m d"]
    y_test: Int64[np.ndarray, " m"]


@lru_cache(maxsize=1)
def load_rows(dataset: str) -> tuple[Float[np.ndarray, "n d"], Int64[np.ndarray, " n"]]:
    """Return all rows and labels of a data set, which may be one of those bundled with scikit-learn.

    Examples
    --------
    >>> load_rows("iris")[0].shape
    (150, 4)
    """
    if dataset in BUNDLED:
        import sklearn.datasets

        X, y = getattr(sklearn.datasets, f"load_{dataset.replace('-', '_')}")(return_X_y=True)
        return X, y.astype(np.int64)
    data = datasets.load(dataset)
    return data.X_train.astype(np.float64), data.y_train


@lru_cache(maxsize=1)  # tasks of one data set and split follow each other
def make_split(dataset: str, number: int, max_train: int | None = None, max_test: int | None = None) -> Split:
    """Return a random split with the sizes of the paper, or two thirds and the rest; possibly with fewer rows."""
    X, y = load_rows(dataset)
    n_train, n_test = SIZES.get(dataset, (2 * len(X) // 3, len(X) - 2 * len(X) // 3))
    order = np.random.default_rng(number).permutation(len(X))
    train, test = order[:n_train][:max_train], order[n_train : n_train + n_test][:max_test]
    return Split(X[train], y[train], X[test], y[test])


def four_classes(number: int, n_rows: int, n_test: int) -> Split:
    """Return four classes in the plane: the data set of this number.

    Examples
    --------
    >>> four_classes(0, 100, 50).X_test.shape
    (50, 2)
    """
    X, y = datasets.make_four_classes(n_rows, random_state=np.random.default_rng([number, 0]))
    X_test, y_test = datasets.make_four_classes(n_test, random_state=np.random.default_rng([number, 1]))
    return Split(X, y, X_test, y_test)


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
