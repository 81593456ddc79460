"""Dispersed labels: the posterior of the weights against joint Gaussians, Markov chains and Laplace approximations."""

import functools

import numpy as np
import pytest
from scipy.special import softmax

from gaussify import BayesianLogisticRegression
from gaussify.experiments.benchmarks._posterior_oracle import logistic_posterior_moments
from linear.test_classifier import DATA, X2, X3, Y2, Y3, data, laplace_targets, new
from posterior.joint_gaussian import condition_jointly
from sampled import one_in, pairs_first

CHOSEN = ("method", "alpha_eps", "temperature", "dispersion", "prior_variance")


def given_numbers(model: BayesianLogisticRegression, **params) -> BayesianLogisticRegression:
    """A new model that is given what another one has chosen."""
    return BayesianLogisticRegression(**{name: getattr(model, f"{name}_") for name in CHOSEN}, **params)


def assert_same_latents(actual, expected, X, tolerance: float = 1e-9) -> None:
    """Check that latents are the same before the offsets, which cannot be given."""
    (mean, variance), (expected_mean, expected_variance) = actual.predict_latent(X), expected.predict_latent(X)
    mean, expected_mean = mean - actual.offset_, expected_mean - expected.offset_
    np.testing.assert_allclose(mean, expected_mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(variance, expected_variance, rtol=tolerance, atol=tolerance)


# --- a number ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "y", "kind"), [(X2, Y2, "logistic"), (X2, Y2, "softmax"), (X3, Y3, "softmax")], ids=["one", "two", "three"]
)
@pytest.mark.parametrize("dispersion", [0.3, 1.0, 4.0])
def test_dispersion_multiplies_the_variances_of_labels(X, y, kind, dispersion):
    model = BayesianLogisticRegression(
        "laplace", 0.05, 1.7, 2.0, dispersion=dispersion, likelihood=kind, intercept_variance=77.0
    ).fit(X, y)
    Phi, variances = np.c_[X, np.ones(len(X))], np.array([2.0, 2.0, 2.0, 77.0])
    mean, variance = model.predict_latent(X)
    for k, target in enumerate(zip(*(part.T for part in laplace_targets(y, y.max() + 1, 0.05, kind)), strict=True)):
        weights = condition_jointly(Phi, target[0], dispersion * target[1], np.zeros(4), variances)
        np.testing.assert_allclose(mean[:, k], Phi @ weights.mean / 1.7, rtol=1e-8, atol=1e-9)
        expected = np.einsum("ni,ij,nj->n", Phi, weights.covariance, Phi) / 1.7**2
        np.testing.assert_allclose(variance[:, k], expected, rtol=1e-7)


@data
def test_rows_one_by_one_are_dispersed_as_rows_at_once_are(X, y):
    model = new(dispersion=3.0).fit(X[:20], y[:20])
    for i in range(20, len(X)):
        model.predict_proba(X[i : i + 1])
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert_same_latents(model, new(dispersion=3.0).fit(X, y), X)


@data
def test_dispersion_set_after_the_data_equals_fitting_anew(X, y):
    for dispersion in (3.0, "auto"):
        model = new().fit(X, y).set_params(dispersion=dispersion)
        assert_same_latents(model, new(dispersion=dispersion).fit(X, y), X)


# --- the exact posterior -------------------------------------------------------------------------------------------
# One number serves all rows, so it can be right only on average over weights, and where logits are not large: those
# here have a standard deviation of a half.


def binary_rows(seed: int, n: int = 400, d: int = 8):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-0.5 * X @ w / np.linalg.norm(w)))).astype(int)


@functools.cache
def exact_deviations(seed: int, prior_variance: float) -> np.ndarray:
    exact = logistic_posterior_moments(*binary_rows(seed), prior_variance, n_steps=400, seed=seed)
    assert exact.std_error < 0.015
    return exact.std


def relative_deviations(seed: int, prior_variance: float, dispersion) -> np.ndarray:
    """Standard deviations of the weights, as multiples of those of the exact posterior."""
    X, y = binary_rows(seed)
    model = BayesianLogisticRegression(
        alpha_eps=0.1, prior_variance=prior_variance, dispersion=dispersion, fit_intercept=False
    )
    return np.sqrt(np.diagonal(model.fit(X, y).covariance_[0])) / exact_deviations(seed, prior_variance)


@one_in(2, "seed", [0, 1, 2], "prior_variance", [1.0, 0.05])
def test_deviations_of_binary_weights_are_those_of_the_exact_posterior(seed, prior_variance):
    ratios = relative_deviations(seed, prior_variance, "auto")
    assert ratios.mean() == pytest.approx(1.0, abs=0.05)
    assert ratios == pytest.approx(np.ones(8), abs=0.12)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), 2])
def test_deviations_of_binary_weights_are_others_without_dispersion(seed):
    assert abs(relative_deviations(seed, 1.0, 1.0).mean() - 1.0) > 0.2


def contrast_deviations(covariance: np.ndarray) -> np.ndarray:
    """Of w_ja - w_ka for all pairs of classes, (pairs, d), of a covariance (k, d, k, d)."""
    j, k = np.triu_indices(len(covariance), 1)
    variance = np.einsum("jaka->jka", covariance)
    return np.sqrt(variance[j, j] + variance[k, k] - 2.0 * variance[j, k])


