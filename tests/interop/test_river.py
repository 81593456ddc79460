import datetime
import importlib
import math
import pickle
import random
import re
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gaussify import BayesianLogisticRegression
from gaussify.exceptions import InvalidArgumentError, MissingDependencyError

pd = pytest.importorskip("pandas")
pytest.importorskip("river")

from river import checks, datasets, dummy, ensemble, evaluate, metrics, preprocessing  # noqa: E402

from gaussify.interop.river import RiverClassifier  # noqa: E402

NAMES = ["d", "a", "c", "b"]


def fixed(**params) -> BayesianLogisticRegression:
    """One whose hyperparameters do not depend on the data."""
    return BayesianLogisticRegression(**{"alpha_eps": 0.1, "temperature": 1.5, "prior_variance": 2.0, **params})


def rows_and_labels(n=60, labels=("b", "a", "c"), seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, len(NAMES)))
    place = np.argmax(X @ generator.normal(size=(len(NAMES), len(labels))), axis=1)
    return X, [labels[i] for i in place]


def as_dicts(X, names=NAMES):
    return [dict(zip(names, row, strict=True)) for row in X.tolist()]


def learnt(X, y, estimator=None, names=NAMES) -> RiverClassifier:
    model = RiverClassifier(fixed() if estimator is None else estimator)
    for x, label in zip(as_dicts(X, names), y, strict=True):
        model.learn_one(x, label)
    return model


def probs_of(model, rows):
    """Probabilities (n, n_classes), the classes sorted as text."""
    order = sorted(model.classes_, key=str)
    return np.array([[p[label] for label in order] for p in map(model.predict_proba_one, rows)])


def state(model) -> str:
    """All that was learnt and what follows from it, to the last digit."""
    estimator = model.estimator_
    numbers = [part.tolist() for part in vars(estimator.statistics_).values()]
    probs = probs_of(model, [{}, {"a": 1.0, "c": -2.0}]).tolist()
    return repr((numbers, probs, estimator.n_rows_seen_, estimator.n_features_in_, model.classes_, model.features_))


# ---------------------------------------------------------------------------------------------------------------------
# river's own checks


def rivers_checks(estimator, *marks):
    seen = Counter()
    for check in checks.yield_checks(RiverClassifier(estimator)):
        seen[check.__name__] += 1
        name = f"{'auto' if estimator is None else 'fixed'}-{check.__name__}-{seen[check.__name__]}"
        yield pytest.param(estimator, check, id=name, marks=marks)


@pytest.mark.parametrize(
    ("estimator", "check"), [*rivers_checks(fixed()), *rivers_checks(None, pytest.mark.slow)]
)  # a dataset of a check is used once
def test_check_of_river_passes(estimator, check):
    random.seed(0)
    check(RiverClassifier(estimator))


def test_no_check_of_river_is_skipped():
    assert RiverClassifier()._unit_test_skips() == set()


# ---------------------------------------------------------------------------------------------------------------------
# The same model as that of the matrix


@pytest.mark.parametrize("labels", [("b", "a", "c"), (True, False), (7, 3)], ids=["str", "bool", "int"])
@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_learn_one_and_learn_many_match_fit(labels, forgetting):
    X, y = rows_and_labels(labels=labels)
    one = learnt(X, y, fixed(forgetting=forgetting))
    many = RiverClassifier(fixed(forgetting=forgetting))
    frame, series = pd.DataFrame(X, columns=NAMES), pd.Series(y)
    for part in (slice(25), slice(25, 26), slice(26, None)):
        many.learn_many(frame[part], series[part])
    expected = fixed(forgetting=forgetting).fit(X, np.array(y)).predict_proba(X)
    assert_allclose(probs_of(one, as_dicts(X)), expected, rtol=0, atol=1e-9)
    assert_allclose(probs_of(many, as_dicts(X)), expected, rtol=0, atol=1e-9)
    order = [many.classes_.index(label) for label in sorted(labels)]
    assert_allclose(many.predict_proba_many(frame).to_numpy()[:, order], expected, rtol=0, atol=1e-9)


def test_the_comparison_with_fit_can_fail():
    X, y = rows_and_labels()
    expected = fixed(prior_variance=2.001).fit(X, np.array(y)).predict_proba(X)
    assert np.abs(probs_of(learnt(X, y), as_dicts(X)) - expected).max() > 1e-6


sparse_rows = st.dictionaries(st.sampled_from("abcdef"), st.integers(-3, 3).map(float), max_size=4)


