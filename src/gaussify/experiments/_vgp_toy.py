r"""Variational Gaussian process classification of four classes in the plane, with matched Gaussians as the family.

The figure of the appendix on variational inference. For each method, hyperparameters and ``alpha_eps`` maximise the
bound on the evidence of the exact model (``elbo``). Beside it, hyperparameters maximise the evidence of the Gaussian
model, and ``alpha_eps`` is chosen by leaving rows out (``matched``). The bound of both is recorded. Whatever the
method, it is a bound on the evidence of the same model, so the bounds of one data set can be compared.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaussify import datasets, metrics
from gaussify.experiments._plane import draw_plane, grid, plane_records
from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, group
from gaussify.plotting import figure_file

METHODS = ("laplace", "variational", "moment", "moment-ori")
OBJECTIVES = {"elbo": "bound of the exact model", "matched": "evidence of the Gaussian model"}

_HALF_WIDTH = 4.0  # of the part of the plane that is drawn
_SCORES = ("alpha_eps", "bound", "nll", "ece", "error")


def exact_bound(model: Any, constant_variance: float) -> float:
    """Return the bound on the evidence of the exact model that the posterior of a fitted exact classifier gives.

    Constant means get the same variance a priori whatever the model was learnt with, so that bounds can be compared.

    Examples
    --------
    >>> from gaussify import GPClassifier
    >>> X, y = datasets.make_four_classes(40, random_state=0)
    >>> model = GPClassifier(alpha_eps=0.1, temperature=1.0).fit(X, y)
    >>> other = GPClassifier(alpha_eps=0.9, temperature=1.0).fit(X, y)
    >>> exact_bound(other, 1000.0) < exact_bound(model, 1000.0) < 0.0
    True
    """
    from gaussify._calibration._choice import make_table
    from gaussify.gp._models import ExactModel
    from gaussify.gp.objectives._likelihood import LikelihoodObjective, dense_likelihood_objective

    assert isinstance(model._model, ExactModel)
    rows = model._model.rows
    likelihood, table = make_table(model._given.label, rows.n_classes, model._choice)
    with torch.no_grad():
        covariance = model.kernel_(rows.features).to_dense() + constant_variance
        bound = LikelihoodObjective(likelihood.expected_log_prob)
        return dense_likelihood_objective(covariance, rows.labels, table, bound, rows.weight).item()


def _tasks(settings: Settings) -> list[Task]:
    return [
        {"seed": seed, "method": method, "objective": objective}
        for seed in range(settings["n_seeds"])
        for objective in OBJECTIVES
        for method in METHODS
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    from gaussify.gp import GPClassifier

    number = int(task["seed"])  # type: ignore[arg-type]
    X, y = datasets.make_four_classes(settings["n_rows"], random_state=np.random.default_rng([number, 0]))
    X_test, y_test = datasets.make_four_classes(settings["n_test"], random_state=np.random.default_rng([number, 1]))
    model = GPClassifier(
        objective=task["objective"], method=task["method"], temperature=1.0, max_iter=settings["max_iter"]
    ).fit(X, y)
    probs = model.predict_proba(X_test)
    score: Record = {
        "kind": "score",
        "alpha_eps": float(f"{model.alpha_eps_:.4g}"),
        "bound": round(exact_bound(model, settings["constant_variance"]), 2),
        "nll": round(metrics.nll(probs, y_test), 4),
        "ece": round(metrics.ece(probs, y_test), 4),
        "error": round(1.0 - metrics.accuracy(probs, y_test), 4),
    }
    if number > 0:  # the first is drawn
        return [score]
    points = grid(settings["n_grid"], _HALF_WIDTH)
    return [score, *plane_records(X, y, points, model.predict_proba(points))]


def _summarise(records: list[Record]) -> list[Record]:
    """Scores by method and objective, means over the data sets."""
    scores = [record for record in records if record["kind"] == "score"]
    return [
        {"method": method, "objective": objective}
        | {name: float(f"{np.mean([record[name] for record in own]):.4g}") for name in _SCORES}
        | {"n_data_sets": len(own)}
        for (method, objective), own in group(scores, "method", "objective").items()
    ]


def _draw(records: list[Record], folder: Path) -> None:
    """Draw a column for each method and a row for each objective: classes by colour, confidence by its depth."""
    panels = group([record for record in records if record["seed"] == 0], "objective", "method")
    size = {"width": 2.2 * len(METHODS), "height": 2.55 * len(OBJECTIVES) + 0.5}
    with figure_file(folder, "vgp_toy", len(OBJECTIVES), len(METHODS), **size) as (figure, axes):
        for axis_row, (objective, words) in zip(axes, OBJECTIVES.items(), strict=True):
            for axis, method in zip(axis_row, METHODS, strict=True):
                _draw_panel(axis, panels[objective, method], method)
            axis_row[0].set_ylabel(words)
        figure.supxlabel(
            "Colours of the classes, mixed by their probabilities, the largest of which is 0.5 on dotted lines and 0.9 "
            "on solid ones.\nThe bound is on the evidence of the exact model: larger is better.",
            fontsize=8,
        )


def _draw_panel(axis: Any, records: list[Record], method: str) -> None:
    draw_plane(axis, records)
    score = next(record for record in records if record["kind"] == "score")
    axis.set_title(rf"{method}, $\alpha_\epsilon$ = {score['alpha_eps']:.2g}", fontsize=9)
    axis.set_xlabel(f"bound {score['bound']:.1f}, NLL {score['nll']:.3f}", fontsize=7.5, labelpad=2)


_COMMON = {"n_rows": 300, "n_test": 4000, "max_iter": 200, "constant_variance": 1000.0, "n_grid": 40}
PRESETS: dict[str, Settings] = {
    "smoke": {**_COMMON, "n_rows": 60, "n_test": 500, "max_iter": 15, "n_seeds": 1, "n_grid": 9},
    "laptop": {**_COMMON, "n_seeds": 3},
    "paper": {**_COMMON, "n_rows": 400, "n_seeds": 10},
}

register(
    Experiment(
        name="vgp-toy",
        title="Variational Gaussian process classification of four classes in the plane, with alpha_eps learnt",
        presets=PRESETS,
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
