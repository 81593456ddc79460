r"""The posterior row by row, in NumPy: for one row, calling tensor operations takes longer than the arithmetic."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from gaussify.posterior._gaussian import GaussianPosterior

_ELEMENTS = 1 << 18  # most numbers in a temporary matrix


class RowPosterior(NamedTuple):
    """A posterior as arrays, for predictions and updates row by row.

    Examples
    --------
    >>> posterior = RowPosterior.of(GaussianPosterior(torch.tensor([[1.0, 2.0]]), torch.eye(2)[None]))
    >>> latent_of_row(posterior, np.array([3.0, 4.0]))[:2]
    (array([11.]), array([25.]))
    """

    mean: Float[np.ndarray, "l d"]
    root: Float[np.ndarray, "l d d"]

    @classmethod
    def of(cls, posterior: GaussianPosterior) -> "RowPosterior":
        """Return the arrays behind tensors on the CPU."""
        return cls(posterior.mean.numpy(), posterior.root.numpy())

    @property
    def tensors(self) -> GaussianPosterior:
        """The posterior as tensors, which share the memory of the arrays."""
        return GaussianPosterior(torch.from_numpy(self.mean), torch.from_numpy(self.root))


class RowLatent(NamedTuple):
    r"""The latents of one row, and the vectors :math:`u = R\phi`, whose squared lengths are the variances.

    Examples
    --------
    >>> RowLatent(mean=np.ones(1), variance=np.array([25.0]), u=np.array([[3.0, 4.0]])).variance
    array([25.])
    """

    mean: Float[np.ndarray, " l"]
    variance: Float[np.ndarray, " l"]
    u: Float[np.ndarray, "l d"]


class Observation(NamedTuple):
    r"""The terms of a Kalman update, from which the changes of all other latents follow.

    With mean m and covariance C of the weights before the observation (y, v), ``gain`` is :math:`C\phi`, ``total`` is
    :math:`v + \phi^\top C\phi` and ``residual`` is :math:`y - \phi^\top m`.

    Examples
    --------
    >>> posterior = RowPosterior(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> observe_(posterior, feature=np.ones(1), mean=np.array([4.0]), variance=np.array([1.0]))
    Observation(gain=array([[1.]]), total=array([2.]), residual=array([4.]))
    """

    gain: Float[np.ndarray, "l d"]
    total: Float[np.ndarray, " l"]
    residual: Float[np.ndarray, " l"]


def latent_of_row(posterior: RowPosterior, feature: Float[np.ndarray, " d"]) -> RowLatent:
    """Return the latents of one row, as ``latent`` does for many.

    Examples
    --------
    >>> latent_of_row(RowPosterior(np.ones((1, 2)), np.eye(2)[None]), np.array([3.0, 4.0])).mean
    array([7.])
    """
    mean, root = posterior
    u = root.reshape(-1, len(feature)).dot(feature).reshape(mean.shape)
    return RowLatent(mean.dot(feature), (u * u).sum(-1), u)


def observe_(
    posterior: RowPosterior,
    feature: Float[np.ndarray, " d"],
    mean: Float[np.ndarray, " l"],
    variance: Float[np.ndarray, " l"],
    latent: RowLatent | None = None,
) -> Observation:
    r"""Condition the posterior on one more row, in place, by Potter's square-root Kalman update, which costs l d².

    With :math:`u = R\phi` and :math:`a = v + |u|^2`, the covariance :math:`R^\top(I - uu^\top/a)R` has the root

    .. math:: R - \frac{u\,(R^\top u)^\top}{a + \sqrt{av}}, \qquad\text{and}\qquad
        m \leftarrow m + \frac{R^\top u}{a}(y - \phi^\top m).

    Being a root, it cannot lose positive definiteness to rounding. The argument ``latent`` may pass the result of
    ``latent_of_row`` for this row and posterior, so that it is not computed again.

    Examples
    --------
    >>> posterior = RowPosterior(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> _ = observe_(posterior, feature=np.ones(1), mean=np.array([4.0]), variance=np.array([1.0]))
    >>> posterior.mean, posterior.root**2
    (array([[2.]]), array([[[0.5]]]))
    """
    weights, root = posterior
    before, spread, u = latent_of_row(posterior, feature) if latent is None else latent
    gain = np.matmul(u[:, None, :], root)[:, 0]  # (l, d), covariance times feature
    total, residual = variance + spread, mean - before
    shrink = gain / (total + np.sqrt(total * variance))[:, None]
    weights += gain * (residual / total)[:, None]
    step = max(1, _ELEMENTS // u.shape[1] ** 2)
    for first in range(0, len(root), step):
        part = slice(first, first + step)
        root[part] -= u[part, :, None] * shrink[part, None, :]
    return Observation(gain, total, residual)
