"""Scores of class probabilities: accuracy, log-likelihood, Brier score, calibration and out-of-distribution detection.

Read ``_scores.py`` first, then ``_calibration.py`` and ``_ood.py``. Every function takes class probabilities of shape
(n, n_classes), as array-likes or tensors, and computes in NumPy, in float64.
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
