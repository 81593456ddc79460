"""Kernels as an operation of torch's for compiled graphs: the loss and its derivative at once, at any size.

The operation is plain C on torch's stable interface, so that no Python comes between compiled code and a kernel. Where
torch has none (before 2.10), or an installation no kernels, compilers make what they can of torch's operations.
"""

import math
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod
from gaussify.nn import _fused
from gaussify.nn._choice import FLOATS, SQUARES, Reduction, are_within
from gaussify.nn._targets import (
    BinaryGaussians,
    LabelGaussians,
    beta_curve,
    half_log_variance,
    is_constant,
)
from gaussify.nn._torch import are_functions_transformed

_FORMS = {"labels": 0, "counts": 1, "binary": 2}  # of targets, as _operation.h has them, like these
_REDUCTIONS = {Reduction.SUM: 0, Reduction.MEAN: 1, Reduction.NONE: 2}
_METHODS = {number: LikelihoodMethod(word) for word, number in _fused.KINDS.items()}

_TAGS = [torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag]
_LIBRARY = torch.library.Library("gaussify", "FRAGMENT")
_LIBRARY.define(
    "loss(Tensor logits, Tensor target, Tensor weight, Tensor pos_weight, int given, int form, int method, "
    "int reduction, int ignore_index, float alpha_eps, float beta_eps) -> (Tensor loss, Tensor slope)",
    tags=_TAGS,
)
_LIBRARY.define("scaled(Tensor slope, Tensor factors) -> Tensor", tags=_TAGS)


