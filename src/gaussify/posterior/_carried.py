"""Latents of fixed rows, updated while the weights learn from one row after another."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float

from gaussify.posterior._gaussian import latent
from gaussify.posterior._row import Observation, RowPosterior

_WORN = 1e-5  # share of its first value below which a variance has lost too many digits to subtractions
_ELEMENTS = 1 << 22  # covariances that are computed at a time


class CarriedLatents:
    r"""Mean and variance of the latents of fixed rows: an update costs n d, where computing them again costs n d².

    When weights of mean m and covariance C observe y with variance v at features :math:`\phi`, the latents of rows
    with features :math:`\Phi` change by

    .. math:: \mu \leftarrow \mu + \frac{k}{a}(y - \phi^\top m), \qquad
        \sigma^2 \leftarrow \sigma^2 - \frac{k^2}{a}, \qquad
        k = \Phi C\phi, \quad a = v + \phi^\top C\phi.

    Parameters
    ----------
    features : array of shape (n, d)
        Features of the fixed rows.
    posterior : RowPosterior
        Posterior of the weights at the start.
    unexplained : array of shape (n,), optional
        Variance that is added to all latents of a row, beside that of the weights.

    Examples
    --------
    >>> from gaussify.posterior import observe_
    >>> posterior = RowPosterior(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> carried = CarriedLatents(np.array([[1.0], [2.0]]), posterior)
    >>> carried.update(observe_(posterior, np.ones(1), mean=np.array([4.0]), variance=np.array([1.0])))
    >>> carried.mean[:, 0], carried.variance[:, 0]
    (array([2., 4.]), array([0.5, 2. ]))
    """

    def __init__(
        self,
        features: Float[np.ndarray, "n d"],
        posterior: RowPosterior,
        unexplained: Float[np.ndarray, " n"] | None = None,
    ) -> None:
        self.features = features
        self.unexplained = np.zeros(len(features)) if unexplained is None else unexplained
        mean, variance = latent(posterior.tensors, torch.from_numpy(features))
        # (l, n), so that updates run along memory
        self._mean = np.ascontiguousarray(mean.T)
        self._variance = np.ascontiguousarray(variance.T.numpy() + self.unexplained)
        self._first = self._variance.copy()

    @property
    def mean(self) -> Float[np.ndarray, "n l"]:
        """Current mean of the latents."""
        return self._mean.T

    @property
    def variance(self) -> Float[np.ndarray, "n l"]:
        """Current variance of the latents."""
        return self._variance.T

    def update(self, *observations: Observation) -> None:
        """Update the latents by observations, one after another."""
        for _ in self.stages(observations):
            pass

    def stages(self, observations: Sequence[Observation]) -> Iterator[None]:
        """Update the latents by observations, and yield after each; features are read once for many observations."""
        n_latents, n = self._mean.shape
        size = max(1, _ELEMENTS // max(1, n * n_latents))
        for first in range(0, len(observations), size):
            some = observations[first : first + size]
            covariances = self.covariance_with(np.concatenate([observation.gain for observation in some])).T
            for observation, covariance in zip(some, covariances.reshape(-1, n_latents, n), strict=True):
                self._mean += covariance * (observation.residual / observation.total)[:, None]
                covariance *= covariance
                covariance /= observation.total[:, None]
                self._variance -= covariance
                # for rows that are known almost exactly, rounding may subtract too much
                np.maximum(self._variance, self.unexplained, out=self._variance)
                yield

    @property
    def is_worn(self) -> bool:
        """True if a variance has become so small that rounding errors matter, and latents should be computed again."""
        return bool((self._variance < _WORN * self._first).any())

    def covariance_with(self, gain: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k"]:
        r"""Return the covariance of every latent with others, given the gain :math:`C\phi` of these."""
        # in this order, torch reads features at full speed; NumPy's BLAS takes twice as long except for one column
        return torch.mm(torch.from_numpy(gain), torch.from_numpy(self.features).T).numpy().T
