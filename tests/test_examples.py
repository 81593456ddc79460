"""Examples run, and show what they say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_from_the_command_line(path, tmp_path):
    command = [sys.executable, str(path), "--rounds", "20", "--seeds", "1", "--out", str(tmp_path / "figure.png")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "gaussify" in done.stdout
    assert (tmp_path / "figure.png").stat().st_size > 10_000
