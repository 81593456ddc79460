"""The parameters of estimators that say how labels become Gaussians, checked."""

from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._calibration._criteria import Criterion
from gaussify._typing import Vector
from gaussify._validation import as_concentration, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import (
    BETA_METHODS,
    ClassLikelihood,
    LikelihoodMethod,
    LogisticLikelihood,
    PredictiveMethod,
    SoftmaxLikelihood,
)

LEAST_ALPHA = 1e-8  # below it, the variances of a label differ by more digits than float64 has
_AUTO = "auto"
PER_CLASS = "per-class"

# What editors complete; a test compares them with the enumerations
MethodOption = Literal["variational", "moment", "laplace", "moment-ori", "gauss", "auto"]
LikelihoodName = Literal["auto", "softmax", "logistic"]
CriterionName = Literal["leave-one-out", "training"]
AlphaOption = Literal["auto"] | float | Vector


class LikelihoodKind(StrEnum):
    """The likelihood of labels given latents."""

    AUTO = "auto"
    """Logistic for two classes where the method allows it, softmax otherwise."""
    SOFTMAX = "softmax"
    """One latent for each class."""
    LOGISTIC = "logistic"
    """A single latent, for two classes."""


class LabelParameters(NamedTuple):
    """How labels become Gaussians and how latents become probabilities; None stands for "auto"."""

    method: LikelihoodMethod | None
    alpha_eps: Float[Tensor, "*c"] | None
    temperature: float | None
    kind: LikelihoodKind
    label_variance: float
    criterion: Criterion
    predictive: PredictiveMethod
    alpha_per_class: bool = False
    """True if alpha_eps is learnt for each class separately."""

    def methods(self, n_classes: int) -> list[LikelihoodMethod]:
        """Return the method that is given, or all that ``method="auto"`` compares, the default first."""
        if self.method is not None:
            return [self.method]
        softmax = self.kind is LikelihoodKind.SOFTMAX or n_classes > 2
        others = [m for m in LikelihoodMethod if m not in (LikelihoodMethod.VARIATIONAL, LikelihoodMethod.GAUSS)]
        return [LikelihoodMethod.VARIATIONAL, *(m for m in others if softmax or m in BETA_METHODS)]

    def likelihood(self, n_classes: int, method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"]) -> ClassLikelihood:
        """Return the likelihood of this kind: by default with one latent if there are two classes."""
        # Least squares on the labels 0 and 1 puts all latents above zero, where the sigmoid exceeds 1/2.
        suits = method in BETA_METHODS and method is not LikelihoodMethod.GAUSS
        one_latent = n_classes == 2 and (
            self.kind is LikelihoodKind.LOGISTIC or (self.kind is LikelihoodKind.AUTO and suits)
        )
        if not one_latent:
            return SoftmaxLikelihood(n_classes, alpha_eps, method, label_variance=self.label_variance)
        beta_eps, alpha_eps = alpha_eps.expand(2)
        return LogisticLikelihood(alpha_eps, beta_eps, method, label_variance=self.label_variance)

    def check_number_of_classes(self, n_classes: int, owner: str) -> None:
        """Refuse classes that the parameters are not made for."""
        if self.kind is LikelihoodKind.LOGISTIC and n_classes > 2:
            raise InvalidArgumentError(
                f"likelihood='logistic' is for two classes; got {n_classes}. likelihood='auto' takes any number."
            )
        alpha_eps = self.alpha_eps
        if alpha_eps is not None and alpha_eps.ndim and len(alpha_eps) != n_classes:
            raise InvalidArgumentError(
                f"'alpha_eps' of {owner} must be a number or one per class; got {len(alpha_eps)} numbers "
                f"for {n_classes} classes. With classes that are not known beforehand, give one number."
            )


def checked_label_parameters(estimator: BaseEstimator, *, may_be_per_class: bool = False) -> LabelParameters:
    """Return the label parameters of an estimator, or raise an error that names the wrong one."""
    owner = type(estimator).__name__

    def option(name: str, options: Any, also: str = "") -> Any:
        return check_option(getattr(estimator, name), options, name=name, owner=owner, also=also)

    if estimator.method == LikelihoodMethod.GAUSS and estimator.likelihood == LikelihoodKind.LOGISTIC:
        raise InvalidArgumentError(
            f"{owner} has no method='gauss' with likelihood='logistic': least squares on 0 and 1 puts every latent "
            "where the sigmoid says 1. likelihood='auto' takes two latents."
        )
    words = [_AUTO, PER_CLASS] if may_be_per_class else [_AUTO]
    is_word = isinstance(estimator.alpha_eps, str)
    if estimator.alpha_eps is None or (is_word and estimator.alpha_eps not in words):
        allowed = " or ".join(map(repr, words))
        raise InvalidArgumentError(
            f"The 'alpha_eps' parameter of {owner} must be a number, one per class, or {allowed}; got "
            f"{estimator.alpha_eps!r}."
        )
    alpha_eps = None if is_word else checked_positive(estimator, "alpha_eps", np.shape(estimator.alpha_eps))
    if alpha_eps is not None and bool((alpha_eps < LEAST_ALPHA).any()):
        raise InvalidArgumentError(
            f"The 'alpha_eps' parameter of {owner} must be at least {LEAST_ALPHA:g}; got {estimator.alpha_eps}."
        )
    temperature = checked_positive_or_auto(estimator, "temperature")
    if temperature is not None and not 1e-100 < temperature < 1e100:
        raise InvalidArgumentError(
            f"The 'temperature' parameter of {owner} must lie between 1e-100 and 1e100; got {temperature:g}."
        )
    return LabelParameters(
        method=None if is_auto(estimator.method) else option("method", LikelihoodMethod, "'auto'"),
        alpha_eps=alpha_eps,
        temperature=None if temperature is None else float(temperature),
        kind=option("likelihood", LikelihoodKind),
        label_variance=float(checked_positive(estimator, "label_variance")),
        criterion=option("criterion", Criterion),
        predictive=option("predictive", PredictiveMethod),
        alpha_per_class=is_word and estimator.alpha_eps == PER_CLASS,
    )


def checked_positive(
    estimator: BaseEstimator, name: str, sizes: tuple[int, ...] = (), *, allowed: str = "a positive number"
) -> Float[Tensor, "*n"]:
    """Return a parameter as float64: a positive number, or as many of them as one of ``sizes``.

    Text and None are refused with an error that says what is ``allowed``.
    """
    owner, value = type(estimator).__name__, getattr(estimator, name)
    if value is None or isinstance(value, str):
        raise InvalidArgumentError(f"The '{name}' parameter of {owner} must be {allowed}; got {value!r}.")
    return as_concentration(value, name=name, owner=owner, sizes=sizes).double()


def checked_positive_or_auto(
    estimator: BaseEstimator, name: str, sizes: tuple[int, ...] = (), *, allowed: str = "a positive number"
) -> Float[Tensor, "*n"] | None:
    """Return a parameter like :func:`checked_positive`, or None for "auto"."""
    if is_auto(getattr(estimator, name)):
        return None
    return checked_positive(estimator, name, sizes, allowed=f"{allowed} or '{_AUTO}'")


def is_auto(value: Any) -> bool:
    """Return whether a parameter is "auto"."""
    return isinstance(value, str) and value == _AUTO


def as_alpha(value: float) -> Float[Tensor, ""]:
    """Return a concentration as a float64 tensor."""
    return torch.tensor(value, dtype=torch.float64)
