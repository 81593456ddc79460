r"""Losses that take the place of cross-entropy, as functions: the negative log-density of the matched Gaussian.

A label turns into a Gaussian observation of each logit, :math:`\mathcal{N}(f; m, v)`, once and in closed form; what
training then minimises (eq. 4 of the paper) is least squares,

.. math:: \ell = \sum_k \frac{(f_k - m_k)^2}{2 v_k} + \tfrac12 \log 2\pi v_k.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from sys import float_info
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from gaussify._validation import as_concentration, as_floats, as_labels, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod
from gaussify.nn._choice import (
    Reduction,
    are_logits,
    full_precision,
    kernel_of_binary,
    kernel_of_classes,
    rows_of,
    shape_of_rows,
)
from gaussify.nn._fused import fused_loss
from gaussify.nn._operators import compiled_binary_loss, compiled_class_loss
from gaussify.nn._squared_error import label_errors, squared_errors
from gaussify.nn._targets import (
    BinaryGaussians,
    LabelGaussians,
    beta_curve,
    beta_targets,
    gamma_targets,
    half_log_variance,
)

_SMALLEST, _LARGEST = 1e-30, float_info.max

__all__ = ["matched_binary_cross_entropy_with_logits", "matched_cross_entropy"]


def matched_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha_eps: Any = 0.1,
    method: str = "variational",
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: Any = 0.0,
    label_variance: Any = 1.0,
) -> Tensor:
    r"""Return the negative log-density of logits under the Gaussians that labels turn into.

    In place of :func:`torch.nn.functional.cross_entropy`, with the same shapes, weights and reductions. A label with
    counts :math:`c` (one-hot, smoothed, or the probabilities that are given) stands for
    :math:`\mathrm{Gamma}(\alpha_\epsilon + c_k, 1)` of each exponentiated logit (section 3.2 of the paper).

    Parameters
    ----------
    input : Tensor of shape (c,), (n, c) or (n, c, ...)
        Logits. Those of half precision are taken to float32, as is then the loss.
    target : Tensor
        Class indices of shape (), (n,) or (n, ...), or probabilities (or counts) of the shape of ``input``.
    weight : Tensor of shape (c,), optional
        Factor on the loss of a row for each class; of probabilities, the sum of each times its factor, as in torch.
    alpha_eps : float or Tensor of shape () or (c,)
        Concentration behind each class. Derivatives flow to a tensor, but the loss alone is a bad guide to it: it is a
        density of logits, which grows without bound as ``alpha_eps`` does.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        See :class:`~gaussify.likelihoods.LikelihoodMethod`; ``"gauss"`` is least squares on one-hot labels.
    ignore_index : int
        Class index whose rows do not count.
    reduction : {"mean", "sum", "none"}
        As torch's: the mean of class indices is weighted, that of probabilities is over rows.
    label_smoothing : float
        Part of each label in [0, 1] that is spread evenly over all classes.
    label_variance : float
        Variance of a label for ``method="gauss"``.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, -1.0, -3.0], [0.0, 4.0, -2.0]])
    >>> matched_cross_entropy(logits, torch.tensor([0, 1]))
    tensor(15.2602)
    >>> matched_cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), method="laplace")
    tensor(10.3916)
    """
    if not (type(alpha_eps) is type(label_smoothing) is type(label_variance) is float):
        alpha_eps, label_smoothing, label_variance = _plain_numbers(alpha_eps, label_smoothing, label_variance)
    if type(alpha_eps) is type(label_smoothing) is type(label_variance) is float:
        if is_compiling():
            loss = None
            if label_smoothing == 0.0:
                loss = compiled_class_loss(input, target, weight, alpha_eps, method, ignore_index, reduction)
        else:
            options = alpha_eps, method, ignore_index, reduction, label_smoothing, label_variance
            weights = () if weight is None else (weight,)
            loss = fused_loss(input, target, kernel_of_classes, _cross_entropy, options, weights)
        if loss is not None:
            return loss
    return _cross_entropy(
        input, target, alpha_eps, method, ignore_index, reduction, label_smoothing, label_variance, weight
    )


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    alpha_eps: Any,
    method: str,
    ignore_index: int,
    reduction: str,
    label_smoothing: Any,
    label_variance: float,
    weight: Tensor | None = None,
) -> Tensor:
    """The loss by torch's operations, for whatever it is given."""
    owner = "matched_cross_entropy"
    check_tensors(owner, input=input, target=target, weight=weight)
    check_index(ignore_index, owner=owner)
    chosen = check_option(method, LikelihoodMethod, name="method", owner=owner)
    how = check_option(reduction, Reduction, name="reduction", owner=owner)
    label_smoothing = as_fraction(label_smoothing, owner=owner)
    _check_logits(input, owner=owner)
    logits = rows_of(full_precision(input))  # (n, c)
    n_classes = logits.shape[1]
    alpha_eps = _concentration(alpha_eps, like=logits, name="alpha_eps", owner=owner, sizes=(n_classes,))
    variance = _concentration(label_variance, like=logits, name="label_variance", owner=owner)
    check_weight(weight, n_classes, owner=owner)
    if target.is_floating_point():
        counts = _soft_counts(input, target, label_smoothing, owner=owner)
        if chosen is LikelihoodMethod.GAUSS:
            total = _checked(counts.sum(-1), name="row sums of target", owner=owner, minimum=_SMALLEST).unsqueeze(-1)
            mean, precision = counts / total, (total / variance).expand_as(counts)
            normaliser = n_classes * half_log_variance(precision[:, 0])
        else:
            concentration = alpha_eps + counts
            if weight is None and how is not Reduction.NONE:  # one sum, which torch.compile has in one pass
                row, concentration = logits.reshape(1, -1), concentration.reshape(1, -1)
                mean, precision, normaliser = gamma_targets(concentration, chosen)
                total = (squared_errors(row, mean, precision) + normaliser)[0]
                return total if how is Reduction.SUM else total / len(logits)
            mean, precision, normaliser = gamma_targets(concentration, chosen)
        losses = squared_errors(logits, mean, precision) + normaliser
        if weight is not None:
            losses = losses * (counts * weight.to(counts)).sum(-1)
        return _reduced(losses, how, shape_of_rows(input.shape))
    labels = _labels(input, target, owner=owner)
    gaussians = LabelGaussians.of_smoothed(
        chosen, alpha_eps, n_classes=n_classes, label_smoothing=label_smoothing, label_variance=variance
    )
    is_kept = None
    if not _are_classes(labels, n_classes) or 0 <= ignore_index < n_classes:
        is_kept = labels != ignore_index
        labels = torch.where(is_kept, labels, 0)
        if labels.is_cpu and not is_compiling():
            with suppress(RuntimeError):  # within torch.vmap, where values cannot be looked at
                as_labels(labels, n_classes=n_classes, owner=owner)
    losses = _label_losses(logits, labels, gaussians, weight, label_smoothing, how, is_kept=is_kept)
    return losses.reshape(target.shape) if how is Reduction.NONE else losses


