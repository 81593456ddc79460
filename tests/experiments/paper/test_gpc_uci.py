"""Gaussian processes beside the paper: what is run, what chooses, and what stands in the table."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from gaussify import GPClassifier, datasets
from gaussify.experiments import get, load
from gaussify.experiments._lab import REGRESSION, SIZES, _splits, group, make_split
from gaussify.experiments.paper._gpc_uci import PRESETS, make_model
from gaussify.experiments.paper._gpc_uci_results import contenders
from gaussify.experiments.paper._published import GPC_UCI, METRICS, gpc_uci_best

OURS = ("ours, standard", "ours, quantile", "ours, quantile, kernel for each class", "ours")


@pytest.fixture(scope="module")
def results(smoke_run):
    """The records of a smoke run, and its folder."""
    folder = smoke_run("gpc-uci")
    return load(folder), folder


def record(score, **values):
    """A record of the paper's variational model on letter, save what is given."""
    common = {"dataset": "letter", "split": 0, "variant": "paper", "method": "variational", "scaling": "standard"}
    common["kernels"] = "shared"
    scores = {"error_pct": 10.0, "nll": 0.3, "ece": 0.02, "seconds": 1.0, "alpha_eps": 0.1}
    own = common | scores | values
    return {"used_alpha_eps": own["alpha_eps"]} | own | {"score": score}


def tasks_of(preset, **values):
    tasks = get("gpc-uci").tasks(PRESETS[preset])
    return [task for task in tasks if values.items() <= task.items()]


def test_every_contender_runs_on_every_split(results):
    found = contenders(results[0])
    assert list(found) == [("iris", name) for name in (*REGRESSION, "variational, quantile", *OURS)]
    assert all([r["split"] for r in own] == [0, 1] for own in found.values())


def test_records_are_sound(results):
    for r in results[0]:
        assert 0.0 <= r["error_pct"] <= 30.0  # of easy data
        assert 0.0 <= r["ece"] <= 1.0
        assert r["nll"] > 0.0 > r["score"]
        assert r["n_iterations"] <= (3 if r["kernels"] == "shared" else 9)
        assert (r["used_alpha_eps"] is None) == (r["method"] == "gauss")
        if r["variant"] == "paper":
            assert r["temperature"] == 1.0
            assert r["used_alpha_eps"] == r["alpha_eps"]


def test_alpha_eps_is_chosen_by_training_rows_and_never_by_test_rows(results):
    before = contenders(results[0])
    values = np.random.default_rng(0).random((len(results[0]), len(METRICS)))
    shuffled = [r | dict(zip(METRICS, map(float, row), strict=True)) for r, row in zip(results[0], values, strict=True)]
    for key, own in contenders(shuffled).items():
        kept = [name for name in own[0] if name not in METRICS]
        assert [[r[name] for name in kept] for r in own] == [[r[name] for name in kept] for r in before[key]]
    for method in REGRESSION:
        for r in before["iris", method]:
            same = {key: r[key] for key in ("split", "method", "variant", "scaling")}
            assert r["score"] == max(o["score"] for o in results[0] if same.items() <= o.items())


def test_alpha_eps_is_chosen_for_each_split():
    scores = {(0, 0.1): -0.3, (0, 0.2): -0.4, (1, 0.1): -0.5, (1, 0.2): -0.2}
    records = [record(score, split=split, alpha_eps=alpha) for (split, alpha), score in scores.items()]
    assert [r["alpha_eps"] for r in contenders(records)["letter", "variational"]] == [0.1, 0.2]


def test_our_scaling_is_chosen_by_leave_one_out():
    common = {"variant": "ours", "alpha_eps": None, "used_alpha_eps": 0.05}
    records = [
        record(-0.3, **common, nll=0.2),
        record(-0.2, **common, nll=0.4, scaling="quantile"),
    ]
    (row,) = [row for row in get("gpc-uci").summarise(records) if row["contender"] == "ours"]
    assert (row["scaling"], row["nll"], row["alpha_eps"]) == ("quantile", "0.400 ± ?", 0.05)


def test_the_summary_stands_beside_the_paper():
    records = [record(-0.3, split=split, error_pct=error) for split, error in enumerate((10.0, 11.0, 12.0))]
    records += [r | {"variant": "ours"} for r in records]
    summary = {row["contender"]: row for row in get("gpc-uci").summarise(records)}
    row = summary["variational"]
    assert (row["splits"], row["error"], row["error_paper"]) == (3, "11.00 ± 0.58", "11.50 ± 0.13")
    assert (row["nll"], row["nll_paper"]) == ("0.300 ± 0.000", "0.35 ± 0.00")
    assert (row["ece"], row["ece_paper"]) == ("0.020 ± 0.000", "0.03 ± 0.00")
    assert summary["ours"]["error_paper"] == "best 11.50"
    assert summary["ours"]["ece_paper"] == "best 0.03"


def test_what_the_paper_does_not_report_is_left_empty(results):
    gauss, unknown = record(-0.3, method="gauss", alpha_eps=None), results[0][0]
    for row in get("gpc-uci").summarise([gauss, unknown]):
        assert all(row[name] is None for name in ("error_paper", "nll_paper", "ece_paper"))