@given(st.lists(st.tuples(sparse_rows, st.sampled_from("xyz"), st.booleans()), min_size=1, max_size=15))
def test_any_stream_of_sparse_rows_matches_the_matrix_with_zeros(stream):
    model, rows, y = RiverClassifier(fixed(reservoir_size=0)), [], []
    for x, label, at_once in stream:
        if at_once:
            model.learn_many(pd.DataFrame([x, x]), pd.Series([label, label]))
        else:
            model.learn_one(x, label)
        rows, y = rows + [x] * (1 + at_once), y + [label] * (1 + at_once)
    names = model.features_ or ["none"]
    X = np.array([[x.get(name, 0.0) for name in names] for x in rows])
    assert set(model.features_) == {name for x in rows for name in x}
    matrix = fixed(reservoir_size=0).partial_fit(X, np.array(y))
    assert_allclose(probs_of(model, rows), matrix.predict_proba(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("estimator", [fixed(), BayesianLogisticRegression()], ids=["fixed", "auto"])
def test_a_feature_that_emerges_was_zero_before(estimator):
    X, y = rows_and_labels(n=80)
    X[:50, 2:] = 0.0
    late, early = RiverClassifier(estimator), RiverClassifier(estimator)
    for i, (x, label) in enumerate(zip(as_dicts(X), y, strict=True)):
        late.learn_one(x if i >= 50 else {name: x[name] for name in NAMES[:2]}, label)
        early.learn_one({name: x[name] for name in sorted(NAMES, key=["a", "d", "b", "c"].index)}, label)
        if i == 40:
            late.predict_proba_one(x)
    late.estimator_.tune()
    early.estimator_.tune()
    assert late.features_ == ["a", "d", "b", "c"]
    assert_allclose(probs_of(late, as_dicts(X)), probs_of(early, as_dicts(X)), rtol=0, atol=1e-7)


def test_absent_features_are_zero():
    model = learnt(*rows_and_labels())
    full = {"a": 0.3, "b": 0.0, "c": 0.0, "d": 0.0}
    assert model.predict_proba_one({"a": 0.3}) == model.predict_proba_one(full)


def test_features_that_were_never_learnt_are_ignored():
    model = learnt(*rows_and_labels())
    before = state(model)
    x = {"b": 0.4, "a": 0.3}
    assert model.predict_proba_one({"new": 9.0, **x}) == model.predict_proba_one(x)
    frame = pd.DataFrame([{"new": 9.0, **x}])
    assert_allclose(model.predict_proba_many(frame), model.predict_proba_many(frame[["a", "b"]]), rtol=0, atol=0)
    assert state(model) == before
    model.learn_one({"new": 9.0, **x}, "a")  # the row looks like the last one, but now the feature has a column
    assert model.predict_proba_one({"new": 9.0, **x}) != model.predict_proba_one(x)


def test_order_of_keys_does_not_matter_at_all():
    X, y = rows_and_labels(n=100)
    generator = random.Random(0)
    straight, shuffled = (RiverClassifier(BayesianLogisticRegression(reservoir_size=20)) for _ in range(2))
    for x, label in zip(as_dicts(X), y, strict=True):
        straight.learn_one(x, label)
        shuffled.learn_one(dict(generator.sample(list(x.items()), len(x))), label)
    assert straight.features_ == shuffled.features_ == sorted(NAMES)
    assert_array_equal(probs_of(straight, as_dicts(X)), probs_of(shuffled, as_dicts(X)))


def test_rows_without_any_feature_are_learnt():
    model = RiverClassifier(fixed())
    for label in [True, False, True, True]:
        model.learn_one({}, label)
    assert model.features_ == []
    assert model.predict_proba_one({})[True] > 0.5
    model.learn_one({"a": 1.0}, False)
    matrix = fixed().fit([[0.0], [0.0], [0.0], [0.0], [1.0]], [1, 0, 1, 1, 0])
    assert_allclose(probs_of(model, [{}, {"a": 1.0}]), matrix.predict_proba([[0.0], [1.0]]), rtol=0, atol=1e-9)


def test_names_of_features_can_be_of_any_kind():
    model = RiverClassifier(fixed())
    model.learn_one({"a": 1.0, 3: 2.0, ("a", 1): 0.5, None: 1.0}, True)
    model.learn_one({3: -1.0}, False)
    assert set(model.features_) == {"a", 3, ("a", 1), None}


# ---------------------------------------------------------------------------------------------------------------------
# Labels


@pytest.mark.parametrize(
    "given",
    [
        (True, False),
        (5, -2, 2**70),
        ("z", "a", "a\0"),
        ((1, 2), (3, 4)),
        (1, "one", None.__class__),
        (0.5, 1.5),
        (datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)),
    ],
    ids=["bool", "int", "str", "tuple", "mixed", "float", "date"],
)
def test_labels_come_back_as_they_were_given(given):
    X = np.eye(len(given), len(NAMES))
    model = learnt(np.tile(X, (5, 1)), list(given) * 5)
    frame = pd.DataFrame(X, columns=NAMES)
    for back in (
        list(model.predict_proba_one({})),
        [model.predict_one(x) for x in as_dicts(X)],
        model.predict_many(frame).tolist(),
        list(model.predict_proba_many(frame).columns),
    ):
        assert back == list(given)
        assert [type(label) for label in back] == [type(label) for label in given]


@pytest.mark.parametrize("given", [np.array([True, False]), np.array([3, 1]), np.array(["b", "a"])], ids=str)
def test_labels_of_numpy_come_back_as_pythons(given):
    one, many = learnt(np.eye(2, 4), list(given)), RiverClassifier(fixed())
    many.learn_many(pd.DataFrame(np.eye(2)), pd.Series(given))
    assert one.classes_ == many.classes_ == given.tolist()
    kinds = [type(label) for label in given.tolist()]
    assert [type(label) for label in one.predict_proba_one({})] == kinds
    assert [type(label) for label in many.classes_] == kinds


def test_before_anything_is_learnt_there_are_no_probabilities():
    model, frame = RiverClassifier(), pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 7])
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_many(frame).shape == (2, 0)
    assert model.predict_many(frame).tolist() == [None, None]


