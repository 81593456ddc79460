"""Saved models: what comes back, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from estimator_checks import LabelsSurviveAFile, RefusesDamagedFiles, X, Y, edit_file
from gaussify import BayesianLogisticRegression
from gaussify.exceptions import ModelFileError

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}
KIND = "BayesianLogisticRegression"


def new(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{**FIXED, **params})


def saved_and_loaded(model: BayesianLogisticRegression, path: Path) -> BayesianLogisticRegression:
    model.save(path)
    return BayesianLogisticRegression.load(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gaussify"
    new().fit(X, Y).save(path)
    return path


# --- what comes back -----------------------------------------------------------------------------------------------


class TestLabels(LabelsSurviveAFile):
    estimator = BayesianLogisticRegression
    params = FIXED


def test_feature_names_survive(tmp_path):
    frame = pd.DataFrame(X, columns=["width", "höhe", "a b"])
    loaded = saved_and_loaded(new().fit(frame, Y), tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == ["width", "höhe", "a b"]
    loaded.predict(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame.rename(columns={"a b": "c"}))


@pytest.mark.parametrize(
    "params",
    [
        {"prior_variance": np.array([1.0, 2.0, 3.0])},
        {"alpha_eps": torch.tensor([0.1, 0.2, 0.3])},
        {"alpha_eps": np.float64(0.3), "random_state": np.int64(4)},
        {"method": "gauss", "label_variance": 0.3},
        {"likelihood": "softmax", "fit_intercept": False, "intercept_variance": 3.0},
        {"criterion": "training", "reservoir_size": 0, "predictive": "mean-field", "forgetting": 0.95},
        {"temperature": "auto", "reservoir_size": 9},
        {"dispersion": 2.5},
        {"dispersion": "auto", "temperature": "auto"},
    ],
    ids=["array", "tensor", "numpy-numbers", "gauss", "softmax", "options", "small-reservoir", "dispersed", "matched"],
)
def test_parameters_and_predictions_survive(params, tmp_path):
    model = new(**params).fit(X, Y)
    loaded = saved_and_loaded(model, tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    for name, value in model.get_params().items():
        np.testing.assert_array_equal(getattr(loaded, name), value, err_msg=name)
    loaded.fit(X, Y)
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("dispersion", [1.0, 2.5, "auto"])
def test_learnt_attributes_survive(dispersion, tmp_path):
    model = BayesianLogisticRegression(temperature=1.0, dispersion=dispersion).fit(X, Y)
    loaded = saved_and_loaded(model, tmp_path / "model")
    for name in (
        "method_",
        "alpha_eps_",
        "temperature_",
        "dispersion_",
        "score_",
        "n_rows_seen_",
        "n_features_in_",
        "coef_",
    ):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), err_msg=name)


def test_a_model_saved_before_there_was_dispersion_has_one(tmp_path):
    path, model = tmp_path / "model", new().fit(X, Y)
    new(dispersion=3.0).fit(X, Y).save(path)

    def make_old(config, tensors):
        del config["choice"]["dispersion"], config["params"]["dispersion"]

    edit_file(path, KIND, make_old)
    loaded = BayesianLogisticRegression.load(path)
    assert (loaded.dispersion, loaded.dispersion_) == (1.0, 1.0)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_sample_saved_with_one_limit_for_all_classes_is_read_and_goes_on(tmp_path):
    path, rng = tmp_path / "model", np.random.default_rng(0)
    features, labels = rng.normal(size=(400, 3)), np.arange(400) % 40 == 0
    whole = new(reservoir_size=1000).fit(features[:200], labels[:200])
    rows = whole._reservoir.rows()
    by_rank = np.argsort(rows.log_rank)
    kept, limit = by_rank[:30], float(rows.log_rank[by_rank[30]])

    def make_old(config, tensors):
        config["params"]["reservoir_size"] = 30
        config["reservoir"] = {"size": 30, "seed": 0, "log_limit": limit}
        tensors.update({name: tensors[name][kept].contiguous() for name in tensors if name.startswith("reservoir.")})

    whole.save(path)
    edit_file(path, KIND, make_old)
    loaded = BayesianLogisticRegression.load(path)
    assert loaded._reservoir.present_log_limit.tolist() == [limit, limit]
    np.testing.assert_array_equal(loaded.predict_proba(features), whole.predict_proba(features))
    loaded.partial_fit(features[200:], labels[200:])
    sample = loaded._reservoir.rows()
    assert np.bincount(sample.labels).sum() == 30
    assert sample.log_rank.max() < limit  # rows that came before and those that came after are sampled alike


def test_a_loaded_model_saves_to_the_same_bytes(path, tmp_path):
    BayesianLogisticRegression.load(path).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_saving_changes_nothing(path):
    model = BayesianLogisticRegression.load(path)
    before = model.predict_proba(X)
    model.save(path)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_model_of_one_class_survives(tmp_path):
    loaded = saved_and_loaded(new().partial_fit(X, np.full(30, "oak")), tmp_path / "model")
    assert loaded.predict(X[:2]).tolist() == ["oak", "oak"]
    loaded.partial_fit(X, np.full(30, "ash"))
    assert loaded.predict_proba(X).shape == (30, 2)


def test_a_stream_saved_between_updates_goes_on_alike(tmp_path):
    model = new().partial_fit(X[:10], Y[:10], classes=[0, 1, 2])
    straight = new().fit(X, Y)
    for i in range(10, 30):
        model.predict_proba(X)
        model = saved_and_loaded(model.partial_fit(X[i : i + 1], Y[i : i + 1]), tmp_path / "model")
    np.testing.assert_allclose(model.predict_proba(X), straight.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    ("params", "changes"),
    [
        ({}, {"alpha_eps": 0.7}),
        ({}, {"fit_intercept": False}),
        ({}, {"reservoir_size": 0}),
        ({"reservoir_size": 0}, {"reservoir_size": 10}),
        ({}, {"random_state": 3}),
    ],
    ids=["alpha_eps", "fit_intercept", "reservoir-off", "reservoir-on", "random_state"],
)
def test_a_model_whose_parameters_were_changed_can_be_saved_and_loaded(params, changes, tmp_path):
    model = new(**params).fit(X, Y).set_params(**changes)
    loaded = saved_and_loaded(model, tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-12)


# --- what is refused -----------------------------------------------------------------------------------------------


class TestDamagedFiles(RefusesDamagedFiles):
    estimator = BayesianLogisticRegression
    params = FIXED


EDITS = {
    "no-params": lambda config, tensors: config.pop("params"),
    "unknown-param": lambda config, tensors: config["params"].update(colour="red"),
    "bad-param": lambda config, tensors: config["params"].update(alpha_eps=-1.0),
    "params-list": lambda config, tensors: config.update(params=[1, 2]),
    "no-classes": lambda config, tensors: config.pop("classes"),
    "classes-dtype": lambda config, tensors: config["classes"].update(dtype="nonsense"),
    "repeated-classes": lambda config, tensors: config["classes"].update(values=[0, 1, 1]),
    "fewer-classes": lambda config, tensors: config["classes"].update(values=[0, 1]),
    "more-features": lambda config, tensors: config.update(n_features=4),
    "no-gram": lambda config, tensors: tensors.pop("gram"),
    "gram-shape": lambda config, tensors: tensors.update(gram=tensors["gram"][:2]),
    "gram-nan": lambda config, tensors: tensors["gram"].fill_(torch.nan),
    "gram-dtype": lambda config, tensors: tensors.update(gram=tensors["gram"].float()),
    "no-choice": lambda config, tensors: config.pop("choice"),
    "choice-method": lambda config, tensors: config["choice"].update(method="magic"),
    "choice-temperature": lambda config, tensors: config["choice"].update(temperature=-1.0),
    "choice-dispersion": lambda config, tensors: config["choice"].update(dispersion=-1.0),
    "choice-dispersion-zero": lambda config, tensors: config["choice"].update(dispersion=0.0),
    "choice-dispersion-text": lambda config, tensors: config["choice"].update(dispersion="wide"),
    "choice-prior": lambda config, tensors: tensors.update({"choice.prior_variance": torch.ones(2).double()}),
    "choice-alpha": lambda config, tensors: tensors.update({"choice.alpha_eps": torch.ones(7).double()}),
    "no-reservoir": lambda config, tensors: tensors.pop("reservoir.features"),
    "reservoir-width": lambda config, tensors: tensors.update(
        {"reservoir.features": tensors["reservoir.features"][:, :2].contiguous()}
    ),
    "reservoir-labels": lambda config, tensors: tensors["reservoir.labels"].fill_(9),
    "reservoir-length": lambda config, tensors: tensors.update({"reservoir.weight": torch.ones(2).double()}),
    "reservoir-limits": lambda config, tensors: config["reservoir"].update(log_limit=[1.0, 2.0]),
    "reservoir-quota": lambda config, tensors: config["reservoir"].update(quota=-1),
    "rows-seen": lambda config, tensors: config.update(n_rows_seen="many"),
    "rows-seen-negative": lambda config, tensors: config.update(n_rows_seen=-5),
    "features-fraction": lambda config, tensors: config.update(n_features=3.0),
    "classes-unsorted": lambda config, tensors: config["classes"].update(values=[1, 0, 2]),
    "classes-in-pairs": lambda config, tensors: config["classes"].update(values=[[0, 1], [1, 2], [2, 3]]),
    "feature-names": lambda config, tensors: config.update(feature_names=[1, 2, 3]),
    "gram-negative": lambda config, tensors: tensors["gram"].fill_(-1.0),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_file_that_does_not_hold_a_whole_model_is_refused(path, edit):
    edit_file(path, KIND, edit)
    with pytest.raises(ModelFileError, match="does not hold a complete BayesianLogisticRegression"):
        BayesianLogisticRegression.load(path)


def test_nothing_in_a_file_is_taken_for_more_than_data(path):
    data = json.dumps({"params": {"alpha_eps": "__import__('os').system('false')"}})
    edit_file(path, KIND, lambda config, tensors: config.update(json.loads(data)))
    with pytest.raises(ModelFileError, match="'alpha_eps'"):
        BayesianLogisticRegression.load(path)
