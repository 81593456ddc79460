r"""Losses of all rows as one number, with their derivatives by logits in the same pass, by kernels in C.

Each class holds what a kernel needs for options that are numbers, and calls it. Kernels are for plain tensors of the
CPU; an installation without a compiler has none, and computes losses by torch's operations.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch._C import _are_functorch_transforms_active, _get_tracing_state, _len_torch_dispatch_stack
from torch.autograd.function import _SingleLevelFunction

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import PIECE, BetaCurve, BinaryGaussians, LabelGaussians, half_log_variance

try:
    from gaussify.nn import _kernels
except ImportError:
    HAS_KERNELS = False
else:
    HAS_KERNELS = True

_METHODS = {"variational": 0, "laplace": 1, "moment": 2, "moment-ori": 3}  # as _kernels.c has them


class LabelKernel(NamedTuple):
    """The loss of class indices.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=1.0)
    >>> kernel = LabelKernel.of_gaussians(gaussians, n_classes=2, is_mean=True, ignore_index=-100)
    >>> kernel(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))  # 2 + log(2 pi)
    3.8379
    """

    constants: tuple[float, ...]

    @classmethod
    def of_gaussians(
        cls, gaussians: LabelGaussians, *, n_classes: int, is_mean: bool, ignore_index: int
    ) -> "LabelKernel":
        """Return the kernel with the Gaussians of all labels, which are numbers."""
        other_mean, other_precision, own_mean, own_precision = map(float, gaussians)
        numbers = other_mean, math.sqrt(other_precision), own_mean, math.sqrt(own_precision)
        return cls((is_mean, ignore_index, *numbers, gaussians.row_normaliser(n_classes)))

    def __call__(
        self,
        logits: Float[Tensor, "n c"],
        labels: Int64[Tensor, " n"],
        slope: Float[Tensor, "n c"] | None = None,
    ) -> float | None:
        """Return the loss and write its derivative into ``slope``; None where labels are no classes."""
        return _kernels.labels(*_head(logits, labels, slope), *logits.shape, *self.constants)


class CountKernel(NamedTuple):
    """The loss of counts or probabilities of classes, which give each logit a Gaussian of its own.

    Examples
    --------
    >>> kernel = CountKernel(LikelihoodMethod.LAPLACE, is_mean=True, kept=1.0, alpha_eps=1.0)
    >>> kernel(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]))  # 2 + log(2 pi)
    3.8379
    """

    method: LikelihoodMethod
    is_mean: bool
    kept: float  # part of each count that smoothing leaves; what it spreads is in alpha_eps
    alpha_eps: float

    def __call__(
        self,
        logits: Float[Tensor, "n c"],
        counts: Float[Tensor, "n c"],
        slope: Float[Tensor, "n c"] | None = None,
    ) -> float | None:
        """Return the loss and write its derivative into ``slope``; None where counts are no counts."""
        n_rows, n_classes = logits.shape
        factor = 1.0 / n_rows if self.is_mean else 1.0
        method = _METHODS[self.method]
        head = _head(logits, counts, slope)
        return _kernels.counts(*head, n_rows * n_classes, factor, method, self.kept, self.alpha_eps)


class BinaryKernel(NamedTuple):
    """The loss of binary labels: all of them 0 or 1, or else from 0 to 1 where there is a curve.

    Examples
    --------
    >>> gaussians = BinaryGaussians(mean_0=0.0, precision_0=1.0, mean_1=1.0, precision_1=1.0)
    >>> kernel = BinaryKernel.of_gaussians(gaussians, is_mean=False)
    >>> kernel(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))  # 2 + log(2 pi)
    3.8379
    """

    is_mean: bool
    constants: tuple[float, ...]
    curve: Callable[[torch.dtype], BetaCurve] | None = None

    @classmethod
    def of_gaussians(
        cls, gaussians: BinaryGaussians, *, is_mean: bool, curve: Callable[[torch.dtype], BetaCurve] | None = None
    ) -> "BinaryKernel":
        """Return the kernel with the Gaussians of the labels 0 and 1, which are numbers."""
        mean_0, precision_0, mean_1, precision_1 = map(float, gaussians)
        half_0, half_1 = half_log_variance(precision_0), half_log_variance(precision_1)
        return cls(is_mean, (mean_0, precision_0, half_0, mean_1, precision_1, half_1), curve)

    def __call__(
        self,
        logits: Float[Tensor, "*n"],
        labels: Float[Tensor, "*n"],
        slope: Float[Tensor, "*n"] | None = None,
    ) -> float | None:
        """Return the loss and write its derivative into ``slope``; None for labels out of limits."""
        n = logits.numel()
        factor = 1.0 / n if self.is_mean else 1.0
        head = _head(logits, labels, slope)
        value = _kernels.binary(*head, n, factor, *self.constants)
        if value is not None or self.curve is None:
            return value
        alpha_eps, beta_eps, start, n_pieces, coefficients = self.curve(logits.dtype)
        pieces = coefficients.shape[1], n_pieces, alpha_eps, beta_eps, start / PIECE, 1.0 / PIECE
        return _kernels.curve(*head, n, factor, coefficients.data_ptr(), *pieces)


Kernel = LabelKernel | CountKernel | BinaryKernel


class _KernelError(RuntimeError):
    """There is something that kernels are not for, which the general way does or refuses."""


def _head(logits: Tensor, target: Tensor, slope: Tensor | None) -> tuple[bool, int, int, int, int]:
    """The arguments that all kernels begin with."""
    at_logits, at_target = logits.data_ptr(), target.data_ptr()
    if not (at_logits and at_target):  # of tensors that torch has without memory, or in another place
        raise _KernelError
    at_slope = 0 if slope is None else slope.data_ptr()
    return logits.dtype is torch.float64, torch.get_num_threads(), at_logits, at_target, at_slope


def are_plain(*tensors: Any) -> bool:
    """Return whether kernels may look at the numbers of tensors, and no one else wants to see what is done with them.

    Examples
    --------
    >>> are_plain(torch.zeros(2)), are_plain(torch.zeros(2, device="meta")), are_plain(0.0)
    (True, False, False)
    """
    if not HAS_KERNELS or torch.compiler.is_compiling():
        return False
    if _len_torch_dispatch_stack() or _are_functorch_transforms_active() or _get_tracing_state() is not None:
        return False
    for own in tensors:
        if not (type(own) is Tensor or type(own) is nn.Parameter) or not own.is_cpu or own.layout is not torch.strided:
            return False
        if own.is_neg():  # which has another sign in memory
            return False
    return True


def fused_loss(
    logits: Float[Tensor, "*n"], target: Tensor, kernel: Kernel, general: Callable[[Tensor, Tensor], Tensor]
) -> Float[Tensor, ""] | None:
    """Return the loss of plain tensors, or None where kernels cannot have it.

    ``general`` is the same loss by torch's operations, for derivatives of the derivative.

    Examples
    --------
    >>> kernel = CountKernel(LikelihoodMethod.LAPLACE, is_mean=True, kept=1.0, alpha_eps=1.0)
    >>> fused_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), kernel, general=torch.add)
    tensor(3.8379)
    """
    try:
        return _Fused.apply(logits.contiguous(), target.contiguous(), kernel, general)  # type: ignore[attr-defined]
    except RuntimeError:  # of kernels, of forward mode, of labels made in inference mode
        return None


class _Fused(_SingleLevelFunction):  # torch.autograd.Function but for what that does for torch.func
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, kernel: Kernel, general: Callable[..., Tensor]) -> Tensor:
        slope = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        value = kernel(logits, target, slope)
        if value is None:
            raise _KernelError
        ctx.save_for_backward(logits, target, slope)
        ctx.general = general
        return torch.scalar_tensor(value, dtype=logits.dtype, device=logits.device)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for the derivative of the derivative
            (slope,) = torch.autograd.grad(ctx.general(logits, target), logits, create_graph=True)
        return slope * grad, None, None, None
