r"""Losses of rows or of all as one number, with their derivatives by logits in the same pass, by kernels in C.

A :class:`Kernel` holds what there is to know of options that are numbers, and of shapes. Kernels are for plain tensors
of the CPU; an installation without a compiler has none, and computes losses by torch's operations.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import BetaCurve, BinaryGaussians, LabelGaussians
from gaussify.nn._torch import HAS_ALL, Function, are_functions_transformed, keeps_graph, n_modes, tracing_state

try:
    from gaussify.nn import _kernels
except ImportError:
    HAS_KERNELS = False
else:
    HAS_KERNELS = HAS_ALL

_CPU, _PLAIN = torch.device("cpu"), (Tensor, nn.Parameter)
_AS_GIVEN, _ZERO_OR_ONE, _ON_CURVE = 4, 5, 6  # as _kernels.c has them, like these
KINDS = {"variational": 0, "laplace": 1, "moment": 2, "moment-ori": 3, "gauss": _AS_GIVEN}
_NO_WEIGHTS = (0, 0, 0, 0)  # where they are and how many, of two kinds


class Kernel(NamedTuple):
    """A loss of rows of one shape and type: a function of _kernels.c, and all it is to know but where tensors are."""

    function: Callable[..., float | None]
    is_double: bool
    task: tuple[float, ...]
    are_rows: bool  # logits of classes, a loss for each row, or else one for each logit
    is_sum: bool = True  # or mean; otherwise losses are kept as they are
    otherwise: Callable[..., float | None] | None = None  # for labels that this one is not for
    # for tensors that are not as it needs them
    prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    shape: tuple[int, ...] | None = None  # of losses that are kept, where it is another than this one gives them
    by_rows: Any = None  # the kernel for logits that do not have those of one class side by side (channels last)

    def __call__(
        self,
        logits: Tensor,
        target: Tensor,
        slope: Tensor | None = None,
        losses: Tensor | None = None,
        weights: Sequence[Tensor | None] = (),
    ) -> float | None:
        """Return the loss and write its derivative into ``slope``; None where labels are not what they should be.

        None, too, of tensors that torch has without memory, or in another place.
        """
        value = self.function(
            self.is_double,
            torch.get_num_threads(),
            logits.data_ptr(),
            target.data_ptr(),
            0 if slope is None else slope.data_ptr(),
            0 if losses is None else losses.data_ptr(),
            *(_addresses(*weights) if weights else _NO_WEIGHTS),
            *self.task,
        )
        if value is None and self.otherwise is not None:
            return self.otherwise(logits, target, slope, losses, weights)
        return value

    def weight(self, given: Tensor | None, logits: Tensor) -> Tensor | None:
        """Return factors of classes, or of logits (fewer are repeated), in memory as this one reads them."""
        if given is None:
            return None
        if type(given) not in _PLAIN or not given.is_cpu or given.requires_grad or given.is_neg():
            raise _KernelError
        if self.are_rows:
            is_whole = given.shape == logits.shape[1:2]
        else:
            shape = given.shape
            while shape and shape[0] == 1:
                shape = shape[1:]
            is_whole = given.ndim <= logits.ndim and shape == logits.shape[logits.ndim - len(shape) :]
        if is_whole and given.dtype is logits.dtype and given.is_contiguous():
            return given
        if (self.are_rows and not is_whole) or given.is_complex():
            raise _KernelError
        return (given if is_whole else given.expand(logits.shape)).to(logits.dtype).contiguous()


def _addresses(weight: Tensor | None, pos_weight: Tensor | None = None) -> tuple[int, int, int, int]:
    """Where weights are, and how many."""
    at, n = (0, 0) if weight is None else (weight.data_ptr(), weight.numel())
    positive_at, n_positive = (0, 0) if pos_weight is None else (pos_weight.data_ptr(), pos_weight.numel())
    return at, n, positive_at, n_positive


def label_kernel(
    gaussians: LabelGaussians,
    dtype: torch.dtype,
    *,
    n_rows: int,
    n_classes: int,
    reduction: str,
    ignore_index: int,
    label_smoothing: float = 0.0,
    n_inner: int = 1,
) -> Kernel:
    """Return the loss of class indices, whose Gaussians are numbers; smoothing is for weights.

    Logits are (n_rows, n_classes), or (n_rows / n_inner, n_classes, n_inner).

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=1.0)
    >>> kernel = label_kernel(gaussians, torch.float32, n_rows=1, n_classes=2, reduction="mean", ignore_index=-100)
    >>> kernel(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))  # 2 + log(2 pi)
    3.8379
    """
    other_mean, other_precision, own_mean, own_precision = map(float, gaussians)
    numbers = other_mean, math.sqrt(other_precision), own_mean, math.sqrt(own_precision)
    constant = gaussians.row_normaliser(n_classes)
    task = n_rows, n_classes, n_inner, reduction == "mean", ignore_index, 1.0 - label_smoothing, *numbers, constant
    return Kernel(_kernels.labels, dtype is torch.float64, task, are_rows=True, is_sum=reduction != "none")


def count_kernel(
    method: LikelihoodMethod,
    dtype: torch.dtype,
    *,
    n_rows: int,
    n_classes: int,
    reduction: str,
    alpha_eps: float,
    label_smoothing: float = 0.0,
    label_variance: float = 1.0,
    n_inner: int = 1,
) -> Kernel:
    """Return the loss of counts or probabilities of classes, which give each logit a Gaussian of its own.

    Logits are (n_rows, n_classes), or (n_rows / n_inner, n_classes, n_inner), but not of least squares.

    Examples
    --------
    >>> rows = {"n_rows": 1, "n_classes": 2, "reduction": "mean"}
    >>> kernel = count_kernel(LikelihoodMethod.LAPLACE, torch.float32, **rows, alpha_eps=1.0)
    >>> kernel(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]))  # 2 + log(2 pi)
    3.8379
    """
    kept, spread = 1.0 - label_smoothing, label_smoothing / n_classes
    numbers = (kept, spread + alpha_eps, 0.0, 0.0, 0.0, 0.0)
    if method is LikelihoodMethod.GAUSS:  # the rest of which is for each row
        numbers = (0.0, 0.0, 1.0 / label_variance, 0.0, math.inf, 0.0)
    factor = 1.0 / n_rows if reduction == "mean" else 1.0
    task = n_rows * n_classes, n_classes, n_inner, factor, kept, spread, KINDS[method], *numbers
    return Kernel(_kernels.targets, dtype is torch.float64, task, are_rows=True, is_sum=reduction != "none")


def binary_kernel(
    gaussians: BinaryGaussians,
    dtype: torch.dtype,
    *,
    n: int,
    reduction: str,
    curve: Callable[[torch.dtype], BetaCurve],
) -> Kernel:
    """Return the loss of binary labels: all of them 0 or 1, or else on the curve of labels from 0 to 1.

    Examples
    --------
    >>> gaussians = BinaryGaussians(mean_0=0.0, precision_0=1.0, mean_1=1.0, precision_1=1.0)
    >>> from gaussify.nn._targets import beta_curve
    >>> options = {"reduction": "sum", "curve": lambda dtype: beta_curve(0.1, 0.1, LikelihoodMethod.LAPLACE, dtype)}
    >>> kernel = binary_kernel(gaussians, torch.float32, n=2, **options)
    >>> kernel(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))  # 2 + log(2 pi)
    3.8379
    """
    of_hard_labels = _logit_kernel(dtype, n, reduction, _ZERO_OR_ONE, hard_numbers(gaussians))

    @cache
    def soft_kernel() -> tuple[Kernel, BetaCurve]:
        own = curve(dtype)  # whose numbers live as long as they are read
        pieces = own.coefficients.data_ptr(), own.coefficients.shape[1]
        return _logit_kernel(dtype, n, reduction, _ON_CURVE, (*curve_numbers(own), *pieces)), own

    def of_soft_labels(*tensors: Any) -> float | None:
        return soft_kernel()[0](*tensors)

    return of_hard_labels._replace(otherwise=of_soft_labels)


def hard_numbers(gaussians: BinaryGaussians) -> tuple[float, ...]:
    """Return what a kernel has to know of the labels 0 and 1.

    Examples
    --------
    >>> hard_numbers(BinaryGaussians(mean_0=-2.0, precision_0=1.0, mean_1=2.0, precision_1=1.0))
    (-2.0, 1.0, 0.0, 2.0, 1.0, 0.0)
    """
    mean_0, precision_0, mean_1, precision_1 = map(float, gaussians)
    return mean_0, precision_0, math.log(precision_0), mean_1, precision_1, math.log(precision_1)


def curve_numbers(curve: BetaCurve) -> tuple[float, ...]:
    """Return what a kernel has to know of labels on a curve, but for its coefficients.

    Examples
    --------
    >>> from gaussify.nn._targets import beta_curve
    >>> curve_numbers(beta_curve(0.1, 0.1, LikelihoodMethod.LAPLACE, torch.float32))
    (0.1, 0.1, 3954.0, 3870.0, 0.0, 0.0)
    """
    return curve.low_shift, curve.high_shift, float(curve.first_low), float(curve.first_high), 0.0, 0.0


def square_kernel(label_variance: float, dtype: torch.dtype, *, n: int, reduction: str) -> Kernel:
    """Return least squares on labels from 0 to 1.

    Examples
    --------
    >>> kernel = square_kernel(1.0, torch.float32, n=2, reduction="sum")
    >>> kernel(torch.tensor([2.5, 1.0]), torch.tensor([0.5, 1.0]))  # 2 + log(2 pi)
    3.8379
    """
    numbers = 1.0, 0.0, 1.0 / label_variance, -math.log(label_variance), 1.0, 0.0
    return _logit_kernel(dtype, n, reduction, _AS_GIVEN, numbers)


def _logit_kernel(dtype: torch.dtype, n: int, reduction: str, kind: int, numbers: tuple[Any, ...]) -> Kernel:
    """The loss of logits by themselves, not of rows of classes, whose labels are not smoothed."""
    task = n, 0, 1, 1.0 / n if reduction == "mean" else 1.0, 1.0, 0.0, kind, *numbers
    return Kernel(_kernels.targets, dtype is torch.float64, task, are_rows=False, is_sum=reduction != "none")


class _KernelError(RuntimeError):
    """There is something that kernels are not for, which the general way does or refuses."""


def fused_loss(
    input: Tensor,
    target: Tensor,
    choose: Callable[..., Kernel | None],
    general: Callable[..., Tensor],
    options: tuple[Any, ...],
    weights: tuple[Tensor | None, ...] = (),
) -> Float[Tensor, "..."] | None:
    """Return the loss by the kernel that is chosen for shapes, types and options; None where none can have it.

    Kernels look at the numbers of plain tensors, where no one else wants to see what is done with them. ``weights`` are
    those of classes, or those of logits and of the label 1, or none. ``general(input, target, *options, *weights)``
    is the same loss by torch's operations, for derivatives of the derivative. All of it is in one function, since among
    the other operations of a training step every call of Python's takes its time.

    Examples
    --------
    >>> def choose(shape, dtype, target_shape, target_dtype, alpha_eps):
    ...     rows = {"n_rows": shape[0], "n_classes": shape[1], "reduction": "mean"}
    ...     return count_kernel(LikelihoodMethod.LAPLACE, dtype, **rows, alpha_eps=alpha_eps)
    >>> fused_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), choose, torch.add, (1.0,))
    tensor(3.8379)
    >>> fused_loss(torch.zeros(1, 2, device="meta"), torch.tensor([[0.0, 0.0]]), choose, torch.add, (1.0,))
    """
    if not HAS_KERNELS or type(input) not in _PLAIN or type(target) not in _PLAIN:
        return None
    if n_modes() or are_functions_transformed() or tracing_state() is not None:
        return None
    if not (input.is_cpu and target.is_cpu) or input.is_neg() or target.is_neg():  # which have other signs in memory
        return None
    try:
        kernel = choose(input.shape, input.dtype, target.shape, target.dtype, *options)
    except TypeError:  # of options that no one can look up
        return None
    if kernel is None or target.requires_grad:
        return None
    if kernel.by_rows is not None and not input.is_contiguous():
        kernel = kernel.by_rows
    try:
        if kernel.prepare is not None:
            input, target = kernel.prepare(input, target)
        if weights:
            weights = tuple([kernel.weight(weight, input) for weight in weights])
        loss = _Fused.apply(input.contiguous(), target.contiguous(), kernel, general, options, *weights)
    except RuntimeError:  # of kernels, of layouts without memory, of forward mode, of labels made in inference mode
        return None
    return loss if kernel.shape is None else loss.reshape(kernel.shape)


_NOTHING = (None,) * 6  # the derivatives by all but logits; there may be more than these


class _Fused(Function):
    _compiled_autograd_key = staticmethod(torch.autograd.Function._compiled_autograd_key)

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        kernel: Kernel,
        general: Callable[..., Tensor],
        options: tuple[Any, ...],
        *weights: Tensor | None,
    ) -> Tensor:
        slope = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        losses = None
        if not kernel.is_sum:
            losses = logits.new_empty((len(logits), *logits.shape[2:])) if kernel.are_rows else torch.empty_like(logits)
        value = kernel(logits, target, slope, losses, weights)
        if value is None:
            raise _KernelError
        ctx.save_for_backward(logits, target, slope, *weights)
        ctx.general, ctx.options = general, options
        return torch.scalar_tensor(value, dtype=logits.dtype, device=_CPU) if losses is None else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # for the derivative of the derivative
            losses = ctx.general(logits, target, *ctx.options, *weights)
            (slope,) = torch.autograd.grad(losses.sum(), logits, create_graph=True)
        elif grad.ndim == 0 and type(grad) is Tensor and not (n_modes() or are_functions_transformed()):
            # where a number that is taken out of a tensor is not a constant of what someone traces
            try:
                if grad.item() == 1.0 and not keeps_graph():  # backward began with the loss, as a rule
                    return slope, *_NOTHING  # which no one else changes now
            except RuntimeError:  # of many at once, by is_grads_batched
                pass
        factors = grad.unsqueeze(1) if 0 < grad.ndim < slope.ndim else grad
        return slope * factors, *_NOTHING
