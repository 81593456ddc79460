r"""Gamma and Beta densities, their Gaussian approximations, and how far apart they are.

The paper's figure 1 and appendix A. With :math:`\omega \sim p` in the standard basis and
:math:`\psi = g(\omega)` in the transformed one, where :math:`g` is the logarithm for a Gamma and the logit
for a Beta, each method gives :math:`q(\psi) = \mathcal{N}(m, v)`.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln, log_expit, logit, polygamma
from torch.distributions import Beta, Gamma, Normal

from gaussify._numerics import softplus_moment
from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._densities_figures import DIVERGENCES, METHODS, draw
from gaussify.matching import MatchMethod, match

Array = NDArray[np.float64]

_CURVES = {"gamma(a, 1)": ("gamma", 0.0, 1.0), "beta(a, a)": ("beta", 1.0, 0.0), "beta(a, 1 + a)": ("beta", 1.0, 1.0)}


def gamma_log_density(psi: Array, a: float, b: float) -> Array:
    r"""Return the log density of :math:`\psi`, the logarithm of :math:`\omega \sim \mathrm{Gamma}(a, b)`.

    .. math:: \log p(\psi) = a\psi - b e^\psi + a\log b - \log\Gamma(a)
    """
    return a * psi - b * np.exp(psi) + a * math.log(b) - gammaln(a)


def beta_log_density(psi: Array, a: float, b: float) -> Array:
    r"""Return the log density of :math:`\psi`, the logit of :math:`\omega \sim \mathrm{Beta}(a, b)`.

    .. math:: \log p(\psi) = a\log\sigma(\psi) + b\log\sigma(-\psi) - \log B(a, b)
    """
    return a * log_expit(psi) + b * log_expit(-psi) - betaln(a, b)


def log_jacobian(family: str, omega: Array) -> Array:
    r"""Return :math:`\log |d\psi / d\omega|`: the log density of ω is that of ψ = g(ω) plus this.

    .. math:: -\log\omega \text{ (logarithm)}, \qquad -\log\omega - \log(1 - \omega) \text{ (logit)}
    """
    return -np.log(omega) if family == "gamma" else -np.log(omega) - np.log1p(-omega)


def transformed_moments(family: str, a: float, b: float) -> tuple[float, float]:
    r"""Return mean and variance of ψ, with :math:`\Psi` the digamma and :math:`\Psi^1` the trigamma function.

    .. math:: \Psi(a) - \log b,\; \Psi^1(a) \text{ for a Gamma}, \qquad
       \Psi(a) - \Psi(b),\; \Psi^1(a) + \Psi^1(b) \text{ for a Beta}
    """
    if family == "gamma":
        return float(digamma(a) - math.log(b)), float(polygamma(1, a))
    return float(digamma(a) - digamma(b)), float(polygamma(1, a) + polygamma(1, b))


def negative_entropy(family: str, a: float, b: float) -> float:
    r"""Return :math:`\mathbb{E}_p[\log p(\psi)]`.

    .. math:: a\Psi(a) - a - \log\Gamma(a) \text{ for a Gamma}, \qquad
       a\Psi(a) + b\Psi(b) - (a + b)\Psi(a + b) - \log B(a, b) \text{ for a Beta}
    """
    if family == "gamma":
        return float(a * digamma(a) - a - gammaln(a))
    return float(a * digamma(a) + b * digamma(b) - (a + b) * digamma(a + b) - betaln(a, b))


def kl_from_exact(family: str, a: float, b: float, mean: float, variance: float) -> float:
    r"""Return :math:`\mathrm{KL}(p \,\|\, q)` for :math:`q = \mathcal{N}(m, v)`, in the transformed basis.

    With :math:`\mu, s` the mean and variance of ψ,

    .. math:: \mathbb{E}_p[\log p] + \tfrac12\log(2\pi v) + \frac{s + (\mu - m)^2}{2v}
    """
    p_mean, p_variance = transformed_moments(family, a, b)
    quadratic = (p_variance + (p_mean - mean) ** 2) / (2.0 * variance)
    return negative_entropy(family, a, b) + 0.5 * math.log(2.0 * math.pi * variance) + quadratic


def kl_to_exact(family: str, a: float, b: float, mean: float, variance: float) -> float:
    r"""Return :math:`\mathrm{KL}(q \,\|\, p)` for :math:`q = \mathcal{N}(m, v)`, in the transformed basis.

    It is :math:`-\tfrac12\log(2\pi e v) - \mathbb{E}_q[\log p]`, where for a Gamma and a Beta

    .. math:: \mathbb{E}_q[\log p] &= a m - b e^{m + v/2} + a\log b - \log\Gamma(a) \\
       \mathbb{E}_q[\log p] &= a m - (a + b)\,\mathbb{E}_q[\log(1 + e^\psi)] - \log B(a, b)

    and only the last expectation takes quadrature. A divergence beyond 1e308 is given as infinity.
    """
    if family == "gamma":
        with np.errstate(over="ignore"):
            expected = a * mean - b * np.exp(mean + 0.5 * variance) + a * math.log(b) - gammaln(a)
    else:
        moments = torch.tensor([mean, variance], dtype=torch.float64)
        expected = a * mean - (a + b) * float(softplus_moment(0, moments[0], moments[1])) - betaln(a, b)
    return float(-0.5 * math.log(2.0 * math.pi * math.e * variance) - expected)


def approximation(family: str, a: float, b: float, method: str) -> tuple[float, float]:
    """Return mean and variance of the Gaussian that ``match`` gives in the transformed basis."""
    torch_family = {"gamma": Gamma, "beta": Beta}[family]
    parameters = torch.tensor([a, b], dtype=torch.float64)
    normal: Normal = match(torch_family(parameters[0], parameters[1]), MatchMethod(method))
    return float(normal.mean), float(normal.variance)


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    densities: list[lab.Task] = [
        {"quantity": "density", "family": family, "a": a, "b": b} for family in METHODS for a, b in settings[family]
    ]
    return densities + [{"quantity": "divergence", "curve": curve} for curve in _CURVES]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    if task["quantity"] == "density":
        return _density_records(task["family"], task["a"], task["b"], settings["n_points"])
    return _divergence_records(task["curve"], settings["n_concentrations"])


def _density_records(family: str, a: float, b: float, n_points: int) -> list[lab.Record]:
    gaussians = {method: approximation(family, a, b, method) for method in METHODS[family]}
    moments = [transformed_moments(family, a, b), *gaussians.values()]
    # four standard deviations on either side of every mean
    ends = [mean + 4.0 * sign * math.sqrt(v) for mean, v in moments for sign in (-1.0, 1.0)]
    grids = {
        "standard": _standard_grid(family, b, n_points),
        "transformed": np.linspace(min(ends), max(ends), n_points),
    }
    records: list[lab.Record] = []
    for basis, x in grids.items():
        psi = x if basis == "transformed" else np.log(x) if family == "gamma" else logit(x)
        exact = gamma_log_density(psi, a, b) if family == "gamma" else beta_log_density(psi, a, b)
        curves = {"exact": exact} | {
            method: -0.5 * (math.log(2.0 * math.pi * variance) + (psi - mean) ** 2 / variance)
            for method, (mean, variance) in gaussians.items()
        }
        change = log_jacobian(family, x) if basis == "standard" else 0.0
        for method, log_density in curves.items():
            for at, value in zip(x, log_density + change, strict=True):
                numbers = {"x": at, "log_density": value, "density": math.exp(value)}
                records.append({"basis": basis, "method": method} | _short(numbers))
    return records


def _divergence_records(curve: str, n_concentrations: int) -> list[lab.Record]:
    family, slope, offset = _CURVES[curve]
    records: list[lab.Record] = []
    for a in (lab.significant(float(a), 6) for a in np.logspace(-2, 2, n_concentrations)):
        b = slope * a + offset
        for method in METHODS[family]:
            q = approximation(family, a, b, method)
            divergences = {"kl_q_p": kl_to_exact(family, a, b, *q), "kl_p_q": kl_from_exact(family, a, b, *q)}
            records.append({"family": family, "a": a, "b": b, "method": method} | _short(divergences))
    return records


def _standard_grid(family: str, b: float, n_points: int) -> Array:
    """Return points that crowd where a density may have a pole: at 0, and for a Beta also at 1."""
    t = (np.arange(n_points) + 0.5) / n_points
    if family == "beta":
        return np.sin(0.5 * np.pi * t) ** 2
    return 12.0 / b * t**3


def _short(values: lab.Record) -> lab.Record:
    """Return numbers with six digits: more than figures and tables show, and the same on every machine."""
    return {name: lab.significant(float(value), 6) for name, value in values.items()}


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return both divergences at the powers of ten, one column per method and the best method last."""
    shown = [r for r in lab.select(records, quantity="divergence") if math.log10(r["a"]).is_integer()]
    rows: list[lab.Record] = []
    for column, divergence in sorted(DIVERGENCES.items(), key=lambda item: item[1], reverse=True):
        for (curve, a), own in lab.group(shown, "curve", "a").items():
            values = {record["method"]: record[column] for record in own}
            best = min((method for method in METHODS["gamma"] if method in values), key=values.__getitem__)
            rows.append({"divergence": divergence, "curve": curve, "a": a, **values, "best": best})
    return rows


TITLE = "Gamma and Beta densities and their Gaussian approximations (figure 1, appendix A)"
PRESETS = lab.presets(
    dict(gamma=[[0.1, 1.0], [0.5, 1.0], [1.1, 1.0], [5.0, 1.0]])
    | dict(beta=[[0.1, 1.1], [0.5, 0.5], [1.0, 1.0], [2.0, 5.0]]),
    smoke=dict(gamma=[[0.1, 1.0], [5.0, 1.0]], beta=[[0.1, 1.1], [2.0, 5.0]], n_points=25, n_concentrations=5),
    laptop=dict(n_points=161, n_concentrations=41),
    paper=dict(n_points=321, n_concentrations=81),
)

lab.register(lab.Experiment("densities", TITLE, PRESETS, _tasks, _run, draw, _summarise))
