"""Exceptions and warnings of gaussify; each also inherits the built-in that fits."""

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
    """Base of every error that gaussify raises on purpose."""


class InvalidArgumentError(GaussifyError, ValueError):
    """An argument has a value, shape or type that is not allowed."""


class UnsupportedMatchError(GaussifyError, NotImplementedError):
    """No Gaussian is defined for this distribution and method."""


class NumericalError(GaussifyError, ArithmeticError):
    """A numerical method did not reach its tolerance."""


class MissingDependencyError(GaussifyError, ImportError):
    """An optional dependency is not installed."""


class JitterWarning(UserWarning):
    """Something was added to the diagonal of a matrix so that it could be factorised; the text says how much."""


class ModelFileError(GaussifyError, ValueError):
    """A file does not hold a model that this version can read: truncated, altered, newer, or of another kind."""


class TableError(GaussifyError, ValueError):
    """A file is not a table, or a table has not the columns or cells that are needed."""
