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


class LatentVariances(NamedTuple):
    """The two variances of a latent in the table of a softmax: what a row of its own class gives it, and any other row.

    Examples
    --------
    >>> table = PseudoTargets(torch.zeros(3, 3), torch.full((3, 3), 2.0).fill_diagonal_(1.0))
    >>> LatentVariances.of(table)
    LatentVariances(own=tensor([1., 1., 1.]), other=tensor([2., 2., 2.]))
    """

    own: Float[Tensor, " l"]
    other: Float[Tensor, " l"]

    @classmethod
    def of(cls, table: PseudoTargets) -> "LatentVariances | None":
        """Return them, None if there are not as many latents as classes, at least three, or more variances a latent."""
        variance = table.variance
        n_classes, n_latents = variance.shape
        if n_classes != n_latents or n_classes < 3:
            return None
        own, other = variance.diagonal(), torch.cat([variance[1, :1], variance[0, 1:]])
        expected = other.expand_as(variance).clone()
        expected.diagonal().copy_(own)
        return cls(own, other) if torch.equal(expected, variance) else None


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
