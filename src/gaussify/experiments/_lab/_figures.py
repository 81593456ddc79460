"""Parts of figures that several experiments share: legends, curves and bars."""

from collections.abc import Sequence
from typing import Any

from gaussify.experiments._lab._records import Record
from gaussify.experiments._lab._summaries import Curve
from gaussify.plotting import SERIES_COLOURS

_OTHER_COLOUR = "#bbbbbb"


def legend_below(figure: Any, axes: Any, **options: Any) -> None:
    """Put what the panels show into one legend below them, as many labels side by side as there are, or ``ncols``."""
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found, **{"loc": "outside lower center", "ncols": len(found)} | options)


def draw_band(axis: Any, curve: Curve, *, alpha: float = 0.2, **look: Any) -> None:
    """Draw a mean as a line, and one standard error on either side as a band."""
    axis.plot(curve.at, curve.mean, **look)
    band = {"color": look["color"], "alpha": alpha, "lw": 0.0}
    axis.fill_between(curve.at, curve.mean - curve.error, curve.mean + curve.error, **band)


def draw_bars(axis: Any, records: Sequence[Record], column: str, *, label_size: float = 8.0) -> None:
    """Draw a horizontal bar for each contender, the first on top and gaussify's in colour."""
    rows = records[::-1]
    own = [record["contender"] == "gaussify" for record in rows]
    colours = [SERIES_COLOURS[0] if is_own else _OTHER_COLOUR for is_own in own]
    bars = axis.barh([record["contender"] for record in rows], [record[column] for record in rows], color=colours)
    axis.bar_label(bars, fmt="%.3g", padding=2, fontsize=label_size)
    axis.margins(x=0.15)
