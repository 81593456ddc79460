"""Experiments that reproduce the paper. One file registers each; longer figures are in a file beside it.

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
