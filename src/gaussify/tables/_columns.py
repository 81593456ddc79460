"""Kinds of columns: find out what a column of a table holds, and turn its cells into numbers.

A column is learnt once, from the training rows; it is then a fixed function of a cell. Numbers are standardised. A
category has a 0 or 1 for each of its levels. A date has its position in time, in the year, in the week and in the day.
A missing cell gets the mean and, if cells were missing in training, a 1 in an additional feature.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float
from numpy.typing import NDArray

from gaussify.exceptions import TableError
from gaussify.tables._files import MISSING

_TRUE, _FALSE = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
_PLAIN = "plain"
_STYLES = {  # pattern that all cells must match, text to replace, its replacement
    _PLAIN: ("", "", ""),
    "1,234.5": (r"^[-+]?([0-9]{1,3}(,[0-9]{3})+|[0-9]+)([.][0-9]+)?$", ",", ""),  # cells without a comma are allowed
    "1234,5": (r"^[-+]?[0-9]+(,[0-9]+)?$", ",", "."),
}
_FEW_WORDS, _ODD_SHARE = 5, 0.05  # among numbers: most different words, and largest share of cells with words
_LARGEST = 1e100
_MOST_LEVELS = 50
_FEW_LEVELS = 10  # up to this many levels are all kept
_RARE = 10  # with more levels, those in fewer rows than this are rare
_LEAST_TEXTS = 20  # different texts, from which on they may identify rows
_LEAST_COUNTED = 20  # rows, from which on row ids may have gaps
_DAY, _WEEK, _YEAR = 86400.0, 7 * 86400.0, 365.2425 * 86400.0
_MONDAY = 4 * _DAY  # after the first of January 1970
_FULL_YEAR = r"(^|[^0-9])[0-9]{4}($|[^0-9])"  # needed, for %Y also reads 20 as the year 20
_FORMATS = tuple(  # %y means 1969 to 2068
    f"{day}{hour}"
    for day in ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
    for hour in ("", " %H:%M", " %H:%M:%S")
)


class ColumnKind(StrEnum):
    """Kind of a column.

    Examples
    --------
    >>> ColumnKind("date") is ColumnKind.DATE
    True
    """

    NUMBER = "number"
    """Numbers that can be ordered and added."""
    BOOLEAN = "boolean"
    """True or false, yes or no."""
    CATEGORY = "category"
    """Words; rare words share one level."""
    DATE = "date"
    """Days or moments."""
    IGNORED = "ignored"
    """Left out, for example because all values are the same, or because the values only identify rows."""


@dataclass(frozen=True)
class Column(ABC):
    """A learnt column; it encodes cells that ``clean`` has returned.

    Examples
    --------
    >>> isinstance(learn_column("age", pa.array([31, 7])), Column)
    True
    """

    kind: ClassVar[ColumnKind]
    name: str

    @abstractmethod
    def features(self) -> list[str]:
        """Return the names of the column's features."""

    @abstractmethod
    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        """Return the features of cells."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for people."""

    def packed(self) -> dict[str, Any]:
        """Return the column as values for JSON."""
        return {"kind": str(self.kind), **asdict(self)}

    def _with_missing(self, names: list[str], has_missing: bool) -> list[str]:
        return [*names, f"{self.name} missing"] if has_missing else names


