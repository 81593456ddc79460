import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, gammaln, log_expit
from scipy.stats import norm
from torch.distributions import Beta, Gamma
from torch.testing import assert_close

from gaussify import BinomialLikelihood, LogisticLikelihood, PoissonLikelihood, match
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import PseudoTargets
from likelihoods.quadrature_oracles import log_integral

GAMMA_MATCHES = ["laplace", "variational", "moment", "moment-ori"]
BETA_MATCHES = GAMMA_MATCHES[:3]
VARIANCES = [0.0, 1e-8, 0.1, 4.0, 100.0]
Y = torch.tensor([0.0, 1.0, 7.0, 1000.0, 1e6], dtype=torch.float64)
EXPOSURE = torch.tensor([1.0, 0.01, 2.5, 30.0, 1e6], dtype=torch.float64)
TRIALS = torch.tensor([0.0, 1.0, 20.0, 1000.0, 3e6], dtype=torch.float64)


def as_targets(normal) -> PseudoTargets:
    return PseudoTargets(normal.mean[:, None], normal.variance[:, None])


def poisson_log_pmf(k: float, f, exposure: float = 1.0):
    log_rate = f + np.log(exposure)
    return k * log_rate - np.exp(log_rate) - gammaln(k + 1)


def binomial_log_pmf(k: float, f, n: float):
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return log_choose + k * log_expit(f) + (n - k) * log_expit(-f)


def predictive_log_prob(log_pmf, mean: float, variance: float) -> float:
    """Logarithm of the integral of the likelihood under a Gaussian latent, by scipy."""
    if variance == 0:
        return float(log_pmf(mean))
    scale = variance**0.5
    return log_integral(lambda f: log_pmf(f) + norm.logpdf(f, mean, scale), mean - 45 * scale, mean + 45 * scale)


