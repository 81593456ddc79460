"""Refined sites, and the posterior of the class likelihood to which they lead."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl
from torch.testing import assert_close

from gaussify.likelihoods import LogisticLikelihood, SoftmaxLikelihood
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    NaturalParameters,
    SiteRows,
    Sites,
    cavity,
    condition,
    kl_divergence,
    latent,
    natural_parameters,
    refine,
    site_of_row,
    sites_of,
)
from gaussify.posterior._sites import conjugate_gradients

LIKELIHOODS = {"logistic": LogisticLikelihood(), "softmax": SoftmaxLikelihood(3), "softmax-2": SoftmaxLikelihood(2)}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
N, D = 60, 3
PRIOR_VARIANCE = torch.tensor([2.0, 0.5, 10.0]).double()


def rows(likelihood, n: int = N, seed: int = 0) -> SiteRows:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, D, generator=generator, dtype=torch.float64)
    features[:, -1] = 1.0
    logits = features @ torch.randn(D, likelihood.n_classes, generator=generator, dtype=torch.float64)
    noise = -torch.rand(logits.shape, generator=generator, dtype=torch.float64).log().neg().log()
    return SiteRows(features, (2.0 * logits + noise).argmax(-1))


def prior_of(likelihood) -> GaussianPrior:
    return GaussianPrior.centred(PRIOR_VARIANCE, n_latents=likelihood.n_latents)


def nothing(likelihood, d: int = D) -> NaturalParameters:
    n_latents = likelihood.n_latents
    return NaturalParameters(*(torch.zeros(n_latents, *shape).double() for shape in ((d, d), (d,), ())))


def matched(likelihood, part: SiteRows) -> NaturalParameters:
    statistics = ClassStatistics.from_rows(part.features, part.labels, part.weight, n_classes=likelihood.n_classes)
    return natural_parameters(statistics, likelihood.target_table())


def best(likelihood, parts, start=None, **options):
    start = nothing(likelihood) if start is None else start
    return refine(prior_of(likelihood), parts, likelihood, start, tolerance=1e-10, **options)


def assert_same_posterior(found: GaussianPosterior, expected: GaussianPosterior, tolerance: float = 1e-3) -> None:
    """Compare means in standard deviations, and covariances as shares of the products of these."""
    std = expected.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    assert_close(found.mean / std, expected.mean / std, rtol=0.0, atol=tolerance)
    products = std[:, :, None] * std[:, None]
    assert_close(found.covariance / products, expected.covariance / products, rtol=0.0, atol=tolerance)


def sum_of(part: SiteRows, sites: Sites) -> NaturalParameters:
    """The sum of sites, row by row."""
    precision = torch.einsum("nl,ni,nj->lij", sites.precision, part.features, part.features)
    linear = torch.einsum("nl,ni->li", sites.linear, part.features)
    return NaturalParameters(precision, linear, torch.zeros(len(linear)).double())


def some(part: SiteRows, index) -> SiteRows:
    return SiteRows._make(None if own is None else own[index] for own in part)


# --- one row -------------------------------------------------------------------------------------------------------


@likelihoods
def test_sites_have_gradient_and_curvature_of_the_expected_log_probability(likelihood):
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(5, likelihood.n_latents, generator=generator, dtype=torch.float64).requires_grad_()
    variance = (0.5 + torch.rand(mean.shape, generator=generator, dtype=torch.float64)).requires_grad_()
    labels = torch.arange(5) % likelihood.n_classes
    expected = likelihood.expected_log_prob(mean, variance, labels).sum()
    by_mean, by_variance = torch.autograd.grad(expected, (mean, variance))
    sites = sites_of(likelihood, mean.detach(), variance.detach(), labels)
    assert_close(sites.precision, -2.0 * by_variance, rtol=1e-5, atol=1e-6)
    assert_close(sites.linear - sites.precision * mean.detach(), by_mean, rtol=1e-5, atol=1e-6)


@likelihoods
@pytest.mark.parametrize("weight", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("variance", [0.3, 3.0])
def test_the_site_of_a_row_reproduces_itself_where_it_moves_the_latents(likelihood, variance, weight):
    """So it is the best Gaussian posterior of the row's latents alone."""
    generator = np.random.default_rng(0)
    for label in range(likelihood.n_classes):
        mean = generator.normal(size=likelihood.n_latents)
        spread = variance * generator.uniform(0.5, 1.0, size=likelihood.n_latents)
        precision, linear = site_of_row(likelihood, mean, spread, label, weight)
        new_spread = 1.0 / (1.0 / spread + precision)
        new_mean = new_spread * (mean / spread + linear)
        again = sites_of(
            likelihood, *(torch.from_numpy(x)[None] for x in (new_mean, new_spread)), torch.tensor([label])
        )
        moved = (
            new_spread
            * (mean / spread + weight * again.linear[0].numpy())
            / (1.0 + new_spread * (weight * again.precision[0].numpy() - precision))
        )
        np.testing.assert_allclose(moved / np.sqrt(new_spread), new_mean / np.sqrt(new_spread), rtol=0.0, atol=0.15)
        np.testing.assert_allclose(weight * again.precision[0], precision, rtol=0.3, atol=0.02)


