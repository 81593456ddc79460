"""Mean and variance of the Gaussians that stand for class indices, counts and binary labels."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar, cast, overload

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.distributions import Beta

from gaussify._numerics._special import is_constant
from gaussify.likelihoods import LikelihoodMethod, LogisticLikelihood, SoftmaxLikelihood
from gaussify.matching import MatchMethod, match
from gaussify.matching._gamma import match_log_gamma

try:  # torch.compiler.disable imports all of torch's compiler at once, which takes seconds; this waits for a call
    from torch._compile import _disable_dynamo as _untraced
except ImportError:
    _untraced = torch.compiler.disable

try:  # torch does not promise to keep this name
    from torch._C import _len_torch_dispatch_stack
except ImportError:

    def _len_torch_dispatch_stack() -> int:
        return 0


Number = float | Tensor  # a Python number, or a tensor: one for all classes, or one for each
_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Gaussians(NamedTuple):
    """One Gaussian for each logit."""

    mean: Tensor
    variance: Number
    log_variance: Number


class LabelGaussians(NamedTuple):
    """The Gaussians that a class index gives the logit of its own class and the logits of the other classes.

    Two pairs of numbers, or of vectors with an entry per class, replace the target table of all classes. For a large
    vocabulary that table would not fit into memory.

    Examples
    --------
    >>> LabelGaussians.of(LikelihoodMethod.LAPLACE, 0.1, 3)
    LabelGaussians(other_mean=-2.3026, other_variance=10.0, own_mean=0.0953, own_variance=0.9091)
    """

    other_mean: Number
    other_variance: Number
    own_mean: Number
    own_variance: Number

    @classmethod
    def of(
        cls,
        method: LikelihoodMethod,
        alpha_eps: Number,
        n_classes: int,
        label_smoothing: float = 0.0,
        label_variance: Number = 1.0,
    ) -> "LabelGaussians":
        """Return the Gaussians of class indices. Smoothing spreads a part of each label evenly over all classes."""
        if method is LikelihoodMethod.GAUSS:
            other, own = _smoothed_counts(label_smoothing, n_classes)
            return cls(other, label_variance, own, label_variance)
        if isinstance(alpha_eps, float):
            # without smoothing the number of classes is not needed, and within torch.compile it may be symbolic
            n = float(n_classes) if label_smoothing else 1.0
            return cls(*_softmax_table(alpha_eps.hex(), label_smoothing.hex(), n.hex(), method.value))
        pairs = [
            match_log_gamma(alpha_eps + count, method)[:2] for count in _smoothed_counts(label_smoothing, n_classes)
        ]
        return cls(*pairs[0], *pairs[1])

    @property
    def are_vectors(self) -> bool:
        """Return whether some part is a vector with a number for each class."""
        return any([isinstance(part, Tensor) and part.ndim > 0 for part in self])

    def of_logits(self, labels: Int64[Tensor, "n ..."], logits: Float[Tensor, "n c ..."]) -> tuple[Tensor, Tensor]:
        """Return mean and variance for each logit. ``torch.compile`` fuses this with the squares that follow."""
        classes = torch.arange(logits.shape[1], device=logits.device).reshape(-1, *[1] * (logits.ndim - 2))
        is_own = labels.unsqueeze(1) == classes
        other_mean, other_variance, own_mean, own_variance = (
            _as_tensor(along_classes(part, logits), logits) for part in self
        )
        return torch.where(is_own, own_mean, other_mean), torch.where(is_own, own_variance, other_variance)

    def normaliser(self, labels: Int64[Tensor, "n ..."], n_classes: int) -> Number:
        r"""Return :math:`\tfrac12\sum_k\log(2\pi v_{nk})`: one number for all rows, or one for each."""
        other, own = half_log(self.other_variance), half_log(self.own_variance)
        total = other.sum() if isinstance(other, Tensor) and other.ndim else n_classes * other
        return total + of_labels(own - other, labels)

    def row_normaliser(self, n_classes: int) -> float:
        """Return ``normaliser`` as a float, for Gaussians that are two pairs of numbers."""
        other, own = half_log(float(self.other_variance)), half_log(float(self.own_variance))
        return (n_classes - 1) * other + own


class BinaryGaussians(NamedTuple):
    """The Gaussians that the labels 0 and 1 give the logit of class 1.

    Examples
    --------
    >>> BinaryGaussians.of(LikelihoodMethod.LAPLACE, 0.1, 0.1)
    BinaryGaussians(mean_0=-2.3979, variance_0=10.9091, mean_1=2.3979, variance_1=10.9091)
    """

    mean_0: Number
    variance_0: Number
    mean_1: Number
    variance_1: Number

    @classmethod
    def of(cls, method: LikelihoodMethod, alpha_eps: Number, beta_eps: Number) -> "BinaryGaussians":
        """Return the Gaussians of binary labels by matching."""
        if isinstance(alpha_eps, Tensor) or isinstance(beta_eps, Tensor):
            like = next(part for part in (alpha_eps, beta_eps) if isinstance(part, Tensor))
            alpha, beta = _as_tensor(alpha_eps, like), _as_tensor(beta_eps, like)
            return cls(*logit_beta_gaussian(alpha, beta + 1.0, method), *logit_beta_gaussian(alpha + 1.0, beta, method))
        return cls(*_logistic_table(alpha_eps.hex(), beta_eps.hex(), method.value))

    def of_hard(self, labels: Float[Tensor, "*n"]) -> Gaussians:
        """Return the Gaussians of labels that are all 0 or 1."""
        mean = _at_labels(labels, self.mean_0, self.mean_1)
        if isinstance(self.variance_0, float) and self.variance_0 == self.variance_1:
            return Gaussians(mean, self.variance_0, math.log(self.variance_0))
        variance = _at_labels(labels, self.variance_0, self.variance_1)
        return Gaussians(mean, variance, variance.log())


def count_gaussians(
    counts: Float[Tensor, "n c ..."], method: LikelihoodMethod, alpha_eps: Number, label_variance: Number
) -> Gaussians:
    """Return the Gaussian of each logit for counts or probabilities of classes.

    Examples
    --------
    >>> count_gaussians(torch.tensor([[0.0, 1.0]]), LikelihoodMethod.LAPLACE, 0.1, 1.0).mean
    tensor([[-2.3026,  0.0953]])
    """
    if method is LikelihoodMethod.GAUSS:
        total = counts.sum(1, keepdim=True)
        variance = label_variance / total
        return Gaussians(counts / total, variance, variance.log().expand_as(counts))
    return Gaussians(*match_log_gamma(along_classes(alpha_eps, counts) + counts, method))


def logit_beta_gaussian(
    alpha: Float[Tensor, "*n"], beta: Float[Tensor, "*n"], method: LikelihoodMethod
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the Gaussians that stand for the logits of Beta variables.

    Examples
    --------
    >>> logit_beta_gaussian(torch.tensor([0.1, 1.1]), torch.tensor([1.1, 0.1]), LikelihoodMethod.LAPLACE)
    (tensor([-2.3979,  2.3979]), tensor([10.9091, 10.9091]))
    """
    alpha, beta = torch.broadcast_tensors(alpha, beta)
    return (_untraced_match if torch.compiler.is_compiling() else _match_beta)(alpha, beta, method.value)


