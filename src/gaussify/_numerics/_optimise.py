"""Maximisation of an objective: by L-BFGS, which survives points without a value, or by Adam from samples."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gaussify._numerics import noting_jitter
from gaussify.exceptions import JitterWarning, NumericalError

_MEMORY = 20  # pairs of steps and gradients that L-BFGS keeps
_N_RESTARTS = 5
_PATIENCE = 10  # iterations over which an improvement is measured
_NO_VALUE = "The objective has no finite value at the first parameters."
_RATE, _DECAY = 0.02, 0.1  # learning rate of Adam, and the factor by which it shrinks over a search
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of Adam, as usual
_RADIUS = 2.0  # a search that starts again stays this close to the best parameters so far


class SearchReport(NamedTuple):
    """Result of a search: the objective that it reached, its effort, and whether it converged.

    Examples
    --------
    >>> SearchReport(value=-1.5, n_iterations=10, n_evaluations=12, n_restarts=0, converged=True, seconds=0.1).converged
    True
    """

    value: float
    """The largest objective, which the final parameters have."""
    n_iterations: int
    n_evaluations: int
    n_restarts: int
    converged: bool
    """False if the search ended at the largest number of iterations, or as no step improved the objective."""
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
    no_value: str = _NO_VALUE,
) -> SearchReport:
    """Move parameters to a maximum of the objective by L-BFGS, and return a report.

    At some points the objective may have no finite value, or a matrix no Cholesky factor. The search then starts again
    from the best parameters so far, with an empty memory and shorter steps. At the end, the best parameters of all are
    set, and one warning announces all jitter.

    Parameters
    ----------
    objective
        Function that returns a value and adds its gradient to ``.grad`` of the parameters.
    parameters
        Tensors that are changed in place. Those that do not require a gradient stay fixed.
    scale
        Number that divides the objective, such as the number of rows.
    max_iter
        Largest number of iterations.
    tol
        The search ends when ten iterations together improve the scaled objective by less than this.
    report
        Function that is called after each iteration with its number and the objective.
    no_value
        Message of the error if the objective has no finite value at the first parameters.

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
                raise NumericalError(no_value) from stuck
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
                    raise NumericalError(no_value) from stuck
                n_restarts += 1
                radius = _RADIUS if np.isinf(radius) else radius / 4.0
                if n_restarts > _N_RESTARTS and len(values) == before:
                    break
    _assign(parameters, best)
    for parameter in parameters:
        parameter.grad = None
    _warn_of(jitters, n_evaluations)
    return SearchReport(best_value, len(values), n_evaluations, n_restarts, converged, time.perf_counter() - start)


