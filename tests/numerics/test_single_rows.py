"""One row, by numpy and floats, against the batch, by tensors: the same rules, nodes and table."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.autograd import forward_ad

from gaussify._numerics import (
    expected_logsumexp,
    expected_sigmoid,
    expected_softmax,
    expected_softmax_row,
    softplus_moment,
    softplus_moments,
)
from gaussify._numerics._softmax_normal import _FEW_ROWS, _ExpectedSoftmax
from gaussify.experiments._lab._timing import best_times

# Both follow the same steps and differ by rounding: exp and log of numpy and torch by their last digit, sums by their
# order. The largest difference seen is 1e-15; nodes from an end moved by 0.01 already make one of 1e-8.
TOLERANCE = 1e-12

MEANS = st.floats(-1000.0, 1000.0) | st.floats(-3.0, 3.0) | st.sampled_from([-1000.0, 0.0, 1.0, 1000.0])
VARIANCES = (
    st.floats(0.0, 400.0)
    | st.floats(0.0, 0.25)
    | st.floats(-12.0, 6.0).map(math.exp)
    | st.sampled_from([0.0, 1.0, 6.25, 400.0])
)

N_CLASSES = st.integers(3, 40) | st.sampled_from([100, 300])


@st.composite
def rows(draw, n_classes=N_CLASSES):
    c = draw(n_classes)
    return draw(arrays(np.float64, c, elements=MEANS)), draw(arrays(np.float64, c, elements=VARIANCES))


def batch_of(*row: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(x)[None] for x in row]


def random_batch(n: int, n_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_classes)
    mean = 3.0 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    return mean, 9.0 * torch.rand(n, n_classes, generator=generator, dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------------------
# Agreement


@given(row=rows())
@settings(max_examples=2 * settings().max_examples)
@example(row=(np.zeros(3), np.zeros(3)))
@example(row=(np.array([1.0, 0.0, -2.0]), np.array([0.2, 0.0, 0.249])))
@example(row=(np.array([1.0, 0.0, -2.0]), np.array([0.25, 0.0, 8.99])))
@example(row=(np.array([1000.0, -1000.0, 0.0]), np.full(3, 400.0)))
@example(row=(np.array([0.0, -1e8, 3.0]), np.array([1e16, 0.0, 1.0])))
def test_a_row_of_the_softmax_agrees_with_the_batch(row):
    batch = _ExpectedSoftmax.apply(*batch_of(*row))[0]
    np.testing.assert_allclose(expected_softmax_row(*row), batch, rtol=0, atol=TOLERANCE)


@given(row=rows(), widest=st.sampled_from([1e-3, 0.1, 0.49]))
def test_a_slender_row_of_the_softmax_agrees_with_the_batch(row, widest):
    mean, variance = row
    slender = mean, variance / max(variance.max(), 1e-12) * widest**2
    batch = _ExpectedSoftmax.apply(*batch_of(*slender))[0]
    np.testing.assert_allclose(expected_softmax_row(*slender), batch, rtol=0, atol=TOLERANCE)


@given(row=rows(st.just(2)))
def test_a_row_of_two_classes_agrees_with_the_batch(row):
    many = [x.expand(_FEW_ROWS + 1, 2) for x in batch_of(*row)]
    np.testing.assert_allclose(expected_softmax_row(*row), expected_softmax(*many)[0], rtol=0, atol=TOLERANCE)


@given(mean=MEANS, variance=VARIANCES | st.floats(0.0, 1e6))
@settings(max_examples=4 * settings().max_examples)
@example(mean=-60.0, variance=60.0)
@example(mean=0.0, variance=6.25)
@example(mean=-1000.0, variance=0.0)
def test_a_sigmoid_agrees_with_the_batch(mean, variance):
    batch = softplus_moments((1,), *(torch.tensor([x], dtype=torch.float64) for x in (mean, variance)))[0].item()
    # in relation to small ones, too, save those that leave the range of floats
    assert expected_sigmoid(mean, variance) == pytest.approx(batch, rel=TOLERANCE, abs=1e-300)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100, 300])
@pytest.mark.parametrize("n", [1, 2, _FEW_ROWS, _FEW_ROWS + 1])
def test_any_number_of_rows_agrees_with_a_large_batch(n_classes, n):
    mean, variance = random_batch(40, n_classes)
    few, many = expected_softmax(mean[:n], variance[:n]), expected_softmax(mean, variance)[:n]
    torch.testing.assert_close(few, many, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (4, 2, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_few_sigmoids_keep_shape_and_dtype(shape, dtype):
    mean, variance = torch.full(shape, -1.5, dtype=dtype), torch.full(shape, 20.0, dtype=dtype)
    actual = softplus_moment(1, mean, variance)
    torch.testing.assert_close(actual, softplus_moments((1,), mean, variance)[0])


# ---------------------------------------------------------------------------------------------------------------------
# Ends of the range of floats


@pytest.mark.parametrize("n", [1, _FEW_ROWS + 1], ids=["row", "batch"])
@pytest.mark.parametrize(
    "mean", [[1e308, -1e308, 1.0], [-1.7e308, -1.7e308, -1.7e308], [0.0, -1.7e308, -1e300]], ids=str
)
@pytest.mark.parametrize("variance", [0.0, 400.0])
def test_means_at_the_ends_of_the_floats_give_the_softmax_of_those_that_can_win(n, mean, variance):
    means = torch.tensor(mean, dtype=torch.float64).expand(n, 3)
    variances = torch.full_like(means, variance)
    expected = torch.softmax(means, -1)  # one, or all alike: without variance or with it
    torch.testing.assert_close(expected_softmax(means, variances), expected, rtol=0, atol=1e-6)
    assert expected_logsumexp(means, variances).isfinite().all()


def test_float32_means_at_the_ends_of_the_floats_are_finite():
    mean = torch.tensor([[3e38, -3e38, 0.0]])
    torch.testing.assert_close(expected_softmax(mean, torch.ones(1, 3)), torch.tensor([[1.0, 0.0, 0.0]]))


# ---------------------------------------------------------------------------------------------------------------------
# Derivatives are not lost where there is no graph in numpy


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("which", [0, 1], ids=["mean", "variance"])
def test_a_row_that_is_differentiated_keeps_its_graph(n_classes, which):
    arguments = random_batch(1, n_classes)
    arguments[which].requires_grad_()
    probs = expected_softmax(*arguments)
    assert probs.requires_grad
    with torch.no_grad():
        assert not expected_softmax(*arguments).requires_grad
        torch.testing.assert_close(expected_softmax(*arguments), probs.detach(), rtol=0, atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own make_dual
@pytest.mark.parametrize("n_classes", [2, 3])
def test_forward_derivatives_of_a_row_are_an_error_as_those_of_a_batch_are(n_classes):
    mean, variance = random_batch(1, n_classes)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp"):
        expected_softmax(forward_ad.make_dual(mean, torch.ones_like(mean)), variance)


def test_arguments_are_left_as_they_are():
    row = np.array([1.0, 0.0, -1.0]), np.array([4.0, 0.0, 1.0])
    expected_softmax_row(*row)
    np.testing.assert_array_equal(row, [[1.0, 0.0, -1.0], [4.0, 0.0, 1.0]])


# ---------------------------------------------------------------------------------------------------------------------
# Speed


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, 10, 100])
def test_a_row_takes_less_than_half_the_time_of_a_batch_of_one(n_classes):
    arguments = random_batch(1, n_classes)
    times = best_times(
        {"row": lambda: expected_softmax(*arguments), "batch": lambda: _ExpectedSoftmax.apply(*arguments)}, n_repeats=50
    )
    assert times["row"] < 0.5 * times["batch"]