@dataclass(frozen=True)
class NumberColumn(Column):
    """Numbers; a few words among them count as missing cells.

    Examples
    --------
    >>> column = learn_column("age", pa.array(["20", None, "40"]))
    >>> column.kind, column.features(), column.encode(pa.array(["30", "50", None])).tolist()
    (<ColumnKind.NUMBER: 'number'>, ['age', 'age missing'], [[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    """

    kind = ColumnKind.NUMBER
    mean: float
    scale: float
    has_missing: bool
    style: str
    """How numbers are written: one of ``_STYLES``."""
    words: tuple[str, ...]
    """Words that count as missing cells."""

    @classmethod
    def learn(cls, name: str, read: "Numbers") -> "NumberColumn":
        """Return the column of the numbers read; NaN is a missing cell."""
        known = read.numbers[~np.isnan(read.numbers)]
        largest = float(np.abs(known).max()) or 1.0
        mean, std = largest * np.mean(known / largest), largest * np.std(known / largest)
        has_missing = len(known) < len(read.numbers)
        return cls(name, float(mean), float(std) or 1.0, has_missing, read.style, read.words)

    def features(self) -> list[str]:
        return self._with_missing([self.name], self.has_missing)

    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        numbers = self._read(cells)
        return _filled((numbers / self.scale - self.mean / self.scale)[:, None], np.isnan(numbers), self.has_missing)

    def _read(self, cells: pa.Array) -> Float[np.ndarray, " n"]:
        if _is_text(cells.type) and self.words:
            cells = pc.if_else(pc.is_in(cells, value_set=pa.array(self.words)), None, cells)
        numbers = _numbers_in(cells, self.style)
        if numbers is None:
            raise _wrong_cell(self.name, "numbers", cells, lambda cell: _is_number(cell, self.style))
        largest = np.abs(numbers[~np.isnan(numbers)]).max(initial=0.0)
        if largest > _LARGEST:
            raise TableError(
                f"Column {self.name!r} must hold numbers up to {_LARGEST:g}; got {largest:g}. Leave it out (--ignore)."
            )
        return numbers

    def describe(self) -> str:
        words = f"; {', '.join(self.words[:3])} count as missing" if self.words else ""
        return f"mean {self.mean:.4g}, standard deviation {self.scale:.4g}{words}"


@dataclass(frozen=True)
class BooleanColumn(Column):
    """Truth values.

    Examples
    --------
    >>> column = learn_column("paid", pa.array(["yes", "No", "no", "no"]))
    >>> column.features(), column.encode(pa.array(["no", "YES", None])).tolist()
    (['paid'], [[0.0], [1.0], [0.25]])
    """

    kind = ColumnKind.BOOLEAN
    rate: float
    has_missing: bool

    def features(self) -> list[str]:
        return self._with_missing([self.name], self.has_missing)

    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        truth = as_truth(cells)
        if truth is None:
            raise _wrong_cell(self.name, "true or false", cells, lambda cell: as_truth(pa.array([cell])) is not None)
        missing = np.isnan(truth)
        return _filled(np.where(missing, self.rate, truth)[:, None], missing, self.has_missing)

    def describe(self) -> str:
        return f"true in {self.rate:.1%} of rows"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Words: one feature per level, or a single feature if there are two levels.

    Examples
    --------
    >>> column = learn_column("fruit", pa.array(["fig", "pear", "plum", None, "fig"]))
    >>> column.features()
    ['fruit=fig', 'fruit=pear', 'fruit=plum', 'fruit missing']
    >>> column.encode(pa.array(["plum", "kiwi", None])).tolist()
    [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    kind = ColumnKind.CATEGORY
    levels: tuple[str, ...]
    has_rare: bool
    has_missing: bool

    @classmethod
    def learn(cls, name: str, words: pa.Array) -> "CategoryColumn":
        """Return the column of the words, with the levels that are not rare."""
        counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(words.drop_null()).to_pylist()}
        least = _RARE if len(counts) > _FEW_LEVELS else 1
        frequent = sorted(
            (level for level in counts if counts[level] >= least), key=lambda level: (-counts[level], level)
        )
        levels = tuple(sorted(frequent[:_MOST_LEVELS]))
        return cls(name, levels, len(levels) < len(counts), words.null_count > 0)

    @property
    def _is_pair(self) -> bool:
        return len(self.levels) == 2 and not self.has_rare

    def features(self) -> list[str]:
        names = [f"{self.name}={level}" for level in self.levels[1 if self._is_pair else 0 :]]
        return self._with_missing([*names, f"{self.name} rare"] if self.has_rare else names, self.has_missing)

    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        words = as_words(cells, self.name)
        place = pc.index_in(words, value_set=pa.array(self.levels, pa.string())).fill_null(-1).to_numpy()
        missing = words.is_null().to_numpy(zero_copy_only=False)
        one_hot = (place[:, None] == np.arange(len(self.levels))).astype(float)
        if self._is_pair:
            one_hot = one_hot[:, 1:]
            one_hot[(place < 0)] = 0.5
        if self.has_rare:  # a new level counts as rare
            one_hot = np.column_stack([one_hot, (place < 0) & ~missing])
        return np.column_stack([one_hot, missing]) if self.has_missing else one_hot

    def n_new(self, cells: pa.Array) -> int:
        """Return the number of cells with a level that was not in training and does not count as rare."""
        if self.has_rare:
            return 0
        words = as_words(cells, self.name)
        known = pc.is_in(words, value_set=pa.array(self.levels, pa.string()))
        return int(pc.sum(pc.and_(pc.invert(known), words.is_valid())).as_py() or 0)

    def describe(self) -> str:
        shown = ", ".join(self.levels[:5]) + (", ..." if len(self.levels) > 5 else "")
        return f"{len(self.levels)} levels ({shown})" + (" and rare ones" if self.has_rare else "")


