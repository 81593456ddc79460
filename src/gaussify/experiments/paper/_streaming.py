r"""Learning the last layer of a network from a stream, one pass over the rows in a random order.

The paper's section on online inference for streaming data and its appendix. The layer sees features of a random ReLU
network (MNIST, FashionMNIST), or the last pooled layer of a VGG-11 that this library trains itself, on images other
than those of the stream (CIFAR-10, see :mod:`gaussify.experiments.paper._vgg_features`). The matched models are exact at any time;
assumed density filtering (``adf``) approximates the exact model row by row, and stochastic gradient descent with
momentum (``sgd``) keeps weights alone.

To bear in mind with the numbers: the matched models are tried with several alpha_eps, of which the rows to come choose
one, while ``adf`` and ``sgd`` have one setting each, that of their defaults with the same prior. Seeds stand for orders
of the stream and random networks, not for test rows, which are the same for all. Where a stream takes all rows there
are, as with the half of CIFAR-10, models that do not depend on the order end alike, and standard errors vanish.
"""

import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gaussify import datasets, metrics
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record, Scalar, group, mean_and_error, of_best_alpha_eps
from gaussify.experiments.paper._vgg_features import VGGSettings, cifar10_features
from gaussify.likelihoods import LikelihoodMethod
from gaussify.plotting import METHOD_COLOURS, figure_file

MATCHED = ("moment-ori", "moment", "laplace", "variational")
METHODS = ("gauss", *MATCHED, "adf", "sgd")
SCORES = {"accuracy": "test accuracy", "log_likelihood": "test log-likelihood"}

_WORST = {"accuracy": 0.0, "log_likelihood": -3.0}  # drawn; a guess has -2.3 with ten classes
_BUNDLED = ("digits", "iris")  # with scikit-learn
_N_SCALED_BY = 100  # rows, of the stream, that the scale of the features follows from


class Split(NamedTuple):
    """Rows to stream and rows to test on."""

    X: Float[np.ndarray, "n d"]
    y: Int64[np.ndarray, " n"]
    X_test: Float[np.ndarray, "m d"]
    y_test: Int64[np.ndarray, " m"]


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
    """Return numbers of rows, evenly spaced on a logarithmic scale, at which a stream is looked at.

    Examples
    --------
    >>> checkpoints(10, 1000, 5)
    [10, 32, 100, 316, 1000]
    """
    return [int(n) for n in np.unique(np.geomspace(min(first, n_rows), n_rows, n_checkpoints).round())]


