import pytest

from gaussify.experiments import get, load
from gaussify.experiments.benchmarks._linear_models import DEFAULT, MATCHED, own_models


def test_ratios_are_those_of_one_run(smoke_run):
    records = load(smoke_run("refine-speed"))
    (reference,) = [record for record in records if record["method"] == DEFAULT]
    assert {record["method"] for record in records} == {DEFAULT, *own_models()}
    for record in records:
        assert record["time_ratio"] == pytest.approx(record["seconds"] / reference["seconds"], rel=1e-2)
    (matched,) = [record for record in records if record["method"] == MATCHED]
    assert 0.0 < matched["gibibytes_before"] <= matched["peak_gibibytes"]


@pytest.mark.parametrize("preset", ["laptop", "paper"])
def test_all_models_are_measured_at_the_size_of_the_claim(preset):
    settings = get("refine-speed").settings(preset)
    assert (settings["n_rows"], settings["n_features"], settings["n_classes"]) == (100_000, 50, [2, 10])
    assert settings["memory_of"] == [DEFAULT, *own_models()]