@dataclass(frozen=True)
class DateColumn(Column):
    """Days or moments: position in time, in the year, in the week and, for moments, in the day.

    Examples
    --------
    >>> column = learn_column("day", pa.array(["2024-01-01", "2024-12-30"]))
    >>> column.features()
    ['day', 'day, year (cos)', 'day, year (sin)', 'day, week (cos)', 'day, week (sin)']
    >>> column.encode(pa.array(["2024-07-01"])).round(1).tolist()  # a Monday
    [[0.0, -1.0, 0.0, 1.0, 0.0]]
    """

    kind = ColumnKind.DATE
    mean: float
    """Seconds since 1970, the unit of all moments."""
    scale: float
    has_times: bool
    has_missing: bool
    format: str | None
    """None for cells that are dates already and for text in ISO 8601."""

    @classmethod
    def learn(cls, name: str, seconds: Float[np.ndarray, " n"], format: str | None) -> "DateColumn":
        """Return the column of the moments; NaN is a missing cell."""
        known = seconds[~np.isnan(seconds)]
        has_times = bool((known % _DAY != 0.0).any())
        scale = float(known.std()) or 1.0
        return cls(name, float(known.mean()), scale, has_times, len(known) < len(seconds), format)

    def _cycles(self) -> dict[str, tuple[float, float]]:
        cycles = {"year": (0.0, _YEAR), "week": (_MONDAY, _WEEK)}
        return cycles | {"day": (0.0, _DAY)} if self.has_times else cycles

    def features(self) -> list[str]:
        names = [f"{self.name}, {cycle} ({wave})" for cycle in self._cycles() for wave in ("cos", "sin")]
        return self._with_missing([self.name, *names], self.has_missing)

    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        seconds = as_seconds(cells, self.format)
        if seconds is None:
            raise _wrong_cell(
                self.name, "a date", cells, lambda cell: as_seconds(pa.array([cell]), self.format) is not None
            )
        parts = [(seconds - self.mean) / self.scale]
        for start, length in self._cycles().values():
            angle = 2.0 * math.pi * (seconds - start) / length
            parts += [np.cos(angle), np.sin(angle)]
        return _filled(np.column_stack(parts), np.isnan(seconds), self.has_missing)

    def describe(self) -> str:
        day = np.datetime64(round(self.mean), "s").astype("datetime64[D]")
        return f"mean {day}, standard deviation {self.scale / _DAY:.4g} days"


@dataclass(frozen=True)
class IgnoredColumn(Column):
    """A column that is left out.

    Examples
    --------
    >>> learn_column("year", pa.array(["2024", "2024"])).reason
    'all values are the same'
    """

    kind = ColumnKind.IGNORED
    reason: str

    def features(self) -> list[str]:
        return []

    def encode(self, cells: pa.Array) -> Float[np.ndarray, "n f"]:
        return np.zeros((len(cells), 0))

    def describe(self) -> str:
        return self.reason


_CLASSES: dict[str, type[Column]] = {
    str(column.kind): column for column in (NumberColumn, BooleanColumn, CategoryColumn, DateColumn, IgnoredColumn)
}


