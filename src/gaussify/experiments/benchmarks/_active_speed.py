"""Active learning beside modAL and scikit-activeml, on the same pool: seconds a label, and labels needed.

- ``step``: the time to choose one row of a large pool by entropy and to learn its label: the best and the mean of
  several steps, in which the contenders take turns.
- ``labels``: accuracy on test rows while rows are labelled ten at a time, and how many labels some levels take.

``gaussify`` is Bayesian logistic regression in closed form with default settings, and with diverse batches. ``gaussify,
top ten`` takes the ten rows of largest entropy, as the others do. ``modAL`` and ``scikit-activeml`` choose by entropy
with scikit-learn's logistic regression, which starts from its last weights after each label.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussify import datasets
from gaussify._optional import import_optional
from gaussify.experiments import _lab as lab
from gaussify.plotting import SERIES_COLOURS, figure_file

_Contender = tuple[Callable[[int], None], Callable[[NDArray], NDArray]]
"""A function that chooses rows and learns their labels, and one that predicts classes."""


def _gaussify(X: NDArray, y: NDArray, first: NDArray, *, diverse: bool = True) -> _Contender:
    from gaussify import ActiveLearner, BayesianLogisticRegression

    learner = ActiveLearner(BayesianLogisticRegression(), X, diverse=diverse)
    learner.teach(first, y[first])

    def step(n: int) -> None:
        rows = learner.query(n)
        learner.teach(rows, y[rows])

    return step, lambda X: learner.estimator_.predict(X)


def _modal(X: NDArray, y: NDArray, first: NDArray) -> _Contender:
    """The pool of modAL keeps its size, so labelled rows are excluded by hand."""
    models, uncertainty = (_peer("modAL", f"modAL.{name}") for name in ("models.learners", "uncertainty"))
    models.check_X_y = _check_with_its_old_name
    is_open = np.ones(len(X), dtype=bool)
    is_open[first] = False
    learner = models.ActiveLearner(_logistic_regression(), X_training=X[first], y_training=y[first])

    def step(n: int) -> None:
        entropy = np.where(is_open, uncertainty.classifier_entropy(learner.estimator, X), -np.inf)
        rows = np.argpartition(entropy, -n)[-n:]
        is_open[rows] = False
        learner.teach(X[rows], y[rows])

    return step, learner.predict


def _skactiveml(X: NDArray, y: NDArray, first: NDArray) -> _Contender:
    """Uncertainty sampling of scikit-activeml, with NaN for missing labels."""
    classifier, pool = (_peer("skactiveml", f"skactiveml.{name}") for name in ("classifier", "pool"))
    known = np.full(len(y), np.nan)
    known[first] = y[first]
    model = classifier.SklearnClassifier(_logistic_regression(), classes=np.unique(y)).fit(X, known)
    strategy = pool.UncertaintySampling(method="entropy", random_state=0)

    def step(n: int) -> None:
        rows = strategy.query(X=X, y=known, clf=model, fit_clf=False, batch_size=n)
        known[rows] = y[rows]
        model.fit(X, known)

    return step, model.predict


_CONTENDERS: dict[str, Callable[..., _Contender]] = {
    "gaussify": _gaussify,
    "gaussify, top ten": partial(_gaussify, diverse=False),
    "modAL": _modal,
    "scikit-activeml": _skactiveml,
}


def _peer(name: str, module: str) -> Any:
    return import_optional(module, extra="peers", needed_by=f"the contender {name!r}")


def _check_with_its_old_name(X: Any, y: Any, *, force_all_finite: bool | str = True, **options: Any) -> Any:
    """Return scikit-learn's check with the option name of the time when modAL was last released."""
    from sklearn.utils import check_X_y

    return check_X_y(X, y, ensure_all_finite=force_all_finite, **options)


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=3.0, max_iter=1000, warm_start=True)


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    step: lab.Task = {"measurement": "step", "contender": "all", "seed": 0}
    return [step] + [
        {"measurement": "labels", "contender": contender, "seed": seed}
        for seed in range(settings["n_seeds"])
        for contender in settings["contenders"]
    ]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    return _time_steps(settings) if task["measurement"] == "step" else _count_labels(settings, task)


