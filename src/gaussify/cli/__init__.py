"""The command line ``gaussify``: thin commands around the library.

Read ``_tables.py`` first: ``fit``, ``predict``, ``update``, ``evaluate``, ``merge`` and ``info``.
"""

from gaussify.cli import _demo as _demo
from gaussify.cli import _reproduce as _reproduce
from gaussify.cli import _tables as _tables
from gaussify.cli._app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
