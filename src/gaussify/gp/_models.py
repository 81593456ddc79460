r"""Gaussian processes of all latents with fixed hyperparameters: training rows in, latents of other rows out.

A model has one kernel that all latents share, or one for each latent. A new target table costs a sparse model no pass
over the rows; an exact model factorises again. Constant means are weights of a feature that is one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._exact import ExactPosterior
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._cross import cross_kernel
from gaussify.gp.objectives._passes import factorise
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    StatisticsAccumulator,
    class_posterior,
    latent,
    leave_one_out,
)

_ELEMENTS = 1 << 20  # of the part of a kernel matrix that is computed at a time

Latents = tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]
"""Mean and variance of latents."""


class LatentPosterior(ABC):
    """The posterior of the latents of any rows."""

    _n_columns: int
    """Number of columns of the largest matrix that a chunk of rows needs."""

    @torch.no_grad()
    def __call__(self, rows: Float[Tensor, "n d"]) -> Latents:
        """Return mean and variance of the latents, computed for a few rows at a time."""
        chunks = [self._few(part) for part in rows.split(max(1, _ELEMENTS // self._n_columns))]
        mean, variance = zip(*chunks, strict=True)
        return torch.cat(mean), torch.cat(variance)

    @abstractmethod
    def _few(self, rows: Float[Tensor, "n d"]) -> Latents:
        """Return the latents of a few rows."""


class LatentModel(ABC):
    """A Gaussian process of every latent, exact or sparse, with its training rows."""

    kernels: Sequence[Kernel]

    @abstractmethod
    def posterior(self, table: PseudoTargets) -> "LatentPosterior":
        """Return the posterior for a target table."""

    @abstractmethod
    def training_latents(self, rows: SortedRows, places: Int[Tensor, " k"]) -> Callable[[PseudoTargets, bool], Latents]:
        """Return a function that gives the latents of some training rows for a target table.

        The function's second argument says whether each row is left out of its own latents.

        Parameters
        ----------
        rows : SortedRows
            All training rows.
        places : tensor of int
            Places of the rows whose latents the function returns.
        """

    def _tables(self, table: PseudoTargets) -> list[PseudoTargets]:
        """Return the part of the table for each kernel."""
        return [table] if len(self.kernels) == 1 else split_table(table)


def split_table(table: PseudoTargets) -> list[PseudoTargets]:
    """Return the target table of each latent.

    Examples
    --------
    >>> [own.mean.shape for own in split_table(PseudoTargets(torch.zeros(3, 2), torch.ones(3, 2)))]
    [torch.Size([3, 1]), torch.Size([3, 1])]
    """
    return [PseudoTargets(*(part[:, [k]] for part in table)) for k in range(table.mean.shape[1])]


class InducingFeatures(NamedTuple):
    r"""Whitened features :math:`L^{-1}k(Z, x)`, a constant, and the variance that they leave unexplained.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> kernel, points = RBFKernel().double(), torch.zeros(1, 1).double()
    >>> features, left = InducingFeatures.of(kernel, points)(torch.zeros(1, 1).double())
    >>> features, left
    (tensor([[1., 1.]], dtype=torch.float64), tensor([1.0000e-08], dtype=torch.float64))
    """

    kernel: Kernel
    points: Float[Tensor, "m d"]
    inverse: Float[Tensor, "m m"]
    r""":math:`L^{-1}`."""

    @classmethod
    @torch.no_grad()
    def of(cls, kernel: Kernel, points: Float[Tensor, "m d"]) -> "InducingFeatures":
        """Factorise the kernel matrix of the points."""
        factor = factorise(kernel, points)
        identity = torch.eye(len(points), dtype=points.dtype)
        return cls(kernel, points, torch.linalg.solve_triangular(factor, identity, upper=False))

    def prior(self, table: PseudoTargets) -> GaussianPrior:
        """Return the prior of the weights: variance one, and a broad variance for the constant."""
        variance = torch.cat(
            [self.points.new_ones(len(self.points)), self.points.new_tensor([constant_variance(table)])]
        )
        return GaussianPrior.centred(variance, n_latents=table.mean.shape[1])

    @torch.no_grad()
    def __call__(self, rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n e"], Float[Tensor, " n"]]:
        """Return the features of rows, and the variance they leave unexplained."""
        cross, m = cross_kernel(self.kernel, self.points), len(self.points)
        features, left = rows.new_ones(len(rows), m + 1), rows.new_empty(len(rows))
        size = max(1, _ELEMENTS // m)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            block = cross(rows[part], differentiable=False)
            own = block.matrix @ self.inverse.mT
            features[part, :m] = own
            left[part] = (block.variance - own.square().sum(1)).clamp_min(0.0)
        return features, left


class SparseModel(LatentModel):
    """Inducing features and the class statistics of rows; its size does not depend on the number of rows.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> model = SparseModel([InducingFeatures.of(RBFKernel().double(), torch.zeros(1, 1).double())], n_classes=2)
    >>> model.learn(torch.zeros(3, 1).double(), torch.tensor([0, 1, 1]))
    >>> model.statistics[0].count
    tensor([1., 2.], dtype=torch.float64)
    """

    def __init__(
        self,
        features: Sequence[InducingFeatures],
        n_classes: int,
        statistics: Sequence[ClassStatistics] | None = None,
    ) -> None:
        self.features = list(features)
        self.kernels = [own.kernel for own in features]
        if statistics is None:
            statistics = [ClassStatistics.zeros(n_classes, len(own.points) + 1) for own in features]
        self._accumulators = [StatisticsAccumulator(own) for own in statistics]

    @classmethod
    def of_rows(cls, features: Sequence[InducingFeatures], rows: SortedRows) -> "SparseModel":
        """Return the model that has learnt all of the rows."""
        model = cls(features, rows.n_classes)
        model.learn(rows.features, rows.labels, None if bool((rows.weight == 1.0).all()) else rows.weight)
        return model

    @property
    def statistics(self) -> list[ClassStatistics]:
        """Class statistics of the features, for each kernel."""
        return [accumulator.statistics for accumulator in self._accumulators]

    def with_statistics(self, statistics: Sequence[ClassStatistics]) -> "SparseModel":
        """Return the same model of other rows."""
        return SparseModel(self.features, statistics[0].n_classes, statistics)

    def copy(self) -> "SparseModel":
        """Return a model that can learn without changing this one."""
        twin = object.__new__(SparseModel)
        twin.__dict__.update(self.__dict__)
        twin._accumulators = [accumulator.copy() for accumulator in self._accumulators]
        return twin

    def learn(
        self, rows: Float[Tensor, "n d"], labels: Int[Tensor, " n"], weight: Float[Tensor, " n"] | None = None
    ) -> None:
        """Add rows, a few at a time."""
        for features, accumulator in zip(self.features, self._accumulators, strict=True):
            for part in torch.arange(len(rows)).split(max(1, _ELEMENTS // len(features.points))):
                own = None if weight is None else weight[part]
                accumulator.append(features(rows[part])[0], labels[part], own)

    def statistics_of(
        self, rows: Float[Tensor, "n d"], labels: Int[Tensor, " n"], weight: Float[Tensor, " n"] | None, n_classes: int
    ) -> list[ClassStatistics]:
        """Return the statistics of other rows."""
        other = SparseModel(self.features, n_classes)
        other.learn(rows, labels, weight)
        return other.statistics

    def posterior(self, table: PseudoTargets) -> "SparsePosterior":
        return SparsePosterior(self.features, self.posteriors(table))

    def posteriors(self, table: PseudoTargets) -> list[GaussianPosterior]:
        """Return the weights of each kernel's features."""
        return [
            class_posterior(features.prior(own), rows, own)
            for features, rows, own in zip(self.features, self.statistics, self._tables(table), strict=True)
        ]

    def training_latents(self, rows: SortedRows, places: Int[Tensor, " k"]) -> Callable[[PseudoTargets, bool], Latents]:
        some = rows.take(places)
        known = [features(some.features) for features in self.features]

        def latents_of(table: PseudoTargets, left_out: bool) -> Latents:
            parts = []
            for (phi, left), posterior, own in zip(known, self.posteriors(table), self._tables(table), strict=True):
                mean, variance = latent(posterior, phi)
                if left_out:
                    targets = PseudoTargets(own.mean[some.labels], own.variance[some.labels])
                    mean, variance = leave_one_out(mean, variance, targets, some.weight)
                parts.append((mean, variance + left[:, None]))
            return _side_by_side(parts)

        return latents_of


