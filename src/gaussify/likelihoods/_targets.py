"""Pseudo-targets, into which a likelihood turns labels, and the methods to choose them."""

from enum import StrEnum
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._validation import ArrayInput, float_dtype

LikelihoodMethodName = Literal["variational", "moment", "laplace", "moment-ori", "gauss"]
"""Names of the members of :class:`LikelihoodMethod`."""


class PseudoTargets(NamedTuple):
    """Gaussian observations of the latents, which take the place of labels in Gaussian regression.

    Examples
    --------
    >>> import torch
    >>> PseudoTargets(mean=torch.zeros(2, 1), variance=torch.ones(2, 1)).mean.shape
    torch.Size([2, 1])
    """

    mean: Float[Tensor, "*batch n l"]
    variance: Float[Tensor, "*batch n l"]


class LatentVariances(NamedTuple):
    """The two variances of each latent in the target table of a softmax: from rows of its own class, and from others.

    Examples
    --------
    >>> table = PseudoTargets(torch.zeros(3, 3), torch.full((3, 3), 2.0).fill_diagonal_(1.0))
    >>> LatentVariances.of(table)
    LatentVariances(own=tensor([1., 1., 1.]), other=tensor([2., 2., 2.]))
    """

    own: Float[Tensor, " l"]
    other: Float[Tensor, " l"]

    @classmethod
    def of(cls, table: PseudoTargets, latents: Int[Tensor, " k"] | None = None) -> "LatentVariances | None":
        """Return the two variances of all latents, or of some; None for a table that has any other structure."""
        n_classes, n_latents = table.variance.shape
        if n_classes != n_latents or n_classes < 2:
            return None
        if latents is None:
            latents = torch.arange(n_latents, device=table.variance.device)
        columns = table.variance[:, latents]  # (c, k)
        own, other = columns.gather(0, latents[None])[0], torch.where(latents == 0, columns[1], columns[0])
        same = (columns == other).scatter_(0, latents[None], True)
        return cls(own, other) if bool(same.all()) else None


class LikelihoodMethod(StrEnum):
    """How a likelihood chooses its Gaussians: one of the four ways of matching, or the paper's baseline.

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
    """Least squares on the labels themselves, with one variance for all; the paper's baseline."""


def target_dtype(alpha_eps: ArrayInput, y: ArrayInput | None = None) -> torch.dtype:
    """Return the dtype of targets: that of a tensor ``alpha_eps``, else of fractional ``y``, else torch's default."""
    of_alpha = float_dtype(alpha_eps) if isinstance(alpha_eps, Tensor) else None
    of_labels = None if y is None else float_dtype(y)
    return of_alpha or of_labels or torch.get_default_dtype()
