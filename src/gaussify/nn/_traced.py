"""Losses for torch.compile, with as few names as can be: every name that Python looks up is checked with each call."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import fixed_gamma_targets, half_log_variance, is_constant, plain_gammas


class ClassConstants(NamedTuple):
    """What a compiled loss has as numbers."""

    method: LikelihoodMethod
    alpha_eps: float
    other_mean: float
    own_mean: float
    other_precision: float
    own_precision: float
    other_constant: float
    own_constant: float
    ignore_index: int
    is_mean: bool


def class_constants(
    alpha_eps: float, method: str, ignore_index: int, reduction: str, label_smoothing: float
) -> ClassConstants | None:
    """Return the numbers, or None where there is more to look out for.

    Examples
    --------
    >>> class_constants(0.1, "laplace", -100, "mean", 0.0)[1:6]
    (0.1, -2.3026, 0.0953, 0.1, 1.1)
    """
    return _class_constants(alpha_eps.hex(), method, ignore_index, reduction, label_smoothing.hex())


@is_constant
def _class_constants(
    alpha_eps: str, method: str, ignore_index: int, reduction: str, label_smoothing: str
) -> ClassConstants | None:
    number = float.fromhex(alpha_eps)
    are_usual = (
        0.0 < number < math.inf
        and float.fromhex(label_smoothing) == 0.0
        and isinstance(ignore_index, int)
        and reduction in ("mean", "sum")
        and method in list(LikelihoodMethod)
        and method != LikelihoodMethod.GAUSS
    )
    if not are_usual:
        return None
    chosen = LikelihoodMethod(method)
    other_mean, other_precision = fixed_gamma_targets(number, chosen)
    own_mean, own_precision = fixed_gamma_targets(number + 1.0, chosen)
    return ClassConstants(
        method=chosen,
        alpha_eps=number,
        other_mean=other_mean,
        own_mean=own_mean,
        other_precision=other_precision,
        own_precision=own_precision,
        other_constant=half_log_variance(other_precision),
        own_constant=half_log_variance(own_precision),
        ignore_index=ignore_index,
        is_mean=reduction == "mean",
    )


def traced_label_loss(
    logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"], constants: ClassConstants
) -> Float[Tensor, ""]:
    """Return the loss of class indices, NaN where they are no classes.

    Examples
    --------
    >>> constants = class_constants(1.0, "laplace", -100, "mean", 0.0)
    >>> traced_label_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([1]), constants)
    tensor(3.2)
    """
    n_classes = logits.shape[1]
    is_own = labels.unsqueeze(1) == torch.arange(n_classes, device=logits.device)
    residual = torch.where(is_own, logits - constants.own_mean, logits - constants.other_mean)
    weighted = torch.where(is_own, constants.own_precision * residual, constants.other_precision * residual)
    constant = (n_classes - 1) * constants.other_constant + constants.own_constant
    losses = 0.5 * (weighted * residual).sum(1) + constant
    is_kept = labels != constants.ignore_index
    is_class = (labels >= 0) & (labels < n_classes)
    total = torch.where(is_kept, torch.where(is_class, losses, torch.nan), 0.0).sum()
    return total / is_kept.sum() if constants.is_mean else total


def traced_count_loss(
    logits: Float[Tensor, "n c"], counts: Float[Tensor, "n c"], constants: ClassConstants
) -> Float[Tensor, ""]:
    """Return the loss of counts or probabilities of classes.

    Examples
    --------
    >>> constants = class_constants(1.0, "laplace", -100, "mean", 0.0)
    >>> traced_count_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), constants)  # 2 + log(2 pi)
    tensor(3.8379)
    """
    mean, precision, log_precision = plain_gammas(counts + constants.alpha_eps, constants.method)
    residual = logits - mean
    total = 0.5 * (precision * residual * residual - log_precision).sum() + logits.numel() * half_log_variance(1.0)
    return total / logits.shape[0] if constants.is_mean else total
