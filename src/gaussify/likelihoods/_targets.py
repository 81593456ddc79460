"""What a likelihood turns labels into, and the ways to do it."""

from enum import StrEnum
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._validation import float_dtype


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


def choose_dtype(alpha_eps: Any, y: Any = None) -> torch.dtype:
    """Return the dtype of targets: that of a tensor ``alpha_eps``, else of fractional ``y``, else torch's default."""
    of_alpha = float_dtype(alpha_eps) if isinstance(alpha_eps, Tensor) else None
    of_labels = None if y is None else float_dtype(y)
    return of_alpha or of_labels or torch.get_default_dtype()
