"""Networks for four classes in the plane, trained with cross-entropy and with matched losses in its place.

Figure 2 of the paper: two hidden layers of 64 rectified linear units, trained on all rows at once. For each matched
method, the ``alpha_eps`` counts that gives training rows the largest log-likelihood.
"""

from pathlib import Path

import torch
from torch import nn

from gaussify.experiments import _lab as lab
from gaussify.experiments._networks._architectures import made
from gaussify.experiments._networks._training import Recipe, logit_scores, loss_of, train, warm_cosine
from gaussify.experiments.paper._plane import CAPTION, N_CLASSES, draw_plane, grid, grid_records, row_records
from gaussify.plotting import figure_file

_HALF_WIDTH = 4.5  # of the part of the plane that is drawn
_SCORES = ("error_pct", "nll", "ece", "train_nll")


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    split = lab.four_classes(task["seed"], settings["n_rows"], settings["n_test"])
    X, X_test = (torch.as_tensor(part, dtype=torch.float32) for part in (split.X, split.X_test))
    y, y_test = torch.as_tensor(split.y), torch.as_tensor(split.y_test)
    network = made(_network, task["seed"])
    optimiser = torch.optim.Adam(network.parameters(), weight_decay=settings["weight_decay"])
    recipe = Recipe(settings["n_epochs"], len(X), settings["rate"], warm_cosine, seed=task["seed"])
    loss, folder = loss_of(task, N_CLASSES), lab.scratch_folder("toy-net", settings, task)
    train(network, loss, optimiser, X, y, recipe, folder, report=lambda line: None, seconds_between=10.0)
    with torch.no_grad():
        score = {"kind": "score", **logit_scores(network(X_test), y_test), **logit_scores(network(X), y, "train_")}
        if task["seed"] > 0:  # only the first is drawn
            return [score]
        points = grid(settings["n_grid"], _HALF_WIDTH)
        probs = network(torch.as_tensor(points, dtype=torch.float32)).softmax(-1)
    return [score, *row_records(X.double().numpy(), split.y), *grid_records(points, probs.double().numpy())]


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, N_CLASSES))


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the data sets, for each method and alpha_eps; ``chosen`` marks the choice of training rows."""
    return lab.summary(lab.select(records, kind="score"), ["method"], _SCORES)


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw a panel for each method, with the alpha_eps that training rows choose."""
    best = lab.chosen(lab.select(records, kind="score"), "method")
    size = {"width": 1.9 * len(lab.LOSSES), "height": 2.7}
    with figure_file(folder, "toy_net", 1, len(lab.LOSSES), **size) as (figure, axes):
        for axis, method in zip(axes[0], lab.LOSSES, strict=True):
            axis.set_title(method, fontsize=9)
            score = next(iter(lab.select(best, method=method, seed=0)), None)
            if score is None:  # the run has not finished
                axis.set_axis_off()
                continue
            alpha = score["alpha_eps"]
            draw_plane(axis, lab.select(records, seed=0, method=method, alpha_eps=alpha))
            if alpha is not None:
                axis.set_title(rf"{method}, $\alpha_\epsilon$ = {alpha:g}", fontsize=9)
            axis.set_xlabel(f"error {score['error_pct']:.1f} %, NLL {score['nll']:.3f}", fontsize=7.5, labelpad=2)
        figure.supxlabel(CAPTION, fontsize=8)


TITLE = "Networks for four classes in the plane, trained with cross-entropy and with matched losses"
PRESETS = lab.presets(
    dict(n_rows=400, n_test=4000, rate=0.01, weight_decay=1e-4, alpha_eps=lab.ALPHA_EPS, n_grid=40),
    smoke=dict(n_rows=60, n_test=200, n_epochs=30, n_seeds=1, alpha_eps=[0.1], n_grid=9),
    laptop=dict(n_epochs=1000, n_seeds=5),
    paper=dict(n_epochs=2000, n_seeds=10, n_grid=80),
)

lab.register(lab.Experiment("toy-net", TITLE, PRESETS, lab.seeded_tasks, _run, _draw, _summarise))
