import itertools
import math

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Gamma

from gaussify.experiments import get, load
from gaussify.experiments.paper._densities import (
    approximation,
    beta_log_density,
    gamma_log_density,
    kl_from_exact,
    kl_to_exact,
    log_jacobian,
    negative_entropy,
    transformed_moments,
)
from gaussify.experiments.paper._densities_figures import METHODS
from gaussify.matching import to_basis
from gaussify.plotting._style import METHOD_COLOURS

PARAMETERS = [
    ("gamma", 0.01, 1.0),
    ("gamma", 0.3, 2.5),
    ("gamma", 1.0, 1.0),
    ("gamma", 50.0, 0.2),
    ("beta", 0.01, 0.01),
    ("beta", 0.05, 1.05),
    ("beta", 2.0, 5.0),
    ("beta", 100.0, 40.0),
]
DISTRIBUTIONS = {"gamma": Gamma, "beta": Beta}
each_distribution = pytest.mark.parametrize(("family", "a", "b"), PARAMETERS)
each_method = pytest.mark.parametrize(
    ("family", "a", "b", "method"),
    [(*parameters, method) for parameters in PARAMETERS for method in METHODS[parameters[0]]],
)


def log_density(family, a, b):
    return lambda psi: (gamma_log_density if family == "gamma" else beta_log_density)(psi, a, b)


def normal_log_density(mean, variance):
    return lambda psi: -0.5 * (math.log(2.0 * math.pi * variance) + (psi - mean) ** 2 / variance)


