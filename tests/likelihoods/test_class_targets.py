import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Beta, Dirichlet
from torch.testing import assert_close

from gaussify import LogisticLikelihood, SoftmaxLikelihood, match
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import PseudoTargets

MATCHES = ["laplace", "variational", "moment", "moment-ori"]
BETA_MATCHES = MATCHES[:3]
ALPHA = torch.tensor([0.3, 0.05, 2.0, 1.0], dtype=torch.float64)  # non-default, and different for each class
COUNTS = torch.tensor(
    [[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.4, 0.1], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 7.0, 1.5], [1e6, 2.0, 0.0, 0.5]],
    dtype=torch.float64,
)


def as_targets(normal) -> PseudoTargets:
    return PseudoTargets(normal.mean, normal.variance)


def rows_of(targets: PseudoTargets, labels) -> PseudoTargets:
    return PseudoTargets(*(tensor[list(labels)] for tensor in targets))


class_likelihoods = pytest.mark.parametrize(
    "likelihood",
    [
        *[pytest.param(SoftmaxLikelihood(4, ALPHA, method), id=f"softmax-{method}") for method in [*MATCHES, "gauss"]],
        *[
            pytest.param(LogisticLikelihood(ALPHA[0], ALPHA[1], method), id=f"logistic-{method}")
            for method in [*BETA_MATCHES, "gauss"]
        ],
    ],
)


