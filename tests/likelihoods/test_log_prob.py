import math

import pytest
import torch
from scipy.special import log1p
from torch.distributions import Bernoulli, Binomial, Categorical, Poisson
from torch.testing import assert_close

from gaussify import BinomialLikelihood, LogisticLikelihood, PoissonLikelihood, SoftmaxLikelihood
from likelihoods.quadrature_oracles import normal_expectation, softmax_moments

EXTREMES = [-1000.0, -40.0, 0.0, 40.0, 1000.0]
shapes = pytest.mark.parametrize("sample_shape", [(), (7,), (3, 2)], ids=["no-samples", "samples", "two-sample-axes"])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def normal_draws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 3.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@shapes
@dtypes
def test_softmax_log_prob_is_that_of_a_categorical(sample_shape, dtype):
    latents = normal_draws(*sample_shape, 5, 4, dtype=dtype)
    labels = torch.tensor([0, 3, 1, 2, 3])
    value = SoftmaxLikelihood(4).log_prob(latents, labels)
    assert value.shape == (*sample_shape, 5)
    assert_close(value, Categorical(logits=latents).log_prob(labels))


@shapes
@dtypes
def test_logistic_log_prob_is_that_of_a_bernoulli(sample_shape, dtype):
    latents = normal_draws(*sample_shape, 5, 1, dtype=dtype)
    labels = torch.tensor([0, 1, 1, 0, 1])
    value = LogisticLikelihood().log_prob(latents, labels)
    assert value.shape == (*sample_shape, 5)
    assert_close(value, Bernoulli(logits=latents[..., 0]).log_prob(labels.to(dtype)), rtol=1e-5, atol=2e-6)


@shapes
@dtypes
def test_poisson_log_prob_is_that_of_a_poisson(sample_shape, dtype):
    latents = normal_draws(*sample_shape, 4, 1, dtype=dtype)
    y, exposure = torch.tensor([0.0, 1.0, 7.0, 300.0]), torch.tensor([1.0, 0.5, 2.0, 30.0])
    value = PoissonLikelihood().log_prob(latents, y, exposure)
    assert value.shape == (*sample_shape, 4)
    expected = Poisson(exposure.to(dtype) * latents[..., 0].exp()).log_prob(y.to(dtype))
    assert_close(value, expected, rtol=1e-5, atol=1e-5)


@shapes
@dtypes
def test_binomial_log_prob_is_that_of_a_binomial(sample_shape, dtype):
    latents = normal_draws(*sample_shape, 4, 1, dtype=dtype)
    y, n_trials = torch.tensor([0.0, 1.0, 7.0, 30.0]), torch.tensor([3.0, 1.0, 20.0, 30.0])
    value = BinomialLikelihood().log_prob(latents, y, n_trials)
    assert value.shape == (*sample_shape, 4)
    expected = Binomial(n_trials.to(dtype), logits=latents[..., 0]).log_prob(y.to(dtype))
    assert_close(value, expected, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("latent", EXTREMES)
@pytest.mark.parametrize("label", [0, 1])
def test_logistic_log_prob_is_exact_at_extreme_latents(latent, label):
    signed = latent if label else -latent
    expected = -log1p(math.exp(-signed)) if signed > 0 else signed - log1p(math.exp(signed))
    value = LogisticLikelihood().log_prob([[latent]], [label]).item()
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("label", "expected"), [(0, 0.0), (1, -1000.0), (2, -2000.0)])
def test_softmax_log_prob_is_exact_at_extreme_latents(label, expected):
    assert SoftmaxLikelihood(3).log_prob([[1000.0, 0.0, -1000.0]], [label]).item() == expected


@pytest.mark.parametrize(
    ("latent", "y", "expected"),
    [(1000.0, 5, 0.0), (-1000.0, 0, 0.0), (1000.0, 0, -5000.0), (-1000.0, 5, -5000.0)],
    ids=["certain-success", "certain-failure", "impossible-failure", "impossible-success"],
)
def test_binomial_log_prob_is_exact_at_extreme_latents(latent, y, expected):
    assert BinomialLikelihood().log_prob([[latent]], [y], 5).item() == expected


