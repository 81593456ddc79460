"""Matching of distributions without a rule of their own, from their densities."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import (
    Beta,
    Categorical,
    Chi2,
    ContinuousBernoulli,
    Distribution,
    Exponential,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogNormal,
    MixtureSameFamily,
    Pareto,
    Uniform,
    Weibull,
)

from gaussify.matching import MatchMethod, match, to_basis
from gaussify.matching._numerical import match_numerically
from oracles import DEFINITIONS, assert_matches, log_density

METHODS = ["laplace", "variational", "moment"]


def number(value: object) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def numerically(distribution: Distribution, method: str) -> torch.distributions.Normal:
    return match_numerically(distribution, to_basis(distribution), MatchMethod(method))


CLOSED_FORMS = {
    "Gamma": Gamma(number([0.05, 1.0, 30.0, 2000.0]), number([2.0, 0.1, 5.0, 1.0])),
    "Exponential": Exponential(number([0.01, 50.0])),
    "Chi2": Chi2(number([0.5, 11.0])),
    "InverseGamma": InverseGamma(number([0.2, 9.0]), number([3.0, 0.2])),
    "Weibull": Weibull(number([2.0, 0.1]), number([0.4, 3.0])),
    "HalfNormal": HalfNormal(number([0.1, 20.0])),
    "LogNormal": LogNormal(number([-3.0, 2.0]), number([0.3, 4.0])),
    "Beta": Beta(number([0.5, 2.0, 40.0]), number([0.7, 9.0, 3.0])),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("distribution", CLOSED_FORMS.values(), ids=CLOSED_FORMS)
def test_numerical_matching_agrees_with_the_closed_form(distribution, method):
    closed = match(distribution, method)
    assert_matches(numerically(distribution, method), closed.mean, closed.variance, "numerical")


GAMMAS = MixtureSameFamily(Categorical(number([0.3, 0.7])), Gamma(number([2.0, 6.0]), number([1.0, 4.0])))
# in float32: torch's own log_prob of this family fails for float64 parameters
GENERALIZED_PARETO = GeneralizedPareto(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(0.25))
OTHERS = {  # distribution, basis, ends of its support
    "Kumaraswamy(2, 5)": (Kumaraswamy(number(2.0), number(5.0)), "logit", 0.0, 1.0),
    "Kumaraswamy(0.1, 0.2)": (Kumaraswamy(number(0.1), number(0.2)), "logit", 0.0, 1.0),
    "Kumaraswamy(0.3, 4)": (Kumaraswamy(number(0.3), number(4.0)), "logit", 0.0, 1.0),
    "Pareto(2, 3)": (Pareto(number(2.0), number(3.0)), "log", 2.0, math.inf),
    "HalfCauchy(0.5)": (HalfCauchy(number(0.5)), "log", 0.0, math.inf),
    "FisherSnedecor(4, 7)": (FisherSnedecor(number(4.0), number(7.0)), "log", 0.0, math.inf),
    "Uniform(-1, 3)": (Uniform(number(-1.0), number(3.0)), "logit", -1.0, 3.0),
    "ContinuousBernoulli(0.2)": (ContinuousBernoulli(number(0.2)), "logit", 0.0, 1.0),
    "MixtureSameFamily of Gammas": (GAMMAS, "log", 0.0, math.inf),
    "GeneralizedPareto(1, 2, 0.25)": (GENERALIZED_PARETO, "log", 1.0, math.inf),
    "Gumbel(1, 2)": (Gumbel(number(1.0), number(2.0)), "real", -math.inf, math.inf),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("distribution", "basis", "lower", "upper"), OTHERS.values(), ids=OTHERS)
def test_other_families_agree_with_the_definition(distribution, basis, lower, upper, method):
    expected = DEFINITIONS[method](log_density(distribution, basis, lower, upper))
    assert_matches(match(distribution, method), *expected, "numerical")


# textbook densities in the basis: a logistic for the uniform, a hyperbolic secant for the half-Cauchy
TEXTBOOK = {
    "uniform-moment": (Uniform(number(2.0), number(7.0)), "moment", 0.0, math.pi**2 / 3.0),
    "uniform-laplace": (Uniform(number(2.0), number(7.0)), "laplace", 0.0, 2.0),
    "half-cauchy-moment": (HalfCauchy(number(3.0)), "moment", math.log(3.0), math.pi**2 / 4.0),
    "half-cauchy-laplace": (HalfCauchy(number(3.0)), "laplace", math.log(3.0), 1.0),
    "pareto-moment": (Pareto(number(2.0), number(1.0)), "moment", math.log(2.0), math.pi**2 / 3.0),
}


@pytest.mark.parametrize(("distribution", "method", "mean", "variance"), TEXTBOOK.values(), ids=TEXTBOOK)
def test_textbook_densities_are_matched(distribution, method, mean, variance):
    assert_matches(match(distribution, method), mean, variance, "numerical")


@pytest.mark.parametrize(
    ("distribution", "mean", "variance"),
    [
        pytest.param(Weibull(number(2.0), number(1.5)), 2 * math.gamma(1 + 2 / 3), None, id="Weibull"),
        pytest.param(HalfNormal(number(3.0)), 3 * math.sqrt(2 / math.pi), 9 * (1 - 2 / math.pi), id="HalfNormal"),
        pytest.param(LogNormal(number(0.3), number(0.8)), math.exp(0.3 + 0.32), None, id="LogNormal"),
        pytest.param(Pareto(number(2.0), number(4.0)), 8 / 3 - 2, 4 * 4 / (9 * 2), id="Pareto-above-its-scale"),
        pytest.param(FisherSnedecor(number(4.0), number(9.0)), 9 / 7, None, id="FisherSnedecor"),
    ],
)
def test_moment_ori_matches_the_first_two_moments_above_the_lower_end(distribution, mean, variance):
    variance = distribution.variance.item() if variance is None else variance
    q = match(distribution, "moment-ori")
    log_normal = LogNormal(q.mean, q.stddev)
    assert log_normal.mean.item() == pytest.approx(mean, rel=1e-10)
    assert log_normal.variance.item() == pytest.approx(variance, rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_matched_entry_by_entry(method):
    a = number([[0.4, 2.0, 9.0]])
    b = number([[1.0], [3.0]])
    together = match(Kumaraswamy(a, b), method)
    assert together.batch_shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        alone = match(Kumaraswamy(a[0, j], b[i, 0]), method)
        assert together.mean[i, j].item() == pytest.approx(alone.mean.item(), abs=1e-9)
        assert together.variance[i, j].item() == pytest.approx(alone.variance.item(), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda logs: FisherSnedecor(*logs.exp()), id="FisherSnedecor"),
        pytest.param(lambda logs: Kumaraswamy(*logs.exp()), id="Kumaraswamy"),
    ],
)
def test_gradients_agree_with_differences(build, method):
    logs = number([0.9, 1.4]).requires_grad_()

    def mean_and_variance(logs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = match(build(logs), method)
        return q.mean, q.variance

    assert torch.autograd.gradcheck(mean_and_variance, logs, eps=1e-4, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_through_a_half_line_agree_with_differences(method):
    logs = number([0.5]).requires_grad_()

    def mean_and_variance(logs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = match(HalfCauchy(logs.exp()), method)
        return q.mean, q.variance

    assert torch.autograd.gradcheck(mean_and_variance, logs, eps=1e-4, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("single", "double"),
    [
        pytest.param(Kumaraswamy(torch.tensor(2.0), torch.tensor(5.0)), OTHERS["Kumaraswamy(2, 5)"][0], id="unit"),
        pytest.param(HalfCauchy(torch.tensor(0.5)), OTHERS["HalfCauchy(0.5)"][0], id="half-line"),
    ],
)
def test_float32_parameters_keep_float32(single, double, method):
    q, expected = match(single, method), match(double, method)
    assert q.mean.dtype == q.stddev.dtype == torch.float32
    assert_matches(q, expected.mean, expected.variance, torch.float32)
