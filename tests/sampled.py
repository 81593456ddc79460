"""Cross products of options of which an ordinary run takes a part: the rest is marked slow, for ``make test-all``."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from pairwise import pairwise


def pairs_first(**options: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrise by a full product of named values, of which those not needed for every two to meet are slow.

    Each option maps ids to values.
    """
    few = {tuple(case.values()) for case in pairwise(**options)}
    cases = [
        pytest.param(
            *(options[name][key] for name, key in zip(options, keys, strict=True)),
            id="-".join(keys),
            marks=() if keys in few else pytest.mark.slow,
        )
        for keys in itertools.product(*options.values())
    ]
    return pytest.mark.parametrize(tuple(options), cases)


def one_in(n: int, first: str, firsts: Iterable[Any], second: str, seconds: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise by a grid of two options, of which one case in ``n`` is not slow; all values take part."""
    cases = [
        pytest.param(a, b, id=f"{first}={a}-{second}={b}", marks=() if (i + j) % n == 0 else pytest.mark.slow)
        for i, a in enumerate(firsts)
        for j, b in enumerate(seconds)
    ]
    return pytest.mark.parametrize((first, second), cases)
