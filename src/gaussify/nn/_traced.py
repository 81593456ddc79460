"""Losses for torch.compile, with as few names as can be: every name that Python looks up is checked with each call."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod
from gaussify.nn._choice import FEWEST_INNER, SQUARES, Reduction, are_within
from gaussify.nn._operators import CompiledLoss, is_plainly_compiled, may_be_called
from gaussify.nn._targets import (
    LAYOUTS,
    beta_curve,
    fixed_gamma_targets,
    half_log_variance,
    is_constant,
    plain_gammas,
)

_MANY, _MANY_BINARY = 2**15, 2**13  # logits, for which calling a kernel in a compiled graph is worth its time


class ClassConstants(NamedTuple):
    """What a compiled loss has as numbers."""

    n_many: int | None  # logits, from which on an operation is called that computes the same
    reduction: str
    method: str
    alpha_eps: float
    other_mean: float
    own_mean: float
    other_precision: float
    own_precision: float
    other_constant: float
    own_constant: float


def class_constants(alpha_eps: float, method: str, reduction: str, label_smoothing: float) -> ClassConstants | None:
    """Return the numbers, or None where there is more to look out for.

    Examples
    --------
    >>> class_constants(0.1, "laplace", "mean", 0.0)[3:8]
    (0.1, -2.3026, 0.0953, 0.1, 1.1)
    """
    return _class_constants(alpha_eps.hex(), method, reduction, label_smoothing.hex())


@is_constant
def _class_constants(alpha_eps: str, method: str, reduction: str, label_smoothing: str) -> ClassConstants | None:
    number = float.fromhex(alpha_eps)
    are_usual = (
        0.0 < number < math.inf
        and float.fromhex(label_smoothing) == 0.0
        and reduction in list(Reduction)
        and method in list(LikelihoodMethod)
        and method != LikelihoodMethod.GAUSS
    )
    if not are_usual:
        return None
    chosen = LikelihoodMethod(method)
    other_mean, other_precision = fixed_gamma_targets(number, chosen)
    own_mean, own_precision = fixed_gamma_targets(number + 1.0, chosen)
    return ClassConstants(
        n_many=_MANY if may_be_called() and are_within(SQUARES, number) else None,
        reduction=Reduction(reduction).value,  # as a plain word
        method=chosen.value,
        alpha_eps=number,
        other_mean=other_mean,
        own_mean=own_mean,
        other_precision=other_precision,
        own_precision=own_precision,
        other_constant=half_log_variance(other_precision),
        own_constant=half_log_variance(own_precision),
    )


def traced_label_loss(
    logits: Float[Tensor, "n c *inner"],
    labels: Int64[Tensor, " n *inner"],
    weight: Tensor | None,
    constants: ClassConstants,
    ignore_index: int,
) -> Float[Tensor, "..."]:
    """Return the loss of class indices, NaN where they are no classes.

    Examples
    --------
    >>> constants = class_constants(1.0, "laplace", "mean", 0.0)
    >>> traced_label_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([1]), None, constants, ignore_index=-100)
    tensor(3.2)
    """
    n_classes = logits.shape[1]
    if _is_for_kernels(logits, weight, constants.n_many, are_rows=True):
        options = constants.alpha_eps, constants.method, ignore_index, constants.reduction, 0.0, 1.0
        return CompiledLoss.apply(
            logits.contiguous(), labels.contiguous(), weight, None, False, constants.reduction, options
        )
    classes = torch.arange(n_classes, device=logits.device)
    is_own = labels.unsqueeze(1) == (classes if logits.ndim == 2 else classes.reshape(-1, *[1] * (logits.ndim - 2)))
    residual = torch.where(is_own, logits - constants.own_mean, logits - constants.other_mean)
    weighted = torch.where(is_own, constants.own_precision * residual, constants.other_precision * residual)
    constant = (n_classes - 1) * constants.other_constant + constants.own_constant
    losses = 0.5 * (weighted * residual).sum(1) + constant
    is_kept = labels != ignore_index
    is_class = (labels >= 0) & (labels < n_classes)
    factors = None
    if weight is not None:
        factors = torch.where(is_kept, weight.to(logits)[torch.where(is_class, labels, 0)], 0.0)
        losses = losses * factors
    losses = torch.where(is_kept, torch.where(is_class, losses, torch.nan), 0.0)
    if constants.reduction == "none":
        return losses
    if constants.reduction == "sum":
        return losses.sum()
    return losses.sum() / (is_kept if factors is None else factors).sum()


def traced_count_loss(
    logits: Float[Tensor, "n c *inner"],
    counts: Float[Tensor, "n c *inner"],
    weight: Tensor | None,
    constants: ClassConstants,
) -> Float[Tensor, "..."]:
    """Return the loss of counts or probabilities of classes.

    Examples
    --------
    >>> constants = class_constants(1.0, "laplace", "mean", 0.0)
    >>> traced_count_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), None, constants)  # 2 + log(2 pi)
    tensor(3.8379)
    """
    if _is_for_kernels(logits, weight, constants.n_many, are_rows=True):
        options = constants.alpha_eps, constants.method, -100, constants.reduction, 0.0, 1.0
        return CompiledLoss.apply(
            logits.contiguous(), counts.contiguous(), weight, None, False, constants.reduction, options
        )
    mean, precision, log_precision = plain_gammas(counts + constants.alpha_eps, LikelihoodMethod(constants.method))
    residual = logits - mean
    squares = precision * residual * residual - log_precision
    if weight is None and constants.reduction != "none":
        total = 0.5 * squares.sum() + logits.numel() * half_log_variance(1.0)
    else:
        total = 0.5 * squares.sum(1) + logits.shape[1] * half_log_variance(1.0)
        if weight is not None:
            factors = weight.to(counts)
            total = total * (counts * factors.reshape(-1, *[1] * (logits.ndim - 2))).sum(1)
        if constants.reduction == "none":
            return total
        total = total.sum()
    return total / (logits.numel() // logits.shape[1]) if constants.reduction == "mean" else total


def _is_for_kernels(logits: Tensor, weight: Tensor | None, n_many: int | None, *, are_rows: bool) -> bool:
    """Whether there are many logits, in an order for kernels, as far as is known: sizes may depend on data."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # which takes its time to be imported

    if n_many is None or not logits.is_cpu or (weight is not None and weight.requires_grad):
        return False
    if are_rows and logits.ndim > 2 and not guard_or_false(math.prod(logits.shape[2:]) >= FEWEST_INNER):
        return False
    return guard_or_false(logits.numel() >= n_many)


