"""Squared errors between logits and the Gaussians of their labels, weighted by precision."""

import math
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.nn._targets import LabelGaussians, Number, of_labels


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
