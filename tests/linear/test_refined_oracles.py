"""Refined Bayesian logistic regression against the exact posterior and the best Gaussian, and these references."""

import functools
import inspect

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import logsigmoid

from gaussify import BayesianLogisticRegression
from linear.refined_oracles import (
    Gaussians,
    Moments,
    _mode,
    exact_moments,
    expected_logistic,
    expected_softmax,
    variational_logistic,
    variational_softmax,
)
from oracles import softmax_reference, softmax_tensor_product, variational

_CAN_REFINE = "refine" in inspect.signature(BayesianLogisticRegression).parameters
needs_refine = pytest.mark.skipif(not _CAN_REFINE, reason="there is no parameter 'refine'")

INTERCEPT_VARIANCE = 100.0
MEAN_TOLERANCE, STD_TOLERANCE = 0.1, 0.05  # of means in standard deviations; of standard deviations, relative
RARE_INTERCEPT_TOLERANCE = 0.1  # with twenty rare rows, even the best Gaussian is 3 to 8 % too narrow there


def drawn(seed: int, n: int, d: int, shift: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels 0 and 1 of a logistic model whose logits have this mean and standard deviation."""
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(n, d)), rng.normal(size=d)
    logits = shift + scale * X @ weights / np.linalg.norm(weights)
    return X, (rng.random(n) < expit(logits)).astype(int)


# seed, rows, features, mean and standard deviation of the logits; prior variance
CASES = {
    "few rows": ((1, 50, 2, 0.0, 1.5), 1.0),
    "balanced": ((1, 200, 4, 0.0, 2.0), 4.0),
    "rare": ((0, 400, 4, -3.5, 1.0), 1.0),
    "more features": ((1, 400, 8, 0.0, 2.0), 4.0),
    "rare, more features": ((0, 400, 8, -3.5, 1.0), 1.0),
}
LONG = ("more features", "rare, more features")
cases = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in LONG else ()) for case in CASES]
)


def with_constant(X: np.ndarray) -> np.ndarray:
    return np.c_[X, np.ones(len(X))]


def prior_of(d: int, prior_variance: float) -> np.ndarray:
    return np.r_[np.full(d, prior_variance), INTERCEPT_VARIANCE]


@functools.cache
def exact(case: str) -> Moments:
    recipe, prior_variance = CASES[case]
    X, y = drawn(*recipe)
    found = exact_moments(with_constant(X), y, prior_of(X.shape[1], prior_variance), n_steps=400)
    assert found.mean_error < 0.1 * MEAN_TOLERANCE
    assert found.std_error < 0.2 * STD_TOLERANCE
    return found


@functools.cache
def best_gaussian(case: str) -> Gaussians:
    recipe, prior_variance = CASES[case]
    X, y = drawn(*recipe)
    return variational_logistic(with_constant(X), y, prior_of(X.shape[1], prior_variance))


def assert_near_exact(found: Gaussians, expected: Moments, *, is_rare: bool) -> None:
    """Compare the Gaussian of one latent with exact moments; the intercept is last."""
    errors = np.abs(found.mean[0] - expected.mean) / expected.std
    assert errors.max() < MEAN_TOLERANCE
    ratios = np.sqrt(np.diag(found.covariance[0])) / expected.std
    tolerance = np.full(len(ratios), STD_TOLERANCE)
    tolerance[-1] = RARE_INTERCEPT_TOLERANCE if is_rare else STD_TOLERANCE
    assert (np.abs(ratios - 1.0) < tolerance).all(), ratios


def assert_same_gaussians(found: Gaussians, expected: Gaussians, tolerance: float = 3e-3) -> None:
    """Compare means, in standard deviations, and covariances, as shares of the products of standard deviations."""
    std = np.sqrt(np.diagonal(expected.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(found.mean / std, expected.mean / std, rtol=0.0, atol=tolerance)
    products = std[:, :, None] * std[:, None]
    np.testing.assert_allclose(
        found.covariance / products, expected.covariance / products, rtol=0.0, atol=tolerance, strict=True
    )


def refined(X: np.ndarray, y: np.ndarray, prior_variance, sample_weight=None, **params) -> BayesianLogisticRegression:
    """A model with fixed prior and temperature, refined until it no longer changes."""
    options = {"alpha_eps": 0.1, "temperature": 1.0, "intercept_variance": INTERCEPT_VARIANCE, "refine": 100} | params
    return BayesianLogisticRegression(prior_variance=prior_variance, **options).fit(X, y, sample_weight)


def posterior_of(model: BayesianLogisticRegression) -> Gaussians:
    """The posterior of weights and intercept; that of the intercept comes from latents of the origin and of units."""
    d = model.n_features_in_
    covariance = np.zeros((len(model.coef_), d + 1, d + 1))
    covariance[:, :d, :d] = model.covariance_
    _, at_zero = model.predict_latent(np.zeros((1, d)))
    _, at_units = model.predict_latent(np.eye(d))  # (d, latents): variances of weight plus intercept
    covariance[:, d, d] = at_zero[0]
    shared = 0.5 * (at_units.T - at_zero.T - np.diagonal(model.covariance_, axis1=1, axis2=2))
    covariance[:, d, :d] = covariance[:, :d, d] = shared
    return Gaussians(np.c_[model.coef_, model.intercept_], covariance)


# --- the references against each other -----------------------------------------------------------------------------


@pytest.mark.parametrize("prior_variance", [0.5, 4.0])
def test_chains_have_the_moments_of_quadrature(prior_variance):
    X, y = drawn(0, 12, 2, 0.0, 2.0)
    found = exact_moments(X, y, np.full(2, prior_variance), n_steps=600)
    grid = np.linspace(-12.0, 12.0, 401)
    weights = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    f = weights @ X.T
    log_density = (y * f - np.logaddexp(0.0, f)).sum(1) - 0.5 * (weights**2).sum(1) / prior_variance
    density = softmax(log_density)
    mean = density @ weights
    covariance = (weights - mean).T * density @ (weights - mean)
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.mean / std, mean / std, rtol=0.0, atol=0.03)
    np.testing.assert_allclose(found.covariance / np.outer(std, std), covariance / np.outer(std, std), atol=0.04)
    assert found.mean_error < 0.01
    assert found.std_error < 0.015


def test_the_best_gaussian_of_one_weight_is_that_of_its_definition():
    X, y = drawn(3, 20, 1, 0.0, 2.0)
    rows, signs = torch.from_numpy(X[:, 0]), torch.from_numpy(2.0 * y - 1.0)

    def log_density(weight: torch.Tensor) -> torch.Tensor:
        return logsigmoid(signs * rows * weight[..., None]).sum(-1) - weight.square() / 2.0 / 3.0

    expected = variational(log_density)
    found = variational_logistic(X, y, np.array([3.0]))
    np.testing.assert_allclose(found.mean[0, 0], expected.mean, atol=1e-5)
    np.testing.assert_allclose(found.covariance[0, 0, 0], expected.variance, rtol=1e-5)


@pytest.mark.parametrize(("variance", "n_nodes"), [(0.01, 31), (2.0, 31), (9.0, 81)])
def test_expectations_of_three_classes_are_those_of_a_dense_rule(variance, n_nodes):
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=(4, 3)) * 2.0, variance * rng.uniform(0.5, 1.5, size=(4, 3))
    y = np.array([0, 1, 2, 1])
    found = expected_softmax(mean, spread, y, n_nodes)
    for row in range(4):
        p, curvature, top = softmax_tensor_product(mean[row], spread[row])
        _, other_top = softmax_reference(mean[row], spread[row])
        np.testing.assert_allclose(found.slope[row], np.eye(3)[y[row]] - p, atol=1e-5)
        np.testing.assert_allclose(found.curvature[row], -curvature, atol=1e-5)
        np.testing.assert_allclose(found.value[row], [mean[row, y[row]] - t for t in (top, other_top)], atol=1e-5)


def test_expectations_of_one_latent_are_derivatives_by_its_mean():
    mean, variance, y, h = np.array([-1.0, 0.5, 3.0]), np.array([0.1, 1.0, 4.0]), np.array([0, 1, 0]), 1e-3
    low, middle, high = (expected_logistic(mean + step, variance, y) for step in (-h, 0.0, h))
    np.testing.assert_allclose((high.value - low.value) / 2.0 / h, middle.slope[:, 0], atol=1e-6)
    np.testing.assert_allclose((high.slope - low.slope) / 2.0 / h, middle.curvature, atol=1e-6)


def three_classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    logits = X @ rng.normal(size=(3, 3)) + np.array([0.5, 0.0, -1.5])
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1)


@functools.cache
def best_gaussians_of_three_classes() -> Gaussians:
    X, y = three_classes()
    return variational_softmax(with_constant(X), y, prior_of(3, 2.0))


@pytest.mark.slow
def test_the_best_gaussians_of_three_classes_have_no_slope():
    """By the stationary equations, with expectations by another rule."""
    (X, y), best = three_classes(), best_gaussians_of_three_classes()
    Phi, prior = with_constant(X), prior_of(3, 2.0)
    mean, variance = Phi @ best.mean.T, np.einsum("nd,lde,ne->nl", Phi, best.covariance, Phi)
    rules = [softmax_tensor_product(m, v, n=31) for m, v in zip(mean, variance, strict=True)]
    p, curvature = (np.array([rule[part] for rule in rules]) for part in (0, 1))
    for k in range(3):
        np.testing.assert_allclose(Phi.T @ ((y == k) - p[:, k]), best.mean[k] / prior, atol=2e-3)
        precision = np.diag(1.0 / prior) + (Phi.T * curvature[:, k]) @ Phi
        np.testing.assert_allclose(np.linalg.inv(precision), best.covariance[k], rtol=2e-3, atol=1e-5)


@cases
def test_the_best_gaussian_is_near_the_exact_posterior(case):
    assert_near_exact(best_gaussian(case), exact(case), is_rare="rare" in case)


@pytest.mark.parametrize("case", ["few rows", "rare"])
def test_the_mode_is_not_near_the_exact_posterior(case):
    """So the tolerances are narrow enough to tell approximations apart."""
    recipe, prior_variance = CASES[case]
    X, y = drawn(*recipe)
    mode, root = _mode(with_constant(X), y, prior_of(X.shape[1], prior_variance))
    laplace = Gaussians(mode[None], (root @ root.T)[None])
    with pytest.raises(AssertionError):
        assert_near_exact(laplace, exact(case), is_rare="rare" in case)


# --- the refined model ---------------------------------------------------------------------------------------------


@needs_refine
@cases
def test_the_refined_posterior_is_near_the_exact_one(case):
    recipe, prior_variance = CASES[case]
    model = refined(*drawn(*recipe), prior_variance)
    assert model.refined_
    assert_near_exact(posterior_of(model), exact(case), is_rare="rare" in case)


@needs_refine
@pytest.mark.parametrize("case", ["few rows", "rare"])
def test_the_matched_posterior_is_not_near_the_exact_one(case):
    recipe, prior_variance = CASES[case]
    matched = refined(*drawn(*recipe), prior_variance, refine=False)
    assert not matched.refined_
    with pytest.raises(AssertionError):
        assert_near_exact(posterior_of(matched), exact(case), is_rare="rare" in case)


@needs_refine
@cases
def test_the_refined_posterior_is_the_best_gaussian(case):
    recipe, prior_variance = CASES[case]
    assert_same_gaussians(posterior_of(refined(*drawn(*recipe), prior_variance)), best_gaussian(case))


@needs_refine
def test_three_classes_have_the_best_independent_gaussians():
    found = posterior_of(refined(*three_classes(), 2.0))
    assert_same_gaussians(found, best_gaussians_of_three_classes(), tolerance=1e-2)


@needs_refine
def test_two_classes_by_softmax_have_opposite_means():
    X, y = drawn(*CASES["balanced"][0])
    found = posterior_of(refined(X, y, 4.0, likelihood="softmax"))
    np.testing.assert_allclose(found.mean[0], -found.mean[1], atol=1e-3)
    np.testing.assert_allclose(found.covariance[0], found.covariance[1], rtol=1e-2, atol=1e-4)


@needs_refine
def test_each_feature_has_its_own_prior_variance():
    X, y = drawn(2, 80, 3, 0.5, 1.5)
    prior_variance = np.array([0.05, 1.0, 20.0])
    best = variational_logistic(with_constant(X), y, np.r_[prior_variance, INTERCEPT_VARIANCE])
    assert_same_gaussians(posterior_of(refined(X, y, prior_variance)), best)


@needs_refine
def test_without_intercept_there_is_none():
    X, y = drawn(2, 80, 3, 0.0, 1.5)
    model = refined(X, y, 2.0, fit_intercept=False)
    best = variational_logistic(X, y, np.full(3, 2.0))
    assert_same_gaussians(Gaussians(model.coef_, model.covariance_), best)
    assert model.intercept_ == 0.0


@needs_refine
def test_weights_of_rows_are_numbers_of_rows():
    X, y = drawn(4, 60, 2, -1.0, 1.0)
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    repeated = variational_logistic(
        with_constant(np.repeat(X, counts, axis=0)), np.repeat(y, counts), prior_of(X.shape[1], 1.0)
    )
    assert_same_gaussians(posterior_of(refined(X, y, 1.0, counts.astype(float))), repeated)


@needs_refine
def test_separable_rows_have_the_best_gaussian():
    X = np.linspace(-2.0, 2.0, 30)[:, None]
    y = (X[:, 0] > 0.0).astype(int)
    best = variational_logistic(with_constant(X), y, prior_of(1, 4.0))
    assert_same_gaussians(posterior_of(refined(X, y, 4.0)), best)


@needs_refine
def test_samples_have_the_moments_of_the_posterior():
    model = refined(*drawn(*CASES["few rows"][0]), 1.0)
    found, draws = posterior_of(model), model.sample(20_000, random_state=0)[:, 0]
    std = np.sqrt(np.diag(found.covariance[0]))
    np.testing.assert_allclose(draws.mean(0) / std, found.mean[0] / std, atol=0.04)
    products = np.outer(std, std)
    np.testing.assert_allclose(np.cov(draws.T) / products, found.covariance[0] / products, atol=0.05)


@needs_refine
def test_the_refined_mean_is_near_the_mode_where_rows_are_many():
    X, y = drawn(6, 5000, 4, -0.5, 2.0)
    model = refined(X, y, 2.0)
    mode = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(X, y)
    std = np.sqrt(np.diagonal(model.covariance_, axis1=1, axis2=2))
    np.testing.assert_allclose(model.coef_ / std, mode.coef_ / std, atol=0.15)
    matched = refined(X, y, 2.0, refine=False)
    assert np.abs((matched.coef_ - mode.coef_) / std).max() > 1.0
