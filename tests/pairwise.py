"""Cross products of options: the default run takes a sample, and the rest is marked slow."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**options: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Return a mark for the whole product of options, of which the default run takes enough for every pair of values.

    Parameters
    ----------
    **options : sequence or mapping
        Values of each argument of the test. Keys of a mapping are the words for values in the names of cases.
    """
    return _sampled(2, options)


def each_value(**options: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Return a mark as :func:`pairwise` does, for options that do not meddle with each other: each value is enough."""
    return _sampled(1, options)


def covering_sample(values: Sequence[Iterable[Hashable]], strength: int = 2) -> list[tuple[Hashable, ...]]:
    """Return combinations of values such that any ``strength`` values of different options meet in one of them.

    Greedy: the next combination is the first of those in which the most meet for the first time.
    """
    candidates = {candidate: _meetings(candidate, strength) for candidate in product(*values)}
    missing = set().union(*candidates.values())
    sample = []
    while missing:
        best = max(candidates, key=lambda candidate: len(missing & candidates[candidate]))
        sample.append(best)
        missing -= candidates[best]
    return sample


def _sampled(strength: int, options: Mapping[str, Sequence[Any] | Mapping[str, Any]]) -> pytest.MarkDecorator:
    words = {name: list(values) for name, values in options.items()}
    sample = set(covering_sample([range(len(own)) for own in words.values()], strength))
    cases = [
        pytest.param(
            *(_value(values, i) for values, i in zip(options.values(), places, strict=True)),
            id="-".join(str(own[i]) for own, i in zip(words.values(), places, strict=True)),
            marks=() if places in sample else pytest.mark.slow,
        )
        for places in product(*(range(len(own)) for own in words.values()))
    ]
    return pytest.mark.parametrize(tuple(options), cases)


def _meetings(candidate: tuple[Hashable, ...], strength: int) -> set[Any]:
    return set(combinations(enumerate(candidate), strength))


def _value(values: Sequence[Any] | Mapping[str, Any], place: int) -> Any:
    return list(values.values())[place] if isinstance(values, Mapping) else values[place]
