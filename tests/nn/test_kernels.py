"""Kernels in C against the same losses by torch's operations, and whatever must not reach them."""

import math
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from gaussify.exceptions import InvalidArgumentError
from gaussify.nn import _fused, _operators, functional
from gaussify.nn.functional import matched_binary_cross_entropy_with_logits, matched_cross_entropy

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 1e-5, "atol": 1e-5}
METHODS = ["variational", "laplace", "moment", "moment-ori"]


class OwnTensor(Tensor):
    """Of which the operations may be anything."""


needs_kernels = pytest.mark.skipif(not _fused.HAS_KERNELS, reason="gaussify was installed without a C compiler")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def targets(kind: str, n: int, c: int, dtype: torch.dtype) -> Tensor:
    labels = torch.randint(c, (n,), generator=torch.Generator().manual_seed(1))
    return {
        "labels": labels,
        "ignored": torch.where(labels == 0, -100, labels),
        "probabilities": random(n, c, seed=2).softmax(-1).to(dtype),
        "counts": (5.0 * random(n, c, seed=2).abs()).floor().to(dtype),
        "binary": (random(n, c, seed=3) > 0.0).to(dtype),
        "soft binary": random(n, c, seed=3).sigmoid().to(dtype),
    }[kind.split(",")[0]]


def weights(kind: str, logits: Tensor) -> dict[str, Tensor]:
    """Of classes; of binary labels, one for each row and one for each column of labels 1."""

    def some(*shape: int) -> Tensor:
        return torch.linspace(0.3, 1.9, math.prod(shape), dtype=logits.dtype, device="cpu").reshape(shape)

    n, c = logits.shape
    return {"weight": some(n, 1), "pos_weight": some(c)} if "binary" in kind else {"weight": some(c)}


def loss_of(kind: str):
    """The mean; or another form of the loss, of which rows are put together with different factors."""
    function = matched_binary_cross_entropy_with_logits if "binary" in kind else matched_cross_entropy
    if "," not in kind:
        return function
    form = kind.split(", ")[1]

    def loss(logits: Tensor, y: Tensor, **options) -> Tensor:
        if "weighted" in form:
            options = weights(kind, logits) | options
        if "rows" not in form:
            return function(logits, y, reduction="sum" if "sum" in form else "mean", **options)
        losses = function(logits, y, reduction="none", **options)
        factors = torch.linspace(0.2, 1.3, losses.numel(), dtype=losses.dtype, device="cpu")
        return (losses * factors.reshape(losses.shape)).sum()

    return loss


