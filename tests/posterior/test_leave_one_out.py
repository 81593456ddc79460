"""Leaving a row out in closed form, against leaving it out."""

import pytest
import torch
from torch.testing import assert_close

from gaussify.likelihoods import LogisticLikelihood, PseudoTargets, SoftmaxLikelihood
from gaussify.posterior import GaussianPrior, condition, latent, leave_one_out, natural_parameters_of_rows

ALPHA = torch.tensor([0.3, 0.05, 0.7], dtype=torch.float64)


def posterior_of(prior, features, targets, weight, rows):
    some = PseudoTargets(targets.mean[rows], targets.variance[rows])
    return condition(prior, natural_parameters_of_rows(features[rows], some, weight[rows]))


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(
    "likelihood",
    [SoftmaxLikelihood(3, ALPHA), LogisticLikelihood(ALPHA[0], ALPHA[1]), SoftmaxLikelihood(3, method="gauss")],
    ids=["softmax", "logistic", "gauss"],
)
def test_closed_form_equals_fitting_without_each_row(likelihood, weighted):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(15, 3, generator=generator, dtype=torch.float64)
    targets = likelihood.encode(torch.randint(likelihood.n_classes, (15,), generator=generator))
    targets = PseudoTargets(targets.mean.double(), targets.variance.double())
    weight = 3.0 * torch.rand(15, generator=generator, dtype=torch.float64) if weighted else torch.ones(15).double()
    prior = GaussianPrior.centred(torch.tensor([1.0, 5.0, 100.0]).double(), n_latents=likelihood.n_latents)
    everything = latent(posterior_of(prior, features, targets, weight, torch.arange(15)), features)
    mean, variance = leave_one_out(*everything, targets, weight if weighted else None)
    for i in range(15):
        left = weight.clone()
        left[i] = (left[i] - 1.0).clamp_min(0.0)  # one of several equal rows
        expected = latent(posterior_of(prior, features, targets, left, torch.arange(15)), features[i : i + 1])
        assert_close((mean[i : i + 1], variance[i : i + 1]), expected, rtol=1e-10, atol=1e-10)


def test_a_row_of_weight_zero_is_left_out_already():
    targets = PseudoTargets(torch.tensor([[2.0]]), torch.tensor([[1.0]]))
    mean, variance = leave_one_out(torch.tensor([[0.3]]), torch.tensor([[0.5]]), targets, torch.zeros(1))
    assert (mean.item(), variance.item()) == pytest.approx((0.3, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_that_decides_alone_leaves_a_finite_and_huge_variance(dtype):
    one = torch.ones(1, 1, dtype=dtype)
    mean, variance = leave_one_out(one, one, PseudoTargets(2.0 * one, one))  # leverage one, as rounding may make it
    assert torch.isfinite(mean).all()
    assert torch.isfinite(variance).all()
    assert variance.item() > 1e5
