r"""The collapsed bound of rows, and its exact gradient by kernel parameters and inducing points, in bounded memory.

Two passes over the rows. The first sums the statistics of :math:`\phi_i = L^{-1}k(Z, x_i)`, without a graph; from them
follow the bound and its derivatives :math:`\bar G_c, \bar s_c, \bar t_c`. The second computes the kernel of each chunk
again and pulls

.. math:: \bar\phi_i = 2\bar G_c\phi_i + \bar s_c, \qquad \bar k(Z, x_i) = L^{-\top}\bar\phi_i, \qquad
    \bar k(x_i, x_i) = \bar t_c

back through it. What the factor L contributes needs no rows at all, as
:math:`\sum_i\bar\phi_i\phi_i^\top = \sum_c 2\bar G_cG_c + \bar s_cs_c^\top`:

.. math:: \bar L = -\mathrm{tril}\Big(L^{-\top}\sum_c\big(2\bar G_cG_c + \bar s_cs_c^\top\big)\Big).

Each pass is a map and a sum. Where the kernel matrix is small, its graph is kept and the kernel computed once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import add_moments_, stable_cholesky
from gaussify.gp._collapsed import BoundGradient, InducingStatistics, collapsed_bound
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics

_ELEMENTS = 1 << 22  # of a chunk's kernel matrix
_KEPT_ELEMENTS = 1 << 24  # of the kernel matrix of all rows, up to which its graph is kept


class SortedRows(NamedTuple):
    """Rows in the order of their classes, so that each class is a slice.

    Examples
    --------
    >>> rows = SortedRows.of(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 0, 1]), n_classes=2)
    >>> rows.features.flatten(), rows.sizes
    (tensor([2., 1., 3.]), [1, 2])
    """

    features: Float[Tensor, "n d"]
    sizes: list[int]
    """Number of rows of each class."""

    @classmethod
    def of(cls, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, n_classes: int) -> "SortedRows":
        """Sort rows by class."""
        order = torch.argsort(labels, stable=True)
        return cls(features[order], torch.bincount(labels, minlength=n_classes).tolist())

    def chunks(self, size: int) -> Iterator[tuple[int, Float[Tensor, "k d"]]]:
        """Yield the class and the rows of chunks of one class each, of at most ``size`` rows."""
        for c, own in enumerate(self.features.split(self.sizes)):
            for part in own.split(size) if len(own) else ():
                yield c, part


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
    L = stable_cholesky(kernel(inducing_points).to_dense())
    identity = torch.eye(m, dtype=L.dtype, device=L.device)
    inverse = torch.linalg.solve_triangular(L.detach(), identity, upper=False)
    size = max(1, _ELEMENTS // m)
    keeps_graph = len(rows.features) * m <= _KEPT_ELEMENTS
    kept: list[tuple[int, Tensor, Tensor, Tensor]] = []
    statistics = ClassStatistics.zeros(len(rows.sizes), m, dtype=L.dtype, device=L.device)
    prior_variance = L.new_zeros(len(rows.sizes))
    statistics.count.copy_(torch.tensor(rows.sizes))
    for c, part in rows.chunks(size):
        with torch.set_grad_enabled(keeps_graph):
            cross, diagonal = kernel(part, inducing_points).to_dense(), kernel(part, diag=True)
        with torch.no_grad():
            features = cross @ inverse.mT
            add_moments_(statistics.feature_sum[c], statistics.gram[c], features)
            prior_variance[c] += diagonal.sum()
        if keeps_graph:
            kept.append((c, features, cross, diagonal))
    bound = collapsed_bound(InducingStatistics(statistics, prior_variance), table)
    back = (2.0 * bound.gram) @ inverse, bound.feature_sum @ inverse  # (c, m, m), (c, m)
    for c, features, cross, diagonal in kept or _again(kernel, inducing_points, rows, inverse, size):
        by_cross = torch.addmm(back[1][c], features, back[0][c])
        torch.autograd.backward((cross, diagonal), (by_cross, bound.prior_variance[c].expand_as(diagonal)))
    inner = (2.0 * bound.gram @ statistics.gram).sum(0) + bound.feature_sum.mT @ statistics.feature_sum
    L.backward(-torch.tril(inverse.mT @ inner))
    return bound


def _again(
    kernel: Kernel, inducing_points: Tensor, rows: SortedRows, inverse: Tensor, size: int
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Features of every chunk, with the graph of its kernel, which is freed before the next one."""
    for c, part in rows.chunks(size):
        cross, diagonal = kernel(part, inducing_points).to_dense(), kernel(part, diag=True)
        yield c, cross.detach() @ inverse.mT, cross, diagonal
