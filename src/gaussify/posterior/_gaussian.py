r"""From observations of the latents to their Gaussian posterior.

Latent l at features :math:`\phi` is :math:`f_l = \phi^\top w_l`, with the prior
:math:`w_l \sim \mathcal{N}(\mu_l, P^{-1})`. Row i, of weight :math:`w_i`, observes it with mean :math:`y_{il}` and
variance :math:`v_{il}`. In natural parameters, observations add up:

.. math:: \Lambda_l = P + \sum_i \frac{w_i}{v_{il}}\phi_i\phi_i^\top, \qquad
    b_l = P\mu_l + \sum_i \frac{w_i y_{il}}{v_{il}}\phi_i, \qquad w_l \mid \cdot \sim
    \mathcal{N}(\Lambda_l^{-1} b_l, \Lambda_l^{-1}).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import large_zeros, stable_cholesky
from gaussify.likelihoods import LatentVariances, PseudoTargets
from gaussify.posterior._statistics import ClassStatistics

_ELEMENTS = 1 << 22  # most numbers in temporary matrices


@dataclass(frozen=True, eq=False)
class NaturalParameters:
    r"""Precision and linear term that observations give the weights of each latent, without those of the prior.

    ``precision`` and ``linear`` are the sums over rows in the module's docstring, and ``constant`` is
    :math:`-\frac12\sum_i w_i(\log 2\pi v_{il} + y_{il}^2 / v_{il})`, which the evidence needs. ``+`` joins rows.

    Examples
    --------
    >>> targets = PseudoTargets(torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    >>> natural = natural_parameters_of_rows(torch.tensor([[3.0]]), targets)
    >>> natural.precision, natural.linear
    (tensor([[[4.5000]]]), tensor([[1.5000]]))
    """

    precision: Float[Tensor, "l d d"]
    linear: Float[Tensor, "l d"]
    constant: Float[Tensor, " l"]

    def __add__(self, other: "NaturalParameters") -> "NaturalParameters":
        return NaturalParameters(
            self.precision + other.precision, self.linear + other.linear, self.constant + other.constant
        )

    def __sub__(self, other: "NaturalParameters") -> "NaturalParameters":
        return self + -1.0 * other

    def __mul__(self, factor: float) -> "NaturalParameters":
        return NaturalParameters(self.precision * factor, self.linear * factor, self.constant * factor)

    __rmul__ = __mul__


class GaussianPrior(NamedTuple):
    """Independent Gaussian weights: a variance for each feature, and a mean for each feature of each latent.

    Examples
    --------
    >>> GaussianPrior.centred(torch.tensor([1.0, 100.0]), n_latents=3).mean.shape
    torch.Size([3, 2])
    """

    mean: Float[Tensor, "l d"]
    variance: Float[Tensor, " d"]

    @classmethod
    def centred(cls, variance: Float[Tensor, " d"], *, n_latents: int) -> "GaussianPrior":
        """Return the prior with mean zero."""
        return cls(variance.new_zeros(n_latents, variance.shape[0]), variance)


class GaussianPosterior(NamedTuple):
    """Mean of each latent's weights, and a root of their covariance: ``covariance = root.mT @ root``.

    Examples
    --------
    >>> features, targets = torch.tensor([[1.0]]), PseudoTargets(torch.tensor([[2.0]]), torch.tensor([[1.0]]))
    >>> prior = GaussianPrior.centred(torch.ones(1), n_latents=1)
    >>> posterior = condition(prior, natural_parameters_of_rows(features, targets))
    >>> posterior.mean, posterior.covariance
    (tensor([[1.]]), tensor([[[0.5000]]]))
    """

    mean: Float[Tensor, "l d"]
    root: Float[Tensor, "l d d"]

    @property
    def covariance(self) -> Float[Tensor, "l d d"]:
        """Covariance of the weights of each latent."""
        return self.root.mT @ self.root


def natural_parameters(
    statistics: ClassStatistics,
    table: PseudoTargets,
    latents: Int[Tensor, " k"] | None = None,
    *,
    total_gram: Float[Tensor, "d d"] | None = None,
) -> NaturalParameters:
    r"""Return the natural parameters that rows give all latents (or some of them), from class statistics alone.

    .. math:: \Lambda_l - P = \sum_c \frac{G_c}{v_{cl}}, \qquad b_l - P\mu_l = \sum_c \frac{y_{cl}}{v_{cl}}s_c.

    The table of a softmax holds two variances for each latent, one for its own class and one for all others. The sum
    over classes is then a multiple of the total and one more term, so K latents cost K d² instead of K² d².

    Parameters
    ----------
    statistics : ClassStatistics
        Statistics of rows of c classes with d features.
    table : PseudoTargets
        Target table of shape (c, l): mean and variance with which a row of each class observes each latent.
    latents : tensor of int, optional
        Indices of the latents to compute; all by default.
    total_gram : tensor of shape (d, d), optional
        Sum of the Gram matrices of all classes, if it is known.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> features, labels, likelihood = torch.eye(3), torch.tensor([0, 1, 2]), SoftmaxLikelihood(3)
    >>> fast = natural_parameters(ClassStatistics.from_rows(features, labels), likelihood.target_table())
    >>> general = natural_parameters_of_rows(features, likelihood.encode(labels))
    >>> torch.allclose(fast.precision, general.precision), torch.allclose(fast.linear, general.linear)
    (True, True)
    """
    table = PseudoTargets(table.mean.to(statistics.gram), table.variance.to(statistics.gram))
    chosen = torch.arange(table.mean.shape[1], device=table.mean.device) if latents is None else latents
    mean, weight = table.mean[:, chosen], 1.0 / table.variance[:, chosen]  # (c, l)
    two = LatentVariances.of(table, chosen)
    if two is None:
        precision = torch.einsum("cl,cij->lij", weight, statistics.gram)
    else:
        own, other = 1.0 / two.own, 1.0 / two.other
        precision = (own - other)[:, None, None] * statistics.gram[chosen]
        precision.addcmul_(other[:, None, None], statistics.gram.sum(0) if total_gram is None else total_gram)
    linear = torch.einsum("cl,cd->ld", weight * mean, statistics.feature_sum)
    log_scale = torch.log(2.0 * math.pi / weight) + weight * mean.square()
    return NaturalParameters(precision, linear, -0.5 * statistics.count @ log_scale)


def natural_parameters_of_rows(
    features: Float[Tensor, "n d"], targets: PseudoTargets, sample_weight: Float[Tensor, " n"] | None = None
) -> NaturalParameters:
    """Return the natural parameters that rows give all latents, where each row has its own variances (soft labels).

    This takes one Gram matrix for each latent and costs n l d², where class statistics cost n d². For hard labels the
    result is that of ``natural_parameters``.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> soft = torch.tensor([[0.7, 0.2, 0.1]])
    >>> natural_parameters_of_rows(torch.ones(1, 1), SoftmaxLikelihood(3).encode(soft)).precision.flatten()
    tensor([0.8000, 0.3000, 0.2000])
    """
    targets = PseudoTargets(targets.mean.to(features), targets.variance.to(features))
    weight = 1.0 / targets.variance  # (n, l)
    log_scale = torch.log(2.0 * math.pi * targets.variance) + weight * targets.mean.square()
    if sample_weight is not None:
        weight, log_scale = weight * sample_weight[:, None], log_scale * sample_weight[:, None]
    precision = torch.stack([features.mT @ (features * column[:, None]) for column in weight.mT])
    return NaturalParameters(precision, (weight * targets.mean).mT @ features, -0.5 * log_scale.sum(0))


def condition(prior: GaussianPrior, natural: NaturalParameters) -> GaussianPosterior:
    r"""Return the posterior of the weights; with :math:`\Lambda = LL^\top`, its root is :math:`L^{-1}`.

    Examples
    --------
    >>> prior = GaussianPrior.centred(torch.ones(1), n_latents=1)
    >>> natural = NaturalParameters(torch.tensor([[[3.0]]]), torch.tensor([[8.0]]), torch.zeros(1))
    >>> condition(prior, natural)
    GaussianPosterior(mean=tensor([[2.]]), root=tensor([[[0.5000]]]))
    """
    _, root, mean = _factorise(prior, natural)
    return GaussianPosterior(mean, root)


def class_posterior(prior: GaussianPrior, statistics: ClassStatistics, table: PseudoTargets) -> GaussianPosterior:
    """Return the posterior of every latent from class statistics, a few latents at a time to save memory.

    It costs l d³ in time and l d² in space.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> statistics = ClassStatistics.from_rows([[1.0], [1.0], [1.0]], [1, 1, 0])
    >>> table = LogisticLikelihood(torch.tensor(0.1).double()).target_table()
    >>> prior = GaussianPrior.centred(torch.tensor([10.0]).double(), n_latents=1)
    >>> class_posterior(prior, statistics, table).mean
    tensor([[1.3229]], dtype=torch.float64)
    """
    mean = torch.empty_like(prior.mean)
    root = large_zeros((*prior.mean.shape, prior.mean.shape[1]), mean.dtype, mean.device)
    total_gram = statistics.gram.sum(0)
    for latents in latent_chunks(*prior.mean.shape):
        latents = latents.to(mean.device)
        natural = natural_parameters(statistics, table, latents, total_gram=total_gram)
        mean[latents], root[latents] = condition(GaussianPrior(prior.mean[latents], prior.variance), natural)
    return GaussianPosterior(mean, root)


def log_evidence(prior: GaussianPrior, natural: NaturalParameters) -> Float[Tensor, " l"]:
    r"""Return the log-density of the observations of each latent, with the weights integrated out.

    .. math:: \log Z_l = \text{constant}_l + \tfrac12 b^\top\Lambda^{-1}b - \tfrac12\mu^\top P\mu
        - \tfrac12\log|\Lambda| + \tfrac12\log|P|

    Examples
    --------
    >>> targets = PseudoTargets(torch.tensor([[1.0]]), torch.tensor([[1.0]]))
    >>> prior = GaussianPrior.centred(torch.ones(1), n_latents=1)
    >>> log_evidence(prior, natural_parameters_of_rows(torch.ones(1, 1), targets))  # log N(1 | 0, 2)
    tensor([-1.5155])
    """
    factor, _, mean = _factorise(prior, natural)
    linear = natural.linear + prior.mean / prior.variance
    quadratic = (mean * linear).sum(-1) - (prior.mean.square() / prior.variance).sum(-1)
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + prior.variance.log().sum()
    return natural.constant + 0.5 * (quadratic - log_det)


def latent(
    posterior: GaussianPosterior, features: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
    r"""Return mean and variance of the latents of new rows, :math:`\phi^\top m_l` and :math:`|R_l\phi|^2`.

    It costs n l d², in bounded memory beside the result. The variance, a sum of squares, is never negative.

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.tensor([[1.0, 2.0]]), torch.eye(2)[None])
    >>> latent(posterior, torch.tensor([[3.0, 4.0]]))
    (tensor([[11.]]), tensor([[25.]]))
    """
    n, (n_latents, d) = features.shape[0], posterior.mean.shape
    variance = features.new_empty(n, n_latents)
    rows = max(1, min(n, _ELEMENTS // d))
    step = max(1, _ELEMENTS // (rows * d))
    for start in range(0, n, rows):
        for first in range(0, n_latents, step):
            roots = posterior.root[first : first + step]
            spread = features[start : start + rows] @ roots.reshape(-1, d).mT  # (n, l * d)
            spread = spread.view(-1, len(roots), d).square_()
            torch.sum(spread, -1, out=variance[start : start + rows, first : first + step])
    return features @ posterior.mean.mT, variance


def sample(posterior: GaussianPosterior, n_samples: int, generator: torch.Generator) -> Float[Tensor, "s l d"]:
    """Return draws of the weights of every latent.

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.zeros(3, 2), torch.eye(2).expand(3, 2, 2))
    >>> sample(posterior, 5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 3, 2])
    """
    noise = torch.randn(
        n_samples, *posterior.mean.shape, generator=generator, dtype=posterior.mean.dtype, device=generator.device
    ).to(posterior.mean)
    return posterior.mean + torch.einsum("lji,slj->sli", posterior.root, noise)


def latent_chunks(n_latents: int, n_features: int) -> Iterator[Int[Tensor, " k"]]:
    """Yield the indices of all latents in chunks whose matrices take a few megabytes."""
    yield from torch.arange(n_latents).split(max(1, _ELEMENTS // n_features**2))


def _factorise(prior: GaussianPrior, natural: NaturalParameters) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Cholesky factor of the precision and the root of the covariance, (l, d, d), and the mean, (l, d)."""
    precision = natural.precision.clone()
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0 / prior.variance)
    factor = stable_cholesky(precision)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    root = torch.linalg.solve_triangular(factor, identity, upper=False).contiguous()
    linear = (natural.linear + prior.mean / prior.variance)[..., None]
    return factor, root, (root.mT @ (root @ linear))[..., 0]
