"""Networks trained on tensors in memory, epoch by epoch: a run that was killed goes on, to the same weights."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gaussify import datasets
from gaussify._persistence import read_model, write_model
from gaussify.datasets._files import write_bytes
from gaussify.exceptions import GaussifyError, ModelFileError
from gaussify.experiments._lab._bars import bar_of
from gaussify.experiments._lab._records import Record
from gaussify.nn._features import digest_of_tensor

CHECKPOINT = "checkpoint.safetensors"
_KIND, _FORMAT = "checkpoint", 3
_EPOCH_SEED = 1_000_003

Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Parameters
    ----------
    n_epochs, batch_size, seed
        Whatever is drawn at random follows from the seed and the number of the epoch alone.
    rate
        Learning rate at its peak.
    factor
        From the part of all steps that is done, in [0, 1), the learning rate as a part of its peak.
    augment
        From a batch of inputs and a generator, other inputs.
    """

    n_epochs: int
    batch_size: int
    rate: float
    factor: Callable[[float], float]
    augment: Augment | None = None
    seed: int = 0


def warm_cosine(progress: float) -> float:
    """Return a factor that rises linearly over the first tenth of all steps and then falls to zero along a cosine.

    Examples
    --------
    >>> [round(warm_cosine(progress), 3) for progress in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.1
    if progress < warm_up:
        return progress / warm_up
    return 0.5 * (1.0 + math.cos(math.pi * (progress - warm_up) / (1.0 - warm_up)))


def steps_down(n_steps: int, gamma: float) -> Callable[[float], float]:
    """Return a factor that is multiplied by ``gamma`` at regular intervals, ``n_steps`` values in all.

    Examples
    --------
    >>> [steps_down(5, 0.1)(progress) for progress in (0.0, 0.19, 0.2, 0.99)]
    [1.0, 1.0, 0.1, 0.0001]
    """
    return lambda progress: gamma ** int(progress * n_steps + 1e-9)


def train(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    folder: Path,
    *,
    look: Callable[[nn.Module], Record] | None = None,
    border: float = 0.0,
    report: Callable[[str], None] = print,
    name: str = "network",
    seconds_between: float = 0.0,
) -> list[Record]:
    """Train a network in place and return a record of each epoch: its loss, its accuracy, and what ``look`` adds.

    On the GPU, where there is one; afterwards the network is where it was.

    After an epoch a checkpoint (safetensors) replaces the one before; a run that was killed goes on from it.

    Parameters
    ----------
    network, optimiser
        As they are before the first step.
    loss
        From outputs and labels of a batch to their mean loss.
    inputs, labels
        What to train on.
    folder
        Where the checkpoint is, or goes; one of other data is not used.
    look
        Called with the network in evaluation mode after each epoch.
    border
        Of one logit, above which the label is 1.
    report
        Called with a line after each epoch; on a terminal, a bar shows its steps.
    seconds_between
        At least so much time passes from one checkpoint to the next.
    """
    path, n_steps = folder / CHECKPOINT, math.ceil(len(inputs) / recipe.batch_size)
    data = f"{digest_of_tensor(inputs)} {digest_of_tensor(labels)}"
    with on_accelerator(network) as device:
        history, saved = _restore(path, network, optimiser, data, report), time.perf_counter()
        if 0 < len(history) < recipe.n_epochs:
            report(f"{name} goes on after epoch {len(history)}/{recipe.n_epochs}")
        with bar_of(name, recipe.n_epochs * n_steps, len(history) * n_steps) as advance:
            for epoch in range(len(history), recipe.n_epochs):
                start = time.perf_counter()
                total_loss, n_right = _train_epoch(
                    network, loss, optimiser, inputs, labels, recipe, epoch, border, device, advance
                )
                record: Record = {"loss": total_loss / len(inputs), "accuracy": n_right / len(inputs)}
                seconds = time.perf_counter() - start
                if not math.isfinite(total_loss):
                    raise GaussifyError(
                        f"The loss of {name} is {total_loss} in epoch {epoch + 1}: the learning rate is too high."
                    )
                if look is not None:
                    network.eval()
                    with torch.no_grad():
                        record |= look(network)
                history.append(record | {"seconds": seconds})
                if time.perf_counter() - saved >= seconds_between:
                    _save(path, network, optimiser, data, history)
                    saved = time.perf_counter()
                scores = ", ".join(f"{key} {value:.4f}" for key, value in record.items())
                report(f"{name} epoch {epoch + 1}/{recipe.n_epochs}: {scores}, {seconds:.1f} s")
    network.eval()
    return history


def _train_epoch(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    epoch: int,
    border: float,
    device: torch.device,
    advance: Callable[[], None],
) -> tuple[float, int]:
    """The sum of losses, and how many rows were right as they came."""
    seed = recipe.seed + _EPOCH_SEED * (epoch + 1)
    generator = torch.Generator().manual_seed(seed)
    n_steps = math.ceil(len(inputs) / recipe.batch_size)
    total_loss, n_right = 0.0, 0
    network.train()
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)  # of dropout
        for step, rows in enumerate(torch.randperm(len(inputs), generator=generator).split(recipe.batch_size)):
            progress = (epoch * n_steps + step) / (recipe.n_epochs * n_steps)
            for some in optimiser.param_groups:
                some["lr"] = recipe.rate * recipe.factor(progress)
            batch = inputs[rows] if recipe.augment is None else recipe.augment(inputs[rows], generator)
            outputs, own_labels = network(batch.to(device)), labels[rows].to(device)
            value = loss(outputs, own_labels)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            total_loss += value.item() * len(rows)
            n_right += int((decide(outputs, border) == own_labels).sum())
            advance()
    return total_loss, n_right


@contextmanager
def on_accelerator(network: nn.Module) -> Iterator[torch.device]:
    """Have a network on the GPU for a while, where there is one (CUDA), and give the device that it is on.

    Examples
    --------
    >>> network = nn.Linear(2, 3)
    >>> with on_accelerator(network) as device:
    ...     network.weight.device == device
    True
    >>> network.weight.device
    device(type='cpu')
    """
    before = next(network.parameters()).device
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else before
    network.to(device)
    try:
        yield device
    finally:
        network.to(before)


def decide(outputs: Tensor, border: float = 0.0) -> Tensor:
    """Return the label that a row of logits, or the one logit of a row above or below a border, speaks for.

    Examples
    --------
    >>> decide(torch.tensor([[0.0, 1.0, 0.5]])), decide(torch.tensor([-1.0, 2.0]))
    (tensor([1]), tensor([0, 1]))
    """
    return outputs.argmax(1) if outputs.ndim == 2 else (outputs > border).long()


@torch.no_grad()
def outputs_of(network: nn.Module, inputs: Tensor, batch_size: int = 500) -> Tensor:
    """Return what a network in evaluation mode makes of all inputs, on the CPU.

    Examples
    --------
    >>> outputs_of(nn.Linear(2, 3), torch.zeros(5, 2), batch_size=2).shape
    torch.Size([5, 3])
    """
    network.eval()
    with on_accelerator(network) as device:
        return torch.cat([network(batch.to(device)).cpu() for batch in inputs.split(batch_size)])


def training_folder(experiment: str, settings: Mapping[str, Any]) -> Path:
    """Return the folder, in the cache, for what is trained in a run of an experiment; ``--fresh`` removes it.

    Examples
    --------
    >>> training_folder("toy-net", {"n_epochs": 3}).parent.name
    'toy-net'
    """
    return datasets.cache_folder() / "training" / experiment / _short_digest(settings)


def checkpoint_folder(experiment: str, settings: Mapping[str, Any], task: Mapping[str, Any]) -> Path:
    """Return the folder for the checkpoint of a task; it is removed once the result of the task is on disk.

    Examples
    --------
    >>> checkpoint_folder("toy-net", {}, {"seed": 0}).parent == training_folder("toy-net", {})
    True
    """
    return training_folder(experiment, settings) / _short_digest(task)


def remove_checkpoint(experiment: str, settings: Mapping[str, Any], task: Mapping[str, Any]) -> None:
    """Remove the checkpoint of a task, if it has one, and what is empty then."""
    folder = checkpoint_folder(experiment, settings, task)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # of other tasks
        folder.parent.rmdir()


def _short_digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()[:16]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of our own."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise GaussifyError(f"{path} is damaged ({error}); remove it to train again.") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file, whole or not at all."""
    from safetensors.torch import save

    write_bytes(path, save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def _save(path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, data: str, history: list[Record]) -> None:
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for place, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    in_order = [list(record.items()) for record in history]  # which a mapping would lose in a file
    write_model(path, _KIND, _FORMAT, {"history": in_order, "data": data}, tensors)


def _restore(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, data: str, report: Callable[[str], None]
) -> list[Record]:
    """Return the records of the epochs that a checkpoint has seen, after putting it in place; none if there is none."""
    if not path.exists():
        return []
    try:
        config, tensors = read_model(path, _KIND, _FORMAT)
    except ModelFileError as error:
        report(f"The checkpoint is of no use, so training begins anew: {error}")
        return []
    if config["data"] != data:
        report("The checkpoint is of other data, so training begins anew.")
        return []
    history = [dict(record) for record in config["history"]]
    own = network.state_dict()
    weights = {name: tensors[f"network.{name}"] for name in own if f"network.{name}" in tensors}
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in weights.items()}:
        report("The checkpoint is of another network, so training begins anew.")
        return []
    network.load_state_dict(weights)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, rest = key.partition(".")
        if kind == "optimiser":
            place, _, name = rest.partition(".")
            state.setdefault(int(place), {})[name] = value
    optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
    return history
