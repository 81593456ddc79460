"""Numerical functions on tensors, without state: the integrals that everything above relies on."""

from gaussify._numerics._cover import cover
from gaussify._numerics._logistic_normal import softplus_moment, softplus_moments
from gaussify._numerics._softmax_normal import (
    expected_logsumexp,
    expected_softmax,
    softmax_uncertainty,
)
from gaussify._numerics._special import first_order, trigamma

__all__ = [
    "cover",
    "expected_logsumexp",
    "expected_softmax",
    "first_order",
    "softmax_uncertainty",
    "softplus_moment",
    "softplus_moments",
    "trigamma",
]
