import dataclasses

import pytest

from gaussify.exceptions import InvalidArgumentError
from gaussify.experiments import all_experiments, get, load, register
from gaussify.experiments._lab._registry import REQUIRED_PRESETS

everyone = pytest.mark.parametrize("experiment", all_experiments(), ids=lambda experiment: experiment.name)


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InvalidArgumentError, match="There is no experiment 'densitys'; did you mean 'densities'"):
        get("densitys")


def test_name_without_a_neighbour_is_answered_with_all():
    with pytest.raises(InvalidArgumentError, match=r"choose one of .*'densities'"):
        get("zzz")


def test_a_name_is_registered_once():
    with pytest.raises(InvalidArgumentError, match="already an experiment called 'densities'"):
        register(get("densities"))


@pytest.mark.parametrize("preset", REQUIRED_PRESETS)
def test_a_missing_preset_is_refused(preset):
    presets = {name: {} for name in REQUIRED_PRESETS if name != preset}
    with pytest.raises(InvalidArgumentError, match=f"'densities' lacks the preset '{preset}'"):
        dataclasses.replace(get("densities"), presets=presets)


@everyone
def test_every_preset_has_tasks(experiment):
    for preset in REQUIRED_PRESETS:
        assert experiment.tasks(experiment.settings(preset))


@everyone
def test_smoke_run_draws_and_summarises_from_the_csv_alone(experiment, smoke_run, tmp_path):
    (tmp_path / "results.csv").write_bytes((smoke_run(experiment.name) / "results.csv").read_bytes())
    records = load(tmp_path)
    experiment.draw(records, tmp_path)
    figures = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".pdf", ".svg")}
    assert any(name.endswith(".png") for name in figures)
    assert {name.rsplit(".")[0] for name in figures if name.endswith(".png")} == {
        name.rsplit(".")[0] for name in figures if not name.endswith(".png")
    }
    assert experiment.summarise is None or experiment.summarise(records)
