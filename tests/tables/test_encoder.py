"""From tables of any make to matrices."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from gaussify.exceptions import TableError
from gaussify.tables import TableEncoder

CELLS = {"age": [20.0, None, 40.0, 33.0], "fruit": ["fig", "pear", "plum", "fig"], "paid": [True, False, True, True]}


def test_frames_of_any_make_give_the_same_matrix():
    expected = TableEncoder().fit(CELLS).transform(CELLS)
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        np.testing.assert_array_equal(TableEncoder().fit(make(CELLS)).transform(make(CELLS)), expected)


def test_order_does_not_matter_and_other_columns_are_passed_over():
    encoder = TableEncoder().fit(CELLS)
    other = {"more": [1] * 4, **dict(reversed(CELLS.items()))}
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(CELLS))


def test_it_is_a_step_of_a_pipeline():
    pipeline = make_pipeline(TableEncoder(ignored=["fruit"]), LogisticRegression())
    frame = pd.DataFrame(CELLS)
    assert clone(pipeline).fit(frame, [0, 1, 0, 1]).predict_proba(frame).shape == (4, 2)
    assert len(pipeline.fit(frame, [0, 1, 0, 1])[0].get_feature_names_out()) == 3


def test_what_was_learnt_goes_to_json_and_back():
    encoder = TableEncoder().fit(CELLS)
    again = TableEncoder.unpacked(encoder.packed())
    np.testing.assert_array_equal(again.transform(CELLS), encoder.transform(CELLS))


def test_a_missing_column_is_named_with_the_nearest_there_is():
    encoder = TableEncoder().fit(CELLS)
    with pytest.raises(
        TableError, match=r"no column 'fruit', which the model was trained with\. Did you mean 'Fruits'"
    ):
        encoder.transform({"age": [1.0], "Fruits": ["fig"], "paid": [True]})


@pytest.mark.parametrize("options", [{"categories": ["aeg"]}, {"ignored": ["aeg"]}])
def test_columns_in_options_must_be_there(options):
    with pytest.raises(TableError, match=r"no column 'aeg'\. Did you mean 'age'"):
        TableEncoder(**options).fit(CELLS)


def test_without_a_column_to_learn_from_there_is_an_error_that_says_why():
    with pytest.raises(TableError, match=r"has no column to learn from \('a': all values are the same"):
        TableEncoder().fit({"a": [1, 1]})


@pytest.mark.parametrize("X", [3, [1, 2], np.zeros((2, 2))])
def test_what_is_not_a_table_is_refused(X):
    with pytest.raises(TableError, match="A table must be a frame of pandas or polars"):
        TableEncoder().fit(X)
