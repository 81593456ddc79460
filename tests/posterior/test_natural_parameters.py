"""What rows say about the latents: from statistics, from rows, and from the definition."""

import math

import pytest
import torch
from torch.nn.functional import one_hot
from torch.testing import assert_close

from gaussify.likelihoods import LogisticLikelihood, PseudoTargets, SoftmaxLikelihood
from gaussify.posterior import ClassStatistics, NaturalParameters, natural_parameters, natural_parameters_of_rows

TOLERANCE = {torch.float32: {"rtol": 2e-5, "atol": 1e-4}, torch.float64: {"rtol": 1e-12, "atol": 1e-11}}
ALPHA = torch.tensor([0.3, 0.05, 2.0, 1.0], dtype=torch.float64)

LIKELIHOODS = {
    "softmax": lambda dtype: SoftmaxLikelihood(4, ALPHA[0].to(dtype)),
    "softmax-alpha-per-class": lambda dtype: SoftmaxLikelihood(4, ALPHA.to(dtype)),
    "softmax-gauss": lambda dtype: SoftmaxLikelihood(4, ALPHA[0].to(dtype), "gauss", label_variance=0.3),
    "softmax-of-two": lambda dtype: SoftmaxLikelihood(2, ALPHA[:2].to(dtype)),
    "logistic": lambda dtype: LogisticLikelihood(ALPHA[0].to(dtype), ALPHA[1].to(dtype)),
    "logistic-gauss": lambda dtype: LogisticLikelihood(ALPHA[0].to(dtype), method="gauss"),
}
likelihoods = pytest.mark.parametrize("make_likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def random_rows(n_classes: int, n: int = 25, d: int = 3, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(n_classes)
    features = torch.randn(n, d, generator=generator, dtype=dtype)
    labels = torch.randint(n_classes, (n,), generator=generator)
    return features, labels, torch.rand(n, generator=generator, dtype=dtype)


def definition(features, targets: PseudoTargets, weight) -> NaturalParameters:
    precision = torch.einsum("n,nl,ni,nj->lij", weight, 1.0 / targets.variance, features, features)
    linear = torch.einsum("n,nl,ni->li", weight, targets.mean / targets.variance, features)
    log_scale = torch.log(2.0 * math.pi * targets.variance) + targets.mean.square() / targets.variance
    return NaturalParameters(precision, linear, -0.5 * weight @ log_scale)


def assert_same(actual: NaturalParameters, expected: NaturalParameters, dtype=torch.float64) -> None:
    assert_close(vars(actual), vars(expected), **TOLERANCE[dtype])


@likelihoods
@dtypes
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_statistics_say_what_the_rows_say(make_likelihood, dtype, weighted):
    likelihood = make_likelihood(dtype)
    features, labels, weight = random_rows(likelihood.n_classes, dtype=dtype)
    targets = likelihood.encode(labels)
    given = weight if weighted else None
    expected = definition(features, targets, weight if weighted else torch.ones_like(weight))
    statistics = ClassStatistics.from_rows(features, labels, given, n_classes=likelihood.n_classes)
    assert_same(natural_parameters(statistics, likelihood.target_table()), expected, dtype)
    assert_same(natural_parameters_of_rows(features, targets, given), expected, dtype)


@pytest.mark.parametrize("classes", [[0, 1, 3], [2]], ids=["one-missing", "only-one"])
def test_classes_that_were_not_seen_change_nothing(classes):
    likelihood = SoftmaxLikelihood(4, ALPHA)
    features, labels, weight = random_rows(4)
    labels = torch.tensor(classes)[labels % len(classes)]
    statistics = ClassStatistics.from_rows(features, labels, weight, n_classes=4)
    expected = definition(features, likelihood.encode(labels), weight)
    assert_same(natural_parameters(statistics, likelihood.target_table()), expected)


def test_a_table_with_variances_for_every_class_takes_the_general_path():
    features, labels, weight = random_rows(4)
    generator = torch.Generator().manual_seed(9)
    table = PseudoTargets(
        *(torch.rand(4, 4, generator=generator, dtype=torch.float64) + shift for shift in (-0.5, 0.1))
    )
    statistics = ClassStatistics.from_rows(features, labels, weight, n_classes=4)
    targets = PseudoTargets(table.mean[labels], table.variance[labels])
    assert_same(natural_parameters(statistics, table), definition(features, targets, weight))


@pytest.mark.parametrize("off", [(0, 2), (3, 0), (1, 3)], ids=str)
def test_one_variance_that_differs_from_its_column_is_not_overlooked(off):
    features, labels, weight = random_rows(4)
    table = SoftmaxLikelihood(4, ALPHA).target_table()
    table.variance[off] *= 2.0
    statistics = ClassStatistics.from_rows(features, labels, weight, n_classes=4)
    targets = PseudoTargets(table.mean[labels], table.variance[labels])
    assert_same(natural_parameters(statistics, table), definition(features, targets, weight))


@likelihoods
@pytest.mark.parametrize("latents", [[0], [3, 1], [2, 0, 3, 1]], ids=str)
def test_some_latents_are_entries_of_all(make_likelihood, latents):
    likelihood = make_likelihood(torch.float64)
    if max(latents) >= likelihood.n_latents:
        latents = [likelihood.n_latents - 1]
    features, labels, _ = random_rows(likelihood.n_classes)
    statistics = ClassStatistics.from_rows(features, labels, n_classes=likelihood.n_classes)
    table = likelihood.target_table()
    every = natural_parameters(statistics, table)
    some = natural_parameters(statistics, table, torch.tensor(latents), total_gram=statistics.gram.sum(0))
    assert_same(some, NaturalParameters(every.precision[latents], every.linear[latents], every.constant[latents]))


def test_natural_parameters_add_as_rows_join():
    likelihood = SoftmaxLikelihood(4, ALPHA)
    features, labels, weight = random_rows(4)
    targets = likelihood.encode(labels)
    first, second = (
        natural_parameters_of_rows(features[s], PseudoTargets(targets.mean[s], targets.variance[s]), weight[s])
        for s in (slice(10), slice(10, None))
    )
    whole = natural_parameters_of_rows(features, targets, weight)
    assert_same(first + second, whole)
    assert_same(whole - second, first)
    assert_same(2.0 * whole * 0.5, whole)


@pytest.mark.parametrize("method", ["laplace", "variational", "moment", "moment-ori", "gauss"])
def test_one_hot_counts_say_what_hard_labels_say(method):
    likelihood = SoftmaxLikelihood(4, ALPHA, method)
    features, labels, weight = random_rows(4)
    soft = natural_parameters_of_rows(features, likelihood.encode(one_hot(labels, 4).double()), weight)
    statistics = ClassStatistics.from_rows(features, labels, weight, n_classes=4)
    assert_same(soft, natural_parameters(statistics, likelihood.target_table()))


def test_soft_labels_and_counts_say_what_their_targets_say():
    likelihood = SoftmaxLikelihood(4, ALPHA)
    features, _, weight = random_rows(4)
    counts = 3.0 * torch.rand(25, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts[:10] /= counts[:10].sum(-1, keepdim=True)  # soft labels
    targets = likelihood.encode(counts)
    assert_same(natural_parameters_of_rows(features, targets, weight), definition(features, targets, weight))


def test_targets_of_the_default_dtype_go_with_rows_of_float64():
    features, labels, _ = random_rows(4)
    targets = SoftmaxLikelihood(4).encode(labels)
    expected = natural_parameters_of_rows(features, PseudoTargets(targets.mean.double(), targets.variance.double()))
    assert_same(natural_parameters_of_rows(features, targets), expected, torch.float32)


def test_a_table_of_the_default_dtype_goes_with_statistics_of_float64():
    features, labels, _ = random_rows(4)
    statistics = ClassStatistics.from_rows(features, labels, n_classes=4)
    table = SoftmaxLikelihood(4).target_table()  # float32, the dtype of alpha_eps=0.1
    expected = natural_parameters(statistics, PseudoTargets(table.mean.double(), table.variance.double()))
    assert_close(vars(natural_parameters(statistics, table)), vars(expected), rtol=1e-5, atol=1e-4, check_dtype=False)
