import io
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from gaussify.exceptions import GaussifyError, InvalidArgumentError, MissingDependencyError
from gaussify.experiments import Experiment, TaskFailedError, load, run, task_seed
from gaussify.experiments._lab import _runner, scratch_folder

SETTINGS = {"n_splits": 3, "scale": 2.0}


def make_experiment(run_task=None, settings=SETTINGS, check=None):
    """Six tasks whose two records depend on the seed, given and global; later ones have a further column."""

    def tasks(settings):
        return [{"method": m, "split": s} for m in ("moment", "laplace") for s in range(settings["n_splits"])]

    def run_one(settings, task, seed):
        generator = torch.Generator().manual_seed(seed)
        extra = {"extra": True} if task["method"] == "laplace" else {}
        return [
            {"step": step, "x": settings["scale"] * float(torch.rand((), generator=generator)), **extra}
            | {"y": float(torch.rand(()))}
            for step in range(2)
        ]

    def draw(records, folder):
        (folder / "figure.png").write_text(str(len(records)))

    presets = {name: settings for name in ("smoke", "laptop", "paper")}
    return Experiment("toy", "A toy", presets, tasks, run_task or run_one, draw, check=check)


def stop_after(n_tasks, error):
    calls = []

    def run_one(settings, task, seed):
        calls.append(task)
        if len(calls) > n_tasks:
            raise error
        return make_experiment().run(settings, task, seed)

    return make_experiment(run_one)


def interrupted(out, n_tasks):
    with pytest.raises(KeyboardInterrupt):
        run(stop_after(n_tasks, KeyboardInterrupt()), "smoke", out)
    return out / "toy" / "smoke"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = run(make_experiment(), "smoke", tmp_path_factory.mktemp("whole"))
    return (folder / "results.csv").read_bytes()


def metadata_of(folder):
    return json.loads((folder / "metadata.json").read_text())


def test_records_carry_their_task(tmp_path):
    records = load(run(make_experiment(), "smoke", tmp_path))
    assert len(records) == 12
    assert [(r["method"], r["split"], r["step"]) for r in records[:3]] == [
        ("moment", 0, 0),
        ("moment", 0, 1),
        ("moment", 1, 0),
    ]
    assert records[0]["extra"] is None
    assert records[-1]["extra"] is True


@pytest.mark.parametrize("n_tasks", range(6))
def test_resuming_gives_the_same_file_as_one_run(n_tasks, tmp_path, whole):
    interrupted(tmp_path, n_tasks)
    folder = run(make_experiment(), "smoke", tmp_path)
    assert (folder / "results.csv").read_bytes() == whole


def test_metadata_tells_of_every_session(tmp_path):
    interrupted(tmp_path, 3)
    folder = run(make_experiment(), "smoke", tmp_path)
    assert [session["finished"] is None for session in metadata_of(folder)["sessions"]] == [True, False]


@pytest.mark.parametrize("n_bytes", [1, 10, 60, 150, 10_000])
def test_a_file_cut_anywhere_is_mended(n_bytes, tmp_path, whole):
    results = interrupted(tmp_path, 5) / "results.csv"
    results.write_bytes(results.read_bytes()[:-n_bytes])
    run(make_experiment(), "smoke", tmp_path)
    assert results.read_bytes() == whole


def test_rows_of_a_task_that_was_killed_while_writing_are_dropped(tmp_path, whole):
    results = interrupted(tmp_path, 2) / "results.csv"
    with results.open("ab") as file:
        file.write(b"moment,2,0,0.5,0.5\nmoment,2,1,0.")
    run(make_experiment(), "smoke", tmp_path)
    assert results.read_bytes() == whole


def test_a_process_killed_in_the_middle_is_resumed(tmp_path, whole):
    """As a kill does it: no exception handler runs."""
    program = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_runner as t\n"
        "calls = []\n"
        "def run_one(settings, task, seed):\n"
        "    calls.append(task)\n"
        "    if len(calls) > 2: os._exit(9)\n"
        "    return t.make_experiment().run(settings, task, seed)\n"
        "t.run(t.make_experiment(run_one), 'smoke', Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 9
    assert len(metadata_of(tmp_path / "toy" / "smoke")["tasks"]) == 2
    folder = run(make_experiment(), "smoke", tmp_path)
    assert (folder / "results.csv").read_bytes() == whole


def test_rows_that_are_not_those_of_their_task_are_dropped(tmp_path, whole):
    folder = interrupted(tmp_path, 4)
    metadata = metadata_of(folder)
    metadata["tasks"][1:3] = metadata["tasks"][2:0:-1]
    (folder / "metadata.json").write_text(json.dumps(metadata))
    run(make_experiment(), "smoke", tmp_path)
    assert (folder / "results.csv").read_bytes() == whole


