"""What columns hold, and the numbers that their cells become."""

import json
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussify.exceptions import TableError
from gaussify.tables import ColumnKind, learn_column
from gaussify.tables._columns import as_seconds, as_words, clean, unpack_column

MANY = [f"text {i}" for i in range(30)]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "-3e4"], "number"),
        ([1, 2, 4], "number"),
        ([Decimal("1.5"), Decimal("2.5")], "number"),
        (["1", "inf", "2"], "number"),
        (["1,234.50", "12", "-7,000,000"], "number"),
        (["3,14", "-2", "10,5"], "number"),
        ([" 1", "NA", "2 ", ""], "number"),
        (["1.5", *map(str, range(3, 40, 2)), "unknown"], "number"),
        (["yes", "NO", None], "boolean"),
        ([True, False], "boolean"),
        (["2024-01-31", "2024-02-01"], "date"),
        (["2024-01-31 10:00", "2024-02-01 11:30:05.5"], "date"),
        (["2024-01-31T10:00:00Z", "2024-02-01T11:30:00+02:00"], "date"),
        (["31/12/2024", "01/02/2024"], "date"),
        (["12/31/2024", "01/02/2024"], "date"),
        (["31.12.2024 10:15", "01.02.2024 10:16"], "date"),
        (["01/31/20", "02/01/99"], "date"),
        (["31.12.20 10:15", "01.02.21 10:16"], "date"),
        (["20-01-31", "21-02-28"], "category"),
        ([date(2024, 1, 1), date(2024, 1, 2)], "date"),
        ([datetime(2024, 1, 1), None, datetime(2025, 1, 2)], "date"),
        (["red", "blue", "red"], "category"),
        (["1", "2", "x"], "category"),
        (["yes", "no", "perhaps"], "category"),
        ([None, None], "ignored"),
        (["a", "a"], "ignored"),
        ([7, 7, 7], "ignored"),
        (["inf", "-inf", "inf"], "ignored"),
        ([float("inf"), float("nan"), None], "ignored"),
        ([0, 1, 2, 3], "ignored"),
        (["1", "2", "3"], "ignored"),
        ([i for i in range(3, 60) if i % 5], "ignored"),
        ([i for i in range(60) if i % 3 == 0], "number"),
        ([*range(1, 30), 30.5], "number"),
        ([*range(20, 0, -1)], "number"),
        ([*range(5, 30), *range(5)], "number"),
        ([*range(30), None], "number"),
        ([*range(30), 29], "number"),
        (MANY, "ignored"),
        ([[1], [2]], "ignored"),
        (pa.array([b"\xff", b"a"], pa.large_binary()), "ignored"),
    ],
)
def test_what_a_column_holds_is_seen_from_its_cells(cells, kind):
    cells = clean(pa.array(cells))
    column = learn_column("x", cells)
    assert column.kind is ColumnKind(kind)
    features = column.encode(cells)
    assert features.shape == (len(cells), len(column.features()))
    assert np.isfinite(features).all()
    assert unpack_column(json.loads(json.dumps(column.packed()))) == column


def test_dictionaries_and_long_strings_are_words():
    cells = pa.array(["a", "b", "c", "a"])
    expected = learn_column("x", cells)
    for other in map(clean, (cells.dictionary_encode(), cells.cast(pa.large_string()))):
        assert learn_column("x", other) == expected
        np.testing.assert_array_equal(expected.encode(other), expected.encode(cells))


@given(st.lists(st.floats(-1e90, 1e90), min_size=2, max_size=20))
def test_numbers_are_in_units_of_their_spread(numbers):
    column = learn_column("x", pa.array([*numbers, None]))
    if column.kind is not ColumnKind.NUMBER:
        return
    value, missing = column.encode(pa.array([*numbers, None])).T
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(missing, [0.0] * len(numbers) + [1.0])
    if np.ptp(numbers) > 1e-6 * np.abs(numbers).max() > 1e-200:
        assert np.mean(value[:-1]) == pytest.approx(0.0, abs=1e-6)
        assert np.std(value[:-1]) == pytest.approx(1.0, rel=1e-6)


def test_missing_cells_are_at_the_mean_even_if_there_were_none():
    column = learn_column("x", pa.array([1.0, 3.0, 8.0]))
    assert column.features() == ["x"]
    assert column.encode(pa.array([None, 4.0], pa.float64())).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("learnt", [[1.0, 3.0, 8.0], ["yes", "no"], ["2024-01-31", "2024-02-01"], ["a", "b", "c"]])
def test_a_column_without_a_cell_is_missing_however_it_is_stored(learnt):
    column = learn_column("x", pa.array(learnt))
    expected = column.encode(pa.array([None, None], pa.string()))
    np.testing.assert_array_equal(column.encode(clean(pa.nulls(2))), expected)


def test_numbers_are_read_as_they_are_written():
    for cells, expected in ((["1,234.5", "-2,000"], [1234.5, -2000.0]), (["3,25", "-1"], [3.25, -1.0])):
        column = learn_column("x", pa.array(cells))
        plain = learn_column("x", pa.array(expected))
        np.testing.assert_allclose(column.encode(pa.array(cells)), plain.encode(pa.array(expected)))


