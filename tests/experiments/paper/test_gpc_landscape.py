"""Landscapes of the evidence against its definition, and where their peaks are."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from gaussify import SoftmaxLikelihood, datasets
from gaussify.experiments import get, load
from gaussify.experiments.paper._gpc_landscape import METHODS, evidences, peak, squared_distances
from gaussify.gp._exact import exact_evidence
from gaussify.likelihoods import PseudoTargets

ALPHA = torch.tensor(0.1).double()


@pytest.fixture(scope="module")
def records(smoke_run):
    return load(smoke_run("gpc-landscape"))


def table_of(method, n_classes=2, label_variance=0.1):
    targets = SoftmaxLikelihood(n_classes, ALPHA, method, label_variance=label_variance).target_table()
    return PseudoTargets(*(part.double() for part in targets))


@pytest.mark.parametrize("method", METHODS)
def test_evidence_is_that_of_the_normal_distribution(method):
    squared, labels = squared_distances("iris", 70)  # of two classes
    covariance, table = 2.0 * torch.exp(-0.5 * squared), table_of(method)
    found = evidences(covariance, labels, table)
    means, variances = (part[labels].mT for part in table)
    full = covariance + torch.diag_embed(variances)
    zero = MultivariateNormal(torch.zeros_like(means), full).log_prob(means).sum()
    assert found.zero_mean == pytest.approx(zero.item(), rel=1e-9)
    assert found.best_mean == pytest.approx(exact_evidence(covariance, labels, table).value.item(), rel=1e-9)
    assert found.best_mean > found.zero_mean


def test_records_are_the_evidence_at_their_place(records):
    squared, labels = squared_distances("breast-cancer", 60)
    for method in METHODS:
        own = [r for r in records if r["method"] == method]
        for r in own[:: len(own) // 3]:
            scale, variance = np.exp(r["log_lengthscale"]), np.exp(r["log_variance"])
            covariance = variance * torch.exp(-0.5 * squared / scale**2)
            expected = exact_evidence(covariance, labels, table_of(method)).value.item()
            assert r["evidence"] == pytest.approx(expected, abs=0.02)  # variances are rounded in records


def test_the_grid_is_whole_for_every_method(records):
    places = {(r["log_lengthscale"], r["log_variance"]) for r in records}
    assert len(places) == 8 * 7
    for method in METHODS:
        assert {(r["log_lengthscale"], r["log_variance"]) for r in records if r["method"] == method} == places


def test_the_summary_tells_where_the_largest_evidence_is(records):
    summary = get("gpc-landscape").summarise(records)
    assert [row["method"] for row in summary] == [method for method in METHODS for _ in range(2)]
    for row, column in zip(summary, ["evidence", "evidence_zero_mean"] * len(METHODS), strict=True):
        own = [r for r in records if r["method"] == row["method"]]
        top = max(own, key=lambda r: r[column])
        assert row["evidence"] == top[column]
        assert (row["log_lengthscale"], row["log_variance"]) == (top["log_lengthscale"], top["log_variance"])


@pytest.mark.parametrize(("place", "at_edge"), [((0.0, 0.0), False), ((-1.0, 0.0), True), ((0.0, 1.0), True)])
def test_a_peak_at_the_edge_of_the_grid_is_announced(place, at_edge):
    grid = [
        {"log_lengthscale": x, "log_variance": y, "evidence": -((x - place[0]) ** 2) - (y - place[1]) ** 2}
        for x in (-1.0, 0.0, 1.0)
        for y in (-1.0, 0.0, 1.0)
    ]
    top, found = peak(grid, "evidence")
    assert (top["log_lengthscale"], top["log_variance"], found) == (*place, at_edge)


def test_on_ionosphere_moment_matching_asks_for_the_longest_lengthscale_as_in_the_paper():
    try:
        datasets.load("ionosphere", download=False)
    except datasets.DatasetError:
        pytest.skip("the data set ionosphere is not here; GAUSSIFY_DATA names the folder to look in")
    experiment = get("gpc-landscape")
    settings = experiment.settings("laptop") | {"log_lengthscale": [0.0, 6.0, 7], "log_variance": [-4.0, 6.0, 6]}
    scale = {}
    for task in experiment.tasks(settings):
        top, _ = peak(experiment.run(settings, task, 0), "evidence_zero_mean")
        scale[task["method"]] = top["log_lengthscale"]
    assert 1.0 <= scale["variational"] <= 3.0
    assert 1.0 <= scale["moment-ori"] <= 3.0
    assert scale["moment"] >= 5.0
