"""Read and write CSV, TSV and Parquet files, also gzipped, a batch of rows at a time.

Cells of text files stay text, with null for missing ones; ``_columns.py`` finds out what they hold. A file is written
under another name and renamed when it is complete.
"""

import codecs
import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from gaussify._atomic import replacing
from gaussify.exceptions import TableError

STANDARD_STREAM = "-"
"""Stands for standard input or output in place of a path."""
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Words that mean a missing cell."""

_DELIMITERS = ",\t;|"
_WRITTEN = (".csv", ".tsv", ".txt", ".parquet")  # file extensions that can be written
_PEEK = 1 << 20  # bytes; the header must end within them
_BLOCK = 1 << 22  # bytes of text per batch
_BATCH = 1 << 14  # rows of Parquet per batch
_MARKUP = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|head|body|table|[?]xml)\b", re.IGNORECASE)
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # spreadsheets export "Unicode text" so


class TableReader(NamedTuple):
    r"""The column names of a file, and an iterator over batches of its rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("age,name\n31,Ann\n?,Bob\n")
    ...     with open_table(path) as reader:
    ...         print(reader.names, [batch.to_pylist() for batch in reader.batches])
    ['age', 'name'] [[{'age': '31', 'name': 'Ann'}, {'age': None, 'name': 'Bob'}]]
    """

    names: list[str]
    batches: Iterator[pa.RecordBatch]


@contextmanager
def open_table(source: str | os.PathLike[str]) -> Iterator[TableReader]:
    r"""Open a table and return a reader of it; ``-`` is standard input, and the contents tell the format.

    Raises
    ------
    TableError
        If the file is not a table; also while its rows are read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("a;b\n1;2\n")
    ...     with open_table(path) as reader:
    ...         print(sum(batch.num_rows for batch in reader.batches))
    1
    """
    name = "standard input" if os.fspath(source) == STANDARD_STREAM else os.fspath(source)
    with _opened(source) as raw:
        with _explained(name):
            file = io.BufferedReader(raw, _PEEK)
            if file.peek(2)[:2] == _GZIP:
                file = io.BufferedReader(gzip.GzipFile(fileobj=file), _PEEK)
            start = file.peek(_PEEK)
            if not start:
                raise TableError(f"{name} is empty.")
            names, batches = _parquet_reader(file) if start.startswith(_PARQUET) else _text_reader(file, start, name)
        yield TableReader(names, _explain_each(batches, name))


def read_table(source: str | os.PathLike[str]) -> pa.Table:
    r"""Return all rows of a table.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.tsv.gz")
    ...     _ = path.write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    ...     read_table(path).to_pydict()
    {'a': ['1'], 'b': ['2']}
    """
    with open_table(source) as reader:
        batches = list(reader.batches)
        if not batches:
            return pa.table({name: pa.array([], pa.string()) for name in reader.names})
        return pa.Table.from_batches(batches)


@contextmanager
def write_rows(target: str | os.PathLike[str], schema: pa.Schema) -> Iterator[Any]:
    r"""Open a writer with ``write_batch``; the file extension sets the format, and standard output (``-``) is CSV.

    Examples
    --------
    >>> import tempfile
    >>> batch = pa.record_batch({"label": ["a", "b"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels.csv.gz")
    ...     with write_rows(path, batch.schema) as writer:
    ...         writer.write_batch(batch)
    ...     gzip.decompress(path.read_bytes())
    b'"label"\n"a"\n"b"\n'
    """
    if os.fspath(target) == STANDARD_STREAM:
        _check_flat(schema)
        with _written("Standard output"), arrow_csv.CSVWriter(sys.stdout.buffer, schema) as writer:
            yield writer
        return
    path = Path(target)
    if path.is_dir():
        raise TableError(f"{path} is a folder; give the name of a file.")
    endings = [ending.lower() for ending in path.suffixes]
    is_zipped = endings[-1:] == [".gz"]
    ending = ((endings[:-1] if is_zipped else endings)[-1:] or [".csv"])[0]
    if ending not in _WRITTEN:
        raise TableError(f"{path} must end in one of {', '.join(_WRITTEN)}, with or without .gz; got {ending!r}.")
    if ending != ".parquet":
        _check_flat(schema)
    with replacing(path) as file, gzip.open(file, "wb") if is_zipped else nullcontext(file) as out:
        if ending == ".parquet":
            with parquet.ParquetWriter(out, schema) as writer:
                yield writer
        else:
            options = arrow_csv.WriteOptions(delimiter="\t" if ending == ".tsv" else ",")
            with _written(str(path)), arrow_csv.CSVWriter(out, schema, write_options=options) as writer:
                yield writer


@contextmanager
def _opened(source: str | os.PathLike[str]) -> Iterator[Any]:
    if os.fspath(source) == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    with open(source, "rb", buffering=0) as file:
        yield file


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn every reading error into one that says the file is not a table."""
    try:
        yield
    except UnicodeDecodeError:
        raise TableError(f"{name} is text, but not in UTF-8; save it as UTF-8.") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EOFError, OSError, zlib.error, csv.Error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the system; errors about contents have no number
        reason = " ".join(str(error).split()).removeprefix("CSV parse error: ")
        if len(reason) > 200:
            reason = f"{reason[:200]}..."
        raise TableError(
            f"{name} is not a table that can be read (CSV, TSV or Parquet): {reason.rstrip('.')}."
        ) from None


def _explain_each(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Pass batches on and explain errors of reading them, but not errors of the code that uses them."""
    with _explained(name):
        for batch in batches:
            batch.validate(full=True)  # text in Parquet may be in another encoding
            yield batch


@contextmanager
def _written(name: str) -> Iterator[None]:
    """Turn errors of writing into one that says the cells cannot be text."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{name} cannot be written as text ({error}). Keep fewer columns, or write to a file that ends in .parquet."
        ) from None


def _text_reader(file: io.BufferedReader, start: bytes, name: str) -> TableReader:
    if start.startswith(_UTF_16):
        raise TableError(f"{name} is text in UTF-16; save it as UTF-8.")
    if _MARKUP.match(start):
        raise TableError(f"{name} is a web page or XML, not a table; save the table in it as CSV.")
    if b"\0" in start:
        raise TableError(f"{name} is not a table; it is neither Parquet nor text (CSV or TSV).")
    # a longer file may be cut within a character
    text = start.decode("utf-8-sig", errors="strict" if len(start) < _PEEK else "ignore")
    lines = io.StringIO(text, newline=None)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise TableError(f"{name} is empty.")
    if len(start) >= _PEEK and not first.endswith("\n"):
        raise TableError(
            f"{name} must name its columns in a first line shorter than {_PEEK >> 20} MiB; got a longer one."
        )
    # the most frequent one outside quotes; a comma if there is none
    delimiter = max(_DELIMITERS, key=re.sub(r'"[^"]*"', "", first).count)
    n_blank = text[: len(text) - len(text.lstrip())].count("\n")
    lines.seek(0)
    header = csv.reader(lines, delimiter=delimiter)
    cells = next(row for row in header if any(cell.strip() for cell in row))
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, 1)]
    _check_names(names, name)
    return TableReader(names, _text_batches(file, names, delimiter, max(header.line_num, n_blank + 1)))


def _text_batches(file: io.BufferedReader, names: list[str], delimiter: str, n_lines: int) -> Iterator[pa.RecordBatch]:
    options = {
        "read_options": arrow_csv.ReadOptions(block_size=_BLOCK, column_names=names, skip_rows=n_lines),
        "parse_options": arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=list(MISSING), strings_can_be_null=True
        ),
    }
    try:
        reader = arrow_csv.open_csv(file, **options)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):  # it has a header and no rows
            return
        raise
    for batch in reader:
        if batch.num_rows:
            yield batch


def _parquet_reader(file: Any) -> TableReader:
    content = parquet.ParquetFile(pa.BufferReader(file.read()) if not _is_plain(file) else file.raw.name)
    names = list(content.schema_arrow.names)
    _check_names(names, "The Parquet file")
    return TableReader(names, content.iter_batches(batch_size=_BATCH))


def _is_plain(file: io.BufferedReader) -> bool:
    """Return whether a stream is a file on disk, so that Parquet can read it in parts."""
    return isinstance(file.raw, io.FileIO) and os.path.isfile(file.raw.name)


def _check_flat(schema: pa.Schema) -> None:
    for field in schema:
        try:
            arrow_csv.CSVWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowInvalid:
            raise TableError(
                f"Column {field.name!r} has cells of type {field.type}, which text cannot hold. Leave it out, or write "
                "to a file that ends in .parquet."
            ) from None


def _check_names(names: list[str], name: str) -> None:
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise TableError(f"{name} has two columns named {twice!r}; rename one of them.")
