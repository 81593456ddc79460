"""Hyperparameters of largest evidence: L-BFGS that survives what it steps into."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gaussify._numerics import noting_jitter
from gaussify.exceptions import JitterWarning, NumericalError

_MEMORY = 20  # pairs of steps and gradients
_N_RESTARTS = 5
_PATIENCE = 10  # iterations over which an improvement is measured
_NO_VALUE = (
    "The objective has no finite value at the first hyperparameters; are the inputs of sane scale, and is the kernel "
    "positive definite?"
)
_RADIUS = 2.0  # around the best parameters so far, within which a search begins anew


class SearchReport(NamedTuple):
    """How a search went.

    Examples
    --------
    >>> SearchReport(value=-1.5, n_iterations=10, n_evaluations=12, n_restarts=0, converged=True, seconds=0.1).converged
    True
    """

    value: float
    """The largest objective, that of the parameters at the end."""
    n_iterations: int
    n_evaluations: int
    n_restarts: int
    converged: bool
    """False if it ended with the last iteration allowed, or where no step improved the objective."""
    seconds: float


class _Stuck(Exception):
    """The objective has no value here."""


def maximise(
    objective: Callable[[], float],
    parameters: Sequence[Tensor],
    *,
    scale: float,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None] | None = None,
) -> SearchReport:
    """Set parameters to where the objective is largest, as far as L-BFGS finds it.

    Where the objective has no finite value, or a matrix no factor, the search begins anew from the best parameters so
    far, with an empty memory and shorter steps; at the end, the best parameters of all are set. What was added to
    diagonals on the way is announced once.

    Parameters
    ----------
    objective
        Returns a value and adds its gradient to ``.grad`` of the parameters.
    parameters
        Tensors, changed in place; those that do not require a gradient stay.
    scale
        By which the objective is divided, such as the number of rows.
    max_iter
        Iterations at most.
    tol
        The search ends when ten iterations together improve the scaled objective by less.
    report
        Called after each iteration with its number and the objective.

    Examples
    --------
    >>> x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    >>> def objective():
    ...     value = -(x - 1.0).square().sum()
    ...     value.backward()
    ...     return value.item()
    >>> maximise(objective, [x], scale=1.0, max_iter=20, tol=1e-9).converged, x.tolist()
    (True, [1.0, 1.0])
    """
    start = time.perf_counter()
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    best_value, best = -np.inf, _vector([parameter.detach() for parameter in parameters])
    n_evaluations, n_restarts, stopped = 0, 0, False
    values: list[float] = []

    def evaluate(vector: NDArray) -> tuple[float, NDArray]:
        nonlocal best_value, best, n_evaluations
        _assign(parameters, vector)
        for parameter in parameters:
            parameter.grad = None
        n_evaluations += 1
        try:
            value = objective()
        except NumericalError as error:
            raise _Stuck from error
        gradient = _vector([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise _Stuck
        if value > best_value:
            best_value, best = value, vector.copy()
        return -value / scale, -gradient / scale

    def after_iteration(_: NDArray) -> None:
        nonlocal stopped
        values.append(best_value)
        if report is not None:
            report(len(values), best_value)
        if len(values) > _PATIENCE and values[-1] - values[-1 - _PATIENCE] < tol * scale:
            stopped = True
            raise StopIteration

    converged, radius = False, np.inf
    with noting_jitter() as jitters:
        if max_iter == 0 or not parameters:
            try:
                evaluate(best)
            except _Stuck as stuck:
                raise NumericalError(_NO_VALUE) from stuck
            converged = not parameters
        while len(values) < max_iter and parameters:
            options = {"maxiter": max_iter - len(values), "maxcor": _MEMORY, "maxfun": 10 * max_iter, "gtol": 1e-9}
            bounds = None if np.isinf(radius) else np.stack([best - radius, best + radius], 1)
            before = len(values)
            try:
                result = minimize(
                    evaluate,
                    best,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=bounds,
                    callback=after_iteration,
                    options=options | {"ftol": 0.0},
                )
                converged = bool(result.success) or stopped
                break
            except _Stuck as stuck:
                if not np.isfinite(best_value):
                    raise NumericalError(_NO_VALUE) from stuck
                n_restarts += 1
                radius = _RADIUS if np.isinf(radius) else radius / 4.0
                if n_restarts > _N_RESTARTS and len(values) == before:
                    break
    _assign(parameters, best)
    for parameter in parameters:
        parameter.grad = None
    if jitters:
        warnings.warn(
            f"{len(jitters)} times in {n_evaluations} evaluations of the objective: {jitters[-1]}",
            JitterWarning,
            stacklevel=2,
        )
    return SearchReport(best_value, len(values), n_evaluations, n_restarts, converged, time.perf_counter() - start)


def _vector(tensors: Sequence[Tensor]) -> NDArray:
    return np.concatenate([np.zeros(0), *(tensor.detach().numpy().ravel() for tensor in tensors)])


def _assign(parameters: Sequence[Tensor], vector: NDArray) -> None:
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(vector[start:stop]).view_as(parameter))
        start = stop
