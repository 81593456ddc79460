"""Tables in files: formats, what is missing, what is not a table, and files that are written whole or not at all."""

import gzip
import io
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

import gaussify.tables._files as files
from gaussify.exceptions import TableError
from gaussify.tables import open_table, read_table, write_rows
from gaussify.tables._columns import clean

ROWS = {"name": ["Ann", "Bob, the second", None], "age": ["31", None, "7.5"]}
CSV = 'name,age\nAnn,31\n"Bob, the second",\nNA, 7.5 \n'


def cells_of(table):
    return {name: clean(table.column(name).combine_chunks()).to_pylist() for name in table.column_names}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        CSV,
        "\ufeff" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\r"),
        "\n\n" + CSV,
        gzip.compress(CSV.encode()),
        "name\tage\nAnn\t31\nBob, the second\t?\n\t7.5\n",
        'name;age\nAnn;31\n"Bob, the second";None\nnull;7.5\n',
        "name|age\nAnn|31\nBob, the second|\n|7.5\n",
    ],
    ids=["csv", "byte order mark", "windows", "old apple", "blank lines", "gzip", "tsv", "semicolons", "bars"],
)
def test_text_in_any_form_is_the_same_table(tmp_path, content):
    assert cells_of(read_table(write(tmp_path / "table", content))) == ROWS


@pytest.mark.parametrize("zipped", [False, True])
def test_parquet_keeps_its_types(tmp_path, zipped):
    table = pa.table({"age": [1, None], "name": ["a", "b"]})
    parquet.write_table(table, tmp_path / "table.parquet")
    path = tmp_path / "table.parquet"
    if zipped:
        path = write(tmp_path / "table.parquet.gz", gzip.compress(path.read_bytes()))
    assert read_table(path).equals(table)


def test_standard_input_is_read(monkeypatch):
    class Stream:
        buffer = io.BytesIO(CSV.encode())

    monkeypatch.setattr(sys, "stdin", Stream)
    assert cells_of(read_table("-")) == ROWS


def test_headers_and_cells_may_hold_line_ends(tmp_path):
    path = write(tmp_path / "table.csv", '"full\nname",age\n"Ann\nB",31\n')
    assert read_table(path).to_pydict() == {"full\nname": ["Ann\nB"], "age": ["31"]}


def test_a_delimiter_within_quotes_is_none(tmp_path):
    assert read_table(write(tmp_path / "table.csv", '"a, b, c";y\n1;2\n')).column_names == ["a, b, c", "y"]


def test_a_folder_is_no_file_to_write_to(tmp_path):
    with pytest.raises(TableError, match="is a folder"), write_rows(tmp_path, BATCH.schema):
        pass


def test_an_ending_that_means_nothing_is_refused(tmp_path):
    with pytest.raises(TableError, match=r"must end in one of .csv"), write_rows(tmp_path / "out.xlsx", BATCH.schema):
        pass


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz", "-"])
def test_cells_that_text_cannot_hold_are_refused(tmp_path, name):
    schema = pa.schema([("p", pa.float64()), ("tags", pa.list_(pa.string()))])
    target = name if name == "-" else tmp_path / name
    with pytest.raises(TableError, match=r"Column 'tags' has .* ends in .parquet"), write_rows(target, schema):
        pass
    assert not list(tmp_path.iterdir())


def test_text_of_parquet_in_another_encoding_is_refused(tmp_path):
    words = pa.array([b"a", "\u00e9".encode("latin-1")]).cast(pa.string(), safe=False)
    parquet.write_table(pa.table({"x": words}), tmp_path / "in.parquet")
    with pytest.raises(TableError, match=r"in.parquet is not a table that can be read .* UTF8"):
        read_table(tmp_path / "in.parquet")


def test_bytes_that_are_no_text_are_refused_by_the_file_to_write(tmp_path):
    def copy():
        parquet.write_table(pa.table({"x": [b"\xff"]}), tmp_path / "in.parquet")
        with open_table(tmp_path / "in.parquet") as reader:
            (batch,) = reader.batches
            with write_rows(tmp_path / "out.csv", batch.schema) as writer:
                writer.write_batch(batch)

    with pytest.raises(TableError, match=r"out.csv cannot be written as text"):
        copy()
    assert not (tmp_path / "out.csv").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match="nowhere") as caught, write_rows(tmp_path / "nowhere" / "out.csv", BATCH.schema):
        pass
    assert caught.value.filename == str(tmp_path / "nowhere" / "out.csv")


def test_columns_without_a_name_get_one(tmp_path):
    assert read_table(write(tmp_path / "table.csv", ",age\n0,31\n")).column_names == ["column 1", "age"]


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    table = read_table(write(tmp_path / "table.csv", "name,age\n"))
    assert (table.column_names, table.num_rows) == (["name", "age"], 0)


def test_rows_come_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_BLOCK", 1000)
    text = "a,b\n" + "".join(f"{i},x\n" for i in range(1000))
    with open_table(write(tmp_path / "table.csv", text)) as reader:
        sizes = [batch.num_rows for batch in reader.batches]
    assert sum(sizes) == 1000
    assert max(sizes) < 400


def damaged_parquet():
    """One whose pages cannot be unpacked."""
    file = io.BytesIO()
    parquet.write_table(pa.table({"x": [f"a text {i % 7}" for i in range(3000)]}), file, use_dictionary=False)
    content = file.getvalue()
    return content[:60] + b"\xff" * 40 + content[100:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "neither Parquet nor text"),
        ("a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        (gzip.compress(CSV.encode() * 100)[:-20], "not a table that can be read"),
        (gzip.compress(CSV.encode())[:10] + b"\xff" * 50, "not a table that can be read"),
        (damaged_parquet(), "table is not a table that can be read .*[^.][.]$"),
        (b"PAR1 and nothing more", "not a table that can be read"),
        ("a,b\n1,\u00e9\n".encode("latin-1"), "not in UTF-8; save it as UTF-8"),
        ("a\tb\n1\t2\n".encode("utf-16"), "text in UTF-16; save it as UTF-8"),
        (b"\n \n", "is empty"),
        ("\n<!DOCTYPE html>\n<p>a, b</p>\n<p>a</p>\n", "is a web page"),
        (",".join(f"gene {i:09}" for i in range(80_000)) + "\n", "first line shorter than 1 MiB"),
    ],
    ids=[
        "empty",
        "picture",
        "ragged",
        "names",
        "truncated gzip",
        "damaged gzip",
        "damaged parquet",
        "truncated parquet",
        "encoding",
        "utf-16",
        "blank",
        "web page",
        "long header",
    ],
)
def test_what_is_not_a_table_is_refused_in_a_sentence(tmp_path, content, message):
    path = write(tmp_path / "table", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


BATCH = pa.record_batch({"label": ["a", "b"], "p": [0.25, 0.5]})


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.csv.gz", "out.tsv.gz", "out"])
def test_what_is_written_is_read_again(tmp_path, name):
    with write_rows(tmp_path / name, BATCH.schema) as writer:
        writer.write_batch(BATCH)
        writer.write_batch(BATCH)
    table = read_table(tmp_path / name)
    assert table.column("label").to_pylist() == ["a", "b", "a", "b"]
    assert [float(cell) for cell in table.column("p").to_pylist()] == [0.25, 0.5] * 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_fails_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "out.csv", "old")

    def interrupted():
        with write_rows(path, BATCH.schema) as writer:
            writer.write_batch(BATCH)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [own.name for own in tmp_path.iterdir()] == ["out.csv"]
