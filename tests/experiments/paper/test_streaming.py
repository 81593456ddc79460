import math

import numpy as np
import pytest
import torch

from gaussify import datasets
from gaussify.datasets import Dataset
from gaussify.exceptions import GaussifyError
from gaussify.experiments import get, load
from gaussify.experiments._lab import group
from gaussify.experiments._networks._architectures import VGG11
from gaussify.experiments._networks._images import augment
from gaussify.experiments.paper import _streaming
from gaussify.experiments.paper import _vgg_features as _vgg
from gaussify.experiments.paper._streaming import METHODS, checkpoints, choose_alpha_eps, stream
from gaussify.experiments.paper._vgg_features import VGGSettings

TINY = VGGSettings(width=0.0625, n_epochs=3, batch_size=16)


@pytest.fixture(scope="module")
def results(smoke_run):
    """The records of a smoke run, and its folder."""
    folder = smoke_run("streaming")
    return load(folder), folder


def test_every_task_is_looked_at_along_the_stream(results):
    settings = get("streaming").settings("smoke")
    for (dataset, *_), own in group(results[0], "dataset", "seed", "method", "alpha_eps").items():
        n_rows = {"digits": 200, "iris": 100}[dataset]
        assert [r["n_seen"] for r in own] == checkpoints(settings["first"], n_rows, settings["n_checkpoints"])
        assert all(0.0 <= r["accuracy"] <= 1.0 for r in own)
        assert all(r["log_likelihood"] <= 0.0 for r in own)
        assert [r["next_log_likelihood"] is None for r in own] == [False] * (len(own) - 1) + [True]


def test_every_method_runs_on_every_dataset(results):
    found = {(r["dataset"], r["method"]) for r in results[0]}
    assert found == {(dataset, method) for dataset in ("digits", "iris") for method in METHODS}


def test_matched_models_learn_on_the_way(results):
    for method in ("moment-ori", "variational"):
        own = [r for r in results[0] if r["method"] == method and r["dataset"] == "digits"]
        first, last = (np.mean([r["accuracy"] for r in own if r["n_seen"] == n]) for n in (20, 200))
        assert last > max(first, 0.5)


def test_figures_are_drawn_from_some_datasets_too(results, tmp_path):
    get("streaming").draw([r for r in results[0] if r["dataset"] == "iris"], tmp_path)
    names = {"streaming.png", "streaming.pdf", "alpha_eps.png", "alpha_eps.pdf"}
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_size} == names


def test_the_summary_has_a_row_for_each_choice_and_marks_one_of_each_method(results):
    summary = get("streaming").summarise(results[0])
    assert len(summary) == 2 * len(METHODS)
    assert all(row["chosen"] for row in summary)  # one alpha_eps each
    assert {(row["dataset"], row["n_seen_early"], row["n_seen"]) for row in summary} == {
        ("digits", 20, 200),
        ("iris", 20, 100),
    }


def test_alpha_eps_is_chosen_by_the_rows_to_come():
    common = {"dataset": "d", "method": "laplace", "seed": 0}
    values = {0.1: (-1.0, -0.2), 0.5: (-0.5, -0.3)}  # early and late
    records = [
        common | {"alpha_eps": alpha_eps, "n_seen": n, "next_log_likelihood": value}
        for alpha_eps, pair in values.items()
        for n, value in zip((10, 100, 200), (*pair, None), strict=True)
    ]
    assert choose_alpha_eps(records) == {("d", "laplace"): 0.1}


def test_an_infinite_loss_is_drawn_and_summarised(results, tmp_path):
    records = [r | {"log_likelihood": -math.inf} if r["method"] == "sgd" else r for r in results[0]]
    get("streaming").draw(records, tmp_path)
    sgd = [row for row in get("streaming").summarise(records) if row["method"] == "sgd"]
    assert {row["ll"] for row in sgd} == {-math.inf}


def test_the_seed_decides_order_and_network_and_not_the_test_rows():
    first, again, other = (stream("digits", seed, 300, 100, (20,), VGGSettings()) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.y, other.y)
    np.testing.assert_array_equal(first.y_test, other.y_test)
    assert not np.allclose(first.X_test, other.X_test)


def test_features_have_mean_square_one_at_the_start():
    split = stream("digits", 0, 300, 100, (20,), VGGSettings())
    np.testing.assert_allclose(np.mean(split.X[:100] ** 2), 1.0)
    assert split.X.shape == (300, 20)
    assert split.X_test.shape == (100, 20)


