import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

from gaussify.metrics import OODScore, ood_auroc

SCORES = list(OODScore)


def two_sets(seed: int, n_in: int = 60, n_out: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(3, 0.4), size=n_in), rng.dirichlet(np.full(3, 1.0), size=n_out)


@pytest.mark.parametrize(
    ("score", "confidence"),
    [("max-probability", lambda p: p.max(axis=1)), ("entropy", lambda p: -entropy(p, axis=1))],
)
def test_auroc_equals_that_of_scikit_learn(score, confidence):
    inside, outside = two_sets(0)
    truth = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    oracle = roc_auc_score(truth, np.r_[confidence(inside), confidence(outside)])
    assert ood_auroc(inside, outside, score=score) == pytest.approx(oracle, rel=1e-12)


def test_the_maximum_probability_is_the_default():
    # The same maximum, but a different entropy
    inside, outside = [[0.6, 0.4, 0.0]], [[0.6, 0.2, 0.2]]
    assert ood_auroc(inside, outside) == 0.5
    assert ood_auroc(inside, outside, score="entropy") == 1.0


@pytest.mark.parametrize("score", SCORES)
def test_one_means_every_in_distribution_row_is_more_confident(score):
    sure, unsure = [[1.0, 0.0, 0.0], [0.1, 0.9, 0.0]], [[0.4, 0.3, 0.3], [0.2, 0.3, 0.5]]
    assert ood_auroc(sure, unsure, score=score) == 1.0
    assert ood_auroc(unsure, sure, score=score) == 0.0


@given(
    seed=st.integers(0, 2**32 - 1),
    n_in=st.integers(1, 20),
    n_out=st.integers(1, 20),
    score=st.sampled_from(SCORES),
)
def test_auroc_is_the_chance_of_the_right_order(seed, n_in, n_out, score):
    inside, outside = two_sets(seed, n_in, n_out)
    confidence = (lambda p: p.max(axis=1)) if score == "max-probability" else (lambda p: -entropy(p, axis=1))
    larger = np.greater.outer(confidence(inside), confidence(outside)).mean()
    assert ood_auroc(inside, outside, score=score) == pytest.approx(larger, abs=1e-12)
    assert ood_auroc(outside, inside, score=score) == pytest.approx(1 - larger, abs=1e-12)
    assert ood_auroc(inside, inside, score=score) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_lists_arrays_and_tensors_score_alike(score):
    inside, outside = two_sets(1)
    value = ood_auroc(inside, outside, score=score)
    assert type(value) is float
    assert ood_auroc(inside.tolist(), outside.tolist(), score=score) == value
    assert ood_auroc(torch.tensor(inside, requires_grad=True), torch.tensor(outside), score=score) == value
    single = ood_auroc(inside.astype(np.float32), outside.astype(np.float32), score=score)
    assert single == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([0.9], [[0.5, 0.5]], r"'probs_in' of ood_auroc .* np\.column_stack\(\[1 - probs_in, probs_in\]\)"),
        (
            [[0.5, 0.5]],
            [[0.5, 0.4]],
            r"Rows of 'probs_out' of ood_auroc must sum to one; got 0\.9 at index 0\.$",
        ),
        (
            [[0.5, 0.5]],
            np.empty((0, 2)),
            r"'probs_out' of ood_auroc must have shape .*; got shape \(0, 2\)\.$",
        ),
        (
            [[0.5, 0.5]],
            [[0.2, 0.3, 0.5]],
            r"'probs_out' of ood_auroc must have 2 columns .*; got shape \(1, 3\)\.$",
        ),
    ],
    ids=["one-column", "sum", "no-rows", "columns-differ"],
)
def test_bad_input_is_refused_with_its_reason(inside, outside, message):
    with pytest.raises(ValueError, match=message):
        ood_auroc(inside, outside)


def test_bad_score_is_refused():
    with pytest.raises(ValueError, match=r"'score' parameter of ood_auroc must be one of 'max-probability', 'entropy'"):
        ood_auroc([[0.5, 0.5]], [[0.5, 0.5]], score="energy")
