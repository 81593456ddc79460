"""Refined Bayesian logistic regression as an estimator: what is chosen, streams, files, and bad input.

That its posterior is the right one is tested in ``test_refined_oracles.py``.
"""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression

from estimator_checks import assert_refused, edit_file
from gaussify import BayesianLogisticRegression, metrics
from gaussify.datasets import make_rare_class
from gaussify.exceptions import InvalidArgumentError, ModelFileError
from gaussify.likelihoods import ClassLikelihood
from gaussify.linear._refinement import _every
from gaussify.posterior import (
    ClassStatistics,
    GaussianPrior,
    NaturalParameters,
    SiteRows,
    class_posterior,
    condition,
    latent,
    refine,
    site_of_row,
    sites_of,
)
from sampled import each_value

KIND = "BayesianLogisticRegression"
N, D, N_FIT = 80, 3, 50
PRIOR_VARIANCE, INTERCEPT_VARIANCE = 2.0, 100.0


def make_rows(n_classes: int, n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = (2.0 * X @ rng.normal(size=(D, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(1)
    y[:n_classes] = y[N_FIT : N_FIT + n_classes] = np.arange(n_classes)
    return X, y


DATA = {"two": make_rows(2), "three": make_rows(3)}
data = pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA)


def new(**params) -> BayesianLogisticRegression:
    """A model of which nothing is chosen."""
    fixed = {
        "alpha_eps": 0.1,
        "temperature": 1.0,
        "prior_variance": PRIOR_VARIANCE,
        "intercept_variance": INTERCEPT_VARIANCE,
        "refine": 50,
    }
    return BayesianLogisticRegression(**fixed | params)


def auto(**params) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(**{"refine": 50} | params)


def fitted(X, y, **params) -> BayesianLogisticRegression:
    return new(**params).fit(X[:N_FIT], y[:N_FIT])


def features_of(X: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.c_[X, np.ones(len(X))])


def prior_of(model: BayesianLogisticRegression, n_classes: int) -> GaussianPrior:
    variance = torch.tensor([*model.prior_variance_, INTERCEPT_VARIANCE], dtype=torch.float64)
    return GaussianPrior.centred(variance, n_latents=1 if n_classes == 2 else n_classes)


def sites(model: BayesianLogisticRegression) -> NaturalParameters:
    """The sum of the sites that a model holds."""
    return model._refined.total.natural


def sum_of_rows(X: np.ndarray, precision: np.ndarray, linear: np.ndarray) -> NaturalParameters:
    Phi = features_of(X)
    tensors = torch.einsum("nl,ni,nj->lij", torch.as_tensor(precision), Phi, Phi), torch.as_tensor(linear).mT @ Phi
    return NaturalParameters(*tensors, torch.zeros(len(tensors[1])).double())


def sites_by_hand(likelihood: ClassLikelihood, posterior, X, y) -> NaturalParameters:
    found = sites_of(likelihood, *latent(posterior, features_of(X)), torch.from_numpy(y))
    return sum_of_rows(X, found.precision, found.linear)


def assert_has(model, natural: NaturalParameters, X: np.ndarray, tolerance: float = 1e-9) -> None:
    """The model's latents are those given the sum of these sites."""
    posterior = condition(prior_of(model, len(model.classes_)), natural)
    mean, variance = latent(posterior, features_of(X))
    T = model.temperature_
    found = model.predict_latent(X)
    np.testing.assert_allclose(found[0], mean / T, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], variance / T**2, rtol=tolerance, atol=tolerance)


def assert_same(found, expected, X, tolerance: float = 1e-9) -> None:
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert found.refined_ == expected.refined_
    for own, other in zip(found.predict_latent(X), expected.predict_latent(X), strict=True):
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)


# --- what refine means ---------------------------------------------------------------------------------------------


@data
def test_without_refinement_the_model_is_least_squares_on_matched_labels(X, y):
    model = new(refine=False, temperature=1.5).fit(X, y)
    n_classes = len(model.classes_)
    statistics = ClassStatistics.from_rows(features_of(X), torch.from_numpy(y), n_classes=n_classes)
    posterior = class_posterior(prior_of(model, n_classes), statistics, model.likelihood_.target_table())
    mean, variance = latent(posterior, features_of(X))
    np.testing.assert_allclose(model.predict_latent(X)[0], mean / 1.5, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict_latent(X)[1], variance / 1.5**2, rtol=1e-9, atol=1e-9)
    assert not model.refined_


@data
def test_with_a_number_fit_refines(X, y):
    model = fitted(X, y)
    n_classes, part = len(model.classes_), SiteRows(features_of(X[:N_FIT]), torch.from_numpy(y[:N_FIT]))
    best = refine(
        prior_of(model, n_classes), [part], model.likelihood_, 0.0 * sites(model), max_passes=100, tolerance=1e-8
    )
    assert model.refined_
    mean, variance = (own.numpy() for own in latent(best.posterior, features_of(X)))
    std = np.sqrt(variance)
    np.testing.assert_allclose(model.predict_latent(X)[0] / std, mean / std, atol=5e-3)
    np.testing.assert_allclose(model.predict_latent(X)[1], variance, rtol=1e-2)


@pytest.mark.parametrize(("load", "is_refined"), [(load_iris, True), (load_wine, False)])
def test_auto_takes_the_model_with_the_better_leave_one_out_score(load, is_refined):
    X, y = load(return_X_y=True)
    model, matched, refined = (BayesianLogisticRegression(refine=r).fit(X, y) for r in ("auto", False, 30))
    assert model.refined_ is is_refined
    better, worse = (refined, matched) if is_refined else (matched, refined)
    assert_same(model, better, X, 1e-12)
    assert model.score_ == better.score_ > worse.score_


@pytest.mark.parametrize(
    "params",
    [{"alpha_eps": 0.1}, {"method": "laplace"}, {"dispersion": "auto"}, {"dispersion": 2.0}, {"reservoir_size": 0}],
    ids=str,
)
def test_auto_keeps_to_the_matched_model_where_that_was_asked_for(params):
    X, y = load_iris(return_X_y=True)
    model = BayesianLogisticRegression(**params).fit(X, y)
    assert not model.refined_
    assert_same(model, BayesianLogisticRegression(refine=False, **params).fit(X, y), X, 1e-12)


def test_auto_keeps_to_the_matched_model_where_a_pass_takes_minutes(monkeypatch):
    X, y = DATA["two"]
    assert BayesianLogisticRegression().fit(X, y).refined_
    monkeypatch.setattr("gaussify.linear._refinement._MOST_PRODUCTS", 1e3)
    assert not BayesianLogisticRegression().fit(X, y).refined_
    assert BayesianLogisticRegression(refine=5).fit(X, y).refined_


def test_a_number_is_the_largest_number_of_passes(monkeypatch):
    seen = []

    def spy(*args, max_passes, **options):
        seen.append(max_passes)
        return refine(*args, max_passes=max_passes, **options)

    monkeypatch.setattr("gaussify.linear._refinement.refine", spy)
    X, y = DATA["three"]
    auto(refine=np.int64(3)).fit(X, y)
    assert set(seen) == {3}
    seen.clear()
    BayesianLogisticRegression().fit(X, y)
    assert set(seen) == {30}


@pytest.mark.parametrize("refine", [True, 0, -1, 1.5, "yes", None, np.True_, float("nan"), [1]], ids=repr)
def test_other_values_are_refused(refine):
    with pytest.raises(InvalidArgumentError, match=r"'refine' parameter .* 'auto', False or a positive number"):
        auto(refine=refine).fit(*DATA["two"])


@pytest.mark.parametrize("refine", ["auto", 50])
def test_one_class_is_refused(refine):
    with pytest.raises(InvalidArgumentError, match="at least two classes"):
        auto(refine=refine).fit(DATA["two"][0], np.zeros(N))


@data
def test_a_given_prior_variance_is_that_of_the_logits(X, y):
    model = fitted(X, y, temperature="auto", alpha_eps="auto")
    np.testing.assert_array_equal(model.prior_variance_, PRIOR_VARIANCE)
    assert_has(model, sites(model), X)
    before = model.predict_latent(X)
    np.testing.assert_allclose(model.tune().predict_latent(X)[0], before[0], rtol=0.02, atol=1e-3)


@pytest.mark.parametrize(
    ("X", "y"), [DATA["two"], pytest.param(*DATA["three"], marks=pytest.mark.slow)], ids=["two", "three"]
)
def test_the_prior_variance_has_about_the_largest_bound(X, y):
    model = auto(temperature=1.0).fit(X, y)
    chosen, part = model.prior_variance_, SiteRows(features_of(X), torch.from_numpy(y))

    def bound(factor: float) -> float:
        n_latents = 1 if len(model.classes_) == 2 else len(model.classes_)
        variance = torch.tensor([*(factor * chosen), 1000.0], dtype=torch.float64)
        prior = GaussianPrior.centred(variance, n_latents=n_latents)
        return refine(prior, [part], model.likelihood_, 0.0 * sites(model)).bound

    top = bound(1.0)
    assert top > bound(0.1)
    assert top > bound(10.0)


def test_one_row_in_a_thousand_is_found_by_default():
    """Where matched labels say little, and every fifth row would leave few of the class."""
    X, y = make_rare_class(12_000, 0.001, random_state=0)
    X = (X - X.mean(0)) / X.std(0)
    model = BayesianLogisticRegression().fit(X, y)
    assert model.refined_
    assert 0.1 < model.prior_variance_.min() < 100.0
    test, labels = make_rare_class(40_000, 0.001, random_state=1)
    test = (test - test.mean(0)) / test.std(0)
    reference = LogisticRegression().fit(X, y)
    losses = [metrics.nll(own.predict_proba(test), labels) for own in (model, reference)]
    assert losses[0] < 1.02 * losses[1]
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.05)