def with_gradient(loss, logits: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = loss(logits)
    return value.detach(), torch.autograd.grad(value, logits)[0]


@pytest.fixture
def no_kernels(monkeypatch):
    """A switch to torch's operations."""
    return lambda: monkeypatch.setattr(_fused, "HAS_KERNELS", False)


@pytest.fixture
def kernels_alone(monkeypatch):
    """Nothing but kernels, whatever comes."""
    for name in ("_cross_entropy", "_binary_cross_entropy"):
        monkeypatch.setattr(functional, name, lambda *_: pytest.fail("no kernel was called"))


KINDS = ["labels", "ignored", "probabilities", "counts", "binary", "soft binary"]
FORMS = ["sum", "weighted", "weighted sum", "rows", "weighted rows"]
kinds = pytest.mark.parametrize("kind", KINDS + [f"{kind}, weighted rows" for kind in KINDS], ids=lambda kind: kind)
all_kinds = pytest.mark.parametrize(
    "kind", KINDS + [f"{kind}, {form}" for kind in KINDS for form in FORMS], ids=lambda kind: kind
)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")
def test_kernels_are_built_where_there_is_a_compiler():
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("Python's headers are not here")
    assert _fused.HAS_KERNELS


@needs_kernels
@all_kinds
@dtypes
@pytest.mark.parametrize("method", [*METHODS, "gauss"])
@pytest.mark.parametrize(("n", "c"), [(7, 3), (40, 2100), (3000, 17)], ids=["few", "wide", "long"])
def test_kernels_equal_operations(kind, dtype, method, n, c, no_kernels):
    if "binary" in kind and method == "moment-ori":
        pytest.skip("binary labels have no such method")
    logits, y = 3.0 * random(n, c, dtype=dtype), targets(kind, n, c, dtype)
    if kind.startswith("counts") and method == "gauss":
        y = y + 1.0  # no row without counts

    def loss(logits: Tensor) -> Tensor:
        return loss_of(kind)(logits, y, alpha_eps=0.3, method=method, label_variance=0.7)

    fused = with_gradient(loss, logits)
    no_kernels()
    expected = with_gradient(loss, logits)
    for own, other in zip(fused, expected, strict=True):  # small derivatives have the errors of large logits
        tolerance = 1e-10 if dtype is torch.float64 else 1e-5
        assert_close(own, other, rtol=tolerance, atol=0.1 * tolerance * max(1.0, other.abs().max().item()))


@needs_kernels
@pytest.mark.parametrize("label_smoothing", [0.3, 1.0])
@pytest.mark.parametrize("kind", [f"{kind}, {form}" for kind in KINDS[:4] for form in FORMS], ids=lambda kind: kind)
@pytest.mark.parametrize("method", ["variational", "gauss"])
def test_smoothed_kernels_equal_operations(kind, label_smoothing, method, no_kernels):
    logits, y = random(7, 5), targets(kind, 7, 5, torch.float64)
    if y.is_floating_point():
        y = y + 0.25

    def loss(logits: Tensor) -> Tensor:
        return loss_of(kind)(logits, y, label_smoothing=label_smoothing, method=method)

    fused = with_gradient(loss, logits)
    no_kernels()
    assert_close(fused, with_gradient(loss, logits), **EXACT)


@needs_kernels
@all_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", ["variational", "gauss"])
def test_kernels_serve_every_form_of_losses(kind, dtype, method, kernels_alone):
    logits, y = random(6, 4, dtype=dtype), targets(kind, 6, 4, dtype)
    if y.is_floating_point() and "binary" not in kind:
        y = y + 1.0
    assert with_gradient(lambda f: loss_of(kind)(f, y, method=method), logits)[1].isfinite().all()


def as_planes(rows: Tensor, n: int, shape: tuple[int, ...]) -> Tensor:
    """From rows (n * inner, c) to (n, c, *shape), contiguous; from labels of rows to (n, *shape)."""
    if rows.ndim == 1:
        return rows.reshape(n, *shape)
    return rows.reshape(n, *shape, rows.shape[1]).movedim(-1, 1).contiguous()


def planes(kind: str, n: int, c: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Logits and labels as rows, and the same as planes."""
    n_rows = n * math.prod(shape)
    y = targets(kind, n_rows, c, dtype)
    y = y + 1.0 if kind.startswith("counts") else y  # no row without counts
    rows = 3.0 * random(n_rows, c, dtype=dtype), y
    return [rows, tuple(as_planes(part, n, shape) for part in rows)]


of_classes = pytest.mark.parametrize(
    "kind", KINDS[:4] + [f"{kind}, {form}" for kind in KINDS[:4] for form in FORMS], ids=lambda kind: kind
)


@needs_kernels
@of_classes
@dtypes
@pytest.mark.parametrize("method", [*METHODS, "gauss"])
@pytest.mark.parametrize(
    ("n", "c", "shape", "label_smoothing"),
    [(2, 3, (9,), 0.3), (3, 600, (11,), 0.0), (5, 17, (30, 25), 0.3), (2, 3, (2, 2), 0.0)],
    ids=["few", "wide", "long", "short"],
)
def test_planes_of_logits_have_the_losses_of_their_rows(
    kind, dtype, method, n, c, shape, label_smoothing, kernels_alone
):
    def loss(logits: Tensor, y: Tensor) -> Tensor:
        options = {"alpha_eps": 0.3, "method": method, "label_smoothing": label_smoothing, "label_variance": 0.7}
        if "weighted" in kind:
            options["weight"] = torch.linspace(0.3, 1.9, c, dtype=dtype)
        if "rows" not in kind:
            return matched_cross_entropy(logits, y, reduction="sum" if "sum" in kind else "mean", **options)
        losses = matched_cross_entropy(logits, y, reduction="none", **options)
        assert losses.shape == (logits.shape[:1] + logits.shape[2:])
        return (losses * torch.linspace(0.2, 1.3, losses.numel(), dtype=dtype).reshape(losses.shape)).sum()

    rows, as_given = planes(kind, n, c, shape, dtype)
    expected, expected_slope = with_gradient(lambda logits: loss(logits, rows[1]), rows[0])
    value, slope = with_gradient(lambda logits: loss(logits, as_given[1]), as_given[0])
    tolerance = 1e-12 if dtype is torch.float64 else 1e-6
    assert_close(value, expected, rtol=tolerance, atol=0.0)
    assert_close(slope, as_planes(expected_slope, n, shape), rtol=10 * tolerance, atol=tolerance)


@needs_kernels
@of_classes
def test_channels_may_be_last_in_memory(kind, kernels_alone):
    _, (logits, y) = planes(kind, 2, 3, (4, 5), torch.float32)
    reduction = "none" if "rows" in kind else "mean"

    def loss(logits: Tensor) -> Tensor:
        return matched_cross_entropy(logits, y, reduction=reduction).square().sum()

    expected, expected_slope = with_gradient(loss, logits)
    value, slope = with_gradient(loss, logits.to(memory_format=torch.channels_last))
    assert_close(value, expected)
    assert_close(slope, expected_slope)
    assert slope.is_contiguous(memory_format=torch.channels_last)


@needs_kernels
@pytest.mark.parametrize("kind", ["ignored", "counts", "counts, weighted", "labels, weighted"])
def test_planes_do_not_depend_on_the_number_of_threads(kind):
    _, (logits, y) = planes(kind, 3, 21, (70, 50), torch.float32)
    options = {"weight": torch.linspace(0.3, 1.9, 21)} if "weighted" in kind else {}
    n_threads = torch.get_num_threads()
    values = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            values.append(with_gradient(lambda logits: matched_cross_entropy(logits, y, **options), logits))
    finally:
        torch.set_num_threads(n_threads)
    for value, slope in values[1:]:
        assert torch.equal(value, values[0][0])
        assert torch.equal(slope, values[0][1])


@pytest.mark.parametrize("kind", ["labels", "counts"])
def test_a_wrong_label_in_a_plane_is_an_error(kind):
    _, (logits, y) = planes(kind, 3, 21, (70, 50), torch.float32)
    y[2, ..., 60, 30] = -1
    for options in ({}, {"weight": torch.ones(21)}, {"reduction": "none"}):
        with pytest.raises(InvalidArgumentError, match=r"Labels|target"):
            matched_cross_entropy(logits, y, **options)


@needs_kernels
@pytest.mark.parametrize("name", ["weight", "pos_weight"])
@pytest.mark.parametrize(
    "make",
    [
        lambda w: w[0, 0, 0],
        lambda w: w[0, :1, 0],
        lambda w: w[0, 0],
        lambda w: w[0],
        lambda w: w[:1],
        lambda w: w[:, :1],
        lambda w: w[:, :, :1],
        lambda w: w[:, :1, :1],
        lambda w: w,
        lambda w: w.movedim(0, -1).contiguous().movedim(-1, 0),
        lambda w: (10 * w).long(),
        lambda w: w.half(),
        lambda w: torch._neg_view(-w),
        lambda w: w.as_subclass(OwnTensor),
        torch.nn.Parameter,
    ],
    ids=[
        *("number", "one", "row", "matrix", "first", "columns", "rows", "blocks", "all", "transposed"),
        *("integers", "half", "negated", "subclass", "learnt"),
    ],
)
def test_binary_weights_of_any_kind_equal_operations(name, make, no_kernels):
    logits, y, weight = random(5, 70, 9), targets("soft binary", 5, 630, torch.float64).reshape(5, 70, 9), None
    weight = make(random(5, 70, 9, seed=4).abs())

    def loss(logits: Tensor) -> Tensor:
        return matched_binary_cross_entropy_with_logits(logits, y, **{name: weight})

    fused = with_gradient(loss, logits)
    no_kernels()
    expected = with_gradient(loss, logits)
    assert_close([part.as_subclass(Tensor) for part in fused], [part.as_subclass(Tensor) for part in expected], **EXACT)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("shape", [(1, 1, 4), (5,), (6,), (0,), (2, 6, 4)], ids=str)
def test_weights_of_other_shapes_are_refused(shape, reduction):
    logits, weight = random(6, 4), torch.ones(shape)
    for name in ("weight", "pos_weight"):
        with pytest.raises(InvalidArgumentError, match=rf"'{name}' of .* that broadcast"):
            matched_binary_cross_entropy_with_logits(logits, logits.sigmoid(), **{name: weight}, reduction=reduction)
    for target in (torch.zeros(6).long(), logits.softmax(-1)):
        with pytest.raises(InvalidArgumentError, match=r"'weight' of .* must have shape"):
            matched_cross_entropy(logits, target, weight, reduction=reduction)


@needs_kernels
@kinds
def test_derivatives_flow_to_weights_that_are_learnt(kind):
    logits, y = random(6, 4), targets(kind, 6, 4, torch.float64)
    learnt = {name: weight.requires_grad_() for name, weight in weights(kind, logits).items()}
    plain = loss_of(kind.split(",")[0])
    loss = plain(logits, y, **learnt, reduction="sum")
    gradients = torch.autograd.grad(loss, list(learnt.values()))
    total = sum((gradient * weight).sum() for gradient, weight in zip(gradients, learnt.values(), strict=True))
    assert all(gradient.abs().sum() > 0.0 for gradient in gradients)
    if "binary" not in kind:
        assert_close(total, loss.detach(), **EXACT)  # which is linear in them


@kinds
def test_weights_may_change_between_forward_and_backward(kind):
    """In memory that torch does not watch."""
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    factors = weights(kind, logits)
    plain = loss_of(kind.split(",")[0])
    expected = with_gradient(lambda f: plain(f, y, **factors), logits)[1]
    loss = plain(logits, y, **factors)
    for factor in factors.values():
        factor.numpy()[:] = 77
    assert_close(torch.autograd.grad(loss, logits)[0], expected, **EXACT)


@needs_kernels
def test_weights_that_sum_to_nothing_give_no_number():
    logits, y = random(6, 4), targets("labels", 6, 4, torch.float64)
    assert matched_cross_entropy(logits, y, torch.zeros(4)).isnan()
    assert matched_cross_entropy(logits, y, torch.zeros(4), reduction="sum") == 0.0


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_weights_of_classes_that_no_label_has_do_not_count(number, no_kernels):
    """Class 0 belongs to ignored rows alone, class 3 to none."""
    logits, y = random(6, 4), torch.tensor([1, 2, -100, 1, -100, 2])
    weight, others = torch.tensor([number, 0.5, 2.0, number]).double(), torch.tensor([1.0, 0.5, 2.0, 1.0]).double()
    expected = with_gradient(lambda f: matched_cross_entropy(f, y, others), logits)
    for switch in (lambda: None, no_kernels):
        switch()
        assert_close(with_gradient(lambda f: matched_cross_entropy(f, y, weight), logits), expected, **EXACT)


@needs_kernels
@kinds
def test_backward_leaves_alone_what_others_keep(kind):
    """Hooks may give the same tensor to several graphs."""
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        loss = loss_of(kind)(logits, y)
    before = [tensor.clone() for tensor in kept]
    torch.autograd.grad(2.0 * loss, logits)
    assert_close(kept, before, rtol=0.0, atol=0.0)


@needs_kernels
def test_least_squares_needs_counts_in_each_row():
    counts = torch.ones(6, 4)
    counts[3] = 0.0
    with pytest.raises(InvalidArgumentError, match="row sums of target"):
        matched_cross_entropy(torch.zeros(6, 4), counts, method="gauss")


@all_kinds
def test_second_derivatives_are_those_of_operations(kind):
    logits, y = random(4, 3).requires_grad_(), targets(kind, 4, 3, torch.float64)
    assert torch.autograd.gradgradcheck(lambda f: loss_of(kind)(f, y), logits)


@needs_kernels
@settings(max_examples=100)
@given(
    concentration=st.floats(math.log(1e-10), math.log(1e10)).map(math.exp),
    count=st.floats(math.log(1e-12), math.log(1e12)).map(math.exp) | st.just(0.0),
    logit=st.floats(-50.0, 50.0),
    method=st.sampled_from(METHODS),
)
def test_counts_of_any_size_have_the_digits_of_their_precision(concentration, count, logit, method):
    """The sum of two logits, one with the count and one without, against operations in double precision."""
    logits, counts = torch.tensor([[logit, -logit]]).double(), torch.tensor([[count, 0.0]]).double()
    options = {"alpha_eps": concentration, "method": method}
    exact = functional._cross_entropy(logits, counts, concentration, method, -100, "sum", 0.0, 1.0)
    assert_close(matched_cross_entropy(logits, counts, **options), exact, rtol=1e-9, atol=1e-9)
    single = matched_cross_entropy(logits.float(), counts.float(), **options).double()
    assert_close(single, exact, rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS + [f"{kind}, weighted" for kind in KINDS], ids=lambda kind: kind)
def test_values_do_not_depend_on_the_number_of_threads(kind):
    logits, y = random(600, 300, dtype=torch.float32), targets(kind, 600, 300, torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            found.append(with_gradient(lambda f: loss_of(kind)(f, y), logits))
    finally:
        torch.set_num_threads(before)
    assert_close(found[0], found[1], rtol=0.0, atol=0.0)
    assert_close(found[0], found[2], rtol=0.0, atol=0.0)


@kinds
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T.contiguous().T,
        lambda x: torch.stack([x, x], -1)[..., 1],
        lambda x: torch._neg_view(-x),  # whose sign is not in memory
        lambda x: x.as_subclass(OwnTensor),
        torch.nn.Parameter,
    ],
    ids=["transposed", "strided", "negated", "subclass", "parameter"],
)
def test_tensors_of_any_kind_give_the_same(kind, view):
    logits, y = random(6, 4), targets(kind, 6, 4, torch.float64)
    expected = loss_of(kind)(logits, y)
    actual = loss_of(kind)(view(logits), view(y) if y.is_floating_point() else y)
    assert_close(actual.detach().as_subclass(Tensor), expected, **EXACT)


def test_rows_that_share_memory_give_the_same():
    row = random(1, 4)
    expected = matched_cross_entropy(row.repeat(5, 1), torch.zeros(5).long())
    assert_close(matched_cross_entropy(row.expand(5, 4), torch.zeros(1).long().expand(5)), expected, **EXACT)


@kinds
def test_a_traced_loss_is_a_function_of_its_inputs(kind):
    """Not the number that the traced call had: whoever watches operations sees those of torch."""
    logits, y = random(6, 4), targets(kind, 6, 4, torch.float64)
    graph = make_fx(lambda f: loss_of(kind)(f, y))(logits)
    assert_close(graph(logits + 1.0), loss_of(kind)(logits + 1.0, y), **EXACT)


@needs_kernels
@kinds
def test_a_graph_that_is_kept_gives_its_derivative_again(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    loss = loss_of(kind)(logits, y)
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    expected = first.clone()
    first.zero_()
    (second,) = torch.autograd.grad(-2.0 * loss, logits)
    assert_close(second, -2.0 * expected, **EXACT)


@kinds
def test_a_loss_of_no_consequence_has_no_graph(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    with torch.no_grad():
        assert not loss_of(kind)(logits, y).requires_grad
    assert not loss_of(kind)(logits.detach(), y).requires_grad


needs_operation = pytest.mark.skipif(not _operators.HAS_OPERATION, reason="this torch or installation has no operation")


def operation(kind: str, logits: Tensor, y: Tensor, method: str, reduction: str, **weights: Tensor) -> list[Tensor]:
    """Loss and derivative by the operation of compiled graphs."""
    form = "binary" if "binary" in kind else "counts" if y.is_floating_point() else "labels"
    options = _operators._FORMS[form], _fused.KINDS[method], _operators._REDUCTIONS[reduction], -100, 0.2, 0.3
    given = ("weight" in weights) + 2 * ("pos_weight" in weights)
    own = [weights.get(name, logits) for name in ("weight", "pos_weight")]
    return torch.ops.gaussify.loss(logits, y, *own, given, *options)


@needs_operation
@pytest.mark.parametrize("shape", [(7, 4), (9, 300), (3, 4, 6), (5, 4, 1)], ids=str)
@dtypes
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("method", ["variational", "moment"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_operation_of_compiled_graphs_equals_the_loss(kind, method, is_weighted, reduction, dtype, shape):
    binary = "binary" in kind
    logits, n_rows = random(*shape, dtype=dtype), math.prod(shape) // shape[1]
    y = targets(kind, n_rows, shape[1], dtype)
    y = y.unflatten(0, (shape[0], -1)) if len(shape) == 3 else y
    y = y.movedim(-1, 1).contiguous() if y.ndim == len(shape) and y.is_floating_point() else y
    factors = {}
    if is_weighted:
        names = ("weight", "pos_weight") if binary else ("weight",)
        size = shape[-1] if binary else shape[1]  # those of binary labels are of the last dimension
        factors = {name: torch.linspace(0.3, 1.9, size, dtype=dtype) for name in names}
    options = {"alpha_eps": 0.2, "method": method, "reduction": reduction, **factors}
    if binary:
        options["beta_eps"] = 0.3
    expected = loss_of(kind)(logits, y, **options)
    slope = with_gradient(lambda own: loss_of(kind)(own, y, **options).sum(), logits)[1]
    value, own_slope = operation(kind, logits, y, method, reduction, **factors)
    assert_close((value, own_slope), (expected, slope), **(EXACT if dtype is torch.float64 else SINGLE))


@needs_operation
@pytest.mark.parametrize(
    "spoil",
    [
        lambda logits, y: (logits.T.contiguous().T, y),
        lambda logits, y: (logits, y.T.contiguous().T),
        lambda logits, y: (logits, y[:5]),
        lambda logits, y: (logits, y.float()),
        lambda logits, y: (logits.half(), y.half()),
        lambda logits, y: (logits, y - 2.0),
    ],
    ids=["logits in another order", "targets in another order", "few targets", "other numbers", "half", "no targets"],
)
@pytest.mark.parametrize("kind", ["probabilities", "binary"])
def test_the_operation_gives_no_number_for_what_it_is_not_for(kind, spoil):
    logits, y = spoil(random(6, 4), targets(kind, 6, 4, torch.float64))
    assert all(part.isnan().all() for part in operation(kind, logits, y, "variational", "mean"))


@needs_operation
def test_the_operation_gives_no_number_for_weights_that_do_not_fit():
    logits, y = random(6, 4), targets("labels", 6, 4, torch.float64)
    for weight in (torch.ones(3).double(), torch.ones(4)):
        assert operation("labels", logits, y, "variational", "mean", weight=weight)[0].isnan()


@needs_operation
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell how much memory is taken")
def test_the_operations_keep_no_tensors():
    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    def call():
        logits, counts, factors = (torch.rand(500, 2000) for _ in range(3))  # 4 MB each
        _, slope = operation("probabilities", logits, counts, "laplace", "none")
        torch.ops.gaussify.scaled(slope, factors)

    for _ in range(5):
        call()
    before = pages()
    for _ in range(40):
        call()
    assert (pages() - before) * os.sysconf("SC_PAGE_SIZE") < 40e6


@needs_operation
@dtypes
@pytest.mark.parametrize("shape", [(7, 4), (40, 3, 5), (3, 50_000), (50_000,)], ids=str)
def test_derivatives_are_scaled_by_one_factor_or_by_those_of_rows_or_logits(shape, dtype):
    slope, scaled = random(*shape, dtype=dtype), torch.ops.gaussify.scaled
    factors = [torch.tensor(3.0, dtype=dtype), random(*shape, seed=1, dtype=dtype)]
    if len(shape) > 1:
        factors.append(random(shape[0], *shape[2:], seed=2, dtype=dtype))
    for own in factors:
        expected = slope * (own.unsqueeze(1) if 0 < own.ndim < slope.ndim else own)
        assert_close(scaled(slope, own), expected, rtol=0, atol=0)
    assert scaled(slope, random(5, dtype=dtype)).isnan().all()
    assert scaled(slope, factors[1].half()).isnan().all()


@needs_operation
def test_an_error_while_options_are_looked_up_reaches_whoever_compiles(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_operators.LabelGaussians, "of_smoothed", stop)
    with pytest.raises(KeyboardInterrupt):
        _operators.compiled_class_loss(
            random(6, 4), targets("labels", 6, 4, torch.float64), None, 0.123456, "laplace", -100, "mean"
        )


OUT_OF_MEMORY = """
import resource, torch
from gaussify.nn import _operators
n = 20_000_000
x = torch.zeros(n)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int({room} * 4 * n), resource.RLIM_INFINITY))
loss, slope = torch.ops.gaussify.loss(x, x, x, x, 0, 2, 0, 2, 0, 0.1, 0.1)
print(loss.isnan().all().item())
"""


@needs_operation
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory in use is told by Linux")
@pytest.mark.parametrize("room", [0.5, 1.5])
def test_the_operation_writes_nowhere_else_when_there_is_no_memory(room):
    program = [sys.executable, "-c", OUT_OF_MEMORY.format(room=room)]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "True", run.stderr


@needs_operation
def test_the_operation_of_no_logits_is_that_of_an_empty_sum():
    logits, y = random(0, 4), targets("labels", 0, 4, torch.float64)
    sizes = {"sum": 0.0, "mean": math.nan}
    for reduction, expected in sizes.items():
        value, slope = operation("labels", logits, y, "variational", reduction)
        assert_close(value, torch.tensor(expected).double(), equal_nan=True)
        assert slope.shape == logits.shape
    assert operation("labels", logits, y, "variational", "none")[0].shape == (0,)


@needs_operation
def test_the_operation_is_one_that_compilers_can_trace():
    logits, y = random(6, 4), targets("soft binary", 6, 4, torch.float64)
    given = logits, y, logits, logits, 0, _operators._FORMS["binary"], 0, 2, 0, 0.2, 0.3
    torch.library.opcheck(torch.ops.gaussify.loss.default, given)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@kinds
def test_backward_can_be_traced_and_its_tensors_stored_in_any_way(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]

    def transposed(tensor: Tensor) -> Tensor:
        return tensor.T.contiguous().T if tensor.ndim == 2 else tensor

    with torch.autograd.graph.saved_tensors_hooks(transposed, transposed):
        loss = loss_of(kind)(logits, y)
    graph = make_fx(lambda grad: torch.autograd.grad(loss, logits, grad, retain_graph=True)[0])(torch.tensor(1.0))
    assert_close(graph(torch.tensor(3.0)), 3.0 * expected, **EXACT)


@kinds
def test_a_loss_that_backward_began_with_may_be_traced(kind):
    """Where the number one is not to become a part of the graph."""
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    loss = loss_of(kind)(logits, y)
    graph = make_fx(lambda grad: torch.autograd.grad(loss, logits, grad)[0])(torch.tensor(1.0).double())
    assert_close(graph(torch.tensor(3.0).double()), 3.0 * expected, **EXACT)


@kinds
def test_derivatives_of_many_at_once(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    loss, factors = loss_of(kind)(logits, y), torch.tensor([1.0, 2.0]).double()
    (found,) = torch.autograd.grad(loss, logits, factors, is_grads_batched=True)
    assert_close(found, factors[:, None, None] * expected, **EXACT)


@needs_kernels
@kinds
def test_a_derivative_is_not_shared_with_whoever_gets_it(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    inner = logits * 1.0
    inner.register_hook(lambda grad: grad.mul_(2.0))
    loss = loss_of(kind)(inner, y)
    found = [torch.autograd.grad(loss, logits, retain_graph=keep)[0] for keep in (True, True, False)]
    expected = 2.0 * with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    assert_close(found, [expected] * 3, **EXACT)


@kinds
def test_labels_may_change_between_forward_and_backward(kind):
    """In memory that torch does not watch, such as an array that is filled again for each batch."""
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    loss = loss_of(kind)(logits, y)
    y.numpy()[:] = 77
    assert_close(torch.autograd.grad(loss, logits)[0], expected, **EXACT)


@kinds
def test_labels_of_inference_mode_serve_training(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind, 6, 4, torch.float64)
    with torch.inference_mode():
        same = y.clone()
    assert_close(loss_of(kind)(logits, same), loss_of(kind)(logits, y), **EXACT)


@kinds
def test_the_loss_is_where_the_logits_are(kind):
    logits, y = random(6, 4), targets(kind, 6, 4, torch.float64)
    with torch.device("meta"):
        assert loss_of(kind)(logits, y, alpha_eps=0.1234).device.type == "cpu"


def test_tensors_without_memory_give_the_loss_of_zeros():
    zeros, y = torch.zeros(5, 3), torch.tensor([0, 1, 2, 1, 0])
    assert_close(matched_cross_entropy(torch._efficientzerotensor((5, 3)), y), matched_cross_entropy(zeros, y))


def test_options_that_cannot_be_looked_up_are_named():
    """In a process of its own, where no test looks at types first."""
    program = (
        "import torch; from gaussify.exceptions import InvalidArgumentError\n"
        "from gaussify.nn.functional import matched_cross_entropy\n"
        "for name, value in {'method': ['laplace'], 'reduction': ['mean'], 'ignore_index': [1]}.items():\n"
        "    try: matched_cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), **{name: value})\n"
        "    except InvalidArgumentError as error: print(name, repr(name) in str(error))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["method", "True", "reduction", "True", "ignore_index", "True"], run.stderr


def test_any_whole_number_may_be_ignored():
    logits, y = random(6, 4), targets("labels", 6, 4, torch.float64)
    assert_close(matched_cross_entropy(logits, y, ignore_index=2**70), matched_cross_entropy(logits, y))


def test_counts_are_checked_before_they_are_rounded():
    with pytest.raises(InvalidArgumentError, match="at least 0"):
        matched_cross_entropy(torch.zeros(2, 3), torch.full((2, 3), -1e-300, dtype=torch.float64))


@kinds
def test_forward_mode_agrees_with_backward(kind):
    logits, y, direction = random(6, 4), targets(kind, 6, 4, torch.float64), random(6, 4, seed=5)
    _, gradient = with_gradient(lambda f: loss_of(kind)(f, y), logits)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(logits, direction)
        tangent = torch.autograd.forward_ad.unpack_dual(loss_of(kind)(dual, y)).tangent
    assert_close(tangent, (gradient * direction).sum(), **EXACT)


@pytest.mark.parametrize(("label", "count"), [(20, -1.0), (-1, math.inf), (-(2**40), math.nan)])
def test_a_wrong_label_in_any_block_is_an_error(label, count):
    logits = torch.zeros(5000, 20)
    for place in (0, 2500, 4999):
        labels = torch.zeros(5000).long()
        labels[place] = label
        with pytest.raises(InvalidArgumentError, match="Labels"):
            matched_cross_entropy(logits, labels)
        counts = torch.zeros(5000, 20)
        counts[place, 3] = count
        with pytest.raises(InvalidArgumentError, match="target"):
            matched_cross_entropy(logits, counts)
        with pytest.raises(InvalidArgumentError, match="target"):
            matched_binary_cross_entropy_with_logits(logits, counts)


@kinds
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_logits_that_are_no_numbers_give_none(kind, number):
    logits = torch.zeros(6, 4)
    logits[3, 1] = number
    y = targets(kind, 6, 4, torch.float32)
    if "ignored" in kind:
        y[3] = 2
    assert not loss_of(kind)(logits, y).isfinite()


def test_losses_work_where_kernels_were_not_built():
    program = (
        "import sys; sys.modules['gaussify.nn._kernels'] = None\n"
        "import torch; from gaussify.nn import _fused, MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss\n"
        "assert not _fused.HAS_KERNELS\n"
        "logits = torch.zeros(2, 3, requires_grad=True)\n"
        "MatchedCrossEntropyLoss(3)(logits, torch.tensor([0, 1])).backward()\n"
        "MatchedBCEWithLogitsLoss()(logits, torch.ones(2, 3)).backward()\n"
        "print(logits.grad.abs().sum().item() > 0.0)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "True", run.stderr


WITHOUT_PRIVATE_NAMES = """
import torch
import torch._C._autograd, torch._compile, torch.autograd.function
del torch._C._len_torch_dispatch_stack, torch._compile._disable_dynamo
from gaussify.nn import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss, _fused
logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
loss = MatchedCrossEntropyLoss(3)(logits, torch.tensor([0])) + MatchedBCEWithLogitsLoss()(logits, logits.detach() / 4)
loss.backward()
print(_fused.HAS_KERNELS, loss.item(), *logits.grad[0].tolist())
"""


def test_losses_work_where_torch_has_renamed_what_it_does_not_promise():
    run = subprocess.run([sys.executable, "-c", WITHOUT_PRIVATE_NAMES], capture_output=True, text=True, check=True)
    has_kernels, *numbers = run.stdout.split()
    assert has_kernels == "False"
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    value, slope = with_gradient(
        lambda own: (
            matched_cross_entropy(own, torch.tensor([0])) + matched_binary_cross_entropy_with_logits(own, logits / 4)
        ),
        logits,
    )
    assert_close(torch.tensor([float(number) for number in numbers]), torch.cat([value[None], slope[0]]))
