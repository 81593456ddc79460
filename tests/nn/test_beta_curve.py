"""The curve of binary labels between 0 and 1 against matching each of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod
from gaussify.nn._beta_curve import LAYOUTS, beta_curve
from gaussify.nn._gaussians import logit_beta_gaussian

MATCHED = sorted(set(BETA_METHODS) - {LikelihoodMethod.GAUSS})
CONCENTRATIONS = st.floats(-10.0, 10.0).map(lambda power: 10.0**power)
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-11}
NEAR_0 = np.geomspace(1e-12, 0.5, 200)
LABELS = torch.as_tensor(np.concatenate([[0.0, 1.0, 0.5], np.linspace(0.0, 1.0, 200), NEAR_0, 1.0 - NEAR_0]))


def matched(labels, alpha_eps, beta_eps, method):
    labels = labels.double()
    return logit_beta_gaussian(alpha_eps + labels, beta_eps + (1.0 - labels), method)


@pytest.mark.parametrize("dtype", LAYOUTS, ids=str)
@pytest.mark.parametrize("method", MATCHED)
@given(alpha_eps=CONCENTRATIONS, beta_eps=CONCENTRATIONS)
def test_the_curve_is_the_matched_gaussian_of_each_label(method, dtype, alpha_eps, beta_eps):
    labels = LABELS.to(dtype)
    mean, variance, log_variance = beta_curve(alpha_eps, beta_eps, method, dtype).of_labels(labels)
    expected_mean, expected_variance = matched(labels, alpha_eps, beta_eps, method)
    tolerance = TOLERANCES[dtype]
    assert ((mean - expected_mean).abs() <= tolerance * (1.0 + expected_mean.abs())).all()
    assert ((variance - expected_variance).abs() <= tolerance * expected_variance).all()
    torch.testing.assert_close(log_variance, variance.log())


@pytest.mark.parametrize("dtype", LAYOUTS, ids=str)
def test_what_is_no_label_has_no_gaussian(dtype):
    curve = beta_curve(0.1, 0.1, LikelihoodMethod.VARIATIONAL, dtype)
    for part in curve.of_labels(torch.tensor([torch.nan, torch.inf, -torch.inf, 7.0, -7.0], dtype=dtype)):
        assert part.isnan().all()
