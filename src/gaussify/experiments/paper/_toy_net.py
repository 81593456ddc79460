"""Networks for four classes in the plane, trained with cross-entropy and with what takes its place.

The first figure of the paper: two hidden layers of 64 rectified linear units, trained on all rows at once. Of each
matched method the alpha_eps counts that gives training rows the largest log-likelihood.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gaussify import datasets
from gaussify.experiments.paper._network_results import chosen, summary
from gaussify.experiments._networks._architectures import ALPHA_EPS, METHODS, loss_of, made, scores, seeded_tasks
from gaussify.experiments.paper._plane import N_CLASSES, draw_plane, grid, plane_records
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record
from gaussify.experiments._networks._training import Recipe, checkpoint_folder, train, warm_cosine
from gaussify.plotting import figure_file

_HALF_WIDTH = 4.5  # of the part of the plane that is drawn
_SCORES = ("error_pct", "nll", "ece", "train_nll")


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    number = int(task["seed"])  # type: ignore[arg-type]
    X, y = _rows(settings["n_rows"], [number, 0])
    X_test, y_test = _rows(settings["n_test"], [number, 1])
    network = made(_network, number)
    optimiser = torch.optim.Adam(network.parameters(), weight_decay=settings["weight_decay"])
    recipe = Recipe(settings["n_epochs"], len(X), settings["rate"], warm_cosine, seed=number)
    loss = loss_of(task, N_CLASSES)
    folder = checkpoint_folder("toy-net", settings, task)
    train(network, loss, optimiser, X, y, recipe, folder, report=lambda line: None, seconds_between=10.0)
    with torch.no_grad():
        score: Record = {"kind": "score", **scores(network(X_test), y_test), **scores(network(X), y, "train_")}
        if number > 0:  # the first is drawn
            return [score]
        points = grid(settings["n_grid"], _HALF_WIDTH)
        probs = network(torch.as_tensor(points, dtype=torch.float32)).softmax(-1)
    return [score, *plane_records(X.double().numpy(), y.numpy(), points, probs.double().numpy())]


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, N_CLASSES))


def _rows(n: int, seed: list[int]) -> tuple[Tensor, Tensor]:
    X, y = datasets.make_four_classes(n, random_state=np.random.default_rng(seed))
    return torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)


def _summarise(records: list[Record]) -> list[Record]:
    """Means over the data sets, for each method and alpha_eps; ``chosen`` marks what training rows choose."""
    return summary([record for record in records if record["kind"] == "score"], [], _SCORES)


def _draw(records: list[Record], folder: Path) -> None:
    """Draw a panel for each method, with the alpha_eps that training rows choose."""
    best = chosen([record for record in records if record["kind"] == "score"])
    with figure_file(folder, "toy_net", 1, len(METHODS), width=1.9 * len(METHODS), height=2.7) as (figure, axes):
        for axis, method in zip(axes[0], METHODS, strict=True):
            axis.set_title(method, fontsize=9)
            score = next((record for record in best if record["method"] == method and not record["seed"]), None)
            if score is None:  # of a run that has not come to an end
                axis.set_axis_off()
                continue
            same = ("seed", "method", "alpha_eps")
            draw_plane(axis, [record for record in records if all(record[key] == score[key] for key in same)])
            alpha = score["alpha_eps"]
            if alpha is not None:
                axis.set_title(rf"{method}, $\alpha_\epsilon$ = {alpha:g}", fontsize=9)
            axis.set_xlabel(f"error {score['error_pct']:.1f} %, NLL {score['nll']:.3f}", fontsize=7.5, labelpad=2)
        figure.supxlabel(
            "Colours of the classes, mixed by their probabilities, the largest of which is 0.5 on dotted lines and 0.9 "
            "on solid ones.",
            fontsize=8,
        )


_COMMON = {"n_test": 4000, "rate": 0.01, "weight_decay": 1e-4, "alpha_eps": ALPHA_EPS, "n_grid": 40}
register(
    Experiment(
        name="toy-net",
        title="Networks for four classes in the plane, trained with cross-entropy and with what takes its place",
        presets={
            "smoke": {
                **_COMMON,
                "n_rows": 60,
                "n_test": 200,
                "n_epochs": 30,
                "n_seeds": 1,
                "alpha_eps": [0.1],
                "n_grid": 9,
            },
            "laptop": {**_COMMON, "n_rows": 400, "n_epochs": 1000, "n_seeds": 5},
            "paper": {**_COMMON, "n_rows": 400, "n_epochs": 2000, "n_seeds": 10, "n_grid": 80},
        },
        tasks=seeded_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
