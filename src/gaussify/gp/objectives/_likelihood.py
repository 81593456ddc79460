r"""Objectives with the class likelihood itself: a bound on its evidence, and each row given all others.

The posterior of the matched Gaussian model is :math:`q(w_l) = \mathcal{N}(m_l, P_l)`, with :math:`P_l = B_l^{-1}` and
:math:`m_l = P_lb_l` as in :mod:`gaussify.gp.objectives._collapsed`. As a variational family it gives a bound on the
evidence of the model with the softmax or logistic likelihood (paper, appendix B):

.. math:: \mathcal{L} = \sum_i\mathbb{E}_q\log p(y_i \mid f_i)
    - \sum_l\mathrm{KL}\big(q(w_l)\,\|\,\mathcal{N}(0, I)\big).

A constant mean is the weight of one more feature, :math:`\sqrt{V}` for every row.

Whatever the targets are, this bounds the same evidence. So bounds of different ``alpha_eps`` can be compared, and
``alpha_eps`` can be learnt. The same holds for the log-likelihood of each row given all others. There
:math:`q_{-i}` is the posterior without the observation of row i, in closed form
(:func:`~gaussify.posterior.leave_one_out`):

.. math:: \mathcal{L}_- = \sum_i\log\mathbb{E}_{q_{-i}}p(y_i \mid f_i).

All rows enter q through their statistics. The sum costs K M² for each row, so it runs over all rows or over a sample.
Let :math:`g_l, H_l` and :math:`\bar\phi_i` be as in :mod:`gaussify.gp.objectives._expectation`, let :math:`\delta` be
one for the bound and zero for the other objective, :math:`u_l = \Phi^\top g_l - \delta m_l` and :math:`a_l = P_lu_l`.
Then

.. math::
    \bar b_l &= a_l, \qquad
    \bar B_l = -P_lH_lP_l + \tfrac\delta2\big(P_lP_l - P_l\big) - \tfrac12\big(a_lm_l^\top + m_la_l^\top\big), \\
    \bar G_c &= \sum_l\frac{\bar B_l}{v_{cl}}, \qquad \bar s_c = \sum_l\frac{y_{cl}}{v_{cl}}a_l, \qquad
    \bar L = -\mathrm{tril}\Big(L^{-\top}\Big[\sum_l2\bar B_l(B_l - I) + a_lb_l^\top
    + \sum_i\bar\phi_i\phi_i^\top\Big]\Big).

The observations that are left out of :math:`q_{-i}` add to the derivatives by targets.
"""

from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import Map, product, solve_lower, stable_cholesky
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._collapsed import SumOverLatents
from gaussify.gp.objectives._expectation import Expectation, RowScore, accumulate_expectation
from gaussify.gp.objectives._passes import StatisticsGradient, row_passes
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics, leave_one_out, natural_parameters


class LikelihoodObjective(NamedTuple):
    """An objective with the class likelihood: the bound, or the log-likelihood of each row given all others.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> LikelihoodObjective(SoftmaxLikelihood(3).expected_log_prob).leaves_out
    False
    """

    score: RowScore
    """Expected log-probabilities for the bound, else logarithms of expected probabilities."""
    leaves_out: bool = False
    """False for the bound, which subtracts divergences; True to leave each row out of its own latents instead."""


def accumulate_likelihood_objective(
    kernel: Kernel,
    inducing_points: Float[Tensor, "m d"],
    rows: SortedRows,
    table: PseudoTargets,
    objective: LikelihoodObjective,
    *,
    constant_variance: float,
    sample: Int[Tensor, " b"] | None = None,
) -> float:
    """Return the objective, and add its gradient to ``.grad`` of kernel, inducing points and whatever made the table.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Kernel that all latents share.
    inducing_points : tensor of shape (m, d)
        Inducing points Z; they are learnt if they require a gradient.
    rows : SortedRows
        All rows.
    table : PseudoTargets
        Mean and variance that each class gives every latent.
    objective : LikelihoodObjective
        The bound, or leave-one-out.
    constant_variance : float
        Prior variance of constant means.
    sample : tensor of int, optional
        Places, in increasing order, of the rows that the sum runs over; they stand for all rows.
    """
    some, scale = (rows, 1.0) if sample is None else (rows.take(sample), len(rows.labels) / len(sample))
    targets, constant = PseudoTargets(*(part.detach() for part in table)), constant_variance**0.5
    with row_passes(kernel, inducing_points, rows) as passes:
        statistics = with_constant(passes.sum_up().rows, constant)
        q = _weights(statistics, targets, passes.over)
        expectation = accumulate_expectation(
            passes.cross,
            passes.inverse,
            some,
            q.mean,
            q.covariance,
            lambda *latents: scale * objective.score(*latents),
            constant=constant,
            over=passes.over,
            left_out=targets if objective.leaves_out else None,
        )
        is_bound = not objective.leaves_out
        gradient = _gradient(
            statistics, targets, constant, q, expectation, passes.inverse, passes.over, is_bound=is_bound
        )
        passes.pull_back(gradient.by_statistics)
    if any(part.requires_grad for part in table):
        torch.autograd.backward(list(table), list(gradient.by_table))
    return _value(q, expectation, objective)


