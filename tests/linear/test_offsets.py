"""Offsets of the latents: what they minimise, where they act, and what they are for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from estimator_checks import edit_file
from gaussify import BayesianLogisticRegression, LogisticLikelihood, SoftmaxLikelihood, metrics
from gaussify._calibration import best_calibration, best_temperature
from gaussify._calibration._offsets import _WIDTH, _Loss
from gaussify.datasets import make_rare_class
from gaussify.exceptions import ModelFileError

N = 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
LOGITS = X @ RNG.normal(size=(3, 3)) + [2.0, 0.0, -1.5]
Y3 = (LOGITS + RNG.gumbel(size=(N, 3))).argmax(1)
Y2 = (2.0 * X[:, 0] - 4.0 + RNG.logistic(size=N) > 0.0).astype(int)
CASES = {
    "one-latent": (Y2, {}),
    "two-latents": (Y2, {"likelihood": "softmax"}),
    "three": (Y3, {}),
    "dispersed": (Y3, {"dispersion": "auto"}),
    "one-latent-dispersed": (Y2, {"dispersion": "auto"}),
}
cases = pytest.mark.parametrize(("y", "params"), CASES.values(), ids=CASES)
CHOSEN = ("method", "alpha_eps", "temperature", "prior_variance", "dispersion")


def fitted(y, params) -> BayesianLogisticRegression:
    model = BayesianLogisticRegression(**params, refine=False).fit(X, y)
    assert np.abs(model.offset_).max() > 0.05
    return model


def without_offsets(model, y) -> BayesianLogisticRegression:
    """A model with the numbers that another one has chosen, and no offsets."""
    numbers = {name: getattr(model, f"{name}_") for name in CHOSEN}
    return BayesianLogisticRegression(**numbers, refine=False, likelihood=model.likelihood).fit(X, y)


# --- what they minimise --------------------------------------------------------------------------------------------


def judged_rows(n_latents: int, n: int = 60):
    generator = torch.Generator().manual_seed(n_latents)
    mean = 3.0 * torch.randn(n, n_latents, generator=generator).double() - 1.0
    variance = 4.0 * torch.rand(n, n_latents, generator=generator).double()
    labels = torch.randint(max(2, n_latents), (n,), generator=generator)
    return mean, variance, labels, torch.rand(n, generator=generator).double() + 0.1


def mean_field_loss(mean, variance, centre, labels, weight, x, *, of_means: bool):
    """The penalised loss as its definition says, for autograd."""
    bend, shift = x[0], x[1:]
    logits = (mean - centre) * (-bend).exp() + centre + shift
    spread = variance if of_means else variance * (-2.0 * bend).exp()
    own = labels[:, None]
    gap, both = logits - logits.gather(1, own), spread + spread.gather(1, own)
    loss = torch.logsumexp(gap / (1.0 + math.pi / 8.0 * both).sqrt(), 1)
    return weight @ loss + 0.5 * (x / _WIDTH).square().sum()


@pytest.mark.parametrize("of_means", [False, True], ids=["of-latents", "of-means"])
@pytest.mark.parametrize("n_latents", [2, 4])
def test_derivatives_of_the_loss_are_those_of_autograd(n_latents, of_means):
    mean, variance, labels, weight = judged_rows(n_latents)
    centre = weight @ mean / weight.sum()
    x = torch.linspace(-0.3, 0.5, 1 + n_latents).double()

    def loss(x):
        return mean_field_loss(mean, variance, centre, labels, weight, x, of_means=of_means)

    found = _Loss(mean, variance, centre, labels, weight, of_means).at(x)
    assert found.value == pytest.approx(float(loss(x)), rel=1e-12)
    torch.testing.assert_close(found.gradient, torch.autograd.functional.jacobian(loss, x))
    torch.testing.assert_close(found.hessian, torch.autograd.functional.hessian(loss, x))
    assert torch.linalg.eigvalsh(found.gauss_newton).min() > 0.9 / _WIDTH**2


@pytest.mark.parametrize("of_means", [False, True], ids=["of-latents", "of-means"])
@pytest.mark.parametrize("n_latents", [1, 2, 4])
def test_the_offsets_minimise_the_mean_field_loss_around_the_best_temperature(n_latents, of_means):
    mean, variance, labels, weight = judged_rows(n_latents)
    likelihood = LogisticLikelihood() if n_latents == 1 else SoftmaxLikelihood(n_latents)
    rough = best_temperature(likelihood, mean, variance, labels, weight, rough=True, of_means=of_means)
    exact = best_temperature(likelihood, mean, variance, labels, weight, of_means=of_means)
    rows = (mean / rough, variance if of_means else variance / rough**2)
    padded = [torch.cat([torch.zeros(60, 1).double(), part], 1) if n_latents == 1 else part for part in rows]
    centre = weight @ padded[0] / weight.sum()

    def objective(x):
        x = torch.tensor(np.r_[x[0], 0.0, x[1:]] if n_latents == 1 else x)
        return float(mean_field_loss(*padded, centre, labels, weight, x, of_means=of_means))

    best = minimize(objective, np.zeros(1 + n_latents), options={"gtol": 1e-7})
    found = best_calibration(likelihood, mean, variance, labels, weight, of_means=of_means)
    assert found.temperature == pytest.approx(exact * math.exp(best.x[0]), rel=1e-4)
    mean_latent = (weight @ mean / weight.sum()).numpy()
    offset = mean_latent / exact - mean_latent / found.temperature + best.x[1:]
    offset -= offset.mean() if n_latents > 1 else 0.0
    np.testing.assert_allclose(found.offset, offset, atol=1e-4)


def test_few_rows_stay_near_the_best_temperature_alone():
    mean, variance, labels, weight = judged_rows(1)
    sizes = []
    for factor in (1e-3, 0.1, 1.0, 100.0):
        found = best_calibration(LogisticLikelihood(), mean, variance, labels, factor * weight)
        sizes.append(abs(float(found.offset)))
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.1 * sizes[-1]
    assert sizes[0] < 0.02


@pytest.mark.parametrize("n_latents", [1, 3])
def test_the_calibration_changes_smoothly_with_the_data(n_latents):
    mean, variance, labels, weight = judged_rows(n_latents)
    likelihood = LogisticLikelihood() if n_latents == 1 else SoftmaxLikelihood(3)
    first = best_calibration(likelihood, mean, variance, labels, weight)
    for size in (1e-4, 1e-7, 1e-10):
        moved = best_calibration(likelihood, mean + size * torch.sin(mean), variance, labels, weight)
        assert abs(moved.temperature - first.temperature) < 50.0 * size + 1e-12
        torch.testing.assert_close(moved.offset, first.offset, rtol=0, atol=50.0 * size + 1e-12)


def test_a_class_without_rows_has_no_shift_of_its_own():
    mean, variance, labels, weight = judged_rows(4)
    mean[:, 3] = 0.0  # and no mean to turn around
    found = best_calibration(SoftmaxLikelihood(4), mean, variance, labels % 3, weight)
    assert bool(torch.isfinite(found.offset).all())
    assert float(found.offset.sum()) == pytest.approx(0.0, abs=1e-12)
    likelier = best_calibration(SoftmaxLikelihood(4), mean, variance, labels, weight)
    assert not torch.allclose(found.offset, likelier.offset)


@pytest.mark.parametrize("value", [0.0, 1e8, 1e150])
def test_latents_of_any_size_have_finite_offsets(value):
    mean = value * torch.tensor([-1.0, 1.0, 1.0, -1.0] * 5).double()[:, None]
    labels = torch.tensor([0, 1, 1, 1] * 5)
    found = best_calibration(LogisticLikelihood(), mean, torch.ones(20, 1).double(), labels, torch.ones(20).double())
    assert math.isfinite(found.temperature)
    assert bool(torch.isfinite(found.offset).all())


# --- where they act ------------------------------------------------------------------------------------------------


@cases
def test_latents_are_shifted_by_the_offsets_exactly(y, params):
    model = fitted(y, params)
    plain = without_offsets(model, y)
    assert not plain.offset_.any()
    (mean, variance), (plain_mean, plain_variance) = model.predict_latent(X), plain.predict_latent(X)
    np.testing.assert_allclose(mean, plain_mean + model.offset_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(variance, plain_variance, rtol=1e-9)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, plain.intercept_ + model.offset_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.covariance_, plain.covariance_, rtol=1e-9, atol=1e-12)
    draws, plain_draws = (each.sample(20, random_state=0) for each in (model, plain))
    np.testing.assert_allclose(draws[..., :-1], plain_draws[..., :-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(draws[..., -1], plain_draws[..., -1] + model.offset_, rtol=0, atol=1e-9)


@cases
def test_rows_one_by_one_keep_the_offsets(y, params):
    model, whole = (BayesianLogisticRegression(**params, refine=False) for _ in range(2))
    model.fit(X[:200], y[:200])
    choice = model._choice
    for i in range(200, 240):
        model.predict_proba(X[i : i + 1])
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    whole.partial_fit(X[:240], y[:240])
    whole._choice, whole._n_rows_tuned, whole._n_classes_tuned = choice, 200, len(model.classes_)
    for mine, theirs in zip(model.predict_latent(X), whole.predict_latent(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    alone = np.vstack([model.predict_proba(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, model.predict_proba(X[:20]), rtol=0, atol=1e-9)


@cases
def test_the_weight_space_has_the_offsets(y, params):
    model = fitted(y, params)
    space, features = model.weight_space(), np.c_[X, np.ones(N)]
    np.testing.assert_allclose(features @ space.posterior.mean.T, model.predict_latent(X)[0], rtol=0, atol=1e-9)


@cases
@settings(max_examples=4)
@given(order=st.permutations(range(N)).map(np.array), n_parts=st.integers(1, 6), merges=st.booleans())
def test_any_chunks_and_shards_have_the_offsets_of_one_fit(y, params, order, n_parts, merges):
    whole, model, *others = (BayesianLogisticRegression(**params, refine=False) for _ in range(1 + n_parts))
    whole.fit(X, y)
    for place, part in enumerate(np.array_split(order, n_parts)):
        (others[place - 1] if merges and place else model).partial_fit(X[part], y[part])
    if merges:
        for other in others:
            model.merge(other)
    model.tune()
    np.testing.assert_allclose(model.offset_, whole.offset_, rtol=1e-7)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "params",
    [
        {"fit_intercept": False},
        {"temperature": 1.0},
        {"temperature": 2.5},
        {"criterion": "training"},
        {"reservoir_size": 0},
    ],
    ids=["no-intercept", "temperature-one", "temperature", "training", "no-rows"],
)
@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
@pytest.mark.parametrize("dispersion", [1.0, "auto"])
def test_there_are_no_offsets_where_none_can_be_chosen(params, y, dispersion):
    model = BayesianLogisticRegression(**params, dispersion=dispersion, refine=False).fit(X, y)
    assert model.offset_.tolist() == [0.0] * model.predict_latent(X)[0].shape[1]


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("likelihood", ["auto", "softmax"])
def test_a_class_that_comes_late_leaves_the_offsets_of_the_others(late, likelihood):
    early = Y3 != late
    model = BayesianLogisticRegression(likelihood=likelihood, refine=False).fit(X[early], Y3[early])
    before = model.offset_
    difference = before[0] if len(before) == 1 else before[1] - before[0]
    model.partial_fit(X[~early][:1], Y3[~early][:1])  # too few rows to choose again
    known = np.delete(np.arange(3), late)
    assert model.offset_[known[1]] - model.offset_[known[0]] == pytest.approx(difference, abs=1e-12)
    assert model.offset_[late] == 0.0
    assert model.predict_latent(X)[0].shape == (N, 3)


@cases
def test_offsets_are_saved(y, params, tmp_path):
    model = fitted(y, params)
    model.save(tmp_path / "model")
    loaded = BayesianLogisticRegression.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.offset_, model.offset_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_file_from_before_there_were_offsets_has_none(tmp_path):
    model = fitted(Y3, {})
    model.save(tmp_path / "model")
    edit_file(tmp_path / "model", "BayesianLogisticRegression", lambda config, tensors: tensors.pop("choice.offset"))
    loaded = BayesianLogisticRegression.load(tmp_path / "model")
    assert not loaded.offset_.any()
    np.testing.assert_allclose(loaded.predict_latent(X)[0], model.predict_latent(X)[0] - model.offset_, atol=1e-9)


@pytest.mark.parametrize("offset", [torch.ones(2).double(), torch.full((3,), torch.nan).double(), torch.ones(3)])
def test_damaged_offsets_are_refused(offset, tmp_path):
    fitted(Y3, {}).save(tmp_path / "model")
    edit_file(
        tmp_path / "model",
        "BayesianLogisticRegression",
        lambda config, tensors: tensors.update({"choice.offset": offset}),
    )
    with pytest.raises(ModelFileError, match="does not hold a complete"):
        BayesianLogisticRegression.load(tmp_path / "model")


# --- what they are for ---------------------------------------------------------------------------------------------


def judged_on_half(model, X, y) -> tuple[float, float, np.ndarray]:
    """NLL on the second half, mean probability of the rare class over its frequency, and its probabilities."""
    half = len(y) // 2
    model.fit(X[:half], y[:half])
    probs = model.predict_proba(X[half:])
    return metrics.nll(probs, y[half:]), probs[:, 1].mean() / y[half:].mean(), probs[:, 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_is_predicted_about_as_well_as_by_logistic_regression(seed):
    X, y = make_rare_class(random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    plain, _, least = judged_on_half(
        BayesianLogisticRegression(criterion="training", refine=False), X, y
    )  # has no offsets
    nll, share, probs = judged_on_half(BayesianLogisticRegression(refine=False), X, y)
    reference, reference_share, _ = judged_on_half(LogisticRegression(), X, y)
    assert nll < 1.02 * reference
    assert nll < 0.8 * plain
    assert abs(math.log(share / reference_share)) < 0.08
    assert probs.max() > 0.8 > 0.2 > least.max()
    assert (probs[y[len(y) // 2 :] == 1] > 0.5).mean() > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_one_row_in_two_hundred_is_predicted_better_with_offsets(seed):
    X, y = make_rare_class(40_000, prevalence=0.005, random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    plain, _, _ = judged_on_half(BayesianLogisticRegression(criterion="training", refine=False), X, y)
    nll, share, _ = judged_on_half(BayesianLogisticRegression(refine=False), X, y)
    assert nll < 0.85 * plain
    assert 0.4 < share < 1.6


@pytest.mark.parametrize("seed", range(2))
def test_one_row_in_a_thousand_is_predicted_better_than_by_its_frequency_with_a_prior_variance(seed):
    X, y = make_rare_class(40_000, prevalence=0.001, random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    nll, share, probs = judged_on_half(BayesianLogisticRegression(prior_variance=1.0, refine=False), X, y)
    rate, rare = y[:20_000].mean(), y[20_000:] == 1
    frequency = -np.where(rare, np.log(rate), np.log1p(-rate)).mean()
    assert nll < 0.92 * frequency
    assert 0.2 < share < 2.0
    assert probs[rare].mean() > 3.0 * probs.mean()
