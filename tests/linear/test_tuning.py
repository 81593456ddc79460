"""What the model chooses itself, against the evidence and the leave-one-out score by brute force."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from gaussify import BayesianLogisticRegression, LogisticLikelihood, SoftmaxLikelihood
from gaussify._calibration import ALPHA_GRID, LabelledRows, best_temperature
from gaussify.likelihoods import PseudoTargets
from gaussify.linear._hyperparameters import disperse, mean_information
from gaussify.posterior import GaussianPrior, log_evidence, natural_parameters
from linear.test_classifier import X2, X3, Y2, Y3, data, make_rows, new
from oracles import softmax_tensor_product

N, FEW = 40, 12  # rows; those that are left out one by one


def score_by_refitting(model: BayesianLogisticRegression, X, y, weight=None) -> float:
    """Mean log-probability of each row from a model of all others, with the numbers of ``model``."""
    weight = np.ones(len(y)) if weight is None else weight
    params = {name: getattr(model, f"{name}_") for name in ("method", "alpha_eps", "temperature", "prior_variance")}
    logs = []
    for i in range(len(y)):
        rest = weight.copy()
        rest[i] = max(rest[i] - 1.0, 0.0)  # one of several equal rows
        one_out = BayesianLogisticRegression(**params).partial_fit(X, y, classes=model.classes_, sample_weight=rest)
        mean, variance = (torch.from_numpy(part) for part in one_out.predict_latent(X[i : i + 1]))
        probs = one_out.likelihood_.predict_proba(mean + torch.from_numpy(model.offset_), variance)
        logs.append(float(probs[0, np.searchsorted(model.classes_, y[i])].log()))
    return float(np.average(logs, weights=weight))


# --- the score -----------------------------------------------------------------------------------------------------


@data
def test_the_score_is_the_log_likelihood_of_rows_that_were_left_out(X, y):
    X, y = X[:FEW], y[:FEW]
    model = BayesianLogisticRegression(prior_variance=2.0, refine=False).fit(X, y)
    assert model.score_ == pytest.approx(score_by_refitting(model, X, y), abs=1e-8)


def test_the_score_weighs_rows_and_leaves_out_at_most_one_of_each():
    weight = np.random.default_rng(0).uniform(0.1, 3.0, size=FEW)
    model = new(temperature="auto").fit(X3[:FEW], Y3[:FEW], weight)
    assert model.score_ == pytest.approx(score_by_refitting(model, X3[:FEW], Y3[:FEW], weight), abs=1e-8)


@data
def test_the_training_score_is_the_log_likelihood_of_the_rows_themselves(X, y):
    model = new(temperature="auto", criterion="training").fit(X, y)
    assert model.score_ == pytest.approx(np.log(model.predict_proba(X)[np.arange(N), y]).mean(), abs=1e-10)


def test_the_training_score_is_the_more_optimistic_one():
    honest, optimistic = (
        new(temperature="auto", criterion=c).fit(X3, Y3).score_ for c in ("leave-one-out", "training")
    )
    assert optimistic > honest


# --- temperature ---------------------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("criterion", ["leave-one-out", "training"])
@pytest.mark.parametrize("given", [0.5, 1.0])
def test_the_automatic_temperature_scores_at_least_as_well_as_any_other(X, y, criterion, given):
    X, y = X[:FEW], y[:FEW]
    model = new(temperature="auto", criterion=criterion).fit(X, y)
    other = new(temperature=given).fit(X, y)
    if criterion == "training":
        score = np.log(other.predict_proba(X)[np.arange(FEW), y]).mean()
    else:
        score = score_by_refitting(other, X, y)
    # its objective holds a prior on log T that is worth less than a row, and it stops near the minimum
    own, others = (0.5 * math.log(temperature) ** 2 / FEW for temperature in (model.temperature_, given))
    assert model.score_ - own >= score - others - 1e-5


LIKELIHOODS = {"logistic": LogisticLikelihood(), "softmax": SoftmaxLikelihood(3)}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def judged_rows(likelihood, scale: float, n: int = 30):
    """Latents, labels of which half are the most probable, and weights."""
    generator = torch.Generator().manual_seed(0)
    mean = scale * torch.randn(n, likelihood.n_latents, generator=generator, dtype=torch.float64)
    variance = scale**2 * torch.rand(n, likelihood.n_latents, generator=generator, dtype=torch.float64)
    labels = torch.randint(likelihood.n_classes, (n,), generator=generator)
    labels[: n // 2] = likelihood.predict_proba(mean, variance).argmax(1)[: n // 2]
    return mean, variance, labels, torch.rand(n, generator=generator, dtype=torch.float64) + 0.1


@likelihoods
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("of_means", [False, True], ids=["of-latents", "of-means"])
def test_the_temperature_is_the_minimum_of_its_objective(likelihood, scale, of_means):
    mean, variance, labels, weight = judged_rows(likelihood, scale)

    def objective(log_t: float) -> float:
        spread = variance if of_means else variance / math.exp(2.0 * log_t)
        probs = likelihood.predict_proba(mean / math.exp(log_t), spread)
        own = probs[torch.arange(30), labels].log()
        return float((-(weight * own).sum() + 0.5 * log_t**2) / weight.sum())

    best = minimize_scalar(objective, bounds=(math.log(0.02), math.log(50.0)), method="bounded")
    found = best_temperature(likelihood, mean, variance, labels, weight, of_means=of_means)
    assert objective(math.log(found)) <= best.fun + 1e-5


@likelihoods
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("of_means", [False, True], ids=["of-latents", "of-means"])
def test_the_rough_temperature_is_about_the_best_one(likelihood, scale, of_means):
    rows = judged_rows(likelihood, scale, n=300)
    rough, exact = (best_temperature(likelihood, *rows, rough=r, of_means=of_means) for r in (True, False))
    assert rough == pytest.approx(exact, rel=0.2)


def test_separable_rows_get_a_finite_temperature():
    X = np.r_[np.linspace(-2, -1, 10), np.linspace(1, 2, 10)][:, None]
    model = BayesianLogisticRegression().fit(X, np.repeat([0, 1], 10))
    assert 0.02 <= model.temperature_ <= 50.0
    assert np.isfinite(model.predict_proba(X)).all()


# --- information and dispersion ------------------------------------------------------------------------------------


def test_the_information_of_a_logistic_label_is_the_expected_curvature():
    mean, variance, _, weight = judged_rows(LIKELIHOODS["logistic"], 2.0)
    u = torch.linspace(-9.0, 9.0, 4001, dtype=torch.float64)
    p = torch.sigmoid(mean + variance.sqrt() * u)  # (n, u)
    curvature = (p * (1.0 - p)) @ torch.softmax(-0.5 * u.square(), 0)
    expected = float(weight @ curvature / weight.sum())
    assert mean_information(LIKELIHOODS["logistic"], mean, variance, weight) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_information_of_a_softmax_label_is_shared_by_the_contrasts():
    mean, variance, _, weight = judged_rows(LIKELIHOODS["softmax"], 2.0)
    traces = [softmax_tensor_product(m, v)[1].sum() for m, v in zip(mean.numpy(), variance.numpy(), strict=True)]
    expected = np.average(traces, weights=weight) / 2  # of three classes
    assert mean_information(LIKELIHOODS["softmax"], mean, variance, weight) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_the_information_of_labels_that_are_equally_probable_is_one_over_their_number(n_classes):
    zeros = torch.zeros(4, n_classes).double()
    information = mean_information(SoftmaxLikelihood(n_classes), zeros, zeros, torch.ones(4).double())
    assert information == pytest.approx(1.0 / n_classes)


@likelihoods
def test_the_information_of_labels_that_are_certain_is_positive(likelihood):
    mean = 1e4 * torch.eye(3, likelihood.n_latents).double() + 1e3
    assert 0.0 < mean_information(likelihood, mean, torch.zeros_like(mean), torch.ones(3).double()) < 1e-3


@likelihoods
def test_dispersion_multiplies_variances_only(likelihood):
    table = likelihood.target_table()
    before = PseudoTargets(*(part.clone() for part in table))
    dispersed = disperse(table, 3.0)
    torch.testing.assert_close(dispersed.mean, before.mean, rtol=0, atol=0)
    torch.testing.assert_close(dispersed.variance, 3.0 * before.variance)
    torch.testing.assert_close(table.variance, before.variance, rtol=0, atol=0)


# --- alpha_eps and method ------------------------------------------------------------------------------------------


@data
@pytest.mark.parametrize("criterion", ["leave-one-out", "training"])
def test_the_automatic_alpha_eps_is_better_than_its_neighbours(X, y, criterion):
    params = {"prior_variance": 2.0, "criterion": criterion, "refine": False}
    model = BayesianLogisticRegression(**params).fit(X, y)
    place = ALPHA_GRID.index(pytest.approx(model.alpha_eps_))

    def score(model) -> float:  # leave-one-out comes with a prior that is worth a row
        prior = -0.5 * math.log(model.alpha_eps_ / 0.1) ** 2 / len(y)
        return model.score_ + (prior if criterion == "leave-one-out" else 0.0)

    for neighbour in ALPHA_GRID[max(place - 1, 0) : place + 2]:
        other = BayesianLogisticRegression(alpha_eps=neighbour, **params).fit(X, y)
        assert score(other) <= score(model) + 1e-9


def test_the_automatic_method_is_at_least_as_good_as_each():
    params = {"alpha_eps": 0.2, "prior_variance": 2.0}
    model = BayesianLogisticRegression("auto", **params).fit(X3, Y3)
    scores = {
        method: BayesianLogisticRegression(method, **params).fit(X3, Y3).score_
        for method in ("variational", "moment", "laplace", "moment-ori")
    }
    assert model.method_ == max(scores, key=scores.get)
    assert model.score_ == pytest.approx(max(scores.values()), abs=1e-9)


def test_the_automatic_method_of_two_classes_keeps_one_latent():
    model = BayesianLogisticRegression("auto", 0.2, 1.0, 2.0).fit(X2, Y2)
    assert model.method_ in ("variational", "moment", "laplace")
    assert model.predict_latent(X2)[0].shape == (N, 1)


def test_gauss_is_never_tuned_in_alpha_eps():
    model = BayesianLogisticRegression("gauss", prior_variance=1.0).fit(X3, Y3)
    assert model.alpha_eps_ == 0.1
    assert np.isfinite(model.predict_proba(X3)).all()


@data
def test_without_a_reservoir_the_numbers_given_are_used_and_the_rest_are_defaults(X, y):
    model = BayesianLogisticRegression("auto", reservoir_size=0).fit(X, y)
    assert (model.method_, model.alpha_eps_, model.temperature_, model.score_) == ("variational", 0.1, 1.0, None)
    same = BayesianLogisticRegression("variational", 0.1, 1.0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))
    given = BayesianLogisticRegression("moment", 0.3, "auto", reservoir_size=0).fit(X, y)
    assert (given.method_, given.alpha_eps_, given.temperature_) == ("moment", 0.3, 1.0)


def test_a_sample_of_rows_gives_nearly_the_score_of_all():
    X, y = make_rows(2, n=2000)
    whole, sampled = (new(temperature="auto", reservoir_size=size).fit(X, y) for size in (2000, 500))
    assert sampled.score_ == pytest.approx(whole.score_, abs=0.1)
    assert sampled.temperature_ == pytest.approx(whole.temperature_, rel=0.3)


# --- weights of sampled rows ---------------------------------------------------------------------------------------


def test_classes_of_sampled_rows_weigh_as_in_the_whole_stream():
    X, y = np.random.default_rng(0).normal(size=(5000, 2)), (np.arange(5000) % 250 == 0).astype(int)
    rows = new(reservoir_size=100).fit(X, y)._rows_for_choice()
    assert torch.bincount(rows.labels).tolist() == [80, 20]
    torch.testing.assert_close(torch.bincount(rows.labels, rows.weight), torch.tensor([4980.0, 20.0]).double())
    torch.testing.assert_close(rows.weight_learnt, torch.ones(100).double())
    few = rows.first(30)  # half of each class
    torch.testing.assert_close(torch.bincount(few.labels, few.weight), torch.tensor([3735.0, 15.0]).double())


def test_a_sample_of_all_rows_has_the_weights_of_the_rows():
    weight = np.random.default_rng(0).uniform(0.1, 3.0, size=N)
    rows = new().fit(X3, Y3, weight)._rows_for_choice()
    np.testing.assert_allclose(np.sort(rows.weight.numpy()), np.sort(weight), rtol=1e-12)


def test_a_class_that_is_known_but_not_sampled_leaves_the_other_weights():
    rows = LabelledRows(torch.zeros(4, 1).double(), torch.tensor([0, 0, 2, 2]), torch.ones(4).double())
    weighed = rows.weighed(torch.tensor([6.0, 5.0, 2.0, 0.0]).double())
    assert weighed.weight.tolist() == [3.0, 3.0, 1.0, 1.0]
    assert weighed.weight_learnt.tolist() == [1.0] * 4


@pytest.mark.parametrize("seed", range(3))
def test_rare_rows_are_scored_better_by_a_sample_of_classes(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 2))
    y = (X[:, 0] + rng.logistic(size=20_000) > 5.5).astype(int)
    whole, sampled = (new(temperature="auto", reservoir_size=size).fit(X, y) for size in (20_000, 500))
    assert sampled.score_ == pytest.approx(whole.score_, rel=0.05)
    assert sampled.temperature_ == pytest.approx(whole.temperature_, rel=0.2)


# --- prior variance ------------------------------------------------------------------------------------------------


def evidence(model: BayesianLogisticRegression, factors=(1.0,)) -> list[float]:
    """Of all latents, for each factor of the prior variance of the weights (not of intercepts)."""
    alpha = torch.tensor(model.alpha_eps_).double()
    likelihood = (
        LogisticLikelihood(alpha) if len(model.classes_) == 2 else SoftmaxLikelihood(len(model.classes_), alpha)
    )
    natural = natural_parameters(model.statistics_, likelihood.target_table())
    variances = (torch.from_numpy(np.r_[f * model.prior_variance_, model.intercept_variance]) for f in factors)
    priors = (GaussianPrior.centred(variance, n_latents=likelihood.n_latents) for variance in variances)
    return [float(log_evidence(prior, natural).sum()) for prior in priors]


def log_prior(X, prior_variance, factors=(1.0,)) -> np.ndarray:
    """Of the prior variance: log-normal, around the one for which logits have variance 5; less for unequal ones."""
    is_common = np.ptp(prior_variance) <= 1e-12 * prior_variance.max()
    scale = prior_variance[0] * (X.var(0).mean() if is_common else X[:, 0].var())
    logs = np.log(np.array(factors) * scale * X.shape[1] / 5.0)
    return -0.5 * (logs / 3.0) ** 2 - (0.0 if is_common else 3.0)


@data
def test_another_prior_variance_than_the_automatic_one_has_less_evidence(X, y):
    model, factors = new(prior_variance="auto").fit(X, y), [1.0, 0.5, 0.97, 1.03, 2.0]
    best, *others = evidence(model, factors) + log_prior(X, model.prior_variance_, factors)
    assert max(others) < best


@data
def test_the_automatic_prior_variance_has_the_better_of_two_shapes(X, y):
    X = X * [1.0, 30.0, 0.1]
    model, factors = new(prior_variance="auto").fit(X, y), np.exp(np.linspace(-15.0, 15.0, 100))
    (best,) = evidence(model) + log_prior(X, model.prior_variance_)
    for shape in (np.ones(3), 1.0 / X.var(0)):
        others = evidence(new(prior_variance=shape).fit(X, y), factors) + log_prior(X, shape, factors)
        assert max(others) <= best + 1e-9


@data
@pytest.mark.parametrize("powers", [[10, 10, 10], [-20, -20, -20]], ids=["larger", "much-smaller"])
def test_probabilities_do_not_depend_on_the_units_of_the_features(X, y, powers):
    scale = 2.0 ** np.array(powers)
    model, rescaled = new(prior_variance="auto").fit(X, y), new(prior_variance="auto").fit(X * scale, y)
    np.testing.assert_allclose(rescaled.predict_proba(X * scale), model.predict_proba(X), rtol=0, atol=1e-9)


def test_the_automatic_prior_variance_needs_no_rows():
    model = new(prior_variance="auto", reservoir_size=0).fit(X3, Y3)
    np.testing.assert_array_equal(model.prior_variance_, new(prior_variance="auto").fit(X3, Y3).prior_variance_)


def test_features_that_say_nothing_are_shrunk():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.integers(0, 3, 300)
    assert new(prior_variance="auto").fit(X, y).prior_variance_.max() < 0.1


# --- when ----------------------------------------------------------------------------------------------------------


def test_a_stream_is_tuned_again_each_time_its_rows_have_doubled():
    X, y = make_rows(2, n=130)
    model, seen = new(prior_variance="auto"), []
    for start in range(0, 130, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10])
        seen.append(float(model.prior_variance_[0]))
    changes = [10 * (i + 1) for i in range(1, 13) if seen[i] != seen[i - 1]]
    assert changes == [20, 40, 80]


def test_a_longer_stream_is_tuned_again_each_time_it_has_four_times_as_many_rows():
    X, y = make_rows(2, n=1000)
    model, seen = new(prior_variance="auto"), []
    for start in range(0, 1000, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
        seen.append(float(model.prior_variance_[0]))
    changes = [50 * (i + 1) for i in range(1, 20) if seen[i] != seen[i - 1]]
    assert changes == [100, 400]


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "surprising"])
@pytest.mark.parametrize(("n_more", "tuned"), [(19, False), (21, True)], ids=["less-than-a-tenth", "a-tenth"])
def test_a_new_class_and_a_tenth_more_rows_are_tuned_for(declared, n_more, tuned):
    X, y = make_rows(3, n=230, strength=0.0)
    y[:200] %= 2
    y[200:] = 2
    model = new(prior_variance="auto").partial_fit(X[:200], y[:200], classes=[0, 1, 2] if declared else None)
    before = model.prior_variance_
    model.partial_fit(X[200 : 200 + n_more], y[200 : 200 + n_more])
    assert (model.prior_variance_ != before).any() == tuned


def test_a_tenth_more_rows_of_known_classes_are_not_tuned_for():
    X, y = make_rows(3, n=240)
    model = new(prior_variance="auto").partial_fit(X[:200], y[:200])
    before = model.prior_variance_
    np.testing.assert_array_equal(model.partial_fit(X[200:], y[200:]).prior_variance_, before)


@pytest.mark.parametrize(("dispersion", "tunings"), [(1.0, 1), (2.0, 1), ("auto", 4)], ids=str)
def test_nothing_is_tuned_again_where_everything_is_given(dispersion, tunings, monkeypatch):
    calls, tune = [], BayesianLogisticRegression.tune
    monkeypatch.setattr(BayesianLogisticRegression, "tune", lambda model: calls.append(model) or tune(model))
    X, y = make_rows(3, n=100)
    model = new(dispersion=dispersion)
    for start in range(0, 100, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10]).predict_proba(X[:1])
    assert len(calls) == tunings  # at 10, 20, 40 and 80 rows


def test_tune_chooses_anew_at_once():
    X, y = make_rows(2, n=60)
    model = new(prior_variance="auto").fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    stale = model.prior_variance_
    np.testing.assert_allclose(model.tune().prior_variance_, new(prior_variance="auto").fit(X, y).prior_variance_)
    assert (model.prior_variance_ != stale).all()


def test_numbers_that_are_given_are_never_changed():
    model = new().fit(X3, Y3).tune()
    assert (model.alpha_eps_, model.temperature_) == (0.2, 1.5)
    np.testing.assert_array_equal(model.prior_variance_, 2.0)


def test_the_same_rows_give_the_same_choice_every_time():
    first, second = (BayesianLogisticRegression(temperature=1.0).fit(X3, Y3) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X3), second.predict_proba(X3))
    assert (first.alpha_eps_, first.score_) == (second.alpha_eps_, second.score_)


@pytest.mark.parametrize("n_columns", [1, 5], ids=["coin", "one-hot"])
def test_rows_that_repeat_are_told_the_frequencies_of_their_labels(n_columns):
    rng = np.random.default_rng(0)
    y = (rng.random(5000) < 0.6).astype(int)
    X = (rng.random((5000, 1)) < 0.5) * 1.0 if n_columns == 1 else np.eye(5)[rng.integers(5, size=5000)]
    probs = BayesianLogisticRegression().fit(X, y).predict_proba(np.unique(X, axis=0))[:, 1]
    np.testing.assert_allclose(probs, 0.6, atol=0.03)


def test_a_class_declared_early_and_seen_late_is_tuned_for():
    rng = np.random.default_rng(0)
    y = np.r_[rng.integers(0, 2, 400), rng.integers(0, 3, 300)]
    X = rng.normal(size=(700, 3)) + 2.0 * np.eye(3)[y]
    declared, whole = (BayesianLogisticRegression(refine=False) for _ in range(2))
    declared.partial_fit(X[:400], y[:400], classes=[0, 1, 2])
    declared.predict_proba(X)
    declared.partial_fit(X[400:], y[400:])
    np.testing.assert_allclose(declared.predict_proba(X), whole.fit(X, y).predict_proba(X), atol=1e-9)


def test_progress_grows_and_stays_below_all():
    shares = []
    BayesianLogisticRegression(method="auto").partial_fit(X3, Y3).tune(report=shares.append)
    assert len(shares) > 4
    assert shares == sorted(shares)
    assert 0.3 < shares[-1] < 1.0
