"""With many rows, hyperparameters are learnt on with the labels' numbers that were chosen."""

import numpy as np
import pytest
import torch

import gaussify.gp.learning._schedule as schedule
from gaussify import GPClassifier
from gaussify._calibration._choice import Choice
from gaussify.likelihoods import LikelihoodMethod

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = (X[:, 0] + 0.5 * RNG.normal(size=300) > 0.0).astype(int) + (X[:, 1] > 1.0)
MANY = {"n_inducing": 8, "sample_size": 60, "max_iter": 5}  # 60 rows are judged, 240 learnt from


@pytest.fixture
def record(monkeypatch):
    """Every search: what it began with, and the reports it ended with."""
    searches = []

    def spy(rows, table, start, settings, **options):
        searches.append({"table": table, "start": start, "n_rows": len(rows.labels)})
        features, reports = original(rows, table, start, settings, **options)
        searches[-1] |= {"features": features, "reports": reports}
        return features, reports

    original = schedule.learn_sparse
    monkeypatch.setattr(schedule, "learn_sparse", spy)
    return searches


def judge(monkeypatch, *choices):
    """Let the choices be these, one after the other."""
    left = list(choices)
    monkeypatch.setattr(schedule._Fit, "choose", lambda *_: left.pop(0))


def choice(alpha_eps, score, method="variational"):
    return Choice(LikelihoodMethod(method), torch.tensor(alpha_eps, dtype=torch.float64), 1.0, score)


@pytest.mark.parametrize("shared_kernel", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("second", [-0.4, -0.6], ids=["better", "worse"])
def test_a_second_search_begins_where_the_first_ended_and_is_kept_if_better(record, monkeypatch, shared_kernel, second):
    choices = choice(0.1, -0.5), choice(0.2, second)
    judge(monkeypatch, *choices)
    model = GPClassifier(**MANY, shared_kernel=shared_kernel).fit(X, Y)
    first, again = record
    assert first["n_rows"] == again["n_rows"] == 240
    for (kernel, points), own in zip(again["start"], first["features"], strict=True):
        assert torch.equal(points, own.points)
        assert all(torch.equal(a, b) for a, b in zip(kernel.parameters(), own.kernel.parameters(), strict=True))
    assert not torch.equal(first["table"].mean, again["table"].mean)
    kept, chosen = (again, choices[1]) if second > -0.5 else (first, choices[0])
    assert model.search_ == kept["reports"]
    assert model.objective_value_ == pytest.approx(sum(report.value for report in kept["reports"]))
    assert (model.alpha_eps_, model.score_) == (float(chosen.alpha_eps), chosen.score)
    points = model.inducing_points_ if not shared_kernel else [model.inducing_points_]
    assert all(np.array_equal(a, b.points.numpy()) for a, b in zip(points, kept["features"], strict=True))


@pytest.mark.parametrize(
    ("options", "chosen", "n_searches"),
    [
        ({}, choice(0.02, -0.5), 1),  # what the search had
        ({}, choice(0.1, -0.5), 2),
        ({"method": "auto"}, choice(0.02, -0.5, "laplace"), 2),
        ({"max_iter": 0}, choice(0.1, -0.5), 1),  # nothing is learnt
        ({"sample_size": 200}, choice(0.05, -0.5), 1),  # the judged rows took part
        ({"n_inducing_predict": 12}, choice(0.1, -0.5), 2),
    ],
    ids=["same", "alpha", "method", "no-search", "few-rows", "more-points"],
)
def test_it_happens_only_where_other_targets_were_chosen(record, monkeypatch, options, chosen, n_searches):
    judge(monkeypatch, chosen, chosen._replace(score=-0.4), chosen._replace(score=-0.3))
    GPClassifier(**MANY | options).fit(X, Y)
    assert len(record) == n_searches


def test_the_choice_is_never_worse_for_it(monkeypatch):
    learnt_on = GPClassifier(**MANY).fit(X, Y)
    monkeypatch.setattr(schedule, "_have_other_targets", lambda *_: False)
    assert learnt_on.score_ >= GPClassifier(**MANY).fit(X, Y).score_


def test_verbose_tells_the_searches_apart(monkeypatch, capsys):
    judge(monkeypatch, choice(0.1, -0.5), choice(0.2, -0.4))
    GPClassifier(**MANY, verbose=True).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("iteration 1: objective")
    assert lines[-1].startswith("again with variational, alpha_eps=0.1: iteration 1: objective")
