"""Which row to have labelled next: acquisition functions, batches without near-duplicates, and a learner."""

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
