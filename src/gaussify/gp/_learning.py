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

from gaussify.gp._exact import exact_evidence
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import ExactModel, InducingFeatures, split_table
from gaussify.gp._objective import SortedRows, accumulate_gradient
from gaussify.gp._search import SearchReport, maximise
from gaussify.likelihoods import PseudoTargets


class SearchSettings(NamedTuple):
    """What a search is allowed, and whether each latent has a kernel of its own."""

    shared_kernel: bool
    max_iter: int
    tol: float
    verbose: bool


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
    title = f"kernel {number + 1} of {n_searches}, " if n_searches > 1 else ""
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
