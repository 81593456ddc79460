"""The parameters of Bayesian logistic regression, checked."""

from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._calibration import (
    LabelParameters,
    checked_label_parameters,
    checked_positive,
    checked_positive_or_auto,
    is_auto,
)
from gaussify._validation import check_count
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import LikelihoodMethod


class LinearParameters(NamedTuple):
    """The parameters of BayesianLogisticRegression, checked; None stands for "auto"."""

    label: LabelParameters
    prior_variance: Tensor | None  # () or (d,)
    forgetting: float
    dispersion: float | None
    intercept_variance: float
    reservoir_size: int
    random_state: int
    refine: int | None
    """Largest number of passes, 0 for none, or None for "auto"."""

    @property
    def may_refine(self) -> bool:
        """True if ``refine="auto"`` may choose the refined model: nothing that shapes matched labels was given."""
        label = self.label
        is_default = label.alpha_eps is None and label.method in (None, LikelihoodMethod.VARIATIONAL)
        return self.refine is None and is_default and self.dispersion == 1.0 and self.reservoir_size > 0

    @property
    def by_rows(self) -> bool:
        """True if some parameter is chosen by the criterion, which needs rows."""
        label = self.label
        return None in (label.method, label.temperature, self.dispersion) or label.alpha_eps is None


def checked_parameters(estimator: BaseEstimator) -> LinearParameters:
    """Return the parameters, or raise an error that names the wrong one."""
    owner, label = type(estimator).__name__, checked_label_parameters(estimator)
    n_features = getattr(estimator, "n_features_in_", None)  # unknown before the first rows
    sizes = np.shape(estimator.prior_variance) if n_features is None else (n_features,)
    forgetting = float(checked_positive(estimator, "forgetting"))
    if forgetting > 1.0:
        raise InvalidArgumentError(f"The 'forgetting' parameter of {owner} must be at most 1; got {forgetting:g}.")
    dispersion = checked_positive_or_auto(estimator, "dispersion")
    return LinearParameters(
        label,
        prior_variance=checked_positive_or_auto(
            estimator, "prior_variance", sizes, allowed="a positive number, one per feature,"
        ),
        forgetting=forgetting,
        dispersion=None if dispersion is None else float(dispersion),
        intercept_variance=float(checked_positive(estimator, "intercept_variance")),
        reservoir_size=check_count(estimator.reservoir_size, name="reservoir_size", owner=owner, minimum=0),
        random_state=check_count(estimator.random_state, name="random_state", owner=owner, minimum=0),
        refine=checked_refine(estimator),
    )


def checked_refine(estimator: BaseEstimator) -> int | None:
    """Return the largest number of passes, 0 for none, or None for "auto"."""
    value = estimator.refine
    if is_auto(value):
        return None
    if value is False:
        return 0
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidArgumentError(
            f"The 'refine' parameter of {type(estimator).__name__} must be 'auto', False or a positive number of "
            f"passes; got {value!r}."
        )
    return int(value)
