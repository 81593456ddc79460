"""Full products of which an ordinary run takes a part."""

from itertools import combinations, product

from sampled import each_value, pairs_first


def test_the_whole_product_is_there_and_every_two_values_meet_in_cases_that_are_not_slow():
    values = {"method": ["a", "b"], "size": {"few": 1, "many": 100}, "kind": ["soft", "hard", "none"]}
    names, cases = pairs_first(**values).args
    assert names == tuple(values)
    assert [case.values for case in cases] == list(product("ab", [1, 100], ["soft", "hard", "none"]))
    assert cases[0].id == "a-few-soft"
    few = [case.values for case in cases if not case.marks]
    assert len(few) == 6
    for i, j in combinations(range(3), 2):
        assert {(own[i], own[j]) for own in few} == {(case.values[i], case.values[j]) for case in cases}


def test_each_value_is_in_a_case_that_is_not_slow():
    _, cases = each_value(method=["a", "b"], size=[1, 2, 3]).args
    assert len(cases) == 6
    assert [case.id for case in cases if not case.marks] == ["a-1", "a-3", "b-2"]