def climb(
    objective: Callable[[], float],
    parameters: Sequence[Tensor],
    *,
    over_all: Callable[[], float],
    scale: float,
    max_iter: int,
    n_rounds: int,
    tol: float,
    report: Callable[[int, float], None] | None = None,
    no_value: str = _NO_VALUE,
) -> Iterator[SearchReport]:
    """Move parameters uphill by Adam, with an objective of other samples in each step, and report after each round.

    After each round, the objective over all samples is evaluated. If the round did not raise it, the round is undone
    and the search ends. It also ends when a round gains less than ``tol``. In some steps the objective may have no
    finite value, or a matrix no Cholesky factor. The search then continues with shorter steps from the last parameters
    that had one. If that fails several times in a row, it ends with this round.

    Parameters
    ----------
    objective, parameters, scale, report, no_value
        As for :func:`maximise`, except that the objective is that of some samples.
    over_all
        Function that returns the objective over all samples.
    max_iter
        Largest number of steps.
    n_rounds
        Number of rounds into which the steps are divided.
    tol
        The search ends when a round improves the scaled objective by less than this.

    Examples
    --------
    >>> x = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    >>> noise = iter([0.1, -0.1] * 100)
    >>> def objective():
    ...     value = -(x - 1.0 - next(noise)).square()
    ...     value.backward()
    ...     return value.item()
    >>> def mean():
    ...     return -(x.item() - 1.0) ** 2 - 0.01
    >>> reports = list(climb(objective, [x], over_all=mean, scale=1.0, max_iter=200, n_rounds=2, tol=1e-9))
    >>> round(x.item(), 1), len(reports)
    (1.0, 2)
    """
    start = time.perf_counter()
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    adam, last = Adam(parameters), _vector(parameters)
    n_steps, n_evaluations, n_failures, in_a_row = 0, 0, 0, 0

    def look() -> float:
        try:
            return over_all()
        except NumericalError:
            return np.nan

    with noting_jitter():  # no warning here, as the first step gives the same one
        best_value, best = look(), last
    if not np.isfinite(best_value):
        raise NumericalError(no_value)
    for end in sorted({max_iter * part // n_rounds for part in range(1, n_rounds + 1)} - {0}):
        n_before = n_evaluations
        with noting_jitter() as jitters:
            while n_steps < end and in_a_row <= _N_RESTARTS:
                adam.forget_gradients()
                n_evaluations += 1
                try:
                    value = objective()
                except NumericalError:
                    value = np.nan
                if not (np.isfinite(value) and adam.has_finite_gradients):
                    n_failures, in_a_row = n_failures + 1, in_a_row + 1
                    _assign(parameters, last)
                    continue
                in_a_row = 0
                last = _vector(parameters)
                adam.step(_RATE * _DECAY ** (n_steps / max_iter) * 0.5**n_failures)
                n_steps += 1
                if report is not None:
                    report(n_steps, value)
            value = look()
        _warn_of(jitters, n_evaluations - n_before)
        has_failed, gain = in_a_row > _N_RESTARTS, value - best_value
        is_better = gain > 0.0  # false if the value is NaN
        converged = is_better and gain < tol * scale and not has_failed
        if is_better:
            best_value, best = value, _vector(parameters)
        else:
            _assign(parameters, best)
        yield SearchReport(best_value, n_steps, n_evaluations, n_failures, converged, time.perf_counter() - start)
        if has_failed or converged or not is_better:
            break


class Adam:
    r"""Adam [1]_, uphill; torch's own imports a compiler first, which takes longer than fitting a small model.

    .. math::
        a & \leftarrow \beta_1a + (1 - \beta_1)\bar\theta, \qquad
        b \leftarrow \beta_2b + (1 - \beta_2)\bar\theta^2, \\
        \theta & \leftarrow \theta + \rho\,\frac{a}{1 - \beta_1^t}
        \Big/\Big(\sqrt{\frac{b}{1 - \beta_2^t}} + \epsilon\Big)

    References
    ----------
    .. [1] D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Examples
    --------
    >>> x = torch.tensor(0.0, requires_grad=True)
    >>> adam = Adam([x])
    >>> (3.0 * x).backward()
    >>> adam.step(0.1)
    >>> x
    tensor(0.1000, requires_grad=True)
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters, self._n_steps = parameters, 0
        self._moments = [(torch.zeros_like(own), torch.zeros_like(own)) for own in parameters]

    def forget_gradients(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self._parameters:
            parameter.grad = None

    @property
    def has_finite_gradients(self) -> bool:
        """True if all gradients are finite."""
        return all(bool(own.grad.isfinite().all()) for own in self._parameters if own.grad is not None)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the parameters by one step of learning rate ``rate``."""
        self._n_steps += 1
        shrinkage = [1.0 - beta**self._n_steps for beta in _BETAS]
        for parameter, (a, b) in zip(self._parameters, self._moments, strict=True):
            if parameter.grad is not None:
                a.lerp_(parameter.grad, 1.0 - _BETAS[0])
                b.mul_(_BETAS[1]).addcmul_(parameter.grad, parameter.grad, value=1.0 - _BETAS[1])
                scale = (b / shrinkage[1]).sqrt_().add_(_EPSILON)
                parameter.addcdiv_(a, scale, value=rate / shrinkage[0])


def _warn_of(jitters: Sequence[str], n_evaluations: int) -> None:
    if jitters:
        warnings.warn(
            f"{len(jitters)} times in {n_evaluations} evaluations of the objective: {jitters[-1]}",
            JitterWarning,
            stacklevel=3,
        )


def _vector(tensors: Sequence[Tensor]) -> NDArray:
    return np.concatenate([np.zeros(0), *(tensor.detach().numpy().ravel() for tensor in tensors)])


def _assign(parameters: Sequence[Tensor], vector: NDArray) -> None:
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(vector[start:stop]).view_as(parameter))
        start = stop
