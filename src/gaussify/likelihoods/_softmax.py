"""Multiclass labels under a softmax."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Dirichlet

from gaussify._numerics import (
    expected_logsumexp,
    expected_softmax_row,
    softmax_moments,
    softmax_moments_row,
    softmax_uncertainty,
)
from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput, check_count
from gaussify.likelihoods._class_likelihood import ClassLikelihood, ProbabilityUncertainty, entropy_split
from gaussify.likelihoods._predictive import PredictiveMethod, softmax_probs
from gaussify.likelihoods._targets import LikelihoodMethod, LikelihoodMethodName, PseudoTargets
from gaussify.matching import MatchMethod, match


class SoftmaxLikelihood(ClassLikelihood):
    r"""Labels of K classes as Gaussian observations of K logits.

    A label with counts :math:`c` (one-hot for a hard label) and the prior :math:`\mathrm{Dir}(\alpha_\epsilon)` give
    the posterior :math:`\mathrm{Dir}(\alpha_\epsilon + c)` of the class probabilities. That is the softmax of K
    independent log-Gammas, each of which is matched by a Gaussian (section 3.2 of the paper).

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2. Classes without any label are allowed.
    alpha_eps : float or sequence of float
        Concentration of the prior, one number or one for each class: the small count that a class has before a label is
        seen. It keeps targets finite and sets how certain one label is. A tensor keeps its dtype, device and graph.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        Method that chooses the Gaussian, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"gauss"`` is least
        squares on one-hot labels.
    label_variance : float
        Variance of one label, used by ``method="gauss"`` only.

    Examples
    --------
    >>> likelihood = SoftmaxLikelihood(3, alpha_eps=0.1)
    >>> likelihood.target_table().mean
    tensor([[-0.3592, -7.3026, -7.3026],
            [-7.3026, -0.3592, -7.3026],
            [-7.3026, -7.3026, -0.3592]])
    >>> likelihood.encode([0, 0, 1]).variance
    tensor([[ 0.9091, 10.0000, 10.0000],
            [ 0.9091, 10.0000, 10.0000],
            [10.0000,  0.9091, 10.0000]])
    >>> likelihood.predict_proba([[1.0, 0.0, -1.0]], [[4.0, 4.0, 4.0]])
    tensor([[0.5150, 0.3094, 0.1756]], dtype=torch.float64)
    """

    _parameters = ("n_classes", "alpha_eps", "method")

    @no_type_check
    def __init__(
        self,
        n_classes: int,
        alpha_eps: ArrayInput = 0.1,
        method: LikelihoodMethodName | LikelihoodMethod = "variational",
        *,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__(alpha_eps, method, label_variance)
        self.n_classes = self.n_latents = check_count(n_classes, name="n_classes", owner="SoftmaxLikelihood", minimum=2)
        self._alpha()  # which checks it

    def _alpha(self) -> Tensor:
        return self._concentration("alpha_eps", sizes=(self.n_classes,))

    def predict_uncertainty(self, mean: ArrayInput, variance: ArrayInput) -> ProbabilityUncertainty:
        r"""Return the standard deviation of each probability and the split of the predictive entropy, without a graph.

        Variances of probabilities are accurate to 1e-7, so standard deviations are to 3e-4 at worst.
        """
        mean, variance = self._latent_gaussian(mean, variance, "predict_uncertainty")
        return entropy_split(*softmax_uncertainty(mean.double(), variance.double()), mean.dtype)

    def row_probs(self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]) -> Float[np.ndarray, " c"]:
        return expected_softmax_row(mean, variance)

    def row_moments(
        self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]
    ) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
        return softmax_moments_row(mean, variance)

    def _probs(self, mean: Tensor, variance: Tensor, method: PredictiveMethod, n_samples: int, seed: int) -> Tensor:
        return softmax_probs(mean, variance, method, n_samples, seed)

    def _match_counts(self, counts: Tensor) -> PseudoTargets:
        alpha = self._alpha()
        concentration = alpha + counts.to(alpha.device)
        matched = match(Dirichlet(concentration, validate_args=False), MatchMethod(self.method))
        return PseudoTargets(matched.mean, matched.variance)

    def _regression_means(self, shares: Tensor) -> Tensor:
        return shares

    def _log_prob_of_counts(self, latents: Tensor, counts: Tensor) -> Tensor:
        return (counts * torch.log_softmax(latents, -1)).sum(-1)

    def _expected_log_prob_of_counts(self, mean: Tensor, variance: Tensor, counts: Tensor) -> Tensor:
        r"""Return :math:`\sum_k c_k m_k - \left(\sum_k c_k\right)\mathbb{E}\log\sum_j e^{f_j}`."""
        return (counts * mean).sum(-1) - counts.sum(-1) * expected_logsumexp(mean, variance)

    def _expected_moments(self, mean: Tensor, variance: Tensor, *, rough: bool) -> tuple[Tensor, Tensor, Tensor]:
        return softmax_moments(mean, variance, rough=rough)

    def _regressors(self, counts: Tensor) -> Tensor:
        return counts
