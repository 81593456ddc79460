"""Bad input is refused with a clear error and leaves the model exactly as it was."""

import re

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression
from gaussify.exceptions import GaussifyError, InvalidArgumentError

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = (X @ RNG.normal(size=(3, 3)) + RNG.gumbel(size=(30, 3))).argmax(1)
NAMES = np.array(["ash", "fir", "oak"])
NEW = RNG.normal(size=(4, 3))  # rows of which one entry is spoilt


def new(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{**FIXED, **params})


def spoilt(value: float, place=(2, 1)) -> np.ndarray:
    rows = NEW.copy()
    rows[place] = value
    return rows


def state(model: BayesianLogisticRegression, path) -> tuple:
    """All that can be seen of a model: probabilities, and the bytes of its file."""
    model.save(path)
    return model.predict_proba(X).tobytes(), path.read_bytes(), model.classes_.tobytes(), str(model.get_params())


def assert_refused(model, call, message: str, path, error: type[Exception] = ValueError) -> None:
    before = state(model, path)
    with pytest.raises(error, match=message):
        call(model)
    assert state(model, path) == before


LABELS = [0, 1, 2, 0]
ROWS = {
    "nan": (spoilt(np.nan), LABELS, "Input X contains NaN"),
    "inf": (spoilt(np.inf), LABELS, "Input X contains infinity"),
    "minus-inf": (spoilt(-np.inf), LABELS, "Input X contains infinity"),
    "nan-in-float32": (spoilt(np.nan).astype(np.float32), LABELS, "Input X contains NaN"),
    "nan-in-list": (spoilt(np.nan).tolist(), LABELS, "Input X contains NaN"),
    "too-wide": (np.ones((4, 5)), LABELS, "X has 5 features, but BayesianLogisticRegression is expecting 3"),
    "too-narrow": (np.ones((4, 2)), LABELS, "X has 2 features"),
    "one-row-flat": (NEW[0], LABELS[:1], "Expected 2D array, got 1D array"),
    "three-dimensions": (np.ones((4, 3, 1)), LABELS, "dim <= 2 is required|expected <= 2"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0]], LABELS[:2], "inhomogeneous|sequence"),
    "text": (np.full((4, 3), "a"), LABELS, "must be numbers; got an array of <U1"),
    "dates": (np.full((4, 3), np.datetime64("2020-01-01")), LABELS, "must be numbers; got an array of datetime64"),
    "objects": (np.full((4, 3), "a", dtype=object), LABELS, "could not convert string to float"),
    "complex": (NEW + 1j, LABELS, "Complex data not supported"),
    "no-rows": (np.zeros((0, 3)), [], r"0 sample"),
    "fewer-labels": (NEW, LABELS[:3], "inconsistent numbers of samples"),
    "more-labels": (NEW, [*LABELS, 0], "inconsistent numbers of samples"),
    "fewer-labels-array": (NEW, np.array(LABELS[:3]), "inconsistent numbers of samples"),
    "no-labels": (NEW, None, "requires y to be passed, but the target y is None"),
    "continuous-labels": (NEW, [0.5, 1.5, 2.0, 0.0], "Unknown label type: continuous"),
    "nan-labels": (NEW, [0.0, np.nan, 1.0, 2.0], "Input y contains NaN"),
    "text-labels": (NEW, NAMES[LABELS], "must stay of one type: labels so far are like .*0.*; got .*ash"),
    "mixed-labels": (NEW, np.array([0, "oak", 1, 2], dtype=object), "must be all strings or all numbers"),
    "mixed-labels-list": (NEW, [0, "oak", 1, 2], "must be all strings or all numbers|must stay of one type"),
    "missing-labels": (NEW, np.array([0, None, 1, 2], dtype=object), "must be all strings or all numbers|contains NaN"),
    "two-columns-of-labels": (NEW, np.ones((4, 2), dtype=int), "y should be a 1d array"),
}


NEW_TO_A_FIT = {"too-wide", "too-narrow", "text-labels", "mixed-labels-list"}  # which may differ from the one before


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (use, name)
        for use in ("partial_fit", "unlearn", "fit")
        for name in ROWS
        if use != "fit" or name not in NEW_TO_A_FIT
    ],
)
def test_bad_rows_are_refused_and_change_nothing(use, name, tmp_path):
    rows, labels, message = ROWS[name]
    assert_refused(new().fit(X, Y), lambda m: getattr(m, use)(rows, labels), message, tmp_path / "model")


