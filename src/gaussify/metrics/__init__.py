"""How good are class probabilities: scores, calibration, and telling unfamiliar inputs apart.

Every function takes class probabilities of shape (n, n_classes), as array-likes or tensors; the arithmetic is
NumPy's, in float64.
"""

from gaussify.metrics._calibration import BinConfidence, Reliability, ece, reliability
from gaussify.metrics._ood import OODScore, ood_auroc
from gaussify.metrics._scores import accuracy, brier, nll

__all__ = [
    "BinConfidence",
    "OODScore",
    "Reliability",
    "accuracy",
    "brier",
    "ece",
    "nll",
    "ood_auroc",
    "reliability",
]
