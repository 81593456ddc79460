"""Expectations of the softmax and the log-sum-exp under independent Gaussian latents."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from gaussify._numerics import expected_logsumexp, expected_softmax, expected_softmax_row, softmax_uncertainty
from gaussify._numerics._softmax_normal import _all_moments, _ExpectedLogsumexp, _ExpectedSoftmax
from gaussify._numerics._softmax_rule import NARROW_LIMIT, SLENDER_LIMIT
from gaussify.experiments._lab._timing import best_times
from oracles import softmax_reference, softmax_tensor_product
from sampled import one_in

TOLERANCE = {
    "probs": 1e-6,  # absolute, against the reference, for variances up to 400
    "probs-wide": 2e-5,  # and beyond
    "logsumexp": 3e-5,  # absolute or relative
    "continuity": 3e-6,  # of entropies and log-sum-exps where the rule changes
    "exact": 1e-12,  # limits and symmetries
    "gradcheck": {"eps": 1e-3, "atol": 2e-5, "rtol": 1e-3},
}
SPREADS = [0.0, 1.0, 5.0, 30.0, 300.0]
PATTERNS = {
    "all zero": lambda rng, c: np.zeros(c),
    "small": lambda rng, c: rng.uniform(0.0, 0.1, c),
    "up to 400": lambda rng, c: rng.uniform(0.0, 400.0, c),
    "all 400": lambda rng, c: np.full(c, 400.0),
    "half 0 half 400": lambda rng, c: np.where(np.arange(c) % 2 == 0, 0.0, 400.0),
    "6e-6 to 400": lambda rng, c: np.exp(rng.uniform(np.log(6e-6), np.log(400.0), c)),
    "all 9": lambda rng, c: np.full(c, 9.0),
    "up to 1/4": lambda rng, c: rng.uniform(0.0, 0.2499, c),  # the end of the rule for slender rows
    "all 1/4": lambda rng, c: np.full(c, 0.2499),
    "half 0 half 1/4": lambda rng, c: np.where(np.arange(c) % 2 == 0, 0.0, 0.2499),
    "up to 9": lambda rng, c: rng.uniform(0.0, 8.999, c),  # the end of the one for narrow rows
}


def softmax_spread(mean, variance):
    """Expected p and expected p (1 - p)."""
    return _all_moments(mean.detach(), variance.detach())[:2]


def rows(n_classes: int, pattern: str, spreads: list[float] = SPREADS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One row for each spread of the means."""
    rng = np.random.default_rng([seed, n_classes, list(PATTERNS).index(pattern)])
    mean = np.stack([spread * rng.normal(size=n_classes) for spread in spreads])
    return mean, np.stack([PATTERNS[pattern](rng, n_classes) for _ in spreads])


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]


def mixed_batch(n_classes: int) -> list[torch.Tensor]:
    """Every pattern and spread."""
    parts = [rows(n_classes, pattern, seed=1) for pattern in PATTERNS]
    return tensors(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def largest_error(actual: torch.Tensor, expected: object) -> float:
    return float((actual - torch.as_tensor(np.asarray(expected))).abs().max())


# ---------------------------------------------------------------------------------------------------------------------
# The reference itself


@pytest.mark.parametrize("variance", [[0.0, 0.0, 0.0], [0.5, 2.0, 4.0], [9.0, 0.0, 1.0]], ids=str)
def test_reference_agrees_with_a_rule_over_all_latents(variance):
    mean, variance = np.array([0.3, -1.0, 2.0]), np.array(variance)
    probs, _, logsumexp = softmax_tensor_product(mean, variance)
    by_identity = softmax_reference(mean, variance)
    assert by_identity[0] == pytest.approx(probs, abs=1e-10)
    assert by_identity[1] == pytest.approx(logsumexp, abs=1e-10)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_reference_has_converged(pattern):
    for mean, variance in zip(*rows(10, pattern), strict=True):
        coarse, fine = (softmax_reference(mean, variance, step=step) for step in (0.1, 0.06))
        assert coarse[0] == pytest.approx(fine[0], abs=1e-11)
        assert coarse[1] == pytest.approx(fine[1], abs=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Accuracy


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("n_classes", [3, 10, 60, pytest.param(300, marks=pytest.mark.slow)])
def test_expected_softmax_agrees_with_the_reference(n_classes, pattern):
    mean, variance = rows(n_classes, pattern)
    expected = np.stack([softmax_reference(*row)[0] for row in zip(mean, variance, strict=True)])
    assert largest_error(expected_softmax(*tensors(mean, variance)), expected) < TOLERANCE["probs"]


@one_in(4, "pattern", ["6e-6 to 400", "up to 400"], "spread", [30.0, 1.0])
def test_expected_softmax_of_1000_classes_agrees_with_the_reference(pattern, spread):
    mean, variance = rows(1000, pattern, spreads=[spread])
    expected = np.stack([softmax_reference(*row)[0] for row in zip(mean, variance, strict=True)])
    assert largest_error(expected_softmax(*tensors(mean, variance)), expected) < TOLERANCE["probs"]


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, 4, 7, 20])
def test_expected_softmax_agrees_with_the_reference_on_many_random_rows(n_classes):
    for seed in range(40):
        for pattern in PATTERNS:
            mean, variance = rows(n_classes, pattern, seed=100 + seed)
            expected = np.stack([softmax_reference(*row)[0] for row in zip(mean, variance, strict=True)])
            assert largest_error(expected_softmax(*tensors(mean, variance)), expected) < TOLERANCE["probs"], (
                seed,
                pattern,
            )


