"""Neural networks: losses in place of cross-entropy, and Bayesian last layers in closed form."""

from typing import TYPE_CHECKING, Any

from gaussify.nn import functional
from gaussify.nn._features import Features, InputsOf, extract_features
from gaussify.nn._losses import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss

if TYPE_CHECKING:
    from gaussify.nn._last_layer import LastLayer

__all__ = [
    "Features",
    "InputsOf",
    "LastLayer",
    "MatchedBCEWithLogitsLoss",
    "MatchedCrossEntropyLoss",
    "extract_features",
    "functional",
]


def __getattr__(name: str) -> Any:
    """Return ``LastLayer``, imported on first use because it loads scikit-learn, which the losses do not need."""
    if name == "LastLayer":
        from gaussify.nn._last_layer import LastLayer

        return LastLayer
    raise AttributeError(f"module 'gaussify.nn' has no attribute {name!r}")