def learn_column(name: str, cells: pa.Array, *, is_category: bool = False) -> Column:
    """Return the column that these cells make, of the kind that suits all of them.

    Parameters
    ----------
    name : str
        Name of the column.
    cells : pyarrow.Array
        Cells that ``clean`` has returned, of any type. Text may hold truth values, numbers or dates.
    is_category : bool
        Whether numbers are names of categories.

    Examples
    --------
    >>> [str(learn_column("x", pa.array(cells)).kind) for cells in (["1", "5"], ["no", "yes"], ["2024-05-01", None])]
    ['number', 'boolean', 'date']
    """
    if pa.types.is_nested(cells.type) or _is_bytes(cells.type):
        return IgnoredColumn(name, f"cells have the type {cells.type}")
    if cells.null_count == len(cells):
        return IgnoredColumn(name, "all cells are missing")
    if pc.count_distinct(as_words(cells, name)).as_py() == 1 and cells.null_count == 0:
        return IgnoredColumn(name, "all values are the same")
    if is_category:
        return CategoryColumn.learn(name, as_words(cells, name))
    truth = as_truth(cells)
    if truth is not None:
        missing = np.isnan(truth)
        return BooleanColumn(name, float(truth[~missing].mean()), bool(missing.any()))
    if (read := find_numbers(cells)) is not None:
        if np.isnan(read.numbers).all():
            return IgnoredColumn(name, "no cell is a finite number")
        return IgnoredColumn(name, "row ids") if _are_row_ids(read.numbers) else NumberColumn.learn(name, read)
    for format in (None, *_FORMATS):
        if (seconds := as_seconds(cells, format)) is not None:
            return DateColumn.learn(name, seconds, format)
    words = as_words(cells, name)
    n_different, n_known = pc.count_distinct(words).as_py(), len(words) - words.null_count
    if n_different >= _LEAST_TEXTS and n_different > n_known / 2:
        return IgnoredColumn(name, "most rows have a different text")
    return CategoryColumn.learn(name, words)


def unpack_column(config: dict[str, Any]) -> Column:
    """Return the column that ``packed`` has described.

    Examples
    --------
    >>> column = learn_column("fruit", pa.array(["fig", "pear", "plum"]))
    >>> unpack_column(column.packed()) == column
    True
    """
    parts: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in config.items() if name != "kind"
    }
    return _CLASSES[config["kind"]](**parts)


def as_truth(cells: pa.Array) -> Float[np.ndarray, " n"] | None:
    """Return 1 for true, 0 for false and NaN for missing cells; None if any cell is something else.

    Examples
    --------
    >>> as_truth(pa.array(["yes", "No", None])), as_truth(pa.array(["yes", "perhaps"]))
    (array([ 1.,  0., nan]), None)
    """
    if pa.types.is_boolean(cells.type):
        return _floats(cells)
    if not _is_text(cells.type):
        return None
    words = pc.utf8_lower(cells)
    is_true, is_false = (pc.is_in(words, value_set=pa.array(words_of_kind)) for words_of_kind in (_TRUE, _FALSE))
    if not pc.all(pc.or_(pc.or_(is_true, is_false), words.is_null())).as_py():
        return None
    return np.where(words.is_null().to_numpy(zero_copy_only=False), np.nan, _floats(is_true))


def clean(cells: pa.Array) -> pa.Array:
    """Return text cells without surrounding blanks, with null for words such as "NA"; other cells unchanged.

    Cells of Arrow's type null become missing text cells.

    Examples
    --------
    >>> clean(pa.array([" a", " NA ", None])).to_pylist()
    ['a', None, None]
    """
    if pa.types.is_null(cells.type):
        return pc.cast(cells, pa.string())
    if not _is_text(cells.type):
        return cells
    words = pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))
    return pc.if_else(pc.is_in(words, value_set=pa.array(MISSING)), None, words)


def as_words(cells: pa.Array, name: str = "") -> pa.Array:
    """Return the cells of column ``name`` as text: equal values give equal text, however they are stored.

    Examples
    --------
    >>> as_words(pa.array([1.0, None, 2.5])).to_pylist(), as_words(pa.array(["1.0", "2.50", "007", "True"])).to_pylist()
    (['1', None, '2.5'], ['1', '2.5', '007', 'true'])
    """
    try:
        words = pc.cast(cells, pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise TableError(
            f"Column {name!r} must hold words, numbers, truth values or dates; got cells of type {cells.type}. "
            "Convert them to text."
        ) from None
    for pattern in (r"^(-?[0-9]+)[.]0+$", r"^(-?[0-9]+[.][0-9]*[1-9])0+$"):
        words = pc.replace_substring_regex(words, pattern, r"\1")
    lower = pc.utf8_lower(words)
    return pc.if_else(pc.is_in(lower, value_set=pa.array(["true", "false"])), lower, words)


def as_seconds(cells: pa.Array, format: str | None) -> Float[np.ndarray, " n"] | None:
    """Return moments in seconds since 1970, with NaN for missing cells; None if any cell is something else.

    Examples
    --------
    >>> as_seconds(pa.array(["1970-01-02", None]), None), as_seconds(pa.array(["02.01.1970"]), "%d.%m.%Y")
    (array([86400., nan]), array([86400.]))
    >>> as_seconds(pa.array(["tomorrow"]), None) is None
    True
    """
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type):
        return _seconds(pc.cast(cells, pa.timestamp("us"), safe=False))
    if not _is_text(cells.type):
        return None
    if format is not None:
        if "%Y" in format and not pc.all(pc.match_substring_regex(cells, _FULL_YEAR)).as_py():
            return None
        moments = pc.strptime(cells, format=format, unit="s", error_is_null=True)
        return None if moments.null_count > cells.null_count else _seconds(moments)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without and with a time zone
        try:
            return _seconds(pc.cast(cells, kind))
        except pa.ArrowInvalid:
            continue
    return None


