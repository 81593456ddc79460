"""From a torch distribution to the Gaussian that stands for it in its basis."""

from gaussify.matching import _beta, _dirichlet, _gamma  # noqa: F401 - they register their rules
from gaussify.matching._basis import to_basis
from gaussify.matching._methods import MatchMethod
from gaussify.matching._registry import match, register_match

__all__ = ["MatchMethod", "match", "register_match", "to_basis"]
