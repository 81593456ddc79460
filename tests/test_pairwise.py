"""The sample of a product of options."""

from itertools import combinations, product

import pytest

from pairwise import covering_sample, each_value, pairwise

SIZES = [(3, 4), (5, 2, 3), (2, 2, 2, 2), (5, 3, 4, 3), (4, 2, 3, 4, 2)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_of_values_is_in_the_sample(sizes):
    sample = covering_sample([range(size) for size in sizes])
    for (i, own), (j, other) in combinations(enumerate(sizes), 2):
        assert {(case[i], case[j]) for case in sample} == set(product(range(own), range(other)))
    assert {case[0] for case in sample} == set(range(sizes[0]))


@pytest.mark.parametrize(("sizes", "at_most"), [((2, 2, 2, 2), 6), ((5, 3, 4, 3), 24), ((4, 2, 3, 4, 2), 20)])
def test_the_sample_is_small_and_the_same_each_time(sizes, at_most):
    values = [range(size) for size in sizes]
    sample = covering_sample(values)
    assert len(sample) == len(set(sample)) <= at_most
    assert sample == covering_sample(values)


def test_the_mark_has_the_whole_product_of_which_the_rest_is_slow():
    mark = pairwise(method=["a", "b"], size={"few": 1, "many": 100}, dtype=[float, int])
    names, cases = mark.args
    assert names == ("method", "size", "dtype")
    assert [case.values for case in cases] == list(product("ab", [1, 100], [float, int]))
    assert cases[0].id == f"a-few-{float}"
    assert sum(not case.marks for case in cases) == 4


def test_each_value_is_enough_where_options_do_not_meddle():
    assert covering_sample([range(3), range(2), range(4)], strength=1) == [(0, 0, 0), (1, 1, 1), (2, 0, 2), (0, 0, 3)]
    _, cases = each_value(method=["a", "b"], size=[1, 2, 3]).args
    assert len(cases) == 6
    assert [case.id for case in cases if not case.marks] == ["a-1", "a-3", "b-2"]
