"""Variational inference from a cold start and from matched models: bound and test NLL against time.

The reference is :class:`~gaussify.gp.VariationalGPClassifier`: a free Gaussian of every latent's weights, natural
gradients and minibatches. It starts from the prior (``cold``); from a matched model after a few iterations, with
targets whose bound is high (``brief``); from the matched model with default settings (``matched``); or from one whose
hyperparameters were also learnt by the bound with the class likelihood (``elbo``). The time to fit these models counts.
The first scores, before any step, are those of the matched model alone. Scoring itself does not count, and between two
scores the bound is taken to rise along a line.
"""

import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from gaussify import datasets
from gaussify.experiments import _lab as lab
from gaussify.likelihoods import SoftmaxLikelihood

TOY = "toy"
STARTS = {
    "cold": "cold start",
    "brief": "from a matched posterior after ten iterations",
    "matched": "from the matched posterior",
    "elbo": "from the matched posterior by elbo",
}

_BRIEF = {"method": "moment", "alpha_eps": 0.1, "temperature": 1.0, "max_iter": 10}
_MATCHED: dict[str, dict[str, Any]] = {"brief": _BRIEF, "matched": {}, "elbo": {"objective": "elbo"}}  # to start from
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
def load_split(dataset: str, number: int, max_train: int | None = None, max_test: int | None = None) -> lab.Split:
    """Return a split of a table, or four classes in the plane."""
    if dataset != TOY:
        return lab.make_split(dataset, number, max_train, max_test)
    return lab.four_classes(number, max_train or 1000, max_test or 4000)


def scaled(split: lab.Split, X: Float[np.ndarray, "n d"]) -> Float[torch.Tensor, "n d"]:
    """Return rows in units in which the training rows have mean zero and variance one."""
    from sklearn.preprocessing import StandardScaler

    return torch.from_numpy(StandardScaler().fit(split.X).transform(X))


def make_trainer(
    start: str, split: lab.Split, *, n_inducing: int, max_iter: int, optimizer: str = "natural", batch_size: int = 500
) -> Any:
    """Return a model to train. This takes long if a matched model is fitted first."""
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
        likelihood, begin = matched_start(model.fitted_)
    return VariationalTrainer(rows, likelihood.expected_log_prob, begin, settings)


def watch(start: str, split: lab.Split, time_limit: float, n_looks: int, **options: Any) -> Iterator[Look]:
    """Make a model, train it for ``time_limit`` seconds in all, and yield it before the first step and repeatedly."""
    X, y = datasets.make_four_classes(20, random_state=0)
    make_trainer(start, lab.Split(X, y, X, y), n_inducing=2, max_iter=1)  # libraries are loaded once
    begun = time.perf_counter()
    trainer = make_trainer(start, split, **options)
    seconds = time.perf_counter() - begun
    yield Look(0, seconds, trainer)
    marks = time_limit * 2.0 ** np.linspace(-0.5 * (n_looks - 1), 0.0, n_looks)
    for n_steps, own in lab.steps_until(marks, lambda now: trainer.step(now / time_limit), seconds):
        yield Look(n_steps, own, trainer)


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    splits, optimizers = range(settings["n_splits"]), settings["optimizers"]
    return lab.combinations(dataset=settings["datasets"], split=splits, optimizer=optimizers, start=STARTS)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    own = settings["datasets"][task["dataset"]]
    split = load_split(task["dataset"], task["split"], own.get("max_train"), own.get("max_test"))
    options = {"n_inducing": own["n_inducing"], "max_iter": settings["max_iter"], "optimizer": task["optimizer"]}
    records: list[lab.Record] = []
    X_test, likelihood = scaled(split, split.X_test), SoftmaxLikelihood(int(split.y.max()) + 1)
    for look in watch(task["start"], split, own["seconds"], settings["n_looks"], **options):
        probs = likelihood.predict_proba(*look.trainer.latents(X_test))
        bound = round(look.trainer.bound() / len(split.y), 5)
        record: lab.Record = {"n_steps": look.n_steps, "seconds": round(look.seconds, 3), "bound": bound}
        records.append(record | lab.scores(probs, split.y_test, ("nll", "ece", "error_pct")))
    return records