def test_some_rows_stand_for_all_of_their_class():
    labels = torch.tensor([0] * 5000 + [1] * 30 + [3] * 450)[torch.randperm(5480, generator=torch.Generator())]
    rows = SiteRows(torch.arange(5480.0).double()[:, None], labels)
    some = _every(rows, 7)
    assert torch.bincount(some.labels).tolist() == [715, 30, 0, 113]
    totals = torch.zeros(4).double().index_add_(0, some.labels, some.weight)
    assert totals.tolist() == pytest.approx([5000.0, 30.0, 0.0, 450.0])
    assert torch.equal(labels[some.features[:, 0].long()], some.labels)
    doubled = _every(rows._replace(weight=torch.full((5480,), 2.0).double()), 7)
    assert torch.equal(doubled.weight, 2.0 * some.weight)
    assert _every(rows, 1) is rows


# --- streams -------------------------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("predicts", [False, True])
def test_rows_one_by_one_get_sites_at_arrival(X, y, temperature, predicts):
    model = fitted(X, y, temperature=temperature)
    likelihood, natural = model.likelihood_, sites(model)
    for row in range(N_FIT, N):
        posterior = condition(prior_of(model, len(model.classes_)), natural)
        mean, variance = (part[0].numpy() for part in latent(posterior, features_of(X[row : row + 1])))
        own = site_of_row(likelihood, mean, variance, int(y[row]))
        natural = natural + sum_of_rows(X[row : row + 1], *(part[None] for part in own))
        if predicts:
            model.predict_proba(X[row : row + 1])
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    np.testing.assert_allclose(sites(model).precision, natural.precision, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sites(model).linear, natural.linear, rtol=1e-9, atol=1e-9)
    assert_has(model, natural, X)  # kept up row by row
    assert_has(copy.copy(model), natural, X)  # and computed anew
    assert model.n_rows_seen_ == N