class BinaryConstants(NamedTuple):
    """What a compiled loss of binary labels has as numbers, and the pieces of a :class:`BetaCurve`."""

    n_many: int | None  # logits, from which on an operation is called that computes the same
    options: tuple[Any, ...]  # of that operation
    low_shift: float
    high_shift: float
    first_low: int
    first_high: int
    last_piece: int
    integer: torch.dtype  # as those after it, of the Layout
    n_bits: int
    n_nodes: int
    coefficients: Float[Tensor, "2 n_nodes n_pieces"]  # of mean and precision
    constant: float  # of each logit
    reduction: str


def binary_constants(
    alpha_eps: float, beta_eps: float, method: str, reduction: str, dtype: torch.dtype
) -> BinaryConstants | None:
    """Return the numbers, or None where there is more to look out for.

    Examples
    --------
    >>> binary_constants(0.1, 0.1, "laplace", "mean", torch.float32)[2:7]
    (0.1, 0.1, 3954, 3870, 169)
    """
    return _binary_constants(alpha_eps.hex(), beta_eps.hex(), method, reduction, dtype)


@is_constant
def _binary_constants(
    alpha_eps: str, beta_eps: str, method: str, reduction: str, dtype: torch.dtype
) -> BinaryConstants | None:
    alpha, beta = float.fromhex(alpha_eps), float.fromhex(beta_eps)
    are_usual = (
        are_within(SQUARES, alpha, beta)
        and reduction in list(Reduction)
        and method in BETA_METHODS
        and method != LikelihoodMethod.GAUSS
        and dtype in (torch.float32, torch.float64)
        and is_plainly_compiled()
    )
    if not are_usual:
        return None
    chosen, plain = LikelihoodMethod(method), Reduction(reduction).value
    curve = beta_curve(alpha, beta, chosen, dtype)
    return BinaryConstants(
        n_many=_MANY_BINARY if may_be_called() else None,
        options=(alpha, beta, chosen.value, plain, 1.0),
        low_shift=curve.low_shift,
        high_shift=curve.high_shift,
        first_low=curve.first_low,
        first_high=curve.first_high,
        last_piece=len(curve.coefficients) - 1,
        **LAYOUTS[dtype]._asdict(),
        coefficients=curve.coefficients[..., :2].permute(2, 1, 0).contiguous(),
        constant=half_log_variance(1.0),
        reduction=plain,
    )


