"""Each row given all others as the objective: against models fitted without it, and as something to learn by."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import check_estimator
from torch.testing import assert_close

import gaussify.gp.learning._schedule as schedule
import gaussify.gp.objectives._expectation as expectation
from gaussify import GPClassifier, LogisticLikelihood, SoftmaxLikelihood, metrics
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._expectation import log_predictive
from gaussify.gp.objectives._likelihood import (
    LikelihoodObjective,
    accumulate_likelihood_objective,
    dense_likelihood_objective,
    likelihood_objective_value,
)
from gaussify.gp.objectives._passes import factorise
from gp.conftest import likelihoods

N, M, D, V = 24, 6, 3, 50.0
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0] * (N // 4)).double()


def leave_one_out(likelihood):
    return LikelihoodObjective(log_predictive(likelihood), leaves_out=True)


def make_kernel():
    return ScaleKernel(RBFKernel(ard_num_dims=D)).double()


def problem(likelihood, weight=None):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, D, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] * 1.5 + torch.randn(N, generator=generator)).argsort().argsort() * likelihood.n_classes // N
    return SortedRows.of(X, labels, weight, n_classes=likelihood.n_classes)


def by_leaving_out(features, left, rows, likelihood):
    """As it is defined: a posterior of all other rows for each (of a row that counts more than once, one is left)."""
    table, scores = likelihood.target_table(), []
    for i, label in enumerate(rows.labels):
        others = rows.weight.clone()
        others[i] = max(others[i].item() - 1.0, 0.0)
        means, variances = [], []
        for y, v in zip(table.mean.T[:, rows.labels], table.variance.T[:, rows.labels], strict=True):
            precision = torch.eye(features.shape[1]).double() + features.mT @ (features * (others / v)[:, None])
            means.append(features[i] @ torch.linalg.solve(precision, features.mT @ (others * y / v)))
            variances.append(left[i] + features[i] @ torch.linalg.solve(precision, features[i]))
        probs = likelihood.predict_proba(torch.stack(means)[None], torch.stack(variances)[None])
        scores.append(rows.weight[i] * probs[0, label].log())
    return torch.stack(scores).sum()


def inducing_features(kernel, Z, X):
    L = factorise(kernel, Z)
    features = torch.linalg.solve_triangular(L, kernel(Z, X).to_dense(), upper=False).mT
    left = kernel(X, diag=True) - features.square().sum(1)
    return torch.cat([features, torch.full((len(X), 1), math.sqrt(V)).double()], 1), left


@likelihoods
@pytest.mark.parametrize("elements", [1 << 19, 100], ids=["whole", "chunks"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["once", "weighted"])
def test_value_and_gradient_are_those_of_the_definition(make, elements, weight, monkeypatch):
    monkeypatch.setattr(expectation, "_ELEMENTS", elements)
    log_alpha = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    likelihood, kernel = make(log_alpha.exp()), make_kernel()
    rows = problem(likelihood, weight)
    Z = rows.features[:M].clone().requires_grad_()
    arguments = (likelihood.target_table(), leave_one_out(likelihood))
    found = accumulate_likelihood_objective(kernel, Z, rows, *arguments, constant_variance=V)
    expected = by_leaving_out(*inducing_features(kernel, Z, rows.features), rows, make(log_alpha.exp()))
    assert found == pytest.approx(expected.item(), rel=1e-8)
    parameters = [Z, log_alpha, *kernel.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(expected, parameters), strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-7 * gradient.abs().max().item())
    alone = likelihood_objective_value(kernel, Z.detach(), rows, *arguments, constant_variance=V)
    assert alone == pytest.approx(found, rel=1e-12)


@likelihoods
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["once", "weighted"])
def test_with_all_rows_as_inducing_points_it_is_that_of_exact_processes(make, weight):
    likelihood, kernel = make(torch.tensor(0.1).double()), make_kernel()
    rows = problem(likelihood, weight)
    arguments = (likelihood.target_table(), leave_one_out(likelihood))
    sparse = accumulate_likelihood_objective(kernel, rows.features, rows, *arguments, constant_variance=V)
    covariance = kernel(rows.features).to_dense().detach() + V
    exact = dense_likelihood_objective(covariance, rows.labels, *arguments, rows.weight)
    assert sparse == pytest.approx(exact.item(), rel=1e-5)


@likelihoods
def test_gradcheck_of_exact_processes(make):
    rows = problem(make(torch.tensor(0.1).double()))
    X, labels = rows.features[::3], rows.labels[::3]
    distances = torch.cdist(X, X).square()

    def value(log_scale, log_alpha):
        likelihood = make(log_alpha.exp())
        covariance = torch.exp(-distances * log_scale.exp()) + 1e-6 * torch.eye(8).double()
        arguments = (likelihood.target_table(), leave_one_out(likelihood))
        return dense_likelihood_objective(covariance, labels, *arguments, torch.ones(8).double())

    start = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (-1.0, -2.0)]
    # the integrals have seven digits, which small steps would lose
    assert torch.autograd.gradcheck(value, start, eps=1e-2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["once", "weighted"])
def test_a_sample_of_rows_stands_for_all(weight):
    likelihood = SoftmaxLikelihood(4, torch.tensor(0.1).double())
    rows = problem(likelihood, weight)
    arguments = (make_kernel(), rows.features[:M], rows, likelihood.target_table(), leave_one_out(likelihood))

    def value(sample=None):
        return accumulate_likelihood_objective(*arguments, constant_variance=V, sample=sample)

    samples = [torch.arange(start, N, 4) for start in range(4)]
    assert np.mean([value(sample) for sample in samples]) == pytest.approx(value(), rel=1e-10)


def test_samples_of_latents_average_to_the_integral():
    likelihood = SoftmaxLikelihood(3)
    mean, variance = torch.tensor([[1.0, -1.0, 0.0]]).double(), torch.tensor([[0.5, 2.0, 1.0]]).double()
    label = torch.tensor([1])
    sampled, exact = log_predictive(likelihood, 100_000), log_predictive(likelihood)
    assert_close(sampled(mean, variance, label), exact(mean, variance, label), rtol=0.0, atol=0.02)
    assert torch.equal(sampled(mean, variance, label), sampled(mean, variance, label))
    assert not torch.equal(
        log_predictive(likelihood, 10, 1)(mean, variance, label), log_predictive(likelihood, 10)(mean, variance, label)
    )


def test_samples_have_a_derivative_where_nothing_is_uncertain():
    mean, variance = torch.zeros(2, 3).double(), torch.zeros(2, 3).double().requires_grad_()
    log_predictive(SoftmaxLikelihood(3), 8)(mean, variance, torch.tensor([0, 1])).sum().backward()
    assert bool(variance.grad.isfinite().all())


@pytest.mark.parametrize("gap", [5.0, 20.0, 40.0])
def test_rare_labels_have_their_digits(gap):
    """Far from zero, the logistic is an exponential, and its expectation one of a log-normal."""
    mean, variance = torch.full((9, 1), -gap).double().requires_grad_(), torch.full((9, 1), 0.1).double()
    value = log_predictive(LogisticLikelihood())(mean, variance, torch.ones(9).long())
    tolerance = 2.0 * math.exp(-gap) + 2e-6
    assert_close(value, torch.full((9,), -gap + 0.05).double(), rtol=0.0, atol=tolerance)
    (gradient,) = torch.autograd.grad(value.sum(), mean)
    assert_close(gradient, torch.ones(9, 1).double(), rtol=0.0, atol=tolerance)


# --- the classifier ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_inducing", [None, 15], ids=["exact", "sparse"])
@pytest.mark.parametrize("method", ["variational", "moment", "laplace", "moment-ori"])
def test_rows_given_all_others_are_predicted_better_than_by_the_evidence(n_inducing, method):
    X, y = (part[::2] for part in load_iris(return_X_y=True))
    common = {"n_inducing": n_inducing, "method": method, "temperature": 1.0, "max_iter": 15}
    matched = GPClassifier(**common, alpha_eps=0.1).fit(X, y)
    learnt = GPClassifier(**common, objective="leave-one-out").fit(X, y)
    assert learnt.score_ > matched.score_
    assert learnt.objective_ == "leave-one-out"
    # but for priors, and the variance of constant means
    assert learnt.objective_value_ == pytest.approx(len(y) * learnt.score_, abs=12.0)


def test_rows_that_no_search_has_seen_are_predicted_well():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    common = {"n_inducing": 20, "sample_size": 80, "temperature": 1.0, "max_iter": 20}
    matched = GPClassifier(**common).fit(X, y)
    model = GPClassifier(**common, objective="leave-one-out", alpha_eps="per-class").fit(X, y)
    assert np.shape(model.alpha_eps_) == (2,)
    nll = [metrics.nll(own.predict_proba(X_test), y_test) for own in (model, matched)]
    assert nll[0] < nll[1] + 0.005


def test_a_given_temperature_is_that_of_the_rows():
    X, y = load_iris(return_X_y=True)
    common = {"n_inducing": 10, "objective": "leave-one-out", "max_iter": 10}
    cold, warm = (GPClassifier(**common, temperature=t).fit(X, y) for t in (0.5, 2.0))
    assert cold.objective_value_ == pytest.approx(150 * cold.score_, abs=12.0)
    assert warm.objective_value_ == pytest.approx(150 * warm.score_, abs=12.0)
    assert not np.array_equal(cold.inducing_points_, warm.inducing_points_)


def test_alpha_eps_goes_no_lower_than_it_may_be_given():
    """Where labels follow from the inputs, ever smaller numbers predict them ever better."""
    X = np.linspace(-3.0, 3.0, 60)[:, None]
    model = GPClassifier(n_inducing=10, objective="leave-one-out", method="moment-ori", temperature=1.0, max_iter=60)
    assert model.fit(X, X[:, 0] > 0.0).alpha_eps_ >= 1e-8
    again = GPClassifier(n_inducing=10, alpha_eps=model.alpha_eps_, max_iter=5).fit(X, X[:, 0] > 0.0)
    assert np.isfinite(again.score_)


def test_it_is_saved_and_loaded(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(n_inducing=8, objective="leave-one-out", alpha_eps="per-class", max_iter=5).fit(X, y)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    assert loaded.objective_ == "leave-one-out"
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_samples_are_by_the_seed(monkeypatch):
    asked = []

    def spy(likelihood, n_samples, seed):
        asked.append((n_samples, seed))
        return log_predictive(likelihood, n_samples, seed)

    monkeypatch.setattr(schedule, "log_predictive", spy)
    X, y = load_iris(return_X_y=True)
    GPClassifier(n_inducing=8, objective="leave-one-out", expectation=8, max_iter=3, random_state=5).fit(X, y)
    assert set(asked) == {(8, 5)}


def test_each_kernel_for_itself_is_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(
        InvalidArgumentError, match=r"objective='leave-one-out' of GPClassifier needs shared_kernel=True"
    ):
        GPClassifier(objective="leave-one-out", shared_kernel=False).fit(X, y)


@pytest.mark.slow  # those of other objectives are in the default suite
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_scikit_learn_checks_pass(n_inducing):
    check_estimator(GPClassifier(n_inducing=n_inducing, objective="leave-one-out", max_iter=3))
