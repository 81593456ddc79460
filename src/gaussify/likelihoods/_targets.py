"""What a likelihood turns labels into, and the ways to do it."""

from enum import StrEnum
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class PseudoTargets(NamedTuple):
    """Gaussian observations of the latents: what Gaussian regression takes in place of labels.

    Examples
    --------
    >>> import torch
    >>> PseudoTargets(mean=torch.zeros(2, 1), variance=torch.ones(2, 1)).mean.shape
    torch.Size([2, 1])
    """

    mean: Float[Tensor, "*batch n l"]
    variance: Float[Tensor, "*batch n l"]


class LikelihoodMethod(StrEnum):
    """How a likelihood chooses its Gaussians: a way of matching, or the paper's baseline.

    Examples
    --------
    >>> LikelihoodMethod("gauss")
    <LikelihoodMethod.GAUSS: 'gauss'>
    """

    LAPLACE = "laplace"
    """Mode and curvature in the transformed basis."""
    VARIATIONAL = "variational"
    """Smallest KL(q || p) in the transformed basis."""
    MOMENT = "moment"
    """Mean and variance in the transformed basis."""
    MOMENT_ORI = "moment-ori"
    """Log-normal with the mean and variance of the standard basis."""
    GAUSS = "gauss"
    """Least squares on the labels themselves, with one variance for all."""


def describe(likelihood: object, names: tuple[str, ...]) -> str:
    """Text of a likelihood with the parameters it was made with."""
    parameters = ", ".join(f"{name}={_plain(getattr(likelihood, name))!r}" for name in names)
    return f"{type(likelihood).__name__}({parameters})"


def _plain(value: object) -> object:
    return str(value) if isinstance(value, StrEnum) else value
