import math

import pytest
import torch
from torch.testing import assert_close

from gaussify import LogisticLikelihood, SoftmaxLikelihood
from likelihoods.quadrature_oracles import softmax_moments

ROWS = [
    pytest.param([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], id="equal"),
    pytest.param([2.0, 0.0, -1.0], [4.0, 0.1, 9.0], id="mixed-variances"),
    pytest.param([5.0, 0.0, 0.0], [9.0, 9.0, 9.0], id="wide"),
    pytest.param([-3.0, 0.0, 6.0], [0.0, 0.0, 25.0], id="partly-certain"),
    pytest.param([2.0, 0.0, -1.0], [0.01, 0.01, 0.01], id="nearly-certain"),
]
likelihoods = pytest.mark.parametrize(
    "likelihood",
    [LogisticLikelihood(), SoftmaxLikelihood(2), SoftmaxLikelihood(3), SoftmaxLikelihood(26)],
    ids=["logistic", "softmax-2", "softmax-3", "softmax-26"],
)


def latents(n: int, n_latents: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = 3.0 * torch.randn(n, n_latents, generator=generator, dtype=torch.float64)
    return mean, 9.0 * torch.rand(n, n_latents, generator=generator, dtype=torch.float64)


def one_row(mean, variance, n_classes: int):
    mean = torch.tensor(mean[:n_classes], dtype=torch.float64)
    variance = torch.tensor(variance[:n_classes], dtype=torch.float64)
    exact = softmax_moments(mean, variance)
    return SoftmaxLikelihood(n_classes).predict_uncertainty(mean[None], variance[None]), exact


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("mean", "variance"), ROWS)
def test_std_equals_tensor_quadrature(mean, variance, n_classes):
    uncertainty, exact = one_row(mean, variance, n_classes)
    assert_close(uncertainty.std[0], exact.std, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("mean", "variance"), ROWS)
def test_aleatoric_entropy_equals_tensor_quadrature(mean, variance, n_classes):
    uncertainty, exact = one_row(mean, variance, n_classes)
    assert_close(uncertainty.aleatoric_entropy[0], exact.entropy, rtol=0, atol=2e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("mean", "variance"), ROWS)
