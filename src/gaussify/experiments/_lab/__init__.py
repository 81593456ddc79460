"""The laboratory: what every experiment is made of, from the registry and the runner to records, scores and figures.

It knows no experiment. Begin with ``_registry.py``, which says what an experiment is, then ``_runner.py``.
"""

from gaussify.experiments._lab._figures import draw_band, draw_bars, legend_below
from gaussify.experiments._lab._labelling import labels_needed, make_pool
from gaussify.experiments._lab._methods import (
    ALPHA_EPS,
    LOSSES,
    MATCHED,
    REGRESSION,
    choices,
    given_alpha_eps,
    seeded_tasks,
)
from gaussify.experiments._lab._records import Record, read_records, write_records
from gaussify.experiments._lab._registry import Experiment, Settings, Task, all_experiments, get, presets, register
from gaussify.experiments._lab._runner import TaskFailedError, load, result_folder, run, task_seed
from gaussify.experiments._lab._scores import scores
from gaussify.experiments._lab._scratch import scratch_folder
from gaussify.experiments._lab._splits import SIZES, Split, four_classes, load_rows, make_split
from gaussify.experiments._lab._summaries import (
    Curve,
    best_alpha_eps,
    by,
    chosen,
    column,
    curve,
    group,
    mean,
    mean_and_error,
    means,
    select,
    significant,
    summary,
)

__all__ = [
    "ALPHA_EPS",
    "LOSSES",
    "MATCHED",
    "REGRESSION",
    "SIZES",
    "Curve",
    "Experiment",
    "Record",
    "Settings",
    "Split",
    "Task",
    "TaskFailedError",
    "all_experiments",
    "best_alpha_eps",
    "by",
    "choices",
    "chosen",
    "column",
    "curve",
    "draw_band",
    "draw_bars",
    "four_classes",
    "get",
    "given_alpha_eps",
    "group",
    "labels_needed",
    "legend_below",
    "load",
    "load_rows",
    "make_pool",
    "make_split",
    "mean",
    "mean_and_error",
    "means",
    "presets",
    "read_records",
    "register",
    "result_folder",
    "run",
    "scores",
    "scratch_folder",
    "seeded_tasks",
    "select",
    "significant",
    "summary",
    "task_seed",
    "write_records",
]