def _tasks(settings: Settings) -> list[Task]:
    choices: list[tuple[str, float | None]] = [("gauss", None)]
    choices += [(method, alpha_eps) for method in MATCHED for alpha_eps in settings["alpha_eps"]]
    choices += [("adf", None), ("sgd", None)]
    return [
        {"dataset": dataset, "seed": seed, "method": method, "alpha_eps": alpha_eps}
        for dataset in settings["datasets"]
        for seed in range(settings["n_seeds"])
        for method, alpha_eps in choices
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    sizes = settings["n_rows"], settings["n_test"], tuple(settings["widths"])
    number = int(task["seed"])  # type: ignore[arg-type]
    split = stream(str(task["dataset"]), number, *sizes, VGGSettings(**settings["vgg"]))
    model = make_model(str(task["method"]), task["alpha_eps"], settings, seed)
    classes = np.arange(int(max(split.y.max(), split.y_test.max())) + 1)
    marks = checkpoints(settings["first"], len(split.X), settings["n_checkpoints"])
    records: list[Record] = []
    for start, stop in pairwise([0, *marks]):
        model.partial_fit(split.X[start:stop], split.y[start:stop], classes=classes)
        probs = model.predict_proba(split.X_test)
        soon = slice(stop, stop + settings["n_next"])
        records.append(
            {
                "n_seen": stop,
                "accuracy": round(metrics.accuracy(probs, split.y_test), 6),
                "log_likelihood": round(-metrics.nll(probs, split.y_test), 6),
                "next_log_likelihood": _next_log_likelihood(model, split.X[soon], split.y[soon]),
            }
        )
    return records


def make_model(method: str, alpha_eps: Any, settings: Settings, seed: int) -> Any:
    """Return the estimator of a method, with scikit-learn's ``partial_fit`` and ``predict_proba``."""
    from gaussify.linear import BayesianLogisticRegression
    from gaussify.linear.baselines import ADFClassifier, MomentumSGDClassifier

    if method == "sgd":
        return MomentumSGDClassifier(random_state=seed)
    prior = {name: settings[name] for name in ("prior_variance", "intercept_variance")}
    if method == "adf":
        return ADFClassifier(**prior, n_samples=settings["n_samples"], random_state=seed)
    alpha_eps = 0.1 if alpha_eps is None else alpha_eps  # which 'gauss' does not use
    method = LikelihoodMethod(method).value
    return BayesianLogisticRegression(method, alpha_eps, temperature=1.0, reservoir_size=0, **prior)


def _next_log_likelihood(model: Any, X: np.ndarray, y: np.ndarray) -> float | None:
    """Score rows of the stream just before they are learnt; None at its end."""
    return round(-metrics.nll(model.predict_proba(X), y), 6) if len(X) else None


@lru_cache(maxsize=1)  # tasks of one data set and seed follow each other
def stream(dataset: str, seed: int, n_rows: int, n_test: int, widths: tuple[int, ...], vgg: VGGSettings) -> Split:
    """Return features in the order of a stream; the seed decides the order and the random network.

    Pixels are centred and scaled, and features scaled, by one number each that follows from the first hundred rows.
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
    return Split(X, y[order], X_test, y_test[test_order])


def _scaled(X: np.ndarray) -> np.ndarray:
    return X / np.sqrt(np.mean(np.square(X[:_N_SCALED_BY])))


@lru_cache(maxsize=1)
def _rows(dataset: str, vgg: VGGSettings) -> tuple[Any, Any, Any, Any]:
    """Return rows and labels to stream, and those to test on, as they are stored."""
    if dataset in _BUNDLED:
        from sklearn.datasets import load_digits, load_iris

        X, y = {"digits": load_digits, "iris": load_iris}[dataset](return_X_y=True)
        rows = np.random.default_rng(0).permutation(len(X))
        first, rest = np.split(rows, [2 * len(X) // 3])
        return X[first], y[first], X[rest], y[rest]
    if dataset == "cifar10":
        features = cifar10_features(vgg, report=partial(print, file=sys.stderr, flush=True))
        return features.X_stream.numpy(), features.y_stream.numpy(), features.X_test.numpy(), features.y_test.numpy()
    data = datasets.load(dataset)
    return data.X_train, data.y_train, data.X_test, data.y_test


def _summarise(records: list[Record]) -> list[Record]:
    """Scores early on (the last look before a twentieth of the rows) and at the end, mean and standard error.

    ``chosen`` marks the alpha_eps that predicted the rows to come best, at the last look but one: what a user of the
    stream could choose without test rows.
    """
    chosen = choose_alpha_eps(records)
    rows: list[Record] = []
    for key, own in group(records, "dataset", "method", "alpha_eps").items():
        dataset, method, alpha_eps = key
        seen = sorted({int(record["n_seen"]) for record in own})  # type: ignore[arg-type]
        early = max([n for n in seen if n <= seen[-1] / 20], default=seen[0])
        row: Record = {"dataset": dataset, "method": method, "alpha_eps": alpha_eps}
        row["chosen"] = chosen[dataset, method] == alpha_eps
        for when, n_seen in (("_early", early), ("", seen[-1])):
            row[f"n_seen{when}"] = n_seen
            for score, short in (("accuracy", "acc"), ("log_likelihood", "ll")):
                mean, error = mean_and_error(record[score] for record in own if record["n_seen"] == n_seen)
                row[f"{short}{when}"], row[f"{short}_se{when}"] = round(mean, 4), round(error, 4)
        rows.append(row)
    return rows


def choose_alpha_eps(records: list[Record]) -> dict[tuple[Scalar, Scalar], Scalar]:
    """Return, by data set and method, the alpha_eps with the best log-likelihood of rows about to be learnt."""
    known = [record for record in records if record["next_log_likelihood"] is not None]
    last = {key: max(int(r["n_seen"]) for r in own) for key, own in group(known, "dataset").items()}  # type: ignore[arg-type]
    ends = [record for record in known if record["n_seen"] == last[record["dataset"],]]
    chosen = of_best_alpha_eps(ends, "dataset", "method", score="next_log_likelihood")
    return {(record["dataset"], record["method"]): record["alpha_eps"] for record in chosen}


def _draw(records: list[Record], folder: Path) -> None:
    """Draw scores against rows seen, with the chosen alpha_eps; and scores at the end against alpha_eps."""
    names = [str(dataset) for (dataset,) in group(records, "dataset")]
    size = {"width": 1.2 + 3.2 * len(names), "height": 5.4}
    chosen = choose_alpha_eps(records)
    shown = [record for record in records if chosen[record["dataset"], record["method"]] == record["alpha_eps"]]
    with figure_file(folder, "streaming", 2, len(names), **size) as (figure, axes):
        for dataset, column in zip(names, axes.T, strict=True):
            own = [record for record in shown if record["dataset"] == dataset]
            _fill_column(column, own, "n_seen", dataset, "rows seen")
        _add_legend(figure, axes)
    last = {name: max(int(r["n_seen"]) for r in records if r["dataset"] == name) for name in names}  # type: ignore[arg-type]
    ends = [record for record in records if record["n_seen"] == last[str(record["dataset"])]]
    with figure_file(folder, "alpha_eps", 2, len(names), **size) as (figure, axes):
        for dataset, column in zip(names, axes.T, strict=True):
            own = [record for record in ends if record["dataset"] == dataset]
            _fill_column(column, own, "alpha_eps", dataset, "alpha_eps")
        _add_legend(figure, axes)


def _fill_column(axes: Any, records: list[Record], x: str, title: str, x_label: str) -> None:
    """Draw each score of one data set by method; a method without a value of ``x`` is a level line."""
    for axis, (score, label) in zip(axes, SCORES.items(), strict=True):
        for (method,), own in group(records, "method").items():
            style = {"color": METHOD_COLOURS[str(method)], "label": method}
            points = {at: mean_and_error(r[score] for r in some) for (at,), some in group(own, x).items()}
            if None in points:
                axis.axhline(points[None][0], ls="--", **style)
                continue
            at = np.array(sorted(points), dtype=float)  # type: ignore[type-var]
            mean, error = np.array([points[place] for place in sorted(points)]).T  # type: ignore[type-var]
            axis.plot(at, mean, "o-" if x == "alpha_eps" else "-", ms=3, **style)
            axis.fill_between(at, mean - error, mean + error, color=style["color"], alpha=0.2, lw=0)
        axis.set(xscale="log", xlabel=x_label, ylabel=label)
        axis.set_ylim(bottom=max(axis.get_ylim()[0], _WORST[score]))
    axes[0].set_title(title)


def _add_legend(figure: Any, axes: Any) -> None:
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) if axes.shape[1] > 1 else 3)


# Of the prior variances 0.01, 0.1 and 1, the best or nearly so for matched models on 2000 rows of MNIST and of
# FashionMNIST that are not test rows; 'adf' was not asked.
_COMMON = {"prior_variance": 0.1, "intercept_variance": 1.0, "n_samples": 1000, "first": 20, "n_next": 500}
PRESETS: dict[str, Settings] = {
    "smoke": {
        **_COMMON,
        "datasets": list(_BUNDLED),
        "alpha_eps": [0.1],
        "n_seeds": 2,
        "n_rows": 200,
        "n_test": 200,
        "n_checkpoints": 4,
        "widths": [30],
        "vgg": {},
    },
    "laptop": {
        **_COMMON,
        "datasets": ["mnist", "fashion-mnist", "cifar10"],
        "alpha_eps": [0.01, 0.05, 0.1, 0.5],
        "n_seeds": 3,
        "n_rows": 10_000,
        "n_test": 2000,
        "n_checkpoints": 12,
        "widths": [200],
        "vgg": {"width": 0.5, "n_epochs": 45},
    },
    "paper": {
        **_COMMON,
        "datasets": ["mnist", "fashion-mnist", "cifar10"],
        "alpha_eps": [0.01, 0.05, 0.1, 0.5],
        "n_seeds": 10,
        "n_rows": 60_000,
        "n_test": 10_000,
        "n_checkpoints": 20,
        "widths": [300],
        "vgg": {"width": 1.0, "n_epochs": 200},
    },
}

register(
    Experiment(
        name="streaming",
        title="Online inference for streaming data: the last layer over random or VGG-11 features",
        presets=PRESETS,
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
