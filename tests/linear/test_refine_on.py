"""Refinement of models that were learnt by partial_fit, on the same rows once more."""

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression
from gaussify.exceptions import InvalidArgumentError

N = 150
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = np.array(["a", "b", "c"])[np.argmax(1.5 * X + RNG.gumbel(size=(N, 3)), 1)]
WEIGHT = RNG.uniform(0.5, 2.0, N)


@pytest.mark.parametrize("refine", ["auto", False, 20])
@pytest.mark.parametrize("params", [{}, {"forgetting": 0.99}], ids=["all", "forgetting"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["equal", "weighted"])
def test_it_ends_as_fit_does(refine, params, weight):
    model = BayesianLogisticRegression(refine=refine, **params)
    for part in (slice(0, 60), slice(60, N)):
        model.partial_fit(X[part], Y[part], sample_weight=None if weight is None else weight[part])
    assert model.refine_on(X, Y, weight) is model
    whole = BayesianLogisticRegression(refine=refine, **params).fit(X, Y, weight)
    assert model.refined_ == whole.refined_
    assert model.n_rows_seen_ == N
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(model.statistics_.gram, whole.statistics_.gram, rtol=1e-9)


def test_it_takes_a_class_that_has_no_rows_yet():
    model = BayesianLogisticRegression(refine=20).partial_fit(X, Y, classes=["a", "b", "c", "d"]).refine_on(X, Y)
    assert model.refined_
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    assert model.predict_proba(X)[:, 3].max() < 0.1


@pytest.mark.parametrize(
    "rows",
    [
        (X[:-1], Y[:-1], None),
        (X, Y, WEIGHT),
        (X, np.where(Y == "a", "b", Y), None),
        (X, np.where(Y == "a", "new", Y), None),
    ],
    ids=["fewer", "other weights", "other labels", "unknown label"],
)
def test_other_rows_are_refused_and_nothing_changes(rows):
    model = BayesianLogisticRegression(refine=20).fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match="refine_on needs all rows that were learnt"):
        model.refine_on(*rows)
    assert model.refined_
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_it_reports_the_share_of_the_work():
    shares = []
    BayesianLogisticRegression(refine=20).partial_fit(X, Y).refine_on(X, Y, report=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    "learn",
    [lambda m: m.fit(X, Y), lambda m: m.partial_fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])],
    ids=["fit", "stream"],
)
def test_a_given_prior_variance_stays(learn):
    model = learn(BayesianLogisticRegression(prior_variance=0.5, refine=20))
    assert model.refined_
    np.testing.assert_array_equal(model.prior_variance_, np.full(3, 0.5))
    before = model.predict_proba(X)
    np.testing.assert_allclose(model.tune().predict_proba(X), before, rtol=0.02, atol=0.01)
    np.testing.assert_array_equal(model.prior_variance_, np.full(3, 0.5))