def softmax_laplace(X: np.ndarray, y: np.ndarray, n_classes: int, prior_variance: float) -> np.ndarray:
    """Inverse curvature (k, d, k, d) of the log-posterior at its mode, by Newton's method."""
    d, weights = X.shape[1], np.zeros((n_classes, X.shape[1]))
    for _ in range(30):
        p = softmax(X @ weights.T, axis=1)
        fisher = p[:, :, None] * np.eye(n_classes) - p[:, :, None] * p[:, None, :]  # (n, k, k)
        curvature = np.einsum("njk,na,nb->jakb", fisher, X, X, optimize=True).reshape(n_classes * d, -1)
        curvature += np.eye(n_classes * d) / prior_variance
        slope = (np.eye(n_classes)[y] - p).T @ X - weights / prior_variance
        weights = weights + np.linalg.solve(curvature, slope.ravel()).reshape(n_classes, d)
    assert np.abs(slope).max() < 1e-8
    return np.linalg.inv(curvature).reshape(n_classes, d, n_classes, d)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("n_classes", [3, 5])
def test_deviations_of_contrasts_are_those_of_the_laplace_approximation(n_classes, seed):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(600, 4)), rng.normal(size=(n_classes, 4))
    logits = 0.5 * X @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    exact = contrast_deviations(softmax_laplace(X, y, n_classes, 1.0))
    params = {"alpha_eps": 0.1, "prior_variance": 1.0, "fit_intercept": False}
    ratios = {}
    for dispersion in ("auto", 1.0):
        own = BayesianLogisticRegression(**params, dispersion=dispersion).fit(X, y).covariance_
        ratios[dispersion] = contrast_deviations(np.einsum("jab,jk->jakb", own, np.eye(n_classes))) / exact
    assert ratios["auto"].mean() == pytest.approx(1.0, abs=0.05)
    assert ratios["auto"] == pytest.approx(np.ones_like(exact), abs=0.15)
    assert abs(ratios[1.0].mean() - 1.0) > 0.2


# --- the numbers ---------------------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("temperature", ["auto", 1.0, 2.5])
def test_a_prior_variance_that_is_given_is_that_of_the_weights_as_they_are_reported(X, y, temperature):
    prior_variance = [0.5, 2.0, 30.0]
    model = new(temperature=temperature, prior_variance=prior_variance, dispersion="auto").fit(X, y)
    np.testing.assert_allclose(model.prior_variance_ / model.temperature_**2, prior_variance, rtol=1e-12)


def test_without_anything_learnt_the_weights_have_the_prior_variance_that_was_given():
    model = new(temperature="auto", prior_variance=2.0, dispersion="auto").fit(X3, Y3)
    model.unlearn(X3, Y3)
    np.testing.assert_allclose(np.diagonal(model.covariance_, 0, 1, 2), 2.0, rtol=1e-9)


@pairs_first(
    rows=DATA,
    fit_intercept={"intercept": True, "no-intercept": False},
    params={"": {}, "all": {"method": "auto", "prior_variance": 2.0}, "training": {"criterion": "training"}},
)
def test_the_numbers_that_were_chosen_give_the_same_model_when_given(rows, fit_intercept, params):
    X, y = rows
    model = BayesianLogisticRegression(**params, dispersion="auto", fit_intercept=fit_intercept).fit(X, y)
    assert model.dispersion_ != 1.0
    assert_same_latents(given_numbers(model, fit_intercept=fit_intercept).fit(X, y), model, X)


@data
def test_a_dispersion_that_is_given_is_used(X, y):
    assert new(dispersion=0.7).fit(X, y).dispersion_ == 0.7
    assert BayesianLogisticRegression(dispersion=0.7).fit(X, y).tune().dispersion_ == 0.7
    assert new().fit(X, y).dispersion_ == 1.0


@data
def test_without_a_reservoir_dispersion_is_one(X, y):
    model = BayesianLogisticRegression(dispersion="auto", reservoir_size=0).fit(X, y)
    assert model.dispersion_ == 1.0
    assert_same_latents(model, BayesianLogisticRegression(reservoir_size=0).fit(X, y), X)


@data
def test_few_rows_have_a_dispersion_of_one(X, y):
    model = new(dispersion="auto").fit(X[:4], y[:4])
    assert (model.dispersion_, model.temperature_) == (1.0, 1.5)


@pytest.mark.parametrize("name", DATA)
def test_the_score_is_the_log_likelihood_of_the_rows_that_were_judged(name):
    X, y = DATA[name]
    model = new(temperature="auto", dispersion="auto", criterion="training").fit(X, y)
    assert model.score_ == pytest.approx(np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean(), abs=1e-6)


@data
def test_the_evidence_of_dispersed_labels_does_not_depend_on_the_units_of_the_features(X, y):
    model, rescaled = (BayesianLogisticRegression(dispersion="auto").fit(Z, y) for Z in (X, 1024.0 * X))
    assert rescaled.dispersion_ == pytest.approx(model.dispersion_, rel=1e-8)
    np.testing.assert_allclose(rescaled.predict_proba(1024.0 * X), model.predict_proba(X), atol=1e-8)


# --- one model, however its rows came ------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("split", ["chunks", "shards"])
def test_the_dispersion_is_the_same_once_tuned_however_the_rows_came(X, y, split):
    whole = BayesianLogisticRegression(dispersion="auto").fit(X, y)
    parts = np.split(np.random.default_rng(1).permutation(len(X)), [15, 16])
    model, *others = (BayesianLogisticRegression(dispersion="auto") for _ in parts)
    for k, part in enumerate(parts):
        if split == "chunks":
            model.partial_fit(X[part], y[part]).predict_proba(X[:1])
        else:
            (model if k == 0 else others[k - 1]).partial_fit(X[part], y[part])
    for other in others if split == "shards" else ():
        model.merge(other)
    assert_same_latents(model.tune(), whole, X, 1e-8)
    assert model.dispersion_ == pytest.approx(whole.dispersion_, rel=1e-8)
