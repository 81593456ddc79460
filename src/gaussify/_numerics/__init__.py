"""Numerical functions on tensors: integrals over Gaussian latents, stable linear algebra, special functions, search.

Read ``_softmax_normal.py`` first: it derives class probabilities from one integral for each row, and
``_softmax_rule.py`` holds its quadrature rules. ``_logistic_normal.py`` is the case of two classes.
"""

from gaussify._numerics._cholesky import noting_jitter, stable_cholesky
from gaussify._numerics._cover import cover
from gaussify._numerics._gram import add_moments_, suits_numpy
from gaussify._numerics._logistic_normal import (
    expected_sigmoid,
    sigmoid_moments,
    sigmoid_moments_row,
    sigmoid_pair,
    softplus_moment,
    softplus_moments,
)
from gaussify._numerics._memory import large_zeros
from gaussify._numerics._softmax_normal import (
    expected_logsumexp,
    expected_softmax,
    softmax_moments,
    softmax_uncertainty,
)
from gaussify._numerics._softmax_normal_row import expected_softmax_row, softmax_moments_row
from gaussify._numerics._special import first_order, trigamma
from gaussify._numerics._threads import Map, product, solve_lower, worker_threads

__all__ = [
    "Map",
    "add_moments_",
    "cover",
    "expected_logsumexp",
    "expected_sigmoid",
    "expected_softmax",
    "expected_softmax_row",
    "first_order",
    "large_zeros",
    "noting_jitter",
    "product",
    "sigmoid_moments",
    "sigmoid_moments_row",
    "sigmoid_pair",
    "softmax_moments",
    "softmax_moments_row",
    "softmax_uncertainty",
    "softplus_moment",
    "softplus_moments",
    "solve_lower",
    "stable_cholesky",
    "suits_numpy",
    "trigamma",
    "worker_threads",
]
