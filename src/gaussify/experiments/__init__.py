"""The experiments of the paper: tasks that are run once, and figures and tables drawn from their records."""

from gaussify.experiments import _active_imdb as _active_imdb
from gaussify.experiments import _active_speed as _active_speed
from gaussify.experiments import _active_toy as _active_toy
from gaussify.experiments import _densities as _densities
from gaussify.experiments import _digits as _digits
from gaussify.experiments import _digits_stream as _digits_stream
from gaussify.experiments import _drift as _drift
from gaussify.experiments import _gp_speed as _gp_speed
from gaussify.experiments import _gpc_landscape as _gpc_landscape
from gaussify.experiments import _gpc_uci as _gpc_uci
from gaussify.experiments import _image_nets as _image_nets
from gaussify.experiments import _imdb_text as _imdb_text
from gaussify.experiments import _last_layer as _last_layer
from gaussify.experiments import _loss_speed as _loss_speed
from gaussify.experiments import _probabilities as _probabilities
from gaussify.experiments import _speed as _speed
from gaussify.experiments import _streaming as _streaming
from gaussify.experiments import _streaming_toy as _streaming_toy
from gaussify.experiments import _toy_net as _toy_net
from gaussify.experiments import _updates as _updates
from gaussify.experiments import _vgp_toy as _vgp_toy
from gaussify.experiments import _vgp_uci as _vgp_uci
from gaussify.experiments import _vgp_warm_start as _vgp_warm_start
from gaussify.experiments._registry import Experiment, all_experiments, get, register
from gaussify.experiments._results import read_records, write_records
from gaussify.experiments._runner import TaskFailedError, load, result_folder, run, task_seed

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
