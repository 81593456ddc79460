"""Quadrature nodes that cover a function with one peak, however wide and skewed it is."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_NEGLIGIBLE = 45.0  # nodes end where the logarithm is this far below its peak: exp(-45) = 3e-20


class Cover(NamedTuple):
    """Width of the peak (*batch), nodes (n, *batch) and the logarithms of their weights."""

    width: Tensor
    nodes: Tensor
    log_weights: Tensor


def cover(log_function: Callable[[Tensor], Tensor], peak: Tensor, *, n_nodes: int) -> Cover:
    """Return nodes ``peak + width * sinh(t)`` with equally spaced ``t``: fine at the peak, coarse in long tails.

    In ``t`` the trapezoidal rule converges exponentially for analytic functions. ``log_function`` maps points of shape
    (n, *batch) to values of that shape. If it does not fall off on both sides, ArithmeticError is raised.

    Examples
    --------
    >>> normal = torch.distributions.Normal(torch.tensor(2.0).double(), torch.tensor(3.0).double())
    >>> _, nodes, log_weights = cover(normal.log_prob, peak=torch.tensor(2.1).double(), n_nodes=101)
    >>> torch.exp(normal.log_prob(nodes) + log_weights).sum().item()
    1.0000000
    """
    top = log_function(peak[None])
    width = torch.minimum(*(_reach(log_function, peak, side, top - 0.5) for side in (-1.0, 1.0)))
    left, right = (
        side * torch.asinh(_reach(log_function, peak, side, top - _NEGLIGIBLE) / width) for side in (-1.0, 1.0)
    )
    unit = torch.linspace(0.0, 1.0, n_nodes, dtype=peak.dtype, device=peak.device)
    t = left + (right - left) * unit.reshape(-1, *[1] * peak.ndim)  # (n, *batch)
    log_weights = torch.log(width * torch.cosh(t) * (right - left) / (n_nodes - 1))
    return Cover(width, peak + width * torch.sinh(t), log_weights)


def _reach(log_function: Callable[[Tensor], Tensor], peak: Tensor, side: float, level: Tensor) -> Tensor:
    """Return the smallest distance from the peak, a power of two, at which the function lies below ``level``."""
    distances = torch.exp2(torch.arange(-40.0, 22.0, dtype=peak.dtype, device=peak.device))
    below = log_function(peak + side * distances.reshape(-1, *[1] * peak.ndim)) < level
    if not bool(below.any(0).all()):
        raise ArithmeticError("the function does not fall off")
    return distances[below.to(torch.int8).argmax(0)]
