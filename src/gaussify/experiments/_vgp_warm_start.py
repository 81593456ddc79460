r"""Variational inference of the exact model from a cold start and from matched models: bound and test NLL against time.

The reference is :class:`~gaussify.gp.VariationalGPClassifier`, a free Gaussian of every latent's weights, natural
gradients and minibatches. It begins with the prior (``cold``); with a matched model after a few iterations, with
targets whose bound is high (``brief``); with the matched model as it comes (``matched``); or with one whose
hyperparameters were learnt on by the bound on the exact model (``elbo``). What these models take to be fitted counts,
and so does the first look at them, before any step: that is what they reach alone. Looks themselves are not counted;
between two of them, the bound is taken to rise along a line.
"""

import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from gaussify import datasets, metrics
from gaussify.experiments._gpc_uci import Split, make_split
from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, group
from gaussify.likelihoods import SoftmaxLikelihood
from gaussify.plotting import figure_file

TOY = "toy"
STARTS = {
    "cold": "cold start",
    "brief": "from a matched posterior after ten iterations",
    "matched": "from the matched posterior",
    "elbo": "from the matched posterior by elbo",
}

_MATCHED: dict[str, dict[str, Any]] = {  # what is matched to begin with
    "brief": {"method": "moment", "alpha_eps": 0.1, "temperature": 1.0, "max_iter": 10},
    "matched": {},
    "elbo": {"objective": "elbo"},
}
_COLOURS = {"cold": "#0072B2", "brief": "#E69F00", "matched": "#D55E00", "elbo": "#009E73"}
_PANELS = {"bound": "bound [nat per row]", "nll": "test NLL [nat]"}
_CLOSE = (0.1, 0.03, 0.01)  # nats a row, from the end of the cold start


class Look(NamedTuple):
    """A model in training, after some steps and seconds."""

    n_steps: int
    seconds: float
    trainer: Any
    """A ``VariationalTrainer``."""


@lru_cache(maxsize=1)
def load_split(dataset: str, number: int, max_train: int | None = None, max_test: int | None = None) -> Split:
    """Return a split of a table, or four classes in the plane.

    Examples
    --------
    >>> load_split("toy", 0, 100, 50).X_test.shape
    (50, 2)
    """
    if dataset != TOY:
        return make_split(dataset, number, max_train, max_test)
    X, y = datasets.make_four_classes(max_train or 1000, random_state=np.random.default_rng([number, 0]))
    X_test, y_test = datasets.make_four_classes(max_test or 4000, random_state=np.random.default_rng([number, 1]))
    return Split(X, y, X_test, y_test)


def scaled(split: Split, X: Float[np.ndarray, "n d"]) -> Float[torch.Tensor, "n d"]:
    """Return rows in units in which those to learn from have mean zero and variance one, as all contenders take them.

    Examples
    --------
    >>> split = load_split("toy", 0, 100, 50)
    >>> scaled(split, split.X).std(0, correction=0)
    tensor([1., 1.], dtype=torch.float64)
    """
    from gaussify.gp._scaling import ScalingKind, fit_scaling

    return torch.from_numpy(fit_scaling(split.X, np.ones(len(split.y)), ScalingKind.STANDARD)(X))


def make_trainer(
    start: str, split: Split, *, n_inducing: int, max_iter: int, optimizer: str = "natural", batch_size: int = 500
) -> Any:
    """Return a model to train; with a matched one to begin with, this is what takes the time.

    Examples
    --------
    >>> split = load_split("toy", 0, 100, 50)
    >>> cold, warm = (make_trainer(start, split, n_inducing=5, max_iter=10) for start in ("cold", "matched"))
    >>> cold.bound() < warm.bound()
    True
    """
    from gaussify.gp import GPClassifier
    from gaussify.gp._rows import SortedRows
    from gaussify.gp._variational_classifier import cold_start, matched_start
    from gaussify.gp.learning._variational import COLD_RATE, WARM_RATE, Optimizer, TrainingSettings, VariationalTrainer

    n_classes = int(split.y.max()) + 1
    rows = SortedRows.of(scaled(split, split.X), torch.from_numpy(split.y), n_classes=n_classes)
    settings = TrainingSettings(Optimizer(optimizer), batch_size, COLD_RATE if start == "cold" else WARM_RATE)
    likelihood: Any = SoftmaxLikelihood(n_classes)
    if start == "cold":
        begin = cold_start(rows, likelihood, n_inducing=n_inducing)
    else:
        model = GPClassifier(**{"n_inducing": n_inducing, "max_iter": max_iter} | _MATCHED[start]).fit(split.X, split.y)
        likelihood, begin = matched_start(model)
    return VariationalTrainer(rows, likelihood.expected_log_prob, begin, settings)


