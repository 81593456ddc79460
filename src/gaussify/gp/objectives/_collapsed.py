r"""Titsias' collapsed bound on the evidence of sparse Gaussian processes, as a function of class statistics.

With inducing points Z, :math:`K_{ZZ} = LL^\top` and whitened features :math:`\phi(x) = L^{-1}k(Z, x)`, latent l has the
approximate prior :math:`f_l(x) = \mu_l + \phi(x)^\top w_l`, :math:`w_l \sim \mathcal{N}(0, I)`. A row of class c
observes the latent with mean :math:`y_{cl}` and variance :math:`v_{cl}`. So rows enter through the count, sum and Gram
matrix of each class, and through :math:`t_c = \sum_{i\in c}k(x_i, x_i)`:

.. math::
    \mathcal{L} &= \sum_l \Big[\log\mathcal{N}\big(y_l \mid \mu_l, \Phi\Phi^\top + D_l\big)
        - \tfrac12\sum_c \frac{t_c - \mathrm{tr}\,G_c}{v_{cl}}\Big], \\
    \log\mathcal{N}(\cdot) &= -\tfrac12\sum_c n_c\Big(\log 2\pi v_{cl} + \frac{(y_{cl} - \mu_l)^2}{v_{cl}}\Big)
        - \tfrac12\log|B_l| + \tfrac12 b_l^\top B_l^{-1}b_l, \\
    B_l &= I + \sum_c\frac{G_c}{v_{cl}}, \qquad b_l = \sum_c\frac{y_{cl} - \mu_l}{v_{cl}}s_c.

The bound is quadratic in each constant mean. Its best value is that of generalised least squares: with
:math:`a_l = \sum_c s_c/v_{cl}` and :math:`b_l^0` for :math:`b_l` at :math:`\mu_l = 0`,

.. math:: \mu_l = \frac{\sum_c n_cy_{cl}/v_{cl} - a_l^\top B_l^{-1}b_l^0}
    {\sum_c n_c/v_{cl} - a_l^\top B_l^{-1}a_l}.
"""

import math
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import Map, large_zeros, product, solve_lower, stable_cholesky
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._passes import InducingStatistics, StatisticsGradient, row_passes
from gaussify.likelihoods import LatentVariances, PseudoTargets
from gaussify.posterior import ClassStatistics, natural_parameters

_ELEMENTS = 1 << 18  # of the matrices in a group of latents: they stay in the cache, and leave work for several threads


class CollapsedBound(NamedTuple):
    """The bound, the constant means at which it is taken, and its gradient.

    Examples
    --------
    >>> CollapsedBound._fields
    ('value', 'mean', 'gradient')
    """

    value: float
    mean: Float[Tensor, " l"]
    gradient: StatisticsGradient


def accumulate_collapsed_bound(
    kernel: Kernel, points: Float[Tensor, "m d"], rows: SortedRows, table: PseudoTargets
) -> CollapsedBound:
    """Return the collapsed bound, and add its gradient to ``.grad`` of inducing points and kernel parameters.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Kernel that all latents share.
    points : tensor of shape (m, d)
        Inducing points Z; they are learnt if they require a gradient.
    rows : SortedRows
        All rows.
    table : PseudoTargets
        Mean and variance that each class gives every latent.
    """
    with row_passes(kernel, points, rows) as passes:
        bound = collapsed_bound(passes.sum_up(), table, passes.inverse, over=passes.over)
        passes.pull_back(bound.gradient)
    return bound


