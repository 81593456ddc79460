"""The parameters of Gaussian process classification, checked."""

import numbers
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._estimators import (
    PER_CLASS,
    LabelParameters,
    LikelihoodKind,
    checked_label_parameters,
    checked_positive,
)
from gaussify._validation import as_floats, check_count, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._inducing import InducingInit
from gaussify.gp._scaling import ScalingKind


class Objective(StrEnum):
    """What hyperparameters are learnt by."""

    MATCHED = "matched"
    """Evidence of the Gaussian model, or the collapsed bound on it."""
    ELBO = "elbo"
    """Bound on the evidence of the exact model, with the posterior of the Gaussian model as the variational family."""
    LEAVE_ONE_OUT = "leave-one-out"
    """Log-likelihood of each row by the exact model, given the posterior of the Gaussian model of all others."""


Verbosity = bool | Callable[[str, int, float], None]
"""Whether to print progress, or what to call with title, iteration and objective."""

_QUADRATURE = "quadrature"


class Given(NamedTuple):
    """The parameters, checked."""

    label: LabelParameters
    objective: Objective
    n_inducing: int | None
    inducing: InducingInit | Float[Tensor, "m d"]
    learn_inducing: bool
    shared_kernel: bool
    n_inducing_predict: int | None
    scaling: ScalingKind | None
    max_iter: int
    tol: float
    sample_size: int
    batch_size: int | None
    """Rows that expectations are over; None leaves that to how many there are."""
    n_samples: int | None
    """Of latents, for expectations; None is quadrature."""
    seed: int
    verbose: Verbosity


class ParameterReader:
    """The parameters of an estimator, each checked as it is read; an error says which is wrong, and what is allowed.

    Examples
    --------
    >>> from gaussify import GPClassifier
    >>> ParameterReader(GPClassifier(max_iter=10)).count("max_iter", 0)
    10
    """

    def __init__(self, estimator: BaseEstimator) -> None:
        self._estimator, self._owner = estimator, type(estimator).__name__

    def option(self, name: str, options: Any) -> Any:
        """Return one of the options."""
        return check_option(getattr(self._estimator, name), options, name=name, owner=self._owner)

    def count(self, name: str, minimum: int) -> int:
        """Return an integer."""
        return check_count(getattr(self._estimator, name), name=name, owner=self._owner, minimum=minimum)

    def truth(self, name: str) -> bool:
        """Return True or False."""
        value = getattr(self._estimator, name)
        if not isinstance(value, bool | np.bool_):
            raise InvalidArgumentError(f"The '{name}' parameter of {self._owner} must be True or False; got {value!r}.")
        return bool(value)

    def verbosity(self) -> Verbosity:
        """Return True, False, or what hears of the progress."""
        value = self._estimator.verbose
        if not (isinstance(value, bool | np.bool_) or callable(value)):
            raise InvalidArgumentError(
                f"The 'verbose' parameter of {self._owner} must be True, False or a function of the title of a search, "
                f"an iteration and the objective; got {value!r}."
            )
        return value if callable(value) else bool(value)

    def seed(self) -> int:
        """Return ``random_state``, which scikit-learn's clustering takes too."""
        seed = self.count("random_state", 0)
        if seed >= 2**32:
            raise InvalidArgumentError(
                f"The 'random_state' parameter of {self._owner} must be below 2**32; got {seed}."
            )
        return seed

    def inducing(self) -> InducingInit | Float[Tensor, "m d"]:
        """Return where inducing points begin; those that are given, in the units of the inputs."""
        value, n_points = self._estimator.inducing, self._estimator.n_inducing
        if isinstance(value, str):
            return self.option("inducing", InducingInit)
        columns = self._estimator.n_features_in_
        points = as_floats(value, name="inducing", owner=self._owner, ndim=2, columns=columns).double()
        if len(points) != n_points:
            raise InvalidArgumentError(
                f"The 'inducing' parameter of {self._owner} must hold 'n_inducing' points; got {len(points)} points "
                f"and n_inducing={n_points}."
            )
        return points

    def scaling(self) -> ScalingKind | None:
        """Return how inputs are scaled."""
        return None if self._estimator.scaling is None else self.option("scaling", ScalingKind)


def checked_parameters(estimator: BaseEstimator) -> Given:
    """Return what the parameters of an estimator mean, or say which of them is wrong, and why."""
    owner, read = type(estimator).__name__, ParameterReader(estimator)
    label = checked_label_parameters(estimator, may_be_per_class=True)
    if label.kind is LikelihoodKind.AUTO:
        label = label._replace(kind=LikelihoodKind.SOFTMAX)
    n_inducing = None if estimator.n_inducing is None else read.count("n_inducing", 1)
    n_predict = None if estimator.n_inducing_predict is None else read.count("n_inducing_predict", 1)
    if n_predict is not None and (n_inducing is None or n_predict < n_inducing):
        raise InvalidArgumentError(
            f"The 'n_inducing_predict' parameter of {owner} must be at least 'n_inducing', which must be given; got "
            f"{n_predict} and {n_inducing}."
        )
    objective = read.option("objective", Objective)
    if label.alpha_per_class and objective is Objective.MATCHED:
        raise InvalidArgumentError(
            f"alpha_eps='{PER_CLASS}' of {owner} needs objective='elbo' or 'leave-one-out', which learn it; give the "
            "numbers, or 'auto'."
        )
    if objective is not Objective.MATCHED and not read.truth("shared_kernel"):
        raise InvalidArgumentError(
            f"objective='{objective}' of {owner} needs shared_kernel=True, as its expectations are over all latents of "
            "a row; objective='matched' takes either."
        )
    return Given(
        label,
        objective,
        n_inducing,
        read.inducing(),
        read.truth("learn_inducing"),
        read.truth("shared_kernel"),
        n_predict,
        read.scaling(),
        read.count("max_iter", 0),
        float(checked_positive(estimator, "tol")),
        read.count("sample_size", 1),
        None if estimator.batch_size is None else read.count("batch_size", 1),
        _n_samples(estimator),
        read.seed(),
        read.verbosity(),
    )


def _n_samples(estimator: BaseEstimator) -> int | None:
    value, owner = estimator.expectation, type(estimator).__name__
    if isinstance(value, str) and value == _QUADRATURE:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InvalidArgumentError(
            f"The 'expectation' parameter of {owner} must be '{_QUADRATURE}', or a number of samples of at least 1; "
            f"got {value!r}."
        )
    return int(value)
