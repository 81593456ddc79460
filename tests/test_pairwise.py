import itertools

import pytest

from pairwise import pairwise


@pytest.mark.parametrize("lengths", [(1,), (3,), (2, 2), (4, 3, 2), (2, 2, 2, 2, 2, 2), (5, 4, 3, 1, 2)], ids=str)
def test_every_two_values_meet(lengths):
    options = {f"option{k}": range(length) for k, length in enumerate(lengths)}
    cases = pairwise(**options)
    for names in itertools.combinations(options, min(2, len(options))):
        assert {tuple(case[name] for name in names) for case in cases} == set(
            itertools.product(*(options[name] for name in names))
        )


def test_there_are_few_and_always_the_same():
    options = {name: ["first", "second", "third"] for name in "abcdef"}
    cases = pairwise(**options)
    assert len(cases) <= 20 < 3**6
    assert cases == pairwise(**options)
    assert all(list(case) == list(options) for case in cases)
