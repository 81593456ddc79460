"""The cost of learning from a stream, against raw matrix products and against peers, as ratios in one run.

``speed_ratio`` is the speed of a contender over that of the reference of its measurement: the raw matrix product for
blocks, two classes for the number of classes, and gaussify for the others (a value below one is slower than gaussify).
"""

import itertools
import math
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
from gaussify.experiments import _lab as lab
from gaussify.experiments.benchmarks._posterior_oracle import PosteriorMoments, logistic_posterior_moments
from gaussify.linear import BayesianLogisticRegression
from gaussify.linear.baselines import ADFClassifier
from gaussify.plotting import figure_file

_Floats = NDArray[np.float64]
_Labels = NDArray[np.int64]

_FIXED: dict[str, Any] = {"alpha_eps": 0.1, "temperature": 1.0, "prior_variance": 1.0}
_RATES = (0.003, 0.01, 0.03, 0.1, 0.3)  # of peers that learn by gradient steps
_SMALLEST = 1e-15  # probability in a log-loss, as usual
_Stepper = tuple[Callable[[int], _Floats], Callable[[int], None]]  # return the probabilities of row i; learn row i


def _softmax_stream(n: int, d: int, n_classes: int, seed: int, scale: float = 3.0) -> tuple[_Floats, _Labels]:
    """Return rows, and labels that follow a softmax of linear logits with standard deviation ``scale``."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    weights = generator.normal(size=(d, n_classes)) * scale / math.sqrt(d)
    return X, (X @ weights + generator.gumbel(size=(n, n_classes))).argmax(1)


def _learn_blocks(X: _Floats, y: _Labels, n_classes: int, block: int) -> None:
    """Learn all rows, including those that wait in the buffer."""
    model = BayesianLogisticRegression()
    for start in range(0, len(X), block):
        part = slice(start, start + block)
        model.partial_fit(X[part], y[part], classes=np.arange(n_classes) if start == 0 else None)
    _ = model._accumulator.statistics  # unlike statistics_, not a copy, which would take time


def _blocks(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Rows in blocks, against the Gram matrix of the same rows: by torch, and by NumPy, which computes half of it."""
    n, d, block = settings["n_rows"], settings["n_features"], settings["block"]
    X, y = _softmax_stream(n, d, 10, seed)
    rows = torch.from_numpy(X)
    runs: dict[str, Callable[[], object]] = {
        "gaussify": partial(_learn_blocks, X, y, 10, block),
        "matrix product": lambda: rows.T @ rows,
        "matrix product, in blocks": lambda: [rows[i : i + block].T @ rows[i : i + block] for i in range(0, n, block)],
        "symmetric matrix product": lambda: X.T @ X,
    }
    times = lab.best_times(runs, settings["n_repeats"])
    for name, seconds in times.items():
        ratio = times["matrix product"] / seconds
        yield {"contender": name, "microseconds_per_row": 1e6 * seconds / n, "speed_ratio": ratio}


def _classes(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Rows in blocks with 2 to 100 classes, against two classes."""
    n, d, block = settings["n_rows"], settings["n_features"], settings["block"]
    streams = {k: _softmax_stream(n, d, k, seed) for k in settings["n_classes"]}
    runs = {str(k): partial(_learn_blocks, X, y, k, block) for k, (X, y) in streams.items()}
    times = lab.best_times(runs, 2 * settings["n_repeats"])  # many classes need new memory, which is slow at times
    fewest = times[str(min(settings["n_classes"]))]
    for k, seconds in times.items():
        yield {"contender": f"{k} classes", "microseconds_per_row": 1e6 * seconds / n, "speed_ratio": fewest / seconds}


def _peer(module: str) -> Any:
    return import_optional(module, extra="bench", needed_by="gaussify reproduce updates")


def _sklearn_stepper(model: Any, X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """Return functions that predict and learn row i by scikit-learn's interface."""
    model.partial_fit(X[:1], y[:1], classes=np.arange(n_classes))

    def learn(i: int) -> None:
        model.partial_fit(X[i : i + 1], y[i : i + 1])

    return (lambda i: model.predict_proba(X[i : i + 1])[0]), learn


def _sgd_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """Return the functions of the learning rate that is best on this very stream, in hindsight."""
    from sklearn.linear_model import SGDClassifier

    rates: list[dict[str, Any]] = [{}, *({"learning_rate": "constant", "eta0": rate} for rate in _RATES)]
    make = partial(SGDClassifier, loss="log_loss", random_state=0)
    half = len(X) // 2

    def loss(rate: dict[str, Any]) -> float:
        model = make(**rate).partial_fit(X[:half], y[:half], classes=np.arange(n_classes))
        return _log_loss(model.predict_proba(X[half:]), y[half:])

    return _sklearn_stepper(make(**min(rates, key=loss)), X, y, n_classes)


def _river_stepper(X: _Floats, y: _Labels, n_classes: int) -> _Stepper:
    """Return the functions of the learning rate that is best on this very stream, in hindsight."""
    linear_model, optim = _peer("river.linear_model"), _peer("river.optim")
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
    "gaussify": lambda *stream: _sklearn_stepper(BayesianLogisticRegression(), *stream),
    "scikit-learn SGDClassifier": _sgd_stepper,
    "river SoftmaxRegression": _river_stepper,
    "ADF": lambda *stream: _sklearn_stepper(ADFClassifier(), *stream),
}


