"""Acquisition functions score how useful the label of a row would be. Larger is better; values are never negative."""

from enum import StrEnum
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify.likelihoods import ClassLikelihood

_ELEMENTS = 1 << 22  # of a temporary matrix

AcquisitionName = Literal["entropy", "margin", "least-confidence", "bald", "epig", "variance", "thompson", "random"]


class Acquisition(StrEnum):
    """Score that chooses the next row.

    Examples
    --------
    >>> Acquisition("bald") is Acquisition.BALD
    True
    """

    ENTROPY = "entropy"
    """Entropy of the class probabilities."""
    MARGIN = "margin"
    """One minus the difference between the two largest probabilities."""
    LEAST_CONFIDENCE = "least-confidence"
    """One minus the largest probability."""
    BALD = "bald"
    """Mutual information of label and latents: the part of the entropy that more data could remove."""
    EPIG = "epig"
    """Expected predictive information gain: mutual information of the row's label and the label of a target row, on
    average over the target rows."""
    VARIANCE = "variance"
    """Sum of the variances of the latents."""
    THOMPSON = "thompson"
    """Entropy of the class probabilities of one draw from the posterior."""
    RANDOM = "random"
    """The same score for all rows: a random choice."""

    @property
    def needs_latents(self) -> bool:
        """True if the score needs the latents, not class probabilities alone."""
        return self in (Acquisition.BALD, Acquisition.EPIG, Acquisition.VARIANCE, Acquisition.THOMPSON)


def entropy(probs: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Return the entropy :math:`-\sum_k p_k\log p_k` of class probabilities.

    Examples
    --------
    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000])
    """
    return torch.special.entr(probs).sum(-1)


def margin(probs: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Return :math:`1 - (p_{(1)} - p_{(2)})`, with the two largest probabilities.

    Examples
    --------
    >>> margin(torch.tensor([[0.5, 0.3, 0.2]]))
    tensor([0.8000])
    """
    first, second = probs.topk(2, -1).values.unbind(-1)
    return 1.0 - (first - second)


def least_confidence(probs: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Return :math:`1 - \max_k p_k`.

    Examples
    --------
    >>> least_confidence(torch.tensor([[0.5, 0.3, 0.2]]))
    tensor([0.5000])
    """
    return 1.0 - probs.amax(-1)


def bald(
    likelihood: ClassLikelihood, mean: Float[Tensor, "n l"], variance: Float[Tensor, "n l"]
) -> Float[Tensor, " n"]:
    r"""Return the mutual information :math:`H(\mathbb{E}[p]) - \mathbb{E}[H(p)]` of label and latents, by quadrature.

    References
    ----------
    N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel, "Bayesian active learning for classification and preference
    learning", 2011.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> bald(LogisticLikelihood(), torch.zeros(1, 1), torch.tensor([[9.0]]))
    tensor([0.3326])
    """
    return likelihood.predict_uncertainty(mean, variance).epistemic_entropy


def epig(draws: Float[Tensor, "s n c"], target_draws: Float[Tensor, "s m c"]) -> Float[Tensor, " n"]:
    r"""Return the expected predictive information gain of n rows about the labels of m target rows.

    This is the mutual information of the label of a row and the label of a target, on average over the targets,

    .. math:: \mathbb{E}_{x_*}\sum_{y, y_*} p(y, y_*)\log\frac{p(y, y_*)}{p(y)\,p(y_*)},
        \qquad p(y, y_*) = \frac1s\sum_s p_s(y)\,p_s(y_*).

    Time is n m c² s; memory is bounded. Few draws bias the estimate upwards by about :math:`(c - 1)^2 / 2s`, the same
    for all rows.

    Parameters
    ----------
    draws, target_draws
        Class probabilities of the rows and of the targets under the same s draws from the posterior.

    References
    ----------
    F. Bickford Smith et al., "Prediction-oriented Bayesian active learning", 2023.

    Examples
    --------
    >>> draws = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two draws that are sure of opposite labels
    >>> epig(draws, draws)  # log 2
    tensor([0.6931])
    """
    s, n, c = draws.shape
    targets = target_draws.reshape(s, -1)  # (s, m c)
    h_target = torch.special.entr(target_draws.mean(0)).sum(-1).mean()
    h_own = torch.special.entr(draws.mean(0)).sum(-1)
    h_joint = draws.new_empty(n)
    rows = max(1, _ELEMENTS // (c * targets.shape[1]))
    for start in range(0, n, rows):
        part = draws[:, start : start + rows]
        joint = part.reshape(s, -1).mT @ targets / s  # (n c, m c)
        total = torch.special.entr(joint).view(part.shape[1], -1).sum(-1)
        h_joint[start : start + rows] = total / target_draws.shape[1]
    return (h_own + h_target - h_joint).clamp_min(0.0)
