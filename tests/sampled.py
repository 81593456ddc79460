"""Cross products of options of which an ordinary run takes a part: the rest is marked slow, for ``make test-all``."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from pairwise import pairwise

Values = Mapping[str, Any] | Sequence[Any]  # with names for ids, or those that are their own


def pairs_first(**options: Values) -> pytest.MarkDecorator:
    """Parametrise by a full product of values, of which those not needed for every two to meet are slow."""
    named = {name: _named(values) for name, values in options.items()}
    return _product(named, {tuple(case.values()) for case in pairwise(**named)})


def each_value(**options: Values) -> pytest.MarkDecorator:
    """Parametrise by a full product of values, of which all but enough for every value to be there are slow.

    For options that do not act together.
    """
    named = {name: _named(values) for name, values in options.items()}
    most = max(map(len, named.values()))
    rows = zip(*(itertools.islice(itertools.cycle(own), most) for own in named.values()), strict=True)
    return _product(named, set(rows))


def _named(values: Values) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {str(value): value for value in values}


def _product(options: Mapping[str, Mapping[str, Any]], few: set[tuple[str, ...]]) -> pytest.MarkDecorator:
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
