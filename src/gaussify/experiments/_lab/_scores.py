"""Scores of probabilities, as the columns of a record."""

from collections.abc import Sequence
from typing import Any

from gaussify import metrics
from gaussify.experiments._lab._records import Record

_SCORES = {
    "accuracy": metrics.accuracy,
    "error": lambda probs, y: 1.0 - metrics.accuracy(probs, y),
    "error_pct": lambda probs, y: round(100.0 * (1.0 - metrics.accuracy(probs, y)), 4),
    "nll": metrics.nll,
    "log_likelihood": lambda probs, y: -metrics.nll(probs, y),
    "ece": metrics.ece,
    "brier": metrics.brier,
}


def scores(probs: Any, y: Any, names: Sequence[str] = ("error_pct", "nll", "ece"), n_digits: int = 6) -> Record:
    """Return scores of probabilities (n, c) and true classes (n,) by their names, rounded.

    Examples
    --------
    >>> scores([[0.1, 0.9], [0.7, 0.3]], [1, 1])
    {'error_pct': 50.0, 'nll': 0.654667, 'ece': 0.4}
    """
    return {name: round(_SCORES[name](probs, y), n_digits) for name in names}
