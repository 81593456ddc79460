"""Models with learnt hyperparameters: kernels, and inducing points, of largest evidence or bound."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify.gp._elbo import accumulate_elbo, dense_elbo
from gaussify.gp._exact import exact_evidence
from gaussify.gp._expectation import ExpectedLogProb
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import ExactModel, InducingFeatures, mean_variance, split_table
from gaussify.gp._objective import SortedRows, accumulate_gradient
from gaussify.gp._search import SearchReport, climb, maximise
from gaussify.likelihoods import PseudoTargets

_FEWEST_ROWS = 1000  # that expectations are over, unless there are fewer
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


class ElboRound(NamedTuple):
    """What maximises the bound on the exact model, as far as it was followed."""

    features: InducingFeatures
    alpha_eps: Float[Tensor, "*c"]
    report: SearchReport


def learn_sparse_elbo(
    rows: SortedRows,
    family: ElboFamily,
    start: tuple[Kernel, Float[Tensor, "m d"]],
    settings: SearchSettings,
    *,
    learn_points: bool,
    batch_size: int | None,
    seed: int,
) -> Iterator[ElboRound]:
    """Learn inducing features and alpha_eps of largest bound on the exact model, from ``start`` on.

    Where expectations are over all rows, there is one round. Otherwise each step is with other rows, and a round may be
    the last one if there is reason to end.

    Parameters
    ----------
    batch_size : int or None
        Rows that expectations are over, or :func:`default_batch`.
    seed : int
        Of the rows.
    """
    k, z, log_alpha = copy.deepcopy(start[0]), start[1].clone().requires_grad_(learn_points), _log_alpha(family)
    table, n = family.targets(family.alpha_eps), len(rows.labels)
    constant_variance = mean_variance(table)
    batch_size = default_batch(n, table.mean.shape[1]) if batch_size is None else batch_size
    generator = torch.Generator().manual_seed(seed)

    def objective() -> float:
        sample = None
        if batch_size < n:
            sample = torch.randperm(n, generator=generator)[:batch_size].sort().values
        value = accumulate_elbo(
            k,
            z,
            rows,
            family.targets(log_alpha.exp()),
            family.expected_log_prob,
            constant_variance=constant_variance,
            sample=sample,
        )
        return value + add_log_priors(k)

    parameters = [*k.parameters(), z, log_alpha]
    if batch_size >= n or settings.max_iter == 0:
        reports = iter([_maximise(objective, parameters, rows, settings, (0, 1))])
    else:
        reports = climb(objective, parameters, n_rounds=_N_ROUNDS, **_options(rows, settings, settings.title))
    for report in reports:
        features = InducingFeatures.of(copy.deepcopy(k), z.detach().clone())
        yield ElboRound(features, log_alpha.detach().exp(), report)


def default_batch(n_rows: int, n_latents: int) -> int:
    """Return over how many rows expectations of all latents cost what those of two latents cost over all.

    Examples
    --------
    >>> default_batch(10_000, 2), default_batch(10_000, 8), default_batch(10_000, 100)
    (10000, 2500, 1000)
    """
    return max(_FEWEST_ROWS, -(-2 * n_rows // n_latents))


def learn_exact_elbo(
    rows: SortedRows, family: ElboFamily, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, Float[Tensor, "*c"], SearchReport]:
    """Return the exact model of all rows, its kernel, and alpha_eps, of largest bound, learnt from there on."""
    k, log_alpha = copy.deepcopy(kernel), _log_alpha(family)
    constant_variance = mean_variance(family.targets(family.alpha_eps))

    def objective() -> float:
        table, covariance = family.targets(log_alpha.exp()), k(rows.features).to_dense() + constant_variance
        value = dense_elbo(covariance, rows.labels, table, family.expected_log_prob, rows.weight)
        if value.requires_grad:
            value.backward()
        return value.item() + add_log_priors(k)

    report = _maximise(objective, [*k.parameters(), log_alpha], rows, settings, (0, 1))
    return ExactModel([k], rows), log_alpha.detach().exp(), report


def _log_alpha(family: ElboFamily) -> Float[Tensor, "*c"]:
    return family.alpha_eps.log().clone().requires_grad_(family.learns_alpha)


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
    return maximise(objective, parameters, **_options(rows, settings, title))


def _options(rows: SortedRows, settings: SearchSettings, title: str) -> dict[str, Any]:
    return {
        "scale": float(rows.weight.sum()),
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "report": _Progress(title) if settings.verbose else None,
    }


class _Progress:
    """Print the objective after the first iteration, then about once a second."""

    def __init__(self, title: str) -> None:
        self._title, self._start, self._last = title, time.perf_counter(), -np.inf

    def __call__(self, iteration: int, value: float) -> None:
        seconds = time.perf_counter() - self._start
        if seconds - self._last >= 1.0:
            self._last = seconds
            print(f"{self._title}iteration {iteration}: objective {value:.6g}, {seconds:.1f} s", flush=True)
