"""What holds for every parameter, over log-uniform ones."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Beta, Gamma, InverseGamma, Kumaraswamy

from gaussify.matching import MatchMethod, match
from oracles import assert_matches

METHODS = [method.value for method in MatchMethod]
IN_BASIS = ["laplace", "variational", "moment"]


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def number(value: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


concentrations = log_uniform(1e-4, 1e6)
rates = log_uniform(1e-4, 1e4)


def assert_proper(q: torch.distributions.Normal) -> None:
    assert math.isfinite(q.mean.item())
    assert 0.0 < q.variance.item() < math.inf


@pytest.mark.parametrize("method", METHODS)
@given(a=concentrations, b=rates)
def test_gamma_gives_a_proper_gaussian(method, a, b):
    assert_proper(match(Gamma(number(a), number(b)), method))


@pytest.mark.parametrize("method", IN_BASIS)
@given(a=concentrations, b=concentrations)
def test_beta_gives_a_proper_gaussian(method, a, b):
    assert_proper(match(Beta(number(a), number(b)), method))


@pytest.mark.parametrize("method", IN_BASIS)
@given(a=concentrations, b=rates)
def test_inverse_gamma_gives_a_proper_gaussian(method, a, b):
    assert_proper(match(InverseGamma(number(a), number(b)), method))


@pytest.mark.parametrize("method", IN_BASIS)
@given(a=log_uniform(0.1, 50.0), b=log_uniform(0.1, 50.0))
def test_numerical_matching_gives_a_proper_gaussian(method, a, b):
    assert_proper(match(Kumaraswamy(number(a), number(b)), method))


@pytest.mark.parametrize("method", METHODS)
@given(a=concentrations, b=rates, c=rates)
def test_scaling_the_rate_of_a_gamma_only_shifts_the_mean(method, a, b, c):
    before, after = (match(Gamma(number(a), number(rate)), method) for rate in (b, c * b))
    assert after.variance.item() == before.variance.item()
    assert after.mean.item() == pytest.approx(before.mean.item() - math.log(c), rel=1e-13, abs=1e-13 * 20)


@pytest.mark.parametrize("method", IN_BASIS)
@given(a=concentrations, b=concentrations)
def test_reflecting_a_beta_reflects_the_gaussian(method, a, b):
    q = match(Beta(number(a), number(b)), method)
    assert_matches(match(Beta(number(b), number(a)), method), -q.mean, q.variance, "exact")


@pytest.mark.parametrize("method", METHODS)
@given(a=concentrations, b=rates)
def test_gamma_in_float32_agrees_with_float64(method, a, b):
    single = Gamma(number(a, torch.float32), number(b, torch.float32))
    double = match(Gamma(single.concentration.double(), single.rate.double()), method)
    assert_matches(match(single, method), double.mean, double.variance, torch.float32)


@pytest.mark.parametrize("method", IN_BASIS)
@given(a=concentrations, b=concentrations)
def test_beta_in_float32_agrees_with_float64(method, a, b):
    a, b = number(a, torch.float32), number(b, torch.float32)
    double = match(Beta(a.double(), b.double()), method)
    assert_matches(match(Beta(a, b), method), double.mean, double.variance, torch.float32)


def kl_from_gaussian(a: float, b: float, mean: float, variance: float) -> float:
    """KL(q || p) up to a constant, p the density of a log-Gamma: E_q[-a psi + b exp(psi)] less the entropy of q."""
    return -0.5 * math.log(variance) - a * mean + b * math.exp(mean + 0.5 * variance)


def kl_to_gaussian(a: float, b: float, mean: float, variance: float) -> float:
    """KL(p || q) up to a constant, from the mean and variance of p."""
    centre, spread = torch.digamma(number(a)).item() - math.log(b), torch.polygamma(1, number(a)).item()
    return 0.5 * math.log(variance) + 0.5 * (spread + (centre - mean) ** 2) / variance


@pytest.mark.parametrize("other", ["laplace", "moment", "moment-ori"])
@given(a=log_uniform(0.05, 1e3), b=log_uniform(1e-2, 1e2))
def test_variational_has_the_smallest_kl_from_the_gaussian(other, a, b):
    best, q = (match(Gamma(number(a), number(b)), method) for method in ("variational", other))
    least = kl_from_gaussian(a, b, best.mean.item(), best.variance.item())
    try:
        value = kl_from_gaussian(a, b, q.mean.item(), q.variance.item())
    except OverflowError:
        value = math.inf
    assert least <= value + 1e-12 * (1.0 + abs(least))


@pytest.mark.parametrize("other", ["laplace", "variational", "moment-ori"])
@given(a=log_uniform(0.05, 1e3), b=log_uniform(1e-2, 1e2))
def test_moment_has_the_smallest_kl_to_the_gaussian(other, a, b):
    best, q = (match(Gamma(number(a), number(b)), method) for method in ("moment", other))
    least = kl_to_gaussian(a, b, best.mean.item(), best.variance.item())
    assert least <= kl_to_gaussian(a, b, q.mean.item(), q.variance.item()) + 1e-8 * (1.0 + abs(least))


@pytest.mark.parametrize(
    ("method", "kl"), [("variational", kl_from_gaussian), ("moment", kl_to_gaussian)], ids=["from", "to"]
)
@pytest.mark.parametrize("nudge", [(0.1, 1.0), (-0.1, 1.0), (0.0, 1.2), (0.0, 0.8)], ids=str)
@given(a=log_uniform(0.05, 1e3))
def test_every_nudge_of_the_best_gaussian_is_worse(method, kl, nudge, a):
    q = match(Gamma(number(a), number(1.0)), method)
    mean, variance = q.mean.item(), q.variance.item()
    nudged = mean + nudge[0] * variance**0.5, variance * nudge[1]
    assert kl(a, 1.0, *nudged) > kl(a, 1.0, mean, variance)
