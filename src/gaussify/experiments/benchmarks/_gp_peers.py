"""GPyTorch's Gaussian processes for classification, built as in its documentation, and predictions while they train.

All kernels have the form that :class:`~gaussify.GPClassifier` starts from: a scaled RBF with a lengthscale for each
feature, initially the square root of the number of features (rows are standardised).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch import variational
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from gpytorch.likelihoods import SoftmaxLikelihood as GPyTorchSoftmaxLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gaussify.experiments._lab import steps_until
from gaussify.likelihoods import SoftmaxLikelihood

_RATE = 0.1  # of Adam: of 0.01, 0.03 and 0.1 the best on letter for the softmax model, and usual for regression
_DECAY = 0.1  # of this rate over all steps, for minibatches
_PREDICTED = 1000  # rows at a time


class DirichletSGPR(ExactGP):
    """Sparse regression on Dirichlet targets, one latent a class as a batch, with GPyTorch's defaults.

    All latents share the first inducing points. The first constant means are by default those of the targets.
    """

    def __init__(
        self,
        X: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        points: Float[Tensor, "m d"],
        *,
        mean: Float[Tensor, " l"] | None = None,
        kernel_per_class: bool = False,
    ) -> None:
        likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=False, dtype=X.dtype)
        targets = likelihood.transformed_targets  # (l, n)
        super().__init__(X, targets, likelihood)
        batch = torch.Size([len(targets)])
        self.mean_module = ConstantMean(batch_shape=batch).to(X)
        self.mean_module.initialize(constant=targets.mean(1) if mean is None else mean)
        variance, own_batch = float(targets.var(1).mean()), batch if kernel_per_class else torch.Size()
        kernel = scaled_rbf(X.shape[1], variance, X.dtype, own_batch)
        self.covar_module = InducingPointKernel(kernel, points.detach().clone(), likelihood)

    def forward(self, x: Float[Tensor, "... d"]) -> MultivariateNormal:
        """Return the prior of the latents."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def bound(self) -> Float[Tensor, ""]:
        """Return the collapsed bound of all latents together, differentiable."""
        (X,) = self.train_inputs
        return ExactMarginalLogLikelihood(self.likelihood, self)(self(X), self.train_targets).sum() * len(X)


