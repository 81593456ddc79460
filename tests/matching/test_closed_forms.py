"""Every rule of matching against its definition, 50-digit values, and the identities between families."""

import numpy as np
import pytest
import torch
from torch.distributions import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    Gamma,
    HalfNormal,
    Independent,
    InverseGamma,
    LogNormal,
    Weibull,
)

from gaussify.exceptions import UnsupportedMatchError
from gaussify.matching import MatchMethod, match, to_basis
from gaussify.matching._registry import registered_matches
from oracles import DEFINITIONS, assert_matches, gamma_in_50_digits, log_density

METHODS = [method.value for method in MatchMethod]


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


# family: basis and the parameters at which the definition is evaluated; every method of MatchMethod is tested
ORACLE_TABLE = {
    Gamma: ("log", [(0.15, 2.0), (1.0, 0.3), (3.5, 7.0), (60.0, 0.01)]),
    Chi2: ("log", [(1.0,), (7.0,)]),
    Exponential: ("log", [(0.2,), (5.0,)]),
    InverseGamma: ("log", [(2.5, 3.0), (30.0, 0.4)]),
    Weibull: ("log", [(1.7, 0.6), (0.3, 2.5)]),
    HalfNormal: ("log", [(0.4,), (3.0,)]),
    LogNormal: ("log", [(-0.7, 0.5), (1.3, 1.1)]),
    Beta: ("logit", [(0.3, 0.3), (0.2, 4.0), (1.0, 1.0), (12.0, 1.5)]),
    Dirichlet: ("log", [(0.1, 1.0, 20.0)]),  # through its Gammas
}
REFUSED = {(Beta, "moment-ori")}  # no log-normal lives on the unit interval
ROWS = [
    pytest.param(family, method, parameters, id=f"{family.__name__}{parameters}-{method}")
    for family, (_, settings) in ORACLE_TABLE.items()
    for parameters in settings
    for method in METHODS
    if (family, method) not in REFUSED
]


@pytest.mark.parametrize(("family", "method", "parameters"), ROWS)
def test_rule_agrees_with_its_definition(family, method, parameters):
    basis, _ = ORACLE_TABLE[family]
    define = DEFINITIONS[method]
    if family is Dirichlet:
        actual = match(Dirichlet(number(parameters)), method).base_dist
        expected = [define(log_density(Gamma(number(alpha), number(1.0)), basis)) for alpha in parameters]
    else:
        distribution = family(*map(number, parameters))
        actual = match(distribution, method)
        expected = define(log_density(distribution, basis))
    mean, variance = np.asarray(expected).T
    assert_matches(actual, mean, variance, "oracle")


def test_every_registered_rule_has_a_row_in_the_oracle_table():
    tested = {(family, method) for family in ORACLE_TABLE for method in METHODS}
    missing = {
        (family.__name__, method.value)
        for family, method in registered_matches()
        if family.__module__.startswith("torch.") and (family, method.value) not in tested
    }
    assert not missing


def test_every_refused_rule_is_refused():
    for family, method in REFUSED:
        with pytest.raises(UnsupportedMatchError):
            match(family(number(2.0), number(3.0)), method)


# ---------------------------------------------------------------------------------------------------------------------
# 50 digits

EXTREMES = [1e-4, 1e-3, 0.1, 1.0, 1e4, 1e6]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("concentration", EXTREMES)
def test_gamma_agrees_with_50_digits(concentration, rate, method):
    actual = match(Gamma(number(concentration), number(rate)), method)
    assert_matches(actual, *gamma_in_50_digits(concentration, rate)[method], "exact")


@pytest.mark.parametrize("method", ["laplace", "variational", "moment"])
@pytest.mark.parametrize("concentration", EXTREMES)
def test_inverse_gamma_is_a_reflected_gamma_in_50_digits(concentration, method):
    mean, variance = gamma_in_50_digits(concentration, 0.7)[method]
    assert_matches(match(InverseGamma(number(concentration), number(0.7)), method), -mean, variance, "exact")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [Gamma, Beta, Dirichlet, InverseGamma], ids=lambda family: family.__name__)
