"""Cross products of options, of which the default run takes a sample that has every pair of values."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**options: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Return a mark for the whole product of options; what is not in :func:`pairwise_sample` is marked slow.

    Parameters
    ----------
    **options : sequence or mapping
        Values of each argument of the test. Keys of a mapping are the words for values in the names of cases.
    """
    words = {name: list(values) for name, values in options.items()}
    sample = set(pairwise_sample([range(len(own)) for own in words.values()]))
    cases = [
        pytest.param(
            *(_value(values, i) for values, i in zip(options.values(), places, strict=True)),
            id="-".join(str(own[i]) for own, i in zip(words.values(), places, strict=True)),
            marks=() if places in sample else pytest.mark.slow,
        )
        for places in product(*(range(len(own)) for own in words.values()))
    ]
    return pytest.mark.parametrize(tuple(options), cases)


def pairwise_sample(values: Sequence[Iterable[Hashable]]) -> list[tuple[Hashable, ...]]:
    """Return combinations of values such that every two values of different options meet in one of them.

    Greedy: the next combination is the first of those with the most pairs that have not met.
    """
    candidates = list(product(*values))
    missing = set().union(*map(_pairs, candidates)) if candidates else set()
    sample = []
    while missing:
        best = max(candidates, key=lambda candidate: len(missing & _pairs(candidate)))
        sample.append(best)
        missing -= _pairs(best)
    return sample or candidates  # of one option alone there are no pairs


def _pairs(candidate: tuple[Hashable, ...]) -> set[Any]:
    return set(combinations(enumerate(candidate), 2))


def _value(values: Sequence[Any] | Mapping[str, Any], place: int) -> Any:
    return list(values.values())[place] if isinstance(values, Mapping) else values[place]