def traced_binary_loss(
    logits: Float[Tensor, "*n"],
    labels: Float[Tensor, "*n"],
    weight: Tensor | None,
    pos_weight: Tensor | None,
    constants: BinaryConstants,
) -> Float[Tensor, "..."]:
    """Return the loss of binary labels from 0 to 1 on the CPU.

    Examples
    --------
    >>> constants = binary_constants(0.1, 0.1, "variational", "mean", torch.float32)
    >>> traced_binary_loss(torch.tensor([3.0, -2.0]), torch.tensor([1.0, 0.0]), None, None, constants)
    tensor(3.1774)
    """
    if _is_for_kernels(logits, None, constants.n_many, are_rows=False):
        return CompiledLoss.apply(
            logits.contiguous(), labels.contiguous(), weight, pos_weight, True, constants.reduction, constants.options
        )
    factors = weight
    if pos_weight is not None:
        factors = 1.0 + labels * (pos_weight.to(labels) - 1.0)
        factors = factors if weight is None else factors * weight
    return _CurveLoss.apply(logits, labels, factors, constants.coefficients, constants)


class _CurveLoss(torch.autograd.Function):
    """The loss of labels from 0 to 1, and its derivative, the one thing that is kept for backward."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Float[Tensor, "*n"],
        labels: Float[Tensor, "*n"],
        factors: Tensor | None,
        coefficients: Float[Tensor, "2 n_nodes n_pieces"],
        constants: BinaryConstants,
    ) -> Float[Tensor, "..."]:
        is_high = labels > 0.5  # as in BetaCurve.pieces
        distance = torch.where(is_high, (1.0 - labels) + constants.high_shift, labels + constants.low_shift)
        bits = distance.view(constants.integer)
        piece = (bits >> constants.n_bits) - torch.where(is_high, constants.first_high, constants.first_low)
        within = (bits & (2**constants.n_bits - 1)).to(labels.dtype) * 2.0**-constants.n_bits - 0.5
        own = coefficients[:, :, piece.clamp(0, constants.last_piece)]
        mean, precision = own[:, 0]
        for j in range(1, constants.n_nodes):  # Horner's scheme, from the highest power down
            mean, precision = mean * within + own[0, j], precision * within + own[1, j]
        residual = logits - mean
        weighted = precision * residual
        squares = weighted * residual - precision.log()
        if factors is not None or constants.reduction == "none":
            losses = 0.5 * squares + constants.constant
            if factors is not None:
                losses, weighted = losses * factors.to(logits), weighted * factors.to(logits)
            if constants.reduction == "none":
                ctx.save_for_backward(weighted)
                return losses
            total = losses.sum()
        else:
            total = 0.5 * squares.sum() + logits.numel() * constants.constant
        factor = 1.0 / logits.numel() if constants.reduction == "mean" else 1.0
        ctx.save_for_backward(weighted * factor)
        return total * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * grad, None, None, None, None
