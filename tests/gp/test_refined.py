"""Refined Gaussian processes: sites of the class likelihood, judged by cross-validation, and what holds for streams."""

import copy
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

import gaussify.gp._classifier as classifier
import gaussify.gp._refinement as refinement
from gaussify import GPClassifier, LogisticLikelihood, SoftmaxLikelihood
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._exact import exact_gibibytes
from gaussify.gp._refinement import covering_features
from gaussify.linear._refinement import scaled_rows
from gaussify.posterior import (
    GaussianPrior,
    NaturalParameters,
    SiteRows,
    Sites,
    refine,
    sites_of,
    sum_of_sites,
)


def make_rule(n: int, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two features, whose classes follow a rule without noise."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + np.abs(X[:, 1]), [0.5, 1.2][: n_classes - 1])


X2, Y2 = make_rule(60, 2)
X3, Y3 = make_rule(60)
NEW, Y_NEW = make_rule(200, seed=1)
KINDS = {
    "exact": {},
    "sparse": {"n_inducing": 12},
    "separate": {"shared_kernel": False},
    "sparse, separate": {"n_inducing": 12, "shared_kernel": False},
}
SLOW = ["separate", "sparse, separate"]  # a kernel for each class takes as many times longer
every_kind = pytest.mark.parametrize(
    "kind", ["exact", "sparse", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
sparse_kinds = pytest.mark.parametrize("kind", ["sparse", pytest.param("sparse, separate", marks=pytest.mark.slow)])


def new(kind: str = "sparse", **params) -> GPClassifier:
    return GPClassifier(**{"max_iter": 15, "refine": 20, **KINDS[kind], **params})


def nll(model: GPClassifier, X: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean())


def assert_same(actual: GPClassifier, expected: GPClassifier, tolerance: float = 1e-9) -> None:
    for a, b in zip(actual.predict_latent(NEW), expected.predict_latent(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# The posterior


def per_latent(rows: SiteRows, n_latents: int) -> SiteRows:
    """Return the rows with the features of each latent, which are all the same."""
    left = None if rows.unexplained is None else rows.unexplained[:, None].expand(-1, n_latents)
    return rows._replace(features=rows.features.expand(n_latents, -1, -1), unexplained=left)


def test_features_of_each_latent_that_are_equal_are_those_of_all():
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, dtype=torch.float64, generator=rng)
    labels, left = torch.arange(30) % 3, torch.rand(30, dtype=torch.float64, generator=rng)
    rows, likelihood = SiteRows(features, labels, 1.0 + left, left), SoftmaxLikelihood(3)
    prior = GaussianPrior.centred(torch.ones(4).double(), n_latents=3)
    start = NaturalParameters(*(torch.zeros(3, *shape).double() for shape in ((4, 4), (4,), ())))
    both = [refine(prior, [part], likelihood, start, tolerance=1e-9) for part in (rows, per_latent(rows, 3))]
    assert both[0].bound == pytest.approx(both[1].bound, abs=1e-6)
    torch.testing.assert_close(both[0].posterior.mean, both[1].posterior.mean, rtol=1e-3, atol=1e-3)
    for a, b in zip(rows.latents(both[0].posterior), per_latent(rows, 3).latents(both[0].posterior), strict=True):
        torch.testing.assert_close(a, b)


def test_the_sum_of_sites_is_that_of_each_row():
    features, labels = torch.randn(2, 5, 3, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
    sites = Sites(torch.rand(5, 2).double(), torch.rand(5, 2).double())
    natural = sum_of_sites(SiteRows(features, labels), sites)
    each = torch.einsum("il,lid,lie->lde", sites.precision, features, features)
    torch.testing.assert_close(natural.precision, each)
    torch.testing.assert_close(natural.linear, torch.einsum("il,lid->ld", sites.linear, features))


def test_unexplained_variances_grow_with_the_kernel():
    refined = new().fit(X3, Y3)._refined
    assert refined is not None
    rows = SiteRows(torch.ones(1, 13).double(), torch.tensor([0]), None, torch.tensor([0.5]).double())
    scaled = scaled_rows(rows, refined.choice.prior_variance, refined.options)
    assert scaled.unexplained is not None
    assert float(scaled.unexplained) == pytest.approx(0.5 * refined.scale)


def test_an_exact_model_has_the_variational_posterior_of_its_rows():
    """The latents of all rows have the best Gaussian: K⁻¹m is the expected gradient, and S⁻¹ = K⁻¹ + W."""
    y = np.where(np.arange(60) % 3 == 0, 1 - Y2, Y2)
    model = new("exact", likelihood="logistic", temperature=1.0, scaling=None).fit(X2, y)
    refined = model._refined
    assert refined is not None
    rows = torch.from_numpy(X2)
    with torch.no_grad():
        K = refined.scale * model.kernel_(rows).to_dense() + refined.choice.prior_variance[-1]
    mean, variance = (torch.from_numpy(part) for part in model.predict_latent(X2))
    likelihood = LogisticLikelihood()
    precision, linear = (part[:, 0] for part in sites_of(likelihood, mean, variance, torch.from_numpy(y)))
    covariance = torch.linalg.inv(torch.linalg.inv(K + 1e-9 * torch.eye(60)) + precision.diag())
    torch.testing.assert_close(covariance.diagonal(), variance[:, 0], rtol=0.02, atol=1e-3)
    torch.testing.assert_close(covariance @ linear, mean[:, 0], rtol=0.02, atol=0.02)


def test_points_of_an_exact_model_explain_its_rows():
    rows = torch.from_numpy(np.vstack([X2, X2[:5]]))
    (features,) = covering_features([RBFKernel().double()], rows)
    phi, left = features(rows)
    assert len(features.points) <= 60
    assert float(left.max()) < 1e-4
    with torch.no_grad():
        covariance = RBFKernel().double()(rows).to_dense()
    torch.testing.assert_close(phi[:, :-1] @ phi[:, :-1].mT, covariance, rtol=0.0, atol=1e-4)


# Whether to refine


@every_kind
def test_a_rule_without_noise_is_predicted_much_better(kind):
    X, y = make_rule(150)
    matched, refined = new(kind, refine=False).fit(X, y), new(kind).fit(X, y)
    assert refined.refined_
    assert not matched.refined_
    assert nll(refined, NEW, Y_NEW) < 0.9 * nll(matched, NEW, Y_NEW)


def test_auto_refines_a_rule_without_noise():
    assert new(refine="auto").fit(X3, Y3).refined_


@pytest.mark.slow
def test_auto_is_the_better_of_both_by_the_same_folds(monkeypatch):
    found = []
    folds = refinement._Folds
    for name in ("matched_score", "best"):
        own = getattr(folds, name)
        monkeypatch.setattr(folds, name, lambda *args, own=own: found.append(own(*args)) or found[-1])
    rng = np.random.default_rng(0)
    for noise in (0.0, 0.5, 1.0):
        y = np.where(rng.random(60) < noise, rng.integers(3, size=60), Y3)
        found.clear()
        model = new(refine="auto").fit(X3, y)
        matched, (_, _, refined) = found
        assert model.refined_ == (refined > matched + 1.0 / 60)


@pytest.mark.parametrize("params", [{"alpha_eps": 0.1}, {"method": "laplace"}])
def test_auto_keeps_to_the_matched_model_where_its_labels_are_set(params):
    assert not new(refine="auto", **params).fit(X3, Y3).refined_
    assert new(**params).fit(X3, Y3).refined_


@pytest.mark.slow
def test_auto_keeps_to_the_matched_model_where_refining_takes_long(monkeypatch):
    monkeypatch.setattr(refinement, "_MOST_PRODUCTS", 1.0)
    assert not new(refine="auto").fit(X3, Y3).refined_
    assert new().fit(X3, Y3).refined_


def test_a_temperature_that_is_given_is_used():
    assert new(temperature=2.0).fit(X3, Y3).temperature_ == 2.0


def test_the_score_is_near_that_of_new_rows():
    model = new().fit(*make_rule(300))
    assert -model.score_ == pytest.approx(nll(model, NEW, Y_NEW), abs=0.1)


def test_equal_rows_go_to_different_folds():
    weight = torch.tensor([1.0, 2.0, 7.0, 0.5, 1.0])
    shares = torch.stack(refinement.fold_shares(weight, 5))
    torch.testing.assert_close(shares.sum(0), weight)
    assert (shares > 0.0).sum(0).tolist() == [1, 2, 5, 1, 1]
    assert shares[:, 1].max() == 1.0


def test_many_rows_leave_out_some_folds_only(monkeypatch):
    sizes = []
    folds = refinement._Folds
    own = folds.matched_score
    monkeypatch.setattr(folds, "matched_score", lambda self, scale: sizes.append(len(self._labels)) or own(self, scale))
    new(sample_size=20).fit(X3, Y3)
    assert sizes == [24]


@pytest.mark.parametrize("value", [True, 0, -1, 2.5, "always", None])
def test_other_values_are_refused(value):
    with pytest.raises(InvalidArgumentError, match="'refine' parameter of GPClassifier must be 'auto', False or"):
        new(refine=value).fit(X3, Y3)


# Streams


@sparse_kinds
def test_later_rows_are_learnt(kind):
    X, y = make_rule(120, seed=3)
    few = new(kind).fit(X[:30], y[:30])
    before = nll(few, NEW, Y_NEW)
    few.partial_fit(X[30:], y[30:])
    assert few.refined_
    assert nll(few, NEW, Y_NEW) < before


@sparse_kinds
def test_unlearning_rows_of_the_fit_takes_their_sites_out(kind):
    weight = np.where(np.arange(60) % 2, 2.0, 1.0)
    model = new(kind).fit(X3, Y3, sample_weight=weight)
    whole = copy.deepcopy(model)
    model.unlearn(X3, Y3, sample_weight=weight)
    assert_same(model, whole.blank_copy(), 1e-5)
    some = copy.deepcopy(whole).unlearn(X3[:10], Y3[:10], sample_weight=weight[:10])
    assert not np.allclose(some.predict_latent(NEW)[0], whole.predict_latent(NEW)[0])


def test_unlearning_after_more_rows_is_refused():
    model = new().fit(X3[:40], Y3[:40]).partial_fit(X3[40:], Y3[40:])
    with pytest.raises(InvalidArgumentError, match="refine=False"):
        model.unlearn(X3[:5], Y3[:5])
    assert model.n_rows_seen_ == 60


@sparse_kinds
def test_merging_adds_sites(kind):
    model = new(kind).fit(X3, Y3)
    again = copy.deepcopy(model)
    again.merge(model.blank_copy())
    assert again.refined_
    assert_same(again, model)
    twice = copy.deepcopy(model).merge(model)
    own, both = model._refined, twice._refined
    assert own is not None
    assert both is not None
    torch.testing.assert_close(both.sites.total.natural.precision, 2.0 * own.sites.total.natural.precision)


def test_merging_with_a_matched_model_gives_the_matched_model():
    model = new().fit(X3, Y3)
    other = model.blank_copy()
    other._refined = None
    matched = copy.deepcopy(model)
    matched._refined = None
    assert_same(model.merge(other.partial_fit(X2, Y2)), matched.partial_fit(X2, Y2))
    assert not model.refined_


def test_a_new_class_gives_the_matched_model():
    model = new().fit(X3, Y3)
    model.partial_fit([[0.0, 0.0]], [7])
    assert not model.refined_
    assert list(model.classes_) == [0, 1, 2, 7]


def test_a_learner_starts_from_the_refined_weights():
    model = new().fit(X3, Y3)
    space = model.weight_space()
    features, left = space.features(NEW)
    mean, variance = model.predict_latent(NEW)
    root = space.posterior.root
    np.testing.assert_allclose(features @ space.posterior.mean.T, mean, atol=1e-9)
    spread = np.square(np.einsum("lij,nj->nli", root, features)).sum(-1) + left[:, None]
    np.testing.assert_allclose(spread, variance, rtol=1e-8)
    assert model.has_weight_space(space)
    before = model.predict_proba(NEW[:1])[0]
    space.observe(features[0], int(before.argmin()))
    assert features[0] @ space.posterior.mean[before.argmin()] > mean[0, before.argmin()]


# Files


@every_kind
def test_a_file_gives_the_same_model(kind, tmp_path):
    model = new(kind).fit(X3, Y3)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    assert loaded.refined_
    assert_same(loaded, model)
    assert (loaded.score_, loaded.temperature_) == (model.score_, model.temperature_)
    if "sparse" in kind:
        assert_same(loaded.unlearn(X3[:5], Y3[:5]), model.unlearn(X3[:5], Y3[:5]))


def test_a_file_with_other_numbers_is_refused():
    model = new("exact").fit(X3, Y3)
    config, tensors = model.packed()
    assert GPClassifier.unpacked(config, tensors).refined_
    with pytest.raises(ValueError, match="precisions of sites"):
        GPClassifier.unpacked(config, tensors | {"refined.precision": torch.zeros(3, 2, 2).double()})


def test_files_from_before_refinement_hold_the_matched_model():
    model = new(refine=False).fit(X3, Y3)
    config, tensors = model.packed()
    del config["refined"], config["params"]["refine"], config["params_of_fit"]["refine"]
    assert_same(GPClassifier.unpacked(config, tensors), model)


# Memory of exact models


def test_an_exact_model_that_does_not_fit_is_refused_before_it_allocates(monkeypatch):
    monkeypatch.setattr(classifier, "installed_memory", lambda: 2**19)
    monkeypatch.setattr(classifier, "fit_model", lambda *args, **kwargs: pytest.fail("it went on"))
    needed = exact_gibibytes(60, 3, shared=True)
    assert needed > 2**19 / 2**30
    with pytest.raises(InvalidArgumentError, match=r"60 distinct rows needs about .* GiB.*n_inducing=200.*inf"):
        new("exact").fit(X3, Y3)


def test_the_memory_can_be_set(monkeypatch):
    monkeypatch.setattr(classifier, "installed_memory", lambda: 2**19)
    assert new("exact", max_memory_gib=math.inf, refine=False).fit(X3, Y3).n_rows_seen_ == 60
    monkeypatch.setattr(classifier, "installed_memory", lambda: None)
    assert new("exact", refine=False).fit(X3, Y3).n_rows_seen_ == 60
    with pytest.raises(InvalidArgumentError, match=r"more than the 0\.0 GiB"):
        new("exact", max_memory_gib=1e-5).fit(X3, Y3)
    assert new("sparse", max_memory_gib=1e-5, refine=False).fit(X3, Y3).n_rows_seen_ == 60


def test_rows_that_are_equal_count_once(monkeypatch):
    monkeypatch.setattr(classifier, "installed_memory", lambda: None)
    limit = 1.5 * exact_gibibytes(60, 3, shared=True)
    model = new("exact", max_memory_gib=limit, refine=False)
    assert model.fit(np.tile(X3, (3, 1)), np.tile(Y3, 3)).n_rows_seen_ == 180


@pytest.mark.parametrize("value", [0.0, -1.0, "much", True, math.nan])
def test_other_limits_are_refused(value):
    with pytest.raises(InvalidArgumentError, match="'max_memory_gib' parameter of GPClassifier must be"):
        new("exact", max_memory_gib=value).fit(X3, Y3)


def test_latents_with_factors_of_their_own_need_more():
    assert exact_gibibytes(100, 26, shared=False) > 10 * exact_gibibytes(100, 26, shared=True)
    assert exact_gibibytes(200, 3, shared=True) == pytest.approx(4 * exact_gibibytes(100, 3, shared=True))