class SparsePosterior(LatentPosterior):
    """The posterior of the weights of inducing features, with what gives the features of other rows.

    Parameters
    ----------
    features, posteriors
        Features of each kernel, and the posterior of their weights.
    scale : float
        Factor of the kernels.
    """

    def __init__(
        self, features: Sequence[InducingFeatures], posteriors: Sequence[GaussianPosterior], scale: float = 1.0
    ) -> None:
        self._features, self._posteriors, self._scale = features, posteriors, scale
        self._n_columns = len(features[0].points) + 1

    def _few(self, rows: Float[Tensor, "n d"]) -> Latents:
        parts = []
        for features, posterior in zip(self._features, self._posteriors, strict=True):
            phi, left = features(rows)
            mean, variance = latent(posterior, phi)
            parts.append((mean, variance + self._scale * left[:, None]))
        return _side_by_side(parts)


class ExactModel(LatentModel):
    """All training rows and the kernel.

    Examples
    --------
    >>> from gpytorch.kernels import RBFKernel
    >>> rows = SortedRows.of(torch.zeros(2, 1).double(), torch.tensor([0, 1]), n_classes=2)
    >>> model = ExactModel([RBFKernel().double()], rows)
    >>> table = PseudoTargets(torch.tensor([[-1.0], [1.0]]).double(), torch.ones(2, 1).double())
    >>> model.posterior(table)(torch.zeros(1, 1).double())[0]
    tensor([[0.]], dtype=torch.float64)
    """

    def __init__(self, kernels: Sequence[Kernel], rows: SortedRows) -> None:
        self.kernels, self.rows = list(kernels), rows

    def posterior(self, table: PseudoTargets) -> "ExactRowsPosterior":
        constants = [constant_variance(own) for own in self._tables(table)]
        return ExactRowsPosterior(self.kernels, self.rows.features, self._posteriors(table), constants)

    def training_latents(self, rows: SortedRows, places: Int[Tensor, " k"]) -> Callable[[PseudoTargets, bool], Latents]:
        r"""Return the function for an exact model.

        A training row has the latent mean :math:`y - v\alpha` and variance :math:`v - v^2[A^{-1}]_{ii}`.
        """
        some = rows.take(places)

        @torch.no_grad()
        def latents_of(table: PseudoTargets, left_out: bool) -> Latents:
            parts = []
            for posterior, own in zip(self._posteriors(table), self._tables(table), strict=True):
                targets = PseudoTargets(own.mean[some.labels], own.variance[some.labels])
                noise = targets.variance / some.weight[:, None]
                mean = targets.mean - noise * posterior.alpha[:, places].mT
                variance = (noise - noise.square() * posterior.solve.inverse_diagonal(places)).clamp_min(0.0)
                if left_out:
                    mean, variance = leave_one_out(mean, variance, targets, some.weight)
                parts.append((mean, variance))
            return _side_by_side(parts)

        return latents_of

    @torch.no_grad()
    def _posteriors(self, table: PseudoTargets) -> list[ExactPosterior]:
        rows = self.rows
        return [
            ExactPosterior.of(kernel(rows.features).to_dense() + constant_variance(own), rows.labels, own, rows.weight)
            for kernel, own in zip(self.kernels, self._tables(table), strict=True)
        ]


class ExactRowsPosterior(LatentPosterior):
    """The posterior of any rows given all training rows."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        rows: Float[Tensor, "n d"],
        posteriors: Sequence[ExactPosterior],
        constants: Sequence[float],
    ) -> None:
        self._kernels, self._rows, self._posteriors, self._constants = kernels, rows, posteriors, constants
        self._n_columns = len(rows)

    def _few(self, rows: Float[Tensor, "n d"]) -> Latents:
        parts = []
        for kernel, posterior, constant in zip(self._kernels, self._posteriors, self._constants, strict=True):
            block = cross_kernel(kernel, self._rows)(rows, differentiable=False)
            parts.append(posterior.latent(block.matrix + constant, block.variance + constant))
        return _side_by_side(parts)


def _side_by_side(parts: Sequence[tuple[Tensor, Tensor]]) -> Latents:
    mean, variance = zip(*parts, strict=True)
    return torch.cat(mean, 1), torch.cat(variance, 1)