def seconds_to(records: list[lab.Record], bound: float) -> float | None:
    """Return when a bound was first reached, between the looks of one run."""
    seconds, bounds = lab.column(records, "seconds"), lab.column(records, "bound")
    highest = np.maximum.accumulate(bounds)
    if highest[-1] < bound:
        return None
    first = int(np.argmax(highest >= bound))
    return float(np.interp(bound, highest[max(first - 1, 0) : first + 1], seconds[max(first - 1, 0) : first + 1]))


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return what each start reaches first and last, and how much sooner it gets close to the end of the cold start."""
    rows: list[lab.Record] = []
    for key, some in lab.group(records, "dataset", "optimizer", "split").items():
        runs = lab.by(some, "start")
        end = runs["cold"][-1]["bound"]
        for start, own in runs.items():
            row: lab.Record = dict(zip(("dataset", "optimizer", "split"), key, strict=True))
            row |= {"start": start, "seconds_first": own[0]["seconds"]}
            for name in ("bound", "nll"):
                row |= {f"{name}_first": own[0][name], f"{name}_last": own[-1][name]}
            row["nll_least"] = min(record["nll"] for record in own)
            for close in _CLOSE:
                seconds, slow = (seconds_to(run, end - close) for run in (own, runs["cold"]))
                assert slow is not None
                row[f"seconds_within_{close:g}"] = None if seconds is None else round(seconds, 2)
                row[f"times_sooner_within_{close:g}"] = None if seconds is None else round(slow / seconds, 2)
            rows.append(row)
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw bound and test NLL against time; a large dot is what a matched model reaches alone."""
    for optimizer, some in lab.by(lab.select(records, split=0), "optimizer").items():
        columns = lab.by(some, "dataset")
        options: dict[str, Any] = {"width": 1.0 + 3.2 * len(columns), "height": 5.6, "sharex": "col"}
        options |= {"x_label": "seconds", "n_labels": 2 if len(columns) > 1 else 1}
        lab.draw_grid(folder, f"warm-start-{optimizer}", columns, _PANELS, _fill_panel, **options)


def _fill_panel(axis: Any, records: list[lab.Record], metric: str) -> None:
    """Draw a line for each start; the beginning of the cold and of the brief one may be cut off."""
    shown: list[float] = []
    for start, own in lab.by(records, "start").items():
        seconds, values = lab.column(own, "seconds"), lab.column(own, metric)
        axis.plot(seconds, values, ".-", ms=4, lw=1.2, color=_COLOURS[start], label=STARTS[start])
        shown += values.tolist()[-1:] if start in ("cold", "brief") else values.tolist()
        if start != "cold":
            axis.plot(seconds[0], values[0], "o", ms=8, color=_COLOURS[start], mec="white")
    low, high = min(shown), max(shown)
    near, far = 0.1 * (high - low), 0.5 * (high - low)
    axis.set_ylim(*((low - far, high + near) if metric == "bound" else (low - near, high + far)))
    axis.set_xscale("log")


_TOY = {"n_inducing": 30, "seconds": 20.0, "max_train": 1000, "max_test": 4000}


def _data_sets(seconds_magic: float, seconds_letter: float) -> lab.Settings:
    magic, letter = ({"n_inducing": 200, "seconds": seconds} for seconds in (seconds_magic, seconds_letter))
    return {TOY: _TOY, "magic": magic, "letter": letter}


TITLE = "Variational Gaussian processes from a cold start and from matched posteriors, against time"
PRESETS = lab.presets(
    dict(optimizers=["natural"], n_splits=1, max_iter=80, n_looks=14),
    smoke=dict(datasets={TOY: {"n_inducing": 8, "seconds": 1.0, "max_train": 100, "max_test": 100}}, max_iter=5)
    | dict(n_looks=4),
    laptop=dict(datasets=_data_sets(100.0, 300.0)),
    paper=dict(optimizers=["natural", "adam"], n_splits=5, datasets=_data_sets(600.0, 3600.0)),
)

lab.register(lab.Experiment("vgp-warm-start", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
