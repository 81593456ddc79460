"""The choice of method, alpha_eps and temperature: try, score, keep the best."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._calibration._criteria import Criterion, LabelledRows, best_temperature, mean_nll
from gaussify._calibration._labels import LabelParameters, as_alpha
from gaussify._calibration._offsets import best_calibration
from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod, PseudoTargets

ALPHA_GRID = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FIRST_ALPHA = 0.1
# The first value, and then the longer way from it to one end of the grid
_MOST_ATTEMPTS = 1 + max(ALPHA_GRID.index(FIRST_ALPHA), len(ALPHA_GRID) - ALPHA_GRID.index(FIRST_ALPHA))

LatentsOf = Callable[[PseudoTargets, bool], tuple[Tensor, Tensor]]
"""Returns mean and variance (n, l) of the latents of rows for a target table, each row left out or not."""


class Choice(NamedTuple):
    """The label parameters in use, and what was chosen along with them."""

    method: LikelihoodMethod
    alpha_eps: Float[Tensor, "*c"]
    temperature: float
    score: float | None
    """Mean log-likelihood of a row by the criterion; None if there were no rows to compute it on."""
    prior_variance: Float[Tensor, " d"] = torch.empty(0, dtype=torch.float64)
    """Prior variance of each weight of a linear model; empty for Gaussian processes, whose kernel says it."""
    dispersion: float = 1.0
    """Factor of the variances in the target table."""
    offset: Float[Tensor, " l"] | None = None
    """Number that is added to each latent after it was divided by the temperature; None stands for zeros."""


@runtime_checkable  # the type checks of the tests need it
class Complete(Protocol):
    """Completes a method and an alpha_eps: temperature, score and whatever else the estimator chooses."""

    def __call__(self, method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"], *, rough: bool) -> Choice:
        """Return the choice; ``rough`` asks for a cheaper one that only serves to compare."""


def choose(
    label: LabelParameters,
    n_classes: int,
    complete: Complete,
    *,
    log_prior: Callable[[Float[Tensor, "*c"]], float] = lambda alpha_eps: 0.0,
    report: Callable[[float], None] | None = None,
) -> Choice:
    """Return the best choice of method and alpha_eps, as far as these are not given.

    For each method, alpha_eps starts at 0.1 and moves down the grid while the score improves. If it never improved,
    alpha_eps moves up instead.

    Parameters
    ----------
    label : LabelParameters
        The values that are given; None stands for those to choose.
    n_classes : int
        Number of classes.
    complete : callable
        Returns the choice for one method and alpha_eps.
    log_prior : callable
        Log-density of alpha_eps, in units of the score.
    report : callable, optional
        Function that is called after each attempt with the share of the most attempts that there may be.

    Examples
    --------
    >>> from gaussify._calibration import Criterion, LikelihoodKind
    >>> from gaussify.likelihoods import PredictiveMethod
    >>> method, kind = LikelihoodMethod.MOMENT, LikelihoodKind.AUTO
    >>> criterion, predictive = Criterion.LEAVE_ONE_OUT, PredictiveMethod.QUADRATURE
    >>> label = LabelParameters(method, None, None, kind, 1.0, criterion, predictive)
    >>> def complete(method, alpha_eps, *, rough):
    ...     return Choice(method, alpha_eps, temperature=1.0, score=-abs(float(alpha_eps) - 0.01))
    >>> choose(label, 2, complete).alpha_eps
    tensor(0.0100, dtype=torch.float64)
    """
    methods, alpha_eps = label.methods(n_classes), label.alpha_eps
    n_attempts, n_most = 0, 1 + _MOST_ATTEMPTS * len(methods)

    def attempt(method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"]) -> tuple[float, Choice]:
        nonlocal n_attempts
        choice = complete(method, alpha_eps, rough=True)
        n_attempts += 1
        if report is not None:
            report(n_attempts / n_most)
        return (-math.inf if choice.score is None else choice.score) + log_prior(choice.alpha_eps), choice

    def best_of(method: LikelihoodMethod) -> tuple[float, Choice]:
        if alpha_eps is not None or method is LikelihoodMethod.GAUSS:  # least squares on labels has no alpha_eps
            return attempt(method, as_alpha(FIRST_ALPHA) if alpha_eps is None else alpha_eps)
        first = ALPHA_GRID.index(FIRST_ALPHA)
        start = best = attempt(method, as_alpha(FIRST_ALPHA))
        for direction in (ALPHA_GRID[first - 1 :: -1], ALPHA_GRID[first + 1 :]):
            for value in direction:
                candidate = attempt(method, as_alpha(value))
                if candidate[0] <= best[0]:
                    break
                best = candidate
            if best is not start:
                break
        return best

    if alpha_eps is not None and len(methods) == 1:
        return complete(methods[0], alpha_eps, rough=False)
    _, best = max(map(best_of, methods), key=lambda scored: scored[0])
    return complete(best.method, best.alpha_eps, rough=False)


def choose_by_latents(
    latents_of: LatentsOf, rows: LabelledRows, label: LabelParameters, n_classes: int, *, are_held_out: bool
) -> Choice:
    """Return the best choice for a model whose hyperparameters are fixed.

    A flexible kernel predicts the rows it was learnt from ever better as alpha_eps falls. So alpha_eps has a prior,
    unless the rows were held out of that search and each is left out of its own posterior.

    Parameters
    ----------
    latents_of : callable
        Returns the latents of the rows for a target table.
    rows : LabelledRows
        Rows that the criterion is computed on.
    label : LabelParameters
        The values that are given; None stands for those to choose.
    n_classes : int
        Number of classes.
    are_held_out : bool
        Whether the search for hyperparameters has not seen the rows.
    """
    leaves_out = label.criterion is Criterion.LEAVE_ONE_OUT
    has_prior = label.alpha_eps is None and not (are_held_out and leaves_out)
    prior_weight = 1.0 / float(rows.weight.sum()) if has_prior else 0.0

    def complete(method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"], *, rough: bool) -> Choice:
        choice = Choice(method, alpha_eps, 1.0 if label.temperature is None else label.temperature, None)
        likelihood, table = make_table(label, n_classes, choice)
        mean, variance = latents_of(table, leaves_out)
        return with_temperature(choice, likelihood, mean, variance, rows, label, rough=rough)

    def log_prior(alpha_eps: Float[Tensor, "*c"]) -> float:
        return prior_weight * float(log_prior_of_alpha(alpha_eps.log()))

    return choose(label, n_classes, complete, log_prior=log_prior)


def with_temperature(
    choice: Choice,
    likelihood: ClassLikelihood,
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    rows: LabelledRows,
    label: LabelParameters,
    *,
    rough: bool = False,
    shifts: bool = False,
) -> Choice:
    """Return the choice with its score, and with the best temperature unless one is given.

    With ``shifts``, the offsets are the best ones too, unless a temperature is given.
    """
    temperature, offset = label.temperature, None
    if temperature is None and shifts:
        temperature, offset = best_calibration(likelihood, mean, variance, rows.labels, rows.weight, rough=rough)
        mean = mean + temperature * offset
    elif temperature is None:
        temperature = best_temperature(likelihood, mean, variance, rows.labels, rows.weight, rough=rough)
    with torch.no_grad():
        score = -mean_nll(likelihood, mean, variance, rows.labels, rows.weight, temperature)
    return choice._replace(temperature=temperature, score=score, offset=offset)


def make_table(label: LabelParameters, n_classes: int, choice: Choice) -> tuple[ClassLikelihood, PseudoTargets]:
    """Return the likelihood of a choice, and its target table in float64."""
    likelihood = label.likelihood(n_classes, choice.method, choice.alpha_eps)
    return likelihood, PseudoTargets(*(part.double() for part in likelihood.target_table()))


def log_prior_of_alpha(log_alpha: Float[Tensor, "*c"], scale: float = 1.0) -> Float[Tensor, ""]:
    """Return the log-density, up to a constant, of a log-normal prior of alpha_eps around 0.1.

    Examples
    --------
    >>> log_prior_of_alpha(torch.tensor([0.1, 1.0]).log())
    tensor(-2.6509)
    """
    return -0.5 * ((log_alpha - math.log(FIRST_ALPHA)) / scale).square().sum()
