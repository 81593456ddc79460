import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import expit
from torch.distributions import Dirichlet
from torch.testing import assert_close

from gaussify import LogisticLikelihood, SoftmaxLikelihood, match
from gaussify.likelihoods import PredictiveMethod
from likelihoods.quadrature_oracles import normal_expectation, softmax_moments

METHODS = [str(method) for method in PredictiveMethod]
CLOSED = ["mean-field", "bridge", "plug-in"]
methods = pytest.mark.parametrize("method", METHODS)
likelihoods = pytest.mark.parametrize(
    "likelihood",
    [LogisticLikelihood(), SoftmaxLikelihood(2), SoftmaxLikelihood(3), SoftmaxLikelihood(26)],
    ids=["logistic", "softmax-2", "softmax-3", "softmax-26"],
)


def latents(n: int, n_latents: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = 3.0 * torch.randn(n, n_latents, generator=generator, dtype=torch.float64)
    variance = 5.0 * torch.rand(n, n_latents, generator=generator, dtype=torch.float64)
    return mean.to(dtype), variance.to(dtype)


@methods
@likelihoods
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_rows_are_probabilities_of_every_class(likelihood, method, dtype):
    probs = likelihood.predict_proba(*latents(9, likelihood.n_latents, dtype), method)
    assert probs.shape == (9, likelihood.n_classes)
    assert probs.dtype == dtype
    assert (probs >= 0).all()
    assert_close(probs.sum(-1), torch.ones(9, dtype=dtype), rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-12)


@methods
@likelihoods
def test_float32_agrees_with_float64(likelihood, method):
    mean, variance = latents(9, likelihood.n_latents, torch.float32)
    single = likelihood.predict_proba(mean, variance, method)
    double = likelihood.predict_proba(mean.double(), variance.double(), method)
    assert_close(single.double(), double, rtol=0, atol=1e-5)


@methods
@likelihoods
def test_without_variance_it_is_the_link(likelihood, method):
    mean, variance = latents(9, likelihood.n_latents)
    logits = torch.cat([torch.zeros_like(mean), mean], -1) if likelihood.n_latents == 1 else mean
    probs = likelihood.predict_proba(mean, torch.zeros_like(variance), method)
    assert_close(probs, torch.softmax(logits, -1), rtol=0, atol=1e-10)


@methods
@likelihoods
def test_a_row_does_not_depend_on_its_batch(likelihood, method):
    mean, variance = latents(5000, likelihood.n_latents)  # more rows than are computed at a time
    some = [4999, 17, 0, 2500]
    alone = torch.cat([likelihood.predict_proba(mean[i : i + 1], variance[i : i + 1], method) for i in some])
    assert_close(alone, likelihood.predict_proba(mean, variance, method)[some], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "monte-carlo"])  # where each class has its own draws
def test_permuting_the_classes_permutes_the_probabilities(method):
    likelihood, order = SoftmaxLikelihood(5), [3, 0, 4, 1, 2]
    mean, variance = latents(6, 5)
    permuted = likelihood.predict_proba(mean[:, order], variance[:, order], method)
    assert_close(permuted, likelihood.predict_proba(mean, variance, method)[:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_shift_of_all_latents_changes_nothing(method):
    mean, variance = latents(6, 4)
    likelihood = SoftmaxLikelihood(4)
    shifted = likelihood.predict_proba(mean + 7.0, variance, method)
    assert_close(shifted, likelihood.predict_proba(mean, variance, method), rtol=0, atol=1e-6)


@pytest.mark.parametrize("variance", [1e-8, 0.1, 1.0, 6.0, 6.5, 9.0, 100.0, 1e4])
@pytest.mark.parametrize("mean", [-8.0, -1.0, 0.0, 0.7, 5.0])
def test_logistic_quadrature_equals_scipy(mean, variance):
    probs = LogisticLikelihood().predict_proba([[mean]], [[variance]])
    assert probs[0, 1].item() == pytest.approx(normal_expectation(expit, mean, variance), rel=1e-9)


@pytest.mark.parametrize(("mean", "variance"), [(-60.0, 60.0), (-30.0, 4.0), (-200.0, 300.0)])
@pytest.mark.parametrize("label", [0, 1])
def test_small_logistic_probabilities_keep_their_digits(mean, variance, label):
    with mpmath.workdps(25):
        scale = mpmath.sqrt(variance)
        exact = mpmath.quad(lambda u: mpmath.npdf(u) / (1 + mpmath.exp(-mean - scale * u)), list(range(-6, 31)))
    probs = LogisticLikelihood().predict_proba([[mean if label else -mean]], [[variance]])
    assert probs[0, label].item() == pytest.approx(float(exact), rel=1e-8)


@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        pytest.param([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], id="equal"),
        pytest.param([2.0, 0.0, -1.0], [4.0, 0.1, 9.0], id="mixed-variances"),
        pytest.param([5.0, 0.0, 0.0], [9.0, 9.0, 9.0], id="wide"),
        pytest.param([-3.0, 0.0, 6.0], [0.0, 0.0, 25.0], id="partly-certain"),
        pytest.param([2.0, 0.0, -1.0], [1e-6, 1e-6, 1e-6], id="nearly-certain"),
    ],
)
def test_softmax_quadrature_equals_tensor_quadrature(mean, variance):
    mean, variance = torch.tensor(mean, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64)
    probs = SoftmaxLikelihood(3).predict_proba(mean[None], variance[None])[0]
    assert_close(probs, softmax_moments(mean, variance).probs, rtol=0, atol=1e-6)


