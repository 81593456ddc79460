import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussify.metrics import BinConfidence, Reliability, ece, reliability

# In four bins: confidence 0.5 | 0.6, 0.7 | 0.8, 1.0 of the most probable class, right but for the 0.7
PROBS = [[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.7, 0.2], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0]]
Y = [0, 0, 0, 2, 1]


def predictions(seed: int, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_classes, 0.7), size=n), rng.integers(n_classes, size=n)


def test_reliability_of_a_hand_computed_case():
    bins = reliability(PROBS, Y, n_bins=4)
    np.testing.assert_array_equal(bins.bin_edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(bins.count, [0, 1, 2, 2])
    np.testing.assert_allclose(bins.mean_confidence, [np.nan, 0.5, 0.65, 0.9], rtol=1e-15)
    np.testing.assert_allclose(bins.accuracy, [np.nan, 1, 0.5, 1], rtol=1e-15)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        ("mean", (1 * 0.5 + 2 * 0.15 + 2 * 0.1) / 5),
        # midpoints 0.375, 0.625, 0.875
        ("midpoint", (1 * 0.625 + 2 * 0.125 + 2 * 0.125) / 5),
    ],
)
def test_ece_of_a_hand_computed_case(confidence, expected):
    assert ece(PROBS, Y, 4, confidence=confidence) == pytest.approx(expected, rel=1e-14)
    assert ece(PROBS, Y, n_bins=4, confidence=BinConfidence(confidence)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 10, 15, 100])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(n_bins):
    edges = np.linspace(0, 1, n_bins + 1)[1:]
    top = edges[edges >= 0.5]
    bins = reliability(np.column_stack([top, 1 - top]), np.zeros(len(top), dtype=int), n_bins)
    assert bins.count.sum() == len(top)
    np.testing.assert_array_equal(bins.mean_confidence[bins.count > 0], top)
    np.testing.assert_array_equal(bins.bin_edges[1:][bins.count > 0], top)


@pytest.mark.parametrize("n_bins", [1, 15])
def test_midpoint_charges_perfect_predictions_half_a_bin(n_bins):
    assert ece([[1.0, 0.0]], [0], n_bins, confidence="midpoint") == pytest.approx(1 / (2 * n_bins), rel=1e-12)


def test_fifteen_bins_by_default():
    assert ece(PROBS, Y) == ece(PROBS, Y, 15) != ece(PROBS, Y, 4)
    assert len(reliability(PROBS, Y).count) == 15


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    n_classes=st.integers(2, 6),
    n_bins=st.integers(1, 30),
    confidence=st.sampled_from(BinConfidence),
)
def test_ece_is_a_row_weighted_mean_over_bins(seed, n, n_classes, n_bins, confidence):
    probs, y = predictions(seed, n, n_classes)
    bins = reliability(probs, y, n_bins)
    error = ece(probs, y, n_bins, confidence=confidence)
    assert 0 <= error <= 1
    assert error == bins.ece(confidence=confidence)
    assert bins.count.sum() == n
    # The definition, bin by bin
    top, right = probs.max(axis=1), probs.argmax(axis=1) == y
    total = 0.0
    for low, high in zip(bins.bin_edges[:-1], bins.bin_edges[1:], strict=True):
        rows = (top > low) & (top <= high)
        if rows.any():
            centre = top[rows].mean() if confidence == "mean" else (low + high) / 2
            total += rows.sum() / n * abs(right[rows].mean() - centre)
    assert error == pytest.approx(total, rel=1e-9, abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), n_bins=st.integers(1, 30))
def test_bins_are_nan_exactly_where_they_are_empty(seed, n, n_bins):
    bins = reliability(*predictions(seed, n, 3), n_bins)
    np.testing.assert_array_equal(np.isnan(bins.mean_confidence), bins.count == 0)
    np.testing.assert_array_equal(np.isnan(bins.accuracy), bins.count == 0)


def test_calibrated_predictions_have_a_small_error_and_shifted_ones_a_large():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, size=20_000)
    y = (rng.uniform(size=len(p)) > p).astype(int)
    assert ece(np.column_stack([p, 1 - p]), y) < 0.02
    q = (1 + p) / 2  # halfway to certainty: too sure by (1 - p) / 2, 1/8 on average
    assert ece(np.column_stack([q, 1 - q]), y) == pytest.approx(0.125, abs=0.02)


def test_reliability_is_frozen():
    bins = reliability(PROBS, Y)
    assert isinstance(bins, Reliability)
    with pytest.raises(dataclasses.FrozenInstanceError):
        bins.count = bins.count


@pytest.mark.parametrize("function", [ece, reliability])
def test_bad_bin_count_is_refused(function):
    name = function.__name__
    with pytest.raises(ValueError, match=f"'n_bins' parameter of {name} must be an integer of at least 1; got 0"):
        function(PROBS, Y, n_bins=0)


def test_bad_confidence_is_refused():
    with pytest.raises(ValueError, match=r"'confidence' parameter of ece must be one of 'mean', 'midpoint'; got 'top'"):
        ece(PROBS, Y, confidence="top")