# --- targets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", GAMMA_MATCHES)
@pytest.mark.parametrize("exposure", [3.0, EXPOSURE], ids=["one-exposure", "exposure-per-row"])
def test_poisson_targets_match_the_gamma_posterior(method, exposure):
    encoded = PoissonLikelihood(0.4, 0.7, method).encode(Y, exposure)
    assert_close(encoded, as_targets(match(Gamma(0.4 + Y, 0.7 + exposure + 0 * Y), method)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", BETA_MATCHES)
@pytest.mark.parametrize("n_trials", [2_000_000, TRIALS], ids=["one-number-of-trials", "trials-per-row"])
def test_binomial_targets_match_the_beta_posterior(method, n_trials):
    encoded = BinomialLikelihood(0.4, 0.7, method).encode(Y, n_trials)
    assert_close(encoded, as_targets(match(Beta(0.4 + Y, 0.7 + n_trials - Y), method)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", GAMMA_MATCHES)
def test_the_default_exposure_is_one(method):
    likelihood = PoissonLikelihood(method=method)
    assert_close(likelihood.encode(Y), likelihood.encode(Y, 1.0), rtol=0, atol=0)


def test_poisson_gauss_is_the_log_rate_with_a_variance_per_exposure():
    mean, variance = PoissonLikelihood(method="gauss", label_variance=0.5).encode(torch.tensor([0.0, 6.0]), [1.0, 4.0])
    assert_close(mean, torch.log(torch.tensor([[0.5], [1.625]])))
    assert_close(variance, torch.tensor([[0.5], [0.125]]))


def test_binomial_gauss_is_the_share_with_a_variance_per_trial():
    mean, variance = BinomialLikelihood(method="gauss", label_variance=0.5).encode(torch.tensor([0.0, 3.0]), [1, 4])
    assert_close(mean, torch.tensor([[0.0], [0.75]]))
    assert_close(variance, torch.tensor([[0.5], [0.125]]))


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_zero_trials_give_the_prior(method):
    prior = match(Beta(torch.tensor([0.4], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)), method)
    encoded = BinomialLikelihood(0.4, 0.7, method).encode(torch.zeros(1).double(), 0)
    assert_close(encoded, as_targets(prior), rtol=1e-12, atol=1e-12)


def test_gauss_refuses_zero_trials():
    with pytest.raises(InvalidArgumentError, match=r"BinomialLikelihood\.encode.*gauss"):
        BinomialLikelihood(method="gauss").encode([0, 1], [0, 2])


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_beta_eps_none_takes_alpha_eps(method):
    none, given_ = BinomialLikelihood(0.6, None, method), BinomialLikelihood(0.6, 0.6, method)
    assert_close(none.encode([1, 2], 3), given_.encode([1, 2], 3), rtol=0, atol=0)


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_alpha_eps_is_used(method):
    for likelihood in (PoissonLikelihood, BinomialLikelihood):
        size = {"exposure": 5.0} if likelihood is PoissonLikelihood else {"n_trials": 5}
        small, large = (likelihood(alpha, method=method).encode([0, 3], **size) for alpha in (0.1, 0.9))
        assert (small.variance > large.variance).all()


def test_moment_ori_is_refused_for_binomial_with_the_alternatives():
    with pytest.raises(InvalidArgumentError, match="must be one of 'laplace', 'variational', 'moment', 'gauss'; got"):
        BinomialLikelihood(method="moment-ori")


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_gradients_reach_the_prior(method):
    inputs = tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.3, 0.8))
    for likelihood in (PoissonLikelihood, BinomialLikelihood):
        size = {"exposure": 5.0} if likelihood is PoissonLikelihood else {"n_trials": 5}
        assert torch.autograd.gradcheck(
            lambda a, b, likelihood=likelihood, size=size: tuple(likelihood(a, b, method).encode([0, 3], **size)),
            inputs,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_targets_take_the_dtype_of_a_tensor_alpha_eps(dtype):
    assert PoissonLikelihood(torch.tensor(0.1, dtype=dtype)).encode([1, 2]).mean.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_targets_take_the_dtype_of_float_counts(dtype):
    assert BinomialLikelihood().encode(torch.ones(2, dtype=dtype), 3).variance.dtype == dtype


@settings(deadline=None, max_examples=60)
@given(
    exponent=st.floats(-8, 3),
    y=st.integers(0, 10**6),
    exposure=st.floats(1e-6, 1e6),
    method=st.sampled_from(GAMMA_MATCHES),
)
def test_poisson_targets_are_finite_with_positive_variance(exponent, y, exposure, method):
    mean, variance = PoissonLikelihood(10.0**exponent, 0.0, method).encode([y], exposure)
    assert torch.isfinite(mean).all()
    assert (torch.isfinite(variance) & (variance > 0)).all()


@settings(deadline=None, max_examples=60)
@given(
    exponent=st.floats(-8, 3), y=st.integers(0, 10**6), more=st.integers(0, 100), method=st.sampled_from(BETA_MATCHES)
)
def test_more_events_never_increase_the_variance(exponent, y, more, method):
    variance = PoissonLikelihood(10.0**exponent, method=method).encode(torch.tensor([y, y + more]).double()).variance
    assert variance[1] <= variance[0]


# --- predictive probabilities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("mean", [-3.0, 0.0, 2.5])
@pytest.mark.parametrize("count", [0, 1, 5, 40, 1000])
def test_poisson_predictive_log_prob_equals_scipy(count, mean, variance):
    value = PoissonLikelihood().predict_log_prob([[mean]], [[variance]], [count], 1.5).item()
    expected = predictive_log_prob(lambda f: poisson_log_pmf(count, f, 1.5), mean, variance)
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("variance", VARIANCES)
def test_poisson_predictive_log_prob_of_a_million_equals_scipy(variance):
    mean = math.log(1e6)
    value = PoissonLikelihood().predict_log_prob([[mean]], [[variance]], [1_000_000]).item()
    assert value == pytest.approx(predictive_log_prob(lambda f: poisson_log_pmf(1e6, f), mean, variance), abs=1e-7)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("mean", [-3.0, 0.0, 2.5])
@pytest.mark.parametrize(("count", "n_trials"), [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30), (400, 1000)])
def test_binomial_predictive_log_prob_equals_scipy(count, n_trials, mean, variance):
    value = BinomialLikelihood().predict_log_prob([[mean]], [[variance]], [count], n_trials).item()
    expected = predictive_log_prob(lambda f: binomial_log_pmf(count, f, n_trials), mean, variance)
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("variance", VARIANCES)
def test_binomial_predictive_log_prob_of_a_million_equals_scipy(variance):
    value = BinomialLikelihood().predict_log_prob([[0.4]], [[variance]], [1_000_000], 1_670_000).item()
    expected = predictive_log_prob(lambda f: binomial_log_pmf(1e6, f, 1.67e6), 0.4, variance)
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-7)


LATENTS = torch.tensor([[-2.0], [0.0], [1.5]], dtype=torch.float64), torch.tensor([[0.0], [0.1], [0.5]]).double()


def test_poisson_probabilities_sum_to_one():
    probs = PoissonLikelihood().predict_proba(*LATENTS, max_count=1500, exposure=[1.0, 2.0, 3.0])
    assert probs.shape == (3, 1501)
    assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("variance", VARIANCES)
def test_binomial_probabilities_sum_to_one(variance):
    mean = torch.tensor([[-6.0], [0.0], [1.5]], dtype=torch.float64)
    probs = BinomialLikelihood().predict_proba(mean, torch.full_like(mean, variance), n_trials=[60, 7, 60])
    assert probs.shape == (3, 61)
    assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-9)


