"""What sparse Gaussian processes cost: contenders that compute the same, and records that figures are drawn from."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaussify import GPClassifier, SoftmaxLikelihood
from gaussify.experiments import get, load
from gaussify.experiments._lab import _timing
from gaussify.experiments._lab._timing import best_times
from gaussify.experiments.benchmarks import _gp_speed
from gaussify.experiments.benchmarks._gp_peers import DirichletSGPR, Trainer, scaled_rbf, watch
from gaussify.experiments.benchmarks._gp_speed import PRESETS, Evaluation, evaluate_alone, load_split
from gaussify.experiments.benchmarks._gp_speed_figures import NLL, OWN, TARGETS, spread_out
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._collapsed import accumulate_collapsed_bound

SMOKE = PRESETS["smoke"]
per_class = pytest.mark.parametrize("kernel_per_class", [False, True], ids=["one kernel", "one kernel a class"])


@pytest.fixture(scope="module")
def records(smoke_run):
    return load(smoke_run("gp-speed"))


@pytest.fixture
def problem():
    split = load_split(*SMOKE["letter"])
    return Evaluation.of(split.X, split.y, n_inducing=12)


@per_class
def test_gpytorch_evaluates_the_same_objective(problem, kernel_per_class):
    found = problem.own()()
    value = problem.gpytorch(kernel_per_class=kernel_per_class, mean=found.mean)()
    assert value == pytest.approx(found.value, rel=1e-6)


def test_another_kernel_has_another_objective(problem):
    model = DirichletSGPR(problem.X, problem.labels, problem.points, mean=problem.own()().mean)
    model.covar_module.base_kernel.base_kernel.initialize(lengthscale=1.0)
    assert abs(model.bound().item() / problem.own()().value - 1.0) > 1e-2


@per_class
def test_gpytorch_has_the_same_gradient(problem, kernel_per_class):
    """Of what is shared, and in sum of what each class has its own of."""
    table = SoftmaxLikelihood(4, torch.tensor(0.01).double(), "moment-ori").target_table()
    variance = float(table.mean[problem.labels].var(0).mean())
    kernel = scaled_rbf(problem.X.shape[1], variance, torch.float64, torch.Size())
    points = problem.points.clone().requires_grad_()
    rows = SortedRows.of(problem.X, problem.labels, n_classes=4)
    found = accumulate_collapsed_bound(kernel, points, rows, table)
    model = DirichletSGPR(problem.X, problem.labels, problem.points, mean=found.mean, kernel_per_class=kernel_per_class)
    model.bound().backward()
    theirs = model.covar_module
    expected = {
        points: theirs.inducing_points.grad,
        kernel.raw_outputscale: theirs.base_kernel.raw_outputscale.grad,
        kernel.base_kernel.raw_lengthscale: theirs.base_kernel.base_kernel.raw_lengthscale.grad,
    }
    for parameter, gradient in expected.items():
        if gradient.ndim > parameter.ndim:
            gradient = gradient.sum(0)
        assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4 * gradient.abs().max().item())
    assert model.mean_module.raw_constant.grad.abs().max() < 1e-6 * abs(found.value)  # the means are the best ones


def test_inducing_points_are_distinct_rows():
    X, y = np.repeat(np.arange(30.0)[:, None], 2, axis=1), np.arange(30) % 2
    points = Evaluation.of(X[np.arange(60) // 2], y[np.arange(60) // 2], n_inducing=20).points
    assert len(points.unique(dim=0)) == 20


@pytest.mark.parametrize("contender", [OWN, *_gp_speed._PEERS])
def test_a_process_prints_its_memory_and_the_bound(problem, contender, capsys):
    evaluate_alone(contender, SMOKE["letter"], 12, problem.own()().mean.tolist())
    before, after, value = map(float, capsys.readouterr().out.split())
    assert 0.0 < before <= after
    assert value == pytest.approx(problem.own()().value, rel=1e-6)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="elsewhere, the peak of the parent counts too")
def test_memory_of_a_process_is_not_that_of_its_parent(tmp_path):
    program = (
        "import subprocess, sys; ballast = b'1' * 2**29\n"
        f"source = open({_timing.__file__!r}).read() + '\\nprint(peak_gibibytes())'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', source]).returncode)"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 0.0 < float(found.stdout) < 0.4


def test_short_functions_run_several_times_in_a_turn():
    calls = []
    runs = {name: (lambda name=name: calls.append(name)) for name in ("own", "peer")}
    best_times(runs, 2, {"own": 3})
    assert calls == ["own", "peer", *["own", "own", "own", "peer"] * 2]


def test_every_measurement_and_contender_has_records(records):
    found = {(r["measurement"], r["contender"]) for r in records}
    assert {measurement for measurement, _ in found} == {*_gp_speed._MEASUREMENTS, NLL}
    assert {contender for measurement, contender in found if measurement == NLL} == set(_gp_speed._contenders(SMOKE))


def test_ratios_are_those_of_the_times_of_one_run(records):
    own = [r for r in records if r["measurement"] == "objective"]
    assert [r["time_ratio"] for r in own] == pytest.approx([r["seconds"] / own[0]["seconds"] for r in own], rel=1e-2)
    shares = [r["share_of_peak"] for r in records if r["measurement"] == "share of peak"]
    assert max(shares) == 1.0
    fewest = [r for r in records if r["measurement"] == "number of classes" and r["n_classes"] == 2]
    assert [(r["contender"], r["time_ratio"]) for r in fewest] == [
        (f"{OWN}, 200 rows", 1.0),
        ("GPyTorch, one kernel, 200 rows", 1.0),
        (f"{OWN}, 300 rows", 1.0),
    ]


def test_scores_are_those_of_the_classifier(records):
    split = load_split(*SMOKE["letter"])
    probs = GPClassifier(n_inducing=10, max_iter=10).fit(split.X, split.y).predict_proba(split.X_test)
    last = [r for r in records if r["contender"] == f"{OWN}, M=10"][-1]
    assert last["nll"] == pytest.approx(-np.log(probs[np.arange(len(probs)), split.y_test]).mean(), rel=1e-3)


def test_zeros_of_forests_have_a_finite_score():
    scores = _gp_speed._scores(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    assert scores["nll"] == pytest.approx(-0.5 * np.log(1e-15))
    assert scores["error"] == 0.5


def test_only_training_counts_as_training():
    clock = {"steps": 0, "shares": []}

    def step(share):
        clock["steps"] += 1
        clock["shares"].append(share)

    looks = list(watch(lambda: Trainer(step, lambda: np.full((1, 2), clock["steps"])), time_limit=0.01, n_looks=3))
    assert 1 <= len(looks) <= 3
    assert [look.probs[0, 0] for look in looks] == [look.n_steps for look in looks]
    assert looks[-1].n_steps == clock["steps"]
    assert looks[-1].seconds >= 0.01
    assert clock["shares"] == sorted(clock["shares"])
    assert clock["shares"][-1] <= 1.0


def test_slow_steps_give_one_look():
    slow = Trainer(lambda share: sum(range(10**6)), lambda: np.eye(2))
    assert [look.n_steps for look in watch(lambda: slow, time_limit=1e-6, n_looks=4)] == [1]


@pytest.mark.parametrize("measurement", ["objective", "number of classes", "share of peak", NLL])
def test_figures_are_drawn_from_some_records_too(records, measurement, tmp_path):
    get("gp-speed").draw([r for r in records if r["measurement"] == measurement], tmp_path)
    name = "time_to_nll" if measurement == NLL else "cost"
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_size} == {f"{name}.png", f"{name}.pdf"}


def test_the_summary_has_the_time_to_each_target():
    common = {"measurement": NLL, "contender": OWN, "predict_seconds": 0.1, "ece": 0.1, "error": 0.1}
    records = [common | {"seconds": t, "nll": nll} for t, nll in ((1.0, 0.6), (8.0, 0.25), (2.0, 0.4))]
    (row,) = get("gp-speed").summarise(records)
    assert (row["seconds"], row["nll"]) == (8.0, 0.25)
    assert [row[f"seconds_to_{target}"] for target in TARGETS] == [2.0, 8.0, None]


def test_the_summary_has_a_row_for_each_contender(records):
    summary = get("gp-speed").summarise(records)
    names = [(row["measurement"], row["contender"]) for row in summary]
    assert len(names) == len(set(names)) == len({(r["measurement"], r["contender"], r["n_classes"]) for r in records})


def test_labels_stay_apart_and_inside():
    places = spread_out(np.array([0.0, 0.01, 0.99, 1.0, 0.5]), gap=0.1)
    assert np.diff(np.sort(places)).min() >= 0.1 - 1e-12
    assert places.min() >= 0.0
    assert places.max() <= 1.0
    assert list(np.argsort(places)) == [0, 1, 4, 2, 3]
