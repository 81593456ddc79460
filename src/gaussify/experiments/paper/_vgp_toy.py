"""Variational Gaussian process classification of four classes in the plane, with matched Gaussians as the family.

The figure of the appendix on variational inference. For each method, hyperparameters and ``alpha_eps`` maximise the
bound with the class likelihood (``elbo``). Beside it, hyperparameters maximise the evidence of the Gaussian
model, and ``alpha_eps`` is chosen by leave-one-out (``matched``). Both bounds are recorded. Every method gives a bound
on the evidence of the same model, so the bounds on one data set can be compared.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._plane import CAPTION, draw_plane, grid, grid_records, row_records
from gaussify.plotting import figure_file

METHODS = ("laplace", "variational", "moment", "moment-ori")
OBJECTIVES = {"elbo": "bound, class likelihood", "matched": "evidence of the Gaussian model"}

_HALF_WIDTH = 4.0  # of the part of the plane that is drawn
_SCORES = ("alpha_eps", "bound", "nll", "ece", "error")


def class_likelihood_bound(model: Any, X: Any, y: Any, constant_variance: float) -> float:
    """Return the bound on the evidence with the class likelihood, for a classifier without inducing points.

    The prior variance of constant means is the same for all models, so that bounds can be compared.
    """
    from gaussify.gp.objectives._likelihood import LikelihoodObjective, dense_likelihood_objective

    labels, likelihood = torch.from_numpy(np.searchsorted(model.classes_, y)), model.likelihood_
    with torch.no_grad():
        covariance = model.kernel_(torch.from_numpy(model.scale(X))).to_dense() + constant_variance
        bound = LikelihoodObjective(likelihood.expected_log_prob)
        return dense_likelihood_objective(
            covariance, labels, likelihood.target_table(), bound, torch.ones(len(y)).double()
        ).item()


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    runs = itertools.product(range(settings["n_seeds"]), OBJECTIVES, METHODS)
    return [{"seed": seed, "method": method, "objective": objective} for seed, objective, method in runs]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    from gaussify.gp import GPClassifier

    split = lab.four_classes(task["seed"], settings["n_rows"], settings["n_test"])
    options = {name: task[name] for name in ("objective", "method")}
    model = GPClassifier(**options, temperature=1.0, max_iter=settings["max_iter"]).fit(split.X, split.y)
    bound = round(class_likelihood_bound(model, split.X, split.y, settings["constant_variance"]), 2)
    score: lab.Record = {"kind": "score", "alpha_eps": lab.significant(model.alpha_eps_), "bound": bound}
    score |= lab.scores(model.predict_proba(split.X_test), split.y_test, ("nll", "ece", "error"), n_digits=4)
    if task["seed"] > 0:  # only the first is drawn
        return [score]
    points = grid(settings["n_grid"], _HALF_WIDTH)
    return [score, *row_records(split.X, split.y), *grid_records(points, model.predict_proba(points))]


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return scores by method and objective, means over the data sets."""
    return [
        {"method": method, "objective": objective}
        | {name: lab.significant(lab.mean(own, name)) for name in _SCORES}
        | {"n_data_sets": len(own)}
        for (method, objective), own in lab.group(lab.select(records, kind="score"), "method", "objective").items()
    ]


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw a column for each method and a row for each objective."""
    panels = lab.group(lab.select(records, seed=0), "objective", "method")
    size = {"width": 2.2 * len(METHODS), "height": 2.55 * len(OBJECTIVES) + 0.5}
    with figure_file(folder, "vgp_toy", len(OBJECTIVES), len(METHODS), **size) as (figure, axes):
        for axis_row, (objective, words) in zip(axes, OBJECTIVES.items(), strict=True):
            for axis, method in zip(axis_row, METHODS, strict=True):
                own = panels[objective, method]
                draw_plane(axis, own)
                (score,) = lab.select(own, kind="score")
                axis.set_title(rf"{method}, $\alpha_\epsilon$ = {score['alpha_eps']:.2g}", fontsize=9)
                axis.set_xlabel(f"bound {score['bound']:.1f}, NLL {score['nll']:.3f}", fontsize=7.5, labelpad=2)
            axis_row[0].set_ylabel(words)
        words = "The bound is that with the class likelihood: larger is better."
        figure.supxlabel(f"{CAPTION}\n{words}", fontsize=8)


# The bounds are compared with each other only, so any broad variance of constant means will do. Committed results and
# their settings hold 1000; the objectives of the library use 10 000 (gp/_constant_mean.py).
PRESETS = lab.presets(
    dict(n_rows=300, n_test=4000, max_iter=200, constant_variance=1000.0, n_grid=40),
    smoke=dict(n_rows=60, n_test=500, max_iter=15, n_seeds=1, n_grid=9),
    laptop=dict(n_seeds=3),
    paper=dict(n_rows=400, n_seeds=10),
)

TITLE = "Variational Gaussian process classification of four classes in the plane, with alpha_eps learnt"

lab.register(lab.Experiment("vgp-toy", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
