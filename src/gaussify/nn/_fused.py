r"""Losses of all rows as one number, with their derivatives by logits in the same pass, by kernels in C.

A :class:`Kernel` holds what there is to know of options that are numbers, and of shapes. Kernels are for plain tensors
of the CPU; an installation without a compiler has none, and computes losses by torch's operations.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._C import _are_functorch_transforms_active, _get_tracing_state, _len_torch_dispatch_stack
from torch._C._autograd import _get_current_graph_task_keep_graph
from torch.autograd.function import _SingleLevelFunction

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import PIECE, BetaCurve, BinaryGaussians, LabelGaussians, half_log_variance

try:
    from gaussify.nn import _kernels
except ImportError:
    HAS_KERNELS = False
else:
    HAS_KERNELS = True

_CPU, _PLAIN = torch.device("cpu"), (Tensor, nn.Parameter)
_METHODS = {"variational": 0, "laplace": 1, "moment": 2, "moment-ori": 3}  # as _kernels.c has them


class Kernel(NamedTuple):
    """A loss of rows of one shape and type: a function of _kernels.c, and all it is to know but where tensors are."""

    function: Callable[..., float | None]
    is_double: bool
    task: tuple[float, ...]
    otherwise: Callable[..., float | None] | None = None  # for labels that this one is not for
    prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = (
        None  # for tensors that are not as it needs them
    )

    def __call__(self, logits: Tensor, target: Tensor, slope: Tensor | None = None) -> float | None:
        """Return the loss and write its derivative into ``slope``; None where labels are not what they should be."""
        at_logits, at_target = logits.data_ptr(), target.data_ptr()
        if not (at_logits and at_target):  # of tensors that torch has without memory, or in another place
            raise _KernelError
        at_slope = 0 if slope is None else slope.data_ptr()
        value = self.function(self.is_double, torch.get_num_threads(), at_logits, at_target, at_slope, *self.task)
        if value is None and self.otherwise is not None:
            return self.otherwise(logits, target, slope)
        return value


def label_kernel(
    gaussians: LabelGaussians, dtype: torch.dtype, *, n_rows: int, n_classes: int, is_mean: bool, ignore_index: int
) -> Kernel:
    """Return the loss of class indices, whose Gaussians are numbers.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=1.0)
    >>> kernel = label_kernel(gaussians, torch.float32, n_rows=1, n_classes=2, is_mean=True, ignore_index=-100)
    >>> kernel(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))  # 2 + log(2 pi)
    3.8379
    """
    other_mean, other_precision, own_mean, own_precision = map(float, gaussians)
    numbers = other_mean, math.sqrt(other_precision), own_mean, math.sqrt(own_precision)
    task = n_rows, n_classes, is_mean, ignore_index, *numbers, gaussians.row_normaliser(n_classes)
    return Kernel(_kernels.labels, dtype is torch.float64, task)


def count_kernel(
    method: LikelihoodMethod,
    dtype: torch.dtype,
    *,
    n_rows: int,
    n_classes: int,
    is_mean: bool,
    kept: float,
    alpha_eps: float,
) -> Kernel:
    """Return the loss of counts or probabilities of classes, which give each logit a Gaussian of its own.

    Smoothing leaves the part ``kept`` of each count; what it spreads is in ``alpha_eps``.

    Examples
    --------
    >>> rows = {"n_rows": 1, "n_classes": 2, "is_mean": True}
    >>> kernel = count_kernel(LikelihoodMethod.LAPLACE, torch.float32, **rows, kept=1.0, alpha_eps=1.0)
    >>> kernel(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]))  # 2 + log(2 pi)
    3.8379
    """
    factor = 1.0 / n_rows if is_mean else 1.0
    task = n_rows * n_classes, factor, _METHODS[method], kept, alpha_eps
    return Kernel(_kernels.counts, dtype is torch.float64, task)


def binary_kernel(
    gaussians: BinaryGaussians,
    dtype: torch.dtype,
    *,
    n: int,
    is_mean: bool,
    curve: Callable[[torch.dtype], BetaCurve] | None = None,
) -> Kernel:
    """Return the loss of binary labels: all of them 0 or 1, or else from 0 to 1 where there is a curve.

    Examples
    --------
    >>> gaussians = BinaryGaussians(mean_0=0.0, precision_0=1.0, mean_1=1.0, precision_1=1.0)
    >>> kernel = binary_kernel(gaussians, torch.float32, n=2, is_mean=False)
    >>> kernel(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))  # 2 + log(2 pi)
    3.8379
    """
    mean_0, precision_0, mean_1, precision_1 = map(float, gaussians)
    half_0, half_1 = half_log_variance(precision_0), half_log_variance(precision_1)
    factor, is_double = 1.0 / n if is_mean else 1.0, dtype is torch.float64

    task = n, factor, mean_0, precision_0, half_0, mean_1, precision_1, half_1
    if curve is None:
        return Kernel(_kernels.binary, is_double, task)

    def of_soft_labels(logits: Tensor, labels: Tensor, slope: Tensor | None) -> float | None:
        alpha_eps, beta_eps, start, n_pieces, coefficients = curve(dtype)  # which lives as long as it is read
        pieces = coefficients.shape[1], n_pieces, alpha_eps, beta_eps, start / PIECE, 1.0 / PIECE
        kernel = Kernel(_kernels.curve, is_double, (n, factor, coefficients.data_ptr(), *pieces))
        return kernel(logits, labels, slope)

    return Kernel(_kernels.binary, is_double, task, of_soft_labels)


class _KernelError(RuntimeError):
    """There is something that kernels are not for, which the general way does or refuses."""


def fused_loss(
    input: Tensor,
    target: Tensor,
    choose: Callable[..., Kernel | None],
    general: Callable[..., Tensor],
    options: tuple[Any, ...],
) -> Float[Tensor, ""] | None:
    """Return the loss by the kernel that is chosen for shapes, types and options; None where none can have it.

    Kernels look at the numbers of plain tensors, where no one else wants to see what is done with them.
    ``general(input, target, *options)`` is the same loss by torch's operations, for derivatives of the derivative. All
    of it is in one function, since among the other operations of a training step every call of Python's takes its time.

    Examples
    --------
    >>> def choose(shape, dtype, target_shape, target_dtype, alpha_eps):
    ...     rows = {"n_rows": shape[0], "n_classes": shape[1], "is_mean": True}
    ...     return count_kernel(LikelihoodMethod.LAPLACE, dtype, **rows, kept=1.0, alpha_eps=alpha_eps)
    >>> fused_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), choose, torch.add, (1.0,))
    tensor(3.8379)
    >>> fused_loss(torch.zeros(1, 2, device="meta"), torch.tensor([[0.0, 0.0]]), choose, torch.add, (1.0,))
    """
    if not HAS_KERNELS or type(input) not in _PLAIN or type(target) not in _PLAIN:
        return None
    if _len_torch_dispatch_stack() or _are_functorch_transforms_active() or _get_tracing_state() is not None:
        return None
    if not (input.is_cpu and target.is_cpu) or input.is_neg() or target.is_neg():  # which have other signs in memory
        return None
    try:
        kernel = choose(input.shape, input.dtype, target.shape, target.dtype, *options)
    except TypeError:  # of options that no one can look up
        return None
    if kernel is None or target.requires_grad:
        return None
    try:
        if kernel.prepare is not None:
            input, target = kernel.prepare(input, target)
        return _Fused.apply(input.contiguous(), target.contiguous(), kernel, general, options)  # type: ignore[attr-defined]
    except RuntimeError:  # of kernels, of layouts without memory, of forward mode, of labels made in inference mode
        return None


class _Fused(_SingleLevelFunction):  # torch.autograd.Function but for what that does for torch.func
    _compiled_autograd_key = staticmethod(torch.autograd.Function._compiled_autograd_key)

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        kernel: Kernel,
        general: Callable[..., Tensor],
        options: tuple[Any, ...],
    ) -> Tensor:
        slope = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        value = kernel(logits, target, slope)
        if value is None:
            raise _KernelError
        ctx.save_for_backward(logits, target, slope)
        ctx.general, ctx.options = general, options
        return torch.scalar_tensor(value, dtype=logits.dtype, device=_CPU)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # for the derivative of the derivative
            (slope,) = torch.autograd.grad(ctx.general(logits, target, *ctx.options), logits, create_graph=True)
        elif _is_one(grad) and not _get_current_graph_task_keep_graph():
            return slope, None, None, None, None  # which no one else has now
        return slope * grad, None, None, None, None


def _is_one(grad: Tensor) -> bool:
    """Whether the loss is what backward began with, as a rule."""
    if torch.compiler.is_compiling() or _len_torch_dispatch_stack() or _are_functorch_transforms_active():
        return False  # where a number that is taken out of a tensor would be a constant
    try:
        return grad.item() == 1.0
    except RuntimeError:  # of many at once, by is_grads_batched
        return False
