"""The losses as functions: against their definition, against torch's shapes and reductions, and their derivatives."""

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from gaussify import LogisticLikelihood, SoftmaxLikelihood
from gaussify.exceptions import InvalidArgumentError
from gaussify.nn.functional import matched_binary_cross_entropy_with_logits, matched_cross_entropy
from sampled import each_value, pairs_first

BETA_MATCHES = ["laplace", "variational", "moment"]
MATCHES = [*BETA_MATCHES, "moment-ori"]
BETA_METHODS, METHODS = [*BETA_MATCHES, "gauss"], [*MATCHES, "gauss"]
KINDS, REDUCTIONS = ["index", "soft"], ["none", "mean", "sum"]
SHAPES = [(3,), (5, 3), (5, 3, 2), (5, 3, 2, 4)]
EXACT = {"rtol": 1e-10, "atol": 1e-10}  # float64, sums in another order

ALPHA = torch.tensor([0.3, 0.05, 2.0], dtype=torch.float64)  # non-default, and different for each class
LABELS = torch.tensor([0, 2, 1, 2, 0])
WEIGHT = torch.tensor([0.5, 3.0, 1.25], dtype=torch.float64)
BINARY = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
SOFT_BINARY = torch.tensor([0.9, 0.2, 0.5, 0.7, 0.35], dtype=torch.float64)

WEIGHTS = {"equal": None, "weighted": WEIGHT}
BINARY_LABELS = {"hard": BINARY, "integer": BINARY.long(), "soft": SOFT_BINARY}

methods = pytest.mark.parametrize("method", METHODS)
matches = pytest.mark.parametrize("method", MATCHES)
beta_methods = pytest.mark.parametrize("method", BETA_METHODS)
beta_matches = pytest.mark.parametrize("method", BETA_MATCHES)


