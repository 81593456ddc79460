"""Comparisons with other libraries and models, and measurements of speed: one file for each experiment.

Times are ratios within one run, since seconds depend on the machine. Begin with ``_speed.py``, the shortest.
"""

from gaussify.experiments.benchmarks import (  # noqa: F401  (each registers its experiment)
    _active_reviews,
    _active_speed,
    _digits,
    _digits_stream,
    _drift,
    _gp_speed,
    _last_layer,
    _linear_tables,
    _loss_speed,
    _noise_free,
    _probabilities,
    _rare_classes,
    _refine_speed,
    _speed,
    _updates,
    _vgp_uci,
    _vgp_warm_start,
)