@likelihoods
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e8])
def test_the_site_of_a_row_is_finite_however_wide_or_far_its_latents(likelihood, scale):
    for weight in (1e-12, 1.0, 1e12):
        for variance in (1e-12, 1.0, scale):
            mean = scale * np.linspace(-1.0, 1.0, likelihood.n_latents)
            precision, linear = site_of_row(likelihood, mean, np.full_like(mean, variance), 0, weight)
            assert np.isfinite(precision).all()
            assert np.isfinite(linear).all()
            assert (precision >= 0.0).all()


# --- leaving a row out ---------------------------------------------------------------------------------------------


@likelihoods
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_cavity_is_the_posterior_without_the_site_of_the_row(likelihood, is_weighted):
    part, prior = rows(likelihood, 15), prior_of(likelihood)
    weight = torch.linspace(0.0, 2.5, 15).double() if is_weighted else torch.ones(15).double()
    sites = sites_of(likelihood, *latent(condition(prior, matched(likelihood, part)), part.features), part.labels)

    def given(own: Tensor) -> GaussianPosterior:
        return condition(prior, sum_of(part, Sites(own[:, None] * sites.precision, own[:, None] * sites.linear)))

    found = cavity(*latent(given(weight), part.features), sites, weight if is_weighted else None)
    for row in range(15):
        left = weight.clone()
        left[row] = (left[row] - 1.0).clamp_min(0.0)  # one of several equal rows
        expected = latent(given(left), part.features[row : row + 1])
        assert_close(tuple(x[row : row + 1] for x in found), expected, rtol=1e-9, atol=1e-9)


def test_a_site_without_information_leaves_the_latents_as_they_are():
    mean, variance = torch.tensor([[0.3]]), torch.tensor([[0.5]])
    assert_close(cavity(mean, variance, Sites(torch.zeros(1, 1), torch.zeros(1, 1))), (mean, variance))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_site_of_other_rows_leaves_a_finite_variance(dtype):
    one = torch.ones(1, 1, dtype=dtype)
    _, variance = cavity(one, one, Sites(2.0 * one, one))  # more precise than the posterior itself
    assert variance.item() == pytest.approx(1000.0, rel=1e-3)


# --- the bound -----------------------------------------------------------------------------------------------------


def test_kl_divergence_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, D, D, generator=generator, dtype=torch.float64).tril() + 2.0 * torch.eye(D).double()
    mean = torch.randn(2, D, generator=generator, dtype=torch.float64)
    prior = GaussianPrior(torch.randn(2, D, generator=generator, dtype=torch.float64), PRIOR_VARIANCE)
    of_weights = MultivariateNormal(mean, root.mT @ root)
    expected = kl.kl_divergence(of_weights, MultivariateNormal(prior.mean, PRIOR_VARIANCE.diag()))
    assert kl_divergence(GaussianPosterior(mean, root), prior) == pytest.approx(expected.sum().item(), rel=1e-12)


