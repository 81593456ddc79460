"""Bayesian classification as cheap as least squares.

Labels are turned once, in closed form, into Gaussian observations of the logits; from then on
classification is Gaussian regression.
"""

from gaussify import metrics
from gaussify._version import __version__
from gaussify.likelihoods import BinomialLikelihood, LogisticLikelihood, PoissonLikelihood, SoftmaxLikelihood
from gaussify.matching import match, register_match, to_basis

__all__ = [
    "BinomialLikelihood",
    "LogisticLikelihood",
    "PoissonLikelihood",
    "SoftmaxLikelihood",
    "__version__",
    "match",
    "metrics",
    "register_match",
    "to_basis",
]
