"""Which kernel serves tensors and options, if one does."""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod
from gaussify.nn._fused import Kernel, binary_kernel, count_kernel, label_kernel, square_kernel
from gaussify.nn._targets import BinaryGaussians, LabelGaussians, beta_curve

FLOATS = (torch.float32, torch.float64)
_LOGITS = (*FLOATS, torch.float16, torch.bfloat16)
FEWEST_INNER = 8  # logits of one class side by side that are worth a kernel of their own; others are put in order
_ROOTS = (1e-35, 1e35)  # limits of options of which kernels have the roots within float32
SQUARES = (1e-10, 1e10)  # and of those of which they have the squares


class Reduction(StrEnum):
    """What becomes of the losses of all rows."""

    NONE = "none"
    """One loss a row."""
    MEAN = "mean"
    """Their mean, weighted where classes are."""
    SUM = "sum"
    """Their sum."""


@lru_cache(maxsize=2**12, typed=True)  # for batches of any size
def kernel_of_classes(
    shape: torch.Size,
    dtype: torch.dtype,
    target_shape: torch.Size,
    target_dtype: torch.dtype,
    alpha_eps: float,
    method: str,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    label_variance: float,
) -> Kernel | None:
    """Return the kernel for logits, and class indices or counts, in full precision; None where none is for them."""
    size = math.prod(shape)
    if (
        not are_logits(shape, dtype)
        or dtype not in _LOGITS
        or not size
        or target_dtype is torch.bool
        or target_dtype.is_complex
    ):
        return None
    n_classes, is_soft = shape[min(1, len(shape) - 1)], target_dtype.is_floating_point
    is_rounded = is_soft and target_dtype.itemsize > max(dtype.itemsize, 4)  # counts, which are to be checked before
    are_allowed = (
        n_classes < 2**30  # which a kernel counts in 32 bits
        and not is_rounded
        and target_shape == (shape if is_soft else shape_of_rows(shape))
        and method in list(LikelihoodMethod)
        and 0.0 <= label_smoothing <= 1.0
        and isinstance(ignore_index, int)
        and abs(ignore_index) < 2**63
        and reduction in list(Reduction)
    )
    if not are_allowed or not are_within(SQUARES if is_soft else _ROOTS, alpha_eps, label_variance):
        return None
    chosen, full = LikelihoodMethod(method), _full_dtype(dtype)
    options: dict[str, Any] = {
        "n_rows": size // n_classes,
        "n_classes": n_classes,
        "reduction": reduction,
        "label_smoothing": label_smoothing,
    }
    if is_soft:
        make = partial(count_kernel, chosen, full, alpha_eps=alpha_eps, label_variance=label_variance, **options)
    else:
        gaussians = LabelGaussians.of_smoothed(
            chosen, alpha_eps, n_classes=n_classes, label_smoothing=label_smoothing, label_variance=label_variance
        )
        make = partial(label_kernel, gaussians, full, ignore_index=ignore_index, **options)
    is_ready = dtype is full and target_dtype is (dtype if is_soft else torch.int64)
    if len(shape) == 2:
        return make()._replace(prepare=None if is_ready else _as_numbers)
    by_rows = make()._replace(prepare=_as_rows, shape=shape_of_rows(shape) if reduction == Reduction.NONE else None)
    n_inner = math.prod(shape[2:])
    if n_inner < FEWEST_INNER or (is_soft and chosen is LikelihoodMethod.GAUSS):
        return by_rows
    return make(n_inner=n_inner)._replace(prepare=None if is_ready else _as_numbers, by_rows=by_rows)


@lru_cache(maxsize=2**12, typed=True)  # for batches of any size
def kernel_of_binary(
    shape: torch.Size,
    dtype: torch.dtype,
    target_shape: torch.Size,
    target_dtype: torch.dtype,
    alpha_eps: float,
    beta_eps: float,
    method: str,
    reduction: str,
    label_variance: float,
) -> Kernel | None:
    """Return the kernel for logits and binary labels in full precision; None where none is for them."""
    size = math.prod(shape)
    are_allowed = (
        dtype in _LOGITS
        and not target_dtype.is_complex
        and target_shape == shape
        and size > 0
        and method in BETA_METHODS
        and reduction in list(Reduction)
    )
    if not are_allowed or not are_within(SQUARES, alpha_eps, beta_eps, label_variance):
        return None
    chosen, full = LikelihoodMethod(method), _full_dtype(dtype)
    if chosen is LikelihoodMethod.GAUSS:
        kernel = square_kernel(label_variance, full, n=size, reduction=reduction)
    else:
        gaussians = BinaryGaussians.of_labels(chosen, alpha_eps, beta_eps)
        curve = partial(beta_curve, alpha_eps, beta_eps, chosen)
        kernel = binary_kernel(gaussians, full, n=size, reduction=reduction, curve=curve)
    is_ready = target_dtype is dtype is full
    return kernel._replace(prepare=None if is_ready else _as_floats)


def are_logits(shape: Sequence[int], dtype: torch.dtype) -> bool:
    """Return whether there is a logit for each of at least two classes."""
    return len(shape) > 0 and dtype.is_floating_point and shape[min(1, len(shape) - 1)] > 1


def shape_of_rows(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of logits (c,), (n, c) or (n, c, ...) without their classes."""
    return () if len(shape) == 1 else (shape[0], *shape[2:])


def full_precision(input: Tensor) -> Tensor:
    """Return float32 at least: squares of residuals leave the range of float16, and the digits of bfloat16."""
    return input.float() if input.dtype in (torch.float16, torch.bfloat16) else input


def rows_of(tensor: Tensor) -> Tensor:
    """Return (c,), (n, c) or (n, c, ...) as (rows, c)."""
    if tensor.ndim == 2:
        return tensor
    return tensor[None] if tensor.ndim == 1 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def _as_rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logits = rows_of(full_precision(input))
    return logits, rows_of(target).to(logits.dtype) if target.is_floating_point() else target.reshape(-1).long()


def _as_numbers(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logits = full_precision(input)
    return logits, target.to(logits.dtype if target.is_floating_point() else torch.int64)


def _as_floats(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logits = full_precision(input)
    return logits, target.to(logits.dtype)


def are_within(limits: tuple[float, float], *options: float) -> bool:
    """Return whether options are within limits."""
    return all(limits[0] <= own <= limits[1] for own in options)


def _full_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32
