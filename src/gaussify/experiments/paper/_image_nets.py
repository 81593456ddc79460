"""Networks for images, trained with cross-entropy and with what takes its place.

- ``mnist-cnn``: the network of the appendix on MNIST; Adadelta, whose learning rate falls after each epoch. Errors and
  losses along the way, for every alpha_eps, and the best of each method.
- ``cifar10-nets``: VGG-11 and ResNet-18 on CIFAR-10; SGD with momentum. Scores at the end beside the paper's.

Probabilities are the softmax of the logits. Of each matched method the alpha_eps counts that gives training images the
largest log-likelihood, seen as they are and without dropout.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from gaussify import datasets
from gaussify.datasets._images import Images
from gaussify.exceptions import GaussifyError
from gaussify.experiments.paper._network_results import (
    draw_cifar10,
    draw_mnist,
    summarise_cifar10,
    summarise_mnist,
)
from gaussify.experiments._networks._architectures import (
    ALPHA_EPS,
    METHODS,
    MNISTNet,
    ResNet18,
    describe,
    logit_auroc,
    loss_of,
    made,
    note,
    scores,
    seconds_of,
    seeded_tasks,
    train_nll,
)
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record
from gaussify.experiments._networks._training import Recipe, checkpoint_folder, outputs_of, steps_down, train, warm_cosine
from gaussify.experiments.paper._vgg_features import VGG11, augment

_NETS: dict[str, Callable[..., nn.Module]] = {"vgg11": VGG11, "resnet18": ResNet18}
_N_CLASSES = 10


def _images(settings: Settings) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first images to train on, and to test on, as many as the settings ask for; all for None."""
    data = load_images(settings["dataset"])
    n_train, n_test = settings["n_train"], settings["n_test"]
    if n_train is not None and n_train > len(data.X_train):
        raise GaussifyError(
            f"This preset trains on {n_train} images of {settings['dataset']}, and {len(data.X_train)} are at hand; "
            "without the subset in GAUSSIFY_DATA, all are downloaded."
        )
    parts = data.X_train[:n_train], data.y_train[:n_train], data.X_test[:n_test], data.y_test[:n_test]
    X_train, y_train, X_test, y_test = (torch.as_tensor(part) for part in parts)
    return X_train, y_train, X_test, y_test


def load_images(name: str) -> Any:
    """Return images to train and to test on; for "digits" scikit-learn's, with pixels three times as large.

    Examples
    --------
    >>> load_images("digits").X_test.shape
    (597, 28, 28)
    """
    if name != "digits":
        return datasets.load(name)
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    larger = np.kron(15.0 * X.reshape(-1, 8, 8), np.ones((1, 3, 3))).astype(np.uint8)
    X = np.pad(larger, ((0, 0), (2, 2), (2, 2)))  # 28 x 28
    return Images(X[:1200], y[:1200].astype(np.int64), X[1200:], y[1200:].astype(np.int64))


def _mnist_run(settings: Settings, task: Task, seed: int) -> list[Record]:
    X, y, X_test, y_test = _images(settings)
    number = int(task["seed"])  # type: ignore[arg-type]
    network = made(partial(MNISTNet, settings["width"]), number)
    optimiser = torch.optim.Adadelta(network.parameters())
    n_epochs = settings["n_epochs"]
    recipe = Recipe(n_epochs, settings["batch_size"], 1.0, steps_down(n_epochs, settings["gamma"]), seed=number)

    def look(network: nn.Module) -> Record:
        some = slice(settings["n_fit"])
        return scores(outputs_of(network, X_test), y_test) | train_nll(network, X[some], y[some])

    loss, folder = loss_of(task, _N_CLASSES), checkpoint_folder("mnist-cnn", settings, task)
    history = train(network, loss, optimiser, X, y, recipe, folder, look=look, report=note, name=describe(task))
    return [{"epoch": epoch, **_rounded(record)} for epoch, record in enumerate(history, start=1)]


def _cifar10_run(settings: Settings, task: Task, seed: int) -> list[Record]:
    X, y, X_test, y_test = _images(settings)
    X, X_test = in_colour(X), in_colour(X_test)
    number, net = int(task["seed"]), str(task["net"])  # type: ignore[arg-type]
    network = made(partial(_NETS[net], settings["widths"][net]), number)
    optimiser = torch.optim.SGD(
        network.parameters(), momentum=0.9, weight_decay=settings["weight_decay"], nesterov=True
    )
    factor = warm_cosine if settings["schedule"] == "cosine" else steps_down(5, 0.1)
    rate = settings["rates"][str(task["method"])]
    recipe = Recipe(settings["n_epochs"], settings["batch_size"], rate, factor, augment=augment, seed=number)
    loss, folder = loss_of(task, _N_CLASSES), checkpoint_folder("cifar10-nets", settings, task)
    history = train(network, loss, optimiser, X, y, recipe, folder, report=note, name=describe(task))
    logits = outputs_of(network, X_test)
    far = {f"{name}_auc": _auroc(network, logits, name, settings["n_test"]) for name in settings["ood"]}
    return [scores(logits, y_test) | far | train_nll(network, X, y) | seconds_of(history)]


