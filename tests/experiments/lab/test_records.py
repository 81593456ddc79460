import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussify.exceptions import InvalidArgumentError
from gaussify.experiments import read_records, write_records
from gaussify.experiments._lab._records import format_value, parse_value
from gaussify.experiments._lab._summaries import best_alpha_eps


def _restorable(text):
    return parse_value(text) == text and not set(text) & {"\n", "\r"}


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text().filter(_restorable))
records = st.lists(st.dictionaries(st.sampled_from(["a", "b, c", 'd"']), values, min_size=1), min_size=1)


def _same(left, right):
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return both_nan or (left == right and type(left) is type(right))


@given(written=records)
def test_csv_restores_values_and_types(written, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "records.csv"
    write_records(path, written)
    read = read_records(path)
    assert len(read) == len(written)
    for before, after in zip(written, read, strict=True):
        assert all(_same(before.get(name), value) for name, value in after.items())
        assert before.keys() <= after.keys()


@pytest.mark.parametrize("text", ["7", "-1e5", "nan", "True", "", "two\nlines", "two\rlines"])
def test_text_that_would_not_come_back_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="Column 'dataset' cannot hold the text"):
        format_value(text, column="dataset")


def test_other_types_are_refused():
    with pytest.raises(InvalidArgumentError, match="Column 'x' takes a bool, int, float, str or None; got list"):
        format_value([1], column="x")


def test_numpy_scalars_become_python_numbers(tmp_path):
    write_records(tmp_path / "r.csv", [{"i": np.int64(3), "f": np.float64(0.1), "b": np.bool_(True)}])
    assert read_records(tmp_path / "r.csv") == [{"i": 3, "f": 0.1, "b": True}]


def test_half_a_line_at_the_end_is_not_read(tmp_path):
    path = tmp_path / "r.csv"
    write_records(path, [{"split": 1, "nll": 0.25}, {"split": 2, "nll": 0.125}])
    path.write_bytes(path.read_bytes()[:-3])
    assert read_records(path) == [{"split": 1, "nll": 0.25}]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "r.csv"
    write_records(path, [{"old": 1}])
    with pytest.raises(UnicodeEncodeError):
        write_records(path, [{"new": "\ud800"}])
    assert [file.name for file in tmp_path.iterdir()] == ["r.csv"]
    assert read_records(path) == [{"old": 1}]


def test_a_line_with_too_few_fields_names_the_file_and_the_remedy(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(InvalidArgumentError, match=r"results.csv is damaged: line 3 .*--fresh"):
        read_records(path)


def test_an_alpha_eps_without_a_score_is_never_the_best():
    scores = {0.1: math.nan, 0.2: -2.0, 0.3: -1.0, 0.4: math.nan}
    some = [{"method": "laplace", "alpha_eps": alpha_eps, "fit": fit} for alpha_eps, fit in scores.items()]
    assert [record["alpha_eps"] for record in best_alpha_eps(some, "method", score="fit")] == [0.3]
