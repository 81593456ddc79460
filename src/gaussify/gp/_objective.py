r"""The collapsed bound of rows, and its exact gradient by kernel parameters and inducing points, in bounded memory.

Two passes over the rows. The first sums the statistics of :math:`\phi_i = L^{-1}k(Z, x_i)`; from them follow the bound
and its derivatives. The second pulls

.. math:: \bar k(Z, x_i) = L^{-\top}\big(2\bar G_cL^{-1}k(Z, x_i) + \bar s_c\big), \qquad \bar k(x_i, x_i) = \bar t_c

back through the kernel of each chunk, computed again unless all of it is small enough to be kept. Each pass is a map,
in several threads, and a sum. Where there are many rows, sums of :math:`k(Z, x_i)` are whitened instead of rows, unless
L is so ill-conditioned that this would cost digits.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import Map, product, stable_cholesky, worker_threads
from gaussify.gp._collapsed import BoundGradient, InducingStatistics, collapsed_bound
from gaussify.gp._cross import CrossBlock, CrossKernel, cross_kernel
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics

_JITTER = 1e-8  # relative to the diagonal: points may come close, and a fixed amount keeps the bound smooth
_MOST_INFLATION = 1e4  # of rounding errors, by whitening sums instead of rows
_LEAST = 1e-6  # that a diagonal counts as, where all of it is zero


class SortedRows(NamedTuple):
    """Rows in the order of their classes, so that those of a class are a slice.

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
        order = torch.argsort(labels, stable=True)
        return cls(features[order], labels[order], weight[order], n_classes)

    def take(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return some of the rows, whose places increase."""
        return SortedRows(self.features[places], self.labels[places], self.weight[places], self.n_classes)

    def without(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return all rows but some."""
        rest = torch.ones(len(self.labels), dtype=torch.bool)
        rest[places] = False
        return self.take(rest.nonzero()[:, 0])

    def chunks(self, size: int) -> Iterator["RowChunk"]:
        """Yield chunks of at most ``size`` rows, which may be of several classes."""
        weight = None if bool((self.weight == 1.0).all()) else self.weight
        ends = torch.bincount(self.labels, minlength=self.n_classes).cumsum(0).tolist()
        for start in range(0, len(self.labels), size):
            part = slice(start, min(start + size, len(self.labels)))
            own = [
                (label, slice(max(begin, part.start) - start, min(end, part.stop) - start))
                for label, (begin, end) in enumerate(pairwise([0, *ends]))
                if max(begin, part.start) < min(end, part.stop)
            ]
            yield RowChunk(self.features[part], None if weight is None else weight[part], own)


class RowChunk(NamedTuple):
    """Some rows that follow each other, with weights unless all are one, and the slice of each class.

    Examples
    --------
    >>> rows = SortedRows.of(torch.ones(5, 3), torch.tensor([0, 0, 0, 1, 1]), n_classes=2)
    >>> [chunk.slices for chunk in rows.chunks(4)]
    [[(0, slice(0, 3, None)), (1, slice(3, 4, None))], [(1, slice(0, 1, None))]]
    """

    features: Float[Tensor, "n d"]
    weight: Float[Tensor, " n"] | None
    slices: list[tuple[int, slice]]


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
    cross = cross_kernel(kernel, inducing_points)
    with worker_threads() if cross.in_threads else nullcontext(map) as over:
        L = factorise(kernel, inducing_points)
        passes = RowPasses(cross, rows, L.detach(), over)
        bound = collapsed_bound(passes.sum_up(), table, passes.inverse, over=over)
        passes.pull_back(bound)
        if L.requires_grad:
            L.backward(bound.by_factor)
    return bound


class RowPasses:
    """The two passes over the rows."""

    def __init__(self, cross: CrossKernel, rows: SortedRows, factor: Float[Tensor, "m m"], over: Map) -> None:
        m, K = len(factor), rows.n_classes
        identity = torch.eye(m, dtype=factor.dtype, device=factor.device)
        self.inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        self._cross, self._rows, self._over = cross, rows, over
        self._size = max(1, cross.n_elements // m)
        self._keeps = len(rows.features) * m <= cross.n_kept
        self._kept: list[CrossBlock | None] = []
        # What a point varies by, over what is left of it when all others are known
        inflation = (self.inverse.square().sum(0) * factor.square().sum(1)).max()
        # Whitening takes 2 m² for each row, or 4 m³ for each class
        self._whitens_sums = len(rows.features) > 2 * m * K and bool(inflation <= _MOST_INFLATION)

    def sum_up(self) -> InducingStatistics:
        """Return the statistics of whitened features."""
        m, K = len(self.inverse), self._rows.n_classes
        sums = ClassStatistics.zeros(K, m, dtype=self.inverse.dtype, device=self.inverse.device)
        prior_variance = self.inverse.new_zeros(K)
        for block, of_classes in self._over(self._sums_of, self._rows.chunks(self._size)):
            self._kept.append(block)
            for own in of_classes:
                sums.count[own.label] += own.total_weight
                sums.feature_sum[own.label] += own.feature_sum
                sums.gram[own.label] += own.gram
                prior_variance[own.label] += own.prior_variance
        if self._whitens_sums:
            sums.feature_sum.copy_(sums.feature_sum @ self.inverse.mT)
            for gram, whitened in zip(sums.gram, self._over(self._whiten, sums.gram), strict=True):
                gram.copy_(whitened)
        return InducingStatistics(sums, prior_variance)

    def pull_back(self, bound: BoundGradient) -> None:
        """Add the gradient to those of kernel parameters and inducing points, but for what goes through L."""

        def pull(chunk: RowChunk, block: CrossBlock | None) -> Any:
            # computed again unless it was kept
            block = self._cross(chunk.features, differentiable=True) if block is None else block
            matrix = block.matrix.detach()
            by_matrix, by_variance = torch.empty_like(matrix), torch.empty_like(matrix[:, 0])
            for label, own in chunk.slices:
                product(matrix[own], bound.by_gram[label], out=by_matrix[own])
                torch.add(bound.by_sum[label], by_matrix[own], alpha=2.0, out=by_matrix[own])
                by_variance[own] = bound.by_prior_variance[label]
            if chunk.weight is not None:
                by_matrix *= chunk.weight[:, None]
                by_variance *= chunk.weight
            return self._cross.pull_back(chunk.features, block, by_matrix, by_variance)

        for pulled in self._over(pull, self._rows.chunks(self._size), self._kept):
            self._cross.add(pulled)
        self._cross.finish()

    def _sums_of(self, chunk: RowChunk) -> tuple[CrossBlock | None, list["_ClassSums"]]:
        block = self._cross(chunk.features, differentiable=self._keeps)
        features, variance = block.matrix.detach(), block.variance.detach()
        features = features if self._whitens_sums else product(features, self.inverse.mT)
        weight = torch.ones_like(variance) if chunk.weight is None else chunk.weight
        halfway = features if chunk.weight is None else features * weight.sqrt()[:, None]
        of_classes = [
            _ClassSums(
                label,
                weight[own].sum(),
                weight[own] @ features[own],
                product(halfway[own].mT, halfway[own]),
                weight[own] @ variance[own],
            )
            for label, own in chunk.slices
        ]
        return block if self._keeps else None, of_classes

    def _whiten(self, gram: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
        return product(product(self.inverse, gram), self.inverse.mT)


class _ClassSums(NamedTuple):
    """What a few rows of one class add to its statistics."""

    label: int
    total_weight: Float[Tensor, ""]
    feature_sum: Float[Tensor, " m"]
    gram: Float[Tensor, "m m"]
    prior_variance: Float[Tensor, ""]
