"""The parts of Gaussian process classification, each against its definition."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, rankdata
from sklearn.cluster import KMeans
from torch.testing import assert_close

import gaussify.gp._models as models
from gaussify import SoftmaxLikelihood
from gaussify._calibration import Criterion, LabelledRows, LabelParameters, LikelihoodKind, choose_by_latents
from gaussify._numerics import stable_cholesky
from gaussify._numerics._optimise import maximise
from gaussify.exceptions import InvalidArgumentError, JitterWarning, NumericalError
from gaussify.gp._exact import ExactPosterior, SeparateSolver, SharedSolver
from gaussify.gp._inducing import InducingInit, first_points, greedy_points
from gaussify.gp._kernels import add_log_priors, make_kernel
from gaussify.gp._models import InducingFeatures, SparseModel
from gaussify.gp._rows import SortedRows
from gaussify.gp._scaling import ScalingKind, fit_scaling
from gaussify.gp.objectives._cross import AutogradCross, RBFCross, cross_kernel
from gaussify.gp.objectives._passes import factorise
from gaussify.likelihoods import LikelihoodMethod, PredictiveMethod

N, D = 40, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * [1.0, 20.0, 1e-4] + [0.0, -300.0, 5.0]
ONES = np.ones(N)
WEIGHT = RNG.integers(1, 4, size=N).astype(float)
ROWS = torch.from_numpy(RNG.normal(size=(N, D)))


def rbf(d: int = D, *, ard: bool = True) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=d if ard else None)).double()
    kernel.initialize(outputscale=torch.tensor(2.5).double())
    scale = torch.linspace(0.5, 2.0, d).double() if ard else torch.tensor([0.8]).double()
    kernel.base_kernel.initialize(lengthscale=scale[None])
    return kernel


# --- scaling -------------------------------------------------------------------------------------------------------


def test_standard_scaling_gives_mean_zero_and_variance_one():
    scaled = fit_scaling(X, ONES, ScalingKind.STANDARD)(X)
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(scaled.std(0), 1.0, rtol=1e-9)


def test_standard_scaling_goes_on_beyond_the_rows():
    scaling = fit_scaling(X, ONES, ScalingKind.STANDARD)
    np.testing.assert_allclose(scaling(X * 1e6), (X * 1e6 - X.mean(0)) / X.std(0), rtol=1e-6)


@pytest.mark.parametrize("kind", list(ScalingKind))
def test_a_row_of_weight_two_counts_as_that_row_twice(kind):
    copies = WEIGHT.astype(int)
    weighted, repeated = fit_scaling(X, WEIGHT, kind), fit_scaling(np.repeat(X, copies, 0), np.ones(copies.sum()), kind)
    np.testing.assert_allclose(weighted(X), repeated(X), rtol=1e-9, atol=1e-9)
    assert np.abs(weighted(X) - fit_scaling(X, ONES, kind)(X)).max() > 1e-2


def test_quantile_scaling_gives_normal_scores_of_the_ranks():
    scaled = fit_scaling(X, ONES, ScalingKind.QUANTILE)(X)
    np.testing.assert_allclose(scaled, norm.ppf((rankdata(X, axis=0) - 0.5) / N), atol=1e-12)


def test_quantile_scaling_gives_ties_their_middle_rank_and_is_flat_beyond_the_rows():
    column = np.array([[0.0], [1.0], [1.0], [1.0], [9.0]])
    scaling = fit_scaling(column, np.ones(5), ScalingKind.QUANTILE)
    np.testing.assert_allclose(scaling(column)[:, 0], norm.ppf([0.1, 0.5, 0.5, 0.5, 0.9]), atol=1e-12)
    np.testing.assert_allclose(scaling(np.array([[-1e9], [5.0], [1e9]]))[:, 0], norm.ppf([0.1, 0.7, 0.9]), atol=0.2)
    np.testing.assert_array_equal(scaling(np.array([[-1e9], [1e9]])), scaling(np.array([[0.0], [9.0]])))


@settings(max_examples=20)
@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30))
def test_quantile_scaling_keeps_the_order(numbers):
    column = np.array(numbers)[:, None]
    scaled = fit_scaling(column, np.ones(len(column)), ScalingKind.QUANTILE)(np.sort(column, axis=0))
    assert np.isfinite(scaled).all()
    assert (np.diff(scaled[:, 0]) >= 0.0).all()


def test_quantile_scaling_of_many_rows_has_a_bounded_number_of_knots():
    column = np.random.default_rng(1).standard_t(2, size=(5000, 1))
    scaling = fit_scaling(column, np.ones(5000), ScalingKind.QUANTILE)
    assert len(scaling.knots) <= 1000
    exact = norm.ppf((rankdata(column) - 0.5) / 5000)
    inner = np.abs(exact) < 2.5  # between knots at the ends there are several rows
    np.testing.assert_allclose(scaling(column)[inner, 0], exact[inner], atol=0.02)
    assert scaling(column).max() == pytest.approx(exact.max())


@pytest.mark.parametrize("kind", list(ScalingKind))
def test_a_constant_column_becomes_zero(kind):
    rows = np.column_stack([X[:, 0], np.full(N, 7.3), np.zeros(N), np.full(N, 1e-200), np.full(N, -1e120)])
    scaled = fit_scaling(rows, ONES, kind)(rows)
    np.testing.assert_allclose(scaled[:, 1:], 0.0, atol=1e-9)
    assert scaled[:, 0].std() > 0.5


@pytest.mark.parametrize("kind", list(ScalingKind))
@pytest.mark.parametrize("factor", [1e120, 1e-120])
def test_the_scale_of_a_column_does_not_matter(kind, factor):
    np.testing.assert_allclose(
        fit_scaling(X * factor, ONES, kind)(X * factor), fit_scaling(X, ONES, kind)(X), rtol=1e-9, atol=1e-9
    )


def test_no_scaling_changes_nothing():
    np.testing.assert_allclose(fit_scaling(X, ONES, None)(X), X, rtol=1e-15)


def test_scalings_are_equal_only_if_they_scale_alike():
    kinds = [None, *ScalingKind]
    scalings = [fit_scaling(rows, ONES, kind) for kind in kinds for rows in (X, X + 1.0)]
    for i, own in enumerate(scalings):
        same = [j for j, other in enumerate(scalings) if own.equals(other)]
        assert same == ([0, 1] if i < 2 else [i])


# --- inducing points -----------------------------------------------------------------------------------------------

KERNELS = {
    "rbf": rbf,
    "one-lengthscale": lambda: rbf(ard=False),
    "matern": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=D)).double(),
    "sum": lambda: (ScaleKernel(RBFKernel()) + LinearKernel()).double(),
    "some-columns": lambda: ScaleKernel(RBFKernel(active_dims=[0, 2])).double(),
}
kernels = pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)


@kernels
def test_greedy_points_have_the_largest_conditional_variance_in_turn(make):
    kernel = make()
    chosen = greedy_points(kernel, ROWS, 6)
    K = kernel(ROWS).to_dense().detach()
    places: list[int] = []
    for point in chosen:
        left = K.diagonal()
        if places:
            left = left - (K[places].mT * torch.linalg.solve(K[places][:, places], K[places]).mT).sum(1)
        found = int((ROWS - point).abs().sum(1).argmin())
        assert left[found] == pytest.approx(left.max().item(), rel=1e-6)
        places.append(found)
    assert len(set(places)) == 6


def test_greedy_points_differ_even_where_nothing_is_left_uncertain():
    rows = torch.arange(10.0).double()[:, None]
    points = greedy_points(LinearKernel().double(), rows, 4)  # of rank one
    assert len(torch.unique(points)) == 4


def test_centres_of_clusters_are_those_of_weighted_kmeans():
    found = first_points(InducingInit.KMEANS, 5, ROWS, torch.from_numpy(WEIGHT), rbf(), seed=0)
    rows, weight = ROWS.numpy(), WEIGHT
    expected = KMeans(5, init=found.numpy(), n_init=1).fit(rows, sample_weight=weight).cluster_centers_
    np.testing.assert_allclose(np.sort(found, 0), np.sort(expected, 0), atol=1e-6)  # nothing is left to improve


@pytest.mark.parametrize("how", list(InducingInit))
@pytest.mark.parametrize("n_points", [N, 100])
def test_points_are_all_rows_where_there_are_no_more(how, n_points):
    twice = torch.cat([ROWS, ROWS[:7]])
    points = first_points(how, n_points, twice, torch.ones(N + 7).double(), rbf(), seed=0)
    assert_close(torch.unique(points, dim=0), torch.unique(ROWS, dim=0))


@pytest.mark.parametrize("how", list(InducingInit))
def test_points_do_not_depend_on_the_order_of_the_rows(how):
    order = torch.from_numpy(np.random.default_rng(2).permutation(N))
    weight = torch.from_numpy(WEIGHT)
    first = first_points(how, 6, ROWS, weight, rbf(), seed=3)
    assert torch.equal(first_points(how, 6, ROWS[order], weight[order], rbf(), seed=3), first)


@pytest.mark.parametrize("how", list(InducingInit))
def test_points_of_many_rows_are_found_from_a_sample(how, monkeypatch):
    seen = []

    class Watched(KMeans):
        def fit(self, X, y=None, sample_weight=None):
            seen.append(len(X))
            return super().fit(X, y, sample_weight)

    def greedy(kernel, rows, n_points):
        seen.append(len(rows))
        return rows[:n_points]

    monkeypatch.setattr("sklearn.cluster.KMeans", Watched)
    monkeypatch.setattr("gaussify.gp._inducing.greedy_points", greedy)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(3000, 2)))
    assert first_points(how, 4, rows, torch.ones(3000).double(), rbf(2), seed=0).shape == (4, 2)
    assert seen == [1000]


# --- kernels -------------------------------------------------------------------------------------------------------

SPREAD = torch.tensor([1.0, 2.0, 0.1]).double()


@pytest.mark.parametrize("name", [None, "rbf", "matern12", "matern32", "matern52"])
def test_a_named_kernel_begins_with_lengthscales_about_the_distance_of_two_rows(name):
    kernel = make_kernel(name, SPREAD, 9.0, owner="test")
    assert_close(kernel.base_kernel.lengthscale[0], math.sqrt(3.0) * SPREAD, rtol=1e-6, atol=0.0)
    assert kernel.outputscale.item() == pytest.approx(9.0)
    assert {parameter.dtype for parameter in kernel.parameters()} == {torch.float64}


def distance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square((A[:, None] - B[None]) / (math.sqrt(3.0) * SPREAD.numpy())).sum(-1))


DEFINITIONS = {
    "rbf": lambda r: np.exp(-0.5 * r**2),
    "matern12": lambda r: np.exp(-r),
    "matern32": lambda r: (1.0 + math.sqrt(3.0) * r) * np.exp(-math.sqrt(3.0) * r),
    "matern52": lambda r: (1.0 + math.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * np.exp(-math.sqrt(5.0) * r),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_named_kernel_is_what_its_name_says(name):
    kernel = make_kernel(name, SPREAD, 9.0, owner="test")
    found = kernel(ROWS[:6], ROWS[6:]).to_dense().detach().numpy()
    np.testing.assert_allclose(found, 9.0 * DEFINITIONS[name](distance(ROWS[:6].numpy(), ROWS[6:].numpy())), rtol=1e-6)


def test_the_linear_kernel_is_a_scaled_product():
    kernel = make_kernel("linear", SPREAD, 9.0, owner="test")
    expected = 9.0 / SPREAD.square().sum() * ROWS @ ROWS.mT
    assert_close(kernel(ROWS).to_dense().detach(), expected, rtol=1e-6, atol=1e-9)


def test_a_kernel_object_is_copied_in_float64():
    given_kernel = ScaleKernel(RBFKernel())
    kernel = make_kernel(given_kernel, SPREAD, 9.0, owner="test")
    with torch.no_grad():
        kernel.raw_outputscale.fill_(5.0)
    assert kernel.raw_outputscale.dtype == torch.float64
    assert given_kernel.raw_outputscale.item() == 0.0
    assert given_kernel.raw_outputscale.dtype == torch.float32


@pytest.mark.parametrize("kernel", ["rbff", 3, RBFKernel, RBFKernel(batch_shape=torch.Size([2]))], ids=str)
def test_what_is_no_kernel_is_refused(kernel):
    with pytest.raises(InvalidArgumentError, match="The 'kernel' parameter of test must"):
        make_kernel(kernel, SPREAD, 9.0, owner="test")


def test_the_log_prior_is_that_of_a_broad_log_normal():
    kernel = make_kernel("rbf", SPREAD, 9.0, owner="test")
    scale = kernel.base_kernel.lengthscale.detach().numpy()[0]
    z = (np.log(scale) - (math.sqrt(2.0) + math.log(3.0) / 2.0 + np.log(SPREAD.numpy()))) / math.sqrt(3.0)
    assert add_log_priors(kernel) == pytest.approx((norm.logpdf(z) - np.log(math.sqrt(3.0) * scale)).sum(), rel=1e-5)


def test_the_gradient_of_the_log_prior_is_added():
    kernel = make_kernel("matern32", SPREAD, 9.0, owner="test")
    raw = kernel.base_kernel.raw_lengthscale
    raw.grad = torch.full_like(raw, 5.0)
    add_log_priors(kernel)
    step, slopes = 1e-6, []
    for i in range(D):
        values = []
        for sign in (-1.0, 1.0):
            moved = copy.deepcopy(kernel)
            with torch.no_grad():
                moved.base_kernel.raw_lengthscale[0, i] += sign * step
            values.append(add_log_priors(moved))
        slopes.append((values[1] - values[0]) / (2.0 * step))
    np.testing.assert_allclose(raw.grad[0] - 5.0, slopes, rtol=1e-5)
    assert kernel.raw_outputscale.grad is None


# --- the kernel between rows and points ----------------------------------------------------------------------------


@kernels
def test_a_block_is_the_kernel_of_rows_and_points(make):
    kernel = make()
    block = cross_kernel(kernel, ROWS[:7])(ROWS[7:], differentiable=False)
    assert_close(block.matrix, kernel(ROWS[7:], ROWS[:7]).to_dense().detach(), rtol=1e-9, atol=1e-12)
    assert_close(block.variance.clone(), kernel(ROWS[7:], diag=True).detach(), rtol=1e-12, atol=0.0)
    assert not block.matrix.requires_grad


def test_the_closed_form_is_taken_for_the_scaled_rbf_kernel_alone():
    taken = {name: type(cross_kernel(make(), ROWS[:3])) is RBFCross for name, make in KERNELS.items()}
    assert taken == {"rbf": True, "one-lengthscale": True, "matern": False, "sum": False, "some-columns": False}


@pytest.mark.parametrize("ard", [True, False], ids=["lengthscales", "one-lengthscale"])
@pytest.mark.parametrize("frozen", [None, "points", "lengthscale", "outputscale"])
def test_the_closed_form_pulls_back_what_automatic_differentiation_does(ard, frozen):
    gradients = []
    for way in (RBFCross, AutogradCross):
        kernel, points = rbf(ard=ard), ROWS[:6].clone().requires_grad_(frozen != "points")
        kernel.base_kernel.raw_lengthscale.requires_grad_(frozen != "lengthscale")
        kernel.raw_outputscale.requires_grad_(frozen != "outputscale")
        cross = way(kernel, points)
        for part in (ROWS[6:20], ROWS[20:]):
            block = cross(part, differentiable=True)
            by_matrix, by_variance = torch.sin(part @ points.detach().mT), torch.cos(part[:, 0])
            cross.add(cross.pull_back(part, block, by_matrix, by_variance))
        cross.finish()
        tensors = {"points": points, "lengthscale": kernel.base_kernel.raw_lengthscale}
        tensors["outputscale"] = kernel.raw_outputscale
        gradients.append({name: tensor.grad for name, tensor in tensors.items() if name != frozen})
        assert frozen is None or tensors[frozen].grad is None
    for name, gradient in gradients[0].items():
        assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_the_closed_form_keeps_its_digits_far_from_zero(shift):
    rows, points = ROWS[7:] + shift, ROWS[:7] + shift
    kernel = rbf()
    found = RBFCross(kernel, points)(rows, differentiable=False).matrix
    gap = (rows[:, None] - points) / kernel.base_kernel.lengthscale.detach()[0]
    assert_close(found, 2.5 * torch.exp(-0.5 * gap.square().sum(-1)), rtol=1e-9, atol=1e-12)


@kernels
def test_rows_far_away_are_finite_and_leave_the_others_alone(make):
    kernel = make()
    near, far = ROWS[7:15], torch.full((1, D), 1e9).double()
    cross = cross_kernel(kernel, ROWS[:7])
    alone, together = (cross(rows, differentiable=False).matrix for rows in (near, torch.cat([near, far])))
    assert torch.isfinite(together).all()
    assert_close(together[:-1], alone, rtol=1e-9, atol=1e-12)


# --- features of inducing points -----------------------------------------------------------------------------------


@kernels
@pytest.mark.parametrize("elements", [1 << 20, 30], ids=["whole", "chunks"])
def test_features_are_whitened_and_leave_the_rest_of_the_variance(make, elements, monkeypatch):
    monkeypatch.setattr(models, "_ELEMENTS", elements)
    kernel, points = make(), ROWS[:6]
    phi, left = InducingFeatures.of(kernel, points)(ROWS)
    K = kernel(points).to_dense().detach()
    K += 1e-8 * torch.diag(K.diagonal())
    cross = kernel(ROWS, points).to_dense().detach()
    explained = cross @ torch.linalg.solve(K, cross.mT)
    assert_close(phi[:, :-1] @ phi[:, :-1].mT, explained, rtol=1e-6, atol=1e-7)
    assert (phi[:, -1] == 1.0).all()
    prior = kernel(ROWS, diag=True).detach()
    assert_close(left, (prior - explained.diagonal()).clamp_min(0.0), rtol=1e-6, atol=1e-7)
    assert (left >= 0.0).all()


def test_points_that_coincide_can_be_factorised():
    points = ROWS[:3].repeat(2, 1)
    L = factorise(rbf(), points)
    assert_close(L @ L.mT, rbf()(points).to_dense(), rtol=1e-7, atol=1e-7)


def test_a_point_of_no_variance_can_be_factorised():
    points = torch.cat([torch.zeros(1, D).double(), ROWS[:2]])
    kernel = make_kernel("linear", SPREAD, 9.0, owner="test")
    phi, left = InducingFeatures.of(kernel, points)(ROWS)
    assert torch.isfinite(phi).all()
    assert torch.isfinite(left).all()


def test_a_model_learns_on_a_copy_without_changing():
    model = SparseModel([InducingFeatures.of(rbf(), ROWS[:4])], n_classes=2)
    labels = (torch.arange(N) % 2).long()
    model.learn(ROWS[:10], labels[:10])
    before = model.statistics[0].gram.clone()
    twin = model.copy()
    twin.learn(ROWS[10:], labels[10:])
    assert torch.equal(model.statistics[0].gram, before)
    assert twin.statistics[0].count.sum() == N


# --- rows ----------------------------------------------------------------------------------------------------------


def test_rows_can_be_taken_and_left_out():
    labels = torch.arange(N) % 3
    rows = SortedRows.of(ROWS, labels, torch.from_numpy(WEIGHT), n_classes=3)
    assert sorted(map(tuple, rows.features.tolist())) == sorted(map(tuple, ROWS.tolist()))
    some, rest = rows.take(torch.tensor([5, 1, 30])), rows.without(torch.tensor([5, 1, 30]))
    assert torch.equal(torch.unique(torch.cat([some.features, rest.features]), dim=0), torch.unique(ROWS, dim=0))
    assert len(rest.labels) == len(rest.weight) == N - 3
    for i, place in enumerate((5, 1, 30)):
        original = int((ROWS == some.features[i]).all(1).nonzero())
        assert torch.equal(some.features[i], rows.features[place])
        assert some.labels[i] == labels[original]
        assert some.weight[i] == WEIGHT[original]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("weight", [[1.0, 2.0, 1.0, 1.0, 0.5], [1.0] * 5], ids=["weighted", "once"])
def test_chunks_give_every_row_once_and_weights_only_where_they_matter(size, weight):
    weight = torch.tensor(weight).double()
    rows = SortedRows.of(ROWS[:5], torch.tensor([1, 1, 0, 1, 0]), weight, n_classes=3)
    chunks = list(rows.chunks(size))
    assert torch.equal(torch.cat([chunk.features for chunk in chunks]), rows.features)
    assert [label for c in chunks for label, own in c.slices for _ in range(len(c.features[own]))] == [0, 0, 1, 1, 1]
    if bool((weight == 1.0).all()):
        assert all(chunk.weight is None for chunk in chunks)
    else:
        assert torch.cat([chunk.weight for chunk in chunks]).tolist() == [1.0, 0.5, 1.0, 2.0, 1.0]


# --- exact solutions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha_eps", [1e-6, 0.1, 5.0])
@pytest.mark.parametrize("method", ["variational", "laplace", "gauss"])
def test_shared_and_separate_factorisations_solve_alike(alpha_eps, method):
    labels, weight = torch.arange(N) % 3, torch.from_numpy(WEIGHT)
    table = SoftmaxLikelihood(3, torch.tensor(alpha_eps).double(), method).target_table()
    K = rbf()(ROWS).to_dense().detach()
    off, on = table.variance[0, 1].item(), table.variance[0, 0].item()
    shared = SharedSolver(K, labels, 3, weight, off, on)
    separate = SeparateSolver(K, table.variance[labels] / weight[:, None])
    right = torch.from_numpy(np.random.default_rng(0).normal(size=(3, N, 2)))
    assert_close(shared(right), separate(right), rtol=1e-6, atol=1e-9)
    assert_close(shared.log_det.clone(), separate.log_det, rtol=1e-9, atol=1e-9)
    assert_close(shared.squared_norms(right[0]).clone(), separate.squared_norms(right[0]), rtol=1e-6, atol=1e-9)
    dense = K + torch.diag(table.variance[labels, 1] / weight)
    assert_close(separate(right)[1], torch.linalg.solve(dense, right[1]))
    assert_close(separate.log_det[1], torch.logdet(dense))


def test_the_posterior_of_many_rows_is_computed_in_parts(monkeypatch):
    labels = torch.arange(N) % 3
    table = SoftmaxLikelihood(3, torch.tensor(0.1).double()).target_table()
    K = rbf()(ROWS).to_dense().detach()
    posterior = ExactPosterior.of(K[:20, :20], labels[:20], table)
    whole = posterior.latent(K[20:, :20], K.diagonal()[20:])
    monkeypatch.setattr("gaussify.gp._exact._ELEMENTS", 60)
    for part, expected in zip(posterior.latent(K[20:, :20], K.diagonal()[20:]), whole, strict=True):
        assert_close(part, expected, rtol=1e-12, atol=1e-12)


# --- the search ----------------------------------------------------------------------------------------------------


class Bowl:
    """An objective with its maximum at the given place, and what happens on the way there."""

    def __init__(self, start, best, hook=lambda x: None):
        self.x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        self.scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        self.best, self.hook, self.seen = torch.tensor(best, dtype=torch.float64), hook, []

    def __call__(self) -> float:
        self.seen.append(self.x.detach().clone())
        factor = self.hook(self.x.detach())
        value = -(self.x - self.best).pow(4).sum() - (self.scale - 1.0).square()
        value = value if factor is None else value * factor
        value.backward()
        return value.item()

    def search(self, **options):
        options = {"scale": 1.0, "max_iter": 200, "tol": 1e-12} | options
        return maximise(self, [self.x, self.scale], **options)


def test_the_search_finds_the_maximum_of_all_parameters():
    bowl = Bowl([3.0, -4.0], [1.0, 2.0])
    report = bowl.search()
    assert_close(bowl.x.detach(), bowl.best, rtol=0.0, atol=1e-2)
    assert bowl.scale.item() == pytest.approx(1.0, abs=1e-5)
    assert report.converged
    assert report.value == pytest.approx(0.0, abs=1e-8)
    assert report.n_evaluations == len(bowl.seen)
    assert bowl.x.grad is None


@pytest.mark.parametrize("max_iter", [1, 3])
def test_the_search_ends_after_the_iterations_allowed(max_iter):
    calls = []
    report = Bowl([3.0, -4.0], [1.0, 2.0]).search(max_iter=max_iter, report=lambda *call: calls.append(call))
    assert report.n_iterations == max_iter
    assert not report.converged
    assert [number for number, _ in calls] == list(range(1, max_iter + 1))
    assert calls[-1][1] == report.value


def test_without_iterations_parameters_stay_and_the_value_is_that_of_the_start():
    bowl = Bowl([3.0, -4.0], [1.0, 2.0])
    report = bowl.search(max_iter=0)
    assert bowl.x.tolist() == [3.0, -4.0]
    assert report.value == pytest.approx(-(2.0**4 + 6.0**4) - 1.0)
    assert report.n_iterations == 0


def test_a_search_without_parameters_gives_the_value():
    report = maximise(lambda: -3.0, [], scale=1.0, max_iter=5, tol=1e-3)
    assert report.value == -3.0


def test_the_search_stops_when_ten_iterations_gain_little_for_each_row():
    eager, patient = (Bowl([3.0, -4.0], [1.0, 2.0]).search(scale=100.0, tol=tol) for tol in (1e-2, 1e-12))
    assert eager.converged
    assert 10 < eager.n_iterations < patient.n_iterations
    assert eager.value > -1.0


def test_the_scale_of_the_objective_does_not_change_where_the_search_ends():
    for scale in (1.0, 1e6):
        bowl = Bowl([3.0, -4.0], [1.0, 2.0])
        bowl.search(scale=scale, tol=1e-14 / scale)
        assert_close(bowl.x.detach(), bowl.best, rtol=0.0, atol=0.1)


def failing(x):
    if x[0] < 0.5:
        raise NumericalError("no factor")


TRAPS = {
    "error": failing,
    "nan": lambda x: torch.nan if x[0] < 0.5 else None,
    "infinite": lambda x: torch.inf if x[0] < 0.5 else None,
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_where_there_is_no_value_the_search_begins_anew_from_the_best_so_far(trap):
    bowl = Bowl([3.0, -4.0], [0.2, 2.0], trap)  # which attracts beyond the trap
    report = bowl.search(max_iter=60)
    assert report.n_restarts > 0
    assert bowl.x[0] >= 0.5
    assert np.isfinite(report.value)
    assert report.value > -1.0
    bowl.hook = lambda x: None
    assert bowl() == pytest.approx(report.value)  # the best parameters are set


def test_a_search_that_cannot_move_ends_where_it_began():
    start = torch.tensor([3.0, -4.0]).double()
    bowl = Bowl([3.0, -4.0], [1.0, 2.0], lambda x: None if torch.equal(x, start) else torch.nan)
    report = bowl.search(max_iter=50)
    assert bowl.x.tolist() == [3.0, -4.0]
    assert report.n_restarts > 3
    assert report.n_evaluations < 50
    assert not report.converged


@pytest.mark.parametrize("max_iter", [0, 5])
def test_a_start_without_a_value_is_an_error_that_says_so(max_iter):
    with pytest.raises(NumericalError, match=r"no finite value at the first parameters\.$"):
        Bowl([3.0, -4.0], [1.0, 2.0], lambda x: torch.nan).search(max_iter=max_iter)


def test_other_errors_are_not_hidden():
    def wrong(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Bowl([3.0, -4.0], [1.0, 2.0], wrong).search()


def test_what_was_added_to_diagonals_is_announced_once():
    def shaky(x):
        stable_cholesky(torch.ones(2, 2).double() - 1e-9 * torch.eye(2).double())

    bowl = Bowl([3.0, -4.0], [1.0, 2.0], shaky)
    with pytest.warns(JitterWarning, match=r"(\d+) times in \1 evaluations .*up to 1e-08 of the diagonal") as caught:
        bowl.search(max_iter=5)
    assert len(caught) == 1


def test_other_warnings_come_through():
    def noisy(x):
        warnings.warn("something else", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="something else"):
        Bowl([3.0, -4.0], [1.0, 2.0], noisy).search(max_iter=2)


# --- how labels become Gaussians ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("are_held_out", "criterion", "expected"),
    [(True, Criterion.LEAVE_ONE_OUT, 0.001), (False, Criterion.LEAVE_ONE_OUT, 0.05), (True, Criterion.TRAINING, 0.05)],
)
def test_alpha_eps_has_a_prior_unless_rows_are_held_out(are_held_out, criterion, expected):
    labels = torch.tensor([0, 1, 2] * 4)
    parameters = LabelParameters(
        LikelihoodMethod.LAPLACE,
        None,
        1.0,
        LikelihoodKind.SOFTMAX,
        1.0,
        criterion,
        PredictiveMethod.QUADRATURE,
    )

    def latents_of(table, left_out):  # the smaller alpha_eps, the surer are rows of their labels
        return table.mean[labels], torch.full((12, 3), 1e-6).double()

    rows = LabelledRows(torch.empty(12, 0).double(), labels, torch.ones(12).double())
    found = choose_by_latents(latents_of, rows, parameters, 3, are_held_out=are_held_out)
    assert found.alpha_eps.item() == expected
