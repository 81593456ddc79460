"""Neural networks: losses in place of cross-entropy, and Bayesian last layers in closed form."""

from gaussify.nn import functional
from gaussify.nn._features import Features, InputsOf, extract_features
from gaussify.nn._last_layer import LastLayer
from gaussify.nn._losses import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss

__all__ = [
    "Features",
    "InputsOf",
    "LastLayer",
    "MatchedBCEWithLogitsLoss",
    "MatchedCrossEntropyLoss",
    "extract_features",
    "functional",
]
