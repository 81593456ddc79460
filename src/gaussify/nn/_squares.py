r"""The losses :math:`\sum_k (f_k - m_k)^2 / 2 v_k + \tfrac12\log 2\pi v_k`, with their derivative in the same pass.

Each loss is written twice: as a torch expression, and as a function without a graph that also returns the derivative by
the logits, :math:`(f_k - m_k) / v_k`. The expression is for ``torch.compile``, ``torch.func``, second derivatives and
learnt Gaussians. The second form is faster and needs less memory, because autograd records a single node. Tests check
that both agree. Small batches of class indices have a third way, ``LabelTable``.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.linalg import vector_norm
from torch.nn.functional import mse_loss

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


class LabelTable(NamedTuple):
    r"""The loss of class indices for small batches: squares of whitened residuals :math:`r_{yk}f_k - r_{yk}m_{yk}`.

    Whitened means divided by the scale, with :math:`r = 1/\sqrt{2v}`. The tables of :math:`r` and :math:`r m` have a
    row for each label. The loss is then a handful of torch operations, which autograd differentiates. For large batches
    the look-up of rows would take too long.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_variance=1.0, own_mean=1.0, own_variance=1.0)
    >>> table = LabelTable.of(gaussians, 2, torch.float32, reduction="none", n_rows=1)
    >>> table(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))  # 2 + log(2 pi)
    tensor([3.8379])
    """

    root: Float[Tensor, "c c"]
    target: Float[Tensor, "c c"]
    constant: float
    reduction: str

    @classmethod
    def of(
        cls, gaussians: LabelGaussians, n_classes: int, dtype: torch.dtype, *, reduction: str, n_rows: int
    ) -> "LabelTable":
        """Return the tables for Gaussians that are two pairs of numbers."""
        n_averaged = n_classes if reduction == "mean" else 1  # mse_loss averages over all logits, the loss over rows
        constant = gaussians.row_normaliser(n_classes) * (n_rows if reduction == "sum" else 1)
        root, target = _whitened(*map(float, gaussians), n_classes, n_averaged, dtype)
        return cls(root, target, constant, reduction)

    def __call__(self, logits: Float[Tensor, "n c ..."], labels: Int64[Tensor, "n ..."]) -> Tensor:
        """Return the loss, or raise an IndexError if some label is not a class."""
        at = labels.reshape(-1)  # index_select refuses negative labels, whereas indexing would count them from the end
        root, target = self.root.index_select(0, at), self.target.index_select(0, at)
        if labels.ndim > 1:
            root, target = (rows.view(*labels.shape, -1).movedim(-1, 1) for rows in (root, target))
        squares = mse_loss(logits * root, target, reduction=self.reduction)
        return (squares.sum(1) if self.reduction == "none" else squares) + self.constant


@lru_cache(maxsize=64)
def _whitened(
    other_mean: float,
    other_variance: float,
    own_mean: float,
    own_variance: float,
    n_classes: int,
    n_averaged: int,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "c c"], Float[Tensor, "c c"]]:
    """Return the tables of roots and of whitened means. Batches of all sizes share them."""
    with without_modes():
        mean, variance = torch.empty(2, n_classes, n_classes, dtype=torch.float64)
        mean.fill_(other_mean).fill_diagonal_(own_mean)
        variance.fill_(other_variance).fill_diagonal_(own_variance)
        root = (0.5 * n_averaged / variance).sqrt()
        return root.to(dtype), (root * mean).to(dtype)


class Forms(NamedTuple):
    """The two forms of a function s, where the loss is (``factor`` s + ``constant``) / ``divisor``."""

    expression: Callable[[Tensor, Tensor], Tensor]
    with_slope: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # s and half its derivative
    factor: float
    constant: Number = 0.0
    divisor: int = 1

    @property
    def share(self) -> float:
        """Return one over the divisor, or NaN for the mean of no rows."""
        return 1.0 / self.divisor if self.divisor else math.nan


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


def label_forms(gaussians: LabelGaussians, *, divisor: int | None = None, constant: float = 0.0) -> Forms:
    """Return the two forms of the squares of each row for class indices, or of the sum of all over ``divisor``.

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

    return Forms(expression, with_slope, 0.5 / unit, constant, 1 if divisor is None else divisor)


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

    forms = Forms(expression, with_slope, 0.5, divisor=1 if divisor is None else divisor)
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
    return (forms.expression(logits, target) * forms.factor + forms.constant) / forms.divisor


class KnownSlope(Function):
    """A loss that saves its derivative by the logits. Higher derivatives are those of the expression."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, forms: Forms) -> Tensor:
        loss, slope = forms.with_slope(logits, target)
        ctx.save_for_backward(logits, target, slope)
        ctx.forms = forms
        return loss.mul_(forms.factor * forms.share).add_(forms.constant * forms.share)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        factors = grad * (2.0 * ctx.forms.factor * ctx.forms.share)
        if torch.is_grad_enabled():
            loss = 0.5 * ctx.forms.expression(logits, target).sum()
            (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        return slope * (factors.unsqueeze(1) if 0 < grad.ndim < slope.ndim else factors), None, None
