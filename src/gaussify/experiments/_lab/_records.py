"""Records in CSV files: read with their types, written completely or not at all."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gaussify._atomic import write_bytes
from gaussify.exceptions import InvalidArgumentError

Scalar = bool | int | float | str | None

Record = dict[str, Any]
"""A row of a table: a :data:`Scalar` by column, which :func:`format_value` checks."""

_WORDS: dict[str, Scalar] = {"": None, "True": True, "False": False}
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"-?(inf|nan|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)")


def read_records(path: Path) -> list[Record]:
    """Return the records of a CSV file, each value with the type it had; an empty field is None.

    An incomplete last line, left by a process that was killed while it appended rows, is not read.
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
    """Replace a CSV file as a whole; its columns are those of all records, in the order of their first appearance."""
    columns = column_names(records)
    rows = [[format_value(record.get(name), column=name) for name in columns] for record in records]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    write_bytes(path, buffer.getvalue().encode())


def column_names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all records, in the order of their first appearance.

    Examples
    --------
    >>> column_names([{"split": 0, "nll": 0.3}, {"split": 1, "error": 0.1}])
    ['split', 'nll', 'error']
    """
    return list(dict.fromkeys(name for record in records for name in record))


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
