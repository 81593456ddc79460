"""Networks for images, trained with cross-entropy and with matched losses in its place.

- ``mnist-cnn``: the network of the appendix on MNIST, trained by Adadelta with a learning rate that falls after each
  epoch. Errors and losses are recorded after each epoch, for every ``alpha_eps``.
- ``cifar10-nets``: VGG-11 and ResNet-18 on CIFAR-10, trained by SGD with momentum. Scores at the end stand beside the
  paper's.

Probabilities are the softmax of the logits. For each matched method, the ``alpha_eps`` counts that gives training
images the largest log-likelihood, without augmentation and dropout.
"""

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn

from gaussify.exceptions import GaussifyError
from gaussify.experiments import _lab as lab
from gaussify.experiments._networks import _training as training
from gaussify.experiments._networks._architectures import VGG11, MNISTNet, ResNet18, made
from gaussify.experiments._networks._images import augment, in_colour, load_images
from gaussify.experiments.paper._network_results import draw_cifar10, draw_mnist, summarise_cifar10, summarise_mnist

_NETS: dict[str, Callable[..., nn.Module]] = {"vgg11": VGG11, "resnet18": ResNet18}
_N_CLASSES = 10


def _images(settings: lab.Settings) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the first images to train and to test on, as many as the settings say; all of them for None."""
    data = load_images(settings["dataset"])
    n_train, n_test = settings["n_train"], settings["n_test"]
    if n_train is not None and n_train > len(data.X_train):
        raise GaussifyError(
            f"This preset trains on {n_train} images of {settings['dataset']}, but only {len(data.X_train)} were "
            "found; without the subset in GAUSSIFY_DATA, all are downloaded."
        )
    X, y, X_test, y_test = (torch.as_tensor(part) for part in data[1:5])
    return X[:n_train], y[:n_train], X_test[:n_test], y_test[:n_test]


def _mnist_run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    X, y, X_test, y_test = _images(settings)
    network, some = made(partial(MNISTNet, settings["width"]), task["seed"]), slice(settings["n_fit"])
    optimiser = torch.optim.Adadelta(network.parameters())
    factor = training.steps_down(settings["n_epochs"], settings["gamma"])
    recipe = training.Recipe(settings["n_epochs"], settings["batch_size"], 1.0, factor, seed=task["seed"])

    def look(network: nn.Module) -> lab.Record:
        score = training.logit_scores(training.outputs_of(network, X_test), y_test)
        return score | training.train_nll(network, X[some], y[some])

    loss, folder = training.loss_of(task, _N_CLASSES), lab.scratch_folder("mnist-cnn", settings, task)
    history = training.train(network, loss, optimiser, X, y, recipe, folder, look=look, name=training.describe(task))
    return [
        {"epoch": epoch} | {name: lab.significant(value, 5) for name, value in record.items()}
        for epoch, record in enumerate(history, start=1)
    ]


def _cifar10_run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    X, y, X_test, y_test = _images(settings)
    X, X_test = in_colour(X), in_colour(X_test)
    network = made(partial(_NETS[task["net"]], settings["widths"][task["net"]]), task["seed"])
    decay = settings["weight_decay"]
    optimiser = torch.optim.SGD(network.parameters(), momentum=0.9, weight_decay=decay, nesterov=True)
    factor = training.warm_cosine if settings["schedule"] == "cosine" else training.steps_down(5, 0.1)
    schedule = settings["n_epochs"], settings["batch_size"], settings["rates"][task["method"]], factor
    recipe = training.Recipe(*schedule, augment=augment, seed=task["seed"])
    loss, folder = training.loss_of(task, _N_CLASSES), lab.scratch_folder("cifar10-nets", settings, task)
    history = training.train(network, loss, optimiser, X, y, recipe, folder, name=training.describe(task))
    logits = training.outputs_of(network, X_test)
    far = {f"{name}_auc": _auroc(network, logits, name, settings["n_test"]) for name in settings["ood"]}
    record = training.logit_scores(logits, y_test) | far | training.train_nll(network, X, y)
    return [record | training.seconds_of(history)]


def _auroc(network: nn.Module, logits: Tensor, name: str, n_test: int | None) -> float | None:
    """Return how well the largest logit separates the images of another data set; None if it is not available."""
    other = _far_images(name)
    if other is None:
        return None
    return training.logit_auroc(logits, training.outputs_of(network, in_colour(other[:n_test])))


@cache
def _far_images(name: str) -> Tensor | None:
    """Return the images of another data set; None, after a line on the progress, if it is not available."""
    try:
        return torch.as_tensor(load_images(name).X_test)
    except GaussifyError as error:
        training.note(f"No AUROC against {name}: {error}")
        return None


def _cifar10_check(settings: lab.Settings) -> None:
    """Load all images before the first network is trained, since networks are not kept."""
    _images(settings)
    for name in settings["ood"]:
        _far_images(name)


TITLE_MNIST = "A convolutional network on MNIST, trained with cross-entropy and with matched losses"
PRESETS_MNIST = lab.presets(
    dict(dataset="mnist", width=1.0, batch_size=64, gamma=0.7, n_epochs=10, n_train=None, n_test=None)
    | dict(n_fit=10_000, n_seeds=1, alpha_eps=lab.ALPHA_EPS),
    smoke=dict(dataset="digits", width=0.125, n_epochs=2, n_train=120, n_test=60, alpha_eps=[0.1]),
    laptop=dict(width=0.5, n_epochs=8, n_train=10_000, n_fit=5000),
    paper=dict(n_fit=None, n_seeds=5),
)

lab.register(
    lab.Experiment(
        "mnist-cnn", TITLE_MNIST, PRESETS_MNIST, lab.seeded_tasks, _mnist_run, draw_mnist, summarise_mnist, _images
    )
)


def _rates(exact: float, matched: float) -> dict[str, float]:
    """Learning rates by method; the gradient of a squared error is not bounded, unlike that of a softmax."""
    return {**dict.fromkeys(lab.LOSSES, matched), "exact": exact}


TITLE_CIFAR10 = "VGG-11 and ResNet-18 on CIFAR-10, trained with cross-entropy and with matched losses"
PRESETS_CIFAR10 = lab.presets(
    dict(dataset="cifar10", nets=list(_NETS), widths=dict.fromkeys(_NETS, 1.0), alpha_eps=[0.01, 0.05, 0.1])
    | dict(batch_size=128, weight_decay=5e-4, rates=_rates(0.1, 0.01), schedule="steps", n_epochs=200)
    | dict(n_train=None, n_test=None, n_seeds=1, ood=["cifar100", "svhn"]),
    smoke=dict(dataset="digits", alpha_eps=[0.1], n_epochs=1, n_train=40, n_test=20, ood=["digits"])
    | dict(widths=dict.fromkeys(_NETS, 0.125)),  # backward of fewer channels crashes in torch 2.13
    laptop=dict(widths={"vgg11": 0.25, "resnet18": 0.125}, n_train=10_000, schedule="cosine", n_epochs=10)
    | dict(rates=_rates(0.03, 0.003), ood=["cifar100", "svhn", "fashion-mnist", "mnist"]),  # steps are few
    paper=dict(n_train=50_000, n_seeds=10),
)

lab.register(
    lab.Experiment(
        "cifar10-nets",
        TITLE_CIFAR10,
        PRESETS_CIFAR10,
        lab.seeded_tasks,
        _cifar10_run,
        draw_cifar10,
        summarise_cifar10,
        check=_cifar10_check,
    )
)