@data
def test_a_few_rows_at_once_are_rows_one_by_one(X, y):
    single, few = fitted(X, y), fitted(X, y)
    for row in range(N_FIT, N):
        single.partial_fit(X[row : row + 1], y[row : row + 1])
    for start in range(N_FIT, N, 5):
        few.partial_fit(X[start : start + 5], y[start : start + 5])
    assert_same(few, single, X)


@data
def test_a_block_is_refined_while_all_sites_so_far_stay(X, y):
    model = fitted(X, y)
    known, part = sites(model), SiteRows(features_of(X[N_FIT:]), torch.from_numpy(y[N_FIT:]))
    more = refine(prior_of(model, len(model.classes_)), [part], model.likelihood_, 0.0 * known, known=known)
    assert_has(model.partial_fit(X[N_FIT:], y[N_FIT:]), known + more.natural, X, 1e-4)


@data
def test_blocks_and_rows_end_near_a_fit_of_all(X, y):
    whole = new().fit(X, y)
    block = fitted(X, y).partial_fit(X[N_FIT:], y[N_FIT:])
    single = fitted(X, y)
    for row in range(N_FIT, N):
        single.partial_fit(X[row : row + 1], y[row : row + 1])
    for model in (block, single):
        assert np.abs(model.predict_proba(X) - whole.predict_proba(X)).mean() < 0.02


@pytest.mark.parametrize("n_rows", [3, 20])
def test_rows_of_weight_zero_change_nothing(n_rows):
    X, y = DATA["three"]
    model = fitted(X, y).partial_fit(X[:n_rows], y[:n_rows], sample_weight=np.zeros(n_rows))
    assert_same(model, fitted(X, y), X, 1e-12)


@data
def test_weights_are_numbers_of_rows(X, y):
    weight = np.random.default_rng(0).integers(0, 4, N).astype(float)
    copies = np.repeat(np.arange(N), weight.astype(int))
    first, rest = copies[copies < N_FIT], copies[copies >= N_FIT]
    found = new().fit(X[:N_FIT], y[:N_FIT], sample_weight=weight[:N_FIT])
    expected = new().fit(X[first], y[first])
    assert_same(found, expected, X, 1e-3)
    found.partial_fit(X[N_FIT:], y[N_FIT:], sample_weight=weight[N_FIT:])
    assert_same(found, expected.partial_fit(X[rest], y[rest]), X, 5e-3)


