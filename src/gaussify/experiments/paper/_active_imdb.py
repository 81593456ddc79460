"""Movie reviews, labelled one at a time: the one of largest predictive entropy, or a random one.

Bayesian logistic regression on features of a language model, with ten labelled reviews to begin with. All methods have
the same first labels, pool and test reviews, which differ between seeds. The table says how many labels are needed
until accuracy or log-likelihood of the test reviews, on average over seeds, first reach some levels. Seconds are those
of all seeds, run in as many processes as torch has threads.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussify import datasets
from gaussify.experiments import _lab as lab
from gaussify.experiments._networks._architectures import made
from gaussify.experiments.paper._imdb_text import TextFeatures, backbone_of, texts_of
from gaussify.nn import extract_features
from gaussify.plotting import METHOD_COLOURS, figure_file

METHODS = ("gauss", "moment", "laplace", "variational")
STRATEGIES = {"entropy": "-", "random": ":"}  # and how their lines are drawn
_SCORES = {"accuracy": "test accuracy", "log_likelihood": "test log-likelihood [nat]"}


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(method=METHODS, strategy=STRATEGIES)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    X, y = _features(settings)
    start = time.perf_counter()
    with lab.worker_processes(settings["n_seeds"], settings, task, X, y) as over:
        curves = list(over(_curves, range(settings["n_seeds"])))
    seconds = round(time.perf_counter() - start, 1)
    records: list[lab.Record] = []
    for step, values in enumerate(zip(*curves, strict=True)):
        record: lab.Record = {"n_labels": settings["n_initial"] + step}
        for name, own in zip(_SCORES, np.array(values).T, strict=True):
            mean, error = lab.mean_and_error(own)
            record |= {name: round(mean, 5), f"{name}_se": round(error, 5)}
        records.append(record | {"seconds": seconds if step == settings["n_steps"] else None})
    return records


def _features(settings: lab.Settings) -> tuple[NDArray, NDArray]:
    """Return features that are stored with the data set, or that are computed once from the texts and then cached."""
    if settings["model"] is None:
        return lab.load_rows(settings["dataset"])
    texts, y = texts_of(settings["dataset"])
    backbone = backbone_of(settings["model"])
    features = TextFeatures(made(backbone.make, 0), backbone.pooling).eval()
    cache = datasets.cache_folder() / "active-imdb" / f"{settings['model'].replace('/', '-')}.safetensors"
    cache.parent.mkdir(parents=True, exist_ok=True)
    tokens = backbone.tokenise(texts, settings["n_tokens"])
    found = extract_features(features, tokens, batch_size=settings["batch_size"], cache=cache)
    return found.X.double().numpy(), y


def _curves(settings: lab.Settings, task: lab.Task, X: NDArray, y: NDArray, number: int) -> list[list[float]]:
    """Return accuracy and log-likelihood with the first labels, and after each further one."""
    from gaussify import ActiveLearner, BayesianLogisticRegression

    sizes = {name: settings[name] for name in ("n_pool", "n_test", "n_initial")}
    pool, first = lab.make_pool(X, y, number, **sizes)
    options = {name: settings[name] for name in ("alpha_eps", "prior_variance")}
    model = BayesianLogisticRegression(method=task["method"], temperature=1.0, **options)
    learner = ActiveLearner(model, pool.X, task["strategy"], classes=[0, 1], random_state=number)
    tracked = learner.track(pool.X_test)
    learner.teach(first, pool.y[first])
    curves = [_scores(tracked.predict_proba(), pool)]
    for _ in range(settings["n_steps"]):
        rows = learner.query()
        learner.teach(rows, pool.y[rows])
    return curves + [_scores(probs, pool) for probs in tracked.staged_predict_proba()]


def _scores(probs: NDArray, pool: lab.Split) -> list[float]:
    return list(lab.scores(probs, pool.y_test, list(_SCORES), n_digits=15).values())


def _levels(records: list[lab.Record], metric: str, n_levels: int) -> list[float]:
    """Return round levels, at most as many, from the highest start of a curve to the highest end."""
    curves = [lab.column(own, metric) for own in lab.group(records, "method", "strategy").values()]
    start, end = (float(max(own[place] for own in curves)) for place in (0, -1))
    steps = [digit * 10.0**power for power in range(-3, 1) for digit in (1.0, 2.0, 5.0)]
    step = next(step for step in steps if end // step - start // step <= n_levels)
    return [round(number * step, 3) for number in range(int(start // step) + 1, int(end // step) + 1)]


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    rows: list[lab.Record] = []
    levels = {metric: _levels(records, metric, 5) for metric in _SCORES}
    for (method, strategy), curve in lab.group(records, "method", "strategy").items():
        row: lab.Record = {"method": method, "strategy": strategy}
        for metric in _SCORES:
            row[metric] = curve[-1][metric]
            row |= {f"labels to {level:g}": lab.labels_needed(curve, metric, level) for level in levels[metric]}
        rows.append(row | {"seconds": curve[-1]["seconds"]})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the curves, and how many labels each method needs for a level, by entropy and at random."""
    curves = lab.group(records, "method", "strategy")
    looks: dict[Any, dict[str, Any]] = {
        (method, strategy): {"color": METHOD_COLOURS[method], "ls": STRATEGIES[strategy]} for method, strategy in curves
    }
    with figure_file(folder, "active_curves", 1, len(_SCORES), width=9.0, height=3.6) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            for key, own in curves.items():
                curve = lab.Curve(*(lab.column(own, name) for name in ("n_labels", metric, f"{metric}_se")))
                lab.draw_band(axis, curve, alpha=0.15, label=", ".join(key), **looks[key])
            axis.set(xlabel="labels", ylabel=label)
        axes[0, 1].set_ylim(bottom=max(-1.0, lab.column(records, "log_likelihood").min() - 0.01))  # a coin has -0.69
        lab.legend_below(figure, axes, n_labels=len(METHODS), fontsize=8)
    with figure_file(folder, "active_labels_needed", 1, len(_SCORES), width=9.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            levels = _levels(records, metric, 10)
            for key, own in curves.items():
                needed = {level: lab.labels_needed(own, metric, level) for level in levels}
                known = {level: n for level, n in needed.items() if n is not None}
                axis.plot(list(known), list(known.values()), "o", ms=4, label=", ".join(key), **looks[key])
            axis.set(xlabel=label, ylabel="labels needed", ylim=(0, None))
        lab.legend_below(figure, axes, n_labels=len(METHODS), fontsize=8)


TITLE = "Movie reviews labelled one at a time: the one of largest predictive entropy, or a random one"
PRESETS = lab.presets(
    dict(dataset="imdb-minilm", model=None, n_tokens=256, batch_size=16, n_pool=5000, n_test=10_000)
    | dict(n_initial=10, n_steps=200, n_seeds=50, alpha_eps=0.1, prior_variance=10.0),
    smoke=dict(dataset="made", model="tiny", n_tokens=8, n_pool=100, n_test=200, n_steps=8, n_seeds=2),
    laptop={},
    paper=dict(dataset="imdb", model="google/gemma-2-2b"),
)

lab.register(lab.Experiment("active-imdb", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
