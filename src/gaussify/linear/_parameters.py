"""The parameters of Bayesian logistic regression, checked."""

from typing import NamedTuple

from sklearn.base import BaseEstimator
from torch import Tensor

from gaussify._estimators import LabelParameters, checked_label_parameters, checked_positive, is_auto
from gaussify.exceptions import InvalidArgumentError


class Given(NamedTuple):
    """The parameters, checked; None stands for what is to be chosen."""

    label: LabelParameters
    prior_variance: Tensor | None  # () or (d,)
    forgetting: float
    dispersion: float | None
    intercept_variance: float

    @property
    def by_rows(self) -> bool:
        """Whether anything is to be chosen by rows."""
        label = self.label
        return None in (label.method, label.temperature, self.dispersion) or label.alpha_eps is None


def checked_parameters(estimator: BaseEstimator) -> Given:
    """Return what the parameters of a fitted estimator mean, or say which of them is wrong, and why."""
    label = checked_label_parameters(estimator)
    forgetting = float(checked_positive(estimator, "forgetting"))
    if forgetting > 1.0:
        owner = type(estimator).__name__
        raise InvalidArgumentError(f"The 'forgetting' parameter of {owner} must be at most 1; got {forgetting:g}.")
    return Given(
        label,
        prior_variance=None
        if is_auto(estimator.prior_variance)
        else checked_positive(estimator, "prior_variance", (estimator.n_features_in_,)),
        forgetting=forgetting,
        dispersion=None if is_auto(estimator.dispersion) else float(checked_positive(estimator, "dispersion")),
        intercept_variance=float(checked_positive(estimator, "intercept_variance")),
    )
