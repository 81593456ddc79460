# mypy: implicit-reexport
# ruff: noqa: F401
"""The laboratory: what every experiment is made of, from the registry and the runner to records, scores and figures.

It knows no experiment. Begin with ``_registry.py``, which says what an experiment is, then ``_runner.py``.
"""

from gaussify.experiments._lab._figures import draw_band, draw_bars, draw_grid, draw_lines, legend_below
from gaussify.experiments._lab._methods import (
    ALPHA_EPS,
    LOSSES,
    MATCHED,
    REGRESSION,
    choices,
    combinations,
    given_alpha_eps,
    seeded_tasks,
)
from gaussify.experiments._lab._records import Record, read_records, write_records
from gaussify.experiments._lab._registry import Experiment, Settings, Task, all_experiments, get, presets, register
from gaussify.experiments._lab._runner import TaskFailedError, load, result_folder, run, task_seed
from gaussify.experiments._lab._scratch import scratch_folder
from gaussify.experiments._lab._splits import SIZES, Split, four_classes, load_rows, make_pool, make_split
from gaussify.experiments._lab._summaries import (
    Curve,
    best_alpha_eps,
    by,
    chosen,
    column,
    curve,
    group,
    labels_needed,
    mean,
    mean_and_error,
    means,
    scores,
    select,
    significant,
    summary,
)
from gaussify.experiments._lab._timing import best_times, peak_gibibytes, quiet_times, run_alone, steps_until
from gaussify.experiments._lab._workers import worker_processes
