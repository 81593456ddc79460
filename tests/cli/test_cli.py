import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gaussify import __version__
from gaussify.cli import _reproduce, app
from gaussify.experiments import Experiment, all_experiments, read_records
from gaussify.experiments._lab import _registry


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_version():
    assert invoke("--version").stdout == f"gaussify {__version__}\n"


def test_help_names_every_command():
    text = invoke("--help").stdout
    assert all(command in text for command in ("list", "reproduce", "demo"))


def test_reproduce_help_has_an_example():
    assert "gaussify reproduce densities --preset smoke" in invoke("reproduce", "--help").stdout


def test_list_shows_every_experiment():
    result = invoke("list")
    assert result.exit_code == 0
    for experiment in all_experiments():
        assert experiment.name in result.stdout
        assert experiment.title in result.stdout
    assert [own["name"] for own in json.loads(invoke("list", "--json").stdout)] == [
        experiment.name for experiment in all_experiments()
    ]


def test_reproduce_runs_draws_and_summarises(tmp_path):
    result = invoke("reproduce", "densities", "--preset", "smoke", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / "densities" / "smoke"
    figures = {f"{name}.{ending}" for name in ("overview", "gamma", "beta", "divergences") for ending in ("png", "pdf")}
    assert {path.name for path in folder.iterdir()} == figures | {
        "results.csv",
        "summary.csv",
        "metadata.json",
    }
    assert all(path.stat().st_size for path in folder.iterdir())
    assert "variational" in result.stdout
    assert len(read_records(folder / "summary.csv")) == 30
    again = invoke("reproduce", "densities", "--preset", "smoke", "--out", tmp_path, "--only", "summarise", "--json")
    assert len(json.loads(again.stdout)["summary"]) == 30


def test_a_preset_says_before_it_runs_what_it_does_otherwise_than_the_paper(monkeypatch, tmp_path):
    presets = {"smoke": {"n_rows": 10, "seed": 0}, "laptop": {}, "paper": {"n_rows": 1000, "seed": 0}}
    experiment = Experiment("nut", "Nut", presets, lambda _: [{"split": 0}], lambda *_: [{"score": 1}], lambda *_: None)
    monkeypatch.setitem(_registry._EXPERIMENTS, "nut", experiment)
    told = "The preset smoke differs from the preset paper:\n  n_rows: 10 (paper: 1000)\n"
    assert told in invoke("reproduce", "nut", "--preset", "smoke", "--out", tmp_path).stderr
    assert "n_rows" not in invoke("reproduce", "nut", "--preset", "smoke", "--out", tmp_path, "--only", "draw").stderr
    assert "n_rows" not in invoke("reproduce", "nut", "--preset", "paper", "--out", tmp_path).stderr


def test_steps_can_be_repeated_alone(tmp_path):
    common = ("reproduce", "densities", "--preset", "smoke", "--out", tmp_path)
    folder = tmp_path / "densities" / "smoke"
    assert invoke(*common, "--only", "run").exit_code == 0
    assert {path.name for path in folder.iterdir()} == {"results.csv", "metadata.json"}
    (folder / "metadata.json").unlink()
    assert invoke(*common, "--only", "summarise").exit_code == 0
    assert {path.name for path in folder.iterdir()} == {"results.csv", "summary.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["densties"], "There is no experiment 'densties'; did you mean 'densities'?"),
        (["densities", "--preset", "smok"], "There is no preset 'smok' of densities; did you mean 'smoke'?"),
        (["densities", "--only", "draw"], "run the experiment first."),
        (
            ["densities", "--only", "draw", "--fresh"],
            "--fresh starts the run over, but --only draw runs nothing.",
        ),
        (
            ["densities", "--dataset", "mnist"],
            "densities has no data sets to choose from; leave out --dataset.",
        ),
        (
            ["densities", "--dataset", "mnist", "--only", "summarise"],
            "--dataset chooses the tasks to run, but --only summarise runs nothing.",
        ),
    ],
)
def test_known_errors_are_one_sentence_and_exit_code_two(arguments, message, tmp_path):
    result = invoke("reproduce", *arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f"{message}\n")
    assert result.stderr.count("\n") == 1


def test_another_seed_is_refused_until_fresh(tmp_path):
    common = ("reproduce", "densities", "--preset", "smoke", "--out", tmp_path, "--only", "run")
    assert invoke(*common).exit_code == 0
    refused = invoke(*common, "--seed", "1")
    assert refused.exit_code == 2
    assert "made with seed 0, not 1; add --fresh" in refused.stderr
    assert invoke(*common, "--seed", "1", "--fresh").exit_code == 0


