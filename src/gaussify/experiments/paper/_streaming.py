"""Learning the last layer of a network from a stream, in one pass over the rows in a random order.

The paper's section on online inference for streaming data and its appendix. The features are those of a random ReLU
network (MNIST, FashionMNIST), or the last pooled layer of a VGG-11 that this library trains itself on images other than
those of the stream (CIFAR-10, see ``_vgg_features.py``). The posteriors of matched models are in closed form at any
time. Assumed density filtering (``adf``) approximates the model with the class likelihood row by row, and stochastic
gradient descent with momentum (``sgd``) keeps only weights.

Keep in mind that the matched models are tried with several ``alpha_eps``, of which the next rows of the stream choose
one, while ``adf`` and ``sgd`` have one setting each: their defaults, with the same prior. Seeds stand for orders of the
stream and random networks; the test rows are the same for all. If a stream uses all rows, as with CIFAR-10, models that
do not depend on the order end alike, and standard errors vanish.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from gaussify import datasets, metrics
from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._vgg_features import VGGSettings, cifar10_features
from gaussify.plotting import METHOD_COLOURS, figure_file

METHODS = ("gauss", *lab.MATCHED, "adf", "sgd")
SCORES = {"accuracy": "test accuracy", "log_likelihood": "test log-likelihood"}

_WORST = {"accuracy": 0.0, "log_likelihood": -3.0}  # drawn; a guess has -2.3 with ten classes
_BUNDLED = ("digits", "iris")
_N_SCALED_BY = 100  # the number of rows of the stream that determine the scale of the features


def random_features(
    X: Float[np.ndarray, "n d"], widths: Sequence[int], rng: np.random.Generator
) -> Float[np.ndarray, "n h"]:
    r"""Return the last hidden layer of a random ReLU network with layers of these widths.

    .. math:: h_{l+1} = \max(W_l h_l, 0), \qquad W_l \sim \mathcal{N}(0, 2 / d_l)

    so that the mean square of a layer is about that of the layer before.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((500, 100))
    >>> features = random_features(X, [300, 200], np.random.default_rng(1))
    >>> features.shape, bool(0.8 < np.mean(features**2) < 1.2)
    ((500, 200), True)
    """
    for width in widths:
        X = np.maximum(X @ rng.normal(0.0, np.sqrt(2.0 / X.shape[1]), (X.shape[1], width)), 0.0)
    return X


def checkpoints(first: int, n_rows: int, n_checkpoints: int) -> list[int]:
    """Return the numbers of rows after which models are scored, evenly spaced on a logarithmic scale."""
    return [int(n) for n in np.unique(np.geomspace(min(first, n_rows), n_rows, n_checkpoints).round())]


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return [
        {**stream, **choice}
        for stream in lab.combinations(dataset=settings["datasets"], seed=range(settings["n_seeds"]))
        for choice in lab.choices(METHODS, settings["alpha_eps"])
    ]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    sizes = settings["n_rows"], settings["n_test"], tuple(settings["widths"])
    split = stream(task["dataset"], task["seed"], *sizes, VGGSettings(**settings["vgg"]))
    model = make_model(task, settings, seed)
    classes = np.arange(int(max(split.y.max(), split.y_test.max())) + 1)
    marks = checkpoints(settings["first"], len(split.X), settings["n_checkpoints"])
    records: list[lab.Record] = []
    for start, stop in pairwise([0, *marks]):
        model.partial_fit(split.X[start:stop], split.y[start:stop], classes=classes)
        own = lab.scores(model.predict_proba(split.X_test), split.y_test, list(SCORES))
        X, y = split.X[stop : stop + settings["n_next"]], split.y[stop : stop + settings["n_next"]]
        score = round(-metrics.nll(model.predict_proba(X), y), 6) if len(X) else None  # before they are learnt
        records.append({"n_seen": stop, **own, "next_log_likelihood": score})
    return records


def make_model(task: lab.Task, settings: lab.Settings, seed: int) -> Any:
    """Return the estimator of a task, with scikit-learn's ``partial_fit`` and ``predict_proba``."""
    from gaussify.linear import BayesianLogisticRegression
    from gaussify.linear.baselines import ADFClassifier, MomentumSGDClassifier

    if task["method"] == "sgd":
        return MomentumSGDClassifier(random_state=seed)
    prior = {name: settings[name] for name in ("prior_variance", "intercept_variance")}
    if task["method"] == "adf":
        return ADFClassifier(**prior, n_samples=settings["n_samples"], random_state=seed)
    options = {"label_variance": settings["label_variance"]} if "label_variance" in settings else {}
    return BayesianLogisticRegression(
        task["method"], lab.given_alpha_eps(task), temperature=1.0, reservoir_size=0, **prior, **options
    )


@lru_cache(maxsize=1)  # tasks of one data set and seed follow each other
def stream(dataset: str, seed: int, n_rows: int, n_test: int, widths: tuple[int, ...], vgg: VGGSettings) -> lab.Split:
    """Return features in the order of a stream; the seed determines the order and the random network.

    Pixels are centred and scaled, and features scaled, by one number each, computed from the first hundred rows.
    """
    rng = np.random.default_rng([seed, 1])
    X, y, X_test, y_test = _rows(dataset, vgg)
    order, test_order = rng.permutation(len(X))[:n_rows], np.random.default_rng(0).permutation(len(X_test))[:n_test]
    features = np.concatenate([X[order], X_test[test_order]]).astype(np.float64)
    features = features.reshape(len(features), -1)
    if dataset != "cifar10":
        centred = features - features[:_N_SCALED_BY].mean()
        features = random_features(_scaled(centred), widths, rng)
    X, X_test = np.split(_scaled(features), [len(order)])
    return lab.Split(X, y[order], X_test, y_test[test_order])


