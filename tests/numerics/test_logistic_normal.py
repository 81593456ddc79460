"""Expectations of the softplus and its derivatives under a Gaussian."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gaussify._numerics._logistic_normal as logistic_normal
from gaussify._numerics import expected_sigmoid, softplus_moment, softplus_moments
from oracles import softplus_moments_reference
from sampled import one_in

ORDERS = (0, 1, 2, 3, 4)
VARIANCES = [0.0, 1e-6, 0.01, 1.0, 4.0, 6.2, 6.3, 7.8, 7.9, 12.0, 15.9, 16.1, 40.0, 1e4, 1e6]
MEANS = [-200.0, -30.0, -3.0, 0.0, 0.5, 8.0, 90.0]
TOLERANCE = {order: {"rel": 1e-10, "abs": 1e-14} for order in ORDERS}
TOLERANCE[4]["abs"] = 2e-12  # it changes sign, and the rules are weakest where they change over


def tensors(*values: object, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [torch.tensor(value, dtype=dtype) for value in values]


@one_in(3, "mean", MEANS, "variance", VARIANCES)
def test_moments_agree_with_mpmath(mean, variance):
    expected = softplus_moments_reference(mean, variance, ORDERS)
    for order in ORDERS:
        actual = softplus_moment(order, *tensors(mean, variance)).item()
        assert actual == pytest.approx(expected[order], **TOLERANCE[order]), f"order {order}"


@pytest.mark.parametrize(("mean", "variance"), [(-20.0, 4.0), (-35.0, 6.0), (-45.0, 6.4), (-300.0, 1e3)], ids=str)
def test_small_probabilities_keep_their_relative_accuracy(mean, variance):
    expected = softplus_moments_reference(mean, variance, (1, 2))
    actual = [softplus_moment(order, *tensors(mean, variance)).item() for order in (1, 2)]
    assert actual == pytest.approx(expected, rel=1e-8, abs=0.0)


@one_in(2, "mean", [-40.0, -15.5, -10.6, -4.0, -0.3, -1e-9], "scale", [0.3, 0.5, 1.5, 2.8, 3.4, 4.0, 4.1])
def test_probabilities_agree_with_mpmath_where_poles_are_corrected_for_and_beyond(mean, scale):
    (expected,) = softplus_moments_reference(mean, scale**2, (1,))
    assert softplus_moment(1, *tensors([mean] * 20, scale**2))[7].item() == pytest.approx(expected, rel=2e-10, abs=0.0)
    assert expected_sigmoid(mean, scale**2) == pytest.approx(expected, rel=2e-10, abs=0.0)


@pytest.mark.parametrize("variance", [0.0, 1e-8, 1.0, 12.0, 1e4], ids="v={:g}".format)
@pytest.mark.parametrize("mean", [1e8, 1e200], ids="m={:g}".format)
def test_means_beyond_all_bounds_are_certain(mean, variance):
    assert expected_sigmoid(mean, variance) == 1.0
    assert expected_sigmoid(-mean, variance) == 0.0
    batch = softplus_moment(1, *tensors([-mean, mean] * 10, variance))
    assert batch.tolist() == [0.0, 1.0] * 10


@pytest.mark.parametrize(("mean", "variance"), [(-60.0, 6.4), (-100.0, 7.0), (-200.0, 7.0), (-200.0, 50.0)], ids=str)
def test_tiny_probabilities_of_wide_gaussians_are_not_lost(mean, variance):
    # for mean + 2 variance << 0 the sigmoid is its tail exp(f), of expectation exp(mean + variance / 2)
    actual = softplus_moment(1, *tensors(mean, variance))
    assert actual.log().item() == pytest.approx(mean + 0.5 * variance, rel=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_several_orders_at_once_equal_one_at_a_time(order):
    mean, variance = tensors(MEANS, [0.3, 2.0, 5.0, 6.25, 10.0, 0.0, 1e3])
    together = softplus_moments(ORDERS, mean, variance)[order]
    torch.testing.assert_close(together, softplus_moment(order, mean, variance), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("order", "s"), [(0, 1.5), (0, 2.8), (1, 4.0), (2, 2.5), (3, 2.5), (4, 2.5)])
def test_two_rules_meet_where_they_change_over(order, s, monkeypatch):
    rules = []
    for name in ("_narrow_rule", "_paired_rule", "_central_rule", "_wide_rule"):
        original = getattr(logistic_normal, name)
        spy = lambda *a, own=original, which=name, **k: rules.append((which, *k.values())) or own(*a, **k)  # noqa: E731
        monkeypatch.setattr(logistic_normal, name, spy)
    narrow, wide = tensors(s**2 * (1.0 - 1e-14), s**2 * (1.0 + 1e-14))
    mean = torch.linspace(-40.0, 40.0, 81, dtype=torch.float64)
    before, after = (softplus_moment(order, mean, variance) for variance in (narrow, wide))
    torch.testing.assert_close(before, after, rtol=1e-10, atol=3e-12)
    assert len(set(rules)) >= 2  # there are two


def test_softplus_and_its_reflection_differ_by_the_mean():
    mean, variance = torch.meshgrid(*tensors(MEANS, VARIANCES), indexing="ij")
    difference = softplus_moment(0, mean, variance) - softplus_moment(0, -mean, variance)
    torch.testing.assert_close(difference, mean, rtol=1e-13, atol=1e-12)


def test_sigmoid_and_its_reflection_sum_to_one():
    mean, variance = torch.meshgrid(*tensors(MEANS, VARIANCES), indexing="ij")
    total = softplus_moment(1, mean, variance) + softplus_moment(1, -mean, variance)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0.0, atol=1e-12)


def test_zero_variance_is_the_sigmoid():
    (mean,) = tensors(MEANS)
    actual = softplus_moment(1, mean, torch.zeros_like(mean))
    torch.testing.assert_close(actual, torch.sigmoid(mean), rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_first_derivatives_agree_with_differences(order):
    mean, variance = (x.requires_grad_() for x in tensors([-3.0, 0.2, 1.0, 5.0], [0.4, 3.0, 9.0, 100.0]))
    assert gradcheck(lambda m, v: softplus_moment(order, m, v), (mean, variance))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_second_derivatives_agree_with_differences(order):
    mean, variance = (x.requires_grad_() for x in tensors([-3.0, 0.2, 1.0, 5.0], [0.4, 3.0, 9.0, 100.0]))
    assert gradgradcheck(lambda m, v: softplus_moment(order, m, v), (mean, variance))


def test_derivatives_at_zero_variance_are_those_of_the_softplus():
    mean, variance = (x.requires_grad_() for x in tensors(0.7, 0.0))
    grad_mean, grad_variance = torch.autograd.grad(softplus_moment(0, mean, variance), (mean, variance))
    p = torch.sigmoid(mean)
    torch.testing.assert_close(grad_mean, p)
    torch.testing.assert_close(grad_variance, 0.5 * p * (1.0 - p))


def test_mean_and_variance_broadcast():
    mean, variance = torch.zeros(3, 1).double(), torch.ones(4).double()
    assert softplus_moment(1, mean, variance).shape == (3, 4)


def test_gradients_of_broadcast_arguments_have_their_shapes():
    mean, variance = torch.zeros(3, 1).double().requires_grad_(), torch.ones(4).double().requires_grad_()
    softplus_moment(1, mean, variance).sum().backward()
    assert mean.grad.shape == (3, 1)
    assert variance.grad.shape == (4,)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5000,)], ids=str)
def test_every_shape_is_kept(shape):
    assert softplus_moment(1, torch.zeros(shape), torch.ones(shape)).shape == shape


@pytest.mark.parametrize("order", ORDERS)
def test_float32_in_gives_float32_out(order):
    mean, variance = tensors(MEANS, [0.3, 2.0, 5.0, 6.25, 10.0, 0.0, 1e3], dtype=torch.float32)
    actual = softplus_moment(order, mean, variance)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, softplus_moment(order, mean.double(), variance.double()).float())
