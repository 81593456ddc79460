"""Moments of class probabilities from which sites are made: expansions and averages against their definition."""

import math

import numpy as np
import pytest
import torch

from gaussify._numerics import (
    sigmoid_moments,
    sigmoid_moments_row,
    softmax_moments,
    softmax_moments_row,
    softplus_moments,
)
from oracles import softmax_reference, softmax_tensor_product

SIGMOID, SLOPE, SOFTPLUS = 1, 2, 0  # orders of derivatives of the softplus
VARIANCES = [0.0, 1e-6, 0.01, 0.0299, 0.0301, 1.0, 9.0, 15.9, 16.1, 100.0, 1e4, 1e8]
CENTRES = torch.linspace(-30.0, 30.0, 121, dtype=torch.float64)


def draw(n_rows: int, n_classes: int, variance: float, spread: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Means, and variances from zero up to a largest one, which each row has."""
    generator = torch.Generator().manual_seed(n_classes)
    mean = spread * torch.randn(n_rows, n_classes, generator=generator, dtype=torch.float64)
    variances = variance * torch.rand(n_rows, n_classes, generator=generator, dtype=torch.float64) ** 2
    variances[:, 0] = variance
    variances[:, 1] = 0.0
    return mean, variances


def references(mean: torch.Tensor, variance: torch.Tensor) -> list[np.ndarray]:
    rules = [softmax_tensor_product(*row, n=51) for row in zip(mean.numpy(), variance.numpy(), strict=True)]
    return [np.array(part) for part in zip(*rules, strict=True)]


# --- one latent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
def test_sigmoid_moments_are_those_of_quadrature(variance):
    spread = torch.full_like(CENTRES, variance)
    expected = softplus_moments((SIGMOID, SLOPE, SOFTPLUS), CENTRES, spread)
    for own, reference in zip(sigmoid_moments(CENTRES, spread), expected, strict=True):
        torch.testing.assert_close(own, reference, rtol=3e-6, atol=1e-14)


def test_sigmoid_moments_of_narrow_and_wide_latents_are_those_of_each_alone():
    mean, variance = CENTRES[:60].view(20, 3), torch.tensor([0.01, 1.0, 50.0]).double().expand(20, 3)
    together = sigmoid_moments(mean, variance)
    for column in range(3):
        alone = sigmoid_moments(mean[:, column], variance[:, column])
        for whole, part in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[:, column], part, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("variance", VARIANCES)
def test_moments_of_a_row_are_those_of_the_batch(variance):
    expected = softplus_moments((SIGMOID, SLOPE), CENTRES, torch.full_like(CENTRES, variance))
    found = [sigmoid_moments_row(mean, variance) for mean in CENTRES.tolist()]
    np.testing.assert_allclose(found, torch.stack(expected, -1), rtol=0.0, atol=1e-8)


# --- many latents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variance", "tolerance"),
    [(0.0, 1e-7), (0.01, 2e-5), (0.099, 2e-3), (0.101, 2e-6), (1.0, 2e-6), (9.0, 2e-6)],
)
def test_softmax_moments_are_those_of_a_dense_rule(variance, tolerance):
    mean, spread = draw(4, 3, variance)
    for own, reference in zip(softmax_moments(mean, spread), references(mean, spread), strict=True):
        np.testing.assert_allclose(own, reference, rtol=0.0, atol=tolerance)


def test_the_expansion_is_exact_to_first_order():
    mean, variance = draw(6, 4, 0.08)
    errors = []
    for factor in (1.0, 0.25):
        rows = zip(mean.numpy(), factor * variance.numpy(), strict=True)
        probs, values = (np.array(part) for part in zip(*(softmax_reference(*row) for row in rows), strict=True))
        p, _, logsumexp = softmax_moments(mean, factor * variance)
        errors.append([np.abs(p.numpy() - probs).max(), np.abs(logsumexp.numpy() - values).max()])
    assert np.all(np.array(errors[1]) < np.array(errors[0]) / 10.0)  # an error of first order would fall to a quarter


@pytest.mark.parametrize("variance", [0.3, 1.0, 3.9])
@pytest.mark.parametrize("n_classes", [3, 6, 24])
def test_rough_moments_are_near_those_of_quadrature(n_classes, variance):
    mean, spread = draw(300, n_classes, variance)
    rough, exact = softmax_moments(mean, spread, rough=True), softmax_moments(mean, spread)
    for own, reference in zip(rough, exact, strict=True):
        errors = (own - reference).abs()
        assert errors.max() < 0.05
        assert errors.square().mean().sqrt() < 0.012
    assert (rough[2] - exact[2]).abs().max() > 0.0  # these are other rules


@pytest.mark.parametrize(("n_classes", "variance"), [(3, 0.05), (3, 0.2), (3, 4.1), (2, 1.0), (25, 1.0)])
def test_rough_moments_are_the_others_where_averages_would_not_do(n_classes, variance):
    mean, spread = draw(5, n_classes, variance)
    for own, other in zip(softmax_moments(mean, spread, rough=True), softmax_moments(mean, spread), strict=True):
        torch.testing.assert_close(own, other, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("rough", [False, True])
def test_rows_of_all_widths_are_those_of_each_alone(rough):
    parts = [draw(3, 4, variance) for variance in (0.01, 0.2, 1.0, 20.0)]
    mean, variance = (torch.cat(part)[[7, 0, 4, 9, 1, 11, 2, 3, 5, 6, 8, 10]] for part in zip(*parts, strict=True))
    together = softmax_moments(mean, variance, rough=rough)
    for row in range(len(mean)):
        alone = softmax_moments(mean[row : row + 1], variance[row : row + 1], rough=rough)
        for whole, part in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[row : row + 1], part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variance", [0.15, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_softmax_moments_of_a_row_are_those_of_the_batch(n_classes, variance):
    mean, spread = draw(10, n_classes, variance)
    p, slope, _ = softmax_moments(mean, spread)
    for row in range(len(mean)):
        own = softmax_moments_row(mean[row].numpy(), spread[row].numpy())
        np.testing.assert_allclose(own, (p[row], slope[row]), rtol=0.0, atol=5e-6)


@pytest.mark.parametrize("rough", [False, True])
def test_a_shift_of_all_latents_shifts_the_log_sum_exp(rough):
    mean, variance = draw(5, 4, 1.0)
    p, slope, logsumexp = softmax_moments(mean, variance, rough=rough)
    shifted = softmax_moments(mean + 7.0, variance, rough=rough)
    for own, other in zip((p, slope, logsumexp + 7.0), shifted, strict=True):
        torch.testing.assert_close(own, other, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rough", [False, True])
def test_extreme_latents_have_finite_moments(dtype, rough):
    for scale in (0.0, 50.0, 1e8):
        for variance in (0.0, 1e-12, 0.05, 1.0, 1e8):
            mean = scale * torch.tensor([[0.0, 1.0, -1.0], [1.0, 1.0, -3.0]], dtype=dtype)
            moments = softmax_moments(mean, torch.full_like(mean, variance), rough=rough)
            for moment in (*moments, *sigmoid_moments(mean, torch.full_like(mean, variance))):
                assert moment.dtype is dtype
                assert moment.isfinite().all(), (scale, variance)
            assert not math.isnan(sigmoid_moments_row(scale, variance)[1])