@pytest.fixture
def fruit(monkeypatch):
    """An experiment of two data sets, and the list of the tasks that were run."""
    asked = []

    def run_one(settings, task, seed):
        asked.append((task["dataset"], task["split"]))
        return [{"score": len(asked)}]

    tasks = [{"dataset": dataset, "split": split} for dataset in ("apple", "pear") for split in range(2)]
    presets = {preset: {} for preset in ("smoke", "laptop", "paper")}
    experiment = Experiment("fruit", "Fruit", presets, lambda _: tasks, run_one, lambda records, folder: None)
    monkeypatch.setitem(_registry._EXPERIMENTS, "fruit", experiment)
    return asked


def test_a_dataset_alone_is_run_and_results_of_others_stay(fruit, tmp_path):
    common = ("reproduce", "fruit", "--preset", "smoke", "--out", tmp_path)
    assert invoke(*common, "--dataset", "pear").exit_code == 0
    assert fruit == [("pear", 0), ("pear", 1)]
    assert invoke(*common).exit_code == 0
    assert fruit[2:] == [("apple", 0), ("apple", 1)]
    assert invoke(*common, "--dataset", "apple").exit_code == 0  # nothing is left to do
    assert len(fruit) == 4
    assert invoke(*common, "--dataset", "apple", "--fresh").exit_code == 0
    assert fruit[4:] == [("apple", 0), ("apple", 1)]
    records = read_records(tmp_path / "fruit" / "smoke" / "results.csv")
    assert [tuple(record.values()) for record in records] == [
        ("apple", 0, 5),
        ("apple", 1, 6),
        ("pear", 0, 1),
        ("pear", 1, 2),
    ]


def test_the_only_dataset_can_be_started_over(fruit, tmp_path):
    common = ("reproduce", "fruit", "--preset", "smoke", "--out", tmp_path, "--dataset", "pear")
    assert invoke(*common).exit_code == 0
    assert invoke(*common, "--fresh").exit_code == 0
    assert len(fruit) == 4
    assert len(read_records(tmp_path / "fruit" / "smoke" / "results.csv")) == 2


def test_an_unknown_dataset_is_answered_with_the_nearest(fruit, tmp_path):
    result = invoke("reproduce", "fruit", "--preset", "smoke", "--out", tmp_path, "--dataset", "pera")
    assert result.exit_code == 2
    message = "There is no data set 'pera' in fruit with the preset smoke; did you mean 'pear'?"
    assert result.stderr == f"Error: {message}\n"
    assert not list(tmp_path.iterdir())


def test_help_loads_nothing_that_is_slow():
    slow = {"torch", "numpy", "sklearn", "pyarrow", "matplotlib", "gaussify.experiments"}
    program = f"import sys, gaussify.cli; sys.exit(bool({slow} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_demo_fits_compares_and_streams_on_one_page(tmp_path):
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert all(word in result.stdout for word in ("variance, own class", "logistic regression", "SGDClassifier"))
    page = (tmp_path / "demo.html").read_text()
    assert page.count("<section>") == 4
    assert page.count("data:image/png;base64,") == 2
    assert 'href="breast-cancer/report.html"' in page
    assert (tmp_path / "breast-cancer" / "report.html").exists()


@pytest.mark.parametrize(
    "command",
    [command.name or command.callback.__name__ for command in app.registered_commands],
)
def test_every_command_speaks_json(command):
    assert "--json" in invoke(command, "--help").stdout


def test_an_out_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("reproduce", "densities", "--preset", "smoke", "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_damaged_metadata_is_one_sentence(tmp_path):
    folder = tmp_path / "densities" / "smoke"
    folder.mkdir(parents=True)
    (folder / "results.csv").write_text("a\n1\n")
    (folder / "metadata.json").write_text("{")
    result = invoke("reproduce", "densities", "--preset", "smoke", "--out", tmp_path)
    assert result.exit_code == 2
    assert "metadata.json is damaged; add --fresh" in result.stderr


def test_a_table_for_people_has_errors_beside_means_and_no_empty_columns():
    rows = [
        {"method": "exact", "nll": 0.25, "nll_se": 0.012, "auroc": None, "auroc_se": None, "paper_se": 1},
        {"method": "gauss", "nll": 0.5, "nll_se": None, "auroc": None, "auroc_se": None, "paper_se": 2},
    ]
    assert _reproduce._for_people(rows) == [
        {"method": "exact", "nll": "0.25 ± 0.012", "paper_se": 1},
        {"method": "gauss", "nll": 0.5, "paper_se": 2},
    ]