@torch.no_grad()
def likelihood_objective_value(
    kernel: Kernel,
    inducing_points: Float[Tensor, "m d"],
    rows: SortedRows,
    table: PseudoTargets,
    objective: LikelihoodObjective,
    *,
    constant_variance: float,
) -> float:
    """Return the value of :func:`accumulate_likelihood_objective` over all rows, without a gradient."""
    constant = constant_variance**0.5
    with row_passes(kernel, inducing_points, rows) as passes:
        q = _weights(with_constant(passes.sum_up().rows, constant), table, passes.over)
        expectation = accumulate_expectation(
            passes.cross,
            passes.inverse,
            rows,
            q.mean,
            q.covariance,
            objective.score,
            constant=constant,
            over=passes.over,
            left_out=table if objective.leaves_out else None,
            learns=False,
        )
    return _value(q, expectation, objective)


def dense_likelihood_objective(
    covariance: Float[Tensor, "n n"],
    labels: Int[Tensor, " n"],
    table: PseudoTargets,
    objective: LikelihoodObjective,
    weight: Float[Tensor, " n"],
) -> Float[Tensor, ""]:
    r"""Return the objective for exact Gaussian processes, differentiable.

    With :math:`A_l = K + D_l`, :math:`\alpha_l = A_l^{-1}y_l` and :math:`D_l = \mathrm{diag}(v_l/w)`, a row has the
    latent mean :math:`y - v\alpha` and variance :math:`v - v^2[A^{-1}]_{ii}`, and

    .. math:: 2\,\mathrm{KL}_l = \log|A_l| - \log|D_l| - n + \mathrm{tr}(D_lA_l^{-1})
        + \alpha_l^\top(y_l - D_l\alpha_l).

    Parameters
    ----------
    covariance : tensor of shape (n, n)
        Prior covariance of the latents at the rows, constant means included.
    labels, weight : tensors of shape (n,)
        Labels and weights of the rows.
    table : PseudoTargets
        Mean and variance that each class gives every latent.
    objective : LikelihoodObjective
        The bound, or leave-one-out.

    Examples
    --------
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1))
    >>> def one(mean, variance, labels):
    ...     return torch.ones(len(labels))
    >>> rows = torch.tensor([0, 1]), table
    >>> bound = LikelihoodObjective(one)
    >>> dense_likelihood_objective(torch.eye(2), *rows, bound, torch.ones(2))  # 2 - (log 2 - 1/2 + 1/4)
    tensor(1.5569)
    >>> def squared(mean, variance, labels):
    ...     return mean[:, 0].square()
    >>> covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]])  # of which half of 1/2 is what one tells the other
    >>> dense_likelihood_objective(covariance, *rows, LikelihoodObjective(squared, leaves_out=True), torch.ones(2))
    tensor(0.1250)
    """
    mean, variance, divergence = _dense_latents(covariance, labels, table, weight)
    if objective.leaves_out:
        own = PseudoTargets(*(part[labels] for part in table))
        mean, variance = leave_one_out(mean, variance, own, weight)
    total = weight @ objective.score(mean, variance, labels)
    return total if objective.leaves_out else total - divergence


def _dense_latents(
    covariance: Float[Tensor, "n n"], labels: Int[Tensor, " n"], table: PseudoTargets, weight: Float[Tensor, " n"]
) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"], Float[Tensor, ""]]:
    """Return means and variances of the latents of rows, and the divergence summed over latents."""
    mean, variance, divergence = [], [], covariance.new_zeros(())
    for y, v in zip(table.mean.T[:, labels], table.variance.T[:, labels] / weight, strict=True):
        factor = stable_cholesky(covariance + torch.diag(v))
        alpha = torch.cholesky_solve(y[:, None], factor)[:, 0]
        diagonal = torch.cholesky_inverse(factor).diagonal()
        mean.append(y - v * alpha)
        variance.append((v - v.square() * diagonal).clamp_min(0.0))
        log_det = 2.0 * factor.diagonal().log().sum() - v.log().sum()
        divergence = divergence + 0.5 * (log_det - len(y) + (v * diagonal).sum() + alpha @ mean[-1])
    return torch.stack(mean, 1), torch.stack(variance, 1), divergence


