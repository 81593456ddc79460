import math

import pytest

from gaussify.experiments import get, load, result_folder, run


@pytest.fixture
def records(tmp_path, request):
    experiment = get(request.param)
    run(experiment, "smoke", tmp_path)
    folder = result_folder(experiment, "smoke", tmp_path)
    experiment.draw(load(folder), folder)
    assert list(folder.glob("*.png"))
    return load(folder)


@pytest.mark.parametrize("records", ["updates"], indirect=True)
def test_updates_are_measured_against_every_peer(records):
    pytest.importorskip("bayesianbandits")
    contenders = {str(record["contender"]).split()[0] for record in records}
    assert contenders >= {"gaussify", "matrix", "scikit-learn", "river", "ADF", "bayesianbandits", "fit"}
    ratios = [record["speed_ratio"] for record in records if record["speed_ratio"] is not None]
    assert len(ratios) == 12
    assert all(ratio > 0.0 for ratio in ratios)


@pytest.mark.parametrize("records", ["drift"], indirect=True)
def test_forgetting_gains_on_a_stream_that_drifts(records):
    loss = {factor: [] for factor in (1.0, 0.98)}
    for record in records:
        loss[record["forgetting"]].append(record["log_loss"])
    remembering, forgetting = (sum(values) / len(values) for values in loss.values())
    assert math.isfinite(remembering)
    assert forgetting < remembering
