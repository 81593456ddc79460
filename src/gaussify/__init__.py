"""Bayesian classification as cheap as least squares.

Labels are turned once, in closed form, into Gaussian observations of the logits. From then on, classification is
Gaussian regression. Four files hold the idea: ``matching/_gamma.py``, ``likelihoods/_softmax.py``,
``posterior/_statistics.py`` and ``posterior/_gaussian.py``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gaussify._version import __version__

if TYPE_CHECKING:
    from gaussify import metrics
    from gaussify.active import ActiveLearner
    from gaussify.gp import GPClassifier
    from gaussify.likelihoods import BinomialLikelihood, LogisticLikelihood, PoissonLikelihood, SoftmaxLikelihood
    from gaussify.linear import BayesianLogisticRegression
    from gaussify.matching import match, register_match, to_basis
    from gaussify.nn import LastLayer, MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss

__all__ = [
    "ActiveLearner",
    "BayesianLogisticRegression",
    "BinomialLikelihood",
    "GPClassifier",
    "LastLayer",
    "LogisticLikelihood",
    "MatchedBCEWithLogitsLoss",
    "MatchedCrossEntropyLoss",
    "PoissonLikelihood",
    "SoftmaxLikelihood",
    "__version__",
    "match",
    "metrics",
    "register_match",
    "to_basis",
]

_HOME = {
    "ActiveLearner": "active",
    "BayesianLogisticRegression": "linear",
    "BinomialLikelihood": "likelihoods",
    "GPClassifier": "gp",
    "LastLayer": "nn",
    "LogisticLikelihood": "likelihoods",
    "MatchedBCEWithLogitsLoss": "nn",
    "MatchedCrossEntropyLoss": "nn",
    "PoissonLikelihood": "likelihoods",
    "SoftmaxLikelihood": "likelihoods",
    "match": "matching",
    "register_match": "matching",
    "to_basis": "matching",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that ``import gaussify`` and the command line start quickly."""
    if name == "metrics":
        return import_module("gaussify.metrics")
    if name in _HOME:
        return getattr(import_module(f"gaussify.{_HOME[name]}"), name)
    raise AttributeError(f"module 'gaussify' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
