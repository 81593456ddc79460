import pytest
import torch
from torch.distributions import Beta, Dirichlet, Gamma, HalfCauchy, Independent, Kumaraswamy

from gaussify import match
from gaussify.exceptions import InvalidArgumentError

IMPLICIT = [(Beta, "variational"), (Kumaraswamy, "variational"), (Kumaraswamy, "laplace"), (Kumaraswamy, "moment")]


@pytest.mark.parametrize("method", ["laplace", "variational", "moment"])
def test_numerical_matching_leaves_the_global_generator_alone(method):
    before = torch.random.get_rng_state()
    match(HalfCauchy(torch.tensor(0.5)), method)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("family", "method"), IMPLICIT)
def test_second_derivatives_of_implicit_solutions_are_refused(family, method):
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    mean = match(family(a, torch.tensor(2.0, dtype=torch.float64)), method).mean
    with pytest.raises(RuntimeError, match="Only first derivatives"):
        torch.autograd.grad(mean, a, create_graph=True)


def test_closed_forms_have_second_derivatives():
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(match(Gamma(a, torch.ones_like(a))).mean, a, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, a)
    assert curvature.item() == pytest.approx(-1 / 0.7**2 - 1 / 0.7**3)  # of log a - 1 / (2 a)


def test_the_parts_of_an_independent_are_checked():
    with pytest.raises(InvalidArgumentError, match="'concentration' parameter of Gamma"):
        match(Independent(Gamma(-torch.ones(2), torch.ones(2), validate_args=False), 1, validate_args=False))


@pytest.mark.parametrize(("a", "b", "mode", "scale"), [(1e-3, 1e3, -6907.755, 1000.5), (0.01, 1e4, -921.034, 100.005)])
def test_modes_far_from_zero_are_found(a, b, mode, scale):
    # far to the left, psi = log(omega) and b omega^a is exponential: mode log(1/b)/a, scale 1/a
    matched = match(Kumaraswamy(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)), "laplace")
    assert matched.mean.item() == pytest.approx(mode, rel=1e-3)
    assert matched.scale.item() == pytest.approx(scale, rel=2e-3)


def test_an_error_names_the_bad_concentration_of_a_dirichlet():
    with pytest.raises(InvalidArgumentError, match="got -1 at index 1"):
        match(Dirichlet(torch.tensor([1.0, -1.0]), validate_args=False))
