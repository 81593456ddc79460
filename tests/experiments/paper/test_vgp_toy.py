"""The picture of variational classification: the bound, the grid and the records."""

import copy

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from gaussify import GPClassifier, SoftmaxLikelihood, metrics
from gaussify.datasets import make_four_classes
from gaussify.experiments import get, load
from gaussify.experiments._lab._records import write_records
from gaussify.experiments.paper._plane import grid, mixed_colours
from gaussify.experiments.paper._vgp_toy import METHODS, OBJECTIVES, PRESETS, class_likelihood_bound
from gaussify.plotting import SERIES_COLOURS

SETTINGS = PRESETS["smoke"]
V = SETTINGS["constant_variance"]


@pytest.fixture(scope="module")
def folder(smoke_run):
    return smoke_run("vgp-toy")


@pytest.fixture(scope="module")
def records(folder):
    return load(folder)


def of_kind(records, kind, **values):
    return [r for r in records if r["kind"] == kind and all(r[key] == value for key, value in values.items())]


def fitted(method, objective):
    X, y = make_four_classes(SETTINGS["n_rows"], random_state=np.random.default_rng([0, 0]))
    model = GPClassifier(method=method, objective=objective, temperature=1.0, max_iter=SETTINGS["max_iter"])
    return model.fit(X, y), X, y


@pytest.mark.parametrize("method", METHODS)
def test_the_bound_is_expectation_less_divergence(method):
    model, X, y = fitted(method, "matched")
    rows, labels = torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)
    likelihood = SoftmaxLikelihood(4, torch.tensor(model.alpha_eps_, dtype=torch.float64), method)
    with torch.no_grad():
        covariance = copy.deepcopy(model.kernel_)(rows).to_dense() + V
    # a little is added to the prior, whose smallest eigenvalues are lost to rounding otherwise
    covariance = covariance + 1e-6 * torch.eye(len(rows), dtype=torch.float64)
    prior = MultivariateNormal(torch.zeros(len(rows), dtype=torch.float64), covariance)
    means, variances, divergence = [], [], 0.0
    for y_k, v_k in zip(*(part.double().T for part in likelihood.encode(labels)), strict=True):
        gain = torch.linalg.solve(covariance + torch.diag(v_k), covariance).T
        own = covariance - gain @ covariance
        posterior = MultivariateNormal(gain @ y_k, 0.5 * (own + own.T))
        divergence += kl_divergence(posterior, prior).item()
        means.append(posterior.mean)
        variances.append(posterior.variance)
    expectation = likelihood.expected_log_prob(torch.stack(means, 1), torch.stack(variances, 1), labels).sum().item()
    assert class_likelihood_bound(model, X, y, V) == pytest.approx(expectation - divergence, abs=0.02)


def test_the_bound_is_larger_where_it_was_maximised(records):
    for method in METHODS:
        by_objective = {o: of_kind(records, "score", method=method, objective=o)[0]["bound"] for o in OBJECTIVES}
        assert by_objective["elbo"] > by_objective["matched"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_records_are_those_of_the_classifier(records, objective):
    model, X, y = fitted("variational", objective)
    own = {"method": "variational", "objective": objective}
    (score,) = of_kind(records, "score", **own)
    X_test, y_test = make_four_classes(SETTINGS["n_test"], random_state=np.random.default_rng([0, 1]))
    probs = model.predict_proba(X_test)
    assert score["alpha_eps"] == pytest.approx(model.alpha_eps_, rel=1e-3)
    assert score["bound"] == pytest.approx(class_likelihood_bound(model, X, y, V), abs=0.01)
    assert score["nll"] == pytest.approx(metrics.nll(probs, y_test), abs=1e-4)
    assert score["ece"] == pytest.approx(metrics.ece(probs, y_test), abs=1e-4)
    assert score["error"] == pytest.approx(np.mean(probs.argmax(1) != y_test), abs=1e-4)
    rows = of_kind(records, "row", **own)
    np.testing.assert_allclose([[r["x1"], r["x2"]] for r in rows], X, atol=6e-4)
    assert [r["label"] for r in rows] == y.tolist()
    nodes = of_kind(records, "grid", **own)
    points = grid(SETTINGS["n_grid"], 4.0)
    np.testing.assert_allclose([[r["x1"], r["x2"]] for r in nodes], points, atol=6e-4)
    found = [[r[f"prob{k}"] for k in range(4)] for r in nodes]
    np.testing.assert_allclose(found, model.predict_proba(points), atol=1e-4)


def test_data_sets_after_the_first_have_scores_alone():
    experiment = get("vgp-toy")
    settings = SETTINGS | {"n_seeds": 2}
    tasks = experiment.tasks(settings)
    assert len(tasks) == 2 * len(METHODS) * len(OBJECTIVES)
    (record,) = experiment.run(settings, {"seed": 1, "method": "moment", "objective": "matched"}, 0)
    assert record["kind"] == "score"


def test_the_summary_is_the_mean_over_data_sets():
    scores = {"kind": "score", "method": "laplace", "objective": "elbo", "ece": 0.1, "error": 0.2}
    both = [
        scores | {"seed": 0, "alpha_eps": 0.1, "bound": -10.0, "nll": 0.3},
        scores | {"seed": 1, "alpha_eps": 0.3, "bound": -20.0, "nll": 0.5},
        {"kind": "row", "method": "laplace", "objective": "elbo", "seed": 0, "x1": 0.0, "x2": 0.0, "label": 1},
    ]
    (row,) = get("vgp-toy").summarise(both)
    assert row == {
        **{"method": "laplace", "objective": "elbo", "alpha_eps": 0.2, "bound": -15.0, "nll": 0.4},
        **{"ece": 0.1, "error": 0.2, "n_data_sets": 2},
    }


def test_the_figure_is_drawn_from_the_records_alone(records, tmp_path):
    get("vgp-toy").draw(records, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vgp_toy.pdf", "vgp_toy.png"]


def test_certainty_is_the_colour_of_the_class_and_doubt_is_pale():
    first = np.array([int(SERIES_COLOURS[0][i : i + 2], 16) / 255.0 for i in (1, 3, 5)])
    np.testing.assert_allclose(mixed_colours(np.eye(4))[0], 1.0 - 0.7 * (1.0 - first))
    np.testing.assert_allclose(mixed_colours(np.full((2, 4), 0.25)), 1.0)
    assert mixed_colours(np.array([0.5, 0.5, 0.0, 0.0])).min() > mixed_colours(np.eye(4))[:2].min()


def test_the_table_of_the_laptop_preset_stays_below_a_megabyte_and_a_half(records, tmp_path):
    for kind, n_laptop in (("grid", PRESETS["laptop"]["n_grid"] ** 2), ("row", PRESETS["laptop"]["n_rows"])):
        own = of_kind(records, kind)
        columns = {name: None for record in records for name in record}
        write_records(tmp_path / f"{kind}.csv", [columns | record for record in own])
        size = (tmp_path / f"{kind}.csv").stat().st_size / len(own) * n_laptop * len(METHODS) * len(OBJECTIVES)
        assert size < 1.4e6
