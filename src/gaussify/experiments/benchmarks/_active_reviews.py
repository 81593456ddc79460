"""Active learning beside scikit-learn's logistic regression, ten labels at a time: movie reviews and other pools.

All contenders begin with the same labelled rows of the same pool. ``logistic regression`` has default settings and is
fitted again for each query; it takes the ten rows of the smallest margin, or random ones. ``gaussify`` is Bayesian
logistic regression with default settings, and ``matched`` the same with ``refine=False``; they choose by entropy or at
random. Features of the reviews are those of all-MiniLM-L6-v2. The other pools show that nothing was fitted to reviews:
their features are standardised, and the classes are even and odd numbers of the original ones.

``prior_variance`` is the largest of any feature so far. ``seconds`` are those to choose and to learn a label.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gaussify.active._acquisition import AcquisitionName
from gaussify.experiments import _lab as lab
from gaussify.plotting import SERIES_COLOURS, figure_file

_PEER = "logistic regression, margin"
_UNIT_ROWS = "imdb-minilm"  # whose rows have length one; they stay as they are


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=10_000)


def _gaussify(**params: Any) -> Any:
    from gaussify import BayesianLogisticRegression

    return BayesianLogisticRegression(**params)


_matched = partial(_gaussify, refine=False)
_Contender = tuple[Callable[[], Any], AcquisitionName]
_CONTENDERS: dict[str, _Contender] = {
    _PEER: (_logistic_regression, "margin"),
    "logistic regression, random": (_logistic_regression, "random"),
    "gaussify, entropy": (_gaussify, "entropy"),
    "gaussify, random": (_gaussify, "random"),
    "matched, entropy": (_matched, "entropy"),
    "matched, random": (_matched, "random"),
}


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(dataset=settings["datasets"], seed=range(settings["n_seeds"]))


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    pool, first = _pool(settings, task["dataset"], task["seed"])
    return [
        {"contender": name, **record}
        for name, contender in _CONTENDERS.items()
        for record in _curve(settings, contender, pool, first, task["seed"])
    ]


def _pool(settings: lab.Settings, dataset: str, number: int) -> tuple[lab.Split, NDArray]:
    X, y = lab.load_rows(dataset)
    n_pool = min(settings["n_pool"], 2 * len(y) // 3)
    sizes = {"n_pool": n_pool, "n_test": min(settings["n_test"], len(y) - n_pool)}
    pool, first = lab.make_pool(X, y % 2, number, **sizes, n_initial=settings["n_initial"])
    if dataset == _UNIT_ROWS:
        return pool, first
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler().fit(pool.X)
    return pool._replace(X=scale.transform(pool.X), X_test=scale.transform(pool.X_test)), first


def _curve(
    settings: lab.Settings, contender: _Contender, pool: lab.Split, first: NDArray, seed: int
) -> list[lab.Record]:
    """Return the test scores for each number of labels."""
    from gaussify import ActiveLearner

    make, acquisition = contender
    learner = ActiveLearner(make(), pool.X, acquisition, random_state=seed)
    records: list[lab.Record] = []
    n_labels, seconds, widest = len(first), 0.0, 0.0
    begun = time.perf_counter()
    learner.teach(first, pool.y[first])
    while n_labels < max(settings["n_labels"]):
        rows = learner.query(settings["n_at_once"])
        learner.teach(rows, pool.y[rows])
        n_labels += len(rows)
        prior_variance = getattr(learner.estimator_, "prior_variance_", None)
        widest = widest if prior_variance is None else max(widest, float(prior_variance.max()))
        if n_labels in settings["n_labels"]:
            seconds += time.perf_counter() - begun
            scores = lab.scores(learner.estimator_.predict_proba(pool.X_test), pool.y_test, ("accuracy", "nll"))
            record: lab.Record = {"n_labels": n_labels, **scores}
            record["prior_variance"] = None if prior_variance is None else lab.significant(widest)
            records.append(record | {"seconds": lab.significant(seconds / n_labels)})
            begun = time.perf_counter()
    return records


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return mean accuracies with their lead over logistic regression by margin, its error, NLL, and the extremes."""
    rows: list[lab.Record] = []
    for dataset, some in lab.by(records, "dataset").items():
        for name, own in lab.by(some, "contender").items():
            for n_labels, at in lab.by(own, "n_labels").items():
                peer = lab.select(some, contender=_PEER, n_labels=n_labels)
                lead, error = lab.mean_and_error(lab.column(at, "accuracy") - lab.column(peer, "accuracy"))
                widest = [record["prior_variance"] for record in at if record["prior_variance"] is not None]
                row: lab.Record = {"dataset": dataset, "contender": name, "n_labels": n_labels}
                row |= {"accuracy": round(lab.mean(at, "accuracy"), 4), "lead": round(lead, 4)}
                row |= {"lead_se": round(error, 4), "nll": round(lab.mean(at, "nll"), 4)}
                row |= {"largest prior variance": max(widest, default=None)}
                rows.append(row | {"ms a label": round(1e3 * lab.mean(at, "seconds"), 2)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw accuracy and NLL against labels."""
    pools = lab.by(records, "dataset")
    size = {"width": 1.0 + 2.9 * max(2, len(pools)), "height": 5.6}
    with figure_file(folder, "active_reviews", 2, len(pools), **size) as (figure, axes):
        for place, (dataset, some) in enumerate(pools.items()):
            for line, metric in zip(axes[:, place], ("accuracy", "nll"), strict=True):
                for colour, (name, own) in zip(SERIES_COLOURS, lab.by(some, "contender").items(), strict=False):
                    points = lab.curve(own, "n_labels", metric)
                    style = ":" if name.endswith("random") else "-"
                    line.plot(points[0], points[1], style, marker="o", ms=3, color=colour, label=name)
                line.set(xlabel="labels", ylabel=f"test {metric}", title=dataset)
        lab.legend_below(figure, axes, n_labels=len(_CONTENDERS), fontsize=8)


TITLE = "Active learning ten labels at a time: movie reviews and other pools, beside logistic regression"
PRESETS = lab.presets(
    dict(datasets=["imdb-minilm", "letter", "magic", "digits"], n_pool=5000, n_test=10_000, n_initial=20)
    | dict(n_at_once=10, n_labels=[100, 200, 400, 600], n_seeds=8),
    smoke=dict(datasets=["digits"], n_pool=200, n_test=200, n_labels=[30, 50], n_seeds=2),
    laptop={},
    paper=dict(n_seeds=32),
)

lab.register(lab.Experiment("active-reviews", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