@data
def test_from_nothing_streams_are_matched_unless_a_number_asks_for_sites(X, y):
    matched, refined = (BayesianLogisticRegression(refine=r) for r in ("auto", 5))
    for start in range(0, N, 4):
        for model in (matched, refined):
            model.partial_fit(X[start : start + 4], y[start : start + 4])
    assert (matched.refined_, refined.refined_) == (False, True)
    assert_same(matched, BayesianLogisticRegression(refine=False).fit(X, y), X, 0.05)
    assert refined.score(X, y) > 0.7


def test_sites_follow_as_soon_as_two_classes_are_known():
    X, y = DATA["two"]
    ones = np.flatnonzero(y == 1)
    model = new(refine=5).partial_fit(X[ones[:3]], y[ones[:3]], classes=[0, 1])
    assert not model.refined_
    model.partial_fit(X[:1], [0])
    assert not model.refined_
    table, statistics = model.likelihood_.target_table(), model.statistics_
    posterior = class_posterior(prior_of(model, 2), statistics, table)
    own = site_of_row(model.likelihood_, *(p[0].numpy() for p in latent(posterior, features_of(X[1:2]))), 1)
    model.partial_fit(X[1:2], [1])
    assert model.refined_
    precision, linear = 1.0 / table.variance, table.mean / table.variance
    natural = sum_of_rows(X[1:2], *(part[None] for part in own))
    for label, row in [(1, ones[0]), (1, ones[1]), (1, ones[2]), (0, 0)]:
        natural = natural + sum_of_rows(X[row : row + 1], precision[label : label + 1], linear[label : label + 1])
    assert_has(model, natural, X)


@data
@pytest.mark.parametrize("n_rows", [1, 20])
def test_old_rows_fade(X, y, n_rows):
    model = fitted(X, y).set_params(forgetting=0.95)
    natural = 0.95**n_rows * sites(model)
    part = slice(N_FIT, N_FIT + n_rows)
    weight = torch.from_numpy(0.95 ** np.arange(n_rows - 1, -1, -1.0))
    rows = SiteRows(features_of(X[part]), torch.from_numpy(y[part]), weight)
    more = refine(prior_of(model, len(model.classes_)), [rows], model.likelihood_, 0.0 * natural, known=natural)
    assert_has(model.partial_fit(X[part], y[part]), natural + more.natural, X, 1e-4)


@data
def test_a_fit_with_forgetting_is_that_of_fading_weights(X, y):
    found = new(forgetting=0.97).fit(X, y)
    assert_same(found, new().fit(X, y, sample_weight=0.97 ** np.arange(N - 1, -1, -1.0)), X, 1e-6)
    with pytest.raises(InvalidArgumentError, match="forgetting=1"):
        found.unlearn(X[:1], y[:1])


# --- merge and unlearn ---------------------------------------------------------------------------------------------


@data
def test_merging_adds_sites_and_counts_the_prior_once(X, y):
    model, other = fitted(X, y), new().fit(X[N_FIT:], y[N_FIT:])
    expected = sites(model) + sites(other)
    before = other.predict_latent(X)
    assert_has(model.merge(other), expected, X)
    assert model.n_rows_seen_ == N
    np.testing.assert_array_equal(other.predict_latent(X), before)
    reverse = new().fit(X[N_FIT:], y[N_FIT:]).merge(fitted(X, y))
    assert_same(model, reverse, X)
    model.partial_fit(X[:20], y[:20])
    assert model.refined_


@data
def test_merged_shards_are_near_a_fit_of_all(X, y):
    model = new().fit(X[::2], y[::2]).merge(new().fit(X[1::2], y[1::2]))
    assert np.abs(model.predict_proba(X) - new().fit(X, y).predict_proba(X)).mean() < 0.03


def test_merging_other_classes_goes_back_to_matched_labels():
    (X, y), (X2, y2) = DATA["three"], DATA["two"]
    found = fitted(X, y).merge(new().fit(X2, y2))
    assert not found.refined_
    assert_same(found, new(refine=False).fit(np.r_[X[:N_FIT], X2], np.r_[y[:N_FIT], y2]), X)


@data
@pytest.mark.parametrize(
    "params", [{"refine": False}, {"refine": 50, "likelihood": "softmax"}], ids=["matched", "softmax"]
)
def test_merging_another_kind_of_model_adds_sites_or_goes_back_to_matched_labels(X, y, params):
    model, other = fitted(X, y), new(**params).fit(X[N_FIT:], y[N_FIT:])
    has_same_latents = other.refined_ and len(model.classes_) > 2
    model.merge(other)
    assert model.refined_ is has_same_latents
    if not has_same_latents:
        assert_same(model, new(refine=False).fit(X, y), X)


