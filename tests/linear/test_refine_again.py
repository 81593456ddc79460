"""Sites of all rows made anew, and the prior of the prior variance."""

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression
from gaussify.exceptions import InvalidArgumentError


def rows(n=200, d=5, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    logits = 1.5 * X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, logits.argmax(1)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("params", [{}, {"refine": 50}, {"refine": 50, "prior_variance": 0.5}])
def test_rows_of_a_stream_refined_again_are_a_fit(n_classes, params):
    X, y = rows(n_classes=n_classes)
    model = BayesianLogisticRegression(temperature=1.0, **params).partial_fit(X[:50], y[:50], classes=range(n_classes))
    model.refine_again(X[:50], y[:50])
    for start in range(50, 200, 5):
        model.partial_fit(X[start : start + 5], y[start : start + 5])
    order = np.random.default_rng(1).permutation(200)
    model.refine_again(X[order], y[order])
    anew = BayesianLogisticRegression(temperature=1.0, **{**params, "refine": 50}).fit(X, y)
    assert model.refined_
    np.testing.assert_allclose(model.prior_variance_, anew.prior_variance_, rtol=0.5)  # the bound is flat there
    np.testing.assert_allclose(model.predict_proba(X), anew.predict_proba(X), atol=0.01)


def test_refining_again_raises_scores_of_a_stream_that_began_with_few_rows():
    X, y = rows(600, 20)
    model = BayesianLogisticRegression().partial_fit(X[:20], y[:20])
    model.refine_again(X[:20], y[:20])
    for start in range(20, 200, 5):
        model.partial_fit(X[start : start + 5], y[start : start + 5])

    def score():
        return np.log(model.predict_proba(X[200:])[np.arange(400), y[200:]]).mean()

    before = score()
    assert model.refine_again(X[:200], y[:200]) is model
    assert score() > before


def test_a_refined_model_is_not_tuned_by_the_next_prediction():
    X, y = rows()
    model = BayesianLogisticRegression().partial_fit(X[:40], y[:40])
    model.refine_again(X[:40], y[:40]).partial_fit(X[40:90], y[40:90]).refine_again(X[:90], y[:90])
    before = model.prior_variance_
    model.predict_proba(X)
    np.testing.assert_array_equal(model.prior_variance_, before)
    assert model.temperature_ == 1.0


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, True),
        ({"refine": 5}, True),
        ({"refine": 5, "alpha_eps": 0.1}, True),
        ({"refine": False}, False),
        ({"alpha_eps": 0.1}, False),
        ({"forgetting": 0.99}, False),
    ],
)
def test_it_says_whether_it_refines_again(params, expected):
    assert BayesianLogisticRegression(**params).refines_again is expected


def test_labels_that_were_never_learnt_are_refused_and_nothing_changes():
    X, y = rows()
    model = BayesianLogisticRegression(refine=20).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match="of which no row was learnt"):
        model.refine_again(X, y + 1)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_the_prior_of_the_prior_variance_does_not_depend_on_units(units):
    X, y = rows(30, 40)
    one, other = (BayesianLogisticRegression(refine=20).fit(factor * X, y) for factor in (1.0, units))
    np.testing.assert_allclose(other.prior_variance_ * units**2, one.prior_variance_, rtol=1e-3)


@pytest.mark.parametrize("refine", [False, 20])
def test_a_feature_that_hardly_varies_has_the_variance_of_the_others_without_evidence(refine):
    X, y = rows(60, 100)
    X[:, 0] *= 1e-7
    variance = BayesianLogisticRegression(refine=refine).fit(X, y).prior_variance_
    assert variance.max() < 100.0


@pytest.mark.parametrize("refine", [False, 20])
def test_features_in_unrelated_units_have_variances_of_their_own(refine):
    X, y = rows(100, 6)
    units = np.geomspace(1e-3, 1e3, 6)
    variance = BayesianLogisticRegression(refine=refine).fit(X * units, y).prior_variance_
    np.testing.assert_allclose(variance * (units * X.std(0)) ** 2 / variance[0] / (units[0] * X[:, 0].std()) ** 2, 1.0)
