"""Class statistics: a vector space whose elements are sums over rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from gaussify.exceptions import InvalidArgumentError
from gaussify.posterior import ClassStatistics
from gaussify.posterior._statistics import RowBlock, add_rows_

DTYPES = [torch.float32, torch.float64]


def random_rows(n: int = 30, d: int = 3, n_classes: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0):
    """Rows of all classes but number 2."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=dtype)
    labels = torch.randint(n_classes - 1, (n,), generator=generator)
    return features, labels + (labels >= 2), torch.rand(n, generator=generator, dtype=dtype)


def loop_over_rows(features, labels, weight, n_classes: int) -> ClassStatistics:
    statistics = ClassStatistics.zeros(n_classes, features.shape[1], dtype=features.dtype)
    for row, label, w in zip(features, labels, weight, strict=True):
        statistics.count[label] += w
        statistics.feature_sum[label] += w * row
        statistics.gram[label] += w * torch.outer(row, row)
    return statistics


def assert_same(actual: ClassStatistics, expected: ClassStatistics, **tolerance: float) -> None:
    assert_close(vars(actual), vars(expected), **(tolerance or {"rtol": 0, "atol": 0}))


integers = (st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 3), st.integers(0, 8))
some_rows = st.lists(st.tuples(*integers), max_size=6)


