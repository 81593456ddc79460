"""One search for hyperparameters: kernel, inducing points and alpha_eps, with the objective given."""

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

from gaussify._calibration import LEAST_ALPHA, log_prior_of_alpha
from gaussify._numerics._optimise import SearchReport, climb, maximise
from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._exact import exact_evidence
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import add_log_priors
from gaussify.gp._models import ExactModel, InducingFeatures, split_table
from gaussify.gp._parameters import Verbosity
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._collapsed import accumulate_collapsed_bound
from gaussify.gp.objectives._likelihood import (
    LikelihoodObjective,
    accumulate_likelihood_objective,
    dense_likelihood_objective,
    likelihood_objective_value,
)
from gaussify.likelihoods import PseudoTargets

_FEWEST_ROWS = 1000  # a sample for expectations has at least as many, unless there are fewer
_N_ROUNDS = 4  # of a search that samples rows
_ALPHA_UNIT = 5.0  # of log(alpha_eps) as a parameter, which may have far to go
_ALPHA_SCALE = 3.0  # prior standard deviation of log(alpha_eps)
_NO_VALUE = (
    "The objective has no finite value at the first hyperparameters. Are the inputs of moderate size, and is the "
    "kernel positive definite?"
)


class SearchSettings(NamedTuple):
    """Limits of a search, and whether all latents share a kernel."""

    shared_kernel: bool
    max_iter: int
    tol: float
    verbose: Verbosity
    title: str = ""
    """First words of each line of progress."""


def learn_exact(
    rows: SortedRows, table: PseudoTargets, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, list[SearchReport]]:
    """Return the exact model of all rows with the kernels of largest evidence; the search starts at ``kernel``."""
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
    """Return the inducing features of largest collapsed bound, for all latents together or for each.

    The search starts at the kernels and inducing points of ``start``; the points move if ``learn_points``.
    """
    features, reports = [], []
    tables = [table] if settings.shared_kernel else split_table(table)
    start = [*start] * (len(tables) // len(start))
    for i, (own, (kernel, points)) in enumerate(zip(tables, start, strict=True)):
        k, z = copy.deepcopy(kernel), points.clone().requires_grad_(learn_points)

        def objective(k: Kernel = k, z: Tensor = z, own: PseudoTargets = own) -> float:
            return accumulate_collapsed_bound(k, z, rows, own).value + add_log_priors(k)

        reports.append(_maximise(objective, [*k.parameters(), z], rows, settings, (i, len(tables))))
        features.append(InducingFeatures.of(k, z.detach()))
    return features, reports


class LabelFamily(NamedTuple):
    """An objective with the class likelihood, and the target tables among which it may choose."""

    targets: Callable[[Tensor], PseudoTargets]
    """Returns the target table for an alpha_eps, differentiable."""
    objective: LikelihoodObjective
    alpha_eps: Float[Tensor, "*c"]
    """First value."""
    learns_alpha: bool


class Round(NamedTuple):
    """The state of a search with the class likelihood after a round."""

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
    """Yield inducing features and alpha_eps after each round of a search, which the caller may end there.

    If the objective is over a sample of the rows, each step takes another sample.

    Parameters
    ----------
    batch_size : int or None
        Number of rows in a sample; None is :func:`default_batch`.
    seed : int
        Seed of the samples.
    n_rounds : int
        Number of rounds, if the objective is over all rows.
    """
    k, z, alpha_eps = copy.deepcopy(start[0]), start[1].clone().requires_grad_(learn_points), _LearntAlpha(family)
    n, n_latents = len(rows.labels), family.targets(family.alpha_eps).mean.shape[1]
    batch_size = default_batch(n, n_latents) if batch_size is None else batch_size
    generator = torch.Generator().manual_seed(seed)

    def objective() -> float:
        sample = None
        if batch_size < n and settings.max_iter > 0:  # without a search, the value is over all rows
            sample = torch.randperm(n, generator=generator)[:batch_size].sort().values
        table = family.targets(alpha_eps())
        value = accumulate_likelihood_objective(
            k, z, rows, table, family.objective, constant_variance=constant_variance(), sample=sample
        )
        return value + add_log_priors(k) + alpha_eps.add_log_prior()

    def over_all() -> float:
        table = family.targets(alpha_eps().detach())
        value = likelihood_objective_value(
            k, z.detach(), rows, table, family.objective, constant_variance=constant_variance()
        )
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
    """Return the sample size with which all latents cost as much as two latents over all rows; at least 1000.

    Examples
    --------
    >>> default_batch(10_000, 2), default_batch(10_000, 8), default_batch(10_000, 100)
    (10000, 2500, 1000)
    """
    return max(_FEWEST_ROWS, -(-2 * n_rows // n_latents))


def learn_exact_with_labels(
    rows: SortedRows, family: LabelFamily, kernel: Kernel, settings: SearchSettings
) -> tuple[ExactModel, Float[Tensor, "*c"], SearchReport]:
    """Return the exact model and the alpha_eps that maximise an objective with the class likelihood."""
    k, alpha_eps = copy.deepcopy(kernel), _LearntAlpha(family)

    def objective() -> float:
        table, covariance = family.targets(alpha_eps()), k(rows.features).to_dense() + constant_variance()
        value = dense_likelihood_objective(covariance, rows.labels, table, family.objective, rows.weight)
        if value.requires_grad:
            value.backward()
        return value.item() + add_log_priors(k) + alpha_eps.add_log_prior()

    report = _maximise(objective, [*k.parameters(), alpha_eps.parameter], rows, settings, (0, 1))
    return ExactModel([k], rows), alpha_eps().detach(), report


class _LearntAlpha:
    """alpha_eps as a parameter: its logarithm, in units that let it move faster than others; or fixed as given."""

    def __init__(self, family: LabelFamily) -> None:
        self._given = None if family.learns_alpha else family.alpha_eps
        first = (family.alpha_eps - LEAST_ALPHA).clamp_min(LEAST_ALPHA)
        self.parameter = (first.log() / _ALPHA_UNIT).requires_grad_(family.learns_alpha)

    def __call__(self) -> Float[Tensor, "*c"]:
        """Return alpha_eps, differentiable."""
        return LEAST_ALPHA + (_ALPHA_UNIT * self.parameter).exp() if self._given is None else self._given

    def add_log_prior(self) -> float:
        """Return the log-density of a broad prior, and add its gradient: it decides where the objective is flat."""
        if self._given is not None:
            return 0.0
        value = log_prior_of_alpha(_ALPHA_UNIT * self.parameter, _ALPHA_SCALE)
        value.backward()
        return value.item()


def with_more_points(
    features: Sequence[InducingFeatures], n_points: int, rows: SortedRows, seed: int
) -> list[InducingFeatures]:
    """Return features with cluster centres as further inducing points, up to ``n_points`` in all."""
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
    """Yield a report of all iterations so far after each round."""
    options, so_far = _options(rows, settings, settings.title), SearchReport(-np.inf, 0, 0, 0, False, 0.0)
    report_to = options.pop("report")

    def report(iteration: int, value: float) -> None:
        if report_to is not None:
            report_to(so_far.n_iterations + iteration, value)

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
        "no_value": _NO_VALUE,
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