def with_constant(statistics: ClassStatistics, constant: float) -> ClassStatistics:
    """Return the statistics of rows with one more feature, which is the same for all rows.

    Examples
    --------
    >>> with_constant(ClassStatistics.from_rows(torch.tensor([[3.0]]), [0]), 2.0).gram
    tensor([[[9., 6.],
             [6., 4.]]])
    """
    d, more = statistics.n_features, statistics.grow(n_features=statistics.n_features + 1)
    more.feature_sum[:, d] = constant * statistics.count
    more.gram[:, d, :d] = more.gram[:, :d, d] = constant * statistics.feature_sum
    more.gram[:, d, d] = constant**2 * statistics.count
    return more


class _Posterior(NamedTuple):
    """The posterior q of all latents' weights."""

    mean: Float[Tensor, "l d"]
    covariance: Float[Tensor, "l d d"]
    precision: Float[Tensor, "l d d"]
    linear: Float[Tensor, "l d"]
    divergence: float


def _weights(statistics: ClassStatistics, table: PseudoTargets, over: Map) -> _Posterior:
    natural = natural_parameters(statistics, table)
    precision, linear = natural.precision, natural.linear
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor = stable_cholesky(precision)
    identity, covariance = torch.eye(factor.shape[-1], dtype=factor.dtype), torch.empty_like(factor)

    def invert(factor: Float[Tensor, "d d"], room: Float[Tensor, "d d"]) -> None:
        root = solve_lower(factor, identity)
        product(root.mT, root, out=room)

    for _ in over(invert, factor, covariance):
        pass
    mean = torch.einsum("lij,lj->li", covariance, linear)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum()
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
    divergence = 0.5 * float(trace + mean.square().sum() - mean.numel() + log_det)
    return _Posterior(mean, covariance, precision, linear, divergence)


class _Gradient(NamedTuple):
    """Derivatives of either objective."""

    by_statistics: StatisticsGradient
    by_table: PseudoTargets


def _value(q: _Posterior, expectation: Expectation, objective: LikelihoodObjective) -> float:
    return expectation.value if objective.leaves_out else expectation.value - q.divergence


def _gradient(
    statistics: ClassStatistics,
    table: PseudoTargets,
    constant: float,
    q: _Posterior,
    expectation: Expectation,
    inverse: Float[Tensor, "m m"],
    over: Map,
    *,
    is_bound: bool,
) -> _Gradient:
    m, delta = len(inverse), float(is_bound)
    half = 0.5 * delta * torch.eye(m + 1, dtype=inverse.dtype)
    a = torch.einsum("lij,lj->li", q.covariance, expectation.by_mean - delta * q.mean)

    def work(latent: int) -> tuple[Tensor, Tensor, Tensor]:
        P, outer = q.covariance[latent], torch.outer(a[latent], q.mean[latent])
        by_precision = product(product(P, half - expectation.by_covariance[latent]), P)
        by_precision -= 0.5 * (delta * P + outer + outer.mT)
        by_factor = product(by_precision, q.precision[latent]).sub_(by_precision)  # times B - I
        return by_precision, by_factor, product(product(inverse.mT, by_precision[:m, :m]), inverse)

    by_gram, by_precisions = SumOverLatents(table, m), []
    inner = expectation.outer + a[:, :m].mT @ q.linear[:, :m]
    for latent, (by_precision, by_factor, pulled) in enumerate(over(work, range(len(a)))):
        inner.add_(by_factor[:m, :m], alpha=2.0)
        by_gram.add(torch.tensor([latent]), pulled[None])
        by_precisions.append(by_precision)
    by_precision = torch.stack(by_precisions)  # (l, m + 1, m + 1)
    weight = 1.0 / table.variance
    along = statistics.feature_sum @ a.mT  # a^T s, (c, l)
    by_weight = torch.einsum("lij,cij->cl", by_precision, statistics.gram) + table.mean * along
    # With a constant feature, the sum of the rows is an edge of their Gram matrix.
    by_sum = (weight * table.mean) @ a[:, :m] + 2.0 * constant * weight @ by_precision[:, :m, m]
    by_statistics = StatisticsGradient(
        by_sum @ inverse,
        by_gram.total(),
        torch.zeros_like(statistics.count),
        -torch.tril(inverse.mT @ inner),
    )
    by_mean, by_variance = expectation.by_targets
    by_table = PseudoTargets(along * weight + by_mean, -by_weight * weight.square() + by_variance)
    return _Gradient(by_statistics, by_table)
