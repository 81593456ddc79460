"""First positions of the inducing points of a sparse Gaussian process."""

from enum import StrEnum

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

_ROWS_PER_POINT = 20


class InducingInit(StrEnum):
    """How the first inducing points are found."""

    KMEANS = "kmeans"
    """Cluster centres of the rows."""
    GREEDY = "greedy"
    """Rows, chosen one by one where the latent is most uncertain given the points so far."""


def first_points(
    how: InducingInit,
    n_points: int,
    rows: Float[Tensor, "n d"],
    weight: Float[Tensor, " n"],
    kernel: Kernel,
    seed: int,
) -> Float[Tensor, "m d"]:
    """Return ``n_points`` inducing points, or all distinct rows if there are no more than that.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> rows = torch.tensor([[0.0], [0.1], [5.0], [5.1]]).double()
    >>> first_points(InducingInit.KMEANS, 2, rows, torch.ones(4), RBFKernel().double(), seed=0).sort(0).values
    tensor([[0.0500],
            [5.0500]], dtype=torch.float64)
    """
    rows, place = torch.unique(rows, dim=0, return_inverse=True)  # equal rows may have different labels
    weight = torch.zeros(len(rows), dtype=weight.dtype).index_add_(0, place, weight)
    if len(rows) <= n_points:
        return rows
    n_drawn = min(len(rows), max(_ROWS_PER_POINT * n_points, 1000))
    drawn = torch.from_numpy(np.random.default_rng(seed).permutation(len(rows))[:n_drawn])
    if how is InducingInit.GREEDY:
        return greedy_points(kernel, rows[drawn], n_points)
    from sklearn.cluster import KMeans

    means = KMeans(n_points, n_init=1, max_iter=30, random_state=seed)
    centres = means.fit(rows[drawn].numpy(), sample_weight=weight[drawn].numpy()).cluster_centers_
    return torch.from_numpy(centres).to(rows)


@torch.no_grad()
def greedy_points(kernel: Kernel, rows: Float[Tensor, "n d"], n_points: int) -> Float[Tensor, "m d"]:
    r"""Return rows of largest conditional variance, chosen one by one: a pivoted Cholesky factorisation [1]_.

    .. math:: i_{m+1} = \operatorname{argmax}_i\; k_{ii} - k_{iZ}K_{ZZ}^{-1}k_{Zi}

    References
    ----------
    .. [1] D. Burt, C. Rasmussen, M. van der Wilk, "Convergence of sparse variational inference in Gaussian processes
       regression", JMLR 2020.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> greedy_points(RBFKernel().double(), torch.tensor([[0.0], [0.1], [5.0]]).double(), 2).flatten()
    tensor([0., 5.], dtype=torch.float64)
    """
    left = kernel(rows, diag=True).clone()
    root = torch.zeros(n_points, len(rows), dtype=rows.dtype)
    chosen: list[int] = []
    for step in range(n_points):
        pivot = int(left.argmax())
        chosen.append(pivot)
        spread = left[pivot].clamp_min(torch.finfo(rows.dtype).tiny).sqrt()
        column = kernel(rows, rows[pivot : pivot + 1]).to_dense()[:, 0]
        root[step] = (column - root[:step, pivot] @ root[:step]) / spread
        left = (left - root[step].square()).clamp_min(0.0)
        left[chosen] = -1.0
    return rows[chosen].clone()
