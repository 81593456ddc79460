"""The Gaussian posterior of the weights, against the joint Gaussian of weights and observations."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from gaussify.likelihoods import LogisticLikelihood, PseudoTargets, SoftmaxLikelihood
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    RowPosterior,
    class_posterior,
    condition,
    latent,
    latent_of_row,
    log_evidence,
    natural_parameters_of_rows,
    observe_,
    sample,
)
from posterior.joint_gaussian import condition_jointly

ALPHA = torch.tensor([0.3, 0.05, 0.7], dtype=torch.float64)
LIKELIHOODS = {
    "softmax": SoftmaxLikelihood(3, ALPHA),
    "softmax-gauss": SoftmaxLikelihood(3, ALPHA, "gauss"),
    "logistic": LogisticLikelihood(ALPHA[0], ALPHA[1]),
}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def problem(likelihood, n: int = 12, d: int = 4):
    """Rows, labels, their targets, and a prior whose mean is not zero."""
    generator = torch.Generator().manual_seed(n + d)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    labels = torch.randint(likelihood.n_classes, (n,), generator=generator)
    prior = GaussianPrior(
        torch.randn(likelihood.n_latents, d, generator=generator, dtype=torch.float64),
        torch.tensor([0.5, 2.0, 10.0, 1e3], dtype=torch.float64)[:d],
    )
    return features, labels, likelihood.encode(labels), prior


def oracle(features, targets, prior, weight=1.0):
    """Joint conditioning of each latent; a row of weight w is observed with its variance divided by w."""
    for y, variance, mean in zip(targets.mean.mT, targets.variance.mT, prior.mean, strict=True):
        yield condition_jointly(
            features.numpy(), y.numpy(), (variance / weight).numpy(), mean.numpy(), prior[1].numpy()
        )


@likelihoods
def test_posterior_equals_the_conditioned_joint_gaussian(likelihood):
    features, _, targets, prior = problem(likelihood)
    posterior = condition(prior, natural_parameters_of_rows(features, targets))
    for mean, covariance, expected in zip(
        posterior.mean, posterior.covariance, oracle(features, targets, prior), strict=True
    ):
        np.testing.assert_allclose(mean, expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(covariance, expected.covariance, rtol=1e-8, atol=1e-9)


def test_weight_of_a_row_divides_the_variance_of_its_observation():
    features, _, targets, prior = problem(LIKELIHOODS["softmax"])
    weight = torch.linspace(0.2, 3.0, len(features), dtype=torch.float64)
    posterior = condition(prior, natural_parameters_of_rows(features, targets, weight))
    expected = list(oracle(features, targets, prior, weight))
    np.testing.assert_allclose(posterior.mean, [e.mean for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.covariance, [e.covariance for e in expected], rtol=1e-8, atol=1e-9)


def test_posterior_without_rows_is_the_prior():
    _, _, _, prior = problem(LIKELIHOODS["softmax"])
    nothing = ClassStatistics.zeros(3, 4)
    posterior = class_posterior(prior, nothing, LIKELIHOODS["softmax"].target_table())
    assert_close(posterior.mean, prior.mean)
    assert_close(posterior.covariance, torch.diag(prior.variance).expand(3, 4, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_posterior_keeps_the_dtype(dtype):
    features, labels, _, prior = problem(LIKELIHOODS["softmax"])
    exact = class_posterior(prior, ClassStatistics.from_rows(features, labels), LIKELIHOODS["softmax"].target_table())
    table = SoftmaxLikelihood(3, ALPHA.to(dtype)).target_table()
    statistics = ClassStatistics.from_rows(features.to(dtype), labels)
    posterior = class_posterior(GaussianPrior(prior.mean.to(dtype), prior.variance.to(dtype)), statistics, table)
    assert {tensor.dtype for tensor in (*posterior, *latent(posterior, features.to(dtype)))} == {dtype}
    tolerance = 1e-3 if dtype is torch.float32 else 1e-12
    assert_close(posterior.mean.double(), exact.mean, rtol=tolerance, atol=tolerance)
    assert_close(posterior.covariance.double(), exact.covariance, rtol=tolerance, atol=tolerance)


@likelihoods
@pytest.mark.parametrize("elements", [1, 40, 1 << 22], ids=["one-at-a-time", "few", "all-at-once"])
def test_posterior_and_latents_do_not_depend_on_how_many_matrices_are_made_at_a_time(likelihood, elements, monkeypatch):
    features, labels, targets, prior = problem(likelihood)
    expected = condition(prior, natural_parameters_of_rows(features, targets))
    mean = features @ expected.mean.mT
    variance = torch.einsum("ni,lij,nj->nl", features, expected.covariance, features)
    monkeypatch.setattr("gaussify.posterior._gaussian._ELEMENTS", elements)
    statistics = ClassStatistics.from_rows(features, labels, n_classes=likelihood.n_classes)
    posterior = class_posterior(prior, statistics, likelihood.target_table())
    assert_close(posterior.mean, expected.mean, rtol=1e-10, atol=1e-10)
    assert_close(posterior.covariance, expected.covariance, rtol=1e-10, atol=1e-10)
    assert_close(latent(posterior, features), (mean, variance), rtol=1e-10, atol=1e-10)


def test_latents_of_no_rows_are_empty():
    _, _, _, prior = problem(LIKELIHOODS["softmax"])
    posterior = GaussianPosterior(prior.mean, torch.eye(4).double().expand(3, 4, 4))
    assert [tuple(x.shape) for x in latent(posterior, torch.zeros(0, 4).double())] == [(0, 3), (0, 3)]


@likelihoods
def test_evidence_is_the_density_of_the_observations(likelihood):
    features, _, targets, prior = problem(likelihood)
    actual = log_evidence(prior, natural_parameters_of_rows(features, targets))
    for value, y, variance, mean in zip(actual, targets.mean.mT, targets.variance.mT, prior.mean, strict=True):
        covariance = features @ torch.diag(prior.variance) @ features.mT + torch.diag(variance)
        assert_close(value, MultivariateNormal(features @ mean, covariance).log_prob(y), rtol=1e-9, atol=0)


def test_evidence_of_a_row_of_weight_two_is_that_of_the_row_twice():
    features, _, targets, prior = problem(LIKELIHOODS["softmax"])
    twice = [0, *range(len(features)), 5]
    weight = torch.ones(len(features), dtype=torch.float64).index_fill(0, torch.tensor([0, 5]), 2.0)
    repeated = natural_parameters_of_rows(features[twice], PseudoTargets(targets.mean[twice], targets.variance[twice]))
    weighted = natural_parameters_of_rows(features, targets, weight)
    assert_close(log_evidence(prior, weighted), log_evidence(prior, repeated), rtol=1e-12, atol=0)


def test_evidence_of_nothing_is_zero():
    _, _, _, prior = problem(LIKELIHOODS["softmax"])
    nothing = natural_parameters_of_rows(
        torch.zeros(0, 4).double(), PseudoTargets(*(torch.ones(0, 3).double() for _ in range(2)))
    )
    assert_close(log_evidence(prior, nothing), torch.zeros(3).double(), rtol=0, atol=1e-12)


def conditioned_on(rows: int, likelihood, n: int, d: int = 4):
    """The posterior given the first rows, by class statistics, and what is needed to go on."""
    features, labels, targets, prior = problem(likelihood, n, d)
    statistics = ClassStatistics.from_rows(features[:rows], labels[:rows], n_classes=likelihood.n_classes)
    return class_posterior(prior, statistics, likelihood.target_table()), features, targets, prior


def observe_rows(posterior, features, targets):
    for row, mean, variance in zip(features, *targets, strict=True):
        observe_(RowPosterior.of(posterior), row.numpy(), mean.numpy(), variance.numpy())


def test_arrays_and_tensors_of_a_posterior_share_their_memory():
    posterior, *_ = conditioned_on(12, LIKELIHOODS["softmax"], n=12)
    rows, before = RowPosterior.of(posterior), [tensor.clone() for tensor in posterior]
    rows.mean[...] += 1.0
    rows.root[...] *= 2.0
    for tensors in (posterior, rows.tensors):
        assert_close(list(tensors), [before[0] + 1.0, before[1] * 2.0], rtol=0, atol=0)


@likelihoods
def test_latents_of_one_row_are_those_of_a_batch(likelihood):
    posterior, features, *_ = conditioned_on(12, likelihood, n=12)
    mean, variance = latent(posterior, features)
    for i, feature in enumerate(features):
        of_row = latent_of_row(RowPosterior.of(posterior), feature.numpy())
        np.testing.assert_allclose(of_row.mean, mean[i], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(of_row.variance, variance[i], rtol=1e-12)
        np.testing.assert_allclose(of_row.u, posterior.root @ feature, rtol=1e-12, atol=1e-12)


@likelihoods
def test_observing_a_row_whose_latents_are_known_is_observing_it(likelihood):
    known, features, targets, _ = conditioned_on(5, likelihood, n=12)
    unknown = GaussianPosterior(*(tensor.clone() for tensor in known))
    for row, mean, variance in zip(features.numpy(), *(part.numpy() for part in targets), strict=True):
        before = latent_of_row(RowPosterior.of(known), row)
        observe_(RowPosterior.of(known), row, mean, variance, before)
        observe_(RowPosterior.of(unknown), row, mean, variance)
    assert_close(list(known), list(unknown), rtol=0, atol=0)


@likelihoods
@pytest.mark.parametrize("n", [1, 12])
def test_observing_row_by_row_equals_conditioning_on_all(likelihood, n):
    posterior, features, targets, prior = conditioned_on(0, likelihood, n)
    observe_rows(posterior, features, targets)
    expected = condition(prior, natural_parameters_of_rows(features, targets))
    assert_close(posterior.mean, expected.mean, rtol=1e-10, atol=1e-10)
    assert_close(posterior.covariance, expected.covariance, rtol=1e-10, atol=1e-10)


def test_many_observations_stay_accurate_and_their_root_a_root():
    posterior, features, targets, prior = conditioned_on(5, LIKELIHOODS["softmax"], n=1500)
    observe_rows(posterior, features[5:], PseudoTargets(targets.mean[5:], targets.variance[5:]))
    natural = natural_parameters_of_rows(features, targets)
    precision = natural.precision + torch.diag(1.0 / prior.variance)
    assert_close(posterior.mean, condition(prior, natural).mean, rtol=1e-10, atol=1e-10)
    identity = torch.eye(4, dtype=torch.float64).expand(3, 4, 4)
    assert_close(posterior.root @ precision @ posterior.root.mT, identity, rtol=0, atol=1e-10)


def test_observing_a_row_that_decides_everything_keeps_the_variance_positive():
    posterior, features, _, _ = conditioned_on(0, LIKELIHOODS["logistic"], n=1)
    targets = PseudoTargets(torch.zeros(50, 1).double(), torch.full((50, 1), 1e-12).double())
    observe_rows(posterior, 1e6 * features[:1].expand(50, -1), targets)
    assert (torch.linalg.eigvalsh(posterior.covariance) > -1e-12).all()
    assert (latent(posterior, features)[1] >= 0.0).all()


def test_what_condition_returns_can_be_observed_further():
    features, _, targets, prior = problem(LIKELIHOODS["softmax"])
    first = PseudoTargets(targets.mean[:-1], targets.variance[:-1])
    posterior = condition(prior, natural_parameters_of_rows(features[:-1], first))
    observe_rows(posterior, features[-1:], PseudoTargets(targets.mean[-1:], targets.variance[-1:]))
    expected = condition(prior, natural_parameters_of_rows(features, targets))
    assert_close(posterior.mean, expected.mean, rtol=1e-10, atol=1e-10)
    assert_close(posterior.covariance, expected.covariance, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [1, 12])
@likelihoods
def test_latents_can_be_had_of_what_condition_returns(likelihood, n):
    features, _, targets, prior = problem(likelihood)
    posterior = condition(prior, natural_parameters_of_rows(features, targets))
    variance = torch.einsum("ni,lij,nj->nl", features, posterior.covariance, features)
    expected = (features @ posterior.mean.mT)[:n], variance[:n]
    assert_close(latent(posterior, features[:n]), expected, rtol=1e-10, atol=1e-10)


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    posterior, *_ = conditioned_on(12, LIKELIHOODS["softmax"], n=12, d=3)
    n = 100_000
    draws = sample(posterior, n, torch.Generator().manual_seed(0))
    assert draws.shape == (n, 3, 3)
    covariance = posterior.covariance
    std = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    assert ((draws.mean(0) - posterior.mean).abs() < 5.0 * std / n**0.5).all()
    centred = draws - posterior.mean
    found = torch.einsum("sli,slj->lij", centred, centred) / n
    spread = (covariance.square() + std[:, :, None].square() * std[:, None, :].square()).sqrt()  # of one product
    assert ((found - covariance).abs() < 5.0 * spread / n**0.5).all()


def test_draws_of_different_latents_are_independent():
    posterior, *_ = conditioned_on(12, LIKELIHOODS["softmax"], n=12, d=2)
    draws = sample(posterior, 20_000, torch.Generator().manual_seed(0))
    correlation = torch.corrcoef(draws[:, :, 0].mT) - torch.eye(3)
    assert correlation.abs().max() < 0.05


def test_draws_repeat_with_the_seed():
    posterior, *_ = conditioned_on(12, LIKELIHOODS["softmax"], n=12)
    first, second = (sample(posterior, 3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)