def test_matching_is_finite_for_all_concentrations(family, method, dtype):
    if (family, method) in REFUSED:
        pytest.skip("not defined")
    smallest = 0.5 if (family, method) == (InverseGamma, "moment-ori") else -4.0  # defined above 2
    grid = torch.logspace(smallest, 6.0, 21, dtype=dtype)
    parameters = (grid,) if family is Dirichlet else (grid[:, None], grid)
    approximation = match(family(*parameters), method)
    assert torch.isfinite(approximation.mean).all()
    assert torch.isfinite(approximation.variance).all()
    assert (approximation.variance > 0).all()


# ---------------------------------------------------------------------------------------------------------------------
# Identities


@pytest.mark.parametrize("method", METHODS)
def test_exponential_is_a_gamma_of_concentration_one(method):
    rate = torch.logspace(-4, 4, 9, dtype=torch.float64)
    gamma = match(Gamma(torch.ones_like(rate), rate), method)
    assert_matches(match(Exponential(rate), method), gamma.mean, gamma.variance, "exact")


@pytest.mark.parametrize("method", METHODS)
def test_chi2_is_a_gamma_of_half_its_degrees_of_freedom(method):
    df = torch.logspace(-3, 4, 8, dtype=torch.float64)
    gamma = match(Gamma(0.5 * df, torch.full_like(df, 0.5)), method)
    assert_matches(match(Chi2(df), method), gamma.mean, gamma.variance, "exact")


@pytest.mark.parametrize("method", ["laplace", "moment"])
def test_difference_of_two_log_gammas_is_the_beta(method):
    a, b = torch.meshgrid(*2 * [torch.logspace(-3, 4, 8, dtype=torch.float64)], indexing="ij")
    first, second = (match(Gamma(x, torch.ones_like(x)), method) for x in (a, b))
    beta = match(Beta(a, b), method)
    assert_matches(beta, first.mean - second.mean, first.variance + second.variance, "exact")


@pytest.mark.parametrize("method", METHODS)
def test_dirichlet_is_its_gammas(method):
    concentration = torch.tensor([[0.01, 1.0, 300.0], [2.0, 0.5, 7.0]], dtype=torch.float64)
    gammas = match(Gamma(concentration, torch.ones_like(concentration)), method)
    dirichlet = match(Dirichlet(concentration), method)
    assert isinstance(dirichlet, Independent)
    assert (dirichlet.batch_shape, dirichlet.event_shape) == ((2,), (3,))
    assert_matches(dirichlet.base_dist, gammas.mean, gammas.variance, "exact")


def test_dirichlet_in_its_basis_has_the_dirichlet_as_softmax():
    concentration = torch.tensor([0.6, 2.0, 5.0], dtype=torch.float64)
    dirichlet = Dirichlet(concentration)
    n = 200_000
    with torch.random.fork_rng():  # torch distributions sample from the global generator only
        torch.manual_seed(0)
        probs = torch.softmax(to_basis(dirichlet).sample((n,)), -1)
    five_sigma = 5.0 * dirichlet.stddev / n**0.5
    assert ((probs.mean(0) - dirichlet.mean).abs() < five_sigma).all()
    second = dirichlet.variance + dirichlet.mean**2
    spread = probs.square().std(0) / n**0.5
    assert ((probs.square().mean(0) - second).abs() < 5.0 * spread).all()
    total = concentration.sum()
    cross = concentration[0] * concentration[1] / (total * (total + 1.0))
    product = probs[:, 0] * probs[:, 1]
    assert abs(product.mean() - cross) < 5.0 * product.std() / n**0.5


@pytest.mark.parametrize(
    "distribution",
    [
        Gamma(number(0.3), number(2.0)),
        InverseGamma(number(2.5), number(3.0)),
        Weibull(number(1.7), number(0.6)),
        HalfNormal(number(2.0)),
        LogNormal(number(-0.7), number(0.5)),
        Beta(number(0.4), number(3.0)),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_density_in_the_basis_integrates_to_one(distribution):
    basis = to_basis(distribution)
    basis.base_dist._validate_args = False  # points at the rim of the support
    psi = torch.linspace(-200.0, 30.0, 230_001, dtype=torch.float64)
    density = torch.exp(basis.log_prob(psi)).nan_to_num(0.0)
    assert torch.trapezoid(density, psi).item() == pytest.approx(1.0, abs=1e-9)