def _auroc(network: nn.Module, logits: Tensor, name: str, n_test: int | None) -> float | None:
    """How well images of another data set are told apart by the largest logit; None where it is not at hand."""
    other = _far_images(name)
    return None if other is None else logit_auroc(logits, outputs_of(network, in_colour(other[:n_test])))


@cache
def _far_images(name: str) -> Tensor | None:
    """Images of another data set; None, and a line about it, where it is not at hand."""
    try:
        return torch.as_tensor(load_images(name).X_test)
    except GaussifyError as error:
        note(f"No AUROC against {name}: {error}")
        return None


def _cifar10_check(settings: Settings) -> None:
    """Have all images at hand before the first network is trained, since none is kept to be asked again."""
    _images(settings)
    for name in settings["ood"]:
        _far_images(name)


def in_colour(images: UInt8[Tensor, "n ..."]) -> UInt8[Tensor, "n 32 32 3"]:
    """Return images of 28 × 28 pixels in grey as those of CIFAR-10 are: black around them, and three channels alike.

    Examples
    --------
    >>> in_colour(torch.zeros(5, 28, 28, dtype=torch.uint8)).shape
    torch.Size([5, 32, 32, 3])
    """
    if images.shape[1:] == (32, 32, 3):
        return images
    return nn.functional.pad(images, (2, 2, 2, 2))[..., None].repeat(1, 1, 1, 3)


def _rounded(record: Record) -> Record:
    return {name: float(f"{value:.5g}") for name, value in record.items()}


_MNIST: Settings = {
    "dataset": "mnist",
    "width": 1.0,
    "batch_size": 64,
    "gamma": 0.7,
    "n_epochs": 10,
    "n_train": None,
    "n_test": None,
    "n_fit": 10_000,
    "n_seeds": 1,
    "alpha_eps": ALPHA_EPS,
}
register(
    Experiment(
        name="mnist-cnn",
        title="A convolutional network on MNIST, trained with cross-entropy and with what takes its place",
        presets={
            "smoke": {
                **_MNIST,
                "dataset": "digits",
                "width": 0.125,
                "n_epochs": 2,
                "n_train": 120,
                "n_test": 60,
                "alpha_eps": [0.1],
            },
            "laptop": {**_MNIST, "width": 0.5, "n_epochs": 8, "n_train": 10_000, "n_fit": 5000},
            "paper": {**_MNIST, "n_fit": None, "n_seeds": 5},
        },
        tasks=seeded_tasks,
        check=_images,
        run=_mnist_run,
        draw=draw_mnist,
        summarise=summarise_mnist,
    )
)

_CIFAR10: Settings = {
    "dataset": "cifar10",
    "nets": list(_NETS),
    "widths": dict.fromkeys(_NETS, 1.0),
    "alpha_eps": [0.01, 0.05, 0.1],
    "batch_size": 128,
    "weight_decay": 5e-4,
    "rates": {**dict.fromkeys(METHODS, 0.01), "exact": 0.1},  # a residual of squares is not bounded as that of softmax
    "schedule": "steps",
    "n_epochs": 200,
    "n_train": None,
    "n_test": None,
    "n_seeds": 1,
    "ood": ["cifar100", "svhn"],
}
register(
    Experiment(
        name="cifar10-nets",
        title="VGG-11 and ResNet-18 on CIFAR-10, trained with cross-entropy and with what takes its place",
        presets={
            "smoke": {
                **_CIFAR10,
                "dataset": "digits",
                "widths": dict.fromkeys(_NETS, 0.125),  # backward of fewer channels crashes in torch 2.13
                "alpha_eps": [0.1],
                "n_epochs": 1,
                "n_train": 40,
                "n_test": 20,
                "ood": ["digits"],
            },
            "laptop": {
                **_CIFAR10,
                "widths": {"vgg11": 0.25, "resnet18": 0.125},
                "n_train": 10_000,
                "rates": {**dict.fromkeys(METHODS, 0.003), "exact": 0.03},  # steps are few
                "schedule": "cosine",
                "n_epochs": 10,
                "ood": ["cifar100", "svhn", "fashion-mnist", "mnist"],
            },
            "paper": {**_CIFAR10, "n_train": 50_000, "n_seeds": 10},
        },
        tasks=seeded_tasks,
        check=_cifar10_check,
        run=_cifar10_run,
        draw=draw_cifar10,
        summarise=summarise_cifar10,
    )
)
