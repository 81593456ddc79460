"""The error and the time of each way from Gaussian latents to class probabilities."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gaussify.experiments import _lab as lab
from gaussify.likelihoods import PredictiveMethod, SoftmaxLikelihood
from gaussify.plotting import SERIES_COLOURS, figure_file

_ROWS_AT_A_TIME = 1 << 22  # elements of the reference rule held in memory


def reference_softmax(mean: Tensor, variance: Tensor, step: float = 0.25) -> Tensor:
    r"""Return :math:`\int F_k'(z) \prod_{j \ne k} F_j(z)\,dz` by brute force, one row (c,) at a time.

    Trapezoidal rules throughout, in z and for each :math:`F_j`, with steps so small that both are converged; no table,
    no search and no interpolation.

    Examples
    --------
    >>> reference_softmax(torch.zeros(3).double(), torch.tensor([0.0, 1.0, 400.0]).double())
    tensor([0.2560, 0.2601, 0.4840], dtype=torch.float64)
    """
    scale = variance.sqrt()
    low, high = (mean - 4.0 - 8.0 * scale).max(), (mean + 34.0 + 8.0 * scale).max()
    z = torch.arange(float(low), float(high), step, dtype=torch.float64)
    cdf, density = (torch.empty(z.numel(), mean.numel(), dtype=torch.float64) for _ in range(2))
    wide = scale > 2.0
    for classes, rule in ((wide.nonzero()[:, 0], _wide_cdf), ((~wide).nonzero()[:, 0], _narrow_cdf)):
        for chunk in classes.split(max(1, _ROWS_AT_A_TIME // (300 * z.numel()))):
            cdf[:, chunk], density[:, chunk] = rule(z[:, None] - mean[chunk], scale[chunk])
    positive = cdf.clamp_min(1e-300)
    of_maximum = torch.exp(torch.log(positive).sum(1, keepdim=True))
    return (of_maximum * density / positive).sum(0) * step


def _narrow_cdf(t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Distribution function and density of Gaussian plus Gumbel, integrated over the Gaussian."""
    u = torch.arange(-120, 121, dtype=torch.float64) / 12.0
    weights = torch.exp(-0.5 * u.square()) / math.sqrt(2.0 * math.pi) / 12.0
    hazard = torch.exp((scale[:, None] * u - t[..., None]).clamp_max(700.0))
    return torch.exp(-hazard) @ weights, (hazard * torch.exp(-hazard)) @ weights


