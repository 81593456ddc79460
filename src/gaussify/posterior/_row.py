r"""One row at a time, in NumPy: calling tensor operations would take longer than what they compute.

Arrays share the memory of the posterior's tensors, which must be on the CPU.
"""

import numpy as np
import torch
from jaxtyping import Float

from gaussify.posterior._gaussian import GaussianPosterior


def latent_of_row(
    posterior: GaussianPosterior, feature: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
    """Return mean and variance of the latents of one row: ``latent`` for a single feature vector.

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.tensor([[1.0, 2.0]]), torch.eye(2)[None])
    >>> latent_of_row(posterior, np.array([3.0, 4.0]))
    (array([11.]), array([25.]))
    """
    mean, root = posterior.mean.numpy(), posterior.root.numpy()
    u = root.reshape(-1, len(feature)).dot(feature).reshape(mean.shape)
    return mean.dot(feature), (u * u).sum(-1)


def observe_(
    posterior: GaussianPosterior,
    feature: Float[np.ndarray, " d"],
    mean: Float[np.ndarray, " l"],
    variance: Float[np.ndarray, " l"],
) -> None:
    r"""Condition the posterior on one more row, in place: Potter's square-root form of the Kalman update, l d².

    With :math:`u = R\phi` and :math:`a = v + |u|^2`, the covariance :math:`R^\top(I - uu^\top/a)R` has the root

    .. math:: R - \frac{u\,(R^\top u)^\top}{a + \sqrt{av}}, \qquad\text{and}\qquad
        m \leftarrow m + \frac{R^\top u}{a}(y - \phi^\top m).

    Being a root, it cannot lose positive definiteness to rounding.

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.zeros(1, 1), torch.ones(1, 1, 1))
    >>> observe_(posterior, feature=np.ones(1), mean=np.array([4.0]), variance=np.array([1.0]))
    >>> posterior.mean, posterior.covariance
    (tensor([[2.]]), tensor([[[0.5000]]]))
    """
    weights, root = posterior.mean.numpy(), posterior.root.numpy()
    u = root.reshape(-1, len(feature)).dot(feature).reshape(weights.shape)
    gain = np.matmul(u[:, None, :], root)[:, 0]  # (l, d), covariance times feature
    total = variance + gain.dot(feature)
    shrink = gain / (total + np.sqrt(total * variance))[:, None]
    weights += gain * ((mean - weights.dot(feature)) / total)[:, None]
    u, shrink = torch.from_numpy(u), torch.from_numpy(shrink)
    posterior.root.addcmul_(u[:, :, None], shrink[:, None, :], value=-1.0)  # which NumPy does in two passes
