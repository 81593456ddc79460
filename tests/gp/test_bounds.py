"""Evidence and collapsed bound against their definitions, each other and GPyTorch."""

import math

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from threadpoolctl import threadpool_limits
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

import gaussify.gp._exact as exact
import gaussify.gp.objectives._collapsed as collapsed
import gaussify.gp.objectives._passes as objective
from gaussify import LogisticLikelihood, SoftmaxLikelihood
from gaussify.gp._exact import exact_evidence, shared_variances
from gaussify.gp._rows import SortedRows
from gaussify.gp.objectives._collapsed import InducingStatistics, accumulate_collapsed_bound, collapsed_bound
from gaussify.gp.objectives._cross import AutogradCross, RBFCross
from gaussify.gp.objectives._passes import factorise
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior import ClassStatistics
from sampled import pairs_first

ALPHA = torch.tensor(0.1).double()
LIKELIHOODS = {
    "softmax": SoftmaxLikelihood(4, ALPHA),
    "asymmetric": SoftmaxLikelihood(3, torch.tensor([0.1, 0.3, 0.05]).double()),
    "gauss": SoftmaxLikelihood(4, ALPHA, "gauss"),
    "logistic": LogisticLikelihood(ALPHA),
}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
N, M, D = 40, 8, 3
LIMIT = objective._MOST_INFLATION


def problem(likelihood, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(N, D, generator=generator, dtype=torch.float64)
    labels = torch.randint(likelihood.n_classes, (N,), generator=generator)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D)).double()
    kernel.initialize(outputscale=2.0)
    return X, labels, kernel, likelihood.target_table()


def gaussian_evidence(covariance, labels, table, mean):
    """Sum over latents of the log-density of their targets."""
    return sum(
        MultivariateNormal(mean[k].expand(len(labels)), covariance + torch.diag(table.variance[labels, k])).log_prob(
            table.mean[labels, k]
        )
        for k in range(table.mean.shape[1])
    )


def direct_bound(kernel, Z, X, labels, table, mean):
    """Titsias' bound with matrices of the size of the data."""
    L = factorise(kernel, Z)
    features = torch.linalg.solve_triangular(L, kernel(Z, X).to_dense(), upper=False).mT
    left = kernel(X, diag=True) - features.square().sum(1)
    trace = (left[:, None] / table.variance[labels]).sum()
    return gaussian_evidence(features @ features.mT, labels, table, mean) - 0.5 * trace


@likelihoods
def test_the_exact_evidence_is_the_density_of_the_targets(likelihood):
    X, labels, kernel, table = problem(likelihood)
    covariance = kernel(X).to_dense().detach()
    found = exact_evidence(covariance, labels, table)
    assert_close(found.value, gaussian_evidence(covariance, labels, table, found.mean))
    for shift in (-0.1, 0.1):
        assert gaussian_evidence(covariance, labels, table, found.mean + shift) < found.value


def test_one_factorisation_for_all_classes_gives_what_one_for_each_gives(monkeypatch):
    X, labels, kernel, table = problem(LIKELIHOODS["softmax"])
    covariance = kernel(X).to_dense().detach().requires_grad_()
    shared = exact_evidence(covariance, labels, table)
    (by_shared,) = torch.autograd.grad(shared.value, covariance)
    monkeypatch.setattr(exact, "shared_variances", lambda table: None)
    general = exact_evidence(covariance, labels, table)
    (by_general,) = torch.autograd.grad(general.value, covariance)
    assert_close(shared.value, general.value)
    assert_close(shared.mean, general.mean)
    assert_close(by_shared, by_general)


def test_a_class_without_rows_keeps_its_latent():
    X, labels, kernel, table = problem(LIKELIHOODS["softmax"])
    covariance, few = kernel(X).to_dense().detach(), labels.clamp_max(2)
    found = exact_evidence(covariance, few, table)
    assert_close(found.value, gaussian_evidence(covariance, few, table, found.mean))


@pytest.mark.parametrize(
    ("name", "is_shared"), [("softmax", True), ("asymmetric", False), ("gauss", True), ("logistic", False)]
)
def test_work_is_shared_where_two_variances_are_all_there_are(name, is_shared):
    assert (shared_variances(LIKELIHOODS[name].target_table()) is not None) is is_shared


@likelihoods
def test_the_collapsed_bound_is_titsias_at_the_best_constant_means(likelihood):
    X, labels, kernel, table = problem(likelihood)
    found = accumulate_collapsed_bound(kernel, X[:M], SortedRows.of(X, labels, n_classes=likelihood.n_classes), table)
    with torch.no_grad():
        assert found.value == pytest.approx(direct_bound(kernel, X[:M], X, labels, table, found.mean).item())
        for shift in (-0.1, 0.1):
            assert direct_bound(kernel, X[:M], X, labels, table, found.mean + shift) < found.value


KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=D)),
    "one-lengthscale": lambda: ScaleKernel(RBFKernel()),
    "matern": lambda: ScaleKernel(MaternKernel(2.5, ard_num_dims=D)),
    "linear": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
}


@pairs_first(
    likelihood=LIKELIHOODS,
    kernel=KERNELS,
    kept={"kept": 1 << 24, "two passes": 0},
    chunk={"whole": 1 << 22, "chunks": 5 * M},
    elements={"latents together": 1 << 19, "latents one by one": 1},
    is_weighted={"once": False, "weighted": True},
)
def test_its_gradient_is_that_of_plain_differentiation(
    likelihood, kernel, kept, chunk, elements, is_weighted, monkeypatch
):
    monkeypatch.setattr(collapsed, "_ELEMENTS", elements)
    for way in (RBFCross, AutogradCross):
        monkeypatch.setattr(way, "n_elements", chunk)
        monkeypatch.setattr(way, "n_kept", kept)
    X, labels, _, table = problem(likelihood)
    kernel = kernel().double()
    Z = X[:M].clone().requires_grad_()
    weight = torch.tensor([1.0, 2.0, 1.0, 3.0] * (N // 4)).double() if is_weighted else None
    rows = SortedRows.of(X, labels, weight, n_classes=likelihood.n_classes)
    found = accumulate_collapsed_bound(kernel, Z, rows, table)
    copies = torch.ones(N).long() if weight is None else weight.long()
    X, labels = X.repeat_interleave(copies, 0), labels.repeat_interleave(copies)
    parameters = [Z, *kernel.parameters()]
    expected = direct_bound(kernel, Z, X, labels, table, found.mean)
    assert found.value == pytest.approx(expected.item(), rel=1e-9)
    for parameter, gradient in zip(parameters, torch.autograd.grad(expected, parameters), strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9 * gradient.abs().max().item())


@likelihoods
@pytest.mark.parametrize("is_weighted", [False, True], ids=["once", "weighted"])
@pytest.mark.parametrize("lengthscale", [0.3, 6.0], ids=["well conditioned", "at the limit"])
def test_sums_are_whitened_as_rows_are(likelihood, is_weighted, lengthscale, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(2000, D, generator=generator, dtype=torch.float64)
    labels = torch.randint(likelihood.n_classes, (len(X),), generator=generator)
    weight = torch.rand(len(X), generator=generator, dtype=torch.float64) if is_weighted else None
    rows = SortedRows.of(X, labels, weight, n_classes=likelihood.n_classes)
    found = []
    for most in (objective._MOST_INFLATION, 0.0):
        monkeypatch.setattr(objective, "_MOST_INFLATION", most)
        kernel, Z = ScaleKernel(RBFKernel(ard_num_dims=D)).double(), X[:M].clone().requires_grad_()
        kernel.base_kernel.initialize(lengthscale=lengthscale)
        value = accumulate_collapsed_bound(kernel, Z, rows, likelihood.target_table()).value
        found.append((value, Z.grad, *(parameter.grad for parameter in kernel.parameters())))
    factor = factorise(kernel, Z.detach()).detach()
    inflation = torch.cholesky_inverse(factor).diagonal().max().item() * kernel.outputscale.item()
    assert inflation < 2.0 if lengthscale < 1.0 else LIMIT / 10 < inflation < LIMIT
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-11)
    for sums, by_rows in zip(*(gradients[1:] for gradients in found), strict=True):
        assert_close(sums, by_rows, rtol=1e-8, atol=1e-8 * by_rows.abs().max().item())
    assert not torch.equal(found[0][1], found[1][1])  # two ways, not one


@pytest.mark.parametrize("kept", [1 << 24, 0], ids=["kept", "two passes"])
def test_threads_change_no_digit(kept, monkeypatch):
    m = 150  # enough for a BLAS to use threads
    monkeypatch.setattr(RBFCross, "n_kept", kept)
    monkeypatch.setattr(RBFCross, "n_elements", 120 * m)
    monkeypatch.setattr(collapsed, "_ELEMENTS", 1)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(1000, D, generator=generator, dtype=torch.float64)
    rows = SortedRows.of(X, torch.randint(4, (1000,), generator=generator), n_classes=4)
    _, _, kernel, table = problem(LIKELIHOODS["softmax"])
    kernel.base_kernel.initialize(lengthscale=0.3)
    found, before = [], torch.get_num_threads()
    try:
        for n_threads in (1, 2, 5):
            torch.set_num_threads(n_threads)
            Z = X[:m].clone().requires_grad_()
            with threadpool_limits(2, user_api="blas"):
                found.append((accumulate_collapsed_bound(kernel, Z, rows, table).value, Z.grad))
    finally:
        torch.set_num_threads(before)
    assert all(value == found[0][0] and torch.equal(gradient, found[0][1]) for value, gradient in found)


def test_inducing_points_at_all_rows_give_the_exact_evidence_and_fewer_less():
    X, labels, kernel, table = problem(LIKELIHOODS["softmax"])
    evidence = exact_evidence(kernel(X).to_dense().detach(), labels, table)
    rows = SortedRows.of(X, labels, n_classes=4)
    bounds = [accumulate_collapsed_bound(kernel, X[:m], rows, table).value for m in (2, 8, 20, N)]
    assert bounds == sorted(bounds)
    assert bounds[-2] < evidence.value.item()
    assert bounds[-1] == pytest.approx(evidence.value.item(), rel=1e-6)


def test_derivatives_by_statistics_are_those_of_the_bound():
    X, labels, _, table = problem(LIKELIHOODS["softmax"])
    rows = ClassStatistics.from_rows(X, labels, n_classes=4)
    start = collapsed_bound(InducingStatistics(rows, torch.full((4,), 99.0).double()), table)
    generator, step = torch.Generator().manual_seed(1), 1e-6
    noise = torch.randn(4, D, D, generator=generator, dtype=torch.float64)
    directions = {
        "feature_sum": torch.randn(4, D, generator=generator, dtype=torch.float64),
        "gram": noise + noise.mT,
    }
    derivatives = {"feature_sum": "by_sum", "gram": "by_gram"}
    for name, direction in directions.items():
        values = []
        for sign in (-1.0, 1.0):
            moved = {**vars(rows), name: getattr(rows, name) + sign * step * direction}
            values.append(
                collapsed_bound(InducingStatistics(ClassStatistics(**moved), torch.full((4,), 99.0).double()), table)
            )
        slope = (values[1].value - values[0].value) / (2.0 * step)
        assert slope == pytest.approx((getattr(start.gradient, derivatives[name]) * direction).sum().item(), rel=1e-5)


class _SGPR(gpytorch.models.ExactGP):
    """GPyTorch's sparse regression on one latent's targets."""

    def __init__(self, X, y, likelihood, kernel, Z, mean):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean().double()
        self.mean_module.initialize(constant=mean)
        self.covar_module = gpytorch.kernels.InducingPointKernel(kernel, Z.clone(), likelihood)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_value_and_gradient_are_those_of_gpytorch():
    X, labels, kernel, table = problem(LIKELIHOODS["softmax"])
    Z = X[:M].clone().requires_grad_()
    with gpytorch.settings.cholesky_jitter(double_value=1e-10):
        found = accumulate_collapsed_bound(kernel, Z, SortedRows.of(X, labels, n_classes=4), table)
    value, by_points = 0.0, torch.zeros_like(Z)
    for k in range(4):
        noise = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(table.variance[labels, k])
        model = _SGPR(X, table.mean[labels, k], noise, kernel, X[:M], found.mean[k].item())
        with (
            gpytorch.settings.fast_computations(log_prob=False, covar_root_decomposition=False),
            gpytorch.settings.cholesky_jitter(double_value=1e-10),
        ):
            mll = gpytorch.mlls.ExactMarginalLogLikelihood(noise, model)
            own = mll(model.train()(X), table.mean[labels, k]) * N
        own.backward()
        value += own.item()
        by_points += model.covar_module.inducing_points.grad
    assert found.value == pytest.approx(value, rel=1e-4)
    assert_close(Z.grad, by_points, rtol=1e-3, atol=1e-3 * Z.grad.abs().max().item())


def test_rows_are_sorted_by_class_and_chunks_tell_where_each_class_is():
    labels = torch.tensor([2, 0, 2, 2, 0])
    rows = SortedRows.of(torch.arange(5.0)[:, None], labels, n_classes=4)
    assert [(chunk.slices, chunk.features.flatten().tolist()) for chunk in rows.chunks(3)] == [
        ([(0, slice(0, 2)), (2, slice(2, 3))], [1, 4, 0]),
        ([(2, slice(0, 2))], [2, 3]),
    ]


def test_a_constant_is_explained_by_the_means_alone():
    table = PseudoTargets(torch.full((2, 1), 3.0).double(), torch.ones(2, 1).double())
    found = exact_evidence(torch.eye(6).double(), torch.tensor([0, 1] * 3), table)
    assert found.mean.item() == pytest.approx(3.0)
    assert found.value.item() == pytest.approx(-3.0 * math.log(2.0 * math.pi * 2.0))
