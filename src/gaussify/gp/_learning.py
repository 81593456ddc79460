"""Models with learnt hyperparameters: kernels, and inducing points, of largest evidence or bound."""

import copy
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify.gp._choice import log_prior_of_alpha
from gaussify.gp._elbo import ExpectedLogProb, accumulate_elbo, dense_elbo
from gaussify.gp._exact import exact_evidence
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import ExactModel, InducingFeatures, mean_variance, split_table
from gaussify.gp._objective import SortedRows, accumulate_gradient
from gaussify.gp._search import SearchReport, maximise
from gaussify.likelihoods import PseudoTargets

_MANY_ROWS = 2000  # beyond, expectations are over half as many
_N_ROUNDS = 4  # of a search by samples of rows


class SearchSettings(NamedTuple):
    """What a search is allowed, and whether each latent has a kernel of its own."""

    shared_kernel: bool
    max_iter: int
    tol: float
    verbose: bool
    title: str = ""
    """Of lines about the progress."""


def learn_exact(
    rows: SortedRows, table: PseudoTargets, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, list[SearchReport]]:
    """Return the exact model of all rows, its kernels learnt from ``kernel`` on."""
    kernels, reports = [], []
    tables = [table] if settings.shared_kernel else split_table(table)
    for i, own in enumerate(tables):
        k = copy.deepcopy(kernel)

        def objective(k: Kernel = k, own: PseudoTargets = own) -> float:
            value = exact_evidence(k(rows.features).to_dense(), rows.labels, own, rows.weight).value
            if value.requires_grad:
                value.backward()
            return value.item() + add_log_priors(k)

        reports.append(_maximise(objective, list(k.parameters()), rows, settings, (i, len(tables))))
        kernels.append(k)
    return ExactModel(kernels, rows), reports


