"""What learning from a stream costs, against raw matrix products and against peers, each a ratio in one run.

``speed_ratio`` is the speed of a contender over that of the reference of its measurement: the raw matrix product for
blocks, two classes for the number of classes, gaussify for the others (below one is slower than gaussify).
"""

import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gaussify._optional import import_optional
from gaussify.experiments.benchmarks._posterior_oracle import logistic_posterior_moments
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record
from gaussify.experiments._lab._timing import best_times
from gaussify.linear import BayesianLogisticRegression
from gaussify.linear.baselines import ADFClassifier
from gaussify.plotting import SERIES_COLOURS, figure_file

_Floats = NDArray[np.float64]
_Labels = NDArray[np.int64]

_FIXED: dict[str, Any] = {"alpha_eps": 0.1, "temperature": 1.0, "prior_variance": 1.0}
_RATES = (0.003, 0.01, 0.03, 0.1, 0.3)  # of peers that learn by gradient steps
_SMALLEST = 1e-15  # probability in a log-loss, as usual
_Stepper = tuple[Callable[[int], _Floats], Callable[[int], None]]  # probabilities of a row, learning from it


def _softmax_stream(n: int, d: int, n_classes: int, seed: int, scale: float = 3.0) -> tuple[_Floats, _Labels]:
    """Rows whose labels follow a softmax of linear logits with standard deviation ``scale``."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    weights = generator.normal(size=(d, n_classes)) * scale / math.sqrt(d)
    return X, (X @ weights + generator.gumbel(size=(n, n_classes))).argmax(1)


def _learn_blocks(X: _Floats, y: _Labels, n_classes: int, block: int) -> BayesianLogisticRegression:
    """Learn everything, rows that wait in the buffer included."""
    model = BayesianLogisticRegression()
    for start in range(0, len(X), block):
        part = slice(start, start + block)
        model.partial_fit(X[part], y[part], classes=np.arange(n_classes) if start == 0 else None)
    _ = model._accumulator.statistics
    return model


def _blocks(settings: Settings, seed: int) -> Iterator[Record]:
    """Rows in blocks, against the product of the same rows with themselves: torch's, and NumPy's, which halves it."""
    n, d, block = settings["n_rows"], settings["n_features"], settings["block"]
    X, y = _softmax_stream(n, d, 10, seed)
    rows = torch.from_numpy(X)
    times = best_times(
        {
            "gaussify": partial(_learn_blocks, X, y, 10, block),
            "matrix product": lambda: rows.T @ rows,
            "matrix product, in blocks": lambda: [
                rows[i : i + block].T @ rows[i : i + block] for i in range(0, n, block)
            ],
            "symmetric matrix product": lambda: X.T @ X,
        },
        settings["n_repeats"],
    )
    for name, seconds in times.items():
        ratio = times["matrix product"] / seconds
        yield {"contender": name, "microseconds_per_row": 1e6 * seconds / n, "speed_ratio": ratio}


def _classes(settings: Settings, seed: int) -> Iterator[Record]:
    """The same with 2 to 100 classes, against two classes."""
    n, d, block = settings["n_rows"], settings["n_features"], settings["block"]
    streams = {k: _softmax_stream(n, d, k, seed) for k in settings["n_classes"]}
    runs = {str(k): partial(_learn_blocks, X, y, k, block) for k, (X, y) in streams.items()}
    times = best_times(runs, 2 * settings["n_repeats"])  # new memory, of which many classes need most, is slow at times
    fewest = times[str(min(settings["n_classes"]))]
    for k, seconds in times.items():
        yield {
            "contender": f"{k} classes",
            "microseconds_per_row": 1e6 * seconds / n,
            "speed_ratio": fewest / seconds,
        }


def _gaussify_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    return _sklearn_stepper(BayesianLogisticRegression(), X, y, n_classes)


def _sklearn_stepper(model: Any, X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """Predict and learn row i by scikit-learn's interface; all classes are declared with the first row."""
    model.partial_fit(X[:1], y[:1], classes=np.arange(n_classes))

    def learn(i: int) -> None:
        model.partial_fit(X[i : i + 1], y[i : i + 1])

    return (lambda i: model.predict_proba(X[i : i + 1])[0]), learn


