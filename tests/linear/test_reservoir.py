"""The sample of rows: bounded, uniform in each class, and the same however the rows came."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussify.linear._reservoir import Reservoir

CLASSES = np.array(["a", "b", "c"])
N, SIZE = 60, 15
X = np.random.default_rng(0).normal(size=(N, 2))
Y = np.arange(N) % 3
WEIGHT = np.random.default_rng(1).uniform(0.1, 3.0, size=N)


def new(size: int = SIZE, seed: int = 0, n_features: int = 2, classes=CLASSES) -> Reservoir:
    reservoir = Reservoir(size, seed=seed, n_features=n_features)
    reservoir.set_classes(classes)
    return reservoir


def filled(X, y, weight=None, **params) -> Reservoir:
    reservoir = new(n_features=X.shape[1], **params)
    reservoir.add(X, y, weight)
    return reservoir


def assert_same(actual: Reservoir, expected: Reservoir) -> None:
    for name, mine, theirs in zip(actual.rows()._fields, actual.rows(), expected.rows(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=0, err_msg=name)
    assert actual.present_log_limit == pytest.approx(expected.present_log_limit)
    assert actual.quota == expected.quota


orders = st.permutations(range(N)).map(np.array)
cuts = st.lists(st.integers(0, N), max_size=12).map(sorted)


@settings(max_examples=15)
@given(order=orders, ends=cuts, size=st.sampled_from([1, SIZE, N - 1, N, 1000]), weighted=st.booleans())
def test_the_sample_depends_neither_on_the_order_nor_on_the_chunks(order, ends, size, weighted):
    weight = WEIGHT if weighted else None
    parts = new(size)
    for some in np.split(order, ends):
        if len(some):
            parts.add(X[some], Y[some], None if weight is None else weight[some])
    assert_same(parts, filled(X, Y, weight, size=size))


@settings(max_examples=15)
@given(shard=st.lists(st.integers(0, 2), min_size=N, max_size=N).map(np.array), weighted=st.booleans())
def test_shards_merge_to_the_sample_of_all_rows(shard, weighted):
    weight = WEIGHT if weighted else np.ones(N)
    merged = new()
    for k in np.unique(shard):
        merged.merge(filled(X[shard == k], Y[shard == k], weight[shard == k]), np.arange(3))
    assert_same(merged, filled(X, Y, weight))


def test_shards_that_know_other_classes_merge_to_the_sample_of_all_rows():
    first, second = Y != 2, Y == 2
    merged = filled(X[first], Y[first], classes=CLASSES[:2])
    merged.set_classes(CLASSES, np.arange(2))
    merged.merge(filled(X[second], np.zeros(second.sum(), dtype=int), classes=CLASSES[2:]), np.array([2]))
    assert_same(merged, filled(X, Y))


def test_a_class_that_comes_between_moves_the_labels_of_kept_rows():
    early = Y != 1
    reservoir = filled(X[early], Y[early] // 2, classes=CLASSES[[0, 2]])
    reservoir.set_classes(CLASSES, np.array([0, 2]))
    reservoir.add(X[~early], Y[~early])
    assert_same(reservoir, filled(X, Y))


def test_a_copy_goes_its_own_way():
    reservoir = filled(X, Y)
    twin = reservoir.copy()
    twin.add(X + 1.0, Y)
    twin.decay(1.0)
    assert_same(reservoir, filled(X, Y))


def test_all_rows_are_kept_while_there_is_room():
    rows = filled(X, Y, WEIGHT, size=N).rows()
    order = np.lexsort(X.T)
    found = np.lexsort(rows.features.T)
    np.testing.assert_array_equal(rows.features[found], X[order])
    np.testing.assert_array_equal(rows.labels[found], Y[order])
    np.testing.assert_allclose(rows.weight[found], WEIGHT[order])


@pytest.mark.parametrize("kind", ["normal", "small-integers", "one-hot", "powers-of-two"])
def test_every_row_is_kept_equally_often_over_seeds(kind):
    rows = {
        "normal": X,
        "small-integers": np.array([[i % 8, i // 8] for i in range(N)], dtype=float),
        "one-hot": np.eye(N),
        "powers-of-two": np.array([[2.0**i, 0.0] for i in range(N)]),
    }[kind]
    n_seeds, kept = 300, np.zeros(N)
    place = {row.tobytes(): i for i, row in enumerate(rows)}
    for seed in range(n_seeds):
        for row in filled(rows, Y, seed=seed).rows().features:
            kept[place[row.tobytes()]] += 1
    expected = n_seeds * SIZE / N
    # variances of a hypergeometric draw; chi squared with N - 1 degrees of freedom
    statistic = ((kept - expected) ** 2).sum() / (n_seeds * (SIZE / N) * (1 - SIZE / N)) * (N - 1) / N
    assert abs(statistic - (N - 1)) < 5.0 * np.sqrt(2 * (N - 1))


def test_rows_of_small_integers_do_not_collide():
    grid = np.array(np.meshgrid(*[np.arange(-10.0, 11.0)] * 3)).reshape(3, -1).T
    for y in (np.zeros(len(grid), dtype=int), np.arange(len(grid)) % 3):
        rows = filled(grid, y, size=10**6).rows()
        assert len(rows.weight) == len(grid)
        assert (rows.weight == 1.0).all()


def test_minus_zero_is_zero():
    zeros = np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]])
    minus = np.where(zeros == 0.0, -0.0, zeros)
    np.testing.assert_array_equal(new()._hash(minus, Y[:3]), new()._hash(zeros, Y[:3]))
    assert np.signbit(minus[1]).all()  # what is hashed is left as it is


@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, lambda X: X[::-1].copy()[::-1], lambda X: np.repeat(X, 2, 1)[:, ::2]],
    ids=["fortran", "reversed", "strided"],
)
def test_the_layout_of_rows_in_memory_does_not_matter(layout):
    assert not layout(X).flags.c_contiguous
    np.testing.assert_array_equal(new()._hash(layout(X), Y), new()._hash(X, Y))


@pytest.mark.parametrize("in_cache", [1, 14, 1 << 14], ids=["one-row", "seven-rows", "all-rows"])
@pytest.mark.parametrize("rows", [X, np.asfortranarray(X), X.round()], ids=["normal", "fortran", "integers"])
def test_a_row_has_the_same_hash_alone_and_in_a_batch(rows, in_cache, monkeypatch):
    monkeypatch.setattr("gaussify._estimators._distinct._IN_CACHE", in_cache)
    reservoir = new()
    alone = [reservoir._hash(rows[i : i + 1], Y[i : i + 1])[0] for i in range(N)]
    np.testing.assert_array_equal(reservoir._hash(rows, Y), np.array(alone))


def test_one_row_with_different_labels_is_different_rows():
    rows = filled(np.zeros((6, 2)), np.array([0, 1, 2, 0, 1, 0])).rows()
    assert dict(zip(rows.labels.tolist(), rows.weight.tolist(), strict=True)) == {0: 3.0, 1: 2.0, 2: 1.0}


def test_swapped_features_are_different_rows():
    swapped = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [2.0, 2.0]])
    assert len(filled(swapped, np.zeros(4, dtype=int)).rows().weight) == 4


def test_repeated_rows_are_one_row_with_the_sum_of_their_weights():
    rows = filled(np.tile(X[:3], (4, 1)), np.tile(Y[:3], 4), np.repeat([1.0, 2.0, 0.5, 0.25], 3)).rows()
    assert len(rows.weight) == 3
    assert (rows.weight == 3.75).all()


def test_rows_of_weight_zero_are_not_kept():
    weight = np.where(np.arange(N) < 10, 1.0, 0.0)
    assert_same(filled(X, Y, weight), filled(X[:10], Y[:10]))


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_unlearning_takes_rows_out_of_a_sample_that_holds_all(weighted):
    weight = WEIGHT if weighted else np.ones(N)
    reservoir = filled(X, Y, weight, size=N)
    reservoir.add(X[20:], Y[20:], weight[20:], sign=-1.0)
    assert_same(reservoir, filled(X[:20], Y[:20], weight[:20], size=N))


def test_unlearning_takes_rows_out_of_a_sample_that_turned_rows_away():
    reservoir = filled(X, Y)
    before = reservoir.rows()
    gone = np.isin(X[:, 0], before.features[::2, 0])
    reservoir.add(X[gone], Y[gone], sign=-1.0)
    left, expected = reservoir.rows().key, before.key[1::2]
    np.testing.assert_array_equal(np.sort(left), np.sort(expected))
    # rows that come later still have to pass the limit of the first ones: the sample stays a uniform one
    reservoir.add(X[gone], Y[gone])
    np.testing.assert_array_equal(reservoir.rows().features, before.features)


def test_unlearning_a_part_of_a_weight_leaves_the_rest():
    reservoir = filled(X[:5], Y[:5], np.full(5, 3.0))
    reservoir.add(X[:2], Y[:2], np.full(2, 1.0), sign=-1.0)
    assert_same(reservoir, filled(X[:5], Y[:5], np.array([2.0, 2.0, 3.0, 3.0, 3.0])))


@settings(max_examples=15)
@given(ends=cuts, rate=st.sampled_from([0.01, 0.5, 20.0]), size=st.sampled_from([5, SIZE, N]))
def test_the_sample_under_forgetting_does_not_depend_on_the_chunks(ends, rate, size):
    def stream(ends):
        reservoir = new(size)
        for some in np.split(np.arange(N), ends):
            if len(some):
                reservoir.decay(rate * len(some))
                reservoir.add(X[some], Y[some], WEIGHT[some], age=rate * np.arange(len(some) - 1, -1, -1.0))
        return reservoir.rows()

    chunked, whole = stream(ends), stream([])
    np.testing.assert_array_equal(chunked.features, whole.features)
    np.testing.assert_allclose(chunked.weight, whole.weight, rtol=1e-9)
    np.testing.assert_allclose(chunked.log_rank, whole.log_rank, rtol=1e-9, atol=1e-9)


def test_weights_under_forgetting_are_those_of_the_rows_ages():
    reservoir = new(size=N)
    for i in range(N):
        reservoir.decay(0.1)
        reservoir.add(X[i : i + 1], Y[i : i + 1])
    rows = reservoir.rows()
    age = N - 1 - np.array([int(np.flatnonzero(X[:, 0] == x)[0]) for x in rows.features[:, 0]])
    np.testing.assert_allclose(rows.weight, np.exp(-0.1 * age), rtol=1e-12)


def test_forgetting_prefers_recent_rows():
    rows = np.random.default_rng(2).normal(size=(2000, 2))
    kept = []
    for seed in range(20):
        reservoir = new(size=50, seed=seed)
        for start in range(0, 2000, 100):
            reservoir.decay(0.01 * 100)
            reservoir.add(rows[start : start + 100], np.zeros(100, dtype=int), age=0.01 * np.arange(99, -1, -1.0))
        kept += [int(np.flatnonzero(rows[:, 0] == x)[0]) for x in reservoir.rows().features[:, 0]]
    age = 1999 - np.array(kept)
    # drawn without replacement in proportion to exp(-age / 100): a mean age a little above 100, not 1000
    assert 80 < age.mean() < 180


@pytest.mark.parametrize("n", [1, 10, 5000], ids=["single-rows", "small-chunks", "large-chunks"])
@pytest.mark.parametrize("rate", [0.0, 0.1], ids=["remembering", "forgetting"])
def test_memory_is_bounded(n, rate):
    reservoir, rng, largest = new(size=100), np.random.default_rng(0), 0
    for _ in range(300 // n + 5):
        reservoir.decay(rate * n)
        reservoir.add(rng.normal(size=(n, 2)), rng.integers(0, 3, n), age=rate * np.arange(n - 1, -1, -1.0))
        largest = max(largest, len(pickle.dumps(reservoir)))
    assert len(reservoir.rows().weight) <= 100
    assert largest < 2 * 100 * 200 * 8


def test_a_restored_sample_goes_on_alike():
    reservoir, restored = filled(X[:40], Y[:40]), new()
    reservoir.decay(0.3)
    restored.restore(reservoir.rows(), reservoir.present_log_limit)
    for each in (reservoir, restored):
        each.decay(0.2)
        each.add(X[40:], Y[40:], WEIGHT[40:])
    assert_same(restored, reservoir)


def test_ageing_beyond_the_range_of_floats_leaves_recent_rows():
    reservoir = filled(X, Y)
    reservoir.decay(1e6)
    reservoir.add(X[:5] + 1.0, Y[:5])
    rows = reservoir.rows()
    assert len(rows.weight) == 5
    np.testing.assert_array_equal(rows.weight, 1.0)


def test_ranks_may_grow_beyond_the_range_of_floats():
    reservoir = new(size=20)
    reservoir.decay(36.0 * N)
    reservoir.add(X, Y, age=36.0 * np.arange(N - 1, -1, -1.0))
    np.testing.assert_array_equal(reservoir.rows().features, X[: -len(reservoir.rows().weight) - 1 : -1])
    assert len(reservoir.rows().weight) > 1


def test_widened_rows_are_those_that_ended_in_zeros():
    narrow = filled(X, Y)
    narrow.widen(4)
    wide = filled(np.pad(X, ((0, 0), (0, 2))), Y)
    assert_same(narrow, wide)


@pytest.mark.parametrize("labels", [[0, 1], [0.0, 1.0], [False, True]], ids=["int", "float", "bool"])
def test_labels_that_are_equal_numbers_are_the_same(labels):
    two = Y % 2
    assert_same(filled(X, two, classes=np.array(labels)), filled(X, two, classes=np.array([0, 1])))


def test_a_heavy_row_that_is_turned_away_does_not_push_out_light_ones():
    by_rank = filled(X, Y, size=N).rows()
    order = np.array([int(np.flatnonzero(X[:, 0] == x)[0]) for x in by_rank.features[:, 0]])
    weight = np.ones(N)
    weight[order[0]], weight[order[-1]] = 1e-7, 1e4
    in_parts = new()
    for part in np.split(order, 6):
        in_parts.add(X[part], Y[part], weight[part])
    assert_same(in_parts, filled(X, Y, weight))


# --- classes of different sizes ------------------------------------------------------------------------------------

UNEVEN = np.repeat([0, 1, 2], [3, 40, 17])


@pytest.mark.parametrize(
    ("size", "kept"),
    [(60, [3, 40, 17]), (59, [3, 39, 17]), (30, [3, 13, 13]), (10, [3, 3, 3]), (8, [2, 2, 2]), (3, [1, 1, 1])],
)
def test_each_class_keeps_its_smallest_ranks_up_to_a_quota(size, kept):
    every, sample = filled(X, UNEVEN, size=N).rows(), filled(X, UNEVEN, size=size).rows()
    assert np.bincount(sample.labels).tolist() == kept
    for label, n in enumerate(kept):
        np.testing.assert_array_equal(sample.key[sample.labels == label], every.key[every.labels == label][:n])
        assert (np.diff(sample.log_rank[sample.labels == label]) > 0.0).all()


def test_of_more_classes_than_rows_those_of_smallest_ranks_keep_one():
    every, sample = filled(X, UNEVEN, size=N).rows(), filled(X, UNEVEN, size=2).rows()
    firsts = sorted(every.log_rank[every.labels == label][0] for label in range(3))
    assert sample.log_rank.tolist() == firsts[:2]


@pytest.mark.parametrize("n", [4, 10, 25])
def test_the_first_rows_of_a_sample_are_a_sample_too(n):
    sample, smaller = filled(X, UNEVEN, size=N).rows(), filled(X, UNEVEN, size=n).rows()
    np.testing.assert_array_equal(sample.key[: len(smaller.key)], smaller.key)


@settings(max_examples=15)
@given(
    order=orders,
    ends=cuts,
    size=st.sampled_from([1, 2, 5, SIZE, 44, N]),
    rate=st.sampled_from([0.0, 0.5, 20.0]),
    late=st.sampled_from([[], [0], [0, 2]]),
)
def test_uneven_classes_that_come_late_and_fade_are_sampled_alike_in_any_chunks(order, ends, size, rate, late):
    order = np.r_[order[~np.isin(UNEVEN[order], late)], order[np.isin(UNEVEN[order], late)]]

    def stream(ends, known):
        reservoir = new(size, classes=CLASSES[known])
        for some in np.split(order, ends):
            if not np.isin(UNEVEN[some], known).all():
                places, known = known, [0, 1, 2]
                reservoir.set_classes(CLASSES, np.array(places))
            labels = np.searchsorted(known, UNEVEN[some])
            if rate:
                reservoir.decay(rate * len(some))
                reservoir.add(X[some], labels, WEIGHT[some], age=rate * np.arange(len(some) - 1, -1, -1.0))
            elif len(some):
                reservoir.add(X[some], labels, WEIGHT[some])
        return reservoir

    chunked, whole = stream(ends, [k for k in range(3) if k not in late]), stream([], [0, 1, 2])
    for mine, theirs in zip(chunked.rows(), whole.rows(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(chunked.present_log_limit, whole.present_log_limit, rtol=1e-9, atol=1e-9)


@settings(max_examples=15)
@given(
    shard=st.lists(st.integers(0, 2), min_size=N, max_size=N).map(np.array),
    gone=st.lists(st.booleans(), min_size=N, max_size=N).map(np.array),
    order=orders,
    ends=cuts,
    size=st.sampled_from([2, SIZE, 44]),
)
def test_shards_of_uneven_classes_are_sampled_and_unlearnt_alike_in_any_order(shard, gone, order, ends, size):
    merged = new(size)
    for k in np.unique(shard):
        merged.merge(filled(X[shard == k], UNEVEN[shard == k], size=size), np.arange(3))
    for some in np.split(order, ends):
        if gone[some].any():
            merged.add(X[some[gone[some]]], UNEVEN[some[gone[some]]], sign=-1.0)
    whole = filled(X, UNEVEN, size=size)
    if gone.any():
        whole.add(X[gone], UNEVEN[gone], sign=-1.0)
    assert_same(merged, whole)


def test_rows_of_a_class_that_fits_are_kept_on_a_long_stream():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(20_000, 2)), (np.arange(20_000) % 1000 == 7).astype(int)
    one_by_one, at_once = new(size=100), filled(rows, labels, size=100)
    for i in range(20_000):
        one_by_one.add(rows[i : i + 1], labels[i : i + 1])
    assert_same(one_by_one, at_once)
    assert np.bincount(at_once.rows().labels).tolist() == [80, 20]