def learn_sparse(
    rows: SortedRows,
    table: PseudoTargets,
    start: Sequence[tuple[Kernel, Float[Tensor, "m d"]]],
    settings: SearchSettings,
    *,
    learn_points: bool,
) -> tuple[list[InducingFeatures], list[SearchReport]]:
    """Return inducing features, kernels and (if so) points learnt from those on, one for all or one for each latent."""
    features, reports = [], []
    tables = [table] if settings.shared_kernel else split_table(table)
    start = [*start] * (len(tables) // len(start))
    for i, (own, (kernel, points)) in enumerate(zip(tables, start, strict=True)):
        k, z = copy.deepcopy(kernel), points.clone().requires_grad_(learn_points)

        def objective(k: Kernel = k, z: Tensor = z, own: PseudoTargets = own) -> float:
            return accumulate_gradient(k, z, rows, own).value + add_log_priors(k)

        reports.append(_maximise(objective, [*k.parameters(), z], rows, settings, (i, len(tables))))
        features.append(InducingFeatures.of(k, z.detach()))
    return features, reports


class ElboFamily(NamedTuple):
    """What the bound on the exact model needs to know about labels."""

    targets: Callable[[Tensor], PseudoTargets]
    """The target table for an alpha_eps, with its graph."""
    expected_log_prob: ExpectedLogProb
    alpha_eps: Float[Tensor, "*c"]
    """Where it begins."""
    learns_alpha: bool


def learn_sparse_elbo(
    rows: SortedRows,
    family: ElboFamily,
    start: tuple[Kernel, Float[Tensor, "m d"]],
    settings: SearchSettings,
    *,
    learn_points: bool,
    batch_size: int | None,
    seed: int,
) -> tuple[InducingFeatures, Float[Tensor, "*c"], SearchReport]:
    """Return inducing features and alpha_eps of largest bound on the exact model, learnt from ``start`` on.

    Where expectations are not over all rows, the search goes in rounds, each with others.
    """
    k, z, log_alpha = copy.deepcopy(start[0]), start[1].clone().requires_grad_(learn_points), _log_alpha(family)
    constant_variance = mean_variance(family.targets(family.alpha_eps))
    samples: list[Tensor | None] = [None]
    if batch_size is None:
        batch_size = len(rows.labels) if len(rows.labels) <= _MANY_ROWS else _MANY_ROWS // 2
    if batch_size < len(rows.labels):
        generator = torch.Generator().manual_seed(seed)
        orders = [torch.randperm(len(rows.labels), generator=generator) for _ in range(_N_ROUNDS)]
        samples = [order[:batch_size].sort().values for order in orders]
    reports: list[SearchReport] = []
    for sample in samples:

        def objective(sample: Tensor | None = sample) -> float:
            value = accumulate_elbo(
                k,
                z,
                rows,
                family.targets(log_alpha.exp()),
                family.expected_log_prob,
                constant_variance=constant_variance,
                sample=sample,
            )
            return value + add_log_priors(k) + _add_alpha_prior(log_alpha)

        own = settings._replace(
            max_iter=-(-settings.max_iter // len(samples)),
            title=f"{settings.title}round {len(reports) + 1} of {len(samples)}, ",
        )
        reports.append(_maximise(objective, [*k.parameters(), z, log_alpha], rows, own, (0, 1)))
    return InducingFeatures.of(k, z.detach()), log_alpha.detach().exp(), _joined(reports)


def learn_exact_elbo(
    rows: SortedRows, family: ElboFamily, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, Float[Tensor, "*c"], SearchReport]:
    """As :func:`learn_sparse_elbo`, for the exact model of all rows."""
    k, log_alpha = copy.deepcopy(kernel), _log_alpha(family)
    constant_variance = mean_variance(family.targets(family.alpha_eps))

    def objective() -> float:
        table, covariance = family.targets(log_alpha.exp()), k(rows.features).to_dense() + constant_variance
        value = dense_elbo(covariance, rows.labels, table, family.expected_log_prob, rows.weight)
        if value.requires_grad:
            value.backward()
        return value.item() + add_log_priors(k) + _add_alpha_prior(log_alpha)

    report = _maximise(objective, [*k.parameters(), log_alpha], rows, settings, (0, 1))
    return ExactModel([k], rows), log_alpha.detach().exp(), report


def _log_alpha(family: ElboFamily) -> Float[Tensor, "*c"]:
    return family.alpha_eps.log().clone().requires_grad_(family.learns_alpha)


def _add_alpha_prior(log_alpha: Float[Tensor, "*c"]) -> float:
    """Return the log-prior, which keeps alpha_eps from where it means nothing, and add its gradient."""
    value = log_prior_of_alpha(log_alpha)
    if log_alpha.requires_grad:
        value.backward()
    return value.item()


def _joined(reports: Sequence[SearchReport]) -> SearchReport:
    """Of rounds that follow each other."""
    last = reports[-1]
    return last._replace(
        n_iterations=sum(report.n_iterations for report in reports),
        n_evaluations=sum(report.n_evaluations for report in reports),
        n_restarts=sum(report.n_restarts for report in reports),
        seconds=sum(report.seconds for report in reports),
    )


def with_more_points(
    features: Sequence[InducingFeatures], n_points: int, rows: SortedRows, seed: int
) -> list[InducingFeatures]:
    """Return features with centres of clusters of rows as further points, up to ``n_points`` in all."""
    larger = []
    for kernel, points, _ in features:
        n_more = n_points - len(points)
        more = (
            first_points(InducingInit.KMEANS, n_more, rows.features, rows.weight, kernel, seed) if n_more > 0 else None
        )
        larger.append(InducingFeatures.of(kernel, points if more is None else torch.cat([points, more])))
    return larger


def _maximise(
    objective: Callable[[], float],
    parameters: list[Tensor],
    rows: SortedRows,
    settings: SearchSettings,
    place: tuple[int, int],
) -> SearchReport:
    number, n_searches = place
    title = settings.title + (f"kernel {number + 1} of {n_searches}, " if n_searches > 1 else "")
    return maximise(
        objective,
        parameters,
        scale=float(rows.weight.sum()),
        max_iter=settings.max_iter,
        tol=settings.tol,
        report=_Progress(title) if settings.verbose else None,
    )


class _Progress:
    """Print the objective after the first iteration, then about once a second."""

    def __init__(self, title: str) -> None:
        self._title, self._start, self._last = title, time.perf_counter(), -np.inf

    def __call__(self, iteration: int, value: float) -> None:
        seconds = time.perf_counter() - self._start
        if seconds - self._last >= 1.0:
            self._last = seconds
            print(f"{self._title}iteration {iteration}: objective {value:.6g}, {seconds:.1f} s", flush=True)
