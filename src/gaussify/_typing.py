"""Types for readers and editors that are checked by the library itself, not by the type checks of the tests."""

from collections.abc import Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray
from torch import Tensor

# Unlike ``ArrayLike`` of NumPy, these exclude text, so that mypy reports a misspelt option beside them
Vector = Sequence[float] | NDArray[Any] | Tensor
Matrix = Sequence[Sequence[float]] | NDArray[Any] | Tensor

_Function = TypeVar("_Function")


def no_type_check(function: _Function) -> _Function:
    """Return a function as it is, so that its own checks of arguments can be tested.

    The tests enforce the types of all calls at run time, except where a function has a decorator of this name. Some
    functions check their arguments themselves, and the constructors of estimators store any argument for ``fit`` to
    check. Unlike the decorator of ``typing``, this one hides no annotation from editors and mypy.
    """
    return function
