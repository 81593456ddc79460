"""The commands for tables, as people and programs use them."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from gaussify.cli import app
from gaussify.tables import MODEL_FILE, REPORT_FILE, FitOptions, TableModel, read_table
from tables.conftest import make_birds


def invoke(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables, and a linear model of one of them."""
    folder = tmp_path_factory.mktemp("birds")
    csv.write_csv(make_birds(300), folder / "birds.csv")
    csv.write_csv(make_birds(50, seed=1), folder / "more.csv")
    csv.write_csv(make_birds(50, seed=2).drop_columns(["species"]), folder / "new.csv")
    parquet.write_table(make_birds(50, seed=3), folder / "test.parquet")
    result = invoke("fit", folder / "birds.csv", "-t", "species", "--model", "linear")
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def model(folder, tmp_path):
    """A copy of the model."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / MODEL_FILE).write_bytes((folder / "birds-model" / MODEL_FILE).read_bytes())
    return tmp_path / "model"


def test_fit_prints_scores_beside_others_and_writes_model_and_report(folder, tmp_path):
    arguments = ["fit", folder / "birds.csv", "-t", "species", "-o", tmp_path / "own", "--max-iter", 5, "-v"]
    result = invoke(*arguments, "--n-inducing", 10, "--model", "gp")
    assert result.exit_code == 0, result.output
    for word in ("gaussify", "majority class", "logistic regression", "gradient boosting", "accuracy", "NLL", "ECE"):
        assert word in result.stdout
    assert "10 inducing points" in result.stdout
    assert "Columns left out: bird" in result.stderr
    assert {path.name for path in (tmp_path / "own").iterdir()} == {MODEL_FILE, REPORT_FILE}


def test_fit_speaks_json(folder, tmp_path):
    result = invoke(
        "fit", folder / "birds.csv", "--target", "species", "--model", "linear", "-o", tmp_path / "m", "--json"
    )
    answer = json.loads(result.stdout)
    assert answer["classes"] == ["emu", "kiwi", "moa"]
    assert answer["scores"][0]["name"] == "gaussify"
    assert answer["n_train"] + answer["n_held_out"] == 300
    assert (tmp_path / "m" / REPORT_FILE).exists()


def test_the_seed_decides_which_rows_are_held_out(folder, tmp_path):
    arguments = ["fit", folder / "birds.csv", "-t", "species", "--model", "linear", "--json", "--no-compare"]
    first, again, other = (
        json.loads(invoke(*arguments, "--seed", seed, "-o", tmp_path / name).stdout)["scores"][0]["nll"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == again != other


def test_a_model_is_not_replaced_unawares(folder):
    before = (folder / "birds-model" / MODEL_FILE).read_bytes()
    result = invoke("fit", folder / "birds.csv", "-t", "species", "--model", "linear")
    assert result.exit_code == 2
    assert "add --overwrite" in result.stderr
    assert (folder / "birds-model" / MODEL_FILE).read_bytes() == before


def test_a_wrong_column_is_reported_before_an_existing_model(folder):
    result = invoke("fit", folder / "birds.csv", "-t", "specie")
    assert result.exit_code == 2
    assert "no column 'specie'. Did you mean 'species'?" in result.stderr
    assert "--overwrite" not in result.stderr


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize("command", ["fit", "merge"])
def test_a_file_is_no_folder_for_a_model(folder, command, overwrite, monkeypatch):
    def fit(*_, **__):
        raise AssertionError("fitted before the output was checked")

    monkeypatch.setattr("gaussify.tables.fit_table", fit)
    before = (folder / "more.csv").read_bytes()
    inputs = {
        "fit": [folder / "birds.csv", "-t", "species"],
        "merge": [folder / "birds-model", folder / "birds-model"],
    }[command]
    result = invoke(command, *inputs, "-o", folder / "more.csv", *overwrite)
    assert result.exit_code == 2, result.output
    assert "more.csv is a file, and a model needs a folder" in result.stderr
    assert (folder / "more.csv").read_bytes() == before


def test_a_wrong_kind_of_model_is_refused_with_the_kinds(folder):
    command = ["fit", folder / "birds.csv", "-t", "species", "--model", "foo"]
    result = invoke(*command, env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert result.exit_code == 2
    assert "'foo' is not one of 'auto', 'linear', 'gp'" in result.stderr
    assert "Value error" not in result.stderr


def test_predict_writes_what_the_model_says(folder, tmp_path):
    out = tmp_path / "predictions.parquet"
    result = invoke("predict", folder / "birds-model", folder / "new.csv", "--keep", "bird", "-o", out)
    assert result.exit_code == 0, result.output
    rows = parquet.read_table(out)
    assert rows.column_names[:3] == ["bird", "predicted", "probability"]
    expected = TableModel.load(folder / "birds-model").predict_proba(read_table(folder / "new.csv"))
    np.testing.assert_allclose(rows.column("P(emu)").to_numpy(), expected[:, 0], atol=1e-5)


def test_predict_reads_standard_input_and_prints(folder):
    text = (folder / "new.csv").read_bytes()
    command = [sys.executable, "-m", "gaussify", "predict", str(folder / "birds-model"), "-", "--keep-all"]
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    printed = csv.read_csv(pa.py_buffer(done.stdout))
    assert printed.num_rows == 50
    assert printed.column_names[:6] == ["bird", "height", "colour", "caught", "seen", "predicted"]
    assert b"Error" not in done.stderr


def test_a_reader_that_has_enough_is_no_error(folder):
    table = pa.concat_tables([make_birds(50, seed=2).drop_columns(["species"])] * 400)
    csv.write_csv(table, folder / "long.csv")
    python = f"{sys.executable} -m gaussify"
    command = f"{python} predict {folder / 'birds-model'} {folder / 'long.csv'} | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.filterwarnings("default:something was added")
def test_warnings_are_notes(folder, monkeypatch):
    def warn(*_):
        warnings.warn("something was added", stacklevel=1)
        return {}

    monkeypatch.setattr("gaussify.tables.describe", warn)
    result = invoke("info", folder / "birds-model", "--json")
    assert result.exit_code == 0
    assert result.stderr == "Note: something was added\n"


def test_json_has_no_word_for_infinity(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("gaussify.tables._training.metrics.nll", lambda probs, y: float("inf"))
    result = invoke("fit", folder / "birds.csv", "-t", "species", "--model", "linear", "-o", tmp_path / "m", "--json")

    def refuse(word):
        raise AssertionError(word)

    answer = json.loads(result.stdout, parse_constant=refuse)
    assert answer["scores"][0]["nll"] is None
    assert json.loads(invoke("info", tmp_path / "m", "--json").stdout, parse_constant=refuse)


def test_a_model_like_another_takes_no_options_of_its_own(folder, tmp_path):
    base = folder / "birds-model"
    result = invoke("fit", folder / "more.csv", "--like", base, "-o", tmp_path / "x", "--model", "gp")
    assert result.exit_code == 2
    assert "--like takes columns and kind from that model" in result.stderr


def test_predict_tells_of_levels_that_are_new(folder, tmp_path):
    table = make_birds(20, seed=4)
    colours = pa.array(["pink"] * 5 + ["grey"] * 15)
    csv.write_csv(table.set_column(2, "colour", colours), tmp_path / "new.csv")
    result = invoke("predict", folder / "birds-model", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "Column 'colour': 5 cells have a level that was not in training" in result.stderr


def test_update_learns_more_rows(folder, model):
    result = invoke("update", model, folder / "more.csv", "--json")
    assert json.loads(result.stdout)["n_learnt"] == 50
    updated = TableModel.load(model)
    whole = TableModel.load(folder / "birds-model")
    whole.learn(iter([read_table(folder / "more.csv")]), "more")
    rows = read_table(folder / "new.csv")
    np.testing.assert_allclose(updated.predict_proba(rows), whole.predict_proba(rows), atol=1e-9)
    again = invoke("update", model, folder / "more.csv")
    assert "in total" in again.stdout
    assert "The model has already learnt 50 rows of a table named more.csv" in again.stderr


def test_an_update_counts_classes_that_are_new(model, tmp_path):
    rows = make_birds(20, seed=5)
    csv.write_csv(rows.set_column(5, "species", pa.array(["dodo"] * 20)), tmp_path / "dodos.csv")
    assert "20 rows learnt, 1 new class; " in invoke("update", model, tmp_path / "dodos.csv").stdout


def test_an_update_tells_that_the_report_is_older(folder, model):
    assert (
        "report.html does not include the 50 rows learnt since" in invoke("update", model, folder / "more.csv").stderr
    )
    assert "rows learnt since the report" in invoke("info", model).stdout
    assert json.loads(invoke("info", model, "--json").stdout)["n_rows_since_report"] == 50
    assert json.loads(invoke("info", folder / "birds-model", "--json").stdout)["n_rows_since_report"] == 0


def test_a_merged_model_has_no_report_of_another(folder, tmp_path):
    base, shard, both = folder / "birds-model", tmp_path / "shard", tmp_path / "both"
    invoke("fit", folder / "birds.csv", "--like", base, "-o", shard, "--no-compare")
    invoke("fit", folder / "birds.csv", "-t", "species", "-o", both, "--model", "linear", "--no-compare")
    result = invoke("merge", base, shard, "-o", both, "--overwrite", "--json")
    assert result.stderr == (
        "Note: Both models have learnt rows of a table named birds.csv; a row in both counts twice.\n"
    )
    assert json.loads(result.stdout)["n_rows"] == 2 * TableModel.load(base).n_rows
    assert [path.name for path in both.iterdir()] == [MODEL_FILE]


def test_predict_prints_rows_as_json(folder, tmp_path):
    arguments = ["predict", folder / "birds-model", folder / "new.csv", "--keep", "bird", "--json"]
    rows = [json.loads(line) for line in invoke(*arguments).stdout.splitlines()]
    assert len(rows) == 50
    assert list(rows[0])[:3] == ["bird", "predicted", "probability"]
    answer = json.loads(invoke(*arguments, "-o", tmp_path / "out.csv").stdout)
    assert answer == {"out": str(tmp_path / "out.csv"), "n_rows": 50, "new_levels": {}}


def test_evaluate_scores_labels(folder):
    answer = json.loads(invoke("evaluate", folder / "birds-model", folder / "test.parquet", "--json").stdout)
    assert answer["n_rows"] == 50
    assert answer["accuracy"] > 0.7
    assert "accuracy" in invoke("evaluate", folder / "birds-model", folder / "test.parquet").stdout


def test_shards_are_merged(folder, tmp_path):
    base, shard, both = folder / "birds-model", tmp_path / "shard", tmp_path / "both"
    fitted = invoke("fit", folder / "more.csv", "--like", base, "-o", shard, "--use-all")
    assert "majority class" in fitted.stdout
    assert "40 rows learnt, 10 held out and then also learnt" in fitted.stderr
    assert "only 10 rows are held out" in fitted.stderr
    assert (shard / REPORT_FILE).exists()
    result = invoke("merge", base, shard, "-o", both)
    assert result.exit_code == 0, result.output
    assert TableModel.load(both).n_rows == TableModel.load(base).n_rows + 50
    again = invoke("merge", base, both, "-o", tmp_path / "twice")
    assert again.exit_code == 2
    assert "would count twice" in again.stderr
    assert not (tmp_path / "twice").exists()


def test_info_tells_what_a_model_is(folder):
    text = invoke("info", folder / "birds-model").stdout
    for word in ("Bayesian logistic regression", "emu, kiwi, moa", "birds.csv", "height", "number", "date"):
        assert word in text
    answer = json.loads(invoke("info", folder / "birds-model", "--json").stdout)
    assert answer["target"] == "species"
    assert answer["history"][0]["source"] == "birds.csv"


def test_brackets_in_names_and_labels_are_shown_as_they_are(tmp_path):
    rows = [f"{i % 7},{i % 5},{'[bold]a[/bold]' if i % 7 > 3 else '[/x]b'}" for i in range(60)]
    (tmp_path / "table.csv").write_text("[red]c[/red],:smile:,y\n" + "\n".join(rows))
    fitted = invoke("fit", tmp_path / "table.csv", "-t", "y", "--model", "linear", "-o", tmp_path / "m", "-v")
    assert fitted.exit_code == 0, fitted.output
    text = invoke("info", tmp_path / "m").stdout
    for word in ("[/x]b, [bold]a[/bold]", "[red]c[/red]", ":smile:"):
        assert word in text


def test_help_shows_the_defaults_of_the_package():
    text = invoke("fit", "--help", env={"COLUMNS": "200"}).stdout
    default = FitOptions()
    for own in (default.model, default.test_share, default.n_inducing, default.max_iter, default.seed):
        assert f"[default: {own}]" in text


@pytest.mark.parametrize("command", ["fit", "predict", "update", "evaluate", "merge", "info"])
def test_help_has_examples(command):
    text = invoke(command, "--help").stdout
    assert f"gaussify {command}" in text
    assert "Examples" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{}/birds.csv", "-t", "specie", "-o", "{}/x"], "no column 'specie'. Did you mean 'species'?"),
        (["fit", "{}/birds.csv", "-o", "{}/x"], "needs --target"),
        (["fit", "{}/birds.csv"], "needs --target"),
        (["fit", "{}/lists.parquet", "-t", "tags", "-o", "{}/x"], "Column 'tags' must hold words"),
        (
            ["predict", "{}/birds-model", "{}/lists.parquet", "--keep-all", "-o", "{}/out.csv"],
            "Column 'tags' has cells",
        ),
        (["fit", "{}/nowhere.csv", "-t", "species"], "No such file"),
        (["fit", "{}/one.csv", "-t", "y", "-o", "{}/x"], "must hold at least two classes"),
        (["fit", "{}/picture.png", "-t", "y", "-o", "{}/x"], "neither Parquet nor text"),
        (["fit", "{}", "-t", "y", "-o", "{}/x"], "directory"),
        (["fit", "-", "-t", "y"], "needs --out"),
        (["fit", "{}/birds.csv", "-t", "species", "--ignore", "hight", "-o", "{}/x"], "Did you mean 'height'"),
        (["predict", "{}/birds-model", "{}/one.csv"], "no column 'height', which the model was trained with"),
        (["predict", "{}/birds-model", "{}/text.csv", "-o", "{}/out.csv"], "Column 'height' must hold numbers"),
        (["predict", "{}/birds-model", "{}/header.csv"], "no rows"),
        (["predict", "{}/nowhere", "{}/new.csv"], "There is no model in"),
        (["predict", "{}/birds-model", "{}/new.csv", "--keep", "brid"], "Did you mean 'bird'"),
        (["update", "{}/birds-model", "{}/new.csv"], "no column 'species', which holds the labels"),
        (["evaluate", "{}/birds-model", "{}/new.csv"], "no column 'species', which holds the labels"),
        (["info", "{}/broken"], "or only a part of one"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(folder, arguments, message):
    (folder / "one.csv").write_text("x,y\n" + "1.5,a\n2.5,a\n" * 10)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "header.csv").write_text("height,colour,caught,seen\n")
    (folder / "text.csv").write_text("height,colour,caught,seen\ntall,grey,true,2024-01-01\n")
    birds = make_birds(30).drop_columns(["species"])
    parquet.write_table(birds.append_column("tags", pa.array([["a"]] * 30)), folder / "lists.parquet")
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / MODEL_FILE).write_bytes((folder / "birds-model" / MODEL_FILE).read_bytes()[:1000])
    before = (folder / "birds-model" / MODEL_FILE).read_bytes()
    result = invoke(*(argument.format(folder) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    assert not (folder / "x").exists()
    assert not (folder / "out.csv").exists()
    assert (folder / "birds-model" / MODEL_FILE).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.9, 0.95, 1.0])
def test_a_killed_update_leaves_the_old_model_or_the_new_one(folder, model, share):
    command = [sys.executable, "-m", "gaussify", "update", str(model), str(folder / "more.csv")]
    old = (model / MODEL_FILE).read_bytes()
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    new = TableModel.load(model).n_rows
    (model / MODEL_FILE).write_bytes(old)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(share * seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert TableModel.load(model).n_rows in (new - 50, new)
