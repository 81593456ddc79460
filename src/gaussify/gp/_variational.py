r"""Stochastic variational inference of the exact model: what matching stands beside, and a good start for.

With inducing points Z, :math:`LL^\top = k(Z, Z)` and whitened features :math:`\phi(x) = (L^{-1}k(Z, x), 1)`, the last
of which is for constant means, every latent has weights of its own with a free Gaussian,
:math:`q(w_l) = \mathcal{N}(m_l, S_l)`, beside the prior :math:`p(w_l) = \mathcal{N}(0, \mathrm{diag}(1, \dots, 1, V))`.
All parameters maximise the bound on the evidence [1]_

.. math::
    \mathcal{L} &= \sum_iw_i\,\mathbb{E}_q\log p(y_i \mid f_i/T) - \sum_l\mathrm{KL}\big(q(w_l)\,\|\,p(w_l)\big), \\
    f_{il} & \sim \mathcal{N}\big(\phi_i^\top m_l,\; r_i + \phi_i^\top S_l\phi_i\big), \quad
    r_i = k(x_i, x_i) - |L^{-1}k(Z, x_i)|^2,

on minibatches that stand for all rows. The temperature T is one, or that of a matched model, which is so taken over
exactly, whatever its kernel. With derivatives :math:`g_{il}, h_{il}` of the expectation by means and variances of
latents and :math:`H_l = \Phi^\top\mathrm{diag}(h_l)\Phi`, a natural gradient step of length :math:`\rho` is [2]_

.. math::
    S_l^{-1} & \leftarrow (1 - \rho)\,S_l^{-1} + \rho\,\big(\mathrm{diag}(1, \dots, 1, V)^{-1} - 2H_l\big), \\
    S_l^{-1}m_l & \leftarrow (1 - \rho)\,S_l^{-1}m_l + \rho\,\big(\Phi^\top g_l - 2H_lm_l\big).

So each row is a Gaussian observation of every latent, of precision :math:`-2h_{il}` and mean
:math:`\phi_i^\top m_l + g_{il}/(-2h_{il})`. Matching has such observations too: one for each class, in closed form and
once. Here each row has its own, and they change as q does.

Kernel parameters and inducing points follow Adam (:mod:`gaussify.gp._expectation` has the derivatives); q, being
whitened, stays as they move.

References
----------
.. [1] J. Hensman, A. Matthews, Z. Ghahramani, "Scalable variational Gaussian process classification", AISTATS 2015.
.. [2] H. Salimbeni, S. Eleftheriadis, J. Hensman, "Natural gradients in practice: non-conjugate variational inference
   in Gaussian process models", AISTATS 2018.
"""

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import product, worker_threads
from gaussify.gp._cross import cross_kernel
from gaussify.gp._expectation import Expectation, RowScore, accumulate_expectation, tempered
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import InducingFeatures, Latents, SparseModel, SparsePosterior
from gaussify.gp._objective import SortedRows, factorise
from gaussify.gp._search import Adam
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import GaussianPosterior, GaussianPrior, NaturalParameters, condition, natural_parameters

# Of Adam, by the bound after a few hundred steps: of 0.02 to 0.1 on magic, digits and letter; of 0.01 to 0.1 on magic
COLD_RATE, WARM_RATE = 0.1, 0.02
_DECAY = 0.1  # of all rates, over a run
_N_CHECKPOINTS = 50


class Optimizer(StrEnum):
    """How the Gaussians of the weights are learnt."""

    NATURAL = "natural"
    """Natural gradient steps, in closed form."""
    ADAM = "adam"
    """Means, and triangular roots of covariances, by Adam, as kernel parameters and inducing points are."""