def random_logits(*shape: int, scale: float = 3.0, seed: int = 0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_targets(kind: str, shape: tuple[int, ...]) -> Tensor:
    if kind == "soft":
        return random_logits(*shape, scale=1.0, seed=1).softmax(min(1, len(shape) - 1))
    rows = () if len(shape) == 1 else (shape[0], *shape[2:])
    return 2 - torch.arange(math.prod(rows)).reshape(rows) % 3


def rows_of(tensor: Tensor) -> Tensor:
    """From (n, c, ...) to (rows, c)."""
    return tensor[None] if tensor.ndim == 1 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def by_definition(likelihood: SoftmaxLikelihood | LogisticLikelihood, logits: Tensor, y: Tensor) -> Tensor:
    mean, variance = likelihood.encode(y)
    return -Normal(mean, variance.sqrt()).log_prob(logits).sum(-1)


def with_gradient(loss, logits: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = loss(logits)
    return value.detach(), torch.autograd.grad(value, logits)[0]


def twice(function, *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


# --- definition --------------------------------------------------------------------------------------------------

log_uniform = st.floats(math.log(1e-3), math.log(30.0)).map(math.exp)


@settings(max_examples=60)
@given(data=st.data(), method=st.sampled_from(METHODS), n_classes=st.integers(2, 5), label_variance=log_uniform)
def test_class_losses_are_negative_log_densities_of_the_encoded_targets(data, method, n_classes, label_variance):
    alpha_eps = data.draw(log_uniform | st.lists(log_uniform, min_size=n_classes, max_size=n_classes))
    rows = st.lists(st.lists(st.floats(-50.0, 50.0), min_size=n_classes, max_size=n_classes), min_size=1, max_size=4)
    logits = torch.tensor(data.draw(rows), dtype=torch.float64)
    counts = random_logits(*logits.shape, seed=data.draw(st.integers(0, 99))).exp()
    alpha = torch.tensor(alpha_eps, dtype=torch.float64)
    likelihood = SoftmaxLikelihood(n_classes, alpha, method, label_variance=label_variance)
    for y in (counts.argmax(-1), counts / counts.sum(-1, keepdim=True), counts):
        losses = matched_cross_entropy(
            logits, y, alpha_eps=alpha_eps, method=method, reduction="none", label_variance=label_variance
        )
        assert_close(losses, by_definition(likelihood, logits, y), **EXACT)


@settings(max_examples=40)
@given(
    method=st.sampled_from(BETA_METHODS),
    alpha_eps=log_uniform,
    beta_eps=log_uniform | st.none(),
    logits=st.lists(st.floats(-50.0, 50.0), min_size=5, max_size=5),
    label_variance=log_uniform,
)
def test_binary_losses_are_negative_log_densities_of_the_encoded_targets(
    method, alpha_eps, beta_eps, logits, label_variance
):
    alpha, beta = (None if eps is None else torch.tensor(eps, dtype=torch.float64) for eps in (alpha_eps, beta_eps))
    likelihood = LogisticLikelihood(alpha, beta, method, label_variance=label_variance)
    logits = torch.tensor(logits, dtype=torch.float64)
    for y in (BINARY, BINARY.long(), BINARY.bool(), SOFT_BINARY):
        losses = matched_binary_cross_entropy_with_logits(
            logits,
            y,
            alpha_eps=alpha_eps,
            beta_eps=beta_eps,
            method=method,
            reduction="none",
            label_variance=label_variance,
        )
        counts = torch.stack([1.0 - y.double(), y.double()], -1)
        assert_close(losses, by_definition(likelihood, logits[:, None], counts), **EXACT)


@pairs_first(method=METHODS, label_smoothing=[0.0, 0.3, 1.0], reduction=REDUCTIONS)
def test_smoothed_indices_are_smoothed_probabilities(method, label_smoothing, reduction):
    logits, one_hot = random_logits(5, 3), F.one_hot(LABELS, 3).double()
    options = {"alpha_eps": ALPHA, "method": method, "reduction": reduction}
    smoothed = (1.0 - label_smoothing) * one_hot + label_smoothing / 3.0
    expected = matched_cross_entropy(logits, smoothed, **options)
    for y in (LABELS, one_hot):
        actual = matched_cross_entropy(logits, y, label_smoothing=label_smoothing, **options)
        assert_close(actual, expected, **EXACT)


@each_value(method=METHODS, kind=KINDS)
def test_one_number_and_the_same_for_each_class_agree(method, kind):
    logits, y = random_logits(5, 3), random_targets(kind, (5, 3))
    one, tensor, each = (
        matched_cross_entropy(logits, y, alpha_eps=alpha_eps, method=method)
        for alpha_eps in (0.7, torch.tensor(0.7), [0.7, 0.7, 0.7])
    )
    assert_close(each, one, **EXACT)
    assert_close(tensor, one, rtol=1e-6, atol=0)  # float32


@pytest.mark.parametrize("kind", ["index", "soft"])
def test_the_default_is_variational_with_a_tenth(kind):
    logits, y = random_logits(5, 3), random_targets(kind, (5, 3))
    expected = matched_cross_entropy(logits, y, alpha_eps=0.1, method="variational", reduction="mean")
    assert_close(matched_cross_entropy(logits, y), expected, rtol=0, atol=0)


# --- shapes and reductions ---------------------------------------------------------------------------------------


@pairs_first(shape=SHAPES, reduction=REDUCTIONS, kind=KINDS)
def test_shapes_are_those_of_torch(shape, reduction, kind):
    logits, y = random_logits(*shape), random_targets(kind, shape)
    expected = F.cross_entropy(logits, y, WEIGHT, reduction=reduction)
    assert matched_cross_entropy(logits, y, reduction=reduction).shape == expected.shape
    assert matched_cross_entropy(logits, y, WEIGHT, reduction=reduction).shape == expected.shape


@pairs_first(shape=SHAPES, method=METHODS, kind=KINDS)
def test_further_dimensions_are_further_rows(shape, method, kind):
    logits, y = random_logits(*shape), random_targets(kind, shape)
    losses = matched_cross_entropy(logits, y, alpha_eps=ALPHA, method=method, reduction="none")
    row_targets = rows_of(y) if kind == "soft" else y.reshape(-1)
    of_rows = [
        matched_cross_entropy(row, label, alpha_eps=ALPHA, method=method)
        for row, label in zip(rows_of(logits), row_targets, strict=True)
    ]
    assert_close(losses.reshape(-1), torch.stack(of_rows), **EXACT)


@each_value(method=METHODS, shape=SHAPES)
def test_the_mean_of_indices_is_weighted(method, shape):
    logits, y = random_logits(*shape), random_targets("index", shape)
    losses, w = matched_cross_entropy(logits, y, method=method, reduction="none"), WEIGHT[y]
    total, mean, each = (
        matched_cross_entropy(logits, y, WEIGHT, method=method, reduction=how) for how in ("sum", "mean", "none")
    )
    assert_close(each, w * losses, **EXACT)
    assert_close(total, (w * losses).sum(), **EXACT)
    assert_close(mean, (w * losses).sum() / w.sum(), **EXACT)


@each_value(method=METHODS, shape=SHAPES)
def test_the_mean_of_probabilities_is_over_rows(method, shape):
    logits, y = random_logits(*shape), random_targets("soft", shape)
    losses = matched_cross_entropy(logits, y, method=method, reduction="none")
    weighted = losses * (rows_of(y) * WEIGHT).sum(-1).reshape(losses.shape)
    for weight, each in ((None, losses), (WEIGHT, weighted)):
        assert_close(matched_cross_entropy(logits, y, weight, method=method, reduction="none"), each, **EXACT)
        assert_close(matched_cross_entropy(logits, y, weight, method=method, reduction="sum"), each.sum(), **EXACT)
        assert_close(matched_cross_entropy(logits, y, weight, method=method), each.mean(), **EXACT)


def test_classes_of_no_weight_do_not_count():
    logits, kept = random_logits(5, 3), LABELS != 2
    loss, gradient = with_gradient(lambda f: matched_cross_entropy(f, LABELS, torch.tensor([1.0, 1.0, 0.0])), logits)
    assert_close(loss, matched_cross_entropy(logits[kept], LABELS[kept]), **EXACT)
    assert torch.equal(gradient.abs().sum(-1) > 0, kept)


@pairs_first(method=METHODS, ignore_index=[-100, -1, 1, 3], weight=WEIGHTS, reduction=["mean", "sum"])
def test_ignored_rows_neither_count_nor_get_a_gradient(method, ignore_index, weight, reduction):
    logits, y = random_logits(5, 3), torch.tensor([0, ignore_index, 2, ignore_index, 0])
    kept = y != ignore_index
    options = {"weight": weight, "alpha_eps": ALPHA, "method": method, "reduction": reduction}
    loss, gradient = with_gradient(lambda f: matched_cross_entropy(f, y, ignore_index=ignore_index, **options), logits)
    expected, of_kept = with_gradient(lambda f: matched_cross_entropy(f, y[kept], **options), logits[kept])
    assert_close(loss, expected, **EXACT)
    assert_close(gradient[kept], of_kept, **EXACT)
    assert not gradient[~kept].any()


@each_value(method=METHODS, ignore_index=[-100, 1], shape=SHAPES[1:3])
def test_ignored_rows_have_a_loss_of_zero(method, ignore_index, shape):
    logits, y = random_logits(*shape), random_targets("index", shape)
    expected = matched_cross_entropy(logits, y, method=method, reduction="none")
    is_ignored = y == 1
    y = torch.where(is_ignored, ignore_index, y)
    losses = matched_cross_entropy(logits, y, method=method, reduction="none", ignore_index=ignore_index)
    assert_close(losses, torch.where(is_ignored, 0.0, expected), **EXACT)


@pairs_first(ignore_index=[-100, 1], weight=WEIGHTS, reduction=REDUCTIONS)
def test_a_batch_of_ignored_rows_reduces_as_torch(ignore_index, weight, reduction):
    logits, y = random_logits(2, 3), torch.full((2,), ignore_index)
    expected = F.cross_entropy(logits, y, weight, ignore_index=ignore_index, reduction=reduction)
    actual = matched_cross_entropy(logits, y, weight, ignore_index=ignore_index, reduction=reduction)
    assert expected.isnan().all() if reduction == "mean" else not expected.any()
    assert_close(actual, expected, equal_nan=True, rtol=0, atol=0)


@each_value(reduction=REDUCTIONS, kind=KINDS)
def test_an_empty_batch_reduces_as_torch(reduction, kind):
    logits, y = torch.zeros(0, 3), random_targets(kind, (5, 3))[:0]
    expected = F.cross_entropy(logits, y.float() if kind == "soft" else y, reduction=reduction)
    actual = matched_cross_entropy(logits, y.float() if kind == "soft" else y, reduction=reduction)
    assert_close(actual, expected, equal_nan=True, rtol=0, atol=0)


@pairs_first(shape={"-": (), "n": (4,), "nxd": (4, 3), "mxnxd": (2, 4, 3)}, reduction=REDUCTIONS, method=BETA_METHODS)
def test_binary_shapes_and_reductions_are_those_of_torch(shape, reduction, method):
    logits = random_logits(*shape)
    for y in ((logits > 1.0).double(), logits.sigmoid()):
        losses = matched_binary_cross_entropy_with_logits(logits, y, method=method, reduction="none")
        actual = matched_binary_cross_entropy_with_logits(logits, y, method=method, reduction=reduction)
        assert losses.shape == logits.shape
        assert actual.shape == F.binary_cross_entropy_with_logits(logits, y, reduction=reduction).shape
        assert_close(actual, {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[reduction], **EXACT)


@each_value(reduction=REDUCTIONS, method=BETA_METHODS)
def test_binary_weights_act_as_those_of_torch(reduction, method):
    """torch's own factors on each loss, of a hard label, times the matched loss."""
    logits = random_logits(4, 3)
    y, pos_weight = (random_logits(4, 3, seed=5) > 0).double(), torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    losses = matched_binary_cross_entropy_with_logits(logits, y, method=method, reduction="none")
    for weight, pos in ((WEIGHT, None), (None, pos_weight), (WEIGHT[0], pos_weight), (losses.detach().abs(), None)):
        plain = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
        factor = F.binary_cross_entropy_with_logits(logits, y, weight, pos_weight=pos, reduction="none") / plain
        expected = factor * losses
        actual = matched_binary_cross_entropy_with_logits(logits, y, weight, pos, method=method, reduction=reduction)
        assert_close(actual, {"none": expected, "mean": expected.mean(), "sum": expected.sum()}[reduction], **EXACT)


# --- the derivative in the same pass -----------------------------------------------------------------------------


@pairs_first(method=METHODS, shape=SHAPES, label_smoothing=[0.0, 0.2])
def test_the_mean_is_the_same_by_any_way(method, shape, label_smoothing):
    logits, y = random_logits(*shape), random_targets("index", shape)
    options = {"alpha_eps": 0.3, "method": method, "label_smoothing": label_smoothing}
    fast, of_ones, of_rows, of_total = (
        with_gradient(loss, logits)
        for loss in (
            lambda f: matched_cross_entropy(f, y, **options),
            lambda f: matched_cross_entropy(f, y, torch.ones(3), **options),
            lambda f: matched_cross_entropy(f, y, reduction="none", **options).mean(),
            lambda f: matched_cross_entropy(f, y, reduction="sum", **options) / y.numel(),
        )
    )
    for other in (of_ones, of_rows, of_total):
        assert_close(fast, other, **EXACT)


MANY = {"few": (5, 3), "many": (300, 100), "in-chunks": (200, 1000)}


@each_value(shape=MANY, kind=KINDS)
def test_the_loss_leaves_its_inputs_alone(shape, kind):
    logits, y = random_logits(*shape).requires_grad_(), random_targets(kind, shape)
    logits_before, y_before = logits.detach().clone(), y.clone()
    loss = matched_cross_entropy(logits, y)
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(logits, logits_before)
    assert torch.equal(y, y_before)
    assert first is not second
    assert_close(first, second, rtol=0, atol=0)


@each_value(shape=MANY, kind=KINDS)
def test_a_derivative_that_was_given_away_and_changed_comes_again(shape, kind):
    logits, y = random_logits(*shape).requires_grad_(), random_targets(kind, shape)
    loss = matched_cross_entropy(logits, y)
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    logits.grad.zero_()
    loss.backward(retain_graph=True)
    assert_close(logits.grad, first, **EXACT)


@each_value(shape=MANY, reduction=REDUCTIONS, kind=KINDS)
def test_a_graph_is_gone_after_backward(shape, kind, reduction):
    logits, y = random_logits(*shape).requires_grad_(), random_targets(kind, shape)
    loss = matched_cross_entropy(logits, y, reduction=reduction).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@each_value(shape=MANY, reduction=REDUCTIONS, kind=KINDS)
def test_checkpointing_keeps_nothing_of_the_size_of_the_logits(shape, kind, reduction):
    logits, y = random_logits(*shape).requires_grad_(), random_targets(kind, shape)

    def loss(f: Tensor) -> Tensor:
        return matched_cross_entropy(2.0 * f, y, reduction=reduction).sum()

    value = checkpoint(loss, logits, use_reentrant=False)
    nodes = [value.grad_fn]
    for node in nodes:
        nodes += [further for further, _ in node.next_functions if further is not None]
    assert not any(isinstance(part, Tensor) for node in nodes for part in getattr(node, "__dict__", {}).values())
    value.backward()
    assert_close(logits.grad, with_gradient(loss, logits.detach())[1], **EXACT)


def test_derivatives_in_probabilities_are_not_forgotten():
    logits, y = random_logits(5, 3), random_targets("soft", (5, 3)).requires_grad_()
    fast, of_rows = (
        torch.autograd.grad(matched_cross_entropy(logits, y, reduction=reduction).sum() / n, y)[0]
        for reduction, n in (("mean", 1), ("none", 5))
    )
    assert bool((fast != 0).all())
    assert_close(fast, of_rows, **EXACT)


@pairs_first(method=METHODS, shape=MANY, kind=KINDS)
def test_the_mean_has_the_derivatives_of_rows(method, shape, kind):
    logits, y = random_logits(*shape).requires_grad_(), random_targets(kind, shape)
    direction = random_logits(*shape, seed=2)

    def derivatives(loss: Tensor) -> list[Tensor]:
        """Of a multiple of the loss, of several at once, and the second in a direction."""
        (scaled,) = torch.autograd.grad(3.0 * loss, logits, retain_graph=True)
        factors = torch.tensor([1.0, -2.0], dtype=torch.float64)
        (several,) = torch.autograd.grad(loss, logits, factors, retain_graph=True, is_grads_batched=True)
        (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        return [loss.detach(), scaled, several, *torch.autograd.grad((slope * direction).sum(), logits)]

    fast = derivatives(matched_cross_entropy(logits, y, alpha_eps=0.3, method=method))
    of_rows = derivatives(matched_cross_entropy(logits, y, alpha_eps=0.3, method=method, reduction="none").mean())
    assert_close(fast, of_rows, **EXACT)


@pairs_first(method=METHODS, shape=MANY, kind=KINDS, alpha_eps=[1e-6, 0.1])
def test_sums_in_single_precision_have_its_digits(method, shape, kind, alpha_eps):
    """Also of equal squares, whose errors of rounding do not cancel."""
    y, logits = random_targets(kind, shape), random_logits(*shape).float()

    def loss(f: Tensor) -> Tensor:
        own = y.to(f.dtype) if kind == "soft" else y
        return matched_cross_entropy(f, own, alpha_eps=alpha_eps, method=method)

    (value, slope), (expected, expected_slope) = (with_gradient(loss, own) for own in (logits, logits.double()))
    assert_close(value.double(), expected, rtol=1e-5, atol=0)
    assert_close(slope.double(), expected_slope, rtol=1e-5, atol=1e-6 / shape[0])


def test_a_long_sum_of_equal_squares_keeps_the_digits_of_single_precision():
    logits, y = torch.zeros(40_000, 1000), torch.zeros(40_000, dtype=torch.long)
    value, of_one = matched_cross_entropy(logits, y), matched_cross_entropy(logits[:1].double(), y[:1])
    assert_close(value.double(), of_one, rtol=1e-5, atol=0)


@each_value(shape=MANY, kind=KINDS)
def test_logits_in_any_order_of_memory_give_the_same(shape, kind):
    logits, y = random_logits(*shape), random_targets(kind, shape)
    plain, turned = (
        with_gradient(lambda f: matched_cross_entropy(f, y), own) for own in (logits, logits.T.contiguous().T)
    )
    assert_close(turned, plain, **EXACT)


DTYPES = {"float32": torch.float32, "float64": torch.float64}
NEAR = {torch.float32: {"rtol": 5e-6, "atol": 5e-6}, torch.float64: EXACT}


@pairs_first(
    method=METHODS,
    dtype=DTYPES,
    reduction=["mean", "sum"],
    alpha_eps=[0.01, 0.1, 3.0],
    kind=["index", "soft", "counts"],
    n_classes=[3, 200],
)
def test_fixed_concentrations_give_what_learnt_ones_do(method, dtype, reduction, alpha_eps, kind, n_classes):
    """A number is matched once, by tables or closed forms; a tensor that requires derivatives by matching each time."""
    logits = random_logits(6, n_classes).to(dtype)
    counts = random_logits(6, n_classes, seed=1).exp().to(dtype)
    y = {"index": counts.argmax(-1), "soft": counts / counts.sum(-1, keepdim=True), "counts": counts}[kind]
    fixed, learnt = (
        with_gradient(
            lambda f, a=a: matched_cross_entropy(f, y, alpha_eps=a, method=method, reduction=reduction), logits
        )
        for a in (alpha_eps, torch.tensor(alpha_eps, dtype=dtype).requires_grad_())
    )
    assert_close(fixed, learnt, **NEAR[dtype])


@pairs_first(
    method=BETA_METHODS,
    dtype=DTYPES,
    reduction=REDUCTIONS,
    concentrations=[(0.1, None), (0.01, 0.01), (1e-4, 0.3), (5.0, 2.0)],
    kind=["hard", "integer", "soft", "near-the-ends"],
)
def test_fixed_binary_concentrations_give_what_learnt_ones_do(method, dtype, reduction, concentrations, kind):
    alpha_eps, beta_eps = concentrations
    y = torch.linspace(0.0, 1.0, 101, dtype=dtype)
    y = {"hard": y.round(), "integer": y.round().long(), "soft": y, "near-the-ends": (20.0 * y - 10.0).sigmoid()}[kind]
    logits = random_logits(101).to(dtype)
    learnt = [None if eps is None else torch.tensor(eps, dtype=dtype).requires_grad_() for eps in (alpha_eps, beta_eps)]
    losses = [
        matched_binary_cross_entropy_with_logits(
            logits, y, alpha_eps=a, beta_eps=b, method=method, reduction=reduction
        ).detach()
        for a, b in ((alpha_eps, beta_eps), learnt)
    ]
    assert_close(*losses, **NEAR[dtype])


@each_value(n_rows=[7, 3000], method=MATCHES)
def test_probabilities_in_chunks_are_those_of_rows(method, n_rows):
    logits, y = random_logits(n_rows, 40), random_targets("soft", (n_rows, 40))  # of several chunks, and of one
    whole, of_rows = (
        with_gradient(loss, logits)
        for loss in (
            lambda f: matched_cross_entropy(f, y, method=method),
            lambda f: matched_cross_entropy(f, y, method=method, reduction="none").mean(),
        )
    )
    assert_close(whole, of_rows, **EXACT)
    labels = y[:, :25].reshape(-1)
    losses = matched_binary_cross_entropy_with_logits(torch.zeros_like(labels), labels, reduction="none")
    some = slice(-5, None)
    alone = matched_binary_cross_entropy_with_logits(torch.zeros_like(labels[some]), labels[some], reduction="none")
    assert_close(losses[some], alone, rtol=0, atol=0)


@pytest.mark.parametrize(
    "first",
    [
        lambda loss, *given: torch.inference_mode()(loss)(*given),
        lambda loss, f, y: torch.func.grad(loss)(f, y),
        lambda loss, f, y: torch.func.vmap(loss)(f[None], y[None]),
        lambda loss, f, y: torch.func.functionalize(loss)(f, y),
    ],
    ids=["inference-mode", "func", "vmap", "functionalize"],
)
@pytest.mark.parametrize("alpha_eps", [0.123, 0.321])
def test_what_is_kept_from_a_call_serves_any_later_one(first, alpha_eps, request):
    alpha_eps += 1e-3 * (1 + len(request.node.name))  # which no other test has used
    logits, soft = random_logits(5, 3), random_targets("soft", (5, 3))
    calls = [(matched_cross_entropy, logits, LABELS), (matched_cross_entropy, logits, soft)]
    calls += [(matched_binary_cross_entropy_with_logits, logits[:, 0], y) for y in (BINARY, SOFT_BINARY)]
    for function, f, y in calls:

        def loss(f: Tensor, y: Tensor, function=function) -> Tensor:
            return function(f, y, alpha_eps=alpha_eps)

        early = first(loss, f, y)
        value, gradient = with_gradient(lambda f, y=y, loss=loss: loss(f, y), f)
        assert value.isfinite()
        assert_close(early.clone().reshape(-1), (gradient if early.shape == f.shape else value).reshape(-1), **EXACT)


# --- derivatives -------------------------------------------------------------------------------------------------


@pairs_first(method=METHODS, reduction=["none", "mean"], kind=KINDS)
def test_first_and_second_derivatives_in_logits(method, reduction, kind):
    y = random_targets(kind, (4, 3))
    twice(
        lambda f: matched_cross_entropy(f, y, alpha_eps=0.3, method=method, reduction=reduction),
        random_logits(4, 3).requires_grad_(),
    )


@each_value(method=BETA_METHODS, y={"hard": BINARY, "soft": SOFT_BINARY})
def test_first_and_second_derivatives_in_binary_logits(method, y):
    twice(
        lambda f: matched_binary_cross_entropy_with_logits(f, y, alpha_eps=0.3, beta_eps=0.2, method=method),
        random_logits(5).requires_grad_(),
    )


@pairs_first(method=MATCHES, alpha={"scalar": ALPHA[0], "per-class": ALPHA}, kind=KINDS)
def test_derivatives_in_alpha_eps(method, alpha, kind):
    y, logits = random_targets(kind, (4, 3)), random_logits(4, 3)
    assert torch.autograd.gradcheck(
        lambda a, f: matched_cross_entropy(f, y, alpha_eps=a, method=method),
        (alpha.clone().requires_grad_(), logits.requires_grad_()),
    )


@each_value(method=BETA_MATCHES, y=BINARY_LABELS)
def test_derivatives_in_binary_concentrations(method, y):
    assert torch.autograd.gradcheck(
        lambda a, b, f: matched_binary_cross_entropy_with_logits(f, y, alpha_eps=a, beta_eps=b, method=method),
        (ALPHA[0].clone().requires_grad_(), ALPHA[1].clone().requires_grad_(), random_logits(5).requires_grad_()),
    )


@each_value(method=METHODS, weight=WEIGHTS)
def test_derivatives_in_probabilities(method, weight):
    logits, y = random_logits(4, 3), random_targets("soft", (4, 3))
    assert torch.autograd.gradcheck(
        lambda p: matched_cross_entropy(logits, p, weight, alpha_eps=0.3, method=method, label_smoothing=0.1),
        y.requires_grad_(),
    )


@beta_methods
def test_derivatives_in_binary_probabilities(method):
    """Those of hard labels, too, which take another way where no derivatives are asked for."""
    logits, y = random_logits(5), SOFT_BINARY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: matched_binary_cross_entropy_with_logits(logits, p, method=method), y)
    y = BINARY.clone().requires_grad_()
    (slope,) = torch.autograd.grad(matched_binary_cross_entropy_with_logits(logits, y, method=method), y)
    inside = y.detach() + 1e-6 * (1.0 - 2.0 * BINARY)  # towards a half
    difference = matched_binary_cross_entropy_with_logits(logits, inside, method=method) - (
        matched_binary_cross_entropy_with_logits(logits, BINARY, method=method)
    )
    assert_close(((inside - BINARY) * slope).sum(), difference, rtol=1e-3, atol=1e-9)


@each_value(method=METHODS, reduction=["mean", "sum"])
def test_function_transforms_agree_with_autograd(method, reduction):
    logits = random_logits(5, 3)

    def loss(f: Tensor, y: Tensor = LABELS) -> Tensor:
        return matched_cross_entropy(f, y, alpha_eps=0.3, method=method, reduction=reduction)

    value, gradient = with_gradient(loss, logits)
    each = matched_cross_entropy(logits, LABELS, alpha_eps=0.3, method=method, reduction="none")
    of_rows = torch.func.vmap(torch.func.grad(loss))(logits, LABELS)
    assert_close(torch.func.grad_and_value(loss)(logits), (gradient, value), **EXACT)
    assert_close(torch.func.jacrev(loss)(logits), gradient, **EXACT)
    assert_close(torch.func.jacfwd(loss)(logits), gradient, **EXACT)
    assert_close(torch.func.vmap(loss)(logits, LABELS), each, **EXACT)
    assert_close(of_rows / (5 if reduction == "mean" else 1), gradient, **EXACT)
    assert_close(torch.func.hessian(loss)(logits), torch.autograd.functional.hessian(loss, logits), **EXACT)


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        *[
            pytest.param(lambda f, y, m=m: matched_cross_entropy(f, y, method=m), random_targets("soft", (5, 3)), id=m)
            for m in METHODS
        ],
        *[
            pytest.param(
                lambda f, y, m=m: matched_binary_cross_entropy_with_logits(f[:, 0], y, method=m), y, id=f"{name}-{m}"
            )
            for m in BETA_METHODS
            for name, y in (("binary", BINARY), ("soft-binary", SOFT_BINARY))
        ],
    ],
)
def test_function_transforms_of_logits_agree_with_autograd(loss, y):
    logits = random_logits(5, 3)
    assert_close(torch.func.grad(lambda f: loss(f, y))(logits), with_gradient(lambda f: loss(f, y), logits)[1], **EXACT)


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        pytest.param(
            lambda f, y: matched_cross_entropy(f, y, reduction="sum"), torch.tensor([0, -100, 1, 2, -100]), id="ignored"
        ),
        pytest.param(matched_cross_entropy, random_targets("soft", (5, 3)), id="soft"),
        pytest.param(lambda f, y: matched_binary_cross_entropy_with_logits(f[0], y), BINARY, id="binary"),
        pytest.param(lambda f, y: matched_binary_cross_entropy_with_logits(f[0], y), BINARY.long(), id="integer"),
        pytest.param(lambda f, y: matched_binary_cross_entropy_with_logits(f[0], y), SOFT_BINARY, id="soft-binary"),
    ],
)
def test_gradients_of_each_row_come_by_vmap(loss, y):
    logits = random_logits(5, 3)
    expected = [
        with_gradient(lambda f, label=label: loss(f, label), row)[1] for row, label in zip(logits, y, strict=True)
    ]
    assert_close(torch.func.vmap(torch.func.grad(loss))(logits, y), torch.stack(expected), **EXACT)