def test_total_entropy_equals_tensor_quadrature(mean, variance, n_classes):
    uncertainty, exact = one_row(mean, variance, n_classes)
    assert_close(uncertainty.total_entropy[0], torch.special.entr(exact.probs).sum(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_uncertainty_equals_a_large_monte_carlo(n_classes):
    mean, variance = latents(1, n_classes)
    n = 200_000
    noise = torch.randn(n, n_classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    probs = torch.softmax(mean + variance.sqrt() * noise, -1)
    entropy = torch.special.entr(probs).sum(-1)
    uncertainty = SoftmaxLikelihood(n_classes).predict_uncertainty(mean, variance)
    # standard error of a sampled std: sqrt((fourth central moment - var^2) / n) / (2 std)
    centred = probs - probs.mean(0)
    error_of_std = (centred.pow(4).mean(0) - centred.square().mean(0).square()).sqrt() / (2 * probs.std(0) * n**0.5)
    assert ((uncertainty.std[0] - probs.std(0)).abs() < 5 * error_of_std).all()
    assert abs(uncertainty.aleatoric_entropy.item() - entropy.mean().item()) < 5 * entropy.std().item() / math.sqrt(n)


@likelihoods
def test_probabilities_are_those_of_predict_proba(likelihood):
    mean, variance = latents(20, likelihood.n_latents)
    uncertainty = likelihood.predict_uncertainty(mean, variance)
    assert_close(uncertainty.probs, likelihood.predict_proba(mean, variance), rtol=0, atol=1e-12)


@likelihoods
def test_std_is_zero_without_variance(likelihood):
    mean, variance = latents(20, likelihood.n_latents)
    std = likelihood.predict_uncertainty(mean, torch.zeros_like(variance)).std
    assert_close(std, torch.zeros_like(std), rtol=0, atol=1e-7)


@likelihoods
def test_epistemic_entropy_is_zero_without_variance(likelihood):
    mean, variance = latents(20, likelihood.n_latents)
    epistemic = likelihood.predict_uncertainty(mean, torch.zeros_like(variance)).epistemic_entropy
    assert_close(epistemic, torch.zeros_like(epistemic), rtol=0, atol=1e-6)


@likelihoods
def test_total_entropy_is_aleatoric_plus_epistemic(likelihood):
    uncertainty = likelihood.predict_uncertainty(*latents(50, likelihood.n_latents))
    total = uncertainty.aleatoric_entropy + uncertainty.epistemic_entropy
    assert_close(total, uncertainty.total_entropy, rtol=1e-12, atol=0)


@likelihoods
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 30.0], ids=["small", "medium", "large"])
def test_nothing_is_negative_or_nan(likelihood, dtype, scale):
    mean, variance = latents(50, likelihood.n_latents)
    uncertainty = likelihood.predict_uncertainty((scale * mean).to(dtype), (scale * variance).to(dtype))
    for name, values in uncertainty._asdict().items():
        assert (values >= 0).all(), name


@likelihoods
def test_total_entropy_is_at_most_that_of_a_uniform(likelihood):
    uncertainty = likelihood.predict_uncertainty(*latents(50, likelihood.n_latents))
    assert (uncertainty.total_entropy <= math.log(likelihood.n_classes) + 1e-12).all()


@likelihoods
def test_epistemic_entropy_grows_with_the_variance(likelihood):
    mean = latents(1, likelihood.n_latents)[0]
    mean = (mean / mean.abs().max()).expand(6, -1)
    variance = torch.tensor([0.0, 0.1, 0.5, 2.0, 8.0, 30.0], dtype=torch.float64)[:, None].expand_as(mean)
    epistemic = likelihood.predict_uncertainty(mean, variance).epistemic_entropy
    assert (epistemic.diff() > 1e-3).all()


def test_logistic_equals_softmax_with_two_latents():
    mean, variance = latents(30, 2)
    two = SoftmaxLikelihood(2).predict_uncertainty(mean, variance)
    one = LogisticLikelihood().predict_uncertainty(mean[:, 1:] - mean[:, :1], variance.sum(-1, keepdim=True))
    assert_close(tuple(one), tuple(two), rtol=1e-9, atol=1e-11)


@likelihoods
def test_float32_agrees_with_float64(likelihood):
    mean, variance = (tensor.float() for tensor in latents(30, likelihood.n_latents))
    single = likelihood.predict_uncertainty(mean, variance)
    double = likelihood.predict_uncertainty(mean.double(), variance.double())
    assert single.std.dtype == single.epistemic_entropy.dtype == torch.float32
    assert_close([values.double() for values in single], list(double), rtol=0, atol=1e-4)


def test_latents_that_require_gradients_are_taken():
    mean, variance = (tensor.requires_grad_() for tensor in latents(3, 3))
    assert not SoftmaxLikelihood(3).predict_uncertainty(mean, variance).std.requires_grad


@pytest.mark.parametrize("variance", [1e-8, 2.9e-4, 3.1e-4, 1e-3, 1e-2])
def test_std_of_confident_rows_keeps_its_digits(variance):
    # a class far ahead: the others have log-normal probabilities, e^{-8 + f_j - f_0} with variance 2 v
    std = SoftmaxLikelihood(3).predict_uncertainty([[8.0, 0.0, 0.0]], [[variance] * 3]).std[0, 1].item()
    log_normal = math.exp(-8 + variance) * math.sqrt(math.expm1(2 * variance))
    assert std == pytest.approx(log_normal, rel=0.03)


def test_the_entropy_of_a_nearly_certain_row_is_mostly_aleatoric():
    uncertainty = SoftmaxLikelihood(3).predict_uncertainty([[20.0, 0.0, 0.0]], [[0.1] * 3])
    assert uncertainty.epistemic_entropy.item() == pytest.approx(4.6e-10, rel=0.2)  # by a 121^3 product rule
    assert uncertainty.aleatoric_entropy.item() == pytest.approx(9.48e-8, rel=0.01)
