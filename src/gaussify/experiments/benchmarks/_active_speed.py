"""Active learning beside modAL and scikit-activeml, on the same pool: seconds a label, and labels needed.

- ``step``: the time to choose one row of a large pool by entropy and to learn its label, the best and the mean of
  several steps, the contenders taking turns.
- ``labels``: accuracy on test rows while rows are labelled ten at a time, and how many labels it takes to levels.

``gaussify`` is Bayesian logistic regression in closed form, as it comes, with batches whose rows do not tell the same;
``gaussify, top ten`` takes the ten of largest entropy, as the others do. ``modAL`` and ``scikit-activeml`` choose by
entropy with scikit-learn's logistic regression, which begins from its last weights with each label.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gaussify import datasets
from gaussify._optional import import_optional
from gaussify.experiments.paper._active_imdb import labels_needed
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record, group, mean_and_error
from gaussify.plotting import SERIES_COLOURS, figure_file


class Contender(Protocol):
    """A pool, some of which is labelled."""

    def step(self, n: int) -> None:
        """Choose rows and learn their labels."""

    def predict(self, X: NDArray) -> NDArray:
        """Return classes."""


class Gaussify:
    """Ours."""

    def __init__(self, X: NDArray, y: NDArray, first: NDArray, *, diverse: bool = True) -> None:
        from gaussify import ActiveLearner, BayesianLogisticRegression

        self._y = y
        self._learner = ActiveLearner(BayesianLogisticRegression(), X, diverse=diverse)
        self._learner.teach(first, y[first])

    def step(self, n: int) -> None:
        """Choose rows and learn their labels."""
        rows = self._learner.query(n)
        self._learner.teach(rows, self._y[rows])

    def predict(self, X: NDArray) -> NDArray:
        """Return classes."""
        return self._learner.estimator_.predict(X)


class ModAL:
    """A learner of modAL; its pool keeps its size, and rows that are labelled are passed over by hand."""

    def __init__(self, X: NDArray, y: NDArray, first: NDArray) -> None:
        models = import_optional("modAL.models.learners", extra="peers", needed_by="the contender 'modAL'")
        models.check_X_y = _check_with_its_old_name  # type: ignore[attr-defined]
        uncertainty = import_optional("modAL.uncertainty", extra="peers", needed_by="the contender 'modAL'")
        self._X, self._y, self._open = X, y, np.ones(len(X), dtype=bool)
        self._open[first] = False
        self._entropy = uncertainty.classifier_entropy
        self._learner = models.ActiveLearner(_logistic_regression(), X_training=X[first], y_training=y[first])

    def step(self, n: int) -> None:
        """Choose rows and learn their labels."""
        entropy = np.where(self._open, self._entropy(self._learner.estimator, self._X), -np.inf)
        rows = np.argpartition(entropy, -n)[-n:]
        self._open[rows] = False
        self._learner.teach(self._X[rows], self._y[rows])

    def predict(self, X: NDArray) -> NDArray:
        """Return classes."""
        return self._learner.predict(X)


class ScikitActiveML:
    """Uncertainty sampling of scikit-activeml, with labels that are missing."""

    def __init__(self, X: NDArray, y: NDArray, first: NDArray) -> None:
        classifier = import_optional("skactiveml.classifier", extra="peers", needed_by="the contender 'skactiveml'")
        pool = import_optional("skactiveml.pool", extra="peers", needed_by="the contender 'skactiveml'")
        self._X, self._y, self._known = X, y, np.full(len(y), np.nan)
        self._known[first] = y[first]
        self._model = classifier.SklearnClassifier(_logistic_regression(), classes=np.unique(y))
        self._model.fit(X, self._known)
        self._strategy = pool.UncertaintySampling(method="entropy", random_state=0)

    def step(self, n: int) -> None:
        """Choose rows and learn their labels."""
        rows = self._strategy.query(X=self._X, y=self._known, clf=self._model, fit_clf=False, batch_size=n)
        self._known[rows] = self._y[rows]
        self._model.fit(self._X, self._known)

    def predict(self, X: NDArray) -> NDArray:
        """Return classes."""
        return self._model.predict(X)


_CONTENDERS: dict[str, Callable[..., Contender]] = {
    "gaussify": Gaussify,
    "gaussify, top ten": partial(Gaussify, diverse=False),
    "modAL": ModAL,
    "scikit-activeml": ScikitActiveML,
}


def _check_with_its_old_name(X: Any, y: Any, *, force_all_finite: bool | str = True, **options: Any) -> Any:
    """A check of scikit-learn by the name that an option had when modAL was last released."""
    from sklearn.utils import check_X_y

    return check_X_y(X, y, ensure_all_finite=force_all_finite, **options)


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=3.0, max_iter=1000, warm_start=True)


def _tasks(settings: Settings) -> list[Task]:
    step: Task = {"measurement": "step", "contender": "all", "seed": 0}
    return [step] + [
        {"measurement": "labels", "contender": contender, "seed": seed}
        for seed in range(settings["n_seeds"])
        for contender in settings["contenders"]
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    return _time_steps(settings) if task["measurement"] == "step" else _count_labels(settings, task)


def _time_steps(settings: Settings) -> list[Record]:
    n, d = settings["pool_shape"]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) / np.sqrt(d)  # rows of length one, as those of language models
    y = (X @ rng.normal(size=d) * 10.0 + rng.logistic(size=n) > 0.0).astype(np.int64)
    first = rng.choice(n, 100, replace=False)
    made = {name: _CONTENDERS[name](X, y, first) for name in settings["contenders"] if name != "gaussify, top ten"}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(settings["n_timed"] + 1):
        for name, contender in made.items():
            start = time.perf_counter()
            contender.step(1)
            seconds[name].append(time.perf_counter() - start)
    best = {name: min(own[1:]) for name, own in seconds.items()}
    return [
        {
            "of": name,
            "seconds": float(f"{best[name]:.4g}"),
            "mean_seconds": float(f"{np.mean(own[1:]):.4g}"),
            "ratio": round(best[name] / best["gaussify"], 2),
        }
        for name, own in seconds.items()
    ]


def _count_labels(settings: Settings, task: Task) -> list[Record]:
    X, y = _labelled(settings["dataset"])
    rng = np.random.default_rng(int(task["seed"]))  # type: ignore[arg-type]
    order, n_pool = rng.permutation(len(y)), settings["n_pool"]
    pool, test = order[:n_pool], order[n_pool : n_pool + settings["n_test"]]
    first = np.concatenate([rng.permutation((y[pool] == label).nonzero()[0])[:5] for label in (0, 1)])
    contender = _CONTENDERS[str(task["contender"])](X[pool], y[pool], first)
    records: list[Record] = []
    start = time.perf_counter()
    for n_labels in range(10, settings["n_labels"] + 1, 10):
        accuracy = round(float((contender.predict(X[test]) == y[test]).mean()), 5)
        seconds = round(time.perf_counter() - start, 3)
        records.append({"of": task["contender"], "n_labels": n_labels, "accuracy": accuracy, "seconds": seconds})
        if n_labels < settings["n_labels"]:
            contender.step(10)
    return records


def _labelled(dataset: str) -> tuple[NDArray, NDArray]:
    if dataset == "made":
        X, y = datasets.make_four_classes(600, random_state=0)
        return X, (y % 2).astype(np.int64)
    data: Any = datasets.load(dataset)
    return data.X_train.astype(np.float64), data.y_train


_LEVELS = (0.7, 0.75, 0.78, 0.8)


def _summarise(records: list[Record]) -> list[Record]:
    """The time of a step, and the labels that levels of the mean accuracy over seeds need."""
    steps = {record["of"]: record for record in records if record["measurement"] == "step"}
    rows: list[Record] = []
    for name, curve in _mean_curves(records).items():
        step = steps.get(name, {})
        row: Record = {"contender": name, "seconds a step": step.get("seconds"), "mean": step.get("mean_seconds")}
        row |= {"times ours": step.get("ratio")}
        row |= {f"labels to {level:g}": labels_needed(curve, "accuracy", level) for level in _LEVELS}
        rows.append(row | {"accuracy": round(float(curve[-1]["accuracy"]), 4)})  # type: ignore[arg-type]
    return rows


def _mean_curves(records: list[Record]) -> dict[str, list[Record]]:
    own = [record for record in records if record["measurement"] == "labels"]
    return {
        str(name): [
            {"n_labels": n, "accuracy": mean_and_error(record["accuracy"] for record in some)[0]}
            for (n,), some in group(of_name, "n_labels").items()
        ]
        for (name,), of_name in group(own, "of").items()
    }


def _draw(records: list[Record], folder: Path) -> None:
    """Draw seconds a step, and accuracy against labels."""
    with figure_file(folder, "active_speed", 1, 2, width=9.0, height=3.4) as (_, axes):
        steps = [record for record in records if record["measurement"] == "step"]
        bars, line = axes[0]
        bars.bar([r["of"] for r in steps], [r["seconds"] for r in steps], color=SERIES_COLOURS[: len(steps)])
        bars.set(ylabel="seconds a label", yscale="log")
        for colour, (name, curve) in zip(SERIES_COLOURS, _mean_curves(records).items(), strict=False):
            line.plot([r["n_labels"] for r in curve], [r["accuracy"] for r in curve], color=colour, label=name)
        line.set(xlabel="labels", ylabel="test accuracy")
        line.legend(fontsize=8)


_COMMON: Settings = {
    "contenders": list(_CONTENDERS),
    "pool_shape": [100_000, 384],
    "n_timed": 10,
    "dataset": "imdb-minilm",
    "n_pool": 10_000,
    "n_test": 10_000,
    "n_labels": 2500,
    "n_seeds": 2,
}
register(
    Experiment(
        name="active-speed",
        title="Active learning beside modAL and scikit-activeml: seconds a label, and labels needed",
        presets={
            "smoke": {
                **_COMMON,
                "contenders": ["gaussify"],
                "pool_shape": [300, 5],
                "n_timed": 2,
                "dataset": "made",
                "n_pool": 200,
                "n_test": 200,
                "n_labels": 40,
                "n_seeds": 1,
            },
            "laptop": _COMMON,
            "paper": {**_COMMON, "n_seeds": 10},
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