def test_a_kill_between_the_two_files_of_the_final_order_costs_nothing(tmp_path, whole):
    folder = run(make_experiment(), "smoke", tmp_path)
    path = folder / "metadata.json"
    metadata = json.loads(path.read_text())
    metadata["tasks"] = metadata["tasks"][3:] + metadata["tasks"][:3]  # as they came, rows being in order already
    path.write_text(json.dumps(metadata))
    run(stop_after(0, AssertionError("nothing is left to run")), "smoke", tmp_path)
    assert (folder / "results.csv").read_bytes() == whole


def test_a_disk_that_is_full_ends_the_run(tmp_path, monkeypatch):
    def no_space(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr("gaussify.experiments._lab._runner.write_records", no_space)
    with pytest.raises(OSError, match="No space left"):
        run(make_experiment(), "smoke", tmp_path)


def test_a_finished_run_is_not_touched(tmp_path):
    folder = run(make_experiment(), "smoke", tmp_path)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    run(stop_after(0, AssertionError("nothing is left to run")), "smoke", tmp_path)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_another_seed_gives_other_records(tmp_path, whole):
    folder = run(make_experiment(), "smoke", tmp_path, seed=1)
    assert (folder / "results.csv").read_bytes() != whole


def test_another_seed_in_the_same_folder_is_refused(tmp_path):
    run(make_experiment(), "smoke", tmp_path)
    with pytest.raises(InvalidArgumentError, match="made with seed 0, not 1; add --fresh"):
        run(make_experiment(), "smoke", tmp_path, seed=1)


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    interrupted(tmp_path, 1)
    with pytest.raises(InvalidArgumentError, match=r"made with settings .* add --fresh"):
        run(make_experiment(settings=SETTINGS | {"scale": 3.0}), "smoke", tmp_path)


def test_results_of_unknown_tasks_are_refused(tmp_path):
    folder = run(make_experiment(), "smoke", tmp_path)
    text = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(text.replace('"laplace"', '"laplac"'))
    with pytest.raises(InvalidArgumentError, match=r"toy no longer has \(method=laplac, split=0\); add --fresh"):
        run(make_experiment(), "smoke", tmp_path)


def test_results_without_metadata_are_refused(tmp_path):
    folder = run(make_experiment(), "smoke", tmp_path)
    (folder / "metadata.json").unlink()
    with pytest.raises(InvalidArgumentError, match=r"without metadata\.json; add --fresh"):
        run(make_experiment(), "smoke", tmp_path)


def test_fresh_starts_over_and_spares_other_files(tmp_path):
    folder = run(make_experiment(), "smoke", tmp_path)
    for name in ("notes.txt", "mine.png"):
        (folder / name).write_text("mine")
    run(make_experiment(), "smoke", tmp_path, seed=1, fresh=True)
    assert {path.name for path in folder.iterdir()} == {"results.csv", "metadata.json", "notes.txt", "mine.png"}
    assert metadata_of(folder)["seed"] == 1


def test_fresh_removes_the_scratch_folder_of_these_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSIFY_CACHE", str(tmp_path / "cache"))
    trained = scratch_folder("toy", SETTINGS)
    other = scratch_folder("toy", {"n_splits": 1})
    for folder in (trained, other):
        (folder / "task").mkdir(parents=True)
    interrupted(tmp_path, 2)
    assert trained.exists()
    with pytest.raises(KeyboardInterrupt):
        run(stop_after(2, KeyboardInterrupt()), "smoke", tmp_path, fresh=True)
    assert not trained.exists()
    assert other.exists()


def test_the_scratch_folder_of_a_task_lasts_until_its_result_is_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSIFY_CACHE", str(tmp_path / "cache"))

    def train(settings, task, seed):
        scratch_folder("toy", settings, task).mkdir(parents=True, exist_ok=True)
        return [{"x": 1.0}]

    def fail(*_):
        raise OSError(28, "No space left on device")

    trained = scratch_folder("toy", SETTINGS)
    with monkeypatch.context() as full:
        full.setattr(_runner._RunLog, "add", fail)
        with pytest.raises(OSError, match="No space"):
            run(make_experiment(train), "smoke", tmp_path)
    assert len(list(trained.iterdir())) == 1
    run(make_experiment(train), "smoke", tmp_path)
    assert not trained.exists()
    (trained / "shared").mkdir(parents=True)  # or left by a kill
    run(make_experiment(train), "smoke", tmp_path)
    assert not trained.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be held")
def test_a_folder_is_for_one_run_at_a_time(tmp_path, whole):
    def run_another(settings, task, seed):
        with pytest.raises(GaussifyError, match=r"Another run writes to .*toy.smoke: wait for it, or choose another"):
            run(make_experiment(), "smoke", tmp_path, fresh=True)
        return make_experiment().run(settings, task, seed)

    folder = run(make_experiment(run_another), "smoke", tmp_path)
    assert (folder / "results.csv").read_bytes() == whole
    run(make_experiment(), "smoke", tmp_path)


def test_what_all_tasks_need_is_looked_for_once_before_anything_is_run_or_removed(tmp_path, whole):
    def check(settings):
        assert settings == SETTINGS
        raise MissingDependencyError("a package is missing")

    results = tmp_path / "toy" / "smoke" / "results.csv"
    with pytest.raises(MissingDependencyError, match="a package is missing"):
        run(make_experiment(check=check), "smoke", tmp_path)
    assert not results.exists()
    run(make_experiment(), "smoke", tmp_path)
    with pytest.raises(MissingDependencyError):
        run(make_experiment(check=check), "smoke", tmp_path, fresh=True)
    assert results.read_bytes() == whole
    run(make_experiment(check=check), "smoke", tmp_path)  # in which there is nothing left to run


def test_a_failing_task_is_named_and_the_others_are_kept(tmp_path, whole, capsys):
    def fail_once(settings, task, seed):
        if task == {"method": "moment", "split": 1}:
            raise ZeroDivisionError("no rows")
        return make_experiment().run(settings, task, seed)

    with pytest.raises(TaskFailedError, match=r"\(method=moment, split=1\): ZeroDivisionError: no rows; 5 done"):
        run(make_experiment(fail_once), "smoke", tmp_path)
    assert "in fail_once" in capsys.readouterr().err
    folder = tmp_path / "toy" / "smoke"
    assert len(load(folder)) == 10
    assert metadata_of(folder)["failed"] == [{"method": "moment", "split": 1}]
    run(make_experiment(), "smoke", tmp_path)
    assert metadata_of(folder)["failed"] == []
    # The header holds the same columns, in the order in which they turned up.
    by_name = [dict(sorted(record.items())) for record in load(folder)]
    (tmp_path / "results.csv").write_bytes(whole)
    assert by_name == [dict(sorted(record.items())) for record in load(tmp_path)]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "gave no records"),
        ([{"split": 7}], "changes the column 'split'"),
        ([{"x": [1]}], "Column 'x' takes"),
    ],
)
def test_bad_records_are_refused(records, message, tmp_path):
    with pytest.raises(TaskFailedError, match=message):
        run(make_experiment(lambda settings, task, seed: records), "smoke", tmp_path)


