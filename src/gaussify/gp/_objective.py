r"""The collapsed bound of rows, and its exact gradient by kernel parameters and inducing points, in bounded memory.

Two passes over the rows. The first sums the statistics of :math:`\phi_i = L^{-1}k(Z, x_i)`; from them follow the bound
and its derivatives. The second pulls

.. math:: \bar k(Z, x_i) = L^{-\top}\big(2\bar G_cL^{-1}k(Z, x_i) + \bar s_c\big), \qquad \bar k(x_i, x_i) = \bar t_c

back through the kernel of each chunk, computed again unless all of it is small enough to be kept. Each pass is a map
and a sum.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify.gp._collapsed import BoundGradient, InducingStatistics, collapsed_bound
from gaussify.gp._cross import CrossBlock, CrossKernel, cross_kernel
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics

_JITTER = 1e-8  # relative to the diagonal: points may come close, and a fixed amount keeps the bound smooth
_LEAST = 1e-6  # that a diagonal counts as, where all of it is zero


class SortedRows(NamedTuple):
    """Rows in the order of their classes, within a class those of weight one first, so that each group is a slice.

    Examples
    --------
    >>> rows = SortedRows.of(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 0, 1]), n_classes=2)
    >>> rows.features.flatten(), rows.labels
    (tensor([2., 1., 3.]), tensor([0, 1, 1]))
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]
    n_classes: int

    @classmethod
    def of(
        cls,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        weight: Float[Tensor, " n"] | None = None,
        *,
        n_classes: int,
    ) -> "SortedRows":
        """Sort rows."""
        weight = torch.ones_like(features[:, 0]) if weight is None else weight
        order = torch.argsort(2 * labels + (weight != 1.0), stable=True)
        return cls(features[order], labels[order], weight[order], n_classes)

    def take(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return some of the rows, in this order."""
        return SortedRows(self.features[places], self.labels[places], self.weight[places], self.n_classes)

    def without(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return all rows but some."""
        rest = torch.ones(len(self.labels), dtype=torch.bool)
        rest[places] = False
        return self.take(rest.nonzero()[:, 0])

    def chunks(self, size: int) -> Iterator["RowChunk"]:
        """Yield chunks of one class each, of at most ``size`` rows."""
        group = 2 * self.labels + (self.weight != 1.0)
        start = 0
        for number, n_own in enumerate(torch.bincount(group, minlength=2 * self.n_classes).tolist()):
            for first in range(start, start + n_own, size):
                part = slice(first, min(first + size, start + n_own))
                yield RowChunk(number // 2, self.features[part], self.weight[part] if number % 2 else None)
            start += n_own


class RowChunk(NamedTuple):
    """Some rows of one class, with weights unless all are one.

    Examples
    --------
    >>> RowChunk(0, torch.ones(2, 3)).weight is None
    True
    """

    label: int
    features: Float[Tensor, "n d"]
    weight: Float[Tensor, " n"] | None = None


def factorise(kernel: Kernel, points: Float[Tensor, "m d"]) -> Float[Tensor, "m m"]:
    """Return the Cholesky factor of the kernel matrix of inducing points, differentiable.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> factorise(RBFKernel().double(), torch.zeros(1, 1).double()).item()
    1.0
    """
    matrix = kernel(points).to_dense()
    diagonal = matrix.diagonal().detach()  # where it is zero, as at the origin of a linear kernel, others stand in
    return stable_cholesky(
        matrix + torch.diag_embed(_JITTER * torch.maximum(diagonal, diagonal.mean()).clamp_min(_LEAST))
    )


def accumulate_gradient(
    kernel: Kernel, inducing_points: Float[Tensor, "m d"], rows: SortedRows, table: PseudoTargets
) -> BoundGradient:
    """Return the collapsed bound, and add its gradient to ``.grad`` of inducing points and kernel parameters.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Shared by all latents.
    inducing_points : tensor of shape (m, d)
        Z; learnt if it requires a gradient.
    rows : SortedRows
        All rows.
    table : PseudoTargets
        What each class observes of each latent.
    """
    m = len(inducing_points)
    L = factorise(kernel, inducing_points)
    identity = torch.eye(m, dtype=L.dtype, device=L.device)
    inverse = torch.linalg.solve_triangular(L.detach(), identity, upper=False)
    cross = cross_kernel(kernel, inducing_points)
    size = max(1, cross.n_elements // m)
    keeps = len(rows.features) * m <= cross.n_kept
    kept: list[tuple[RowChunk, CrossBlock]] = []
    statistics = ClassStatistics.zeros(rows.n_classes, m, dtype=L.dtype, device=L.device)
    prior_variance = L.new_zeros(rows.n_classes)
    for chunk in rows.chunks(size):
        block = cross(chunk.features, differentiable=keeps)
        c, weight = chunk.label, torch.ones_like(block.variance) if chunk.weight is None else chunk.weight
        features = block.matrix.detach() @ inverse.mT
        statistics.feature_sum[c] += weight @ features
        statistics.gram[c].addmm_(features.mT, features if chunk.weight is None else features * weight[:, None])
        statistics.count[c] += weight.sum()
        prior_variance[c] += weight @ block.variance.detach()
        if keeps:
            kept.append((chunk, block))
    bound = collapsed_bound(InducingStatistics(statistics, prior_variance), table, inverse)
    for chunk, block in kept or _again(cross, rows, size):
        by_matrix = torch.addmm(bound.by_sum[chunk.label], block.matrix.detach(), bound.by_gram[chunk.label], alpha=2.0)
        by_variance = bound.by_prior_variance[chunk.label].expand_as(block.variance)
        if chunk.weight is not None:
            by_matrix *= chunk.weight[:, None]
            by_variance = by_variance * chunk.weight
        cross.pull_back(chunk.features, block, by_matrix, by_variance)
    cross.finish()
    if L.requires_grad:
        L.backward(bound.by_factor)
    return bound


def _again(cross: CrossKernel, rows: SortedRows, size: int) -> Iterator[tuple[RowChunk, CrossBlock]]:
    """The kernel of every chunk, with its graph, which is freed before the next one."""
    for chunk in rows.chunks(size):
        yield chunk, cross(chunk.features, differentiable=True)
