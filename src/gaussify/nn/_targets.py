"""The Gaussians that labels give logits, in the forms in which losses need them: mean and precision."""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.distributions import Beta, Gamma

from gaussify.likelihoods import LikelihoodMethod
from gaussify.matching import MatchMethod, match
from gaussify.nn._torch import unobserved, untraced, without_modes

Number = float | Tensor  # one for all classes, or a tensor with one for each
Result = TypeVar("Result")
_CHUNK = 2**17  # numbers, of which those of one operation after the other stay in the cache
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ...
_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


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
        other, own = _smoothed_counts(label_smoothing, n_classes)
        if method is LikelihoodMethod.GAUSS:
            return cls(other, 1.0 / label_variance, own, 1.0 / label_variance)
        if isinstance(alpha_eps, Tensor):
            return cls(*matched_gammas(alpha_eps + other, method), *matched_gammas(alpha_eps + own, method))
        n = float(n_classes) if label_smoothing else 1.0  # which does not matter then, and may not be constant
        return cls(*_label_constants(alpha_eps.hex(), label_smoothing.hex(), n.hex(), method.value))

    @property
    def are_learnt(self) -> bool:
        """Whether derivatives by them are asked for."""
        return any(isinstance(part, Tensor) and part.requires_grad for part in self)

    def log_normaliser(self, labels: Int64[Tensor, " n"], n_classes: int) -> Number:
        r"""Return :math:`\tfrac12\sum_k\log(2\pi v_{nk})`, one number for all rows or one for each."""
        other, own = half_log_variance(self.other_precision), half_log_variance(self.own_precision)
        total = other.sum() if isinstance(other, Tensor) and other.ndim else n_classes * other
        return total + of_labels(own - other, labels)

    def row_normaliser(self, n_classes: int) -> float:
        """Return the same for every row, where there are two pairs of numbers."""
        other, own = half_log_variance(float(self.other_precision)), half_log_variance(float(self.own_precision))
        return (n_classes - 1) * other + own

    def of_rows(
        self, labels: Int64[Tensor, " n"], logits: Float[Tensor, "n c"]
    ) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Return mean and precision for each logit, in operations that torch.compile makes one of with what follows."""
        is_own = labels.unsqueeze(1) == torch.arange(logits.shape[1], device=logits.device)
        other_mean, other_precision, own_mean, own_precision = (
            part if isinstance(part, Tensor) else logits.new_full((), part) for part in self
        )
        return torch.where(is_own, own_mean, other_mean), torch.where(is_own, own_precision, other_precision)


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
        return cls(*_binary_constants(alpha_eps.hex(), beta_eps.hex(), method.value))

    def of_hard(self, labels: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return mean and precision of each of labels that are 0 or 1."""
        # chosen, not interpolated: where one mean is far out, a difference of the two loses the digits of the other
        mean_0, precision_0, mean_1, precision_1 = (
            part if isinstance(part, Tensor) else labels.new_full((), part) for part in self
        )
        is_1 = labels > 0.5
        return torch.where(is_1, mean_1, mean_0), torch.where(is_1, precision_1, precision_0)


def lasting_tensors(parts: Iterable[Any], dtype: torch.dtype) -> list[Tensor]:
    """Return tensors that outlive the call, be it within inference mode, torch.func or a mode of torch's.

    Examples
    --------
    >>> lasting_tensors([1.0, [2.0, 3.0]], torch.float32)
    [tensor(1.), tensor([2., 3.])]
    """
    with unobserved():
        return [torch.from_numpy(np.array(part, _NUMPY[dtype], order="C")) for part in parts]


def of_labels(part: Number, labels: Int64[Tensor, "..."]) -> Number:
    """Return what each label has of the numbers of all classes; one number for all stays what it is.

    Labels out of range, which compiled functions do not look for, have those of any class.

    Examples
    --------
    >>> of_labels(torch.tensor([0.5, 2.0]), torch.tensor([1, 1, 0])), of_labels(3.0, torch.tensor([1, 1, 0]))
    (tensor([2.0000, 2.0000, 0.5000]), 3.0)
    """
    return part[labels.clamp(0, len(part) - 1)] if isinstance(part, Tensor) and part.ndim else part


@overload
def half_log_variance(precision: float) -> float: ...
@overload
def half_log_variance(precision: Tensor) -> Tensor: ...
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


