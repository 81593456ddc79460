r"""The sum over rows of a score of the label under Gaussian weights, and its derivatives.

With whitened features :math:`\phi(x) = (L^{-1}k(Z, x), c)`, the last of them a constant, and weights
:math:`w_l \sim \mathcal{N}(m_l, S_l)`, the sum is

.. math::
    \mathcal{E} &= \sum_iw_i\,e\big(y_i;\; \mu_i,\, s_i + r_i\big), \qquad
    \mu_{il} = \phi_i^\top m_l, \quad s_{il} = \phi_i^\top S_l\phi_i, \quad
    r_i = k(x_i, x_i) - |L^{-1}k(Z, x_i)|^2,

where the score :math:`e` may be :math:`\mathbb{E}\log p(y_i \mid f_i)` of latents with these means and variances. For
leave-one-out, each row's own observation is first taken out of :math:`\mu_i, s_i`. With the derivatives
:math:`g_{il}, h_{il}` and :math:`\rho_i` by means, variances and :math:`r_i`,

.. math::
    \bar m_l &= \Phi^\top g_l, \qquad \bar S_l = H_l = \Phi^\top\mathrm{diag}(h_l)\Phi, \\
    \bar\phi_i &= \sum_l\big(g_{il}m_l + 2h_{il}S_l\phi_i\big) - 2\rho_i\phi_i, \qquad
    \bar k(x_i, x_i) = \rho_i, \qquad
    \bar L = -\mathrm{tril}\Big(L^{-\top}\sum_i\bar\phi_i\phi_i^\top\Big),

where the last :math:`\phi_i` of :math:`\bar\phi_i` and both factors of :math:`\bar L` leave the constant out.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import Map, product
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._cross import CrossKernel
from gaussify.likelihoods import ClassLikelihood, PseudoTargets
from gaussify.posterior import leave_one_out

_ELEMENTS = 1 << 20  # features of a chunk times latents: they stay in the cache, and leave work for several threads

_LEAST_VARIANCE = 1e-12

RowScore = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps means and variances (n, l) of latents and labels (n,) to a score (n,), such as the expected log-probability."""


