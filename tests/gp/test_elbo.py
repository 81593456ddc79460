"""The bound with the class likelihood: against its definition, against the evidence, and as something to learn by."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.utils.estimator_checks import check_estimator
from torch.testing import assert_close

import gaussify.gp.objectives._expectation as expectation
from gaussify import GPClassifier, SoftmaxLikelihood
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._rows import SortedRows
from gaussify.gp.learning._hyperparameters import LabelFamily, SearchSettings, learn_exact_with_labels
from gaussify.gp.objectives._expectation import sampled_expectation
from gaussify.gp.objectives._likelihood import (
    LikelihoodObjective,
    accumulate_likelihood_objective,
    dense_likelihood_objective,
    likelihood_objective_value,
    with_constant,
)
from gaussify.gp.objectives._passes import factorise
from gaussify.posterior import ClassStatistics
from gp.conftest import likelihoods

N, M, D, V = 40, 8, 3, 50.0
KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=D)).double(),
    "matern": lambda: ScaleKernel(MaternKernel(2.5)).double(),
}


def problem(n_classes, n=N, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, D, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] * 1.5 + torch.randn(n, generator=generator)).argsort().argsort() * n_classes // n
    return X, labels


def bound_of(likelihood):
    return LikelihoodObjective(likelihood.expected_log_prob)


def direct_elbo(kernel, Z, X, labels, likelihood):
    """With matrices of the size of the data, as it is defined."""
    L, m = factorise(kernel, Z), len(Z)
    features = torch.linalg.solve_triangular(L, kernel(Z, X).to_dense(), upper=False).mT
    left = kernel(X, diag=True) - features.square().sum(1)
    features = torch.cat([features, torch.full((len(X), 1), math.sqrt(V)).double()], 1)
    table, prior = (
        likelihood.target_table(),
        torch.distributions.MultivariateNormal(torch.zeros(m + 1).double(), torch.eye(m + 1).double()),
    )
    means, variances, divergence = [], [], 0.0
    for latent in range(likelihood.n_latents):
        y, v = table.mean[labels, latent], table.variance[labels, latent]
        precision = torch.eye(m + 1).double() + features.mT @ (features / v[:, None])
        mean = torch.linalg.solve(precision, features.mT @ (y / v))
        q = torch.distributions.MultivariateNormal(mean, precision_matrix=precision)
        divergence = divergence + torch.distributions.kl_divergence(q, prior)
        means.append(features @ mean)
        variances.append(left + (features * torch.linalg.solve(precision, features.mT).mT).sum(1))
    expected = likelihood.expected_log_prob(torch.stack(means, 1), torch.stack(variances, 1), labels)
    return expected.sum() - divergence


@likelihoods
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("elements", [1 << 19, 100], ids=["whole", "chunks"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["once", "weighted"])
def test_bound_and_gradient_are_those_of_the_definition(make, kernel, elements, is_weighted, monkeypatch):
    monkeypatch.setattr(expectation, "_ELEMENTS", elements)
    log_alpha = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    likelihood, kernel = make(log_alpha.exp()), kernel()
    X, labels = problem(likelihood.n_classes)
    Z = X[:M].clone().requires_grad_()
    weight = torch.tensor([1.0, 2.0, 1.0, 3.0] * (N // 4)).double() if is_weighted else None
    rows = SortedRows.of(X, labels, weight, n_classes=likelihood.n_classes)
    found = accumulate_likelihood_objective(
        kernel, Z, rows, likelihood.target_table(), bound_of(likelihood), constant_variance=V
    )
    copies = torch.ones(N).long() if weight is None else weight.long()
    expected = direct_elbo(
        kernel, Z, X.repeat_interleave(copies, 0), labels.repeat_interleave(copies), make(log_alpha.exp())
    )
    assert found == pytest.approx(expected.item(), rel=1e-8)
    parameters = [Z, log_alpha, *kernel.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(expected, parameters), strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-7 * gradient.abs().max().item())


@pytest.mark.parametrize("is_weighted", [False, True], ids=["once", "weighted"])
def test_a_sample_of_rows_stands_for_all(is_weighted):
    likelihood = SoftmaxLikelihood(4, torch.tensor(0.1).double())
    X, labels = problem(4)
    weight = torch.tensor([1.0, 20.0, 0.5, 3.0] * (N // 4)).double() if is_weighted else None
    rows, table = SortedRows.of(X, labels, weight, n_classes=4), likelihood.target_table()

    def bound(sample=None):
        return accumulate_likelihood_objective(
            KERNELS["rbf"](),
            X[:M],
            rows,
            table,
            bound_of(likelihood),
            constant_variance=V,
            sample=sample,
        )

    samples = [torch.arange(start, N, 4) for start in range(4)]
    assert np.mean([bound(sample) for sample in samples]) == pytest.approx(bound(), rel=1e-10)
    assert bound(torch.arange(N)) == bound()
    value = likelihood_objective_value(KERNELS["rbf"](), X[:M], rows, table, bound_of(likelihood), constant_variance=V)
    assert value == pytest.approx(bound(), rel=1e-12)


@likelihoods
def test_with_all_rows_as_inducing_points_it_is_that_of_exact_processes(make):
    likelihood, kernel = make(torch.tensor(0.1).double()), KERNELS["rbf"]()
    X, labels = problem(likelihood.n_classes)
    rows, table = SortedRows.of(X, labels, n_classes=likelihood.n_classes), likelihood.target_table()
    arguments = (table, bound_of(likelihood))
    sparse = accumulate_likelihood_objective(kernel, X, rows, *arguments, constant_variance=V)
    covariance = kernel(rows.features).to_dense().detach() + V
    assert sparse == pytest.approx(
        dense_likelihood_objective(covariance, rows.labels, *arguments, rows.weight).item(), rel=1e-6
    )


@likelihoods
def test_weights_of_exact_processes_count_as_copies(make):
    likelihood, kernel = make(torch.tensor(0.1).double()), KERNELS["rbf"]()
    X, labels = problem(likelihood.n_classes, n=12)
    copies = torch.tensor([1, 2, 3] * 4)
    arguments = (likelihood.target_table(), bound_of(likelihood))
    weighted = dense_likelihood_objective(kernel(X).to_dense().detach(), labels, *arguments, copies.double())
    X, labels = X.repeat_interleave(copies, 0), labels.repeat_interleave(copies)
    repeated = dense_likelihood_objective(
        kernel(X).to_dense().detach() + 1e-10 * torch.eye(len(X)).double(),
        labels,
        *arguments,
        torch.ones(len(X)).double(),
    )
    assert_close(weighted, repeated, rtol=1e-6, atol=1e-6)


@likelihoods
def test_gradcheck_of_exact_processes(make):
    X, _ = problem(2, n=8)
    labels = torch.arange(8) % make(torch.tensor(0.1).double()).n_classes
    distances = torch.cdist(X, X).square()

    def bound(log_scale, log_alpha):
        likelihood = make(log_alpha.exp())
        covariance = torch.exp(-distances * log_scale.exp()) + 1e-6 * torch.eye(8).double()
        table = likelihood.target_table()
        return dense_likelihood_objective(covariance, labels, table, bound_of(likelihood), torch.ones(8).double())

    start = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (-1.0, -2.0)]
    # the integrals have seven digits, which small steps would lose
    assert torch.autograd.gradcheck(bound, start, eps=1e-2, rtol=1e-3, atol=1e-3)


def log_evidence(covariance, labels, likelihood, n_samples):
    """Of the model with the class likelihood, by averaging it over the prior; with the standard error."""
    generator, root = torch.Generator().manual_seed(0), torch.linalg.cholesky(covariance)
    noise = torch.randn(n_samples, likelihood.n_latents, len(labels), generator=generator, dtype=torch.float64)
    log_prob = likelihood.log_prob((noise @ root.mT).mT, labels).sum(-1)
    prob = torch.exp(log_prob - log_prob.max())
    error = (prob.std() / prob.mean() / math.sqrt(n_samples)).item()
    return log_prob.max().item() + prob.mean().log().item(), error


@likelihoods
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
@pytest.mark.parametrize(
    ("n_samples", "largest_error"), [(50_000, 0.06), pytest.param(400_000, 0.02, marks=pytest.mark.slow)]
)
def test_it_lies_below_the_evidence_with_the_class_likelihood(make, alpha, n_samples, largest_error):
    likelihood = make(torch.tensor(alpha).double())
    X, _ = problem(2, n=7)
    labels = torch.arange(7) % likelihood.n_classes
    covariance = 2.0 * torch.exp(-0.5 * torch.cdist(X, X).square()) + 1e-6 * torch.eye(7).double()
    evidence, error = log_evidence(covariance, labels, likelihood, n_samples)
    assert error < largest_error
    arguments = (likelihood.target_table(), bound_of(likelihood))
    bound = dense_likelihood_objective(covariance, labels, *arguments, torch.ones(7).double()).item()
    assert evidence - 30.0 < bound < evidence + 3.0 * error


@pytest.mark.parametrize("method", ["variational", "moment", "laplace", "moment-ori"])
def test_the_learnt_alpha_eps_is_at_least_as_good_as_any_of_a_grid(method):
    X, y = load_iris(return_X_y=True)
    X, labels = torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)
    rows = SortedRows.of(X[::3], labels[::3], n_classes=3)
    likelihood = SoftmaxLikelihood(3)
    kernel = ScaleKernel(RBFKernel()).double().requires_grad_(False)
    kernel.initialize(outputscale=4.0)

    def targets(alpha_eps):
        return SoftmaxLikelihood(3, alpha_eps, method).target_table()

    first = torch.tensor(0.1, dtype=torch.float64)
    family = LabelFamily(targets, bound_of(likelihood), first, learns_alpha=True)
    settings = SearchSettings(shared_kernel=True, max_iter=100, tol=1e-10, verbose=False)
    _, learnt, report = learn_exact_with_labels(rows, family, kernel, settings)
    covariance = kernel(rows.features).to_dense() + constant_variance()

    def bound(alpha_eps):
        return dense_likelihood_objective(
            covariance, rows.labels, targets(alpha_eps), bound_of(likelihood), rows.weight
        ).item()

    assert bound(learnt) == pytest.approx(report.value, abs=1.0)  # but for the prior of alpha_eps
    grid = torch.tensor([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0], dtype=torch.float64)
    assert all(bound(learnt) > bound(alpha_eps) for alpha_eps in grid)
    assert 1e-3 < learnt.item() < 1.0


def test_samples_of_latents_average_to_the_integral():
    likelihood = SoftmaxLikelihood(3)
    mean, variance = torch.tensor([[1.0, -1.0, 0.0]]).double(), torch.tensor([[0.5, 2.0, 1.0]]).double()
    label = torch.tensor([1])
    exact = likelihood.expected_log_prob(mean, variance, label)
    sampled = sampled_expectation(likelihood, 100_000, seed=0)
    assert_close(sampled(mean, variance, label), exact, rtol=0.0, atol=0.02)
    assert torch.equal(sampled(mean, variance, label), sampled(mean, variance, label))


def test_a_constant_feature_adds_what_rows_with_it_would():
    X, labels = problem(3)
    found = with_constant(ClassStatistics.from_rows(X, labels), 2.0)
    expected = ClassStatistics.from_rows(torch.cat([X, torch.full((N, 1), 2.0).double()], 1), labels)
    for name in ("count", "feature_sum", "gram"):
        assert_close(getattr(found, name), getattr(expected, name))


# --- the classifier ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.mark.parametrize("n_inducing", [None, 15], ids=["exact", "sparse"])
@pytest.mark.parametrize("method", ["variational", "moment", "laplace", "moment-ori", "gauss"])
def test_every_method_learns(iris, n_inducing, method):
    X, y, X_test, y_test = iris
    model = GPClassifier(n_inducing=n_inducing, objective="elbo", method=method, max_iter=12).fit(X, y)
    assert model.score(X_test, y_test) > 0.9
    assert model.objective_value_ < 0.0
    if method != "gauss":
        assert model.alpha_eps_ not in (0.1, 0.05, 0.2)  # not one of a grid


@pytest.mark.parametrize("n_inducing", [None, 15], ids=["exact", "sparse"])
def test_alpha_eps_is_one_number_one_for_each_class_or_as_given(iris, n_inducing):
    X, y, *_ = iris
    make = lambda **options: GPClassifier(n_inducing=n_inducing, objective="elbo", max_iter=10, **options).fit(X, y)  # noqa: E731
    assert isinstance(make().alpha_eps_, float)
    assert len(set(make(alpha_eps="per-class").alpha_eps_)) == 3
    assert make(alpha_eps=0.3).alpha_eps_ == pytest.approx(0.3)


def test_a_logistic_likelihood_learns_two_numbers():
    X, y = load_breast_cancer(return_X_y=True)
    model = GPClassifier(
        n_inducing=10, objective="elbo", likelihood="logistic", alpha_eps="per-class", max_iter=10
    ).fit(X[::3], y[::3])
    assert len(set(model.alpha_eps_)) == 2
    assert model.predict_latent(X[:2])[0].shape == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"batch_size": 30}, {"expectation": 16}], ids=["batches", "samples"])
def test_batches_and_samples_learn_much_the_same(iris, options):
    X, y, X_test, _ = iris
    common = {"n_inducing": 10, "objective": "elbo", "temperature": 1.0, "max_iter": 40}
    exact = GPClassifier(**common).fit(X, y)
    other = GPClassifier(**common, **options).fit(X, y)
    difference = np.abs(exact.predict_proba(X_test) - other.predict_proba(X_test)).mean()
    assert 0.0 < difference < 0.05
    again = GPClassifier(**common, **options).fit(X, y)
    assert np.array_equal(again.predict_proba(X_test), other.predict_proba(X_test))


def test_it_is_saved_and_learns_more_rows(iris, tmp_path):
    X, y, X_test, y_test = iris
    model = GPClassifier(n_inducing=15, objective="elbo", alpha_eps="per-class", batch_size=50, max_iter=8).fit(X, y)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X_test), model.predict_proba(X_test))
    assert loaded.alpha_eps_ == model.alpha_eps_
    assert loaded.partial_fit(X_test, y_test).n_rows_seen_ == 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared_kernel": False}, r"needs shared_kernel=True"),
        ({"batch_size": 0}, r"'batch_size' parameter of GPClassifier must be an integer of at least 1; got 0"),
        ({"expectation": "monte-carlo"}, r"'expectation' parameter .* 'quadrature', or a number of samples"),
        ({"expectation": 0}, r"'expectation' parameter of GPClassifier must be .* a number of samples of at least 1"),
        ({"objective": "matched", "alpha_eps": "per-class"}, r"needs objective='elbo'"),
        ({"alpha_eps": "each"}, r"'alpha_eps'"),
        ({"objective": "evidence"}, r"'objective' .*matched.*elbo"),
    ],
)
def test_wrong_parameters_are_refused(iris, options, message):
    X, y, *_ = iris
    with pytest.raises(InvalidArgumentError, match=message):
        GPClassifier(**{"n_inducing": 15, "objective": "elbo"} | options).fit(X, y)


@pytest.mark.slow  # those of other objectives are in the default suite
def test_scikit_learn_checks_pass():
    results = check_estimator(GPClassifier(n_inducing=5, objective="elbo", max_iter=2), on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
