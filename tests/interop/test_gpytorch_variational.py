"""Variational models of GPyTorch that begin at a matched posterior."""

from copy import deepcopy
from functools import partial

import jaxtyping
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood
from gpytorch.likelihoods import SoftmaxLikelihood as GPyTorchSoftmaxLikelihood
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.settings import num_likelihood_samples
from gpytorch.variational import (
    BatchDecoupledVariationalStrategy,
    CholeskyVariationalDistribution,
    CiqVariationalStrategy,
    DeltaVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    LargeBatchVariationalStrategy,
    LMCVariationalStrategy,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
    NNVariationalStrategy,
    TrilNaturalVariationalDistribution,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)
from sklearn.exceptions import NotFittedError
from torch.testing import assert_close

from gaussify import GPClassifier
from gaussify.datasets import make_four_classes
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._likelihood import LikelihoodObjective, accumulate_likelihood_objective
from gaussify.interop.gpytorch import initialize_from_matched, scaled_inputs

DOUBLE = torch.float64
M, D, K = 25, 2, 4
STRATEGIES = [VariationalStrategy, UnwhitenedVariationalStrategy, LargeBatchVariationalStrategy]
FULL = [CholeskyVariationalDistribution, NaturalVariationalDistribution, TrilNaturalVariationalDistribution]
X, Y = make_four_classes(1200, random_state=0)
X[:, 1] *= 30.0  # so that it matters whether rows are scaled
X_TEST = make_four_classes(200, random_state=1)[0] * [1.0, 30.0]


def scaled_rbf(batch=(), d=D):
    shape = torch.Size(batch)
    return ScaleKernel(RBFKernel(ard_num_dims=d, batch_shape=shape), batch_shape=shape)


class Model(ApproximateGP):
    """As GPyTorch's documentation builds them, with choices."""

    def __init__(
        self,
        strategy=VariationalStrategy,
        distribution=CholeskyVariationalDistribution,
        *,
        mean=None,
        kernel=None,
        points=(M, D),
        batch=(K,),
        num_tasks=K,
        dtype=DOUBLE,
    ):
        base = strategy(self, torch.zeros(points), distribution(points[-2], batch_shape=torch.Size(batch)))
        super().__init__(base if num_tasks is None else IndependentMultitaskVariationalStrategy(base, num_tasks))
        self.mean_module = ConstantMean(batch_shape=torch.Size(batch)) if mean is None else mean
        self.covar_module = scaled_rbf() if kernel is None else kernel
        self.to(dtype)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Stretched(Model):
    def forward(self, x):
        return super().forward(2.0 * x)


@pytest.fixture(scope="module")
def classifier():
    fitted = GPClassifier(n_inducing=M, random_state=1).fit(X, Y)
    assert abs(fitted.temperature_ - 1.0) > 0.2
    return fitted


@pytest.fixture(scope="module")
def at_one():
    return GPClassifier(n_inducing=M, temperature=1.0).fit(X, Y)


@pytest.fixture(scope="module")
def binary():
    return GPClassifier(n_inducing=M, likelihood="logistic").fit(X, Y % 2)


@pytest.fixture
def _no_type_checks(monkeypatch):
    """As for users: the tests' check of annotations would refuse an argument before gaussify does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@torch.no_grad()
def latents(model, classifier, rows=X_TEST):
    dtype = next(model.parameters()).dtype
    found = model.eval()(scaled_inputs(classifier, rows, dtype))
    return found.mean.double().numpy(), found.variance.double().numpy()


@torch.no_grad()
def regression(model, classifier, constants):
    """Mean and variance of sparse regression on matched rows, in the prior of the model: from its definition."""
    strategy = getattr(model.variational_strategy, "base_variational_strategy", model.variational_strategy)
    kernel = deepcopy(classifier.kernel_)
    kernel.outputscale = kernel.outputscale / classifier.temperature_**2
    points, rows, new = (
        torch.from_numpy(classifier.inducing_points_),
        scaled_inputs(classifier, X, DOUBLE),
        scaled_inputs(classifier, X_TEST, DOUBLE),
    )
    labels = np.searchsorted(classifier.classes_, Y if len(classifier.classes_) > 2 else Y % 2)
    targets, noise = (part.double() for part in classifier.likelihood_.encode(torch.from_numpy(labels)))
    targets, noise = targets / classifier.temperature_, noise / classifier.temperature_**2
    prior = kernel(points).to_dense() + strategy.jitter_val * torch.eye(len(points), dtype=DOUBLE)
    cross, forward = (kernel(points, some).to_dense() for some in (rows, new))
    means, variances = [], []
    for y, v, c in zip(targets.T, noise.T, constants, strict=True):
        inner = prior + (cross / v) @ cross.T
        means.append(c + forward.T @ torch.linalg.solve(inner, cross @ ((y - c) / v)))
        explained = (forward * torch.linalg.solve(prior, forward)).sum(0)
        variances.append(kernel.outputscale - explained + (forward * torch.linalg.solve(inner, forward)).sum(0))
    return torch.stack(means, 1).numpy(), torch.stack(variances, 1).numpy()


def elbo(model, classifier, labels=Y):
    """GPyTorch's bound of all rows, with the same samples each time."""
    dtype = next(model.parameters()).dtype
    likelihood = GPyTorchSoftmaxLikelihood(num_classes=K, mixing_weights=False).to(dtype)
    objective = VariationalELBO(likelihood, model.train(), num_data=len(X))
    torch.manual_seed(0)
    with num_likelihood_samples(50):
        return len(X) * objective(model(scaled_inputs(classifier, X, dtype)), torch.from_numpy(labels))


