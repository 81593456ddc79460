r"""Losses of all rows as one number, for options that are fixed: what can be computed once is held by a class each.

With :math:`p` the precisions and :math:`m` the means that labels give logits, each is, by a factor :math:`a`,

.. math:: a \sum_{nk} \tfrac12 p_{nk} (f_{nk} - m_{nk})^2 + \tfrac12 \log\frac{2\pi}{p_{nk}}.

Of few logits, the time is that of calling operations; of many, that of passing over them. Numbers are tensors where
torch would take its time to make them so.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._targets import (
    CHUNK,
    BinaryGaussians,
    LabelGaussians,
    half_log_variance,
    lasting_tensors,
    plain_gammas,
)

_SUM = 2  # reduction, as torch numbers them


class FewLabels(NamedTuple):
    r"""Class indices of few logits: :math:`\sum_{nk}(s_{nk} f_{nk} - t_{nk})^2` and a constant, by tables of s and t.

    Examples
    --------
    >>> labels = FewLabels(scale=torch.eye(2), target=torch.ones(2, 2), constant=torch.tensor(0.5))
    >>> labels.error_sum(torch.tensor([[3.0, 2.0]]), torch.tensor([0]))
    tensor(5.5000)
    """

    scale: Float[Tensor, "c c"]
    target: Float[Tensor, "c c"]
    constant: Float[Tensor, ""]

    @classmethod
    def of_gaussians(
        cls, gaussians: LabelGaussians, *, n_classes: int, n_rows: int, factor: float, dtype: torch.dtype
    ) -> "FewLabels":
        """Return the tables.

        Examples
        --------
        >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=2.0, own_mean=1.0, own_precision=8.0)
        >>> FewLabels.of_gaussians(gaussians, n_classes=2, n_rows=1, factor=1.0, dtype=torch.float32).scale
        tensor([[2., 1.],
                [1., 2.]])
        """
        other_mean, other_precision, own_mean, own_precision = gaussians
        others, own = np.ones((n_classes, n_classes)) - np.eye(n_classes), np.eye(n_classes)
        scale = np.sqrt(0.5 * factor * (other_precision * others + own_precision * own))
        constant = factor * n_rows * gaussians.row_normaliser(n_classes)
        return cls(*lasting_tensors((scale, scale * (other_mean * others + own_mean * own), constant), dtype))

    def error_sum(self, logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Return the loss in a few of torch's operations, and two for the derivative."""
        scaled = logits * torch.embedding(self.scale, labels)
        # torch.nn.functional.mse_loss would broadcast first, which takes longer than the loss itself
        squares = torch._C._nn.mse_loss(scaled, torch.embedding(self.target, labels), _SUM)  # type: ignore[arg-type]
        squares.detach().add_(self.constant)  # which has no derivative, and needs no node in the graph
        return squares


