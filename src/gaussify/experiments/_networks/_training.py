"""Training of networks on tensors in memory; a run that was killed continues and ends with the same weights."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gaussify._persistence import read_model, write_model
from gaussify.exceptions import GaussifyError, ModelFileError
from gaussify.experiments._lab import Record, Task, given_alpha_eps, scores
from gaussify.experiments._lab._bars import bar_of
from gaussify.nn._features import digest_of_tensor

CHECKPOINT = "checkpoint.safetensors"
_KIND, _FORMAT = "checkpoint", 3
_EPOCH_SEED = 1_000_003

Augment = Callable[[Tensor, torch.Generator], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. All random numbers of an epoch follow from the seed and the number of the epoch."""

    n_epochs: int
    batch_size: int
    rate: float  # the largest learning rate
    factor: Callable[[float], float]  # returns the share of this rate, from the share of all steps that are done
    augment: Augment | None = None  # returns a varied batch of inputs, from a batch and a generator
    seed: int = 0
    border: float = 0.0  # a network with a single logit predicts label 1 above this value


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
    """Return a factor that is multiplied by ``gamma`` at regular intervals and has ``n_steps`` values in all."""
    return lambda progress: gamma ** int(progress * n_steps + 1e-9)


def loss_of(task: Task, n_classes: int) -> Loss:
    """Return the mean loss of a task: cross-entropy for the method "exact", or a matched loss in its place."""
    from gaussify.nn import MatchedCrossEntropyLoss

    if task["method"] == "exact":
        return nn.functional.cross_entropy
    return MatchedCrossEntropyLoss(n_classes, given_alpha_eps(task), task["method"])


def describe(task: Task) -> str:
    """Return the values of a task, for lines about its progress.

    Examples
    --------
    >>> describe({"seed": 0, "method": "exact", "alpha_eps": None})
    '0, exact'
    """
    return ", ".join(str(value) for value in task.values() if value is not None)


def note(line: str) -> None:
    """Print a line about the progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def seconds_of(history: list[Record]) -> Record:
    """Return the seconds that all epochs of a training took.

    Examples
    --------
    >>> seconds_of([{"seconds": 1.25}, {"seconds": 2.0}])
    {'seconds': 3.2}
    """
    return {"seconds": round(math.fsum(record["seconds"] for record in history), 1)}


def train(
    network: nn.Module,
    loss: Loss,
    optimiser: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    folder: Path,
    *,
    look: Callable[[nn.Module], Record] | None = None,
    report: Callable[[str], None] = note,
    name: str = "network",
    seconds_between: float = 0.0,
) -> list[Record]:
    """Train a network in place and return a record for each epoch: its loss, its accuracy, and what ``look`` adds.

    If there is a GPU, the network is trained on it and moved back afterwards. After each epoch a checkpoint
    (safetensors) replaces the previous one in ``folder``, unless that is younger than ``seconds_between``. A run that
    was killed continues from its checkpoint; one of other training rows is ignored.

    ``loss`` returns the mean loss of a batch from outputs and labels. After each epoch, ``look`` is called with the
    network in evaluation mode, and ``report`` with a line that names the network. On a terminal, a bar shows the steps.
    """
    path, n_steps = folder / CHECKPOINT, math.ceil(len(inputs) / recipe.batch_size)
    data = f"{digest_of_tensor(inputs)} {digest_of_tensor(labels)}"
    with on_accelerator(network) as device:
        history, saved = _restore(path, network, optimiser, data, report), time.perf_counter()
        if 0 < len(history) < recipe.n_epochs:
            report(f"{name} goes on after epoch {len(history)}/{recipe.n_epochs}")
        with bar_of(name, recipe.n_epochs * n_steps, len(history) * n_steps) as advance:
            for epoch in range(len(history), recipe.n_epochs):
                start, total_loss, n_right = time.perf_counter(), 0.0, 0
                for value, n_right_of_batch in _steps(network, loss, optimiser, inputs, labels, recipe, epoch, device):
                    total_loss, n_right = total_loss + value, n_right + n_right_of_batch
                    advance()
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
                values = ", ".join(f"{key} {value:.4f}" for key, value in record.items())
                report(f"{name} epoch {epoch + 1}/{recipe.n_epochs}: {values}, {seconds:.1f} s")
    network.eval()
    return history


def _steps(
    network: nn.Module,
    loss: Loss,
    optimiser: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
    epoch: int,
    device: torch.device,
) -> Iterator[tuple[float, int]]:
    """Take the steps of an epoch, and yield after each the sum of losses and the number of rows that were right."""
    seed = recipe.seed + _EPOCH_SEED * (epoch + 1)
    generator = torch.Generator().manual_seed(seed)
    batches = torch.randperm(len(inputs), generator=generator).split(recipe.batch_size)
    network.train()
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)  # of dropout
        for step, rows in enumerate(batches):
            progress = (epoch * len(batches) + step) / (recipe.n_epochs * len(batches))
            for some in optimiser.param_groups:
                some["lr"] = recipe.rate * recipe.factor(progress)
            batch = inputs[rows] if recipe.augment is None else recipe.augment(inputs[rows], generator)
            outputs, own_labels = network(batch.to(device)), labels[rows].to(device)
            value = loss(outputs, own_labels)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            yield value.item() * len(rows), int((decide(outputs, recipe.border) == own_labels).sum())


@contextmanager
def on_accelerator(network: nn.Module) -> Iterator[torch.device]:
    """Move a network to the GPU (CUDA) for a while, if there is one, and yield the device it is on.

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
    """Return the predicted labels: of the largest of several logits, or by a border for single logits.

    Examples
    --------
    >>> decide(torch.tensor([[0.0, 1.0, 0.5]])), decide(torch.tensor([-1.0, 2.0]))
    (tensor([1]), tensor([0, 1]))
    """
    return outputs.argmax(1) if outputs.ndim == 2 else (outputs > border).long()