def test_the_paper_is_quoted_as_it_is():
    with (Path(__file__).parent / "numbers" / "gpc_uci.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["dataset"], row["method"]) for row in rows} == {
        (dataset, method) for dataset, own in GPC_UCI.items() for method in own
    }
    for row in rows:
        quoted = GPC_UCI[row["dataset"]][row["method"]]
        assert quoted["error_pct"] == (float(row["error_pct"]), float(row["error_se"]))
        for metric in ("nll", "ece"):
            assert quoted[metric] == (float(row[metric]), float(row[f"{metric}_se"]))
        assert SIZES[row["dataset"]] == (int(row["n_train"]), int(row["n_test"]))
    assert [gpc_uci_best("eeg", metric) for metric in METRICS] == [16.39, 0.31, 0.01]


@pytest.fixture
def numbered_rows(monkeypatch):
    """Rows of eeg, each the number of its place."""
    n_rows = sum(SIZES["eeg"])
    rows = np.arange(n_rows, dtype=float)[:, None], np.zeros(n_rows, dtype=np.int64)
    monkeypatch.setattr(_splits, "load_rows", lambda dataset: rows)
    make_split.cache_clear()
    yield n_rows
    make_split.cache_clear()


def test_a_split_is_a_permutation_with_the_papers_sizes(numbered_rows):
    order = np.random.default_rng(7).permutation(numbered_rows)
    split = make_split("eeg", 7)
    assert (len(split.y), len(split.y_test)) == (10_980, 4000)
    np.testing.assert_array_equal(np.concatenate([split.X, split.X_test])[:, 0], order)
    assert not np.array_equal(make_split("eeg", 8).X, split.X)


def test_fewer_rows_are_the_first_of_both_parts(numbered_rows):
    split, few = make_split("eeg", 0), make_split("eeg", 0, 50, 20)
    np.testing.assert_array_equal(few.X, split.X[:50])
    np.testing.assert_array_equal(few.X_test, split.X_test[:20])


@pytest.mark.parametrize("dataset", SIZES)
def test_the_papers_sizes_are_all_rows_there_are(dataset):
    try:
        data = datasets.load(dataset, download=False)
    except datasets.DatasetError:
        pytest.skip(f"the data set {dataset} is not here; GAUSSIFY_DATA names the folder to look in")
    assert len(data.X_train) == sum(SIZES[dataset])


@pytest.mark.parametrize("preset", ["laptop", "paper"])
def test_every_method_and_alpha_eps_runs_on_every_data_set(preset):
    settings = PRESETS[preset]
    assert settings["n_splits"] >= 3
    assert settings["n_inducing"] == 200
    assert settings["max_train"] is settings["max_test"] is None
    expected = {("gauss", None), *itertools.product(REGRESSION[1:], settings["alpha_eps"])}
    by_split = group(get("gpc-uci").tasks(settings), "dataset", "split")
    assert list(by_split) == list(itertools.product(SIZES, range(settings["n_splits"])))
    for (dataset, _), tasks in by_split.items():
        runs = group(tasks, "variant", "scaling")
        assert {(task["method"], task["alpha_eps"]) for task in runs["paper", "standard"]} == expected
        ours = [(task["scaling"], task["kernels"]) for task in tasks if task["variant"] == "ours"]
        separate = [("quantile", "separate")] if dataset != "letter" else []
        assert ours == [("standard", "shared"), ("quantile", "shared"), *separate]
        robust = {task["alpha_eps"] for task in runs.get(("paper", "quantile"), [])}
        assert robust == (set(settings["alpha_eps"]) if dataset == "eeg" else set())


def test_the_papers_model_has_temperature_one_and_looks_at_all_training_rows():
    task = tasks_of("laptop", variant="paper", method="moment", alpha_eps=0.2)[0]
    model = make_model(PRESETS["laptop"], task, n_train=12_345)
    expected = {"method": "moment", "alpha_eps": 0.2, "temperature": 1.0, "criterion": "training", "max_iter": 40}
    expected |= {"sample_size": 12_345, "scaling": "standard", "n_inducing": 200}
    assert expected.items() <= model.get_params().items()


@pytest.mark.parametrize(("dataset", "n_iterations"), [("letter", None), ("drive", 100)])
def test_ours_is_the_estimator_as_it_comes(dataset, n_iterations):
    for task in tasks_of("laptop", variant="ours", dataset=dataset):
        expected = GPClassifier(n_inducing=200, scaling=task["scaling"], shared_kernel=task["kernels"] == "shared")
        if n_iterations:
            expected.set_params(max_iter=n_iterations)
        assert make_model(PRESETS["laptop"], task, n_train=100).get_params() == expected.get_params()
        assert expected.method == task["method"]


def test_figures_are_drawn_from_a_part_of_the_records_too(tmp_path):
    records = [record(-0.3, alpha_eps=alpha_eps) for alpha_eps in (0.1, 0.2)]
    records += [record(-0.3, dataset="unknown", variant="ours", alpha_eps=None)]
    get("gpc-uci").draw(records, tmp_path)
    names = {"alpha_eps.png", "alpha_eps.pdf", "best.png", "best.pdf"}
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_size} == names
