"""Bayesian logistic regression on scikit-learn's handwritten digits, in closed form, by every method.

Labels become Gaussian observations once; the rest is Gaussian regression of each logit on the pixels. The baselines are
scikit-learn's.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from gaussify import metrics
from gaussify.experiments import _lab as lab
from gaussify.linear import BayesianLogisticRegression
from gaussify.metrics import Reliability, reliability
from gaussify.plotting import METHOD_COLOURS, ReliabilityDisplay, figure_file

_SCORES = ("accuracy", "nll", "ece", "brier")
_DEFAULT = "BayesianLogisticRegression()"
_METHODS = ("laplace", "variational", "moment", "moment-ori")
_BASELINES = ("logistic regression", "gradient boosting", "majority class")
_N_BINS = 10


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    models = lab.choices([_DEFAULT, "gauss", *_METHODS, *_BASELINES], settings["alpha_eps"])
    pairs = itertools.product(range(settings["n_splits"]), models)
    return [{"split": split, "model": model["method"], "alpha_eps": model["alpha_eps"]} for split, model in pairs]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    split = _split(task["split"])
    estimator = _estimator(settings, task).fit(split.X, split.y)
    probs = estimator.predict_proba(split.X_test)
    own = lab.scores(probs, split.y_test, _SCORES)
    own["train_nll"] = round(metrics.nll(estimator.predict_proba(split.X), split.y), 6)
    bins = reliability(probs, split.y_test, n_bins=_N_BINS)
    curve = zip(bins.mean_confidence, bins.accuracy, bins.count, strict=True)
    return [
        {**own, "bin": place, "confidence": _or_none(c), "bin_accuracy": _or_none(a), "count": int(n)}
        for place, (c, a, n) in enumerate(curve)
    ]


def _estimator(settings: lab.Settings, task: lab.Task) -> Any:
    """Return a baseline, our estimator with default settings, or the paper's model: all fixed, temperature one."""
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    others = {
        _DEFAULT: BayesianLogisticRegression(),
        "logistic regression": LogisticRegression(max_iter=2000),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0, max_iter=50),
        "majority class": DummyClassifier(strategy="prior"),
    }
    if task["model"] in others:
        return others[task["model"]]
    fixed: dict[str, Any] = {"alpha_eps": lab.given_alpha_eps(task), "temperature": 1.0, "reservoir_size": 0}
    fixed |= {"prior_variance": settings["prior_variance"], "intercept_variance": settings["prior_variance"]}
    return BayesianLogisticRegression(task["model"], label_variance=settings["label_variance"], **fixed)


def _split(number: int) -> lab.Split:
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    X, y = lab.load_rows("digits")
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=number, stratify=y)
    scaler = StandardScaler().fit(X)
    return lab.Split(scaler.transform(X), y, scaler.transform(X_test), y_test)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return mean scores over the splits, by model and alpha_eps, best NLL first; ``chosen`` by training rows."""
    first = lab.select(records, bin=0)
    best = lab.group(lab.chosen(first, "model"), "model", "alpha_eps")
    rows = [
        {"model": model, "alpha_eps": alpha_eps}
        | {name: round(lab.mean(own, name), 4) for name in (*_SCORES, "train_nll")}
        | {"chosen": (model, alpha_eps) in best}
        for (model, alpha_eps), own in lab.group(first, "model", "alpha_eps").items()
    ]
    return sorted(rows, key=lambda row: row["nll"])


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw NLL against alpha_eps, and for some models the calibration of the chosen alpha_eps on the first split."""
    summary = _summarise(records)
    shown = ["variational", "laplace", "gauss"]
    with figure_file(folder, "digits", 1, 1 + len(shown), width=12.0, height=3.6) as (_, axes):
        axis = axes[0, 0]
        for method in _METHODS:
            points = sorted((r["alpha_eps"], r["nll"]) for r in lab.select(summary, model=method))
            if points:
                axis.semilogx(*zip(*points, strict=True), "o-", color=METHOD_COLOURS[method], label=method)
        for model, colour in {"gauss": "gauss", "logistic regression": "exact"}.items():
            for row in lab.select(summary, model=model):
                axis.axhline(row["nll"], ls="--", c=METHOD_COLOURS[colour], label=model)
        axis.set(xlabel="alpha_eps", ylabel="test NLL", title="Negative log-likelihood")
        if axis.has_data():
            axis.legend(fontsize=7)
        for axis, model in zip(axes[0, 1:], shown, strict=True):
            best = next(iter(lab.select(summary, model=model, chosen=True)), None)
            if best is None:  # the run has not finished
                axis.set_axis_off()
                continue
            alpha = best["alpha_eps"]
            own = lab.select(records, split=0, model=model, alpha_eps=alpha)
            confidence, accuracy, count = (lab.column(own, name) for name in ("confidence", "bin_accuracy", "count"))
            bins = Reliability(np.linspace(0.0, 1.0, _N_BINS + 1), confidence, accuracy, count.astype(int))
            ReliabilityDisplay(bins, name=model if alpha is None else f"{model}, {alpha}").plot(axis)


TITLE = "Bayesian logistic regression on handwritten digits, in closed form, by every method"
PRESETS = lab.presets(
    dict(alpha_eps=[0.01, 0.03, 0.1, 0.3], prior_variance=1.0, label_variance=0.1),
    smoke=dict(n_splits=1, alpha_eps=[0.1]),
    laptop=dict(n_splits=2),
    paper=dict(n_splits=10),
)

lab.register(lab.Experiment("digits", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