@torch.no_grad()
def outputs_of(network: nn.Module, inputs: Tensor, batch_size: int = 500) -> Tensor:
    """Return the outputs of a network in evaluation mode for all inputs, on the CPU.

    Examples
    --------
    >>> outputs_of(nn.Linear(2, 3), torch.zeros(5, 2), batch_size=2).shape
    torch.Size([5, 3])
    """
    network.eval()
    with on_accelerator(network) as device:
        return torch.cat([network(batch.to(device)).cpu() for batch in inputs.split(batch_size)])


def logit_scores(logits: Float[Tensor, "n c"], y: Int64[Tensor, " n"], prefix: str = "") -> Record:
    """Return error, NLL and ECE of the softmax of logits.

    Examples
    --------
    >>> logit_scores(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([1, 1]), "test_")
    {'test_error_pct': 50.0, 'test_nll': 0.7201, 'test_ece': 0.4251}
    """
    return {f"{prefix}{name}": value for name, value in scores(logits.double().softmax(-1), y).items()}


def train_nll(network: nn.Module, X: Tensor, y: Int64[Tensor, " n"]) -> Record:
    """Return the NLL of training rows, by which ``alpha_eps`` is chosen."""
    return {"train_nll": logit_scores(outputs_of(network, X), y)["nll"]}


def logit_auroc(near: Float[Tensor, "n c"], far: Float[Tensor, "m c"]) -> float:
    """Return how well the largest logit separates images from those of another data set, as in the paper.

    Examples
    --------
    >>> logit_auroc(torch.tensor([[4.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    is_near = [1] * len(near) + [0] * len(far)
    return round(float(roc_auc_score(is_near, torch.cat([near, far]).amax(1))), 5)


def _save(path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, data: str, history: list[Record]) -> None:
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for place, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    in_order = [list(record.items()) for record in history]  # mappings lose their order in the file
    write_model(path, _KIND, _FORMAT, {"history": in_order, "data": data}, tensors)


def _restore(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, data: str, report: Callable[[str], None]
) -> list[Record]:
    """Load a checkpoint into network and optimiser and return the records of its epochs; none if there is none."""
    if not path.exists():
        return []
    try:
        config, tensors = read_model(path, _KIND, _FORMAT)
    except ModelFileError as error:
        report(f"The checkpoint cannot be used, so training starts over: {error}")
        return []
    own = {f"network.{name}": value.shape for name, value in network.state_dict().items()}
    saved = {name: value.shape for name, value in tensors.items() if name.startswith("network.")}
    if config["data"] != data or own != saved:
        kind = "other data" if config["data"] != data else "another network"
        report(f"The checkpoint is of {kind}, so training starts over.")
        return []
    network.load_state_dict({name.removeprefix("network."): tensors[name] for name in own})
    state: dict[int, dict[str, Tensor]] = {}
    for key in tensors.keys() - own.keys():
        _, place, name = key.split(".")
        state.setdefault(int(place), {})[name] = tensors[key]
    optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
    return [dict(record) for record in config["history"]]
