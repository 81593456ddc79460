"""One model, however its rows came: at once, in chunks, in any order, in shards, from a file, taken out again."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussify import BayesianLogisticRegression

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "prior_variance": 2.0}
N = 40


def make_rows(n_classes: int, n: int = N, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 5.0, 0.2][:d] + 0.5
    y = (X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(1)
    y[:n_classes] = np.arange(n_classes)
    return X, y, rng.uniform(0.1, 3.0, size=n)


X2, Y2, _ = make_rows(2)
X3, Y3, WEIGHT = make_rows(3)
NAMES = np.array(["beech", "ash", "oak"])
DATA = {"binary": (X2, Y2), "three-strings": (X3, NAMES[Y3])}
data = pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA)


def new(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{**FIXED, **params})


def in_chunks(model, X, y, ends, *, predict: bool = False, weight=None):
    for start, end in pairwise(ends):
        if predict and hasattr(model, "classes_"):
            model.predict_proba(X[:1])
        if start < end:
            part = slice(start, end)
            model.partial_fit(X[part], y[part], sample_weight=None if weight is None else weight[part])
    return model


def assert_same(actual, expected, X, tolerance: float = 1e-9) -> None:
    assert actual.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_allclose(actual.predict_proba(X), expected.predict_proba(X), rtol=0, atol=tolerance)
    for mine, theirs in zip(actual.predict_latent(X), expected.predict_latent(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


orders = st.permutations(range(N)).map(np.array)
cuts = st.lists(st.integers(0, N), max_size=10).map(lambda inner: [0, *sorted(inner), N])


# --- chunks and shards ---------------------------------------------------------------------------------------------


@data
@settings(max_examples=8)
@given(order=orders, ends=cuts, predict=st.booleans())
def test_fit_equals_partial_fit_in_any_chunking_and_order(X, y, order, ends, predict):
    model = in_chunks(new(), X[order], y[order], ends, predict=predict)
    assert_same(model, new().fit(X, y), X)
    assert model.n_rows_seen_ == N


@data
@settings(max_examples=8)
@given(shard=st.lists(st.integers(0, 3), min_size=N, max_size=N).map(np.array), order=st.permutations(range(4)))
def test_fit_equals_the_merge_of_shards_in_any_order(X, y, shard, order):
    # four shards of random rows: several lack a class, some may be empty
    shards = [new().partial_fit(X[shard == k], y[shard == k]) for k in order if (shard == k).any()]
    whole = shards[0]
    for other in shards[1:]:
        whole.merge(other)
    assert_same(whole, new().fit(X, y), X)
    assert whole.n_rows_seen_ == N


@data
def test_fit_equals_the_merge_of_shards_of_one_class_each(X, y):
    shards = [new().partial_fit(X[y == label], y[y == label]) for label in np.unique(y)[::-1]]
    whole = shards[0]
    for other in shards[1:]:
        whole.merge(other)
    assert_same(whole, new().fit(X, y), X)


def test_merging_leaves_the_other_model_alone():
    other = new().partial_fit(X3[20:], Y3[20:])
    before = other.predict_proba(X3)
    model = new().fit(X3[:20], Y3[:20]).merge(other)
    model.partial_fit(X3[:5], Y3[:5])
    np.testing.assert_array_equal(other.predict_proba(X3), before)


def test_merging_a_model_with_itself_counts_its_rows_twice():
    model = new().fit(X3, Y3)
    model.merge(model)
    assert_same(model, new().fit(np.vstack([X3, X3]), np.r_[Y3, Y3]), X3)


@data
@pytest.mark.parametrize("params", [FIXED, {}], ids=["fixed", "auto"])
def test_a_loaded_model_is_the_saved_one_and_learns_on_alike(X, y, params, tmp_path):
    model = BayesianLogisticRegression(**params).partial_fit(X[:30], y[:30])
    model.save(tmp_path / "model")
    loaded = BayesianLogisticRegression.load(tmp_path / "model")
    assert_same(loaded, model, X, 0.0)
    assert loaded.get_params() == model.get_params()
    assert_same(loaded.partial_fit(X[30:], y[30:]), model.partial_fit(X[30:], y[30:]), X, 1e-12)


@data
@pytest.mark.parametrize("split", ["chunks", "shards"])
def test_with_everything_automatic_the_model_is_the_same_once_tuned(X, y, split, tmp_path):
    whole = BayesianLogisticRegression(refine=False).fit(X, y)
    order = np.random.default_rng(1).permutation(N)
    if split == "chunks":
        model = in_chunks(BayesianLogisticRegression(refine=False), X[order], y[order], [0, 15, 16, N], predict=True)
    else:
        model, *others = (
            BayesianLogisticRegression(refine=False).partial_fit(X[part], y[part]) for part in np.split(order, 4)
        )
        for other in others:
            model.merge(other)
    model.save(tmp_path / "model")
    model = BayesianLogisticRegression.load(tmp_path / "model").tune()
    assert_same(model, whole, X)
    assert (model.alpha_eps_, model.method_) == (whole.alpha_eps_, whole.method_)
    assert (model.temperature_, model.score_) == pytest.approx((whole.temperature_, whole.score_), rel=1e-8)
    np.testing.assert_allclose(model.prior_variance_, whole.prior_variance_, rtol=1e-8)


@pytest.mark.parametrize("block", [1, 7, 1 << 22], ids=["one-row", "few-rows", "all-rows"])
@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_rows_are_learnt_alike_in_blocks_of_any_size(block, forgetting, monkeypatch):
    expected = new(forgetting=forgetting).fit(X3, Y3, WEIGHT)
    monkeypatch.setattr("gaussify.linear._classifier._BLOCK", block)
    assert_same(new(forgetting=forgetting).fit(X3, Y3, WEIGHT), expected, X3)


# --- classes that come late ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 1, 2], ids=["before", "between", "after"])
@pytest.mark.parametrize("params", [FIXED, {"temperature": 1.0, "refine": False}], ids=["fixed", "auto"])
def test_a_class_first_seen_late_ends_as_if_declared_at_the_start(late, params):
    early, y = Y3 != late, np.sort(NAMES)[Y3]
    declared, surprised = BayesianLogisticRegression(**params), BayesianLogisticRegression(**params)
    declared.partial_fit(X3[early], y[early], classes=NAMES)
    surprised.partial_fit(X3[early], y[early])
    surprised.predict_proba(X3)  # by a logistic, for two classes
    for model in (declared, surprised):
        model.partial_fit(X3[~early], y[~early]).tune()
    assert_same(surprised, declared, X3)
    assert_same(surprised, BayesianLogisticRegression(**params).fit(X3, y), X3)


def test_a_class_declared_late_and_never_seen_ends_as_if_declared_at_the_start():
    late = new().partial_fit(X2, Y2)
    late.predict_proba(X2)
    late.partial_fit(X2[:1], Y2[:1], classes=[0, 1, 7])
    early = new().partial_fit(X2, Y2, classes=[7, 1, 0]).partial_fit(X2[:1], Y2[:1])
    assert_same(late, early, X2)
    assert late.classes_.tolist() == [0, 1, 7]


def test_one_class_becomes_two_becomes_three():
    model = new()
    for label, n_latents in ((1, None), (0, 1), (2, 3)):
        model.partial_fit(X3[Y3 == label], Y3[Y3 == label])
        assert model.predict_proba(X3).shape == (N, len(model.classes_))
        if n_latents is not None:
            assert model.predict_latent(X3)[0].shape == (N, n_latents)
    assert_same(model, new().fit(X3, Y3), X3)


def test_a_longer_label_that_comes_late_is_kept_whole():
    model = new().partial_fit(X3[:2], np.array(["b", "a"])).partial_fit(X3[2:4], np.array(["a long one", "b"]))
    assert model.classes_.tolist() == ["a", "a long one", "b"]


# --- weights and unlearning ----------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("params", [FIXED, {"temperature": 1.0, "refine": False}], ids=["fixed", "auto"])
def test_a_row_of_weight_two_counts_as_that_row_twice(X, y, params):
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    weighted = BayesianLogisticRegression(**params).fit(X, y, sample_weight=weight)
    twice = np.r_[np.arange(N), np.flatnonzero(weight == 2.0)]
    assert_same(weighted, BayesianLogisticRegression(**params).fit(X[twice], y[twice]), X)


@data
@pytest.mark.parametrize("params", [FIXED, {"temperature": 1.0, "refine": False}], ids=["fixed", "auto"])
def test_a_row_of_weight_zero_is_absent(X, y, params):
    weight = np.where(np.arange(N) % 3 == 1, 0.0, 1.5)
    weighted = BayesianLogisticRegression(**params).fit(X, y, sample_weight=weight)
    some = weight > 0.0
    assert_same(weighted, BayesianLogisticRegression(**params).fit(X[some], y[some], weight[some]), X)


def test_a_chunk_whose_rows_all_have_weight_zero_changes_nothing():
    model = new().fit(X3, Y3)
    before = model.predict_proba(X3)
    model.partial_fit(X3[:1], Y3[:1], sample_weight=[0.0])
    np.testing.assert_allclose(model.predict_proba(X3), before, rtol=0, atol=1e-12)


@data
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("params", [FIXED, {**FIXED, "temperature": "auto"}], ids=["fixed", "auto"])
def test_unlearning_undoes_learning(X, y, weighted, params):
    weight = WEIGHT if weighted else np.ones(N)
    kept, gone = np.arange(N) < 25, np.arange(N) >= 25
    model = BayesianLogisticRegression(**params).fit(X, y, weight)
    model.unlearn(X[gone], y[gone], weight[gone] if weighted else None).tune()
    assert_same(model, BayesianLogisticRegression(**params).fit(X[kept], y[kept], weight[kept]), X, 1e-7)
    assert model.n_rows_seen_ == 25


def test_unlearning_after_many_rows_is_accurate():
    X, y, _ = make_rows(3, n=20_000)
    model = new().fit(X, y).unlearn(X[50:], y[50:])
    assert_same(model, new().fit(X[:50], y[:50]), X3, 1e-7)


@pytest.mark.parametrize("params", [FIXED, {"temperature": 1.0, "alpha_eps": 0.1}], ids=["fixed", "auto-prior"])
def test_unlearning_everything_returns_to_the_prior(params):
    model = BayesianLogisticRegression(**params).fit(X3, Y3).unlearn(X3, Y3)
    assert model.n_rows_seen_ == 0
    assert not model.statistics_.gram.any()
    assert not model.coef_.any()
    np.testing.assert_allclose(model.predict_proba(X3), 1 / 3, atol=1e-9)


def test_unlearning_all_rows_of_a_class_leaves_it_as_if_only_declared():
    model = new().fit(X3, Y3).unlearn(X3[Y3 == 1], Y3[Y3 == 1])
    rest = Y3 != 1
    assert_same(model, new().partial_fit(X3[rest], Y3[rest], classes=[0, 1, 2]), X3, 1e-7)


def test_unlearning_and_learning_again_changes_nothing():
    model = new().fit(X3, Y3)
    before = model.predict_proba(X3)
    model.unlearn(X3[:9], Y3[:9]).partial_fit(X3[:9], Y3[:9])
    np.testing.assert_allclose(model.predict_proba(X3), before, atol=1e-9)


# --- row by row ----------------------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_single_rows_with_a_prediction_before_each_equal_one_fit(X, y, weighted):
    weight = WEIGHT if weighted else None
    model = in_chunks(new(), X, y, range(N + 1), predict=True, weight=weight)
    assert_same(model, new().fit(X, y, weight), X)


def test_a_long_stream_of_single_rows_is_cleared_of_rounding_from_time_to_time(monkeypatch):
    monkeypatch.setattr("gaussify.linear._current._MOST_UPDATES", 50)
    X, y, _ = make_rows(3, n=200)
    model = in_chunks(new(), X, y, [0, 10, *range(11, 201)], predict=True)
    assert_same(model, new().fit(X, y), X3)


@pytest.mark.parametrize("size", [2, 8, 9], ids=["two-rows", "the-most-rows", "too-many-rows"])
def test_small_chunks_with_a_prediction_before_each_equal_one_fit(size):
    model = in_chunks(new(), X3, Y3, [*range(0, N, size), N], predict=True)
    assert_same(model, new().fit(X3, Y3), X3)


def test_arrays_may_be_changed_after_they_were_learnt():
    X, y, weight = X3.copy(), Y3.copy(), WEIGHT.copy()
    model = new().partial_fit(X, y, sample_weight=weight)
    X[:], y[:], weight[:] = -1.0, 0, 100.0
    assert_same(model, new().fit(X3, Y3, WEIGHT), X3)


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: X[::-1].copy()[::-1], lambda X: X.astype(np.float32)])
def test_layout_and_width_of_floats_do_not_matter(layout):
    assert_same(new().fit(layout(X3), Y3), new().fit(np.ascontiguousarray(layout(X3), dtype=float), Y3), X3)


# --- forgetting ----------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(ends=cuts, predict=st.booleans(), weighted=st.booleans())
def test_forgetting_does_not_depend_on_the_chunking(ends, predict, weighted):
    weight = WEIGHT if weighted else None
    model = in_chunks(new(forgetting=0.9), X3, Y3, ends, predict=predict, weight=weight)
    assert_same(model, new(forgetting=0.9).fit(X3, Y3, weight), X3)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_forgetting_weighs_a_row_by_its_age(weighted):
    weight = WEIGHT if weighted else np.ones(N)
    forgetful = new(forgetting=0.9).fit(X3, Y3, weight)
    weighed = new().fit(X3, Y3, weight * 0.9 ** np.arange(N - 1, -1, -1))
    for name, tensor in vars(forgetful.statistics_).items():
        np.testing.assert_allclose(tensor, getattr(weighed.statistics_, name), rtol=1e-12, atol=1e-12)
    assert_same(forgetful, weighed, X3)


def test_forgetting_with_everything_else_automatic_does_not_depend_on_the_chunking():
    models = [BayesianLogisticRegression(forgetting=0.9, refine=False) for _ in range(2)]
    models[0].fit(X2, Y2)
    in_chunks(models[1], X2, Y2, [0, 5, 6, 7, 30, N], predict=True).tune()
    assert_same(*models, X2)


def test_forgetting_of_one_forgets_nothing():
    forgetful = in_chunks(new(forgetting=1.0), X3, Y3, range(N + 1))
    assert_same(forgetful, new().fit(X3, Y3), X3)


@pytest.mark.parametrize("at_once", [True, False], ids=["one-chunk", "single-rows"])
def test_the_prior_is_not_forgotten(at_once):
    model = new(forgetting=0.5, fit_intercept=False).fit(X3, Y3)
    zeros = np.zeros((200, 3))  # say nothing about the weights, but age what was said
    ends = [0, 200] if at_once else range(201)
    in_chunks(model, zeros, np.zeros(200, dtype=int), ends)
    assert np.abs(model.coef_).max() < 1e-9
    _, variance = model.predict_latent(np.eye(3))
    np.testing.assert_allclose(variance, FIXED["prior_variance"] / FIXED["temperature"] ** 2, rtol=1e-9)


def test_a_forgetful_model_goes_on_alike_after_loading(tmp_path):
    model = BayesianLogisticRegression(forgetting=0.9, reservoir_size=10, temperature=1.0).partial_fit(X2[:30], Y2[:30])
    model.save(tmp_path / "model")
    loaded = BayesianLogisticRegression.load(tmp_path / "model").partial_fit(X2[30:], Y2[30:]).tune()
    assert_same(loaded, model.partial_fit(X2[30:], Y2[30:]).tune(), X2)


@pytest.mark.parametrize("chunk", [3000, 1000, 100])
def test_a_long_stream_can_be_learnt_with_forgetting(chunk):
    X, y, _ = make_rows(3, n=3000)
    model = in_chunks(new(forgetting=0.9, reservoir_size=50), X, y, range(0, 3001, chunk))
    assert_same(model, new().fit(X[-300:], y[-300:], 0.9 ** np.arange(299, -1, -1)), X3)