def watch(start: str, split: Split, time_limit: float, n_looks: int, **options: Any) -> Iterator[Look]:
    """Make a model and train it for so many seconds in all; look at it before the first step, and ever less often."""
    X, y = datasets.make_four_classes(20, random_state=0)
    make_trainer(start, Split(X, y, X, y), n_inducing=2, max_iter=1)  # libraries are loaded once
    begun = time.perf_counter()
    trainer = make_trainer(start, split, **options)
    seconds, n_steps = time.perf_counter() - begun, 0
    yield Look(0, seconds, trainer)
    for mark in time_limit * 2.0 ** np.linspace(-0.5 * (n_looks - 1), 0.0, n_looks):
        before = n_steps
        while seconds < mark:
            begun = time.perf_counter()
            trainer.step(seconds / time_limit)
            seconds += time.perf_counter() - begun
            n_steps += 1
        if n_steps > before:
            yield Look(n_steps, seconds, trainer)


def _tasks(settings: Settings) -> list[Task]:
    return [
        {"dataset": dataset, "split": split, "optimizer": optimizer, "start": start}
        for dataset in settings["datasets"]
        for split in range(settings["n_splits"])
        for optimizer in settings["optimizers"]
        for start in STARTS
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    own = settings["datasets"][str(task["dataset"])]
    split = load_split(str(task["dataset"]), int(task["split"]), own.get("max_train"), own.get("max_test"))  # type: ignore[arg-type]
    options = {"n_inducing": own["n_inducing"], "max_iter": settings["max_iter"], "optimizer": task["optimizer"]}
    records: list[Record] = []
    X_test, likelihood = scaled(split, split.X_test), SoftmaxLikelihood(int(split.y.max()) + 1)
    for look in watch(str(task["start"]), split, own["seconds"], settings["n_looks"], **options):
        probs = likelihood.predict_proba(*look.trainer.latents(X_test)).numpy()
        records.append(
            {
                "n_steps": look.n_steps,
                "seconds": round(look.seconds, 3),
                "bound": round(look.trainer.bound() / len(split.y), 5),
                "nll": round(metrics.nll(probs, split.y_test), 6),
                "ece": round(metrics.ece(probs, split.y_test), 6),
                "error_pct": round(100.0 * (1.0 - metrics.accuracy(probs, split.y_test)), 4),
            }
        )
    return records


def seconds_to(records: list[Record], bound: float) -> float | None:
    """Return when a bound was first reached, between the looks of one run.

    Examples
    --------
    >>> looks = [{"seconds": 1.0, "bound": -3.0}, {"seconds": 2.0, "bound": -2.0}]
    >>> seconds_to(looks, -2.5), seconds_to(looks, -4.0), seconds_to(looks, -1.0)
    (1.5, 1.0, None)
    """
    seconds, bounds = (np.array([float(record[name]) for record in records]) for name in ("seconds", "bound"))  # type: ignore[arg-type]
    highest = np.maximum.accumulate(bounds)
    if highest[-1] < bound:
        return None
    first = int(np.argmax(highest >= bound))
    return float(np.interp(bound, highest[max(first - 1, 0) : first + 1], seconds[max(first - 1, 0) : first + 1]))


def _summarise(records: list[Record]) -> list[Record]:
    """What each start reaches before any step and at the end, and how much sooner it is close to the cold one's end."""
    rows: list[Record] = []
    for key, some in group(records, "dataset", "optimizer", "split").items():
        runs = {str(start): own for (start,), own in group(some, "start").items()}
        end = float(runs["cold"][-1]["bound"])  # type: ignore[arg-type]
        for start, own in runs.items():
            row: Record = dict(zip(("dataset", "optimizer", "split"), key, strict=True))
            row |= {"start": start, "seconds_first": own[0]["seconds"]}
            for column in ("bound", "nll"):
                row |= {f"{column}_first": own[0][column], f"{column}_last": own[-1][column]}
            row["nll_least"] = min(float(record["nll"]) for record in own)  # type: ignore[arg-type]
            for close in _CLOSE:
                seconds, slow = (seconds_to(run, end - close) for run in (own, runs["cold"]))
                assert slow is not None
                row[f"seconds_within_{close:g}"] = None if seconds is None else round(seconds, 2)
                row[f"times_sooner_within_{close:g}"] = None if seconds is None else round(slow / seconds, 2)
            rows.append(row)
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    """Draw bound and test NLL against time; a large dot is what a matched model reaches alone."""
    for (optimizer,), some in group([r for r in records if r["split"] == 0], "optimizer").items():
        names = [dataset for (dataset,) in group(some, "dataset")]
        size = {"width": 1.0 + 3.2 * len(names), "height": 5.6}
        name = f"warm-start-{optimizer}"
        with figure_file(folder, name, len(_PANELS), len(names), sharex="col", **size) as (figure, axes):
            for dataset, column in zip(names, axes.T, strict=True):
                runs = group([r for r in some if r["dataset"] == dataset], "start")
                for metric, axis in zip(_PANELS, column, strict=True):
                    _fill_panel(axis, {str(start): own for (start,), own in runs.items()}, metric)
                column[0].set_title(dataset)
                column[-1].set_xlabel("seconds")
            for label, axis in zip(_PANELS.values(), axes[:, 0], strict=True):
                axis.set_ylabel(label)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(names) > 1 else 1)


