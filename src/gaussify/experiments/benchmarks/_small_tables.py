"""Small tables of many kinds: scikit-learn's, those of a folder with an index, and samples of the UCI tables.

A sample of 300 rows to learn from of letter is ``letter-300``. A table of the folder is a CSV file in ``tables``, below
the folder that ``GAUSSIFY_DATA`` names; ``index.csv`` has its target. Words are coded as categories. Missing numbers
are replaced by medians, and missing words by the most frequent one. All of that is learnt from the training rows alone.
"""

import csv
import io
import lzma
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from gaussify.datasets._files import DatasetError, find
from gaussify.experiments import _lab as lab

BUNDLED = ("iris", "wine", "breast-cancer", "digits")  # with scikit-learn
_MISSING = ("", "NA", "NaN")
_RARE = 10  # words in fewer training rows are one category
_LARGEST_COUNT = 3  # counts from here on are one class


class Table(NamedTuple):
    """Columns of numbers (NaN where missing), columns of words ("" where missing), and classes 0, 1, ..."""

    numbers: Float[np.ndarray, "n d"]
    words: NDArray[np.object_]  # (n, w)
    y: Int64[np.ndarray, " n"]


def names(uci: Sequence[str], sizes: Sequence[int], *, with_folder: bool) -> list[str]:
    """Return the names of tables: bundled ones, samples of UCI tables, and those of the folder.

    Examples
    --------
    >>> names(["letter"], [300, 1000], with_folder=False)[-2:]
    ['letter-300', 'letter-1000']
    """
    folder = FOLDER if with_folder else ()
    return [*BUNDLED, *folder, *(f"{name}-{size}" for name in uci for size in sizes)]


FOLDER = (
    *("telco_churn", "mlc_churn", "german_credit", "smoke_ban", "credit_card", "beps", "ces11", "mpls_stops", "hpc"),
    *("cowles", "womenlf", "psid1976", "migraine", "flchain", "bank_wages", "gss_vocab", "nmes1988", "phd"),
    *("doctor_visits", "tate", "spam", "cells", "ad_data", "musk"),
)


def check_tables(tables: Sequence[str]) -> None:
    """Raise an error that names the remedy if the file of a table is missing."""
    for name in tables:
        if name in FOLDER:
            _content(f"{name}.csv.xz")
        elif name not in BUNDLED:
            lab.load_rows(name.rpartition("-")[0])


@lru_cache(maxsize=1)  # splits of one table follow each other
def load_table(name: str) -> Table:
    """Return a table by its name.

    Examples
    --------
    >>> load_table("wine").numbers.shape
    (178, 13)
    """
    if name in FOLDER:
        return _read_table(name)
    if name == "wine":
        from sklearn.datasets import load_wine

        X, y = load_wine(return_X_y=True)
    else:
        X, y = lab.load_rows(name if name in BUNDLED else name.rpartition("-")[0])
    return Table(X, np.empty((len(X), 0), dtype=object), np.unique(y, return_inverse=True)[1])


def split_table(name: str, number: int, *, max_train: int, max_test: int) -> lab.Split:
    """Return a random split as standardised numbers, with the classes in equal shares: two thirds to learn from.

    Examples
    --------
    >>> split = split_table("iris", 0, max_train=60, max_test=100)
    >>> split.X.shape, split.X_test.shape, np.bincount(split.y)
    ((60, 4), (50, 4), array([20, 20, 20]))
    """
    from sklearn.model_selection import train_test_split

    table = load_table(name)
    n = len(table.y)
    size = name.rpartition("-")[2]
    n_train = min(int(size) if size.isdigit() and name not in FOLDER else max_train, 2 * n // 3)
    sizes = {"train_size": n_train, "test_size": min(max_test, n - 2 * n // 3)}
    train, test = train_test_split(np.arange(n), **sizes, stratify=table.y, random_state=number)
    X, X_test = _as_numbers(table, train, test)
    return lab.Split(X, table.y[train], X_test, table.y[test])


def _as_numbers(table: Table, train: NDArray, test: NDArray) -> tuple[NDArray, NDArray]:
    """Return the training and test rows as standardised numbers."""
    from sklearn.feature_selection import VarianceThreshold
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=_RARE, drop="if_binary", sparse_output=False
    )
    kinds = [
        (table.numbers, SimpleImputer(strategy="median")),
        (table.words, make_pipeline(SimpleImputer(missing_values="", strategy="most_frequent"), encoder)),
    ]
    parts = [(step.fit(cells[train]), cells) for cells, step in kinds if cells.shape[1]]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories")  # words that no training row has are rare ones
        X, X_test = (np.column_stack([step.transform(cells[rows]) for step, cells in parts]) for rows in (train, test))
    scale = make_pipeline(VarianceThreshold(), StandardScaler()).fit(X)
    return scale.transform(X), scale.transform(X_test)


def _content(file: str) -> bytes:
    path = find(f"tables/{file}")
    if path is None:
        raise DatasetError(f"There is no file tables/{file} in the folder that GAUSSIFY_DATA names; put it there.")
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def _read_table(name: str) -> Table:
    index = {row["name"]: row for row in csv.DictReader(io.StringIO(_content("index.csv").decode()))}
    target, kind = index[name]["target"], index[name]["kind"]
    rows = csv.reader(io.StringIO(_content(f"{name}.csv.xz").decode(), newline=""))
    header = next(rows)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    labels = columns.pop(target)
    y: Any = np.minimum(np.array(labels, dtype=float), _LARGEST_COUNT) if kind == "counts" else np.array(labels)
    numbers, words = [], []
    for cells in columns.values():
        known = [None if cell in _MISSING else cell for cell in cells]
        try:
            numbers.append([np.nan if cell is None else float(cell) for cell in known])
        except ValueError:
            words.append(["" if cell is None else cell for cell in known])
    n = len(labels)
    return Table(
        np.array(numbers).T if numbers else np.empty((n, 0)),
        np.array(words, dtype=object).T if words else np.empty((n, 0), dtype=object),
        np.unique(y, return_inverse=True)[1],
    )
