"""Variational inference with the class likelihood: against its definition, its fixed point, and the matched model."""

import copy
import math

import jaxtyping
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.utils.estimator_checks import check_estimator
from torch.distributions import MultivariateNormal, kl_divergence
from torch.testing import assert_close

import gaussify.gp.objectives._expectation as expectation
from gaussify import GPClassifier, LogisticLikelihood, SoftmaxLikelihood
from gaussify._numerics._optimise import Adam
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp import VariationalGPClassifier
from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._fitted import FittedSparseGP
from gaussify.gp._models import InducingFeatures, SparseModel
from gaussify.gp._rows import SortedRows
from gaussify.gp._scaling import fit_scaling
from gaussify.gp._variational_classifier import cold_start, matched_start
from gaussify.gp.learning._variational import (
    Optimizer,
    Start,
    TrainingSettings,
    VariationalTrainer,
    expectation_of_rows,
    minibatches,
    observations,
    train,
)
from gaussify.gp.objectives._likelihood import LikelihoodObjective, accumulate_likelihood_objective
from gaussify.posterior import NaturalParameters, condition

N, M, D = 40, 6, 2
LIKELIHOODS = {
    "softmax": SoftmaxLikelihood(3, torch.tensor(0.1, dtype=torch.float64)),
    "logistic": LogisticLikelihood(torch.tensor(0.1, dtype=torch.float64)),
}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
optimizers = pytest.mark.parametrize("optimizer", list(Optimizer))
KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=D)).double(),
    "matern": lambda: ScaleKernel(MaternKernel(2.5)).double(),
}
FIXED = TrainingSettings(batch_size=N, learning_rate=0.0)


def problem(n_classes, n=N, seed=0, weight=None):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, D, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] * 1.5 + torch.randn(n, generator=generator)).argsort().argsort() * n_classes // n
    return SortedRows.of(X, labels, weight, n_classes=n_classes)