def test_binomial_probabilities_are_zero_beyond_the_trials_of_a_row():
    probs = BinomialLikelihood().predict_proba(*LATENTS, n_trials=[0, 2, 5])
    trials = torch.tensor([[0], [2], [5]])
    assert torch.equal(probs > 0, torch.arange(6) <= trials)


def test_zero_trials_have_zero_successes_for_sure():
    probs = BinomialLikelihood().predict_proba(*LATENTS, n_trials=0)
    assert_close(probs, torch.ones(3, 1, dtype=torch.float64), rtol=0, atol=1e-10)


def test_poisson_predict_log_prob_is_the_logarithm_of_predict_proba():
    likelihood, y, exposure = PoissonLikelihood(), torch.tensor([0, 3, 8]), [1.0, 2.0, 3.0]
    probs = likelihood.predict_proba(*LATENTS, max_count=8, exposure=exposure)
    log_probs = likelihood.predict_log_prob(*LATENTS, y, exposure)
    assert_close(log_probs, probs[torch.arange(3), y].log(), rtol=1e-12, atol=0)


def test_binomial_predict_log_prob_is_the_logarithm_of_predict_proba():
    likelihood, y, n_trials = BinomialLikelihood(), torch.tensor([0, 3, 5]), [2, 4, 5]
    probs = likelihood.predict_proba(*LATENTS, n_trials=n_trials)
    log_probs = likelihood.predict_log_prob(*LATENTS, y, n_trials)
    assert_close(log_probs, probs[torch.arange(3), y].log(), rtol=1e-12, atol=0)


def test_poisson_predict_mean_is_that_of_a_log_normal():
    mean, variance = LATENTS
    expected = torch.tensor([1.0, 2.0, 3.0]).double() * torch.exp(mean + variance / 2)[:, 0]
    assert_close(PoissonLikelihood().predict_mean(mean, variance, [1.0, 2.0, 3.0]), expected, rtol=1e-12, atol=0)


def test_poisson_predict_mean_is_the_mean_of_its_probabilities():
    probs = PoissonLikelihood().predict_proba(*LATENTS, max_count=1500, exposure=2.0)
    mean = PoissonLikelihood().predict_mean(*LATENTS, 2.0)
    assert_close(mean, probs @ torch.arange(1501.0, dtype=torch.float64), rtol=1e-7, atol=0)


def test_binomial_predict_mean_is_the_mean_of_its_probabilities():
    probs = BinomialLikelihood().predict_proba(*LATENTS, n_trials=[3, 9, 20])
    mean = BinomialLikelihood().predict_mean(*LATENTS, [3, 9, 20])
    assert_close(mean, probs @ torch.arange(21.0, dtype=torch.float64), rtol=1e-8, atol=0)


def test_binomial_predict_mean_without_variance_is_trials_times_the_sigmoid():
    mean = BinomialLikelihood().predict_mean([[-1.0], [2.0]], [[0.0], [0.0]], [4, 10])
    assert_close(mean, torch.tensor([4 * expit(-1.0), 10 * expit(2.0)]).double(), rtol=1e-7, atol=0)


@pytest.mark.parametrize("likelihood", [PoissonLikelihood(), BinomialLikelihood()], ids=["poisson", "binomial"])
def test_a_row_does_not_depend_on_its_batch(likelihood):
    size = {"exposure": 2.0} if isinstance(likelihood, PoissonLikelihood) else {"n_trials": 60}
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(5000, 1, generator=generator, dtype=torch.float64)
    variance = 3.0 * torch.rand(5000, 1, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 60, (5000,), generator=generator)
    together = likelihood.predict_log_prob(mean, variance, y, **size)
    for i in (0, 17, 4999):
        alone = likelihood.predict_log_prob(mean[i : i + 1], variance[i : i + 1], y[i : i + 1], **size)
        assert_close(alone, together[i : i + 1], rtol=1e-12, atol=0)


