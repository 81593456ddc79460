r"""The bound on the exact model as the objective, beside the evidence of the Gaussian model, on five UCI tables.

- ``matched``: every method with every alpha_eps of a grid. Of these choices the best counts by its NLL on test rows,
  which is more than anyone could choose.
- ``elbo``: :class:`~gaussify.GPClassifier` with ``objective="elbo"``, ``method="auto"`` and an alpha_eps per class:
  all by the bound, no grid.

Both with the paper's temperature of one, and with one that leaving rows out chooses, with the same splits, scaling of
inputs (by rank for ``eeg``, where four rows lie far out) and limit of iterations for each search. The bound is that on
the evidence of the exact model which the posterior of either gives, per training row.
"""

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from gaussify import metrics
from gaussify.experiments._gpc_uci import Split, make_split
from gaussify.experiments._gpc_uci_results import SIZES
from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, group, mean_and_error
from gaussify.plotting import METHOD_COLOURS, figure_file

METHODS = ("moment-ori", "moment", "laplace", "variational")
TEMPERATURES: dict[str, Any] = {"one": 1.0, "chosen": "auto"}

_SCORES = {"bound": 3, "nll": 4, "ece": 4, "error_pct": 2}
_PANELS = {"nll": "test NLL [nat]", "bound": "bound [nat per row]"}
_ELBO_COLOUR = "#000000"


def bound_per_row(model: Any, X: Float[np.ndarray, "n d"], y: Int64[np.ndarray, " n"]) -> float:
    """Return the bound on the evidence of the exact model, of these rows, that a fitted sparse classifier gives.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gaussify import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier(n_inducing=10, alpha_eps=0.1, temperature=1.0, max_iter=20).fit(X, y)
    >>> other = GPClassifier(n_inducing=10, alpha_eps=0.9, temperature=1.0, max_iter=20).fit(X, y)
    >>> bound_per_row(other, X, y) < bound_per_row(model, X, y) < 0.0
    True
    """
    from gaussify.gp._objective import SortedRows
    from gaussify.gp._variational import VariationalTrainer
    from gaussify.gp._variational_classifier import matched_start

    labels = torch.from_numpy(np.searchsorted(model.classes_, y))
    rows = SortedRows.of(model._scaled(X), labels, n_classes=len(model.classes_))
    likelihood, start = matched_start(model)
    return VariationalTrainer(rows, likelihood.expected_log_prob, start).bound() / len(y)


def at_temperature(model: Any, temperature: float) -> Any:
    """Return a fitted classifier with another temperature, which no search depends on where alpha_eps is given."""
    twin = copy.copy(model)
    twin._choice, twin._predict = model._choice._replace(temperature=temperature), None
    return twin


def _tasks(settings: Settings) -> list[Task]:
    tasks: list[Task] = []
    for dataset in settings["datasets"]:
        runs: list[tuple[str, str, float | None]] = [("elbo", "auto", None)]
        runs += [("matched", method, alpha_eps) for method in METHODS for alpha_eps in settings["alpha_eps"]]
        n_splits = settings["n_splits"].get(dataset, settings["n_splits"]["others"])
        tasks += [
            {"dataset": dataset, "split": split, "objective": objective, "method": method, "alpha_eps": alpha_eps}
            for split in range(n_splits)
            for objective, method, alpha_eps in runs
        ]
    return tasks


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    split = make_split(
        str(task["dataset"]),
        int(task["split"]),  # type: ignore[arg-type]
        settings["max_train"],
        settings["max_test"],
    )
    if task["objective"] == "elbo":
        fitted = {name: _fit(settings, task, split, value) for name, value in TEMPERATURES.items()}
    else:
        model, seconds = _fit(settings, task, split, "auto")
        fitted = {"one": (at_temperature(model, 1.0), seconds), "chosen": (model, seconds)}
    return [_record(name, model, split, seconds) for name, (model, seconds) in fitted.items()]


def _fit(settings: Settings, task: Task, split: Split, temperature: Any) -> tuple[Any, float]:
    from gaussify.gp import GPClassifier

    model = GPClassifier(
        n_inducing=settings["n_inducing"],
        objective=task["objective"],
        method=task["method"],
        alpha_eps="per-class" if task["alpha_eps"] is None else task["alpha_eps"],
        temperature=temperature,
        scaling=settings["scaling"].get(task["dataset"], "standard"),
        max_iter=settings["max_iter"],
    )
    start = time.perf_counter()
    model.fit(split.X, split.y)
    return model, time.perf_counter() - start


def _record(temperature: str, model: Any, split: Split, seconds: float) -> Record:
    probs = model.predict_proba(split.X_test)
    return {
        "temperature": temperature,
        "bound": round(bound_per_row(model, split.X, split.y), 5),
        "nll": round(metrics.nll(probs, split.y_test), 6),
        "ece": round(metrics.ece(probs, split.y_test), 6),
        "error_pct": round(100.0 * (1.0 - metrics.accuracy(probs, split.y_test)), 4),
        "used_method": model.method_,
        "used_alpha_eps": float(f"{np.exp(np.mean(np.log(model.alpha_eps_))):.4g}"),
        "used_temperature": round(model.temperature_, 4),
        "n_iterations": sum(report.n_iterations for report in model.search_),
        "seconds": round(seconds, 2),
    }


