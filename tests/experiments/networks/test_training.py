import pytest
import torch
from rich.progress import Progress
from torch import nn

from gaussify.exceptions import GaussifyError
from gaussify.experiments._lab._bars import bars_in
from gaussify.experiments._networks._training import Recipe, steps_down, train, warm_cosine

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def make(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
    optimiser = {
        "sgd": lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True),
        "adam": torch.optim.Adam,
        "adadelta": torch.optim.Adadelta,
    }[kind](network.parameters())
    return network, optimiser


def kill(line):
    if "loss" in line:  # after an epoch
        raise KeyboardInterrupt


def noise(batch, generator):
    return batch + 0.01 * torch.randn(batch.shape, generator=generator)


def run(kind, folder, report=lambda line: None, **options):
    network, optimiser = make(kind)
    recipe = Recipe(4, 16, 0.05, warm_cosine, augment=noise)
    loss = nn.functional.cross_entropy
    history = train(network, loss, optimiser, X, Y, recipe, folder, report=report, name="net", **options)
    return network, history


@pytest.mark.parametrize("kind", ["sgd", "adam", "adadelta"])
def test_a_run_that_was_killed_ends_with_the_same_weights_and_records(kind, tmp_path):
    def look(network):
        assert not network.training
        return {"zero": network(torch.zeros(1, 4))[0, 0].item()}

    whole, history = run(kind, tmp_path / "whole", look=look)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(kind, tmp_path / "parts", kill, look=look)
    lines = []
    parts, again = run(kind, tmp_path / "parts", lines.append, look=look)
    assert lines.pop(0) == "net goes on after epoch 2/4"
    assert [line.split(":")[0] for line in lines] == ["net epoch 3/4", "net epoch 4/4"]
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value, rtol=1e-5, atol=1e-7)
    assert [record["zero"] for record in again] == pytest.approx([record["zero"] for record in history], rel=1e-4)
    assert [list(record) for record in again] == [["loss", "accuracy", "zero", "seconds"]] * 4
    assert history[-1]["loss"] < history[0]["loss"]


def test_a_bar_shows_the_steps_that_are_left_and_goes(tmp_path):
    steps = []
    with pytest.raises(KeyboardInterrupt):
        run("adam", tmp_path, kill)
    with Progress(disable=True) as progress, bars_in(progress):
        run("adam", tmp_path, lambda line: steps.append([(bar.completed, bar.total) for bar in progress.tasks]))
        assert steps == [[], [(8, 16)], [(12, 16)], [(16, 16)]]  # the first is said before there is a bar
        assert not progress.tasks


def test_checkpoints_may_be_rare(tmp_path):
    run("adam", tmp_path, seconds_between=1e6)
    assert not list(tmp_path.iterdir())


def test_training_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    run("adam", tmp_path)
    torch.testing.assert_close(torch.rand(3), expected)


def test_a_loss_that_is_not_finite_is_named(tmp_path):
    network, optimiser = make("adam")
    with pytest.raises(GaussifyError, match=r"loss of net is nan in epoch 1.*learning rate"):
        train(
            network,
            lambda outputs, labels: outputs.sum() * torch.nan,
            optimiser,
            X,
            Y,
            Recipe(1, 16, 0.1, warm_cosine),
            tmp_path,
            name="net",
        )


@pytest.mark.parametrize("damage", [lambda data: data[:50], lambda data: data[:-1] + bytes([data[-1] ^ 1])])
def test_training_begins_anew_from_a_damaged_checkpoint(damage, tmp_path):
    lines = []
    whole = run("adam", tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    again = run("adam", tmp_path, lines.append)
    assert "checkpoint cannot be used, so training starts over" in lines[0]
    for name, value in whole[0].state_dict().items():
        torch.testing.assert_close(again[0].state_dict()[name], value)


def test_training_begins_anew_from_the_checkpoint_of_another_network(tmp_path):
    lines = []
    whole = run("adam", tmp_path / "own")
    other = nn.Linear(4, 2)
    options = {"report": lines.append, "name": "net"}
    recipe = Recipe(1, 16, 0.05, warm_cosine)
    loss = nn.functional.cross_entropy
    train(other, loss, torch.optim.Adam(other.parameters()), X, Y, recipe, tmp_path / "other", **options)
    again = run("adam", tmp_path / "other", lines.append)
    assert "checkpoint is of another network, so training starts over" in lines[1]
    for name, value in whole[0].state_dict().items():
        torch.testing.assert_close(again[0].state_dict()[name], value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("kind", ["sgd", "adam", "adadelta"])
def test_a_gpu_learns_as_well_and_the_network_comes_back(kind, tmp_path):
    network, history = run(kind, tmp_path)
    assert {value.device.type for value in network.state_dict().values()} == {"cpu"}
    assert history[-1]["loss"] < history[0]["loss"]


def test_training_begins_anew_where_data_are_others(tmp_path):
    lines, (network, optimiser) = [], make("adam")
    recipe = Recipe(4, 16, 0.05, warm_cosine, augment=noise)
    run("adam", tmp_path)
    options = {"report": lines.append, "name": "net"}
    train(network, nn.functional.cross_entropy, optimiser, X, 1 - Y, recipe, tmp_path, **options)
    assert lines[0] == "The checkpoint is of other data, so training starts over."
    assert len(lines) == 5


def test_rates_fall_by_steps():
    factor = steps_down(5, 0.1)
    assert [factor(epoch / 200) for epoch in (0, 39, 40, 199)] == pytest.approx([1.0, 1.0, 0.1, 1e-4])
