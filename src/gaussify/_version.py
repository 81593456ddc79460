"""The version of the package; read by the build and by :mod:`gaussify`."""

__version__ = "0.1.0"