# --- half precision ----------------------------------------------------------------------------------------------

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@each_value(dtype=HALVES, method=METHODS, kind=["index", "soft", "half-soft"])
def test_half_precision_logits_give_the_float32_loss(dtype, method, kind):
    logits, y = random_logits(5, 3).to(dtype), random_targets(kind.removeprefix("half-"), (5, 3))
    if y.is_floating_point():
        y = y.to(dtype if kind == "half-soft" else torch.float32)
    loss, gradient = with_gradient(lambda f: matched_cross_entropy(f, y, WEIGHT.float(), method=method), logits)
    expected = matched_cross_entropy(logits.float(), y, WEIGHT.float(), method=method)
    assert loss.dtype is torch.float32
    assert gradient.dtype is dtype
    assert loss.isfinite()
    assert_close(loss, expected, rtol=1e-6, atol=1e-6)


@each_value(dtype=HALVES, method=BETA_METHODS, y=BINARY_LABELS)
def test_half_precision_binary_logits_give_the_float32_loss(dtype, method, y):
    logits, y = random_logits(5).to(dtype), y.to(dtype) if y.is_floating_point() else y
    loss = matched_binary_cross_entropy_with_logits(logits, y, method=method)
    assert loss.dtype is torch.float32
    assert_close(loss, matched_binary_cross_entropy_with_logits(logits.float(), y.float(), method=method))


