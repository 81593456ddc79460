"""Scores of probabilities, groups of records, their means, and the ``alpha_eps`` that training rows choose."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gaussify import metrics
from gaussify.experiments._lab._records import Record, Scalar

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


def group(records: Iterable[Record], *columns: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return the records by their values in these columns, in the order in which the values first appear.

    Examples
    --------
    >>> group([{"seed": 0, "x": 1}, {"seed": 1, "x": 1}], "x")
    {(1,): [{'seed': 0, 'x': 1}, {'seed': 1, 'x': 1}]}
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[column] for column in columns), []).append(record)
    return groups


def by(records: Iterable[Record], column: str) -> dict[Any, list[Record]]:
    """Return the records by their value in one column."""
    return {value: own for (value,), own in group(records, column).items()}


def select(records: Iterable[Record], **values: Scalar) -> list[Record]:
    """Return the records that have these values."""
    return [record for record in records if all(record[name] == value for name, value in values.items())]


def column(records: Iterable[Record], name: str) -> Float[np.ndarray, " n"]:
    """Return the numbers of a column."""
    return np.array([record[name] for record in records], dtype=float)


def mean_and_error(values: Iterable[Any]) -> tuple[float, float]:
    """Return the mean and its standard error, which is 0 for a single value.

    Examples
    --------
    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    array = np.array(list(values), dtype=float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 and np.isfinite(array).all() else 0.0
    return float(array.mean()), float(error)


def mean(records: Iterable[Record], name: str) -> float:
    """Return the mean of a column."""
    return mean_and_error(record[name] for record in records)[0]


class Curve(NamedTuple):
    """Mean and standard error of a column at each value of another."""

    at: Float[np.ndarray, " n"]
    mean: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]


def curve(records: Iterable[Record], x: str, y: str) -> Curve:
    """Return the mean of column ``y`` over the records that share a value of ``x``; empty fields are left out.

    Examples
    --------
    >>> records = [{"epoch": 1, "nll": 0.5}, {"epoch": 1, "nll": 0.7}, {"epoch": 2, "nll": None}]
    >>> curve(records, "epoch", "nll")
    Curve(at=array([1.]), mean=array([0.6]), error=array([0.1]))
    """
    known = by((record for record in records if record[y] is not None), x)
    points = [(at, *mean_and_error(record[y] for record in own)) for at, own in known.items()]
    return Curve(*np.array(points, dtype=float).reshape(-1, 3).T)


def means(records: Sequence[Record], digits: Mapping[str, int]) -> Record:
    """Return the mean of each column, rounded, and its standard error (``_se``); None where there are no values.

    Examples
    --------
    >>> means([{"nll": 1.0, "auroc": None}, {"nll": 3.0, "auroc": None}], {"nll": 2, "auroc": 3})
    {'nll': 2.0, 'nll_se': 1.0, 'auroc': None, 'auroc_se': None}
    """
    row: Record = {}
    for name, n_digits in digits.items():
        known = [record[name] for record in records if record[name] is not None]
        average, error = mean_and_error(known) if known else (None, None)
        row[name] = None if average is None else round(average, n_digits)
        row[f"{name}_se"] = None if error is None or len(known) < 2 else round(error, n_digits)
    return row


def best_alpha_eps(records: Iterable[Record], *columns: str, score: str, sign: float = 1.0) -> list[Record]:
    """Return, for each value of these columns, the records of the ``alpha_eps`` whose mean score is largest.

    The score is the log-likelihood of training rows, as in the paper, or another score that uses no test row. With
    ``sign=-1`` the smallest mean is chosen.

    Examples
    --------
    >>> common = {"method": "laplace"}
    >>> some = [common | {"alpha_eps": 0.1, "fit": -2.0}, common | {"alpha_eps": 0.2, "fit": -1.0}]
    >>> best_alpha_eps(some, "method", score="fit")
    [{'method': 'laplace', 'alpha_eps': 0.2, 'fit': -1.0}]
    """

    def fit(own: list[Record]) -> float:
        value = sign * mean(own, score)
        return -math.inf if math.isnan(value) else value

    return [
        record for own in group(records, *columns).values() for record in max(by(own, "alpha_eps").values(), key=fit)
    ]


def chosen(records: Iterable[Record], *columns: str) -> list[Record]:
    """Return, for each value of these columns, the records of the ``alpha_eps`` with the lowest NLL of training rows.

    Examples
    --------
    >>> some = [{"seed": 0, "alpha_eps": 0.1, "train_nll": 0.5}, {"seed": 0, "alpha_eps": 0.2, "train_nll": 0.6}]
    >>> [record["alpha_eps"] for record in chosen(some, "seed")]
    [0.1]
    """
    return best_alpha_eps(records, *columns, score="train_nll", sign=-1.0)


def summary(records: list[Record], columns: Sequence[str], scores: Iterable[str]) -> list[Record]:
    """Return means over the runs, with standard errors, by these columns and ``alpha_eps``.

    The column ``chosen`` marks the ``alpha_eps`` that training rows choose.
    """
    names = (*columns, "alpha_eps")
    best = group(chosen(records, *columns), *names)
    return [
        dict(zip(names, key, strict=True))
        | means(own, dict.fromkeys(scores, 4))
        | {"chosen": key in best, "runs": len(own)}
        for key, own in group(records, *names).items()
    ]


def significant(value: Any, n_digits: int = 4) -> Any:
    """Return a float rounded to significant digits, and anything else as it is.

    Examples
    --------
    >>> significant(123.456), significant(3), significant("letter")
    (123.5, 3, 'letter')
    """
    return float(f"{value:.{n_digits}g}") if isinstance(value, float) else value


def labels_needed(curve: list[Record], metric: str, level: float) -> int | None:
    """Return the number of labels with which a curve first reaches a level; None if it never does.

    Examples
    --------
    >>> curve = [{"n_labels": 10, "accuracy": 0.6}, {"n_labels": 11, "accuracy": 0.7}]
    >>> labels_needed(curve, "accuracy", 0.65), labels_needed(curve, "accuracy", 0.9)
    (11, None)
    """
    return min((record["n_labels"] for record in curve if record[metric] >= level), default=None)
