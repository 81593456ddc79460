"""Out-of-distribution detection by the confidence of predictions."""

from enum import StrEnum
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import as_probs, check_option

OODScoreName = Literal["max-probability", "entropy"]
"""Names of the members of :class:`OODScore`."""


class OODScore(StrEnum):
    """Definition of the confidence of a row in :func:`ood_auroc`.

    Examples
    --------
    >>> [str(option) for option in OODScore]
    ['max-probability', 'entropy']
    """

    MAX_PROBABILITY = "max-probability"
    """The probability of the most probable class."""
    ENTROPY = "entropy"
    """The negative entropy of the class probabilities."""


@no_type_check
def ood_auroc(
    probs_in: ArrayLike | Tensor, probs_out: ArrayLike | Tensor, *, score: OODScoreName | OODScore = "max-probability"
) -> float:
    r"""Return the area under the ROC curve for telling in-distribution rows from others by their confidence.

    It is the probability that an in-distribution row is more confident than another one; ties count half. With
    :math:`s` the score of a row, :math:`p` drawn from ``probs_in`` and :math:`q` from ``probs_out``,

    .. math:: \Pr[s(p) > s(q)] + \tfrac{1}{2} \Pr[s(p) = s(q)], \qquad
              s(p) = \max_k p_k \;\text{ or }\; \sum_k p_k \log p_k.

    Parameters
    ----------
    probs_in : array-like or tensor of shape (n, n_classes)
        Class probabilities of rows like the training data.
    probs_out : array-like or tensor of shape (n_out, n_classes)
        Class probabilities of out-of-distribution rows.
    score : {"max-probability", "entropy"}, default="max-probability"
        Definition of confidence: the largest probability, or the negative entropy.

    Returns
    -------
    float
        A number from 0 to 1: 1 if every in-distribution row is more confident than all others, 0.5 if confidence tells
        nothing.

    Examples
    --------
    >>> ood_auroc([[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]])
    0.75
    """
    # imported here, as scikit-learn takes a second to import and nothing else in metrics needs it
    from sklearn.metrics import roc_auc_score

    option = check_option(score, OODScore, name="score", owner="ood_auroc")
    inside = as_probs(probs_in, name="probs_in", owner="ood_auroc")
    outside = as_probs(probs_out, name="probs_out", owner="ood_auroc", columns=inside.shape[1])
    p = torch.cat([inside, outside])
    confidence = p.amax(1) if option is OODScore.MAX_PROBABILITY else -torch.special.entr(p).sum(1)
    return float(roc_auc_score(np.repeat([1, 0], [len(inside), len(outside)]), confidence))
