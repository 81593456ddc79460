"""Sparse Gaussian process classification on five tables of the UCI repository, beside the numbers of the paper.

Two variants run on the same splits, with 200 inducing points:

- ``paper``: every method with every ``alpha_eps`` of a grid, temperature one, inputs of mean zero and variance one. For
  each method and split, the ``alpha_eps`` counts that gives the training rows the largest log-likelihood, as in the
  paper. ``gauss`` is least squares on one-hot labels and has no ``alpha_eps``.
- ``ours``: :class:`~gaussify.GPClassifier` with default settings, which chooses ``alpha_eps`` and temperature by
  leave-one-out. It is fitted with both scalings of inputs, and on some data sets with a kernel for each class. For each
  split, the fit with the largest leave-one-out log-likelihood counts.

Test rows choose nothing. Four rows of ``eeg`` lie so far out that, with inputs scaled to variance one, all other rows
are close together; so the paper's model is also fitted there with scaling by rank ("quantile").
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._gpc_uci_results import contenders, draw
from gaussify.experiments.paper._published import GPC_UCI, gpc_uci_best

_DIGITS = {"error_pct": 2, "nll": 3, "ece": 3}
_COLUMNS = ("variant", "method", "alpha_eps", "scaling", "kernels")


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    tasks: list[lab.Task] = []
    paper: lab.Task = {"variant": "paper", "scaling": "standard", "kernels": "shared"}
    ours: lab.Task = {"variant": "ours", "method": "variational", "alpha_eps": None, "kernels": "shared"}
    for dataset in settings["datasets"]:
        runs = [{**paper, **choice} for choice in lab.choices(lab.REGRESSION, settings["alpha_eps"])]
        if dataset in settings["also_quantile"]:
            some = lab.choices(["variational"], settings["alpha_eps"])
            runs += [{**paper, **choice, "scaling": "quantile"} for choice in some]
        runs += [{**ours, "scaling": scaling} for scaling in ("standard", "quantile")]
        if dataset in settings["also_separate"]:
            runs.append({**ours, "scaling": "quantile", "kernels": "separate"})
        tasks += [
            {"dataset": dataset, "split": split} | {name: run[name] for name in _COLUMNS}
            for split in range(settings["n_splits"])
            for run in runs
        ]
    return tasks


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    split = lab.make_split(task["dataset"], task["split"], settings["max_train"], settings["max_test"])
    model = make_model(settings, task, n_train=len(split.y))
    start = time.perf_counter()
    model.fit(split.X, split.y)
    seconds = time.perf_counter() - start
    record = lab.scores(model.predict_proba(split.X_test), split.y_test) | {"score": round(model.score_, 6)}
    record["used_alpha_eps"] = None if task["method"] == "gauss" else round(model.alpha_eps_, 6)
    record["temperature"] = round(model.temperature_, 6)
    record["n_iterations"] = sum(report.n_iterations for report in model.search_)
    record["converged"] = all(report.converged for report in model.search_)
    return [record | {"seconds": round(seconds, 2)}]


def make_model(settings: lab.Settings, task: lab.Task, *, n_train: int) -> Any:
    """Return the estimator of a task; its ``score_`` decides which fit counts."""
    from gaussify.gp import GPClassifier

    limits = settings["max_iter_ours" if task["variant"] == "ours" else "max_iter_paper"]
    n_iterations = limits.get(task["dataset"], limits.get("others"))  # without either, the default of the estimator
    common: dict[str, Any] = {"n_inducing": settings["n_inducing"], "scaling": task["scaling"]}
    common |= {} if n_iterations is None else {"max_iter": n_iterations}
    if task["variant"] == "ours":
        return GPClassifier(**common, shared_kernel=task["kernels"] == "shared")
    common |= {"method": task["method"], "alpha_eps": lab.given_alpha_eps(task), "temperature": 1.0}
    common |= {"label_variance": settings["label_variance"], "criterion": "training", "sample_size": n_train}
    return GPClassifier(**common)


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return mean and standard error of each contender over splits, beside the paper's.

    The best number of the paper, of whatever method, stands beside ``ours``.
    """
    rows: list[lab.Record] = []
    for (dataset, contender), own in contenders(records).items():
        row: lab.Record = {"dataset": dataset, "contender": contender, "splits": len(own)}
        for name, source in {"scaling": "scaling", "kernels": "kernels", "alpha_eps": "used_alpha_eps"}.items():
            row[name] = _counted(record[source] for record in own)
        for metric, digits in _DIGITS.items():
            name = metric.removesuffix("_pct")
            row[name] = _with_error(*lab.mean_and_error(r[metric] for r in own), digits, known=len(own) > 1)
            row[f"{name}_paper"] = _paper_text(dataset, contender, metric)
        rows.append(row | {"seconds": round(lab.mean(own, "seconds"), 1)})
    return rows


def _paper_text(dataset: str, contender: str, metric: str) -> str | None:
    if dataset not in GPC_UCI:
        return None
    if contender.startswith("ours"):
        return f"best {gpc_uci_best(dataset, metric):.2f}"
    published = GPC_UCI[dataset].get(contender.split(",")[0])  # the method, with any scaling
    return None if published is None else _with_error(*published[metric], 2)


def _with_error(mean: float, error: float, digits: int, *, known: bool = True) -> str:
    """Return a mean and its standard error as text; a single split has no standard error.

    Examples
    --------
    >>> _with_error(11.5, 0.13, 2), _with_error(11.5, 0.0, 2, known=False)
    ('11.50 ± 0.13', '11.50 ± ?')
    """
    return f"{mean:.{digits}f} ± {f'{error:.{digits}f}' if known else '?'}"


def _counted(values: Iterable[Any]) -> Any:
    """Return the value that all share, or each value with its number of occurrences.

    Examples
    --------
    >>> _counted([0.1, 0.1]), _counted([0.1, 0.05, 0.1])
    (0.1, '0.1 (2), 0.05 (1)')
    """
    counts = Counter(values).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{value} ({count})" for value, count in counts)


PRESETS = lab.presets(
    dict(label_variance=0.1)  # the variance of a one-hot label is at most 1/4
    | dict(datasets=list(lab.SIZES), n_inducing=200, max_train=None, max_test=None, also_quantile=["eeg"])
    | dict(also_separate=["eeg", "htru2", "magic", "drive"]),  # 26 kernels for letter would take an hour
    smoke=dict(datasets=["iris"], also_quantile=["iris"], also_separate=["iris"], n_splits=2, alpha_eps=[0.05, 0.2])
    | dict(n_inducing=10, max_iter_paper={"others": 3}, max_iter_ours={"others": 3}, max_train=90, max_test=50),
    laptop=dict(n_splits=3, alpha_eps=[0.02, 0.1, 0.2], max_iter_paper={"others": 40}, max_iter_ours={"drive": 100}),
    paper=dict(n_splits=20, alpha_eps=[0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    | dict(max_iter_paper={"others": 200, "drive": 600}, max_iter_ours={"drive": 300}),
)

TITLE = "Sparse Gaussian process classification on five UCI data sets, beside the paper's numbers"

lab.register(lab.Experiment("gpc-uci", TITLE, PRESETS, _tasks, _run, draw, _summarise))