def test_two_softmax_latents_give_the_logistic_probabilities_of_their_difference():
    mean, variance = latents(20, 2)
    two = SoftmaxLikelihood(2).predict_proba(mean, variance)
    one = LogisticLikelihood().predict_proba(mean[:, 1:] - mean[:, :1], variance.sum(-1, keepdim=True))
    assert_close(two, one, rtol=1e-12, atol=0)


@likelihoods
def test_monte_carlo_repeats_itself(likelihood):
    mean, variance = latents(5, likelihood.n_latents)
    torch.manual_seed(1)
    first = likelihood.predict_proba(mean, variance, "monte-carlo")
    torch.manual_seed(2)  # the global generator plays no part
    assert_close(likelihood.predict_proba(mean, variance, "monte-carlo"), first, rtol=0, atol=0)


@likelihoods
def test_monte_carlo_leaves_the_global_generator_alone(likelihood):
    mean, variance = latents(5, likelihood.n_latents)
    state = torch.random.get_rng_state()
    likelihood.predict_proba(mean, variance, "monte-carlo")
    assert torch.equal(torch.random.get_rng_state(), state)


@likelihoods
def test_another_seed_gives_another_monte_carlo_average(likelihood):
    mean, variance = latents(5, likelihood.n_latents)
    zero, one = (likelihood.predict_proba(mean, variance, "monte-carlo", seed=seed) for seed in (0, 1))
    assert not torch.allclose(zero, one, atol=1e-4)


@pytest.mark.parametrize("n_samples", [256, 200_000])
@pytest.mark.parametrize("likelihood", [LogisticLikelihood(), SoftmaxLikelihood(3)], ids=["logistic", "softmax-3"])
def test_monte_carlo_agrees_with_quadrature_within_its_standard_error(likelihood, n_samples):
    mean, variance = latents(4, likelihood.n_latents)
    sampled = likelihood.predict_proba(mean, variance, "monte-carlo", n_samples=n_samples, seed=3)
    exact = likelihood.predict_uncertainty(mean, variance)
    assert ((sampled - exact.probs).abs() < 4.5 * exact.std / math.sqrt(n_samples) + 1e-7).all()


@likelihoods
def test_plug_in_is_the_link_at_the_mean(likelihood):
    mean, variance = latents(9, likelihood.n_latents)
    logits = torch.cat([torch.zeros_like(mean), mean], -1) if likelihood.n_latents == 1 else mean
    assert_close(likelihood.predict_proba(mean, variance, "plug-in"), torch.softmax(logits, -1), rtol=1e-12, atol=0)


def test_mean_field_of_one_latent_is_the_formula_of_mackay():
    mean, variance = latents(9, 1)
    expected = torch.sigmoid(mean / torch.sqrt(1 + math.pi * variance / 8))
    probs = LogisticLikelihood().predict_proba(mean, variance, "mean-field")
    assert_close(probs, torch.cat([1 - expected, expected], -1), rtol=0, atol=1e-14)


