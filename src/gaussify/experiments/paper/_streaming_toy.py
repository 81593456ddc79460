r"""Four classes in the plane, learnt row by row: what each method believes after a few rows, some, and many.

The first figure of the appendix on streaming data: approximate inference in the exact model (``adf``) beside exact
inference in the approximate models. All have the same prior, a Gaussian process in all but name: its kernel is that of
random Fourier features.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from gaussify import datasets, metrics
from gaussify.experiments.paper._plane import N_CLASSES, grid
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record
from gaussify.plotting import SERIES_COLOURS, figure_file

METHODS = ("adf", "gauss", "moment-ori", "moment", "laplace", "variational")
_SCORES = ("accuracy", "nll")
_HALF_WIDTH = 4.5  # of the part of the plane that is drawn
_N_PIXELS = 200  # a side, to which the grid is interpolated


def fourier_features(
    X: Float[np.ndarray, "n 2"], n_features: int, length_scale: float, rng: np.random.Generator
) -> Float[np.ndarray, "n d"]:
    r"""Return random features whose inner products estimate a squared-exponential kernel.

    .. math:: \phi_j(x) = \sqrt{2/d}\,\cos(\omega_j^\top x + b_j), \qquad
        \mathbb{E}[\phi(x)^\top\phi(x')] = \exp(-|x - x'|^2 / 2\ell^2),

    with :math:`\omega_j \sim \mathcal{N}(0, I/\ell^2)` and :math:`b_j` uniform on the circle (Rahimi and Recht, 2007).

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> features = fourier_features(X, 100_000, 1.0, np.random.default_rng(0))
    >>> features @ features.T
    array([[1.00, 0.61],
           [0.61, 1.00]])
    """
    frequency = rng.normal(0.0, 1.0 / length_scale, (2, n_features))
    phase = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return np.sqrt(2.0 / n_features) * np.cos(X @ frequency + phase)


def _tasks(settings: Settings) -> list[Task]:
    return [{"seed": seed, "method": method} for seed in range(settings["n_seeds"]) for method in METHODS]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    number = int(task["seed"])  # type: ignore[arg-type]
    looks = settings["looks"]
    X, y = datasets.make_four_classes(looks[-1], random_state=np.random.default_rng([number, 0]))
    X_test, y_test = datasets.make_four_classes(settings["n_test"], random_state=np.random.default_rng([number, 1]))

    def features(points: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng([number, 2])
        return fourier_features(points, settings["n_features"], settings["length_scale"], rng)

    points = grid(settings["n_grid"], _HALF_WIDTH)
    new, test = features(points), features(X_test)
    model = _make_model(str(task["method"]), settings, seed)
    records: list[Record] = []
    for start, stop in pairwise([0, *looks]):
        for row, label in zip(features(X[start:stop]), y[start:stop], strict=True):
            model.partial_fit(row[None], [label], classes=np.arange(N_CLASSES))
        probs = model.predict_proba(test)
        scores: Record = {name: round(getattr(metrics, name)(probs, y_test), 5) for name in _SCORES}
        records.append({"kind": "score", "n_seen": stop, **scores})
        if number == 0:  # which is drawn
            records += _records_of_rows(X[start:stop], y[start:stop], start)
            records += _records_of_grid(points, model.predict_proba(new), stop)
    return records


def _make_model(method: str, settings: Settings, seed: int) -> Any:
    from gaussify.linear import BayesianLogisticRegression
    from gaussify.linear.baselines import ADFClassifier

    prior = {"prior_variance": settings["prior_variance"], "intercept_variance": settings["intercept_variance"]}
    if method == "adf":
        return ADFClassifier(**prior, n_samples=settings["n_samples"], random_state=seed)
    return BayesianLogisticRegression(
        method=method,
        alpha_eps=settings["alpha_eps"],
        temperature=1.0,
        label_variance=settings["label_variance"],
        reservoir_size=0,
        **prior,
    )


def _records_of_rows(X: np.ndarray, y: np.ndarray, n_before: int) -> list[Record]:
    rows = zip(X.round(3).tolist(), y.tolist(), strict=True)
    return [
        {"kind": "row", "n_seen": n_before + i, "x1": x1, "x2": x2, "label": label}
        for i, ((x1, x2), label) in enumerate(rows, start=1)
    ]


def _records_of_grid(points: np.ndarray, probs: np.ndarray, n_seen: int) -> list[Record]:
    """The most probable class, and the probabilities of all."""
    numbers = zip(points.round(3).tolist(), probs.argmax(1).tolist(), probs.round(3).tolist(), strict=True)
    return [
        {"kind": "grid", "n_seen": n_seen, "x1": x1, "x2": x2, "label": best}
        | {f"prob{k}": prob for k, prob in enumerate(own)}
        for (x1, x2), best, own in numbers
    ]


def _summarise(records: list[Record]) -> list[Record]:
    """Test scores by method and number of rows seen, means over the seeds."""
    scores = [record for record in records if record["kind"] == "score"]
    rows: list[Record] = []
    for n_seen in dict.fromkeys(record["n_seen"] for record in scores):
        for method in METHODS:
            own = [record for record in scores if (record["method"], record["n_seen"]) == (method, n_seen)]
            means = {name: round(float(np.mean([record[name] for record in own])), 4) for name in _SCORES}
            rows.append({"n_seen": n_seen, "method": method, **means})
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    """Draw a column for each method and a row for each look: classes by colour, confidence by its depth."""
    scores = {
        (r["n_seen"], r["method"]): (r["accuracy"], r["nll"]) for r in records if r["kind"] == "score" and not r["seed"]
    }
    looks = sorted({n_seen for n_seen, _ in scores})  # type: ignore[type-var]
    size = {"width": 1.6 * len(METHODS), "height": 1.7 * len(looks) + 0.4}
    with figure_file(folder, "streaming_toy", len(looks), len(METHODS), **size) as (figure, axes):
        for axis_row, n_seen in zip(axes, looks, strict=True):
            for axis, method in zip(axis_row, METHODS, strict=True):
                own = [r for r in records if r["method"] == method and r["kind"] != "score"]
                _draw_panel(axis, own, n_seen)
                accuracy, nll = scores[n_seen, method]
                axis.set_xlabel(f"accuracy {accuracy:.2f}, NLL {nll:.2f}", fontsize=7, labelpad=2)
            axis_row[0].set_ylabel(f"{n_seen} rows seen")
        for axis, method in zip(axes[0], METHODS, strict=True):
            axis.set_title(method)
        words = "Colour: the most probable class; depth: its probability (dotted line 0.5, solid line 0.9)"
        figure.supxlabel(words, fontsize=8)


def _draw_panel(axis: Any, records: list[Record], n_seen: Any) -> None:
    """Draw the probabilities on the grid after ``n_seen`` rows, and these rows."""
    nodes = [r for r in records if r["kind"] == "grid" and r["n_seen"] == n_seen]
    probs = np.array([[r[f"prob{k}"] for k in range(N_CLASSES)] for r in nodes], dtype=float)
    side = int(np.sqrt(len(probs)))
    fine = _interpolate(probs.reshape(side, side, N_CLASSES), _N_PIXELS)
    ends = (-_HALF_WIDTH, _HALF_WIDTH)
    axis.imshow(_shades(fine), origin="lower", extent=(*ends, *ends), interpolation="bilinear")
    ticks = np.linspace(*ends, _N_PIXELS)
    axis.contour(ticks, ticks, fine.max(-1), levels=[0.5, 0.9], colors="0.25", linewidths=0.6, linestyles=[":", "-"])
    rows = [r for r in records if r["kind"] == "row" and int(r["n_seen"]) <= n_seen]  # type: ignore[arg-type]
    colours = [SERIES_COLOURS[int(r["label"])] for r in rows]  # type: ignore[arg-type]
    size = 14.0 if len(rows) <= 50 else 6.0
    axis.scatter([r["x1"] for r in rows], [r["x2"] for r in rows], s=size, c=colours, edgecolors="white", lw=0.4)
    axis.set(xlim=ends, ylim=ends, xticks=[], yticks=[])
    axis.grid(False)
    axis.spines[:].set(visible=True, color="0.7", linewidth=0.6)


def _interpolate(values: Float[np.ndarray, "n n c"], n_pixels: int) -> Float[np.ndarray, "p p c"]:
    """Values on a finer grid with the same corners, linear between the nodes."""
    place = np.linspace(0.0, values.shape[0] - 1.0, n_pixels)
    left = np.minimum(place.astype(int), values.shape[0] - 2)
    weights = np.zeros((n_pixels, values.shape[0]))
    weights[np.arange(n_pixels), left] = 1.0 - (place - left)
    weights[np.arange(n_pixels), left + 1] = place - left
    return np.einsum("pi,qj,ijc->pqc", weights, weights, values)


def _shades(probs: Float[np.ndarray, "*batch c"]) -> Float[np.ndarray, "*batch 3"]:
    """The colour of the most probable class, from white where all are equally probable to its full depth."""
    depth = (probs.max(-1, keepdims=True) - 1.0 / N_CLASSES) / (1.0 - 1.0 / N_CLASSES)
    return 1.0 - 0.75 * np.clip(depth, 0.0, 1.0) * (1.0 - _palette()[probs.argmax(-1)])


def _palette() -> Shaped[np.ndarray, "c 3"]:
    return np.array([[int(c[i : i + 2], 16) / 255.0 for i in (1, 3, 5)] for c in SERIES_COLOURS[:N_CLASSES]])


_COMMON = {
    "alpha_eps": 0.1,
    "prior_variance": 10.0,
    "intercept_variance": 10.0,
    "label_variance": 1.0,
    "length_scale": 1.5,
    "n_features": 100,
    "n_samples": 1000,
    "n_test": 1000,
}
PRESETS: dict[str, Settings] = {
    "smoke": {**_COMMON, "n_features": 20, "n_samples": 100, "n_seeds": 1, "looks": [5, 20], "n_grid": 7},
    "laptop": {**_COMMON, "n_seeds": 5, "looks": [10, 40, 200], "n_grid": 25},
    "paper": {**_COMMON, "n_seeds": 20, "n_samples": 10_000, "looks": [10, 40, 200, 1000], "n_grid": 60},
}

register(
    Experiment(
        name="streaming-toy",
        title="Online inference for four classes in the plane: beliefs after a few rows, some, and many",
        presets=PRESETS,
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
