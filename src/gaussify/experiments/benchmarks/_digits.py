r"""Bayesian logistic regression on scikit-learn's handwritten digits, in closed form, by every method.

Labels become Gaussian observations once; the rest is Gaussian regression of each logit on the pixels.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gaussify import metrics
from gaussify.experiments.paper._network_results import chosen
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record, Scalar, group
from gaussify.linear import BayesianLogisticRegression
from gaussify.matching import MatchMethod
from gaussify.metrics import Reliability, reliability
from gaussify.plotting import METHOD_COLOURS, ReliabilityDisplay, figure_file

_SCORES = ("accuracy", "nll", "ece", "brier")
_DEFAULT = "BayesianLogisticRegression()"
_BASELINES = ("logistic regression", "gradient boosting", "majority class")
_N_BINS = 10


def _tasks(settings: Settings) -> list[Task]:
    tasks: list[Task] = []
    for split in range(settings["n_splits"]):
        tasks += [{"split": split, "model": model, "alpha_eps": None} for model in (_DEFAULT, "gauss")]
        tasks += [
            {"split": split, "model": method.value, "alpha_eps": alpha_eps}
            for method in MatchMethod
            for alpha_eps in settings["alpha_eps"]
        ]
        tasks += [{"split": split, "model": baseline, "alpha_eps": None} for baseline in _BASELINES]
    return tasks


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    X_train, X_test, y_train, y_test = _split(int(task["split"]))  # type: ignore[arg-type]
    model = str(task["model"])
    estimator = _baseline(model) if model in _BASELINES else _estimator(settings, model, task["alpha_eps"])
    estimator.fit(X_train, y_train)
    probs = estimator.predict_proba(X_test)
    scores: Record = {name: round(getattr(metrics, name)(probs, y_test), 6) for name in _SCORES}
    scores["train_nll"] = round(metrics.nll(estimator.predict_proba(X_train), y_train), 6)
    bins = reliability(probs, y_test, n_bins=_N_BINS)
    curve = zip(bins.mean_confidence, bins.accuracy, bins.count, strict=True)
    return [
        {**scores, "bin": place, "confidence": _or_none(c), "bin_accuracy": _or_none(a), "count": int(n)}
        for place, (c, a, n) in enumerate(curve)
    ]


def _estimator(settings: Settings, model: str, alpha_eps: Scalar) -> BayesianLogisticRegression:
    """The estimator as it comes, or the paper's model: everything fixed, temperature one."""
    if model == _DEFAULT:
        return BayesianLogisticRegression()
    return BayesianLogisticRegression(
        model,
        alpha_eps=alpha_eps or 0.1,  # which 'gauss' does not use
        temperature=1.0,
        prior_variance=settings["prior_variance"],
        intercept_variance=settings["prior_variance"],
        label_variance=settings["label_variance"],
        reservoir_size=0,
    )


def _split(split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=split, stratify=y)
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_test), y_train, y_test


def _baseline(name: str) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    models = {
        "logistic regression": LogisticRegression(max_iter=2000),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0, max_iter=50),
        "majority class": DummyClassifier(strategy="prior"),
    }
    return models[name]


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def _summarise(records: list[Record]) -> list[Record]:
    """Mean scores over the splits, by model and alpha_eps, best NLL first; ``chosen`` by training rows."""
    scores = [record for record in records if record["bin"] == 0]
    best = group(chosen(scores, method="model"), "model", "alpha_eps")
    rows: list[Record] = []
    for (model, alpha_eps), own in group(scores, "model", "alpha_eps").items():
        row: Record = {"model": model, "alpha_eps": alpha_eps}
        for name in (*_SCORES, "train_nll"):
            row[name] = round(float(np.mean([record[name] for record in own])), 4)
        rows.append(row | {"chosen": (model, alpha_eps) in best})
    return sorted(rows, key=_nll)


def _nll(row: Record) -> float:
    return float(row["nll"])  # type: ignore[arg-type]


def _draw(records: list[Record], folder: Path) -> None:
    """NLL against alpha_eps, and the calibration of what training rows choose for a few models, on the first split."""
    summary = _summarise(records)
    shown = ["variational", "laplace", "gauss"]
    with figure_file(folder, "digits", 1, 1 + len(shown), width=12.0, height=3.6) as (_, axes):
        axis = axes[0, 0]
        for method in MatchMethod:
            own = sorted((r["alpha_eps"], r["nll"]) for r in summary if r["model"] == method.value)
            if own:
                axis.semilogx(*zip(*own, strict=True), "o-", color=METHOD_COLOURS[method], label=method.value)
        flat = {"gauss": METHOD_COLOURS["gauss"], "logistic regression": METHOD_COLOURS["exact"]}
        for model, colour in flat.items():
            for row in (r for r in summary if r["model"] == model):
                axis.axhline(_nll(row), ls="--", c=colour, label=model)
        axis.set(xlabel="alpha_eps", ylabel="test NLL", title="Negative log-likelihood")
        if axis.has_data():
            axis.legend(fontsize=7)
        for axis, model in zip(axes[0, 1:], shown, strict=True):
            best = next((row for row in summary if row["model"] == model and row["chosen"]), None)
            if best is None:  # of a run that has not come to an end
                axis.set_axis_off()
                continue
            label = model if best["alpha_eps"] is None else f"{model}, {best['alpha_eps']}"
            ReliabilityDisplay(_first_reliability(records, best), name=label).plot(axis)


def _first_reliability(records: list[Record], choice: Record) -> Reliability:
    own = [r for r in records if r["split"] == 0 and all(r[key] == choice[key] for key in ("model", "alpha_eps"))]
    return Reliability(
        bin_edges=np.linspace(0.0, 1.0, _N_BINS + 1),
        mean_confidence=np.array([r["confidence"] for r in own], dtype=float),
        accuracy=np.array([r["bin_accuracy"] for r in own], dtype=float),
        count=np.array([r["count"] for r in own]),
    )


register(
    Experiment(
        name="digits",
        title="Bayesian logistic regression on handwritten digits, in closed form, by every method",
        presets={
            "smoke": {"n_splits": 1, "alpha_eps": [0.1], "prior_variance": 1.0, "label_variance": 0.1},
            "laptop": {
                "n_splits": 2,
                "alpha_eps": [0.01, 0.03, 0.1, 0.3],
                "prior_variance": 1.0,
                "label_variance": 0.1,
            },
            "paper": {
                "n_splits": 10,
                "alpha_eps": [0.01, 0.03, 0.1, 0.3],
                "prior_variance": 1.0,
                "label_variance": 0.1,
            },
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