def _seconds(moments: pa.Array) -> NDArray:
    return _floats(pc.cast(pc.cast(moments, pa.timestamp("us"), safe=False), pa.int64())) / 1e6


class Numbers(NamedTuple):
    """The cells of a column as numbers, how they are written, and the words among them.

    Examples
    --------
    >>> Numbers._fields
    ('numbers', 'style', 'words')
    """

    numbers: NDArray
    style: str
    words: tuple[str, ...]


def find_numbers(cells: pa.Array) -> Numbers | None:
    """Return the cells as numbers in the style that suits all of them, a few words excepted; None if none does.

    Examples
    --------
    >>> find_numbers(pa.array(["2,5", "3"])).numbers, find_numbers(pa.array(["a", "3"]))
    (array([2.5, 3. ]), None)
    """
    for style in _STYLES:
        if (numbers := _numbers_in(cells, style)) is not None:
            return Numbers(numbers, style, ())
    if not _is_text(cells.type):
        return None
    different = pc.value_counts(cells.drop_null()).to_pylist()
    odd = [entry for entry in different if not _is_number(entry["values"], _PLAIN)]
    if len(odd) > _FEW_WORDS or sum(entry["counts"] for entry in odd) > _ODD_SHARE * (len(cells) - cells.null_count):
        return None
    words = tuple(sorted(entry["values"] for entry in odd))
    numbers = _numbers_in(pc.if_else(pc.is_in(cells, value_set=pa.array(words)), None, cells), _PLAIN)
    return None if numbers is None else Numbers(numbers, _PLAIN, words)


def _is_number(cell: Any, style: str) -> bool:
    return _numbers_in(pa.array([cell]), style) is not None


def _numbers_in(cells: pa.Array, style: str) -> NDArray | None:
    """Return numbers in a style, with NaN for missing and infinite ones; None if any cell is something else."""
    kind = cells.type
    if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    if _is_text(kind):
        pattern, replaced, by = _STYLES[style]
        if pattern and not pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return None
        cells = pc.replace_substring(cells, replaced, by) if replaced else cells
    try:
        numbers = _floats(pc.cast(cells, pa.float64(), safe=_is_text(kind)))
    except pa.ArrowInvalid:
        return None
    return np.where(np.isinf(numbers), np.nan, numbers)


def _floats(cells: pa.Array) -> NDArray:
    return pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)  # NaN for null


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _are_row_ids(numbers: NDArray) -> bool:
    """Return whether numbers are row ids: 0, 1, 2, ... or 1, 2, 3, ...

    With many rows, up to half of the ids may be gone.
    """
    n_rows, steps = len(numbers), np.diff(numbers)
    if n_rows < _LEAST_COUNTED:
        return n_rows > 2 and numbers[0] in (0.0, 1.0) and bool((steps == 1.0).all())
    is_whole = bool((numbers == np.floor(numbers)).all())
    return is_whole and numbers[0] >= 0.0 and bool((steps >= 1.0).all()) and bool(numbers[-1] <= 2.0 * n_rows)


def _filled(features: NDArray, missing: NDArray, has_missing: bool) -> NDArray:
    features = np.where(np.isnan(features), 0.0, features)
    return np.column_stack([features, missing]) if has_missing else features


def _wrong_cell(name: str, what: str, cells: pa.Array, is_right: Callable[[Any], bool]) -> TableError:
    shown = next(
        (cell for cell in cells.to_pylist() if cell is not None and not is_right(cell)), "cells of another type"
    )
    return TableError(f"Column {name!r} must hold {what}, as it did in training; got {shown!r}.")
