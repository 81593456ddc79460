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
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor, nn

from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, group
from gaussify.experiments._timing import quiet_times
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


def _tasks(settings: Settings) -> list[Task]:
    places = [place for place in _PLACES if settings["compiles"] or "compiled" not in place]
    losses: list[Task] = [
        {"kind": kind, "form": form, "place": place, "n_rows": n_rows, "n_logits": n_logits}
        for kind in _KINDS
        for form in _FORMS
        for place in places
        for n_rows, n_logits in settings["sizes" if form == "mean" else "some_sizes"]
        if form != "planes" or not ("binary" in kind or place == "training step")
    ]
    steps: list[Task] = [
        {"kind": "classes", "form": "mean", "place": place, "n_rows": n_rows, "n_logits": n_logits}
        for place in _NETWORKS
        for n_rows, n_logits in settings["network_sizes"]
    ]
    return losses + steps


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    n_rows, n_logits = int(task["n_rows"]), int(task["n_logits"])  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    binary = "binary" in str(task["kind"])
    target = _target(str(task["kind"]), n_rows, n_logits, generator)
    logits = torch.randn(n_rows, n_logits, generator=generator)
    if task["form"] == "planes":
        logits, target = (_as_planes(part, min(_PLANE, n_rows)) for part in (logits, target))
    options = _options(str(task["form"]), binary, n_logits, generator)
    losses = {"own": _own(binary, n_logits, options), "reference": _reference(binary, options)}
    if "compiled" in str(task["place"]):
        torch.compiler.reset()  # which compiles a function for eight kinds of arguments, then calls it as it is
        losses = {name: torch.compile(loss) for name, loss in losses.items()}
    if "step" in str(task["place"]):
        steps = {
            name: _training_step(loss, target, str(task["place"]), n_logits, settings["n_inputs"], seed)
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
    """From (n, c) to (n / n_inner, c, n_inner), from (n,) to (n / n_inner, n_inner)."""
    apart = rows.unflatten(0, (-1, n_inner))
    return apart.movedim(2, 1).contiguous() if rows.ndim == 2 else apart


def _options(form: str, binary: bool, n_logits: int, generator: torch.Generator) -> dict[str, Any]:
    if form == "weighted":
        return {"pos_weight" if binary else "weight": 0.5 + torch.rand(n_logits, generator=generator)}
    return {"reduction": "none"} if form == "rows" else {}


def _own(binary: bool, n_logits: int, options: dict[str, Any]) -> Callable[..., Tensor]:
    from gaussify.nn import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss

    return MatchedBCEWithLogitsLoss(**options) if binary else MatchedCrossEntropyLoss(n_logits, **options)


def _reference(binary: bool, options: dict[str, Any]) -> Callable[..., Tensor]:
    return nn.BCEWithLogitsLoss(**options) if binary else nn.CrossEntropyLoss(**options)


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


def _summary(records: list[Record]) -> list[Record]:
    """Over the sizes of a batch, the ratio at its best and at its worst, and its geometric mean."""
    rows: list[Record] = []
    for (kind, form, place), own in group(records, "kind", "form", "place").items():
        ratios = [float(record["ratio"]) for record in own]  # type: ignore[arg-type]
        rows.append(
            {
                "kind": kind,
                "form": form,
                "place": place,
                "n_sizes": len(own),
                "smallest": min(ratios),
                "mean": round(geometric_mean(ratios), 3),
                "largest": max(ratios),
            }
        )
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    """Draw the ratio against the number of logits, a panel for each kind of loss."""
    with figure_file(folder, "loss_speed", 1, len(_KINDS), width=14.5, height=3.6) as (_, axes):
        for axis, (kind, words) in zip(axes[0], _KINDS.items(), strict=True):
            some = [record for record in records if record["kind"] == kind]
            for colour, ((place,), of_place) in zip(SERIES_COLOURS, group(some, "place").items(), strict=False):
                for (form,), own in group(of_place, "form").items():
                    points = sorted((int(r["n_rows"]) * int(r["n_logits"]), float(r["ratio"])) for r in own)  # type: ignore[arg-type]
                    label = str(place) if form == "mean" else f"{place}, {_FORM_WORDS[str(form)]}"
                    axis.plot(*zip(*points, strict=True), "o", ls=_FORMS[str(form)], color=colour, label=label)
            axis.axhline(1.0, color="black", lw=0.8, ls=":")
            axis.set(xscale="log", xlabel="logits of a batch", title=f"in place of\n{words}")
        axes[0, 0].set_ylabel("time over that of torch's loss")
        axes[0, 0].legend(fontsize=6)


_SIZES = [[64, 10], [128, 10], [512, 10], [128, 100], [512, 100], [512, 1000], [4096, 1000]]
_PRESET = {
    "sizes": _SIZES,
    "some_sizes": [[64, 10], [512, 10], [512, 100], [4096, 1000]],
    "network_sizes": [[256, 10], [256, 1000]],
    "n_inputs": 256,
    "compiles": True,
}
register(
    Experiment(
        name="loss-speed",
        title="Losses in place of cross-entropy beside torch's own: time of forward and backward",
        presets={
            "smoke": {
                "sizes": [[16, 3]],
                "some_sizes": [[16, 3]],
                "network_sizes": [[16, 3]],
                "n_inputs": 8,
                "seconds": 0.01,
                "compiles": False,
            },
            "laptop": _PRESET | {"seconds": 2.0},
            "paper": _PRESET | {"seconds": 60.0},
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summary,
    )
)