class Start(NamedTuple):
    """Where training begins.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> table = PseudoTargets(torch.zeros(2, 1).double(), torch.ones(2, 1).double())
    >>> start = Start.cold(RBFKernel().double(), torch.zeros(1, 1).double(), table)
    >>> condition(start.prior, start.natural).covariance
    tensor([[[1., 0.],
             [0., 1.]]], dtype=torch.float64)
    """

    kernel: Kernel
    points: Float[Tensor, "m d"]
    prior: GaussianPrior
    natural: NaturalParameters
    """Of q, the prior left out."""
    temperature: float

    @classmethod
    def cold(cls, kernel: Kernel, points: Float[Tensor, "m d"], table: PseudoTargets) -> "Start":
        """Return the prior, broad enough for what ``table`` observes, but for constants, which begin at variance one.

        With their broad prior, latents would be so uncertain that the first steps did nothing but narrow it down.
        """
        prior = InducingFeatures.of(kernel, points).prior(table)
        n_latents, d = prior.mean.shape
        precision = prior.mean.new_zeros(n_latents, d, d)
        precision[:, -1, -1] = 1.0 - 1.0 / prior.variance[-1]
        natural = NaturalParameters(precision, torch.zeros_like(prior.mean), prior.mean.new_zeros(n_latents))
        return cls(kernel, points, prior, natural, 1.0)

    @classmethod
    def matched(cls, model: SparseModel, table: PseudoTargets, temperature: float) -> "Start":
        """Return a matched model whose latents share a kernel, with its posterior and temperature."""
        ((features,), (statistics,)) = model.features, model.statistics
        natural = natural_parameters(statistics, table)
        return cls(features.kernel, features.points, features.prior(table), natural, temperature)


class TrainingSettings(NamedTuple):
    """How to train."""

    optimizer: Optimizer = Optimizer.NATURAL
    batch_size: int = 500
    learning_rate: float = COLD_RATE
    """Of Adam, less after a matched model; 0 leaves kernel and inducing points where they begin."""
    natural_rate: float = 0.1
    """Length of natural gradient steps."""
    learn_inducing: bool = True
    seed: int = 0
    """Of minibatches."""


class VariationalTrainer:
    """A model in training, a minibatch at a time.

    Parameters
    ----------
    rows : SortedRows
        All rows, scaled.
    expected_log_prob : callable
        Of the exact likelihood.
    start : Start
        Where to begin; it stays as it is.
    settings : TrainingSettings
        How to go on.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> from gpytorch.kernels import RBFKernel
    >>> X = torch.linspace(-2.0, 2.0, 40, dtype=torch.float64)[:, None]
    >>> rows, likelihood = SortedRows.of(X, (X[:, 0] > 0.5).long(), n_classes=2), SoftmaxLikelihood(2)
    >>> start = Start.cold(RBFKernel().double(), X[::8], likelihood.target_table())
    >>> trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, TrainingSettings(natural_rate=0.5))
    >>> before = trainer.bound()
    >>> for step in range(20):
    ...     estimate = trainer.step(step / 20)
    >>> round(before), round(trainer.bound())
    (-50, -22)
    """

    def __init__(
        self,
        rows: SortedRows,
        expected_log_prob: RowScore,
        start: Start,
        settings: TrainingSettings = TrainingSettings(),  # noqa: B008, it is immutable
    ) -> None:
        self._moves_features = settings.learning_rate > 0.0
        self.kernel = copy.deepcopy(start.kernel)
        self.points = start.points.clone().requires_grad_(settings.learn_inducing)
        self.temperature = start.temperature
        self._rows, self._prior, self._settings = rows, start.prior, settings
        self._expected_log_prob = expected_log_prob
        is_natural = settings.optimizer is Optimizer.NATURAL
        self._weights: _Weights = _NaturalWeights(start, settings.natural_rate) if is_natural else _RootWeights(start)
        parameters = [*self.kernel.parameters(), self.points, *self._weights.parameters]
        self._adam = Adam([parameter for parameter in parameters if parameter.requires_grad])
        self._batches = minibatches(rows, settings.batch_size, settings.seed)

    @property
    def posterior(self) -> GaussianPosterior:
        """The Gaussians of the weights."""
        return self._weights.posterior

    @property
    def latent_posterior(self) -> SparsePosterior:
        """What gives the latents of any rows, not yet divided by the temperature."""
        return SparsePosterior([InducingFeatures.of(self.kernel, self.points.detach())], [self.posterior])

    def step(self, share: float = 0.0) -> float:
        """Learn from the next minibatch, and return what it says about the bound before the step.

        Parameters
        ----------
        share : float
            Of the run that is over: rates fall to a tenth until it is one.
        """
        decay = _DECAY**share
        self._adam.forget_gradients()
        posterior = self.posterior
        with torch.set_grad_enabled(self._moves_features):
            expectation = expectation_of_rows(
                self.kernel,
                self.points,
                next(self._batches),
                posterior,
                tempered(self._expected_log_prob, self.temperature),
            )
            add_log_priors(self.kernel)
        self._weights.follow(expectation, decay)
        self._adam.step(self._settings.learning_rate * decay)
        return expectation.value - divergence(posterior, self._prior)

    def bound(self, rows: SortedRows | None = None) -> float:
        """Return the bound for all rows, or for others as they are weighted."""
        rows = self._rows if rows is None else rows
        with torch.no_grad():
            expected = self._expected_log_prob(*self.latents(rows.features), rows.labels)
        return float(rows.weight @ expected) - divergence(self.posterior, self._prior)

    def latents(self, X: Float[Tensor, "n d"]) -> Latents:
        """Return mean and variance of the latents of rows, divided by the temperature and its square."""
        mean, variance = self.latent_posterior(X)
        return mean / self.temperature, variance / self.temperature**2