def test_equal_tasks_are_refused(tmp_path):
    experiment = Experiment(
        "twins", "", make_experiment().presets, lambda settings: [{"a": 1}] * 2, make_experiment().run, print
    )
    with pytest.raises(InvalidArgumentError, match="Two tasks of twins are the same"):
        run(experiment, "smoke", tmp_path)


def test_metadata_says_what_made_the_results(tmp_path):
    folder = run(make_experiment(), "smoke", tmp_path, seed=3)
    metadata = metadata_of(folder)
    assert {name: metadata[name] for name in ("experiment", "preset", "settings", "seed", "n_tasks")} == {
        "experiment": "toy",
        "preset": "smoke",
        "settings": SETTINGS,
        "seed": 3,
        "n_tasks": 6,
    }
    (session,) = metadata["sessions"]
    assert session["command"] == "gaussify reproduce toy --preset smoke --seed 3"
    assert session["started"] <= session["finished"]
    assert session["versions"]["torch"] == torch.__version__
    assert {"python", "gaussify", "numpy", "scipy"} <= session["versions"].keys()
    assert {"git_commit", "git_dirty", "platform"} <= session.keys()
    assert metadata["elapsed_seconds"] == pytest.approx(sum(t["seconds"] for t in metadata["tasks"]), abs=1e-3)
    assert len({task["seed"] for task in metadata["tasks"]}) == 6
    assert metadata["tasks"][4]["seed"] == task_seed(3, {"method": "laplace", "split": 1})


def test_metadata_names_no_machine_and_no_folder(tmp_path):
    text = (run(make_experiment(), "smoke", tmp_path) / "metadata.json").read_text()
    assert "/" not in text
    assert not platform.node() or f'"{platform.node()}"' not in text
    assert str(Path.home()) not in text


def test_progress_is_plain_lines_without_a_terminal(tmp_path, capsys):
    run(make_experiment(), "smoke", tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[3].startswith("[4/6] method=laplace, split=0 ")


def test_progress_is_a_bar_on_a_terminal(tmp_path):
    console = Console(force_terminal=True, record=True, width=150, file=io.StringIO())
    run(make_experiment(), "smoke", tmp_path, console=console)
    text = console.export_text()
    assert "6/6" in text
    assert "method=laplace, split=2" in text


def test_loading_before_running_says_so(tmp_path):
    with pytest.raises(InvalidArgumentError, match="run the experiment first"):
        load(tmp_path)