def _sgd_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """The best of its schedules on this very stream, in hindsight."""
    from sklearn.linear_model import SGDClassifier

    rates: list[dict[str, Any]] = [{}, *({"learning_rate": "constant", "eta0": rate} for rate in _RATES)]
    make = partial(SGDClassifier, loss="log_loss", random_state=0)
    half = len(X) // 2

    def loss(rate: dict[str, Any]) -> float:
        model = make(**rate).partial_fit(X[:half], y[:half], classes=np.arange(n_classes))
        return _log_loss(model.predict_proba(X[half:]), y[half:])

    return _sklearn_stepper(make(**min(rates, key=loss)), X, y, n_classes)


def _adf_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    return _sklearn_stepper(ADFClassifier(), X, y, n_classes)


def _river_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """The best learning rate on this very stream, in hindsight; rows become dictionaries beforehand, uncounted."""
    linear_model = import_optional("river.linear_model", extra="bench", needed_by="gaussify reproduce updates")
    optim = import_optional("river.optim", extra="bench", needed_by="gaussify reproduce updates")
    rows, labels = [dict(enumerate(row)) for row in X.tolist()], y.tolist()
    n_tried = min(len(X), 2000)

    def probs(model: Any, i: int) -> _Floats:
        own = model.predict_proba_one(rows[i])
        return np.array([own.get(k, 0.0) for k in range(n_classes)])

    def loss(rate: float) -> float:
        model = linear_model.SoftmaxRegression(optimizer=optim.SGD(rate))
        predicted = []
        for i in range(n_tried):
            predicted.append(probs(model, i))
            model.learn_one(rows[i], labels[i])
        return _log_loss(np.array(predicted), y[:n_tried])

    best = linear_model.SoftmaxRegression(optimizer=optim.SGD(min(_RATES, key=loss)))
    best.learn_one(rows[0], labels[0])
    return partial(probs, best), lambda i: best.learn_one(rows[i], labels[i])


def _log_loss(probs: _Floats, y: _Labels) -> float:
    return -float(np.log(np.maximum(probs[np.arange(len(y)), y], _SMALLEST)).mean())


_STEPPERS: dict[str, Callable[[_Floats, _Labels, int], _Stepper]] = {
    "gaussify": _gaussify_stepper,
    "scikit-learn SGDClassifier": _sgd_stepper,
    "river SoftmaxRegression": _river_stepper,
    "ADF": _adf_stepper,
}


def _rows(settings: Settings, seed: int) -> Iterator[Record]:
    """One row at a time, predicted before it is learnt; contenders take turns of a hundred rows."""
    d, n_classes, n = settings["row_features"], 10, settings["n_single_rows"]
    X, y = _softmax_stream(n, d, n_classes, seed)
    limits = {name: settings["n_adf_rows"] if name == "ADF" else n for name in _STEPPERS}
    steppers = {name: make(X, y, n_classes) for name, make in _STEPPERS.items()}
    seconds, losses = dict.fromkeys(_STEPPERS, 0.0), {name: [0.0] for name in _STEPPERS}
    for start in range(1, n, 100):
        for name, (predict, learn) in steppers.items():
            begun = time.perf_counter()
            for i in range(start, min(start + 100, limits[name])):
                losses[name].append(-math.log(max(float(predict(i)[y[i]]), _SMALLEST)))
                learn(i)
            seconds[name] += time.perf_counter() - begun
    own = seconds["gaussify"] / (limits["gaussify"] - 1)
    for name, total in seconds.items():
        per_row = total / (limits[name] - 1)
        yield {
            "contender": name,
            "microseconds_per_row": 1e6 * per_row,
            "speed_ratio": own / per_row,
            "n_rows": limits[name],
            "log_loss": float(np.mean(losses[name][1:])),
            "gaussify_log_loss": float(np.mean(losses["gaussify"][1 : limits[name]])),
        }