@each_value(method=METHODS, reduction=["mean", "sum"])
def test_large_half_precision_logits_do_not_overflow(method, reduction):
    logits = torch.full((5, 3), 1e4, dtype=torch.float16)
    logits[:, 0] *= -1.0
    loss = matched_cross_entropy(logits, LABELS, method=method, reduction=reduction)
    expected = matched_cross_entropy(logits.double(), LABELS, method=method, reduction=reduction)
    assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    if method != "moment-ori":
        y = (logits[:, 0] > 0).long()
        assert matched_binary_cross_entropy_with_logits(logits[:, 0], y, method=method, reduction=reduction).isfinite()


@pairs_first(
    kind=KINDS,
    weight={"equal": None, "weighted": torch.tensor([1.2345, 0.7654, 1.0011])},
    reduction=REDUCTIONS,
)
def test_autocast_does_not_change_the_loss(kind, weight, reduction):
    X, W, y = random_logits(5, 4).float(), random_logits(4, 3).float(), random_targets(kind, (5, 3))
    y = y.float() if kind == "soft" else y
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = X @ W
        loss = matched_cross_entropy(logits, y, weight, reduction=reduction)
    assert logits.dtype is torch.bfloat16
    assert loss.dtype is torch.float32
    assert_close(loss, matched_cross_entropy(logits.float(), y, weight, reduction=reduction))


