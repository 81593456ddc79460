"""Lazy import of optional dependencies, with errors that say how to install them."""

import importlib
from types import ModuleType

from gaussify.exceptions import MissingDependencyError


def import_optional(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Return an imported ``module``; if it is missing, the error names the extra of gaussify that installs it.

    Examples
    --------
    >>> import_optional("math", extra="plot", needed_by="this example").sqrt(4.0)
    2.0
    >>> import_optional("no_such_module", extra="plot", needed_by="gaussify.plotting")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.MissingDependencyError: gaussify.plotting needs no_such_module: pip install "gaussify[plot]".
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        message = f'{needed_by} needs {error.name}: pip install "gaussify[{extra}]".'
        raise MissingDependencyError(message) from error
