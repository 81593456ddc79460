r"""Log marginal likelihood of Gaussian process classification over the hyperparameters of one kernel.

The kernel is :math:`s^2\exp(-\|x - x'\|^2 / 2\ell^2)` on inputs of mean zero and variance one. Each method turns labels
into other Gaussian observations of two latents, so the heights of different methods cannot be compared, only the
shapes. The evidence is taken twice: at the best constant means of the latents, which :class:`~gaussify.GPClassifier`
maximises, and with means of zero. With means of zero the kernel must also explain what all rows have in common, and
then moment matching asks for long lengthscales, as the paper finds.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify.experiments import _lab as lab
from gaussify.likelihoods import PseudoTargets, SoftmaxLikelihood
from gaussify.plotting import figure_file

METHODS = ("laplace", "variational", "moment", "moment-ori", "gauss")
MEANS = {"evidence": "best constant mean", "evidence_zero_mean": "mean zero"}

_AXES = ("log_lengthscale", "log_variance")
_DEPTH = 0.4  # the lowest colour stands for this quantile of the heights


class Evidences(NamedTuple):
    """Log marginal likelihood at the best constant means of the latents, and at means of zero."""

    best_mean: float
    zero_mean: float


def evidences(covariance: Float[Tensor, "n n"], labels: Int[Tensor, " n"], table: PseudoTargets) -> Evidences:
    r"""Return both from one factorisation.

    .. math:: \log\mathcal{N}(y_l \mid 0, A_l) + \frac{(\mathbf{1}^\top A_l^{-1}y_l)^2}
        {2\,\mathbf{1}^\top A_l^{-1}\mathbf{1}} = \max_\mu\log\mathcal{N}(y_l \mid \mu\mathbf{1}, A_l)
    """
    from gaussify.gp._exact import solver

    solve = solver(covariance, labels, table)
    targets = table.mean[labels].mT
    right = torch.stack([targets, torch.ones_like(targets)], -1)  # (l, n, 2)
    (squares, both), (_, total) = (right.mT @ solve(right)).movedim(0, -1)
    zero = -0.5 * (squares + solve.log_det + len(labels) * math.log(2.0 * math.pi)).sum()
    return Evidences((zero + 0.5 * (both.square() / total).sum()).item(), zero.item())


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return [
        {"dataset": dataset, "method": method, "alpha_eps": None if method == "gauss" else settings["alpha_eps"]}
        for dataset in settings["datasets"]
        for method in METHODS
    ]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    squared, labels = squared_distances(task["dataset"], settings["max_rows"])
    alpha_eps = torch.tensor(settings["alpha_eps"], dtype=torch.float64)
    options = {"label_variance": settings["label_variance"]}
    likelihood = SoftmaxLikelihood(int(labels.max()) + 1, alpha_eps, task["method"], **options)
    table = PseudoTargets(*(part.double() for part in likelihood.target_table()))
    records: list[lab.Record] = []
    for log_lengthscale in np.linspace(*settings["log_lengthscale"]):
        correlation = torch.exp(-0.5 * squared / math.exp(2.0 * log_lengthscale))
        for log_variance in np.linspace(*settings["log_variance"]):
            best_mean, zero_mean = evidences(math.exp(log_variance) * correlation, labels, table)
            place = {"log_lengthscale": round(log_lengthscale, 4), "log_variance": round(log_variance, 4)}
            records.append(place | {"evidence": round(best_mean, 3), "evidence_zero_mean": round(zero_mean, 3)})
    return records


def squared_distances(dataset: str, max_rows: int | None = None) -> tuple[Float[Tensor, "n n"], Int[Tensor, " n"]]:
    """Return squared distances of the rows, with every column of mean zero and variance one, and the labels."""
    from sklearn.preprocessing import StandardScaler

    X, y = lab.load_rows(dataset)
    rows = torch.from_numpy(StandardScaler().fit_transform(X[:max_rows]))
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square(), torch.from_numpy(y[:max_rows])


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Where the largest evidence is, for both means; ``at_edge`` says that it may lie beyond the grid."""
    rows: list[lab.Record] = []
    for (dataset, method, alpha_eps), own in lab.group(records, "dataset", "method", "alpha_eps").items():
        for height, mean in MEANS.items():
            top, at_edge = peak(own, height)
            row: lab.Record = {"dataset": dataset, "method": method, "alpha_eps": alpha_eps, "mean": mean}
            row |= {name: top[name] for name in _AXES}
            rows.append(row | {"evidence": top[height], "at_edge": at_edge})
    return rows


def peak(records: list[lab.Record], height: str) -> tuple[lab.Record, bool]:
    """Return the record with the largest height, and whether it is at an edge of the grid."""
    top = max(records, key=lambda record: record[height])
    ends = [(name, function(lab.column(records, name))) for name in _AXES for function in (np.min, np.max)]
    return top, any(top[name] == end for name, end in ends)


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw a panel for each method and mean; brighter is higher, and a star marks the largest."""
    for dataset, some in lab.by(records, "dataset").items():
        methods = lab.by(some, "method")
        size = {"width": 2.5 * len(methods) + 0.6, "height": 6.4, "sharex": True, "sharey": True}
        with figure_file(folder, f"landscape-{dataset}", len(MEANS), len(methods), **size) as (figure, axes):
            for row, (height, mean) in enumerate(MEANS.items()):
                for axis, (method, own) in zip(axes[row], methods.items(), strict=True):
                    _fill_panel(figure, axis, own, height)
                    axis.set(title="" if row else method, xlabel="log-lengthscale" if row else "")
                axes[row, 0].set_ylabel(f"{mean}\nlog-variance")
            figure.suptitle(f"Log marginal likelihood on {dataset}; the star is its largest value", fontsize=10)


def _fill_panel(figure: Any, axis: Any, records: list[lab.Record], height: str) -> None:
    x, y = (np.unique(lab.column(records, name)) for name in _AXES)
    heights = lab.column(records, height).reshape(len(x), len(y)).T
    low, high = np.quantile(heights, _DEPTH), heights.max()
    image = axis.pcolormesh(x, y, heights, vmin=low, vmax=high, shading="nearest", rasterized=True)
    figure.colorbar(image, ax=axis, location="bottom", extend="min", aspect=15).ax.locator_params(nbins=3)
    top, _ = peak(records, height)
    axis.plot(*(top[name] for name in _AXES), "*", color="#D55E00", mec="white", ms=11)
    axis.grid(visible=False)


TITLE = "Log marginal likelihood of Gaussian process classification over lengthscale and variance, by method"
PRESETS = lab.presets(
    dict(alpha_eps=0.1, label_variance=0.1, max_rows=None, datasets=["ionosphere"]),
    smoke=dict(datasets=["breast-cancer"], max_rows=60)
    | dict(log_lengthscale=[-1.0, 6.0, 8], log_variance=[-6.0, 8.0, 7]),
    laptop=dict(log_lengthscale=[-1.0, 6.0, 41], log_variance=[-6.0, 8.0, 41]),
    paper=dict(log_lengthscale=[-1.0, 6.0, 81], log_variance=[-6.0, 8.0, 81]),
)

lab.register(lab.Experiment("gpc-landscape", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
