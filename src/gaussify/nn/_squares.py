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
    half_log,
    is_learnt,
    is_traced,
    of_labels,
    without_modes,
)

_CHUNK = 2**16  # a tensor of so many numbers stays in the processor's cache from one operation to the next
SQUARES = (1e-10, 1e10)  # for variances between these, squares of residuals do not overflow in float32
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
        return cls(expression, with_slope, *kept(factor * share, constant * share, 2.0 * factor * share, dtype=dtype))


def kept(*numbers: Number, dtype: torch.dtype | None) -> tuple[Number, ...]:
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
    if isinstance(other_variance, float) and SQUARES[0] < other_variance < SQUARES[1]:
        unit, other_variance, own_variance = other_variance, 1.0, own_variance / other_variance
    own_root, other_root = own_variance**-0.5, other_variance**-0.5
    own_mean, own_root, other_mean, other_root = kept(own_mean, own_root, other_mean, other_root, dtype=dtype)

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
    n_logits = logits.numel() if divisor is not None else logits.shape[1] if over_classes else 1
    forms = density_forms(gaussians, n_logits, over_classes=over_classes, divisor=divisor)
    return differentiated(logits, target, forms, learnt)


def density_forms(
    gaussians: Callable[[Tensor], Gaussians],
    n_logits: int,
    *,
    over_classes: bool,
    divisor: int | None = None,
    dtype: torch.dtype | None = None,
) -> Forms:
    """Return the two forms of ``density_losses``, for ``n_logits`` logits that are summed.

    Forms that are kept for more than one batch need a ``dtype``.

    Examples
    --------
    >>> forms = density_forms(lambda y: Gaussians(y, 2.0, math.log(2.0)), 1, over_classes=False)
    >>> forms.expression(torch.tensor([3.0]), torch.tensor([1.0]))  # 4 / 2 + log(2)
    tensor([2.6931])
    """
    is_total = divisor is not None

    def expression(logits: Tensor, target: Tensor) -> Tensor:
        mean, variance, log_variance = gaussians(target)
        losses = (logits - mean).square() / variance + log_variance
        return losses.sum() if is_total else losses.sum(1) if over_classes else losses

    def with_slope(logits: Tensor, target: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mean, variance, log_variance = gaussians(target)
        residual = logits - mean
        slope = torch.div(residual, variance, out=out)
        losses = residual.mul_(slope).add_(log_variance)
        return losses.sum() if is_total else losses.sum(1) if over_classes else losses, slope

    with_slope = _in_chunks(with_slope, is_total=is_total)
    return Forms.of(expression, with_slope, 0.5, 0.5 * _LOG_2_PI * n_logits, divisor=divisor, dtype=dtype)


def square_forms(
    mean: Callable[[Tensor], Tensor],
    variance: float,
    n_logits: int,
    *,
    divisor: int | None = None,
    dtype: torch.dtype | None = None,
) -> Forms:
    """Return the two forms of ``density_forms`` for one variance of all logits, which becomes a factor of the squares.

    The function ``mean`` must return a new tensor, whose memory the squares take.

    Examples
    --------
    >>> square_forms(torch.clone, 1.0, 1).expression(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([4.])
    """
    is_total = divisor is not None

    def expression(logits: Tensor, target: Tensor) -> Tensor:
        squares = (logits - mean(target)).square()
        return squares.sum() if is_total else squares

    def with_slope(logits: Tensor, target: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        means = mean(target)
        slope = torch.sub(logits, means, out=out)
        squares = torch.mul(slope, slope, out=means)
        return squares.sum() if is_total else squares, slope

    with_slope = _in_chunks(with_slope, is_total=is_total)
    return Forms.of(expression, with_slope, 0.5 / variance, half_log(variance) * n_logits, divisor=divisor, dtype=dtype)


def variational_forms(
    gaussians: Callable[[Tensor], Gaussians],
    alpha_eps: float,
    n_logits: int,
    *,
    divisor: int | None = None,
    dtype: torch.dtype,
) -> Forms:
    r"""Return the two forms of ``density_forms`` for counts that ``gaussians`` matches by the variational method.

    With :math:`a = \alpha_\epsilon + c` the slope is :math:`a` times the residual, and the logarithm of the variance is
    :math:`-\log a`. Few matrices are needed, because each result takes the place of what is no longer used.

    Examples
    --------
    >>> gaussians = lambda counts: Gaussians(counts - 0.5, 1.0, 0.0)  # the match of Gamma(1, 1) is N(-1/2, 1)
    >>> forms = variational_forms(gaussians, 1.0, 2, dtype=torch.float32)
    >>> forms.with_slope(torch.tensor([[1.5, -0.5]]), torch.tensor([[0.0, 0.0]]))
    (tensor([4.]), tensor([[2., 0.]]))
    """
    (alpha,) = kept(alpha_eps, dtype=dtype)

    def with_slope(logits: Tensor, counts: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a = counts + alpha
        log, variance = a.log(), a.reciprocal()
        mean = torch.sub(log, variance, alpha=0.5, out=variance)
        residual = torch.sub(logits, mean, out=mean)
        slope = torch.mul(residual, a, out=out)
        negative = log.addcmul_(residual, slope, value=-1.0)  # one pass for both terms
        return (negative.sum(1) if divisor is None else negative.sum()).neg_(), slope

    forms = density_forms(gaussians, n_logits, over_classes=True, divisor=divisor, dtype=dtype)
    return forms._replace(with_slope=_in_chunks(with_slope, is_total=divisor is not None))


def _in_chunks(with_slope: Callable[..., tuple[Tensor, Tensor]], *, is_total: bool) -> Callable[..., Any]:
    """Return the function such that it treats the rows of a large batch in chunks, which stay in the cache."""

    def in_chunks(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if logits.numel() <= _CHUNK or len(logits) == 1:
            return with_slope(logits, target)
        n_rows = max(1, _CHUNK // logits[0].numel())
        slopes, parts = torch.empty_like(logits), []
        for start in range(0, len(logits), n_rows):
            rows = slice(start, start + n_rows)
            parts.append(with_slope(logits[rows], target[rows], slopes[rows])[0])
        return torch.stack(parts).sum() if is_total else torch.cat(parts), slopes

    return in_chunks


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
    """A loss that saves its derivative by the logits. Higher derivatives are those of the expression.

    Losses that are not reduced may be multiplied by ``factors``; with a ``divisor`` their sum is divided by it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        forms: Forms,
        factors: Tensor | None = None,
        divisor: int | Number | None = None,
    ) -> Tensor:
        loss, slope = forms.with_slope(logits, target)
        loss = loss.mul_(forms.factor).add_(forms.constant)
        if factors is not None:
            loss.mul_(factors)
            factors = _over_rows(factors, slope)
            slope.mul_(factors)
        ctx.save_for_backward(logits, target, slope, factors)
        ctx.forms, ctx.divisor = forms, divisor
        return loss if divisor is None else loss.sum().div_(divisor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope, factors = ctx.saved_tensors
        scale = grad * ctx.forms.slope_factor
        if ctx.divisor is not None:
            scale = scale / ctx.divisor
        if torch.is_grad_enabled():
            loss = 0.5 * ctx.forms.expression(logits, target).sum()
            (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
            slope = slope if factors is None else slope * factors
        return slope * _over_rows(scale, slope), None, None, None, None


def _over_rows(factors: Tensor, slope: Tensor) -> Tensor:
    """Return factors of rows (n, ...) such that they broadcast to (n, c, ...). Others are returned unchanged."""
    return factors.unsqueeze(1) if 0 < factors.ndim < slope.ndim else factors
