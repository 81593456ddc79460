"""The scale of the prior, against direct maximisation of the evidence."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from gaussify.likelihoods import LogisticLikelihood, PseudoTargets, SoftmaxLikelihood
from gaussify.posterior import ClassStatistics, GaussianPrior, best_prior_scale, log_evidence, natural_parameters

ALPHA = torch.tensor(0.2, dtype=torch.float64)
SHAPE = torch.tensor([1.0, 0.1, 4.0, 1000.0], dtype=torch.float64)
FREE = {
    "all-free": torch.tensor([True, True, True, True]),
    "intercept-fixed": torch.tensor([True, True, True, False]),
    "two-fixed": torch.tensor([False, True, True, False]),
}
LIKELIHOODS = {"softmax": SoftmaxLikelihood(3, ALPHA), "logistic": LogisticLikelihood(ALPHA)}
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
frees = pytest.mark.parametrize("free", FREE.values(), ids=FREE)


def statistics_of(likelihood, n: int = 60) -> ClassStatistics:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    features[:, 3] = 1.0
    scores = features @ torch.randn(4, likelihood.n_classes, generator=generator, dtype=torch.float64)
    return ClassStatistics.from_rows(features, scores.argmax(1), n_classes=likelihood.n_classes)


def evidence_at(scale: float, statistics, table, free, latents=slice(None), shape=SHAPE) -> float:
    variance = torch.where(free, scale * shape, shape)
    prior = GaussianPrior.centred(variance, n_latents=table.mean.shape[1])
    return float(log_evidence(prior, natural_parameters(statistics, table))[latents].sum())


@likelihoods
@frees
def test_scale_maximises_the_evidence(likelihood, free):
    statistics, table = statistics_of(likelihood), likelihood.target_table()
    found = best_prior_scale(statistics, table, SHAPE, free)
    best = minimize_scalar(
        lambda log_scale: -evidence_at(np.exp(log_scale), statistics, table, free),
        bounds=(-18.0, 18.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert found.scale == pytest.approx(np.exp(best.x), rel=1e-4)
    assert found.log_evidence == pytest.approx(-best.fun, abs=1e-8)


@likelihoods
@frees
def test_evidence_returned_is_that_of_the_scale_returned(likelihood, free):
    statistics, table = statistics_of(likelihood), likelihood.target_table()
    found = best_prior_scale(statistics, table, SHAPE, free)
    assert found.log_evidence == pytest.approx(evidence_at(found.scale, statistics, table, free), abs=1e-8)


def test_evidence_is_summed_over_the_latents_asked_for():
    statistics, table, free = (
        statistics_of(LIKELIHOODS["softmax"]),
        LIKELIHOODS["softmax"].target_table(),
        FREE["all-free"],
    )
    found = best_prior_scale(statistics, table, SHAPE, free, torch.tensor([2, 0]))
    for factor in (0.9, 1.0, 1.1):
        assert evidence_at(factor * found.scale, statistics, table, free, [2, 0]) <= found.log_evidence + 1e-8


@frees
def test_scale_does_not_depend_on_how_many_latents_are_decomposed_at_a_time(free, monkeypatch):
    statistics, table = statistics_of(LIKELIHOODS["softmax"]), LIKELIHOODS["softmax"].target_table()
    whole = best_prior_scale(statistics, table, SHAPE, free)
    monkeypatch.setattr("gaussify.posterior._gaussian._ELEMENTS", 1)
    assert best_prior_scale(statistics, table, SHAPE, free) == pytest.approx(whole, rel=1e-10)


def test_scale_is_relative_to_the_shape():
    statistics, table, free = (
        statistics_of(LIKELIHOODS["softmax"]),
        LIKELIHOODS["softmax"].target_table(),
        FREE["all-free"],
    )
    one, four = (best_prior_scale(statistics, table, factor * SHAPE, free) for factor in (1.0, 4.0))
    assert one.scale == pytest.approx(4.0 * four.scale, rel=1e-8)
    assert one.log_evidence == pytest.approx(four.log_evidence, abs=1e-9)


def test_features_that_say_nothing_get_the_smallest_scale():
    features = torch.tensor([[1.0], [-1.0]]).double().repeat(20, 1)
    statistics = ClassStatistics.from_rows(features, torch.tensor([0, 0, 1, 1]).repeat(10))
    found = best_prior_scale(
        statistics, LIKELIHOODS["logistic"].target_table(), torch.ones(1).double(), torch.tensor([True])
    )
    assert found.scale == pytest.approx(1e-8)


# --- a common factor of all variances ------------------------------------------------------------------------------


def profile_at(log_scale: float, statistics, table, free) -> tuple[float, float]:
    """The largest evidence over a factor of all variances, and the logarithm of that factor."""

    def lost(log_noise: float) -> float:
        noise = float(np.exp(log_noise))
        noisy = PseudoTargets(table.mean, noise * table.variance)
        return -evidence_at(float(np.exp(log_scale)), statistics, noisy, free, shape=noise * SHAPE)

    best = minimize_scalar(lost, bounds=(-12.0, 12.0), method="bounded", options={"xatol": 1e-9})
    return -best.fun, best.x


@likelihoods
@frees
@pytest.mark.parametrize("weight", [1.0, 0.7], ids=["rows", "weighted-rows"])
def test_scale_with_free_noise_maximises_the_evidence_over_both(likelihood, free, weight):
    statistics, table = weight * statistics_of(likelihood), likelihood.target_table()
    found = best_prior_scale(statistics, table, SHAPE, free, free_noise=True)
    best = minimize_scalar(
        lambda log_scale: -profile_at(log_scale, statistics, table, free)[0],
        bounds=(-18.0, 18.0),
        method="bounded",
        options={"xatol": 1e-8},
    )
    _, log_noise = profile_at(best.x, statistics, table, free)
    assert abs(log_noise) > 0.1  # or free noise would be no different
    assert found.scale == pytest.approx(np.exp(best.x), rel=1e-3)
    assert found.log_evidence == pytest.approx(-best.fun, abs=1e-7)


@likelihoods
@frees
def test_scale_with_free_noise_does_not_depend_on_the_dispersion_of_the_labels(likelihood, free):
    statistics, table = statistics_of(likelihood), likelihood.target_table()
    dispersed = PseudoTargets(table.mean, 5.0 * table.variance)
    plain = best_prior_scale(statistics, table, SHAPE, free, free_noise=True)
    moved = best_prior_scale(statistics, dispersed, 5.0 * SHAPE, free, free_noise=True)
    assert moved == pytest.approx(plain, rel=1e-8)


def test_free_noise_of_some_latents_is_their_own():
    likelihood = LIKELIHOODS["softmax"]
    statistics, table, free = statistics_of(likelihood), likelihood.target_table(), FREE["intercept-fixed"]
    chosen = torch.tensor([2, 0])
    found = best_prior_scale(statistics, table, SHAPE, free, chosen, free_noise=True)
    some = PseudoTargets(table.mean[:, chosen], table.variance[:, chosen])
    assert found == pytest.approx(best_prior_scale(statistics, some, SHAPE, free, free_noise=True), rel=1e-10)


def test_a_prior_of_the_scale_counts_and_limits_hold():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).double()
    statistics = ClassStatistics.from_rows(features, [0, 1, 1])
    table, free, shape = SoftmaxLikelihood(2).target_table(), torch.tensor([True, True]), torch.ones(2).double()
    grid = np.geomspace(1e-4, 1e4, 4001)
    natural = natural_parameters(statistics, table)

    def log_posterior(scale):
        prior = GaussianPrior.centred(scale * shape, n_latents=2)
        return float(log_evidence(prior, natural).sum()) - 0.5 * (np.log(scale / 0.5) / 0.7) ** 2

    best = max(grid, key=log_posterior)
    found = best_prior_scale(statistics, table, shape, free, centre=0.5, spread=0.7)
    assert found.scale == pytest.approx(best, rel=5e-3)
    assert found.log_evidence == pytest.approx(log_posterior(found.scale))
    without = best_prior_scale(statistics, table, shape, free).scale
    assert abs(np.log(without / best)) > 0.1
    for within in ((1e-3, 0.5 * best), (2.0 * best, 1e3)):
        nearest = best_prior_scale(statistics, table, shape, free, centre=0.5, spread=0.7, within=within)
        assert nearest.scale == pytest.approx(min(within, key=lambda limit: abs(np.log(limit / best))))
