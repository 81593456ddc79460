"""Active learning: choose which rows of a pool to label next, and learn from their labels.

Read ``_learner.py`` first: ``query`` scores the pool (``_acquisition.py``) and picks rows that differ
(``_selection.py``); ``teach`` passes labels to the estimator (``_model.py``).
"""

from gaussify.active._acquisition import (
    Acquisition,
    bald,
    entropy,
    epig,
    least_confidence,
    margin,
)
from gaussify.active._learner import ActiveLearner, TrackedRows
from gaussify.active._selection import greedy

__all__ = [
    "Acquisition",
    "ActiveLearner",
    "TrackedRows",
    "bald",
    "entropy",
    "epig",
    "greedy",
    "least_confidence",
    "margin",
]