@each_value(method=BETA_METHODS, y=BINARY_LABELS)
def test_autocast_does_not_change_the_binary_loss(method, y):
    logits = random_logits(5).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = matched_binary_cross_entropy_with_logits(logits, y, WEIGHT[1], WEIGHT[0], method=method)
    expected = matched_binary_cross_entropy_with_logits(logits.float(), y, WEIGHT[1], WEIGHT[0], method=method)
    assert_close(loss, expected, rtol=0, atol=0)


@beta_matches
def test_a_number_beside_a_learnt_concentration_keeps_its_digits(method):
    logits, learnt = random_logits(5).double(), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    fixed = {"beta_eps": 0.3, "method": method}
    loss = matched_binary_cross_entropy_with_logits(logits, BINARY, alpha_eps=learnt, **fixed)
    expected = matched_binary_cross_entropy_with_logits(logits, BINARY, alpha_eps=0.5, **fixed)
    assert_close(loss, expected, rtol=1e-10, atol=0)


@beta_matches
def test_a_learnt_concentration_behind_class_0_may_equal_that_of_class_1(method):
    """Which is a number: the two are not to be taken for one."""
    logits, beta_eps = random_logits(5), torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        loss = matched_binary_cross_entropy_with_logits(logits, BINARY, alpha_eps=0.1, beta_eps=beta_eps, method=method)
        fixed = {"alpha_eps": 0.1, "beta_eps": beta_eps.item(), "method": method}
        assert_close(loss, matched_binary_cross_entropy_with_logits(logits, BINARY, **fixed), rtol=1e-7, atol=0)
        (slope,) = torch.autograd.grad(loss, beta_eps)
        assert slope != 0.0
        with torch.no_grad():
            beta_eps.fill_(2.0)


