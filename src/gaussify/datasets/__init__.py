"""Data sets by name, checked and cached, and artificial data.

Read ``_load.py`` first: ``load`` knows every name. ``_files.py`` finds, downloads and checks files, which
``_tables.py``, ``_images.py`` and ``_text.py`` parse. ``_generators.py`` draws artificial data.
"""

from gaussify.datasets._files import DatasetError, cache_folder
from gaussify.datasets._generators import Drift, make_drifting_stream, make_four_classes, make_rare_class
from gaussify.datasets._load import Dataset, DatasetName, load

__all__ = [
    "Dataset",
    "DatasetError",
    "DatasetName",
    "Drift",
    "cache_folder",
    "load",
    "make_drifting_stream",
    "make_four_classes",
    "make_rare_class",
]
