"""The cost of the library's own operations, each as a ratio to a cost that everybody knows."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.distributions import Beta

from gaussify.experiments import _lab as lab
from gaussify.matching import match
from gaussify.plotting import SERIES_COLOURS, figure_file

_Pair = tuple[Callable[[], object], Callable[[], object]]


def _beta_variational(settings: lab.Settings) -> _Pair:
    """Variational matching of Betas with concentrations from 1e-3 to 1e4, against a 2000 x 2000 matrix product."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.rand(2, settings["n_pairs"], generator=generator, dtype=torch.float64) * 7.0 - 3.0
    betas = Beta(*10.0**exponents)
    matrix = torch.randn(2000, 2000, generator=generator, dtype=torch.float64)
    return partial(match, betas, "variational"), partial(torch.mm, matrix, matrix)


def _import(settings: lab.Settings) -> _Pair:
    """Importing gaussify with its matching and likelihoods in a new process, against importing torch."""
    python = partial(subprocess.run, check=True)
    code = "import torch; from gaussify import match, SoftmaxLikelihood, metrics"
    return partial(python, [sys.executable, "-c", code]), partial(python, [sys.executable, "-c", "import torch"])


_MEASUREMENTS = {
    "variational match of Betas / 2000 x 2000 matrix product": _beta_variational,
    "import gaussify / import torch": _import,
}


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(measurement=_MEASUREMENTS)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    own, reference = _MEASUREMENTS[task["measurement"]](settings)
    seconds = lab.best_times({"own": own, "reference": reference}, settings["n_repeats"])
    ratio = round(seconds["own"] / seconds["reference"], 3)
    return [{"seconds": round(seconds["own"], 4), "reference_seconds": round(seconds["reference"], 4), "ratio": ratio}]


def _draw(records: list[lab.Record], folder: Path) -> None:
    with figure_file(folder, "ratios", 1, 1, width=7.0, height=1.2 + 0.4 * len(records)) as (_, axes):
        names = [record["measurement"] for record in records]
        axes[0, 0].barh(names, [record["ratio"] for record in records], color=SERIES_COLOURS[0])
        axes[0, 0].set(xlabel="time ratio in the same run")


TITLE = "Cost of matching and of importing, as ratios in one interleaved run"
PRESETS = lab.presets(
    dict(n_pairs=100_000), smoke=dict(n_pairs=100, n_repeats=1), laptop=dict(n_repeats=5), paper=dict(n_repeats=10)
)

lab.register(lab.Experiment("speed", TITLE, PRESETS, _tasks, _run, _draw, list))
