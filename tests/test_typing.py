"""mypy reports misspelt options of the public names, and accepts those that are right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

IMPORTS = """
import numpy as np
from gpytorch.kernels import RBFKernel
from torch import nn
from gaussify import ActiveLearner, BayesianLogisticRegression, GPClassifier, LastLayer, SoftmaxLikelihood
from gaussify.gp import VariationalGPClassifier
from gaussify.nn import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss
"""

RIGHT = [
    'GPClassifier(method="variational", objective="elbo", likelihood="softmax", predictive="monte-carlo")',
    'GPClassifier("rbf", alpha_eps="auto", temperature="auto", scaling="quantile", criterion="training")',
    "GPClassifier(RBFKernel(), alpha_eps=[0.1, 0.2], temperature=1.0, scaling=None)",
    'GPClassifier(None, alpha_eps="per-class", inducing="greedy")',
    "GPClassifier(inducing=np.zeros((3, 2)), verbose=print)",
    'VariationalGPClassifier("matern32", inducing="kmeans")',
    'BayesianLogisticRegression("auto", 0.1, prior_variance=np.ones(3), dispersion="auto")',
    'BayesianLogisticRegression(prior_variance="auto", likelihood="logistic", criterion="leave-one-out")',
    'LastLayer(nn.Linear(2, 2), 3, "moment", [0.1, 0.2, 0.3], prior_variance=[1.0, 2.0], dispersion="auto")',
    'MatchedCrossEntropyLoss(3, method="laplace", reduction="none")',
    'MatchedBCEWithLogitsLoss(method="moment")',
    'SoftmaxLikelihood(3, method="moment-ori")',
    'ActiveLearner(BayesianLogisticRegression(), np.eye(3), acquisition="entropy")',
]

WRONG = [
    'GPClassifier(method="variatonal")',
    'GPClassifier(kernel="rbff")',
    'GPClassifier(objective="elbow")',
    'GPClassifier(alpha_eps="aut")',
    'GPClassifier(temperature="aut")',
    'GPClassifier(scaling="quantiles")',
    'GPClassifier(likelihood="softmx")',
    'GPClassifier(inducing="kmean")',
    'GPClassifier(criterion="leave-one-in")',
    'GPClassifier(predictive="quadratur")',
    'VariationalGPClassifier(kernel="rbff")',
    'VariationalGPClassifier(inducing="kmean")',
    'BayesianLogisticRegression(method="variatonal")',
    'BayesianLogisticRegression(alpha_eps="aut")',
    'BayesianLogisticRegression(prior_variance="aut")',
    'BayesianLogisticRegression(dispersion="aut")',
    'LastLayer(nn.Linear(2, 2), 3, method="variatonal")',
    'LastLayer(nn.Linear(2, 2), 3, alpha_eps="aut")',
    'LastLayer(nn.Linear(2, 2), 3, prior_variance="aut")',
    'LastLayer(nn.Linear(2, 2), 3, dispersion="aut")',
    'LastLayer(nn.Linear(2, 2), 3, dispersal="auto")',
    'MatchedCrossEntropyLoss(3, method="laplac")',
    'MatchedCrossEntropyLoss(3, reduction="nonne")',
    'MatchedBCEWithLogitsLoss(method="momnt")',
    'SoftmaxLikelihood(3, method="variatonal")',
    'ActiveLearner(BayesianLogisticRegression(), np.eye(3), acquisition="entropi")',
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The lines in which mypy finds an error, with its messages; it takes a second after ``make check``."""
    pytest.importorskip("mypy", reason="needs the extra dev")
    path = tmp_path_factory.mktemp("typing") / "options.py"
    path.write_text(IMPORTS + "\n".join(RIGHT + WRONG), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", str(path)]  # its settings are in the folder
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 1, answer
    text = answer.stdout
    lines = path.read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for number, message in re.findall(r"options\.py:(\d+): error: (.*)", text):
        line = lines[int(number) - 1]
        found[line] = found.get(line, "") + message
    assert set(found) <= {*RIGHT, *WRONG}, text
    return found


@pytest.mark.parametrize("call", RIGHT)
def test_right_options_are_accepted(reported, call):
    assert reported.get(call, "") == ""


@pytest.mark.parametrize("call", WRONG)
def test_misspelt_options_are_reported(reported, call):
    assert re.search(r"(\w+)=[^=]*$", call).group(1) in reported[call]
