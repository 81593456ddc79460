r"""Stochastic variational inference with the class likelihood: a reference for matching, which can also start from it.

With inducing points Z and :math:`LL^\top = k(Z, Z)`, the whitened features are :math:`\phi(x) = (L^{-1}k(Z, x), 1)`;
the last one is for the constant mean. The weights of every latent have the prior
:math:`p(w_l) = \mathcal{N}(0, \mathrm{diag}(1, \dots, 1, V))` and a free Gaussian
:math:`q(w_l) = \mathcal{N}(m_l, S_l)`. All parameters maximise the bound on the evidence [1]_

.. math::
    \mathcal{L} &= \sum_iw_i\,\mathbb{E}_q\log p(y_i \mid f_i/T) - \sum_l\mathrm{KL}\big(q(w_l)\,\|\,p(w_l)\big), \\
    f_{il} & \sim \mathcal{N}\big(\phi_i^\top m_l,\; r_i + \phi_i^\top S_l\phi_i\big), \quad
    r_i = k(x_i, x_i) - |L^{-1}k(Z, x_i)|^2,

on minibatches that stand for all rows. The temperature T is one, or that of a matched model to start from. With
derivatives :math:`g_{il}, h_{il}` of the expectation by means and variances of
latents and :math:`H_l = \Phi^\top\mathrm{diag}(h_l)\Phi`, a natural gradient step of length :math:`\rho` is [2]_

.. math::
    S_l^{-1} & \leftarrow (1 - \rho)\,S_l^{-1} + \rho\,\big(\mathrm{diag}(1, \dots, 1, V)^{-1} - 2H_l\big), \\
    S_l^{-1}m_l & \leftarrow (1 - \rho)\,S_l^{-1}m_l + \rho\,\big(\Phi^\top g_l - 2H_lm_l\big).

So each row is a Gaussian observation of every latent, with precision :math:`-2h_{il}` and mean
:math:`\phi_i^\top m_l + g_{il}/(-2h_{il})`. Matching makes such observations once, in closed form, one for each class.
Here each row has its own, and they change with q.

Adam moves kernel parameters and inducing points (:mod:`gaussify.gp.objectives._expectation` has the derivatives). As q
is whitened, it stays the same when they move.

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
from typing import Literal, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import product, worker_threads
from gaussify._numerics._optimise import Adam
from gaussify.gp._fitted import FittedSparseGP
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import InducingFeatures, Latents, SparsePosterior
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._cross import cross_kernel
from gaussify.gp.objectives._expectation import Expectation, RowScore, accumulate_expectation, tempered
from gaussify.gp.objectives._passes import factorise
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import GaussianPosterior, GaussianPrior, NaturalParameters, condition

# Learning rates of Adam with the best bound after a few hundred steps, on magic, digits and letter, and on magic
COLD_RATE, WARM_RATE = 0.1, 0.02
_DECAY = 0.1  # factor by which all rates fall over a run
_N_CHECKPOINTS = 50


class Optimizer(StrEnum):
    """How the Gaussians of the weights are learnt."""

    NATURAL = "natural"
    """Natural gradient steps, in closed form."""
    ADAM = "adam"
    """Adam moves means and triangular roots of covariances, as it moves kernel parameters and inducing points."""


OptimizerName = Literal["natural", "adam"]  # what editors complete; a test compares it with the enumeration


class Start(NamedTuple):
    """The state from which training starts.

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
    """Natural parameters of q, without the prior."""
    temperature: float

    @classmethod
    def cold(cls, kernel: Kernel, points: Float[Tensor, "m d"], table: PseudoTargets) -> "Start":
        """Return the prior as q, except that constant means start at variance one.

        With their broad prior, latents would be so uncertain that the first steps would only narrow it down.
        """
        prior = InducingFeatures.of(kernel, points).prior(table)
        n_latents, d = prior.mean.shape
        precision = prior.mean.new_zeros(n_latents, d, d)
        precision[:, -1, -1] = 1.0 - 1.0 / prior.variance[-1]
        natural = NaturalParameters(precision, torch.zeros_like(prior.mean), prior.mean.new_zeros(n_latents))
        return cls(kernel, points, prior, natural, 1.0)

    @classmethod
    def matched(cls, fitted: FittedSparseGP) -> "Start":
        """Return the posterior and temperature of a matched model."""
        return cls(fitted.kernel, fitted.points, fitted.prior, fitted.natural(), fitted.temperature)


