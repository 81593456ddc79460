import numpy as np
import pytest
from scipy.special import expit

from gaussify.experiments.benchmarks._posterior_oracle import logistic_posterior_moments


@pytest.mark.parametrize("prior_variance", [0.5, 4.0])
def test_chains_have_the_moments_of_quadrature(prior_variance):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(12, 2)), generator.integers(0, 2, 12)
    moments = logistic_posterior_moments(X, y, prior_variance, n_steps=3000, seed=1)
    grid = np.linspace(-12.0, 12.0, 301)
    weights = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    log_density = np.log(expit(np.where(y, 1, -1) * (weights @ X.T))).sum(1) - (weights**2).sum(1) / 2 / prior_variance
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = density @ weights
    std = np.sqrt(density @ (weights - mean) ** 2)
    np.testing.assert_allclose(moments.mean, mean, atol=0.03 * std.max())
    np.testing.assert_allclose(moments.std, std, rtol=0.03)
    assert moments.std_error < 0.02
