"""Exceptions and warnings of gaussify; each also inherits the built-in that fits."""


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