def gamma_targets(
    concentration: Float[Tensor, "*n c"], method: LikelihoodMethod
) -> tuple[Float[Tensor, "*n c"], Float[Tensor, "*n c"], Float[Tensor, "*n"]]:
    r"""Return mean and precision of the Gaussians that stand for logarithms of Gammas of rate one, and a sum for rows.

    The sum is :math:`\tfrac12\sum_k\log 2\pi v_k`. Without derivatives, the closed forms in as few operations
    as they have; :func:`matched_gammas` otherwise.

    Examples
    --------
    >>> gamma_targets(torch.tensor([0.1, 1.1]), LikelihoodMethod.LAPLACE)
    (tensor([-2.3026,  0.0953]), tensor([0.1000, 1.1000]), tensor(2.9415))
    """
    if concentration.requires_grad:
        mean, precision = matched_gammas(concentration, method)
        return mean, precision, half_log_variance(precision).sum(-1)
    mean, precision, log_precision = _plain_gammas(concentration, method)
    return mean, precision, 0.5 * (concentration.shape[-1] * math.log(2.0 * math.pi) - log_precision.sum(-1))


def _plain_gammas(
    concentration: Float[Tensor, "*n"], method: LikelihoodMethod
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """Return mean, precision and logarithm of the precision, without derivatives.

    Examples
    --------
    >>> _plain_gammas(torch.tensor([0.1, 1.1]), LikelihoodMethod.LAPLACE)
    (tensor([-2.3026,  0.0953]), tensor([0.1000, 1.1000]), tensor([-2.3026,  0.0953]))
    """
    if method is LikelihoodMethod.MOMENT:
        mean, variance = digamma_and_trigamma(concentration)
        return mean, variance.reciprocal(), variance.log().neg_()
    log = concentration.log()
    if method is LikelihoodMethod.LAPLACE:
        return log, concentration, log
    if method is LikelihoodMethod.VARIATIONAL:
        return torch.sub(log, concentration.reciprocal(), alpha=0.5), concentration, log
    variance = concentration.reciprocal().log1p_()
    return log.sub_(variance, alpha=0.5), variance.reciprocal(), variance.log().neg_()


def digamma_and_trigamma(a: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    r"""Return :math:`\Psi(a)` and :math:`\Psi'(a)`, which torch has at thirty times the cost, by their recurrences.

    .. math:: \Psi(a) = \Psi(z) - \sum_{i<n} \frac{1}{a + i}, \quad
              \Psi'(a) = \Psi'(z) + \sum_{i<n} \frac{1}{(a + i)^2}, \quad z = a + n,

    up to where Stirling's series hold to the last digit, with Bernoulli numbers :math:`B_{2k}`:

    .. math:: \Psi(z) = \log z - \frac{1}{2z} - \sum_k \frac{B_{2k}}{2k z^{2k}}, \quad
              \Psi'(z) = \frac{1}{z} + \frac{1}{2z^2} + \sum_k \frac{B_{2k}}{z^{2k+1}}.

    Examples
    --------
    >>> digamma_and_trigamma(torch.tensor(1.0))  # minus Euler's constant, and pi^2 / 6
    (tensor(-0.5772), tensor(1.6449))
    """
    n, bernoulli = (10, _BERNOULLI) if a.dtype is torch.float64 else (4, _BERNOULLI[:4])
    digamma, trigamma = torch.zeros_like(a), torch.zeros_like(a)
    for i in range(n):
        inverse = (a + i).reciprocal()
        digamma -= inverse
        trigamma += inverse.square_()
    inverse = (a + n).reciprocal()
    square = inverse * inverse
    of_digamma, of_trigamma = torch.zeros_like(a), torch.zeros_like(a)
    for k in range(len(bernoulli), 0, -1):
        of_digamma = of_digamma.add_(bernoulli[k - 1] / (2 * k)).mul_(square)
        of_trigamma = of_trigamma.add_(bernoulli[k - 1]).mul_(square)
    digamma -= of_digamma.add_(inverse, alpha=0.5).add_(inverse.log())
    trigamma += of_trigamma.add_(1.0).mul_(inverse).add_(square, alpha=0.5)
    return digamma, trigamma


def matched_gammas(concentration: Float[Tensor, "*n"], method: LikelihoodMethod) -> tuple[Tensor, Tensor]:
    """Return mean and precision of the same Gaussians by matching.

    Examples
    --------
    >>> matched_gammas(torch.tensor([0.1, 1.1]), LikelihoodMethod.LAPLACE)
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
    matched = match(Gamma(a, b) if family == "gamma" else Beta(a, b), MatchMethod(method))
    return matched.mean, 1.0 / matched.variance


_untraced_match = untraced(_match)


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


def is_constant(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that torch.compile calls once, keeping what it returns.

    Its arguments must be constants, too; a compiler takes the digits of a number (``hex``) for one, not the number.
    """
    # what torch.compiler.assume_constant_result does after importing all of torch's compiler
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Layout(NamedTuple):
    """How the bits of a number tell which piece of a curve it is on: 32 pieces from a power of two to the next."""

    integer: torch.dtype
    n_bits: int  # at the end, which tell the place within a piece
    n_nodes: int  # of the polynomial on a piece, enough for all digits


LAYOUTS = {torch.float32: Layout(torch.int32, 23 - 5, 4), torch.float64: Layout(torch.int64, 52 - 5, 8)}


class BetaCurve(NamedTuple):
    r"""Mean, precision and its logarithm of a binary label between 0 and 1, for fixed concentrations, by polynomials.

    All three are smooth but for :math:`y = -\alpha_\epsilon` and :math:`y = 1 + \beta_\epsilon`, where one of the two
    Gammas would be empty. So pieces are short where the nearer of the two is near: with the distance
    :math:`s = \alpha_\epsilon + y` for :math:`y \le \tfrac12`, else :math:`s = \beta_\epsilon + 1 - y`, a piece is
    1/32 of the interval between two powers of two, which the bits of :math:`s` tell (of concentrations above 1/2, half
    of 1 is taken). Polynomials go through matched Gaussians at Chebyshev's nodes; before the first piece and after the
    last one there are no numbers, for labels that are none.
    """

    low_shift: float  # that makes the distance of a label up to 1/2
    high_shift: float  # and of one minus a label above
    first_low: int  # what to take from the leading bits of a distance to have the number of its piece
    first_high: int
    coefficients: Float[Tensor, "n_pieces n_nodes 4"]  # of all three, from the highest power down; a fourth is 0

    def pieces(self, labels: Float[Tensor, "*n"]) -> tuple[Int64[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return on which piece each label is, and where, from -1/2 to 1/2; on any if it is not from 0 to 1."""
        layout = LAYOUTS[labels.dtype]
        is_high = labels > 0.5
        distance = torch.where(is_high, (1.0 - labels) + self.high_shift, labels + self.low_shift)
        bits = distance.view(layout.integer)
        piece = (bits >> layout.n_bits) - torch.where(is_high, self.first_high, self.first_low)
        within = (bits & (2**layout.n_bits - 1)).to(labels.dtype) * 2.0**-layout.n_bits - 0.5
        return piece.long().clamp(0, len(self.coefficients) - 1), within

    def of_labels(self, labels: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return mean and precision of each label."""
        if not torch.compiler.is_compiling() and labels.numel() > _CHUNK:
            chunks = [self.of_labels(chunk) for chunk in labels.reshape(-1).split(_CHUNK)]
            mean, precision = (torch.cat(parts).reshape(labels.shape) for parts in zip(*chunks, strict=True))
            return mean, precision
        piece, within = self.pieces(labels)
        own = self.coefficients.to(labels.device).index_select(0, piece.reshape(-1))
        value, *rest = own.reshape(*labels.shape, *own.shape[1:]).unbind(-2)  # (*n, 4) each
        for coefficient in rest:  # Horner's scheme
            value = value * within.unsqueeze(-1) + coefficient
        mean, precision, *_ = value.unbind(-1)
        return mean, precision


def beta_curve(alpha_eps: float, beta_eps: float, method: LikelihoodMethod, dtype: torch.dtype) -> BetaCurve:
    """Return the curve, matched once for these options.

    Examples
    --------
    >>> curve = beta_curve(0.1, 0.1, LikelihoodMethod.LAPLACE, torch.float32)
    >>> curve.of_labels(torch.tensor([0.0, 1.0]))
    (tensor([-2.3979,  2.3979]), tensor([0.0917, 0.0917]))
    """
    return _curve_constant(alpha_eps.hex(), beta_eps.hex(), method.value, dtype)


@lru_cache(maxsize=16)
def _beta_curve(alpha_eps: float, beta_eps: float, method: LikelihoodMethod, dtype: torch.dtype) -> BetaCurve:
    layout = LAYOUTS[dtype]
    nodes = 0.5 * np.cos(np.pi * (np.arange(layout.n_nodes) + 0.5) / layout.n_nodes)  # within (-1/2, 1/2)
    shifts = min(alpha_eps, 0.5), min(beta_eps, 0.5)
    (first_low, low), (first_high, high) = (_distances(shift, nodes, dtype) for shift in shifts)
    near_low, near_high = low + (alpha_eps - shifts[0]), high + (beta_eps - shifts[1])
    far_low, far_high = (1.0 + shifts[0] - low) + beta_eps, (1.0 + shifts[1] - high) + alpha_eps
    a, b = lasting_tensors([np.concatenate([near_low, far_high]), np.concatenate([far_low, near_high])], torch.float64)
    with without_modes(), torch.device("cpu"):
        mean, precision = (np.array(part.tolist()) for part in beta_targets(a, b, method))  # (n_pieces, n_nodes)
    values = np.stack([mean, precision, np.log(precision), np.zeros_like(mean)], -1)
    pieces = np.pad(np.linalg.inv(np.vander(nodes)) @ values, ((1, 1), (0, 0), (0, 0)), constant_values=np.nan)
    return BetaCurve(*shifts, first_low - 1, first_high - 1 - len(low), *lasting_tensors([pieces], dtype))


def _distances(shift: float, nodes: np.ndarray, dtype: torch.dtype) -> tuple[int, np.ndarray]:
    """The leading bits of the smallest distance, that of label 0 or 1, and nodes on all pieces up to label 1/2."""
    n_bits, own = LAYOUTS[dtype].n_bits, _NUMPY[dtype]
    integer: Any = np.int32 if own is np.float32 else np.int64
    ends = (np.array([0.0, 0.5], own) + own(shift)).view(integer) >> n_bits
    pieces = np.arange(ends[0], ends[1] + 2, dtype=integer)  # one more, as the end of the last
    starts = (pieces << n_bits).view(own).astype(np.float64)
    return int(ends[0]), starts[:-1, None] + np.diff(starts)[:, None] * (nodes + 0.5)


@is_constant
def _curve_constant(alpha_eps: str, beta_eps: str, method: str, dtype: torch.dtype) -> BetaCurve:
    return _beta_curve(float.fromhex(alpha_eps), float.fromhex(beta_eps), LikelihoodMethod(method), dtype)


@is_constant
def _label_constants(alpha_eps: str, label_smoothing: str, n_classes: str, method: str) -> tuple[float, ...]:
    alpha, smoothing, n = map(float.fromhex, (alpha_eps, label_smoothing, n_classes))
    counts = _smoothed_counts(smoothing, n)
    pairs = [_fixed_gamma(alpha + count, LikelihoodMethod(method)) for count in counts]
    return *pairs[0], *pairs[1]


@is_constant
def _binary_constants(alpha_eps: str, beta_eps: str, method: str) -> tuple[float, ...]:
    alpha, beta, chosen = float.fromhex(alpha_eps), float.fromhex(beta_eps), LikelihoodMethod(method)
    return *_fixed_beta(alpha, beta + 1.0, chosen), *_fixed_beta(alpha + 1.0, beta, chosen)


def _smoothed_counts(label_smoothing: float, n_classes: int | float) -> tuple[float, float]:
    """Of another class than the label's, and of its own."""
    spread = label_smoothing / n_classes if label_smoothing else 0.0
    return spread, 1.0 - label_smoothing + spread


@lru_cache
def _fixed_gamma(concentration: float, method: LikelihoodMethod) -> tuple[float, float]:
    with without_modes(), torch.device("cpu"):
        mean, precision = matched_gammas(torch.tensor(concentration, dtype=torch.float64), method)
        return mean.item(), precision.item()


@lru_cache
def _fixed_beta(alpha: float, beta: float, method: LikelihoodMethod) -> tuple[float, float]:
    with without_modes(), torch.device("cpu"):
        a, b = torch.tensor([alpha, beta], dtype=torch.float64)
        mean, precision = beta_targets(a, b, method)
        return mean.item(), precision.item()
