"""Integrals by their definition, with tools the library does not use: tensor grids, scipy and Gauss-Hermite."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import fixed_quad, quad
from torch import Tensor


class SoftmaxMoments(NamedTuple):
    """Expectations under independent Gaussian latents, one row."""

    probs: Tensor
    std: Tensor
    entropy: Tensor
    logsumexp: Tensor


def softmax_moments(mean: Tensor, variance: Tensor, *, step: float = 0.2) -> SoftmaxMoments:
    """Sum over a grid of all latents of one row, (c,); the trapezoidal rule converges exponentially in ``step``."""
    nodes = torch.arange(-8.0, 8.0 + step / 2, step, dtype=torch.float64)
    weights = torch.softmax(-0.5 * nodes.square(), 0)
    axes = [m + s * nodes for m, s in zip(mean.double(), variance.double().sqrt(), strict=True)]
    latents = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, mean.numel())
    weight = torch.stack(torch.meshgrid(*[weights] * mean.numel(), indexing="ij"), -1).prod(-1).reshape(-1)
    log_probs = torch.log_softmax(latents, -1)
    probs = log_probs.exp()
    expected = weight @ probs
    return SoftmaxMoments(
        probs=expected,
        std=torch.sqrt(weight @ (probs - expected).square()),
        entropy=weight @ -(probs * log_probs).sum(-1),
        logsumexp=weight @ torch.logsumexp(latents, -1),
    )


def normal_expectation(function: Callable[[float], float], mean: float, variance: float) -> float:
    """Expectation under a Gaussian by adaptive quadrature; ``function`` itself for zero variance."""
    if variance == 0:
        return function(mean)
    scale = variance**0.5

    def integrand(u: float) -> float:
        return function(mean + scale * u) * np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)

    edges = np.linspace(-12.0, 12.0, 25)
    return sum(quad(integrand, low, high, epsabs=0.0, epsrel=1e-11)[0] for low, high in pairwise(edges))


def log_integral(log_function: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """Logarithm of the integral of a function with one peak between ``low`` and ``high``, however narrow."""
    for _ in range(6):
        grid = np.linspace(low, high, 4001)
        values = log_function(grid)
        inside = np.flatnonzero(values > values.max() - 50.0)
        low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, grid.size - 1)]
    top = values.max()
    edges = np.linspace(low, high, 21)
    total = sum(fixed_quad(lambda f: np.exp(log_function(f) - top), a, b, n=40)[0] for a, b in pairwise(edges))
    return float(top + np.log(total))
