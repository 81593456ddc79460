"""Squared errors between logits and the Gaussians of their labels, weighted by precision."""

import math
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import (
    CHUNK,
    BinaryConstants,
    CountConstants,
    LabelConstants,
    LabelGaussians,
    LabelTable,
    of_labels,
    plain_gammas,
)


def table_error_sum(logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"], table: LabelTable) -> Float[Tensor, ""]:
    r"""Return :math:`\sum_{nk}(s_{nk} f_{nk} - t_{nk})^2` plus a constant, scales and targets by label.

    Few operations, and two for the derivative: of few logits, the time is that of calling them.

    Examples
    --------
    >>> table = LabelTable(scale=torch.eye(2), target=torch.ones(2, 2), constant=torch.tensor(0.5))
    >>> table_error_sum(torch.tensor([[3.0, 2.0]]), torch.tensor([0]), table)
    tensor(5.5000)
    """
    scaled = logits * torch.embedding(table.scale, labels)
    # torch.nn.functional.mse_loss would broadcast first, which takes longer than the loss itself
    squares = torch._C._nn.mse_loss(scaled, torch.embedding(table.target, labels), _SUM)  # type: ignore[arg-type]
    squares.detach().add_(table.constant)  # which has no derivative, and needs no node in the graph
    return squares


def label_error_sum(
    logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"], constants: LabelConstants
) -> Float[Tensor, ""]:
    r"""Return :math:`a\sum_{nk}\tfrac12 p_{nk}(f_{nk} - m_{nk})^2 + \tfrac12\log 2\pi v_{nk}`, by class indices.

    Of many logits, the time is that of passing over them, which is done twice, derivative included.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=1.0)
    >>> options = {"n_classes": 2, "n_rows": 1, "factor": 1.0, "dtype": torch.float32}
    >>> constants = LabelConstants.of_gaussians(gaussians, **options)
    >>> label_error_sum(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), constants)  # 2 + log(2 pi)
    tensor(3.8379)
    """
    full = logits if logits.dtype is constants.constant.dtype else logits.to(constants.constant)
    return _ErrorSum.apply(full, labels, constants, _label_errors)


def count_error_sum(
    logits: Float[Tensor, "n c"], counts: Float[Tensor, "n c"], constants: CountConstants
) -> Float[Tensor, ""]:
    r"""Return the same by counts; those that are negative or not finite are an error.

    Examples
    --------
    >>> constants = CountConstants.of_method(LikelihoodMethod.LAPLACE, 1.0, n=2, factor=1.0, dtype=torch.float32)
    >>> count_error_sum(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]), constants)  # 2 + log(2 pi)
    tensor(3.8379)
    """
    return _ErrorSum.apply(logits, counts, constants, _count_errors)


def error_sum(logits: Float[Tensor, "*n"], mean: Float[Tensor, "*n"], constants: BinaryConstants) -> Float[Tensor, ""]:
    r"""Return :math:`\sum_n a\,(f_n - m_n)^2 + b`.

    Examples
    --------
    >>> constants = BinaryConstants(torch.tensor(0.0), 1.0, factor=2.0, constant=torch.tensor(0.5))
    >>> error_sum(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]), constants)
    tensor(8.5000)
    """
    squares = torch._C._nn.mse_loss(logits, mean, _SUM)  # type: ignore[arg-type]
    return torch.add(constants.constant, squares, alpha=constants.factor)


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


_SUM = 2  # reduction, as torch numbers them


class _ErrorSum(torch.autograd.Function):
    """A sum of squares that has its derivative by the way.

    It is given away as it is to the first backward, for most losses the only one.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, constants: Any, errors: Any) -> Tensor:
        value, slope = errors(logits, target, constants)
        ctx.save_for_backward(logits, target, slope)
        ctx.rest = constants, errors
        ctx.is_given_away = False
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        constants, errors = ctx.rest
        if ctx.is_given_away:  # of a graph that was kept: who has it may have changed it
            _, slope = errors(logits.detach(), target, constants)
        if torch.is_grad_enabled():  # for the derivative of the derivative
            slope = slope + constants.precision(target, logits) * (logits - logits.detach())
        elif _is_one(grad):
            ctx.is_given_away = True
            return slope.data, None, None, None  # not detached: changes to it are no changes to what is saved
        return slope * grad, None, None, None


def _is_one(grad: Tensor) -> bool:
    try:
        return grad.item() == 1.0
    except RuntimeError:  # within torch.vmap, where values cannot be looked at
        return False


def _label_errors(logits: Tensor, labels: Tensor, constants: LabelConstants) -> tuple[Tensor, Tensor]:
    at = labels.unsqueeze(1)
    slope = torch.add(constants.shift, logits, alpha=constants.scale)
    own = torch.add(constants.own_shift, logits.gather(1, at), alpha=constants.own_scale)
    flat = slope.scatter_(1, at, own).reshape(-1)
    if len(flat) <= CHUNK:
        squares = torch.dot(flat, flat)
    else:  # of which one product would lose digits
        squares = torch.stack([torch.dot(part, part) for part in flat.split(CHUNK)]).sum()
    value = torch.add(constants.constant, squares, alpha=constants.multiple)
    return value, slope.scatter_(1, at, own.mul_(constants.own_ratio))


def _count_errors(logits: Tensor, counts: Tensor, constants: CountConstants) -> tuple[Tensor, Tensor]:
    """In chunks of rows that stay in the cache: fresh memory costs more than what is computed in it."""
    slope = torch.empty_like(logits, memory_format=torch.contiguous_format)
    n_rows = max(1, CHUNK * torch.get_num_threads() // logits.shape[1])  # as much for each thread
    if len(logits) <= n_rows:
        squares = _count_squares(logits, counts, slope, constants=constants)
    else:
        chunks = zip(*(part.split(n_rows) for part in (logits, counts, slope)), strict=True)
        squares = torch.stack([_count_squares(*chunk, constants=constants) for chunk in chunks]).sum()
    return torch.add(constants.constant, squares, alpha=constants.multiple), slope


def _count_squares(logits: Tensor, counts: Tensor, slope: Tensor, *, constants: CountConstants) -> Tensor:
    """The sum over a chunk, whose part of the derivative is written."""
    factor, concentration = constants.factor, counts + constants.alpha_eps
    if constants.method in (LikelihoodMethod.VARIATIONAL, LikelihoodMethod.LAPLACE):
        # of precision c and mean log c - b / c, so that the derivative is c (f - log c) + b
        log = concentration.log()
        log_precision, residual = log.sum(), log.sub_(logits)
        torch.addcmul(constants.shift, concentration, residual, value=-factor, out=slope)
        residual = torch.div(slope, concentration, out=residual)
    else:
        mean, precision, log_precision = plain_gammas(concentration, constants.method, torch.sum)
        residual = torch.sub(logits, mean, out=mean).mul_(factor)
        torch.mul(residual, precision, out=slope)
    if not (counts.amin().item() >= 0.0 and math.isfinite(log_precision.item())):
        raise RuntimeError("Counts must be finite and not negative.")  # which has them looked at again
    return residual.mul_(slope).sum().sub_(log_precision, alpha=factor * factor)


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
        own = logits.gather(1, at) - of_labels(gaussians.own_mean, at)
        slope_of_own = own * of_labels(gaussians.own_precision, at)
        residual = (logits - gaussians.other_mean).scatter_(1, at, 0.0)
        if isinstance(gaussians.other_precision, Tensor) and gaussians.other_precision.ndim:
            squares = torch.mv(residual.square(), gaussians.other_precision)
            ctx.precision = None
            slope = residual.mul_(gaussians.other_precision).scatter_(1, at, slope_of_own)
        else:
            # the precision enters with the derivative by the loss, so that there is one product for all
            squares = torch.linalg.vector_norm(residual, dim=1).square_().mul_(gaussians.other_precision)
            ctx.precision = gaussians.other_precision
            slope = residual.scatter_(1, at, slope_of_own / gaussians.other_precision)
        ctx.save_for_backward(logits, at, slope)
        ctx.gaussians = gaussians
        return squares.add_(own.mul_(slope_of_own).squeeze(1)).mul_(0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, at, slope = ctx.saved_tensors
        if torch.is_grad_enabled():
            mean, precision = ctx.gaussians.of_rows(at.squeeze(1), logits)
            return (logits - mean) * precision * grad.unsqueeze(-1), None, None
        factor = grad if ctx.precision is None else grad * ctx.precision
        return slope * factor.unsqueeze(-1), None, None
