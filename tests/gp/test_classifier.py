"""Gaussian process classification against a joint Gaussian built by hand, and one model however its rows came."""

import copy
import functools
import pickle
import re
from itertools import pairwise

import gpytorch
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from torch.overrides import TorchFunctionMode

import gaussify.gp._exact as exact
import gaussify.gp._models as models
import gaussify.gp.learning._schedule as schedule
import gaussify.posterior._gaussian as gaussian
from estimator_checks import LabelsSurviveAFile
from gaussify import GPClassifier, LogisticLikelihood, SoftmaxLikelihood, metrics
from gaussify._calibration import ALPHA_GRID
from gaussify.exceptions import InvalidArgumentError, JitterWarning, ModelFileError, NumericalError
from gaussify.gp._exact import exact_evidence

N, D = 30, 2


def broad_variance(targets):
    """Prior variance of the constants."""
    return min(100.0 * max(10.0, float(np.square(targets).max())), 1e5)


def make_rows(n_classes: int, n: int = N, d: int = D, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 3.0, 0.5][:d] + 0.5
    y = (X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(1)
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes  # at least two rows of each
    return X, y, rng.uniform(0.2, 3.0, size=n)


X2, Y2, _ = make_rows(2)
X3, Y3, WEIGHT = make_rows(3)
NAMES = np.array(["beech", "ash", "oak"])
NEW = np.random.default_rng(7).normal(size=(9, D)) * 2.0
TWICE = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)


def rbf(outputscale: float = 3.0, lengthscale=(0.6, 0.8)) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=len(lengthscale))).double()
    kernel.initialize(outputscale=torch.tensor(outputscale).double())
    kernel.base_kernel.initialize(lengthscale=torch.tensor([lengthscale]).double())
    return kernel


FIXED = {"alpha_eps": 0.1, "temperature": 1.5, "max_iter": 0}


def new(**params) -> GPClassifier:
    """A model whose hyperparameters are given."""
    return GPClassifier(**{"kernel": rbf(), **FIXED, **params})