def _time_steps(settings: lab.Settings) -> list[lab.Record]:
    n, d = settings["pool_shape"]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) / np.sqrt(d)  # rows of length one, as those of language models
    y = (X @ rng.normal(size=d) * 10.0 + rng.logistic(size=n) > 0.0).astype(np.int64)
    first = rng.choice(n, 100, replace=False)
    made = {name: _CONTENDERS[name](X, y, first) for name in settings["contenders"] if name != "gaussify, top ten"}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(settings["n_timed"] + 1):
        for name, (step, _) in made.items():
            start = time.perf_counter()
            step(1)
            seconds[name].append(time.perf_counter() - start)
    best = {name: min(own[1:]) for name, own in seconds.items()}
    return [
        {"of": name, "seconds": lab.significant(best[name]), "mean_seconds": lab.significant(float(np.mean(own[1:])))}
        | {"ratio": round(best[name] / best["gaussify"], 2)}
        for name, own in seconds.items()
    ]


def _count_labels(settings: lab.Settings, task: lab.Task) -> list[lab.Record]:
    sizes = {name: settings[name] for name in ("n_pool", "n_test")}
    if settings["dataset"] == "made":
        X, y = datasets.make_four_classes(600, random_state=0)
        y = (y % 2).astype(np.int64)
    else:
        X, y = lab.load_rows(settings["dataset"])
    pool, first = lab.make_pool(X, y, task["seed"], **sizes, n_initial=10)
    step, predict = _CONTENDERS[task["contender"]](pool.X, pool.y, first)
    records: list[lab.Record] = []
    start = time.perf_counter()
    for n_labels in range(10, settings["n_labels"] + 1, 10):
        accuracy = round(float((predict(pool.X_test) == pool.y_test).mean()), 5)
        seconds = round(time.perf_counter() - start, 3)
        records.append({"of": task["contender"], "n_labels": n_labels, "accuracy": accuracy, "seconds": seconds})
        if n_labels < settings["n_labels"]:
            step(10)
    return records


_LEVELS = (0.7, 0.75, 0.78, 0.8)


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return the time of a step, and the labels that levels of the mean accuracy over seeds need."""
    steps = {record["of"]: record for record in lab.select(records, measurement="step")}
    rows: list[lab.Record] = []
    for name, own in lab.by(lab.select(records, measurement="labels"), "of").items():
        step = steps.get(name, {})
        row: lab.Record = {"contender": name, "seconds a step": step.get("seconds"), "mean": step.get("mean_seconds")}
        row |= {"times ours": step.get("ratio")}
        at, accuracy, _ = lab.curve(own, "n_labels", "accuracy")
        points: list[lab.Record] = [{"n_labels": int(n), "accuracy": a} for n, a in zip(at, accuracy, strict=True)]
        row |= {f"labels to {level:g}": lab.labels_needed(points, "accuracy", level) for level in _LEVELS}
        rows.append(row | {"accuracy": round(accuracy[-1], 4)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw seconds a step, and accuracy against labels."""
    with figure_file(folder, "active_speed", 1, 2, width=9.0, height=3.4) as (_, axes):
        steps = lab.select(records, measurement="step")
        bars, line = axes[0]
        bars.bar([r["of"] for r in steps], [r["seconds"] for r in steps], color=SERIES_COLOURS[: len(steps)])
        bars.set(ylabel="seconds a label", yscale="log")
        lab.draw_lines(line, lab.by(lab.select(records, measurement="labels"), "of"), "n_labels", "accuracy")
        line.set(xlabel="labels", ylabel="test accuracy")
        line.legend(fontsize=8)


TITLE = "Active learning beside modAL and scikit-activeml: seconds a label, and labels needed"
PRESETS = lab.presets(
    dict(contenders=list(_CONTENDERS), pool_shape=[100_000, 384], n_timed=10, dataset="imdb-minilm")
    | dict(n_pool=10_000, n_test=10_000, n_labels=2500, n_seeds=2),
    smoke=dict(contenders=["gaussify"], pool_shape=[300, 5], n_timed=2, dataset="made", n_pool=200, n_test=200)
    | dict(n_labels=40, n_seeds=1),
    laptop={},
    paper=dict(n_seeds=10),
)

lab.register(lab.Experiment("active-speed", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
