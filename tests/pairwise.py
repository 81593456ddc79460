"""Few combinations of many options, in which every two values meet."""

import itertools
from collections.abc import Iterable
from typing import Any


def pairwise(**options: Iterable[Any]) -> list[dict[str, Any]]:
    """Combinations of options in which each value of one meets each value of any other at least once.

    A mistake in how two options work together is found as by the full product, in a number of cases that grows as the
    product of the two longest lists. The choice is the same each time: greedily the combination that has most pairs
    that no earlier one has.
    """
    values = {name: list(values) for name, values in options.items()}
    missing = {
        frozenset([(one, i), (other, j)])
        for one, other in itertools.combinations(values, 2)
        for i in range(len(values[one]))
        for j in range(len(values[other]))
    }
    if len(values) < 2:
        return [{name: value} for name, own in values.items() for value in own]
    chosen = []
    while missing:
        # begin with the first pair that is missing, then give each other option the value that brings most pairs
        combination = dict(min(missing, key=sorted))
        for name in values:
            if name not in combination:
                gains = [
                    sum(frozenset([(name, i), pair]) in missing for pair in combination.items())
                    for i in range(len(values[name]))
                ]
                combination[name] = gains.index(max(gains))
        missing -= {frozenset(pair) for pair in itertools.combinations(combination.items(), 2)}
        chosen.append({name: values[name][combination[name]] for name in values})
    return chosen
