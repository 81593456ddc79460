"""Kernels as operations of torch's, for the compiled graphs of losses of many logits.

What a compiler makes of the formulas takes several times as long as a kernel does, but a kernel has to be called from
Python in the midst of compiled code. Both operations write the loss and its derivative by logits where they are told.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C import _are_functorch_transforms_active

from gaussify.nn import _fused
from gaussify.nn._choice import kernel_of_binary, kernel_of_classes
from gaussify.nn._fused import Kernel

_TENSORS = "Tensor logits, Tensor target, Tensor(a!) loss, Tensor(b!) slope"
_LIBRARY = torch.library.Library("gaussify", "FRAGMENT")
_LIBRARY.define(
    f"class_loss({_TENSORS}, float alpha_eps, str method, int ignore_index, str reduction, float label_smoothing, "
    "float label_variance) -> ()"
)
_LIBRARY.define(
    f"binary_loss({_TENSORS}, float alpha_eps, float beta_eps, str method, str reduction, float label_variance) -> ()"
)


@torch.library.impl(_LIBRARY, "class_loss", "CPU")
def _(logits: Tensor, target: Tensor, loss: Tensor, slope: Tensor, *options: Any) -> None:
    kernel = kernel_of_classes(logits.shape, logits.dtype, target.shape, target.dtype, *options)
    _write(kernel, logits, target, loss, slope)


@torch.library.impl(_LIBRARY, "binary_loss", "CPU")
def _(logits: Tensor, target: Tensor, loss: Tensor, slope: Tensor, *options: Any) -> None:
    kernel = kernel_of_binary(logits.shape, logits.dtype, target.shape, target.dtype, *options)
    _write(kernel, logits, target, loss, slope)


def _write(kernel: Kernel | None, logits: Tensor, target: Tensor, loss: Tensor, slope: Tensor) -> None:
    """The loss and its derivative; no numbers where labels are not what they should be."""
    in_order = slope if slope.is_contiguous() else torch.empty_like(slope, memory_format=torch.contiguous_format)
    value = None
    if kernel is not None and kernel.prepare is None and slope.shape == logits.shape and slope.dtype is logits.dtype:
        value = kernel(logits.contiguous(), target.contiguous(), in_order)  # whatever order a compiler keeps them in
    if value is None:
        in_order.fill_(math.nan)
    if in_order is not slope:
        slope.copy_(in_order)
    loss.fill_(math.nan if value is None else value)


for _name in ("class_loss", "binary_loss"):
    torch.library.register_fake(f"gaussify::{_name}", lambda *_: None, lib=_LIBRARY)


def is_plainly_compiled() -> bool:
    """Return whether what is compiled now stays with torch, and derivatives are those of ``backward`` alone."""
    return not (torch.compiler.is_exporting() or _are_functorch_transforms_active())


def may_be_called() -> bool:
    """Return whether what is compiled now may call kernels."""
    return _fused.HAS_KERNELS and is_plainly_compiled()


class CompiledLoss(torch.autograd.Function):
    """The loss by an operation, and its derivative, which comes with it."""

    @staticmethod
    def forward(ctx: Any, logits: Float[Tensor, "*n"], target: Tensor, is_binary: bool, options: tuple) -> Tensor:
        """Return the loss."""
        loss, slope = torch.empty((), dtype=logits.dtype, device=logits.device), torch.empty_like(logits)
        operation = torch.ops.gaussify.binary_loss if is_binary else torch.ops.gaussify.class_loss
        operation.default(logits, target, loss, slope, *options)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the derivative."""
        (slope,) = ctx.saved_tensors
        return slope * grad, None, None, None