@pytest.mark.parametrize(
    ("latent", "y", "expected"),
    [(-1000.0, 0, 0.0), (-1000.0, 2, -2000.0 - math.log(2.0)), (1000.0, 2, -math.inf)],
    ids=["no-rate-no-events", "no-rate-events", "rate-beyond-floats"],
)
def test_poisson_log_prob_is_exact_at_extreme_latents(latent, y, expected):
    assert PoissonLikelihood().log_prob([[latent]], [y]).item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    "likelihood", [SoftmaxLikelihood(3, 0.4), LogisticLikelihood(0.4)], ids=["softmax", "logistic"]
)
def test_log_prob_of_counts_is_the_sum_over_their_labels(likelihood):
    latents = normal_draws(1, likelihood.n_latents)
    counts = torch.tensor([[2.0, 1.0, 4.0][: likelihood.n_classes]])
    labels = [label for label, repeats in enumerate(counts[0].long().tolist()) for _ in range(repeats)]
    each = likelihood.log_prob(latents.expand(len(labels), -1), labels)
    assert_close(likelihood.log_prob(latents, counts), each.sum(0, keepdim=True), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "likelihood", [SoftmaxLikelihood(3, 0.4), LogisticLikelihood(0.4)], ids=["softmax", "logistic"]
)
def test_expected_log_prob_of_counts_is_the_sum_over_their_labels(likelihood):
    mean, variance = normal_draws(1, likelihood.n_latents), normal_draws(1, likelihood.n_latents, seed=1).square()
    counts = torch.tensor([[0.5, 1.25, 3.0][: likelihood.n_classes]])
    table = [likelihood.expected_log_prob(mean, variance, [label]) for label in range(likelihood.n_classes)]
    expected = sum(weight * value for weight, value in zip(counts[0].tolist(), table, strict=True))
    assert_close(likelihood.expected_log_prob(mean, variance, counts), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variance", [1e-8, 0.1, 1.0, 9.0, 100.0])
@pytest.mark.parametrize("mean", [-8.0, 0.0, 0.7, 25.0])
@pytest.mark.parametrize("label", [0, 1])
def test_logistic_expected_log_prob_equals_quadrature(mean, variance, label):
    sign = 1.0 if label else -1.0

    def log_sigmoid(f: float) -> float:
        return -float(torch.nn.functional.softplus(torch.tensor(-sign * f, dtype=torch.float64), threshold=1e9))

    value = LogisticLikelihood().expected_log_prob([[mean]], [[variance]], [label]).item()
    assert value == pytest.approx(normal_expectation(log_sigmoid, mean, variance), rel=1e-8, abs=1e-10)


SOFTMAX_ROWS = [
    pytest.param([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], id="equal"),
    pytest.param([2.0, 0.0, -1.0], [4.0, 0.1, 9.0], id="mixed-variances"),
    pytest.param([5.0, 0.0, 0.0], [9.0, 9.0, 9.0], id="wide"),
    pytest.param([-3.0, 0.0, 6.0], [0.0, 0.0, 25.0], id="partly-certain"),
    pytest.param([2.0, 0.0, -1.0], [1e-6, 1e-6, 1e-6], id="nearly-certain"),
]


@pytest.mark.parametrize(("mean", "variance"), SOFTMAX_ROWS)
def test_softmax_expected_log_prob_equals_tensor_quadrature(mean, variance):
    mean, variance = torch.tensor(mean, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64)
    value = SoftmaxLikelihood(3).expected_log_prob(mean.expand(3, 3), variance.expand(3, 3), [0, 1, 2])
    assert_close(value, mean - softmax_moments(mean, variance).logsumexp, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("likelihood", "arguments", "tolerance"),
    [
        pytest.param(SoftmaxLikelihood(4), {"y": [0, 3, 1]}, 1e-7, id="softmax"),
        pytest.param(SoftmaxLikelihood(2), {"y": [0, 1, 1]}, 1e-12, id="softmax-two"),
        pytest.param(LogisticLikelihood(), {"y": [0, 1, 1]}, 1e-12, id="logistic"),
        pytest.param(PoissonLikelihood(), {"y": [0, 2, 9], "exposure": [1.0, 2.0, 0.3]}, 1e-12, id="poisson"),
        pytest.param(BinomialLikelihood(), {"y": [0, 2, 9], "n_trials": [1, 5, 9]}, 1e-12, id="binomial"),
    ],
)
def test_expected_log_prob_without_variance_is_log_prob(likelihood, arguments, tolerance):
    mean = normal_draws(3, likelihood.n_latents)
    expected = likelihood.log_prob(mean, **arguments)
    assert_close(
        likelihood.expected_log_prob(mean, torch.zeros_like(mean), **arguments), expected, rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_softmax_expected_log_prob_passes_gradcheck(n_classes):
    mean = normal_draws(2, n_classes).requires_grad_()
    variance = (0.5 + normal_draws(2, n_classes, seed=1).square()).requires_grad_()
    likelihood = SoftmaxLikelihood(n_classes)
    # more than two classes read a table, whose small steps only a wide difference smooths
    eps = 1e-6 if n_classes == 2 else 1e-3
    tolerance = {"atol": 1e-6} if n_classes == 2 else {"atol": 1e-4, "rtol": 1e-3}
    assert torch.autograd.gradcheck(
        lambda m, v: likelihood.expected_log_prob(m, v, [0, 1]), (mean, variance), eps=eps, **tolerance
    )


@pytest.mark.parametrize(
    ("likelihood", "arguments"),
    [
        pytest.param(LogisticLikelihood(), {"y": [0, 1]}, id="logistic"),
        pytest.param(PoissonLikelihood(), {"y": [0, 3], "exposure": [2.0, 0.5]}, id="poisson"),
        pytest.param(BinomialLikelihood(), {"y": [0, 3], "n_trials": [4, 3]}, id="binomial"),
    ],
)
def test_expected_log_prob_of_one_latent_passes_gradcheck(likelihood, arguments):
    mean = torch.tensor([[-0.5], [1.5]], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([[0.3], [9.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, v: likelihood.expected_log_prob(m, v, **arguments), (mean, variance))


@pytest.mark.parametrize(
    "likelihood",
    [SoftmaxLikelihood(2), SoftmaxLikelihood(5), LogisticLikelihood()],
    ids=["softmax-two", "softmax-five", "logistic"],
)
def test_expected_log_prob_is_below_that_at_the_mean(likelihood):
    # Jensen: log-probabilities of labels are concave in the latents
    mean, variance = normal_draws(200, likelihood.n_latents), normal_draws(200, likelihood.n_latents, seed=1).square()
    labels = torch.arange(200) % likelihood.n_classes
    gap = likelihood.log_prob(mean, labels) - likelihood.expected_log_prob(mean, variance, labels)
    assert (gap > 0).all()


@pytest.mark.parametrize("variance", [0.1, 4.0])
@pytest.mark.parametrize(("y", "exposure"), [(0, 1.0), (3, 0.5), (50, 20.0)])
def test_poisson_expected_log_prob_equals_quadrature(y, exposure, variance):
    likelihood, mean = PoissonLikelihood(), 0.4
    expected = normal_expectation(
        lambda f: y * (f + math.log(exposure)) - exposure * math.exp(f) - math.lgamma(y + 1), mean, variance
    )
    value = likelihood.expected_log_prob([[mean]], [[variance]], [y], exposure).item()
    assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("variance", [0.1, 4.0, 100.0])
@pytest.mark.parametrize(("y", "n_trials"), [(0, 1), (3, 7), (50, 50)])
def test_binomial_expected_log_prob_equals_quadrature(y, n_trials, variance):
    mean = -0.6
    log_choose = math.log(math.comb(n_trials, y))

    def log_prob(f: float) -> float:
        log_success = min(f, 0.0) - math.log1p(math.exp(-abs(f)))
        log_failure = min(-f, 0.0) - math.log1p(math.exp(-abs(f)))
        return log_choose + y * log_success + (n_trials - y) * log_failure

    value = BinomialLikelihood().expected_log_prob([[mean]], [[variance]], [y], n_trials).item()
    assert value == pytest.approx(normal_expectation(log_prob, mean, variance), rel=1e-9)
