"""Figures and table of the experiment ``gp-speed``, from its records alone."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussify.experiments import _lab as lab
from gaussify.plotting import SERIES_COLOURS, figure_file

OWN = "gaussify"
NLL = "time to nll"
TARGETS = (0.5, 0.3, 0.2)  # test NLL that the table has the time to

_SUMMARY = (
    *("seconds", "time_ratio", "peak_gibibytes", "memory_ratio", "share_of_peak"),
    *("predict_seconds", "nll", "ece", "error"),
)
_LABEL_SIZE = 8.0
_FAMILIES = (OWN, "GPyTorch SVGP", "GPyTorch", "random forest", "gradient boosting", "scikit-learn")  # by their names
_MARKERS = "os^v"  # within a family


def draw(records: list[lab.Record], folder: Path) -> None:
    """Draw what an evaluation costs, and test scores against time."""
    panels = [
        (panel, own)
        for (measurement, name), panel in _PANELS.items()
        if (own := [r for r in lab.select(records, measurement=measurement) if r.get(name) is not None])
    ]
    if panels:
        n_rows, n_columns = math.ceil(len(panels) / 2), min(2, len(panels))
        with figure_file(folder, "cost", n_rows, n_columns, width=4.6 * n_columns, height=2.4 * n_rows) as (_, axes):
            for axis, (panel, own) in zip(axes.flat, panels, strict=False):
                panel(axis, own)
            for axis in axes.flat[len(panels) :]:
                axis.set_visible(False)
    if scored := lab.select(records, measurement=NLL):
        with figure_file(folder, "time_to_nll", 1, 1, width=8.0, height=4.6) as (_, axes):
            _draw_scores(scored, axes[0, 0])


def summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return the main columns: of scores the last of each contender, with the first time below each target."""
    rows = [_main(record) for record in records if record["measurement"] != NLL]
    for own in _by_contender(lab.select(records, measurement=NLL)).values():
        rows.append(_main(own[-1]))
        for target in TARGETS:
            rows[-1][f"seconds_to_{target}"] = next((r["seconds"] for r in own if r["nll"] <= target), None)
    return rows


def _main(record: lab.Record) -> lab.Record:
    contender = record["contender"]
    if record.get("n_classes") is not None:
        contender += f", {record['n_classes']} classes"
    known = {name: record[name] for name in _SUMMARY if record.get(name) is not None}
    return {"measurement": record["measurement"], "contender": contender, **known}


def _by_contender(records: list[lab.Record]) -> dict[str, list[lab.Record]]:
    """Return the records of each contender in the order of time."""
    groups = lab.by(records, "contender")
    return {name: sorted(own, key=lambda record: record["seconds"]) for name, own in groups.items()}


def _bars(name: str, title: str, label: str, axis: Any, records: list[lab.Record]) -> None:
    lab.draw_bars(axis, records, name, label_size=_LABEL_SIZE)
    axis.set(xlabel=label, title=title)
    axis.grid(visible=False)


def _draw_classes(axis: Any, records: list[lab.Record]) -> None:
    for colour, (contender, own) in zip(SERIES_COLOURS, _by_contender(records).items(), strict=False):
        own = sorted(own, key=lambda record: record["n_classes"])
        x, y = (lab.column(own, name) for name in ("n_classes", "seconds"))
        axis.plot(x, y, "o-", markersize=4, color=colour, label=contender)
    axis.set(xscale="log", yscale="log", xlabel="classes", ylabel="seconds")
    axis.set_title("objective and gradient, more classes")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(_some)
    ticks = sorted({record["n_classes"] for record in records})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.margins(y=0.25)
    axis.legend(loc="upper right", fontsize=_LABEL_SIZE - 1.0, handlelength=1.0)


_PANELS: dict[tuple[str, str], Callable[[Any, list[lab.Record]], None]] = {
    ("objective", "seconds"): partial(_bars, "seconds", "objective and gradient", "seconds"),
    ("objective", "peak_gibibytes"): partial(_bars, "peak_gibibytes", "peak memory of the process", "GiB"),
    ("number of classes", "seconds"): _draw_classes,
    ("exact likelihood", "seconds"): partial(_bars, "seconds", "by objective", "seconds"),
    ("share of peak", "share_of_peak"): partial(_bars, "share_of_peak", "operations a second", "share of the largest"),
}


def _draw_scores(records: list[lab.Record], axis: Any) -> None:
    """Test NLL against seconds; each line ends in its name at the right edge."""
    groups = _by_contender(records)
    ends = []
    seen = dict.fromkeys(_FAMILIES, 0)
    for name, own in groups.items():
        family = next(family for family in _FAMILIES if name.startswith(family))
        colour, marker = SERIES_COLOURS[_FAMILIES.index(family)], _MARKERS[seen[family] % len(_MARKERS)]
        seen[family] += 1
        x, y = lab.column(own, "seconds"), lab.column(own, "nll")
        axis.plot(x, y, marker=marker, markersize=5, color=colour)
        ends.append((name, colour, x[-1], y[-1]))
    axis.set(xscale="log", yscale="log", xlabel="seconds to fit", ylabel="test NLL")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(_some)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlim(*axis.get_xlim())
    low, high = np.log(axis.get_ylim())
    places = spread_out((np.log([end[3] for end in ends]) - low) / (high - low), gap=0.055)
    for (name, colour, *end), place in zip(ends, places, strict=True):
        look: dict[str, Any] = {"va": "center", "fontsize": _LABEL_SIZE, "color": colour}
        arrow = {"arrowstyle": "-", "relpos": (0.0, 0.5), "shrinkA": 2.0, "color": colour, "lw": 0.5, "ls": ":"}
        axis.annotate(name, end, xytext=(1.03, place), textcoords="axes fraction", arrowprops=arrow, **look)


def _some(value: float, position: int | None) -> str:
    """Label some of the ticks between powers of ten."""
    return f"{value:g}" if f"{value:e}"[0] in "235" else ""


def spread_out(places: NDArray, gap: float) -> NDArray:
    """Return places in [0, 1] in the same order, at least ``gap`` apart and as near to the given ones as possible."""
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    # x_i - i gap is to increase: the nearest such sequence, by isotonic regression
    from sklearn.isotonic import isotonic_regression

    moved = np.empty(len(places))
    moved[order] = np.clip(isotonic_regression(places[order] - steps), 0.0, max(0.0, 1.0 - steps[-1])) + steps
    return moved