def matched_binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    *,
    alpha_eps: Any = 0.1,
    beta_eps: Any = None,
    method: str = "variational",
    reduction: str = "mean",
    label_variance: Any = 1.0,
) -> Tensor:
    r"""Return the negative log-density of logits under the Gaussians that binary labels turn into.

    In place of :func:`torch.nn.functional.binary_cross_entropy_with_logits`, with the same shapes, weights and
    reductions. A label :math:`y` stands for :math:`\mathrm{Beta}(\alpha_\epsilon + y, \beta_\epsilon + 1 - y)` of the
    probability of class 1, whose logit is matched (section 3.3 of the paper).

    Parameters
    ----------
    input : Tensor
        Logits of any shape. Those of half precision are taken to float32, as is then the loss.
    target : Tensor
        Labels from 0 to 1, of the same shape: numbers, or integers and booleans. Derivatives by them are those of
        ``backward``; forward mode takes 0 and 1 for all there is, and is wrong by them.
    weight : Tensor, optional
        Factor on each loss; broadcast.
    pos_weight : Tensor, optional
        Factor on the loss of label 1, for each column; broadcast.
    alpha_eps, beta_eps : float or Tensor of shape ()
        Concentrations behind class 1 and class 0; ``beta_eps=None`` takes ``alpha_eps``.
    method : {"variational", "moment", "laplace", "gauss"}
        ``"gauss"`` is least squares on the labels 0 and 1.
    reduction : {"mean", "sum", "none"}
        As torch's: the mean is not weighted.
    label_variance : float
        Variance of a label for ``method="gauss"``.

    Examples
    --------
    >>> matched_binary_cross_entropy_with_logits(torch.tensor([3.0, -2.0]), torch.tensor([1.0, 0.0]))
    tensor(3.1774)
    >>> matched_binary_cross_entropy_with_logits(torch.tensor([0.5]), torch.tensor([1.0]), method="gauss")
    tensor(1.0439)
    """
    if beta_eps is None:
        beta_eps = alpha_eps
    if not (type(alpha_eps) is type(beta_eps) is type(label_variance) is float):
        alpha_eps, beta_eps, label_variance = _plain_numbers(alpha_eps, beta_eps, label_variance)
    if type(alpha_eps) is type(beta_eps) is type(label_variance) is float:
        if is_compiling():
            loss = None
            if (weight is None or _is_fixed_factor(weight, input)) and (
                pos_weight is None or _is_fixed_factor(pos_weight, input)
            ):
                loss = compiled_binary_loss(input, target, weight, pos_weight, alpha_eps, beta_eps, method, reduction)
        else:
            options = alpha_eps, beta_eps, method, reduction, label_variance
            weights = () if weight is None and pos_weight is None else (weight, pos_weight)
            loss = fused_loss(input, target, kernel_of_binary, _binary_cross_entropy, options, weights)
        if loss is not None:
            return loss
    return _binary_cross_entropy(
        input, target, alpha_eps, beta_eps, method, reduction, label_variance, weight, pos_weight
    )