@likelihoods
@pytest.mark.parametrize("rough", [False, True])
def test_the_bound_never_falls(likelihood, rough):
    seen = []
    found = best(likelihood, [rows(likelihood)], rough=rough, report=lambda n, bound: seen.append((n, bound)))
    assert [n for n, _ in seen] == list(range(1, len(seen) + 1))
    bounds = np.array([bound for _, bound in seen])
    assert len(bounds) >= 2
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert found.has_converged
    assert found.bound >= bounds[-1] - 1e-8


@likelihoods
def test_the_bound_is_that_of_the_posterior(likelihood):
    part = rows(likelihood)
    found = best(likelihood, [part])
    expected = likelihood.expected_log_prob(*latent(found.posterior, part.features), part.labels).sum()
    expected = expected - kl_divergence(found.posterior, prior_of(likelihood))
    assert found.bound == pytest.approx(expected.item(), abs=0.05)  # narrow latents are expanded
    assert best(likelihood, [part], max_passes=1).bound <= found.bound


@likelihoods
def test_no_posterior_nearby_has_a_larger_bound(likelihood):
    part, generator = rows(likelihood), torch.Generator().manual_seed(0)
    mean, root = best(likelihood, [part]).posterior

    def bound(mean: Tensor, root: Tensor) -> float:
        posterior = GaussianPosterior(mean, root)
        value = likelihood.expected_log_prob(*latent(posterior, part.features), part.labels).sum()
        return float(value) - kl_divergence(posterior, prior_of(likelihood))

    top = bound(mean, root)
    for _ in range(20):
        move = 0.3 * torch.einsum("lji,lj->li", root, torch.randn(mean.shape, generator=generator).double())
        assert bound(mean + move, root) < top
        stretch = torch.eye(D).double() + 0.15 * torch.randn(root.shape, generator=generator).double().tril()
        assert bound(mean, stretch @ root) < top


@likelihoods
def test_the_evidence_is_not_below_the_bound(likelihood):
    """By importance sampling from the prior, for few rows."""
    part, prior = rows(likelihood, 6), prior_of(likelihood)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(100_000, likelihood.n_latents, D, generator=generator, dtype=torch.float64)
    weights = weights * prior.variance.sqrt()
    log_prob = likelihood.log_prob(torch.einsum("nd,sld->snl", part.features, weights), part.labels).sum(-1)
    evidence = float(torch.logsumexp(log_prob, 0)) - np.log(100_000)
    bound = best(likelihood, [part]).bound
    gap = 0.1 if likelihood.n_latents == 1 else 1.5  # of latents that are independent
    assert evidence - gap < bound < evidence + 0.02


# --- one posterior -------------------------------------------------------------------------------------------------


@likelihoods
def test_the_posterior_reproduces_its_sites(likelihood):
    part = rows(likelihood)
    found = best(likelihood, [part])
    again = sum_of(part, sites_of(likelihood, *latent(found.posterior, part.features), part.labels))
    assert_same_posterior(condition(prior_of(likelihood), again), found.posterior, 5e-3)


@likelihoods
def test_its_natural_parameters_are_the_sum_of_sites_at_its_reference(likelihood):
    part = rows(likelihood)
    for max_passes in (1, 2, 100):
        found = best(likelihood, [part], max_passes=max_passes)
        assert found.reference is not None
        expected = sum_of(part, sites_of(likelihood, *latent(found.reference, part.features), part.labels))
        assert_close(found.natural.precision, expected.precision, rtol=1e-9, atol=1e-9)
        assert_close(found.natural.linear, expected.linear, rtol=1e-9, atol=1e-9)
        assert_close(found.posterior, condition(prior_of(likelihood), expected), rtol=1e-7, atol=1e-7)


