"""From the rows of a table to a matrix of numbers."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gaussify.exceptions import TableError
from gaussify.tables._columns import CategoryColumn, Column, ColumnKind, clean, learn_column, unpack_column


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers, categories, truth values, dates and missing cells of a table, as a matrix: a step of a pipeline.

    What a column holds is seen from its cells (:func:`learn_column`). Columns that say nothing are left out.

    Parameters
    ----------
    categories : sequence of str
        Columns of numbers that are names of categories.
    ignored : sequence of str
        Columns to leave out.

    Attributes
    ----------
    columns_ : list of Column
        As they were learnt, those that are left out too.
    n_features_out_ : int
        Columns of the matrix.

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
        """Learn what the columns of a table hold: of pandas, polars or Arrow, or a mapping from names to cells."""
        table = as_table(X)
        for name in (*self.categories, *self.ignored):
            require_column(name, table.column_names)
        self.columns_ = [
            learn_column(name, _whole(table.column(name)), is_category=name in self.categories)
            for name in table.column_names
            if name not in self.ignored
        ]
        if not self.n_features_out_:
            reasons = "; ".join(f"{column.name!r}: {column.describe()}" for column in self.columns_) or "there is none"
            raise TableError(f"No column is left to learn from ({reasons}).")
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n f"]:
        """Return the features of rows; columns may be in any order, and others are passed over."""
        check_is_fitted(self, "columns_")
        table = as_table(X)
        used = [column for column in self.columns_ if column.kind is not ColumnKind.IGNORED]
        for column in used:
            require_column(column.name, table.column_names, because="which the model was trained with")
        return np.column_stack([column.encode(_whole(table.column(column.name))) for column in used]).astype(np.float64)

    @property
    def n_features_out_(self) -> int:
        return sum(len(column.features()) for column in self.columns_)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the features."""
        check_is_fitted(self, "columns_")
        return np.array([name for column in self.columns_ for name in column.features()], dtype=object)

    def n_new_levels(self, X: Any) -> dict[str, int]:
        """Return, by column, how many cells have a level that training did not know."""
        table = as_table(X)
        own = [column for column in self.columns_ if isinstance(column, CategoryColumn)]
        counts = {column.name: column.n_new(_whole(table.column(column.name))) for column in own}
        return {name: count for name, count in counts.items() if count}

    def packed(self) -> list[dict[str, Any]]:
        """Return what was learnt, for JSON; ``unpacked`` takes that."""
        check_is_fitted(self, "columns_")
        return [column.packed() for column in self.columns_]

    @classmethod
    def unpacked(cls, config: list[dict[str, Any]]) -> "TableEncoder":
        """Return the encoder of what ``packed`` gave."""
        encoder = cls()
        encoder.columns_ = [unpack_column(own) for own in config]
        return encoder


def as_table(X: Any) -> pa.Table:
    """Return a table of pandas, polars or Arrow, or a mapping from names to cells, as one of Arrow.

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
            f"A table must be a frame of pandas or polars, one of Arrow, or a mapping from names to cells; got one "
            f"{type(X).__name__} ({error})."
        ) from None


def require_column(name: str, names: Iterable[str], *, because: str = "") -> None:
    """Say which column is missing, and which has the nearest name.

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
    folded = [own for own in names if own.lower() == name.lower()]
    hint = f"Did you mean {(folded or near)[0]!r}?" if folded or near else f"It has {_listed(names)}."
    raise TableError(f"The table has no column {name!r}{', ' if because else ''}{because}. {hint}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:10])
    return f"{shown}, ..." if len(names) > 10 else shown


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return clean(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
