"""What losses cost beside torch's own: forward and backward, alone and as part of a training step.

Every ratio is of two functions in one interleaved run. The kinds of targets are class indices, probabilities of classes
(``soft``), binary labels, and labels between 0 and 1 (``soft binary``). The forms are the mean, the mean with a weight
for each class (``pos_weight`` for binary labels), the losses of rows (``reduction="none"``), whose mean is taken
afterwards, and the mean for logits (n, c, 64) with as many rows in all (``planes``).

A loss alone is a few operations on logits, with ``torch.compile`` a single one: for few logits, the time is that of
calling them. A ``training step`` is one of a network with one hidden layer. ``MLP step`` and ``CNN step`` are steps of
small networks for images of 28 x 28 pixels.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from torch import Tensor, nn

from gaussify.experiments import _lab as lab
from gaussify.experiments._lab._timing import quiet_times
from gaussify.nn import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss
from gaussify.plotting import SERIES_COLOURS, figure_file

_KINDS = {
    "classes": "cross-entropy",
    "soft": "cross-entropy, of probabilities",
    "binary": "binary cross-entropy",
    "soft binary": "binary cross-entropy, labels between 0 and 1",
}
_FORMS = {"mean": "-", "weighted": "--", "rows": ":", "planes": "-."}
_FORM_WORDS = {"weighted": "weights", "rows": "no reduction", "planes": "logits (n, c, 64)"}
_PLANE = 64  # rows side by side
_PLACES = ("alone", "alone, compiled", "training step")
_NETWORKS = ("MLP step", "CNN step")


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    places = [place for place in _PLACES if settings["compiles"] or "compiled" not in place]
    losses: list[lab.Task] = [
        {"kind": kind, "form": form, "place": place, "n_rows": n_rows, "n_logits": n_logits}
        for kind in _KINDS
        for form in _FORMS
        for place in places
        for n_rows, n_logits in settings["sizes" if form == "mean" else "some_sizes"]
        if form != "planes" or not ("binary" in kind or place == "training step")
    ]
    steps: list[lab.Task] = [
        {"kind": "classes", "form": "mean", "place": place, "n_rows": n_rows, "n_logits": n_logits}
        for place in _NETWORKS
        for n_rows, n_logits in settings["network_sizes"]
    ]
    return losses + steps


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    n_rows, n_logits = task["n_rows"], task["n_logits"]
    generator = torch.Generator().manual_seed(seed)
    binary = "binary" in task["kind"]
    target = _target(task["kind"], n_rows, n_logits, generator)
    logits = torch.randn(n_rows, n_logits, generator=generator)
    if task["form"] == "planes":
        logits, target = (_as_planes(part, min(_PLANE, n_rows)) for part in (logits, target))
    options = _options(task["form"], binary, n_logits, generator)
    losses: dict[str, Callable[..., Tensor]] = (
        {"own": MatchedBCEWithLogitsLoss(**options), "reference": nn.BCEWithLogitsLoss(**options)}
        if binary
        else {"own": MatchedCrossEntropyLoss(n_logits, **options), "reference": nn.CrossEntropyLoss(**options)}
    )
    if "compiled" in task["place"]:
        torch.compiler.reset()  # a function is compiled for at most eight kinds of arguments
        losses = {name: torch.compile(loss) for name, loss in losses.items()}
    if "step" in task["place"]:
        steps = {
            name: _training_step(loss, target, task["place"], n_logits, settings["n_inputs"], seed)
            for name, loss in losses.items()
        }
    else:
        steps = {name: _alone(loss, logits, target) for name, loss in losses.items()}
    seconds = quiet_times(steps, settings["seconds"])
    own, reference = (1e6 * seconds[name] for name in ("own", "reference"))
    return [
        {"microseconds": round(own, 1), "torch_microseconds": round(reference, 1), "ratio": round(own / reference, 3)}
    ]


def _target(kind: str, n_rows: int, n_logits: int, generator: torch.Generator) -> Tensor:
    if kind == "soft":
        return torch.randn(n_rows, n_logits, generator=generator).softmax(-1)
    if kind == "soft binary":
        return torch.rand(n_rows, n_logits, generator=generator)
    if kind == "binary":
        return torch.randint(2, (n_rows, n_logits), generator=generator).float()
    return torch.randint(n_logits, (n_rows,), generator=generator)


def _as_planes(rows: Tensor, n_inner: int) -> Tensor:
    """Return rows (n, c) as (n / n_inner, c, n_inner), and rows (n,) as (n / n_inner, n_inner)."""
    apart = rows.unflatten(0, (-1, n_inner))
    return apart.movedim(2, 1).contiguous() if rows.ndim == 2 else apart


def _options(form: str, binary: bool, n_logits: int, generator: torch.Generator) -> dict[str, Any]:
    if form == "weighted":
        return {"pos_weight" if binary else "weight": 0.5 + torch.rand(n_logits, generator=generator)}
    return {"reduction": "none"} if form == "rows" else {}


def _alone(loss: Callable[..., Tensor], logits: Tensor, target: Tensor) -> Callable[[], None]:
    """Forward and backward of the loss."""
    own = logits.clone().requires_grad_()

    def alone() -> None:
        own.grad = None
        _mean(loss(own, target)).backward()

    return alone


def _training_step(
    loss: Callable[..., Tensor], target: Tensor, place: str, n_logits: int, n_inputs: int, seed: int
) -> Callable[[], None]:
    """A step of Adam for a network."""
    shape = (1, 28, 28) if place in _NETWORKS else (n_inputs,)
    inputs = torch.randn(len(target), *shape, generator=torch.Generator().manual_seed(seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(place, n_logits, n_inputs)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)

    def train() -> None:
        optimiser.zero_grad()
        _mean(loss(network(inputs), target)).backward()
        optimiser.step()

    return train


def _network(place: str, n_logits: int, n_inputs: int) -> nn.Module:
    if place == "MLP step":
        hidden = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(256, n_logits))
    if place == "CNN step":
        convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        convolutions += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 49, n_logits))
    return nn.Sequential(nn.Linear(n_inputs, n_inputs), nn.ReLU(), nn.Linear(n_inputs, n_logits))


def _mean(losses: Tensor) -> Tensor:
    return losses.mean() if losses.ndim else losses


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return the ratios over the sizes of a batch for each form, and over all sizes and forms; means are geometric."""
    rows: list[lab.Record] = []
    for (kind, place), of_place in lab.group(records, "kind", "place").items():
        for form, own in [*lab.by(of_place, "form").items(), ("all", of_place)]:
            ratios = lab.column(own, "ratio").tolist()
            row: lab.Record = {"kind": kind, "form": form, "place": place, "n_sizes": len(own)}
            spread = {"smallest": min(ratios), "mean": round(geometric_mean(ratios), 3), "largest": max(ratios)}
            rows.append(row | spread | {"median": round(median(ratios), 3)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the ratio against the number of logits, a panel for each kind of loss."""
    with figure_file(folder, "loss_speed", 1, len(_KINDS), width=14.5, height=3.6) as (_, axes):
        for axis, (kind, words) in zip(axes[0], _KINDS.items(), strict=True):
            places = lab.by(lab.select(records, kind=kind), "place")
            for colour, (place, of_place) in zip(SERIES_COLOURS, places.items(), strict=False):
                for form, own in lab.by(of_place, "form").items():
                    points = sorted((record["n_rows"] * record["n_logits"], record["ratio"]) for record in own)
                    label = place if form == "mean" else f"{place}, {_FORM_WORDS[form]}"
                    axis.plot(*zip(*points, strict=True), "o", ls=_FORMS[form], color=colour, label=label)
            axis.axhline(1.0, color="black", lw=0.8, ls=":")
            axis.set(xscale="log", xlabel="logits of a batch", title=f"in place of\n{words}")
        axes[0, 0].set_ylabel("time over that of torch's loss")
        axes[0, 0].legend(fontsize=6)


TITLE = "Matched losses beside torch's own: time of forward and backward"
PRESETS = lab.presets(
    dict(sizes=[[64, 10], [128, 10], [512, 10], [128, 100], [512, 100], [512, 1000], [4096, 1000]])
    | dict(some_sizes=[[64, 10], [512, 10], [512, 100], [4096, 1000]], network_sizes=[[256, 10], [256, 1000]])
    | dict(n_inputs=256, compiles=True),
    smoke=dict(
        sizes=[[16, 3]], some_sizes=[[16, 3]], network_sizes=[[16, 3]], n_inputs=8, seconds=0.01, compiles=False
    ),
    laptop=dict(seconds=2.0),
    paper=dict(seconds=60.0),
)
lab.register(lab.Experiment("loss-speed", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
