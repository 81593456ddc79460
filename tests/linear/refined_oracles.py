"""References for the posterior of logistic regression: long Markov chains, and the best Gaussian by optimisation.

They are slow and plain, and never import gaussify. Weights have a Gaussian prior of mean zero with one variance for
each column of ``X``; a constant column, if there is one, is the intercept.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp


class Moments(NamedTuple):
    """Moments of the weights, and how far off they may be: in standard deviations, and as a share of these."""

    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d)
    mean_error: float
    std_error: float

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))


class Gaussians(NamedTuple):
    """Independent Gaussians: of the weights of each latent."""

    mean: np.ndarray  # (latents, d)
    covariance: np.ndarray  # (latents, d, d)


# --- the exact posterior -------------------------------------------------------------------------------------------


def exact_moments(
    X: np.ndarray, y: np.ndarray, prior_variance: np.ndarray, *, n_steps: int, n_chains: int = 64, seed: int = 0
) -> Moments:
    """Moments for labels 0 and 1, by Hamiltonian Monte Carlo.

    All chains run at once, in coordinates in which the curvature at the mode is the identity. Paths have about a
    quarter of the period of a standard normal, so that draws are nearly independent. Errors follow from the
    differences between chains.
    """
    rng = np.random.default_rng(seed)
    mode, root = _mode(X, y, prior_variance)

    def log_density(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # of (chains, d): values, and gradients
        weights = mode + z @ root.T
        f = weights @ X.T
        values = (y * f - np.logaddexp(0.0, f)).sum(1) - 0.5 * (weights**2 / prior_variance).sum(1)
        return values, ((y - expit(f)) @ X - weights / prior_variance) @ root

    z = rng.normal(size=(n_chains, X.shape[1]))
    value, gradient = log_density(z)
    draws = []
    n_burnt = n_steps // 5
    for step in range(n_steps):
        size = rng.uniform(0.35, 0.45)
        first = momentum = rng.normal(size=z.shape)
        at, at_value, at_gradient = z, value, gradient
        for _ in range(4):
            momentum = momentum + 0.5 * size * at_gradient
            at = at + size * momentum
            at_value, at_gradient = log_density(at)
            momentum = momentum + 0.5 * size * at_gradient
        log_ratio = at_value - value - 0.5 * (momentum**2 - first**2).sum(1)
        accepted = np.log(rng.random(n_chains)) < log_ratio
        z, gradient = np.where(accepted[:, None], at, z), np.where(accepted[:, None], at_gradient, gradient)
        value = np.where(accepted, at_value, value)
        if step >= n_burnt:
            draws.append(mode + z @ root.T)
    chains = np.stack(draws, 1)  # (chains, steps, d)
    every = chains.reshape(-1, X.shape[1])
    std = every.std(0)
    squares = ((chains - every.mean(0)) ** 2).mean(1)  # (chains, d)
    return Moments(
        every.mean(0),
        np.atleast_2d(np.cov(every.T)),
        mean_error=float((chains.mean(1).std(0) / std).max() / np.sqrt(n_chains)),
        std_error=float((squares.std(0) / (2.0 * std**2)).max() / np.sqrt(n_chains)),
    )


def _mode(X: np.ndarray, y: np.ndarray, prior_variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode, and a root of the inverse curvature there, by Newton's method with halved steps."""

    def loss(weights: np.ndarray) -> float:
        f = X @ weights
        return float((np.logaddexp(0.0, f) - y * f).sum() + 0.5 * (weights**2 / prior_variance).sum())

    weights = np.zeros(X.shape[1])
    for _ in range(100):
        p = expit(X @ weights)
        curvature = np.diag(1.0 / prior_variance) + (X.T * (p * (1.0 - p))) @ X
        step = np.linalg.solve(curvature, X.T @ (y - p) - weights / prior_variance)
        while loss(weights + step) > loss(weights) + 1e-9 and np.abs(step).max() > 1e-12:
            step = 0.5 * step
        weights = weights + step
        if np.abs(step).max() < 1e-10:
            break
    return weights, np.linalg.cholesky(np.linalg.inv(curvature))


# --- the best Gaussian ---------------------------------------------------------------------------------------------


class Expectations(NamedTuple):
    """Under Gaussian latents, for each row: of the log-likelihood, and of its first and second derivatives."""

    value: np.ndarray  # (n,)
    slope: np.ndarray  # (n, latents)
    curvature: np.ndarray  # (n, latents)


Expect = Callable[[np.ndarray, np.ndarray], Expectations]


def variational_logistic(X: np.ndarray, y: np.ndarray, prior_variance: np.ndarray) -> Gaussians:
    """The Gaussian with the largest bound on the evidence of labels 0 and 1."""
    _, root = _mode(X, y, prior_variance)

    def expect(mean: np.ndarray, variance: np.ndarray) -> Expectations:
        return expected_logistic(mean[:, 0], variance[:, 0], y)

    return _best_gaussians(X, expect, prior_variance, root[None])