def _fill_panel(axis: Any, runs: dict[str, list[Record]], metric: str) -> None:
    """Draw a line for each start; the beginning of the cold one, and of the brief one, may be cut off."""
    shown: list[float] = []
    for start, own in runs.items():
        seconds, values = ([float(record[name]) for record in own] for name in ("seconds", metric))  # type: ignore[arg-type]
        axis.plot(seconds, values, ".-", ms=4, lw=1.2, color=_COLOURS[start], label=STARTS[start])
        shown += values[-1:] if start in ("cold", "brief") else values
        if start != "cold":
            axis.plot(seconds[0], values[0], "o", ms=8, color=_COLOURS[start], mec="white")
    low, high = min(shown), max(shown)
    near, far = 0.1 * (high - low), 0.5 * (high - low)
    axis.set_ylim(*((low - far, high + near) if metric == "bound" else (low - near, high + far)))
    axis.set_xscale("log")


_COMMON: dict[str, Any] = {"optimizers": ["natural"], "n_splits": 1, "max_iter": 80, "n_looks": 14}
_TOY = {"n_inducing": 30, "seconds": 20.0, "max_train": 1000, "max_test": 4000}

register(
    Experiment(
        name="vgp-warm-start",
        title="Variational Gaussian processes from a cold start and from matched posteriors, against time",
        presets={
            "smoke": {
                **_COMMON,
                "datasets": {TOY: {"n_inducing": 8, "seconds": 1.0, "max_train": 100, "max_test": 100}},
                "max_iter": 5,
                "n_looks": 4,
            },
            "laptop": {
                **_COMMON,
                "datasets": {
                    TOY: _TOY,
                    "magic": {"n_inducing": 200, "seconds": 100.0},
                    "letter": {"n_inducing": 200, "seconds": 300.0},
                },
            },
            "paper": {
                **_COMMON,
                "optimizers": ["natural", "adam"],
                "n_splits": 5,
                "datasets": {
                    TOY: _TOY,
                    "magic": {"n_inducing": 200, "seconds": 600.0},
                    "letter": {"n_inducing": 200, "seconds": 3600.0},
                },
            },
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
