"""Exceptions and warnings of gaussify; each also inherits from a built-in one."""

__all__ = [
    "GaussifyError",
    "InvalidArgumentError",
    "JitterWarning",
    "MissingDependencyError",
    "ModelFileError",
    "NumericalError",
    "TableError",
    "UnsupportedMatchError",
]


class GaussifyError(Exception):
    """Base class of all errors that gaussify raises."""


class InvalidArgumentError(GaussifyError, ValueError):
    """An argument has a value, shape or type that is not allowed."""


class UnsupportedMatchError(GaussifyError, NotImplementedError):
    """No Gaussian is defined for this distribution and method."""


class NumericalError(GaussifyError, ArithmeticError):
    """A numerical method did not reach its tolerance."""


class MissingDependencyError(GaussifyError, ImportError):
    """An optional dependency is not installed."""


class JitterWarning(UserWarning):
    """Jitter was added to the diagonal of a matrix so that it has a Cholesky factor; the message says how much."""


class ModelFileError(GaussifyError, ValueError):
    """A file holds no model that this version can read: it is truncated, altered, newer, or of another kind."""


class TableError(GaussifyError, ValueError):
    """A file is not a table, or a table lacks columns or cells that are needed."""
