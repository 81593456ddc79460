"""Models with learnt hyperparameters: kernels, and inducing points, by evidence, bound, or rows given all others."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify._estimators import LEAST_ALPHA
from gaussify.gp._choice import log_prior_of_alpha
from gaussify.gp._elbo import ExactObjective, accumulate_objective, dense_objective, objective_value
from gaussify.gp._exact import exact_evidence
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import ExactModel, InducingFeatures, split_table
from gaussify.gp._objective import SortedRows, accumulate_gradient
from gaussify.gp._parameters import Verbosity
from gaussify.gp._search import SearchReport, climb, maximise
from gaussify.likelihoods import PseudoTargets

_FEWEST_ROWS = 1000  # that expectations are over, unless there are fewer
CONSTANT_VARIANCE = 1e4  # of constant means a priori; one for all targets, so that bounds can be compared
_N_ROUNDS = 4  # of a search by samples of rows
_ALPHA_UNIT = 5.0  # of logarithms of alpha_eps, which may have far to go
_ALPHA_SCALE = 3.0  # of them a priori


class SearchSettings(NamedTuple):
    """What a search is allowed, and whether each latent has a kernel of its own."""

    shared_kernel: bool
    max_iter: int
    tol: float
    verbose: Verbosity
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


class LabelFamily(NamedTuple):
    """What objectives of the exact likelihood, for which targets need not be fixed, have to know about labels."""

    targets: Callable[[Tensor], PseudoTargets]
    """The target table for an alpha_eps, with its graph."""
    objective: ExactObjective
    alpha_eps: Float[Tensor, "*c"]
    """Where it begins."""
    learns_alpha: bool


class Round(NamedTuple):
    """What maximises an objective of the exact likelihood, as far as it was followed."""

    features: InducingFeatures
    alpha_eps: Float[Tensor, "*c"]
    report: SearchReport


def learn_sparse_with_labels(
    rows: SortedRows,
    family: LabelFamily,
    start: tuple[Kernel, Float[Tensor, "m d"]],
    settings: SearchSettings,
    *,
    learn_points: bool,
    batch_size: int | None,
    seed: int,
    n_rounds: int = 1,
) -> Iterator[Round]:
    """Learn inducing features and alpha_eps by an objective of the exact likelihood, from ``start`` on.

    After each round there may be reason to end. Where the objective is not over all rows, each step is with others.

    Parameters
    ----------
    batch_size : int or None
        Rows that the objective is over, or :func:`default_batch`.
    seed : int
        Of the rows.
    n_rounds : int
        Into which iterations over all rows are divided.
    """
    k, z, alpha_eps = copy.deepcopy(start[0]), start[1].clone().requires_grad_(learn_points), _LearntAlpha(family)
    n, n_latents = len(rows.labels), family.targets(family.alpha_eps).mean.shape[1]
    batch_size = default_batch(n, n_latents) if batch_size is None else batch_size
    generator = torch.Generator().manual_seed(seed)

    def objective() -> float:
        sample = None
        if batch_size < n and settings.max_iter > 0:  # a value that nothing is learnt by is of all rows
            sample = torch.randperm(n, generator=generator)[:batch_size].sort().values
        table = family.targets(alpha_eps())
        value = accumulate_objective(
            k, z, rows, table, family.objective, constant_variance=CONSTANT_VARIANCE, sample=sample
        )
        return value + add_log_priors(k) + alpha_eps.add_log_prior()

    def over_all() -> float:
        table = family.targets(alpha_eps().detach())
        value = objective_value(k, z.detach(), rows, table, family.objective, constant_variance=CONSTANT_VARIANCE)
        return value + add_log_priors(k) + alpha_eps.add_log_prior()

    def finished(report: SearchReport) -> Round:
        own = copy.deepcopy(k)
        own.zero_grad()
        return Round(InducingFeatures.of(own, z.detach().clone()), alpha_eps().detach(), report)

    parameters = [*k.parameters(), z, alpha_eps.parameter]
    if batch_size >= n or settings.max_iter == 0:
        yield from map(finished, _maximise_in_rounds(objective, parameters, rows, settings, n_rounds))
    else:
        options = _options(rows, settings, settings.title)
        for report in climb(objective, parameters, over_all=over_all, n_rounds=_N_ROUNDS, **options):
            yield finished(report)


def default_batch(n_rows: int, n_latents: int) -> int:
    """Return over how many rows expectations of all latents cost what those of two latents cost over all.

    Examples
    --------
    >>> default_batch(10_000, 2), default_batch(10_000, 8), default_batch(10_000, 100)
    (10000, 2500, 1000)
    """
    return max(_FEWEST_ROWS, -(-2 * n_rows // n_latents))


def learn_exact_with_labels(
    rows: SortedRows, family: LabelFamily, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, Float[Tensor, "*c"], SearchReport]:
    """Return the exact model of all rows, its kernel, and alpha_eps, by an objective of the exact likelihood."""
    k, alpha_eps = copy.deepcopy(kernel), _LearntAlpha(family)

    def objective() -> float:
        table, covariance = family.targets(alpha_eps()), k(rows.features).to_dense() + CONSTANT_VARIANCE
        value = dense_objective(covariance, rows.labels, table, family.objective, rows.weight)
        if value.requires_grad:
            value.backward()
        return value.item() + add_log_priors(k) + alpha_eps.add_log_prior()

    report = _maximise(objective, [*k.parameters(), alpha_eps.parameter], rows, settings, (0, 1))
    return ExactModel([k], rows), alpha_eps().detach(), report


class _LearntAlpha:
    """Alpha_eps by its logarithm, in units in which it moves faster than other parameters; or as it was given."""

    def __init__(self, family: LabelFamily) -> None:
        self._given = None if family.learns_alpha else family.alpha_eps
        first = (family.alpha_eps - LEAST_ALPHA).clamp_min(LEAST_ALPHA)
        self.parameter = (first.log() / _ALPHA_UNIT).requires_grad_(family.learns_alpha)

    def __call__(self) -> Float[Tensor, "*c"]:
        """Return it with its graph."""
        return LEAST_ALPHA + (_ALPHA_UNIT * self.parameter).exp() if self._given is None else self._given

    def add_log_prior(self) -> float:
        """Return the log-density of a broad prior, for where the bound says nothing, and add its gradient."""
        if self._given is not None:
            return 0.0
        value = log_prior_of_alpha(_ALPHA_UNIT * self.parameter, _ALPHA_SCALE)
        value.backward()
        return value.item()


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


def _maximise_in_rounds(
    objective: Callable[[], float],
    parameters: list[Tensor],
    rows: SortedRows,
    settings: SearchSettings,
    n_rounds: int,
) -> Iterator[SearchReport]:
    """Report after each round on all iterations so far."""
    options, so_far = _options(rows, settings, settings.title), SearchReport(-np.inf, 0, 0, 0, False, 0.0)
    hear = options.pop("report")

    def report(iteration: int, value: float) -> None:
        if hear is not None:
            hear(so_far.n_iterations + iteration, value)

    for end in sorted({settings.max_iter * part // n_rounds for part in range(1, n_rounds + 1)} - {0}) or [0]:
        done = so_far.n_iterations
        own = maximise(objective, parameters, **options | {"max_iter": end - done}, report=report)
        so_far = SearchReport(
            own.value,
            done + own.n_iterations,
            so_far.n_evaluations + own.n_evaluations,
            so_far.n_restarts + own.n_restarts,
            own.converged,
            so_far.seconds + own.seconds,
        )
        yield so_far
        if own.converged:
            break


def _options(rows: SortedRows, settings: SearchSettings, title: str) -> dict[str, Any]:
    printer = _Progress(title) if settings.verbose else None
    return {
        "scale": float(rows.weight.sum()),
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "report": partial(settings.verbose, title) if callable(settings.verbose) else printer,
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
