"""What tests of objectives with the class likelihood have in common."""

import pytest
import torch

from gaussify import LogisticLikelihood, SoftmaxLikelihood

LIKELIHOODS = {
    "softmax": lambda alpha: SoftmaxLikelihood(4, alpha),
    "asymmetric": lambda alpha: SoftmaxLikelihood(3, alpha * torch.tensor([1.0, 2.0, 0.5]).double()),
    "moment": lambda alpha: SoftmaxLikelihood(3, alpha, "moment"),
    "laplace": lambda alpha: SoftmaxLikelihood(3, alpha, "laplace"),
    "moment-ori": lambda alpha: SoftmaxLikelihood(3, alpha, "moment-ori"),
    "logistic": lambda alpha: LogisticLikelihood(alpha, 2.0 * alpha),
}
likelihoods = pytest.mark.parametrize("make", LIKELIHOODS.values(), ids=LIKELIHOODS)
