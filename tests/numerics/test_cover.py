"""Nodes that cover a function with one peak."""

import math

import pytest
import torch
from torch.distributions import Cauchy, Normal, StudentT

from gaussify._numerics import cover


def number(value: object) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def log_gamma_density(a: float):
    return lambda psi: a * psi - torch.exp(psi) - math.lgamma(a)


FUNCTIONS = {
    "narrow": (Normal(number(5.0), number(1e-6)).log_prob, 5.0),
    "wide": (Normal(number(-3.0), number(1e3)).log_prob, -3.0),
    "off-peak": (Normal(number(2.0), number(3.0)).log_prob, 2.5),
    "log-Gamma(0.01)": (log_gamma_density(0.01), math.log(0.01)),
    "log-Gamma(1e4)": (log_gamma_density(1e4), math.log(1e4)),
    "Laplace": (lambda x: -x.abs() - math.log(2.0), 0.0),
}


@pytest.mark.parametrize(("log_function", "peak"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_integral_over_the_nodes_is_one(log_function, peak):
    _, nodes, log_weights = cover(log_function, number(peak), n_nodes=2001)
    total = torch.exp(log_function(nodes) + log_weights).sum().item()
    assert total == pytest.approx(1.0, abs=1e-5 if log_function is FUNCTIONS["Laplace"][0] else 1e-8)


def test_batches_are_covered_entry_by_entry():
    mean, scale = number([[0.0, 3.0]]), number([[1e-3], [50.0]])
    together = cover(Normal(mean, scale).log_prob, mean.expand(2, 2).contiguous(), n_nodes=51)
    assert together.nodes.shape == (51, 2, 2)
    alone = cover(Normal(mean[0, 1], scale[1, 0]).log_prob, mean[0, 1], n_nodes=51)
    torch.testing.assert_close(together.nodes[:, 1, 1], alone.nodes, rtol=0.0, atol=0.0)
    torch.testing.assert_close(together.log_weights[:, 1, 1], alone.log_weights, rtol=0.0, atol=0.0)


def test_nodes_reach_as_far_as_the_function_matters():
    _, nodes, _ = cover(Normal(number(0.0), number(1.0)).log_prob, number(0.0), n_nodes=101)
    assert nodes.min().item() < -9.0
    assert nodes.max().item() > 9.0


@pytest.mark.parametrize(
    "log_function",
    [
        pytest.param(torch.zeros_like, id="constant"),
        pytest.param(lambda x: x, id="increasing"),
        pytest.param(Cauchy(number(0.0), number(1.0)).log_prob, id="Cauchy"),
        pytest.param(StudentT(number(1.5)).log_prob, id="StudentT(1.5)"),
    ],
)
def test_function_that_does_not_fall_off_is_refused(log_function):
    with pytest.raises(ArithmeticError, match="does not fall off"):
        cover(log_function, number(0.0), n_nodes=51)