class ManyLabels(NamedTuple):
    r"""Class indices of many logits, by the derivative of the loss, :math:`s f_{nk} + t` but for own classes.

    The sum of squares of derivatives, times ``multiple``, is the loss: that of own classes enters it divided by
    ``own_ratio``, as it has another precision.

    Examples
    --------
    >>> gaussians = LabelGaussians(other_mean=0.0, other_precision=1.0, own_mean=1.0, own_precision=1.0)
    >>> labels = ManyLabels.of_gaussians(gaussians, n_classes=2, n_rows=1, factor=1.0, dtype=torch.float32)
    >>> labels.error_sum(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))  # 2 + log(2 pi)
    tensor(3.8379)
    """

    gaussians: LabelGaussians
    factor: float
    multiple: float
    scale: float
    shift: Float[Tensor, ""]
    own_scale: float
    own_shift: Float[Tensor, ""]
    own_ratio: Float[Tensor, ""]
    constant: Float[Tensor, ""]

    @classmethod
    def of_gaussians(
        cls, gaussians: LabelGaussians, *, n_classes: int, n_rows: int, factor: float, dtype: torch.dtype
    ) -> "ManyLabels":
        r"""Return the numbers.

        With :math:`s = a p`, the loss of a logit is :math:`(s f - s m)^2 / 2s`. That of an own class is brought to the
        same form by :math:`\sqrt{s s_\mathrm{own}}\,(f - m_\mathrm{own})`, of which the derivative is a multiple.
        """
        other_mean, other_precision, own_mean, own_precision = map(float, gaussians)
        scale, own = factor * other_precision, factor * own_precision
        own_scale = math.sqrt(scale * own)
        constant = factor * n_rows * gaussians.row_normaliser(n_classes)
        numbers = -scale * other_mean, -own_scale * own_mean, math.sqrt(own / scale), constant
        shift, own_shift, own_ratio, total = lasting_tensors(numbers, dtype)
        return cls(gaussians, factor, 0.5 / scale, scale, shift, own_scale, own_shift, own_ratio, total)

    def error_sum(self, logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Return the loss in two passes, derivative included."""
        full = logits if logits.dtype is self.constant.dtype else logits.to(self.constant.dtype)
        return _ErrorSum.apply(full, labels, self)

    def value_and_slope(self, logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Return the loss and its derivative by logits."""
        at = labels.unsqueeze(1)
        slope = torch.add(self.shift, logits, alpha=self.scale)
        own = torch.add(self.own_shift, logits.gather(1, at), alpha=self.own_scale)
        flat = slope.scatter_(1, at, own).reshape(-1)
        if len(flat) <= CHUNK:
            squares = torch.dot(flat, flat)
        else:  # of which one product would lose digits
            squares = torch.stack([torch.dot(part, part) for part in flat.split(CHUNK)]).sum()
        value = _finite(torch.add(self.constant, squares, alpha=self.multiple))
        return value, slope.scatter_(1, at, own.mul_(self.own_ratio))

    def curvature(self, logits: Float[Tensor, "n c"], labels: Int64[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Return the second derivative by each logit."""
        return self.gaussians.of_rows(labels, logits)[1] * self.factor


class Counts(NamedTuple):
    """Counts or probabilities of classes, which give each logit a Gaussian of its own.

    Examples
    --------
    >>> counts = Counts.of_method(LikelihoodMethod.LAPLACE, 1.0, n_rows=1, n_classes=2, factor=1.0, dtype=torch.float32)
    >>> counts.error_sum(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]]))  # 2 + log(2 pi)
    tensor(3.8379)
    """

    method: LikelihoodMethod
    is_precision: bool  # whether that of the Gaussians is the concentration of the Gammas
    chunk: int  # rows
    factor: float
    half_factor: float
    multiple: float
    alpha_eps: Float[Tensor, ""]
    shift: Float[Tensor, ""]
    constant: Float[Tensor, ""]

    @classmethod
    def of_method(
        cls,
        method: LikelihoodMethod,
        alpha_eps: float,
        *,
        n_rows: int,
        n_classes: int,
        factor: float,
        dtype: torch.dtype,
    ) -> "Counts":
        """Return the numbers."""
        is_precision = method in (LikelihoodMethod.VARIATIONAL, LikelihoodMethod.LAPLACE)
        chunk = max(1, CHUNK * torch.get_num_threads() // n_classes)  # as much for each thread
        shift = 0.5 * factor if method is LikelihoodMethod.VARIATIONAL else 0.0
        numbers = alpha_eps, shift, factor * n_rows * n_classes * half_log_variance(1.0)
        tensors = lasting_tensors(numbers, dtype)
        return cls(method, is_precision, chunk, factor, 0.5 * factor, -1.0 / factor**2, *tensors)

    def error_sum(self, logits: Float[Tensor, "n c"], counts: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
        """Return the loss; counts that are negative or not finite are an error."""
        return _ErrorSum.apply(logits, counts, self)

    def value_and_slope(self, logits: Float[Tensor, "n c"], counts: Float[Tensor, "n c"]) -> tuple[Tensor, Tensor]:
        """Return the loss and its derivative by logits.

        In chunks of rows that stay in the cache: fresh memory costs more than what is computed in it.
        """
        if len(logits) <= self.chunk:
            total, slope = self._log_densities(logits, counts)
        else:
            slope = torch.empty_like(logits, memory_format=torch.contiguous_format)
            chunks = zip(*(part.split(self.chunk) for part in (logits, counts, slope)), strict=True)
            total = torch.stack([self._log_densities(*chunk)[0] for chunk in chunks]).sum()
        return _finite(torch.sub(self.constant, total, alpha=self.half_factor)), slope

    def _log_densities(self, logits: Tensor, counts: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r"""The sum of :math:`\log p_{nk} - p_{nk}(f_{nk} - m_{nk})^2`, and the derivative of the loss."""
        if not counts.amin().item() >= 0.0:
            raise UnusualValueError
        precision = counts + self.alpha_eps
        if self.is_precision:
            # the mean is log p - b / p, so that the derivative is p (f - log p) + b
            log_precision = precision.log()
            slope = torch.addcmul(self.shift, precision, logits - log_precision, value=self.factor, out=out)
        else:
            mean, precision, log_precision = plain_gammas(precision, self.method)
            slope = torch.mul(precision, torch.sub(logits, mean, out=mean).mul_(self.factor), out=out)
        return log_precision.addcdiv_(slope * slope, precision, value=self.multiple).sum(), slope

    def curvature(self, logits: Float[Tensor, "n c"], counts: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Return the second derivative by each logit."""
        return plain_gammas(counts + self.alpha_eps, self.method)[1] * self.factor


