r"""The losses :math:`\sum_k (f_k - m_k)^2 / 2 v_k + \tfrac12\log 2\pi v_k`, with their derivative in the same pass.

Each loss is written twice: as a torch expression, and as a function without a graph that also returns the derivative by
the logits, :math:`(f_k - m_k) / v_k`. The expression is for ``torch.compile``, ``torch.func``, second derivatives and
learnt Gaussians. The second form is faster and needs less memory, because autograd records a single node. Tests check
that both agree.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.linalg import vector_norm

from gaussify.nn._gaussians import (
    Gaussians,
    LabelGaussians,
    Number,
    along_classes,
    is_learnt,
    is_traced,
    of_labels,
    without_modes,
)

_CHUNK = 2**16  # a tensor of so many numbers stays in the processor's cache from one operation to the next
_SQUARES = (1e-10, 1e10)  # for variances between these, squares of residuals do not overflow in float32
_LOG_2_PI = math.log(2.0 * math.pi)


class Forms(NamedTuple):
    """The two forms of a function s, where the loss is ``factor`` s + ``constant``."""

    expression: Callable[[Tensor, Tensor], Tensor]
    with_slope: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # s and half its derivative
    factor: Number
    constant: Number
    slope_factor: Number  # twice the factor

    @classmethod
    def of(
        cls,
        expression: Callable[[Tensor, Tensor], Tensor],
        with_slope: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        factor: float,
        constant: float = 0.0,
        *,
        divisor: int | None,
        dtype: torch.dtype | None = None,
    ) -> "Forms":
        """Return the forms of the loss divided by the divisor if there is one. The mean of no rows is NaN."""
        share = 1.0 if divisor is None else 1.0 / divisor if divisor else math.nan
        return cls(expression, with_slope, *_kept(factor * share, constant * share, 2.0 * factor * share, dtype=dtype))


def _kept(*numbers: Number, dtype: torch.dtype | None) -> tuple[Number, ...]:
    """Return the numbers as tensors of the dtype if there is one, for forms that are kept for more than one batch.

    With a tensor, an operation on a small batch takes half as long as with a Python number.
    """
    if dtype is None:
        return numbers
    with without_modes():
        return tuple(torch.tensor(number, dtype=dtype) for number in numbers)


def label_losses(
    logits: Float[Tensor, "n c ..."], labels: Int64[Tensor, "n ..."], gaussians: LabelGaussians
) -> Float[Tensor, "n ..."]:
    """Return the loss of each row for class indices.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_variance=1.0, own_mean=1.0, own_variance=1.0)
    >>> label_losses(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), gaussians)  # 2 + log(2 pi)
    tensor([3.8379])
    """
    losses = differentiated(logits, labels, label_forms(gaussians), gaussians)
    return losses + gaussians.normaliser(labels, logits.shape[1])


def label_forms(
    gaussians: LabelGaussians,
    *,
    divisor: int | None = None,
    constant: float = 0.0,
    dtype: torch.dtype | None = None,
) -> Forms:
    """Return the two forms of the squares of each row for class indices, or of the sum of all over ``divisor``.

    Forms that are kept for more than one batch need a ``dtype``.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_variance=1.0, own_mean=1.0, own_variance=1.0)
    >>> label_forms(gaussians).expression(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
    tensor([4.])
    """
    other_mean, other_variance, own_mean, own_variance = gaussians
    unit, are_vectors = 1.0, gaussians.are_vectors
    # a common variance of the other classes becomes a factor of the sum, which saves a pass over all logits
    if isinstance(other_variance, float) and _SQUARES[0] < other_variance < _SQUARES[1]:
        unit, other_variance, own_variance = other_variance, 1.0, own_variance / other_variance
    own_root, other_root = own_variance**-0.5, other_variance**-0.5
    own_mean, own_root, other_mean, other_root = _kept(own_mean, own_root, other_mean, other_root, dtype=dtype)

    def expression(logits: Tensor, labels: Tensor) -> Tensor:
        mean, variance = gaussians.of_logits(labels, logits)
        squares = ((logits - mean).square() / variance).sum(1) * unit
        return squares if divisor is None else squares.sum()

    def with_slope(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # treat all logits as those of other classes, then put the logits of the labels' classes in their places
        at, means, roots = labels.unsqueeze(1), (own_mean, other_mean), (own_root, other_root)
        if are_vectors:
            means = of_labels(own_mean, at), along_classes(other_mean, logits)
            roots = of_labels(own_root, at), along_classes(other_root, logits)
        own = logits.gather(1, at).sub_(means[0]).mul_(roots[0])
        scaled = logits - means[1]
        if unit == 1.0:
            scaled.mul_(roots[1])
        scaled.scatter_(1, at, own)
        if divisor is not None and scaled.numel() <= _CHUNK:
            squares = scaled.square().sum()
        else:  # without a second matrix of squares
            squares = vector_norm(scaled, dim=1).square_()
            squares = squares if divisor is None else squares.sum()
        if unit == 1.0:
            scaled.mul_(roots[1])
        return squares, scaled.scatter_(1, at, own.mul_(roots[0]))

    return Forms.of(expression, with_slope, 0.5 / unit, constant, divisor=divisor, dtype=dtype)


def density_losses(
    logits: Float[Tensor, "*n"],
    target: Float[Tensor, "*n"],
    gaussians: Callable[[Tensor], Gaussians],
    *,
    over_classes: bool,
    divisor: int | None = None,
    learnt: Iterable[Number] = (),
) -> Float[Tensor, "*m"]:
    """Return the loss of each logit under the Gaussian of its target, summed over classes if ``over_classes``.

    With a ``divisor`` it is the sum of all losses over the divisor. If derivatives by any of ``learnt`` or by
    ``target`` are needed, the loss is a torch expression.

    Examples
    --------
    >>> density_losses(torch.tensor([3.0]), torch.tensor([1.0]), lambda y: Gaussians(y, 1.0, 0.0), over_classes=False)
    tensor([2.9189])
    """
    is_total = divisor is not None

    def expression(logits: Tensor, target: Tensor) -> Tensor:
        mean, variance, log_variance = gaussians(target)
        losses = (logits - mean).square() / variance + (log_variance + _LOG_2_PI)
        return losses.sum() if is_total else losses.sum(1) if over_classes else losses

    def rows_with_slope(logits: Tensor, target: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mean, variance, log_variance = gaussians(target)
        residual = logits - mean
        slope = torch.div(residual, variance, out=out)
        if is_total:
            logs = log_variance.sum() if isinstance(log_variance, Tensor) else log_variance * logits.numel()
            return residual.mul_(slope).sum().add_(logs).add_(_LOG_2_PI * logits.numel()), slope
        losses = residual.mul_(slope).add_(log_variance)
        if over_classes:
            return losses.sum(1).add_(_LOG_2_PI * logits.shape[1]), slope
        return losses.add_(_LOG_2_PI), slope

    def with_slope(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        n_rows = max(1, _CHUNK // max(1, logits[:1].numel())) if logits.ndim else 1
        if logits.ndim == 0 or len(logits) <= n_rows:
            return rows_with_slope(logits, target)
        slopes, parts = torch.empty_like(logits), []
        for start in range(0, len(logits), n_rows):
            rows = slice(start, start + n_rows)
            parts.append(rows_with_slope(logits[rows], target[rows], out=slopes[rows])[0])
        return torch.stack(parts).sum() if is_total else torch.cat(parts), slopes

    forms = Forms.of(expression, with_slope, 0.5, divisor=divisor)
    return differentiated(logits, target, forms, learnt)


def differentiated(logits: Tensor, target: Tensor, forms: Forms, learnt: Iterable[Number] = ()) -> Tensor:
    """Return the loss by the form with slope where autograd can use it, otherwise by the expression.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_variance=1.0, own_mean=1.0, own_variance=1.0)
    >>> differentiated(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), label_forms(gaussians))
    tensor([2.])
    """
    if not (is_traced() or is_learnt(target, *learnt)):
        try:
            return KnownSlope.apply(logits, target, forms)
        except RuntimeError:  # within torch.func, in forward mode, or for targets made in inference mode
            pass
    return forms.expression(logits, target) * forms.factor + forms.constant


class KnownSlope(Function):
    """A loss that saves its derivative by the logits. Higher derivatives are those of the expression."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, forms: Forms) -> Tensor:
        loss, slope = forms.with_slope(logits, target)
        ctx.save_for_backward(logits, target, slope)
        ctx.forms = forms
        return loss.mul_(forms.factor).add_(forms.constant)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        factors = grad * ctx.forms.slope_factor
        if torch.is_grad_enabled():
            loss = 0.5 * ctx.forms.expression(logits, target).sum()
            (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        return slope * (factors.unsqueeze(1) if 0 < grad.ndim < slope.ndim else factors), None, None
