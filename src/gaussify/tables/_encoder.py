"""Turn a table into a matrix of numbers, as a step of a scikit-learn pipeline."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gaussify.exceptions import TableError
from gaussify.tables._columns import CategoryColumn, Column, ColumnKind, clean, learn_column, unpack_column


class TableEncoder(TransformerMixin, BaseEstimator):
    """Transformer from a table with columns of any kind to a matrix of numbers.

    :func:`learn_column` finds out what a column holds: numbers, categories, truth values or dates. Columns without
    information, such as row ids, are left out.

    Parameters
    ----------
    categories : sequence of str
        Columns whose numbers are names of categories.
    ignored : sequence of str
        Columns to leave out.

    Attributes
    ----------
    columns_ : list of Column
        The learnt columns, including those that are left out.
    n_features_out_ : int
        Number of columns of the matrix.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20.0, None, 40.0], "fruit": ["fig", "pear", "plum"], "unit": ["m", "m", "m"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age missing', 'fruit=fig', 'fruit=pear', 'fruit=plum']
    >>> encoder.transform(frame[:1])
    array([[-1., 0., 1., 0., 0.]])
    """

    columns_: list[Column]

    def __init__(self, categories: Sequence[str] = (), ignored: Sequence[str] = ()) -> None:
        self.categories = categories
        self.ignored = ignored

    def fit(self, X: Any, y: Any = None) -> "TableEncoder":
        """Learn the columns of a table: a frame of pandas or polars, an Arrow table, or a mapping of names to cells."""
        table = as_table(X)
        for name in (*self.categories, *self.ignored):
            require_column(name, table.column_names)
        self.columns_ = [
            learn_column(name, _whole(table.column(name)), is_category=name in self.categories)
            for name in table.column_names
            if name not in self.ignored
        ]
        if not self.n_features_out_:
            reasons = (
                "; ".join(f"{column.name!r}: {column.describe()}" for column in self.columns_)
                or "it has no other column"
            )
            raise TableError(f"The table has no column to learn from ({reasons}).")
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n f"]:
        """Return the features of rows; columns may be in any order, and additional columns are ignored."""
        check_is_fitted(self, "columns_")
        table = as_table(X)
        used = [column for column in self.columns_ if column.kind is not ColumnKind.IGNORED]
        for column in used:
            require_column(column.name, table.column_names, because="which the model was trained with")
        return np.column_stack([column.encode(_whole(table.column(column.name))) for column in used]).astype(np.float64)

    @property
    def n_features_out_(self) -> int:
        """Number of columns of the matrix."""
        return sum(len(column.features()) for column in self.columns_)

    def get_feature_names_out(self, input_features: object = None) -> NDArray:
        """Return the names of the features."""
        check_is_fitted(self, "columns_")
        return np.array([name for column in self.columns_ for name in column.features()], dtype=object)

    def n_new_levels(self, X: Any) -> dict[str, int]:
        """Return, for each column, the number of cells with a level that was not in training."""
        table = as_table(X)
        categories = [column for column in self.columns_ if isinstance(column, CategoryColumn)]
        counts = {column.name: column.n_new(_whole(table.column(column.name))) for column in categories}
        return {name: count for name, count in counts.items() if count}

    def packed(self) -> list[dict[str, Any]]:
        """Return the learnt columns as values for JSON, which ``unpacked`` reads."""
        check_is_fitted(self, "columns_")
        return [column.packed() for column in self.columns_]

    @classmethod
    def unpacked(cls, config: list[dict[str, Any]]) -> "TableEncoder":
        """Return the encoder that ``packed`` has described."""
        encoder = cls()
        encoder.columns_ = [unpack_column(part) for part in config]
        return encoder


def as_table(X: Any) -> pa.Table:
    """Return a frame of pandas or polars, an Arrow table, or a mapping from names to cells, as an Arrow table.

    Examples
    --------
    >>> as_table({"a": [1, 2]}).column_names
    ['a']
    """
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    try:
        return X if isinstance(X, pa.Table) else pa.table(X)
    except (TypeError, ValueError, AttributeError, pa.ArrowInvalid) as error:
        raise TableError(
            "A table must be a frame of pandas or polars, an Arrow table, or a mapping from names to cells; got "
            f"{type(X).__name__} ({error})."
        ) from None


def require_column(name: str, names: Iterable[str], *, because: str = "") -> None:
    """Raise an error that names the missing column and the one with the most similar name.

    Examples
    --------
    >>> require_column("colour", ["size", "color"])
    Traceback (most recent call last):
        ...
    gaussify.exceptions.TableError: The table has no column 'colour'. Did you mean 'color'?
    """
    names = list(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    folded = [other for other in names if other.lower() == name.lower()]
    hint = f"Did you mean {(folded or near)[0]!r}?" if folded or near else f"Its columns are {_listed(names)}."
    raise TableError(f"The table has no column {name!r}{', ' if because else ''}{because}. {hint}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:10])
    return f"{shown}, ..." if len(names) > 10 else shown


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return clean(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
