"""Movie reviews labelled one at a time: curves are those of models fitted anew, levels are reached when they say."""

import numpy as np
import pytest
import torch

from gaussify import BayesianLogisticRegression, metrics
from gaussify.active import entropy
from gaussify.experiments.paper import _active_imdb as experiment

SETTINGS = {
    "n_pool": 120,
    "n_test": 80,
    "n_initial": 10,
    "n_steps": 12,
    "n_seeds": 3,
    "alpha_eps": 0.1,
    "prior_variance": 10.0,
}


@pytest.fixture(scope="module")
def reviews():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(220, 6))
    return X, (X[:, 0] + 0.5 * rng.normal(size=220) > 0.0).astype(int)


@pytest.mark.parametrize("method", experiment.METHODS)
def test_a_curve_is_what_models_fitted_anew_to_the_most_uncertain_rows_score(method, reviews):
    X, y = reviews
    curves = experiment._curves(SETTINGS, {"method": method, "strategy": "entropy"}, X, y, number=1)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(y))
    pool, test = order[:120], order[120:200]
    taught = [row for label in (0, 1) for row in rng.permutation((y[pool] == label).nonzero()[0])[:5]]
    assert len(curves) == 13
    for scores in curves:
        model = BayesianLogisticRegression(method=method, alpha_eps=0.1, temperature=1.0, prior_variance=10.0)
        model.fit(X[pool[taught]], y[pool[taught]])
        probs = model.predict_proba(X[test])
        assert scores == pytest.approx([metrics.accuracy(probs, y[test]), -metrics.nll(probs, y[test])], abs=1e-8)
        uncertainty = entropy(torch.from_numpy(model.predict_proba(X[pool]))).numpy()
        uncertainty[taught] = -np.inf
        taught.append(int(uncertainty.argmax()))


def test_records_are_the_mean_over_seeds(monkeypatch, reviews):
    X, y = reviews
    monkeypatch.setattr(experiment, "_features", lambda settings: reviews)
    task = {"method": "variational", "strategy": "random"}
    records = experiment._run(SETTINGS, task, seed=0)
    single = np.array([experiment._curves(SETTINGS, task, X, y, number) for number in range(3)])
    found = [[record["accuracy"], record["log_likelihood"]] for record in records]
    np.testing.assert_allclose(found, single.mean(0), atol=1e-5)
    assert [record["n_labels"] for record in records] == list(range(10, 23))
    assert records[-1]["seconds"] is not None


def curve(method, strategy, values):
    own = {"method": method, "strategy": strategy, "seconds": 1.0}
    return [own | {"n_labels": 10 + n, "accuracy": v, "log_likelihood": v - 1.2} for n, v in enumerate(values)]


def test_the_summary_counts_labels_to_round_levels_that_some_curve_reaches():
    records = curve("gauss", "entropy", [0.52, 0.58, 0.61, 0.71]) + curve("gauss", "random", [0.51, 0.52, 0.56, 0.59])
    by_entropy, at_random = experiment._summarise(records)
    assert [by_entropy[f"labels to {level:g}"] for level in (0.55, 0.6, 0.65, 0.7)] == [11, 12, 13, 13]
    assert [at_random[f"labels to {level:g}"] for level in (0.55, 0.6, 0.65, 0.7)] == [12, None, None, None]
    assert "labels to 0.5" not in by_entropy
    assert "labels to 0.75" not in by_entropy
    assert by_entropy["labels to -0.6"] == 12
    assert by_entropy["accuracy"] == 0.71
