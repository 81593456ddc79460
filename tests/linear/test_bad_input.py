"""Bad input is refused with a clear error and leaves the model exactly as it was."""

import re

import numpy as np
import pytest

from estimator_checks import LABELS, NAMES, NEW, RefusesBadInput, X, Y, assert_refused, spoilt
from gaussify import BayesianLogisticRegression
from gaussify.exceptions import GaussifyError, InvalidArgumentError

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}


def new(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{**FIXED, **params})


class TestBadInput(RefusesBadInput):
    estimator = BayesianLogisticRegression
    params = FIXED


# --- rows ----------------------------------------------------------------------------------------------------------


def test_large_rows_are_predicted_without_a_warning():
    model = new().fit(X, Y)
    assert np.isfinite(model.predict_proba(np.full((2, 3), 1e100))).all()


@pytest.mark.parametrize("prior_variance", [2.0, "auto"], ids=["fixed", "auto"])
def test_rows_whose_squares_overflow_are_refused_and_change_nothing(prior_variance, tmp_path):
    model = new(prior_variance=prior_variance).fit(X, Y)
    rows, labels = np.vstack([X, spoilt(1e160)]), np.r_[Y, LABELS]
    assert_refused(model, lambda m: m.partial_fit(rows, labels), "large|overflow", tmp_path / "model")


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_an_interrupt_while_rows_are_learnt_leaves_the_model_as_it_was(forgetting, tmp_path, monkeypatch):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    model = new(forgetting=forgetting).fit(X, Y)
    monkeypatch.setattr("gaussify.linear._reservoir.Reservoir.add", interrupt)
    assert_refused(model, lambda m: m.partial_fit(NEW, LABELS), "^$", tmp_path / "model", KeyboardInterrupt)


# --- unlearn and merge ---------------------------------------------------------------------------------------------


def test_rows_larger_than_all_learnt_cannot_be_unlearnt(tmp_path):
    message = "rows that were not learnt: .* class number 0"
    call = lambda m: m.unlearn(np.full((1, 3), 50.0), [0])  # noqa: E731
    assert_refused(new().fit(X, Y), call, message, tmp_path / "model", InvalidArgumentError)


def test_a_forgetful_model_cannot_unlearn(tmp_path):
    model = new(forgetting=0.9).fit(X, Y)
    assert_refused(model, lambda m: m.unlearn(X[:2], Y[:2]), "needs forgetting=1 from the first row on", tmp_path / "m")


OTHERS = {
    "features": (lambda: new().fit(X[:, :2], Y), "same number of features; got 3 and 2"),
    "intercept": (lambda: new(fit_intercept=False).fit(X, Y), "same fit_intercept; got True and False"),
    "labels": (lambda: new().fit(X, NAMES[Y]), "same type of labels; got number and text"),
    "random_state": (lambda: new(random_state=1).fit(X, Y), "same random_state; got 0 and 1"),
    "something-else": (lambda: "a model", "another BayesianLogisticRegression; got a str"),
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
    ("method", "laplce", "must be one of 'laplace', 'variational'.*, or 'auto'; got 'laplce'"),
    ("method", 3, "must be one of"),
    ("alpha_eps", 0.0, "must be positive; got 0"),
    ("alpha_eps", -0.1, "must be positive; got -0.1"),
    ("alpha_eps", np.nan, "must be finite; got nan"),
    ("alpha_eps", "large", "a number, one per class, or 'auto'; got 'large'"),
    ("alpha_eps", None, "a number, one per class, or 'auto'; got None"),
    ("alpha_eps", [0.1, -0.2, 0.1], "must be positive; got -0.2 at index 1"),
    ("alpha_eps", [0.1, 0.2], "one per class; got 2 numbers for 3 classes|a vector of length 3"),
    ("temperature", 0.0, "must be positive"),
    ("temperature", -1.0, "must be positive"),
    ("temperature", np.inf, "must be finite"),
    ("temperature", [1.0, 2.0], "must be a number"),
    ("temperature", "x", "must be a positive number or 'auto'; got 'x'"),
    ("temperature", None, "must be a positive number or 'auto'; got None"),
    ("prior_variance", 0.0, "must be positive"),
    ("prior_variance", "wide", "must be a positive number, one per feature, or 'auto'; got 'wide'"),
    ("prior_variance", [1.0, 2.0], "a vector of length 3; got shape"),
    ("prior_variance", [1.0, -2.0, 1.0], "must be positive; got -2 at index 1"),
    ("forgetting", 0.0, "must be positive"),
    ("forgetting", 1.01, "must be at most 1; got 1.01"),
    ("forgetting", "auto", "must be a positive number; got 'auto'"),
    ("forgetting", np.nan, "must be finite"),
    ("dispersion", 0.0, "must be positive; got 0"),
    ("dispersion", -1, "must be positive; got -1"),
    ("dispersion", np.inf, "must be finite"),
    ("dispersion", "x", "must be a positive number or 'auto'; got 'x'"),
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


def test_errors_are_those_of_gaussify():
    assert issubclass(InvalidArgumentError, GaussifyError)
    assert issubclass(InvalidArgumentError, ValueError)
