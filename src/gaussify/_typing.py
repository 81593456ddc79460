"""Types for readers and editors that are checked by the library itself, not by the type checks of the tests."""

from typing import TypeVar

_Function = TypeVar("_Function")


def no_type_check(function: _Function) -> _Function:
    """Return a constructor as it is.

    scikit-learn's constructors store every argument untouched, and ``fit`` says what is wrong with it. The tests check
    the types of all calls at run time, except where a function has a decorator of this name. Unlike ``typing``'s, this
    one hides no annotation from editors and mypy.
    """
    return function
