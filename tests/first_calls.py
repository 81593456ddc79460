"""Types and shapes are checked in the first calls that a test makes of each function; all further calls cost nothing.

A search calls the same small functions thousands of times, and checking each call doubles the time of the tests.
Only ``make test-all`` checks every call.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch


class FirstCalls:
    """A plugin of pytest that limits how many calls per test jaxtyping's import hook checks; infinity checks all."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.test = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.test += 1

    def limit(self, jaxtyped: Callable[..., Any]) -> Callable[..., Any]:
        """What the import hook is to decorate every function and class with, in place of ``jaxtyped``."""

        def limited(*, typechecker: Any) -> Callable[..., Any]:
            def decorate(function: Any) -> Any:
                if "<locals>" in function.__qualname__:
                    return function  # decorating it with each call of its owner costs more than the call
                checked = jaxtyped(function, typechecker=typechecker)
                return self._first_calls(function, checked) if inspect.isfunction(function) else checked

            return decorate

        return limited

    def _first_calls(self, function: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
        test, left = 0, self.most

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal test, left
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            if test != self.test:
                test, left = self.test, self.most
            if left == 0:
                return function(*args, **kwargs)
            left -= 1
            return checked(*args, **kwargs)

        return call


def install(most: float) -> FirstCalls:
    """Limit the checks, and return the plugin to register; to be called before the package under test is imported."""
    plugin = FirstCalls(most)
    jaxtyping.jaxtyped = plugin.limit(jaxtyping.jaxtyped)
    return plugin
