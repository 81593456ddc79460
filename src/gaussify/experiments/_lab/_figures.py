"""Parts of figures that several experiments share: legends, curves and bars."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gaussify.experiments._lab._records import Record
from gaussify.experiments._lab._summaries import Curve, curve
from gaussify.plotting import SERIES_COLOURS, figure_file

_OTHER_COLOUR = "#bbbbbb"


def draw_grid(
    folder: Path,
    name: str,
    columns: Mapping[str, list[Record]],
    rows: Mapping[str, str],
    fill: Callable[[Any, list[Record], str], object],
    *,
    x_label: str,
    n_labels: int | None = None,
    legend: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Draw a figure whose panels show one metric each: by columns the records of a data set, by rows the metrics.

    ``fill`` draws a panel, from its axes, the records and the metric. Rows are labelled by the values of ``rows``, and
    the legend has ``n_labels`` labels side by side. ``legend`` goes to matplotlib's legend, ``options``
    to :func:`~gaussify.plotting.figure_file`.
    """
    with figure_file(folder, name, len(rows), len(columns), **options) as (figure, axes):
        for (title, own), panels in zip(columns.items(), axes.T, strict=True):
            for metric, axis in zip(rows, panels, strict=True):
                fill(axis, own, metric)
            panels[0].set_title(title)
            panels[-1].set_xlabel(x_label)
        for label, axis in zip(rows.values(), axes[:, 0], strict=True):
            axis.set_ylabel(label)
        legend_below(figure, axes, n_labels, **(legend or {}))


def legend_below(figure: Any, axes: Any, n_labels: int | None = None, **options: Any) -> None:
    """Put everything that the panels show into one legend below them, all labels side by side or ``n_labels``."""
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    place = {"loc": "outside lower center", "ncols": n_labels or len(found)}
    figure.legend(found.values(), found, **place | options)


def draw_lines(axis: Any, groups: Mapping[Any, list[Record]], x: str, y: str) -> None:
    """Draw the mean of ``y`` against ``x`` as a line for each group, with its name as the label."""
    for colour, (name, own) in zip(SERIES_COLOURS, groups.items(), strict=False):
        axis.plot(*curve(own, x, y)[:2], color=colour, label=name)


def draw_band(axis: Any, points: Curve, *, alpha: float = 0.2, **look: Any) -> None:
    """Draw a mean as a line, and one standard error on either side as a band."""
    axis.plot(points.at, points.mean, **look)
    band = {"color": look["color"], "alpha": alpha, "lw": 0.0}
    axis.fill_between(points.at, points.mean - points.error, points.mean + points.error, **band)


def draw_bars(axis: Any, records: Sequence[Record], column: str, *, label_size: float = 8.0) -> None:
    """Draw a horizontal bar for each contender, the first on top and gaussify's in colour."""
    rows = records[::-1]
    own = [record["contender"] == "gaussify" for record in rows]
    colours = [SERIES_COLOURS[0] if is_own else _OTHER_COLOUR for is_own in own]
    bars = axis.barh([record["contender"] for record in rows], [record[column] for record in rows], color=colours)
    axis.bar_label(bars, fmt="%.3g", padding=2, fontsize=label_size)
    axis.margins(x=0.15)
