"""What reproduces the paper: one file registers each experiment, its figures beside it where they are many.

The numbers that the paper reports are in ``_published.py``. Begin with ``_densities.py``, which needs no data.
"""

from gaussify.experiments.paper import (  # noqa: F401  (each registers its experiments)
    _active_imdb,
    _active_toy,
    _densities,
    _gpc_landscape,
    _gpc_uci,
    _image_nets,
    _imdb_text,
    _streaming,
    _streaming_toy,
    _toy_net,
    _vgp_toy,
)
