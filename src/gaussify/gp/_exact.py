r"""Exact Gaussian process regression on matched targets, with one factorisation for all classes where possible.

Latent l has the covariance K over n rows, and row i, of class c and weight :math:`w_i`, observes it with variance
:math:`v_{cl}/w_i`: :math:`A_l = K + D_l`. Under a symmetric softmax there are two variances, :math:`v_\text{on}` for
the rows S of class l and :math:`v_\text{off}` for all others. With :math:`P = (K + v_\text{off}W^{-1})^{-1}` and
:math:`\delta = v_\text{off} - v_\text{on}`, by the identities of Woodbury and Sylvester,

.. math::
    A_l^{-1} = P + P_{:S}\big(W_S/\delta - P_{SS}\big)^{-1}P_{S:}, \qquad
    \log|A_l| = -\log|P| + \log|W_S/\delta - P_{SS}| + \log|\delta W_S^{-1}|:

one factorisation of size n and one of the size of each class replace K factorisations of size n.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify.likelihoods import LatentVariances, PseudoTargets

_ELEMENTS = 1 << 22  # of a temporary matrix
_MATRICES, _MATRICES_OF_LATENT = 25, 13  # of n² numbers at the peak, as measured; the second for SeparateSolver
_LEAST_RATIO = 1e-8  # below this ratio of two variances, their difference has lost the digits of the smaller one


def exact_gibibytes(n_rows: int, n_latents: int, *, shared: bool) -> float:
    """Return about the memory that the search of an exact model needs at its peak.

    Parameters
    ----------
    n_rows, n_latents : int
        Number of distinct rows, and of latents that are learnt together.
    shared : bool
        Whether one factorisation serves all latents, see ``solver``.

    Examples
    --------
    >>> round(exact_gibibytes(10_000, 10, shared=True), 1)
    18.6
    """
    n_matrices = _MATRICES if shared else max(_MATRICES, _MATRICES_OF_LATENT * n_latents)
    return 8.0 * n_matrices * n_rows**2 / 2**30


class ExactEvidence(NamedTuple):
    """Log-density of the targets, summed over latents, and the constant means at which it is taken.

    Examples
    --------
    >>> ExactEvidence(torch.tensor(-1.0), torch.zeros(3)).mean.shape
    torch.Size([3])
    """

    value: Float[Tensor, ""]
    mean: Float[Tensor, " l"]


def exact_evidence(
    covariance: Float[Tensor, "n n"],
    labels: Int[Tensor, " n"],
    table: PseudoTargets,
    weight: Float[Tensor, " n"] | None = None,
) -> ExactEvidence:
    r"""Return the evidence at the best constant means; differentiable by ``covariance``.

    .. math:: \log\mathcal{N}(y_l \mid \mu_l\mathbf{1}, A_l), \qquad
        \mu_l = \frac{\mathbf{1}^\top A_l^{-1}y_l}{\mathbf{1}^\top A_l^{-1}\mathbf{1}}

    A row of weight w counts as w equal rows. The product of their densities is the density of one row of variance
    :math:`v/w`, times :math:`(2\pi v)^{-(w - 1)/2}w^{-1/2}`.

    Examples
    --------
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1))
    >>> exact_evidence(torch.zeros(2, 2), torch.tensor([0, 1]), table)  # two standard normals at one
    ExactEvidence(value=tensor(-2.8379), mean=tensor([0.]))
    """
    solve = solver(covariance, labels, table, weight)
    targets = table.mean[labels].mT
    right = torch.stack([targets, torch.ones_like(targets)], -1)  # (l, n, 2)
    # (l, 2, 2): products of targets and ones with both solutions
    (squares, both), (_, total) = (right.mT @ solve(right)).movedim(0, -1)
    mean = (both / total).detach()  # it is optimal, so its derivative does not contribute
    quadratic = squares - 2.0 * mean * both + mean.square() * total
    constant = torch.full_like(mean, len(labels) * math.log(2.0 * math.pi))
    if weight is not None:
        constant += (weight - 1.0) @ torch.log(2.0 * math.pi * table.variance[labels]) + weight.log().sum()
    return ExactEvidence(-0.5 * (quadratic + solve.log_det + constant).sum(), mean)


class Solver(ABC):
    """Products with the inverse of every latent's :math:`A_l`."""

    log_det: Float[Tensor, " l"]

    @abstractmethod
    def __call__(self, right: Float[Tensor, "l n k"]) -> Float[Tensor, "l n k"]:
        """Return the inverse of each latent's matrix times the latent's right-hand sides."""

    @abstractmethod
    def squared_norms(self, right: Float[Tensor, "n k"]) -> Float[Tensor, "k l"]:
        r"""Return :math:`r^\top A_l^{-1}r` of right-hand sides that all latents share."""

    @abstractmethod
    def inverse_diagonal(self, places: Int[Tensor, " k"]) -> Float[Tensor, "k l"]:
        r"""Return :math:`[A_l^{-1}]_{ii}` for some rows."""


