r"""Two passes over the rows: statistics of whitened features up, gradients by them back down, in bounded memory.

The first pass sums the class statistics of :math:`\phi_i = L^{-1}k(Z, x_i)`, with :math:`LL^\top = k(Z, Z)`. An
objective turns them into its value and its derivatives :math:`\bar s_c, \bar G_c, \bar t_c` by the sum of
:math:`k(Z, x_i)`, by its Gram matrix and by :math:`t_c = \sum_{i\in c}k(x_i, x_i)`. The second pass pulls

.. math:: \bar k(Z, x_i) = 2\bar G_ck(Z, x_i) + \bar s_c, \qquad \bar k(x_i, x_i) = \bar t_c

back through the kernel of each chunk. Chunks are computed again unless all of them are small enough to be kept. Each
pass is a map, in several threads, and a sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import Map, product, stable_cholesky, worker_threads
from gaussify.gp._rows import RowChunk, SortedRows
from gaussify.gp.objectives._cross import CrossBlock, CrossKernel, cross_kernel
from gaussify.posterior import ClassStatistics

_JITTER = 1e-8  # relative to the diagonal: points may come close, and a fixed amount keeps the bound smooth
_LEAST = 1e-6  # stands for the diagonal where all of it is zero
_MOST_INFLATION = 1e4  # of rounding errors; beyond it, rows are whitened instead of their sums


class InducingStatistics(NamedTuple):
    """Class statistics of whitened features, and the prior variances of the rows.

    Examples
    --------
    >>> rows = ClassStatistics.zeros(n_classes=3, n_features=2)
    >>> InducingStatistics(rows, torch.zeros(3).double()).rows.n_features
    2
    """

    rows: ClassStatistics
    """Statistics of the whitened features."""
    prior_variance: Float[Tensor, " c"]
    r"""The sum :math:`t_c` of k(x, x) over the rows of each class."""


class StatisticsGradient(NamedTuple):
    """Derivatives of an objective by the statistics of k(Z, x), before it is whitened.

    Examples
    --------
    >>> StatisticsGradient._fields
    ('by_sum', 'by_gram', 'by_prior_variance', 'by_factor')
    """

    by_sum: Float[Tensor, "c m"]
    by_gram: Float[Tensor, "c m m"]
    by_prior_variance: Float[Tensor, " c"]
    by_factor: Float[Tensor, "m m"]
    """By the factor L of the kernel matrix of Z."""


def factorise(kernel: Kernel, points: Float[Tensor, "m d"]) -> Float[Tensor, "m m"]:
    """Return the Cholesky factor of the kernel matrix of inducing points, differentiable.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> factorise(RBFKernel().double(), torch.zeros(1, 1).double()).item()
    1.0
    """
    matrix = kernel(points).to_dense()
    diagonal = matrix.diagonal().detach()
    # A diagonal may be zero, as that of a linear kernel is at the origin; then the mean of the others stands in.
    scale = torch.maximum(diagonal, diagonal.mean()).clamp_min(_LEAST)
    return stable_cholesky(matrix + torch.diag_embed(_JITTER * scale))


@contextmanager
def row_passes(kernel: Kernel, points: Float[Tensor, "m d"], rows: SortedRows) -> Iterator["RowPasses"]:
    """Give the two passes over some rows, in as many threads as the kernel allows.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Kernel that all latents share.
    points : tensor of shape (m, d)
        Inducing points Z; they are learnt if they require a gradient.
    rows : SortedRows
        All rows.
    """
    cross = cross_kernel(kernel, points)
    with worker_threads() if cross.in_threads else nullcontext(map) as over:
        yield RowPasses(cross, rows, factorise(kernel, points), over)


class RowPasses:
    """The two passes over the rows, see :func:`row_passes`.

    Attributes
    ----------
    cross : CrossKernel
        Kernel between rows and inducing points.
    inverse : tensor of shape (m, m)
        :math:`L^{-1}`.
    over : callable
        Map that may run in several threads.
    """

    def __init__(self, cross: CrossKernel, rows: SortedRows, factor: Float[Tensor, "m m"], over: Map) -> None:
        m, K = len(factor), rows.n_classes
        self.cross, self.over, self._rows, self._factor = cross, over, rows, factor
        factor = factor.detach()
        identity = torch.eye(m, dtype=factor.dtype, device=factor.device)
        self.inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        self._size = max(1, cross.n_elements // m)
        self._keeps = len(rows.features) * m <= cross.n_kept
        self._kept: list[CrossBlock | None] = []
        # Whitening sums multiplies rounding errors by the variance of a point over its variance given all others.
        inflation = (self.inverse.square().sum(0) * factor.square().sum(1)).max()
        # Whitening costs 2 m² for each row, or 4 m³ for each class.
        self._whitens_sums = len(rows.features) > 2 * m * K and bool(inflation <= _MOST_INFLATION)

    def sum_up(self) -> InducingStatistics:
        """Return the statistics of whitened features."""
        m, K = len(self.inverse), self._rows.n_classes
        sums = ClassStatistics.zeros(K, m, dtype=self.inverse.dtype, device=self.inverse.device)
        prior_variance = self.inverse.new_zeros(K)
        for block, of_classes in self.over(self._sums_of, self._rows.chunks(self._size)):
            self._kept.append(block)
            for own in of_classes:
                sums.count[own.label] += own.total_weight
                sums.feature_sum[own.label] += own.feature_sum
                sums.gram[own.label] += own.gram
                prior_variance[own.label] += own.prior_variance
        if self._whitens_sums:
            sums.feature_sum.copy_(sums.feature_sum @ self.inverse.mT)
            for gram, whitened in zip(sums.gram, self.over(self._whiten, sums.gram), strict=True):
                gram.copy_(whitened)
        return InducingStatistics(sums, prior_variance)

    def pull_back(self, gradient: StatisticsGradient) -> None:
        """Add the gradient of the objective to ``.grad`` of kernel parameters and inducing points."""

        def pull(chunk: RowChunk, block: CrossBlock | None) -> Any:
            block = self.cross(chunk.features, differentiable=True) if block is None else block
            matrix = block.matrix.detach()
            by_matrix, by_variance = torch.empty_like(matrix), torch.empty_like(matrix[:, 0])
            for label, own in chunk.slices:
                product(matrix[own], gradient.by_gram[label], out=by_matrix[own])
                torch.add(gradient.by_sum[label], by_matrix[own], alpha=2.0, out=by_matrix[own])
                by_variance[own] = gradient.by_prior_variance[label]
            if chunk.weight is not None:
                by_matrix *= chunk.weight[:, None]
                by_variance *= chunk.weight
            return self.cross.pull_back(chunk.features, block, by_matrix, by_variance)

        for pulled in self.over(pull, self._rows.chunks(self._size), self._kept):
            self.cross.add(pulled)
        self.cross.finish()
        if self._factor.requires_grad:
            self._factor.backward(gradient.by_factor)

    def _sums_of(self, chunk: RowChunk) -> tuple[CrossBlock | None, list["_ClassSums"]]:
        block = self.cross(chunk.features, differentiable=self._keeps)
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
    """Contribution of a few rows of one class to its statistics."""

    label: int
    total_weight: Float[Tensor, ""]
    feature_sum: Float[Tensor, " m"]
    gram: Float[Tensor, "m m"]
    prior_variance: Float[Tensor, ""]