def some_start(likelihood, kernel="rbf", seed=1, temperature=1.3):
    """A start whose Gaussians are neither the prior nor any posterior."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(M, D, generator=generator, dtype=torch.float64)
    start = Start.cold(KERNELS[kernel](), points, likelihood.target_table())
    noise = torch.randn(likelihood.n_latents, 3 * M, M + 1, generator=generator, dtype=torch.float64)
    linear = torch.randn(likelihood.n_latents, M + 1, generator=generator, dtype=torch.float64)
    natural = NaturalParameters(noise.mT @ noise, 3.0 * linear, torch.zeros_like(linear[:, 0]))
    return start._replace(natural=natural, temperature=temperature)


def features_of(kernel, Z, X):
    """With the variance that they leave unexplained, by dense matrices and with a graph."""
    jitter = 1e-8 * kernel(Z, diag=True).detach()
    L = torch.linalg.cholesky(kernel(Z).to_dense() + torch.diag(jitter))
    phi = torch.linalg.solve_triangular(L, kernel(Z, X).to_dense(), upper=False).mT
    return torch.cat([phi, torch.ones_like(phi[:, :1])], 1), kernel(X, diag=True) - phi.square().sum(1)


def direct_bound(kernel, Z, rows, mean, covariance, prior_variance, likelihood, temperature):
    """As it is defined, by torch.distributions, with a graph."""
    phi, left = features_of(kernel, Z, rows.features)
    prior = MultivariateNormal(torch.zeros_like(prior_variance), torch.diag(prior_variance))
    divergence = sum(kl_divergence(MultivariateNormal(*own), prior) for own in zip(mean, covariance, strict=True))
    spread = torch.stack([(phi @ own * phi).sum(1) for own in covariance], 1) + left[:, None]
    expected = likelihood.expected_log_prob(phi @ mean.mT / temperature, spread / temperature**2, rows.labels)
    return rows.weight @ expected - divergence


# --- the bound and its gradients -----------------------------------------------------------------------------------


@likelihoods
@optimizers
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bound_is_that_of_the_definition(likelihood, optimizer, kernel):
    rows = problem(likelihood.n_classes, weight=torch.tensor([1.0, 2.0, 0.5, 3.0] * (N // 4)).double())
    start = some_start(likelihood, kernel)
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, FIXED._replace(optimizer=optimizer))
    q = condition(start.prior, start.natural)
    expected = direct_bound(
        start.kernel, start.points, rows, q.mean, q.covariance, start.prior.variance, likelihood, start.temperature
    ).item()
    assert trainer.bound() == pytest.approx(expected, rel=1e-8)
    assert trainer.step() == pytest.approx(expected, rel=1e-8)  # which is before the step


@likelihoods
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("elements", [1 << 19, 100], ids=["whole", "chunks"])
def test_gradients_are_those_of_the_definition(likelihood, kernel, elements, monkeypatch):
    monkeypatch.setattr(expectation, "_ELEMENTS", elements)
    rows = problem(likelihood.n_classes, weight=torch.tensor([1.0, 2.0, 0.5, 3.0] * (N // 4)).double())
    start = some_start(likelihood, kernel)
    Z, q = start.points.clone().requires_grad_(), condition(start.prior, start.natural)

    def expected_log_prob(mean, variance, labels):
        return likelihood.expected_log_prob(mean / 1.3, variance / 1.3**2, labels)

    found = expectation_of_rows(start.kernel, Z, rows, q, expected_log_prob)
    mean, covariance = q.mean.clone().requires_grad_(), q.covariance.requires_grad_()
    phi, left = features_of(start.kernel, Z, rows.features)
    spread = torch.stack([(phi @ own * phi).sum(1) for own in covariance], 1) + left[:, None]
    value = rows.weight @ expected_log_prob(phi @ mean.mT, spread, rows.labels)
    assert found.value == pytest.approx(value.item(), rel=1e-8)
    by_mean, by_covariance, *others = torch.autograd.grad(value, [mean, covariance, Z, *start.kernel.parameters()])
    assert_close(found.by_mean, by_mean, rtol=1e-7, atol=1e-7)
    assert_close(found.by_covariance, by_covariance, rtol=1e-7, atol=1e-7)
    for parameter, gradient in zip([Z, *start.kernel.parameters()], others, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-7 * gradient.abs().max().item())


@likelihoods
def test_a_natural_step_follows_the_gradient_by_expectation_parameters(likelihood):
    r"""Natural parameters (P m, -P/2) move by the derivatives by the expectation parameters (m, S + m m^T)."""
    rows, start, rate = problem(likelihood.n_classes), some_start(likelihood), 0.3
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, FIXED._replace(natural_rate=rate))
    before = trainer.posterior
    first = before.mean.clone().requires_grad_()
    second = (before.covariance + before.mean[:, :, None] * before.mean[:, None]).requires_grad_()
    bound = direct_bound(
        start.kernel,
        start.points,
        rows,
        first,
        second - first[:, :, None] * first[:, None],
        start.prior.variance,
        likelihood,
        start.temperature,
    )
    by_first, by_second = torch.autograd.grad(bound, (first, second))
    precision = torch.linalg.inv(before.covariance)
    linear = torch.einsum("lij,lj->li", precision, before.mean) + rate * by_first
    precision = precision - rate * (by_second + by_second.mT)
    trainer.step()
    after = trainer.posterior
    assert_close(after.covariance, torch.linalg.inv(precision), rtol=1e-6, atol=1e-7)
    assert_close(after.mean, torch.linalg.solve(precision, linear), rtol=1e-6, atol=1e-6)


def test_rounding_never_makes_a_precision_negative():
    def convex(mean, variance, labels):
        return 1e-3 * variance.sum(1) + 0.0 * mean.sum(1)

    rows, start = problem(3), some_start(LIKELIHOODS["softmax"])
    trainer = VariationalTrainer(rows, convex, start, FIXED._replace(natural_rate=1.0))
    trainer.step()
    assert_close(trainer.posterior.covariance, torch.diag(start.prior.variance).expand(3, -1, -1))


def test_adam_follows_the_gradient_by_mean_and_root():
    likelihood = LIKELIHOODS["softmax"]
    rows, start = problem(3), some_start(likelihood)
    settings = FIXED._replace(optimizer=Optimizer.ADAM, learning_rate=1e-3)
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, settings)
    mean, lower = (parameter.detach().clone().requires_grad_() for parameter in trainer._weights.parameters)
    root = lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())
    bound = direct_bound(
        start.kernel, start.points, rows, mean, root.mT @ root, start.prior.variance, likelihood, start.temperature
    )
    expected = torch.autograd.grad(bound, (mean, lower))
    trainer.step()
    for parameter, gradient in zip(trainer._weights.parameters, expected, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-6)


@optimizers
def test_kernel_and_points_follow_the_gradient_of_bound_and_prior(optimizer):
    likelihood, rows = LIKELIHOODS["softmax"], problem(3)
    start = cold_start(rows, likelihood, n_inducing=M)
    settings = FIXED._replace(optimizer=optimizer, learning_rate=0.05)
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, settings)
    trainer.step(), trainer.step()  # gradients do not add up
    kernel, Z, q = copy.deepcopy(trainer.kernel), trainer.points.detach().clone().requires_grad_(), trainer.posterior
    bound = direct_bound(kernel, Z, rows, q.mean, q.covariance, start.prior.variance, likelihood, 1.0)
    ((_, module, prior, closure, _),) = kernel.named_priors()
    expected = torch.autograd.grad(bound + prior.log_prob(closure(module)).sum(), [*kernel.parameters(), Z])
    trainer.step()
    for parameter, gradient in zip([*trainer.kernel.parameters(), trainer.points], expected, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-6)


def test_adam_is_that_of_torch():
    own, theirs = (torch.tensor([1.0, -2.0]).double().requires_grad_() for _ in range(2))
    ours, reference = Adam([own]), torch.optim.Adam([theirs], maximize=True)
    for step in range(1, 6):
        reference.param_groups[0]["lr"] = 0.1 / step
        for parameter in (own, theirs):
            parameter.grad = torch.cos(3.0 * parameter.detach())
        ours.step(0.1 / step)
        reference.step()
    assert_close(own, theirs)


def test_with_gaussian_labels_one_full_step_gives_the_posterior():
    noise, y = 0.3, torch.tensor([-1.0, 0.5, 2.0]).double()

    def expected_log_prob(mean, variance, labels):
        error = (y[labels] - mean[:, 0]).square() + variance[:, 0]
        return -0.5 * (error / noise + math.log(2.0 * math.pi * noise))

    rows = problem(3)
    start = some_start(LIKELIHOODS["logistic"], temperature=1.0)
    trainer = VariationalTrainer(rows, expected_log_prob, start, FIXED._replace(natural_rate=1.0))
    trainer.step()
    phi, _ = features_of(start.kernel, start.points, rows.features)
    precision = torch.diag(1.0 / start.prior.variance) + phi.mT @ phi / noise
    assert_close(trainer.posterior.covariance[0], torch.linalg.inv(precision))
    assert_close(trainer.posterior.mean[0], torch.linalg.solve(precision, phi.mT @ y[rows.labels] / noise))
    value = trainer.bound()
    for _ in range(3):
        trainer.step()
    assert trainer.bound() == pytest.approx(value, rel=1e-12)  # it is the optimum


# --- the optimum ---------------------------------------------------------------------------------------------------


def trained(rows, likelihood, start, n_steps, **settings):
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, FIXED._replace(**settings))
    history = train(trainer, n_steps)
    return trainer, history


@likelihoods
def test_the_optimum_is_a_fixed_point_above_what_matching_gives(likelihood):
    rows, start = problem(likelihood.n_classes), some_start(likelihood, temperature=1.0)
    trainer, _ = trained(rows, likelihood, start, 80, natural_rate=0.7)
    best, q = trainer.bound(), trainer.posterior
    found = expectation_of_rows(trainer.kernel, trainer.points, rows, q, likelihood.expected_log_prob)
    fixed = condition(start.prior, observations(found, q.mean))
    assert_close(fixed.mean, q.mean, rtol=1e-4, atol=1e-4)
    assert_close(fixed.covariance, q.covariance, rtol=1e-4, atol=1e-4)
    for alpha in (0.02, 0.1, 0.5):
        table = type(likelihood)(
            *([3] if likelihood.n_latents > 1 else []), torch.tensor(alpha).double()
        ).target_table()
        matched = accumulate_likelihood_objective(
            start.kernel,
            start.points,
            rows,
            table,
            LikelihoodObjective(likelihood.expected_log_prob),
            constant_variance=float(start.prior.variance[-1]),
        )
        assert matched < best


@pytest.mark.slow
@likelihoods
def test_both_optimizers_end_at_the_same_bound(likelihood):
    rows, start = problem(likelihood.n_classes), some_start(likelihood)
    start.kernel.requires_grad_(False)
    natural, _ = trained(rows, likelihood, start, 60, natural_rate=0.7)
    adam, history = trained(
        rows, likelihood, start, 150, optimizer=Optimizer.ADAM, learning_rate=0.1, learn_inducing=False
    )
    assert torch.equal(adam.points, start.points)
    assert adam.bound() == pytest.approx(natural.bound(), abs=1e-3)
    assert history[-1].bound == pytest.approx(adam.bound(), abs=1e-3)
    assert len(history) == 50


@likelihoods
def test_the_optimum_lies_below_the_evidence(likelihood):
    """With all rows as inducing points, little but the shape of the posterior is lost."""
    rows = problem(likelihood.n_classes, n=6)
    kernel, V = KERNELS["rbf"](), 2.0
    start = Start.cold(kernel, rows.features, likelihood.target_table())
    variance = start.prior.variance.clone()
    variance[-1] = V
    precision = torch.zeros_like(start.natural.precision)
    natural = NaturalParameters(precision, start.natural.linear, start.natural.constant)
    start = start._replace(prior=start.prior._replace(variance=variance), natural=natural)
    trainer, _ = trained(rows, likelihood, start, 60, natural_rate=0.7)
    n_samples, generator = 200_000, torch.Generator().manual_seed(0)
    covariance = kernel(rows.features).to_dense().detach() + V + 1e-8 * torch.eye(6).double()
    noise = torch.randn(n_samples, likelihood.n_latents, 6, generator=generator, dtype=torch.float64)
    log_prob = likelihood.log_prob((noise @ torch.linalg.cholesky(covariance).mT).mT, rows.labels).sum(-1)
    evidence = torch.logsumexp(log_prob, 0).item() - math.log(n_samples)
    error = (log_prob.exp().std() / log_prob.exp().mean()).item() / math.sqrt(n_samples)
    assert error < 0.01
    assert evidence - 0.5 < trainer.bound() < evidence + 3.0 * error


@optimizers
def test_kernel_and_points_are_learnt(optimizer):
    likelihood, rows = LIKELIHOODS["softmax"], problem(3)
    start = cold_start(rows, likelihood, n_inducing=M)
    fixed, _ = trained(rows, likelihood, start, 30, natural_rate=0.5)
    trainer, _ = trained(rows, likelihood, start, 50, optimizer=optimizer, learning_rate=0.1, natural_rate=0.5)
    assert trainer.bound() > fixed.bound() + 1.0
    assert not torch.equal(trainer.points, start.points)
    assert torch.equal(fixed.points, start.points)


# --- minibatches ---------------------------------------------------------------------------------------------------


def test_minibatches_of_a_round_average_to_all_rows():
    likelihood = LIKELIHOODS["softmax"]
    rows = problem(3, weight=torch.tensor([1.0, 2.0, 0.5, 3.0] * (N // 4)).double())
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, some_start(likelihood), FIXED)
    batches = minibatches(rows, 10, seed=3)
    bounds = [trainer.bound(next(batches)) for _ in range(4)]
    assert np.std(bounds) > 0.1
    assert np.mean(bounds) == pytest.approx(trainer.bound(), rel=1e-10)


@optimizers
def test_minibatches_come_close_to_the_optimum(optimizer):
    likelihood, rows = LIKELIHOODS["softmax"], problem(3)
    start = some_start(likelihood)
    best, _ = trained(rows, likelihood, start, 60, natural_rate=0.7)
    start.kernel.requires_grad_(False)
    settings = {"optimizer": optimizer, "learning_rate": 0.05, "learn_inducing": False, "batch_size": 10}
    noisy, _ = trained(rows, likelihood, start, 120, **settings)
    assert best.bound() - 2.0 < noisy.bound() <= best.bound() + 1e-6


def test_weights_count_as_copies():
    likelihood, copies = LIKELIHOODS["softmax"], torch.tensor([1, 2, 3, 1] * (N // 4))
    rows = problem(3)
    weighted = rows._replace(weight=copies.double())
    repeated = SortedRows.of(
        rows.features.repeat_interleave(copies, 0), rows.labels.repeat_interleave(copies), n_classes=3
    )
    start = some_start(likelihood)
    bounds = [
        trained(own, likelihood, start, 5, batch_size=100, learning_rate=0.05)[0].bound()
        for own in (weighted, repeated)
    ]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-8)


def test_chunks_do_not_change_the_steps(monkeypatch):
    likelihood, rows = LIKELIHOODS["softmax"], problem(3)
    whole, _ = trained(rows, likelihood, some_start(likelihood), 5, learning_rate=0.05)
    monkeypatch.setattr(expectation, "_ELEMENTS", 100)
    chunks, _ = trained(rows, likelihood, some_start(likelihood), 5, learning_rate=0.05)
    assert chunks.bound() == pytest.approx(whole.bound(), rel=1e-10)


# --- from a matched model ------------------------------------------------------------------------------------------


@likelihoods
def test_a_warm_start_has_the_bound_of_the_matched_model(likelihood):
    rows = problem(likelihood.n_classes, weight=torch.tensor([1.0, 2.0, 0.5, 3.0] * (N // 4)).double())
    kernel, Z, table = KERNELS["rbf"](), rows.features[:M], likelihood.target_table()
    features, scaling = InducingFeatures.of(kernel, Z), fit_scaling(rows.features.numpy(), rows.weight.numpy(), None)
    (statistics,) = SparseModel.of_rows([features], rows).statistics
    fitted = FittedSparseGP(features, scaling, statistics, likelihood, table, temperature=1.0)
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, Start.matched(fitted))
    expected = accumulate_likelihood_objective(
        kernel,
        Z,
        rows,
        table,
        LikelihoodObjective(likelihood.expected_log_prob),
        constant_variance=constant_variance(table),
    )
    assert trainer.bound() == pytest.approx(expected, rel=1e-8)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def matched(iris):
    return GPClassifier(n_inducing=10, alpha_eps=0.2, max_iter=10).fit(*iris[:2])


@optimizers
def test_a_warm_start_has_the_latents_of_the_matched_model(iris, matched, optimizer):
    X, y, X_test, _ = iris
    assert matched.temperature_ != 1.0
    likelihood, start = matched_start(matched.fitted_)
    rows = SortedRows.of(torch.from_numpy(matched.scale(X)), torch.from_numpy(y), n_classes=3)
    settings = TrainingSettings(optimizer=optimizer)
    trainer = VariationalTrainer(rows, likelihood.expected_log_prob, start, settings)
    found = trainer.latents(torch.from_numpy(matched.scale(X_test)))
    for own, expected in zip(found, matched.predict_latent(X_test), strict=True):
        assert_close(own.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["softmax", "logistic"])
def test_without_steps_the_estimator_is_the_matched_model(likelihood):
    X, y = load_breast_cancer(return_X_y=True)
    matched = GPClassifier(n_inducing=8, likelihood=likelihood, max_iter=3, scaling="quantile").fit(X[::4], y[::4])
    before = {name: value.clone() for name, value in matched.kernel_.state_dict().items()}
    probs = matched.predict_proba(X[1::4])
    same = VariationalGPClassifier(warm_start=matched, max_iter=0).fit(X[::4], y[::4])
    np.testing.assert_allclose(same.predict_proba(X[1::4]), probs, atol=1e-9)
    assert same.temperature_ == matched.temperature_
    assert same.history_ == []
    better = VariationalGPClassifier(warm_start=matched, max_iter=30, batch_size=200).fit(X[::4], y[::4])
    assert better.bound_ > same.bound_ + 1.0
    assert np.array_equal(matched.predict_proba(X[1::4]), probs)  # it is not changed
    assert all(torch.equal(value, before[name]) for name, value in matched.kernel_.state_dict().items())


def test_it_fits_a_matched_model_itself(iris):
    X, y, X_test, _ = iris
    options = {"kernel": "matern32", "n_inducing": 6, "scaling": "quantile", "random_state": 3}
    own = VariationalGPClassifier(warm_start="matched", max_iter=0, **options).fit(X, y)
    matched = GPClassifier(**options).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X_test), matched.predict_proba(X_test), atol=1e-9)
    assert np.array_equal(own.inducing_points_, matched.inducing_points_)


# --- the estimator -------------------------------------------------------------------------------------------------


@optimizers
def test_it_learns_and_seeds_reproduce(iris, optimizer):
    X, y, X_test, y_test = iris
    names = np.array(["setosa", "versicolor", "virginica"])
    make = lambda seed: VariationalGPClassifier(  # noqa: E731
        n_inducing=8, optimizer=optimizer, batch_size=30, max_iter=60, learning_rate=0.1, random_state=seed
    ).fit(X, names[y])
    model, again, other = make(0), make(0), make(1)
    assert model.score(X_test, names[y_test]) > 0.9
    assert np.array_equal(model.predict_proba(X_test), again.predict_proba(X_test))
    assert not np.array_equal(model.predict_proba(X_test), other.predict_proba(X_test))
    assert model.n_iter_ == model.history_[-1].step == 60
    assert model.history_[-1].bound > model.history_[0].bound
    assert model.bound_ == pytest.approx(again.bound_, rel=1e-12)
    assert model.inducing_points_.shape == (8, 4)
    assert model.temperature_ == 1.0
    assert not hasattr(model, "partial_fit")


def test_points_are_given_in_units_of_the_inputs(iris):
    X, y, *_ = iris
    options = {"inducing": X[:5], "n_inducing": 5, "learning_rate": 0.0, "max_iter": 2}
    model = VariationalGPClassifier(**options).fit(X, y)
    np.testing.assert_allclose(model.inducing_points_, (X[:5] - X.mean(0)) / X.std(0))


def test_one_latent_for_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    model = VariationalGPClassifier(n_inducing=10, likelihood="logistic", max_iter=40).fit(X[::3], y[::3])
    assert model.predict_latent(X[:2])[0].shape == (2, 1)
    assert model.score(X[1::3], y[1::3]) > 0.95


def test_progress_is_printed(iris, capsys):
    X, y, *_ = iris
    VariationalGPClassifier(n_inducing=5, max_iter=2, verbose=True).fit(X, y)
    assert capsys.readouterr().out.startswith("step 1 of 2: bound about -")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_inducing": None}, r"'n_inducing' parameter of VariationalGPClassifier must be an integer of at least 1"),
        ({"optimizer": "sgd"}, r"'optimizer' .*'natural', 'adam'; got 'sgd'"),
        ({"likelihood": "logistic"}, r"likelihood='logistic' is for two classes; got 3"),
        ({"batch_size": 0}, r"'batch_size' .* at least 1; got 0"),
        ({"max_iter": -1}, r"'max_iter' .* at least 0; got -1"),
        ({"learning_rate": -0.1}, r"'learning_rate' .* at least 0; got -0.1"),
        ({"natural_rate": 0.0}, r"'natural_rate' .* positive; got 0"),
        ({"natural_rate": 1.5}, r"'natural_rate' .* at most 1; got 1.5"),
        ({"learn_inducing": "yes"}, r"'learn_inducing' .* True or False; got 'yes'"),
        ({"inducing": "random"}, r"'inducing' .*'kmeans', 'greedy', or an array of points; got 'random'"),
        ({"inducing": np.zeros((3, 4))}, r"'inducing' .* 'n_inducing' points; got 3"),
        ({"kernel": 3}, r"'kernel' parameter of VariationalGPClassifier must be a kernel"),
        ({"random_state": 2**32}, r"'random_state' .* below 2\*\*32"),
        ({"learning_rate": "fast"}, r"'learning_rate' of VariationalGPClassifier must be numbers"),
        ({"warm_start": True}, r"'warm_start' .* None, 'matched' or a fitted GPClassifier; got True"),
        ({"warm_start": GPClassifier()}, r"must be a fitted GPClassifier; got one that is not fitted"),
    ],
)
def test_wrong_parameters_are_refused(iris, options, message):
    X, y, *_ = iris
    with pytest.raises(InvalidArgumentError, match=message):
        VariationalGPClassifier(**{"n_inducing": 5, "max_iter": 1} | options).fit(X, y)


def test_a_matched_model_of_another_kind_is_refused(iris, matched):
    X, y, *_ = iris
    with pytest.raises(InvalidArgumentError, match=r"same classes as 'y', \[0, 1\]; got \[0, 1, 2\]"):
        VariationalGPClassifier(warm_start=matched).fit(X[y < 2], y[y < 2])
    with pytest.raises(InvalidArgumentError, match=r"same columns as 'X', 3; got 4"):
        VariationalGPClassifier(warm_start=matched).fit(X[:, :3], y)
    with pytest.raises(InvalidArgumentError, match=r"inducing points and one kernel .*n_inducing=None"):
        VariationalGPClassifier(warm_start=GPClassifier(max_iter=0).fit(X, y)).fit(X, y)
    separate = GPClassifier(n_inducing=5, shared_kernel=False, max_iter=0).fit(X, y)
    with pytest.raises(InvalidArgumentError, match=r"shared_kernel=False"):
        VariationalGPClassifier(warm_start=separate).fit(X, y)
    with pytest.raises(InvalidArgumentError, match=r"clone empties"):
        clone(VariationalGPClassifier(warm_start=matched)).fit(X, y)


def test_an_error_leaves_a_fitted_model_as_it_was(iris):
    X, y, X_test, _ = iris
    model = VariationalGPClassifier(n_inducing=5, max_iter=2).fit(X, y)
    probs = model.predict_proba(X_test)
    with pytest.raises(InvalidArgumentError, match=r"at least two classes"):
        model.fit(X, y, sample_weight=(y == 1).astype(float))
    assert np.array_equal(model.predict_proba(X_test), probs)


def test_scikit_learn_checks_pass(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    results = check_estimator(VariationalGPClassifier(n_inducing=10, max_iter=3), on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
