r"""VGG-11 for images of 32 × 32 pixels, and its last pooled layer as features of CIFAR-10.

The paper streams features of a pretrained VGG-11. No pretrained weights can be downloaded here, so the network is
trained by this module, on the *first* half of the training images at hand; the stream is the *other* half.
Features that were fitted to the labels they are streamed with would make every method look better than it is.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from gaussify import datasets
from gaussify.exceptions import GaussifyError
from gaussify.experiments._networks import _training as training
from gaussify.experiments._networks._architectures import made, standardised
from gaussify.experiments._networks._training import Recipe, warm_cosine

FEATURES = "features.safetensors"

_LAYERS = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")
_PADDING = 4


@dataclass(frozen=True)
class VGGSettings:
    """What the weights follow from, together with the images: the architecture, the optimiser and the seed.

    Examples
    --------
    >>> VGGSettings(width=0.5, n_epochs=45).key == VGGSettings(width=0.5, n_epochs=46).key
    False
    """

    width: float = 1.0
    n_epochs: int = 200
    batch_size: int = 128
    peak_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0

    @property
    def key(self) -> str:
        """A name for the folder of what was trained with these settings."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"vgg11-width{self.width:g}-epochs{self.n_epochs}-{digest[:8]}"


class VGG11(nn.Module):
    """Eight convolutions with batch normalisation, five poolings down to one pixel, and one linear layer.

    Parameters
    ----------
    width
        Factor on the number of channels, 512 in the last layer for ``width=1``.
    n_classes
        Number of logits.

    Examples
    --------
    >>> network = VGG11(width=0.125).eval()
    >>> images = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
    >>> network.penultimate(images).shape, network(images).shape
    (torch.Size([2, 64]), torch.Size([2, 10]))
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for layer in _LAYERS:
            if isinstance(layer, str):
                layers.append(nn.MaxPool2d(2))
                continue
            wider = max(1, round(width * layer))
            layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
        self.stack = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth quicker on a CPU

    def penultimate(self, images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n d"]:
        """Return the last pooled layer, which the linear layer sees."""
        return self.stack(standardised(images))

    def forward(self, images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.head(self.penultimate(images))


def train(
    images: UInt8[Tensor, "n 32 32 3"],
    labels: Int64[Tensor, " n"],
    settings: VGGSettings,
    folder: Path,
    report: Callable[[str], None] = print,
) -> VGG11:
    """Return a network trained by SGD with Nesterov momentum on randomly cropped and mirrored images.

    The learning rate rises linearly over the first tenth of all steps and then falls to zero along a cosine. A run that
    was killed goes on from its last epoch.

    Parameters
    ----------
    images, labels
        What to train on.
    settings
        Architecture, optimiser and seed.
    folder
        Where the checkpoint is, or goes.
    report
        Called with one line for each epoch: loss, accuracy on the augmented images and seconds.
    """
    network = made(partial(VGG11, settings.width, n_classes=int(labels.max()) + 1), settings.seed)
    optimiser = torch.optim.SGD(
        network.parameters(), momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )
    recipe = Recipe(
        settings.n_epochs, settings.batch_size, settings.peak_rate, warm_cosine, augment=augment, seed=settings.seed
    )
    loss = nn.functional.cross_entropy
    training.train(network, loss, optimiser, images, labels, recipe, folder, report=report, name="VGG-11")
    return network


def augment(images: UInt8[Tensor, "n h w 3"], generator: torch.Generator) -> UInt8[Tensor, "n h w 3"]:
    """Return each image moved by up to four pixels, black where it came from nowhere, and half of them mirrored.

    Examples
    --------
    >>> images = torch.ones(3, 32, 32, 3, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 32, 32, 3])
    """
    n, height, width, _ = images.shape
    padded = nn.functional.pad(images, (0, 0, _PADDING, _PADDING, _PADDING, _PADDING))
    shifts = torch.randint(2 * _PADDING + 1, (2, n, 1), generator=generator)
    rows, columns = shifts[0] + torch.arange(height), shifts[1] + torch.arange(width)  # (n, h), (n, w)
    mirrored = torch.rand(n, generator=generator) < 0.5
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


@torch.no_grad()
def penultimate_features(
    network: VGG11, images: UInt8[Tensor, "n 32 32 3"], batch_size: int = 500
) -> Float[Tensor, "n d"]:
    """Return the last pooled layer for each image, with the statistics of batch normalisation fixed.

    Examples
    --------
    >>> images = torch.randint(256, (3, 32, 32, 3), dtype=torch.uint8)
    >>> penultimate_features(VGG11(width=0.125), images).shape
    torch.Size([3, 64])
    """
    network.eval()
    return torch.cat([network.penultimate(batch) for batch in images.split(batch_size)])


class Features(NamedTuple):
    """Features and labels of the stream and of the test set."""

    X_stream: Float[Tensor, "n d"]
    y_stream: Int64[Tensor, " n"]
    X_test: Float[Tensor, "m d"]
    y_test: Int64[Tensor, " m"]


def cifar10_features(settings: VGGSettings, report: Callable[[str], None] = print) -> Features:
    """Return features of the second half of the training images of CIFAR-10 and of the test images.

    The first half, in which every class has about its share, is what the network is trained on, once: weights and
    features are kept in the cache folder (:func:`gaussify.datasets.cache_folder`), under a name that tells settings and
    images apart.
    """
    data = datasets.load("cifar10")
    folder = datasets.cache_folder() / f"{settings.key}-{hashlib.sha256(data.y_train.tobytes()).hexdigest()[:8]}"
    if (folder / FEATURES).exists():
        return _read_features(folder / FEATURES)
    X_train, y_train = torch.as_tensor(data.X_train), torch.as_tensor(data.y_train)
    X_test, y_test = torch.as_tensor(data.X_test), torch.as_tensor(data.y_test)
    half = len(X_train) // 2
    check_balance(y_train[:half], len(data.class_names))
    network = train(X_train[:half], y_train[:half], settings, folder, report)
    features = Features(
        penultimate_features(network, X_train[half:]), y_train[half:], penultimate_features(network, X_test), y_test
    )
    for name, X, y in (("stream", *features[:2]), ("test", *features[2:])):
        with torch.no_grad():
            right = (network.head(X).argmax(1) == y).double().mean()
        report(f"VGG-11: accuracy of its own last layer on the {name} images {right:.4f}")
    training.write_tensors(folder / FEATURES, features._asdict())
    return features


def check_balance(labels: Int64[Tensor, " n"], n_classes: int) -> None:
    """Refuse labels of which a class has not its share, by more than a tenth.

    Examples
    --------
    >>> check_balance(torch.tensor([0, 0, 0, 1]), 2)
    Traceback (most recent call last):
        ...
    gaussify.exceptions.GaussifyError: The images to train on are not balanced: between 1 and 3 a class, not about 2.
    """
    counts, share = labels.bincount(minlength=n_classes), len(labels) / n_classes
    if bool(((counts - share).abs() > 0.1 * share).any()):
        spread = f"between {int(counts.min())} and {int(counts.max())} a class, not about {share:g}"
        raise GaussifyError(f"The images to train on are not balanced: {spread}.")


def _read_features(path: Path) -> Features:
    tensors = training.read_tensors(path)
    return Features(*(tensors[name] for name in Features._fields))