# ---------------------------------------------------------------------------------------------------------------------
# Latents


@pytest.mark.parametrize("distribution", FULL)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_latents_are_those_of_the_classifier(classifier, strategy, distribution):
    mean, variance = latents(initialize_from_matched(Model(strategy, distribution), classifier), classifier)
    expected_mean, expected_variance = classifier.predict_latent(X_TEST)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-3, atol=1e-4)
    # less what a constant varies by when all else is known
    np.testing.assert_allclose(variance, expected_variance, rtol=0.1)
    assert np.median(np.abs(variance / expected_variance - 1.0)) < 2e-3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_latents_are_those_of_regression_in_the_model_itself(classifier, strategy):
    model = initialize_from_matched(Model(strategy), classifier)
    mean, variance = latents(model, classifier)
    constants = model.mean_module.constant.detach()
    expected_mean, expected_variance = regression(model, classifier, constants)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-4, atol=3e-6)  # GPyTorch adds jitter once more


def test_a_batch_of_kernels_and_points_gets_the_same_numbers(classifier):
    one = initialize_from_matched(Model(), classifier)
    many = initialize_from_matched(Model(kernel=scaled_rbf((K,)), points=(K, M, D)), classifier)
    points = many.variational_strategy.base_variational_strategy.inducing_points
    assert points.shape == (K, M, D)
    assert_close(points[2], torch.from_numpy(classifier.inducing_points_))
    assert_close(many.covar_module.base_kernel.lengthscale[3], classifier.kernel_.base_kernel.lengthscale)
    for found, expected in zip(latents(many, classifier), latents(one, classifier), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_constant_that_classes_share_is_their_average(classifier):
    own = initialize_from_matched(Model(), classifier).mean_module.constant
    model = initialize_from_matched(Model(mean=ConstantMean()), classifier)
    assert_close(model.mean_module.constant, own.mean())
    mean, _ = latents(model, classifier)
    expected, _ = regression(model, classifier, model.mean_module.constant.detach().expand(K))
    np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-7)


def test_without_a_constant_latents_agree_but_for_a_shift_of_all(classifier):
    model = initialize_from_matched(Model(mean=ZeroMean()), classifier)
    shared = initialize_from_matched(Model(mean=ConstantMean()), classifier)
    mean, variance = latents(model, classifier)
    expected_mean, expected_variance = latents(shared, classifier)
    np.testing.assert_allclose(mean, expected_mean - shared.mean_module.constant.item(), atol=1e-6)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-6)
    centred, expected = (own - own.mean(1, keepdims=True) for own in (mean, classifier.predict_latent(X_TEST)[0]))
    assert np.median(np.abs(centred - expected)) < 2e-3


def test_a_mean_that_is_not_constant_is_subtracted(classifier):
    torch.manual_seed(0)
    mean_module = LinearMean(D)
    model = initialize_from_matched(Model(mean=mean_module), classifier)
    centred, expected = (
        own - own.mean(1, keepdims=True)
        for own in (latents(model, classifier)[0], classifier.predict_latent(X_TEST)[0])
    )
    assert np.median(np.abs(centred - expected)) < 0.02
    assert elbo(model, classifier) > elbo(Model(mean=mean_module), classifier) + 500.0


