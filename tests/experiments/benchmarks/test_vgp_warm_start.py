"""Warm starts against time: what is run, what counts as time, and what stands in the table."""

import numpy as np
import pytest

from gaussify.experiments import get, load
from gaussify.experiments._lab import group
from gaussify.experiments.benchmarks._vgp_warm_start import STARTS, load_split, make_trainer, seconds_to, watch


@pytest.fixture(scope="module")
def results(smoke_run):
    folder = smoke_run("vgp-warm-start")
    return load(folder), folder


def test_every_start_is_looked_at_before_its_first_step_and_in_the_order_of_time(results):
    runs = group(results[0], "start")
    assert [start for (start,) in runs] == list(STARTS)
    for own in runs.values():
        assert own[0]["n_steps"] == 0
        seconds = [record["seconds"] for record in own]
        assert seconds == sorted(seconds)
        assert 1.0 <= seconds[-1] < 10.0  # the limit, and a step more, to milliseconds


def test_matched_models_begin_above_the_cold_start(results):
    first = {start: own[0] for (start,), own in group(results[0], "start").items()}
    for start in ("brief", "matched", "elbo"):
        assert first[start]["bound"] > first["cold"]["bound"] + 1.0
        assert first[start]["nll"] < first["cold"]["nll"] - 0.5


def test_the_summary_says_when_the_end_of_the_cold_start_was_reached(results):
    records, folder = results
    get("vgp-warm-start").draw(records, folder)
    assert (folder / "warm-start-natural.png").exists()
    rows = {row["start"]: row for row in get("vgp-warm-start").summarise(records)}
    cold = [record for record in records if record["start"] == "cold"]
    assert rows["cold"]["times_sooner_within_0.1"] == 1.0
    assert rows["cold"]["seconds_within_0.01"] == pytest.approx(seconds_to(cold, cold[-1]["bound"] - 0.01), abs=0.01)
    for row in rows.values():
        if row["seconds_within_0.1"] is not None:
            ratio = rows["cold"]["seconds_within_0.1"] / row["seconds_within_0.1"]
            assert row["times_sooner_within_0.1"] == pytest.approx(ratio, rel=0.2)
    assert rows["matched"]["bound_first"] < rows["matched"]["bound_last"]


def test_a_bound_that_falls_again_was_reached_before():
    looks = [{"seconds": t, "bound": b} for t, b in [(1.0, -3.0), (2.0, -1.0), (3.0, -2.0), (5.0, 0.0)]]
    assert [seconds_to(looks, bound) for bound in (-3.0, -2.0, -1.0, 0.0, 0.1)] == [1.0, 1.5, 2.0, 5.0, None]


def test_the_time_of_a_matched_fit_counts(monkeypatch):
    split = load_split("toy", 0, 60, 30)
    options = {"n_inducing": 5, "max_iter": 3}
    trainer = make_trainer("matched", split, **options)
    calls = iter([0.0, 7.0])
    monkeypatch.setattr("gaussify.experiments.benchmarks._vgp_warm_start.time.perf_counter", lambda: next(calls))
    monkeypatch.setattr("gaussify.experiments.benchmarks._vgp_warm_start.make_trainer", lambda *_, **__: trainer)
    looks = list(watch("matched", split, 5.0, 3, **options))
    assert [(look.n_steps, look.seconds) for look in looks] == [(0, 7.0)]  # all of the time and more


def test_splits_differ_and_repeat():
    first, again, other = (load_split("toy", number, 50, 20) for number in (0, 0, 1))
    assert np.array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)
    assert not np.array_equal(first.X[:20], first.X_test)


@pytest.mark.parametrize("preset", ["laptop", "paper"])
def test_presets_are_of_all_three_data_sets(preset):
    experiment = get("vgp-warm-start")
    tasks = experiment.tasks(experiment.settings(preset))
    assert {task["dataset"] for task in tasks} == {"toy", "magic", "letter"}
    assert {task["start"] for task in tasks} == set(STARTS)
