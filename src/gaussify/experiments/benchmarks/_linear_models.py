"""The linear models that experiments on refined sites compare, as scikit-learn estimators."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Num
from numpy.typing import NDArray

from gaussify.linear import BayesianLogisticRegression

MATCHED, AUTO, REFINED = "gaussify, matched", "gaussify, auto", "gaussify, refined"
DEFAULT, TUNED = "logistic regression", "tuned logistic regression"
COLOURS = {DEFAULT: "#999999", TUNED: "#000000", MATCHED: "#56B4E9", AUTO: "#0072B2", REFINED: "#E69F00"}

_MANY_PASSES = 100  # more than a search takes before it ends by itself
_MAX_ITER = 10_000  # so that scikit-learn's searches end by themselves
_SMALLEST = 1e-15  # a probability that rounds to zero has a finite score


def linear_models() -> dict[str, Callable[[], Any]]:
    """Return functions that make the models, by name: scikit-learn's, and ours with and without refined sites.

    Examples
    --------
    >>> list(linear_models())[:3]
    ['logistic regression', 'tuned logistic regression', 'gaussify, matched']
    """
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    return {
        DEFAULT: partial(LogisticRegression, max_iter=_MAX_ITER),
        TUNED: partial(LogisticRegressionCV, scoring="neg_log_loss", max_iter=_MAX_ITER),
        **own_models(),
    }


def own_models() -> dict[str, Callable[[], Any]]:
    """Return functions that make our models, by name."""
    return {
        MATCHED: partial(BayesianLogisticRegression, refine=False),
        AUTO: BayesianLogisticRegression,
        REFINED: partial(BayesianLogisticRegression, refine=_MANY_PASSES),
    }


def fit(make: Callable[[], Any], X: Float[np.ndarray, "n d"], y: Num[np.ndarray, " n"]) -> tuple[Any, float]:
    """Return a fitted model, and the seconds of its fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> model, seconds = fit(linear_models()[MATCHED], *load_iris(return_X_y=True))
    >>> model.predict_proba(np.zeros((1, 4))).shape, seconds > 0.0
    ((1, 3), True)
    """
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn announces other defaults of the tuned model
        begun = time.perf_counter()
        model.fit(X, y)
        return model, time.perf_counter() - begun


def is_refined(model: Any) -> bool | None:
    """Return whether a fitted model uses refined sites; None for a model without that choice."""
    return getattr(model, "refined_", None)


def positive_probs(model: Any, X: Float[np.ndarray, "n d"]) -> NDArray[np.float64]:
    """Return class probabilities, none of them zero."""
    probs = np.maximum(model.predict_proba(X), _SMALLEST)
    return probs / probs.sum(1, keepdims=True)