class Checkpoint(NamedTuple):
    """How far training was."""

    step: int
    seconds: float
    bound: float
    """Mean over the minibatches since the last checkpoint."""


def train(trainer: VariationalTrainer, n_steps: int, *, verbose: bool = False) -> list[Checkpoint]:
    """Go so many steps, while rates fall to a tenth, and return some fifty checkpoints.

    If ``verbose``, print the bound about once a second.
    """
    start, printed = time.perf_counter(), -1.0
    history: list[Checkpoint] = []
    values: list[float] = []
    for step in range(1, n_steps + 1):
        values.append(trainer.step((step - 1) / n_steps))
        seconds = time.perf_counter() - start
        if verbose and seconds - printed >= 1.0:
            printed = seconds
            print(f"step {step} of {n_steps}: bound about {sum(values) / len(values):.6g}, {seconds:.1f} s", flush=True)
        if step % max(1, n_steps // _N_CHECKPOINTS) == 0 or step == n_steps:
            history.append(Checkpoint(step, seconds, sum(values) / len(values)))
            values = []
    return history


def minibatches(rows: SortedRows, size: int, seed: int) -> Iterator[SortedRows]:
    """Yield minibatches for ever, weighted to stand for all rows; in a round, none holds a row that another does.

    Examples
    --------
    >>> rows = SortedRows.of(torch.arange(5.0)[:, None], torch.tensor([0, 0, 0, 1, 1]), n_classes=2)
    >>> next(minibatches(rows, 2, seed=0)).weight
    tensor([2.5000, 2.5000])
    """
    n = len(rows.labels)
    if size >= n:
        yield from repeat(rows)
    generator = torch.Generator().manual_seed(seed)
    while True:
        for places in torch.randperm(n, generator=generator)[: n - n % size].split(size):
            some = rows.take(places.sort().values)
            yield some._replace(weight=some.weight * (n / size))


def divergence(q: GaussianPosterior, prior: GaussianPrior) -> float:
    r"""Return the sum over latents of :math:`\mathrm{KL}(q\,\|\,p)`, for triangular roots.

    .. math:: \tfrac12\sum_l\Big[\sum_j\frac{S_{jj} + (m_j - \mu_j)^2}{v_j} - d + \sum_j\log v_j - \log|S_l|\Big]

    Examples
    --------
    >>> prior = GaussianPrior.centred(torch.tensor([4.0]), n_latents=1)
    >>> divergence(GaussianPosterior(torch.tensor([[2.0]]), torch.tensor([[[2.0]]])), prior)
    0.5
    """
    squares = q.root.square().sum(-2) + (q.mean - prior.mean).square()
    log_det = 2.0 * q.root.diagonal(dim1=-2, dim2=-1).log().sum()
    return 0.5 * float(
        (squares / prior.variance).sum() - q.mean.numel() + len(q.mean) * prior.variance.log().sum() - log_det
    )


def observations(expectation: Expectation, mean: Float[Tensor, "l e"]) -> NaturalParameters:
    r"""Return the Gaussian observations that rows are where q has this mean, :math:`(-2H_l, \Phi^\top g_l - 2H_lm_l)`.

    Examples
    --------
    >>> by_mean, by_covariance = torch.tensor([[1.0]]), torch.tensor([[[-2.0]]])
    >>> found = Expectation(0.0, by_mean, by_covariance, torch.zeros(0, 0), torch.zeros(2, 1, 1))
    >>> observations(found, torch.tensor([[3.0]])).linear
    tensor([[13.]])
    """
    linear = expectation.by_mean - 2.0 * torch.einsum("lij,lj->li", expectation.by_covariance, mean)
    return NaturalParameters(-2.0 * expectation.by_covariance, linear, torch.zeros_like(mean[:, 0]))


def expectation_of_rows(
    kernel: Kernel,
    points: Float[Tensor, "m d"],
    rows: SortedRows,
    q: GaussianPosterior,
    expected_log_prob: RowScore,
) -> Expectation:
    """Return the expectation, and add its gradient to ``.grad`` of inducing points and kernel parameters.

    Where gradients are not enabled, points and kernel are taken as fixed.
    """
    cross, L = cross_kernel(kernel, points), factorise(kernel, points)
    inverse = torch.linalg.solve_triangular(L.detach(), torch.eye(len(points), dtype=points.dtype), upper=False)
    with worker_threads() if cross.in_threads else nullcontext(map) as over:
        covariance = torch.stack(list(over(lambda root: product(root.mT, root), q.root)))
        found = accumulate_expectation(
            cross,
            inverse,
            rows,
            q.mean,
            covariance,
            _concave(expected_log_prob),
            constant=1.0,
            over=over,
            learns=L.requires_grad,
        )
        if L.requires_grad:
            cross.finish()
            L.backward(-torch.tril(inverse.mT @ found.outer))
    return found


def _concave(expected_log_prob: RowScore) -> RowScore:
    """The same, without derivatives by variances above zero: rounding must not make a precision negative."""

    def expected(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        variance.register_hook(lambda h: h.clamp_max(0.0))
        return expected_log_prob(mean, variance, labels)

    return expected


class _Weights(ABC):
    """The Gaussians of the weights as something to learn."""

    parameters: Sequence[Tensor] = ()
    """What Adam is to move."""

    @property
    @abstractmethod
    def posterior(self) -> GaussianPosterior:
        """As they are now."""

    @abstractmethod
    def follow(self, expectation: Expectation, decay: float) -> None:
        """Go a step, or leave the gradient of the bound for Adam to go one."""


class _NaturalWeights(_Weights):
    """Follow natural gradients; natural parameters are what the prior adds to."""

    def __init__(self, start: Start, rate: float) -> None:
        self._prior, self._natural, self._rate = start.prior, start.natural, rate
        self._posterior = condition(self._prior, self._natural)

    @property
    def posterior(self) -> GaussianPosterior:
        return self._posterior

    def follow(self, expectation: Expectation, decay: float) -> None:
        rate = self._rate * decay
        self._natural = (1.0 - rate) * self._natural + rate * observations(expectation, self._posterior.mean)
        self._posterior = condition(self._prior, self._natural)


class _RootWeights(_Weights):
    r"""Follow gradients by means and by lower triangular roots, :math:`S = R^\top R`, their diagonals as logarithms.

    .. math:: \bar m = \Phi^\top g - \frac{m}{v}, \qquad \bar R = \mathrm{tril}\big(R(2H - \mathrm{diag}(v)^{-1})\big)
        + \mathrm{diag}(R)^{-1}.
    """

    def __init__(self, start: Start) -> None:
        mean, root = condition(start.prior, start.natural)
        diagonal = root.diagonal(dim1=-2, dim2=-1)
        self._prior = start.prior
        self._mean = mean.clone().requires_grad_()
        self._lower = (root.tril(-1) + torch.diag_embed(diagonal.log())).requires_grad_()
        self.parameters = (self._mean, self._lower)

    @property
    def posterior(self) -> GaussianPosterior:
        lower = self._lower.detach()
        root = lower.clone()
        root.diagonal(dim1=-2, dim2=-1).exp_()
        return GaussianPosterior(self._mean.detach().clone(), root)

    def follow(self, expectation: Expectation, decay: float) -> None:
        mean, root = self.posterior
        self._mean.grad = expectation.by_mean - mean / self._prior.variance
        by_root = torch.stack([product(own, H) for own, H in zip(root, expectation.by_covariance, strict=True)])
        by_root = (2.0 * by_root - root / self._prior.variance).tril_()
        diagonal = by_root.diagonal(dim1=-2, dim2=-1)
        diagonal.mul_(root.diagonal(dim1=-2, dim2=-1)).add_(1.0)  # by logarithms
        self._lower.grad = by_root