@pytest.mark.parametrize("use", ["predict", "predict_proba", "predict_latent"])
@pytest.mark.parametrize("name", ["nan", "inf", "too-wide", "too-narrow", "one-row-flat", "text", "no-rows", "complex"])
def test_bad_rows_are_not_predicted(name, use, tmp_path):
    rows, _, message = ROWS[name]
    assert_refused(new().fit(X, Y), lambda m: getattr(m, use)(rows), message, tmp_path / "model")


def test_numbers_are_refused_as_labels_of_a_model_of_strings(tmp_path):
    model = new().fit(X, NAMES[Y])
    assert_refused(model, lambda m: m.partial_fit(NEW, LABELS), "must stay of one type.*ash.*; got .*0", tmp_path / "m")


@pytest.mark.filterwarnings("ignore:invalid value encountered in reduce")  # by scikit-learn, which sums them first
@pytest.mark.parametrize("learn", ["partial_fit", "predict_proba"])
def test_infinities_of_both_signs_are_refused(learn, tmp_path):
    rows = spoilt(np.inf)
    rows[0, 0] = -np.inf
    arguments = (rows, np.array(LABELS)) if learn == "partial_fit" else (rows,)
    assert_refused(new().fit(X, Y), lambda m: getattr(m, learn)(*arguments), "contains infinity", tmp_path / "model")


def test_large_rows_are_predicted_without_a_warning():
    model = new().fit(X, Y)
    assert np.isfinite(model.predict_proba(np.full((2, 3), 1e100))).all()


@pytest.mark.parametrize("prior_variance", [2.0, "auto"], ids=["fixed", "auto"])
def test_rows_whose_squares_overflow_are_refused_and_change_nothing(prior_variance, tmp_path):
    model = new(prior_variance=prior_variance).fit(X, Y)
    rows, labels = np.vstack([X, spoilt(1e160)]), np.r_[Y, LABELS]
    assert_refused(model, lambda m: m.partial_fit(rows, labels), "large|overflow", tmp_path / "model")


WEIGHTS = {
    "negative": ([1.0, -1.0, 1.0, 1.0], "at least 0; got -1"),
    "nan": ([1.0, np.nan, 1.0, 1.0], "finite; got nan"),
    "inf": ([1.0, np.inf, 1.0, 1.0], "finite; got inf"),
    "too-few": ([1.0, 1.0], "2"),
    "one-in-a-list": ([1.0], "1"),
    "two-columns": (np.ones((4, 2)), "2"),
    "text": (["a", "b", "c", "d"], "numbers"),
}


