import csv
from pathlib import Path

import pytest
import torch

from gaussify.exceptions import GaussifyError
from gaussify.experiments import get
from gaussify.experiments._lab import LOSSES, MATCHED, choices, chosen, summary
from gaussify.experiments._networks._architectures import VGG11, MNISTNet, ResNet18
from gaussify.experiments._networks._images import in_colour, load_images
from gaussify.experiments._networks._training import loss_of, steps_down
from gaussify.experiments.paper import _image_nets, _published

TABLE = Path(__file__).parent / "numbers" / "cifar10.csv"


@pytest.mark.parametrize(
    ("network", "n_parameters"), [(MNISTNet, 1_199_882), (VGG11, 9_228_362), (ResNet18, 11_173_962)]
)
def test_full_width_has_the_parameters_of_the_usual_network(network, n_parameters):
    assert sum(parameter.numel() for parameter in network().parameters()) == n_parameters


@pytest.mark.parametrize("network", [MNISTNet, VGG11, ResNet18])
def test_networks_use_no_device_but_that_of_their_images(network):
    shape = (4, 28, 28) if network is MNISTNet else (4, 32, 32, 3)
    with torch.device("meta"):  # which, like a GPU, takes no tensors of the CPU
        made = network(0.125)
    assert made(torch.zeros(shape, dtype=torch.uint8, device="meta")).device.type == "meta"


@pytest.mark.parametrize("network", [MNISTNet, VGG11, ResNet18])
def test_networks_can_be_trained(network):
    shape = (4, 28, 28) if network is MNISTNet else (4, 32, 32, 3)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    small = network(0.125, n_classes=3)
    small(images).sum().backward()
    assert all(parameter.grad is not None for parameter in small.parameters())


def test_every_method_has_its_loss():
    tasks = choices(LOSSES, [0.05, 0.1])
    assert [task["method"] for task in tasks] == ["exact", "gauss", *(m for m in MATCHED for _ in range(2))]
    logits, labels = torch.zeros(3, 4), torch.tensor([0, 1, 3])
    values = {loss_of(task, 4)(logits, labels).item() for task in tasks}
    assert len(values) == len(tasks)
    assert loss_of(tasks[0], 4)(logits, labels).item() == pytest.approx(1.3863, abs=1e-4)


def test_the_paper_is_quoted_as_it_is():
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 28
    for row in rows:
        found = _published.cifar10(row["net"], row["method"], float(row["alpha_eps"]) if row["alpha_eps"] else None)
        assert found["error_pct"] == pytest.approx(100.0 - float(row["accuracy_pct"]))
        assert found["error_pct_se"] == float(row["accuracy_se"])
        names = [f"{name}{end}" for name in _published.CIFAR10_COLUMNS[1:] for end in ("", "_se")]
        assert [found[name] for name in names] == [float(row[name]) for name in names]


def test_alpha_eps_is_chosen_on_training_images_for_each_network():
    common = {"seed": 0, "method": "moment", "epoch": 1}
    records = [
        common | {"net": net, "alpha_eps": alpha, "train_nll": fit, "nll": 1.0}
        for net, fits in {"vgg11": (0.1, 0.2), "resnet18": (0.4, 0.3)}.items()
        for alpha, fit in zip((0.05, 0.1), fits, strict=True)
    ]
    assert [(r["net"], r["alpha_eps"]) for r in chosen(records, "net", "method")] == [
        ("vgg11", 0.05),
        ("resnet18", 0.1),
    ]


def test_grey_images_become_colour_images():
    grey = torch.arange(28 * 28).remainder(256).to(torch.uint8).reshape(1, 28, 28)
    colour = in_colour(grey)
    assert colour.shape == (1, 32, 32, 3)
    assert torch.equal(colour[0, 2:-2, 2:-2, 1], grey[0])
    assert not colour[0, :2].any()
    assert in_colour(colour) is colour


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar10-nets", "toy-net"])
def test_presets_of_the_paper_train_all_methods(name):
    experiment = get(name)
    tasks = experiment.tasks(experiment.settings("paper"))
    assert {task["method"] for task in tasks} == set(LOSSES)
    assert {0.05, 0.1} <= {task["alpha_eps"] for task in tasks}


def test_the_presets_of_the_paper_have_its_recipes():
    mnist, cifar10 = (get(name).settings("paper") for name in ("mnist-cnn", "cifar10-nets"))
    assert (mnist["n_epochs"], mnist["width"], mnist["n_train"]) == (10, 1.0, None)
    assert (cifar10["n_epochs"], cifar10["n_seeds"], cifar10["n_train"]) == (200, 10, 50_000)
    assert cifar10["alpha_eps"] == [0.01, 0.05, 0.1]
    assert cifar10["ood"] == ["cifar100", "svhn"]
    assert set(cifar10["widths"].values()) == {1.0}
    assert cifar10["schedule"] == "steps"
    rates = [steps_down(5, 0.1)(epoch / 200) for epoch in range(200)]  # which drop every 40 epochs
    assert [epoch for epoch in range(1, 200) if rates[epoch] < rates[epoch - 1]] == [40, 80, 120, 160]


def test_what_is_not_at_hand_is_named_once_before_the_first_network(monkeypatch, capsys):
    def load(name):
        if name == "svhn":
            raise GaussifyError("there is no network.")
        return load_images("digits")

    _image_nets._far_images.cache_clear()
    monkeypatch.setattr(_image_nets, "load_images", load)
    experiment = get("cifar10-nets")
    settings = experiment.settings("smoke") | {"ood": ["svhn", "digits"]}
    for _ in range(2):
        experiment.check(settings)
    assert capsys.readouterr().err == "No AUROC against svhn: there is no network.\n"
    logits = torch.randn(20, 10, generator=torch.Generator().manual_seed(0))
    found = [_image_nets._auroc(ResNet18(0.125), logits, name, 20) for name in settings["ood"]]
    assert found[0] is None
    assert 0.0 <= found[1] <= 1.0
    _image_nets._far_images.cache_clear()


@pytest.mark.parametrize("name", ["mnist-cnn", "toy-net", "cifar10-nets", "imdb-text", "last-layer", "digits"])
def test_figures_of_a_part_of_all_tasks_can_be_drawn(name, tmp_path):
    experiment = get(name)
    settings = experiment.settings("smoke")
    records = [
        task | record for task in experiment.tasks(settings)[:1] for record in experiment.run(settings, task, seed=0)
    ]
    experiment.draw(records, tmp_path)
    assert list(tmp_path.iterdir())
    assert experiment.summarise(records)


def test_means_over_several_runs_have_standard_errors():
    common = {"method": "exact", "alpha_eps": None, "train_nll": 0.1}
    runs = [common | {"seed": seed, "nll": nll} for seed, nll in enumerate([1.0, 3.0])]
    (row,) = summary(runs, ["method"], ("nll",))
    assert (row["nll"], row["nll_se"], row["runs"]) == (2.0, 1.0, 2)
    (row,) = summary(runs[:1], ["method"], ("nll",))
    assert (row["nll"], row["nll_se"], row["runs"]) == (1.0, None, 1)