@pytest.mark.parametrize("make", [np.float32, torch.tensor], ids=["numpy", "tensor"])
def test_smoothing_may_be_any_number(make):
    logits = random_logits(5, 3)
    own, expected = (matched_cross_entropy(logits, LABELS, label_smoothing=value) for value in (make(0.25), 0.25))
    assert_close(own, expected, **EXACT)


# --- bad input ---------------------------------------------------------------------------------------------------

LOGITS, SOFT = torch.zeros(5, 3), torch.full((5, 3), 1 / 3)


def check_refused(call, *expected: str) -> None:
    """Each part of the message must be there, in this order: which argument, of whom, what is allowed, what came."""
    with pytest.raises(InvalidArgumentError, match=".*".join(re.escape(part) for part in expected)):
        call()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((LOGITS, LABELS), {"method": "laplce"}, ("'method'", "'moment-ori'", "got 'laplce'")),
        ((LOGITS, LABELS), {"reduction": "max"}, ("'reduction'", "'none', 'mean', 'sum'; got 'max'")),
        ((LOGITS, LABELS), {"alpha_eps": -0.1}, ("'alpha_eps'", "positive; got -0.1")),
        ((LOGITS, LABELS), {"alpha_eps": 0}, ("'alpha_eps'", "positive; got 0")),
        ((LOGITS, LABELS), {"alpha_eps": math.inf}, ("'alpha_eps'", "finite; got inf")),
        ((LOGITS, LABELS), {"alpha_eps": [0.1, -0.2, 0.1]}, ("'alpha_eps'", "positive; got -0.2 at index 1")),
        ((LOGITS, LABELS), {"alpha_eps": [0.1, 0.2]}, ("'alpha_eps'", "length 3; got shape (2,)")),
        ((LOGITS, LABELS), {"label_variance": 0.0, "method": "gauss"}, ("'label_variance'", "positive; got 0")),
        ((LOGITS, LABELS), {"label_smoothing": -0.1}, ("'label_smoothing'", "from 0 to 1; got -0.1")),
        ((LOGITS, LABELS), {"label_smoothing": 1.1}, ("'label_smoothing'", "from 0 to 1; got 1.1")),
        ((LOGITS, LABELS), {"label_smoothing": math.nan}, ("'label_smoothing'", "from 0 to 1; got nan")),
        ((LOGITS, LABELS + 1), {}, ("Labels given to matched_cross_entropy", "from 0 to 2; got 3 at index 1")),
        ((LOGITS, LABELS - 1), {}, ("Labels given to matched_cross_entropy", "got -1 at index 0")),
        ((LOGITS, LABELS - 1), {"alpha_eps": ALPHA}, ("Labels given to matched_cross_entropy", "got -1 at index 0")),
        ((LOGITS, LABELS + 1, torch.ones(3)), {}, ("Labels given to matched_cross_entropy", "got 3 at index 1")),
        ((LOGITS, LABELS + 1), {"reduction": "none", "ignore_index": 1}, ("Labels given to", "got 3 at index 1")),
        ((LOGITS, LABELS[:4]), {}, ("'target'", "shape (5,)", "got torch.int64 of shape (4,)")),
        ((LOGITS, LABELS > 0), {}, ("'target'", "class indices", "got torch.bool")),
        (
            (LOGITS, LABELS.double()),
            {},
            ("'target'", "of shape (5, 3)", "got shape (5,)", "Class indices are integers"),
        ),
        ((LOGITS, SOFT[:, :2]), {}, ("'target'", "of shape (5, 3)", "got shape (5, 2)")),
        ((LOGITS, SOFT - 0.5), {}, ("'target'", "at least 0", "at index (0, 0)")),
        ((LOGITS, SOFT * math.nan), {}, ("'target'", "finite; got nan at index (0, 0)")),
        ((LOGITS, SOFT * math.inf), {}, ("'target'", "finite; got inf at index (0, 0)")),
        ((LOGITS, SOFT - 0.4), {"alpha_eps": 0.1}, ("'target'", "at least 0", "at index (0, 0)")),  # still above -0.1
        ((LOGITS, LABELS), {"label_smoothing": "a"}, ("'label_smoothing'", "from 0 to 1; got 'a'")),
        ((LOGITS, SOFT - 0.5), {"method": "gauss"}, ("'target'", "at least 0", "at index (0, 0)")),
        ((LOGITS, LABELS, torch.ones(2)), {}, ("'weight'", "shape (3,)", "of shape (2,)")),
        ((LOGITS, LABELS, torch.ones(3) + 0j), {}, ("'weight'", "real", "complex64")),
        ((LOGITS, SOFT, torch.ones(())), {}, ("'weight'", "shape (3,)", "of shape ()")),
        ((LOGITS[:, :1], LABELS * 0), {}, ("'input'", "c >= 2", "shape (5, 1)")),
        ((LOGITS[0, 0], LABELS[0]), {}, ("'input'", "(c,), (n, c) or (n, c, ...)", "shape ()")),
        ((LOGITS.long(), LABELS), {}, ("'input'", "must be logits", "torch.int64")),
        ((LOGITS, SOFT * 0.0), {"method": "gauss"}, ("'row sums of target'", "at least 1e-30", "at index 0")),
    ],
)
def test_class_arguments_are_checked(arguments, options, message):
    check_refused(lambda: matched_cross_entropy(*arguments, **options), *message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "laplce"}, ("'method'", "'laplace'", "got 'laplce'")),
        ({"method": "moment-ori"}, ("'method'", "'laplace'", "got 'moment-ori'")),
        ({"reduction": "max"}, ("'reduction'", "'none', 'mean', 'sum'; got 'max'")),
        ({"alpha_eps": -0.1}, ("'alpha_eps'", "positive; got -0.1")),
        ({"beta_eps": -0.1}, ("'beta_eps'", "positive; got -0.1")),
        ({"beta_eps": [0.1, 0.2]}, ("'beta_eps'", "must be a number; got shape (2,)")),
        ({"label_variance": -1.0, "method": "gauss"}, ("'label_variance'", "positive; got -1")),
    ],
)
def test_binary_arguments_are_checked(options, message):
    check_refused(lambda: matched_binary_cross_entropy_with_logits(LOGITS[:, 0], BINARY, **options), *message)


