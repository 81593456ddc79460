r"""Exact Gaussian process regression on matched targets, all classes by one factorisation where they allow it.

Latent l has the covariance K over n rows, and row i, of class c, observes it with variance :math:`v_{cl}`:
:math:`A_l = K + D_l`. Under a symmetric softmax the variances are :math:`v_\text{on}` for the rows S of class l and
:math:`v_\text{off}` for all others. So with :math:`P = (K + v_\text{off}I)^{-1}` and
:math:`\delta = v_\text{off} - v_\text{on}`, by the identities of Woodbury and Sylvester,

.. math::
    A_l^{-1} = P + P_{:S}\big(I/\delta - P_{SS}\big)^{-1}P_{S:}, \qquad
    \log|A_l| = \log|K + v_\text{off}I| + \log|I - \delta P_{SS}|:

one factorisation of size n and one of the size of each class, where K factorisations of size n would be needed.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify.likelihoods import PseudoTargets


class ExactEvidence(NamedTuple):
    """Log-density of the targets, summed over latents, and the constant means that it was taken at.

    Examples
    --------
    >>> ExactEvidence(torch.tensor(-1.0), torch.zeros(3)).mean.shape
    torch.Size([3])
    """

    value: Float[Tensor, ""]
    mean: Float[Tensor, " l"]


def exact_evidence(covariance: Float[Tensor, "n n"], labels: Int[Tensor, " n"], table: PseudoTargets) -> ExactEvidence:
    r"""Return the evidence at the best constant means; differentiable by ``covariance``.

    .. math:: \log\mathcal{N}(y_l \mid \mu_l\mathbf{1}, A_l), \qquad
        \mu_l = \frac{\mathbf{1}^\top A_l^{-1}y_l}{\mathbf{1}^\top A_l^{-1}\mathbf{1}}

    Examples
    --------
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1))
    >>> exact_evidence(torch.zeros(2, 2), torch.tensor([0, 1]), table)  # two standard normals at one
    ExactEvidence(value=tensor(-2.8379), mean=tensor([0.]))
    """
    n, ones = len(labels), torch.ones_like(covariance[:, 0])
    shared = shared_variances(table)
    if shared is None:
        factor = stable_cholesky(covariance + torch.diag_embed(table.variance[labels].mT))  # (l, n, n)
        log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        right = torch.stack([table.mean[labels].mT, ones.expand(len(factor), n)], -1)  # (l, n, 2)
        solved = torch.cholesky_solve(right, factor)
    else:
        solve = SharedSolve.of(covariance, labels, table.mean.shape[1], *shared)
        right = torch.stack([table.mean[labels].mT, ones.expand(table.mean.shape[1], n)], -1)
        solved, log_det = solve(right), solve.log_det
    # (l, 2, 2): products of targets and ones with both solutions
    (targets, both), (_, total) = (right.mT @ solved).movedim(0, -1)
    mean = (both / total).detach()  # optimal, so its own derivative does not count
    quadratic = targets - 2.0 * mean * both + mean.square() * total
    return ExactEvidence(-0.5 * (quadratic + log_det + n * math.log(2.0 * math.pi)).sum(), mean)


def shared_variances(table: PseudoTargets) -> tuple[float, float] | None:
    """Return the variances off and on the diagonal of the table, if these two are all there are and the latter smaller.

    Examples
    --------
    >>> shared_variances(PseudoTargets(torch.zeros(3, 3), torch.full((3, 3), 2.0).fill_diagonal_(1.0)))
    (2.0, 1.0)
    """
    n_classes, n_latents = table.variance.shape
    if n_classes != n_latents or n_classes < 3:
        return None
    off, on = float(table.variance[0, 1]), float(table.variance[0, 0])
    expected = torch.full_like(table.variance, off).fill_diagonal_(on)
    return (off, on) if on < off and torch.equal(expected, table.variance) else None


class SharedSolve(NamedTuple):
    """Products with the inverse of every latent's covariance, from one factorisation.

    Examples
    --------
    >>> solve = SharedSolve.of(torch.zeros(3, 3), torch.tensor([0, 1, 2]), n_classes=3, off=2.0, on=1.0)
    >>> solve(torch.ones(3, 3, 1))[0, :, 0]  # of latent 0, whose own row is the first
    tensor([1.0000, 0.5000, 0.5000])
    """

    inverse: Float[Tensor, "n n"]
    """P."""
    own: list[Tensor]
    """Indices of the rows of each class."""
    factors: list[Tensor]
    r"""Of :math:`I/\delta - P_{SS}`."""
    log_det: Float[Tensor, " l"]

    @classmethod
    def of(
        cls, covariance: Float[Tensor, "n n"], labels: Int[Tensor, " n"], n_classes: int, off: float, on: float
    ) -> "SharedSolve":
        """Factorise; every class has a latent, also where it has no rows."""
        n, delta = len(labels), off - on
        identity = torch.eye(n, dtype=covariance.dtype, device=covariance.device)
        factor = stable_cholesky(covariance + off * identity)
        inverse = torch.cholesky_inverse(factor)
        base = 2.0 * factor.diagonal().log().sum()
        own = [(labels == c).nonzero()[:, 0] for c in range(n_classes)]
        factors, log_dets = [], []
        for rows in own:
            small = stable_cholesky(identity[: len(rows), : len(rows)] / delta - inverse[rows][:, rows])
            factors.append(small)
            log_dets.append(base + 2.0 * small.diagonal().log().sum() + len(rows) * math.log(delta))
        return cls(inverse, own, factors, torch.stack(log_dets))

    def __call__(self, right: Float[Tensor, "l n k"]) -> Float[Tensor, "l n k"]:
        """Solve with the covariance of each latent."""
        solved = self.inverse @ right
        more = [
            self.inverse[:, rows] @ torch.cholesky_solve(part[rows], factor) if len(rows) else torch.zeros_like(part)
            for rows, factor, part in zip(self.own, self.factors, solved, strict=True)
        ]
        return solved + torch.stack(more)
