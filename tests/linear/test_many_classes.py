"""Thousands of classes, within memory."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression

FIT = """
import json, resource, time
import numpy as np
import torch
from gaussify import BayesianLogisticRegression

torch.set_num_threads(1)
n_features, n_classes = 128, 3100
rng = np.random.default_rng(0)
centres = rng.normal(size=(n_classes, n_features))
y = np.arange(2 * n_classes) % n_classes
X = centres[y] + 0.3 * rng.normal(size=(len(y), n_features))
model = BayesianLogisticRegression(alpha_eps=0.01, temperature=1.0, prior_variance=1.0)
model.partial_fit(X[:n_classes], y[:n_classes]).partial_fit(X[n_classes:], y[n_classes:])
start = time.perf_counter()
probs = model.predict_proba(X[:20])
print(json.dumps({
    "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    "shape": probs.shape,
    "largest_error_of_a_sum": float(np.abs(probs.sum(1) - 1.0).max()),
    "right": float((probs.argmax(1) == y[:20]).mean()),
}))
"""


@pytest.mark.slow
def test_3100_classes_of_128_features_fit_and_predict_within_4_gb():
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shape"] == [20, 3100]
    assert found["gigabytes"] < 4.0
    assert found["largest_error_of_a_sum"] < 1e-6
    assert found["right"] > 0.9


@pytest.mark.parametrize("labels", [np.arange(30), np.array([f"word {i}" for i in range(30)])], ids=["int", "text"])
def test_a_chunk_of_as_many_classes_as_rows_is_learnt_without_a_warning(labels):
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = BayesianLogisticRegression(alpha_eps=0.1, temperature=1.0, prior_variance=1.0).partial_fit(X, labels)
    model.partial_fit(X, labels.tolist())
    assert model.predict_proba(X).shape == (30, 30)