def _wide_cdf(t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The same, integrated over the Gumbel noise."""
    g = torch.arange(-30, 301, dtype=torch.float64) / 6.0
    weights = torch.exp(-g - torch.exp(-g)) / 6.0
    a = (t[..., None] - g) / scale[:, None]
    density = torch.exp(-0.5 * a.square()) / math.sqrt(2.0 * math.pi) / scale[:, None]
    return 0.5 * torch.erfc(-a * math.sqrt(0.5)) @ weights, density @ weights


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(n_classes=settings["n_classes"], variance=settings["variances"])


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    """Return the errors of each method on rows with a reference, and its times on a large batch."""
    n_classes, variance = task["n_classes"], task["variance"]
    generator = torch.Generator().manual_seed(seed)
    n_truth = max(2, settings["n_truth"] // n_classes)
    mean, spread = _latents(n_truth, n_classes, variance, generator)
    truth = torch.stack([reference_softmax(m, v) for m, v in zip(mean, spread, strict=True)])
    likelihood = SoftmaxLikelihood(n_classes)
    batch = _latents(max(20, settings["n_timed"] // n_classes), n_classes, variance, generator)
    ratios = _time_ratios(likelihood, batch[0], batch[1], settings["n_repeats"])
    ratios_float32 = _time_ratios(likelihood, batch[0].float(), batch[1].float(), settings["n_repeats"])
    records: list[lab.Record] = []
    for method in PredictiveMethod:
        error = (likelihood.predict_proba(mean, spread, method.value) - truth).abs()
        numbers = {"max_error": error.max().item(), "mean_error": error.mean().item()}
        numbers |= {"time_ratio": ratios[method], "time_ratio_float32": ratios_float32[method]}
        records.append({"method": method.value} | {name: lab.significant(x, 3) for name, x in numbers.items()})
    return records


def _latents(n: int, n_classes: int, variance: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return means with a standard deviation of three, and variances from half to one and a half of the given one."""
    mean = 3.0 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    return mean, variance * (0.5 + torch.rand(n, n_classes, generator=generator, dtype=torch.float64))


def _average_samples(mean: Tensor, variance: Tensor) -> Tensor:
    """Return averages over samples with fresh noise for each row, in bounded memory, as one writes them by hand."""
    chunks = zip(mean.split(64), variance.sqrt().split(64), strict=True)
    return torch.cat([torch.softmax(m + s * torch.randn(256, *m.shape, dtype=m.dtype), -1).mean(0) for m, s in chunks])


def _time_ratios(
    likelihood: SoftmaxLikelihood, mean: Tensor, variance: Tensor, n_repeats: int
) -> dict[PredictiveMethod, float]:
    """Return the time of each method over that of averaging 256 samples of the same dtype, in the same run."""
    runs: dict[str, Callable[[], object]] = {
        method.value: partial(likelihood.predict_proba, mean, variance, method.value) for method in PredictiveMethod
    }
    seconds = lab.best_times(runs | {"samples": partial(_average_samples, mean, variance)}, n_repeats)
    return {method: seconds[method.value] / seconds["samples"] for method in PredictiveMethod}


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return the worst error over all tasks, the mean error per variance, and the time ratios, by method."""
    rows: list[lab.Record] = []
    for method, own in lab.by(records, "method").items():
        row: lab.Record = {"method": method, "max_error": lab.column(own, "max_error").max()}
        for variance, some in lab.by(own, "variance").items():
            row[f"mean_error_v{variance:g}"] = lab.significant(lab.column(some, "mean_error").mean().item(), 2)
        for name in ("time_ratio", "time_ratio_float32"):
            ratios = lab.column(own, name)
            row |= {f"median_{name}": float(np.median(ratios)), f"max_{name}": ratios.max()}
        rows.append(row)
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the largest error against the variance, one panel for each number of classes."""
    sizes = lab.by(records, "n_classes")
    options = {"width": 2.4 * len(sizes) + 1.2, "height": 3.0, "sharey": True}
    with figure_file(folder, "errors", 1, len(sizes), **options) as (figure, axes):
        for axis, (size, some) in zip(axes[0], sizes.items(), strict=True):
            for (method, own), colour in zip(lab.by(some, "method").items(), SERIES_COLOURS, strict=False):
                points = lab.column(own, "variance"), lab.column(own, "max_error")
                axis.loglog(*points, "o-", color=colour, label=method, ms=3)
            axis.set(title=f"{size} classes", xlabel="variance of the latents")
        axes[0, 0].set_ylabel("largest error of a probability")
        lab.legend_below(figure, axes, loc="outside right upper", ncols=1)


TITLE = "Error and time of every way from Gaussian latents to class probabilities"
PRESETS = lab.presets(
    dict(n_classes=[2, 3, 10, 100, 1000]),
    smoke=dict(n_classes=[2, 3], variances=[1.0], n_truth=9, n_timed=6000, n_repeats=2),
    laptop=dict(variances=[0.1, 1.0, 4.0, 25.0, 400.0], n_truth=600, n_timed=10_000, n_repeats=5),
    paper=dict(variances=[0.01, 0.1, 1.0, 4.0, 9.0, 25.0, 100.0, 400.0], n_truth=3000, n_timed=20_000)
    | dict(n_repeats=7),
)

lab.register(lab.Experiment("probabilities", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
