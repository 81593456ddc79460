r"""Titsias' collapsed bound on the evidence of sparse Gaussian processes, as a function of class statistics.

With inducing points Z, :math:`K_{ZZ} = LL^\top` and whitened features :math:`\phi(x) = L^{-1}k(Z, x)`, latent l has the
approximate prior :math:`f_l(x) = \mu_l + \phi(x)^\top w_l`, :math:`w_l \sim \mathcal{N}(0, I)`. A row of class c
observes it with mean :math:`y_{cl}` and variance :math:`v_{cl}`, so that rows enter by their count, sum and Gram matrix
alone, and by :math:`t_c = \sum_{i\in c}k(x_i, x_i)`:

.. math::
    \mathcal{L} &= \sum_l \Big[\log\mathcal{N}\big(y_l \mid \mu_l, \Phi\Phi^\top + D_l\big)
        - \tfrac12\sum_c \frac{t_c - \mathrm{tr}\,G_c}{v_{cl}}\Big], \\
    \log\mathcal{N}(\cdot) &= -\tfrac12\sum_c n_c\Big(\log 2\pi v_{cl} + \frac{(y_{cl} - \mu_l)^2}{v_{cl}}\Big)
        - \tfrac12\log|B_l| + \tfrac12 b_l^\top B_l^{-1}b_l, \\
    B_l &= I + \sum_c\frac{G_c}{v_{cl}}, \qquad b_l = \sum_c\frac{y_{cl} - \mu_l}{v_{cl}}s_c.

The bound is quadratic in each constant mean, whose best value is that of generalised least squares:
with :math:`a_l = \sum_c s_c/v_{cl}` and :math:`b_l^0` for :math:`b_l` at :math:`\mu_l = 0`,

.. math:: \mu_l = \frac{\sum_c n_cy_{cl}/v_{cl} - a_l^\top B_l^{-1}b_l^0}
    {\sum_c n_c/v_{cl} - a_l^\top B_l^{-1}a_l}.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics, natural_parameters


class InducingStatistics(NamedTuple):
    """What rows say about the weights of whitened features, and their prior variances.

    Examples
    --------
    >>> rows = ClassStatistics.zeros(n_classes=3, n_features=2)
    >>> InducingStatistics(rows, torch.zeros(3).double()).rows.n_features
    2
    """

    rows: ClassStatistics
    """Of the whitened features."""
    prior_variance: Float[Tensor, " c"]
    """Sum of k(x, x) over the rows of each class."""


class BoundGradient(NamedTuple):
    """The bound, the constant means that it was taken at, and its derivatives by the statistics.

    Examples
    --------
    >>> names = BoundGradient._fields
    >>> names
    ('value', 'mean', 'feature_sum', 'gram', 'prior_variance')
    """

    value: float
    mean: Float[Tensor, " l"]
    feature_sum: Float[Tensor, "c d"]
    gram: Float[Tensor, "c d d"]
    prior_variance: Float[Tensor, " c"]


def collapsed_bound(statistics: InducingStatistics, table: PseudoTargets) -> BoundGradient:
    r"""Return the bound at the best constant means, and its gradient.

    As the means are optimal, the gradient is that at fixed means. With :math:`\alpha_l = B_l^{-1}b_l`,

    .. math::
        \frac{\partial\mathcal L}{\partial G_c} = \tfrac12\sum_l\frac{I - B_l^{-1} - \alpha_l\alpha_l^\top}{v_{cl}},
        \qquad
        \frac{\partial\mathcal L}{\partial s_c} = \sum_l\frac{y_{cl} - \mu_l}{v_{cl}}\alpha_l, \qquad
        \frac{\partial\mathcal L}{\partial t_c} = -\tfrac12\sum_l\frac1{v_{cl}}.

    K matrices are factorised and inverted, whatever the number of rows.

    Examples
    --------
    >>> features = torch.tensor([[1.0], [2.0]]).double()
    >>> rows = ClassStatistics.from_rows(features, [0, 1])
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]).double(), torch.ones(2, 1).double())
    >>> collapsed_bound(InducingStatistics(rows, torch.tensor([1.0, 4.0]).double()), table).mean
    tensor([-1.0000], dtype=torch.float64)
    """
    rows, (y, v) = statistics.rows, table
    weight, count = 1.0 / v, rows.count[:, None]
    natural = natural_parameters(rows, table)
    identity = torch.eye(rows.n_features, dtype=y.dtype, device=y.device)
    factor = stable_cholesky(natural.precision + identity)  # (l, d, d)
    ones = torch.einsum("cl,cd->ld", weight, rows.feature_sum)  # a
    solved = torch.cholesky_solve(torch.stack([natural.linear, ones], -1), factor)  # (l, d, 2)
    of_targets, of_ones = solved.unbind(-1)
    mean = ((count * y * weight).sum(0) - (ones * of_targets).sum(-1)) / (
        (count * weight).sum(0) - (ones * of_ones).sum(-1)
    )
    alpha = of_targets - mean[:, None] * of_ones
    residual = y - mean
    fit = ((natural.linear - mean[:, None] * ones) * alpha).sum(-1)
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    squares = (count * (torch.log(2.0 * math.pi * v) + residual.square() * weight)).sum(0)
    trace = rows.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    unexplained = (statistics.prior_variance - trace)[:, None] * weight
    value = 0.5 * float((fit - log_det - squares).sum() - unexplained.sum())
    by_precision = identity - torch.cholesky_inverse(factor) - alpha[:, :, None] * alpha[:, None, :]
    return BoundGradient(
        value,
        mean,
        torch.einsum("cl,ld->cd", residual * weight, alpha),
        0.5 * _spread(weight, by_precision),
        -0.5 * weight.sum(1),
    )


def _spread(weight: Float[Tensor, "c l"], by_latent: Float[Tensor, "l d d"]) -> Float[Tensor, "c d d"]:
    r"""Return :math:`\sum_l w_{cl}M_l` for every class; two weights a class, as a softmax has, cost K d², not K² d²."""
    n_classes, n_latents = weight.shape
    if n_classes == n_latents and n_classes > 2:
        others = weight.clone().fill_diagonal_(0.0).amax(1)
        expected = others[:, None].expand_as(weight).clone()
        expected.diagonal().copy_(weight.diagonal())
        if torch.equal(expected, weight):
            own = weight.diagonal() - others
            return own[:, None, None] * by_latent + others[:, None, None] * by_latent.sum(0)
    return torch.einsum("cl,lij->cij", weight, by_latent)