def test_separators_of_thousands_may_be_left_out():
    column = learn_column("x", pa.array(["1,234.50", "12", "-7,000,000"]))
    np.testing.assert_allclose(column.encode(pa.array(["1234.50"])), column.encode(pa.array(["1,234.50"])))
    assert learn_column("x", pa.array(["1,234.50", "1234.50", "3"])).kind is ColumnKind.NUMBER
    with pytest.raises(TableError, match="got '12,34'"):
        column.encode(pa.array(["12,34"]))


def test_a_few_words_among_numbers_are_missing_cells():
    column = learn_column("x", pa.array([*map(str, range(3, 100, 2)), "unknown"]))
    assert column.words == ("unknown",)
    assert column.features() == ["x", "x missing"]
    assert column.encode(pa.array(["unknown", "51"]))[:, 1].tolist() == [1.0, 0.0]
    assert "unknown count as missing" in column.describe()
    with pytest.raises(TableError, match="got 'other'"):
        column.encode(pa.array(["other"]))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.array([1.0, 2.5, None]), pa.array(["1.0", " 2.50", "NA"])),
        (pa.array([True, False]), pa.array(["True", "FALSE"])),
        (pa.array(["x", "007"]), pa.array(["x ", "007"]).dictionary_encode()),
    ],
)
def test_words_do_not_depend_on_how_cells_are_stored(a, b):
    assert as_words(clean(a)).to_pylist() == as_words(clean(b)).to_pylist()


def test_numbers_that_are_names_are_categories_if_asked():
    column = learn_column("shop", pa.array([3, 1, 2, 3]), is_category=True)
    assert column.features() == ["shop=1", "shop=2", "shop=3"]
    assert column.encode(pa.array([2])).tolist() == [[0.0, 1.0, 0.0]]


def test_rare_levels_are_taken_together_and_new_ones_with_them():
    cells = [f"often {i}" for i in range(9) for _ in range(10)] + ["rare a", "rare b"]
    column = learn_column("x", pa.array(cells))
    assert column.features()[-1] == "x rare"
    assert len(column.features()) == 10
    new = column.encode(pa.array(["rare a", "never seen", "often 3", None]))
    assert new[:, -1].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert new[2, 3] == 1.0
    assert column.n_new(pa.array(["never seen"])) == 0


def test_new_levels_are_counted_where_there_is_no_place_for_them():
    column = learn_column("x", pa.array(["a", "b", "c"]))
    assert column.n_new(pa.array(["a", "z", None, "z"])) == 2
    assert column.encode(pa.array(["z"])).tolist() == [[0.0, 0.0, 0.0]]


def test_of_two_levels_one_feature_is_enough():
    column = learn_column("x", pa.array(["a", "b"]))
    assert column.features() == ["x=b"]
    assert column.encode(pa.array(["a", "b", "z", None])).tolist() == [[0.0], [1.0], [0.5], [0.5]]


def test_dates_know_year_week_and_day():
    column = learn_column("t", pa.array(["2024-01-01 00:00", "2024-06-30 18:00"]))
    assert len(column.features()) == 7
    monday, tuesday, next_monday = column.encode(pa.array(["2024-07-01 06:00", "2024-07-02 06:00", "2024-07-08 06:00"]))
    np.testing.assert_allclose(monday[3:], next_monday[3:], atol=1e-9)  # week and day
    np.testing.assert_allclose(monday[5:], tuesday[5:], atol=1e-9)
    assert not np.allclose(monday[3:5], tuesday[3:5])


def test_years_of_two_digits_are_from_1969_to_2068():
    column = learn_column("t", pa.array(["01/31/20", "12/31/99"]))
    assert column.format == "%m/%d/%y"
    expected = as_seconds(pa.array(["2068-01-31", "1969-01-31"]), None)
    np.testing.assert_array_equal(as_seconds(pa.array(["01/31/68", "01/31/69"]), column.format), expected)


def test_a_format_is_kept_from_training():
    column = learn_column("t", pa.array(["31/12/2024", "01/02/2024"]))
    assert column.format == "%d/%m/%Y"
    expected = as_seconds(pa.array(["2024-02-01"]), None)
    assert column.encode(pa.array(["01/02/2024"]))[0, 0] == pytest.approx((expected[0] - column.mean) / column.scale)


@pytest.mark.parametrize(
    ("learnt", "cells", "message"),
    [
        ([1.0, 3.0], ["5", "old"], "Column 'x' must hold numbers, as it did in training; got 'old'"),
        ([1.0, 3.0], [1e200], "up to 1e.100"),
        ([1.0, 3.0], [True], "must hold numbers"),
        (["yes", "no"], ["yes", "perhaps"], "must hold true or false, as it did in training; got 'perhaps'"),
        (["a", "b", "c"], [["a"]], "Column 'x' must hold words, .*; got cells of type list"),
        (["31/12/2024", "01/02/2024"], ["31/12/2024", "31/12/24"], "must hold a date, .*; got '31/12/24'"),
        (["2024-01-31", "2024-02-01"], ["2024-01-31", "soon"], "must hold a date, as it did in training; got 'soon'"),
    ],
)
def test_cells_of_another_kind_are_refused(learnt, cells, message):
    with pytest.raises(TableError, match=message):
        learn_column("x", pa.array(learnt)).encode(pa.array(cells))