def expectation(log_density, function, breaks):
    """Integrate with 100 Gauss-Legendre nodes in each piece, leaving out where the density underflows."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    total = 0.0
    for low, high in itertools.pairwise(sorted(breaks)):
        psi = 0.5 * (low + high) + 0.5 * (high - low) * nodes
        with np.errstate(over="ignore"):
            log_p = log_density(psi)
        psi, log_p, w = (array[log_p > -700.0] for array in (psi, log_p, weights))
        total += 0.5 * (high - low) * float(np.sum(w * np.exp(log_p) * function(psi)))
    return total


def breaks(centre, scale):
    """Pieces that grow away from the centre and from 0, so that kinks, peaks and long tails are all seen."""
    steps = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 7.0, 12.0, 20.0, 50.0])
    wide, unit = scale * steps, min(scale, 1.0) * steps
    points = np.concatenate([centre + wide, centre - wide, centre + unit, centre - unit, unit, -unit])
    return points[np.abs(points - centre) <= 50.0 * scale]


def expectation_under_p(function, family, a, b):
    mean, variance = transformed_moments(family, a, b)
    return expectation(log_density(family, a, b), function, breaks(mean, math.sqrt(variance)))


@each_distribution
def test_transformed_densities_are_those_of_to_basis(family, a, b):
    mean, variance = transformed_moments(family, a, b)
    psi = np.clip(mean + math.sqrt(variance) * np.linspace(-2.0, 2.0, 9), -12.0, 12.0)
    parameters = torch.tensor([a, b], dtype=torch.float64)
    oracle = to_basis(DISTRIBUTIONS[family](*parameters)).log_prob(torch.as_tensor(psi))
    np.testing.assert_allclose(log_density(family, a, b)(psi), oracle, rtol=1e-8, atol=1e-8)


@each_distribution
def test_moments_and_entropy_are_those_of_the_density(family, a, b):
    mean, variance = transformed_moments(family, a, b)
    assert expectation_under_p(np.ones_like, family, a, b) == pytest.approx(1.0, rel=1e-9)
    assert expectation_under_p(lambda psi: psi, family, a, b) == pytest.approx(mean, rel=1e-8, abs=1e-8)
    second = expectation_under_p(lambda psi: (psi - mean) ** 2, family, a, b)
    assert second == pytest.approx(variance, rel=1e-8)
    log_p = log_density(family, a, b)
    assert expectation_under_p(log_p, family, a, b) == pytest.approx(negative_entropy(family, a, b), rel=1e-8)


@each_method
def test_kl_from_exact_is_its_integral(family, a, b, method):
    q = approximation(family, a, b, method)
    log_p, log_q = log_density(family, a, b), normal_log_density(*q)
    by_quadrature = expectation_under_p(lambda psi: log_p(psi) - log_q(psi), family, a, b)
    assert kl_from_exact(family, a, b, *q) == pytest.approx(by_quadrature, rel=1e-7, abs=1e-9)


@each_method
def test_kl_to_exact_is_its_integral(family, a, b, method):
    mean, variance = approximation(family, a, b, method)
    log_p, log_q = log_density(family, a, b), normal_log_density(mean, variance)
    closed = kl_to_exact(family, a, b, mean, variance)
    if closed > 1e10:  # exp(psi) alone counts, with its mass where q underflows: no quadrature
        assert family == "gamma"
        assert closed == math.inf or math.log(closed) == pytest.approx(math.log(b) + mean + variance / 2.0)
        return
    # For a Gamma, exp(psi) q(psi) peaks a variance away from the mean of q.
    points = np.concatenate([breaks(centre, math.sqrt(variance)) for centre in (mean, mean + variance)])
    points = points[np.abs(points - mean) < 37.0 * math.sqrt(variance)]
    by_quadrature = expectation(log_q, lambda psi: log_q(psi) - log_p(psi), points)
    assert closed == pytest.approx(by_quadrature, rel=1e-7, abs=1e-9)


@each_distribution
def test_each_method_minimises_its_own_divergence(family, a, b):
    gaussians = {method: approximation(family, a, b, method) for method in METHODS[family]}
    to_exact = {method: kl_to_exact(family, a, b, *q) for method, q in gaussians.items()}
    from_exact = {method: kl_from_exact(family, a, b, *q) for method, q in gaussians.items()}
    assert min(to_exact, key=to_exact.get) == "variational"
    assert min(from_exact, key=from_exact.get) == "moment"
    assert min(*to_exact.values(), *from_exact.values()) > 0.0


@pytest.mark.parametrize("family", ["gamma", "beta"])
def test_jacobian_is_the_slope_of_the_transform(family):
    omega, step = np.array([0.1, 0.4, 0.9]), 1e-6
    transform = np.log if family == "gamma" else lambda x: np.log(x) - np.log1p(-x)
    slope = (transform(omega + step) - transform(omega - step)) / (2.0 * step)
    np.testing.assert_allclose(np.exp(log_jacobian(family, omega)), slope, rtol=1e-8)


@pytest.fixture(scope="module")
def records(smoke_run):
    return load(smoke_run("densities"))


def test_exact_rows_in_the_standard_basis_are_torch_densities(records):
    rows = [r for r in records if r["basis"] == "standard" and r["method"] == "exact"]
    assert {row["family"] for row in rows} == {"gamma", "beta"}
    for row in rows:
        parameters = torch.tensor([row["a"], row["b"]], dtype=torch.float64)
        oracle = DISTRIBUTIONS[row["family"]](*parameters).log_prob(torch.tensor(row["x"], dtype=torch.float64))
        assert row["log_density"] == pytest.approx(float(oracle), rel=1e-3, abs=1e-3)
        assert row["density"] == pytest.approx(math.exp(row["log_density"]), rel=1e-4)


def test_approximations_in_the_standard_basis_are_transformed_normals(records):
    row = next(r for r in records if r["basis"] == "standard" and r["method"] == "laplace" and r["a"] == 5.0)
    oracle = torch.distributions.LogNormal(math.log(5.0), 0.2**0.5).log_prob(torch.tensor(row["x"]))
    assert row["log_density"] == pytest.approx(float(oracle), rel=1e-4)


def test_every_method_is_there_in_both_bases(records):
    for family, methods in METHODS.items():
        densities = [r for r in records if r["quantity"] == "density" and r["family"] == family]
        expected = {(basis, method) for basis in ("standard", "transformed") for method in ("exact", *methods)}
        assert {(r["basis"], r["method"]) for r in densities} == expected
        assert set(methods) < METHOD_COLOURS.keys()


def test_summary_names_the_best_method(records):
    summary = get("densities").summarise(records)
    assert len(summary) == 2 * 3 * 5
    assert {(row["divergence"], row["best"]) for row in summary} == {
        ("KL(q||p)", "variational"),
        ("KL(p||q)", "moment"),
    }