@pytest.mark.parametrize(("weight", "message"), WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("use", ["partial_fit", "fit", "unlearn"])
def test_bad_weights_are_refused_and_change_nothing(weight, message, use, tmp_path):
    call = lambda m: getattr(m, use)(NEW, LABELS, sample_weight=weight)  # noqa: E731
    assert_refused(new().fit(X, Y), call, f"sample_weight.*{message}", tmp_path / "model")


@pytest.mark.parametrize("pending", [1, 8, 20], ids=["a-row-waits", "rows-wait", "to-be-factorised"])
def test_bad_rows_in_the_middle_of_a_stream_leave_what_waits(pending):
    model, clean = (new().partial_fit(X[:5], Y[:5], classes=[0, 1, 2]) for _ in range(2))
    for each in (model, clean):
        each.predict_proba(X)
        each.partial_fit(X[5 : 5 + pending], Y[5 : 5 + pending])
    for rows, labels, message in ROWS.values():
        with pytest.raises(ValueError, match=message):
            model.partial_fit(rows, labels)
    for each in (model, clean):
        each.partial_fit(X[25:], Y[25:])
    np.testing.assert_array_equal(model.predict_proba(X), clean.predict_proba(X))
    assert model.n_rows_seen_ == clean.n_rows_seen_


def test_a_bad_first_chunk_leaves_the_model_unfitted():
    model = new()
    with pytest.raises(ValueError, match="contains NaN"):
        model.partial_fit(spoilt(np.nan), LABELS)
    assert vars(model) == vars(new())
    model.partial_fit(NEW[:, :2], LABELS)
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_an_interrupt_while_rows_are_learnt_leaves_the_model_as_it_was(forgetting, tmp_path, monkeypatch):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    model = new(forgetting=forgetting).fit(X, Y)
    monkeypatch.setattr("gaussify.linear._reservoir.Reservoir.add", interrupt)
    assert_refused(model, lambda m: m.partial_fit(NEW, LABELS), "^$", tmp_path / "model", KeyboardInterrupt)


# --- classes -------------------------------------------------------------------------------------------------------


def test_labels_that_were_not_declared_are_refused(tmp_path):
    call = lambda m: m.partial_fit(NEW, [0, 1, 2, 9], classes=[0, 1, 2])  # noqa: E731
    assert_refused(new().fit(X, Y), call, r"'y'.*must hold labels of 'classes', \[0, 1, 2\]; got 9", tmp_path / "model")


@pytest.mark.parametrize("classes", [["0", "1", "2"], [0.5, 1.5], [0, 1, None]], ids=["text", "continuous", "missing"])
def test_classes_of_another_type_are_refused(classes, tmp_path):
    call = lambda m: m.partial_fit(NEW, LABELS, classes=classes)  # noqa: E731
    assert_refused(new().fit(X, Y), call, "'classes'|Unknown label type|all strings or all numbers", tmp_path / "model")


def test_a_third_class_is_refused_where_the_likelihood_is_logistic(tmp_path):
    model = new(likelihood="logistic").fit(X, Y > 0)
    call = lambda m: m.partial_fit(NEW, LABELS)  # noqa: E731
    assert_refused(model, call, "likelihood='logistic' is for two classes; got 3.*'auto'", tmp_path / "model")


def test_a_class_beyond_those_of_alpha_eps_is_refused(tmp_path):
    model = new(alpha_eps=[0.1, 0.2, 0.3]).fit(X, Y)
    call = lambda m: m.partial_fit(NEW, [0, 1, 2, 3])  # noqa: E731
    assert_refused(model, call, "'alpha_eps'.*one per class; got 3 numbers for 4 classes", tmp_path / "model")


# --- unlearn and merge ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (X[:1], [9], "label 9, of which no row was learnt"),
        (np.full((1, 3), 50.0), [0], "rows that were not learnt: .* class number 0"),
        (np.vstack([X, X]), np.r_[Y, Y], "rows that were not learnt"),
    ],
    ids=["unknown-label", "too-large", "twice"],
)
def test_rows_that_were_never_learnt_cannot_be_unlearnt(rows, labels, message, tmp_path):
    assert_refused(
        new().fit(X, Y), lambda m: m.unlearn(rows, labels), message, tmp_path / "model", InvalidArgumentError
    )


def test_a_forgetful_model_cannot_unlearn(tmp_path):
    model = new(forgetting=0.9).fit(X, Y)
    assert_refused(model, lambda m: m.unlearn(X[:2], Y[:2]), "needs forgetting=1 from the first row on", tmp_path / "m")


OTHERS = {
    "features": (lambda: new().fit(X[:, :2], Y), "same number of features; got 3 and 2"),
    "intercept": (lambda: new(fit_intercept=False).fit(X, Y), "same fit_intercept; got True and False"),
    "labels": (lambda: new().fit(X, NAMES[Y]), "same type of labels; got number and text"),
    "random_state": (lambda: new(random_state=1).fit(X, Y), "same random_state; got 0 and 1"),
    "something-else": (lambda: "a model", "another BayesianLogisticRegression; got one str"),
}


@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
def test_models_that_do_not_fit_together_are_not_merged(other, message, tmp_path):
    assert_refused(new().fit(X, Y), lambda m: m.merge(other()), message, tmp_path / "model")


def test_a_third_class_is_not_merged_where_the_likelihood_is_logistic(tmp_path):
    model = new(likelihood="logistic").fit(X, Y > 0)
    other = new().fit(X, Y)
    assert_refused(model, lambda m: m.merge(other), "logistic.* two classes", tmp_path / "model")


def test_a_class_beyond_those_of_alpha_eps_is_not_merged(tmp_path):
    model = new(alpha_eps=[0.1, 0.2, 0.3]).fit(X, Y)
    other = new().fit(X, Y + 1)
    assert_refused(model, lambda m: m.merge(other), "alpha_eps", tmp_path / "model")


# --- parameters ----------------------------------------------------------------------------------------------------

