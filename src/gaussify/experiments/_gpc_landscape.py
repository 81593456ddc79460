r"""Log marginal likelihood of Gaussian process classification over the hyperparameters of one kernel.

The kernel is :math:`s^2\exp(-\|x - x'\|^2 / 2\ell^2)` on inputs of mean zero and variance one; labels become Gaussian
observations of two latents by each method. Heights of different methods are not comparable, for their observations
differ; the shapes are. The evidence is taken twice: at the best constant means of the latents, which is what
:class:`~gaussify.GPClassifier` maximises, and with means of zero. With the latter the kernel has to explain what is
common to all rows, and it is then that moment matching asks for long lengthscales, as the paper finds.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gaussify.experiments._gpc_uci import load_rows
from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, group
from gaussify.likelihoods import LikelihoodMethod, PseudoTargets, SoftmaxLikelihood
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

    Examples
    --------
    >>> table = PseudoTargets(torch.tensor([[0.0], [2.0]]), torch.ones(2, 1))
    >>> evidences(torch.zeros(2, 2), torch.tensor([0, 1]), table)  # 0 and 2, with standard deviation 1
    Evidences(best_mean=-2.8379, zero_mean=-3.8379)
    """
    from gaussify.gp._exact import solver

    solve = solver(covariance, labels, table)
    targets = table.mean[labels].mT
    right = torch.stack([targets, torch.ones_like(targets)], -1)  # (l, n, 2)
    (squares, both), (_, total) = (right.mT @ solve(right)).movedim(0, -1)
    zero = -0.5 * (squares + solve.log_det + len(labels) * math.log(2.0 * math.pi)).sum()
    return Evidences((zero + 0.5 * (both.square() / total).sum()).item(), zero.item())


def _tasks(settings: Settings) -> list[Task]:
    return [
        {"dataset": dataset, "method": method, "alpha_eps": None if method == "gauss" else settings["alpha_eps"]}
        for dataset in settings["datasets"]
        for method in METHODS
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    squared, labels = squared_distances(str(task["dataset"]), settings["max_rows"])
    likelihood = SoftmaxLikelihood(
        int(labels.max()) + 1,
        torch.tensor(settings["alpha_eps"], dtype=torch.float64),
        LikelihoodMethod(str(task["method"])),
        label_variance=settings["label_variance"],
    )
    table = PseudoTargets(*(part.double() for part in likelihood.target_table()))
    records: list[Record] = []
    for log_lengthscale in np.linspace(*settings["log_lengthscale"]):
        correlation = torch.exp(-0.5 * squared / math.exp(2.0 * log_lengthscale))
        for log_variance in np.linspace(*settings["log_variance"]):
            best_mean, zero_mean = evidences(math.exp(log_variance) * correlation, labels, table)
            records.append(
                {
                    "log_lengthscale": round(float(log_lengthscale), 4),
                    "log_variance": round(float(log_variance), 4),
                    "evidence": round(best_mean, 3),
                    "evidence_zero_mean": round(zero_mean, 3),
                }
            )
    return records


def squared_distances(dataset: str, max_rows: int | None = None) -> tuple[Float[Tensor, "n n"], Int[Tensor, " n"]]:
    """Return squared distances of the rows, with every column of mean zero and variance one, and the labels.

    Examples
    --------
    >>> squared, labels = squared_distances("iris")
    >>> squared.mean()  # twice the number of columns
    tensor(8.0000, dtype=torch.float64)
    """
    from sklearn.preprocessing import StandardScaler

    X, y = load_rows(dataset)
    rows = torch.from_numpy(StandardScaler().fit_transform(X[:max_rows]))
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square(), torch.from_numpy(y[:max_rows])


def _summarise(records: list[Record]) -> list[Record]:
    """Where the largest evidence is, for both means; ``at_edge`` says that it may lie beyond the grid."""
    rows: list[Record] = []
    for (dataset, method, alpha_eps), own in group(records, "dataset", "method", "alpha_eps").items():
        for column, mean in MEANS.items():
            top, at_edge = peak(own, column)
            row: Record = {"dataset": dataset, "method": method, "alpha_eps": alpha_eps, "mean": mean}
            row |= {name: top[name] for name in _AXES}
            rows.append(row | {"evidence": top[column], "at_edge": at_edge})
    return rows


def peak(records: list[Record], column: str) -> tuple[Record, bool]:
    """Return the record that is largest in a column, and whether it is at an edge of the grid.

    Examples
    --------
    >>> heights = {-1.0: 2.0, 0.0: 5.0, 1.0: 4.0}
    >>> grid = [{"log_lengthscale": x, "log_variance": y, "h": heights[x] - y**2} for x in heights for y in heights]
    >>> peak(grid, "h")
    ({'log_lengthscale': 0.0, 'log_variance': 0.0, 'h': 5.0}, False)
    """
    top = max(records, key=lambda record: float(record[column]))  # type: ignore[arg-type]
    ends = [(name, function(_column(records, name))) for name in _AXES for function in (np.min, np.max)]
    return top, any(top[name] == end for name, end in ends)


def _column(records: list[Record], name: str) -> NDArray[np.float64]:
    return np.array([record[name] for record in records], dtype=np.float64)


def _draw(records: list[Record], folder: Path) -> None:
    """Draw a panel for each method and mean; brighter is higher, and a star marks the largest."""
    for (dataset,), some in group(records, "dataset").items():
        methods = group(some, "method")
        size = {"width": 2.5 * len(methods) + 0.6, "height": 6.4, "sharex": True, "sharey": True}
        with figure_file(folder, f"landscape-{dataset}", len(MEANS), len(methods), **size) as (figure, axes):
            for row, (column, mean) in enumerate(MEANS.items()):
                for axis, ((method,), own) in zip(axes[row], methods.items(), strict=True):
                    _fill_panel(figure, axis, own, column)
                    axis.set(title="" if row else method, xlabel="log-lengthscale" if row else "")
                axes[row, 0].set_ylabel(f"{mean}\nlog-variance")
            figure.suptitle(f"Log marginal likelihood on {dataset}; the star is its largest value", fontsize=10)


def _fill_panel(figure: Any, axis: Any, records: list[Record], column: str) -> None:
    x, y = (np.unique(_column(records, name)) for name in _AXES)
    heights = _column(records, column).reshape(len(x), len(y)).T
    low, high = np.quantile(heights, _DEPTH), heights.max()
    image = axis.pcolormesh(x, y, heights, vmin=low, vmax=high, shading="nearest", rasterized=True)
    figure.colorbar(image, ax=axis, location="bottom", extend="min", aspect=15).ax.locator_params(nbins=3)
    top, _ = peak(records, column)
    axis.plot(*(top[name] for name in _AXES), "*", color="#D55E00", mec="white", ms=11)
    axis.grid(visible=False)


_COMMON = {"alpha_eps": 0.1, "label_variance": 0.1, "max_rows": None, "datasets": ["ionosphere"]}

register(
    Experiment(
        name="gpc-landscape",
        title="Log marginal likelihood of Gaussian process classification over lengthscale and variance, by method",
        presets={
            "smoke": {
                **_COMMON,
                "datasets": ["breast-cancer"],
                "max_rows": 60,
                "log_lengthscale": [-1.0, 6.0, 8],
                "log_variance": [-6.0, 8.0, 7],
            },
            "laptop": {**_COMMON, "log_lengthscale": [-1.0, 6.0, 41], "log_variance": [-6.0, 8.0, 41]},
            "paper": {**_COMMON, "log_lengthscale": [-1.0, 6.0, 81], "log_variance": [-6.0, 8.0, 81]},
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
