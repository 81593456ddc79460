"""Squared errors between logits and the Gaussians of their labels, weighted by precision."""

from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.nn._targets import LabelGaussians, of_labels


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
    residual, slope = _residual_and_slope(logits, labels.unsqueeze(1), gaussians)
    return 0.5 * (residual * slope).sum(-1)


def label_error_sum(
    logits: Float[Tensor, "n c"],
    labels: Int64[Tensor, " n"],
    gaussians: LabelGaussians,
    factor: float = 1.0,
    shift: float = 0.0,
) -> Float[Tensor, ""]:
    """Return their sum times a factor, plus a shift; where the Gaussians are not learnt, in half as many operations.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=2.0)
    >>> label_error_sum(torch.tensor([[3.0, 2.0]]), torch.tensor([0]), gaussians, factor=0.5, shift=1.0)
    tensor(4.)
    """
    if not (gaussians.are_learnt or torch.compiler.is_compiling()):
        with suppress(RuntimeError):  # of a label outside, which is raised again below; or within torch.func
            return _LabelErrorSum.apply(logits, labels.unsqueeze(1), gaussians, factor, shift)
    return factor * label_errors(logits, labels, gaussians).sum() + shift


def _residual_and_slope(logits: Tensor, at: Tensor, gaussians: LabelGaussians) -> tuple[Tensor, Tensor]:
    r""":math:`f - m` and :math:`p\,(f - m)`, which is the derivative of half the weighted sum of squares."""
    own = logits.gather(1, at) - of_labels(gaussians.own_mean, at)
    residual = (logits - gaussians.other_mean).scatter(1, at, own)
    slope = (residual * gaussians.other_precision).scatter(1, at, own * of_labels(gaussians.own_precision, at))
    return residual, slope


class _LabelErrorSum(torch.autograd.Function):
    """Half the weighted sum of squares, in place, which leaves one product to do for the derivative.

    The derivative of the derivative is that of plain operations.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, at: Tensor, gaussians: LabelGaussians, factor: float, shift: float) -> Tensor:
        own = logits.gather(1, at) - of_labels(gaussians.own_mean, at)
        residual = (logits - gaussians.other_mean).scatter_(1, at, own)
        slope = (residual * gaussians.other_precision).scatter_(1, at, own * of_labels(gaussians.own_precision, at))
        ctx.save_for_backward(logits)
        ctx.rest = at, gaussians, slope, factor
        return residual.mul_(slope).sum().mul_(0.5 * factor).add_(shift)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits,), (at, gaussians, slope, factor) = ctx.saved_tensors, ctx.rest
        if torch.is_grad_enabled():
            slope = _residual_and_slope(logits, at, gaussians)[1]
        return slope * (factor * grad), None, None, None, None
