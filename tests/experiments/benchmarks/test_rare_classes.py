"""A rare class: the rows that are drawn, and the scores of probabilities."""

import numpy as np
import pytest

from gaussify.experiments import get, load
from gaussify.experiments.benchmarks._linear_models import DEFAULT, MATCHED, TUNED
from gaussify.experiments.benchmarks._rare_classes import rare_rows, rare_scores


@pytest.mark.parametrize(("prevalence", "strength"), [(0.033, 2.8), (0.001, 5.0)])
def test_the_rare_class_has_its_share(prevalence, strength):
    X, y = rare_rows(200_000, prevalence, strength, np.random.default_rng(0))
    assert y.mean() == pytest.approx(prevalence, rel=0.1)
    np.testing.assert_allclose([X.mean(0), X.std(0)], [[0.0] * 3, [1.0] * 3], atol=1e-9)


def test_right_probabilities_are_unbiased_and_reversed_ones_are_not():
    rng = np.random.default_rng(0)
    rare = rng.beta(0.3, 5.0, 20_000)
    y = (rng.random(20_000) < rare).astype(int)
    assert rare_scores(np.c_[1.0 - rare, rare], y)["bias"] == pytest.approx(1.0, abs=0.05)
    assert rare_scores(np.c_[rare, 1.0 - rare], y)["bias"] > 5.0


def test_the_summary_compares_with_tuned_logistic_regression(smoke_run):
    rows = {row["method"]: row for row in get("rare-classes").summarise(load(smoke_run("rare-classes")))}
    assert rows[TUNED]["nll_ratio"] == 1.0
    assert rows[MATCHED]["nll_ratio"] == pytest.approx(rows[MATCHED]["nll"] / rows[TUNED]["nll"], abs=1e-3)
    assert rows[DEFAULT]["seeds"] == 2


def test_both_halves_have_the_same_share_of_the_rare_class(smoke_run):
    for record in load(smoke_run("rare-classes")):
        assert record["n_rare"] == pytest.approx(record["frequency"] * 500, abs=1.0)