def of_labels(part: Number, labels: Int64[Tensor, "..."]) -> Number:
    """Return the number of each label's class. A single number for all classes is returned unchanged.

    Examples
    --------
    >>> of_labels(torch.tensor([0.5, 2.0]), torch.tensor([1, 1, 0])), of_labels(3.0, torch.tensor([1, 1, 0]))
    (tensor([2.0000, 2.0000, 0.5000]), 3.0)
    """
    return part[labels] if isinstance(part, Tensor) and part.ndim else part


@overload
def half_log(variance: float) -> float: ...
@overload
def half_log(variance: Tensor) -> Tensor: ...
def half_log(variance: Number) -> Number:
    r"""Return :math:`\tfrac12\log 2\pi v`.

    Examples
    --------
    >>> half_log(0.5 / math.pi)
    0.0
    """
    if isinstance(variance, Tensor):
        return 0.5 * (math.log(2.0 * math.pi) + variance.log())
    return 0.5 * math.log(2.0 * math.pi * variance)


def is_learnt(*parts: Number) -> bool:
    """Return whether derivatives by any of the numbers are needed.

    Examples
    --------
    >>> is_learnt(0.1, torch.ones(3))
    False
    """
    return not is_constant(*[part for part in parts if isinstance(part, Tensor)])


