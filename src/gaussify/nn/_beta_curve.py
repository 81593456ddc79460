"""Gaussians of binary labels between 0 and 1. They have no closed form, so polynomials interpolate matched ones."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify.likelihoods import LikelihoodMethod
from gaussify.nn._gaussians import Gaussians, compile_time, logit_beta_gaussian, without_modes


class Layout(NamedTuple):
    """The bits of a number that give its piece of a curve. There are 32 pieces between two powers of two."""

    floating: Any  # NumPy dtype of the numbers
    integer: Any  # NumPy dtype of their bits
    n_bits: int  # number of trailing bits, which give the place within a piece
    n_nodes: int  # nodes of the polynomial on a piece, enough for full precision


LAYOUTS = {
    torch.float32: Layout(np.float32, np.int32, 23 - 5, 4),
    torch.float64: Layout(np.float64, np.int64, 52 - 5, 8),
}
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


class BetaCurve(NamedTuple):
    r"""Mean and variance of a binary label between 0 and 1, for fixed concentrations, by polynomials.

    Both are smooth in :math:`y`, except at the two points :math:`-\alpha_\epsilon` and :math:`1 + \beta_\epsilon`,
    where a concentration of the Beta would be zero. Pieces are therefore short near these points. The distance to the
    nearer one is :math:`s = \alpha_\epsilon + y` for :math:`y \le \tfrac12`, otherwise
    :math:`s = \beta_\epsilon + 1 - y`. A piece is 1/32 of the interval between two powers of two, so the bits of
    :math:`s` give its index. Concentrations above 1/2 count as 1/2 in the distance, because the curve is smooth enough
    there. The polynomial of a piece interpolates matched Gaussians at Chebyshev nodes. It is NaN before the first piece
    and after the last one, so numbers that are not labels have no loss.
    """

    low_shift: float  # added to a label up to 1/2 to give its distance
    high_shift: float  # added to one minus a label above 1/2 to give its distance
    has_one_shift: bool  # whether both are equal: within torch.compile the numbers cannot be compared
    first_low: int  # subtracted from the leading bits of a distance to give the index of its piece
    first_high: int  # the same for labels above 1/2
    coefficients: Float[Tensor, "two_n_nodes n_pieces"]  # of mean and variance in turn, highest power first

    def pieces(self, labels: Float[Tensor, "*n"]) -> tuple[Int64[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return the index of each label's piece and its place there, from -1/2 to 1/2.

        Numbers far outside of [0, 1] get the first or the last piece, whose polynomials are NaN.
        """
        n_bits = LAYOUTS[labels.dtype].n_bits
        is_high = labels.clamp(0.0, 1.0).round_()  # 0 or 1: numbers, because torch.where takes ten times as long
        ends = labels - is_high
        shift: float | Tensor = self.low_shift
        if not self.has_one_shift:
            shift = torch.rsub(is_high, 1.0).mul_(shift).add_(is_high * self.high_shift)
        distance = torch.addcmul(ends, ends, is_high, value=-2.0).add_(shift)  # y or 1 - y, without rounding, and shift
        bits = distance.view(_INTEGERS[labels.dtype])
        first = is_high.to(bits.dtype) * (self.first_high - self.first_low) + self.first_low
        piece = ((bits >> n_bits) - first).clamp(0, self.coefficients.size(-1) - 1)
        within = (bits & (2**n_bits - 1)).to(labels.dtype).mul_(2.0**-n_bits).sub_(0.5)
        return piece.long(), within

    def of_labels(self, labels: Float[Tensor, "*n"]) -> Gaussians:
        """Return the Gaussian of each label."""
        piece, within = self.pieces(labels)
        rows = self.coefficients.to(within.device).index_select(1, piece.reshape(-1))
        parts = [row.reshape(within.shape) for row in rows]
        mean, variance = _horner(parts[0::2], within), _horner(parts[1::2], within)
        return Gaussians(mean, variance, variance.log())


def _horner(coefficients: list[Tensor], at: Tensor) -> Tensor:
    """Return the values of polynomials, given the coefficients with the highest power first."""
    value, *rest = coefficients
    for coefficient in rest:
        value = torch.addcmul(coefficient, value, at)
    return value


def beta_curve(alpha_eps: float, beta_eps: float, method: LikelihoodMethod, dtype: torch.dtype) -> BetaCurve:
    """Return the curve of these options, which is fitted only once.

    Examples
    --------
    >>> curve = beta_curve(0.1, 0.1, LikelihoodMethod.LAPLACE, torch.float32)
    >>> curve.of_labels(torch.tensor([0.0, 1.0])).mean
    tensor([-2.3979,  2.3979])
    """
    return _constant_curve(alpha_eps.hex(), beta_eps.hex(), method.value, dtype)


@compile_time
def _constant_curve(alpha_eps: str, beta_eps: str, method: str, dtype: torch.dtype) -> BetaCurve:
    start, coefficients = _fit(float.fromhex(alpha_eps), float.fromhex(beta_eps), LikelihoodMethod(method), dtype)
    return BetaCurve(*start, torch.from_numpy(coefficients))


@lru_cache(maxsize=16)
def _fit(
    alpha_eps: float, beta_eps: float, method: LikelihoodMethod, dtype: torch.dtype
) -> tuple[tuple[float, float, bool, int, int], np.ndarray]:
    """Return the parts of a curve. Coefficients are NumPy arrays, because no mode or transform of torch wraps those."""
    layout = LAYOUTS[dtype]
    nodes = 0.5 * np.cos(np.pi * (np.arange(layout.n_nodes) + 0.5) / layout.n_nodes)  # within (-1/2, 1/2)
    shifts = min(alpha_eps, 0.5), min(beta_eps, 0.5)
    (first_low, low), (first_high, high) = (_distances(shift, nodes, layout) for shift in shifts)
    near_low, near_high = low + (alpha_eps - shifts[0]), high + (beta_eps - shifts[1])
    far_low, far_high = (1.0 + shifts[0] - low) + beta_eps, (1.0 + shifts[1] - high) + alpha_eps
    with without_modes():
        concentrations = np.concatenate([near_low, far_high]), np.concatenate([far_low, near_high])
        alpha, beta = (torch.tensor(part.tolist(), dtype=torch.float64) for part in concentrations)
        gaussians = [part.tolist() for part in logit_beta_gaussian(alpha, beta, method)]
    values = np.array(gaussians)[..., None]  # (2, n_pieces, n_nodes, 1)
    pieces = (np.linalg.inv(np.vander(nodes)) @ values)[..., 0]
    padded = np.pad(pieces, ((0, 0), (1, 1), (0, 0)), constant_values=np.nan)
    coefficients = np.ascontiguousarray(padded.transpose(2, 0, 1).reshape(2 * layout.n_nodes, -1), layout.floating)
    return (*shifts, shifts[0] == shifts[1], first_low - 1, first_high - 1 - len(low)), coefficients


def _distances(shift: float, nodes: np.ndarray, layout: Layout) -> tuple[int, np.ndarray]:
    """Return the leading bits of the smallest distance (label 0 or 1), and the nodes of all pieces up to label 1/2."""
    ends = (np.array([0.0, 0.5], layout.floating) + layout.floating(shift)).view(layout.integer) >> layout.n_bits
    pieces = np.arange(ends[0], ends[1] + 2, dtype=layout.integer)  # the extra one is the end of the last piece
    starts = (pieces << layout.n_bits).view(layout.floating).astype(np.float64)
    return int(ends[0]), starts[:-1, None] + np.diff(starts)[:, None] * (nodes + 0.5)
