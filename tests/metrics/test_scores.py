import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from gaussify.metrics import accuracy, brier, ece, nll

SCORES = [nll, accuracy, brier, ece]


def predictions(seed: int, n: int = 200, n_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_classes, 0.7), size=n), rng.integers(n_classes, size=n)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_equal_those_of_scikit_learn(n_classes):
    probs, y = predictions(0, n_classes=n_classes)
    labels = list(range(n_classes))
    assert nll(probs, y) == pytest.approx(log_loss(y, probs, labels=labels), rel=1e-12)
    assert accuracy(probs, y) == accuracy_score(y, probs.argmax(axis=1))
    oracle = brier_score_loss(y, probs if n_classes > 2 else probs[:, 1], labels=labels, scale_by_half=False)
    assert brier(probs, y) == pytest.approx(oracle, rel=1e-12)


def test_brier_sums_over_the_classes():
    # (0.5 - 1)^2 + 0.3^2 + 0.2^2 = 0.38 and 0.1^2 + 0.1^2 + (0.8 - 1)^2 = 0.06
    assert brier([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], [0, 2]) == pytest.approx(0.22, rel=1e-12)


def test_nll_of_an_impossible_true_class_is_infinite():
    assert nll([[0.5, 0.5], [1.0, 0.0]], [0, 1]) == math.inf


def test_nll_keeps_tiny_probabilities():
    assert nll([[1.0, 1e-300]], [1]) == pytest.approx(300 * math.log(10), rel=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_first_of_equally_probable_classes_is_predicted(score):
    probs = [[0.4, 0.4, 0.2]]
    assert score(probs, [0]) == {nll: -math.log(0.4), accuracy: 1.0, brier: 0.56, ece: 0.6}[score]


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 50), n_classes=st.integers(2, 6))
def test_scores_do_not_depend_on_the_order_of_rows(seed, n, n_classes):
    probs, y = predictions(seed, n, n_classes)
    order = np.random.default_rng(seed).permutation(n)
    for score in SCORES:
        assert score(probs[order], y[order]) == pytest.approx(score(probs, y), rel=1e-12, abs=1e-15)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 50), n_classes=st.integers(2, 6))
def test_perfect_predictions_score_best(seed, n, n_classes):
    y = np.random.default_rng(seed).integers(n_classes, size=n)
    probs = np.eye(n_classes)[y]
    assert [score(probs, y) for score in SCORES] == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("score", SCORES)
def test_lists_arrays_and_tensors_score_alike(score):
    probs, y = predictions(1)
    value = score(probs, y)
    assert type(value) is float
    assert score(probs.tolist(), y.tolist()) == value
    assert score(torch.tensor(probs, requires_grad=True), torch.tensor(y)) == value
    assert score(probs, y.astype(np.float64)) == value


@pytest.mark.parametrize("score", SCORES)
def test_float32_is_scored_in_float64(score):
    probs, y = predictions(2)
    single = probs.astype(np.float32)
    assert score(single, y) == score(single.astype(np.float64), y) == score(torch.tensor(single), y)
    assert score(single, y) == pytest.approx(score(probs, y), rel=1e-5)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("probs", "y", "message"),
    [
        (
            [0.2, 0.8],
            [0, 1],
            r"got shape \(2,\)\. .* stack two columns: np\.column_stack\(\[1 - probs, probs\]\)",
        ),
        ([[[0.2, 0.8]]], [0], r"must have shape \(n, n_classes\).*; got shape \(1, 1, 2\)\.$"),
        ([[1.0], [1.0]], [0, 0], r"n_classes >= 2; got shape \(2, 1\)\.$"),
        (np.empty((0, 3)), [], r"with n >= 1 .*; got shape \(0, 3\)\.$"),
        ([[0.5, float("nan")]], [0], r"must be finite; got nan at index \(0, 1\)\.$"),
        ([[-0.1, 1.1]], [0], r"must be probabilities, from 0 to 1; got -0\.1 at index \(0, 0\)\.$"),
        ([[1.1, 0.0]], [0], r"must be probabilities, from 0 to 1; got 1\.1 at index \(0, 0\)\.$"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], r"Rows of 'probs' of \w+ must sum to one; got 0\.9 at index 1\.$"),
        ([["a", "b"]], [0], r"'probs' of \w+ must be numbers"),
        ([[0.5, 0.5]], [2], r"must be integers from 0 to 1; got 2 at index 0\.$"),
        ([[0.5, 0.5]], [0.5], r"must be integers from 0 to 1; got 0\.5 at index 0\.$"),
        ([[0.5, 0.5]], [[0]], r"in one dimension; got shape \(1, 1\)\.$"),
        ([[0.5, 0.5]], [0, 1], r"needs the same number of rows in each argument; got probs: 1, y: 2\.$"),
    ],
    ids=[
        "one-column",
        "three-axes",
        "one-class",
        "no-rows",
        "nan",
        "negative",
        "above-one",
        "sum",
        "text",
        "unknown-class",
        "half-label",
        "label-matrix",
        "rows-differ",
    ],
)
def test_bad_input_is_refused_with_its_reason(score, probs, y, message):
    with pytest.raises(ValueError, match=message):
        score(probs, y)


@pytest.mark.parametrize("score", SCORES)
def test_rounding_of_probabilities_is_forgiven(score):
    exact = score([[1.0, 0.0], [0.3, 0.7]], [0, 0])
    assert score([[1.0 + 5e-5, 0.0], [0.3, 0.7]], [0, 0]) == pytest.approx(exact, abs=1e-4)
