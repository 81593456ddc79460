"""Everything that can change a model, in random order, against a model that learns the remaining rows at once."""

import copy
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from gaussify import BayesianLogisticRegression
from linear.test_classifier import new

NAMES = np.array(["ash", "fir", "oak"])
OPTIONS = [
    {"alpha_eps": 0.05},
    {"method": "moment"},
    {"temperature": 0.8},
    {"prior_variance": 0.5},
    {"dispersion": 2.0},
    {"predictive": "mean-field"},
    {"predictive": "quadrature"},
]
STEPS = [
    "one",
    "one",
    "asked",
    "asked",
    "few",
    "many",
    "unlearn",
    "merge",
    "tune",
    "set_params",
    "widen",
    "copy",
    "ask",
]


class Walk:
    """A model, and the rows that it should know."""

    def __init__(self, seed: int) -> None:
        self.rng, self.n_features, self.learnt = np.random.default_rng(seed), 2, []
        self.model = new()
        self.learn(20)

    def rows(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X = self.rng.normal(size=(n, self.n_features))
        return X, NAMES[self.rng.integers(3, size=n)], self.rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], size=n)

    def learn(self, n: int, *, is_asked: bool = False) -> None:
        X, y, weight = self.rows(n)
        if is_asked:
            self.model.predict_proba(X)
        self.model.partial_fit(X, y, classes=NAMES, sample_weight=weight)
        self.learnt.append((X, y, weight))

    def step(self, name: str) -> None:
        if name in ("one", "asked", "few", "many"):
            self.learn({"few": 5, "many": 20}.get(name, 1), is_asked=name == "asked")
        elif name == "unlearn":
            X, y, weight = self.learnt.pop(self.rng.integers(len(self.learnt)))
            self.model.unlearn(self.padded(X), y, sample_weight=weight)
            self.learn(1)  # so that some rows are left
        elif name == "merge":
            X, y, weight = self.rows(5)
            self.model.merge(self.fresh().partial_fit(X, y, classes=NAMES, sample_weight=weight))
            self.learnt.append((X, y, weight))
        elif name == "tune":
            self.model.tune()
        elif name == "set_params":
            self.model.set_params(**OPTIONS[self.rng.integers(len(OPTIONS))])
        elif name == "widen":
            self.n_features = min(self.n_features + 1, 5)
            self.model.widen(self.n_features)
        elif name == "copy":
            other, self.model = self.model, copy.copy(self.model)
            other.partial_fit(*self.rows(1)[:2]).predict_proba(self.rows(1)[0])  # the copy must not notice
        else:
            self.model.predict_proba(self.rows(1)[0])

    def fresh(self) -> BayesianLogisticRegression:
        return BayesianLogisticRegression(**self.model.get_params())

    def padded(self, X: np.ndarray) -> np.ndarray:
        return np.pad(X, ((0, 0), (0, self.n_features - X.shape[1])))

    def expected(self) -> BayesianLogisticRegression:
        X, y, weight = zip(*self.learnt, strict=True)
        X = np.concatenate([self.padded(part) for part in X])
        return self.fresh().partial_fit(X, np.concatenate(y), classes=NAMES, sample_weight=np.concatenate(weight))

    def differences(self) -> Iterator[float]:
        expected, (X, *_) = self.expected(), self.rows(4)
        yield np.abs(self.model.predict_proba(X[:1]) - expected.predict_proba(X[:1])).max()
        yield np.abs(self.model.predict_proba(X) - expected.predict_proba(X)).max()
        yield np.abs(self.model.coef_ - expected.coef_).max()


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_changes_leaves_an_old_posterior(seed):
    walk = Walk(seed)
    names = walk.rng.choice(STEPS, size=40)
    for i, name in enumerate(names):
        walk.step(name)
        if walk.rng.random() < 0.4:
            assert max(walk.differences()) < 1e-9, names[: i + 1]
    assert max(walk.differences()) < 1e-9


@pytest.mark.parametrize("change", ["tune", "unlearn", "merge"])
def test_a_posterior_that_is_out_of_date_takes_no_memory(change):
    """It is as large as the statistics."""
    walk = Walk(0)
    walk.n_features = 60
    walk.model.widen(60)
    X, y, _ = walk.rows(20)
    walk.model.partial_fit(X, y)
    size = len(pickle.dumps(walk.model))
    walk.model.predict_proba(X)
    assert len(pickle.dumps(walk.model)) > 1.5 * size
    arguments = {"tune": (), "unlearn": (X, y), "merge": (copy.deepcopy(walk.model),)}[change]
    getattr(walk.model, change)(*arguments)
    assert len(pickle.dumps(walk.model)) < 1.1 * size
