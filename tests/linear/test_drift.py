"""What forgetting gains where the law of a stream changes, and costs where it does not."""

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression
from gaussify.datasets import make_drifting_stream

CHUNK = 25


def prequential_log_loss(X, y, forgetting: float) -> float:
    """Mean log-loss of each chunk, predicted before it is learnt."""
    model = BayesianLogisticRegression(alpha_eps=0.1, temperature=1.0, prior_variance=1.0, forgetting=forgetting)
    model.partial_fit(X[:CHUNK], y[:CHUNK], classes=[0, 1, 2])
    losses = []
    for start in range(CHUNK, len(X), CHUNK):
        part = slice(start, start + CHUNK)
        probs = model.predict_proba(X[part])
        losses.append(-np.log(probs[np.arange(len(probs)), y[part]]).mean())
        model.partial_fit(X[part], y[part])
    return float(np.mean(losses))


@pytest.mark.parametrize(("drift", "least"), [("abrupt", 0.2), ("gradual", 0.1)])
def test_forgetting_gains_where_the_stream_drifts(drift, least):
    X, y = make_drifting_stream(1000, n_features=5, n_classes=3, drift=drift, random_state=0)
    assert prequential_log_loss(X, y, 0.99) < prequential_log_loss(X, y, 1.0) - least


def test_forgetting_loses_little_without_drift_and_more_the_more_is_forgotten():
    X, y = make_drifting_stream(2000, n_features=5, n_classes=3, drift="abrupt", random_state=1)
    X, y = X[:1000], y[:1000]  # of one law
    remembering, slow, fast = (prequential_log_loss(X, y, forgetting) for forgetting in (1.0, 0.995, 0.9))
    assert slow < remembering + 0.03
    assert fast > slow


def test_a_forgetful_model_learns_the_new_law_and_a_remembering_one_the_mixture():
    X, y = make_drifting_stream(2000, n_features=5, n_classes=3, drift="abrupt", random_state=2)
    new_X, new_y = X[1500:], y[1500:]
    scores = {
        forgetting: BayesianLogisticRegression(
            alpha_eps=0.1, temperature=1.0, prior_variance=1.0, forgetting=forgetting
        )
        .fit(X[:1500], y[:1500])
        .score(new_X, new_y)
        for forgetting in (1.0, 0.99)
    }
    assert scores[0.99] > scores[1.0] + 0.1
