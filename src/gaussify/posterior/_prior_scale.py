"""How broad the prior is to be: the evidence, maximised from statistics alone."""

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

_LOG_SCALES = np.linspace(np.log(1e-8), np.log(1e8), 129)


class PriorScale(NamedTuple):
    """The factor of the prior variances that has the largest evidence, and that evidence.

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
) -> PriorScale:
    r"""Return the factor :math:`\tau` of the ``free`` entries of the prior variances ``shape`` with most evidence.

    The others, an intercept's say, stay as they are and are taken out by a Schur complement. With C what remains of
    the precision, b of the linear term and the spectrum :math:`s C s = U\,\mathrm{diag}(e)\,U^\top`,
    :math:`s^2` the free entries of ``shape`` and :math:`z = U^\top s b`, the evidence of a latent is

    .. math:: \log Z(\tau) = \text{constant} + \tfrac12\sum_j\left[\frac{\tau z_j^2}{1 + \tau e_j} -
        \log(1 + \tau e_j)\right],

    so that after one decomposition each :math:`\tau` costs d operations: the maximum is found on a fine grid from 1e-8
    to 1e8 and polished as a root of the derivative.

    Parameters
    ----------
    statistics, table
        As for ``natural_parameters``.
    shape : tensor of shape (d,)
        Prior variances up to the factor.
    free : tensor of bool of shape (d,)
        Which of them the factor multiplies.
    latents : tensor of int, optional
        Which latents to sum the evidence over; all by default.

    Examples
    --------
    >>> statistics = ClassStatistics.from_rows(torch.tensor([[-1.0], [1.0]]).double().repeat(50, 1), [0, 1] * 50)
    >>> table = PseudoTargets(torch.tensor([[-3.0], [3.0]]).double(), torch.ones(2, 1).double())
    >>> best_prior_scale(statistics, table, torch.ones(1).double(), torch.tensor([True])).scale  # weight 3, error 1/10
    8.99
    """
    chosen = torch.arange(table.mean.shape[1]) if latents is None else latents
    total_gram = statistics.gram.sum(0)
    constant, spectra, loads = 0.0, [], []
    for part in latent_chunks(len(chosen), statistics.n_features):
        index = chosen[part].to(table.mean.device)
        natural = natural_parameters(statistics, table, index, total_gram=total_gram)
        fixed, spectrum, load = _decompose(natural, shape, free)
        constant += fixed
        spectra.append(spectrum)
        loads.append(load)
    e, z2 = np.concatenate(spectra), np.concatenate(loads)

    def log_evidence(log_scale: np.ndarray) -> np.ndarray:
        te = np.exp(log_scale)[:, None] * e
        return constant + 0.5 * (np.exp(log_scale)[:, None] * z2 / (1.0 + te) - np.log1p(te)).sum(-1)

    def slope(log_scale: float) -> float:
        scale = np.exp(log_scale)
        return float((scale * (z2 / (1.0 + scale * e) ** 2 - e / (1.0 + scale * e))).sum())

    top = int(np.argmax(log_evidence(_LOG_SCALES)))
    best = _LOG_SCALES[top]
    if 0 < top < len(_LOG_SCALES) - 1:
        low, high = _LOG_SCALES[top - 1], _LOG_SCALES[top + 1]
        if slope(low) > 0.0 > slope(high):
            best = brentq(slope, low, high, xtol=1e-12, rtol=1e-14)
    return PriorScale(float(np.exp(best)), float(log_evidence(np.array([best]))[0]))


def _decompose(natural: NaturalParameters, shape: Tensor, free: Tensor) -> tuple[float, np.ndarray, np.ndarray]:
    """What does not depend on the factor, and all e and z² of these latents."""
    A, b = natural.precision, natural.linear
    A_ff, A_fg, A_gg = A[:, free][:, :, free], A[:, free][:, :, ~free], A[:, ~free][:, :, ~free]
    b_f, b_g = b[:, free], b[:, ~free]
    constant = natural.constant.sum()
    if not bool(free.all()):
        L = stable_cholesky(A_gg + torch.diag(1.0 / shape[~free]))
        V = torch.linalg.solve_triangular(L, A_fg.mT, upper=False)  # (l, g, f)
        u = torch.linalg.solve_triangular(L, b_g[..., None], upper=False)  # (l, g, 1)
        A_ff, b_f = A_ff - V.mT @ V, b_f - (V.mT @ u)[..., 0]
        log_det = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum() + len(b) * shape[~free].log().sum()
        constant = constant + 0.5 * (u.square().sum() - log_det)
    scale = shape[free].sqrt()
    e, U = torch.linalg.eigh(scale[:, None] * A_ff * scale)
    z = (U.mT @ (scale * b_f)[..., None])[..., 0]
    return constant.item(), e.clamp_min(0.0).flatten().cpu().numpy(), z.square().flatten().cpu().numpy()
