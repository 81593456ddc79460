"""Examples run, and show what they say."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bandit_learns_from_right_and_wrong():
    bandit = load(next(path for path in EXAMPLES if path.stem == "plot_bandit"))
    X, y = bandit.load_digits(return_X_y=True)
    rows = np.random.default_rng(0).integers(len(y), size=800)
    curve = bandit.regret(bandit.Gaussify(64, seed=0), X[rows] / 16.0, y[rows])
    assert curve[399] > 1.3 * (curve[799] - curve[399])


def test_the_bandit_runs_from_the_command_line(tmp_path):
    (path,) = (path for path in EXAMPLES if path.stem == "plot_bandit")
    command = [sys.executable, str(path), "--rounds", "20", "--seeds", "1", "--out", str(tmp_path / "figure.png")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "gaussify" in done.stdout
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def scores_best_of_all(names):
    nll = {model: names["metrics"].nll(probs, names["y_test"]) for model, probs in names["probs"].items()}
    return min(nll, key=nll.get) == "GPClassifier"


CLAIMS = {
    "plot_active": lambda names: names["curves"]["entropy"][:, -1].mean() > names["curves"]["random"][:, -1].mean(),
    "plot_calibration": scores_best_of_all,
    "plot_densities": lambda names: abs(names["normals"]["laplace"].mean - names["normals"]["moment"].mean) < 0.01,
    "plot_gp": lambda names: names["nll"] < 0.4 and names["entropy"][0, 0] > 1.2,  # of four classes, log 4 at most
    "plot_last_layer": lambda names: names["sure"]["Bayesian last layer"] < 0.8 < 0.95 < names["sure"]["network"],
    "plot_streaming": lambda names: np.mean(names["losses"][0.99][40:]) < 0.5 * np.mean(names["losses"][1.0][40:]),
}
"""What must hold of the names that an example leaves behind: what its text says."""


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem != "plot_bandit"], ids=lambda path: path.stem)
def test_every_example_of_the_gallery_draws_and_shows_what_it_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names = runpy.run_path(str(path))
    plt.close("all")
    assert CLAIMS[path.stem](names)
    assert (tmp_path / f"{path.stem.removeprefix('plot_')}.png").stat().st_size > 10_000


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_begin_with_a_title_for_the_gallery(path):
    title, underline = path.read_text(encoding="utf-8").splitlines()[1:3]
    assert underline == "=" * len(title)