@data
def test_unlearning_takes_out_the_sites_that_fit_made(X, y):
    model = fitted(X, y)
    out, natural, reference = slice(10, 30), sites(model), model._refined.reference
    own = sites_by_hand(model.likelihood_, reference, X[out], y[out])
    model.unlearn(X[out], y[out])
    assert_has(model, natural - own, X)
    assert model.n_rows_seen_ == N_FIT - 20
    model.unlearn(X[:3], y[:3])
    assert_has(model, natural - own - sites_by_hand(model.likelihood_, reference, X[:3], y[:3]), X)
    rest = np.r_[X[3:10], X[30:N_FIT]], np.r_[y[3:10], y[30:N_FIT]]
    assert np.abs(model.predict_proba(X) - new().fit(*rest).predict_proba(X)).mean() < 0.05


@data
def test_unlearning_all_rows_leaves_the_prior(X, y):
    model = fitted(X, y).unlearn(X[:N_FIT], y[:N_FIT])
    assert_has(model, 0.0 * sites(model), X, 1e-6)
    assert model.refined_


@data
def test_weights_are_unlearnt_too(X, y):
    weight = np.linspace(0.5, 2.0, N_FIT)
    model = new().fit(X[:N_FIT], y[:N_FIT], sample_weight=weight)
    model.unlearn(X[:N_FIT], y[:N_FIT], sample_weight=weight)
    assert_has(model, 0.0 * sites(model), X, 1e-6)


@data
@pytest.mark.parametrize("n_rows", [1, 20])
def test_unlearning_after_more_rows_is_refused_and_the_matched_model_can(X, y, n_rows, tmp_path):
    part = slice(N_FIT, N_FIT + n_rows)
    model = fitted(X, y).partial_fit(X[part], y[part])
    remedy = r"set_params\(refine=False\) goes back to the matched model"
    assert_refused(model, lambda m: m.unlearn(X[:1], y[:1]), remedy, tmp_path / "model", InvalidArgumentError)
    model.set_params(refine=False).unlearn(X[:1], y[:1])
    assert_same(model, new(refine=False).fit(X[1 : N_FIT + n_rows], y[1 : N_FIT + n_rows]), X)


@data
def test_by_default_the_matched_model_unlearns_what_sites_cannot(X, y):
    model = auto(refine="auto").fit(X[:N_FIT], y[:N_FIT])
    assert model.refined_
    model.unlearn(X[:1], y[:1])
    assert model.refined_
    model.partial_fit(X[N_FIT:], y[N_FIT:]).unlearn(X[1:2], y[1:2])
    assert not model.refined_
    assert_same(model.tune(), auto(refine=False).fit(X[2:], y[2:]), X)


# --- features, classes and parameters ------------------------------------------------------------------------------


def test_new_features_go_back_to_matched_labels():
    X, y = DATA["three"]
    wide = np.c_[X, np.zeros((N, 2))]
    model = fitted(X, y).widen(D + 2)
    assert not model.refined_
    assert_same(model, new(refine=False).fit(wide[:N_FIT], y[:N_FIT]), wide)


@pytest.mark.parametrize("refine", ["auto", 5])
def test_with_a_new_class_the_matched_model_takes_over(refine):
    X, y = load_iris(return_X_y=True)
    two = y < 2
    y = np.where(two & (X[:, 0] > 5.5), 1 - y, y)  # no rule
    model = BayesianLogisticRegression(refine=refine).fit(X[two], y[two])
    assert model.refined_
    model.partial_fit(X[~two][:9], y[~two][:9])
    assert model.predict_proba(X).shape == (150, 3)
    assert model.refined_ == (refine == 5)  # later rows refine it again
    model.partial_fit(X[~two], y[~two])
    assert (model.predict(X[~two]) == 2).mean() > 0.7


KEEP = [
    {"prior_variance": 3.0},
    {"temperature": 2.0},
    {"predictive": "mean-field"},
    {"intercept_variance": 1.0},
    {"criterion": "training"},
    {"refine": 7},
    {"refine": "auto", "alpha_eps": "auto"},
]
DROP = [{"refine": False}, {"refine": "auto"}, {"refine": "auto", "alpha_eps": "auto", "method": "laplace"}]


@data
@pytest.mark.parametrize("params", KEEP, ids=str)
def test_sites_stay_when_prior_or_predictions_change(X, y, params):
    model = fitted(X, y)
    before = sites(model)
    model.set_params(**params)
    assert model.refined_
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_array_equal(sites(model).precision, before.precision)
    if params.keys() <= {"prior_variance", "temperature"}:
        assert_has(model, before, X)
    model.partial_fit(X[:1], y[:1]).partial_fit(X, y)


