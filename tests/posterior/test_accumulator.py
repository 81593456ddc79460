"""Rows that wait in a buffer, against statistics of all rows at once."""

import weakref
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from gaussify.posterior import ClassStatistics, StatisticsAccumulator

FEATURES = torch.arange(80, dtype=torch.float64).reshape(40, 2) % 7 - 3  # integers: every sum is exact
LABELS = torch.arange(40) * 5 % 3
WEIGHT = (torch.arange(40) % 4).double() / 4.0


def assert_same(actual: ClassStatistics, expected: ClassStatistics) -> None:
    assert_close(vars(actual), vars(expected), rtol=0, atol=0)


cuts = st.lists(st.integers(0, 40), max_size=8).map(lambda inner: [0, *sorted(inner), 40])


@settings(max_examples=15)
@given(cuts, st.data())
def test_any_chunking_with_or_without_weights_equals_all_rows_at_once(ends, data):
    accumulator, used = StatisticsAccumulator(ClassStatistics.zeros(3, 2)), torch.ones(40, dtype=torch.float64)
    for start, end in pairwise(ends):
        weighted = data.draw(st.booleans())
        if weighted:
            used[start:end] = WEIGHT[start:end]
        accumulator.append(FEATURES[start:end], LABELS[start:end], WEIGHT[start:end] if weighted else None)
        if data.draw(st.booleans()):
            _ = accumulator.statistics  # settles what waits
    assert_same(accumulator.statistics, ClassStatistics.from_rows(FEATURES, LABELS, used))


@settings(max_examples=15)
@given(cuts, st.data())
def test_scaling_between_chunks_equals_scaled_weights(ends, data):
    accumulator, left = StatisticsAccumulator(ClassStatistics.zeros(3, 2)), torch.ones(40, dtype=torch.float64)
    for start, end in pairwise(ends):
        factor = data.draw(st.sampled_from([1.0, 0.5, 0.25, 2.0]))
        accumulator.scale(factor)
        left[:start] *= factor
        if data.draw(st.booleans()):
            _ = accumulator.statistics
        accumulator.append(FEATURES[start:end], LABELS[start:end])
    assert_same(accumulator.statistics, ClassStatistics.from_rows(FEATURES, LABELS, left))


def test_scaling_by_zero_leaves_only_later_rows():
    accumulator = StatisticsAccumulator(ClassStatistics.from_rows(FEATURES, LABELS))
    accumulator.append(FEATURES, LABELS)
    accumulator.scale(0.0)
    accumulator.append(FEATURES[:7], LABELS[:7], WEIGHT[:7])
    assert_same(accumulator.statistics, ClassStatistics.from_rows(FEATURES[:7], LABELS[:7], WEIGHT[:7]))


@pytest.mark.parametrize(("n_classes", "n_features"), [(3, 2), (100, 20)], ids=["narrow", "wide"])
def test_no_more_rows_wait_than_there_are_numbers_in_the_gram_matrices(n_classes, n_features):
    accumulator = StatisticsAccumulator(ClassStatistics.zeros(n_classes, n_features))
    alive, most = weakref.WeakSet(), 0
    for _ in range(300):
        rows = torch.zeros(10, n_features, dtype=torch.float64)
        alive.add(rows)
        accumulator.append(rows, torch.zeros(10, dtype=torch.long))
        del rows
        most = max(most, 10 * len(alive))
    assert 100 < most <= max(256, n_classes * n_features) + 10


def test_work_on_a_copy_does_not_show_in_the_original():
    original = StatisticsAccumulator(ClassStatistics.zeros(2, 3))
    original.append(torch.ones(1, 3).double(), torch.tensor([0]))
    twin = original.copy()
    twin.scale(0.5)
    twin.append(torch.ones(300, 3).double(), torch.ones(300).long())  # more than wait
    assert original.statistics.count.tolist() == [1.0, 0.0]
    assert twin.statistics.count.tolist() == [0.5, 300.0]


def test_statistics_that_were_handed_out_stay():
    accumulator = StatisticsAccumulator(ClassStatistics.zeros(2, 3))
    accumulator.append(torch.ones(1, 3).double(), torch.tensor([0]))
    before = accumulator.statistics
    accumulator.append(torch.ones(1, 3).double(), torch.tensor([1]))
    assert accumulator.statistics.count.tolist() == [1.0, 1.0]
    assert before.count.tolist() == [1.0, 0.0]