def _rows(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
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
        cost = {"microseconds_per_row": 1e6 * per_row, "speed_ratio": own / per_row, "n_rows": limits[name]}
        loss, own_loss = (float(np.mean(some)) for some in (losses[name][1:], losses["gaussify"][1 : limits[name]]))
        yield {"contender": name, **cost, "log_loss": loss, "gaussify_log_loss": own_loss}


def _binary(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Two classes, one row at a time: standard deviations of the posterior against long MCMC under the same prior.

    The prior is the distribution that the true weights are drawn from, for logits of several standard deviations. The
    numbers are means over streams. gaussify tunes once more at the end, and this time counts. With default settings it
    chooses its own prior.
    """
    for scale in settings["binary_scales"]:
        streams = [_binary_stream(settings, scale, seed + stream) for stream in range(settings["n_binary_streams"])]
        own = float(np.mean([stream["gaussify"]["seconds"] for stream in streams]))
        for name in streams[0]:
            mean = {key: float(np.mean([stream[name][key] for stream in streams])) for key in streams[0][name]}
            seconds = mean.pop("seconds")
            cost = {"microseconds_per_row": 1e6 * seconds, "speed_ratio": own / seconds}
            yield {"contender": name, "logit_std": float(scale), **cost, **mean}


def _binary_stream(settings: lab.Settings, scale: float, seed: int) -> dict[str, dict[str, float]]:
    """Return seconds a row and errors of every contender on one stream."""
    bandits = _peer("bayesianbandits")
    n, d = settings["n_binary_rows"], settings["binary_features"]
    X, y, variance, moments = _known_posterior(settings, n, d, scale, seed)
    glm = partial(bandits.BayesianGLM, alpha=1.0 / variance)
    models: dict[str, Any] = {
        "gaussify": _binary_model(variance),
        "gaussify, default settings": BayesianLogisticRegression(fit_intercept=False),
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
        covariance = model.covariance_[0] if name.startswith("gaussify") else np.linalg.inv(model.cov_inv_)
        std, mean = np.sqrt(np.diag(covariance)), np.ravel(model.coef_)
        results[name] = {
            "seconds": seconds[name] / n,
            "std_error": float(np.abs(std / moments.std - 1.0).mean()),
            "mean_error": float(np.sqrt(np.mean(((mean - moments.mean) / moments.std) ** 2))),
            "std_error_of_mcmc": moments.std_error,
        }
    return results


def _known_posterior(
    settings: lab.Settings, n: int, d: int, scale: float, seed: int
) -> tuple[_Floats, _Labels, float, PosteriorMoments]:
    """Return rows and labels, the prior variance of the weights, and moments of their exact posterior."""
    X, y = _softmax_stream(n, d, 2, seed, scale=scale / math.sqrt(2.0))  # the logit is a difference of two
    variance = scale**2 / d
    return X, y, variance, logistic_posterior_moments(X, y, variance, n_steps=settings["n_mcmc_steps"], seed=seed)


def _binary_model(variance: float) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(alpha_eps=0.1, prior_variance=variance, dispersion="auto", fit_intercept=False)


def _few_features(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Two classes and few features, where an average of the information replaces that of very different rows."""
    n = settings["n_binary_rows"]
    for d, scale in itertools.product(settings["few_features"], settings["binary_scales"]):
        X, y, variance, moments = _known_posterior(settings, n, d, scale, seed)
        model = _binary_model(variance).fit(X, y)
        ratio = np.sqrt(np.diag(model.covariance_[0])) / moments.std
        errors = {"std_error": float(np.abs(ratio - 1.0).mean()), "std_error_of_mcmc": moments.std_error}
        case = {"contender": f"{d} features", "logit_std": float(scale)}
        yield case | {"std_ratio": float(ratio.mean())} | errors


def _many_classes(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """128 features and 3100 classes, in a separate process, whose peak memory is measured."""
    sizes = [settings[name] for name in ("many_features", "many_classes", "many_rows")]
    *seconds, peak = lab.run_alone(__name__, "fit_many_classes", *sizes, seed)
    steps = ("fit", "predict a batch of 128", "choose everything automatically")
    for name, own in zip(steps, seconds, strict=True):
        yield {"contender": name, "seconds": own, "peak_gibibytes": peak}


def fit_many_classes(d: int, n_classes: int, n: int, seed: int) -> None:
    """Fit, predict and choose all parameters, and print the seconds of each and the peak memory in gibibytes."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = generator.normal(size=(n_classes, d))
    X = centres[y] + generator.normal(size=(n, d))
    model = BayesianLogisticRegression(**_FIXED)
    marks = [time.perf_counter()]
    model.fit(X, y)
    marks.append(time.perf_counter())
    model.predict_proba(X[:128])
    marks.append(time.perf_counter())
    model.set_params(**dict.fromkeys(_FIXED, "auto")).tune()
    print(*np.diff([*marks, time.perf_counter()]), lab.peak_gibibytes())


_MEASUREMENTS: dict[str, Callable[[lab.Settings, int], Iterator[lab.Record]]] = {
    "blocks": _blocks,
    "number of classes": _classes,
    "row by row": _rows,
    "binary posterior": _binary,
    "binary posterior, few features": _few_features,
    "many classes": _many_classes,
}


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(measurement=_MEASUREMENTS)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    records = _MEASUREMENTS[task["measurement"]](settings, seed % 2**31)
    return [{name: lab.significant(value) for name, value in record.items()} for record in records]


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the microseconds a row of every contender, on a logarithmic axis."""
    first = next((r["logit_std"] for r in records if r.get("logit_std") is not None), None)
    timed = [r for r in records if r.get("speed_ratio") is not None and r.get("logit_std") in (None, first)]
    groups = lab.by(timed, "measurement")
    with figure_file(folder, "updates", 1, len(groups), width=4.2 * len(groups), height=2.6) as (_, axes):
        for axis, (name, own) in zip(axes[0], groups.items(), strict=True):
            lab.draw_bars(axis, own, "microseconds_per_row", label_size=7.0)
            axis.set(xscale="log", xlabel="microseconds a row", title=name)
            # Whole decades have labelled ticks at both ends; labels of the ticks between them would overlap
            values = [record["microseconds_per_row"] for record in own]
            axis.set_xlim(10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values))))
            axis.xaxis.set_minor_formatter("")


TITLE = "Cost of learning from a stream, against matrix products and peers in one interleaved run"
PRESETS = lab.presets(
    dict(n_rows=20_000, n_features=500, block=1000, n_classes=[2, 10, 30, 100], n_repeats=5, row_features=50)
    | dict(n_single_rows=20_000, n_adf_rows=2000, binary_features=100, n_binary_rows=2000, n_binary_streams=4)
    | dict(binary_scales=[1.0, 2.0, 3.0], few_features=[1, 5, 20], n_mcmc_steps=1000, many_features=128)
    | dict(many_classes=3100, many_rows=62_000),
    smoke=dict(n_rows=400, n_features=20, block=100, n_classes=[2, 5], n_repeats=1, row_features=5)
    | dict(n_single_rows=60, n_adf_rows=20, binary_features=5, n_binary_rows=60, n_binary_streams=1)
    | dict(binary_scales=[1.0], few_features=[2], n_mcmc_steps=100, many_features=8, many_classes=20)
    | dict(many_rows=100),
    laptop={},
    paper={},
)

lab.register(lab.Experiment("updates", TITLE, PRESETS, _tasks, _run, _draw, list))