@each_value(
    method=BETA_METHODS,
    wrong={
        "above": (BINARY * 1.5, ("at most 1; got 1.5 at index 0",)),
        "below": (BINARY - 0.5, ("at least 0; got -0.5 at index 1",)),
        "nan": (BINARY * math.nan, ("finite; got nan at index 0",)),
        "inf": (BINARY.where(BINARY == 0.0, math.inf), ("finite; got inf at index 0",)),
        "inf-single": (BINARY.float().where(BINARY == 0.0, math.inf), ("finite; got inf at index 0",)),
        "two": (BINARY.long() * 2, ("at most 1; got 2 at index 0",)),
        "minus-one": (BINARY.long() * -1, ("at least 0; got -1 at index 0",)),
        "shape": (BINARY[:4], ("shape of 'input', (5,); got (4,)",)),
    },
)
def test_binary_targets_are_checked(method, wrong):
    y, message = wrong
    check_refused(
        lambda: matched_binary_cross_entropy_with_logits(LOGITS[:, 0], y, method=method), "'target'", *message
    )


@pytest.mark.parametrize(("method", "alpha_eps"), [("variational", 1e18), ("moment", 1e-20), ("moment", 1e-30)])
def test_the_loss_of_a_row_does_not_depend_on_how_many_there_are(method, alpha_eps):
    """Also where squares, or sums of them, leave the range of float32 on the way."""
    few, many = (
        matched_cross_entropy(torch.zeros(n, 10), torch.zeros(n).long(), alpha_eps=alpha_eps, method=method)
        for n in (8, 5000)
    )
    exact = matched_cross_entropy(
        torch.zeros(8, 10).double(), torch.zeros(8).long(), alpha_eps=alpha_eps, method=method
    )
    assert_close(few.double(), exact, rtol=1e-5, atol=0.0)
    assert_close(many, few, rtol=1e-5, atol=0.0)


