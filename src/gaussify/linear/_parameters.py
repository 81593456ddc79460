"""The parameters of Bayesian logistic regression, checked."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._validation import as_concentration, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import LikelihoodMethod, PredictiveMethod
from gaussify.linear._tuning import Criterion, LikelihoodKind

_LEAST_ALPHA = 1e-8  # below, the variances of a label differ by more digits than float64 has
_AUTO = "auto"


class Given(NamedTuple):
    """The parameters, checked; None stands for what is to be chosen."""

    method: LikelihoodMethod | None
    alpha_eps: Tensor | None  # () or (c,)
    temperature: float | None
    prior_variance: Tensor | None  # () or (d,)
    forgetting: float
    dispersion: float | None
    kind: LikelihoodKind
    intercept_variance: float
    label_variance: float
    criterion: Criterion
    predictive: PredictiveMethod

    @property
    def by_rows(self) -> bool:
        """Whether anything is to be chosen by rows."""
        return None in (self.method, self.temperature, self.dispersion) or self.alpha_eps is None


def checked_parameters(estimator: BaseEstimator) -> Given:
    """Return what the parameters of a fitted estimator mean, or say which of them is wrong, and why."""
    owner = type(estimator).__name__

    def positive(name: str, sizes: tuple[int, ...] = ()) -> Tensor:
        return as_concentration(getattr(estimator, name), name=name, owner=owner, sizes=sizes).double()

    def option(name: str, options: Any) -> Any:
        return check_option(getattr(estimator, name), options, name=name, owner=owner)

    if estimator.method == LikelihoodMethod.GAUSS and estimator.likelihood == LikelihoodKind.LOGISTIC:
        raise InvalidArgumentError(
            f"{owner} has no method='gauss' with likelihood='logistic': least squares on 0 and 1 puts every latent "
            "where the sigmoid says 1. likelihood='auto' takes two latents."
        )
    forgetting = float(positive("forgetting"))
    if forgetting > 1.0:
        raise InvalidArgumentError(f"The 'forgetting' parameter of {owner} must be at most 1; got {forgetting:g}.")
    alpha_eps = None if _is_auto(estimator.alpha_eps) else positive("alpha_eps", np.shape(estimator.alpha_eps))
    if alpha_eps is not None and bool((alpha_eps < _LEAST_ALPHA).any()):
        raise InvalidArgumentError(
            f"The 'alpha_eps' parameter of {owner} must be at least {_LEAST_ALPHA:g}; got {estimator.alpha_eps}."
        )
    temperature = None if _is_auto(estimator.temperature) else float(positive("temperature"))
    if temperature is not None and not 1e-100 < temperature < 1e100:
        raise InvalidArgumentError(
            f"The 'temperature' parameter of {owner} must lie between 1e-100 and 1e100; got {temperature:g}."
        )
    return Given(
        method=None if _is_auto(estimator.method) else option("method", LikelihoodMethod),
        alpha_eps=alpha_eps,
        temperature=temperature,
        prior_variance=None
        if _is_auto(estimator.prior_variance)
        else positive("prior_variance", (estimator.n_features_in_,)),
        forgetting=forgetting,
        dispersion=None if _is_auto(estimator.dispersion) else float(positive("dispersion")),
        kind=option("likelihood", LikelihoodKind),
        intercept_variance=float(positive("intercept_variance")),
        label_variance=float(positive("label_variance")),
        criterion=option("criterion", Criterion),
        predictive=option("predictive", PredictiveMethod),
    )


def check_number_of_classes(given: Given, n_classes: int, owner: str) -> None:
    """Refuse classes that the parameters are not made for."""
    alpha_eps = given.alpha_eps
    if given.kind is LikelihoodKind.LOGISTIC and n_classes > 2:
        raise InvalidArgumentError(
            f"likelihood='logistic' is for two classes; got {n_classes}. likelihood='auto' takes any number."
        )
    if alpha_eps is not None and alpha_eps.ndim and len(alpha_eps) != n_classes:
        raise InvalidArgumentError(
            f"'alpha_eps' of {owner} must be a number or one per class; got {len(alpha_eps)} numbers "
            f"for {n_classes} classes. With classes that are not known beforehand, give one number."
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == _AUTO
