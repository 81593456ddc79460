"""The posterior from the joint Gaussian of weights and observations: plain conditioning, without gaussify."""

from typing import NamedTuple

import numpy as np
from scipy.stats import multivariate_normal


class Conditioned(NamedTuple):
    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d)
    log_density: float  # of the observations


def condition_jointly(
    features: np.ndarray,
    y: np.ndarray,
    variance: np.ndarray,
    prior_mean: np.ndarray,
    prior_variance: np.ndarray,
) -> Conditioned:
    """Condition weights (d,) on observations y (n,) of features (n, d) times weights, with noise of ``variance``."""
    d = features.shape[1]
    to_all = np.vstack([np.eye(d), features])  # weights -> weights and noiseless observations
    mean = to_all @ prior_mean
    covariance = to_all @ np.diag(prior_variance) @ to_all.T
    covariance[d:, d:] += np.diag(variance)
    gain = np.linalg.solve(covariance[d:, d:], covariance[d:, :d]).T
    return Conditioned(
        mean[:d] + gain @ (y - mean[d:]),
        covariance[:d, :d] - gain @ covariance[d:, :d],
        float(multivariate_normal(mean[d:], covariance[d:, d:]).logpdf(y)) if len(y) else 0.0,
    )
