"""Gaussian processes where classes follow a rule without noise, beside scikit-learn's and boosted trees.

Rules and rows come from :mod:`._rules`. Gaussian processes of scikit-learn learn a variance and one lengthscale, since
a lengthscale for each feature would take an hour for some tables. CatBoost and LightGBM run where they are installed;
elsewhere their records have no scores. ``ratio`` is the geometric mean over rules of the NLL divided by that of the
exact matched model, where an NLL below 0.005 counts as 0.005: such a rule is solved.
"""

import importlib
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gaussify.experiments import _lab as lab
from gaussify.experiments.benchmarks._linear_models import fit, is_refined, positive_probs
from gaussify.experiments.benchmarks._rules import split_rule
from gaussify.gp import GPClassifier
from gaussify.plotting import SERIES_COLOURS, figure_file

EXACT, SPARSE, SKLEARN = "gaussify, matched", "gaussify, matched, sparse", "scikit-learn GP"
BOOSTED = "scikit-learn trees"
_PACKAGES = {"CatBoost": ("catboost", "CatBoostClassifier"), "LightGBM": ("lightgbm", "LGBMClassifier")}
_QUIET: dict[str, dict[str, Any]] = {"CatBoost": {"verbose": False, "allow_writing_files": False}}
_QUIET["LightGBM"] = {"verbose": -1}
_SCORES = ("nll", "ece", "accuracy")
_SOLVED = 0.005  # an NLL
_COLOURS = (*SERIES_COLOURS, "#999999")
_SMALLEST = 1e-4  # NLL in the figure


def contenders(n_features: int, n_inducing: int) -> dict[str, Callable[[], Any] | None]:
    """Return functions that make the classifiers; None for a package that is not installed.

    Examples
    --------
    >>> list(contenders(4, 100))[:2]
    ['gaussify, matched', 'gaussify, auto']
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF

    made: dict[str, Callable[[], Any] | None] = {}
    make: Any = GPClassifier
    for name, options in (("", {}), (", sparse", {"n_inducing": n_inducing})):
        made[f"gaussify, matched{name}"] = partial(make, refine=False, **options)
        made[f"gaussify, auto{name}"] = partial(make, refine="auto", **options)
    kernel = 1.0 * RBF(np.sqrt(n_features), (1e-2, 1e3))
    made[SKLEARN] = partial(GaussianProcessClassifier, kernel, random_state=0)
    made[BOOSTED] = partial(HistGradientBoostingClassifier, random_state=0)
    return made | {name: _of_package(name) for name in _PACKAGES}


def _of_package(name: str) -> Callable[[], Any] | None:
    package, classifier = _PACKAGES[name]
    if find_spec(package) is None:
        return None
    return partial(getattr(importlib.import_module(package), classifier), random_state=0, **_QUIET[name])


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(rule=settings["rules"], split=range(settings["n_splits"]))


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    from sklearn.exceptions import ConvergenceWarning

    split = split_rule(task["rule"], task["split"])
    scale = split.X.std(0)
    scale[scale == 0.0] = 1.0
    X, X_test = ((part - split.X.mean(0)) / scale for part in (split.X, split.X_test))
    shape = {"n_train": len(split.y), "n_features": X.shape[1], "n_classes": int(split.y.max()) + 1}
    records: list[lab.Record] = []
    for method, make in contenders(X.shape[1], settings["n_inducing"]).items():
        record: lab.Record = {"method": method, **shape, **dict.fromkeys((*_SCORES, "seconds", "refined"))}
        if make is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # without noise, the best variance is infinite
                model, seconds = fit(make, X, split.y)
            record |= lab.scores(positive_probs(model, X_test), split.y_test, _SCORES)
            record |= {"seconds": lab.significant(seconds), "refined": is_refined(model)}
        records.append(record)
    return records


def _known(records: list[lab.Record]) -> list[lab.Record]:
    return [record for record in records if record["nll"] is not None]


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over rules by method, and the NLL of each rule; nothing but the name where a package is missing."""
    rules = {rule: lab.by(own, "method") for rule, own in lab.by(_known(records), "rule").items()}
    rows: list[lab.Record] = []
    for method, every in lab.by(records, "method").items():
        row: lab.Record = {"method": method, "installed": bool(_known(every))}
        if row["installed"]:
            nll = {rule: lab.mean(own[method], "nll") for rule, own in rules.items()}
            logs = [
                np.log(max(_SOLVED, nll[rule]) / max(_SOLVED, lab.mean(own[EXACT], "nll")))
                for rule, own in rules.items()
            ]
            row |= {
                "nll": round(float(np.mean(list(nll.values()))), 4),
                "ratio": round(float(np.exp(np.mean(logs))), 3),
            }
            row |= {name: round(lab.mean(every, name), 4) for name in ("ece", "accuracy")}
            row["seconds"] = round(float(lab.column(every, "seconds").sum()), 1)
            row |= {rule: lab.significant(value, 3) for rule, value in nll.items()}
        rows.append(row)
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the NLL of each contender, a row of points for each rule."""
    known = _known(records)
    rules, methods = list(lab.by(known, "rule"))[::-1], list(lab.by(known, "method"))
    with figure_file(folder, "noise_free", 1, 1, width=6.4, height=1.4 + 0.36 * len(rules)) as (figure, axes):
        axis = axes[0, 0]
        heights = np.linspace(0.25, -0.25, len(methods))  # so that equal scores do not hide each other
        for colour, method, height in zip(_COLOURS, methods, heights, strict=False):
            means = [lab.mean(lab.select(known, rule=rule, method=method), "nll") for rule in rules]
            places = np.arange(len(rules)) + height
            axis.plot(np.maximum(means, _SMALLEST), places, "o", color=colour, label=method, ms=4)
        axis.set_yticks(range(len(rules)), rules)
        axis.set_xscale("log")
        axis.set_xlabel("test NLL (left is better)")
        lab.legend_below(figure, axes, n_labels=3)


_RULES = ["tic-tac-toe", "lexicographic", "torques", "criteria", "decision table", "parity of 2", "parity of 3"]
_RULES += ["parity of 4"]

TITLE = "Gaussian processes where classes follow a rule without noise, beside scikit-learn's and boosted trees"
PRESETS = lab.presets(
    dict(rules=_RULES, n_inducing=200),
    smoke=dict(rules=["few comparisons"], n_splits=1, n_inducing=20),
    laptop=dict(n_splits=2),
    paper=dict(n_splits=10),
)

lab.register(lab.Experiment("noise-free", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
