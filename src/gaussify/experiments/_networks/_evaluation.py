"""Scores of networks: of their logits, on training rows, and against images of another data set."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gaussify.experiments._lab import Record, scores
from gaussify.experiments._networks._training import outputs_of


def logit_scores(logits: Float[Tensor, "n c"], y: Int64[Tensor, " n"], prefix: str = "") -> Record:
    """Return error, NLL and ECE of the softmax of logits.

    Examples
    --------
    >>> logit_scores(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([1, 1]), "test_")
    {'test_error_pct': 50.0, 'test_nll': 0.7201, 'test_ece': 0.4251}
    """
    return {f"{prefix}{name}": value for name, value in scores(logits.double().softmax(-1), y).items()}


def train_nll(network: nn.Module, X: Tensor, y: Int64[Tensor, " n"]) -> Record:
    """Return the NLL of training rows, by which ``alpha_eps`` is chosen."""
    return {"train_nll": logit_scores(outputs_of(network, X), y)["nll"]}


def logit_auroc(near: Float[Tensor, "n c"], far: Float[Tensor, "m c"]) -> float:
    """Return how well the largest logit separates images from those of another data set, as in the paper.

    Examples
    --------
    >>> logit_auroc(torch.tensor([[4.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    is_near = [1] * len(near) + [0] * len(far)
    return round(float(roc_auc_score(is_near, torch.cat([near, far]).amax(1))), 5)
