"""The experiments of ``gaussify reproduce``: tasks that are run once, and figures and tables drawn from their records.

``paper`` reproduces the paper, ``benchmarks`` compares with peers and measures speed; both use the laboratory ``_lab``
and the networks of ``_networks``. Begin with ``_lab/_registry.py``, which says what an experiment is.
"""

from gaussify.experiments import benchmarks as benchmarks
from gaussify.experiments import paper as paper
from gaussify.experiments._lab import (
    Experiment,
    TaskFailedError,
    all_experiments,
    get,
    load,
    read_records,
    register,
    result_folder,
    run,
    task_seed,
    write_records,
)

__all__ = [
    "Experiment",
    "TaskFailedError",
    "all_experiments",
    "get",
    "load",
    "read_records",
    "register",
    "result_folder",
    "run",
    "task_seed",
    "write_records",
]