def assert_same(actual, expected, X=NEW, tolerance: float = 1e-9) -> None:
    assert actual.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_allclose(actual.predict_proba(X), expected.predict_proba(X), rtol=0, atol=tolerance)
    for mine, theirs in zip(actual.predict_latent(X), expected.predict_latent(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def differs(actual, expected, X=NEW, by: float = 1e-4) -> bool:
    return bool(np.abs(actual.predict_proba(X) - expected.predict_proba(X)).max() > by)


# --- the oracle ----------------------------------------------------------------------------------------------------


def covariance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    kernel = rbf()
    gap = (A[:, None] - B[None]) / kernel.base_kernel.lengthscale.detach().numpy()[0]
    return kernel.outputscale.item() * np.exp(-0.5 * np.square(gap).sum(-1))


def laplace_targets(y: np.ndarray, n_classes: int, alpha_eps, kind: str):
    """Mean and variance (n, l): log-odds of Beta(a, b) and logarithm of Gamma(a, 1), by mode and curvature."""
    alpha_eps = np.broadcast_to(alpha_eps, n_classes)
    if kind == "logistic":
        a, b = alpha_eps[1] + y[:, None], alpha_eps[0] + 1.0 - y[:, None]
        return np.log(a / b), 1.0 / a + 1.0 / b
    a = alpha_eps + np.eye(n_classes)[y]
    return np.log(a), 1.0 / a


LATENTS = {
    "one-latent": (X2, Y2, "logistic", 0.1),
    "one-latent-asymmetric": (X2, Y2, "logistic", [0.1, 0.4]),
    "two": (X2, Y2, "softmax", 0.1),
    "three": (X3, Y3, "softmax", 0.05),
    "three-asymmetric": (X3, Y3, "softmax", [0.1, 0.4, 0.02]),
}


@pytest.mark.parametrize(("X", "y", "kind", "alpha_eps"), LATENTS.values(), ids=LATENTS)
@pytest.mark.parametrize(
    ("n_inducing", "weight"),
    [(None, WEIGHT), (N, np.ones(N)), (7, WEIGHT)],
    ids=["exact", "all-points", "few-points"],
)
def test_latents_equal_the_conditioned_joint_gaussian(X, y, kind, alpha_eps, weight, n_inducing):
    temperature = 1.7
    Z = X if n_inducing is None else X[:n_inducing]
    model = new(
        method="laplace", alpha_eps=alpha_eps, temperature=temperature, likelihood=kind, scaling=None,
        n_inducing=n_inducing, inducing="kmeans" if n_inducing is None else Z,
    ).fit(X, y, weight)  # fmt: skip
    mean, variance = model.predict_latent(NEW)
    targets = laplace_targets(y, y.max() + 1, alpha_eps, kind)
    assert mean.shape == (len(NEW), targets[0].shape[1])
    # points see the part Q of the covariance K; where they are all rows, that is everything
    L = np.linalg.cholesky(covariance(Z, Z) + 1e-8 * rbf().outputscale.item() * np.eye(len(Z)))
    known, new_rows = (np.linalg.solve(L, covariance(Z, A)) for A in (X, NEW))
    Q = covariance(X, X) if n_inducing is None else known.T @ known
    cross = covariance(X, NEW) if n_inducing is None else known.T @ new_rows
    broad = broad_variance(targets[0])
    for k in range(mean.shape[1]):
        A = Q + broad + np.diag(targets[1][:, k] / weight)
        right = cross + broad
        np.testing.assert_allclose(mean[:, k], right.T @ np.linalg.solve(A, targets[0][:, k]) / temperature, atol=1e-7)
        prior = covariance(NEW, NEW).diagonal() + broad
        expected = prior - (right * np.linalg.solve(A, right)).sum(0)
        np.testing.assert_allclose(variance[:, k], expected / temperature**2, rtol=1e-6)


@pytest.mark.parametrize("predictive", ["quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"])
def test_probabilities_are_those_of_the_tempered_latents(predictive):
    kind, likelihood = ("logistic", LogisticLikelihood()) if predictive < "n" else ("softmax", SoftmaxLikelihood(2))
    model = new(predictive=predictive, likelihood=kind, n_inducing=5).fit(X2, Y2)
    expected = likelihood.predict_proba(*model.predict_latent(NEW), predictive)
    np.testing.assert_allclose(model.predict_proba(NEW), expected, rtol=0, atol=1e-12)


def test_two_classes_have_two_latents_unless_they_are_to_have_one():
    widths = {kind: new(likelihood=kind).fit(X2, Y2).predict_latent(NEW)[0].shape[1] for kind in ("auto", "logistic")}
    assert widths == {"auto": 2, "logistic": 1}


KERNELS = {
    "rbf": rbf,
    "matern": lambda: ScaleKernel(MaternKernel(1.5)),
    "sum": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
}


@pytest.mark.parametrize(
    ("kernel", "params"),
    [("rbf", {}), ("matern", {}), ("sum", {}), ("rbf", {"shared_kernel": False}), ("rbf", {"scaling": "quantile"})],
    ids=["rbf", "matern", "sum", "separate", "quantile"],
)
def test_inducing_points_at_all_rows_give_the_exact_model(kernel, params):
    params = {"kernel": KERNELS[kernel](), **params}
    exact_model = new(**params).fit(X3, Y3)
    sparse = new(n_inducing=N, inducing=X3, **params).fit(X3, Y3)
    assert_same(sparse, exact_model, tolerance=1e-6)
    assert sparse.score_ == pytest.approx(exact_model.score_, abs=1e-6)


@pytest.mark.parametrize("alpha_eps", [1e-3, 1e-6, 1e-8])
def test_small_concentrations_whose_targets_are_large_cost_no_digits(alpha_eps):
    exact_model = new(alpha_eps=alpha_eps).fit(X3, Y3)
    sparse = new(alpha_eps=alpha_eps, n_inducing=N, inducing=X3).fit(X3, Y3)
    assert_same(sparse, exact_model, tolerance=1e-5)
    one_by_one = np.vstack([exact_model.predict_latent(row[None])[1] for row in NEW])
    np.testing.assert_allclose(one_by_one, exact_model.predict_latent(NEW)[1], rtol=1e-7)


def test_fewer_inducing_points_do_not():
    assert differs(new(n_inducing=3, inducing=X3[:3]).fit(X3, Y3), new().fit(X3, Y3), by=1e-2)


@pytest.mark.parametrize("max_iter", [0, 10])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_one_factorisation_for_all_classes_gives_what_one_for_each_gives(max_iter, weighted, monkeypatch):
    weight = WEIGHT if weighted else None
    shared = new(max_iter=max_iter).fit(X3, Y3, weight)
    monkeypatch.setattr(exact, "shared_variances", lambda table: None)
    general = new(max_iter=max_iter).fit(X3, Y3, weight)
    assert_same(shared, general, tolerance=1e-6)
    assert shared.score_ == pytest.approx(general.score_, abs=1e-6)
    if max_iter:
        assert shared.objective_value_ == pytest.approx(general.objective_value_, rel=1e-8)


@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_kernels_of_each_class_begin_as_the_shared_one(n_inducing):
    shared, separate = (new(n_inducing=n_inducing, shared_kernel=s).fit(X3, Y3) for s in (True, False))
    assert_same(separate, shared, tolerance=1e-7)  # by other factorisations
    assert isinstance(shared.kernel_, Kernel)
    assert len(separate.kernel_) == 3


def test_kernels_and_points_of_each_class_are_learnt_apart():
    model = GPClassifier(n_inducing=4, shared_kernel=False, max_iter=4).fit(X3, Y3)
    scales = {kernel.outputscale.item() for kernel in model.kernel_}
    assert len(scales) == len(model.search_) == 3
    first, second, third = model.inducing_points_
    assert np.abs(first - second).max() > 1e-6 < np.abs(second - third).max()
    assert model.objective_value_ == pytest.approx(sum(report.value for report in model.search_))


# --- label parameters ----------------------------------------------------------------------------------------------

LEFT_OUT = {
    "exact-weighted": ({}, True),
    "exact-asymmetric": ({"alpha_eps": [0.1, 0.4, 0.02]}, True),
    "exact-separate": ({"shared_kernel": False, "method": "gauss"}, False),
    "sparse": ({"n_inducing": 5}, False),
    "sparse-weighted": ({"n_inducing": 5}, True),
    "sparse-separate": ({"n_inducing": 3, "shared_kernel": False, "alpha_eps": [0.1, 0.4, 0.02]}, True),
}


@pytest.mark.parametrize(("params", "weighted"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_the_score_is_that_of_models_fitted_without_each_row(params, weighted):
    n = 7
    X, y, weight = X3[:n], Y3[:n], WEIGHT[:n] if weighted else np.ones(n)
    model = new(scaling=None, **params).fit(X, y, weight)
    logs = []
    for i in range(n):
        rest = weight.copy()
        rest[i] = max(0.0, rest[i] - 1.0)  # a row of more weight is several that are equal, one of which is left out
        if "n_inducing" in params:
            other = model.blank_copy().partial_fit(X, y, sample_weight=rest)
        else:
            other = new(scaling=None, **params).fit(X, y, rest)
        logs.append(np.log(other.predict_proba(X[[i]])[0, y[i]]))
    assert model.score_ == pytest.approx(np.average(logs, weights=weight), abs=1e-8)


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_left_out_latents_are_those_of_a_model_without_the_row(n_inducing, monkeypatch):
    seen = {}

    def spy(latents_of, rows, *rest, **options):
        seen.update(latents_of=latents_of, labels=rows.labels)
        return choose(latents_of, rows, *rest, **options)

    choose = schedule.choose_by_latents
    monkeypatch.setattr(schedule, "choose_by_latents", spy)
    n = 8
    X, y = X2[:n], Y2[:n]
    params = {"scaling": None, "n_inducing": n_inducing, "likelihood": "logistic", "temperature": 1.0}
    model = new(**params).fit(X, y)
    table = LogisticLikelihood(torch.tensor(0.1, dtype=torch.float64)).target_table()
    left_out, known = ([part.numpy() for part in seen["latents_of"](table, how)] for how in (True, False))
    order = [int(np.flatnonzero(np.isclose(model.predict_latent(X)[0][:, 0], m))[0]) for m in known[0][:, 0]]
    assert sorted(order) == list(range(n))
    assert y[order].tolist() == seen["labels"].tolist()
    for place, i in enumerate(order):
        rest = np.arange(n) != i
        if n_inducing is None:
            other = new(**params).fit(X[rest], y[rest])
        else:
            other = model.blank_copy().partial_fit(X[rest], y[rest])
        for found, expected in zip(left_out, other.predict_latent(X[[i]]), strict=True):
            np.testing.assert_allclose(found[place], expected[0], rtol=1e-7)
    for found, expected in zip(known, model.predict_latent(X[order]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
def test_the_training_criterion_is_the_log_likelihood_of_the_training_rows(n_inducing, weight):
    model = new(criterion="training", n_inducing=n_inducing).fit(X3, Y3, weight)
    logs = np.log(model.predict_proba(X3)[np.arange(N), Y3])
    assert model.score_ == pytest.approx(np.average(logs, weights=weight), abs=1e-8)
    assert model.score_ > new(n_inducing=n_inducing).fit(X3, Y3, weight).score_  # by rows left out


@pytest.mark.parametrize("criterion", ["leave-one-out", "training"])
@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_the_best_alpha_eps_of_a_grid_is_taken(criterion, n_inducing):
    params = {"criterion": criterion, "n_inducing": n_inducing, "temperature": 1.0}
    model = new(alpha_eps="auto", **params).fit(X3, Y3)
    assert model.alpha_eps_ in ALPHA_GRID
    assert_same(model, new(**params | {"alpha_eps": model.alpha_eps_}).fit(X3, Y3))

    def judged(alpha_eps):  # with the prior of alpha_eps
        return new(**params | {"alpha_eps": alpha_eps}).fit(X3, Y3).score_ - 0.5 * np.log(alpha_eps / 0.1) ** 2 / N

    place = ALPHA_GRID.index(model.alpha_eps_)
    nearby = {*ALPHA_GRID[max(place - 1, 0) : place + 2], 0.1} - {model.alpha_eps_}
    assert all(judged(model.alpha_eps_) > judged(other) for other in nearby)


def test_the_best_method_is_taken():
    scores = {m: new(method=m).fit(X3, Y3).score_ for m in ("variational", "moment", "laplace", "moment-ori")}
    model = new(method="auto").fit(X3, Y3)
    assert model.method_ == max(scores, key=scores.get)
    assert model.score_ == pytest.approx(max(scores.values()), abs=1e-12)
    assert_same(model, new(method=model.method_).fit(X3, Y3))


@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_the_best_temperature_is_taken(n_inducing):
    def gain(temperature):
        """The score less what a standard normal prior of the logarithm, worth less than a row, takes off."""
        score = new(n_inducing=n_inducing, temperature=temperature).fit(X3, Y3).score_
        return score - 0.5 * np.log(temperature) ** 2 / N

    model = new(n_inducing=n_inducing, temperature="auto").fit(X3, Y3)
    best = model.temperature_
    assert best > 1.5
    assert model.score_ > new(n_inducing=n_inducing, temperature=1.0).fit(X3, Y3).score_ + 0.05
    assert all(gain(best * factor) < gain(best) for factor in (0.8, 1.25))
    assert_same(model, new(n_inducing=n_inducing, temperature=best).fit(X3, Y3))


def test_numbers_that_are_given_are_used():
    model = new(method="moment", alpha_eps=[0.1, 0.2, 0.3], temperature=2.0).fit(X3, Y3)
    assert (model.method_, model.alpha_eps_, model.temperature_) == ("moment", [0.1, 0.2, 0.3], 2.0)
    assert new(alpha_eps=0.3).fit(X3, Y3).alpha_eps_ == 0.3


def test_temperature_divides_the_latents():
    cold, hot = (new(temperature=t).fit(X3, Y3).predict_latent(NEW) for t in (1.0, 2.0))
    np.testing.assert_allclose(hot[0], cold[0] / 2.0, rtol=1e-12)
    np.testing.assert_allclose(hot[1], cold[1] / 4.0, rtol=1e-12)


def test_alpha_eps_per_class_goes_with_the_sorted_classes():
    named = new(alpha_eps=[0.02, 0.2, 0.7]).fit(X3, np.array(["oak", "ash", "fir"])[Y3])
    numbered = new(alpha_eps=[0.02, 0.2, 0.7]).fit(X3, np.array([2, 0, 1])[Y3])
    np.testing.assert_array_equal(named.predict_proba(NEW), numbered.predict_proba(NEW))
    assert np.abs(named.predict_proba(NEW) - new(alpha_eps=[0.7, 0.2, 0.02]).fit(X3, Y3).predict_proba(NEW)).max() > 0.1


@pytest.mark.parametrize(("n_inducing", "sample_size", "n_expected"), [(None, 7, 7), (5, 7, 7), (5, 1000, N)])
def test_the_criterion_is_computed_on_a_bounded_number_of_rows(n_inducing, sample_size, n_expected, monkeypatch):
    sizes, table = [], SoftmaxLikelihood(3, torch.tensor(0.1).double()).target_table()

    def spy(latents_of, rows, *rest, **options):
        sizes.append((len(rows.labels), len(rows.weight), *(len(p) for p in latents_of(table, True))))
        return choose(latents_of, rows, *rest, **options)

    choose = schedule.choose_by_latents
    monkeypatch.setattr(schedule, "choose_by_latents", spy)
    new(n_inducing=n_inducing, sample_size=sample_size).fit(X3, Y3)
    assert sizes == [(n_expected,) * 4]


# --- hyperparameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_inducing", [None, 4], ids=["exact", "sparse"])
def test_without_iterations_the_objective_is_that_of_the_first_hyperparameters(n_inducing):
    Z = "kmeans" if n_inducing is None else X3[:n_inducing]
    model = new(method="laplace", scaling=None, n_inducing=n_inducing, inducing=Z).fit(X3, Y3)
    targets, variances = laplace_targets(Y3, 3, 0.1, "softmax")
    Q, left = covariance(X3, X3), 0.0
    if n_inducing is not None:
        whole = Q
        Q = covariance(X3, Z) @ np.linalg.solve(covariance(Z, Z) + 3e-8 * np.eye(n_inducing), covariance(Z, X3))
        left = (whole - Q).diagonal()
    value = 0.0
    for k in range(3):
        A = Q + np.diag(variances[:, k])
        solved = np.linalg.solve(A, np.stack([targets[:, k], np.ones(N)], 1))
        rest = targets[:, k] - solved[:, 0].sum() / solved[:, 1].sum()
        value -= 0.5 * (rest @ np.linalg.solve(A, rest) + np.linalg.slogdet(2.0 * np.pi * A)[1])
        value -= 0.5 * np.sum(left / variances[:, k])
    assert model.objective_value_ == pytest.approx(value, rel=1e-6)
    assert model.search_[0].n_iterations == 0


@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_the_search_improves_the_objective(n_inducing):
    X, y = load_iris(return_X_y=True)
    poor = rbf(0.5, (5.0,) * 4)
    values = []
    for max_iter in (1, 8):
        model = new(kernel=poor, n_inducing=n_inducing, max_iter=max_iter).fit(X[::3], y[::3])
        values.append(model.objective_value_)
        assert model.search_[0].n_iterations == max_iter
        assert not model.search_[0].converged
    assert values[1] > values[0] + 20.0


@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_the_search_stops_early_where_little_is_to_be_gained(n_inducing):
    (report,) = GPClassifier(n_inducing=n_inducing, max_iter=100, tol=0.5).fit(X3, Y3).search_
    assert report.converged
    assert report.n_iterations < 20
    assert report.n_restarts == 0


def test_the_objective_of_inducing_points_grows_up_to_that_of_the_exact_model():
    params = {"kernel": rbf(), "max_iter": 1, "learn_inducing": False}
    bounds = [new(**params, n_inducing=m, inducing=X3[:m]).fit(X3, Y3).objective_value_ for m in (2, 10, N)]
    assert bounds[0] < bounds[1] < bounds[2]
    assert bounds[2] == pytest.approx(new(kernel=rbf(), max_iter=1).fit(X3, Y3).objective_value_, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "base", "smoothness", "n_inducing"),
    [
        (None, RBFKernel, None, 5),
        ("rbf", RBFKernel, None, None),
        ("matern12", MaternKernel, 0.5, None),
        ("matern32", MaternKernel, 1.5, 5),
        ("matern52", MaternKernel, 2.5, None),
    ],
)
def test_kernels_by_name_have_a_lengthscale_for_each_feature_and_a_variance(name, base, smoothness, n_inducing):
    model = new(kernel=name, n_inducing=n_inducing, max_iter=1).fit(X3, Y3)
    assert type(model.kernel_) is ScaleKernel
    assert type(model.kernel_.base_kernel) is base
    assert model.kernel_.base_kernel.lengthscale.shape == (1, D)
    assert getattr(model.kernel_.base_kernel, "nu", None) == smoothness
    assert np.isfinite(model.predict_proba(NEW)).all()


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_a_linear_kernel_gives_linear_latents(n_inducing):
    model = new(kernel="linear", n_inducing=n_inducing, max_iter=3).fit(X3, Y3)
    assert isinstance(model.kernel_, LinearKernel)
    start, step = NEW[:1], NEW[1:2]
    latents = [model.predict_latent(start + t * step)[0] for t in (0.0, 1.0, 2.0)]
    np.testing.assert_allclose(latents[2] - latents[1], latents[1] - latents[0], rtol=1e-5)
    assert np.abs(latents[1] - latents[0]).max() > 1e-3


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_a_kernel_object_is_copied_and_begins_with_its_parameters(n_inducing):
    kernel = rbf().float()
    before = copy.deepcopy(kernel.state_dict())
    untouched = new(kernel=kernel, n_inducing=n_inducing).fit(X3, Y3)
    assert untouched.kernel_.outputscale.item() == pytest.approx(3.0)
    moved = new(kernel=kernel, n_inducing=n_inducing, max_iter=3).fit(X3, Y3)
    assert abs(moved.kernel_.outputscale.item() - 3.0) > 1e-3
    assert moved.kernel is kernel
    for name, tensor in kernel.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, before[name])


FROZEN = {
    "exact": {},
    "sparse": {"n_inducing": 5},
    "fixed-points": {"n_inducing": 5, "learn_inducing": False},
    "separate": {"shared_kernel": False},
}


@pytest.mark.parametrize("params", FROZEN.values(), ids=FROZEN)
def test_parameters_of_a_kernel_that_are_frozen_stay(params):
    kernel = rbf().requires_grad_(False)
    model = new(kernel=kernel, max_iter=3, **params).fit(X3, Y3)
    kernels = model.kernel_ if isinstance(model.kernel_, list) else [model.kernel_]
    assert [own.outputscale.item() for own in kernels] == [kernel.outputscale.item()] * len(kernels)
    if params.get("learn_inducing", True) is False or "n_inducing" not in params:
        assert_same(model, new(**params).fit(X3, Y3))


class Exponential(Kernel):
    """Without a single parameter."""

    has_lengthscale = False

    def forward(self, x1, x2, diag=False, **params):
        return torch.ones_like(x1[..., 0]) if diag else torch.exp(-torch.cdist(x1, x2))


@pytest.mark.parametrize("params", FROZEN.values(), ids=FROZEN)
def test_a_kernel_need_not_have_parameters(params):
    model = new(kernel=Exponential(), max_iter=2, **params).fit(X3, Y3)
    assert model.score(X3, Y3) > 0.5
    assert np.isfinite(model.objective_value_)


@pytest.mark.parametrize(
    ("mode", "n_inducing"),
    [(torch.no_grad, None), (torch.no_grad, 5), (torch.inference_mode, 5)],
    ids=["no_grad-exact", "no_grad-sparse", "inference_mode"],
)
def test_a_model_can_be_fitted_where_gradients_are_switched_off(mode, n_inducing):
    with mode():
        inside = new(n_inducing=n_inducing, max_iter=2).fit(X3, Y3)
    assert_same(inside, new(n_inducing=n_inducing, max_iter=2).fit(X3, Y3))


class Shaky(Exponential):
    """Short of positive definite, by a little."""

    has_lengthscale = True
    lack = 1e-6

    def forward(self, x1, x2, diag=False, **params):
        covariance = super().forward(x1 / self.lengthscale, x2 / self.lengthscale, diag=diag)
        same = not diag and x1.shape == x2.shape and torch.equal(x1, x2)
        return covariance - self.lack * torch.eye(len(covariance)).to(covariance) if same else covariance


def test_a_matrix_that_is_not_positive_definite_gets_jitter_and_says_so():
    Z = np.repeat(X3[:4], 2, axis=0)
    model = new(kernel=Shaky(), n_inducing=8, inducing=Z, learn_inducing=False, max_iter=3)
    with pytest.warns(JitterWarning, match=r"of the diagonal was added") as caught:
        model.fit(X3, Y3)
    assert any(re.search(r"\d+ times in \d+ evaluations", str(w.message)) for w in caught)
    assert np.isfinite(model.predict_proba(NEW)).all()


def test_a_matrix_far_from_positive_definite_is_an_error_that_leaves_the_model_as_it_was():
    model = new(n_inducing=8).fit(X3, Y3)
    before = model.predict_proba(NEW)
    hopeless = type("Hopeless", (Shaky,), {"lack": 0.5})
    model.set_params(kernel=hopeless(), inducing=np.repeat(X3[:4], 2, axis=0), max_iter=2)
    with pytest.raises(NumericalError, match="no finite value at the first hyperparameters"):
        model.fit(X3, Y3)
    np.testing.assert_array_equal(model.predict_proba(NEW), before)


class Brittle(RBFKernel):
    """Not a number for lengthscales beyond a limit, where a search would like to go."""

    def forward(self, x1, x2, diag=False, **params):
        covariance = super().forward(x1, x2, diag=diag, **params)
        return covariance * (torch.nan if self.lengthscale.max() > 0.3 else 1.0)


@pytest.mark.parametrize("n_inducing", [None, 6], ids=["exact", "sparse"])
def test_a_search_that_steps_into_nothing_begins_anew(n_inducing):
    kernel = Brittle().double()
    kernel.initialize(lengthscale=0.25)
    model = new(kernel=kernel, n_inducing=n_inducing, max_iter=5).fit(X3, X3[:, 0] > 0.5)
    (report,) = model.search_
    assert report.n_restarts > 0
    assert 0.25 < model.kernel_.lengthscale.item() <= 0.3
    assert np.isfinite(model.predict_proba(NEW)).all()


def test_verbose_prints_objective_and_time(capsys):
    GPClassifier(verbose=True, max_iter=3).fit(X3, Y3)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(re.fullmatch(r"iteration \d+: objective -?[\d.e+]+, [\d.]+ s", line) for line in lines)


def test_verbose_says_which_kernel(capsys):
    GPClassifier(n_inducing=4, shared_kernel=False, verbose=True, max_iter=2).fit(X3, Y3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines if "iteration 1:" in line] == [f"kernel {k} of 3" for k in (1, 2, 3)]


@pytest.mark.parametrize("params", [{}, {"n_inducing": 5}], ids=["exact", "sparse"])
def test_nothing_is_printed_unless_asked_for(params, capsys):
    model = GPClassifier(max_iter=2, **params).fit(X3, Y3)
    model.predict(NEW)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


# --- inducing points and scaling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kmeans", "greedy"])
def test_inducing_points_move_if_they_are_learnt(how):
    first = new(kernel=None, n_inducing=5, inducing=how, max_iter=0).fit(X3, Y3)
    fixed = new(kernel=None, n_inducing=5, inducing=how, max_iter=3, learn_inducing=False).fit(X3, Y3)
    moved = new(kernel=None, n_inducing=5, inducing=how, max_iter=3).fit(X3, Y3)
    np.testing.assert_array_equal(fixed.inducing_points_, first.inducing_points_)
    assert np.abs(moved.inducing_points_ - first.inducing_points_).max() > 1e-3
    assert fixed.kernel_.outputscale.item() != first.kernel_.outputscale.item()


def test_greedy_points_are_rows_and_centres_of_clusters_are_not():
    scaled = (X3 - X3.mean(0)) / X3.std(0)
    greedy, kmeans = (
        GPClassifier(n_inducing=5, inducing=how, max_iter=0).fit(X3, Y3).inducing_points_
        for how in ("greedy", "kmeans")
    )
    gaps = [np.abs(points[:, None] - scaled[None]).max(-1).min(1) for points in (greedy, kmeans)]
    assert gaps[0].max() < 1e-12
    assert gaps[1].max() > 1e-2


@pytest.mark.parametrize(
    "convert", [np.asarray, np.ndarray.tolist, torch.as_tensor, np.float32], ids=["array", "list", "tensor", "float32"]
)
def test_inducing_points_that_are_given_are_in_the_units_of_the_inputs(convert):
    Z = X3[[3, 1, 4, 15]].astype(np.float32).astype(float)
    model = new(n_inducing=4, inducing=convert(Z)).fit(X3, Y3)
    np.testing.assert_allclose(model.inducing_points_, (Z - X3.mean(0)) / X3.std(0), atol=1e-12)


def test_more_inducing_points_than_rows_are_all_rows():
    model = new(n_inducing=100).fit(X3, Y3)
    assert model.inducing_points_.shape == (N, D)
    assert_same(model, new().fit(X3, Y3), tolerance=1e-6)


def test_more_points_for_predictions_come_beside_those_that_were_learnt():
    few, more = (new(kernel=None, n_inducing=4, n_inducing_predict=p, max_iter=3).fit(X3, Y3) for p in (None, 12))
    assert more.inducing_points_.shape == (12, D)
    np.testing.assert_array_equal(more.inducing_points_[:4], few.inducing_points_)
    assert more.kernel_.outputscale.item() == few.kernel_.outputscale.item()
    assert more.objective_value_ == few.objective_value_


def test_enough_points_for_predictions_give_the_exact_model():
    few, enough = (new(n_inducing=4, n_inducing_predict=p).fit(X3, Y3) for p in (None, 4 + N))
    exact_model = new().fit(X3, Y3)
    assert differs(few, exact_model, by=1e-2)
    assert_same(enough, exact_model, tolerance=1e-5)


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
@pytest.mark.parametrize(
    ("scaling", "change"),
    [
        ("standard", lambda X: X * [1e3, -0.1] + [5.0, -7.0]),
        ("quantile", lambda X: np.exp(X) * [1.0, 3.0] + [0.0, 2.0]),
    ],
    ids=["standard", "quantile"],
)
def test_units_of_the_inputs_do_not_matter_to_a_scaled_model(scaling, change, n_inducing):
    inside = NEW.clip(X3.min(0), X3.max(0))
    rows = np.vstack([X3, inside]) if scaling == "standard" else X3
    old, other = (new(kernel=None, n_inducing=n_inducing, max_iter=2, scaling=scaling) for _ in range(2))
    found = other.fit(change(X3), Y3).predict_proba(change(rows))
    np.testing.assert_allclose(found, old.fit(X3, Y3).predict_proba(rows), atol=1e-6)


def test_without_scaling_units_matter():
    X = X3 * [100.0, 1.0]
    assert np.abs(new(scaling=None).fit(X, Y3).predict_proba(X) - new().fit(X, Y3).predict_proba(X)).max() > 0.1


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_scaling_is_fixed_once_fitted(scaling):
    model = new(n_inducing=5, scaling=scaling).fit(X3, Y3)
    before = model.inducing_points_
    later = copy.deepcopy(model).partial_fit(X3 * 50.0 + 9.0, Y3)
    apart = model.blank_copy().partial_fit(X3 * 50.0 + 9.0, Y3).merge(model)
    np.testing.assert_array_equal(later.inducing_points_, before)
    assert_same(later, apart)


# --- one model, however its rows came ------------------------------------------------------------------------------

SPARSE = {"n_inducing": 6}
STREAMS = {
    "shared": (X3, Y3, new(**SPARSE)),
    "separate": (X3, NAMES[Y3], new(n_inducing=4, shared_kernel=False)),
    "logistic": (X2, Y2, new(**SPARSE, likelihood="logistic", scaling="quantile")),
    "asymmetric": (X3, Y3, new(**SPARSE, alpha_eps=[0.1, 0.3, 0.02], n_inducing_predict=9)),
    "learnt": (X3, Y3, GPClassifier(n_inducing=4, max_iter=3)),
}
streams = pytest.mark.parametrize("name", STREAMS)


@functools.cache
def first_half(name: str) -> tuple:
    """Rows, and a model that has learnt the first half of them; not to be changed."""
    X, y, model = STREAMS[name]
    return X, y, clone(model).fit(X[:HALF], y[:HALF])


HALF = N // 2
cuts = st.lists(st.integers(HALF, N), max_size=6).map(lambda inner: [HALF, *sorted(inner), N])


@streams
@settings(max_examples=4)
@given(ends=cuts, order=st.permutations(range(HALF, N)), predict=st.booleans(), weighted=st.booleans())
def test_partial_fit_in_any_chunking_and_order_gives_one_model_of_all_rows(name, ends, order, predict, weighted):
    X, y, model = first_half(name)
    weight = np.where(np.arange(N) < HALF, 1.0, WEIGHT if weighted else 1.0)
    order = np.r_[np.arange(HALF), order]
    stream = copy.deepcopy(model)
    for start, end in pairwise(ends):
        if start < end:
            if predict:
                stream.predict_proba(X[:1])
            part = order[start:end]
            stream.partial_fit(X[part], y[part], sample_weight=weight[part] if weighted else None)
    assert_same(stream, model.blank_copy().partial_fit(X, y, sample_weight=weight))
    assert stream.n_rows_seen_ == N


def test_partial_fit_begins_with_a_fit():
    X, y, model = first_half("learnt")
    assert_same(clone(model).partial_fit(X[:HALF], y[:HALF]), model, tolerance=0.0)


@streams
@settings(max_examples=3)
@given(shard=st.lists(st.integers(0, 2), min_size=N, max_size=N).map(np.array))
def test_the_merge_of_shards_is_the_model_of_all_rows(name, shard):
    X, y, model = first_half(name)
    shards = [model.blank_copy().partial_fit(X[shard == k], y[shard == k]) for k in range(3) if (shard == k).any()]
    whole = model.blank_copy()
    for other in shards:
        whole.merge(other)
    assert_same(whole, model.blank_copy().partial_fit(X, y))
    assert whole.n_rows_seen_ == N


def test_merging_leaves_the_other_model_alone():
    model = new(**SPARSE).fit(X3, Y3)
    other = model.blank_copy().partial_fit(X3[:9], Y3[:9])
    before = other.predict_proba(NEW)
    model.merge(other).partial_fit(X3[:5], Y3[:5])
    np.testing.assert_array_equal(other.predict_proba(NEW), before)
    assert other.n_rows_seen_ == 9


def test_merging_a_model_with_itself_counts_its_rows_twice():
    model = new(**SPARSE).fit(X3, Y3)
    whole = model.blank_copy().partial_fit(np.vstack([X3, X3]), np.r_[Y3, Y3])
    assert_same(model.merge(model), whole)


def test_shards_may_hold_classes_of_their_own():
    first = new(**SPARSE).fit(X2, Y2)
    shards = [first.blank_copy().partial_fit(X3[:4] + k, np.full(4, label)) for k, label in enumerate((7, -2))]
    merged = shards[0].merge(shards[1]).merge(first)
    straight = copy.deepcopy(first).partial_fit(X3[:4] + 1, [-2] * 4).partial_fit(X3[:4], [7] * 4)
    assert merged.classes_.tolist() == [-2, 0, 1, 7]
    assert_same(merged, straight)


def test_a_blank_copy_knows_nothing_of_the_rows():
    model = new(**SPARSE, temperature=1.0).fit(X3, Y3)
    blank = model.blank_copy()
    mean, variance = blank.predict_latent(NEW)
    assert not mean.any()
    table = SoftmaxLikelihood(3, model.alpha_eps_, model.method_).target_table().mean.numpy()
    np.testing.assert_allclose(variance, broad_variance(table) + 3.0, rtol=1e-6)
    assert blank.n_rows_seen_ == 0
    assert model.n_rows_seen_ == N


@streams
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_unlearning_undoes_learning(name, weighted):
    X, y, model = first_half(name)
    weight = np.where(np.arange(N) < HALF, 1.0, WEIGHT if weighted else 1.0)
    stream = copy.deepcopy(model).partial_fit(X[HALF:], y[HALF:], sample_weight=weight[HALF:])
    stream.predict_proba(NEW)
    kept, gone = np.arange(N) % 3 > 0, np.arange(N) % 3 == 0  # of those that were fitted and those that came later
    stream.unlearn(X[gone], y[gone], weight[gone] if weighted else None)
    expected = model.blank_copy().partial_fit(X[kept], y[kept], sample_weight=weight[kept])
    assert_same(stream, expected, tolerance=1e-7)
    assert stream.n_rows_seen_ == kept.sum()


def test_unlearning_everything_leaves_a_blank_copy():
    model = new(**SPARSE).fit(X3, Y3)
    blank = model.blank_copy()
    assert_same(model.unlearn(X3, Y3), blank, tolerance=1e-12)
    assert model.n_rows_seen_ == 0


def test_what_unlearning_leaves_can_be_saved(tmp_path):
    model = new(kernel=rbf(lengthscale=(0.1, 0.1)), n_inducing=12).fit(X3, Y3)
    far = NEW + 50.0  # next to zero in every feature
    for rows in (X3[:7], far, X3[7:15]):
        model.partial_fit(rows, Y3[: len(rows)])
    for rows in (far[:4], X3[7:15], far[4:], X3[:7]):
        model.unlearn(rows, Y3[4:9] if len(rows) == 5 else Y3[: len(rows)])
    model.save(tmp_path / "model")
    assert_same(GPClassifier.load(tmp_path / "model", kernel=rbf()), model, tolerance=1e-12)


def test_unlearning_and_learning_again_changes_nothing():
    model = new(**SPARSE).fit(X3, Y3)
    before = copy.deepcopy(model)
    assert_same(model.unlearn(X3[:9], Y3[:9]).partial_fit(X3[:9], Y3[:9]), before)


def test_one_weight_for_all_rows_is_that_of_each():
    model = new(**SPARSE).fit(X3, Y3)
    one, each = (copy.deepcopy(model).partial_fit(X3, Y3, sample_weight=w) for w in (0.5, np.full(N, 0.5)))
    assert_same(one, each)
    assert_same(one.unlearn(X3, Y3, 0.5), model, tolerance=1e-7)


LEARNT = {
    "exact": GPClassifier(max_iter=3),
    "sparse": GPClassifier(n_inducing=5, max_iter=3),
    "greedy": new(n_inducing=5, inducing="greedy", max_iter=2),
    "separate": new(n_inducing=3, shared_kernel=False, max_iter=2),
    "quantile": new(scaling="quantile", max_iter=2),
}


@functools.cache
def learnt_model(name: str) -> GPClassifier:
    """A model of all rows; not to be changed."""
    return clone(LEARNT[name]).fit(X3, Y3)


@pytest.mark.parametrize("name", ["exact", "sparse", "greedy"])
def test_the_order_of_the_rows_does_not_matter(name):
    order = np.random.default_rng(3).permutation(N)
    assert_same(clone(LEARNT[name]).fit(X3[order], Y3[order]), learnt_model(name), tolerance=1e-6)


@pytest.mark.parametrize("name", ["exact", "sparse", "separate", "quantile"])
def test_a_row_of_weight_two_counts_as_that_row_twice(name):
    twice = np.r_[np.arange(N), np.flatnonzero(TWICE == 2.0)]
    weighted = clone(LEARNT[name]).fit(X3, Y3, TWICE)
    repeated = clone(LEARNT[name]).fit(X3[twice], Y3[twice])
    assert_same(weighted, repeated, tolerance=1e-6)
    assert weighted.objective_value_ == pytest.approx(repeated.objective_value_, rel=1e-8)
    assert differs(weighted, learnt_model(name))


@pytest.mark.parametrize("name", ["exact", "greedy"])
def test_a_row_of_weight_zero_is_absent(name):
    weight = (np.arange(N + 3) < N).astype(float)
    X, y = np.vstack([X3, 5.0 + X3[:3]]), np.r_[Y3, Y3[:3]]
    assert_same(clone(LEARNT[name]).fit(X, y, weight), learnt_model(name), tolerance=1e-6)
    assert differs(clone(LEARNT[name]).fit(X, y), learnt_model(name))


@pytest.mark.parametrize("name", ["exact", "sparse"])
def test_the_same_seed_gives_the_same_model(name):
    assert_same(clone(LEARNT[name]).fit(X3, Y3), learnt_model(name), tolerance=0.0)


def test_another_seed_gives_other_first_points():
    points = [new(n_inducing=5, random_state=seed).fit(X3, Y3).inducing_points_ for seed in (0, 1)]
    assert np.abs(np.sort(points[0], 0) - np.sort(points[1], 0)).max() > 1e-3


@pytest.mark.parametrize("late", [0, 1, 2], ids=["before", "between", "after"])
def test_a_class_first_seen_late_ends_as_if_declared_at_the_start(late):
    early, y = Y3 != late, np.sort(NAMES)[Y3]
    declared = new(**SPARSE).partial_fit(X3[early], y[early], classes=NAMES)
    surprised = new(**SPARSE).partial_fit(X3[early], y[early])
    assert surprised.predict_proba(NEW).shape == (len(NEW), 2)
    for model in (declared, surprised):
        model.partial_fit(X3[~early], y[~early])
    assert surprised.predict_latent(NEW)[0].shape == (len(NEW), 3)
    assert_same(surprised, declared)


def test_a_learnt_model_takes_a_new_class():
    model = GPClassifier(n_inducing=6, max_iter=3).fit(X2, Y2)
    for label in ([5] * 8, [-1] * 8):
        far = np.array([[40.0 * label[0], 3.0]]) + np.random.default_rng(0).normal(size=(8, 2))
        model.partial_fit(far, label)
        assert model.predict(far[:3]).tolist() == label[:3]
    assert model.classes_.tolist() == [-1, 0, 1, 5]


def test_kernels_of_each_class_are_there_for_classes_that_were_declared():
    early = Y3 != 2
    model = new(n_inducing=4, shared_kernel=False).partial_fit(X3[early], Y3[early], classes=[0, 1, 2])
    assert len(model.kernel_) == 3
    model.partial_fit(X3[~early], Y3[~early])
    assert_same(model, model.blank_copy().partial_fit(X3, Y3))


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_a_class_whose_rows_have_no_weight_is_improbable(n_inducing):
    model = new(n_inducing=n_inducing).fit(X3, Y3, (Y3 != 1).astype(float))
    probs = model.predict_proba(X3)
    assert model.classes_.tolist() == [0, 1, 2]
    assert probs[:, 1].max() < 0.2
    assert not (model.predict(X3) == 1).any()


def test_fitting_again_forgets_everything():
    model = new(**SPARSE).fit(X2 * 100.0, Y2 + 5)
    assert_same(model.fit(X3, Y3), new(**SPARSE).fit(X3, Y3), tolerance=0.0)
    assert model.n_rows_seen_ == N


def test_arrays_may_be_changed_after_they_were_learnt():
    X, y, weight = X3.copy(), Y3.copy(), WEIGHT.copy()
    model = new(**SPARSE).fit(X, y, weight).partial_fit(X, y, sample_weight=weight)
    X[:], y[:], weight[:] = -1.0, 0, 100.0
    assert_same(model, new(**SPARSE).fit(X3, Y3, WEIGHT).partial_fit(X3, Y3, sample_weight=WEIGHT))


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: X[::-1].copy()[::-1], np.float32, np.ndarray.tolist])
def test_layout_and_width_of_floats_do_not_matter(layout):
    plain = np.ascontiguousarray(layout(X3), dtype=float)
    assert_same(new(**SPARSE).fit(layout(X3), Y3), new(**SPARSE).fit(plain, Y3), tolerance=0.0)


# --- predictions ---------------------------------------------------------------------------------------------------

MODELS = {
    "exact": {},
    "exact-separate": {"shared_kernel": False},
    "exact-matern": {"kernel": "matern32"},
    "sparse": {"n_inducing": 5},
    "sparse-all": {"n_inducing": N},
    "sparse-separate": {"n_inducing": 4, "shared_kernel": False},
    "sparse-linear": {"n_inducing": 5, "kernel": "linear"},
}
every_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def fitted(name: str) -> GPClassifier:
    """A model with given hyperparameters; not to be changed."""
    return new(**MODELS[name]).fit(X3, Y3)


@every_model
def test_a_prediction_does_not_depend_on_the_other_rows(name, monkeypatch):
    model = fitted(name)
    rows = np.vstack([NEW, X3[:9], [[1e9, -1e9]]])
    expected = [model.predict_proba(rows), *model.predict_latent(rows)]
    monkeypatch.setattr(models, "_ELEMENTS", 200)
    for size in (1, 7):
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        found = [np.vstack([model.predict_proba(part) for part in parts])]
        found += [np.vstack([model.predict_latent(part)[i] for part in parts]) for i in range(2)]
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-9)


class Largest(TorchFunctionMode):
    """Notes the largest tensor that any operation gives."""

    n_elements = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.n_elements = max(self.n_elements, tensor.numel())
        return result


@pytest.mark.parametrize("name", ["exact", "exact-separate", "sparse-all", "sparse-separate"])
def test_latents_of_many_rows_are_computed_in_bounded_memory(name, monkeypatch):
    model = fitted(name)
    rows = np.random.default_rng(0).normal(size=(1500, D))
    model.predict_latent(rows[:1])
    for module in (models, gaussian):
        monkeypatch.setattr(module, "_ELEMENTS", 600)
    with Largest() as largest:
        model.predict_latent(rows)
    assert largest.n_elements <= max(3 * len(rows), 3 * (N + 1) ** 2)  # the result, or what was learnt


def test_predictions_are_the_most_probable_labels():
    model = new().fit(X3, NAMES[Y3])
    assert model.classes_.tolist() == sorted(NAMES)
    assert model.predict(NEW).tolist() == model.classes_[model.predict_proba(NEW).argmax(1)].tolist()


@every_model
def test_probabilities_are_finite_and_sum_to_one_far_from_the_rows(name):
    probs = fitted(name).predict_proba([[1e6, -1e6], [1e100, 1e100], [-1e130, 0.0]])
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_far_from_the_rows_the_latents_are_those_of_the_constant(n_inducing):
    mean, variance = new(n_inducing=n_inducing, temperature=1.0).fit(X3, Y3).predict_latent([[1e3, 1e3], [-1e5, 1e3]])
    np.testing.assert_allclose(mean[0], mean[1])
    assert (variance > 3.0).all()
    assert (variance < 5.0).all()


@pytest.mark.parametrize("params", [{}, {"n_inducing": 15}], ids=["exact", "sparse"])
def test_it_learns_irises(params):
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(max_iter=20, **params).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) >= 0.93
    probs = model.predict_proba(X[1::2])
    assert -np.log(probs[np.arange(75), y[1::2]]).mean() < 0.2