def sampled_expectation(likelihood: ClassLikelihood, n_samples: int, seed: int) -> RowScore:
    """Return the score that averages log-probabilities over samples of the latents, drawn once for all calls.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> expected = sampled_expectation(SoftmaxLikelihood(2), n_samples=10, seed=0)
    >>> expected(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]))
    tensor([-0.6931])
    """

    def expected(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        return likelihood.log_prob(_sampled(mean, variance, n_samples, seed), labels).mean(0)

    return expected


def log_predictive(likelihood: ClassLikelihood, n_samples: int | None = None, seed: int = 0) -> RowScore:
    r"""Return the score :math:`\log\mathbb{E}\,p(y \mid f)`, by quadrature or by averaging ``n_samples`` draws.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> score = log_predictive(LogisticLikelihood())
    >>> score(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([1]))  # log(1/2)
    tensor([-0.6931])
    """

    def by_quadrature(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        probs = likelihood.predict_proba(mean, variance)
        return probs.gather(1, labels[:, None])[:, 0].clamp_min(torch.finfo(probs.dtype).tiny).log()

    def by_samples(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        assert n_samples is not None
        log_probs = likelihood.log_prob(_sampled(mean, variance, n_samples, seed), labels)
        return torch.logsumexp(log_probs, 0) - math.log(n_samples)

    return by_quadrature if n_samples is None else by_samples


def _sampled(mean: Tensor, variance: Tensor, n_samples: int, seed: int) -> Float[Tensor, "s n l"]:
    """Draw samples of latents, with the same noise in every call."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn((n_samples, *mean.shape), generator=generator, dtype=mean.dtype)
    # The root has no derivative at a variance of zero.
    return mean + variance.clamp_min(_LEAST_VARIANCE).sqrt() * noise


def tempered(score: RowScore, temperature: float) -> RowScore:
    """Return the score of latents that are divided by a temperature.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> expected = tempered(SoftmaxLikelihood(2).expected_log_prob, 2.0)
    >>> expected(torch.tensor([[4.0, 2.0]]), torch.zeros(1, 2), torch.tensor([0]))  # the score of 2 and 1
    tensor([-0.3133])
    """
    return lambda mean, variance, labels: score(mean / temperature, variance / temperature**2, labels)


class Expectation(NamedTuple):
    """The sum of the scores of rows, and its derivatives.

    Examples
    --------
    >>> Expectation._fields
    ('value', 'by_mean', 'by_covariance', 'outer', 'by_targets')
    """

    value: float
    by_mean: Float[Tensor, "l e"]
    by_covariance: Float[Tensor, "l e e"]
    r""":math:`H_l`."""
    outer: Float[Tensor, "m m"]
    r""":math:`\sum_i\bar\phi_i\phi_i^\top`, without the constant."""
    by_targets: Float[Tensor, "2 c l"]
    """By mean and variance of the observations that are left out; the weights count as given."""


def accumulate_expectation(
    cross: CrossKernel,
    inverse: Float[Tensor, "m m"],
    rows: SortedRows,
    mean: Float[Tensor, "l e"],
    covariance: Float[Tensor, "l e e"],
    score: RowScore,
    *,
    constant: float,
    over: Map,
    left_out: PseudoTargets | None = None,
    learns: bool = True,
) -> Expectation:
    r"""Return the sum of scores in n l m² operations, and hand its gradient by k(Z, x) and k(x, x) to ``cross``.

    The caller adds the gradient through L, which follows from ``outer``.

    Parameters
    ----------
    cross : CrossKernel
        Kernel between rows and inducing points.
    inverse : tensor of shape (m, m)
        :math:`L^{-1}`.
    rows : SortedRows
        Rows and their weights.
    mean, covariance : tensors of shape (l, m + 1) and (l, m + 1, m + 1)
        Mean and covariance of the weights.
    score : callable
        Score of labels given latents.
    constant : float
        The last feature.
    over : callable
        Map over chunks of rows, which may run in several threads.
    left_out : PseudoTargets, optional
        Target table, if each row is scored without its own observation.
    learns : bool
        Whether kernel or inducing points require a gradient.
    """
    m = len(inverse)

    def work(rows: SortedRows) -> tuple[Expectation, Any]:
        block = cross(rows.features, differentiable=learns)
        features = inverse.new_full((len(rows.labels), m + 1), constant)
        product(block.matrix.detach(), inverse.mT, out=features[:, :m])
        smoothed = [product(features, own) for own in covariance]  # S phi, for each latent
        left = (block.variance.detach() - features[:, :m].square().sum(1)).clamp_min(0.0)
        f_mean = product(features, mean.mT)
        f_variance = torch.stack([(own * features).sum(1) for own in smoothed], 1).clamp_min_(0.0)
        value, g, h, by_left, by_targets = _scored(f_mean, f_variance, left, rows, score, left_out)
        by_covariance = torch.stack([_weighted_gram(features, own) for own in h.T])
        by_features = product(g, mean)[:, :m]
        by_features -= 2.0 * by_left[:, None] * features[:, :m]
        for own, S_phi in zip(h.T, smoothed, strict=True):
            by_features.addcmul_(own[:, None], S_phi[:, :m], value=2.0)
        outer = product(by_features.mT, features[:, :m])
        found = Expectation(value, product(g.mT, features), by_covariance, outer, by_targets)
        if not learns:
            return found, None
        return found, cross.pull_back(rows.features, block, product(by_features, inverse), by_left)

    value, targets = 0.0, inverse.new_zeros(2, rows.n_classes, len(mean))
    total = [torch.zeros_like(mean), torch.zeros_like(covariance), torch.zeros_like(inverse), targets]
    for found, pulled in over(work, _chunks(rows, mean.numel())):
        value += found.value
        for sum_so_far, part in zip(total, found[1:], strict=True):
            sum_so_far += part
        if learns:
            cross.add(pulled)
    return Expectation(value, *total)


@torch.enable_grad()
def _scored(
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    left: Float[Tensor, " n"],
    rows: SortedRows,
    score: RowScore,
    left_out: PseudoTargets | None,
) -> tuple[float, Tensor, Tensor, Tensor, Float[Tensor, "2 c l"]]:
    """Return the sum of scores, and its derivatives by mean, variance, unexplained variance and target table."""
    by_targets = mean.new_zeros(2, rows.n_classes, mean.shape[1])
    inputs = [own.requires_grad_() for own in (mean, variance, left)]
    if left_out is not None:
        own = PseudoTargets(*(part[rows.labels].requires_grad_() for part in left_out))
        inputs += own
        mean, variance = leave_one_out(mean, variance, own, rows.weight)
    value = rows.weight @ score(mean, variance + left[:, None], rows.labels)
    by_mean, by_variance, by_left, *by_own = torch.autograd.grad(value, inputs)
    if by_own:
        by_targets.index_add_(1, rows.labels, torch.stack(by_own))
    return value.item(), by_mean, by_variance, by_left, by_targets


def _weighted_gram(features: Float[Tensor, "n e"], weight: Float[Tensor, " n"]) -> Float[Tensor, "e e"]:
    """Return the Gram matrix of rows whose weights are mostly negative."""
    halfway = weight.clamp_max(0.0).neg().sqrt()[:, None] * features
    gram = product(halfway.mT, halfway).neg_()  # a matrix times its own transpose takes half the time
    positive = weight > 0.0
    if positive.any():
        few = features[positive]
        gram += product(few.mT, weight[positive, None] * few)
    return gram


def _chunks(rows: SortedRows, n_weights: int) -> list[SortedRows]:
    """Split rows into chunks of a size that does not depend on the number of threads, so neither does the result."""
    n_chunks = -(-len(rows.labels) * n_weights // _ELEMENTS)
    parts = (part.chunk(n_chunks) for part in (rows.features, rows.labels, rows.weight))
    return [SortedRows(X, labels, weight, rows.n_classes) for X, labels, weight in zip(*parts, strict=True)]
