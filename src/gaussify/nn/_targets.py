"""The Gaussians that labels give logits, in the forms in which losses need them: mean and precision."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.distributions import Beta, Gamma

from gaussify.likelihoods import LikelihoodMethod
from gaussify.matching import match

Number = float | Tensor  # one for all classes, or a tensor with one for each


class LabelGaussians(NamedTuple):
    """What a label gives the logit of its own class, and those of the others.

    Two pairs of numbers, or of vectors with an entry for each class, stand for the table of all classes, which would
    not fit into memory for a vocabulary.

    Examples
    --------
    >>> LabelGaussians.of_smoothed(LikelihoodMethod.LAPLACE, 0.1, n_classes=3)
    LabelGaussians(other_mean=-2.3026, other_precision=0.1, own_mean=0.0953, own_precision=1.1)
    """

    other_mean: Number
    other_precision: Number
    own_mean: Number
    own_precision: Number

    @classmethod
    def of_smoothed(
        cls,
        method: LikelihoodMethod,
        alpha_eps: Number,
        *,
        n_classes: int,
        label_smoothing: float = 0.0,
        label_variance: float = 1.0,
    ) -> "LabelGaussians":
        """Return the Gaussians of class indices; smoothing spreads a part of each label evenly over all classes."""
        spread = label_smoothing / n_classes
        other, own = spread, 1.0 - label_smoothing + spread  # counts
        if method is LikelihoodMethod.GAUSS:
            return cls(other, 1.0 / label_variance, own, 1.0 / label_variance)
        if not isinstance(alpha_eps, Tensor):
            return cls(*_fixed_gamma_targets(alpha_eps + other, method), *_fixed_gamma_targets(alpha_eps + own, method))
        return cls(*gamma_targets(alpha_eps + other, method), *gamma_targets(alpha_eps + own, method))

    @property
    def are_learnt(self) -> bool:
        """Whether derivatives by them are asked for."""
        return any(isinstance(part, Tensor) and part.requires_grad for part in self)

    def log_normaliser(self, labels: Int64[Tensor, " n"], n_classes: int) -> Number:
        r"""Return :math:`\tfrac12\sum_k\log(2\pi v_{nk})`, one number for all rows or one for each."""
        other, own = half_log_variance(self.other_precision), half_log_variance(self.own_precision)
        total = other.sum() if isinstance(other, Tensor) and other.ndim else n_classes * other
        return total + of_labels(own - other, labels)


class BinaryGaussians(NamedTuple):
    """What the labels 0 and 1 give the logit of class 1.

    Examples
    --------
    >>> BinaryGaussians.of_labels(LikelihoodMethod.LAPLACE, 0.1, 0.1)
    BinaryGaussians(mean_0=-2.3979, precision_0=0.0917, mean_1=2.3979, precision_1=0.0917)
    """

    mean_0: Number
    precision_0: Number
    mean_1: Number
    precision_1: Number

    @classmethod
    def of_labels(cls, method: LikelihoodMethod, alpha_eps: Number, beta_eps: Number) -> "BinaryGaussians":
        """Return the Gaussians by matching."""
        if isinstance(alpha_eps, Tensor) or isinstance(beta_eps, Tensor):
            alpha, beta = torch.as_tensor(alpha_eps), torch.as_tensor(beta_eps)
            return cls(*beta_targets(alpha, beta + 1.0, method), *beta_targets(alpha + 1.0, beta, method))
        of_0 = _fixed_beta_targets(alpha_eps, beta_eps + 1.0, method)
        return cls(*of_0, *_fixed_beta_targets(alpha_eps + 1.0, beta_eps, method))


def of_labels(part: Number, labels: Int64[Tensor, "..."]) -> Number:
    """Return what each label has of the numbers of all classes; one number for all stays what it is."""
    return part[labels] if isinstance(part, Tensor) and part.ndim else part


def half_log_variance(precision: Number) -> Number:
    r"""Return :math:`\tfrac12\log 2\pi v`.

    Examples
    --------
    >>> half_log_variance(2.0 * math.pi)
    0.0
    """
    if isinstance(precision, Tensor):
        return 0.5 * (math.log(2.0 * math.pi) - precision.log())
    return 0.5 * math.log(2.0 * math.pi / precision)


def gamma_targets(concentration: Float[Tensor, "*n"], method: LikelihoodMethod) -> tuple[Tensor, Tensor]:
    """Return mean and precision of the Gaussians that stand for the logarithms of Gamma variables of rate one.

    Examples
    --------
    >>> gamma_targets(torch.tensor([0.1, 1.1]), LikelihoodMethod.LAPLACE)
    (tensor([-2.3026,  0.0953]), tensor([0.1000, 1.1000]))
    """
    return _targets(concentration, torch.ones_like(concentration), "gamma", method)


def beta_targets(
    alpha: Float[Tensor, "*n"], beta: Float[Tensor, "*n"], method: LikelihoodMethod
) -> tuple[Tensor, Tensor]:
    """Return mean and precision of the Gaussians that stand for the logits of Beta variables.

    Examples
    --------
    >>> beta_targets(torch.tensor([0.1, 1.1]), torch.tensor([1.1, 0.1]), LikelihoodMethod.LAPLACE)
    (tensor([-2.3979,  2.3979]), tensor([0.0917, 0.0917]))
    """
    alpha, beta = torch.broadcast_tensors(alpha, beta)
    return _targets(alpha, beta, "beta", method)


def _targets(a: Tensor, b: Tensor, family: str, method: LikelihoodMethod) -> tuple[Tensor, Tensor]:
    if a.requires_grad or b.requires_grad:
        use = _untraced_match if torch.compiler.is_compiling() else _match
        return use(a, b, family, method.value)
    mean, precision = _opaque(a, b, family, method.value)
    return mean, precision


# Matching looks at values, which neither torch.compile nor torch.vmap can: to them it is one operation.
@torch.library.custom_op("gaussify::targets", mutates_args=())
def _opaque(a: Tensor, b: Tensor, family: str, method: str) -> tuple[Tensor, Tensor]:
    """Mean and precision for Gamma(a, b) or Beta(a, b)."""
    if (family, method) != ("beta", "variational"):
        return _match(a, b, family, method)
    # which iterates, and labels have few different values, as a rule, that tell both concentrations
    values, place = a.reshape(-1).unique(return_inverse=True)
    others = torch.empty_like(values).scatter_(0, place, b.reshape(-1))
    if not torch.equal(others[place], b.reshape(-1)):
        return _match(a, b, family, method)
    mean, precision = _match(values, others, family, method)
    return mean[place].reshape(a.shape), precision[place].reshape(a.shape)


def _match(a: Tensor, b: Tensor, family: str, method: str) -> tuple[Tensor, Tensor]:
    matched = match(Gamma(a, b) if family == "gamma" else Beta(a, b), method)
    return matched.mean, 1.0 / matched.variance


# torch.compiler.disable would import all of torch's compiler at once, for seconds; this does when it is called
_untraced_match = _disable_dynamo(_match)


@_opaque.register_fake
def _(a: Tensor, b: Tensor, family: str, method: str) -> tuple[Tensor, Tensor]:
    return torch.empty_like(a), torch.empty_like(a)


@_opaque.register_vmap
def _(
    info: Any, in_dims: Any, a: Tensor, b: Tensor, family: str, method: str
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    parts = (
        part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
        for part, dim in zip((a, b), in_dims[:2], strict=True)
    )
    return _opaque(*torch.broadcast_tensors(*parts), family, method), (0, 0)


@lru_cache
def _fixed_gamma_targets(concentration: float, method: LikelihoodMethod) -> tuple[float, float]:
    mean, precision = gamma_targets(torch.tensor(concentration, dtype=torch.float64), method)
    return mean.item(), precision.item()


@lru_cache
def _fixed_beta_targets(alpha: float, beta: float, method: LikelihoodMethod) -> tuple[float, float]:
    a, b = torch.tensor([alpha, beta], dtype=torch.float64)
    mean, precision = beta_targets(a, b, method)
    return mean.item(), precision.item()