def test_mean_field_of_two_classes_is_the_formula_of_mackay_for_their_difference():
    mean, variance = latents(9, 2)
    expected = torch.sigmoid((mean[:, 1] - mean[:, 0]) / torch.sqrt(1 + math.pi * variance.sum(-1) / 8))
    probs = SoftmaxLikelihood(2).predict_proba(mean, variance, "mean-field")
    assert_close(probs[:, 1], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [[2.0, 3.0, 1.5, 4.0], [1.0, 1.0, 1.0], [0.7, 0.5, 0.9, 1.1, 0.6]])
def test_bridge_returns_the_mean_of_the_dirichlet_it_came_from(alpha):
    matched = match(Dirichlet(torch.tensor(alpha, dtype=torch.float64)), "laplace")
    probs = SoftmaxLikelihood(len(alpha)).predict_proba(matched.mean[None], matched.variance[None], "bridge")
    np.testing.assert_allclose(probs[0], np.array(alpha) / sum(alpha), rtol=1e-12)


def test_bridge_is_continuous_where_several_classes_become_certain():
    mean, likelihood = [[1.0, 0.0, -1.0]], SoftmaxLikelihood(3)
    nearly = likelihood.predict_proba(mean, [[1e-10, 1e-10, 1.0]], "bridge")
    assert_close(likelihood.predict_proba(mean, [[0.0, 0.0, 1.0]], "bridge"), nearly, rtol=0, atol=1e-4)


BOUNDS = {"quadrature": 1e-6, "mean-field": 0.06, "bridge": 0.45, "plug-in": 0.35}


def grid_of_three() -> tuple[torch.Tensor, torch.Tensor]:
    means = torch.cartesian_prod(*[torch.tensor([-3.0, 0.0, 2.0], dtype=torch.float64)] * 2)
    mean = torch.cat([means, torch.zeros(len(means), 1, dtype=torch.float64)], -1).repeat(3, 1)
    variance = torch.tensor([0.25, 2.0, 9.0], dtype=torch.float64).repeat_interleave(len(means))
    return mean, variance[:, None].expand(-1, 3)


@pytest.fixture(scope="module")
def exact_grid_of_three() -> torch.Tensor:
    return torch.stack([softmax_moments(m, v, step=0.25).probs for m, v in zip(*grid_of_three(), strict=True)])


@pytest.mark.parametrize("method", BOUNDS)
def test_softmax_error_on_a_grid_is_within_its_bound(method, exact_grid_of_three):
    error = (SoftmaxLikelihood(3).predict_proba(*grid_of_three(), method) - exact_grid_of_three).abs().max().item()
    assert error < BOUNDS[method]


@pytest.mark.parametrize("method", CLOSED)
def test_softmax_quadrature_is_closer_than(method, exact_grid_of_three):
    errors = [
        (SoftmaxLikelihood(3).predict_proba(*grid_of_three(), option) - exact_grid_of_three).abs().max().item()
        for option in ("quadrature", method)
    ]
    assert errors[0] < 1e-3 * errors[1]


LOGISTIC_BOUNDS = {"quadrature": 1e-9, "mean-field": 0.015, "bridge": 0.25, "plug-in": 0.25}


@pytest.mark.parametrize("method", LOGISTIC_BOUNDS)
def test_logistic_error_on_a_grid_is_within_its_bound(method):
    grid = [(mean, variance) for mean in np.linspace(-6, 6, 9) for variance in (0.1, 1.0, 9.0, 25.0)]
    exact = [normal_expectation(expit, mean, variance) for mean, variance in grid]
    latent = torch.tensor(grid, dtype=torch.float64)
    probs = LogisticLikelihood().predict_proba(latent[:, :1], latent[:, 1:], method)
    assert np.abs(probs[:, 1].numpy() - exact).max() < LOGISTIC_BOUNDS[method]


@pytest.mark.parametrize(
    "likelihood",
    [LogisticLikelihood(), SoftmaxLikelihood(2), SoftmaxLikelihood(3), SoftmaxLikelihood(6)],
    ids=["logistic", "softmax-2", "softmax-3", "softmax-6"],
)
def test_quadrature_passes_gradcheck(likelihood):
    mean, variance = latents(2, likelihood.n_latents)
    inputs = (mean.requires_grad_(), (variance + 0.5).requires_grad_())
    exact = likelihood.n_classes == 2
    assert torch.autograd.gradcheck(
        likelihood.predict_proba, inputs, eps=1e-6 if exact else 1e-3, atol=1e-6 if exact else 1e-4, rtol=1e-3
    )
