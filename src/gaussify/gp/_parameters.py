"""The parameters of Gaussian process classification, checked."""

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
    verbose: bool


def checked_parameters(estimator: BaseEstimator) -> Given:
    """Return what the parameters of an estimator mean, or say which of them is wrong, and why."""
    owner = type(estimator).__name__

    def option(name: str, options: Any) -> Any:
        return check_option(getattr(estimator, name), options, name=name, owner=owner)

    def count(name: str, minimum: int) -> int:
        return check_count(getattr(estimator, name), name=name, owner=owner, minimum=minimum)

    def truth(name: str) -> bool:
        value = getattr(estimator, name)
        if not isinstance(value, bool | np.bool_):
            raise InvalidArgumentError(f"The '{name}' parameter of {owner} must be True or False; got {value!r}.")
        return bool(value)

    label = checked_label_parameters(estimator, may_be_per_class=True)
    if label.kind is LikelihoodKind.AUTO:
        label = label._replace(kind=LikelihoodKind.SOFTMAX)
    n_inducing = None if estimator.n_inducing is None else count("n_inducing", 1)
    n_predict = None if estimator.n_inducing_predict is None else count("n_inducing_predict", 1)
    if n_predict is not None and (n_inducing is None or n_predict < n_inducing):
        raise InvalidArgumentError(
            f"The 'n_inducing_predict' parameter of {owner} must be at least 'n_inducing', which must be given; got "
            f"{n_predict} and {n_inducing}."
        )
    objective = option("objective", Objective)
    if label.alpha_per_class and objective is not Objective.ELBO:
        raise InvalidArgumentError(
            f"alpha_eps='{PER_CLASS}' of {owner} needs objective='elbo', which learns it; give the numbers, or 'auto'."
        )
    if objective is Objective.ELBO and not truth("shared_kernel"):
        raise InvalidArgumentError(
            f"objective='elbo' of {owner} needs shared_kernel=True, as its expectations are over all latents of a row."
        )
    return Given(
        label,
        objective,
        n_inducing,
        option("inducing", InducingInit) if isinstance(estimator.inducing, str) else _points(estimator),
        truth("learn_inducing"),
        truth("shared_kernel"),
        n_predict,
        None if estimator.scaling is None else option("scaling", ScalingKind),
        count("max_iter", 0),
        float(checked_positive(estimator, "tol")),
        count("sample_size", 1),
        None if estimator.batch_size is None else count("batch_size", 1),
        _n_samples(estimator),
        _seed(estimator),
        truth("verbose"),
    )


def _n_samples(estimator: BaseEstimator) -> int | None:
    value, owner = estimator.expectation, type(estimator).__name__
    if isinstance(value, str) and value == _QUADRATURE:
        return None
    if isinstance(value, str):
        raise InvalidArgumentError(
            f"The 'expectation' parameter of {owner} must be '{_QUADRATURE}', or a number of samples; got {value!r}."
        )
    return check_count(value, name="expectation", owner=owner)


def _seed(estimator: BaseEstimator) -> int:
    owner = type(estimator).__name__
    seed = check_count(estimator.random_state, name="random_state", owner=owner, minimum=0)
    if seed >= 2**32:
        raise InvalidArgumentError(f"The 'random_state' parameter of {owner} must be below 2**32; got {seed}.")
    return seed


def _points(estimator: BaseEstimator) -> Float[Tensor, "m d"]:
    """Inducing points that are given, in the units of the inputs."""
    points = as_floats(
        estimator.inducing,
        name="inducing",
        owner=type(estimator).__name__,
        ndim=2,
        columns=estimator.n_features_in_,
    ).double()
    if len(points) != estimator.n_inducing:
        raise InvalidArgumentError(
            f"The 'inducing' parameter of {type(estimator).__name__} must hold 'n_inducing' points; got {len(points)} "
            f"points and n_inducing={estimator.n_inducing}."
        )
    return points
