"""The exact posterior of logistic regression by long Markov chains, as a reference for approximations."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_Floats = NDArray[np.float64]
_N_CHAINS, _N_LEAPS = 16, 6


class PosteriorMoments(NamedTuple):
    """Mean and standard deviation of each weight, and the relative sampling error of the standard deviations."""

    mean: _Floats  # (d,)
    std: _Floats  # (d,)
    std_error: float


def logistic_posterior_moments(
    X: _Floats, y: NDArray[np.int64], prior_variance: float, *, n_steps: int, seed: int
) -> PosteriorMoments:
    """Return moments of the weights given labels 0 and 1, under a Gaussian prior, without intercept.

    Sixteen chains of Hamiltonian Monte Carlo run at once, in the coordinates in which the Laplace approximation is a
    standard normal. The first fifth of each chain is dropped. The sampling error follows from the differences between
    chains.
    """
    generator = np.random.default_rng(seed)
    mode, root = _laplace(X, y, prior_variance)

    def density(z: _Floats) -> tuple[_Floats, _Floats]:  # of chains (s, d): log-density (s,) and its gradient (s, d)
        weights = mode + z @ root.T
        f = X @ weights.T
        value = (y[:, None] * f - np.logaddexp(0.0, f)).sum(0) - 0.5 * (weights**2).sum(1) / prior_variance
        return value, ((y[:, None] - expit(f)).T @ X - weights / prior_variance) @ root

    z = generator.normal(size=(_N_CHAINS, X.shape[1]))
    value, gradient = density(z)
    kept = []
    for step in range(n_steps):
        size = 0.25 * generator.uniform(0.7, 1.3)
        start = momentum = generator.normal(size=z.shape)
        new, new_value, new_gradient = z, value, gradient
        for _ in range(_N_LEAPS):
            momentum = momentum + 0.5 * size * new_gradient
            new = new + size * momentum
            new_value, new_gradient = density(new)
            momentum = momentum + 0.5 * size * new_gradient
        gain = new_value - value - 0.5 * ((momentum**2).sum(1) - (start**2).sum(1))
        accepted = np.log(generator.random(_N_CHAINS)) < gain
        z, gradient = (np.where(accepted[:, None], a, b) for a, b in ((new, z), (new_gradient, gradient)))
        value = np.where(accepted, new_value, value)
        if step >= n_steps // 5:
            kept.append(mode + z @ root.T)
    draws = np.stack(kept)  # (t, s, d)
    flat = draws.reshape(-1, X.shape[1])
    spread = draws.std(0).std(0) / np.sqrt(_N_CHAINS)  # of the standard deviation over chains
    std = flat.std(0)
    return PosteriorMoments(flat.mean(0), std, float((spread / std).mean()))


def _laplace(X: _Floats, y: NDArray[np.int64], prior_variance: float) -> tuple[_Floats, _Floats]:
    """Return the mode, and a root of the inverse curvature there, by Newton's method."""
    mode = np.zeros(X.shape[1])
    for _ in range(50):
        p = expit(X @ mode)
        curvature = np.eye(X.shape[1]) / prior_variance + (X * (p * (1.0 - p))[:, None]).T @ X
        step = np.linalg.solve(curvature, X.T @ (y - p) - mode / prior_variance)
        mode = mode + step
        if np.abs(step).max() < 1e-10:
            break
    return mode, np.linalg.cholesky(np.linalg.inv(curvature))