def test_binary_logits_must_be_floating_point():
    """Labels take the dtype of the logits: those between 0 and 1 would lose what is behind the point."""
    check_refused(lambda: matched_binary_cross_entropy_with_logits(LOGITS[:, 0].long(), SOFT_BINARY), "'input'")


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_binary_factors_broadcast_to_logits_and_no_further(name):
    logits, target = torch.zeros(4), torch.ones(4)
    loss = matched_binary_cross_entropy_with_logits
    for wrong in (torch.ones(4, 1), torch.ones(3), torch.ones(2, 4)):
        with pytest.raises(InvalidArgumentError, match=rf"'{name}'.*broadcast to the shape of 'input', \(4,\); got"):
            loss(logits, target, **{name: wrong})
    double = loss(logits, target, **{name: torch.full((1,), 2.0, dtype=torch.float64)})
    assert double.dtype is torch.float32
    assert double.item() == pytest.approx(2.0 * loss(logits, target).item())


def test_soft_binary_labels_that_repeat_are_matched_once_each():
    labels = torch.tensor([0.1, 0.9, 0.1, 0.5]).repeat(100)
    repeated = matched_binary_cross_entropy_with_logits(torch.zeros(400), labels, reduction="none")
    alone = [matched_binary_cross_entropy_with_logits(torch.zeros(()), label) for label in labels[:4]]
    torch.testing.assert_close(repeated[:4], torch.stack(alone))


@pytest.mark.parametrize("alpha_eps", [1e-20, 1e-17])
@pytest.mark.parametrize("method", ["variational", "laplace"])
def test_binary_loss_does_not_overflow_for_tiny_alpha_eps(method, alpha_eps):
    logits, labels = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.0, 0.0])
    options = {"alpha_eps": alpha_eps, "method": method}
    loss = matched_binary_cross_entropy_with_logits(logits, labels, **options)
    expected = matched_binary_cross_entropy_with_logits(logits.double(), labels.double(), **options)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("name", ["alpha_eps", "label_variance"])
@pytest.mark.parametrize(
    ("loss", "batch"),
    [
        (matched_cross_entropy, (torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))),
        (matched_binary_cross_entropy_with_logits, (torch.zeros(4), torch.ones(4))),
    ],
    ids=["classes", "binary"],
)
def test_parameters_that_are_not_numbers_are_refused(loss, batch, name):
    with pytest.raises(InvalidArgumentError, match=f"'{name}' parameter of {loss.__name__} must be finite; got nan"):
        loss(*batch, **{name: math.nan})
