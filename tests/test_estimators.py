"""What scikit-learn asks of an estimator, of every estimator there is."""

import importlib

import jaxtyping
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussify import BayesianLogisticRegression, GPClassifier
from gaussify.linear.baselines import ADFClassifier, LeastSquaresClassifier, MomentumSGDClassifier

ESTIMATORS = [
    BayesianLogisticRegression(),
    LeastSquaresClassifier(),
    ADFClassifier(n_samples=100),
    MomentumSGDClassifier(n_epochs=10),
    GPClassifier(max_iter=5),
    GPClassifier(n_inducing=10, max_iter=5),
]
WEIGHT_CHECKS = ["check_sample_weight_equivalence_on_dense_data"]


def expected_failures(estimator):
    if isinstance(estimator, ADFClassifier | MomentumSGDClassifier):
        return dict.fromkeys(WEIGHT_CHECKS, "the check changes the order of the rows, which matters here")
    return {}


@pytest.fixture(autouse=True)
def _without_type_hints(monkeypatch):
    """The checks give every parameter values of wrong types, which estimators must take until they are fitted."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_accepts(estimator, check):
    check(estimator)


@pytest.mark.parametrize("module", ["gaussify", "gaussify.linear.baselines"])
def test_every_public_estimator_is_checked(module):
    public = importlib.import_module(module)
    values = [getattr(public, name) for name in public.__all__]
    estimators = {value for value in values if isinstance(value, type) and issubclass(value, BaseEstimator)}
    assert estimators
    assert estimators <= {type(estimator) for estimator in ESTIMATORS}
