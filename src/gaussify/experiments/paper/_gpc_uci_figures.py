"""The figures of the ``gpc-uci`` experiment, drawn from its records alone."""

from pathlib import Path
from typing import Any

import numpy as np

from gaussify.experiments.paper._gpc_uci_results import METRICS, PAPER, contenders, paper_best
from gaussify.experiments._lab._records import Record, Scalar, group, mean_and_error
from gaussify.plotting import METHOD_COLOURS, figure_file, plain_log_ticks

_LABELS = {"error_pct": "error [%]", "nll": "NLL [nat]", "ece": "ECE"}
_OURS, _PAPER = "#000000", "#E69F00"
_WIDE = 5.0  # a ratio of largest to smallest value that takes a logarithmic axis


def draw(records: list[Record], folder: Path) -> None:
    """Draw scores against alpha_eps, and those of the alpha_eps that the training rows choose beside the paper's."""
    names = [str(dataset) for (dataset,) in group(records, "dataset")]
    chosen = contenders(records)
    size = {"width": 1.2 + 2.4 * len(names), "height": 7.2}
    for figure_name, fill in (("alpha_eps", _fill_alpha_eps), ("best", _fill_best)):
        with figure_file(folder, figure_name, len(METRICS), len(names), sharex="col", **size) as (figure, axes):
            for dataset, column in zip(names, axes.T, strict=True):
                own = {contender: some for (name, contender), some in chosen.items() if name == dataset}
                for metric, axis in zip(METRICS, column, strict=True):
                    fill(axis, [r for r in records if r["dataset"] == dataset], own, dataset, metric)
                    _set_scale(axis)
                column[0].set_title(dataset)
            for metric, axis in zip(METRICS, axes[:, 0], strict=True):
                axis.set_ylabel(f"test {_LABELS[metric]}")
            _add_legend(figure, axes)


def _fill_alpha_eps(
    axis: Any, records: list[Record], chosen: dict[str, list[Record]], dataset: str, metric: str
) -> None:
    """Draw a line for each method, and level lines for what has no alpha_eps."""
    runs = [record for record in records if record["variant"] == "paper"]
    for (method, scaling), own in group(runs, "method", "scaling").items():
        style = _style(method, scaling)
        points = {at: mean_and_error(r[metric] for r in some) for (at,), some in group(own, "alpha_eps").items()}
        if None in points:
            axis.axhline(points[None][0], ls=":", color=style["color"], label=method)
            continue
        at = np.array(list(points), dtype=float)
        mean, error = np.array(list(points.values())).T
        axis.errorbar(at, mean, error, marker="o", ms=3, capsize=2, lw=1.2, **style)
    if "ours" in chosen:
        axis.axhline(mean_and_error(r[metric] for r in chosen["ours"])[0], color=_OURS, lw=1.2, label="ours")
    if dataset in PAPER:
        axis.axhline(paper_best(dataset, metric), color=_PAPER, ls="--", lw=1.2, label="paper's best")
    axis.set(xscale="log")
    axis.minorticks_off()
    if metric == METRICS[-1]:
        axis.set_xlabel("alpha_eps")


def _fill_best(axis: Any, records: list[Record], chosen: dict[str, list[Record]], dataset: str, metric: str) -> None:
    """Draw a dot for each contender, and a hollow one for the paper's number."""
    for place, (contender, own) in enumerate(chosen.items()):
        mean, error = mean_and_error(record[metric] for record in own)
        method = contender.split(",")[0]
        colour = _OURS if method == "ours" else METHOD_COLOURS[method]
        label = "measured here" if contender == "ours" else None
        axis.errorbar(place, mean, error, fmt="o", color=colour, ms=5, capsize=2, label=label)
        if contender in PAPER.get(dataset, {}):
            mean, error = PAPER[dataset][contender][metric]
            label = "paper" if contender == "variational" else None
            axis.errorbar(place + 0.3, mean, error, fmt="D", color=_PAPER, mfc="none", ms=4, capsize=2, label=label)
    axis.set_xticks(range(len(chosen)), list(chosen), rotation=90)
    axis.set_xlim(-0.6, len(chosen) - 0.4)


def _style(method: Scalar, scaling: Scalar) -> dict[str, Any]:
    standard = scaling == "standard"
    label = method if standard else f"{method}, {scaling}"
    return {"color": METHOD_COLOURS[str(method)], "ls": "-" if standard else "--", "label": label}


def _set_scale(axis: Any) -> None:
    """Take a logarithmic axis, with few and plain labels, where values differ much."""
    low, high = axis.dataLim.intervaly
    if low <= 0.0 or high / low < _WIDE:
        return
    axis.set_yscale("log")
    plain_log_ticks(axis.yaxis)


def _add_legend(figure: Any, axes: Any) -> None:
    """Name everything that any panel shows, once."""
    found: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True)) | found
    figure.legend(found.values(), found, loc="outside lower center", ncols=4 if axes.shape[1] < 3 else len(found))