def solver(
    covariance: Float[Tensor, "n n"],
    labels: Int[Tensor, " n"],
    table: PseudoTargets,
    weight: Float[Tensor, " n"] | None = None,
) -> Solver:
    """Return the solver with one factorisation for all latents where their variances allow it, else one for each.

    Examples
    --------
    >>> table = PseudoTargets(torch.zeros(3, 3), torch.full((3, 3), 2.0).fill_diagonal_(1.0))
    >>> solve = solver(torch.zeros(3, 3), torch.tensor([0, 1, 2]), table)
    >>> solve(torch.ones(3, 3, 1))[0, :, 0]  # latent 0: the first row is of its class
    tensor([1.0000, 0.5000, 0.5000])
    """
    weight = torch.ones_like(covariance[:, 0]) if weight is None else weight
    shared = shared_variances(table)
    if shared is None:
        return SeparateSolver(covariance, table.variance[labels] / weight[:, None])
    return SharedSolver(covariance, labels, table.mean.shape[1], weight, *shared)


def shared_variances(table: PseudoTargets) -> tuple[float, float] | None:
    """Return the variances off and on the diagonal of the table, or None if the table is not of that form.

    Examples
    --------
    >>> shared_variances(PseudoTargets(torch.zeros(3, 3), torch.full((3, 3), 2.0).fill_diagonal_(1.0)))
    (2.0, 1.0)
    """
    two = LatentVariances.of(table)
    if two is None or bool((two.own != two.own[0]).any() or (two.other != two.other[0]).any()):
        return None
    off, on = float(two.other[0]), float(two.own[0])
    return (off, on) if _LEAST_RATIO * off < on <= off else None


class SeparateSolver(Solver):
    """One factorisation for each latent.

    Examples
    --------
    >>> SeparateSolver(torch.zeros(2, 2), torch.tensor([[1.0], [2.0]])).squared_norms(torch.ones(2, 1))
    tensor([[1.5000]])
    """

    def __init__(self, covariance: Float[Tensor, "n n"], noise: Float[Tensor, "n l"]) -> None:
        self._factor = stable_cholesky(covariance + torch.diag_embed(noise.mT))  # (l, n, n)
        self.log_det = 2.0 * self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def __call__(self, right: Float[Tensor, "l n k"]) -> Float[Tensor, "l n k"]:
        return torch.cholesky_solve(right, self._factor)

    def squared_norms(self, right: Float[Tensor, "n k"]) -> Float[Tensor, "k l"]:
        roots = (torch.linalg.solve_triangular(factor, right, upper=False) for factor in self._factor)
        return torch.stack([root.square().sum(0) for root in roots], -1)

    def inverse_diagonal(self, places: Int[Tensor, " k"]) -> Float[Tensor, "k l"]:
        unit = torch.zeros_like(self._factor[0])[:, : len(places)]
        unit[places, torch.arange(len(places))] = 1.0
        return self.squared_norms(unit)


