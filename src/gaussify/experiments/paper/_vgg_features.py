"""The last pooled layer of a VGG-11 as features of CIFAR-10, for the experiment ``streaming``.

The paper takes a pretrained VGG-11. Here the network is trained on the *first* half of the training images, and the
stream is the *other* half: features that were fitted to the labels of the stream would make every method look better
than it is.
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
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from gaussify import datasets
from gaussify._atomic import write_bytes
from gaussify.exceptions import GaussifyError
from gaussify.experiments._networks import _training as training
from gaussify.experiments._networks._architectures import VGG11, made
from gaussify.experiments._networks._images import augment
from gaussify.nn import InputsOf

FEATURES = "features.safetensors"


@dataclass(frozen=True)
class VGGSettings:
    """Architecture, optimiser and seed; together with the images they determine the weights."""

    width: float = 1.0
    n_epochs: int = 200
    batch_size: int = 128
    peak_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0

    @property
    def key(self) -> str:
        """A folder name for the network that is trained with these settings."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"vgg11-width{self.width:g}-epochs{self.n_epochs}-{digest[:8]}"


def train(
    images: UInt8[Tensor, "n 32 32 3"],
    labels: Int64[Tensor, " n"],
    settings: VGGSettings,
    folder: Path,
    report: Callable[[str], None] = training.note,
) -> VGG11:
    """Return a network trained by SGD with Nesterov momentum on randomly cropped and mirrored images.

    The learning rate rises linearly over the first tenth of all steps and then falls to zero along a cosine.
    """
    network = made(partial(VGG11, settings.width, n_classes=int(labels.max()) + 1), settings.seed)
    momentum, decay = settings.momentum, settings.weight_decay
    optimiser = torch.optim.SGD(network.parameters(), momentum=momentum, weight_decay=decay, nesterov=True)
    schedule = settings.n_epochs, settings.batch_size, settings.peak_rate, training.warm_cosine
    recipe = training.Recipe(*schedule, augment=augment, seed=settings.seed)
    loss = nn.functional.cross_entropy
    training.train(network, loss, optimiser, images, labels, recipe, folder, report=report, name="VGG-11")
    return network


class Features(NamedTuple):
    """Features and labels of the stream and of the test set."""

    X_stream: Float[Tensor, "n d"]
    y_stream: Int64[Tensor, " n"]
    X_test: Float[Tensor, "m d"]
    y_test: Int64[Tensor, " m"]


def cifar10_features(settings: VGGSettings, report: Callable[[str], None] = training.note) -> Features:
    """Return features of the second half of the training images of CIFAR-10 and of the test images.

    The network is trained on the first half, in which the classes are balanced. Weights and features are computed once
    and kept in the cache folder (:func:`gaussify.datasets.cache_folder`), under a name made of settings and images.
    """
    data = datasets.load("cifar10")
    folder = datasets.cache_folder() / f"{settings.key}-{hashlib.sha256(data.y_train.tobytes()).hexdigest()[:8]}"
    path = folder / FEATURES
    if path.exists():
        try:
            return Features(**load_file(path))
        except SafetensorError as error:
            raise GaussifyError(f"{path} is damaged ({error}); remove it to train again.") from error
    X_train, y_train, X_test, y_test = (torch.as_tensor(part) for part in data[1:5])
    half = len(X_train) // 2
    check_balance(y_train[:half], len(data.class_names))
    network = train(X_train[:half], y_train[:half], settings, folder, report)
    X_stream, X_test = (training.outputs_of(InputsOf(network), images) for images in (X_train[half:], X_test))
    features = Features(X_stream, y_train[half:], X_test, y_test)
    for name, X, y in (("stream", *features[:2]), ("test", *features[2:])):
        with torch.no_grad():
            right = (network.head(X).argmax(1) == y).double().mean()
        report(f"VGG-11: accuracy of its own last layer on the {name} images {right:.4f}")
    write_bytes(path, save({name: part.contiguous() for name, part in features._asdict().items()}))
    return features


def check_balance(labels: Int64[Tensor, " n"], n_classes: int) -> None:
    """Raise an error if the size of a class differs from the mean size by more than a tenth.

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