@likelihoods
def test_every_start_leads_to_the_same_posterior(likelihood):
    part = rows(likelihood)
    from_nothing = best(likelihood, [part])
    for start in (
        matched(likelihood, part),
        1e3 * matched(likelihood, part),
        matched(likelihood, rows(likelihood, 9, 5)),
    ):
        found = best(likelihood, [part], start)
        assert_same_posterior(found.posterior, from_nothing.posterior)
        assert found.bound == pytest.approx(from_nothing.bound, abs=1e-4)


@likelihoods
def test_blocks_of_rows_are_all_rows(likelihood):
    part = rows(likelihood)
    whole = best(likelihood, [part])
    for cuts in ([10, 20, 30], [1] * 9, [N - 1, 1]):
        ends = np.cumsum([0, *cuts, N - sum(cuts)])
        blocks = [some(part, slice(a, b)) for a, b in pairwise(ends) if a < b]
        found = best(likelihood, blocks)
        assert_close(found.posterior, whole.posterior, rtol=1e-8, atol=1e-8)
        assert found.bound == pytest.approx(whole.bound, rel=1e-10)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    assert_close(best(likelihood, [some(part, order)]).posterior, whole.posterior, rtol=1e-6, atol=1e-6)


def test_blocks_that_do_not_fit_into_the_cache_are_all_rows(monkeypatch):
    likelihood = LIKELIHOODS["softmax"]
    part = rows(likelihood)
    whole = best(likelihood, [part])
    monkeypatch.setattr("gaussify.posterior._sites._ELEMENTS", 7 * D)
    assert_close(best(likelihood, [part]).posterior, whole.posterior, rtol=1e-8, atol=1e-8)


@likelihoods
def test_sites_that_are_known_act_as_those_rows(likelihood):
    part = rows(likelihood)
    whole = best(likelihood, [part])
    sites = sites_of(likelihood, *latent(whole.posterior, part.features), part.labels)
    first = torch.arange(N) < 25
    known = sum_of(some(part, first), Sites(*(own[first] for own in sites)))
    found = best(likelihood, [some(part, ~first)], known=known)
    assert_same_posterior(found.posterior, whole.posterior, 5e-3)
    expected = sum_of(some(part, ~first), Sites(*(own[~first] for own in sites)))
    assert_same_posterior(condition(prior_of(likelihood), known + found.natural), found.posterior, 1e-9)
    assert_close(found.natural.linear, expected.linear, rtol=0.05, atol=0.05)


@likelihoods
def test_weights_are_numbers_of_rows(likelihood):
    part = rows(likelihood)
    counts = torch.arange(N) % 4
    repeated = SiteRows(part.features.repeat_interleave(counts, 0), part.labels.repeat_interleave(counts))
    expected = best(likelihood, [repeated])
    found = best(likelihood, [part._replace(weight=counts.double())])
    assert_same_posterior(found.posterior, expected.posterior)
    assert found.bound == pytest.approx(expected.bound, rel=1e-6)


@likelihoods
def test_unexplained_variance_is_a_feature_of_each_row_alone(likelihood):
    """For rows with one such feature each, the variational bound keeps it at its prior: that is the approximation."""
    part = rows(likelihood)
    unexplained = torch.linspace(0.1, 3.0, N).double()
    found = best(likelihood, [part._replace(unexplained=unexplained)])
    mean, variance = latent(found.posterior, part.features)
    value = likelihood.expected_log_prob(mean, variance + unexplained[:, None], part.labels).sum()
    assert found.bound == pytest.approx(float(value) - kl_divergence(found.posterior, prior_of(likelihood)), abs=0.02)
    again = sum_of(part, sites_of(likelihood, mean, variance + unexplained[:, None], part.labels))
    assert_same_posterior(condition(prior_of(likelihood), again), found.posterior, 5e-3)
    without = best(likelihood, [part])
    assert found.bound < without.bound
    none = best(likelihood, [part._replace(unexplained=torch.zeros(N).double())])
    assert_close(none.posterior, without.posterior, rtol=1e-10, atol=1e-10)