@pytest.mark.parametrize("prior_variance", [PRIOR_VARIANCE, "auto"])
def test_the_prior_of_the_intercept_changes_too(prior_variance):
    X, y = DATA["two"]
    model = fitted(X, np.where(X[:, 1] > -1.0, 1, y), prior_variance=prior_variance)
    before = model.intercept_.copy()
    model.set_params(intercept_variance=1e-6)
    assert abs(model.intercept_[0]) < 1e-3 < abs(before[0])


@data
@pytest.mark.parametrize("params", DROP, ids=str)
def test_the_matched_model_takes_over_where_nothing_else_asks_for_sites(X, y, params):
    model = fitted(X, y).set_params(**params)
    assert not model.refined_
    assert_same(model, new(**{**params, "refine": False}).fit(X[:N_FIT], y[:N_FIT]), X)


@pytest.mark.parametrize("params", [{"likelihood": "softmax"}, {"method": "gauss"}, {"method": "moment-ori"}], ids=str)
def test_sites_of_one_latent_are_dropped_where_there_are_two(params):
    X, y = DATA["two"]
    model = fitted(X, y).set_params(**params)
    assert not model.refined_
    assert model.predict_latent(X)[0].shape == (N, 2)
    assert_same(model, new(refine=False, **params).fit(X[:N_FIT], y[:N_FIT]), X)
    model.partial_fit(X[N_FIT:], y[N_FIT:])
    assert model.refined_
    assert model.score(X, y) > 0.7


@data
def test_tune_chooses_prior_and_temperature_for_the_sites(X, y):
    model = auto().fit(X, y)
    before = sites(model)
    chosen, T = model.prior_variance_.copy(), model.temperature_
    model.set_params(prior_variance=1e-3)
    assert model.prior_variance_.tolist() == [1e-3] * D
    model.set_params(prior_variance="auto").tune()
    np.testing.assert_array_equal(sites(model).linear, before.linear)
    assert 0.05 < (model.prior_variance_ / chosen).mean() < 20.0
    assert 0.5 < model.temperature_ / T < 2.0


@pytest.mark.parametrize(
    "X", [np.ones((N, 2)), np.zeros((N, 1)), 1e100 * DATA["two"][0]], ids=["ones", "zeros", "huge"]
)
def test_tune_works_where_no_feature_has_a_scale(X):
    y = DATA["two"][1]
    model = auto().fit(X, y)
    before = model.predict_proba(X)
    np.testing.assert_allclose(model.tune().predict_proba(X), before, atol=0.02)


# --- copies and files ----------------------------------------------------------------------------------------------


def after(history: str) -> BayesianLogisticRegression:
    X, y = DATA["three"]
    if history in ("auto", "forgetting"):
        return (auto() if history == "auto" else new(forgetting=0.95)).fit(X, y).partial_fit(X[:1], y[:1])
    model = fitted(X, y)
    if history == "unlearnt":
        model.unlearn(X[:5], y[:5])
    elif history == "merged":
        model.merge(new().fit(X[N_FIT:], y[N_FIT:]))
    elif history != "fit":
        rows = slice(N_FIT, N_FIT + 3 if history == "rows" else N)
        model.partial_fit(X[rows], y[rows])
    return model


@each_value(
    history=["fit", "auto", "block", "rows", "unlearnt", "merged", "forgetting"],
    how=["file", "pickle", "deepcopy", "copy"],
)
def test_what_comes_back_is_the_model_and_goes_on_learning(history, how, tmp_path):
    X, y = DATA["three"]
    model = after(history)
    path = tmp_path / "model"
    if how == "file":
        model.save(path)
        twin = BayesianLogisticRegression.load(path)
    else:
        twin = {"pickle": lambda m: pickle.loads(pickle.dumps(m)), "deepcopy": copy.deepcopy, "copy": copy.copy}[how](
            model
        )
    fresh = copy.copy(model)  # its posterior is computed anew, as that from a file is
    expected = fresh if how in ("file", "copy") else model
    for own, other in zip(twin.predict_latent(X), expected.predict_latent(X), strict=True):
        np.testing.assert_array_equal(own, other)
    assert (twin.refined_, twin.score_, twin.temperature_) == (True, model.score_, model.temperature_)
    before = sites(model)
    for part in (slice(0, 1), slice(1, 4), slice(4, 40)):
        for own in (twin, fresh):
            own.partial_fit(X[part], y[part])
        assert_same(twin, fresh, X, 1e-12 if how != "pickle" else 1e-9)
    np.testing.assert_array_equal(sites(model).precision, before.precision)  # which did not learn


