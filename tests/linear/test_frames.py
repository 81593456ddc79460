"""pandas and polars frames: their numbers, their names, their labels."""

import numpy as np
import pandas as pd
import pytest

from gaussify import BayesianLogisticRegression

pl = pytest.importorskip("polars")

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}
RNG = np.random.default_rng(0)
COLUMNS = ["width", "height", "depth"]
X = RNG.normal(size=(30, 3))
Y = (X @ RNG.normal(size=(3, 3)) + RNG.gumbel(size=(30, 3))).argmax(1)
NAMES = np.array(["ash", "fir", "oak"])[Y]
FRAMES = {
    "pandas": lambda X, columns: pd.DataFrame(X, columns=columns),
    "polars": lambda X, columns: pl.DataFrame(X, schema=columns),
}
frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


def new() -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**FIXED)


@frames
@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_frame_gives_the_model_of_its_numbers_and_keeps_its_names(frame, learn):
    model = getattr(new(), learn)(frame(X, COLUMNS), Y)
    assert model.feature_names_in_.tolist() == COLUMNS
    expected = new().fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(frame(X, COLUMNS)), expected.predict_proba(X))
    np.testing.assert_array_equal(model.predict_latent(frame(X, COLUMNS)), expected.predict_latent(X))


@pytest.mark.parametrize("labels", [pd.Series, pl.Series, list], ids=["pandas", "polars", "list"])
@pytest.mark.parametrize("y", [Y, NAMES], ids=["numbers", "strings"])
def test_labels_may_be_a_series(labels, y):
    model = new().fit(X, labels(y.tolist()))
    assert model.predict(X).tolist() == new().fit(X, y).predict(X).tolist()
    assert model.partial_fit(X[:3], labels(y[:3].tolist())).n_rows_seen_ == 33


def test_labels_may_be_a_category():
    model = new().fit(X, pd.Series(NAMES, dtype="category"))
    assert model.classes_.tolist() == ["ash", "fir", "oak"]


@pytest.mark.parametrize("series", [pd.Series, pl.Series], ids=["pandas", "polars"])
def test_weights_may_be_a_series(series):
    weight = np.linspace(0.1, 2.0, 30)
    model = new().fit(X, Y, sample_weight=series(weight))
    np.testing.assert_array_equal(model.predict_proba(X), new().fit(X, Y, weight).predict_proba(X))


@frames
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["width", "depth", "height"], "same order"),
        (["width", "height", "length"], "unseen at fit time(?s:.)*length(?s:.)*missing(?s:.)*depth"),
    ],
    ids=["reordered", "renamed"],
)
@pytest.mark.parametrize("use", ["partial_fit", "predict", "unlearn"])
def test_columns_of_other_names_are_refused_and_change_nothing(frame, columns, message, use):
    model = new().fit(frame(X, COLUMNS), Y)
    before = model.predict_proba(frame(X, COLUMNS))
    other = frame(X, columns)
    with pytest.raises(ValueError, match=f"feature names should match(?s:.)*{message}"):
        model.predict(other) if use == "predict" else getattr(model, use)(other, Y)
    np.testing.assert_array_equal(model.predict_proba(frame(X, COLUMNS)), before)
    assert model.n_rows_seen_ == 30


def test_names_learnt_from_one_kind_of_frame_are_checked_in_another():
    model = new().fit(FRAMES["pandas"](X, COLUMNS), Y)
    model.predict(FRAMES["polars"](X, COLUMNS))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAMES["polars"](X, COLUMNS[::-1]))


@frames
def test_an_array_given_to_a_model_of_named_columns_is_announced(frame):
    model = new().fit(frame(X, COLUMNS), Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        probs = model.predict_proba(X)
    np.testing.assert_array_equal(probs, model.predict_proba(frame(X, COLUMNS)))


@frames
def test_a_frame_given_to_a_model_without_names_is_announced(frame):
    with pytest.warns(UserWarning, match="X has feature names"):
        new().fit(X, Y).predict(frame(X, COLUMNS))


@frames
def test_models_of_other_names_are_not_merged(frame):
    model, same, other = (new().fit(frame(X, names), Y) for names in (COLUMNS, COLUMNS, COLUMNS[::-1]))
    model.merge(same)
    with pytest.raises(ValueError, match="must have the same names of features"):
        model.merge(other)


@frames
def test_fitting_again_forgets_the_names(frame):
    model = new().fit(frame(X, COLUMNS), Y).fit(X, Y)
    assert not hasattr(model, "feature_names_in_")
    model.predict(X)


@frames
@pytest.mark.parametrize("bad", [None, "text"], ids=["missing", "text"])
def test_frames_with_missing_numbers_or_text_are_refused_and_change_nothing(frame, bad):
    model = new().fit(frame(X, COLUMNS), Y)
    before = model.predict_proba(frame(X, COLUMNS))
    columns = {name: X[:4, i].tolist() for i, name in enumerate(COLUMNS)}
    columns["height"] = [0.1, bad, 0.2, 0.3] if bad is None else [bad] * 4
    with pytest.raises(ValueError, match=r"contains NaN|could not convert string to float"):
        model.partial_fit((pd if frame is FRAMES["pandas"] else pl).DataFrame(columns), Y[:4])
    np.testing.assert_array_equal(model.predict_proba(frame(X, COLUMNS)), before)
