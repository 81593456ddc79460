"""The picture of four classes: features, grid and records."""

import csv
import io

import numpy as np
import pytest

from gaussify import metrics
from gaussify.datasets import make_four_classes
from gaussify.experiments import get, load
from gaussify.experiments._lab._records import column_names, write_records
from gaussify.experiments.paper._plane import grid
from gaussify.experiments.paper._streaming_toy import METHODS, PRESETS, fourier_features
from gaussify.linear import BayesianLogisticRegression

SETTINGS = PRESETS["smoke"]


@pytest.fixture(scope="module")
def records(smoke_run):
    return load(smoke_run("streaming-toy"))


def of_kind(records, kind, **values):
    return [r for r in records if r["kind"] == kind and all(r[key] == value for key, value in values.items())]


def test_fourier_features_estimate_the_kernel():
    X = np.random.default_rng(0).standard_normal((5, 2))
    features = fourier_features(X, 200_000, 0.7, np.random.default_rng(1))
    squared = np.square(X[:, None] - X[None]).sum(-1)
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * squared / 0.7**2), atol=0.01)


def test_every_method_is_looked_at_after_the_same_rows(records):
    for look in SETTINGS["looks"]:
        for method in METHODS:
            nodes = of_kind(records, "grid", method=method, n_seen=look)
            found = np.array([[r["x1"], r["x2"]] for r in nodes])
            np.testing.assert_allclose(found, grid(SETTINGS["n_grid"], 4.5).round(3))
    for method in METHODS:
        rows = of_kind(records, "row", method=method)
        assert [r["n_seen"] for r in rows] == list(range(1, SETTINGS["looks"][-1] + 1))
        assert [(r["x1"], r["x2"], r["label"]) for r in rows] == [
            (r["x1"], r["x2"], r["label"]) for r in of_kind(records, "row", method=METHODS[0])
        ]


def test_probabilities_sum_to_one_and_agree_with_the_class(records):
    nodes = of_kind(records, "grid")
    probs = np.array([[r[f"prob{k}"] for k in range(4)] for r in nodes])
    np.testing.assert_allclose(probs.sum(1), 1.0, atol=2.1e-3)
    own = probs[np.arange(len(nodes)), [r["label"] for r in nodes]]
    np.testing.assert_array_equal(own, probs.max(1))


def test_scores_are_those_of_one_fit_to_all_rows(records):
    X, y = make_four_classes(SETTINGS["looks"][-1], random_state=np.random.default_rng([0, 0]))
    X_test, y_test = make_four_classes(SETTINGS["n_test"], random_state=np.random.default_rng([0, 1]))

    def features(points):
        return fourier_features(points, SETTINGS["n_features"], SETTINGS["length_scale"], np.random.default_rng([0, 2]))

    model = BayesianLogisticRegression(
        alpha_eps=SETTINGS["alpha_eps"],
        temperature=1.0,
        prior_variance=SETTINGS["prior_variance"],
        intercept_variance=SETTINGS["intercept_variance"],
        reservoir_size=0,
    )
    probs = model.fit(features(X), y).predict_proba(features(X_test))
    (score,) = of_kind(records, "score", method="variational", n_seen=SETTINGS["looks"][-1])
    assert score["nll"] == pytest.approx(metrics.nll(probs, y_test), abs=1e-5)
    assert score["accuracy"] == pytest.approx(metrics.accuracy(probs, y_test), abs=1e-5)


def test_summary_has_a_row_for_each_method_and_look(records):
    summary = get("streaming-toy").summarise(records)
    assert len(summary) == len(METHODS) * len(SETTINGS["looks"])
    last = [row for row in summary if row["n_seen"] == SETTINGS["looks"][-1]]
    assert min(row["accuracy"] for row in last) > 0.5


def test_the_table_of_the_laptop_preset_stays_below_a_megabyte(records, tmp_path):
    nodes = of_kind(records, "grid")
    write_records(tmp_path / "grid.csv", nodes)
    per_node = (tmp_path / "grid.csv").stat().st_size / len(nodes)
    laptop = PRESETS["laptop"]
    assert per_node * len(METHODS) * len(laptop["looks"]) * laptop["n_grid"] ** 2 < 0.9e6
    header = next(csv.reader(io.StringIO((tmp_path / "grid.csv").read_text())))
    assert header == column_names(nodes)
