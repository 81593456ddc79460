"""The methods that experiments compare, and the tasks that they give."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from gaussify.experiments._lab._registry import Settings, Task

MATCHED = ("moment-ori", "moment", "laplace", "variational")
"""The methods that match Gaussians and so have an ``alpha_eps``, in the order of the paper's tables."""

REGRESSION = ("gauss", *MATCHED)
"""Least squares on the labels, and the matched methods."""

LOSSES = ("exact", *REGRESSION)
"""Cross-entropy, and the losses that can take its place."""

ALPHA_EPS = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5]  # ours, where the paper does not say which values it tried
_UNUSED = 0.1  # any valid value


def combinations(**columns: Iterable[Any]) -> list[Task]:
    """Return a task for each combination of the values of these columns; the last column changes fastest.

    Examples
    --------
    >>> combinations(seed=range(1), method=["gauss", "laplace"])
    [{'seed': 0, 'method': 'gauss'}, {'seed': 0, 'method': 'laplace'}]
    """
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def given_alpha_eps(task: Task) -> float:
    """Return the ``alpha_eps`` of a task, or any value for methods that do not use it."""
    return _UNUSED if task["alpha_eps"] is None else task["alpha_eps"]


def choices(methods: Sequence[str], alpha_eps: Sequence[float]) -> list[Task]:
    """Return the columns "method" and "alpha_eps" of tasks: all values for matched methods, None for the others.

    Examples
    --------
    >>> choices(["exact", "laplace"], [0.1])
    [{'method': 'exact', 'alpha_eps': None}, {'method': 'laplace', 'alpha_eps': 0.1}]
    """
    return [
        {"method": method, "alpha_eps": alpha}
        for method in methods
        for alpha in (alpha_eps if method in MATCHED else [None])
    ]


def seeded_tasks(settings: Settings, methods: Sequence[str] = LOSSES) -> list[Task]:
    """Return the tasks of all methods for each seed, and for each network if the settings name several.

    Examples
    --------
    >>> [task["seed"] for task in seeded_tasks({"n_seeds": 2, "alpha_eps": [0.1]}, ["exact"])]
    [0, 1]
    """
    nets = combinations(net=settings["nets"]) if "nets" in settings else [{}]
    return [
        {**net, "seed": seed, **choice}
        for seed in range(settings["n_seeds"])
        for net in nets
        for choice in choices(methods, settings["alpha_eps"])
    ]