class SoftmaxSVGP(ApproximateGP):
    """Stochastic variational inference of one latent a class, independent, with learnt inducing points.

    With a kernel for each class, each latent also has its own mean and inducing points, which begin at ``points``.
    """

    def __init__(self, points: Float[Tensor, "m d"], n_classes: int, *, kernel_per_class: bool) -> None:
        m, d = points.shape
        latents = torch.Size([n_classes])
        batch = latents if kernel_per_class else torch.Size()
        distribution = variational.CholeskyVariationalDistribution(m, batch_shape=latents)
        strategy = variational.VariationalStrategy(
            self, points.expand(*batch, m, d).clone(), distribution, learn_inducing_locations=True
        )
        super().__init__(variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=n_classes))
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = scaled_rbf(d, 1.0, points.dtype, batch)
        self.to(points)

    def forward(self, x: Float[Tensor, "... d"]) -> MultivariateNormal:
        """Return the prior of the latents."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def scaled_rbf(n_features: int, variance: float, dtype: torch.dtype, batch_shape: torch.Size) -> Kernel:
    """Return the kernel that every contender starts from."""
    base = RBFKernel(ard_num_dims=n_features, batch_shape=batch_shape)
    kernel = ScaleKernel(base, batch_shape=batch_shape).to(dtype)
    kernel.initialize(outputscale=variance)
    kernel.base_kernel.initialize(lengthscale=n_features**0.5)
    return kernel


class Trainer(NamedTuple):
    """A model in training: ``step`` takes the share of the time that has passed, ``predict`` scores test rows."""

    step: Callable[[float], None]
    predict: Callable[[], NDArray]


class Look(NamedTuple):
    """A model after some steps; the time of the prediction is not part of ``seconds``."""

    n_steps: int
    seconds: float
    predict_seconds: float
    probs: Float[np.ndarray, "n c"]


def watch(make: Callable[[], Trainer], time_limit: float, n_looks: int) -> Iterator[Look]:
    """Make a model, train it for ``time_limit`` seconds, and predict at times that double."""
    begun = time.perf_counter()
    trainer = make()
    seconds = time.perf_counter() - begun
    marks = time_limit * 0.5 ** np.arange(n_looks)[::-1]
    for n_steps, own in steps_until(marks, lambda now: trainer.step(min(1.0, now / time_limit)), seconds, at_least=1):
        begun = time.perf_counter()
        probs = trainer.predict()
        yield Look(n_steps, own, time.perf_counter() - begun, probs)


def dirichlet_trainer(X: NDArray, labels: NDArray, X_test: NDArray, n_inducing: int) -> Trainer:
    """Train by Adam on all rows at once, in float64."""
    rows = torch.from_numpy(X)
    model = DirichletSGPR(rows, torch.from_numpy(labels), cluster_centres(rows, n_inducing))
    return _trainer(model, lambda: -model.bound() / len(rows), torch.from_numpy(X_test), decay=1.0)


def svgp_trainer(
    X: NDArray, labels: NDArray, X_test: NDArray, n_inducing: int, batch_size: int, *, kernel_per_class: bool
) -> Trainer:
    """Train by Adam on minibatches, in float32, GPyTorch's default; the rate falls to a tenth."""
    rows, y, n_classes = torch.from_numpy(X).float(), torch.from_numpy(labels), int(labels.max()) + 1
    model = SoftmaxSVGP(cluster_centres(rows, n_inducing), n_classes, kernel_per_class=kernel_per_class)
    likelihood = GPyTorchSoftmaxLikelihood(num_classes=n_classes, mixing_weights=False)
    elbo = VariationalELBO(likelihood, model, num_data=len(rows))
    minibatches = _minibatches(len(rows), batch_size)

    def loss() -> Tensor:
        chosen = next(minibatches)
        return -elbo(model(rows[chosen]), y[chosen])

    return _trainer(model, loss, torch.from_numpy(X_test).float(), decay=_DECAY)


def _trainer(model: Any, loss: Callable[[], Tensor], X_test: Float[Tensor, "n d"], *, decay: float) -> Trainer:
    adam = torch.optim.Adam(model.parameters(), lr=_RATE)

    def step(share: float) -> None:
        model.train()
        adam.param_groups[0]["lr"] = _RATE * decay**share
        adam.zero_grad()
        loss().backward()
        adam.step()

    return Trainer(step, lambda: _probs(model, X_test))


def cluster_centres(rows: Float[Tensor, "n d"], n_inducing: int) -> Float[Tensor, "m d"]:
    """Return centres of clusters of some rows, which are also the first inducing points of ``GPClassifier``.

    Examples
    --------
    >>> cluster_centres(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2).sort(0).values
    tensor([[0.0500],
            [5.0500]])
    """
    from sklearn.cluster import KMeans

    drawn = np.random.default_rng(0).permutation(len(rows))[: 20 * n_inducing]
    means = KMeans(n_inducing, n_init=1, max_iter=30, random_state=0)
    return torch.from_numpy(means.fit(rows[drawn].numpy()).cluster_centers_).to(rows)


def _minibatches(n_rows: int, size: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        yield from torch.randperm(n_rows, generator=generator).split(size)


@torch.no_grad()
def _probs(model: Any, X: Float[Tensor, "n d"]) -> NDArray:
    """Return probabilities by gaussify's quadrature, which is more accurate than GPyTorch's samples."""
    model.eval()
    parts = [(own.mean, own.variance) for own in map(model, X.split(_PREDICTED))]
    if isinstance(model, ExactGP):  # whose latents come first
        parts = [(mean.mT, variance.mT) for mean, variance in parts]
    mean, variance = (torch.cat(own).double() for own in zip(*parts, strict=True))
    return SoftmaxLikelihood(mean.shape[1]).predict_proba(mean, variance).numpy()