def test_a_clone_has_learnt_nothing():
    model = fitted(*DATA["two"])
    twin = clone(model)
    assert twin.refine == 50
    assert not hasattr(twin, "classes_")


def test_files_from_before_refinement_are_matched_models(tmp_path):
    X, y = DATA["three"]
    path, model = tmp_path / "model", new(refine=False).fit(X, y)
    model.save(path)

    def make_old(config, tensors):
        del config["refined"], config["params"]["refine"]

    edit_file(path, KIND, make_old)
    loaded = BayesianLogisticRegression.load(path)
    assert (loaded.refine, loaded.refined_) == ("auto", False)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert_same(loaded.partial_fit(X[:3], y[:3]), model.partial_fit(X[:3], y[:3]), X)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("refined.precision", lambda t: t[:, :1].contiguous()),
        ("refined.linear", lambda t: t[:2].contiguous()),
        ("refined.linear", lambda t: t * torch.nan),
        ("refined.reference.mean", lambda t: t[:, 1:].contiguous()),
        ("refined.reference.root", lambda t: t * torch.inf),
    ],
)
def test_damaged_files_are_refused(name, spoil, tmp_path):
    path = tmp_path / "model"
    fitted(*DATA["three"]).save(path)
    edit_file(path, KIND, lambda config, tensors: tensors.update({name: spoil(tensors[name])}))
    with pytest.raises(ModelFileError, match="does not hold a complete"):
        BayesianLogisticRegression.load(path)


@data
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_the_weight_space_learns_a_row_as_partial_fit_does(X, y, temperature):
    model = fitted(X, y, temperature=temperature)
    space = model.weight_space()
    features, _ = space.features(X)
    for row in range(N_FIT, N_FIT + 10):
        space.observe(features[row], int(y[row]))
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    again = model.weight_space()
    np.testing.assert_allclose(space.posterior.mean, again.posterior.mean, rtol=1e-9, atol=1e-9)
    covariance = [np.swapaxes(s.posterior.root, 1, 2) @ s.posterior.root for s in (space, again)]
    np.testing.assert_allclose(*covariance, rtol=1e-9, atol=1e-9)


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [1, 20])
@pytest.mark.parametrize("place", ["_refinement.SiteSum.copy", "_refinement.refine", "_reservoir.Reservoir.add"])
def test_an_interrupt_leaves_the_model_as_it_was(place, n_rows, tmp_path, monkeypatch):
    X, y = make_rows(3, 60)
    model = new().fit(X, y)
    model.predict_proba(X)

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"gaussify.linear.{place}", interrupt)
        if (place, n_rows) in (("_refinement.refine", 1), ("_refinement.SiteSum.copy", 20)):
            model.partial_fit(X[:n_rows], y[:n_rows])  # has no need of it
        else:
            call = lambda m: m.partial_fit(X[:n_rows], y[:n_rows])  # noqa: E731
            assert_refused(model, call, "^$", tmp_path / "model", KeyboardInterrupt)
    expected = new().fit(X, y)
    for own in (model, expected):
        own.partial_fit(X[:2], y[:2])
    if place == "_reservoir.Reservoir.add":
        assert_same(model, expected, X)


def test_an_interrupt_amid_rows_leaves_the_model_as_it_was(tmp_path, monkeypatch):
    """The posterior is updated in place, row by row."""
    X, y = make_rows(3, 60)
    model, calls = new().fit(X, y), []

    def interrupt(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return site_of_row(*args, **options)

    model.predict_proba(X)
    with monkeypatch.context() as patch:
        patch.setattr("gaussify.linear._current.site_of_row", interrupt)
        assert_refused(model, lambda m: m.partial_fit(X[:5], y[:5]), "^$", tmp_path / "model", KeyboardInterrupt)
    assert_same(model, new().fit(X, y), X)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e160])
def test_bad_rows_leave_the_model_as_it_was(value, tmp_path):
    X, y = make_rows(3, 60)
    model = new().fit(X, y)
    for n_rows in (3, 20):
        rows = X[:n_rows].copy()
        rows[1, 1] = value
        for call in (
            lambda m, r=rows, n=n_rows: m.partial_fit(r, y[:n]),
            lambda m, r=rows, n=n_rows: m.unlearn(r, y[:n]),
        ):
            assert_refused(model, call, "NaN|infinity|large|overflow|not learnt", tmp_path / "model")


