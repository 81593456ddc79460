"""The scale of the prior with the largest evidence, from class statistics alone."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify.likelihoods import PseudoTargets
from gaussify.posterior._gaussian import NaturalParameters, latent_chunks, natural_parameters
from gaussify.posterior._statistics import ClassStatistics

_STEP = math.log(10.0) / 8.0  # of the grid of logarithms of scales


class PriorScale(NamedTuple):
    """The factor of prior variances with the largest evidence (times its prior, if it has one), and that evidence.

    Examples
    --------
    >>> PriorScale(scale=2.0, log_evidence=-10.0).scale
    2.0
    """

    scale: float
    log_evidence: float


def best_prior_scale(
    statistics: ClassStatistics,
    table: PseudoTargets,
    shape: Float[Tensor, " d"],
    free: Bool[Tensor, " d"],
    latents: Int[Tensor, " k"] | None = None,
    *,
    free_noise: bool = False,
    centre: float = 1.0,
    spread: float = math.inf,
    within: tuple[float, float] = (1e-8, 1e8),
) -> PriorScale:
    r"""Return the factor :math:`\tau` of the ``free`` entries of the prior variances ``shape`` with most evidence.

    The other entries, such as that of an intercept, stay fixed, and their weights are integrated out. Let C be the
    Schur complement of the observations' precision that remains, b that of the linear term, :math:`s^2` the free
    entries of ``shape``, :math:`s C s = U\,\mathrm{diag}(e)\,U^\top` and :math:`z = U^\top s b`. The evidence of a
    latent is

    .. math:: \log Z(\tau) = \text{constant} + \tfrac12\sum_j\left[\frac{\tau z_j^2}{1 + \tau e_j} -
        \log(1 + \tau e_j)\right].

    So after one decomposition, each :math:`\tau` costs d operations. The maximum is found on a fine grid, and refined
    as a root of the derivative. A log-normal prior of :math:`\tau` can be added: few rows, or rows that were
    chosen, leave the evidence nearly flat.

    With ``free_noise``, all variances (of targets and prior) are also multiplied by :math:`\varphi`, whose best value
    is known for each :math:`\tau`. With N the total weight of observations and q their weighted sum of squares
    :math:`y^2 / v`, less the part that fixed weights explain,

    .. math:: \varphi = \frac1N\Big(q - \sum_j\frac{\tau z_j^2}{1 + \tau e_j}\Big), \qquad
        \log Z(\tau) = \text{constant} - \tfrac N2\log\varphi - \tfrac12\sum_j\log(1 + \tau e_j).

    Parameters
    ----------
    statistics, table
        Class statistics and target table, as for ``natural_parameters``.
    shape : tensor of shape (d,)
        Prior variances, up to the factor.
    free : tensor of bool of shape (d,)
        True for the variances that the factor multiplies.
    latents : tensor of int, optional
        Indices of the latents whose evidence is summed; all by default.
    free_noise : bool
        If true, a common factor of all variances (those that are not free included) is chosen as well.
    centre, spread : float
        Median of a log-normal prior of :math:`\tau`, and the standard deviation of :math:`\log\tau`; infinite for no
        prior.
    within : pair of float
        Smallest and largest factor.

    Examples
    --------
    >>> statistics = ClassStatistics.from_rows(torch.tensor([[-1.0], [1.0]]).double().repeat(50, 1), [0, 1] * 50)
    >>> table = PseudoTargets(torch.tensor([[-3.0], [3.0]]).double(), torch.ones(2, 1).double())
    >>> best_prior_scale(statistics, table, torch.ones(1).double(), torch.tensor([True])).scale  # weight 3, error 1/10
    8.99
    """
    chosen = torch.arange(table.mean.shape[1]) if latents is None else latents
    total_gram = statistics.gram.sum(0)
    rest, explained, spectra, loads = 0.0, 0.0, [], []
    for part in latent_chunks(len(chosen), statistics.n_features):
        index = chosen[part].to(table.mean.device)
        natural = natural_parameters(statistics, table, index, total_gram=total_gram)
        normaliser, by_others, spectrum, load = _decompose(natural, shape, free)
        rest, explained = rest + normaliser, explained + by_others
        spectra.append(spectrum)
        loads.append(load)
    e, z2 = np.concatenate(spectra), np.concatenate(loads)
    squares = (table.mean.square() / table.variance)[:, chosen].to(statistics.count).sum(-1)
    constant = rest + 0.5 * float(statistics.count @ squares)  # normalising constants alone, without the squares
    left, n_observations = float(statistics.count @ squares) - explained, float(statistics.count.sum()) * len(chosen)

    def noise(scale: np.ndarray) -> np.ndarray:  # of scales (s,)
        if not free_noise or n_observations <= 0.0:
            return np.ones_like(scale)
        residual = left - (scale[:, None] * z2 / (1.0 + scale[:, None] * e)).sum(-1)
        return np.maximum(residual, 1e-12 * left + np.finfo(float).tiny) / n_observations

    def log_evidence(log_scale: np.ndarray) -> np.ndarray:
        scale = np.exp(log_scale)
        te = scale[:, None] * e
        residual = left - (scale[:, None] * z2 / (1.0 + te)).sum(-1)
        factor = noise(scale)
        fit = constant - 0.5 * (n_observations * np.log(factor) + residual / factor + np.log1p(te).sum(-1))
        return fit - 0.5 * ((log_scale - math.log(centre)) / spread) ** 2

    def slope(log_scale: float) -> float:
        scale = np.exp(log_scale)
        factor = float(noise(np.array([scale]))[0])
        fit = 0.5 * float((scale * (z2 / factor / (1.0 + scale * e) ** 2 - e / (1.0 + scale * e))).sum())
        return fit - (log_scale - math.log(centre)) / spread**2

    first, last = np.log(within)
    log_scales = np.linspace(first, last, 1 + max(1, round((last - first) / _STEP)))
    top = int(np.argmax(log_evidence(log_scales)))
    best = log_scales[top]
    if 0 < top < len(log_scales) - 1:
        low, high = log_scales[top - 1], log_scales[top + 1]
        if slope(low) > 0.0 > slope(high):
            best = brentq(slope, low, high, xtol=1e-12, rtol=1e-14)
    return PriorScale(float(np.exp(best)), float(log_evidence(np.array([best]))[0]))


def _decompose(natural: NaturalParameters, shape: Tensor, free: Tensor) -> tuple[float, float, np.ndarray, np.ndarray]:
    r"""Return the parts of the evidence of some latents: two sums that do not depend on :math:`\tau`, and all e and z².

    The sums are the constant, with fixed weights integrated out, and twice the evidence that fixed weights explain.
    """
    A, b = natural.precision, natural.linear
    A_ff, A_fg, A_gg = A[:, free][:, :, free], A[:, free][:, :, ~free], A[:, ~free][:, :, ~free]
    b_f, b_g = b[:, free], b[:, ~free]
    rest, explained = natural.constant.sum(), torch.zeros(())
    if not bool(free.all()):
        L = stable_cholesky(A_gg + torch.diag(1.0 / shape[~free]))
        V = torch.linalg.solve_triangular(L, A_fg.mT, upper=False)  # (l, g, f)
        u = torch.linalg.solve_triangular(L, b_g[..., None], upper=False)  # (l, g, 1)
        A_ff, b_f = A_ff - V.mT @ V, b_f - (V.mT @ u)[..., 0]
        log_det = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum() + len(b) * shape[~free].log().sum()
        rest, explained = rest - 0.5 * log_det, u.square().sum()
    scale = shape[free].sqrt()
    e, U = torch.linalg.eigh(scale[:, None] * A_ff * scale)
    z = (U.mT @ (scale * b_f)[..., None])[..., 0]
    return rest.item(), explained.item(), e.clamp_min(0.0).flatten().cpu().numpy(), z.square().flatten().cpu().numpy()