def _scaled(X: np.ndarray) -> np.ndarray:
    return X / np.sqrt(np.mean(np.square(X[:_N_SCALED_BY])))


@lru_cache(maxsize=1)
def _rows(dataset: str, vgg: VGGSettings) -> tuple[Any, Any, Any, Any]:
    """Return rows and labels to stream, and those to test on, without any scaling."""
    if dataset in _BUNDLED:
        X, y = lab.load_rows(dataset)
        first, rest = np.split(np.random.default_rng(0).permutation(len(X)), [2 * len(X) // 3])
        return X[first], y[first], X[rest], y[rest]
    if dataset == "cifar10":
        features = cifar10_features(vgg)
        return features.X_stream.numpy(), features.y_stream.numpy(), features.X_test.numpy(), features.y_test.numpy()
    data = datasets.load(dataset)
    return data.X_train, data.y_train, data.X_test, data.y_test


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return scores early (at the last look before a twentieth of the rows) and at the end, with standard errors.

    ``chosen`` marks the alpha_eps that predicted the next rows best at the last look but one. A user of the stream
    could choose it, since no test rows are needed.
    """
    chosen = choose_alpha_eps(records)
    rows: list[lab.Record] = []
    for (dataset, method, alpha_eps), own in lab.group(records, "dataset", "method", "alpha_eps").items():
        looks = lab.by(own, "n_seen")
        last = max(looks)
        early = max((n for n in looks if n <= last / 20), default=min(looks))
        row: lab.Record = {"dataset": dataset, "method": method, "alpha_eps": alpha_eps}
        row["chosen"] = chosen[dataset, method] == alpha_eps
        for when, n_seen in (("_early", early), ("", last)):
            row[f"n_seen{when}"] = n_seen
            for score, short in (("accuracy", "acc"), ("log_likelihood", "ll")):
                mean, error = lab.mean_and_error(record[score] for record in looks[n_seen])
                row[f"{short}{when}"], row[f"{short}_se{when}"] = round(mean, 4), round(error, 4)
        rows.append(row)
    return rows


def choose_alpha_eps(records: list[lab.Record]) -> dict[tuple[str, str], float | None]:
    """Return, by data set and method, the alpha_eps with the best log-likelihood of rows before they are learnt."""
    known = [record for record in records if record["next_log_likelihood"] is not None]
    best = lab.best_alpha_eps(_ends(known), "dataset", "method", score="next_log_likelihood")
    return {(record["dataset"], record["method"]): record["alpha_eps"] for record in best}


def _ends(records: list[lab.Record]) -> list[lab.Record]:
    """Return the records with the largest number of rows seen, for each data set."""
    last = {name: max(record["n_seen"] for record in own) for name, own in lab.by(records, "dataset").items()}
    return [record for record in records if record["n_seen"] == last[record["dataset"]]]


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw scores against rows seen, with the chosen alpha_eps, and scores at the end against alpha_eps."""
    chosen = choose_alpha_eps(records)
    shown = [record for record in records if chosen[record["dataset"], record["method"]] == record["alpha_eps"]]
    names = list(lab.by(records, "dataset"))
    size = {"width": 1.2 + 3.2 * len(names), "height": 5.4}
    figures = {"streaming": (shown, "n_seen", "rows seen"), "alpha_eps": (_ends(records), "alpha_eps", "alpha_eps")}
    for figure_name, (own, x, label) in figures.items():
        with figure_file(folder, figure_name, 2, len(names), **size) as (figure, axes):
            for dataset, column in zip(names, axes.T, strict=True):
                _fill_column(column, lab.select(own, dataset=dataset), x, label)
                column[0].set_title(dataset)
            lab.legend_below(figure, axes, None if len(names) > 1 else 3)


def _fill_column(axes: Any, records: list[lab.Record], x: str, x_label: str) -> None:
    """Draw each score of one data set by method; a method without a value of ``x`` is a level line."""
    for axis, (score, label) in zip(axes, SCORES.items(), strict=True):
        for method, own in lab.by(records, "method").items():
            style = {"color": METHOD_COLOURS[method], "label": method}
            points = lab.curve(own, x, score)
            if x == "alpha_eps" and method not in lab.MATCHED:
                axis.axhline(points.mean[0], ls="--", **style)
            else:
                lab.draw_band(axis, points, marker="o" if x == "alpha_eps" else "", ms=3, **style)
        axis.set(xscale="log", xlabel=x_label, ylabel=label)
        axis.set_ylim(bottom=max(axis.get_ylim()[0], _WORST[score]))


_LARGE = dict(datasets=["mnist", "fashion-mnist", "cifar10"], alpha_eps=[0.01, 0.05, 0.1, 0.5])
PRESETS = lab.presets(
    # Of the prior variances 0.01, 0.1 and 1, the best or nearly so for matched models on 2000 rows of MNIST and of
    # FashionMNIST that are not test rows; it was not tuned for 'adf'.
    dict(prior_variance=0.1, intercept_variance=1.0, n_samples=1000, first=20, n_next=500),
    smoke=dict(datasets=list(_BUNDLED), alpha_eps=[0.1], n_seeds=2, n_rows=200, n_test=200, n_checkpoints=4)
    | dict(widths=[30], vgg={}),
    laptop=_LARGE
    | dict(n_seeds=3, n_rows=10_000, n_test=2000, n_checkpoints=12, widths=[200], vgg={"width": 0.5, "n_epochs": 45}),
    paper=_LARGE
    | dict(n_seeds=10, n_rows=60_000, n_test=10_000, n_checkpoints=20, widths=[300])
    | dict(vgg={"width": 1.0, "n_epochs": 200}),
)

TITLE = "Online inference for streaming data: the last layer over random or VGG-11 features"

lab.register(lab.Experiment("streaming", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