PARAMETERS = [
    ("method", "laplce", "must be one of 'laplace', 'variational'.*; got 'laplce'"),
    ("method", 3, "must be one of"),
    ("alpha_eps", 0.0, "must be positive; got 0"),
    ("alpha_eps", -0.1, "must be positive; got -0.1"),
    ("alpha_eps", np.nan, "must be finite; got nan"),
    ("alpha_eps", "large", "a number, one per class, or 'auto'; got 'large'"),
    ("alpha_eps", None, "must be numbers; got None"),
    ("alpha_eps", [0.1, -0.2, 0.1], "must be positive; got -0.2 at index 1"),
    ("alpha_eps", [0.1, 0.2], "one per class; got 2 numbers for 3 classes|a vector of length 3"),
    ("temperature", 0.0, "must be positive"),
    ("temperature", -1.0, "must be positive"),
    ("temperature", np.inf, "must be finite"),
    ("temperature", [1.0, 2.0], "must be a number"),
    ("prior_variance", 0.0, "must be positive"),
    ("prior_variance", [1.0, 2.0], "a vector of length 3; got shape"),
    ("prior_variance", [1.0, -2.0, 1.0], "must be positive; got -2 at index 1"),
    ("forgetting", 0.0, "must be positive"),
    ("forgetting", 1.01, "must be at most 1; got 1.01"),
    ("forgetting", np.nan, "must be finite"),
    ("dispersion", 0.0, "must be positive; got 0"),
    ("dispersion", -1, "must be positive; got -1"),
    ("dispersion", np.inf, "must be finite"),
    ("dispersion", "x", "must be numbers; got 'x'"),
    ("dispersion", [1.0, 2.0, 3.0], "must be a number"),
    ("likelihood", "probit", "must be one of 'auto', 'softmax', 'logistic'; got 'probit'"),
    ("likelihood", "logistic", "two classes; got 3"),
    ("intercept_variance", -1.0, "must be positive"),
    ("label_variance", 0.0, "must be positive"),
    ("criterion", "cv", "must be one of 'leave-one-out', 'training'; got 'cv'"),
    ("reservoir_size", -1, "an integer of at least 0; got -1"),
    ("reservoir_size", 1.5, "an integer of at least 0; got 1.5"),
    ("predictive", "exact", "must be one of 'quadrature'.*; got 'exact'"),
    ("random_state", -1, "an integer of at least 0; got -1"),
    ("random_state", None, "an integer of at least 0; got None"),
]


@pytest.mark.parametrize(
    ("name", "value", "message"), PARAMETERS, ids=[f"{name}={value}" for name, value, _ in PARAMETERS]
)
@pytest.mark.parametrize("use", ["fit", "partial_fit"])
def test_parameters_out_of_range_are_refused_by_name(name, value, message, use):
    model = new(**{name: value})
    with pytest.raises(InvalidArgumentError, match=f"(?s){name}.*{message}"):
        getattr(model, use)(X, Y)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha_eps": -0.1},
        {"alpha_eps": [0.1, 0.2]},
        {"forgetting": 1.01},
        {"dispersion": -1.0},
        {"likelihood": "logistic"},
    ],
    ids=["negative", "too-few", "too-large", "negative-dispersion", "for-two-classes"],
)
def test_parameters_out_of_range_set_after_the_data_are_refused_and_change_nothing(changes, tmp_path):
    (name,) = changes
    assert_refused(new().fit(X, Y), lambda m: m.set_params(**changes), name, tmp_path / "model", InvalidArgumentError)


def test_an_unknown_parameter_is_refused_and_nothing_is_set(tmp_path):
    call = lambda m: m.set_params(alpha_eps=0.9, alpha=0.1)  # noqa: E731
    assert_refused(new().fit(X, Y), call, "Invalid parameter 'alpha'", tmp_path / "model")


@pytest.mark.parametrize("n_samples", [0, -1, True], ids=str)
def test_the_number_of_draws_must_be_a_positive_integer(n_samples):
    with pytest.raises(
        InvalidArgumentError, match=re.escape("'n_samples' parameter of BayesianLogisticRegression.sample")
    ):
        new().fit(X, Y).sample(n_samples)


def test_moment_ori_needs_a_softmax():
    with pytest.raises(InvalidArgumentError, match=r"'method'.*LogisticLikelihood.*got 'moment-ori'"):
        new(method="moment-ori", likelihood="logistic").fit(X, Y > 0)


def test_errors_are_those_of_gaussify():
    assert issubclass(InvalidArgumentError, GaussifyError)
    assert issubclass(InvalidArgumentError, ValueError)
