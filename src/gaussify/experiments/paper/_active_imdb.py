r"""Movie reviews, labelled one at a time: the one of largest predictive entropy, or any.

Bayesian logistic regression on features of a language model, from ten labelled reviews on; the same reviews to begin
with, pool and test reviews for all methods. Each seed has its own. Levels say how many labels are needed until accuracy
or log-likelihood of the test reviews, on average over seeds, reach them for the first time. Seconds are those of all
seeds, as many side by side as torch has threads.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussify import datasets, metrics
from gaussify.experiments.paper._imdb_text import TextFeatures, backbone_of, texts_of
from gaussify.experiments._networks._architectures import made
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record, group, mean_and_error
from gaussify.experiments._lab._workers import worker_processes
from gaussify.nn import extract_features
from gaussify.plotting import METHOD_COLOURS, figure_file

METHODS = ("gauss", "moment", "laplace", "variational")
STRATEGIES = ("entropy", "random")
_SCORES = {"accuracy": "test accuracy", "log_likelihood": "test log-likelihood [nat]"}
_LINES = {"entropy": "-", "random": ":"}


def _tasks(settings: Settings) -> list[Task]:
    return [{"method": method, "strategy": strategy} for method in METHODS for strategy in STRATEGIES]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    X, y = _features(settings)
    start = time.perf_counter()
    with worker_processes(settings["n_seeds"], settings, task, X, y) as over:
        curves = list(over(_curves, range(settings["n_seeds"])))
    seconds = round(time.perf_counter() - start, 1)
    records: list[Record] = []
    for step, scores in enumerate(zip(*curves, strict=True)):
        record: Record = {"n_labels": settings["n_initial"] + step}
        for name, values in zip(_SCORES, np.array(scores).T, strict=True):
            mean, error = mean_and_error(values.tolist())
            record |= {name: round(mean, 5), f"{name}_se": round(error, 5)}
        records.append(record | {"seconds": seconds if step == settings["n_steps"] else None})
    return records


def _features(settings: Settings) -> tuple[NDArray, NDArray]:
    """Features that are stored with the data set, or computed once from the texts and then cached."""
    if settings["model"] is None:
        data: Any = datasets.load(settings["dataset"])
        return data.X_train.astype(np.float64), data.y_train
    texts, y = texts_of(settings["dataset"])
    backbone = backbone_of(settings["model"])
    features = TextFeatures(made(backbone.make, 0), backbone.pooling).eval()
    cache = datasets.cache_folder() / "active-imdb" / f"{settings['model'].replace('/', '-')}.safetensors"
    cache.parent.mkdir(parents=True, exist_ok=True)
    tokens = backbone.tokenise(texts, settings["n_tokens"])
    found = extract_features(features, tokens, batch_size=settings["batch_size"], cache=cache)
    return found.X.double().numpy(), y


def _curves(settings: Settings, task: Task, X: NDArray, y: NDArray, number: int) -> list[list[float]]:
    """Accuracy and log-likelihood with the first labels, and after each further one."""
    from gaussify import ActiveLearner, BayesianLogisticRegression

    rng = np.random.default_rng(number)
    order, n_pool, n_initial = rng.permutation(len(y)), settings["n_pool"], settings["n_initial"]
    pool, test = order[:n_pool], order[n_pool : n_pool + settings["n_test"]]
    model = BayesianLogisticRegression(
        method=str(task["method"]),
        alpha_eps=settings["alpha_eps"],
        temperature=1.0,
        prior_variance=settings["prior_variance"],
    )
    strategy = str(task["strategy"])
    learner = ActiveLearner(model, X[pool], strategy, classes=[0, 1], random_state=number)
    tracked = learner.track(X[test])
    first = np.concatenate([rng.permutation((y[pool] == label).nonzero()[0])[: n_initial // 2] for label in (0, 1)])
    learner.teach(first, y[pool[first]])
    curves = [_scores(tracked.predict_proba(), y[test])]
    for _ in range(settings["n_steps"]):
        rows = learner.query()
        learner.teach(rows, y[pool[rows]])
    return curves + [_scores(probs, y[test]) for probs in tracked.staged_predict_proba()]


def _scores(probs: NDArray, y: NDArray) -> list[float]:
    return [metrics.accuracy(probs, y), -metrics.nll(probs, y)]


def _levels(records: list[Record], metric: str, n_levels: int) -> list[float]:
    """Round levels, at most as many, from where all curves have begun to where the best ends."""
    curves = [[float(record[metric]) for record in own] for own in group(records, "method", "strategy").values()]  # type: ignore[arg-type]
    start, end = max(own[0] for own in curves), max(own[-1] for own in curves)
    steps = [digit * 10.0**power for power in range(-3, 1) for digit in (1.0, 2.0, 5.0)]
    step = next(step for step in steps if end // step - start // step <= n_levels)
    return [round(number * step, 3) for number in range(int(start // step) + 1, int(end // step) + 1)]


def labels_needed(curve: list[Record], metric: str, level: float) -> int | None:
    """Return after how many labels a curve first reaches a level, None if it never does.

    Examples
    --------
    >>> curve = [{"n_labels": 10, "accuracy": 0.6}, {"n_labels": 11, "accuracy": 0.7}]
    >>> labels_needed(curve, "accuracy", 0.65), labels_needed(curve, "accuracy", 0.9)
    (11, None)
    """
    reached = [int(record["n_labels"]) for record in curve if float(record[metric]) >= level]  # type: ignore[arg-type]
    return min(reached, default=None)


def _summarise(records: list[Record]) -> list[Record]:
    rows: list[Record] = []
    levels = {metric: _levels(records, metric, 5) for metric in _SCORES}
    for (method, strategy), curve in group(records, "method", "strategy").items():
        row: Record = {"method": method, "strategy": strategy}
        for metric in _SCORES:
            row[metric] = curve[-1][metric]
            row |= {f"labels to {level:g}": labels_needed(curve, metric, level) for level in levels[metric]}
        rows.append(row | {"seconds": curve[-1]["seconds"]})
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    """Draw the curves, and how many labels each method needs for a level, by entropy and at random."""
    curves = group(records, "method", "strategy")
    with figure_file(folder, "active_curves", 1, len(_SCORES), width=9.0, height=3.6) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            for (method, strategy), curve in curves.items():
                at = [record["n_labels"] for record in curve]
                mean, error = (np.array([record[name] for record in curve]) for name in (metric, f"{metric}_se"))
                look = {"color": METHOD_COLOURS[str(method)], "ls": _LINES[str(strategy)]}
                axis.plot(at, mean, label=f"{method}, {strategy}", **look)
                axis.fill_between(at, mean - error, mean + error, color=look["color"], alpha=0.15, lw=0.0)
            axis.set(xlabel="labels", ylabel=label)
        axes[0, 1].set_ylim(bottom=_lowest(records))
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS), fontsize=8)
    with figure_file(folder, "active_labels_needed", 1, len(_SCORES), width=9.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            levels = _levels(records, metric, 10)
            for (method, strategy), curve in curves.items():
                needed = [labels_needed(curve, metric, level) for level in levels]
                known = [(level, n) for level, n in zip(levels, needed, strict=True) if n is not None]
                look = {"color": METHOD_COLOURS[str(method)], "ls": _LINES[str(strategy)]}
                axis.plot([level for level, _ in known], [n for _, n in known], "o", ms=4, **look)
            axis.set(xlabel=label, ylabel="labels needed", ylim=(0, None))
        figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS), fontsize=8)


def _lowest(records: list[Record]) -> float:
    """The lower end of log-likelihoods that are worth a look: what a coin has, and a little less."""
    return max(-1.0, min(float(record["log_likelihood"]) for record in records) - 0.01)  # type: ignore[arg-type]


_COMMON: Settings = {
    "dataset": "imdb-minilm",
    "model": None,
    "n_tokens": 256,
    "batch_size": 16,
    "n_pool": 5000,
    "n_test": 10_000,
    "n_initial": 10,
    "n_steps": 200,
    "n_seeds": 50,
    "alpha_eps": 0.1,
    "prior_variance": 10.0,
}
register(
    Experiment(
        name="active-imdb",
        title="Movie reviews labelled one at a time: the one of largest predictive entropy, or any",
        presets={
            "smoke": {
                **_COMMON,
                "dataset": "made",
                "model": "tiny",
                "n_tokens": 8,
                "n_pool": 100,
                "n_test": 200,
                "n_steps": 8,
                "n_seeds": 2,
            },
            "laptop": _COMMON,
            "paper": {**_COMMON, "dataset": "imdb", "model": "google/gemma-2-2b"},
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
