r"""Losses that take the place of cross-entropy, as functions: the negative log-density of the matched Gaussian.

A label turns into a Gaussian observation of each logit, :math:`\mathcal{N}(f; m, v)`, once and in closed form. Training
then minimises least squares (eq. 4 of the paper),

.. math:: \ell = \sum_k \frac{(f_k - m_k)^2}{2 v_k} + \tfrac12 \log 2\pi v_k.

The file ``_gaussians.py`` beside this one says what :math:`m` and :math:`v` are, and ``_squares.py`` has the sum.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from numbers import Real
from sys import float_info
from typing import Any, Literal

import torch
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import as_concentration, as_floats, as_labels, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod, LikelihoodMethodName
from gaussify.nn._beta_curve import beta_curve
from gaussify.nn._gaussians import (
    BinaryGaussians,
    Gaussians,
    LabelGaussians,
    Number,
    along_classes,
    count_gaussians,
    is_learnt,
    is_recorded,
    is_traced,
    logit_beta_gaussian,
    remembered,
)
from gaussify.nn._squares import (
    SQUARES,
    Forms,
    KnownSlope,
    density_forms,
    density_losses,
    kept,
    label_forms,
    label_losses,
    square_forms,
    variational_forms,
)

_SMALLEST, _LARGEST = 1e-30, float_info.max

BetaMethodName = Literal["variational", "moment", "laplace", "gauss"]
ReductionName = Literal["mean", "sum", "none"]

__all__ = ["matched_binary_cross_entropy_with_logits", "matched_cross_entropy"]


class Reduction(StrEnum):
    """How the losses of rows are combined."""

    NONE = "none"
    """They are not combined: one loss per row."""
    MEAN = "mean"
    """Mean of the losses, weighted if classes have weights."""
    SUM = "sum"
    """Sum of the losses."""


@no_type_check
def matched_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha_eps: float | Sequence[float] | Tensor = 0.1,
    method: LikelihoodMethodName = "variational",
    ignore_index: int = -100,
    reduction: ReductionName = "mean",
    label_smoothing: float = 0.0,
    label_variance: float | Tensor = 1.0,
) -> Tensor:
    r"""Return the negative log-density of logits under the Gaussians that labels turn into.

    In place of :func:`torch.nn.functional.cross_entropy`, with the same shapes, weights and reductions. A label with
    counts :math:`c` (one-hot, smoothed, or the probabilities that are given) stands for
    :math:`\mathrm{Gamma}(\alpha_\epsilon + c_k, 1)` of each exponentiated logit (section 3.2 of the paper).

    Parameters
    ----------
    input : Tensor of shape (c,), (n, c) or (n, c, ...)
        Logits. The loss of logits in half precision is computed in float32, and has this dtype.
    target : Tensor
        Class indices of shape (), (n,) or (n, ...), or probabilities or counts of the shape of ``input``.
    weight : Tensor of shape (c,), optional
        Factor of each class. It multiplies the loss of a row with this class index. A row of probabilities has the
        mean factor of its probabilities, as in torch.
    alpha_eps : float or Tensor of shape () or (c,)
        Concentration of the prior: the small count that every class has before the label is seen. Gradients flow to a
        tensor, but the loss alone cannot choose it, because the density of the logits grows without bound with it.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        How labels become Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"gauss"`` is least squares
        on one-hot labels.
    ignore_index : int
        Class index of rows that are left out.
    reduction : {"mean", "sum", "none"}
        How the losses of rows are combined. As in torch, the mean for class indices is weighted by class.
    label_smoothing : float
        Part of each label, from 0 to 1, that is spread evenly over all classes.
    label_variance : float
        Variance of one label for ``method="gauss"``.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, -1.0, -3.0], [0.0, 4.0, -2.0]])
    >>> matched_cross_entropy(logits, torch.tensor([0, 1]))
    tensor(15.2602)
    >>> matched_cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), method="laplace")
    tensor(10.3916)
    """
    if type(alpha_eps) is type(label_smoothing) is type(label_variance) is float:
        numbers = alpha_eps, label_smoothing, label_variance
        loss = _plain_loss(input, target, weight, reduction, method, ignore_index, *numbers)
        if loss is not None:
            return loss
    owner = "matched_cross_entropy"
    check_tensors(owner, input=input, target=target, weight=weight)
    chosen, how, smoothing = _class_options(method, reduction, ignore_index, label_smoothing, owner=owner)
    _check_logits(input, owner=owner)
    logits = _full_precision(input)
    if input.ndim == 1:
        logits, target = logits.unsqueeze(0), target.unsqueeze(0)
    n_classes = logits.shape[1]
    alpha = _concentration(alpha_eps, like=logits, name="alpha_eps", owner=owner, sizes=(n_classes,))
    variance = _concentration(label_variance, like=logits, name="label_variance", owner=owner)
    check_weight(weight, n_classes, owner=owner)
    if target.is_floating_point():
        counts = _counts(target, logits, smoothing, owner=owner)
        losses = _count_losses(logits, counts, chosen, alpha, variance, weight, how, owner=owner)
    else:
        labels = _labels(target, logits, owner=owner)
        gaussians = LabelGaussians.of(chosen, alpha, n_classes, smoothing, variance)
        losses = _label_losses(logits, labels, gaussians, weight, smoothing, ignore_index, how, owner=owner)
    return losses.squeeze(0) if input.ndim == 1 and losses.ndim else losses


@no_type_check
def matched_binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    *,
    alpha_eps: float | Tensor = 0.1,
    beta_eps: float | Tensor | None = None,
    method: BetaMethodName = "variational",
    reduction: ReductionName = "mean",
    label_variance: float | Tensor = 1.0,
) -> Tensor:
    r"""Return the negative log-density of logits under the Gaussians that binary labels turn into.

    In place of :func:`torch.nn.functional.binary_cross_entropy_with_logits`, with the same shapes, weights and
    reductions. A label :math:`y` stands for :math:`\mathrm{Beta}(\alpha_\epsilon + y, \beta_\epsilon + 1 - y)` of the
    probability of class 1, whose logit is matched (section 3.3 of the paper).

    Parameters
    ----------
    input : Tensor
        Logits of any shape. The loss of logits in half precision is computed in float32, and has this dtype.
    target : Tensor
        Labels from 0 to 1 of the same shape, as floating-point numbers, integers or booleans.
    weight : Tensor, optional
        Factor of each loss, which broadcasts to the logits.
    pos_weight : Tensor, optional
        Factor of the losses of label 1, which broadcasts to the logits.
    alpha_eps, beta_eps : float or Tensor of shape ()
        Concentrations of the prior for class 1 and class 0. ``beta_eps=None`` takes ``alpha_eps``.
    method : {"variational", "moment", "laplace", "gauss"}
        ``"gauss"`` is least squares on the labels 0 and 1.
    reduction : {"mean", "sum", "none"}
        How the losses are combined. As in torch, the mean is not weighted.
    label_variance : float
        Variance of one label for ``method="gauss"``.

    Examples
    --------
    >>> matched_binary_cross_entropy_with_logits(torch.tensor([3.0, -2.0]), torch.tensor([1.0, 0.0]))
    tensor(3.1774)
    >>> matched_binary_cross_entropy_with_logits(torch.tensor([0.5]), torch.tensor([1.0]), method="gauss")
    tensor(1.0439)
    """
    if type(alpha_eps) is type(label_variance) is float and weight is None:
        betas = alpha_eps if beta_eps is None else beta_eps
        loss = _plain_binary_loss(input, target, pos_weight, reduction, method, alpha_eps, betas, label_variance)
        if loss is not None:
            return loss
    owner = "matched_binary_cross_entropy_with_logits"
    check_tensors(owner, input=input, target=target, weight=weight, pos_weight=pos_weight)
    chosen, how = _binary_options(method, reduction, owner=owner)
    _check_binary(input, target, owner=owner)
    logits = _full_precision(input)
    weight = _factor(weight, logits, name="weight", owner=owner)
    pos_weight = _factor(pos_weight, logits, name="pos_weight", owner=owner)
    alpha = _concentration(alpha_eps, like=logits, name="alpha_eps", owner=owner)
    beta = alpha if beta_eps is None else _concentration(beta_eps, like=logits, name="beta_eps", owner=owner)
    variance = _concentration(label_variance, like=logits, name="label_variance", owner=owner)
    labels = _checked(target.to(logits.dtype), name="target", owner=owner, minimum=0.0, maximum=1.0)
    gaussians = partial(_binary_gaussians, _are_hard(target, labels), chosen, alpha, beta, variance)
    divisor = _divisor(how, logits.numel()) if weight is None and pos_weight is None else None
    losses = density_losses(
        logits,
        labels,
        gaussians,
        over_classes=False,
        divisor=divisor,
        learnt=(alpha, beta, variance),
    )
    if divisor is not None:
        return losses
    if weight is not None:
        losses = losses * weight
    if pos_weight is not None:
        losses = losses * (1.0 + labels * (pos_weight - 1.0))
    return _reduced(losses, how)


def _plain_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, *options: Any) -> Tensor | None:
    """Return the loss if options are numbers and all targets are class indices, or probabilities, otherwise None.

    Everything that batches of one shape share is computed once. For small batches the checks of ``_class_options`` and
    ``_labels`` would take longer than the loss.
    """
    if is_traced() or is_recorded() or not (type(input) is Tensor is type(target) and input.is_cpu):
        return None
    how = reduction
    if weight is not None:
        how = Reduction.NONE.value
        if not _are_plain_weights(weight, input, label_smoothing=options[-2]) or reduction not in _REDUCTIONS:
            return None
    form = _plain_form(input.shape, input.dtype, target.shape, target.dtype, how, *options)
    if form is None:
        return None
    is_counts = target.is_floating_point()
    try:  # the look-up fails if some label is not a class, and there is no minimum of an empty batch
        if is_counts and (target.requires_grad or not _are_within(target, 0.0, _LARGEST)):
            return None
        if weight is None:
            return KnownSlope.apply(input, target, form)
        factors = (target * along_classes(weight, target)).sum(1) if is_counts else weight[target]
        divisor: Number | None = _divisor(Reduction(reduction), factors.numel())
        if reduction == Reduction.MEAN and not is_counts:
            divisor = factors.sum()
        return KnownSlope.apply(input, target, form, factors, divisor)
    except (IndexError, RuntimeError):  # RuntimeError also within torch.func and in forward mode
        return None


def _plain_binary_loss(
    input: Tensor, target: Tensor, pos_weight: Tensor | None, reduction: str, *options: Any
) -> Tensor | None:
    """Return the loss of binary labels in the dtype of the logits if options are numbers, otherwise None.

    As in ``_plain_loss``, everything that batches of one shape share is computed once.
    """
    if is_traced() or is_recorded() or not (type(input) is Tensor is type(target) and input.is_cpu):
        return None
    how = reduction
    if pos_weight is not None:
        how = Reduction.NONE.value
        is_usual = isinstance(pos_weight, Tensor) and pos_weight.shape == input.shape[-1:] and reduction in _REDUCTIONS
        if not is_usual or pos_weight.dtype is not input.dtype or pos_weight.requires_grad:
            return None
    if target.dtype is not input.dtype or target.requires_grad or target.shape != input.shape:
        return None
    try:
        is_hard = _are_0_or_1(target)
        form = _plain_binary_form(is_hard, input.shape, input.dtype, how, *options)
        if form is None or not (is_hard or _are_within(target, 0.0, 1.0)):
            return None
        if pos_weight is None:
            return KnownSlope.apply(input, target, form)
        factors = torch.lerp(pos_weight.new_ones(()), pos_weight, target)
        return KnownSlope.apply(input, target, form, factors, _divisor(Reduction(reduction), factors.numel()))
    except RuntimeError:  # within torch.func, in forward mode, or for an empty batch
        return None


def _are_plain_weights(weight: Any, input: Tensor, *, label_smoothing: float) -> bool:
    """Return whether there is a fixed factor per class in the dtype of the logits, and labels are not smoothed."""
    return (
        isinstance(weight, Tensor)
        and weight.dtype is input.dtype
        and weight.shape == input.shape[1:2]
        and not weight.requires_grad
        and label_smoothing == 0.0
    )


@remembered
def _plain_form(
    shape: torch.Size,
    dtype: torch.dtype,
    target_shape: torch.Size,
    target_dtype: torch.dtype,
    reduction: str,
    method: str,
    ignore_index: int,
    alpha_eps: float,
    label_smoothing: float,
    label_variance: float,
) -> Forms | None:
    """Return the function that computes the loss of such a batch, or None if the general way must be taken."""
    is_usual = (
        len(shape) > 1
        and shape[1] > 1
        and dtype in (torch.float32, torch.float64)
        and (
            (target_dtype is torch.int64 and target_shape == (*shape[:1], *shape[2:]))
            or (target_dtype is dtype and target_shape == shape and label_smoothing == 0.0 and method != "gauss")
        )
        and method in _METHODS
        and isinstance(ignore_index, int)
        and not 0 <= ignore_index < shape[1]
        and reduction in _REDUCTIONS
        and 0.0 <= label_smoothing <= 1.0
        and all(0.0 < value < math.inf for value in (alpha_eps, label_variance))  # false for NaN
    )
    if not is_usual:
        return None
    n_rows, chosen = shape.numel() // shape[1], LikelihoodMethod(method)
    divisor = _divisor(Reduction(reduction), n_rows)
    if target_dtype is dtype:
        of_counts = partial(count_gaussians, method=chosen, alpha_eps=alpha_eps, label_variance=label_variance)
        n_logits = shape[1] if divisor is None else shape.numel()
        if chosen is LikelihoodMethod.VARIATIONAL:
            return variational_forms(of_counts, alpha_eps, n_logits, divisor=divisor, dtype=dtype)
        return density_forms(of_counts, n_logits, over_classes=True, divisor=divisor, dtype=dtype)
    gaussians = LabelGaussians.of(chosen, alpha_eps, shape[1], label_smoothing, label_variance)
    normaliser = gaussians.row_normaliser(shape[1]) * (1 if divisor is None else n_rows)
    return label_forms(gaussians, divisor=divisor, constant=normaliser, dtype=dtype)


@remembered
def _plain_binary_form(
    is_hard: bool,
    shape: torch.Size,
    dtype: torch.dtype,
    reduction: str,
    method: str,
    alpha_eps: float,
    beta_eps: Any,
    label_variance: float,
) -> Forms | None:
    """Return the forms of such a batch of labels that are all 0 or 1, or not, or None for the general way."""
    is_usual = (
        dtype in (torch.float32, torch.float64)
        and method in BETA_METHODS
        and reduction in _REDUCTIONS
        and type(beta_eps) is float
        and all(0.0 < value < math.inf for value in (alpha_eps, beta_eps, label_variance))  # false for NaN
    )
    if not is_usual:
        return None
    chosen, divisor = LikelihoodMethod(method), _divisor(Reduction(reduction), shape.numel())
    n_logits = 1 if divisor is None else shape.numel()
    if is_hard and chosen is not LikelihoodMethod.GAUSS:
        matched = BinaryGaussians.of(chosen, alpha_eps, beta_eps)
        variance = float(matched.variance_0)
        if variance == matched.variance_1 and SQUARES[0] < variance < SQUARES[1]:  # beyond, squares could overflow
            mean_0, mean_1 = float(matched.mean_0), float(matched.mean_1)
            means = partial(torch.add, *kept(mean_0, dtype=dtype), alpha=mean_1 - mean_0)
            return square_forms(means, variance, n_logits, divisor=divisor, dtype=dtype)
    gaussians = partial(_binary_gaussians, is_hard, chosen, alpha_eps, beta_eps, label_variance)
    return density_forms(gaussians, n_logits, over_classes=False, divisor=divisor, dtype=dtype)


_METHODS, _REDUCTIONS = tuple(LikelihoodMethod), tuple(Reduction)


@remembered
def _class_options(
    method: str, reduction: str, ignore_index: Any, label_smoothing: Any, *, owner: str
) -> tuple[LikelihoodMethod, Reduction, float]:
    check_index(ignore_index, owner=owner)
    chosen = check_option(method, LikelihoodMethod, name="method", owner=owner)
    how = check_option(reduction, Reduction, name="reduction", owner=owner)
    return chosen, how, as_fraction(label_smoothing, owner=owner)


@remembered
def _binary_options(method: str, reduction: str, *, owner: str) -> tuple[LikelihoodMethod, Reduction]:
    chosen = check_option(method, LikelihoodMethod, name="method", owner=owner, allowed=BETA_METHODS)
    return chosen, check_option(reduction, Reduction, name="reduction", owner=owner)


def _label_losses(
    logits: Tensor,
    labels: Tensor,
    gaussians: LabelGaussians,
    weight: Tensor | None,
    label_smoothing: float,
    ignore_index: int,
    how: Reduction,
    *,
    owner: str,
) -> Tensor:
    """Return the loss of class indices (n, ...)."""
    n_classes = logits.shape[1]
    if _are_classes(labels, n_classes) and not 0 <= ignore_index < n_classes:
        is_kept = is_class = None
    else:
        is_kept = labels != ignore_index
        is_class = (labels >= 0) & (labels < n_classes)
        labels = _refused(labels, is_kept, is_class, n_classes, owner=owner)
    losses = label_losses(logits, labels, gaussians)
    count = is_kept  # the mean divides by its sum, or by the number of rows if it is None
    if weight is not None:
        factors = count = weight.to(losses)[labels]
        if is_kept is not None:
            factors = count = torch.where(is_kept, count, 0.0)
        if label_smoothing > 0.0:  # a smoothed label has a part of each class, so it has this part of each weight
            factors = (1.0 - label_smoothing) * count + label_smoothing * weight.to(losses).mean()
        losses = losses * factors
    if is_kept is not None and is_class is not None:
        losses = torch.where(is_kept, torch.where(is_class, losses, torch.nan), 0.0)
    if how is Reduction.MEAN and count is not None:
        return losses.sum() / count.sum()
    return _reduced(losses, how)


def _count_losses(
    logits: Tensor,
    counts: Tensor,
    method: LikelihoodMethod,
    alpha_eps: Number,
    label_variance: Number,
    weight: Tensor | None,
    how: Reduction,
    *,
    owner: str,
) -> Tensor:
    """Return the loss of probabilities or counts (n, c, ...)."""
    if method is LikelihoodMethod.GAUSS:
        _checked(counts.sum(1), name="row sums of target", owner=owner, minimum=_SMALLEST)
    divisor = _divisor(how, logits.numel() // logits.shape[1]) if weight is None else None
    losses = density_losses(
        logits,
        counts,
        partial(count_gaussians, method=method, alpha_eps=alpha_eps, label_variance=label_variance),
        over_classes=True,
        divisor=divisor,
        learnt=(alpha_eps, label_variance),
    )
    if divisor is not None:
        return losses
    if weight is not None:
        losses = losses * (counts * along_classes(weight.to(counts), counts)).sum(1)
    return _reduced(losses, how)


def _binary_gaussians(
    are_hard: bool,
    method: LikelihoodMethod,
    alpha_eps: Number,
    beta_eps: Number,
    label_variance: Number,
    labels: Tensor,
) -> Gaussians:
    """Return the Gaussian of each binary label. Labels that are all 0 or 1 need only two matched Gaussians."""
    if method is LikelihoodMethod.GAUSS:
        return Gaussians(labels, label_variance, _log(label_variance))
    if are_hard:
        return BinaryGaussians.of(method, alpha_eps, beta_eps).of_hard(labels)
    if isinstance(alpha_eps, float) and isinstance(beta_eps, float) and not is_learnt(labels):
        return beta_curve(alpha_eps, beta_eps, method, labels.dtype).of_labels(labels)
    mean, variance = logit_beta_gaussian(alpha_eps + labels, beta_eps + (1.0 - labels), method)
    return Gaussians(mean, variance, variance.log())


def _divisor(how: Reduction, n: int) -> int | None:
    """Return the divisor of the sum of all losses, or None if ``_reduced`` is to follow.

    In a graph it always follows, because a number of rows that is only a symbol cannot be compared with zero.
    """
    if how is Reduction.NONE or is_traced():
        return None
    return n if how is Reduction.MEAN else 1


def _reduced(losses: Tensor, how: Reduction) -> Tensor:
    if how is Reduction.NONE:
        return losses
    return losses.sum() if how is Reduction.SUM else losses.mean()


def _log(variance: Number) -> Number:
    return variance.log() if isinstance(variance, Tensor) else math.log(variance)


def _are_hard(target: Tensor, labels: Tensor) -> bool:
    """Return whether all labels are known to be 0 or 1."""
    if is_traced():
        return not target.is_floating_point()
    with suppress(RuntimeError):  # within torch.vmap values cannot be read
        return not is_learnt(labels) and _are_0_or_1(labels)
    return False


def _are_0_or_1(labels: Tensor) -> bool:
    return not torch.addcmul(labels, labels, labels, value=-1.0).count_nonzero().item()


def _are_classes(labels: Tensor, n_classes: int) -> bool:
    """Return whether all labels are known to be classes."""
    if labels.is_cpu and not is_traced():
        with suppress(RuntimeError):  # aminmax fails for an empty batch, and values cannot be read within torch.vmap
            return _are_within(labels, 0.0, n_classes - 1.0)
    return False


def _refused(labels: Tensor, is_kept: Tensor, is_class: Tensor, n_classes: int, *, owner: str) -> Tensor:
    """Return labels with 0 in place of ignored ones.

    A label that is not a class is an error. Where labels cannot be read, it also becomes 0.
    """
    if labels.is_cpu and not is_traced():
        with suppress(RuntimeError):
            as_labels(torch.where(is_kept, labels, 0).reshape(-1), n_classes=n_classes, owner=owner)
    return torch.where(is_kept & is_class, labels, 0)


def _are_within(values: Tensor, minimum: float, maximum: float) -> bool:
    """Return whether all values are between the two limits. NaN is not."""
    smallest, largest = values.aminmax()
    return smallest.item() >= minimum and largest.item() <= maximum


def _checked(values: Tensor, *, name: str, owner: str, minimum: float, maximum: float | None = None) -> Tensor:
    """Return the values; one out of limits is an error, or NaN where values cannot be read."""
    top = _LARGEST if maximum is None else maximum
    if not is_traced():
        with suppress(RuntimeError):  # within torch.vmap, or for an empty batch
            if not _are_within(values.detach(), minimum, top):
                as_floats(values, name=name, owner=owner, minimum=minimum, maximum=maximum)
            return values
    return torch.where((values >= minimum) & (values <= top), values, torch.nan)


def _full_precision(input: Tensor) -> Tensor:
    """Return logits in at least float32: squares of residuals overflow in float16 and are inexact in bfloat16."""
    return input.float() if input.dtype in (torch.float16, torch.bfloat16) else input


def _factor(value: Tensor | None, logits: Tensor, *, name: str, owner: str) -> Tensor | None:
    """Return a factor in the dtype of the logits. Its shape must broadcast to theirs."""
    if value is None:
        return None
    ends = zip(value.shape[::-1], logits.shape[::-1], strict=False)
    if value.is_complex() or value.ndim > logits.ndim or not all(own in (1, full) for own, full in ends):
        raise InvalidArgumentError(
            f"{name!r} of {owner} must be real numbers that broadcast to the shape of 'input', {tuple(logits.shape)}; "
            f"got {value.dtype} of shape {tuple(value.shape)}."
        )
    return value.to(logits)


def _check_binary(input: Tensor, target: Tensor, *, owner: str) -> None:
    if target.shape != input.shape:
        raise InvalidArgumentError(
            f"'target' of {owner} must have the shape of 'input', {tuple(input.shape)}; got {tuple(target.shape)}."
        )
    if not input.is_floating_point():
        raise InvalidArgumentError(f"'input' of {owner} must be logits in floating point; got {input.dtype}.")
    if target.is_complex():
        raise InvalidArgumentError(f"'target' of {owner} must be real numbers; got {target.dtype}.")


def _check_logits(input: Tensor, *, owner: str) -> None:
    if not (input.ndim and input.is_floating_point() and input.shape[min(1, input.ndim - 1)] > 1):
        raise InvalidArgumentError(
            f"'input' of {owner} must be logits of shape (c,), (n, c) or (n, c, ...), with c >= 2; got "
            f"{input.dtype} of shape {tuple(input.shape)}."
        )


def _labels(target: Tensor, logits: Tensor, *, owner: str) -> Tensor:
    shape = (logits.shape[0], *logits.shape[2:])
    if target.shape != shape or target.dtype is torch.bool or target.is_complex():
        raise InvalidArgumentError(
            f"'target' of {owner} must be class indices of shape {shape}, or probabilities of shape "
            f"{tuple(logits.shape)}; got {target.dtype} of shape {tuple(target.shape)}."
        )
    return target.long()


def _counts(target: Tensor, logits: Tensor, label_smoothing: float, *, owner: str) -> Tensor:
    if target.shape != logits.shape:
        raise InvalidArgumentError(
            f"'target' of {owner}, as it has {target.dtype}, must be probabilities of shape {tuple(logits.shape)}; got "
            f"shape {tuple(target.shape)}. Class indices are integers."
        )
    counts = _checked(_full_precision(target), name="target", owner=owner, minimum=0.0).to(logits.dtype)
    return counts if label_smoothing == 0.0 else (1.0 - label_smoothing) * counts + label_smoothing / counts.shape[1]


def _concentration(value: Any, *, like: Tensor, name: str, owner: str, sizes: Sequence[int] = ()) -> Number:
    """Return a float, or a tensor with the dtype and device of the logits that keeps its graph."""
    if not isinstance(value, Tensor | bool) and isinstance(value, Real):
        value = float(value)
    if type(value) is float and 0.0 < value < math.inf:  # checked without making a tensor
        return value
    cannot_be_read = is_traced()
    if not cannot_be_read:
        try:
            checked = as_concentration(value, name=name, owner=owner, sizes=sizes)
        except RuntimeError:  # within torch.vmap
            cannot_be_read = True
    if cannot_be_read:
        if isinstance(value, Tensor) and value.shape in ((), *((size,) for size in sizes)):
            return value.to(like)
        checked = as_concentration(value, name=name, owner=owner, sizes=sizes)
    if not (checked.ndim or is_learnt(checked)):
        with suppress(RuntimeError):  # within torch.vmap, or on the meta device
            return checked.item()
    return checked.to(like)


def check_tensors(owner: str, **parts: Any) -> None:
    """Raise an error if an argument is not a tensor. Weights may be None."""
    for name, value in parts.items():
        if not (isinstance(value, Tensor) or (value is None and "weight" in name)):
            raise InvalidArgumentError(
                f"{name!r} of {owner} must be a tensor; got {type(value).__name__}, of which torch.as_tensor makes one."
            )


def check_index(ignore_index: Any, *, owner: str) -> None:
    """Raise an error if the index is not a whole number."""
    if not (isinstance(ignore_index, int) or hasattr(ignore_index, "__index__")):  # torch.compile traces the first only
        raise InvalidArgumentError(f"The 'ignore_index' parameter of {owner} must be an int; got {ignore_index!r}.")


def check_weight(weight: Tensor | None, n_classes: int, *, owner: str) -> None:
    """Raise an error unless there is one factor for each class."""
    if weight is not None and (tuple(weight.shape) != (n_classes,) or weight.is_complex()):
        raise InvalidArgumentError(
            f"'weight' of {owner} must have shape ({n_classes},), a real factor for each class; got {weight.dtype} of "
            f"shape {tuple(weight.shape)}."
        )


def as_fraction(label_smoothing: Any, *, owner: str) -> float:
    """Return ``label_smoothing`` as a float. A value that is not from 0 to 1 is an error."""
    number = math.nan
    with suppress(TypeError, ValueError):
        number = float(label_smoothing)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgumentError(
            f"The 'label_smoothing' parameter of {owner} must be from 0 to 1; got {label_smoothing!r}."
        )
    return number
