r"""Variational inference of the exact model from a cold start and from matched models: bound and test NLL against time.

The reference is :class:`~gaussify.gp.VariationalGPClassifier`, a free Gaussian of every latent's weights, natural
gradients and minibatches. It begins with the prior (``cold``); with a matched model (``matched``); or with one whose
hyperparameters were learnt on by the bound on the exact model (``elbo``). What these models take to be fitted counts,
and so does the first look at them, before any step: that is what they reach alone. Looks themselves are not counted.
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
STARTS = {"cold": "cold start", "matched": "from the matched posterior", "elbo": "from the matched posterior by elbo"}

_COLOURS = {"cold": "#0072B2", "matched": "#D55E00", "elbo": "#009E73"}
_PANELS = {"bound": "bound [nat per row]", "nll": "test NLL [nat]"}
_CLOSE = 0.01  # nats a row, from the end of the cold start


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
    from gaussify.gp._objective import SortedRows
    from gaussify.gp._variational import COLD_RATE, WARM_RATE, Optimizer, TrainingSettings, VariationalTrainer
    from gaussify.gp._variational_classifier import cold_start, matched_start

    n_classes = int(split.y.max()) + 1
    rows = SortedRows.of(scaled(split, split.X), torch.from_numpy(split.y), n_classes=n_classes)
    settings = TrainingSettings(Optimizer(optimizer), batch_size, COLD_RATE if start == "cold" else WARM_RATE)
    likelihood: Any = SoftmaxLikelihood(n_classes)
    if start == "cold":
        begin = cold_start(rows, likelihood, n_inducing=n_inducing)
    else:
        model = GPClassifier(n_inducing=n_inducing, objective=start, max_iter=max_iter).fit(split.X, split.y)
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
    """Return when a bound was first reached, in looks of one run.

    Examples
    --------
    >>> looks = [{"seconds": 1.0, "bound": -3.0}, {"seconds": 2.0, "bound": -2.0}]
    >>> seconds_to(looks, -2.5), seconds_to(looks, -1.0)
    (2.0, None)
    """
    reached = [float(r["seconds"]) for r in records if float(r["bound"]) >= bound]  # type: ignore[arg-type]
    return min(reached, default=None)


def _summarise(records: list[Record]) -> list[Record]:
    """What each start reaches before any step and at the end, and when it is close to where the cold start ends."""
    rows: list[Record] = []
    for key, some in group(records, "dataset", "optimizer", "split").items():
        runs = {str(start): own for (start,), own in group(some, "start").items()}
        target = float(runs["cold"][-1]["bound"]) - _CLOSE  # type: ignore[arg-type]
        slow = seconds_to(runs["cold"], target)
        for start, own in runs.items():
            seconds = seconds_to(own, target)
            row: Record = dict(zip(("dataset", "optimizer", "split"), key, strict=True))
            row |= {"start": start, "seconds_first": own[0]["seconds"], "seconds_to_cold_end": seconds}
            row["times_sooner"] = None if seconds is None or slow is None else round(slow / seconds, 2)
            for column in ("bound", "nll"):
                row |= {f"{column}_first": own[0][column], f"{column}_last": own[-1][column]}
            rows.append(row | {"nll_least": min(float(record["nll"]) for record in own)})  # type: ignore[arg-type]
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
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) if len(names) > 1 else 1)


def _fill_panel(axis: Any, runs: dict[str, list[Record]], metric: str) -> None:
    """Draw a line for each start; the beginning of the cold one, far from all others, is cut off."""
    shown: list[float] = []
    for start, own in runs.items():
        seconds, values = ([float(record[name]) for record in own] for name in ("seconds", metric))  # type: ignore[arg-type]
        axis.plot(seconds, values, ".-", ms=4, lw=1.2, color=_COLOURS[start], label=STARTS[start])
        shown += values[-1:] if start == "cold" else values
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