def _binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    alpha_eps: Any,
    beta_eps: Any,
    method: str,
    reduction: str,
    label_variance: float,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The loss by torch's operations, for whatever it is given."""
    owner = "matched_binary_cross_entropy_with_logits"
    check_tensors(owner, input=input, target=target, weight=weight, pos_weight=pos_weight)
    chosen = check_option(method, LikelihoodMethod, name="method", owner=owner, allowed=BETA_METHODS)
    how = check_option(reduction, Reduction, name="reduction", owner=owner)
    if target.shape != input.shape:
        raise InvalidArgumentError(
            f"'target' of {owner} must have the shape of 'input', {tuple(input.shape)}; got {tuple(target.shape)}."
        )
    if not input.is_floating_point():
        raise InvalidArgumentError(f"'input' of {owner} must be logits in floating point; got {input.dtype}.")
    if target.is_complex():
        raise InvalidArgumentError(f"'target' of {owner} must be real numbers; got {target.dtype}.")
    logits = full_precision(input)
    weight, pos_weight = (
        _factor(own, logits, name=name, owner=owner) for own, name in ((weight, "weight"), (pos_weight, "pos_weight"))
    )
    alpha_eps = _concentration(alpha_eps, like=logits, name="alpha_eps", owner=owner)
    beta_eps = _concentration(beta_eps, like=logits, name="beta_eps", owner=owner)
    variance = _concentration(label_variance, like=logits, name="label_variance", owner=owner)
    labels = _checked(target.to(logits.dtype), name="target", owner=owner, minimum=0.0, maximum=1.0)
    are_hard = _are_hard(target, labels)
    is_matched = chosen is not LikelihoodMethod.GAUSS
    if is_matched and how is not Reduction.NONE and weight is None and pos_weight is None:
        total = _binary_sum(logits, labels, are_hard, chosen, alpha_eps, beta_eps)
        return total if how is Reduction.SUM else total / logits.numel()
    mean, precision = labels, 1.0 / variance
    if is_matched:
        mean, precision = _binary_targets(labels, are_hard, chosen, alpha_eps, beta_eps)
    losses = 0.5 * precision * (logits - mean).square() + half_log_variance(precision)
    if weight is not None:
        losses = losses * weight
    if pos_weight is not None:
        losses = losses * (1.0 + labels * (pos_weight - 1.0))
    return _reduced(losses, how, losses.shape)


def _plain_numbers(*options: Any) -> list[Any]:
    """Whole numbers and those of NumPy as floats, for which there are kernels; tensors as they are."""
    return [own if isinstance(own, Tensor) or not isinstance(own, Real) else float(own) for own in options]


def _factor(value: Tensor | None, logits: Tensor, *, name: str, owner: str) -> Tensor | None:
    """A factor in the precision of the logits, whose shape broadcasts to theirs."""
    if value is None:
        return None
    if not _broadcasts(value, logits) or value.is_complex():
        raise InvalidArgumentError(
            f"{name!r} of {owner} must be real numbers that broadcast to the shape of 'input', {tuple(logits.shape)}; "
            f"got {value.dtype} of shape {tuple(value.shape)}."
        )
    return value.to(logits)


def _broadcasts(value: Tensor, logits: Tensor) -> bool:
    """Whether it does, to the shape of the logits."""
    ends = zip(value.shape[::-1], logits.shape[::-1], strict=False)
    return value.ndim <= logits.ndim and all(own in (1, full) for own, full in ends)


