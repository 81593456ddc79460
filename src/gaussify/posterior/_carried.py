"""Latents of rows that stay, carried along while the weights learn from one row after another."""

import numpy as np
import torch
from jaxtyping import Float

from gaussify.posterior._gaussian import latent
from gaussify.posterior._row import Observation, RowPosterior

_WORN = 1e-5  # share of a variance, below which differences have lost too many digits


class CarriedLatents:
    r"""Mean and variance of the latents of fixed rows, of which an update costs n d where computing anew costs n d².

    When weights of mean m and covariance C observe y with variance v at the features :math:`\phi`, the latents at
    :math:`\Phi` change by

    .. math:: \mu \leftarrow \mu + \frac{k}{a}(y - \phi^\top m), \qquad
        \sigma^2 \leftarrow \sigma^2 - \frac{k^2}{a}, \qquad
        k = \Phi C\phi, \quad a = v + \phi^\top C\phi.

    Parameters
    ----------
    features
        Of the rows.
    posterior
        Of the weights, as they are now.
    unexplained
        Variance that latents have beside that of the weights, the same for all of a row.

    Examples
    --------
    >>> from gaussify.posterior import observe_
    >>> posterior = RowPosterior(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> carried = CarriedLatents(np.array([[1.0], [2.0]]), posterior)
    >>> carried.update(observe_(posterior, np.ones(1), mean=np.array([4.0]), variance=np.array([1.0])))
    >>> carried.mean[:, 0], carried.variance[:, 0]
    (array([2., 4.]), array([0.5, 2. ]))
    """

    mean: Float[np.ndarray, "n l"]
    variance: Float[np.ndarray, "n l"]

    def __init__(
        self,
        features: Float[np.ndarray, "n d"],
        posterior: RowPosterior,
        unexplained: Float[np.ndarray, " n"] | None = None,
    ) -> None:
        self.features = features
        self.unexplained = np.zeros(len(features)) if unexplained is None else unexplained
        mean, variance = latent(posterior.tensors, torch.from_numpy(features))
        self.mean, self.variance = mean.numpy(), variance.numpy() + self.unexplained[:, None]
        self._first = self.variance.copy()

    def update(self, observation: Observation) -> None:
        """Follow the weights through an observation."""
        covariance = self.covariance_with(observation.gain)
        self.mean += covariance * (observation.residual / observation.total)
        covariance *= covariance
        covariance /= observation.total
        self.variance -= covariance
        # rounding may take more than there is from rows that are known almost exactly
        np.maximum(self.variance, self.unexplained[:, None], out=self.variance)

    @property
    def is_worn(self) -> bool:
        """Whether so little is left of a variance that rounding shows, and computing anew is due."""
        return bool((self.variance < _WORN * self._first).any())

    def covariance_with(self, gain: Float[np.ndarray, "l d"]) -> Float[np.ndarray, "n l"]:
        r"""Return the covariance of every latent with that of another row, of which the gain :math:`C\phi` is given."""
        return self.features @ gain.T
