"""Squared errors between logits and the Gaussians of their labels, weighted by precision."""

import math
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import (
    LabelGaussians,
    Number,
    fixed_gamma_targets,
    half_log_variance,
    is_constant,
    of_labels,
    plain_gammas,
)


def label_errors(
    logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"], gaussians: LabelGaussians
) -> Float[Tensor, " n"]:
    r"""Return :math:`\tfrac12\sum_k p_{nk}(f_{nk} - m_{nk})^2` of each row, means and precisions by label.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=2.0)
    >>> label_errors(torch.tensor([[3.0, 2.0]]), torch.tensor([0]), gaussians)
    tensor([6.])
    """
    if not (gaussians.are_learnt or torch.compiler.is_compiling()):
        with suppress(RuntimeError):  # within torch.func
            return _LabelErrors.apply(logits, labels.unsqueeze(1), gaussians)
    losses = squared_errors(logits, *gaussians.of_rows(labels, logits))
    is_class = (labels >= 0) & (labels < logits.shape[1])  # which could not be looked at, where there is no error
    return torch.where(is_class, losses, torch.nan)


def squared_errors(
    logits: Float[Tensor, "n c"], mean: Float[Tensor, "n c"], precision: Float[Tensor, "n c"]
) -> Float[Tensor, " n"]:
    r"""Return :math:`\tfrac12\sum_k p_{nk}(f_{nk} - m_{nk})^2` of each row.

    Examples
    --------
    >>> squared_errors(torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 1.0]]))
    tensor([6.])
    """
    if not (mean.requires_grad or precision.requires_grad or torch.compiler.is_compiling()):
        with suppress(RuntimeError):  # within torch.func
            return _SquaredErrors.apply(logits, mean, precision)
    return 0.5 * (precision * (logits - mean).square()).sum(-1)


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
    """Return the loss, for torch.compile: each name that Python looks up is looked at again with every call.

    Labels that are no classes give NaN.

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
    """Return the same for counts or probabilities of classes.

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


class _SquaredErrors(torch.autograd.Function):
    """Squared errors of each row for given Gaussians."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
        residual = logits - mean
        slope = residual * precision
        ctx.save_for_backward(logits, precision, slope)
        return residual.mul_(slope).sum(-1).mul_(0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, precision, slope = ctx.saved_tensors
        if torch.is_grad_enabled():
            slope = slope + precision * (logits - logits.detach())
        return slope * grad.unsqueeze(-1), None, None


class _LabelErrors(torch.autograd.Function):
    """Squared errors of each row for labels, whose rows differ from one row for all at their own class only."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, at: Tensor, gaussians: LabelGaussians) -> Tensor:
        other_scale, own_scale = _root(gaussians.other_precision), of_labels(_root(gaussians.own_precision), at)
        own = (logits.gather(1, at) - of_labels(gaussians.own_mean, at)) * own_scale
        scaled = (logits - gaussians.other_mean).mul_(other_scale).scatter_(1, at, own)
        losses = torch.linalg.vector_norm(scaled, dim=1).square_().mul_(0.5)
        ctx.save_for_backward(logits, at, scaled.mul_(other_scale).scatter_(1, at, own * own_scale))
        ctx.gaussians = gaussians
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, at, slope = ctx.saved_tensors
        if torch.is_grad_enabled():
            mean, precision = ctx.gaussians.of_rows(at.squeeze(1), logits)
            slope = (logits - mean) * precision
        return slope * grad.unsqueeze(-1), None, None


def _root(precision: Number) -> Number:
    """Precisions may leave the range of float32 where their roots do not."""
    return precision.sqrt() if isinstance(precision, Tensor) else math.sqrt(precision)
