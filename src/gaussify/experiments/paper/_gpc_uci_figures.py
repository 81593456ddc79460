"""The figures of the ``gpc-uci`` experiment, drawn from its records alone."""

from pathlib import Path
from typing import Any

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._gpc_uci_results import contenders
from gaussify.experiments.paper._published import GPC_UCI, METRICS, gpc_uci_best
from gaussify.plotting import METHOD_COLOURS, figure_file, plain_log_ticks

_LABELS = {"error_pct": "error [%]", "nll": "NLL [nat]", "ece": "ECE"}
_OURS, _PAPER = "#000000", "#E69F00"
_WIDE = 5.0  # a ratio of largest to smallest value that takes a logarithmic axis


def draw(records: list[lab.Record], folder: Path) -> None:
    """Draw scores against alpha_eps, and the scores of the alpha_eps that training rows choose beside the paper's."""
    names = list(lab.by(records, "dataset"))
    chosen = contenders(records)
    size = {"width": 1.2 + 2.4 * len(names), "height": 7.2}
    for figure_name, fill in (("alpha_eps", _fill_alpha_eps), ("best", _fill_best)):
        with figure_file(folder, figure_name, len(METRICS), len(names), sharex="col", **size) as (figure, axes):
            for dataset, column in zip(names, axes.T, strict=True):
                own = {contender: some for (name, contender), some in chosen.items() if name == dataset}
                for metric, axis in zip(METRICS, column, strict=True):
                    fill(axis, lab.select(records, dataset=dataset), own, dataset, metric)
                    _set_scale(axis)
                column[0].set_title(dataset)
            for metric, axis in zip(METRICS, axes[:, 0], strict=True):
                axis.set_ylabel(f"test {_LABELS[metric]}")
            lab.legend_below(figure, axes, **({"ncols": 4} if len(names) < 3 else {}))


def _fill_alpha_eps(
    axis: Any, records: list[lab.Record], chosen: dict[str, list[lab.Record]], dataset: str, metric: str
) -> None:
    """Draw a line for each method, and level lines for those without alpha_eps."""
    for (method, scaling), own in lab.group(lab.select(records, variant="paper"), "method", "scaling").items():
        points, standard = lab.curve(own, "alpha_eps", metric), scaling == "standard"
        if method not in lab.MATCHED:
            axis.axhline(points.mean[0], ls=":", color=METHOD_COLOURS[method], label=method)
            continue
        look = {"color": METHOD_COLOURS[method], "ls": "-" if standard else "--"}
        label = method if standard else f"{method}, {scaling}"
        axis.errorbar(*points, marker="o", ms=3, capsize=2, lw=1.2, label=label, **look)
    if "ours" in chosen:
        axis.axhline(lab.mean(chosen["ours"], metric), color=_OURS, lw=1.2, label="ours")
    if dataset in GPC_UCI:
        axis.axhline(gpc_uci_best(dataset, metric), color=_PAPER, ls="--", lw=1.2, label="paper's best")
    axis.set(xscale="log")
    axis.minorticks_off()
    if metric == METRICS[-1]:
        axis.set_xlabel("alpha_eps")


def _fill_best(
    axis: Any, records: list[lab.Record], chosen: dict[str, list[lab.Record]], dataset: str, metric: str
) -> None:
    """Draw a dot for each contender, and a hollow one for the paper's number."""
    for place, (contender, own) in enumerate(chosen.items()):
        average, error = lab.mean_and_error(record[metric] for record in own)
        method = contender.split(",")[0]
        colour = _OURS if method == "ours" else METHOD_COLOURS[method]
        label = "measured here" if contender == "ours" else None
        axis.errorbar(place, average, error, fmt="o", color=colour, ms=5, capsize=2, label=label)
        if contender in GPC_UCI.get(dataset, {}):
            average, error = GPC_UCI[dataset][contender][metric]
            label = "paper" if contender == "variational" else None
            axis.errorbar(place + 0.3, average, error, fmt="D", color=_PAPER, mfc="none", ms=4, capsize=2, label=label)
    axis.set_xticks(range(len(chosen)), list(chosen), rotation=90)
    axis.set_xlim(-0.6, len(chosen) - 0.4)


def _set_scale(axis: Any) -> None:
    """Set a logarithmic axis, with few and plain labels, if the values differ much."""
    low, high = axis.dataLim.intervaly
    if low <= 0.0 or high / low < _WIDE:
        return
    axis.set_yscale("log")
    plain_log_ticks(axis.yaxis)