def collapsed_bound(
    statistics: InducingStatistics,
    table: PseudoTargets,
    inverse: Float[Tensor, "d d"] | None = None,
    *,
    over: Map = map,
) -> CollapsedBound:
    r"""Return the bound at the best constant means, and its gradient.

    As the means are optimal, the gradient is the one at fixed means. With :math:`\alpha_l = B_l^{-1}b_l` and
    :math:`X_l = I - B_l^{-1} - \alpha_l\alpha_l^\top`,

    .. math::
        \frac{\partial\mathcal L}{\partial G_c} = \bar G_c = \tfrac12\sum_l\frac{X_l}{v_{cl}}, \qquad
        \frac{\partial\mathcal L}{\partial s_c} = \bar s_c = \sum_l\frac{y_{cl} - \mu_l}{v_{cl}}\alpha_l, \qquad
        \frac{\partial\mathcal L}{\partial t_c} = -\tfrac12\sum_l\frac1{v_{cl}}.

    The derivatives by the sums and Gram matrices of :math:`k(Z, x) = L\phi` are :math:`L^{-\top}\bar s_c` and
    :math:`L^{-\top}\bar G_cL^{-1}`. They contain :math:`L^{-\top}B_l^{-1}L^{-1} = R_l^\top R_l`, where
    :math:`B_l = C_lC_l^\top` and :math:`R_l = C_l^{-1}L^{-1}`. The derivative by L itself is

    .. math:: \bar L = -\mathrm{tril}\big(L^{-\top}A\big), \qquad
        A = \sum_c 2\bar G_cG_c + \bar s_cs_c^\top = \sum_l B_l + B_l^{-1} - 2I + \alpha_l\alpha_l^\top,

    as :math:`\sum_cG_c/v_{cl} = B_l - I` and :math:`\sum_c(y_{cl} - \mu_l)s_c/v_{cl} = b_l = B_l\alpha_l`. K matrices
    are factorised, whatever the number of rows.

    Parameters
    ----------
    statistics : InducingStatistics
        Statistics of all rows.
    table : PseudoTargets
        Mean and variance that each class gives every latent.
    inverse : tensor of shape (d, d), optional
        :math:`L^{-1}`; the identity by default.
    over : callable, default=map
        Map over groups of latents, which may run in several threads.

    Examples
    --------
    >>> features = torch.tensor([[1.0], [2.0]]).double()
    >>> rows = ClassStatistics.from_rows(features, [0, 1])
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]).double(), torch.ones(2, 1).double())
    >>> collapsed_bound(InducingStatistics(rows, torch.tensor([1.0, 4.0]).double()), table).mean
    tensor([-1.0000], dtype=torch.float64)
    """
    rows, n_latents = statistics.rows, table.mean.shape[1]
    identity = torch.eye(rows.n_features, dtype=rows.gram.dtype, device=rows.gram.device)
    inverse = identity if inverse is None else inverse
    total_gram, prior_precision = rows.gram.sum(0), inverse.mT @ inverse
    by_gram = SumOverLatents(table, rows.n_features, factor=0.5)
    # A, without the sum of B^-1: that is summed as R^T R = L^-T B^-1 L^-1
    inner, inverses = -2.0 * n_latents * identity, torch.zeros_like(identity)
    value, parts = 0.0, []

    def work(latents: Int[Tensor, " l"]) -> _Terms:
        return _terms(_solve(rows, table, latents, total_gram), inverse, prior_precision)

    groups = torch.arange(n_latents, device=identity.device).split(max(1, _ELEMENTS // identity.numel()))
    for latents, few in zip(groups, over(work, groups), strict=True):
        inverses += few.inverses
        inner += few.inner
        by_gram.add(latents, few.by_gram)
        value += few.value
        parts.append((few.mean, few.pulled))
    mean, pulled = (torch.cat(part) for part in zip(*parts, strict=True))
    weight = 1.0 / table.variance
    trace = rows.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    value -= 0.5 * float((statistics.prior_variance - trace) @ weight.sum(1))
    by_factor = inverse.mT @ inner + torch.linalg.solve_triangular(inverse, inverses, upper=False, left=False)
    by_sum = torch.einsum("cl,ld->cd", (table.mean - mean) * weight, pulled)
    gradient = StatisticsGradient(by_sum, by_gram.total(), -0.5 * weight.sum(1), -torch.tril(by_factor))
    return CollapsedBound(value, mean, gradient)


class _Terms(NamedTuple):
    """Contribution of some latents to the bound and its derivatives."""

    value: float
    mean: Float[Tensor, " l"]
    pulled: Float[Tensor, "l d"]  # L^-T alpha
    by_gram: Float[Tensor, "l d d"]  # L^-T X L^-1
    inverses: Float[Tensor, "d d"]  # sum of R^T R
    inner: Float[Tensor, "d d"]  # sum of the rest of A


def _terms(few: "_Solved", inverse: Float[Tensor, "d d"], prior_precision: Float[Tensor, "d d"]) -> _Terms:
    own = torch.empty_like(few.factor)
    for factor, room in zip(few.factor, own, strict=True):
        R = solve_lower(factor, inverse)
        product(R.mT, R, out=room)
    inverses, pulled = own.sum(0), few.alpha @ inverse
    by_gram = torch.sub(prior_precision, own.addcmul_(pulled[:, :, None], pulled[:, None, :]), out=own)
    inner = few.precision.sum(0).addmm_(few.alpha.mT, few.alpha)
    return _Terms(few.value, few.mean, pulled, by_gram, inverses, inner)


class _Solved(NamedTuple):
    """Solution for some latents at their best constant means."""

    value: float  # log N
    mean: Float[Tensor, " l"]
    alpha: Float[Tensor, "l d"]
    precision: Float[Tensor, "l d d"]  # B
    factor: Float[Tensor, "l d d"]


def _solve(
    rows: ClassStatistics, table: PseudoTargets, latents: Int[Tensor, " l"], total_gram: Float[Tensor, "d d"]
) -> _Solved:
    natural = natural_parameters(rows, table, latents, total_gram=total_gram)
    y, v = table.mean[:, latents], table.variance[:, latents]
    weight, count = 1.0 / v, rows.count[:, None]
    precision = natural.precision
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor = stable_cholesky(precision)
    ones = torch.einsum("cl,cd->ld", weight, rows.feature_sum)  # a_l; b_l = b_l^0 - mu_l a_l
    solved = torch.cholesky_solve(torch.stack([natural.linear, ones], -1), factor)  # (l, d, 2)
    of_targets, of_ones = solved.unbind(-1)
    mean = ((count * y * weight).sum(0) - (ones * of_targets).sum(-1)) / (
        (count * weight).sum(0) - (ones * of_ones).sum(-1)
    )
    alpha = of_targets - mean[:, None] * of_ones
    fit = ((natural.linear - mean[:, None] * ones) * alpha).sum()
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
    squares = (count * (torch.log(2.0 * math.pi * v) + (y - mean).square() * weight)).sum()
    return _Solved(0.5 * float(fit - log_det - squares), mean, alpha, precision, factor)


class SumOverLatents:
    r"""The sum :math:`a\sum_l M_l/v_{cl}` for every class, in K d² operations if a latent has two variances."""

    def __init__(self, table: PseudoTargets, n_features: int, factor: float = 1.0) -> None:
        self._weight, self._two, self._factor = factor / table.variance, LatentVariances.of(table), factor
        shape = (len(self._weight), n_features, n_features)
        self._sum = large_zeros(shape, self._weight.dtype, self._weight.device)
        self._common = torch.zeros_like(self._sum[0])

    def add(self, latents: Int[Tensor, " l"], matrices: Float[Tensor, "l d d"]) -> None:
        """Add the terms of consecutive latents; every latent is added once."""
        if self._two is None:
            self._sum += torch.einsum("cl,lij->cij", self._weight[:, latents], matrices)
            return
        own, other = self._factor / self._two.own[latents], self._factor / self._two.other[latents]
        self._common += torch.einsum("l,lij->ij", other, matrices)
        torch.mul(matrices, (own - other)[:, None, None], out=self._sum[latents[0] : latents[-1] + 1])

    def total(self) -> Float[Tensor, "c d d"]:
        """Return the sum for each class."""
        return self._sum.add_(self._common)