@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
@pytest.mark.parametrize("batch", [(), (1,)])
def test_a_single_latent_needs_no_batch(binary, strategy, batch):
    model = initialize_from_matched(Model(strategy, batch=batch, num_tasks=None), binary)
    expected_mean, expected_variance = binary.predict_latent(X_TEST)
    mean, variance = latents(model, binary)
    np.testing.assert_allclose(mean.reshape(-1), expected_mean[:, 0], rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(variance.reshape(-1), expected_variance[:, 0], rtol=0.1)
    own_mean, _ = regression(model, binary, model.mean_module.constant.detach().reshape(1))
    np.testing.assert_allclose(mean.reshape(-1), own_mean[:, 0], rtol=1e-6, atol=1e-7)
    with torch.no_grad():
        probs = BernoulliLikelihood()(model(scaled_inputs(binary, X_TEST, DOUBLE))).probs.reshape(-1)
    np.testing.assert_array_equal(probs.numpy() > 0.5, mean.reshape(-1) > 0.0)


def test_a_single_latent_without_a_constant_is_not_shifted(binary):
    model = initialize_from_matched(Model(mean=ZeroMean(), batch=(), num_tasks=None), binary)
    expected, _ = regression(model, binary, torch.zeros(1, dtype=DOUBLE))
    np.testing.assert_allclose(latents(model, binary)[0], expected[:, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
def test_a_point_gets_the_mean(classifier, strategy):
    model = initialize_from_matched(Model(strategy, DeltaVariationalDistribution), classifier)
    assert_close(
        model.variational_strategy.variational_distribution.mean,
        initialize_from_matched(Model(strategy), classifier).variational_strategy.variational_distribution.mean,
    )


@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
def test_mean_field_is_the_best_of_its_family(classifier, strategy):
    full = initialize_from_matched(Model(strategy), classifier)
    model = initialize_from_matched(Model(strategy, MeanFieldVariationalDistribution), classifier)
    np.testing.assert_allclose(latents(model, classifier)[0], latents(full, classifier)[0], rtol=1e-6, atol=1e-6)
    at_first = elbo(model, classifier).item()
    assert elbo(full, classifier) > at_first
    std = model.variational_strategy.base_variational_strategy._variational_distribution._variational_stddev
    precision = torch.linalg.inv(full.variational_strategy.variational_distribution.covariance_matrix.detach())
    assert_close(std.detach(), precision.diagonal(dim1=-2, dim2=-1).rsqrt(), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("kernel", ["matern32", "linear"])
def test_other_kernels_are_handed_over(kernel):
    own = MaternKernel(1.5, ard_num_dims=D) if kernel == "matern32" else LinearKernel()
    own = ScaleKernel(own) if kernel == "matern32" else own
    fitted = GPClassifier(kernel, n_inducing=8).fit(X, Y)
    assert fitted.temperature_ != 1.0
    model = initialize_from_matched(Model(kernel=own, points=(8, D)), fitted)
    np.testing.assert_allclose(latents(model, fitted)[0], fitted.predict_latent(X_TEST)[0], rtol=2e-3, atol=1e-3)


def test_float32_stays_float32(classifier):
    model = initialize_from_matched(Model(dtype=torch.float32), classifier)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    mean, _ = latents(model, classifier)
    expected, _ = regression(model, classifier, model.mean_module.constant.detach().double())
    np.testing.assert_allclose(mean, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(mean, classifier.predict_latent(X_TEST)[0], rtol=0.01, atol=0.05)  # jitter is 1e-4 here


def test_other_constraints_give_the_same_kernel(classifier):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=D, lengthscale_constraint=GreaterThan(1e-3)))
    model = initialize_from_matched(Model(kernel=kernel), classifier)
    assert_close(model.covar_module.base_kernel.lengthscale, classifier.kernel_.base_kernel.lengthscale)
    assert_close(model.covar_module.outputscale, classifier.kernel_.outputscale / classifier.temperature_**2)


def test_points_that_are_not_learnt_are_set_too(classifier):
    fixed = partial(VariationalStrategy, learn_inducing_locations=False)
    model = initialize_from_matched(Model(fixed), classifier)
    assert not any("inducing" in name for name, _ in model.named_parameters())
    np.testing.assert_allclose(
        latents(model, classifier)[0], classifier.predict_latent(X_TEST)[0], rtol=1e-3, atol=1e-4
    )


def test_rows_that_come_later_count(classifier):
    more = deepcopy(classifier).partial_fit(X[:300] * 1.5, Y[:300])
    model = initialize_from_matched(Model(), more)
    np.testing.assert_allclose(latents(model, more)[0], more.predict_latent(X_TEST)[0], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# Training from there


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
def test_the_bound_begins_where_matching_ends(at_one, strategy, dtype):
    fitted = at_one.fitted_
    rows = SortedRows.of(scaled_inputs(at_one, X, DOUBLE), torch.from_numpy(Y), n_classes=K)
    expected = accumulate_likelihood_objective(
        deepcopy(at_one.kernel_),
        torch.from_numpy(at_one.inducing_points_),
        rows,
        fitted.table,
        LikelihoodObjective(fitted.likelihood.expected_log_prob),
        constant_variance=1e4,
    )
    found = elbo(initialize_from_matched(Model(strategy, dtype=dtype), at_one), at_one).item()
    # its constants have no prior, the others' a broad one: about log(100 / 0.5) less for each of four
    assert 0.0 < found - expected < 0.05 * abs(expected)
    assert found > elbo(Model(strategy, dtype=dtype), at_one) + 500.0


@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
@pytest.mark.parametrize("distribution", [CholeskyVariationalDistribution, MeanFieldVariationalDistribution])
def test_training_goes_on_from_there(at_one, strategy, distribution):
    model = initialize_from_matched(Model(strategy, distribution), at_one)
    at_first = elbo(model, at_one).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(15):
        optimizer.zero_grad()
        (-elbo(model, at_one) / len(X)).backward()
        optimizer.step()
    assert at_first < elbo(model, at_one).item() < at_first + 200.0
    assert np.corrcoef(latents(model, at_one)[0].ravel(), at_one.predict_latent(X_TEST)[0].ravel())[0, 1] > 0.99


def test_a_model_in_use_can_be_initialised_again(classifier, at_one):
    model = initialize_from_matched(Model(UnwhitenedVariationalStrategy), at_one)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    latents(model, at_one)  # which GPyTorch keeps
    assert initialize_from_matched(model, classifier) is model
    np.testing.assert_allclose(
        latents(model, classifier)[0], classifier.predict_latent(X_TEST)[0], rtol=1e-3, atol=1e-4
    )
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in model.parameters()}


def test_the_noise_that_gpytorch_adds_is_left_as_it_was(classifier):
    model = initialize_from_matched(Model(), classifier)
    assert model.variational_strategy.base_variational_strategy._variational_distribution.mean_init_std == 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# Inputs


def test_inputs_are_in_the_units_of_the_kernel(classifier):
    found = scaled_inputs(classifier, X)
    assert found.dtype == torch.get_default_dtype()
    assert_close(found, torch.from_numpy((X - X.mean(0)) / X.std(0)).float())
    assert scaled_inputs(classifier, X, DOUBLE).dtype == DOUBLE
    with pytest.raises(ValueError, match="3 features"):
        scaled_inputs(classifier, np.ones((2, 3)))


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


def lmc():
    model = Model(num_tasks=None)
    model.variational_strategy = LMCVariationalStrategy(model.variational_strategy, num_tasks=K, num_latents=K)
    return model


def without_kernel():
    model = Model()
    del model.covar_module
    return model


def nearest_neighbours():
    model = Model(num_tasks=None)
    q = MeanFieldVariationalDistribution(M, batch_shape=torch.Size((K,)))
    model.variational_strategy = NNVariationalStrategy(model, torch.rand(M, D), q, k=3)
    return model


MODELS = {
    "LMC": (lmc, "must have a VariationalStrategy .* got LMCVariationalStrategy"),
    "CIQ": (lambda: Model(CiqVariationalStrategy, NaturalVariationalDistribution), "got CiqVariationalStrategy"),
    "decoupled": (lambda: Model(BatchDecoupledVariationalStrategy), "got BatchDecoupledVariationalStrategy"),
    "nearest neighbours": (nearest_neighbours, "got NNVariationalStrategy"),
    "no kernel": (without_kernel, r"its kernel as model\.covar_module; got NoneType"),
    "points": (lambda: Model(points=(M + 1, D)), r"must have 25 inducing points of 2 features.*torch\.zeros\(25, 2\)"),
    "features": (lambda: Model(points=(M, 3), kernel=scaled_rbf(d=3)), r"of 2 features.*got shape \(25, 3\)"),
    "batch": (lambda: Model(batch=(3,), num_tasks=3), r"4 latents.*got batch_shape \(3,\).*torch\.Size\(\(4,\)\)"),
    "no batch": (lambda: Model(batch=(), mean=ZeroMean()), r"got batch_shape \(\)"),
    "tasks": (lambda: Model(num_tasks=3), "must have 4 tasks.*got 3"),
    "no scale": (
        lambda: Model(kernel=RBFKernel(ard_num_dims=D)),
        r"form of classifier\.kernel_, ScaleKernel\(RBFKernel\); got RBFKernel",
    ),
    "other kernel": (
        lambda: Model(kernel=ScaleKernel(MaternKernel(ard_num_dims=D))),
        r"got ScaleKernel\(MaternKernel\)",
    ),
    "one lengthscale": (lambda: Model(kernel=ScaleKernel(RBFKernel())), r"'base_kernel\.lengthscale'.*ard_num_dims"),
    "constraint": (
        lambda: Model(kernel=ScaleKernel(RBFKernel(ard_num_dims=D), outputscale_constraint=Interval(0.0, 1e-3))),
        "'outputscale' of ScaleKernel must be within .* Widen the constraint",
    ),
    "constants": (
        lambda: Model(mean=ConstantMean(batch_shape=torch.Size((3,)))),
        r"'constant' of ConstantMean must have the classifier's shape \(4,\).*got \(3,\)",
    ),
    "stretched": (Stretched, "must pass its inputs unchanged to covar_module"),
}


@pytest.mark.filterwarnings("ignore:Tried to import faiss")
@pytest.mark.parametrize("name", MODELS)
def test_models_that_do_not_fit_are_refused_and_stay_as_they_were(classifier, name):
    make, message = MODELS[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(InvalidArgumentError, match=message):
        initialize_from_matched(model, classifier)
    assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)


def test_a_fixed_setting_of_a_kernel_must_agree():
    fitted = GPClassifier("matern32", n_inducing=8, temperature=1.0, max_iter=5).fit(X, Y)
    model = Model(kernel=ScaleKernel(MaternKernel(2.5, ard_num_dims=D)), points=(8, D))
    with pytest.raises(InvalidArgumentError, match=r"fixed settings of kernels \(nu, active_dims\)"):
        initialize_from_matched(model, fitted)


def test_a_temperature_needs_a_scale():
    kernel = RBFKernel(ard_num_dims=D) + LinearKernel()
    fitted = GPClassifier(kernel, n_inducing=8, temperature=2.0, max_iter=5).fit(X, Y)
    with pytest.raises(InvalidArgumentError, match=r"ScaleKernel; got AdditiveKernel.*temperature=1\.0"):
        initialize_from_matched(Model(kernel=deepcopy(kernel), points=(8, D)), fitted)
    fitted = GPClassifier(kernel, n_inducing=8, temperature=1.0, max_iter=5).fit(X, Y)
    model = initialize_from_matched(Model(kernel=deepcopy(kernel), points=(8, D)), fitted)
    np.testing.assert_allclose(latents(model, fitted)[0], fitted.predict_latent(X_TEST)[0], rtol=2e-3, atol=1e-3)


def test_classifiers_that_do_not_fit_are_refused():
    with pytest.raises(NotFittedError):
        initialize_from_matched(Model(), GPClassifier(n_inducing=M))
    with pytest.raises(NotFittedError):
        scaled_inputs(GPClassifier(n_inducing=M), X)
    with pytest.raises(InvalidArgumentError, match=r"inducing points.*n_inducing=None.*n_inducing=\.\.\."):
        initialize_from_matched(Model(), GPClassifier(max_iter=1).fit(X[:50], Y[:50]))
    with pytest.raises(InvalidArgumentError, match=r"got n_inducing=5, shared_kernel=False.*shared_kernel=True"):
        initialize_from_matched(
            Model(points=(5, D)), GPClassifier(n_inducing=5, shared_kernel=False, max_iter=1).fit(X[:50], Y[:50])
        )


@pytest.mark.usefixtures("_no_type_checks")
def test_arguments_of_another_type_are_refused(classifier):
    with pytest.raises(InvalidArgumentError, match="ApproximateGP; got ExactGP"):
        initialize_from_matched(ExactGP(None, None, GaussianLikelihood()), classifier)
    with pytest.raises(InvalidArgumentError, match="must be a GPClassifier; got Model"):
        initialize_from_matched(Model(), Model())
    with pytest.raises(InvalidArgumentError, match="of scaled_inputs must be a GPClassifier; got int"):
        scaled_inputs(3, X)