def best_matched(records: list[Record]) -> list[Record]:
    """Return the records of the one choice of method and alpha_eps whose mean NLL on test rows is lowest.

    Examples
    --------
    >>> common = {"objective": "matched", "method": "moment"}
    >>> best_matched([common | {"alpha_eps": 0.1, "nll": 0.3}, common | {"alpha_eps": 0.2, "nll": 0.2}])
    [{'objective': 'matched', 'method': 'moment', 'alpha_eps': 0.2, 'nll': 0.2}]
    """
    choices = group([r for r in records if r["objective"] == "matched"], "method", "alpha_eps").values()
    return min(choices, key=lambda own: float(np.mean([record["nll"] for record in own])))


def _summarise(records: list[Record]) -> list[Record]:
    """Means over splits of elbo and of the best matched choice; the last column says which has the lower NLL."""
    rows: list[Record] = []
    for (dataset, temperature), some in group(records, "dataset", "temperature").items():
        contenders = {"elbo": [r for r in some if r["objective"] == "elbo"], "matched": best_matched(some)}
        nll = {name: float(np.mean([record["nll"] for record in own])) for name, own in contenders.items()}
        for name, own in contenders.items():
            methods = ", ".join(dict.fromkeys(str(record["used_method"]) for record in own))
            row: Record = {"dataset": dataset, "temperature": temperature, "objective": name, "method": methods}
            row["alpha_eps"] = float(f"{mean_and_error(r['used_alpha_eps'] for r in own)[0]:.3g}")
            for column, digits in _SCORES.items():
                row[column] = round(mean_and_error(record[column] for record in own)[0], digits)
            row |= {"seconds": round(mean_and_error(r["seconds"] for r in own)[0], 1), "splits": len(own)}
            rows.append(row | {"at_least_as_good": nll[name] <= min(nll.values())})
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    """Draw NLL and bound of each method along the grid of alpha_eps, and where ``elbo`` ends."""
    names = [dataset for (dataset,) in group(records, "dataset")]
    for (temperature,), some in group(records, "temperature").items():
        size = {"width": 1.2 + 2.5 * len(names), "height": 5.2, "sharex": True}
        with figure_file(folder, f"temperature-{temperature}", len(_PANELS), len(names), **size) as (figure, axes):
            for dataset, column in zip(names, axes.T, strict=True):
                for metric, axis in zip(_PANELS, column, strict=True):
                    _fill_panel(axis, [r for r in some if r["dataset"] == dataset], metric)
                column[0].set_title(dataset)
                column[-1].set_xlabel("alpha_eps")
            for label, axis in zip(_PANELS.values(), axes[:, 0], strict=True):
                axis.set_ylabel(label)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _fill_panel(axis: Any, records: list[Record], metric: str) -> None:
    for (method,), own in group([r for r in records if r["objective"] == "matched"], "method").items():
        means = {at: mean_and_error(r[metric] for r in few)[0] for (at,), few in group(own, "alpha_eps").items()}
        axis.plot(
            list(means), list(means.values()), "o-", ms=3, lw=1.2, color=METHOD_COLOURS[str(method)], label=method
        )
    elbo = [record for record in records if record["objective"] == "elbo"]
    at, mean = (mean_and_error(record[column] for record in elbo)[0] for column in ("used_alpha_eps", metric))
    axis.axhline(mean, color=_ELBO_COLOUR, lw=0.8, ls=":")
    axis.plot(at, mean, "*", color=_ELBO_COLOUR, ms=11, label="elbo, no grid", zorder=3)
    best = [mean_and_error(r[metric] for r in own)[0] for own in (best_matched(records), elbo)]
    worst = [mean_and_error(r[metric] for r in own)[0] for own in group(records, "method", "alpha_eps").values()]
    span = 0.6 * (np.median(worst) - min(*best, *worst)) if metric == "nll" else None
    if span:
        axis.set_ylim(min(*best, *worst) - 0.15 * span, max(*best) + 2.0 * span)  # what is far worse is cut off
    axis.set_xscale("log")


_COMMON: dict[str, Any] = {"scaling": {"eeg": "quantile"}, "max_train": None, "max_test": None}

register(
    Experiment(
        name="vgp-uci",
        title="The bound on the exact model as the objective of Gaussian processes, beside the best matched choice",
        presets={
            "smoke": {
                **_COMMON,
                "datasets": ["iris"],
                "n_splits": {"others": 2},
                "alpha_eps": [0.05, 0.2],
                "n_inducing": 10,
                "max_iter": 5,
                "max_train": 90,
                "max_test": 50,
            },
            "laptop": {
                **_COMMON,
                "datasets": list(SIZES),
                "n_splits": {"drive": 1, "others": 2},
                "alpha_eps": [0.02, 0.1, 0.2],
                "n_inducing": 200,
                "max_iter": 80,
            },
            "paper": {
                **_COMMON,
                "datasets": list(SIZES),
                "n_splits": {"others": 20},
                "alpha_eps": [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5],
                "n_inducing": 200,
                "max_iter": 200,
            },
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