def compile_time(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return the function, marked so that ``torch.compile`` calls it while tracing and keeps the result as a constant.

    Arguments must be constants, too. The compiler treats a string such as ``number.hex()`` as one, but not a float.
    """
    # torch.compiler.assume_constant_result does the same, but imports all of torch's compiler first
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def remembered(function: _Function) -> _Function:
    """Return the function with a cache of its results, for options that are strings and numbers but not tensors.

    For a small batch, checking the options again would take longer than the loss. ``torch.compile`` traces the function
    without the cache.
    """
    known = lru_cache(maxsize=2**10, typed=True)(function)

    @wraps(function)
    def look_up(*options: Any, **names: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*options, **names)
        try:
            return known(*options, **names)
        except TypeError:  # an option has no hash
            return function(*options, **names)

    return cast(_Function, look_up)


def is_traced() -> bool:
    """Return whether ``torch.compile`` or ``torch.jit.trace`` records a graph, which must not depend on values."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]


def is_recorded() -> bool:
    """Return whether a mode of torch records or fakes calls, as ``make_fx`` and ``FakeTensorMode`` do."""
    return _len_torch_dispatch_stack() > 0


@contextmanager
def without_modes() -> Iterator[None]:
    """Return a context in which tensors are plain, so that they can be kept after the call.

    Within ``torch.export`` tensors would have no numbers, within ``torch.func.grad`` they would be wrapped, and within
    ``torch.inference_mode`` no later call could differentiate through them.
    """
    with ExitStack() as stack:
        with suppress(ImportError):  # torch does not promise to keep these names
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())
        with suppress(ImportError):
            from torch._C import _DisableFuncTorch

            stack.enter_context(_DisableFuncTorch())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.device("cpu"))
        yield


def along_classes(part: Number, logits: Float[Tensor, "n c ..."]) -> Number:
    """Return a vector over classes, reshaped to broadcast to the logits. A single number is returned unchanged.

    Examples
    --------
    >>> along_classes(torch.ones(3), torch.zeros(5, 3, 2)).shape
    torch.Size([3, 1])
    """
    if isinstance(part, Tensor) and part.ndim and logits.ndim > 2:
        return part.reshape(-1, *[1] * (logits.ndim - 2))
    return part


def _as_tensor(part: Number, logits: Tensor) -> Tensor:
    return part if isinstance(part, Tensor) else logits.new_full((), part)


def _at_labels(labels: Tensor, at_0: Number, at_1: Number) -> Tensor:
    """Return one of two numbers for each label, which is 0 or 1."""
    if isinstance(at_0, Tensor) or isinstance(at_1, Tensor):
        return torch.where(labels > 0.5, _as_tensor(at_1, labels), _as_tensor(at_0, labels))
    if abs(at_0) <= abs(at_1):  # adding to the smaller number keeps its digits
        return (labels * (at_1 - at_0)).add_(at_0)
    return torch.rsub(labels, 1.0).mul_(at_0 - at_1).add_(at_1)


def _smoothed_counts(label_smoothing: float, n_classes: int | float) -> tuple[float, float]:
    """Return the counts that a smoothed label gives every other class and its own class."""
    spread = label_smoothing / n_classes if label_smoothing else 0.0
    return spread, 1.0 - label_smoothing + spread


@compile_time
def _softmax_table(alpha_eps: str, label_smoothing: str, n_classes: str, method: str) -> tuple[float, ...]:
    return _fixed_softmax_table(*map(float.fromhex, (alpha_eps, label_smoothing, n_classes)), method)


@compile_time
def _logistic_table(alpha_eps: str, beta_eps: str, method: str) -> tuple[float, ...]:
    return _fixed_logistic_table(*map(float.fromhex, (alpha_eps, beta_eps)), method)


@lru_cache
def _fixed_softmax_table(alpha_eps: float, label_smoothing: float, n_classes: float, method: str) -> tuple[float, ...]:
    """Return mean and variance of any other class, and of the label's class. Two classes are enough to find both."""
    with without_modes():
        counts = torch.tensor(_smoothed_counts(label_smoothing, n_classes), dtype=torch.float64)
        likelihood = SoftmaxLikelihood(2, alpha_eps, LikelihoodMethod(method))
        mean, variance = likelihood.encode(counts.unsqueeze(1).expand(2, 2))
        return mean[0, 0].item(), variance[0, 0].item(), mean[1, 0].item(), variance[1, 0].item()


@lru_cache
def _fixed_logistic_table(alpha_eps: float, beta_eps: float, method: str) -> tuple[float, ...]:
    """Return mean and variance of label 0, and of label 1."""
    with without_modes():
        alpha, beta = torch.tensor([alpha_eps, beta_eps], dtype=torch.float64)
        mean, variance = LogisticLikelihood(alpha, beta, LikelihoodMethod(method)).target_table()
        return mean[0].item(), variance[0].item(), mean[1].item(), variance[1].item()


def _match_beta(alpha: Tensor, beta: Tensor, method: str) -> tuple[Tensor, Tensor]:
    matched = match(Beta(alpha, beta, validate_args=False), MatchMethod(method))
    return matched.mean, matched.variance


_untraced_match = _untraced(_match_beta)
