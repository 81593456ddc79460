"""Kernels as operations of torch's, for the compiled graphs of losses of many logits.

What a compiler makes of the formulas takes several times as long as a kernel does, but a kernel has to be called from
Python in the midst of compiled code. Both operations write the loss and its derivative by logits where they are told.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify.nn import _fused
from gaussify.nn._choice import kernel_of_binary, kernel_of_classes
from gaussify.nn._fused import Kernel
from gaussify.nn._torch import are_functions_transformed

_INPUTS = "Tensor logits, Tensor target, Tensor? weight, Tensor? pos_weight"
_OUTPUTS = "Tensor(a!) loss, Tensor(b!) slope"
_LIBRARY = torch.library.Library("gaussify", "FRAGMENT")
_LIBRARY.define(
    f"class_loss({_INPUTS}, {_OUTPUTS}, float alpha_eps, str method, int ignore_index, str reduction, "
    "float label_smoothing, float label_variance) -> ()"
)
_LIBRARY.define(
    f"binary_loss({_INPUTS}, {_OUTPUTS}, float alpha_eps, float beta_eps, str method, str reduction, "
    "float label_variance) -> ()"
)


@torch.library.impl(_LIBRARY, "class_loss", "CPU")
def _(*given: Any) -> None:
    _write(kernel_of_classes, *given)


@torch.library.impl(_LIBRARY, "binary_loss", "CPU")
def _(*given: Any) -> None:
    _write(kernel_of_binary, *given)


def _write(
    choose: Callable[..., Kernel | None],
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    loss: Tensor,
    slope: Tensor,
    *options: Any,
) -> None:
    """The loss and its derivative; no numbers where labels are not what they should be."""
    kernel = choose(logits.shape, logits.dtype, target.shape, target.dtype, *options)
    outputs = [  # in whatever order a compiler keeps them
        own if own.is_contiguous() else torch.empty_like(own, memory_format=torch.contiguous_format)
        for own in (loss, slope)
    ]
    value = None
    if kernel is not None and kernel.prepare is None and _fit(kernel, logits, loss, slope):
        weights = [None if own is None else kernel.weight(own.resolve_neg(), logits) for own in (weight, pos_weight)]
        losses = None if kernel.is_sum else outputs[0]
        value = kernel(logits.contiguous(), target.contiguous(), outputs[1], losses, weights)
    if value is None:
        for own in outputs:
            own.fill_(math.nan)
    elif kernel is not None and kernel.is_sum:
        outputs[0].fill_(value)
    for own, in_order in zip((loss, slope), outputs, strict=True):
        if in_order is not own:
            own.copy_(in_order)


def _fit(kernel: Kernel, logits: Tensor, loss: Tensor, slope: Tensor) -> bool:
    """Whether there is room for what a kernel writes."""
    shape = () if kernel.is_sum else logits.shape[:1] + logits.shape[2:] if kernel.are_rows else logits.shape
    return loss.shape == shape and slope.shape == logits.shape and loss.dtype is slope.dtype is logits.dtype


for _name in ("class_loss", "binary_loss"):
    torch.library.register_fake(f"gaussify::{_name}", lambda *_: None, lib=_LIBRARY)


def is_plainly_compiled() -> bool:
    """Return whether what is compiled now stays with torch, and derivatives are those of ``backward`` alone."""
    return not (torch.compiler.is_exporting() or are_functions_transformed())


def may_be_called() -> bool:
    """Return whether what is compiled now may call kernels."""
    return _fused.HAS_KERNELS and is_plainly_compiled()


class CompiledLoss(torch.autograd.Function):
    """The loss by an operation, and its derivative, which comes with it."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Float[Tensor, "*n"],
        target: Tensor,
        weight: Tensor | None,
        pos_weight: Tensor | None,
        is_binary: bool,
        reduction: str,
        options: tuple,
    ) -> Tensor:
        """Return the loss."""
        shape = logits.shape if is_binary else logits.shape[:1] + logits.shape[2:]
        loss = torch.empty(shape if reduction == "none" else (), dtype=logits.dtype, device=logits.device)
        slope = torch.empty_like(logits)
        operation = torch.ops.gaussify.binary_loss if is_binary else torch.ops.gaussify.class_loss
        operation.default(logits, target, weight, pos_weight, loss, slope, *options)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the derivative."""
        (slope,) = ctx.saved_tensors
        return slope * (grad.unsqueeze(1) if 0 < grad.ndim < slope.ndim else grad), *(None,) * 6