class BinaryLabels(NamedTuple):
    r"""The labels 0 and 1 with one precision for both: :math:`\sum_n a\,(f_n - m_0 - s y_n)^2 + b`.

    Examples
    --------
    >>> labels = BinaryLabels(torch.tensor(1.0), step=1.0, factor=2.0, constant=torch.tensor(0.5))
    >>> labels.error_sum(torch.tensor([3.0, 2.0]), torch.tensor([0.0, 1.0]))
    tensor(8.5000)
    """

    mean_0: Float[Tensor, ""]
    step: float
    factor: float
    constant: Float[Tensor, ""]

    @classmethod
    def of_gaussians(cls, gaussians: BinaryGaussians, *, n: int, is_mean: bool, dtype: torch.dtype) -> "BinaryLabels":
        """Return the numbers for the mean or sum of n losses.

        Examples
        --------
        >>> gaussians = BinaryGaussians(mean_0=0.0, precision_0=4.0, mean_1=1.0, precision_1=4.0)
        >>> BinaryLabels.of_gaussians(gaussians, n=2, is_mean=True, dtype=torch.float32).factor
        1.0
        """
        mean_0, precision, mean_1, _ = map(float, gaussians)
        factor = 1.0 / n if is_mean else 1.0
        low, constant = lasting_tensors((mean_0, n * factor * half_log_variance(precision)), dtype)
        return cls(low, mean_1 - mean_0, 0.5 * precision * factor, constant)

    def error_sum(self, logits: Float[Tensor, "*n"], labels: Float[Tensor, "*n"]) -> Float[Tensor, ""]:
        """Return the loss."""
        mean = torch.add(self.mean_0, labels, alpha=self.step)
        squares = torch._C._nn.mse_loss(logits, mean, _SUM)  # type: ignore[arg-type]
        return _finite(torch.add(self.constant, squares, alpha=self.factor))


class UnusualValueError(RuntimeError):
    """Something is negative or not finite, which has all looked at again in the general way."""


def _finite(value: Float[Tensor, ""]) -> Float[Tensor, ""]:
    if not math.isfinite(value.item()):
        raise UnusualValueError
    return value


class _ErrorSum(torch.autograd.Function):
    """A sum of squares that has its derivative by the way.

    It is given away as it is to the first backward, for most losses the only one.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, constants: ManyLabels | Counts) -> Tensor:
        value, slope = constants.value_and_slope(logits, target)
        ctx.save_for_backward(logits, target, slope)
        ctx.constants = constants
        ctx.is_given_away = False
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slope = ctx.saved_tensors
        if ctx.is_given_away:  # of a graph that was kept: who has it may have changed it
            _, slope = ctx.constants.value_and_slope(logits.detach(), target)
        if torch.is_grad_enabled():  # for the derivative of the derivative
            slope = slope + ctx.constants.curvature(logits, target) * (logits - logits.detach())
        elif _is_one(grad):
            ctx.is_given_away = True
            return slope.data, None, None  # not detached: changes to it are no changes to what is saved
        return slope * grad, None, None


def _is_one(grad: Tensor) -> bool:
    try:
        return grad.item() == 1.0
    except RuntimeError:  # within torch.vmap, where values cannot be looked at
        return False
