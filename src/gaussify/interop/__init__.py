"""Adapters to other libraries: one public module each, as in ``from gaussify.interop.river import RiverClassifier``.

``river.py`` is the shorter one to read first; ``gpytorch.py`` has a likelihood and a start for variational models.
"""

__all__: list[str] = []