def _is_fixed_factor(value: Tensor, logits: Tensor) -> bool:
    """Whether there is nothing to look out for: no derivative by it, nothing to be refused."""
    return not (value.requires_grad or value.is_complex()) and _broadcasts(value, logits)


def _are_hard(target: Tensor, labels: Tensor) -> bool:
    """Whether all labels are known to be 0 or 1."""
    if is_compiling():
        return not target.is_floating_point()
    with suppress(RuntimeError):  # within torch.vmap, where values cannot be looked at
        return not labels.requires_grad and _are_0_or_1(labels)
    return False


def _are_0_or_1(labels: Tensor) -> bool:
    """Whether all are, of numbers that are finite."""
    return torch.equal(labels * labels, labels)


def _binary_sum(
    logits: Tensor, labels: Tensor, are_hard: bool, method: LikelihoodMethod, alpha_eps: Any, beta_eps: Any
) -> Tensor:
    """The sum of all losses."""

    def of_hard(logits: Tensor, labels: Tensor) -> Tensor:
        gaussians = BinaryGaussians.of_labels(method, alpha_eps, beta_eps)
        half_0, half_1 = half_log_variance(gaussians.precision_0), half_log_variance(gaussians.precision_1)
        # counted, since sums of equal numbers have errors of rounding that do not cancel
        return squares(logits, *gaussians.of_hard(labels)) + logits.numel() * half_0 + labels.sum() * (half_1 - half_0)

    def of_any(logits: Tensor, labels: Tensor) -> Tensor:
        mean, precision = _binary_targets(labels, False, method, alpha_eps, beta_eps)
        return squares(logits, mean, precision) + half_log_variance(precision).sum()

    def squares(*parts: Tensor) -> Tensor:
        return squared_errors(*(part.reshape(1, -1) for part in parts))[0]

    return (of_hard if are_hard else of_any)(logits, labels)


def _binary_targets(
    labels: Tensor, are_hard: bool, method: LikelihoodMethod, alpha_eps: Any, beta_eps: Any
) -> tuple[Tensor, Any]:
    """Mean and precision of each label; those that are all 0 or 1 have one of two."""
    are_fixed = isinstance(alpha_eps, float) and isinstance(beta_eps, float)
    if are_hard:
        return BinaryGaussians.of_labels(method, alpha_eps, beta_eps).of_hard(labels)
    if are_fixed and not labels.requires_grad:
        with suppress(AssertionError):  # within a mode of torch's that knows no tensors but its own
            return beta_curve(alpha_eps, beta_eps, method, labels.dtype).of_labels(labels)
    return beta_targets(alpha_eps + labels, beta_eps + (1.0 - labels), method)


def _are_classes(labels: Tensor, n_classes: int) -> bool:
    """Whether all labels are known to be classes, none to be ignored."""
    if labels.is_cpu and not is_compiling():
        with suppress(RuntimeError):  # within torch.vmap, where values cannot be looked at, or of no labels
            return _are_within(labels, 0.0, n_classes - 1.0)
    return False


def _are_within(values: Tensor, minimum: float, maximum: float) -> bool:
    """Whether all are numbers between the two, which one pass tells."""
    smallest, largest = values.aminmax()
    return smallest.item() >= minimum and largest.item() <= maximum


def _label_losses(
    logits: Tensor,
    labels: Tensor,
    gaussians: LabelGaussians,
    weight: Tensor | None,
    label_smoothing: float,
    how: Reduction,
    *,
    is_kept: Tensor | None,
) -> Tensor:
    losses = label_errors(logits, labels, gaussians) + gaussians.log_normaliser(labels, logits.shape[1])
    count = is_kept  # of which the mean is, or None: all rows
    if weight is not None:
        factors = count = weight.to(losses)[labels.clamp(0, len(weight) - 1)]  # compiled, labels are not looked at
        if is_kept is not None:
            factors = count = torch.where(is_kept, count, 0.0)
        if label_smoothing > 0.0:  # which leaves a part of the weight of the own class, and adds some of all
            factors = (1.0 - label_smoothing) * count + label_smoothing * weight.to(losses).mean()
        losses = losses * factors
    if is_kept is not None:
        losses = torch.where(is_kept, losses, 0.0)
    if how is Reduction.MEAN and count is not None:
        return losses.sum() / count.sum()
    return _reduced(losses, how, losses.shape)