@pytest.mark.parametrize("method", MATCHES)
def test_softmax_table_matches_the_dirichlet_posteriors(method):
    expected = as_targets(match(Dirichlet(ALPHA + torch.eye(4, dtype=torch.float64)), method))
    assert_close(SoftmaxLikelihood(4, ALPHA, method).target_table(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_logistic_table_matches_the_beta_posteriors(method):
    alpha, beta = ALPHA[0], ALPHA[1]
    posterior = Beta(torch.stack([alpha, alpha + 1])[:, None], torch.stack([beta + 1, beta])[:, None])
    table = LogisticLikelihood(alpha, beta, method).target_table()
    assert_close(table, as_targets(match(posterior, method)), rtol=1e-12, atol=1e-12)


def test_softmax_gauss_table_is_one_hot_with_the_label_variance():
    table = SoftmaxLikelihood(3, method="gauss", label_variance=0.25).target_table()
    assert_close(table, PseudoTargets(torch.eye(3), torch.full((3, 3), 0.25)))


def test_logistic_gauss_table_is_zero_and_one_with_the_label_variance():
    table = LogisticLikelihood(method="gauss", label_variance=0.25).target_table()
    assert_close(table, PseudoTargets(torch.tensor([[0.0], [1.0]]), torch.full((2, 1), 0.25)))


@pytest.mark.parametrize("default", [SoftmaxLikelihood(3), LogisticLikelihood()], ids=["softmax", "logistic"])
def test_the_default_is_variational_with_a_tenth(default):
    same = (
        LogisticLikelihood(0.1, method="variational")
        if default.n_latents == 1
        else SoftmaxLikelihood(3, 0.1, "variational")
    )
    assert_close(default.target_table(), same.target_table(), rtol=0, atol=0)


@class_likelihoods
def test_encoded_labels_are_rows_of_the_table(likelihood):
    labels = [1, 0, 1, likelihood.n_classes - 1, 0]
    assert_close(likelihood.encode(labels), rows_of(likelihood.target_table(), labels), rtol=0, atol=0)


@class_likelihoods
def test_one_hot_counts_encode_as_their_labels(likelihood):
    labels = torch.tensor([1, 0, 1, likelihood.n_classes - 1])
    one_hot = torch.nn.functional.one_hot(labels, likelihood.n_classes)
    assert_close(likelihood.encode(one_hot.double()), likelihood.encode(labels), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("as_given", [lambda y: y, lambda y: y.tolist()], ids=["integer-tensor", "list"])
def test_one_hot_counts_without_a_float_dtype_give_the_dtype_of_their_labels(as_given):
    likelihood = SoftmaxLikelihood(3)
    counts = as_given(torch.eye(3, dtype=torch.long))
    assert likelihood.encode(counts).mean.dtype == likelihood.encode([0, 1, 2]).mean.dtype


@class_likelihoods
@pytest.mark.parametrize("only", [0, 1], ids=["only-class-0", "only-class-1"])
def test_a_batch_of_one_class_encodes_as_in_a_full_batch(likelihood, only):
    full = likelihood.encode(list(range(likelihood.n_classes)))
    assert_close(likelihood.encode([only, only]), rows_of(full, [only, only]), rtol=0, atol=0)


def test_a_batch_without_the_top_class_keeps_every_latent():
    likelihood = SoftmaxLikelihood(4, 0.3)
    assert_close(likelihood.encode([0, 2, 1]), rows_of(likelihood.encode([0, 1, 2, 3]), [0, 2, 1]), rtol=0, atol=0)


def test_declared_classes_that_never_occur_keep_a_finite_latent():
    mean, variance = SoftmaxLikelihood(50, 0.01).encode([0, 1, 0])
    assert mean.shape == (3, 50)
    assert torch.isfinite(mean).all()
    assert (torch.isfinite(variance) & (variance > 0)).all()


@pytest.mark.parametrize("method", MATCHES)
def test_softmax_counts_match_the_dirichlet_posterior(method):
    encoded = SoftmaxLikelihood(4, ALPHA, method).encode(COUNTS)
    assert_close(encoded, as_targets(match(Dirichlet(ALPHA + COUNTS), method)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_logistic_counts_match_the_beta_posterior(method):
    alpha, beta = ALPHA[0], ALPHA[1]
    counts = COUNTS[:, :2]
    encoded = LogisticLikelihood(alpha, beta, method).encode(counts)
    expected = as_targets(match(Beta(alpha + counts[:, 1:], beta + counts[:, :1]), method))
    assert_close(encoded, expected, rtol=1e-12, atol=1e-12)


def test_gauss_counts_are_shares_with_the_variance_of_their_average():
    mean, variance = SoftmaxLikelihood(3, method="gauss", label_variance=2.0).encode(
        torch.tensor([[3.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    )
    assert_close(mean, torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.25, 0.25]]))
    assert_close(variance, torch.tensor([[0.5], [2.0]]).expand(2, 3))


@pytest.mark.parametrize("method", MATCHES)
def test_one_alpha_for_all_equals_the_same_alpha_for_each(method):
    one, each = SoftmaxLikelihood(3, 0.7, method), SoftmaxLikelihood(3, [0.7, 0.7, 0.7], method)
    assert_close(one.encode([0, 2]), each.encode([0, 2]), rtol=0, atol=0)


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_beta_eps_none_takes_alpha_eps(method):
    assert_close(
        LogisticLikelihood(0.4, None, method).target_table(),
        LogisticLikelihood(0.4, 0.4, method).target_table(),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("method", MATCHES)
@pytest.mark.parametrize(
    "y", [[0, 1], [[1.0, 0.0, 0.0], [0.0, 3.0, 0.0]]], ids=["labels", "counts"]
)  # GPyTorch re-encodes new labels with its default
def test_alpha_eps_is_used_whatever_is_encoded(method, y):
    default, other = SoftmaxLikelihood(3, 0.1, method).encode(y), SoftmaxLikelihood(3, 0.5, method).encode(y)
    assert (default.mean != other.mean).all()
    assert (default.variance > other.variance).all()


@pytest.mark.parametrize("method", ["laplace", "moment"])
def test_two_softmax_latents_differ_by_the_logistic_latent(method):
    # a logit of Beta(a, b) is the difference of the logarithms of two Gammas
    counts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.5, 4.0]], dtype=torch.float64)
    two = SoftmaxLikelihood(2, torch.tensor([0.2, 0.6], dtype=torch.float64), method).encode(counts)
    one = LogisticLikelihood(0.6, 0.2, method).encode(counts)
    assert_close(two.mean[:, 1:] - two.mean[:, :1], one.mean, rtol=1e-12, atol=1e-12)
    assert_close(two.variance.sum(-1, keepdim=True), one.variance, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("y", [[0, 1], [[1.0, 0.5], [0.0, 2.0]]], ids=["labels", "counts"])
@pytest.mark.parametrize("family", ["softmax", "logistic"])
def test_targets_take_the_dtype_of_a_tensor_alpha_eps(family, y, dtype):
    alpha = torch.tensor(0.2, dtype=dtype)
    likelihood = SoftmaxLikelihood(2, alpha) if family == "softmax" else LogisticLikelihood(alpha)
    encoded = likelihood.encode(y)
    assert (encoded.mean.dtype, encoded.variance.dtype) == (dtype, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_targets_take_the_dtype_of_float_counts(dtype):
    assert SoftmaxLikelihood(3).encode(torch.ones(2, 3, dtype=dtype)).mean.dtype == dtype


def test_targets_of_labels_take_the_default_dtype():
    assert SoftmaxLikelihood(3).encode([0, 1]).mean.dtype == torch.get_default_dtype()


@pytest.mark.parametrize("method", MATCHES)
@pytest.mark.parametrize("y", [[0, 2], [[0.5, 0.5, 0.0], [0.0, 3.0, 1.0]]], ids=["labels", "counts"])
def test_gradients_reach_the_alpha_eps_of_softmax(method, y):
    alpha = torch.tensor([0.2, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: tuple(SoftmaxLikelihood(3, a, method).encode(y)), alpha)


@pytest.mark.parametrize("method", BETA_MATCHES)
@pytest.mark.parametrize("y", [[0, 1], [[0.5, 0.5], [3.0, 1.0]]], ids=["labels", "counts"])
def test_gradients_reach_alpha_eps_and_beta_eps_of_logistic(method, y):
    inputs = tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.3, 0.8))
    assert torch.autograd.gradcheck(lambda a, b: tuple(LogisticLikelihood(a, b, method).encode(y)), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("family", ["softmax", "logistic"])
def test_a_step_on_a_learnt_alpha_eps_changes_the_next_encoding(family, dtype):
    alpha = torch.tensor(0.1, dtype=dtype, requires_grad=True)
    likelihood = SoftmaxLikelihood(2, alpha) if family == "softmax" else LogisticLikelihood(alpha)
    with torch.no_grad():
        alpha.fill_(0.9)  # as an optimiser does, in place
    fresh = SoftmaxLikelihood(2, alpha) if family == "softmax" else LogisticLikelihood(alpha)
    assert_close(likelihood.encode([0, 1]), fresh.encode([0, 1]), rtol=0, atol=0)


def test_moment_ori_is_refused_for_logistic_with_the_alternatives():
    with pytest.raises(InvalidArgumentError, match="must be one of 'laplace', 'variational', 'moment', 'gauss'; got"):
        LogisticLikelihood(method="moment-ori")


@pytest.mark.parametrize(
    ("likelihood", "text"),
    [
        (SoftmaxLikelihood(3, 0.2, "moment"), "SoftmaxLikelihood(n_classes=3, alpha_eps=0.2, method='moment')"),
        (LogisticLikelihood(0.2), "LogisticLikelihood(alpha_eps=0.2, beta_eps=None, method='variational')"),
    ],
    ids=["softmax", "logistic"],
)
def test_repr_shows_the_parameters(likelihood, text):
    assert repr(likelihood) == text


log_uniform = st.floats(-8, 3).map(lambda exponent: 10.0**exponent)
count = st.one_of(st.just(0.0), st.floats(0.0, 5.0), st.integers(0, 10**6).map(float))


@settings(deadline=None, max_examples=60)
@given(
    alpha=log_uniform, counts=st.lists(count, min_size=2, max_size=6), method=st.sampled_from(["laplace", *MATCHES[1:]])
)
def test_softmax_targets_are_finite_with_positive_variance(alpha, counts, method):
    mean, variance = SoftmaxLikelihood(len(counts), alpha, method).encode([counts])
    assert torch.isfinite(mean).all()
    assert (torch.isfinite(variance) & (variance > 0)).all()


@settings(deadline=None, max_examples=60)
@given(alpha=log_uniform, beta=log_uniform, zeros=count, ones=count, method=st.sampled_from(BETA_MATCHES))
def test_logistic_targets_are_finite_with_positive_variance(alpha, beta, zeros, ones, method):
    mean, variance = LogisticLikelihood(alpha, beta, method).encode([[zeros, ones]])
    assert torch.isfinite(mean).all()
    assert (torch.isfinite(variance) & (variance > 0)).all()


@settings(deadline=None, max_examples=40)
@given(
    alpha=log_uniform,
    counts=st.lists(count, min_size=5, max_size=5).filter(any),
    order=st.permutations(range(5)),
    method=st.sampled_from([*MATCHES, "gauss"]),
)
def test_permuting_the_classes_permutes_the_latents(alpha, counts, order, method):
    likelihood = SoftmaxLikelihood(5, alpha, method)
    counts = torch.tensor([counts], dtype=torch.float64)
    permuted = PseudoTargets(*(tensor[:, order] for tensor in likelihood.encode(counts)))
    assert_close(likelihood.encode(counts[:, order]), permuted, rtol=1e-12, atol=1e-14)


@settings(deadline=None, max_examples=60)
@given(
    alpha=log_uniform,
    counts=st.tuples(count, count),
    more=st.tuples(count, count),
    method=st.sampled_from(BETA_MATCHES),
    family=st.sampled_from(["softmax", "logistic"]),
)
def test_more_counts_never_increase_the_variance(alpha, counts, more, method, family):
    likelihood = (
        SoftmaxLikelihood(2, alpha, method) if family == "softmax" else LogisticLikelihood(alpha, method=method)
    )
    fewer = torch.tensor([counts], dtype=torch.float64)
    variance_fewer = likelihood.encode(fewer).variance
    variance_more = likelihood.encode(fewer + torch.tensor([more], dtype=torch.float64)).variance
    assert (variance_more <= variance_fewer * (1 + 1e-9)).all()