def exact(rows) -> ClassStatistics:
    """Of small integers and weights in quarters, whose sums and products have no rounding."""
    table = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), 4)
    return ClassStatistics.from_rows(table[:, :2], table[:, 2].long(), table[:, 3] / 4.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_from_rows_equals_a_loop_over_the_rows(dtype, weighted):
    features, labels, weight = random_rows(dtype=dtype)
    actual = ClassStatistics.from_rows(features, labels, weight if weighted else None, n_classes=6)
    expected = loop_over_rows(features, labels, weight if weighted else torch.ones_like(weight), 6)
    assert actual.gram.dtype == dtype
    assert_same(actual, expected, rtol=1e-5 if dtype is torch.float32 else 1e-13, atol=1e-6)


BLOCKS = {
    "one": [True],
    "unweighted": [False, False],
    "some-weighted": [True, False, True],
    "all-weighted": [True, True, True, True],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weighted", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("elements", [1, 6, 12, 1 << 19], ids=["one-row", "two-rows", "four-rows", "all-rows"])
@pytest.mark.parametrize("call", ["one-by-one", "joined", "from-each"])
def test_blocks_of_rows_add_up_to_all_rows(dtype, weighted, elements, call, monkeypatch):
    monkeypatch.setattr("gaussify.posterior._statistics._ELEMENTS", elements)  # of three features a row
    monkeypatch.setattr("gaussify.posterior._statistics._FEWEST_TOGETHER", 1000 if call == "joined" else 0)
    features, labels, weight = random_rows(dtype=dtype)
    before = ClassStatistics.from_rows(*random_rows(dtype=dtype, seed=1), n_classes=6)
    expected, actual = 1.0 * before, 1.0 * before
    blocks = []
    for part, has_weight in zip(torch.arange(len(labels)).chunk(len(weighted)), weighted, strict=True):
        own = weight[part] if has_weight else torch.ones_like(weight[part])
        expected = expected + loop_over_rows(features[part], labels[part], own, 6)
        blocks.append(RowBlock(features[part], labels[part], weight[part] if has_weight else None))
    for group in [[block] for block in blocks] if call == "one-by-one" else [blocks]:
        add_rows_(actual, group)
    assert_same(actual, expected, rtol=1e-4 if dtype is torch.float32 else 1e-13, atol=1e-5)


def test_rows_with_a_graph_have_the_gradients_of_a_loop():
    features, labels, weight = random_rows()
    features.requires_grad_()
    gradients = []
    for statistics in (
        ClassStatistics.from_rows(features, labels, weight, n_classes=6),
        loop_over_rows(features, labels, weight, 6),
    ):
        value = statistics.gram.square().sum() + statistics.feature_sum.square().sum()
        gradients.append(torch.autograd.grad(value, features)[0])
    assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_classes_without_rows_have_zero_statistics():
    features, labels, _ = random_rows()
    statistics = ClassStatistics.from_rows(features, labels, n_classes=7)
    assert statistics.count.tolist()[2] == statistics.count[5:].sum() == 0.0
    assert not statistics.gram[[2, 5, 6]].any()


def test_from_rows_takes_arrays_and_lists():
    features, labels, weight = random_rows()
    expected = ClassStatistics.from_rows(features, labels, weight)
    assert_same(ClassStatistics.from_rows(features.numpy(), labels.numpy(), weight.numpy()), expected)
    assert_same(ClassStatistics.from_rows(features.tolist(), labels.tolist(), weight.tolist()), expected)


def test_from_rows_has_just_enough_classes_by_default():
    assert ClassStatistics.from_rows([[1.0], [2.0]], [0, 3]).n_classes == 4


def test_no_rows_have_the_statistics_zero():
    nothing = ClassStatistics.from_rows(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), n_classes=2)
    assert_same(nothing, ClassStatistics.zeros(2, 3, dtype=torch.float32))
    assert ClassStatistics.from_rows(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).n_classes == 0


def test_rows_of_negative_weight_are_taken_out():
    features, labels, weight = random_rows()
    whole = ClassStatistics.from_rows(features, labels, weight)
    rest = whole + ClassStatistics.from_rows(features[:10], labels[:10], -weight[:10])
    assert_same(rest, ClassStatistics.from_rows(features[10:], labels[10:], weight[10:]), rtol=1e-12, atol=1e-12)


@settings(max_examples=30)
@given(some_rows, some_rows)
def test_addition_is_commutative(first, second):
    a, b = exact(first), exact(second)
    assert_same(a + b, b + a)


@settings(max_examples=30)
@given(some_rows, some_rows, some_rows)
def test_addition_is_associative(first, second, third):
    a, b, c = exact(first), exact(second), exact(third)
    assert_same((a + b) + c, a + (b + c))


@settings(max_examples=30)
@given(some_rows, some_rows)
def test_subtraction_undoes_addition(first, second):
    a, b = exact(first), exact(second)
    assert_same((a + b) - b, a.grow(max(a.n_classes, b.n_classes)))


@settings(max_examples=30)
@given(some_rows, some_rows, st.sampled_from([-2.0, 0.0, 0.25, 3.0]))
def test_scalar_product_is_linear(first, second, factor):
    a, b = exact(first), exact(second)
    assert_same(factor * (a + b), a * factor + b * factor)
    assert_same(factor * a + a, (factor + 1.0) * a)


@settings(max_examples=30)
@given(st.integers(0, 30), st.sampled_from([0.5, 2.0]))
def test_statistics_are_linear_in_the_rows_and_their_weights(cut, factor):
    features, labels, weight = random_rows()
    parts = [ClassStatistics.from_rows(features[s], labels[s], weight[s]) for s in (slice(cut), slice(cut, None))]
    whole = ClassStatistics.from_rows(features, labels, factor * weight)
    assert_same(factor * parts[0] + factor * parts[1], whole, rtol=1e-12, atol=1e-12)


def test_operations_leave_their_operands_alone():
    a, b = (ClassStatistics.from_rows(*random_rows(seed=seed)) for seed in (1, 2))
    before = 1.0 * a
    _ = a + b, a - b, 2.0 * a, a.grow(9), a.take(torch.tensor([1, 0]))
    assert_same(a, before)


def test_fewer_classes_are_those_of_more_with_zeros():
    few, many = ClassStatistics.from_rows([[1.0]], [0]), ClassStatistics.from_rows([[2.0], [3.0]], [0, 2])
    assert (few + many).count.tolist() == [2.0, 0.0, 1.0]
    assert (few - many).gram.flatten().tolist() == [-3.0, 0.0, -9.0]


def test_growing_equals_columns_of_zeros_and_declared_classes():
    features, labels, weight = random_rows()
    wide = torch.nn.functional.pad(features, (0, 2))
    grown = ClassStatistics.from_rows(features, labels, weight).grow(n_classes=8, n_features=5)
    assert_same(grown, ClassStatistics.from_rows(wide, labels, weight, n_classes=8), rtol=1e-14, atol=1e-14)


def test_take_gives_classes_in_the_order_asked_for():
    statistics = ClassStatistics.from_rows(*random_rows())
    taken = statistics.take(torch.tensor([4, 0]))
    assert_same(taken, ClassStatistics(*(tensor[[4, 0]] for tensor in vars(statistics).values())))


@pytest.mark.parametrize("sizes", [{"n_classes": 1}, {"n_features": 2}, {"n_classes": 9, "n_features": 1}], ids=str)
def test_statistics_cannot_shrink(sizes):
    with pytest.raises(InvalidArgumentError, match="5 classes and 3 features cannot shrink"):
        ClassStatistics.from_rows(*random_rows()).grow(**sizes)


def test_statistics_of_other_features_cannot_be_added():
    with pytest.raises(InvalidArgumentError, match=r"same number of features.*got 3 and 1"):
        ClassStatistics.from_rows(*random_rows()) + ClassStatistics.zeros(5, 1)


def test_only_statistics_can_be_added():
    with pytest.raises(TypeError):
        ClassStatistics.zeros(2, 2) + 1.0


@pytest.mark.parametrize(
    ("features", "labels", "weight", "message"),
    [
        ([1.0, 2.0], [0, 1], None, "'features' of ClassStatistics.from_rows must have 2 dimensions"),
        ([[1.0], [np.nan]], [0, 1], None, r"'features'.*must be finite; got nan at index \(1, 0\)"),
        ([["a"], ["b"]], [0, 1], None, "'features'.*must be numbers"),
        ([[1.0], [2.0]], [0, -1], None, "integers from 0.*got -1 at index 1"),
        ([[1.0], [2.0]], [0, 3], None, "integers from 0 to 2; got 3 at index 1"),
        ([[1.0], [2.0]], [0, 0.5], None, "integers from 0.*got 0.5"),
        ([[1.0], [2.0]], [0], None, "the same number of rows.*features: 2, labels: 1"),
        ([[1.0], [2.0]], [0, 1], [1.0], "the same number of rows.*features: 2, sample_weight: 1"),
        ([[1.0], [2.0]], [0, 1], [1.0, np.inf], "'sample_weight'.*must be finite; got inf"),
        ([[1.0], [2.0]], [0, 1], [[1.0], [1.0]], "'sample_weight'.*must have 1 dimension;"),
    ],
    ids=["flat", "nan", "text", "negative", "beyond", "fraction", "few-labels", "few-weights", "inf-weight", "column"],
)
def test_bad_rows_are_refused(features, labels, weight, message):
    with pytest.raises(InvalidArgumentError, match=message):
        ClassStatistics.from_rows(features, labels, weight, n_classes=3)


@pytest.mark.parametrize("n_classes", [0, -1, True])
def test_number_of_classes_must_be_a_positive_integer(n_classes):
    with pytest.raises(InvalidArgumentError, match=r"'n_classes' parameter of ClassStatistics\.from_rows"):
        ClassStatistics.from_rows([[1.0]], [0], n_classes=n_classes)
