"""The baselines against exact integrals, autograd, torch's own optimiser and the closed form of least squares."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch.testing import assert_close

from gaussify import BayesianLogisticRegression, metrics
from gaussify._numerics import expected_softmax
from gaussify.exceptions import InvalidArgumentError
from gaussify.linear import baselines
from gaussify.linear.baselines import (
    ADFClassifier,
    LeastSquaresClassifier,
    MomentumSGDClassifier,
    absorb_,
    log_normaliser,
    softmax_gradient,
)
from gaussify.posterior import GaussianPosterior, RowPosterior, observe_

MAKERS = {
    "adf": lambda: ADFClassifier(n_samples=50),
    "sgd": MomentumSGDClassifier,
    "least squares": LeastSquaresClassifier,
}
each_baseline = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def draws(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def latents(n_classes, scale, seed=1):
    variance = scale * draws(n_classes, seed=seed).abs().add(0.5)
    return variance.sqrt() * draws(n_classes, seed=seed + 1), variance


def grid_noise(n):
    """Equally likely points, (2, n²), of variance one, in place of draws for two latents: errors of some 1e-3."""
    points = torch.as_tensor(norm.ppf((np.arange(n) + 0.5) / n))
    points = points / points.square().mean().sqrt()
    return torch.cartesian_prod(points, points).T


def tilted_moments(mean, variance, log_tilt):
    """Brute force: normaliser, means and variances of two independent normals times exp(log_tilt), on a fine grid."""
    axes = [m + s * torch.linspace(-8.0, 8.0, 1001).double() for m, s in zip(mean, variance.sqrt(), strict=True)]
    points = torch.cartesian_prod(*axes).T  # (2, g)
    prior = torch.softmax(-0.5 * ((points - mean[:, None]).square() / variance[:, None]).sum(0), 0)
    tilt = prior * log_tilt(points).exp()
    tilted_mean = points @ tilt / tilt.sum()
    return tilt.sum(), tilted_mean, (points - tilted_mean[:, None]).square() @ tilt / tilt.sum()


def rows(n=200, d=4, c=3, seed=0):
    rng = np.random.default_rng(seed)
    X, weights = rng.standard_normal((n, d)), 2.0 * rng.standard_normal((d, c))
    return X, np.argmax(X @ weights + rng.gumbel(size=(n, c)), axis=1)


def random_posterior(c=3, d=4):
    return GaussianPosterior(draws(c, d, seed=5), torch.eye(d).double() + 0.3 * draws(c, d, d, seed=6))


def copy_of(posterior):
    return GaussianPosterior(*(tensor.clone() for tensor in posterior))


# The log-normaliser


@pytest.mark.parametrize("scale", [0.1, 4.0, 60.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_log_normaliser_and_derivatives_are_those_of_the_exact_integral(n_classes, scale):
    mean, variance = latents(n_classes, scale)
    estimate = log_normaliser(mean, variance, 1, draws(n_classes, 200_000))
    mean, variance = (x[None].clone().requires_grad_() for x in (mean, variance))
    exact = expected_softmax(mean, variance)[0, 1].log()
    exact.backward()
    # in units in which a posterior without the row has mean 0 and variance 1
    assert_close(estimate.value, exact.detach(), atol=0.04, rtol=0.0)
    std = variance[0].detach().sqrt()
    assert_close(estimate.grad_mean * std, mean.grad[0] * std, atol=0.03, rtol=0.0)
    assert_close(estimate.grad_variance * std**2, variance.grad[0] * std**2, atol=0.03, rtol=0.0)


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_moments_from_the_derivatives_are_those_of_the_tilted_distribution(scale, weight):
    mean, variance = latents(2, scale)
    value, g, h = log_normaliser(mean, variance, 0, grid_noise(500), weight)
    normaliser, tilted_mean, tilted_variance = tilted_moments(
        mean, variance, lambda f: weight * torch.log_softmax(f, 0)[0]
    )
    assert_close(value.exp(), normaliser, rtol=2e-3, atol=0.0)
    assert_close(mean + variance * g, tilted_mean, rtol=0.0, atol=2e-3 * scale**0.5)
    assert_close(variance - variance**2 * (g**2 - 2.0 * h), tilted_variance, rtol=0.0, atol=4e-3 * scale)


def test_both_forms_of_the_derivatives_agree(monkeypatch):
    mean, variance = latents(2, 10.0)
    by_form = []
    for limit in (0.0, float("inf")):
        monkeypatch.setattr(baselines, "_WIDE", limit)
        by_form.append(log_normaliser(mean, variance, 1, grid_noise(700), 1.5))
    assert_close(by_form[0], by_form[1], rtol=2e-3, atol=1e-4)


def test_derivatives_at_zero_variance_are_those_of_the_log_softmax():
    mean = draws(4).requires_grad_()
    torch.log_softmax(mean, 0)[2].backward()
    estimate = log_normaliser(mean.detach(), torch.zeros(4).double(), 2, draws(4, 1))
    assert_close(estimate.grad_mean, mean.grad)


def test_a_label_that_no_sample_deems_possible_still_has_finite_derivatives():
    mean = torch.tensor([0.0, -2000.0, 0.0]).double()
    estimate = log_normaliser(mean, torch.ones(3).double(), 1, draws(3, 100))
    assert all(bool(torch.isfinite(x).all()) for x in estimate)
    assert estimate.grad_mean[1] == pytest.approx(1.0)


# One row of the filter


def test_absorb_is_the_moment_matching_update():
    posterior, feature, noise = random_posterior(), draws(4, seed=7), draws(3, 500)
    S, updated = posterior.covariance, copy_of(posterior)
    absorb_(updated, feature, 2, noise)
    Sx = S @ feature
    _, g, h = log_normaliser(posterior.mean @ feature, Sx @ feature, 2, noise)
    shrinkage = g**2 - 2.0 * h
    assert_close(updated.mean, posterior.mean + Sx * g[:, None])
    assert_close(updated.covariance, S - shrinkage[:, None, None] * Sx[:, :, None] * Sx[:, None, :])


def test_absorb_conditions_on_a_gaussian_observation_that_depends_on_the_posterior():
    posterior, feature, noise = random_posterior(), draws(4, seed=7), draws(3, 500)
    mean, variance = posterior.mean @ feature, (posterior.covariance @ feature) @ feature
    _, g, h = log_normaliser(mean, variance, 2, noise)
    precision = g**2 - 2.0 * h
    assert bool((precision > 0.0).all())
    filtered, observed = copy_of(posterior), copy_of(posterior)
    absorb_(filtered, feature, 2, noise)
    target, noise_variance = mean + g / precision, 1.0 / precision - variance
    observe_(RowPosterior.of(observed), feature.numpy(), target.numpy(), noise_variance.numpy())
    assert_close(filtered.mean, observed.mean)
    assert_close(filtered.covariance, observed.covariance)


def test_damping_makes_a_share_of_the_step():
    posterior, feature, noise = random_posterior(), draws(4, seed=7), draws(3, 500)
    whole, half = copy_of(posterior), copy_of(posterior)
    absorb_(whole, feature, 0, noise)
    absorb_(half, feature, 0, noise, damping=0.5)
    assert_close(half.mean, 0.5 * (posterior.mean + whole.mean))
    assert_close(half.covariance, 0.5 * (posterior.covariance + whole.covariance))


def test_an_invalid_step_is_shortened_until_a_hundredth_of_the_variance_is_left():
    posterior = GaussianPosterior(torch.zeros(2, 1).double(), torch.full((2, 1, 1), 10.0).double())
    variance = torch.full((2,), 100.0).double()
    noise = draws(2, 1)  # of a single sample the variance is zero
    _, g, h = log_normaliser(torch.zeros(2).double(), variance, 0, noise)
    assert_close((g**2 - 2.0 * h) * variance, torch.ones(2).double())
    absorb_(posterior, torch.ones(1).double(), 0, noise)
    assert_close(posterior.covariance[:, 0, 0], 0.01 * variance)
    assert_close(posterior.mean[:, 0], 0.99 * variance * g)


def test_latent_variances_stay_positive_with_few_samples_and_a_wide_prior():
    X, y = rows(n=300)
    model = ADFClassifier(100.0, n_samples=2, intercept_variance=1000.0).fit(X, y)
    mean, variance = model.predict_latent(X)
    assert np.isfinite(mean).all()
    assert (variance > 0.0).all()


# The filter


def test_one_row_gives_the_moments_of_the_exact_posterior():
    feature, prior = 1.5, torch.full((2,), 0.8).double()
    _, mean, variance = tilted_moments(torch.zeros(2), prior, lambda w: torch.log_softmax(feature * w, 0)[0])
    model = ADFClassifier(0.8, n_samples=400_000, fit_intercept=False)
    model.partial_fit([[feature]], [0], classes=[0, 1])
    np.testing.assert_allclose(model.coef_[:, 0], mean, atol=2e-3)
    np.testing.assert_allclose(model.posterior_.covariance.flatten(), variance, atol=2e-3)


def test_many_rows_give_the_moments_of_one_exact_projection_after_the_other():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 1)), rng.integers(0, 2, 12)
    mean, variance = torch.zeros(2).double(), torch.ones(2).double()
    for x, label in zip(X[:, 0], y, strict=True):
        _, mean, variance = tilted_moments(mean, variance, lambda w, x=x, y=label: torch.log_softmax(x * w, 0)[y])
    model = ADFClassifier(n_samples=20_000, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_[:, 0], mean, atol=0.01)
    np.testing.assert_allclose(model.posterior_.covariance.flatten(), variance, atol=0.01)


def test_filter_with_the_default_samples_is_close_to_one_with_many():
    X, y = rows(n=150)
    default, many = (ADFClassifier(n_samples=n).fit(X, y).predict_proba(X) for n in (1000, 20_000))
    assert np.abs(default - many).mean() < 0.01


@pytest.mark.parametrize("chunk", [1, 7, 200])
def test_filter_does_not_depend_on_chunks(chunk):
    X, y = rows()
    whole, chunked = ADFClassifier(n_samples=20).fit(X, y), ADFClassifier(n_samples=20)
    for start in range(0, len(X), chunk):
        part = slice(start, start + chunk)
        chunked.partial_fit(X[part], y[part], classes=[0, 1, 2])
    np.testing.assert_array_equal(whole.predict_proba(X), chunked.predict_proba(X))


def test_filter_reads_draws_off_its_seed():
    X, y = rows(n=50)
    probs = [ADFClassifier(n_samples=20, random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(probs[0], probs[1])
    assert np.abs(probs[0] - probs[2]).max() > 1e-4


def test_filter_predicts_as_well_as_logistic_regression():
    X, y = rows(n=2000)
    probs = ADFClassifier(n_samples=300).fit(X[:1000], y[:1000]).predict_proba(X[1000:])
    peer = LogisticRegression().fit(X[:1000], y[:1000]).predict_proba(X[1000:])
    assert metrics.nll(probs, y[1000:]) < metrics.nll(peer, y[1000:]) + 0.02


def test_filter_takes_a_row_of_weight_zero_for_none():
    X, y = rows(n=60)
    weight = np.arange(60) % 2
    weighted = ADFClassifier(n_samples=20).fit(X, y, sample_weight=weight)
    alone = ADFClassifier(n_samples=20).fit(X[1::2], y[1::2])
    np.testing.assert_array_equal(weighted.coef_, alone.coef_)


def test_intercept_has_a_variance_of_its_own():
    X, y = np.zeros((30, 1)), np.arange(30) % 3 // 2
    flat, free = (ADFClassifier(intercept_variance=v).fit(X, y).predict_proba(X[:1])[0] for v in (1e-8, 1.0))
    np.testing.assert_allclose(flat, 0.5, atol=1e-3)
    assert free[0] == pytest.approx(2 / 3, abs=0.05)


# Gradient descent


@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_gradient_is_that_of_autograd(weighted):
    X, y = rows(n=20)
    weight = np.random.default_rng(1).uniform(size=20) if weighted else np.ones(20)
    W = draws(3, 4).requires_grad_()
    losses = torch.nn.functional.cross_entropy(torch.as_tensor(X) @ W.T, torch.as_tensor(y), reduction="none")
    (losses * torch.as_tensor(weight)).mean().backward()
    found = softmax_gradient(W.detach().numpy(), X, y, weight if weighted else None)
    np.testing.assert_allclose(found, W.grad, rtol=1e-12, atol=1e-14)


def test_descent_is_that_of_torch():
    X, y = rows(n=50)
    layer = torch.nn.Linear(4, 3).double()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    groups = [{"params": [layer.weight], "weight_decay": 0.1}, {"params": [layer.bias]}]
    optimiser = torch.optim.SGD(groups, lr=0.2, momentum=0.8)
    for start in range(0, 50, 8):
        part = slice(start, start + 8)
        optimiser.zero_grad()
        logits = layer(torch.as_tensor(X[part]))
        torch.nn.functional.cross_entropy(logits, torch.as_tensor(y[part])).backward()
        optimiser.step()
    model = MomentumSGDClassifier(0.2, 0.8, batch_size=8, weight_decay=0.1).partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, layer.weight.detach(), rtol=1e-10)
    np.testing.assert_allclose(model.intercept_, layer.bias.detach(), rtol=1e-10)


def test_descent_goes_on_where_the_last_call_ended():
    X, y = rows(n=48)
    whole, parts = MomentumSGDClassifier().partial_fit(X, y), MomentumSGDClassifier()
    for start in range(0, 48, 16):
        parts.partial_fit(X[start : start + 16], y[start : start + 16], classes=[0, 1, 2])
    np.testing.assert_allclose(whole.coef_, parts.coef_, rtol=1e-12)


def test_automatic_step_does_not_depend_on_units():
    X, y = rows()
    probs = [MomentumSGDClassifier(fit_intercept=False).fit(s * X, y).predict_proba(s * X) for s in (1.0, 1e4)]
    np.testing.assert_allclose(probs[0], probs[1], rtol=1e-6)


def test_descent_on_rows_of_zeros_stays_where_it_is():
    model = MomentumSGDClassifier(fit_intercept=False).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    np.testing.assert_array_equal(model.predict_proba(np.ones((1, 2))), [[0.5, 0.5]])


def test_one_pass_of_descent_over_digits_is_nearly_as_good_as_logistic_regression():
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    order = np.random.default_rng(0).permutation(len(X))
    train, test = np.split(order, [1200])
    model = MomentumSGDClassifier().partial_fit(X[train], y[train])
    peer = LogisticRegression(max_iter=1000).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > peer.score(X[test], y[test]) - 0.05
    model.fit(X[train], y[train])
    assert metrics.nll(model.predict_proba(X[test]), y[test]) < metrics.nll(peer.predict_proba(X[test]), y[test]) + 0.02


# Least squares


@pytest.mark.parametrize("n_classes", [2, 3])
def test_least_squares_is_ridge_regression_on_one_hot_labels(n_classes):
    X, y = rows(c=n_classes)
    model = LeastSquaresClassifier(0.5, prior_variance=2.0, fit_intercept=False).fit(X, y)
    ridge = np.linalg.solve(X.T @ X + 0.25 * np.eye(4), X.T @ np.eye(n_classes)[y])
    np.testing.assert_allclose(model.coef_, ridge.T, rtol=1e-9)
    assert model.temperature_ == 1.0
    assert model.method_ == "gauss"


def test_least_squares_is_bayesian_logistic_regression_by_gauss():
    X, y = rows()
    parent = BayesianLogisticRegression("gauss", temperature=1.0, label_variance=0.3).fit(X, y)
    model = LeastSquaresClassifier(0.3).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), parent.predict_proba(X))


def test_least_squares_merges_and_is_saved(tmp_path):
    X, y = rows()
    whole, half = LeastSquaresClassifier().fit(X, y), LeastSquaresClassifier().fit(X[:100], y[:100])
    half.merge(LeastSquaresClassifier().fit(X[100:], y[100:])).tune()
    np.testing.assert_allclose(half.predict_proba(X), whole.predict_proba(X), rtol=1e-6)
    whole.save(tmp_path / "model")
    np.testing.assert_array_equal(
        LeastSquaresClassifier.load(tmp_path / "model").predict_proba(X), whole.predict_proba(X)
    )


# What all have in common


@each_baseline
def test_learns_a_stream_of_names(make):
    X, y = rows(n=600, c=2)
    labels = np.array(["no", "yes"])[y]
    model = make()
    for start in range(0, 400, 50):
        model.partial_fit(X[start : start + 50], labels[start : start + 50])
    assert model.score(X[400:], labels[400:]) > 0.85
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)


@each_baseline
def test_a_class_may_turn_up_late(make):
    X, y = rows(n=600)
    early = y != 1
    model = make().partial_fit(X[early][:150], y[early][:150])
    model.partial_fit(X[200:], y[200:])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert model.score(X[200:], y[200:]) > 0.75


@each_baseline
def test_one_class_is_certain_and_teaches_nothing_wrong(make):
    X, y = rows()
    model = make().partial_fit(X[:5], np.zeros(5, int))
    np.testing.assert_array_equal(model.predict_proba(X[:2]), [[1.0], [1.0]])
    assert model.partial_fit(X, y).score(X, y) > 0.7


@each_baseline
@pytest.mark.parametrize("bad", ["nan", "width", "text"])
def test_bad_rows_are_refused_and_leave_the_state_as_it_was(make, bad):
    X, y = rows()
    model = make().fit(X, y)
    before = model.predict_proba(X)
    wrong_X = {"nan": np.full((2, 4), np.nan), "width": np.ones((2, 3)), "text": np.ones((2, 4))}[bad]
    message = {"nan": "contains NaN", "width": "X has 3 features", "text": "must stay of one type"}[bad]
    with pytest.raises(ValueError, match=message):
        model.partial_fit(wrong_X, np.array(["a", "b"]) if bad == "text" else [0, 7])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(("make", "step"), [(MAKERS["adf"], "absorb_"), (MAKERS["sgd"], "softmax_gradient")])
def test_an_interrupt_leaves_the_state_as_it_was(make, step, monkeypatch):
    X, y = rows()
    model, undisturbed = make().fit(X, y), make().fit(X, y)
    before = model.predict_proba(X)
    function, n_calls = getattr(baselines, step), 0

    def interrupted(*arguments):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            raise KeyboardInterrupt
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(baselines, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, np.where(y == 2, 5, y))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    # what comes next is as if it had not happened, draws included
    np.testing.assert_array_equal(
        model.partial_fit(X, y).predict_proba(X), undisturbed.partial_fit(X, y).predict_proba(X)
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ADFClassifier(-1.0), "'prior_variance' parameter of ADFClassifier must be positive; got -1"),
        (ADFClassifier(damping=1.5), "'damping' parameter of ADFClassifier must be at most 1; got 1.5"),
        (ADFClassifier(n_samples=0), "'n_samples' parameter of ADFClassifier must be an integer of at least 1; got 0"),
        (MomentumSGDClassifier("fast"), "'learning_rate' of MomentumSGDClassifier must be numbers; got 'fast'"),
        (MomentumSGDClassifier(momentum=1.0), "'momentum' parameter of MomentumSGDClassifier must be below 1; got 1"),
        (MomentumSGDClassifier(weight_decay=-1.0), "'weight_decay' parameter of .* must be at least 0; got -1"),
        (MomentumSGDClassifier(n_epochs=0), "'n_epochs' parameter of .* must be an integer of at least 1; got 0"),
        (LeastSquaresClassifier(0.0), "'label_variance' parameter of LeastSquaresClassifier must be positive; got 0"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value),
)
def test_bad_parameters_are_refused(model, message):
    X, y = rows(n=20)
    with pytest.raises(InvalidArgumentError, match=message):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_features_are_called_by_name():
    pandas = pytest.importorskip("pandas")
    X, y = rows()
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = MomentumSGDClassifier().fit(frame, y)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[list("bacd")])
