"""Types are checked where a test begins to call a function, and no longer where it has called it often."""

import math

import jaxtyping
import pytest
import torch

from gaussify._numerics import stable_cholesky

WRONG = torch.eye(2).int()  # integers, where the function says Float


def fails_by_its_type() -> bool:
    try:
        stable_cholesky(WRONG)
    except jaxtyping.TypeCheckError:
        return True
    except RuntimeError:  # of torch, which has no factors of integers
        return False
    raise AssertionError("integers were factorised")


@pytest.mark.parametrize("turn", [1, 2])
def test_the_first_calls_of_every_test_are_checked(turn):
    assert fails_by_its_type()


def test_later_calls_are_not_checked(pytestconfig):
    most = pytestconfig.pluginmanager.get_plugin("first-calls").most
    if most == math.inf:
        pytest.skip("'make test-all' checks every call")
    for _ in range(most):
        assert fails_by_its_type()
    assert not fails_by_its_type()
