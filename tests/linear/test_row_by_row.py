"""Rows that are predicted and learnt one at a time, against batches and models that were fitted anew."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linear.test_equalities import FIXED, WEIGHT, X2, X3, Y2, Y3, N, data, new

COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}
copies = pytest.mark.parametrize("twin", COPIES.values(), ids=COPIES)
START = 10  # rows that a stream begins with


def row(X, i: int):
    return X[i : i + 1]


def learn(model, X, y, i: int, weight=None):
    return model.partial_fit(row(X, i), row(y, i), sample_weight=None if weight is None else weight[i : i + 1])


def begun(X, y, weight=None):
    weight = None if weight is None else weight[:START]
    return new().partial_fit(X[:START], y[:START], classes=np.unique(y), sample_weight=weight)


def assert_knows(model, X, y, learnt, weight=None) -> None:
    """That the model is the one of the rows that were learnt, asked in a batch and one by one."""
    fresh = new().partial_fit(
        X[learnt], y[learnt], classes=np.unique(y), sample_weight=None if weight is None else weight[learnt]
    )
    expected = fresh.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=0, atol=1e-9)
    for i in (0, N // 2, N - 1):
        np.testing.assert_allclose(model.predict_proba(row(X, i)), expected[[i]], rtol=0, atol=1e-9)
    for mine, theirs in zip(model.predict_latent(X), fresh.predict_latent(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@data
def test_a_row_is_predicted_alike_alone_and_in_a_batch_all_along_a_stream(X, y):
    model = begun(X, y)
    for i in range(START, N):
        alone, together = model.predict_proba(row(X, i)), model.predict_proba(X)[[i]]
        np.testing.assert_allclose(alone, together, rtol=0, atol=1e-9)
        learn(model, X, y, i)
    assert_knows(model, X, y, np.arange(N))


@data
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_a_row_that_was_predicted_and_then_learnt_is_learnt_once(X, y, weighted):
    weight = WEIGHT if weighted else None
    model = begun(X, y, weight)
    for i in range(START, N):
        model.predict_proba(row(X, i))
        learn(model, X, y, i, weight)
    assert_knows(model, X, y, np.arange(N), weight)


@data
def test_what_was_asked_about_one_row_is_not_used_for_another(X, y):
    model = begun(X, y)
    for i in range(START, N):
        model.predict_proba(row(X, (i + 7) % N))
        learn(model, X, y, i)
        assert_knows(model, X, y, np.arange(i + 1))


@data
def test_what_was_asked_is_not_used_after_another_row_was_learnt(X, y):
    model = begun(X, y)
    model.predict_proba(row(X, 20))
    for i in (15, 20, 20, 21):  # the row that was asked about comes second, and again
        learn(model, X, y, i)
    assert_knows(model, X, y, [*range(START), 15, 20, 20, 21])


@data
def test_what_was_asked_is_not_used_with_a_row_of_weight_zero_between(X, y):
    weight = np.ones(N)
    weight[15] = 0.0
    model = begun(X, y)
    model.predict_proba(row(X, 20))
    for i in (15, 20, 21):
        learn(model, X, y, i, weight)
    assert_knows(model, X, y, [*range(START), 20, 21])


@data
@pytest.mark.parametrize("changes", [{"alpha_eps": 0.02}, {"temperature": 3.0}, {"prior_variance": 0.1}], ids=str)
def test_what_was_asked_is_not_used_with_other_numbers(X, y, changes):
    model = begun(X, y)
    model.predict_proba(row(X, 20))
    learn(model.set_params(**changes), X, y, 20)
    model.set_params(**{name: FIXED[name] for name in changes})
    assert_knows(model, X, y, [*range(START), 20])


def test_what_was_asked_is_not_used_after_rows_were_unlearnt():
    model = begun(X3, Y3)
    model.predict_proba(row(X3, 20))
    learn(model.unlearn(row(X3, 5), row(Y3, 5)), X3, Y3, 20)
    assert_knows(model, X3, Y3, [*range(5), *range(6, START), 20])


def test_a_row_that_is_changed_in_place_after_it_was_asked_about_is_another_row():
    asked, model = row(X3, 20).copy(), begun(X3, Y3)
    model.predict_proba(asked)
    asked[:] = X3[21]
    model.partial_fit(asked, row(Y3, 21))
    assert_knows(model, X3, Y3, [*range(START), 21])


steps = st.lists(
    st.tuples(st.sampled_from(["ask", "ask-all", "learn", "learn-two"]), st.integers(START, N - 2)), max_size=12
)


@data
@settings(max_examples=20)
@given(steps=steps)
def test_any_sequence_of_questions_and_rows_is_the_same_as_the_rows(X, y, steps):
    model, learnt = begun(X, y), [*range(START)]
    for step, i in steps:
        if step == "ask":
            model.predict_proba(row(X, i))
        elif step == "ask-all":
            model.predict_proba(X)
        else:
            some = [i] if step == "learn" else [i, i + 1]
            model.partial_fit(X[some], y[some])
            learnt += some
    assert_knows(model, X, y, learnt)


# --- copies --------------------------------------------------------------------------------------------------------


@copies
@data
@pytest.mark.parametrize("waiting", [False, True], ids=["asked", "row-waits"])
def test_a_copy_learns_and_predicts_without_changing_the_model(twin, X, y, waiting):
    model, learnt = begun(X, y), [*range(START)]
    model.predict_proba(row(X, 20))
    if waiting:
        learn(model, X, y, 20)
        learnt.append(20)
    other = twin(model)
    for i in (20, 21, 22):
        learn(other, X, y, i).predict_proba(row(X, 20))
    assert_knows(model, X, y, learnt)
    assert_knows(other, X, y, [*learnt, 20, 21, 22])


@copies
@data
def test_a_model_learns_and_predicts_without_changing_its_copy(twin, X, y):
    model = begun(X, y)
    model.predict_proba(row(X, 20))
    other = twin(model)
    for i in (20, 21, 22):
        learn(model, X, y, i).predict_proba(row(X, 20))
    assert_knows(other, X, y, np.arange(START))
    assert_knows(model, X, y, [*range(START), 20, 21, 22])


@copies
def test_model_and_copy_take_turns(twin):
    model = begun(X2, Y2)
    other = twin(model)
    for i in range(START, N):
        each = model if i % 2 else other
        each.predict_proba(row(X2, i))
        learn(each, X2, Y2, i)
        (other if i % 2 else model).predict_proba(row(X2, i))
    for each, rest in ((model, 1), (other, 0)):
        assert_knows(each, X2, Y2, [*range(START), *(i for i in range(START, N) if i % 2 == rest)])


@copies
def test_a_copy_keeps_predictions(twin):
    model = begun(X3, Y3)
    expected = model.predict_proba(X3)
    np.testing.assert_allclose(twin(model).predict_proba(X3), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(twin(model).predict_proba(row(X3, 30)), expected[[30]], rtol=0, atol=1e-9)


@copies
def test_what_was_not_fitted_can_be_copied(twin):
    other = twin(new())
    assert other.get_params() == new().get_params()
    np.testing.assert_array_equal(other.fit(X3, Y3).predict_proba(X3), new().fit(X3, Y3).predict_proba(X3))