def _reduced(losses: Tensor, how: Reduction, shape: Sequence[int]) -> Tensor:
    if how is Reduction.NONE:
        return losses.reshape(shape)
    return losses.sum() if how is Reduction.SUM else losses.mean()


def _checked(values: Tensor, *, name: str, owner: str, minimum: float, maximum: float | None = None) -> Tensor:
    """Values, of which those out of their limits are refused, or NaN where they cannot be looked at."""
    if is_compiling():
        return values  # a choice for each would cost a third of the loss
    top = _LARGEST if maximum is None else maximum
    with suppress(RuntimeError):  # within torch.vmap, or of no values
        if not _are_within(values.detach(), minimum, top):
            as_floats(values, name=name, owner=owner, minimum=minimum, maximum=maximum)
        return values
    return torch.where((values >= minimum) & (values <= top), values, torch.nan)


def _check_logits(input: Tensor, *, owner: str) -> None:
    if not are_logits(input.shape, input.dtype):
        raise InvalidArgumentError(
            f"'input' of {owner} must be logits of shape (c,), (n, c) or (n, c, ...), with c >= 2; got "
            f"{input.dtype} of shape {tuple(input.shape)}."
        )


def _labels(input: Tensor, target: Tensor, *, owner: str) -> Tensor:
    shape = shape_of_rows(input.shape)
    if target.shape != shape or target.dtype is torch.bool or target.is_complex():
        raise InvalidArgumentError(
            f"'target' of {owner} must be class indices of shape {shape}, or probabilities of shape "
            f"{tuple(input.shape)}; got {target.dtype} of shape {tuple(target.shape)}."
        )
    return target.reshape(-1).long()


def _soft_counts(input: Tensor, target: Tensor, label_smoothing: float, *, owner: str) -> Tensor:
    if target.shape != input.shape:
        raise InvalidArgumentError(
            f"'target' of {owner}, as it has {target.dtype}, must be probabilities of shape {tuple(input.shape)}; got "
            f"shape {tuple(target.shape)}. Class indices are integers."
        )
    counts = _checked(rows_of(full_precision(target)), name="target", owner=owner, minimum=0.0)
    counts = counts.to(full_precision(input).dtype)
    return counts if label_smoothing == 0.0 else (1.0 - label_smoothing) * counts + label_smoothing / counts.shape[1]


def _concentration(value: Any, *, like: Tensor, name: str, owner: str, sizes: Sequence[int] = ()) -> Any:
    """A float, or a tensor beside the logits that keeps its graph."""
    if type(value) is float and 0.0 < value < math.inf:  # which needs no tensor to be checked
        return value
    if is_compiling() and isinstance(value, Tensor) and value.shape in ((), *((size,) for size in sizes)):
        return value.to(like)  # whose values cannot be looked at
    checked = as_concentration(value, name=name, owner=owner, sizes=sizes)
    return checked.to(like) if checked.ndim or isinstance(value, Tensor) else float(value)


def check_tensors(owner: str, **parts: Any) -> None:
    """Refuse what is no tensor; weights may be left out."""
    for name, value in parts.items():
        if not (isinstance(value, Tensor) or (value is None and "weight" in name)):
            raise InvalidArgumentError(
                f"{name!r} of {owner} must be a tensor; got {type(value).__name__}, of which torch.as_tensor makes one."
            )


def check_index(ignore_index: Any, *, owner: str) -> None:
    """Refuse an index that is not a whole number."""
    if not (isinstance(ignore_index, int) or hasattr(ignore_index, "__index__")):  # compilers know the first
        raise InvalidArgumentError(f"The 'ignore_index' parameter of {owner} must be an int; got {ignore_index!r}.")


def check_weight(weight: Tensor | None, n_classes: int, *, owner: str) -> None:
    """Refuse factors that are not one for each class."""
    if weight is not None and (tuple(weight.shape) != (n_classes,) or weight.is_complex()):
        raise InvalidArgumentError(
            f"'weight' of {owner} must have shape ({n_classes},), a real factor for each class; got {weight.dtype} of "
            f"shape {tuple(weight.shape)}."
        )


def as_fraction(label_smoothing: Any, *, owner: str) -> float:
    """Return the part of labels that is spread as a number, and refuse one that is not from 0 to 1."""
    number = math.nan
    with suppress(TypeError, ValueError):
        number = float(label_smoothing)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgumentError(
            f"The 'label_smoothing' parameter of {owner} must be from 0 to 1; got {label_smoothing!r}."
        )
    return number