@torch.library.register_fake("gaussify::loss", lib=_LIBRARY)
def _(logits: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *_, form, _, reduction, _, _, _ = rest
    shape = logits.shape if form == _FORMS["binary"] else logits.shape[:1] + logits.shape[2:]
    is_kept = reduction == _REDUCTIONS[Reduction.NONE]
    return logits.new_empty(shape if is_kept else ()), logits.new_empty(logits.shape)


@torch.library.register_fake("gaussify::scaled", lib=_LIBRARY)
def _(slope: Tensor, factors: Tensor) -> Tensor:
    return slope.new_empty(slope.shape)


_operation, _scaled = torch.ops.gaussify.loss.default, torch.ops.gaussify.scaled.default


class _Loss(torch.autograd.Function):
    """The loss by the operation, and its derivative, which comes with it."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, *options: Any
    ) -> Tensor:
        given = (weight is not None) + 2 * (pos_weight is not None)
        weight = logits if weight is None else weight  # any tensor where there is none
        pos_weight = logits if pos_weight is None else pos_weight
        loss, slope = _operation(logits, target, weight, pos_weight, given, *options)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return _scaled(slope, grad.contiguous()), *(None,) * 9


def _meaning(form: int, method: int, alpha_eps: float, beta_eps: float, is_double: int) -> tuple[float | int, ...]:
    """What the operation asks for once: where coefficients are and how many of a piece, and numbers."""
    chosen = _METHODS[method]
    if form == _FORMS["labels"]:
        gaussians = LabelGaussians.of_smoothed(chosen, alpha_eps, n_classes=2)
        pairs = (gaussians[:2], gaussians[2:])  # of the logits of other classes, and of the own
        return 0, 0, *(x for mean, p in pairs for x in (float(mean), math.sqrt(p), float(half_log_variance(p))))
    if form == _FORMS["counts"]:
        return 0, 0
    curve = _lasting_curve(alpha_eps, beta_eps, chosen, torch.float64 if is_double else torch.float32)
    hard = BinaryGaussians.of_labels(chosen, alpha_eps, beta_eps)
    pieces = curve.coefficients.data_ptr(), curve.coefficients.shape[1]
    return *pieces, *_fused.hard_numbers(hard), *_fused.curve_numbers(curve)


_lasting_curve = cache(beta_curve)  # whose numbers live as long as they may be read
HAS_OPERATION = False
if _fused.HAS_KERNELS:
    from gaussify.nn import _kernels

    HAS_OPERATION = _kernels.implement("gaussify", _meaning)


@is_constant
def _options(
    form: str, dtype: torch.dtype, method: str, reduction: str, alpha_eps: str, beta_eps: str
) -> tuple[int, int, int] | None:
    """Form, method and reduction as the operation has them, or None where it is not for them.

    Concentrations come as their digits (``hex``), which a compiler takes for constants.
    """
    alpha, beta = float.fromhex(alpha_eps), float.fromhex(beta_eps)
    are_usual = (
        HAS_OPERATION
        and not torch.compiler.is_exporting()  # to where there is no such operation
        and not are_functions_transformed()  # which asks for other derivatives
        and dtype in FLOATS
        and method in (BETA_METHODS if form == "binary" else list(LikelihoodMethod))
        and method != LikelihoodMethod.GAUSS
        and reduction in list(Reduction)
        and are_within(SQUARES, alpha, beta)
    )
    if not are_usual:
        return None
    own_form, kind = _FORMS[form], _fused.KINDS[method]
    _kernels.prepare(own_form, kind, alpha, beta, dtype is torch.float64)
    return own_form, kind, _REDUCTIONS[Reduction(reduction)]


# What follows is traced with as few names as can be, since compiled code checks each with every call.


def compiled_class_loss(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha_eps: float,
    method: str,
    ignore_index: int,
    reduction: str,
) -> Float[Tensor, "..."] | None:
    """Return the loss of class indices or counts, NaN where they are none; None where the operation is not for it.

    Examples
    --------
    >>> compiled_class_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([1]), None, 1.0, "laplace", -100, "mean")
    tensor(3.2)
    """
    if type(logits) is not Tensor or type(target) is not Tensor:  # but a class with ways of its own
        return None
    if logits.ndim < 2 or not logits.is_cpu or logits.shape[1] < 2:
        return None
    form = None
    if target.dtype is torch.int64 and target.shape == logits.shape[:1] + logits.shape[2:]:
        if isinstance(ignore_index, int) and abs(ignore_index) < 2**63:
            form = "labels"
    elif target.dtype is logits.dtype and target.shape == logits.shape and not target.requires_grad:
        form = "counts"
    if form is None:
        return None
    if weight is not None and (weight.shape != logits.shape[1:2] or weight.requires_grad or weight.is_complex()):
        return None
    options = _options(form, logits.dtype, method, reduction, alpha_eps.hex(), alpha_eps.hex())
    if options is None:
        return None
    if weight is not None:
        weight = weight.to(logits).contiguous()
    return _Loss.apply(
        logits.contiguous(), target.contiguous(), weight, None, *options, ignore_index, alpha_eps, alpha_eps
    )


def compiled_binary_loss(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    alpha_eps: float,
    beta_eps: float,
    method: str,
    reduction: str,
) -> Float[Tensor, "..."] | None:
    """Return the loss of binary labels, NaN where they are not from 0 to 1; None where the operation is not for it.

    Weights broadcast.

    Examples
    --------
    >>> logits, y = torch.tensor([3.0, -2.0]), torch.tensor([1.0, 0.0])
    >>> compiled_binary_loss(logits, y, None, None, 0.1, 0.1, "variational", "mean")
    tensor(3.1774)
    """
    if type(logits) is not Tensor or type(target) is not Tensor:
        return None
    if target.dtype is not logits.dtype or target.shape != logits.shape or target.requires_grad or not logits.is_cpu:
        return None
    options = _options("binary", logits.dtype, method, reduction, alpha_eps.hex(), beta_eps.hex())
    if options is None:
        return None
    if weight is not None:
        weight = _repeated(weight, logits)
    if pos_weight is not None:
        pos_weight = _repeated(pos_weight, logits)
    return _Loss.apply(logits.contiguous(), target.contiguous(), weight, pos_weight, *options, 0, alpha_eps, beta_eps)


def _repeated(weight: Tensor, logits: Tensor) -> Tensor:
    """Factors of the last dimensions, which a kernel repeats for all others, or of all logits."""
    is_whole = weight.shape == logits.shape[logits.ndim - weight.ndim :]
    return (weight if is_whole else weight.expand(logits.shape)).to(logits).contiguous()