def _binary(settings: Settings, seed: int) -> Iterator[Record]:
    """Two classes, one row at a time: the standard deviation of the posterior against long MCMC under one prior.

    The prior is the distribution that the true weights are drawn from, for logits of several standard deviations.
    gaussify tunes once more at the end, which counts. Means over streams. "gaussify, as it comes" chooses its prior.
    """
    for scale in settings["binary_scales"]:
        streams = [_binary_stream(settings, scale, seed + stream) for stream in range(settings["n_binary_streams"])]
        own = float(np.mean([stream["gaussify"]["seconds"] for stream in streams]))
        for name in streams[0]:
            mean = {key: float(np.mean([stream[name][key] for stream in streams])) for key in streams[0][name]}
            seconds = mean.pop("seconds")
            yield {
                "contender": name,
                "logit_std": float(scale),
                "microseconds_per_row": 1e6 * seconds,
                "speed_ratio": own / seconds,
                **mean,
            }


def _binary_stream(settings: Settings, scale: float, seed: int) -> dict[str, dict[str, float]]:
    """Seconds a row and errors of every contender on one stream."""
    bandits = import_optional("bayesianbandits", extra="bench", needed_by="gaussify reproduce updates")
    n, d = settings["n_binary_rows"], settings["binary_features"]
    X, y = _softmax_stream(n, d, 2, seed, scale=scale / math.sqrt(2.0))  # the logit is a difference of two
    variance = scale**2 / d
    moments = logistic_posterior_moments(X, y, variance, n_steps=settings["n_mcmc_steps"], seed=seed)
    glm = partial(bandits.BayesianGLM, alpha=1.0 / variance)
    models: dict[str, Any] = {
        "gaussify": BayesianLogisticRegression(
            alpha_eps=0.1, prior_variance=variance, dispersion="auto", fit_intercept=False
        ),
        "gaussify, as it comes": BayesianLogisticRegression(fit_intercept=False),
        "bayesianbandits Laplace": glm(approximator=bandits.LaplaceApproximator()),
        "bayesianbandits Laplace, 1 step": glm(approximator=bandits.LaplaceApproximator(n_iter=1)),
        "bayesianbandits R-VGA": glm(approximator=bandits.RVGAApproximator()),
    }
    seconds = dict.fromkeys(models, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that five steps did not converge
        for start in range(0, n, 50):
            for name, model in models.items():
                begun = time.perf_counter()
                for i in range(start, min(start + 50, n)):
                    declared = {"classes": [0, 1]} if i == 0 and name.startswith("gaussify") else {}
                    model.partial_fit(X[i : i + 1], y[i : i + 1], **declared)
                    _ = model.coef_  # gaussify conditions when it is asked
                if start + 50 >= n and name.startswith("gaussify"):
                    model.tune()
                seconds[name] += time.perf_counter() - begun
    results = {}
    for name, model in models.items():
        if name.startswith("gaussify"):
            covariance = model.covariance_[0]
        else:
            covariance = np.linalg.inv(model.cov_inv_)
        std, mean = np.sqrt(np.diag(covariance)), np.ravel(model.coef_)
        results[name] = {
            "seconds": seconds[name] / n,
            "std_error": float(np.abs(std / moments.std - 1.0).mean()),
            "mean_error": float(np.sqrt(np.mean(((mean - moments.mean) / moments.std) ** 2))),
            "std_error_of_mcmc": moments.std_error,
        }
    return results


def _few_features(settings: Settings, seed: int) -> Iterator[Record]:
    """Two classes and few features, where one average of the information must stand for very different rows."""
    n = settings["n_binary_rows"]
    for d in settings["few_features"]:
        for scale in settings["binary_scales"]:
            X, y = _softmax_stream(n, d, 2, seed, scale=scale / math.sqrt(2.0))
            variance = scale**2 / d
            moments = logistic_posterior_moments(X, y, variance, n_steps=settings["n_mcmc_steps"], seed=seed)
            model = BayesianLogisticRegression(
                alpha_eps=0.1, prior_variance=variance, dispersion="auto", fit_intercept=False
            ).fit(X, y)
            ratio = np.sqrt(np.diag(model.covariance_[0])) / moments.std
            yield {
                "contender": f"{d} features",
                "logit_std": float(scale),
                "std_ratio": float(ratio.mean()),
                "std_error": float(np.abs(ratio - 1.0).mean()),
                "std_error_of_mcmc": moments.std_error,
            }


def _many_classes(settings: Settings, seed: int) -> Iterator[Record]:
    """128 features and 3100 classes, in a process of its own, whose largest memory counts."""
    d, n_classes, n = settings["many_features"], settings["many_classes"], settings["many_rows"]
    program = (
        f"from gaussify.experiments.benchmarks._updates import fit_many_classes; fit_many_classes({d}, {n_classes}, {n}, {seed})"
    )
    command = [sys.executable, "-c", program]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    fit, predict, automatic, gibibytes = map(float, words)
    steps = {"fit": fit, "predict a batch of 128": predict, "choose everything automatically": automatic}
    for name, seconds in steps.items():
        yield {"contender": name, "seconds": seconds, "peak_gibibytes": gibibytes}


def fit_many_classes(d: int, n_classes: int, n: int, seed: int) -> None:
    """Fit, predict, choose everything automatically, and print the seconds of each and the process's peak memory."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = generator.normal(size=(n_classes, d))
    X = centres[y] + generator.normal(size=(n, d))
    model = BayesianLogisticRegression(**_FIXED)
    marks = [time.perf_counter()]
    for step in (lambda: model.fit(X, y), lambda: model.predict_proba(X[:128]), lambda: _automatic(model)):
        step()
        marks.append(time.perf_counter())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # of KiB
    print(*np.diff(marks), peak)


def _automatic(model: BayesianLogisticRegression) -> None:
    model.set_params(**dict.fromkeys(_FIXED, "auto")).tune()


_MEASUREMENTS: dict[str, Callable[[Settings, int], Iterator[Record]]] = {
    "blocks": _blocks,
    "number of classes": _classes,
    "row by row": _rows,
    "binary posterior": _binary,
    "binary posterior, few features": _few_features,
    "many classes": _many_classes,
}


def _tasks(settings: Settings) -> list[Task]:
    return [{"measurement": name} for name in _MEASUREMENTS]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    records = _MEASUREMENTS[str(task["measurement"])](settings, seed % 2**31)
    return [
        {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in record.items()}
        for record in records
    ]


def _draw(records: list[Record], folder: Path) -> None:
    """Microseconds a row of every contender, on a logarithmic axis."""
    first = next((r["logit_std"] for r in records if r.get("logit_std") is not None), None)
    timed = [r for r in records if r.get("speed_ratio") is not None and r.get("logit_std") in (None, first)]
    groups = list(dict.fromkeys(str(record["measurement"]) for record in timed))
    with figure_file(folder, "updates", 1, len(groups), width=4.2 * len(groups), height=2.6) as (_, axes):
        for axis, group in zip(axes[0], groups, strict=True):
            own = [record for record in timed if record["measurement"] == group][::-1]
            bars = axis.barh(
                [str(record["contender"]) for record in own],
                [record["microseconds_per_row"] for record in own],
                color=[SERIES_COLOURS[0] if record["contender"] == "gaussify" else "#bbbbbb" for record in own],
            )
            axis.bar_label(bars, fmt="%.3g", padding=2, fontsize=7)
            axis.set(xscale="log", xlabel="microseconds a row", title=group)
            axis.margins(x=0.15)


_PAPER: dict[str, Any] = {
    "n_rows": 20_000,
    "n_features": 500,
    "block": 1000,
    "n_classes": [2, 10, 30, 100],
    "n_repeats": 5,
    "row_features": 50,
    "n_single_rows": 20_000,
    "n_adf_rows": 2000,
    "binary_features": 100,
    "n_binary_rows": 2000,
    "n_binary_streams": 4,
    "binary_scales": [1.0, 2.0, 3.0],
    "few_features": [1, 5, 20],
    "n_mcmc_steps": 1000,
    "many_features": 128,
    "many_classes": 3100,
    "many_rows": 62_000,
}

register(
    Experiment(
        name="updates",
        title="Cost of learning from a stream, against matrix products and peers in one interleaved run",
        presets={
            "smoke": {
                **_PAPER,
                "n_rows": 400,
                "n_features": 20,
                "block": 100,
                "n_classes": [2, 5],
                "n_repeats": 1,
                "row_features": 5,
                "n_single_rows": 60,
                "n_adf_rows": 20,
                "binary_features": 5,
                "n_binary_rows": 60,
                "binary_scales": [1.0],
                "few_features": [2],
                "n_binary_streams": 1,
                "n_mcmc_steps": 100,
                "many_features": 8,
                "many_classes": 20,
                "many_rows": 100,
            },
            "laptop": _PAPER,
            "paper": _PAPER,
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=lambda records: records,
    )
)
