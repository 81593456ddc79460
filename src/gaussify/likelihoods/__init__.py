"""From labels and counts to Gaussian observations of the latents, and from Gaussian latents to probabilities.

Read ``_softmax.py`` first, the likelihood of most models. ``_class_likelihood.py`` is what it shares with
``_logistic.py``, ``_count.py`` does the same for counts, and ``_predictive.py`` computes the probabilities.
"""

from gaussify.likelihoods._base import BETA_METHODS
from gaussify.likelihoods._class_likelihood import ClassLikelihood, ExpectedLogProb, ProbabilityUncertainty
from gaussify.likelihoods._count import BinomialLikelihood, PoissonLikelihood
from gaussify.likelihoods._logistic import LogisticLikelihood
from gaussify.likelihoods._predictive import PredictiveMethod, PredictiveName
from gaussify.likelihoods._softmax import SoftmaxLikelihood
from gaussify.likelihoods._targets import LatentVariances, LikelihoodMethod, LikelihoodMethodName, PseudoTargets

__all__ = [
    "BETA_METHODS",
    "BinomialLikelihood",
    "ClassLikelihood",
    "ExpectedLogProb",
    "LatentVariances",
    "LikelihoodMethod",
    "LikelihoodMethodName",
    "LogisticLikelihood",
    "PoissonLikelihood",
    "PredictiveMethod",
    "PredictiveName",
    "ProbabilityUncertainty",
    "PseudoTargets",
    "SoftmaxLikelihood",
]
