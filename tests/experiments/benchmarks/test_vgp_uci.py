"""The bound as the objective beside matched choices: what is run, and what counts as the best choice."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from gaussify import GPClassifier
from gaussify.experiments import get, load
from gaussify.experiments._lab import MATCHED, group
from gaussify.experiments.benchmarks._vgp_uci import as_variational, best_matched, chosen_elbo


@pytest.fixture(scope="module")
def results(smoke_run):
    folder = smoke_run("vgp-uci")
    return load(folder), folder


def test_every_choice_is_there_with_both_temperatures(results):
    records, _ = results
    settings = get("vgp-uci").settings("smoke")
    choices = group(records, "objective", "method", "alpha_eps", "temperature")
    assert len(choices) == 2 * (len(MATCHED) * (1 + len(settings["alpha_eps"])) + 1)
    assert all([record["split"] for record in own] == [0, 1] for own in choices.values())
    assert all(record["used_temperature"] == 1.0 for record in records if record["temperature"] == "one")
    elbo = [record for record in records if record["objective"] == "elbo"]
    assert all(record["learnt_by"] == "elbo" for record in elbo)  # rows are few
    assert all(record["used_alpha_eps"] not in settings["alpha_eps"] for record in elbo)
    longer, matched = (
        [r["n_iterations"] for r in records if (r["objective"], r["method"], r["alpha_eps"]) == (name, "moment", 0.2)]
        for name in ("matched, longer", "matched")
    )
    assert max(longer) > max(matched)


def test_the_best_choice_is_one_for_all_splits():
    def record(method, split, nll):
        return {"objective": "matched", "method": method, "alpha_eps": 0.1, "split": split, "nll": nll}

    records = [record("moment", 0, 0.1), record("moment", 1, 0.5), record("laplace", 0, 0.2), record("laplace", 1, 0.2)]
    elbo = record("auto", 0, 0.0) | {"objective": "elbo"}
    assert best_matched([*records, elbo]) == records[2:]


def test_the_method_is_chosen_by_training_rows(results):
    records = [record for record in results[0] if record["temperature"] == "chosen"]
    before = [record["method"] for record in chosen_elbo(records)]
    shuffled = [record | {"nll": -record["nll"], "bound": -record["bound"]} for record in records]
    assert [record["method"] for record in chosen_elbo(shuffled)] == before
    worst = [record | {"score": -record["score"]} for record in records]
    assert [record["method"] for record in chosen_elbo(worst)] != before


def test_the_summary_compares_with_the_best_choice(results):
    records, folder = results
    rows = get("vgp-uci").summarise(records)
    assert [(row["temperature"], row["objective"]) for row in rows] == [
        (temperature, objective)
        for temperature in ("chosen", "one")
        for objective in ("elbo", "matched", "matched, longer")
    ]
    for elbo, matched, longer in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert elbo["lowest"] == (elbo["nll"] <= min(matched["nll"], longer["nll"]))
        own = [r for r in records if r["objective"] == "matched" and r["temperature"] == matched["temperature"]]
        means = [np.mean([r["nll"] for r in some]) for some in group(own, "method", "alpha_eps").values()]
        assert matched["nll"] == pytest.approx(min(means), abs=1e-4)
    get("vgp-uci").draw(records, folder)
    assert (folder / "temperature-one.png").exists()


def test_another_temperature_is_that_of_a_model_fitted_with_it():
    X, y = load_iris(return_X_y=True)
    options = {"n_inducing": 10, "alpha_eps": 0.1, "max_iter": 5}
    model, same = GPClassifier(**options).fit(X, y), GPClassifier(**options, temperature=1.0).fit(X, y)
    assert model.temperature_ != 1.0
    own, other = as_variational(model, X, y, model.temperature_), as_variational(model, X, y, 1.0)
    for found, classifier in ((own, model), (other, same)):
        probs = classifier.likelihood_.predict_proba(*found.latents(torch.from_numpy(classifier.scale(X))))
        np.testing.assert_allclose(probs, classifier.predict_proba(X), atol=1e-8)
    assert other.bound() == as_variational(same, X, y, 1.0).bound() != own.bound()