class SharedSolver(Solver):
    """One factorisation for all latents, and a small one for each.

    Examples
    --------
    >>> shared = SharedSolver(torch.zeros(2, 2), torch.tensor([0, 1]), 2, torch.ones(2), off=2.0, on=1.0)
    >>> shared.squared_norms(torch.ones(2, 1))
    tensor([[1.5000, 1.5000]])
    """

    def __init__(
        self,
        covariance: Float[Tensor, "n n"],
        labels: Int[Tensor, " n"],
        n_latents: int,
        weight: Float[Tensor, " n"],
        off: float,
        on: float,
    ) -> None:
        delta = off - on
        factor = stable_cholesky(covariance + torch.diag_embed(off / weight))
        self._inverse = torch.cholesky_inverse(factor)  # P
        base = 2.0 * factor.diagonal().log().sum()
        self._own = [(labels == c).nonzero()[:, 0] for c in range(n_latents)] if delta else []
        self._factors = []
        self.log_det = base.expand(n_latents)
        if delta:  # otherwise all variances are equal, and P is the inverse
            log_dets = []
            for rows in self._own:
                excess = weight[rows] / delta
                small = stable_cholesky(torch.diag_embed(excess) - self._inverse[rows][:, rows])
                self._factors.append(small)
                log_dets.append(base + 2.0 * small.diagonal().log().sum() - excess.log().sum())
            self.log_det = torch.stack(log_dets)

    def __call__(self, right: Float[Tensor, "l n k"]) -> Float[Tensor, "l n k"]:
        solved = self._inverse @ right
        if not self._own:
            return solved
        more = [
            self._inverse[:, rows] @ torch.cholesky_solve(part[rows], factor) if len(rows) else torch.zeros_like(part)
            for rows, factor, part in zip(self._own, self._factors, solved, strict=True)
        ]
        return solved + torch.stack(more)

    def squared_norms(self, right: Float[Tensor, "n k"]) -> Float[Tensor, "k l"]:
        solved = self._inverse @ right
        return self._corrected((right * solved).sum(0), solved)

    def inverse_diagonal(self, places: Int[Tensor, " k"]) -> Float[Tensor, "k l"]:
        return self._corrected(self._inverse.diagonal()[places], self._inverse[:, places])

    def _corrected(self, common: Float[Tensor, " k"], solved: Float[Tensor, "n k"]) -> Float[Tensor, "k l"]:
        """Return squared norms by P, corrected for the rows of each class."""
        more = [
            torch.linalg.solve_triangular(factor, solved[rows], upper=False).square().sum(0)
            for rows, factor in zip(self._own, self._factors, strict=True)
        ]
        return common[:, None] + torch.stack(more, -1) if more else common[:, None].expand(-1, len(self.log_det))


class ExactPosterior(NamedTuple):
    r"""The posterior of the latents of any row given n rows; the prior covariance includes that of the constant mean.

    Examples
    --------
    >>> table = PseudoTargets(torch.tensor([[1.0]]), torch.tensor([[1.0]]))
    >>> posterior = ExactPosterior.of(torch.ones(1, 1), torch.tensor([0]), table)
    >>> posterior.latent(torch.ones(1, 1), torch.ones(1))
    (tensor([[0.5000]]), tensor([[0.5000]]))
    """

    solve: Solver
    alpha: Float[Tensor, "l n"]
    r""":math:`A_l^{-1}y_l`."""

    @classmethod
    def of(
        cls,
        covariance: Float[Tensor, "n n"],
        labels: Int[Tensor, " n"],
        table: PseudoTargets,
        weight: Float[Tensor, " n"] | None = None,
    ) -> "ExactPosterior":
        """Return the posterior given rows."""
        solve = solver(covariance, labels, table, weight)
        return cls(solve, solve(table.mean[labels].mT[:, :, None])[:, :, 0])

    def latent(
        self, cross: Float[Tensor, "k n"], variance: Float[Tensor, " k"]
    ) -> tuple[Float[Tensor, "k l"], Float[Tensor, "k l"]]:
        r"""Return mean and variance for rows with covariance ``cross`` to the training rows and prior ``variance``.

        .. math:: k^\top A_l^{-1}y_l, \qquad k_{**} - k^\top A_l^{-1}k
        """
        parts = [self.solve.squared_norms(part.mT) for part in cross.split(max(1, _ELEMENTS // cross.shape[1]))]
        return cross @ self.alpha.mT, (variance[:, None] - torch.cat(parts)).clamp_min(0.0)