@pytest.mark.parametrize("variance", [[827.0, 895.0, 1.27], [1e4, 1e4, 1.0], [1e6, 1e6, 0.0], [1e6] * 3], ids=str)
def test_expected_softmax_stays_accurate_for_variances_beyond_400(variance):
    mean, variance = np.array([0.3 * variance[0] ** 0.5, 0.0, 0.0]), np.array(variance)
    expected, _ = softmax_reference(mean, variance)
    assert largest_error(expected_softmax(*tensors(mean[None], variance[None])), expected) < TOLERANCE["probs-wide"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("n_classes", [3, 10, 60])
def test_expected_logsumexp_agrees_with_the_reference(n_classes, pattern):
    mean, variance = rows(n_classes, pattern)
    expected = np.array([softmax_reference(*row)[1] for row in zip(mean, variance, strict=True)])
    actual = expected_logsumexp(*tensors(mean, variance))
    assert actual.numpy() == pytest.approx(expected, rel=TOLERANCE["logsumexp"], abs=TOLERANCE["logsumexp"])


def test_expected_logsumexp_agrees_with_sampling():
    mean, variance = tensors([[0.5, -1.0, 2.0, 0.0]], [[4.0, 9.0, 0.1, 1.0]])
    noise = torch.randn(1_000_000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    samples = torch.logsumexp(mean + variance.sqrt() * noise, -1)
    error = abs(expected_logsumexp(mean, variance).item() - samples.mean().item())
    assert error < 5.0 * samples.std().item() / 1000.0


SLENDER_ROWS = [[1e-4, 1e-3, 1e-5], [0.01, 0.01, 0.01], [0.2, 0.05, 0.1], [0.2499, 0.0, 0.2499], [0.2499] * 3]


@pytest.mark.parametrize(
    "variance", [[0.0, 0.0, 0.0], *SLENDER_ROWS, [0.2501] * 3, [0.5, 2.0, 4.0], [9.0, 0.0, 1.0]], ids=str
)
def test_softmax_spread_agrees_with_a_rule_over_all_latents(variance):
    mean, variance = np.array([0.3, -1.0, 2.0]), np.array(variance)
    probs, spread, _ = softmax_tensor_product(mean, variance)
    actual = softmax_spread(*tensors(mean[None], variance[None]))
    assert largest_error(actual[0][0], probs) < TOLERANCE["probs"]
    assert largest_error(actual[1][0], spread) < 2.0 * TOLERANCE["probs"]


@one_in(3, "variance", SLENDER_ROWS, "mean", [[0.3, -1.0, 2.0], [0.0, 0.0, 0.0], [6.0, 0.0, -6.0]])
def test_deviations_of_slender_rows_agree_with_a_rule_over_all_latents(mean, variance):
    probs, spread, logsumexp = softmax_tensor_product(np.array(mean), np.array(variance))
    actual = softmax_uncertainty(*tensors([mean], [variance]))
    assert largest_error(actual[0][0], probs) < TOLERANCE["probs"]
    assert largest_error(actual[1][0], probs * (1.0 - probs) - spread) < TOLERANCE["probs"]
    actual = expected_logsumexp(*tensors([mean], [variance])).item()
    assert actual == pytest.approx(logsumexp, abs=TOLERANCE["continuity"])


def test_softmax_spread_of_two_classes_agrees_with_the_one_of_three():
    mean, variance = tensors([[0.4, -0.3]], [[2.0, 3.0]])
    third = torch.full((1, 1), -200.0, dtype=torch.float64)  # a class that never wins
    pair = softmax_spread(mean, variance)
    triple = softmax_spread(torch.cat([mean, third], -1), torch.cat([variance, torch.zeros_like(third)], -1))
    for two, three in zip(pair, triple, strict=True):
        assert largest_error(three[:, :2], two) < 2.0 * TOLERANCE["probs"]


# ---------------------------------------------------------------------------------------------------------------------
# From one rule to the next


def on_both_sides(limit: float, n_classes: int) -> list[list[torch.Tensor]]:
    """The same rows, their widest scale just below the limit and just above."""
    rng = np.random.default_rng(n_classes)
    mean = np.array(SPREADS[:3])[:, None] * rng.normal(size=(3, n_classes))
    scale = rng.uniform(0.0, limit, size=(3, n_classes))
    scale[:, 0] = limit
    return [tensors(mean, (factor * scale) ** 2) for factor in (1.0 - 1e-10, 1.0 + 1e-10)]


limits = pytest.mark.parametrize("limit", [SLENDER_LIMIT, NARROW_LIMIT])
numbers_of_classes = pytest.mark.parametrize("n_classes", [3, 4, 10, 100])


@limits
@numbers_of_classes
def test_probabilities_are_continuous_from_rule_to_rule(limit, n_classes):
    below, above = on_both_sides(limit, n_classes)
    assert largest_error(_ExpectedSoftmax.apply(*above), _ExpectedSoftmax.apply(*below)) < TOLERANCE["probs"]
    for one_below, one_above in zip(zip(*below, strict=True), zip(*above, strict=True), strict=True):
        before, after = (expected_softmax_row(*(x.numpy() for x in row)) for row in (one_below, one_above))
        assert np.abs(after - before).max() < TOLERANCE["probs"]


@limits
@numbers_of_classes
def test_variances_and_entropies_are_continuous_from_rule_to_rule(limit, n_classes):
    (_, variance, entropy), (_, later_variance, later_entropy) = (
        softmax_uncertainty(*rows) for rows in on_both_sides(limit, n_classes)
    )
    assert largest_error(later_variance, variance) < TOLERANCE["probs"]
    assert largest_error(later_entropy, entropy) < TOLERANCE["continuity"]


@limits
@numbers_of_classes
def test_the_logsumexp_is_continuous_from_rule_to_rule(limit, n_classes):
    below, above = (expected_logsumexp(*rows) for rows in on_both_sides(limit, n_classes))
    assert largest_error(above, below) < TOLERANCE["continuity"]


@limits
@numbers_of_classes
def test_gradients_are_continuous_from_rule_to_rule(limit, n_classes):
    direction = torch.randn(3, n_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gradients = []
    for rows in on_both_sides(limit, n_classes):
        arguments = [x.requires_grad_() for x in rows]
        gradients.append(torch.autograd.grad((expected_softmax(*arguments) * direction).sum(), arguments))
    for before, after in zip(*gradients, strict=True):
        assert largest_error(after, before) < 1e-5


# ---------------------------------------------------------------------------------------------------------------------
# Limits and symmetries


@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
def test_zero_variance_gives_the_softmax(n_classes):
    (mean,) = tensors(rows(n_classes, "all zero")[0])
    zero = torch.zeros_like(mean)
    assert largest_error(expected_softmax(mean, zero), torch.softmax(mean, -1)) < TOLERANCE["exact"]


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_zero_variance_gives_the_logsumexp(n_classes):
    (mean,) = tensors(rows(n_classes, "all zero")[0])
    expected = torch.logsumexp(mean, -1)
    torch.testing.assert_close(expected_logsumexp(mean, torch.zeros_like(mean)), expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 60, 300])
def test_rows_sum_to_one(n_classes):
    probs = expected_softmax(*mixed_batch(n_classes))
    assert largest_error(probs.sum(-1), np.ones(probs.shape[0])) < 1e-6
    assert (probs >= 0).all()


@pytest.mark.parametrize("function", [expected_softmax, expected_logsumexp], ids=lambda function: function.__name__)
@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
def test_a_row_does_not_depend_on_its_batch(n_classes, function):
    mean, variance = mixed_batch(n_classes)
    together = function(mean, variance)
    order = torch.randperm(mean.shape[0], generator=torch.Generator().manual_seed(0))
    permuted = function(mean[order], variance[order])
    alone = torch.cat([function(m[None], v[None]) for m, v in zip(mean, variance, strict=True)])
    torch.testing.assert_close(permuted, together[order], rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(alone, together, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
def test_permuting_the_classes_permutes_the_probabilities(n_classes):
    mean, variance = mixed_batch(n_classes)
    order = torch.randperm(n_classes, generator=torch.Generator().manual_seed(0))
    permuted = expected_softmax(mean[:, order], variance[:, order])
    assert largest_error(permuted, expected_softmax(mean, variance)[:, order]) < 1e-11


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("shift", [-1000.0, 3.3, 1e4])
def test_shifting_all_means_changes_nothing(n_classes, shift):
    mean, variance = mixed_batch(n_classes)
    assert largest_error(expected_softmax(mean + shift, variance), expected_softmax(mean, variance)) < 1e-9


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_shifting_all_means_shifts_the_logsumexp(n_classes):
    mean, variance = mixed_batch(n_classes)
    shifted = expected_logsumexp(mean + 3.3, variance) - 3.3
    torch.testing.assert_close(shifted, expected_logsumexp(mean, variance), rtol=1e-9, atol=1e-9)


def test_equal_latents_have_equal_probabilities():
    mean, variance = tensors(np.zeros((4, 7)), np.array([[0.0], [1.0], [9.0], [400.0]]).repeat(7, axis=1))
    assert largest_error(expected_softmax(mean, variance), np.full((4, 7), 1.0 / 7.0)) < TOLERANCE["exact"]


def test_two_classes_agree_with_the_general_path():
    mean, variance = mixed_batch(2)
    assert largest_error(_ExpectedSoftmax.apply(mean, variance), expected_softmax(mean, variance)) < TOLERANCE["probs"]


def test_logsumexp_of_two_classes_agrees_with_the_general_path():
    mean, variance = mixed_batch(2)
    expected = expected_logsumexp(mean, variance)
    tolerance = TOLERANCE["logsumexp"]
    torch.testing.assert_close(_ExpectedLogsumexp.apply(mean, variance), expected, rtol=tolerance, atol=tolerance)


def test_two_classes_are_one_logistic_gaussian_integral():
    # P(class 1) for a difference N(1, 4): int sigmoid(f) N(f | 1, 4) df by a dense rule
    f = np.linspace(-40.0, 40.0, 80_001)
    density = np.exp(-0.5 * (f - 1.0) ** 2 / 4.0) / np.sqrt(8.0 * np.pi)
    expected = np.trapezoid(density / (1.0 + np.exp(-f)), f)
    actual = expected_softmax(*tensors([[0.5, 1.5]], [[1.0, 3.0]]))
    assert actual[0, 1].item() == pytest.approx(expected, abs=1e-11)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients, dtypes and shapes


@pytest.mark.parametrize("function", [expected_softmax, expected_logsumexp], ids=lambda function: function.__name__)
@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_gradients_agree_with_differences(function, n_classes):
    generator = torch.Generator().manual_seed(n_classes)
    mean = torch.randn(3, n_classes, dtype=torch.float64, generator=generator) * 2.0
    variance = torch.rand(3, n_classes, dtype=torch.float64, generator=generator) * torch.tensor([[0.5], [4.0], [30.0]])
    arguments = mean.requires_grad_(), (variance + 0.05).requires_grad_()
    assert gradcheck(function, arguments, **TOLERANCE["gradcheck"])


@pytest.mark.parametrize("function", [expected_softmax, expected_logsumexp], ids=lambda function: function.__name__)
@pytest.mark.parametrize("n_classes", [3, 6])
@pytest.mark.parametrize("scale", [0.1, 0.3, 0.49])
def test_gradients_of_slender_rows_agree_with_differences(function, n_classes, scale):
    generator = torch.Generator().manual_seed(n_classes)
    mean = 2.0 * torch.randn(3, n_classes, dtype=torch.float64, generator=generator)
    variance = scale**2 * (0.5 + 0.5 * torch.rand(3, n_classes, dtype=torch.float64, generator=generator))
    assert gradcheck(function, (mean.requires_grad_(), variance.requires_grad_()), **TOLERANCE["gradcheck"])


def test_gradients_of_the_logsumexp_are_the_probabilities_and_their_spread():
    mean, variance = (x.requires_grad_() for x in tensors(*rows(5, "all 9", spreads=[1.0, 5.0])))
    grads = torch.autograd.grad(expected_logsumexp(mean, variance).sum(), (mean, variance))
    probs, spread = softmax_spread(mean, variance)
    torch.testing.assert_close(grads[0], probs)
    torch.testing.assert_close(grads[1], 0.5 * spread)


def test_gradient_at_zero_variance_is_that_of_the_softmax():
    mean, variance = (x.requires_grad_() for x in tensors([[0.3, -1.0, 2.0]], np.zeros((1, 3))))
    (grad,) = torch.autograd.grad(expected_softmax(mean, variance)[0, 0], mean)
    p = torch.softmax(mean.detach(), -1)
    expected = p[:, :1] * (torch.tensor([[1.0, 0.0, 0.0]]) - p)
    assert largest_error(grad, expected) < 1e-5


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_float32_in_gives_float32_out(n_classes):
    mean, variance = mixed_batch(n_classes)
    results = [
        expected_softmax(mean.float(), variance.float()),
        expected_logsumexp(mean.float(), variance.float()),
        *softmax_spread(mean.float(), variance.float()),
    ]
    assert {result.dtype for result in results} == {torch.float32}
    expected = expected_softmax(mean.float().double(), variance.float().double())
    torch.testing.assert_close(results[0], expected.float())


def test_gradients_of_float32_are_float32():
    mean, variance = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    expected_softmax(mean, variance)[:, 0].sum().backward()
    assert mean.grad.dtype == variance.grad.dtype == torch.float32


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_rows_give_no_rows(n_classes):
    empty = torch.zeros(0, n_classes)
    assert expected_softmax(empty, empty).shape == (0, n_classes)


def test_means_as_large_as_floats_are_finite():
    mean = torch.tensor([[0.0, 1e300, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(
        expected_softmax(mean, torch.ones_like(mean)), torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    )


def test_a_float32_row_does_not_depend_on_its_batch():
    generator = torch.Generator().manual_seed(0)
    mean, variance = 3.0 * torch.randn(301, 10, generator=generator), 9.0 * torch.rand(301, 10, generator=generator)
    alone = torch.cat([expected_softmax(mean[i : i + 1], variance[i : i + 1]) for i in range(0, 301, 20)])
    torch.testing.assert_close(alone, expected_softmax(mean, variance)[::20], rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expected_softmax_is_no_slower_than_averaging_256_samples(dtype):
    generator = torch.Generator().manual_seed(0)
    mean = 3.0 * torch.randn(1000, 10, generator=generator).to(dtype)
    scale = 0.5 + 2.0 * torch.rand(1000, 10, generator=generator).to(dtype)

    def average() -> torch.Tensor:
        chunks = zip(mean.split(64), scale.split(64), strict=True)
        return torch.cat(
            [torch.softmax(m + s * torch.randn(256, *m.shape, dtype=dtype), -1).mean(0) for m, s in chunks]
        )

    times = best_times({"own": lambda: expected_softmax(mean, scale.square()), "samples": average}, n_repeats=7)
    assert times["own"] <= times["samples"]