def test_a_refused_merge_or_parameter_leaves_the_model_as_it_was(tmp_path):
    X, y = make_rows(3, 60)
    model, path = new().fit(X, y), tmp_path / "model"
    other = new(fit_intercept=False).fit(X, y)
    assert_refused(model, lambda m: m.merge(other), "fit_intercept", path)
    assert_refused(model, lambda m: m.set_params(prior_variance=-1.0), "prior_variance", path)
    assert_refused(model, lambda m: m.set_params(refine=0), "refine", path)
    assert_refused(model, lambda m: m.fit(X, np.zeros(60)), "two classes", path)


# --- extremes ------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(1)
PLAIN = RNG.normal(size=(60, 3))
TABLES = {
    "plain": PLAIN,
    "equal-columns": np.c_[PLAIN, PLAIN, PLAIN],
    "constant-columns": np.c_[PLAIN, np.ones((60, 2)), np.zeros((60, 1))],
    "only-constants": np.ones((60, 2)),
    "more-features-than-rows": RNG.normal(size=(60, 90)),
    "huge": 1e8 * PLAIN,
    "tiny": 1e-8 * PLAIN,
    "unrelated-units": PLAIN * [1e-8, 1.0, 1e8],
    "far-from-zero": PLAIN + 1e4,
}
LABELS = {"two": (PLAIN[:, 0] > 0.0).astype(int), "three": np.digitize(PLAIN[:, 0], [-0.5, 0.5])}


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def assert_sound(model, X) -> None:
    probs = model.predict_proba(X)
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-9)
    assert np.isfinite(model.coef_).all()
    assert (model.predict_latent(X)[1] >= 0.0).all()


@pytest.mark.usefixtures("no_warning")
@each_value(table=list(TABLES), labels=list(LABELS))
def test_separable_and_degenerate_tables_have_sound_probabilities(table, labels):
    X, y = TABLES[table], LABELS[labels]
    model = auto(refine=10).fit(X, y)
    assert model.refined_
    assert_sound(model, X)
    if table in ("plain", "equal-columns", "constant-columns", "huge", "tiny", "unrelated-units"):
        assert model.score(X, y) > 0.95
        assert model.predict_proba(X).max() > 0.99
    assert_sound(model.partial_fit(X[:3], y[:3]).partial_fit(X, y), X)


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("labels", ["two", pytest.param("three", marks=pytest.mark.slow)])
def test_scales_of_features_do_not_matter(labels):
    y = LABELS[labels]
    plain, huge = (auto().fit(TABLES[table], y).predict_proba(TABLES[table]) for table in ("plain", "huge"))
    np.testing.assert_allclose(huge, plain, atol=1e-5)


@pytest.mark.usefixtures("no_warning")
@each_value(weight=["mixed", 1e12, 1e-12], labels=list(LABELS))
def test_extreme_weights_have_sound_probabilities(weight, labels):
    y = LABELS[labels]
    weights = 10.0 ** RNG.uniform(-12.0, 12.0, 60) if weight == "mixed" else np.full(60, weight)
    model = auto(refine=5).fit(PLAIN, y, sample_weight=weights)
    assert_sound(model, PLAIN)
    assert_sound(model.partial_fit(PLAIN[:2], y[:2], sample_weight=weights[:2]), PLAIN)
    assert_sound(model.partial_fit(PLAIN, y, sample_weight=weights), PLAIN)


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("labels", LABELS)
def test_one_row_of_each_class(labels):
    y = LABELS[labels]
    _, first = np.unique(y, return_index=True)
    assert_sound(auto().fit(PLAIN[first], y[first]), PLAIN)


@pytest.mark.usefixtures("no_warning")
def test_thirty_classes():
    X = RNG.normal(size=(600, 4))
    y = (3.0 * X @ RNG.normal(size=(4, 30)) + RNG.gumbel(size=(600, 30))).argmax(1)
    model = auto(refine=3, prior_variance=5.0, temperature=1.0).fit(X, y)
    assert_sound(model, X)
    assert model.score(X, y) > new(refine=False, prior_variance=5.0).fit(X, y).score(X, y)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e12])
def test_a_surprising_row_far_away_is_learnt(scale):
    X, y = DATA["two"]
    far = scale * X[:1]
    for n_rows in (1, 10):
        model = fitted(X, y)
        other = 1 - model.predict(far)
        model.partial_fit(np.repeat(far, n_rows, 0), np.repeat(other, n_rows))
        assert model.predict(far) == other
        assert_sound(model, X)


@pytest.mark.parametrize(("X", "y"), [DATA["two"]], ids=["two"])
def test_the_number_of_threads_does_not_matter(X, y):
    before = torch.get_num_threads()
    try:
        found = []
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            found.append(auto().fit(np.tile(X, (40, 1)), np.tile(y, 40)).predict_proba(X))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(*found, rtol=0.0, atol=1e-9)
