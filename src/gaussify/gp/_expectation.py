r"""Expected log-probabilities of rows under Gaussian weights, and their derivatives.

With whitened features :math:`\phi(x) = (L^{-1}k(Z, x), c)`, the last of them a constant, and weights
:math:`w_l \sim \mathcal{N}(m_l, S_l)`,

.. math::
    \mathcal{E} &= \sum_iw_i\,\mathbb{E}\log p(y_i \mid f_i), \qquad
    f_{il} \sim \mathcal{N}\big(\phi_i^\top m_l,\; r_i + \phi_i^\top S_l\phi_i\big), \\
    r_i &= k(x_i, x_i) - |L^{-1}k(Z, x_i)|^2.

With the derivatives :math:`g_{il}, h_{il}` of the expectation by means and variances of latents,

.. math::
    \bar m_l &= \Phi^\top g_l, \qquad \bar S_l = H_l = \Phi^\top\mathrm{diag}(h_l)\Phi, \\
    \bar\phi_i &= \sum_l g_{il}m_l + 2h_{il}\big(S_l\phi_i - \phi_i\big), \qquad \bar k(x_i, x_i) = \sum_lh_{il}, \qquad
    \bar L = -\mathrm{tril}\Big(L^{-\top}\sum_i\bar\phi_i\phi_i^\top\Big),

where the second :math:`\phi_i` of :math:`\bar\phi_i`, and both of :math:`\bar L`, are without the constant.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import Map, product
from gaussify.gp._cross import CrossKernel
from gaussify.gp._objective import SortedRows
from gaussify.likelihoods import ClassLikelihood

_ELEMENTS = 1 << 20  # of the features of a chunk, for every latent: they stay in the cache, and leave work for threads

_LEAST_VARIANCE = 1e-12

ExpectedLogProb = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of labels (n,), for means and variances (n, l) of latents."""


def sampled_expectation(likelihood: ClassLikelihood, n_samples: int, seed: int) -> ExpectedLogProb:
    """Return the average over samples of the latents, the same for every call, in place of an integral.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> expected = sampled_expectation(SoftmaxLikelihood(2), n_samples=10, seed=0)
    >>> expected(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]))
    tensor([-0.6931])
    """

    def expected(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn((n_samples, *mean.shape), generator=generator, dtype=mean.dtype)
        # at a variance of zero its root has no derivative
        return likelihood.log_prob(mean + variance.clamp_min(_LEAST_VARIANCE).sqrt() * noise, labels).mean(0)

    return expected


def tempered(expected_log_prob: ExpectedLogProb, temperature: float) -> ExpectedLogProb:
    """Return the expectation for latents that are divided by a temperature.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> expected = tempered(SoftmaxLikelihood(2).expected_log_prob, 2.0)
    >>> expected(torch.tensor([[4.0, 2.0]]), torch.zeros(1, 2), torch.tensor([0]))  # as of 2 and 1
    tensor([-0.3133])
    """
    return lambda mean, variance, labels: expected_log_prob(mean / temperature, variance / temperature**2, labels)


class Expectation(NamedTuple):
    """The sum of expected log-probabilities of rows, and its derivatives.

    Examples
    --------
    >>> Expectation._fields
    ('value', 'by_mean', 'by_covariance', 'outer')
    """

    value: float
    by_mean: Float[Tensor, "l e"]
    by_covariance: Float[Tensor, "l e e"]
    r""":math:`H_l`."""
    outer: Float[Tensor, "m m"]
    r""":math:`\sum_i\bar\phi_i\phi_i^\top`, without the constant."""


def accumulate_expectation(
    cross: CrossKernel,
    inverse: Float[Tensor, "m m"],
    rows: SortedRows,
    mean: Float[Tensor, "l e"],
    covariance: Float[Tensor, "l e e"],
    expected_log_prob: ExpectedLogProb,
    *,
    constant: float,
    over: Map,
    learns: bool = True,
) -> Expectation:
    r"""Return the expectation, and let ``cross`` take its gradient, but for what goes through L; n l m² in time.

    Parameters
    ----------
    cross : CrossKernel
        Of the inducing points.
    inverse : tensor of shape (m, m)
        :math:`L^{-1}`.
    rows : SortedRows
        Weighted.
    mean, covariance : tensors of shape (l, m + 1) and (l, m + 1, m + 1)
        Of the weights.
    expected_log_prob : callable
        Of the exact likelihood.
    constant : float
        The last feature.
    over : callable
        Applies a function to some rows at a time, perhaps in several threads.
    learns : bool
        Whether kernel or inducing points want a gradient.
    """
    m = len(inverse)

    def work(rows: SortedRows) -> tuple[Expectation, Any]:
        block = cross(rows.features, differentiable=learns)
        features = inverse.new_full((len(rows.labels), m + 1), constant)
        product(block.matrix.detach(), inverse.mT, out=features[:, :m])
        smoothed = [product(features, own) for own in covariance]  # S phi, for each latent
        left = (block.variance.detach() - features[:, :m].square().sum(1)).clamp_min(0.0)
        f_mean = product(features, mean.mT)
        f_variance = torch.stack([(own * features).sum(1) for own in smoothed], 1).clamp_min_(0.0) + left[:, None]
        with torch.enable_grad():
            f_mean, f_variance = f_mean.requires_grad_(), f_variance.requires_grad_()
            value = rows.weight @ expected_log_prob(f_mean, f_variance, rows.labels)
            g, h = torch.autograd.grad(value, (f_mean, f_variance))  # (n, l)
        by_covariance = torch.stack([_weighted_gram(features, own) for own in h.T])
        by_features = product(g, mean)[:, :m]
        by_features -= 2.0 * h.sum(1, keepdim=True) * features[:, :m]
        for own, S_phi in zip(h.T, smoothed, strict=True):
            by_features.addcmul_(own[:, None], S_phi[:, :m], value=2.0)
        outer = product(by_features.mT, features[:, :m])
        found = Expectation(value.item(), product(g.mT, features), by_covariance, outer)
        if not learns:
            return found, None
        return found, cross.pull_back(rows.features, block, product(by_features, inverse), h.sum(1))

    value, total = 0.0, [torch.zeros_like(like) for like in (mean, covariance, inverse)]
    for found, pulled in over(work, _chunks(rows, mean.numel())):
        value += found.value
        for sum_so_far, part in zip(total, found[1:], strict=True):
            sum_so_far += part
        if learns:
            cross.add(pulled)
    return Expectation(value, *total)


def _weighted_gram(features: Float[Tensor, "n e"], weight: Float[Tensor, " n"]) -> Float[Tensor, "e e"]:
    """The Gram matrix of rows with weights that are nearly all negative; what is not, is rare."""
    halfway = weight.clamp_max(0.0).neg().sqrt()[:, None] * features
    gram = product(halfway.mT, halfway).neg_()  # a matrix times its own transpose, in half of the time
    positive = weight > 0.0
    if positive.any():
        few = features[positive]
        gram += product(few.mT, weight[positive, None] * few)
    return gram


def _chunks(rows: SortedRows, n_weights: int) -> list[SortedRows]:
    """Split rows evenly, whatever the number of threads, so that results do not depend on it."""
    n_chunks = -(-len(rows.labels) * n_weights // _ELEMENTS)
    parts = (part.chunk(n_chunks) for part in (rows.features, rows.labels, rows.weight))
    return [SortedRows(X, labels, weight, rows.n_classes) for X, labels, weight in zip(*parts, strict=True)]