def variational_softmax(X: np.ndarray, y: np.ndarray, prior_variance: np.ndarray) -> Gaussians:
    """The independent Gaussians of three classes with the largest bound on the evidence of labels 0, 1 and 2."""
    curvature = np.diag(1.0 / prior_variance) + 2.0 / 9.0 * X.T @ X
    root = np.linalg.cholesky(np.linalg.inv(curvature))

    def expect(mean: np.ndarray, variance: np.ndarray) -> Expectations:
        return expected_softmax(mean, variance, y)

    return _best_gaussians(X, expect, prior_variance, np.stack([root] * 3))


def expected_logistic(mean: np.ndarray, variance: np.ndarray, y: np.ndarray, n_nodes: int = 61) -> Expectations:
    """Expectations for one latent, (n,) each."""
    u, w = _normal_rule(n_nodes)
    f = mean[:, None] + np.sqrt(variance)[:, None] * u
    p = expit(f)
    value = (y[:, None] * f - np.logaddexp(0.0, f)) @ w
    return Expectations(value, (y - p @ w)[:, None], -(p * (1.0 - p)) @ w[:, None])


def expected_softmax(mean: np.ndarray, variance: np.ndarray, y: np.ndarray, n_nodes: int = 31) -> Expectations:
    """Expectations for three latents, (n, 3) each, by a rule in the plane of their two differences."""
    u, w = _normal_rule(n_nodes)
    last = variance[:, 2]
    first_std = np.sqrt(variance[:, 0] + last)
    shared = last / first_std
    second_std = np.sqrt(variance[:, 1] + last - shared**2)
    f = np.zeros((len(mean), n_nodes, n_nodes, 3))
    f[..., 0] = (mean[:, 0] - mean[:, 2])[:, None, None] + first_std[:, None, None] * u[:, None]
    f[..., 1] = (
        (mean[:, 1] - mean[:, 2])[:, None, None]
        + shared[:, None, None] * u[:, None]
        + second_std[:, None, None] * u[None, :]
    )
    top = logsumexp(f, axis=-1, keepdims=True)
    p = np.exp(f - top)
    mean_top = np.einsum("nab,a,b->n", top[..., 0], w, w) + mean[:, 2]
    mean_p = np.einsum("nabk,a,b->nk", p, w, w)
    spread = np.einsum("nabk,a,b->nk", p * (1.0 - p), w, w)
    return Expectations(mean[np.arange(len(y)), y] - mean_top, np.eye(3)[y] - mean_p, -spread)


def _normal_rule(n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of expectations under a standard normal: equally spaced, which converges exponentially.

    Where a latent's variance is large, this is more precise than Gauss-Hermite quadrature with as many nodes.
    """
    u = np.linspace(-6.5, 6.5, n_nodes)
    w = np.exp(-0.5 * u**2)
    return u, w / w.sum()


def _best_gaussians(X: np.ndarray, expect: Expect, prior_variance: np.ndarray, root: np.ndarray) -> Gaussians:
    """Maximise the bound over means and full Cholesky factors by L-BFGS, in coordinates whitened by ``root``."""
    n_latents, d = root.shape[:2]
    white = np.einsum("nd,lde->nle", X, root)  # (n, latents, d)
    precision = np.einsum("lde,d,ldf->lef", root, 1.0 / prior_variance, root)
    lower, diagonal = np.tril_indices(d), np.arange(d)

    def unpack(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, rest = np.split(parameters, [n_latents * d])
        factor = np.zeros((n_latents, d, d))
        factor[:, *lower] = rest.reshape(n_latents, -1)
        factor[:, diagonal, diagonal] = np.exp(factor[:, diagonal, diagonal])
        return mean.reshape(n_latents, d), factor

    def negative_bound(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        mean, factor = unpack(parameters)
        spread = np.einsum("nld,lde->nle", white, factor)
        found = expect(np.einsum("nld,ld->nl", white, mean), (spread**2).sum(2))
        pull = np.einsum("lde,le->ld", precision, mean)
        held = precision @ factor
        log_diagonal = np.log(factor[:, diagonal, diagonal])
        value = found.value.sum() - 0.5 * (mean * pull).sum() - 0.5 * (factor * held).sum() + log_diagonal.sum()
        of_mean = np.einsum("nld,nl->ld", white, found.slope) - pull
        of_factor = np.einsum("nld,nl,nle->lde", white, found.curvature, spread) - held
        of_factor[:, diagonal, diagonal] *= factor[:, diagonal, diagonal]  # of logarithms
        of_factor[:, diagonal, diagonal] += 1.0
        gradient = np.concatenate([of_mean.ravel(), of_factor[:, *lower].ravel()])
        return -float(value), -gradient

    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 50}
    start = np.zeros(n_latents * (d + len(lower[0])))
    best = minimize(negative_bound, start, jac=True, method="L-BFGS-B", options=options)
    slope = np.abs(negative_bound(best.x)[1]).max()
    assert slope < 1e-4, f"the search ended with a slope of {slope:.2g}: {best.message}"
    mean, factor = unpack(best.x)
    factor = root @ factor
    return Gaussians(np.einsum("lde,le->ld", root, mean), factor @ factor.swapaxes(1, 2))