def test_the_only_class_so_far_is_certain():
    model = RiverClassifier()
    model.learn_one({"a": 1.0}, "x")
    assert model.predict_proba_one({"a": 2.0}) == {"x": 1.0}


def test_predictions_of_frames_keep_their_index():
    X, y = rows_and_labels()
    model, frame = learnt(X, y), pd.DataFrame(X, columns=NAMES, index=[f"row {i}" for i in range(len(X))])
    assert list(model.predict_proba_many(frame).index) == list(model.predict_many(frame).index) == list(frame.index)
    assert model.predict_many(frame).tolist() == [model.predict_one(x) for x in as_dicts(X)]
    assert model.predict_proba_many(frame[:0]).shape == (0, 3)
    assert model.predict_many(frame[:0]).tolist() == []


# ---------------------------------------------------------------------------------------------------------------------
# Weights


def test_weight_two_is_the_row_twice():
    X, y = rows_and_labels()
    twice, weighted, frame = (RiverClassifier(fixed()) for _ in range(3))
    for x, label in zip(as_dicts(X), y, strict=True):
        twice.learn_one(x, label)
        twice.learn_one(x, label)
        weighted.learn_one(x, label, w=2.0)
    frame.learn_many(pd.DataFrame(X, columns=NAMES), pd.Series(y), pd.Series([2.0] * len(y)))
    assert_allclose(probs_of(weighted, as_dicts(X)), probs_of(twice, as_dicts(X)), rtol=0, atol=1e-9)
    assert_allclose(probs_of(frame, as_dicts(X)), probs_of(twice, as_dicts(X)), rtol=0, atol=1e-9)


def test_rows_of_weight_zero_are_passed_over():
    X, y = rows_and_labels()
    model, frame = learnt(X, y), RiverClassifier(fixed())
    before = state(model)
    model.learn_one({"new": 1.0}, "another", w=0.0)
    model.learn_many(pd.DataFrame({"new": [1.0]}), pd.Series(["another"]), w=0.0)
    assert state(model) == before
    frame.learn_many(
        pd.DataFrame([{name: 9.0 for name in NAMES}, *as_dicts(X)]), pd.Series(["other", *y]), [0.0] + [1.0] * len(X)
    )
    assert_allclose(probs_of(frame, as_dicts(X)), probs_of(model, as_dicts(X)), rtol=0, atol=1e-9)


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize("w", [-1.0, math.nan, math.inf, "heavy", [1.0, 2.0]], ids=repr)
def test_wrong_weights_are_refused_and_nothing_changes(w):
    model = learnt(*rows_and_labels())
    before = state(model)
    with pytest.raises(ValueError, match=r"(?i)weight|could not convert|shape"):
        model.learn_one({"new": 1.0}, "another", w)
    assert state(model) == before


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be learnt


