"""Four classes in the plane: probabilities on a grid, as records and as pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from gaussify.experiments._lab import Record, by
from gaussify.plotting import SERIES_COLOURS

N_CLASSES = 4
CAPTION = (
    "Colours of the classes, mixed by their probabilities, the largest of which is 0.5 on dotted lines and 0.9 "
    "on solid ones."
)

_FINER = 5
_MARKERS = "os^D"  # one for each class, so that classes also differ without colours


def grid(n: int, half_width: float) -> Float[np.ndarray, "n_points 2"]:
    """Return the points of an n by n grid over the part of the plane that is drawn, the first coordinate fastest."""
    ticks = np.linspace(-half_width, half_width, n)
    return np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)


def row_records(X: Float[np.ndarray, "n 2"], y: Int64[np.ndarray, " n"], **columns: Any) -> list[Record]:
    """Return the records of labelled rows, with these columns added."""
    rows = zip(X.round(3).tolist(), y.tolist(), strict=True)
    return [{"kind": "row", "x1": x1, "x2": x2, "label": label, **columns} for (x1, x2), label in rows]


def grid_records(
    points: Float[np.ndarray, "n_points 2"], probs: Float[np.ndarray, "n_points c"], n_digits: int = 4, **columns: Any
) -> list[Record]:
    """Return the records of probabilities at the points of a grid, with these columns added."""
    nodes = zip(points.round(3).tolist(), probs.round(n_digits).tolist(), strict=True)
    return [
        {"kind": "grid", "x1": x1, "x2": x2, **columns} | {f"prob{k}": prob for k, prob in enumerate(own)}
        for (x1, x2), own in nodes
    ]


def draw_plane(axis: Any, records: list[Record], *, size: float = 8.0) -> None:
    """Draw probabilities as mixed colours, lines where the largest is 0.5 and 0.9, and rows in colours by label."""
    from scipy.ndimage import zoom  # slow to import

    kinds = by(records, "kind")
    rows, nodes = kinds["row"], kinds["grid"]
    side = round(len(nodes) ** 0.5)
    probs = np.array([[node[f"prob{k}"] for k in range(N_CLASSES)] for node in nodes], float).reshape(side, side, -1)
    half_width = max(node["x1"] for node in nodes)
    ends = (-half_width, half_width)
    half = half_width / (side - 1)  # nodes are the centres of pixels
    edges = (ends[0] - half, ends[1] + half)
    axis.imshow(mixed_colours(probs), origin="lower", extent=(*edges, *edges), interpolation="bilinear")
    # two neighbouring nodes may both have a large largest probability, of different classes: interpolate before the max
    finer = zoom(probs, (_FINER, _FINER, 1), order=1)
    within = np.linspace(*ends, len(finer))
    look: dict[str, Any] = {"colors": "0.2", "linewidths": 0.7, "linestyles": [":", "-"]}
    axis.contour(within, within, finer.max(-1), levels=[0.5, 0.9], **look)
    for label, own in by(rows, "label").items():
        looks: Mapping[str, Any] = {"c": SERIES_COLOURS[label], "marker": _MARKERS[label]}
        axis.scatter([r["x1"] for r in own], [r["x2"] for r in own], s=size, edgecolors="white", lw=0.35, **looks)
    axis.set(xlim=ends, ylim=ends, xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set(visible=True, color="0.7", linewidth=0.6)


def mixed_colours(probs: Float[np.ndarray, "*batch c"]) -> Float[np.ndarray, "*batch 3"]:
    """Return the colours of the classes mixed by their probabilities; the less certain, the paler."""
    known = (probs.max(-1, keepdims=True) - 1.0 / N_CLASSES) / (1.0 - 1.0 / N_CLASSES)
    palette = np.array([[int(c[i : i + 2], 16) / 255.0 for i in (1, 3, 5)] for c in SERIES_COLOURS[:N_CLASSES]])
    return 1.0 - 0.7 * np.clip(known, 0.0, 1.0) * (1.0 - probs @ palette)
