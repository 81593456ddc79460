"""A fitted sparse Gaussian process as a value: what other models need to start from it, or to follow it."""

from typing import NamedTuple

from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gaussify.gp._models import InducingFeatures
from gaussify.gp._scaling import Scaling
from gaussify.likelihoods import ClassLikelihood, PseudoTargets
from gaussify.posterior import (
    ClassStatistics,
    GaussianPosterior,
    GaussianPrior,
    NaturalParameters,
    class_posterior,
    natural_parameters,
)


class FittedSparseGP(NamedTuple):
    r"""A sparse model whose latents share a kernel, see ``GPClassifier.fitted_``.

    Its latents are :math:`\phi(x)^\top w_l` plus an independent remainder, with whitened features
    :math:`\phi(x) = (L^{-1}k(Z, x), 1)` and Gaussian weights :math:`w_l`. Rows enter through their statistics, labels
    through the target table.

    Examples
    --------
    >>> from gaussify import GPClassifier
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> fitted = GPClassifier(n_inducing=3, max_iter=0).fit(X, y).fitted_
    >>> fitted.points.shape, fitted.statistics.count, fitted.posterior().mean.shape
    (torch.Size([3, 1]), tensor([2., 2.], dtype=torch.float64), torch.Size([2, 4]))
    """

    features: InducingFeatures
    """Maps scaled rows to features, (n, m + 1), and to the variance of the remainder, (n,)."""
    scaling: Scaling
    """Maps rows to scaled rows."""
    statistics: ClassStatistics
    """Class statistics of the features of all training rows."""
    likelihood: ClassLikelihood
    table: PseudoTargets
    """Mean and variance that each class gives every latent."""
    temperature: float
    """Divisor of the latents before they become probabilities."""

    @property
    def kernel(self) -> Kernel:
        """Kernel of scaled rows."""
        return self.features.kernel

    @property
    def points(self) -> Float[Tensor, "m d"]:
        """Inducing points in scaled units."""
        return self.features.points

    @property
    def prior(self) -> GaussianPrior:
        """Prior of the weights; the last one is the constant mean."""
        return self.features.prior(self.table)

    def natural(self) -> NaturalParameters:
        """Return precision and linear term that the rows give the weights, without the prior."""
        return natural_parameters(self.statistics, self.table)

    def posterior(self) -> GaussianPosterior:
        """Return the posterior of the weights."""
        return class_posterior(self.prior, self.statistics, self.table)
