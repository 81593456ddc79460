"""Small tables: what is learnt from training rows alone, and the numbers of the summary."""

import csv
import lzma

import numpy as np
import pytest

from gaussify.datasets import DatasetError
from gaussify.experiments import get, load
from gaussify.experiments.benchmarks import _small_tables
from gaussify.experiments.benchmarks._linear_models import AUTO, DEFAULT, MATCHED, TUNED
from gaussify.experiments.benchmarks._small_tables import check_tables, load_table, split_table

ROWS = [[f"{i}" if i % 5 else "", "red" if i % 3 else "NA", f"name{i}", f"{i % 4}"] for i in range(60)]


@pytest.fixture
def womenlf(tmp_path, monkeypatch):
    """A folder whose table "womenlf" has one column of numbers, two of words, and counts to predict."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "index.csv").write_text("name,target,kind\nwomenlf,visits,counts\n")
    with lzma.open(folder / "womenlf.csv.xz", "wt", newline="") as file:
        csv.writer(file).writerows([["age", "colour", "name", "visits"], *ROWS])
    monkeypatch.setenv("GAUSSIFY_DATA", str(tmp_path))
    load_table.cache_clear()
    yield "womenlf"
    load_table.cache_clear()


def test_cells_are_numbers_or_words(womenlf):
    table = load_table(womenlf)
    np.testing.assert_array_equal(table.numbers[:, 0], [i if i % 5 else np.nan for i in range(60)])
    assert table.words[:4].tolist() == [["", "name0"], ["red", "name1"], ["red", "name2"], ["", "name3"]]
    np.testing.assert_array_equal(table.y, np.arange(60) % 4)


def test_large_counts_are_one_class(womenlf, monkeypatch):
    monkeypatch.setattr(_small_tables, "_LARGEST_COUNT", 2)
    np.testing.assert_array_equal(load_table(womenlf).y, np.minimum(np.arange(60) % 4, 2))


def test_numbers_do_not_depend_on_test_rows(womenlf):
    split = split_table(womenlf, 0, max_train=36, max_test=20)
    assert (split.X.shape, split.X_test.shape) == ((36, 1), (20, 1))  # one colour, and every name is rare
    np.testing.assert_allclose([split.X.mean(), split.X.std()], [0.0, 1.0], atol=1e-12)
    table = load_table(womenlf)
    train = np.arange(0, 60, 2)
    before, _ = _small_tables._as_numbers(table, train, train + 1)
    table.numbers[train + 1] *= 100.0
    after, _ = _small_tables._as_numbers(table, train, train + 1)
    np.testing.assert_array_equal(before, after)


def test_splits_have_all_classes_and_share_no_row():
    split, other = (split_table("wine", number, max_train=90, max_test=60) for number in (0, 1))
    assert np.bincount(split.y).min() > 20
    assert not (split.X[:, None] == split.X_test).all(2).any()
    assert split.X.shape == other.X.shape
    assert not np.array_equal(split.X, other.X)


def test_a_missing_table_is_reported_with_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSIFY_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=r"tables/spam\.csv\.xz in the folder that GAUSSIFY_DATA names"):
        check_tables(["iris", "spam"])


def test_every_model_has_a_record_for_every_split(smoke_run):
    records = load(smoke_run("linear-tables"))
    methods = {DEFAULT, TUNED, MATCHED}
    for table, split in (("iris", 0), ("iris", 1), ("wine", 0), ("wine", 1)):
        own = [record for record in records if (record["table"], record["split"]) == (table, split)]
        assert len({record["method"] for record in own}) == len(own)
        assert methods <= {record["method"] for record in own}
        assert len({(r["n_train"], r["n_features"], r["n_classes"]) for r in own}) == 1


def test_the_summary_ranks_tables_and_finds_the_worst_gap():
    nll = {"a": {MATCHED: 0.5, AUTO: 0.4, TUNED: 0.3}, "b": {MATCHED: 0.5, AUTO: 0.53, TUNED: 0.6}}
    common = {"ece": 0.1, "brier": 0.2, "accuracy": 0.8, "seconds": 2.0}
    records = [
        {"table": table, "split": split, "method": method, "nll": value + shift, "refined": None, **common}
        for table, own in nll.items()
        for split, shift in enumerate((-0.1, 0.1))
        for method, value in own.items()
    ]
    for record in records:
        if record["method"] == AUTO:
            record["refined"] = record["table"] == "a"
    rows = {row["method"]: row for row in get("linear-tables").summarise(records)}
    assert {method: row["rank"] for method, row in rows.items()} == {MATCHED: 2.0, AUTO: 2.0, TUNED: 2.0}
    assert {method: row["worst_gap"] for method, row in rows.items()} == {MATCHED: 0.0, AUTO: 0.03, TUNED: 0.1}
    assert rows[AUTO]["nll"] == pytest.approx(0.465)
    assert (rows[AUTO]["refined"], rows[TUNED]["refined"], rows[AUTO]["seconds"]) == (0.5, None, 8.0)
