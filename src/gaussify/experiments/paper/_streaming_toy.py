"""Four classes in the plane, learnt row by row: the predictions of each method after a few, some, and many rows.

The first figure of the appendix on streaming data: approximate inference with the class likelihood (``adf``) beside
closed-form inference in the matched models. All have the same prior, in effect a Gaussian process whose kernel is that
of random Fourier features.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._plane import CAPTION, N_CLASSES, draw_plane, grid, grid_records, row_records
from gaussify.experiments.paper._streaming import make_model
from gaussify.plotting import figure_file

METHODS = ("adf", *lab.REGRESSION)
_SCORES = ("accuracy", "nll")
_HALF_WIDTH = 4.5  # of the part of the plane that is drawn


def fourier_features(
    X: Float[np.ndarray, "n 2"], n_features: int, length_scale: float, rng: np.random.Generator
) -> Float[np.ndarray, "n d"]:
    r"""Return random features whose inner products estimate a squared-exponential kernel.

    .. math:: \phi_j(x) = \sqrt{2/d}\,\cos(\omega_j^\top x + b_j), \qquad
        \mathbb{E}[\phi(x)^\top\phi(x')] = \exp(-|x - x'|^2 / 2\ell^2),

    with :math:`\omega_j \sim \mathcal{N}(0, I/\ell^2)` and :math:`b_j` uniform on the circle (Rahimi and Recht, 2007).
    """
    frequency = rng.normal(0.0, 1.0 / length_scale, (2, n_features))
    phase = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return np.sqrt(2.0 / n_features) * np.cos(X @ frequency + phase)


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(seed=range(settings["n_seeds"]), method=METHODS)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    looks = settings["looks"]
    split = lab.four_classes(task["seed"], looks[-1], settings["n_test"])

    def features(points: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng([task["seed"], 2])
        return fourier_features(points, settings["n_features"], settings["length_scale"], rng)

    points = grid(settings["n_grid"], _HALF_WIDTH)
    new, test = features(points), features(split.X_test)
    model = make_model({**task, "alpha_eps": settings["alpha_eps"]}, settings, seed)
    records: list[lab.Record] = []
    for start, stop in pairwise([0, *looks]):
        X, y = split.X[start:stop], split.y[start:stop]
        for row, label in zip(features(X), y, strict=True):
            model.partial_fit(row[None], [label], classes=np.arange(N_CLASSES))
        own = lab.scores(model.predict_proba(test), split.y_test, _SCORES, n_digits=5)
        records.append({"kind": "score", "n_seen": stop, **own})
        if task["seed"] == 0:  # only the first is drawn
            probs = model.predict_proba(new)
            nodes = grid_records(points, probs, n_digits=3, n_seen=stop)
            records += [row | {"n_seen": n_seen} for n_seen, row in enumerate(row_records(X, y), start + 1)]
            records += [node | {"label": best} for node, best in zip(nodes, probs.argmax(1).tolist(), strict=True)]
    return records


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return test scores by the number of rows seen and the method, means over the seeds."""
    return [
        {"n_seen": n_seen, "method": method} | {name: round(lab.mean(own, name), 4) for name in _SCORES}
        for (n_seen, method), own in _by_look(lab.select(records, kind="score")).items()
    ]


def _by_look(records: list[lab.Record]) -> dict[tuple[int, str], list[lab.Record]]:
    """Return records by the number of rows seen and the method, in this order."""
    groups = lab.group(records, "n_seen", "method")
    return {key: groups[key] for key in sorted(groups, key=lambda key: (key[0], METHODS.index(key[1])))}


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw a column for each method and a row for each number of rows seen."""
    first = lab.select(records, seed=0)
    looks = _by_look(lab.select(first, kind="score"))
    n_looks = len(looks) // len(METHODS)
    size = {"width": 1.6 * len(METHODS), "height": 1.7 * n_looks + 0.4}
    with figure_file(folder, "streaming_toy", n_looks, len(METHODS), **size) as (figure, axes):
        for axis, ((n_seen, method), (score,)) in zip(axes.flat, looks.items(), strict=True):
            own = lab.select(first, method=method)
            seen = [record for record in lab.select(own, kind="row") if record["n_seen"] <= n_seen]
            nodes = lab.select(own, kind="grid", n_seen=n_seen)
            draw_plane(axis, [*seen, *nodes], size=14.0 if len(seen) <= 50 else 6.0)
            axis.set_xlabel(f"accuracy {score['accuracy']:.2f}, NLL {score['nll']:.2f}", fontsize=7, labelpad=2)
            if method == METHODS[0]:
                axis.set_ylabel(f"{n_seen} rows seen")
        for axis, method in zip(axes[0], METHODS, strict=True):
            axis.set_title(method)
        figure.supxlabel(CAPTION, fontsize=8)


PRESETS = lab.presets(
    dict(alpha_eps=0.1, prior_variance=10.0, intercept_variance=10.0, label_variance=1.0, length_scale=1.5)
    | dict(n_features=100, n_samples=1000, n_test=1000),
    smoke=dict(n_features=20, n_samples=100, n_seeds=1, looks=[5, 20], n_grid=7),
    laptop=dict(n_seeds=5, looks=[10, 40, 200], n_grid=25),
    paper=dict(n_seeds=20, n_samples=10_000, looks=[10, 40, 200, 1000], n_grid=60),
)

TITLE = "Online inference for four classes in the plane: predictions after a few rows, some, and many"

lab.register(lab.Experiment("streaming-toy", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
