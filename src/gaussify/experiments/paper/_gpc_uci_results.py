"""Records of ``gpc-uci`` by contender, chosen by training rows alone, and the figures drawn from them."""

from pathlib import Path
from typing import Any

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._published import GPC_UCI, gpc_uci_best
from gaussify.plotting import METHOD_COLOURS, plain_log_ticks

_LABELS = {"error_pct": "test error [%]", "nll": "test NLL [nat]", "ece": "test ECE"}
_OURS, _PAPER = "#000000", "#E69F00"
_WIDE = 5.0  # a ratio of largest to smallest value that takes a logarithmic axis


def contenders(records: list[lab.Record]) -> dict[tuple[str, str], list[lab.Record]]:
    """Return one record for each split, by data set and contender, chosen by ``score``, which uses no test row.

    Contenders are the methods of the paper, each with its best alpha_eps; the same with scaling by rank, where that was
    run; ``ours`` with each scaling and choice of kernels; and ``ours`` with the best of these.
    """
    kinds = ("variant", "method", "scaling", "kernels")
    best = lab.best_alpha_eps(records, "dataset", "split", *kinds, score="score")
    found: dict[tuple[str, str], list[lab.Record]] = {}
    for dataset, own in lab.by(best, "dataset").items():
        found |= {(dataset, _name(*kind)): some for kind, some in lab.group(own, *kinds).items()}
        if ours := lab.by(lab.select(own, variant="ours"), "split"):
            found[dataset, "ours"] = [max(some, key=lambda record: record["score"]) for some in ours.values()]
    return found


def _name(variant: str, method: str, scaling: str, kernels: str) -> str:
    if variant == "ours":
        return f"ours, {scaling}" if kernels == "shared" else f"ours, {scaling}, kernel for each class"
    return method if scaling == "standard" else f"{method}, {scaling}"


def draw(records: list[lab.Record], folder: Path) -> None:
    """Draw scores against alpha_eps, and the scores of the alpha_eps that training rows choose beside the paper's."""
    columns = lab.by(records, "dataset")
    size: dict[str, Any] = {"width": 1.2 + 2.4 * len(columns), "height": 7.2, "sharex": "col"}
    size["n_labels"] = 4 if len(columns) < 3 else None
    lab.draw_grid(folder, "alpha_eps", columns, _LABELS, _fill_alpha_eps, x_label="alpha_eps", **size)
    lab.draw_grid(folder, "best", columns, _LABELS, _fill_best, x_label="", **size)


def _fill_alpha_eps(axis: Any, records: list[lab.Record], metric: str) -> None:
    """Draw a line for each method, and level lines for those without alpha_eps."""
    dataset, chosen = records[0]["dataset"], contenders(records)
    for (method, scaling), own in lab.group(lab.select(records, variant="paper"), "method", "scaling").items():
        points, standard = lab.curve(own, "alpha_eps", metric), scaling == "standard"
        if method not in lab.MATCHED:
            axis.axhline(points.mean[0], ls=":", color=METHOD_COLOURS[method], label=method)
            continue
        look = {"color": METHOD_COLOURS[method], "ls": "-" if standard else "--"}
        label = method if standard else f"{method}, {scaling}"
        axis.errorbar(*points, marker="o", ms=3, capsize=2, lw=1.2, label=label, **look)
    if (dataset, "ours") in chosen:
        axis.axhline(lab.mean(chosen[dataset, "ours"], metric), color=_OURS, lw=1.2, label="ours")
    if dataset in GPC_UCI:
        axis.axhline(gpc_uci_best(dataset, metric), color=_PAPER, ls="--", lw=1.2, label="paper's best")
    axis.set(xscale="log")
    axis.minorticks_off()
    _set_scale(axis)


def _fill_best(axis: Any, records: list[lab.Record], metric: str) -> None:
    """Draw a dot for each contender, and a hollow one for the paper's number."""
    chosen = contenders(records)
    for place, ((dataset, contender), own) in enumerate(chosen.items()):
        average, error = lab.mean_and_error(record[metric] for record in own)
        method = contender.split(",")[0]
        colour = _OURS if method == "ours" else METHOD_COLOURS[method]
        label = "measured here" if contender == "ours" else None
        axis.errorbar(place, average, error, fmt="o", color=colour, ms=5, capsize=2, label=label)
        if contender in GPC_UCI.get(dataset, {}):
            average, error = GPC_UCI[dataset][contender][metric]
            label = "paper" if contender == "variational" else None
            axis.errorbar(place + 0.3, average, error, fmt="D", color=_PAPER, mfc="none", ms=4, capsize=2, label=label)
    axis.set_xticks(range(len(chosen)), [contender for _, contender in chosen], rotation=90)
    axis.set_xlim(-0.6, len(chosen) - 0.4)
    _set_scale(axis)


def _set_scale(axis: Any) -> None:
    """Set a logarithmic axis, with few and plain labels, if the values differ much."""
    low, high = axis.dataLim.intervaly
    if low <= 0.0 or high / low < _WIDE:
        return
    axis.set_yscale("log")
    plain_log_ticks(axis.yaxis)
