"""Rules without noise: the rows follow them, and records say which contenders took part."""

from itertools import product

import numpy as np
import pytest

from gaussify.experiments import get, load
from gaussify.experiments.benchmarks import _noise_free
from gaussify.experiments.benchmarks._noise_free import EXACT, SPARSE, contenders
from gaussify.experiments.benchmarks._rules import (
    RULES,
    criteria,
    decision_table,
    lexicographic,
    split_rule,
    tic_tac_toe,
    torques,
)


@pytest.mark.parametrize("rule", RULES)
def test_rows_are_different_and_the_same_each_time(rule):
    X, y = RULES[rule]()
    again, same = RULES[rule]()
    assert len(np.unique(X, axis=0)) == len(X)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, same)
    assert set(y) == set(range(y.max() + 1))


def test_boards_are_those_on_which_a_game_can_end():
    X, y = tic_tac_toe()
    boards = X.reshape(-1, 9, 3).argmax(2)
    assert X.sum(1).tolist() == [9.0] * 958
    n_x, n_o = (boards == 1).sum(1), (boards == 2).sum(1)
    assert set(n_x - n_o) == {0, 1}
    draws = (boards != 0).all(1) & (y == 0) & (n_x == 5)
    assert draws.sum() == 16  # boards that are full and that nobody has won
    assert (n_x[y == 1] - n_o[y == 1]).tolist() == [1] * 626  # who wins has moved last


def test_words_are_compared_as_python_compares_them():
    X, y = lexicographic()
    expected = [((a, b) > (c, d)) - ((a, b) < (c, d)) + 1 for a, b, c, d in product(range(5), repeat=4)]
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(X[7], [0, 0, 1, 2])


def test_the_class_of_a_decision_depends_on_the_first_four_columns_alone():
    X, y = decision_table(2000, np.random.default_rng(1))
    keys = np.unique(X[:, :16], axis=0, return_inverse=True)[1].ravel()
    assert all(len(set(y[keys == key])) == 1 for key in range(keys.max() + 1))
    for part in range(4):  # and on each of the four
        others = np.delete(X[:, :16].reshape(-1, 4, 4), part, axis=1).reshape(-1, 12)
        keys = np.unique(others, axis=0, return_inverse=True)[1].ravel()
        assert any(len(set(y[keys == key])) > 1 for key in range(keys.max() + 1))


def test_the_worst_criterion_decides():
    X, y = criteria(1728, np.random.default_rng(0))
    _, _, _, seats, _, safety = X.T
    assert (y[(safety == 0) | (seats == 0)] == 0).all()
    best = X.astype(int).tolist().index([0, 0, 3, 2, 2, 2])
    assert y[best] == 2


def test_torques_are_compared():
    X, y = torques()
    rows = {tuple(row): label for row, label in zip(X.astype(int).tolist(), y.tolist(), strict=True)}
    assert [rows[row] for row in ((1, 2, 2, 1), (3, 2, 5, 1), (3, 2, 4, 2))] == [1, 2, 0]


def test_solved_rules_do_not_decide_the_ratio():
    common = {"split": 0, "ece": 0.0, "accuracy": 1.0, "seconds": 1.0}
    nll = {"hard": {EXACT: 0.2, SPARSE: 0.1}, "solved": {EXACT: 1e-5, SPARSE: 1e-3}}
    records = [
        {"rule": rule, "method": method, "nll": value} | common
        for rule, own in nll.items()
        for method, value in own.items()
    ]
    rows = {row["method"]: row for row in get("noise-free").summarise(records)}
    assert rows[SPARSE]["ratio"] == pytest.approx(0.5**0.5, abs=1e-3)


def test_splits_have_all_rows_once():
    split = split_rule("parity of 2", 0)
    assert len(np.unique(np.concatenate([split.X, split.X_test]), axis=0)) == 300
    assert not np.array_equal(split.X, split_rule("parity of 2", 1).X)


@pytest.mark.slow
def test_a_missing_package_has_a_record_without_scores(monkeypatch, smoke_run):
    monkeypatch.setitem(_noise_free._PACKAGES, "CatBoost", ("no_such_package", "Classifier"))
    assert contenders(3, 10)["CatBoost"] is None
    records = load(smoke_run("noise-free"))
    gone = [record | dict.fromkeys(("nll", "ece", "accuracy", "seconds")) for record in records]
    mixed = [new if new["method"] == "CatBoost" else old for old, new in zip(records, gone, strict=True)]
    rows = {row["method"]: row for row in get("noise-free").summarise(mixed)}
    assert rows["CatBoost"] == {"method": "CatBoost", "installed": False}
    assert rows[SPARSE]["installed"]


def test_ratios_are_those_to_the_exact_matched_model(smoke_run):
    rows = {row["method"]: row for row in get("noise-free").summarise(load(smoke_run("noise-free")))}
    assert rows[EXACT]["ratio"] == 1.0
    assert rows[SPARSE]["ratio"] == pytest.approx(rows[SPARSE]["nll"] / rows[EXACT]["nll"], abs=1e-3)
