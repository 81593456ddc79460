"""Bayesian logistic regression against a joint Gaussian built by hand, and what it does at the edges."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gaussify import BayesianLogisticRegression, LogisticLikelihood, SoftmaxLikelihood
from gaussify.exceptions import InvalidArgumentError
from posterior.joint_gaussian import condition_jointly

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}


def make_rows(n_classes: int, n: int = 40, d: int = 3, seed: int = 0, strength: float = 1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    y = (strength * X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(1)
    y[:n_classes] = np.arange(n_classes)
    return X, y


X2, Y2 = make_rows(2)
X3, Y3 = make_rows(3)
DATA = {"binary": (X2, Y2), "three": (X3, Y3)}
data = pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA)


def new(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{**FIXED, **params})


# --- the oracle ----------------------------------------------------------------------------------------------------


def laplace_targets(y: np.ndarray, n_classes: int, alpha_eps: float, kind: str):
    """Mean and variance (n, l): log-odds of Beta(a, b) and logarithm of Gamma(a, 1), by mode and curvature."""
    if kind == "logistic":
        a, b = alpha_eps + y[:, None], alpha_eps + 1.0 - y[:, None]
        return np.log(a / b), 1.0 / a + 1.0 / b
    a = alpha_eps + np.eye(n_classes)[y]
    return np.log(a), 1.0 / a


@pytest.mark.parametrize(
    ("X", "y", "kind"),
    [(X2, Y2, "logistic"), (X2, Y2, "softmax"), (X3, Y3, "softmax")],
    ids=["one-latent", "two", "three"],
)
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
@pytest.mark.parametrize("prior_variance", [2.0, [0.5, 2.0, 30.0]], ids=["one-variance", "one-per-feature"])
def test_latents_and_weights_equal_the_conditioned_joint_gaussian(X, y, kind, fit_intercept, prior_variance):
    alpha_eps, temperature, intercept_variance = 0.05, 1.7, 77.0
    model = BayesianLogisticRegression(
        "laplace", alpha_eps, temperature, prior_variance,
        likelihood=kind, fit_intercept=fit_intercept, intercept_variance=intercept_variance,
    ).fit(X, y)  # fmt: skip
    new_rows = np.random.default_rng(5).normal(size=(6, 3))
    variances = np.r_[np.broadcast_to(prior_variance, 3), [intercept_variance] * fit_intercept]
    Phi, Phi_new = (np.hstack([Z, np.ones((len(Z), int(fit_intercept)))]) for Z in (X, new_rows))
    targets = laplace_targets(y, y.max() + 1, alpha_eps, kind)
    mean, variance = model.predict_latent(new_rows)
    assert mean.shape[1] == targets[0].shape[1]
    for k in range(mean.shape[1]):
        weights = condition_jointly(Phi, targets[0][:, k], targets[1][:, k], np.zeros(len(variances)), variances)
        np.testing.assert_allclose(mean[:, k], Phi_new @ weights.mean / temperature, rtol=1e-8, atol=1e-9)
        expected = np.einsum("ni,ij,nj->n", Phi_new, weights.covariance, Phi_new) / temperature**2
        np.testing.assert_allclose(variance[:, k], expected, rtol=1e-7)
        np.testing.assert_allclose(model.coef_[k], weights.mean[:3] / temperature, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            model.covariance_[k], weights.covariance[:3, :3] / temperature**2, rtol=1e-6, atol=1e-9
        )
        intercept = weights.mean[3] / temperature if fit_intercept else 0.0
        np.testing.assert_allclose(model.intercept_[k], intercept, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("X", "y", "likelihood"),
    [
        (X2, Y2, LogisticLikelihood(torch.tensor(0.2).double())),
        (X3, Y3, SoftmaxLikelihood(3, torch.tensor(0.2).double())),
    ],
    ids=["binary", "three"],
)
@pytest.mark.parametrize("predictive", ["quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"])
def test_probabilities_are_those_of_the_tempered_latents(X, y, likelihood, predictive):
    model = new(predictive=predictive).fit(X, y)
    expected = likelihood.predict_proba(*model.predict_latent(X), predictive)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=0, atol=1e-12)


@data
def test_temperature_divides_the_latents(X, y):
    cold, hot = new(temperature=1.0).fit(X, y), new(temperature=2.0).fit(X, y)
    np.testing.assert_allclose(hot.predict_latent(X)[0], cold.predict_latent(X)[0] / 2.0, rtol=1e-12)
    np.testing.assert_allclose(hot.predict_latent(X)[1], cold.predict_latent(X)[1] / 4.0, rtol=1e-12)
    np.testing.assert_allclose(hot.coef_, cold.coef_ / 2.0, rtol=1e-12)


def test_alpha_eps_per_class_goes_with_the_sorted_classes():
    y = np.array(["oak", "ash", "fir"])[Y3]  # sorted: ash, fir, oak
    named = new(alpha_eps=[0.1, 0.2, 0.7]).fit(X3, y)
    numbered = new(alpha_eps=[0.1, 0.2, 0.7]).fit(X3, np.array([2, 0, 1])[Y3])
    np.testing.assert_array_equal(named.predict_proba(X3), numbered.predict_proba(X3))
    assert np.abs(named.predict_proba(X3) - new(alpha_eps=[0.7, 0.2, 0.1]).fit(X3, y).predict_proba(X3)).max() > 1e-3


def test_alpha_eps_of_two_classes_is_that_of_each_label():
    model = BayesianLogisticRegression("laplace", [0.1, 0.7], 1.0, 2.0, fit_intercept=False).fit(X2, Y2)
    a, b = 0.7 + Y2, 0.1 + 1.0 - Y2
    weights = condition_jointly(X2, np.log(a / b), 1.0 / a + 1.0 / b, np.zeros(3), np.full(3, 2.0))
    np.testing.assert_allclose(model.coef_[0], weights.mean, rtol=1e-8)


@data
def test_predictions_are_the_most_probable_labels(X, y):
    names = np.array(["oak", "ash", "fir"])
    model = new().fit(X, names[y])
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(1)])
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0, atol=1e-12)


# --- draws ---------------------------------------------------------------------------------------------------------


@data
def test_draws_have_the_mean_and_covariance_of_the_weights(X, y):
    model, n = new().fit(X, y), 40_000
    draws = model.sample(n, random_state=0)
    n_latents = len(model.intercept_)
    assert draws.shape == (n, n_latents, 4)
    weights = np.c_[model.coef_, model.intercept_]
    std = draws.std(0)
    assert (np.abs(draws.mean(0) - weights) < 5.0 * std / np.sqrt(n)).all()
    # the variance of any latent is that of the draws' latents
    Phi = np.c_[X[:5], np.ones(5)]
    latents = np.einsum("ni,sli->snl", Phi, draws)
    mean, variance = model.predict_latent(X[:5])
    np.testing.assert_allclose(latents.var(0), variance, rtol=5.0 * np.sqrt(2.0 / n))
    assert (np.abs(latents.mean(0) - mean) < 5.0 * np.sqrt(variance / n)).all()


def test_draws_repeat_with_the_random_state():
    model = new().fit(X3, Y3)
    np.testing.assert_array_equal(model.sample(3, random_state=7), model.sample(3, random_state=7))
    assert (model.sample(3, random_state=7) != model.sample(3, random_state=8)).any()
    assert new(fit_intercept=False).fit(X3, Y3).sample().shape == (1, 3, 3)


# --- parameters after the data -------------------------------------------------------------------------------------

CHANGES = {
    "alpha_eps": {"alpha_eps": 0.03},
    "alpha_eps-per-class": {"alpha_eps": [0.03, 0.3, 0.2]},
    "method": {"method": "moment"},
    "gauss": {"method": "gauss", "label_variance": 0.3},
    "temperature": {"temperature": 3.0},
    "prior_variance": {"prior_variance": [1.0, 2.0, 3.0]},
    "prior_variance-auto": {"prior_variance": "auto"},
    "intercept_variance": {"intercept_variance": 0.5},
    "predictive": {"predictive": "mean-field"},
    "auto": {"alpha_eps": "auto", "criterion": "training", "refine": False},
    "likelihood": {"likelihood": "softmax"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_parameters_set_after_the_data_equal_fitting_anew(changes):
    model = new().fit(X3, Y3)
    assert model.set_params(**changes) is model
    np.testing.assert_allclose(model.predict_proba(X3), new(**changes).fit(X3, Y3).predict_proba(X3), atol=1e-12)


def test_two_classes_can_go_from_one_latent_to_two_after_the_data():
    model = new().fit(X2, Y2).set_params(likelihood="softmax")
    assert model.predict_latent(X2)[0].shape == (40, 2)
    np.testing.assert_allclose(model.predict_proba(X2), new(likelihood="softmax").fit(X2, Y2).predict_proba(X2))


def test_forgetting_set_after_the_data_acts_on_later_rows():
    model = new().fit(X3[:20], Y3[:20]).set_params(forgetting=0.9).partial_fit(X3[20:], Y3[20:])
    weight = np.r_[np.full(20, 0.9**20), 0.9 ** np.arange(19, -1, -1)]
    np.testing.assert_allclose(model.predict_proba(X3), new().fit(X3, Y3, weight).predict_proba(X3), atol=1e-9)


@pytest.mark.parametrize("changes", [{"fit_intercept": False}, {"reservoir_size": 7}, {"random_state": 5}], ids=str)
def test_parameters_that_need_another_fit_wait_for_it(changes):
    model = new().fit(X3, Y3)
    before, intercept = model.predict_proba(X3), model.intercept_
    model.set_params(**changes)
    np.testing.assert_array_equal(model.predict_proba(X3), before)
    np.testing.assert_array_equal(model.intercept_, intercept)
    np.testing.assert_array_equal(model.fit(X3, Y3).predict_proba(X3), new(**changes).fit(X3, Y3).predict_proba(X3))


def test_fitting_again_forgets_everything():
    model = new().fit(X3, Y3).fit(X2[:, :2], np.array(["a", "b"])[Y2])
    fresh = new().fit(X2[:, :2], np.array(["a", "b"])[Y2])
    np.testing.assert_array_equal(model.predict_proba(X2[:, :2]), fresh.predict_proba(X2[:, :2]))
    assert (model.classes_.tolist(), model.n_features_in_, model.n_rows_seen_) == (["a", "b"], 2, 40)


# --- features that come late ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
@pytest.mark.parametrize("params", [FIXED, {"temperature": 1.0, "refine": False}], ids=["fixed", "auto"])
def test_features_that_come_late_were_zero_before(fit_intercept, params):
    wide = np.c_[X3, np.random.default_rng(1).normal(size=(40, 2))]
    wide[:20, 3:] = 0.0
    model = BayesianLogisticRegression(**params, fit_intercept=fit_intercept).partial_fit(X3[:20], Y3[:20])
    model.predict_proba(X3)
    model.widen(5).partial_fit(wide[20:], Y3[20:]).tune()
    whole = BayesianLogisticRegression(**params, fit_intercept=fit_intercept).fit(wide, Y3)
    np.testing.assert_allclose(model.predict_proba(wide), whole.predict_proba(wide), atol=1e-9)


def test_features_never_become_fewer():
    with pytest.raises(InvalidArgumentError, match=r"'n_features' parameter of BayesianLogisticRegression\.widen"):
        new().fit(X3, Y3).widen(2)


# --- degenerate data -----------------------------------------------------------------------------------------------

AUTO_PRIOR = {**FIXED, "prior_variance": "auto"}
both_priors = pytest.mark.parametrize("params", [FIXED, AUTO_PRIOR], ids=["fixed", "auto-prior"])


@both_priors
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e6], ids=str)
def test_constant_columns_give_finite_probabilities(params, value):
    X = np.c_[X3, np.full(40, value)]
    model = BayesianLogisticRegression(**params).fit(X, Y3)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, Y3) > 0.5


@both_priors
@pytest.mark.parametrize("factor", [1.0, -2.0, 1e5], ids=str)
def test_columns_that_are_multiples_of_others_give_finite_probabilities(params, factor):
    X = np.c_[X3, factor * X3[:, 0]]
    model = BayesianLogisticRegression(**params).fit(X, Y3)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, Y3) > 0.5


def test_more_features_than_rows_give_finite_probabilities():
    X = np.random.default_rng(0).normal(size=(10, 50))
    assert np.isfinite(BayesianLogisticRegression(**AUTO_PRIOR).fit(X, np.arange(10) % 3).predict_proba(X)).all()


def test_rows_of_zeros_give_the_shares_of_the_classes_their_order():
    probs = (
        new().fit(np.zeros((30, 2)), np.r_[np.zeros(20), np.ones(7), np.full(3, 2)]).predict_proba(np.zeros((1, 2)))[0]
    )
    assert probs[0] > probs[1] > probs[2]


def test_fit_refuses_one_class_and_says_what_to_do():
    with pytest.raises(InvalidArgumentError, match=r"at least two classes; got only the class 1.*partial_fit"):
        new().fit(X3, np.ones(40))


@pytest.mark.parametrize("label", ["oak", 7], ids=str)
def test_partial_fit_of_one_class_predicts_that_class(label):
    model = new().partial_fit(X3, np.full(40, label))
    assert model.predict(X3).tolist() == [label] * 40
    assert model.predict_proba(X3).tolist() == [[1.0]] * 40


@pytest.mark.parametrize("use", ["predict_latent", "sample", "tune", "coef_"])
def test_latents_of_one_class_are_an_error_that_names_it(use):
    model = new().partial_fit(X3, np.full(40, "oak"))
    with pytest.raises(InvalidArgumentError, match="only the class oak so far"):
        {
            "predict_latent": lambda: model.predict_latent(X3),
            "sample": model.sample,
            "tune": model.tune,
            "coef_": lambda: model.coef_,
        }[use]()


def test_one_class_seen_of_two_declared_is_the_more_probable():
    model = new().partial_fit(X3, np.full(40, "oak"), classes=["ash", "oak"])
    probs = model.predict_proba(X3)
    assert ((probs[:, 1] > 0.5) & (probs[:, 1] < 1.0)).all()


@both_priors
def test_a_declared_class_that_never_comes_gets_a_small_probability(params):
    model = BayesianLogisticRegression(**params).partial_fit(X3, Y3, classes=[0, 1, 2, 3])
    probs = model.predict_proba(X3)
    assert np.isfinite(probs).all()
    assert (probs[:, 3] > 0.0).all()
    assert probs[:, 3].mean() < probs[:, :3].mean(0).min()


def test_few_rows_with_everything_automatic_give_finite_probabilities():
    model = BayesianLogisticRegression().fit(X3[:3], [0, 1, 2])
    assert np.isfinite(model.predict_proba(X3)).all()
    assert (model.alpha_eps_, model.temperature_, model.score_) == (0.1, 1.0, None)


# --- an estimator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_copies_predict_alike_and_learn_apart(twin):
    model = new().fit(X3, Y3)
    other = twin(model)
    before = model.predict_proba(X3)
    np.testing.assert_array_equal(other.predict_proba(X3), before)
    other.partial_fit(X3[:9], Y3[:9])
    np.testing.assert_array_equal(model.predict_proba(X3), before)
    np.testing.assert_allclose(other.predict_proba(X3), model.partial_fit(X3[:9], Y3[:9]).predict_proba(X3), atol=1e-12)


def test_a_clone_has_the_parameters_and_nothing_learnt():
    model = new(forgetting=0.9, prior_variance=np.array([1.0, 2.0, 3.0])).fit(X3, Y3)
    twin = clone(model)
    assert str(twin.get_params()) == str(model.get_params())
    with pytest.raises(NotFittedError):
        twin.predict(X3)


@pytest.mark.parametrize(
    "use", ["predict", "predict_proba", "predict_latent", "unlearn", "merge", "tune", "save", "coef_"]
)
def test_what_was_not_fitted_says_so(use, tmp_path):
    model = new()
    calls = {
        "unlearn": lambda: model.unlearn(X3, Y3),
        "merge": lambda: model.merge(new().fit(X3, Y3)),
        "tune": model.tune,
        "save": lambda: model.save(tmp_path / "model"),
        "coef_": lambda: model.coef_,
    }
    with pytest.raises(NotFittedError, match="not fitted yet"):
        calls.get(use, lambda: getattr(model, use)(X3))()


@pytest.mark.parametrize("name", ["coef_", "intercept_", "covariance_", "prior_variance_", "statistics_"])
def test_what_attributes_return_is_not_the_model(name):
    model = new().fit(X3, Y3)
    before = model.predict_proba(X3)
    value = getattr(model, name)
    value = value.gram if name == "statistics_" else value
    value[:] = 1e-6
    model.partial_fit(X3[:9], Y3[:9]).unlearn(X3[:9], Y3[:9])  # factorised anew
    np.testing.assert_allclose(model.predict_proba(X3), before, atol=1e-9)