def test_rows_to_stream_and_to_test_on_are_apart():
    X, _, X_test, _ = _streaming._rows("digits", VGGSettings())
    assert not {row.tobytes() for row in X} & {row.tobytes() for row in X_test}


def images(n, seed=0):
    """Tiny training data: images whose brightness tells their class, in turn."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 10
    noise = torch.randint(0, 26, (n, 32, 32, 3), generator=generator)
    return (noise + 22 * labels[:, None, None, None]).to(torch.uint8), labels


def quiet(line):
    pass


def test_training_that_was_killed_ends_with_the_same_weights(tmp_path):
    X, y = images(40)
    whole = _vgg.train(X, y, TINY, tmp_path / "whole", quiet)

    class Killed(Exception):
        pass

    def kill(line):
        if "loss" in line:
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            _vgg.train(X, y, TINY, tmp_path / "parts", kill)
    lines = []
    parts = _vgg.train(X, y, TINY, tmp_path / "parts", lines.append)
    assert [line.split(":")[0] for line in lines] == ["VGG-11 goes on after epoch 2/3", "VGG-11 epoch 3/3"]
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_training_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    _vgg.train(*images(20), VGGSettings(width=0.0625, n_epochs=1), tmp_path, quiet)
    torch.testing.assert_close(torch.rand(3), expected)


def test_full_width_is_vgg11():
    network = VGG11()
    convolutions = [layer.out_channels for layer in network.stack if isinstance(layer, torch.nn.Conv2d)]
    assert convolutions == [64, 128, 256, 256, 512, 512, 512, 512]
    assert network.head.in_features == 512


def test_augmented_images_are_shifted_copies():
    X = torch.arange(1, 32 * 32 * 3 + 1).reshape(1, 32, 32, 3).remainder(251).add(1).to(torch.uint8).repeat(50, 1, 1, 1)
    moved = augment(X, torch.Generator().manual_seed(0))
    centres, plain = moved[:, 4:28, 4:28], torch.nn.functional.pad(X[0], (0, 0, 4, 4, 4, 4))
    windows = [plain[i : i + 24, j : j + 24] for i in range(4, 13) for j in range(4, 13)]
    candidates = torch.stack(windows + [window.flip(1) for window in windows])
    found = (centres[:, None] == candidates).flatten(2).all(2)
    assert found.any(1).all()
    assert len(found.int().argmax(1).unique()) > 20


@pytest.fixture
def tiny_cifar10(tmp_path, monkeypatch):
    """A data set of 40 training and 10 test images, and the labels that the network is trained on."""
    X, y = images(50)
    data = Dataset(
        "cifar10", X[:40].numpy(), y[:40].numpy(), X[40:].numpy(), y[40:].numpy(), tuple("abcdefghij"), "", ""
    )
    monkeypatch.setenv("GAUSSIFY_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets, "load", lambda name: data)
    seen = []
    original = _vgg.train

    def train(images, labels, *arguments):
        seen.append(images)
        return original(images, labels, *arguments)

    monkeypatch.setattr(_vgg, "train", train)
    return data, seen


def test_the_network_never_sees_the_images_of_the_stream(tiny_cifar10):
    data, seen = tiny_cifar10
    features = _vgg.cifar10_features(TINY, quiet)
    np.testing.assert_array_equal(seen[0], data.X_train[:20])
    np.testing.assert_array_equal(features.y_stream, data.y_train[20:])
    assert features.X_stream.shape == (20, 32)
    assert features.X_test.shape == (10, 32)


def test_features_are_computed_once(tiny_cifar10):
    first = _vgg.cifar10_features(TINY, quiet)
    again = _vgg.cifar10_features(TINY, quiet)
    assert len(tiny_cifar10[1]) == 1
    for name, value in first._asdict().items():
        torch.testing.assert_close(getattr(again, name), value)


def test_damaged_features_are_named(tiny_cifar10):
    _vgg.cifar10_features(TINY, quiet)
    (path,) = datasets.cache_folder().glob("*/features.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GaussifyError, match=r"features\.safetensors is damaged .*remove it"):
        _vgg.cifar10_features(TINY, quiet)


def test_cifar10_is_streamed_from_the_features(tiny_cifar10):
    _streaming._rows.cache_clear()
    split = stream("cifar10", 0, 15, 10, (), TINY)
    _streaming._rows.cache_clear()
    assert split.X.shape == (15, 32)
    assert split.X_test.shape == (10, 32)