@pytest.mark.parametrize("use", ["predict", "predict_proba", "predict_latent"])
def test_a_model_that_was_not_fitted_says_so(use):
    with pytest.raises(NotFittedError, match="not fitted"):
        getattr(GPClassifier(), use)(X3)


@pytest.mark.parametrize("use", [lambda m: m.unlearn(X3, Y3), lambda m: m.merge(m), lambda m: m.blank_copy()])
def test_a_model_that_was_not_fitted_has_nothing_to_change(use):
    with pytest.raises(NotFittedError, match="not fitted"):
        use(GPClassifier(n_inducing=5))


# --- copies and files ----------------------------------------------------------------------------------------------


def saved_and_loaded(model, path, **kwargs):
    model.save(path)
    return type(model).load(path, **kwargs)


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
@pytest.mark.parametrize("twin", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_that_has_predicted_is_the_same_and_goes_its_own_way(n_inducing, twin):
    model = new(n_inducing=n_inducing).fit(X3, Y3)
    before = model.predict_proba(NEW)
    other = twin(model)
    assert_same(other, model, tolerance=0.0)
    other.partial_fit(X3, Y3) if n_inducing else other.fit(X3 + 1.0, Y3)
    np.testing.assert_array_equal(model.predict_proba(NEW), before)
    assert differs(other, model)
    if n_inducing:
        assert_same(model.blank_copy().merge(model), model)  # computed anew from what it has learnt


def test_a_clone_is_not_fitted_and_has_the_same_parameters():
    model = new(n_inducing=5, inducing=X3[:5]).fit(X3, Y3)
    other = clone(model)
    assert not hasattr(other, "classes_")
    assert_same(other.fit(X3, Y3), model, tolerance=0.0)


@streams
def test_a_loaded_model_is_the_saved_one_and_learns_on_alike(name, tmp_path):
    X, y, model = first_half(name)
    model = copy.deepcopy(model)
    given = {"kernel": rbf(9.0, (9.0, 9.0))} if isinstance(model.kernel, Kernel) else {}
    loaded = saved_and_loaded(model, tmp_path / "model", **given)
    assert_same(loaded, model, tolerance=1e-12)
    later = [each.partial_fit(X[HALF:], y[HALF:]).unlearn(X[:3], y[:3]) for each in (loaded, model)]
    assert_same(*later)
    assert_same(loaded.merge(model), model.merge(model))


@pytest.mark.parametrize("name", ["exact", "sparse"])
def test_everything_learnt_survives(name, tmp_path):
    model = learnt_model(name)
    loaded = saved_and_loaded(model, tmp_path / "model")
    assert_same(loaded, model, tolerance=1e-12)
    names = ["method_", "alpha_eps_", "temperature_", "score_", "n_rows_seen_", "n_features_in_", "objective_value_"]
    for attribute in [*names, "search_", *(["inducing_points_"] if name == "sparse" else [])]:
        np.testing.assert_array_equal(getattr(loaded, attribute), getattr(model, attribute), err_msg=attribute)
    assert str(loaded.kernel_) == str(model.kernel_)
    assert loaded.get_params() == model.get_params()
    assert_same(loaded.fit(X3, Y3), model, tolerance=1e-12)


@pytest.mark.parametrize("name", ["exact", "sparse"])
def test_a_loaded_model_saves_to_the_same_bytes(name, tmp_path):
    path, again = tmp_path / "model", tmp_path / "again"
    saved_and_loaded(learnt_model(name), path).save(again)
    assert again.read_bytes() == path.read_bytes()


class TestLabelsOfAnExactModel(LabelsSurviveAFile):
    estimator = GPClassifier
    params = FIXED


class TestLabelsOfASparseModel(LabelsSurviveAFile):
    estimator = GPClassifier
    params = FIXED | {"n_inducing": 4}


@pytest.mark.parametrize(
    "params",
    [
        {"alpha_eps": np.array([0.1, 0.2, 0.3])},
        {"alpha_eps": torch.tensor([0.1, 0.2, 0.3]), "temperature": np.float64(1.2)},
        {"n_inducing": np.int64(4), "inducing": X3[:4], "learn_inducing": np.bool_(False)},
        {"n_inducing": 4, "inducing": torch.as_tensor(X3[:4])},
        {"method": "gauss", "label_variance": 0.3, "criterion": "training"},
        {"kernel": "matern52", "predictive": "mean-field", "sample_size": 9, "scaling": None},
        {"likelihood": "softmax", "n_inducing": 3, "n_inducing_predict": 5, "inducing": "greedy"},
    ],
    ids=["array", "tensor", "points", "tensor-points", "gauss", "options", "more-points"],
)
def test_parameters_and_predictions_survive(params, tmp_path):
    model = new(**{"kernel": None, **params}).fit(X3, Y3)
    loaded = saved_and_loaded(model, tmp_path / "model")
    assert_same(loaded, model, tolerance=1e-12)
    for name, value in model.get_params().items():
        np.testing.assert_array_equal(getattr(loaded, name), value, err_msg=name)
    assert_same(loaded.fit(X3, Y3), model, tolerance=1e-12)


@pytest.mark.parametrize(
    ("kernel", "n_inducing"),
    [(KERNELS["rbf"], None), (KERNELS["matern"], 5), (KERNELS["sum"], 5)],
    ids=["exact", "sparse", "sum"],
)
def test_a_model_with_a_kernel_object_is_loaded_into_one_of_the_same_form(kernel, n_inducing, tmp_path):
    model = new(kernel=kernel(), n_inducing=n_inducing, max_iter=2).fit(X3, Y3)
    given_kernel = kernel()
    loaded = saved_and_loaded(model, tmp_path / "model", kernel=given_kernel)
    assert_same(loaded, model, tolerance=1e-12)
    assert loaded.kernel is given_kernel
    assert [p.tolist() for p in loaded.kernel_.parameters()] == [p.tolist() for p in model.kernel_.parameters()]
    assert [p.tolist() for p in given_kernel.parameters()] == [p.tolist() for p in kernel().parameters()]


@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_numbers_of_a_kernel_that_are_not_learnt_survive(n_inducing, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = new(kernel=RFFKernel(20, num_dims=D), n_inducing=n_inducing).fit(X3, Y3)
        loaded = saved_and_loaded(model, tmp_path / "model", kernel=RFFKernel(20, num_dims=D))
    assert_same(loaded, model, tolerance=1e-12)


@pytest.mark.parametrize(
    "changes",
    [{"alpha_eps": 0.7}, {"max_iter": 9, "verbose": True}, {"kernel": "linear"}, {"scaling": None}, {"n_inducing": 7}],
    ids=["alpha_eps", "search", "kernel", "scaling", "n_inducing"],
)
def test_a_model_whose_parameters_were_changed_can_be_saved_and_loaded(changes, tmp_path):
    model = new(kernel=None, n_inducing=4, inducing=X3[:4]).fit(X3, Y3)
    before = model.predict_proba(NEW)
    loaded = saved_and_loaded(model.set_params(**changes), tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(NEW), before, atol=1e-12)


@pytest.mark.parametrize(
    ("of_fit", "now"), [(None, RBFKernel()), (ScaleKernel(RBFKernel()), "rbf")], ids=["object-now", "object-of-fit"]
)
def test_a_model_whose_kernel_became_an_object_or_a_name_can_be_loaded(of_fit, now, tmp_path):
    model = new(kernel=of_fit, n_inducing=4).fit(X3, Y3)
    before = model.predict_proba(NEW)
    loaded = saved_and_loaded(model.set_params(kernel=now), tmp_path / "model", kernel=of_fit or now)
    np.testing.assert_allclose(loaded.predict_proba(NEW), before, atol=1e-12)


@pytest.mark.parametrize("scaling", ["standard", None])
def test_the_file_of_a_sparse_model_is_of_fixed_size_and_holds_no_row(scaling, tmp_path):
    sizes = {}
    for n in (50, 500):
        X, y, _ = make_rows(3, n=n)
        path = tmp_path / f"{n}"
        model = GPClassifier(n_inducing=6, max_iter=1, scaling=scaling).fit(X[: n // 2], y[: n // 2])
        model.partial_fit(X[n // 2 :], y[n // 2 :]).predict(X)
        model.save(path)
        data = path.read_bytes()
        sizes[n] = len(data)
        half = X[: n // 2]
        scaled = (X - half.mean(0)) / half.std(0)
        assert not any(row.tobytes() in data for rows in (X, scaled) for row in rows)
    assert abs(sizes[500] - sizes[50]) < 100  # digits of numbers in the header
    assert sizes[500] < 8 * (3 * 7 * 7 + 200) + 3200


def test_the_file_of_an_exact_model_holds_its_rows(tmp_path):
    new(kernel=None, scaling=None).fit(X3, Y3).save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    assert all(row.tobytes() in data for row in X3)


def test_pickle_is_never_used(monkeypatch, tmp_path):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle")

    model = new(kernel=None, **SPARSE).fit(X3, Y3)
    for module, names in (
        (pickle, ("load", "loads", "dump", "Pickler", "Unpickler")),  # GPyTorch hashes with dumps
        (torch, ("load", "save")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    assert_same(saved_and_loaded(model, tmp_path / "model"), model, tolerance=1e-12)


def test_saving_changes_nothing(tmp_path):
    model = new(kernel=None, **SPARSE).fit(X3, Y3)
    before = model.predict_proba(NEW)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(NEW), before)


# --- frames --------------------------------------------------------------------------------------------------------

COLUMNS = ["width", "höhe"]
FRAMES = {
    "pandas": lambda X, columns=COLUMNS: pd.DataFrame(X, columns=columns),
    "polars": lambda X, columns=COLUMNS: pl.DataFrame(X, schema=columns),
}
frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


@frames
@pytest.mark.parametrize("n_inducing", [None, 5], ids=["exact", "sparse"])
def test_a_frame_gives_the_model_of_its_numbers_and_keeps_its_names(frame, n_inducing, tmp_path):
    model = new(kernel=None, n_inducing=n_inducing).fit(frame(X3), pd.Series(NAMES[Y3]))
    expected = new(kernel=None, n_inducing=n_inducing).fit(X3, NAMES[Y3])
    for each in (model, saved_and_loaded(model, tmp_path / "model")):
        assert each.feature_names_in_.tolist() == COLUMNS
        np.testing.assert_array_equal(each.predict_proba(frame(NEW)), expected.predict_proba(NEW))
        with pytest.raises(ValueError, match="feature names should match"):
            each.predict(frame(NEW, COLUMNS[::-1]))
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            each.predict(NEW)


@frames
@pytest.mark.parametrize("use", ["partial_fit", "unlearn"])
def test_columns_of_other_names_are_refused_and_change_nothing(frame, use):
    model = new(**SPARSE).fit(frame(X3), Y3)
    before = model.predict_proba(frame(NEW))
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(model, use)(frame(X3, COLUMNS[::-1]), Y3)
    np.testing.assert_array_equal(model.predict_proba(frame(NEW)), before)
    assert getattr(model, use)(frame(X3), Y3).n_rows_seen_ == (2 * N if use == "partial_fit" else 0)


def test_models_of_other_names_are_not_merged():
    model, same, other = (new(**SPARSE).fit(FRAMES["pandas"](X3, c), Y3) for c in (COLUMNS, COLUMNS, COLUMNS[::-1]))
    assert model.merge(same).n_rows_seen_ == 2 * N
    with pytest.raises(ValueError, match="names"):
        model.merge(other)


def test_gpytorch_settings_are_left_alone():
    before = gpytorch.settings.cholesky_jitter.value(torch.float64), torch.get_default_dtype(), torch.is_grad_enabled()
    new(**SPARSE, max_iter=1).fit(X3, Y3).predict(NEW)
    after = gpytorch.settings.cholesky_jitter.value(torch.float64), torch.get_default_dtype(), torch.is_grad_enabled()
    assert after == before


def test_a_few_rows_that_are_told_apart_with_ease_do_not_make_a_model_overconfident():
    X, y = load_wine(return_X_y=True)
    order = np.random.RandomState(2).permutation(len(X))
    train, test = order[:89], order[89:]
    model = GPClassifier().fit(X[train], y[train])
    assert metrics.nll(model.predict_proba(X[test]), y[test]) < 0.6
    assert model.alpha_eps_ >= 0.02


@pytest.mark.parametrize("method", ["moment", "laplace", "gauss", "moment-ori"])
def test_every_method_learns_a_kernel_as_it_comes(method):
    X, y = load_wine(return_X_y=True)
    assert GPClassifier(method=method).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9


def test_constants_are_those_of_least_squares_also_where_targets_are_far_from_zero():
    model = new(alpha_eps=0.01, temperature=1.0, scaling=None).fit(X3, Y3)
    table = SoftmaxLikelihood(3, torch.tensor(0.01).double(), model.method_).target_table()
    covariance = model.kernel_(torch.as_tensor(X3)).to_dense().detach()
    expected = exact_evidence(covariance, torch.as_tensor(Y3).long(), table).mean
    mean, _ = model.predict_latent([[1e4, 1e4]])
    np.testing.assert_allclose(mean[0], expected, rtol=0.02)


def test_models_with_the_same_points_and_another_kernel_are_not_merged():
    a, b = (new(kernel=rbf(1.0, (scale, scale)), n_inducing=1, inducing=X3[:1]).fit(X3, Y3) for scale in (1.0, 2.0))
    with pytest.raises(InvalidArgumentError, match="same hyperparameters"):
        a.merge(b)


@pytest.mark.parametrize("rows", [X3 + 20.0, X3 + 5.0], ids=["far", "near"])
def test_rows_that_were_not_learnt_are_not_unlearnt(rows):
    model = new(**SPARSE).fit(X3, Y3)
    before = model.predict_proba(NEW)
    for part in (slice(3), slice(None)):
        with pytest.raises(InvalidArgumentError, match="not learnt"):
            model.unlearn(rows[part], Y3[part])
    np.testing.assert_array_equal(model.predict_proba(NEW), before)


def test_a_kernel_with_another_setting_is_not_loaded(tmp_path):
    rough, smooth = (ScaleKernel(MaternKernel(smoothness)) for smoothness in (0.5, 2.5))
    rough.base_kernel.lengthscale = 5.0
    new(kernel=rough).fit(X3, Y3).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="numbers of the one that was saved"):
        GPClassifier.load(tmp_path / "model", kernel=smooth)