@pytest.fixture
def _no_type_checks(monkeypatch):
    """As for users: the tests' check of annotations would refuse an argument before gaussify does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    "value",
    ["1.5", None, math.nan, -math.inf, 10**400, [1.0], 1j, pd.NA, pd.Timestamp(0), np.float32("nan"), b"1"],
    ids=lambda value: repr(value)[:20],
)
def test_features_that_are_not_numbers_are_refused_and_nothing_changes(value):
    model = learnt(*rows_and_labels())
    before = state(model)
    x = {"a": 1.0, "odd": value, "new": 2.0}
    frame = pd.DataFrame({name: pd.Series([1.0, v], dtype=object) for name, v in x.items()})
    message = "The feature 'odd' of RiverClassifier must be a finite number; got .*encode"
    with pytest.raises(InvalidArgumentError, match=message):
        model.learn_one(x, "another")
    with pytest.raises(InvalidArgumentError, match=message):
        model.predict_proba_one(x)
    with pytest.raises(InvalidArgumentError, match=message):
        model.learn_many(frame, pd.Series(["a", "another"]))
    with pytest.raises(InvalidArgumentError, match=message):
        model.predict_many(frame)
    assert state(model) == before


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1.0, np.nan]),
        pd.Series(["u", "v"]),
        pd.Series(["u", "v"], dtype="category"),
        pd.Series([0, 1], dtype="datetime64[ns]"),
        pd.Series([0, 1], dtype="timedelta64[ns]"),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1j, 2.0]),
    ],
    ids=lambda column: str(column.dtype),
)
@pytest.mark.parametrize("alone", [True, False])
def test_columns_that_are_not_numbers_are_refused(column, alone):
    frame = pd.DataFrame({"odd": column} if alone else {"a": [1.0, 2.0], "odd": column})
    with pytest.raises(InvalidArgumentError, match="The feature 'odd' of RiverClassifier"):
        RiverClassifier().learn_many(frame, pd.Series([True, False]))


@pytest.mark.parametrize(
    "value",
    [True, 2, np.bool_(True), np.int8(3), np.float32(0.5), np.float16(0.5), Decimal("0.25"), Fraction(1, 4), 1e100],
    ids=repr,
)
def test_numbers_of_any_kind_are_learnt(value):
    one, many, plain = (RiverClassifier(fixed()) for _ in range(3))
    for model, number in ((one, value), (plain, float(value))):
        model.learn_one({"a": number, "b": 1.0}, True)
        model.learn_one({"b": 2.0}, False)
    many.learn_many(pd.DataFrame({"a": [value, 0], "b": [1.0, 2.0]}), pd.Series([True, False]))
    assert one.predict_proba_one({"b": 1}) == plain.predict_proba_one({"b": 1.0})
    assert many.predict_proba_one({"b": 1})[True] == pytest.approx(plain.predict_proba_one({"b": 1})[True], abs=1e-9)


def test_frames_of_several_kinds_of_numbers_are_learnt():
    frame = pd.DataFrame({"a": [True, False], "b": [1, 2], "c": [0.5, 1.5], "d": pd.Series([1, 2], dtype="Int64")})
    one, many = RiverClassifier(fixed()), RiverClassifier(fixed())
    many.learn_many(frame, pd.Series([True, False]))
    for x, label in zip(frame.to_dict("records"), [True, False], strict=True):
        one.learn_one(x, label)
    assert many.predict_proba_one({"a": 1})[True] == pytest.approx(one.predict_proba_one({"a": 1})[True], abs=1e-9)


@pytest.mark.parametrize("label", [None, math.nan, np.float64("nan"), pd.NA, pd.NaT, ["a"], ("a", ["b"])], ids=repr)
def test_labels_that_are_missing_or_not_hashable_are_refused_and_nothing_changes(label):
    model = learnt(*rows_and_labels())
    before = state(model)
    with pytest.raises(InvalidArgumentError, match="'y' of RiverClassifier must"):
        model.learn_one({"new": 1.0}, label)
    with pytest.raises(InvalidArgumentError, match="'y' of RiverClassifier must"):
        model.learn_many(pd.DataFrame({"new": [1.0, 2.0]}), pd.Series(["a", label], dtype=object))
    assert state(model) == before


def test_nothing_changes_when_the_estimator_refuses():
    X, y = rows_and_labels(labels=("b", "a"))
    model = learnt(X, y, fixed(likelihood="logistic"))
    before = state(model)
    with pytest.raises(InvalidArgumentError, match="two classes"):
        model.learn_one({"new": 1.0}, "third")
    assert state(model) == before
    model.learn_one({"new": 1.0}, "a")
    assert model.features_ == [*sorted(NAMES), "new"]


def test_nothing_changes_when_the_estimator_cannot_widen():
    model = RiverClassifier(fixed(prior_variance=[1.0, 2.0]))
    model.learn_one({"a": 1.0, "b": 1.0}, True)
    before = state(model)
    with pytest.raises(InvalidArgumentError, match="one prior variance for all"):
        model.learn_one({"c": 1.0}, False)
    assert state(model) == before


def test_frames_must_have_distinct_columns_and_as_many_labels_as_rows():
    with pytest.raises(InvalidArgumentError, match="distinct columns"):
        RiverClassifier().learn_many(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), pd.Series([True]))
    with pytest.raises(InvalidArgumentError, match="the same length; got 1 and 2"):
        RiverClassifier().learn_many(pd.DataFrame({"a": [1.0]}), pd.Series([True, False]))


def test_no_rows_teach_nothing():
    model = RiverClassifier()
    model.learn_many(pd.DataFrame({"a": []}), pd.Series([], dtype=bool))
    assert model.features_ == model.classes_ == []


@pytest.mark.usefixtures("_no_type_checks")
def test_another_estimator_is_refused():
    with pytest.raises(InvalidArgumentError, match="must be a BayesianLogisticRegression; got 'variational'"):
        RiverClassifier("variational")


# ---------------------------------------------------------------------------------------------------------------------
# A citizen of river


@pytest.mark.parametrize("estimator", [fixed(), pytest.param(None, marks=pytest.mark.slow)], ids=["fixed", "auto"])
def test_progressive_validation_beats_the_frequencies_of_the_classes(estimator):
    def log_loss(model):
        return evaluate.progressive_val_score(datasets.Phishing().take(400), model, metrics.LogLoss()).get()

    naive = log_loss(dummy.PriorClassifier())
    assert log_loss(preprocessing.StandardScaler() | RiverClassifier(estimator)) < 0.7 * naive


def test_progressive_validation_of_many_classes_beats_the_frequencies():
    def cross_entropy(model):
        return evaluate.progressive_val_score(datasets.ImageSegments().take(300), model, metrics.CrossEntropy()).get()

    naive = cross_entropy(dummy.PriorClassifier())
    assert cross_entropy(preprocessing.StandardScaler() | RiverClassifier(fixed())) < 0.5 * naive


def test_it_can_be_part_of_an_ensemble_and_of_batches_in_a_pipeline():
    bag = ensemble.BaggingClassifier(RiverClassifier(fixed()), n_models=3, seed=0)
    pipeline = preprocessing.StandardScaler() | RiverClassifier(fixed())
    X, y = rows_and_labels(labels=(True, False))
    for x, label in zip(as_dicts(X), y, strict=True):
        bag.learn_one(x, label)
    assert np.mean([bag.predict_one(x) == label for x, label in zip(as_dicts(X), y, strict=True)]) > 0.8
    frame = pd.DataFrame(X, columns=NAMES)
    pipeline.learn_many(frame, pd.Series(y))
    assert (pipeline.predict_many(frame) == pd.Series(y)).mean() > 0.8


def test_a_clone_starts_afresh_and_the_estimator_stays_as_it_was():
    estimator = fixed(forgetting=0.9)
    model = learnt(*rows_and_labels(), estimator)
    assert not hasattr(estimator, "classes_")
    twin = model.clone()
    assert twin.predict_proba_one({"a": 1.0}) == {}
    assert twin.estimator_.forgetting == 0.9


def test_a_pickle_goes_on_as_the_model_does():
    X, y = rows_and_labels()
    model = learnt(X[:30], y[:30])
    twin = pickle.loads(pickle.dumps(model))
    for x, label in zip(as_dicts(X[30:]), y[30:], strict=True):
        model.learn_one({**x, "new": 1.0}, label)
        twin.learn_one({**x, "new": 1.0}, label)
    assert_array_equal(probs_of(model, as_dicts(X)), probs_of(twin, as_dicts(X)))


def test_memory_includes_the_statistics():
    model = learnt(np.eye(40), [True, False] * 20, names=[f"x{j}" for j in range(40)])
    assert model._raw_memory_usage > 2 * 41 * 41 * 8


def test_without_river_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "gaussify.interop.river")
    message = re.escape('gaussify.interop.river needs river: pip install "gaussify[river]".')
    with pytest.raises(MissingDependencyError, match=message):
        importlib.import_module("gaussify.interop.river")
