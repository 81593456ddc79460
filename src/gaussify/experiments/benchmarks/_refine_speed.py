"""The cost of refined sites: seconds and peak memory of a fit, as ratios to scikit-learn's logistic regression.

Features are standard normal, and labels follow the softmax of linear logits. The models take turns, and the best time
counts. Choices by leave-one-out are part of a fit. Peak memory is that of a separate process that also generates the
rows; ``gibibytes_before`` is its peak before the fit.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gaussify import datasets
from gaussify.experiments import _lab as lab
from gaussify.experiments._lab._timing import best_times, peak_gibibytes, run_alone
from gaussify.experiments.benchmarks._linear_models import (
    COLOURS,
    DEFAULT,
    MATCHED,
    fit,
    is_refined,
    linear_models,
    own_models,
)
from gaussify.plotting import figure_file

_CONTENDERS = (DEFAULT, *own_models())
_COLUMNS = ("time_ratio", "peak_gibibytes")


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    sizes = {name: settings[name] for name in ("n_rows", "n_features")}
    return [{"n_classes": n_classes, **sizes} for n_classes in settings["n_classes"]]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    shape = task["n_rows"], task["n_features"], task["n_classes"]
    X, y = _rows(*shape, seed)
    models = linear_models()
    measured = [name for name in _CONTENDERS if name in settings["memory_of"]]
    alone = {name: run_alone(__name__, "fit_alone", name, *shape, seed) for name in measured}
    last: dict[str, Any] = {}

    def learn(name: str) -> None:
        last[name], _ = fit(models[name], X, y)

    times = best_times({name: partial(learn, name) for name in _CONTENDERS}, settings["n_repeats"])
    return [
        {"method": name, "seconds": lab.significant(seconds), "time_ratio": lab.significant(seconds / times[DEFAULT])}
        | _memory(alone.get(name))
        | {"n_iterations": _n_iterations(last[name]), "refined": is_refined(last[name])}
        for name, seconds in times.items()
    ]


def _rows(n_rows: int, n_features: int, n_classes: int, seed: int) -> tuple[Any, Any]:
    return datasets.make_drifting_stream(n_rows, n_features, n_classes, drift="none", random_state=seed)


def fit_alone(name: str, n_rows: int, n_features: int, n_classes: int, seed: int) -> None:
    """Fit one model, and print the peak memory of this process before and after, in gibibytes."""
    X, y = _rows(n_rows, n_features, n_classes, seed)
    fit(linear_models()[name], X[:200], y[:200])  # what is imported and allocated once
    before = peak_gibibytes()
    fit(linear_models()[name], X, y)
    print(before, peak_gibibytes())


def _memory(alone: list[float] | None) -> lab.Record:
    before, peak = (None, None) if alone is None else (lab.significant(value) for value in alone)
    return {"gibibytes_before": before, "peak_gibibytes": peak}


def _n_iterations(model: Any) -> int | None:
    """Return how many iterations scikit-learn's model took."""
    found = getattr(model, "n_iter_", None)
    return None if found is None else int(np.max(found))


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw time ratios and peaks as bars, a row of panels for each number of classes."""
    sizes = lab.by(records, "n_classes")
    labels = {"time_ratio": "seconds / logistic regression", "peak_gibibytes": "peak memory [GiB]"}
    size = {"width": 8.0, "height": 0.8 + 1.4 * len(sizes)}
    with figure_file(folder, "refine_speed", len(sizes), len(_COLUMNS), **size) as (_, axes):
        for panels, (n_classes, own) in zip(axes, sizes.items(), strict=True):
            rows = own[::-1]
            names = [record["method"] for record in rows]
            for axis, column in zip(panels, _COLUMNS, strict=True):
                values = np.nan_to_num(lab.column(rows, column))  # where memory was not measured
                bars = axis.barh(names, values, color=[COLOURS[name] for name in names])
                axis.bar_label(bars, fmt="%.3g", padding=2, fontsize=8)
                axis.margins(x=0.15)
            panels[1].set_yticklabels([])
            panels[0].set_title(f"{n_classes} classes", loc="left")
        for axis, column in zip(axes[-1], _COLUMNS, strict=True):
            axis.set_xlabel(labels[column])


TITLE = "Cost of refined sites: seconds and memory of a fit beside scikit-learn's logistic regression"
PRESETS = lab.presets(
    dict(n_rows=100_000, n_features=50, n_classes=[2, 10], memory_of=list(_CONTENDERS)),
    smoke=dict(n_rows=1000, n_features=5, n_classes=[2], n_repeats=1, memory_of=[MATCHED]),
    laptop=dict(n_repeats=5),
    paper=dict(n_repeats=10),
)

lab.register(lab.Experiment("refine-speed", TITLE, PRESETS, _tasks, _run, _draw, lambda records: records))
