"""Binary labels under a logistic sigmoid."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Beta
from torch.nn.functional import logsigmoid

from gaussify._numerics import expected_sigmoid, sigmoid_moments, sigmoid_moments_row, softplus_moment
from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput
from gaussify.likelihoods._base import BETA_METHODS
from gaussify.likelihoods._class_likelihood import ClassLikelihood, ProbabilityUncertainty, entropy_split
from gaussify.likelihoods._predictive import PredictiveMethod, logistic_probs
from gaussify.likelihoods._targets import LikelihoodMethod, LikelihoodMethodName, PseudoTargets
from gaussify.matching import MatchMethod, match


class LogisticLikelihood(ClassLikelihood):
    r"""Labels 0 and 1 as Gaussian observations of one logit, that of class 1.

    A label :math:`y` and the prior :math:`\mathrm{Beta}(\alpha_\epsilon, \beta_\epsilon)` give the posterior
    :math:`\mathrm{Beta}(\alpha_\epsilon + y, \beta_\epsilon + 1 - y)` of the probability of class 1, whose logit is
    matched by a Gaussian (section 3.3 of the paper).

    Parameters
    ----------
    alpha_eps, beta_eps : float
        Concentrations of the prior for class 1 and class 0: imaginary observations of each class, which keep targets
        finite. ``beta_eps=None`` means ``alpha_eps``.
    method : {"variational", "moment", "laplace", "gauss"}
        Method that chooses the Gaussian, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"gauss"`` is least
        squares on the labels 0 and 1. ``"moment-ori"`` is not defined for a Beta.
    label_variance : float
        Variance of one label, used by ``method="gauss"`` only.

    Examples
    --------
    >>> likelihood = LogisticLikelihood(alpha_eps=0.1)
    >>> likelihood.target_table()
    PseudoTargets(mean=tensor([[-8.2806],
            [ 8.2806]]), variance=tensor([[32.5925],
            [32.5925]]))
    >>> likelihood.predict_proba([[1.0]], [[4.0]])
    tensor([[0.3523, 0.6477]], dtype=torch.float64)
    """

    n_classes = 2
    n_latents = 1
    _methods = BETA_METHODS
    _parameters = ("alpha_eps", "beta_eps", "method")

    @no_type_check
    def __init__(
        self,
        alpha_eps: float | Tensor = 0.1,
        beta_eps: float | Tensor | None = None,
        method: LikelihoodMethodName | LikelihoodMethod = "variational",
        *,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__(alpha_eps, method, label_variance)
        self.beta_eps = beta_eps
        self._alpha(), self._beta()  # which check them

    def _alpha(self) -> Tensor:
        return self._concentration("alpha_eps")

    def _beta(self) -> Tensor:
        return self._concentration("alpha_eps" if self.beta_eps is None else "beta_eps")

    def predict_uncertainty(self, mean: ArrayInput, variance: ArrayInput) -> ProbabilityUncertainty:
        r"""Return the standard deviation of the probabilities and the split of the predictive entropy, without a graph.

        The entropy of a label is :math:`H(p) = \zeta(f) - f\sigma(f)`, with :math:`\zeta` the softplus. So by Stein's
        lemma :math:`\mathbb{E}[H] = E_0 - m E_1 - v E_2`, where :math:`E_k = \mathbb{E}[\zeta^{(k)}(f)]`.
        """
        mean, variance = self._latent_gaussian(mean, variance, "predict_uncertainty")
        dtype, (mean, variance) = mean.dtype, (x.detach().double() for x in (mean, variance))
        E0, E1, E2 = (softplus_moment(order, mean, variance) for order in (0, 1, 2))
        E1_other = softplus_moment(1, -mean, variance)
        aleatoric = (E0 - mean * E1 - variance * E2)[:, 0]
        return entropy_split(torch.cat([E1_other, E1], -1), (E1 * E1_other - E2).expand(-1, 2), aleatoric, dtype)

    def row_probs(self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]) -> Float[np.ndarray, " c"]:
        latent, spread = mean.item(), variance.item()
        return np.array([expected_sigmoid(-latent, spread), expected_sigmoid(latent, spread)])

    def row_moments(
        self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]
    ) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
        probability, slope = sigmoid_moments_row(mean.item(), variance.item())
        return np.array([probability]), np.array([slope])

    def _probs(self, mean: Tensor, variance: Tensor, method: PredictiveMethod, n_samples: int, seed: int) -> Tensor:
        return logistic_probs(mean, variance, method, n_samples, seed)

    def _match_counts(self, counts: Tensor) -> PseudoTargets:
        alpha = self._alpha()
        counts = counts.to(alpha.device)
        posterior = Beta(alpha + counts[:, 1:], self._beta().to(counts) + counts[:, :1], validate_args=False)
        matched = match(posterior, MatchMethod(self.method))
        return PseudoTargets(matched.mean, matched.variance)

    def _regression_means(self, shares: Tensor) -> Tensor:
        return shares[:, 1:]

    def _log_prob_of_counts(self, latents: Tensor, counts: Tensor) -> Tensor:
        return counts[:, 1] * latents[..., 0] + counts.sum(-1) * logsigmoid(-latents[..., 0])

    def _expected_log_prob_of_counts(self, mean: Tensor, variance: Tensor, counts: Tensor) -> Tensor:
        r"""Return :math:`c_1 m - (c_0 + c_1)\,\mathbb{E}\,\zeta(f)`."""
        return counts[:, 1] * mean[:, 0] - counts.sum(-1) * softplus_moment(0, mean, variance)[:, 0]

    def _expected_moments(self, mean: Tensor, variance: Tensor, *, rough: bool) -> tuple[Tensor, Tensor, Tensor]:
        probs, slope, normaliser = sigmoid_moments(mean, variance)
        return probs, slope, normaliser[:, 0]

    def _regressors(self, counts: Tensor) -> Tensor:
        return counts[:, 1:]