class TrainingSettings(NamedTuple):
    """Optimiser, minibatches and learning rates."""

    optimizer: Optimizer = Optimizer.NATURAL
    batch_size: int = 500
    learning_rate: float = COLD_RATE
    """Learning rate of Adam; 0 keeps kernel and inducing points."""
    natural_rate: float = 0.1
    """Length of natural gradient steps."""
    learn_inducing: bool = True
    seed: int = 0
    """Seed of the minibatches."""


class VariationalTrainer:
    """A model that is trained one minibatch at a time.

    Parameters
    ----------
    rows : SortedRows
        All rows, scaled.
    expected_log_prob : callable
        Expected log-probability of labels by the class likelihood.
    start : Start
        State from which training starts; it is not changed.
    settings : TrainingSettings
        Optimiser, minibatches and learning rates.

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
        """The posterior of the latents of any rows, not yet divided by the temperature."""
        return SparsePosterior([InducingFeatures.of(self.kernel, self.points.detach())], [self.posterior])

    def step(self, share: float = 0.0) -> float:
        """Learn from the next minibatch, and return its estimate of the bound before the step.

        Parameters
        ----------
        share : float
            Share of the run that is over; rates fall to a tenth until it is one.
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
        """Return the bound for all training rows, or for other weighted rows."""
        rows = self._rows if rows is None else rows
        with torch.no_grad():
            expected = self._expected_log_prob(*self.latents(rows.features), rows.labels)
        return float(rows.weight @ expected) - divergence(self.posterior, self._prior)

    def latents(self, X: Float[Tensor, "n d"]) -> Latents:
        """Return mean and variance of the latents of rows, divided by the temperature and its square."""
        mean, variance = self.latent_posterior(X)
        return mean / self.temperature, variance / self.temperature**2


class Checkpoint(NamedTuple):
    """Progress of training at one step."""

    step: int
    seconds: float
    bound: float
    """Mean bound of the minibatches since the last checkpoint."""


def train(trainer: VariationalTrainer, n_steps: int, *, verbose: bool = False) -> list[Checkpoint]:
    """Train for ``n_steps`` steps while rates fall to a tenth, and return about fifty checkpoints.

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
    """Yield minibatches forever, weighted to stand for all rows. Those of one round have no row in common.

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
    r"""Return the sum over latents of :math:`\mathrm{KL}(q\,\|\,p)`; the roots of q must be triangular.

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
    r"""Return the Gaussian observations that rows make if q has this mean, :math:`(-2H_l, \Phi^\top g_l - 2H_lm_l)`.

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

    If gradients are disabled, points and kernel are fixed.
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
    """Return the score with derivatives by variances of at most zero: rounding must not make a precision negative."""

    def expected(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
        variance.register_hook(lambda h: h.clamp_max(0.0))
        return expected_log_prob(mean, variance, labels)

    return expected


class _Weights(ABC):
    """The Gaussians of the weights, and how they are learnt."""

    parameters: Sequence[Tensor] = ()
    """Parameters that Adam moves."""

    @property
    @abstractmethod
    def posterior(self) -> GaussianPosterior:
        """The present Gaussians."""

    @abstractmethod
    def follow(self, expectation: Expectation, decay: float) -> None:
        """Take a step, or set the gradient of the bound with which Adam takes one."""


class _NaturalWeights(_Weights):
    """Natural gradient steps on the natural parameters without the prior."""

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
    r"""Gradients by means and lower triangular roots, :math:`S = R^\top R`, with logarithms of their diagonals.

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
        diagonal.mul_(root.diagonal(dim1=-2, dim2=-1)).add_(1.0)  # derivatives by logarithms
        self._lower.grad = by_root
