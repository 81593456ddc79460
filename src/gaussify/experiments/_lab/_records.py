"""Tidy records in CSV files: typed on reading, whole or absent on writing."""

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gaussify.exceptions import InvalidArgumentError

Scalar = bool | int | float | str | None
Record = dict[str, Scalar]

_WORDS: dict[str, Scalar] = {"": None, "True": True, "False": False}
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"-?(inf|nan|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)")


def read_records(path: Path) -> list[Record]:
    """Return the records of a CSV file, each value as the type it had; an empty field is None.

    Half a line at the end, left by a process that was killed while it wrote, is not read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read()
    whole_lines = text[: text.rfind("\n") + 1]
    rows = csv.reader(io.StringIO(whole_lines, newline=""))
    columns = next(rows, [])
    try:
        return [{name: parse_value(field) for name, field in zip(columns, row, strict=True)} for row in rows]
    except ValueError:
        raise InvalidArgumentError(
            f"{path} is damaged: line {rows.line_num} does not have the {len(columns)} fields of the header; run the "
            "experiment again with --fresh."
        ) from None


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file at once; its columns are those of all records, in the order in which they turn up."""
    columns = column_names(records)
    write_text(path, _csv_lines([columns]) + _record_lines(records, columns))


def append_records(path: Path, records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Append lines to a CSV file whose header is ``columns``, and wait until they are on disk."""
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(_record_lines(records, columns))
        file.flush()
        os.fsync(file.fileno())


def column_names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all records, in the order in which they turn up.

    Examples
    --------
    >>> column_names([{"split": 0, "nll": 0.3}, {"split": 1, "error": 0.1}])
    ['split', 'nll', 'error']
    """
    return list(dict.fromkeys(name for record in records for name in record))


def group(records: Iterable[Record], *columns: str) -> dict[tuple[Scalar, ...], list[Record]]:
    """Return the records by their values in these columns, in the order in which these turn up.

    Examples
    --------
    >>> group([{"seed": 0, "x": 1}, {"seed": 1, "x": 1}], "x")
    {(1,): [{'seed': 0, 'x': 1}, {'seed': 1, 'x': 1}]}
    """
    groups: dict[tuple[Scalar, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[column] for column in columns), []).append(record)
    return groups


def mean_and_error(values: Iterable[Any]) -> tuple[float, float]:
    """Return the mean and its standard error, which is 0 for one value.

    Examples
    --------
    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    array = np.array(list(values), dtype=float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 and np.isfinite(array).all() else 0.0
    return float(array.mean()), float(error)


def means(records: Sequence[Record], digits: Mapping[str, int]) -> Record:
    """Return the mean of each column, rounded, and the standard error of the mean (``_se``); None where there is none.

    Examples
    --------
    >>> means([{"nll": 1.0, "auroc": None}, {"nll": 3.0, "auroc": None}], {"nll": 2, "auroc": 3})
    {'nll': 2.0, 'nll_se': 1.0, 'auroc': None, 'auroc_se': None}
    """
    row: Record = {}
    for name, n_digits in digits.items():
        known = [record[name] for record in records if record[name] is not None]
        mean, error = mean_and_error(known) if known else (None, None)
        row[name] = None if mean is None else round(mean, n_digits)
        row[f"{name}_se"] = None if error is None or len(known) < 2 else round(error, n_digits)
    return row


def of_best_alpha_eps(records: Iterable[Record], *columns: str, score: str) -> list[Record]:
    """Return, for each value of these columns, the records of the alpha_eps whose mean score is largest.

    The score is the log-likelihood of training rows, as the paper chooses, or another in which no test row has a part.

    Examples
    --------
    >>> common = {"method": "laplace"}
    >>> some = [common | {"alpha_eps": 0.1, "fit": -2.0}, common | {"alpha_eps": 0.2, "fit": -1.0}]
    >>> of_best_alpha_eps(some, "method", score="fit")
    [{'method': 'laplace', 'alpha_eps': 0.2, 'fit': -1.0}]
    """
    best: list[Record] = []
    for own in group(records, *columns).values():
        choices = group(own, "alpha_eps").values()
        best += max(choices, key=lambda some: _nan_last(mean_and_error(record[score] for record in some)[0]))
    return best


def _nan_last(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def write_text(path: Path, text: str) -> None:
    """Write a text file such that, whatever happens, either the old or the new content is there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def parse_value(field: str) -> Scalar:
    """Return the value that :func:`format_value` wrote.

    Examples
    --------
    >>> [parse_value(field) for field in ["3", "3.0", "1e-05", "True", "letter", ""]]
    [3, 3.0, 1e-05, True, 'letter', None]
    """
    if field in _WORDS:
        return _WORDS[field]
    if _INTEGER.fullmatch(field):
        return int(field)
    return float(field) if _FLOAT.fullmatch(field) else field


def format_value(value: Any, *, column: str) -> str:
    """Return the text of a scalar (of Python or NumPy) from which :func:`parse_value` restores it exactly.

    Examples
    --------
    >>> format_value(0.1, column="nll"), format_value(None, column="nll")
    ('0.1', '')
    >>> format_value("7", column="dataset")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: Column 'dataset' cannot hold the text '7': it would read back
    as 7.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return repr(value)
    if not isinstance(value, str):
        raise InvalidArgumentError(
            f"Column {column!r} takes a bool, int, float, str or None; got {type(value).__name__}."
        )
    if "\n" in value or "\r" in value:
        raise InvalidArgumentError(f"Column {column!r} cannot hold the text {value!r}: it has a line break.")
    if (back := parse_value(value)) != value:
        raise InvalidArgumentError(f"Column {column!r} cannot hold the text {value!r}: it would read back as {back!r}.")
    return value


def _record_lines(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    return _csv_lines([format_value(record.get(name), column=name) for name in columns] for record in records)


def _csv_lines(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
