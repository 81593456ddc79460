"""Networks of the paper for images, and the losses they are trained with."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from gaussify import metrics
from gaussify.experiments._lab._registry import Settings, Task
from gaussify.experiments._lab._records import Record
from gaussify.experiments._networks._training import outputs_of

METHODS = ("exact", "gauss", "moment-ori", "moment", "laplace", "variational")
_MATCHED = METHODS[2:]
ALPHA_EPS = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5]  # ours, where the paper does not say which it tried
Network = TypeVar("Network", bound=nn.Module)
# Of the pixels of all training images of CIFAR-10, by channel.
_PIXEL_MEAN = (125.30691805, 122.95039414, 113.86538318)
_PIXEL_STD = (62.99321928, 62.08870764, 66.70489964)


def method_tasks(alpha_eps: list[float], methods: Sequence[str] = METHODS, **columns: int | str) -> list[Task]:
    """Return a task for each method, and for each alpha_eps where it has one.

    Examples
    --------
    >>> len(method_tasks([0.1, 0.2], seed=0)), method_tasks([0.1], seed=0)[0]
    (10, {'seed': 0, 'method': 'exact', 'alpha_eps': None})
    """
    return [
        {**columns, "method": method, "alpha_eps": alpha}
        for method in methods
        for alpha in (alpha_eps if method in _MATCHED else [None])
    ]


def seeded_tasks(settings: Settings, methods: Sequence[str] = METHODS) -> list[Task]:
    """Return the tasks of all methods for each seed, and for each of the networks where there are several.

    Examples
    --------
    >>> [task["seed"] for task in seeded_tasks({"n_seeds": 2, "alpha_eps": [0.1]}, ["exact"])]
    [0, 1]
    """
    nets = [{"net": net} for net in settings.get("nets", ())] or [{}]
    return [
        task
        for seed in range(settings["n_seeds"])
        for net in nets
        for task in method_tasks(settings["alpha_eps"], methods, **net, seed=seed)
    ]


def loss_of(task: Task, n_classes: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a task: cross-entropy for ``exact``, or one that takes its place."""
    from gaussify.nn import MatchedCrossEntropyLoss

    method = str(task["method"])
    if method == "exact":
        return nn.functional.cross_entropy
    return MatchedCrossEntropyLoss(n_classes, task["alpha_eps"] or 0.1, method)  # which 'gauss' does not use


def made(make: Callable[[], Network], seed: int) -> Network:
    """Return a network whose weights are drawn by a seed.

    Examples
    --------
    >>> first, other = (made(lambda: nn.Linear(2, 1), seed=0) for _ in range(2))
    >>> torch.equal(first.weight, other.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def describe(task: Task) -> str:
    """Return a task in words, for lines about its progress.

    Examples
    --------
    >>> describe({"seed": 0, "method": "exact", "alpha_eps": None})
    '0, exact'
    """
    return ", ".join(str(value) for value in task.values() if value is not None)


def note(line: str) -> None:
    """Print a line about the progress, apart from what a command answers."""
    print(line, file=sys.stderr, flush=True)


def scores(logits: Float[Tensor, "n c"], y: Int64[Tensor, " n"], prefix: str = "") -> Record:
    """Return error, NLL and ECE of the softmax of logits.

    Examples
    --------
    >>> scores(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([1, 1]), "test_")
    {'test_error_pct': 50.0, 'test_nll': 0.7201, 'test_ece': 0.4251}
    """
    probs = logits.double().softmax(-1)
    return {
        f"{prefix}error_pct": round(100.0 * (1.0 - metrics.accuracy(probs, y)), 4),
        f"{prefix}nll": round(metrics.nll(probs, y), 6),
        f"{prefix}ece": round(metrics.ece(probs, y), 6),
    }


def logit_auroc(near: Float[Tensor, "n c"], far: Float[Tensor, "m c"]) -> float:
    """Return how well images are told from those of another data set by their largest logit, as in the paper.

    Examples
    --------
    >>> logit_auroc(torch.tensor([[4.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    is_near = [1] * len(near) + [0] * len(far)
    return round(float(roc_auc_score(is_near, torch.cat([near, far]).amax(1))), 5)


def train_nll(network: nn.Module, X: Tensor, y: Int64[Tensor, " n"]) -> Record:
    """Return the NLL of training rows, by which alpha_eps is chosen."""
    return {"train_nll": scores(outputs_of(network, X), y)["nll"]}


def seconds_of(history: list[Record]) -> Record:
    """Return how long the epochs of a training took.

    Examples
    --------
    >>> seconds_of([{"seconds": 1.25}, {"seconds": 2.0}])
    {'seconds': 3.2}
    """
    return {"seconds": round(math.fsum(record["seconds"] for record in history), 1)}  # type: ignore[misc]


def standardised(images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n 3 32 32"]:
    """Return images in units of the standard deviation of all of CIFAR-10, channels last in memory.

    Examples
    --------
    >>> standardised(torch.zeros(1, 32, 32, 3, dtype=torch.uint8))[0, :, 0, 0]
    tensor([-1.9892, -1.9802, -1.7070])
    """
    mean, std = (torch.tensor(numbers, device=images.device) for numbers in (_PIXEL_MEAN, _PIXEL_STD))
    return ((images - mean) / std).permute(0, 3, 1, 2)


class MNISTNet(nn.Module):
    """The network of the appendix: two convolutions, a pooling and two linear layers, with dropout between them.

    Parameters
    ----------
    width
        Factor on the channels (32 and 64) and hidden units (128).

    Examples
    --------
    >>> MNISTNet(0.125)(torch.zeros(2, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        first, second, hidden = (max(1, round(width * n)) for n in (32, 64, 128))
        self.stack = nn.Sequential(
            nn.Conv2d(1, first, 3),
            nn.ReLU(),
            nn.Conv2d(first, second, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(second * 12 * 12, hidden),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, images: UInt8[Tensor, "n 28 28"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.stack((images.float() / 255.0 - 0.1307).div(0.3081)[:, None])  # mean and deviation of MNIST


class ResNet18(nn.Module):
    """Four stages of two residual blocks each (He et al., 2016), with a first layer for images of 32 × 32 pixels.

    Parameters
    ----------
    width
        Factor on the number of channels, 512 in the last stage for ``width=1``.

    Examples
    --------
    >>> network = ResNet18(width=0.125).eval()
    >>> network(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        widths = [max(1, round(width * n)) for n in (64, 128, 256, 512)]
        blocks: list[nn.Module] = []
        before = widths[0]
        for stage, channels in enumerate(widths):
            blocks += [_Residual(before, channels, stride=1 if stage == 0 else 2), _Residual(channels, channels)]
            before = channels
        first = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.stack = nn.Sequential(
            first, nn.BatchNorm2d(widths[0]), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(before, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on a CPU

    def forward(self, images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.head(self.stack(standardised(images)))


class _Residual(nn.Module):
    """Two convolutions, and beside them the input, through one of a single pixel where shapes differ."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.beside: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.beside = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.beside(x))
