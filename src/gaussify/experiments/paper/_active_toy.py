"""Two classes in the plane, labelled one at a time: variational inference with the class likelihood, or regression.

The pictures of the appendix. Both models are Gaussian processes with the same fixed kernel and the same first labels,
and both ask for the row of largest predictive entropy. ``svgp`` fits a variational posterior again after each label.
``matched`` conditions in closed form on labels that variational matching turned into Gaussians. Seconds are those of
learning a label and choosing the next row.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._plane import row_records
from gaussify.plotting import figure_file

CONTENDERS = {"svgp": "variational GP classification", "matched": "GP regression, variational matching"}
_EDGES = (-2.0, 3.0), (-1.75, 2.25)  # of the part of the plane that is drawn


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(seed=range(settings["n_seeds"]), contender=CONTENDERS)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    from sklearn.datasets import make_moons

    from gaussify import ActiveLearner

    number = task["seed"]
    X, y = make_moons(settings["n_pool"], noise=0.25, random_state=number)
    X_test, y_test = make_moons(settings["n_test"], noise=0.25, random_state=number + 1_000_000)
    estimator = _estimator(task["contender"], settings)
    learner = ActiveLearner(estimator, X, random_state=number)
    first = np.concatenate([(y == label).nonzero()[0][: settings["n_initial"] // 2] for label in (0, 1)])
    learner.teach(first, y[first])
    records: list[lab.Record] = []
    rows, seconds = learner.query(), None
    for step in range(settings["n_steps"] + 1):
        n_labels = len(learner.labelled_)
        own = lab.scores(learner.estimator_.predict_proba(X_test), y_test, ("accuracy", "nll"), n_digits=5)
        records.append({"kind": "score", "n_labels": n_labels, **own, "seconds": seconds})
        if number == 0 and n_labels in settings["looks"]:
            records += _picture(learner, X, int(rows[0]), n_labels, settings["n_grid"])
        if step < settings["n_steps"]:
            start = time.perf_counter()
            learner.teach(rows, y[rows])
            rows = learner.query()
            seconds = round(time.perf_counter() - start, 4)
    return records


def _estimator(contender: str, settings: lab.Settings) -> Any:
    from gpytorch.kernels import RBFKernel, ScaleKernel

    from gaussify.gp import GPClassifier, VariationalGPClassifier

    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = settings["variance"], settings["lengthscale"]
    common: dict[str, Any] = {"scaling": None, "likelihood": "logistic"}
    if contender == "matched":
        return GPClassifier(kernel, max_iter=0, alpha_eps=settings["alpha_eps"], temperature=1.0, **common)
    common |= {"n_inducing": settings["n_initial"] + settings["n_steps"]}  # a point at each labelled row
    common |= {"inducing": "greedy", "learn_inducing": False, "learning_rate": 0.0, "natural_rate": 0.5}
    return VariationalGPClassifier(kernel, max_iter=settings["n_iter"], **common)


def _picture(learner: Any, X: NDArray, row: int, n_labels: int, n_grid: int) -> list[lab.Record]:
    """Return the records of a picture: labelled rows, the row to label next, and probabilities on a grid."""
    ticks = [np.linspace(*ends, n_grid) for ends in _EDGES]
    points = np.stack(np.meshgrid(*ticks), -1).reshape(-1, 2)
    probs = learner.estimator_.predict_proba(points)[:, 1]
    common = {"n_labels": n_labels}
    labelled = row_records(X[learner.labelled_], learner.labels_, **common)
    asked: lab.Record = {"kind": "asked", **common, "x1": round(X[row, 0], 3), "x2": round(X[row, 1], 3)}
    nodes = zip(points.round(3).tolist(), probs.round(3).tolist(), strict=True)
    return [*labelled, asked, *({"kind": "grid", **common, "x1": a, "x2": b, "prob": p} for (a, b), p in nodes)]


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the seeds: of the scores at the end, and of the seconds of a step."""
    rows: list[lab.Record] = []
    for contender, own in lab.by(lab.select(records, kind="score"), "contender").items():
        last = lab.select(own, n_labels=max(record["n_labels"] for record in own))
        row: lab.Record = {"contender": contender, "n_labels": last[0]["n_labels"]}
        row |= {name: round(lab.mean(last, name), 4) for name in ("accuracy", "nll")}
        timed = [record for record in own if record["seconds"] is not None]
        rows.append(row | {"seconds_per_step": round(lab.mean(timed, "seconds"), 4), "seeds": len(last)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the predictions of each model after some labels, and scores and seconds after each label."""
    pictures = lab.group([r for r in records if r["kind"] != "score"], "contender", "n_labels")
    looks = sorted({n_labels for _, n_labels in pictures})
    size = {"width": 2.5 * len(looks), "height": 2.3 * len(CONTENDERS)}
    scored = lab.select(records, kind="score")
    with figure_file(folder, "active_toy", len(CONTENDERS), len(looks), **size) as (_, axes):
        for row, (contender, words) in zip(axes, CONTENDERS.items(), strict=True):
            row[0].set_ylabel(words, fontsize=7.5)
            for axis, n_labels in zip(row, looks, strict=True):
                axis.set(xticks=[], yticks=[])
                seconds = lab.select(scored, contender=contender, n_labels=n_labels, seed=0)[0]["seconds"]
                took = "" if seconds is None else f", {1e3 * seconds:.0f} ms"
                axis.set_title(f"{n_labels} labels{took}", fontsize=7.5)
                _draw_picture(axis, pictures[contender, n_labels])
    panels = {"accuracy": "test accuracy", "nll": "test NLL [nat]", "seconds": "seconds a step"}
    with figure_file(folder, "active_toy_curves", 1, len(panels), width=10.0, height=3.2) as (_, axes):
        for (metric, label), axis in zip(panels.items(), axes[0], strict=True):
            groups = {words: lab.select(scored, contender=contender) for contender, words in CONTENDERS.items()}
            lab.draw_lines(axis, groups, "n_labels", metric)
            axis.set(xlabel="labels", ylabel=label)
        axes[0, -1].set_yscale("log")
        axes[0, 0].legend(fontsize=7)


def _draw_picture(axis: Any, records: list[lab.Record]) -> None:
    kinds = lab.by(records, "kind")
    side = round(len(kinds["grid"]) ** 0.5)
    probs = lab.column(kinds["grid"], "prob").reshape(side, side)
    extent = (*_EDGES[0], *_EDGES[1])
    axis.imshow(probs, origin="lower", extent=extent, cmap="RdBu_r", vmin=0.0, vmax=1.0, aspect="auto")
    ticks = [np.linspace(*ends, side) for ends in _EDGES]
    axis.contour(*ticks, probs, levels=[0.1, 0.5, 0.9], colors="0.2", linewidths=0.7)
    for label, marker in ((0, "o"), (1, "^")):
        some = [(r["x1"], r["x2"]) for r in kinds["row"] if r["label"] == label]
        axis.plot(*zip(*some, strict=True), marker, color="white", mec="black", ms=4)
    axis.plot(kinds["asked"][0]["x1"], kinds["asked"][0]["x2"], "*", color="gold", mec="black", ms=11)


TITLE = "Two classes in the plane labelled one at a time: variational GP classification and GP regression"
PRESETS = lab.presets(
    dict(n_pool=300, n_test=2000, n_initial=4, n_steps=40, looks=[4, 8, 16, 28, 44], lengthscale=0.5)
    | dict(variance=9.0, alpha_eps=0.1, n_grid=50, n_seeds=5)
    | dict(n_iter=20),  # more do not change the third digit of probabilities
    smoke=dict(n_pool=40, n_test=50, n_steps=3, looks=[4, 6], n_iter=5, n_grid=6, n_seeds=1),
    laptop={},
    paper=dict(n_seeds=20),
)

lab.register(lab.Experiment("active-toy", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
