"""Expected log-probabilities and their derivatives, from which sites are made."""

import numpy as np
import pytest
import torch

from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import LogisticLikelihood, SoftmaxLikelihood

LIKELIHOODS = {
    "logistic": LogisticLikelihood(),
    "softmax-2": SoftmaxLikelihood(2),
    "softmax-3": SoftmaxLikelihood(3),
    "softmax-7": SoftmaxLikelihood(7),
}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
N = 12


def latents(likelihood, variance: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mean = 2.0 * torch.randn(N, likelihood.n_latents, generator=generator, dtype=torch.float64)
    spread = 0.5 + torch.rand(N, likelihood.n_latents, generator=generator, dtype=torch.float64)
    return mean, variance / 1.5 * spread


def labels_and_counts(likelihood) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    counts = torch.randint(0, 4, (N, likelihood.n_classes), generator=generator).double()
    counts[0], counts[1, 0] = 0.0, 0.5  # nothing, and part of a label
    return {"labels": torch.arange(N) % likelihood.n_classes, "counts": counts}


def numerical(likelihood, mean, variance, y, step: float = 0.01) -> tuple[torch.Tensor, torch.Tensor]:
    """Derivatives of ``expected_log_prob`` by means and variances, by central differences."""

    def slope(by_mean: bool) -> torch.Tensor:
        columns = []
        for k in range(mean.shape[1]):
            move = torch.zeros_like(mean)
            move[:, k] = step
            ends = [
                likelihood.expected_log_prob(*((mean + s, variance) if by_mean else (mean, variance + s)), y)
                for s in (move, -move)
            ]
            columns.append((ends[0] - ends[1]) / (2.0 * step))
        return torch.stack(columns, -1)

    return slope(True), slope(False)


@likelihoods
@pytest.mark.parametrize("kind", ["labels", "counts"])
@pytest.mark.parametrize(("variance", "tolerance"), [(0.05, 1e-3), (1.5, 5e-5), (8.0, 5e-5)])
def test_derivatives_are_those_of_the_expected_log_probability(likelihood, kind, variance, tolerance):
    (mean, spread), y = latents(likelihood, variance), labels_and_counts(likelihood)[kind]
    found = likelihood.expected_derivatives(mean, spread, y)
    scale = 1.0 if kind == "labels" else y.sum(-1, keepdim=True).clamp_min(1.0)
    gradient, by_variance = numerical(likelihood, mean, spread, y)
    value = likelihood.expected_log_prob(mean, spread, y)
    own_scale = 1.0 if kind == "labels" else scale[:, 0]
    torch.testing.assert_close(found.value / own_scale, value / own_scale, rtol=0.0, atol=tolerance)
    torch.testing.assert_close(found.gradient / scale, gradient / scale, rtol=0.0, atol=tolerance)
    torch.testing.assert_close(found.curvature / scale, -2.0 * by_variance / scale, rtol=0.0, atol=tolerance)


@likelihoods
@pytest.mark.parametrize("rough", [False, True])
def test_without_variance_they_are_derivatives_of_the_log_probability(likelihood, rough):
    mean, y = latents(likelihood, 1.0)[0].requires_grad_(), labels_and_counts(likelihood)["labels"]
    log_prob = likelihood.log_prob(mean, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), mean, create_graph=True)
    found = likelihood.expected_derivatives(mean.detach(), torch.zeros(N, likelihood.n_latents).double(), y)
    torch.testing.assert_close(
        (found.value, found.gradient), (log_prob.detach(), gradient.detach()), atol=1e-12, rtol=0.0
    )
    for k in range(likelihood.n_latents):
        (second,) = torch.autograd.grad(gradient[:, k].sum(), mean, retain_graph=True)
        torch.testing.assert_close(found.curvature[:, k], -second[:, k], atol=1e-12, rtol=0.0)
        if found.coupling is not None:  # the whole matrix is diag(p) - pp'
            h = found.coupling
            row = torch.eye(likelihood.n_latents)[k] * h[:, k : k + 1] * h.sum(-1, keepdim=True) - h[:, k : k + 1] * h
            torch.testing.assert_close(row, -second, atol=1e-12, rtol=0.0)


@likelihoods
def test_rough_derivatives_are_near_the_others(likelihood):
    (mean, spread), y = latents(likelihood, 1.5), labels_and_counts(likelihood)["labels"]
    rough, exact = (likelihood.expected_derivatives(mean, spread, y, rough=rough) for rough in (True, False))
    for own, other in zip(rough[:3], exact[:3], strict=True):
        torch.testing.assert_close(own, other, rtol=0.0, atol=0.03)


@pytest.mark.parametrize("variance", [0.05, 1.5, 8.0])
def test_coupling_has_the_trace_of_the_curvature(variance):
    likelihood = SoftmaxLikelihood(5)
    found = likelihood.expected_derivatives(*latents(likelihood, variance), labels_and_counts(likelihood)["counts"])
    h = found.coupling
    diagonal = h * (h.sum(-1, keepdim=True) - h)
    torch.testing.assert_close(diagonal.sum(-1), found.curvature.sum(-1), rtol=1e-5, atol=1e-8)


@likelihoods
def test_counts_of_one_label_are_the_label(likelihood):
    (mean, spread), labels = latents(likelihood, 1.0), labels_and_counts(likelihood)["labels"]
    counts = torch.eye(likelihood.n_classes).double()[labels]
    one, three = (likelihood.expected_derivatives(mean, spread, y) for y in (counts, 3.0 * counts))
    for own, other, triple in zip(likelihood.expected_derivatives(mean, spread, labels), one, three, strict=True):
        if own is not None:
            torch.testing.assert_close(own, other, rtol=0.0, atol=0.0)
            power = 3.0 if triple is not three.coupling else 3.0**0.5
            torch.testing.assert_close(triple, power * own, rtol=1e-12, atol=1e-12)


@likelihoods
def test_a_row_of_a_stream_has_the_derivatives_of_the_batch(likelihood):
    (mean, spread), y = latents(likelihood, 1.5), labels_and_counts(likelihood)["labels"]
    found = likelihood.expected_derivatives(mean, spread, y)
    own = np.eye(likelihood.n_classes)[y][:, -likelihood.n_latents :]  # logistic: of the second class
    for row in range(N):
        probs, slope = likelihood.row_moments(mean[row].numpy(), spread[row].numpy())
        np.testing.assert_allclose(own[row] - probs, found.gradient[row], rtol=0.0, atol=1e-6)
        np.testing.assert_allclose(slope, found.curvature[row], rtol=0.0, atol=1e-6)


@likelihoods
@pytest.mark.parametrize("scale", [40.0, 1e8])
def test_certain_rows_have_no_negative_curvature(likelihood, scale):
    mean, spread = latents(likelihood, 1.0)
    for variance in (0.0 * spread, 0.01 * spread, spread, 1e4 * spread):
        found = likelihood.expected_derivatives(scale * mean, variance, labels_and_counts(likelihood)["labels"])
        assert (found.curvature >= 0.0).all()
        assert all(part is None or bool(part.isfinite().all()) for part in found)


@likelihoods
def test_shapes_and_labels_are_checked(likelihood):
    mean, spread = latents(likelihood, 1.0)
    with pytest.raises(InvalidArgumentError, match="expected_derivatives"):
        likelihood.expected_derivatives(mean, spread, torch.full((N,), likelihood.n_classes))
    with pytest.raises(InvalidArgumentError, match="variance"):
        likelihood.expected_derivatives(mean, -spread, torch.zeros(N, dtype=torch.long))
