"""The parameters of Gaussian process classifiers, checked."""

import numbers
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._calibration import (
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
from gaussify.likelihoods import LikelihoodMethod
from gaussify.linear._parameters import checked_refine


class Objective(StrEnum):
    """The objective that hyperparameters maximise."""

    MATCHED = "matched"
    """Evidence of the matched Gaussian model, or the collapsed bound on it."""
    ELBO = "elbo"
    """Bound on the evidence with the class likelihood, whose variational family is the matched posterior."""
    LEAVE_ONE_OUT = "leave-one-out"
    """Log-likelihood of each row by the class likelihood, given the matched posterior of all other rows."""


# What editors complete; a test compares them with the enumerations
ObjectiveName = Literal["matched", "elbo", "leave-one-out"]
InducingName = Literal["kmeans", "greedy"]
ScalingName = Literal["standard", "quantile"]

Verbosity = bool | Callable[[str, int, float], None]
"""True prints progress; a function is called with the title of the search, the iteration and the objective."""

_QUADRATURE = "quadrature"


class GPParameters(NamedTuple):
    """The parameters of GPClassifier, checked."""

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
    """Number of rows in a sample for expectations; None depends on the number of rows and latents."""
    n_samples: int | None
    """Number of draws of the latents for expectations; None is quadrature."""
    seed: int
    verbose: Verbosity
    refine: int | None
    """Largest number of passes of refinement, 0 for none, or None for "auto"."""
    max_memory_gib: float | None
    """Gibibytes that an exact model may need; None is what the machine has."""

    @property
    def may_refine(self) -> bool:
        """True if ``refine="auto"`` may choose the refined model: nothing that shapes matched labels was given."""
        label = self.label
        is_default = label.alpha_eps is None and label.method in (None, LikelihoodMethod.VARIATIONAL)
        return self.refine is None and is_default


class ParameterReader:
    """The parameters of an estimator, each checked when it is read; errors name the parameter and what is allowed.

    Examples
    --------
    >>> from gaussify import GPClassifier
    >>> ParameterReader(GPClassifier(max_iter=10)).count("max_iter", 0)
    10
    """

    def __init__(self, estimator: BaseEstimator) -> None:
        self._estimator, self._owner = estimator, type(estimator).__name__

    def option(self, name: str, options: Any, also: str = "") -> Any:
        """Return one of the options."""
        return check_option(getattr(self._estimator, name), options, name=name, owner=self._owner, also=also)

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
        """Return True, False, or the function that is told about progress."""
        value = self._estimator.verbose
        if not (isinstance(value, bool | np.bool_) or callable(value)):
            raise InvalidArgumentError(
                f"The 'verbose' parameter of {self._owner} must be True, False or a function of the title of a search, "
                f"an iteration and the objective; got {value!r}."
            )
        return value if callable(value) else bool(value)

    def seed(self) -> int:
        """Return ``random_state``, within the bounds of scikit-learn's clustering."""
        seed = self.count("random_state", 0)
        if seed >= 2**32:
            raise InvalidArgumentError(
                f"The 'random_state' parameter of {self._owner} must be below 2**32; got {seed}."
            )
        return seed

    def inducing(self) -> InducingInit | Float[Tensor, "m d"]:
        """Return how inducing points are found, or the points that are given, in units of the inputs."""
        value, n_points = self._estimator.inducing, self._estimator.n_inducing
        if isinstance(value, str):
            return self.option("inducing", InducingInit, "an array of points")
        columns = self._estimator.n_features_in_
        points = as_floats(value, name="inducing", owner=self._owner, ndim=2, columns=columns).double()
        if len(points) != n_points:
            raise InvalidArgumentError(
                f"The 'inducing' parameter of {self._owner} must hold 'n_inducing' points; got {len(points)} points "
                f"and n_inducing={n_points}."
            )
        return points

    def scaling(self) -> ScalingKind | None:
        """Return the kind of scaling, or None."""
        return None if self._estimator.scaling is None else self.option("scaling", ScalingKind, "None")


def checked_parameters(estimator: BaseEstimator) -> GPParameters:
    """Return the parameters of a GPClassifier, or raise an error that names the wrong one."""
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
    return GPParameters(
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
        checked_refine(estimator),
        _max_memory(estimator),
    )


def _max_memory(estimator: BaseEstimator) -> float | None:
    value = estimator.max_memory_gib
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) > 0.0:
        raise InvalidArgumentError(
            f"The 'max_memory_gib' parameter of {type(estimator).__name__} must be None or a positive number, such as "
            f"float('inf'); got {value!r}."
        )
    return float(value)


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
