"""Rare classes: refined Bayesian logistic regression finds them as often as tuned logistic regression does."""

import functools
import inspect

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from gaussify import BayesianLogisticRegression
from gaussify.experiments.benchmarks._linear_models import DEFAULT, TUNED, fit, linear_models
from gaussify.experiments.benchmarks._rare_classes import make_rare_class, rare_scores

_CAN_REFINE = "refine" in inspect.signature(BayesianLogisticRegression).parameters
needs_refine = pytest.mark.skipif(not _CAN_REFINE, reason="there is no parameter 'refine'")

# prevalence, strength of the feature, rows, seeds
ONE_IN_THIRTY = (0.033, 2.8, 10_000, 4)
ONE_IN_A_THOUSAND = (0.001, 5.0, 300_000, 3)
prevalences = pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(ONE_IN_THIRTY, id="one in thirty"),
        pytest.param(ONE_IN_A_THOUSAND, id="one in a thousand", marks=pytest.mark.slow),
    ],
)


@functools.cache
def scores(recipe, method: str) -> dict[str, float]:
    """Mean scores of the second half of the rows, over the seeds."""
    prevalence, strength, n, n_seeds = recipe
    make = linear_models().get(method) or BayesianLogisticRegression
    found = []
    for seed in range(n_seeds):
        X, y = make_rare_class(n, prevalence, strength, np.random.default_rng(seed))
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
        found.append(rare_scores(fit(make, X, y)[0].predict_proba(X_test), y_test))
    return {name: float(np.mean([own[name] for own in found])) for name in found[0]}


def assert_finds_the_rare_class(recipe, method: str) -> None:
    own, tuned = scores(recipe, method), scores(recipe, TUNED)
    assert own["nll"] < 1.02 * tuned["nll"]
    assert own["recall"] > 0.25
    # where a few rows have most of the probability, its mean differs between halves
    expected = tuned["mean_probability"] if recipe is ONE_IN_A_THOUSAND else own["frequency"]
    assert own["mean_probability"] == pytest.approx(expected, rel=0.05)


@prevalences
def test_logistic_regression_finds_the_rare_class(recipe):
    assert_finds_the_rare_class(recipe, DEFAULT)


@needs_refine
@prevalences
def test_the_default_model_finds_the_rare_class(recipe):
    assert_finds_the_rare_class(recipe, "default")
