"""Special functions."""

import mpmath
import pytest
import torch

from gaussify._numerics import trigamma


@pytest.mark.parametrize("x", [1e-6, 1e-4, 0.02, 0.5, 1.0, 3.7, 40.0, 1e4, 1e8], ids="{:g}".format)
def test_trigamma_agrees_with_mpmath(x):
    with mpmath.workdps(50):
        expected = float(mpmath.psi(1, x))
    assert trigamma(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-14)


def test_gradient_of_trigamma_agrees_with_differences():
    x = torch.tensor([0.05, 0.5, 3.0, 100.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(trigamma, x)


def test_gradient_of_trigamma_is_the_tetragamma_function():
    x = torch.tensor([0.05, 0.5, 3.0, 100.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(trigamma(x).sum(), x)
    expected = [float(mpmath.psi(2, value)) for value in x.tolist()]
    assert gradient.tolist() == pytest.approx(expected, rel=1e-10)


def test_float32_in_gives_float32_out():
    x = torch.tensor([0.01, 2.0, 300.0])
    assert trigamma(x).dtype == torch.float32
    torch.testing.assert_close(trigamma(x), trigamma(x.double()).float())