def test_float32_probabilities_agree_with_float64():
    mean, variance = (tensor.float() for tensor in LATENTS)
    single = PoissonLikelihood().predict_proba(mean, variance, max_count=9)
    double = PoissonLikelihood().predict_proba(mean.double(), variance.double(), max_count=9)
    assert single.dtype == torch.float32
    assert_close(single.double(), double, rtol=0, atol=1e-6)


# --- one trial is a binary label ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*BETA_MATCHES, "gauss"])
def test_one_trial_encodes_as_a_binary_label(method):
    labels = torch.tensor([0, 1, 1])
    binomial = BinomialLikelihood(0.4, 0.7, method, label_variance=0.3).encode(labels, 1)
    logistic = LogisticLikelihood(0.4, 0.7, method, label_variance=0.3).encode(labels)
    assert_close(binomial, logistic, rtol=1e-6, atol=1e-6)


def test_one_trial_has_the_log_prob_of_a_binary_label():
    latents, labels = torch.tensor([[-30.0], [0.3], [4.0]], dtype=torch.float64), [0, 1, 0]
    assert_close(BinomialLikelihood().log_prob(latents, labels, 1), LogisticLikelihood().log_prob(latents, labels))


def test_one_trial_has_the_expected_log_prob_of_a_binary_label():
    binomial = BinomialLikelihood().expected_log_prob(*LATENTS, [0, 1, 0], 1)
    assert_close(binomial, LogisticLikelihood().expected_log_prob(*LATENTS, [0, 1, 0]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("variance", VARIANCES)
def test_one_trial_has_the_probabilities_of_a_binary_label(variance):
    mean = torch.tensor([[-30.0], [-2.0], [0.0], [5.0]], dtype=torch.float64)
    binomial = BinomialLikelihood().predict_proba(mean, torch.full_like(mean, variance), n_trials=1)
    logistic = LogisticLikelihood().predict_proba(mean, torch.full_like(mean, variance))
    assert_close(binomial, logistic, rtol=1e-8, atol=0)


@pytest.mark.parametrize(
    ("likelihood", "text"),
    [
        (PoissonLikelihood(0.2, 0.3), "PoissonLikelihood(alpha_eps=0.2, beta_eps=0.3, method='variational')"),
        (BinomialLikelihood(method="gauss"), "BinomialLikelihood(alpha_eps=0.1, beta_eps=None, method='gauss')"),
    ],
    ids=["poisson", "binomial"],
)
def test_repr_shows_the_parameters(likelihood, text):
    assert repr(likelihood) == text


@pytest.mark.parametrize("family", [PoissonLikelihood, BinomialLikelihood])
def test_float32_keeps_the_log_probability_of_a_million(family):
    size = 1.0 if family is PoissonLikelihood else 4_000_000
    latent = 13.8 if family is PoissonLikelihood else -1.1
    single, double = (torch.tensor([[latent]], dtype=dtype) for dtype in (torch.float32, torch.float64))
    likelihood, y = family(), [1_000_000]
    exact = likelihood.log_prob(single.double(), y, size)
    assert_close(likelihood.log_prob(single, y, size), exact.float(), rtol=1e-6, atol=0)
    expected = likelihood.expected_log_prob(single.double(), 1e-8 * torch.ones_like(double), y, size)
    assert_close(
        likelihood.expected_log_prob(single, 1e-8 * torch.ones_like(single), y, size),
        expected.float(),
        rtol=1e-4,
        atol=0,
    )


def test_the_tiniest_variance_is_no_variance():
    likelihood = PoissonLikelihood()
    assert_close(
        likelihood.predict_log_prob([[0.5]], [[1e-30]], [2]), likelihood.predict_log_prob([[0.5]], [[0.0]], [2])
    )


def test_parameters_that_are_set_anew_count():
    likelihood = PoissonLikelihood(alpha_eps=0.1)
    likelihood.alpha_eps = 0.5
    assert_close(likelihood.encode([3]).mean, PoissonLikelihood(alpha_eps=0.5).encode([3]).mean)
