"""From a torch distribution to the Gaussian that approximates it on the real line.

Read ``_gamma.py`` first: its four closed forms turn labels into targets, as a Dirichlet consists of Gammas.
``_registry.py`` holds ``match``, ``_beta.py`` the binary case and ``_numerical.py`` all other distributions.
"""

from gaussify.matching import _beta, _dirichlet, _gamma  # noqa: F401, which register their rules
from gaussify.matching._basis import to_basis
from gaussify.matching._methods import MatchMethod, MethodName
from gaussify.matching._registry import match, register_match

__all__ = ["MatchMethod", "MethodName", "match", "register_match", "to_basis"]