@likelihoods
def test_a_prior_with_a_mean_shifts_the_posterior(likelihood):
    part, prior = rows(likelihood, 1), prior_of(likelihood)
    mean = torch.arange(prior.mean.numel()).double().view_as(prior.mean) / 4.0
    prior = GaussianPrior(mean, prior.variance)
    found = refine(prior, [part._replace(weight=torch.full((1,), 1e-9).double())], likelihood, nothing(likelihood))
    assert_close(found.posterior.mean, mean, rtol=0.0, atol=1e-6)


# --- extremes ------------------------------------------------------------------------------------------------------


@likelihoods
def test_separable_rows_converge(likelihood):
    features = torch.cat([torch.eye(likelihood.n_classes).double()] * 8)
    part = SiteRows(features, torch.arange(len(features)) % likelihood.n_classes)
    prior = GaussianPrior.centred(torch.full((likelihood.n_classes,), 1e4).double(), n_latents=likelihood.n_latents)
    found = refine(prior, [part], likelihood, nothing(likelihood, likelihood.n_classes))
    assert found.has_converged
    mean, variance = latent(found.posterior, features)
    assert likelihood.predict_proba(mean, variance)[range(len(features)), part.labels].min() > 0.9


@likelihoods
@pytest.mark.parametrize("weight", [1e-12, 1e6, 1e12])
def test_extreme_weights_have_a_finite_posterior(likelihood, weight):
    part = rows(likelihood)._replace(weight=torch.full((N,), weight).double())
    found = refine(prior_of(likelihood), [part], likelihood, matched(likelihood, part))
    assert all(bool(own.isfinite().all()) for own in found.posterior)
    assert np.isfinite(found.bound)


def test_more_features_than_rows_and_equal_columns():
    likelihood, generator = LIKELIHOODS["softmax"], torch.Generator().manual_seed(0)
    features = torch.randn(10, 20, generator=generator, dtype=torch.float64)
    part = SiteRows(torch.cat([features, features, torch.ones(10, 2).double()], 1), torch.arange(10) % 3)
    prior = GaussianPrior.centred(torch.ones(42).double(), n_latents=3)
    found = refine(prior, [part], likelihood, nothing(likelihood, 42))
    assert found.has_converged
    first, second = found.posterior.mean[:, :20], found.posterior.mean[:, 20:40]
    assert_close(first, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("max_passes", [0, 1])
def test_few_passes_end_early(max_passes):
    likelihood = LIKELIHOODS["logistic"]
    found = best(likelihood, [rows(likelihood)], max_passes=max_passes)
    assert found.n_passes == max_passes
    assert not found.has_converged


# --- linear equations ----------------------------------------------------------------------------------------------


def test_conjugate_gradients_solve_equations():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    matrix, right = root @ root.mT + torch.eye(12).double(), torch.randn(12, generator=generator, dtype=torch.float64)
    expected = torch.linalg.solve(matrix, right)
    for precondition in (lambda x: x, lambda x: x / matrix.diagonal(), lambda x: torch.linalg.solve(matrix, x)):
        found = conjugate_gradients(lambda x: matrix @ x, right, precondition, tolerance=1e-12, max_iterations=60)
        assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_conjugate_gradients_end_at_the_tolerance_and_at_the_limit():
    scale, calls = torch.logspace(0.0, 6.0, 50).double(), []

    def times(x: Tensor) -> Tensor:
        calls.append(x)
        return scale * x

    ones = torch.ones(50).double()
    conjugate_gradients(times, ones, lambda x: x, tolerance=1e-12, max_iterations=7)
    assert len(calls) == 7
    conjugate_gradients(times, ones, lambda x: x / scale, tolerance=1e-3, max_iterations=7)
    assert len(calls) == 8
    assert_close(conjugate_gradients(times, 0.0 * ones, lambda x: x, tolerance=1e-3, max_iterations=7), 0.0 * ones)
    assert len(calls) == 8
