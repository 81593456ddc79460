"""The losses of tensors of every kind, in every mode of torch, and with the digits of their dtype."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from gaussify.exceptions import InvalidArgumentError
from gaussify.nn.functional import matched_binary_cross_entropy_with_logits, matched_cross_entropy
from sampled import each_value, pairs_first

EXACT = {"rtol": 1e-10, "atol": 1e-10}
METHODS = ["variational", "laplace", "moment", "moment-ori", "gauss"]
BETA_METHODS = ["variational", "laplace", "moment", "gauss"]
KINDS = ["labels", "ignored", "probabilities", "counts", "binary", "soft binary"]
FORMS = ["mean", "sum", "weighted", "weighted rows"]


class OwnTensor(Tensor):
    """Of which the operations may be anything."""


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets(kind: str, n: int = 6, c: int = 4) -> Tensor:
    labels = torch.randint(c, (n,), generator=torch.Generator().manual_seed(1))
    return {
        "labels": labels,
        "ignored": torch.where(labels == 0, -100, labels),
        "probabilities": random(n, c, seed=2).softmax(-1),
        "counts": (5.0 * random(n, c, seed=2).abs()).floor(),
        "binary": (random(n, c, seed=3) > 0.0).double(),
        "soft binary": random(n, c, seed=3).sigmoid(),
    }[kind]


def loss_of(kind: str, form: str = "mean", **options):
    """A loss as one number; losses of rows are put together with different factors."""
    function = matched_binary_cross_entropy_with_logits if "binary" in kind else matched_cross_entropy

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        own = dict(options)
        if "weighted" in form:
            own["pos_weight" if "binary" in kind else "weight"] = torch.linspace(0.3, 1.9, 4, device="cpu").to(logits)
        if "rows" not in form:
            return function(logits, y, reduction="sum" if form == "sum" else "mean", **own)
        losses = function(logits, y, reduction="none", **own)
        factors = torch.linspace(0.2, 1.3, losses.numel(), dtype=losses.dtype, device="cpu")
        return (losses * factors.reshape(losses.shape)).sum()

    return loss


def with_gradient(loss, logits: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = loss(logits)
    return value.detach(), torch.autograd.grad(value, logits)[0]


@pairs_first(kind=KINDS, form=FORMS, method=BETA_METHODS)
def test_both_forms_of_a_loss_agree(kind, form, method):
    """The function with the derivative in the same pass, and the torch expression, which torch.func takes."""
    logits, y = 3.0 * random(6, 4), targets(kind)
    y = y + 1.0 if kind == "counts" else y  # least squares needs counts in each row
    loss = loss_of(kind, form, alpha_eps=0.3, method=method, label_variance=0.7)
    value, gradient = with_gradient(lambda f: loss(f, y), logits)
    of_expression, expression = torch.func.grad_and_value(loss)(logits, y)
    assert_close((value, gradient), (expression, of_expression), **EXACT)


# --- digits ------------------------------------------------------------------------------------------------------


@pairs_first(
    kind=["labels", "probabilities", "counts"],
    method=METHODS,
    alpha_eps=[1e-8, 1e-4, 0.1, 30.0],
    scale=[1e-3, 1.0, 1e4],
)
def test_single_precision_has_its_digits_at_extremes(kind, method, alpha_eps, scale):
    logits, y = (scale * random(40, 4)).float(), targets(kind, 40)
    y = y + 1.0 if kind == "counts" else y
    check_digits(loss_of(kind, alpha_eps=alpha_eps, method=method), logits, y)


@pairs_first(
    kind=["binary", "soft binary"], method=BETA_METHODS, alpha_eps=[1e-8, 1e-4, 0.1, 30.0], scale=[1e-3, 1.0, 1e4]
)
def test_single_precision_of_binary_losses_has_its_digits_at_extremes(kind, method, alpha_eps, scale):
    logits, y = (scale * random(40, 4)).float(), targets(kind, 40).float().double()
    check_digits(loss_of(kind, alpha_eps=alpha_eps, beta_eps=0.2, method=method), logits, y)


def check_digits(loss, logits: Tensor, y: Tensor) -> None:
    """Value and derivative in float32 against those in float64."""
    single = y.float() if y.is_floating_point() else y
    wide = single.double() if y.is_floating_point() else y
    value, slope = with_gradient(lambda f: loss(f, single), logits)
    expected, expected_slope = with_gradient(lambda f: loss(f, wide), logits.double())
    assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)
    # a slope is no more accurate than the residual that it multiplies
    assert_close(slope.double(), expected_slope, rtol=1e-5, atol=2e-6 * expected_slope.abs().max().item())


@pytest.mark.parametrize("method", METHODS)
def test_logits_at_their_targets_lose_no_digits(method):
    """Where squares are almost nothing: they are not differences of large numbers."""
    y, alpha_eps = targets("labels", 40), 1e-4
    at_means = torch.zeros(40, 4, requires_grad=True, dtype=torch.float64)
    for _ in range(2):  # two steps of Newton's method for a parabola of diagonal curvature
        (slope,) = torch.autograd.grad(
            matched_cross_entropy(at_means, y, alpha_eps=alpha_eps, method=method, reduction="sum"),
            at_means,
            create_graph=True,
        )
        (curvature,) = torch.autograd.grad(slope.sum(), at_means)
        at_means = (at_means - slope / curvature).detach().requires_grad_()
    near = (at_means.detach() + 0.01 * random(40, 4)).float()
    check_digits(loss_of("labels", alpha_eps=alpha_eps, method=method), near, y)


# --- tensors and modes -------------------------------------------------------------------------------------------


@each_value(
    kind=KINDS,
    form=["mean", "weighted rows"],
    view={
        "transposed": lambda x: x.T.contiguous().T,
        "strided": lambda x: torch.stack([x, x], -1)[..., 1],
        "negated": lambda x: torch._neg_view(-x),  # whose sign is not in memory
        "subclass": lambda x: x.as_subclass(OwnTensor),
        "parameter": torch.nn.Parameter,
    },
)
def test_tensors_of_any_kind_give_the_same(kind, form, view):
    logits, y = random(6, 4), targets(kind)
    expected = loss_of(kind, form)(logits, y)
    actual = loss_of(kind, form)(view(logits), view(y) if y.is_floating_point() else y)
    assert_close(actual.detach().as_subclass(Tensor), expected, **EXACT)


@pytest.mark.parametrize("kind", ["labels", "ignored", "probabilities"])
def test_channels_may_be_last_in_memory(kind):
    planes = random(2, 4, 3, 5)
    y = planes.softmax(1) if kind == "probabilities" else targets(kind).repeat(5).reshape(2, 3, 5)
    last = planes.contiguous(memory_format=torch.channels_last)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), planes)
    assert_close(with_gradient(lambda f: loss_of(kind)(f, y), last), expected, **EXACT)


def test_rows_that_share_memory_give_the_same():
    row = random(1, 4)
    expected = matched_cross_entropy(row.repeat(5, 1), torch.zeros(5).long())
    assert_close(matched_cross_entropy(row.expand(5, 4), torch.zeros(1).long().expand(5)), expected, **EXACT)


@each_value(kind=KINDS, form=["mean", "weighted rows"])
def test_a_traced_loss_is_a_function_of_its_inputs(kind, form):
    """Not the number that the traced call had."""
    logits, y, loss = random(6, 4), targets(kind), loss_of(kind, form)
    graph = make_fx(lambda f: loss(f, y))(logits)
    assert_close(graph(logits + 1.0), loss(logits + 1.0, y), **EXACT)


def test_losses_of_classes_may_be_traced_by_torch_jit():
    """In a process of its own, because checks of types by the tests would be traced, too."""
    program = (
        "import torch\n"
        "from gaussify.nn.functional import matched_cross_entropy\n"
        "f, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])\n"
        "for first, later in [(y, y.where(y > 0, -100)), (f.softmax(1), f.exp())]:\n"
        "    traced = torch.jit.trace(matched_cross_entropy, (f, first))\n"
        "    print(torch.allclose(traced(f[:5] + 1.0, later[:5]), matched_cross_entropy(f[:5] + 1.0, later[:5])))\n"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.split() == 2 * ["True"], run.stderr


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd, torch.func.functionalize])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_use_a_loss_within_and_outside_of_a_transform(kind, transform):
    """What the first call keeps was made within the transform, which the other thread knows nothing of."""
    alpha_eps = 0.2 + 0.01 * KINDS.index(kind) + 1e-3 * len(transform.__name__)  # which no other test has used
    logits, y = random(6, 4), targets(kind)
    loss = loss_of(kind, alpha_eps=alpha_eps)
    with ThreadPoolExecutor(1) as threads:

        def both(logits_within: Tensor) -> Tensor:
            value = loss(logits_within, y)
            others.append(threads.submit(with_gradient, lambda f: loss(f, y), logits).result())
            return value

        others: list[tuple[Tensor, Tensor]] = []
        transform(both)(logits)
    assert_close(others[0], with_gradient(lambda f: loss(f, y), logits), **EXACT)


@each_value(kind=KINDS, form=["mean", "weighted rows"])
def test_backward_may_be_traced(kind, form):
    logits, y = random(6, 4).requires_grad_(), targets(kind)
    loss = loss_of(kind, form)(logits, y)
    expected = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    graph = make_fx(lambda grad: torch.autograd.grad(loss, logits, grad)[0])(torch.tensor(1.0).double())
    assert_close(graph(torch.tensor(3.0).double()), 3.0 * expected, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_of_no_consequence_has_no_graph(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind)
    with torch.no_grad():
        assert not loss_of(kind)(logits, y).requires_grad
    assert not loss_of(kind)(logits.detach(), y).requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_a_derivative_is_not_shared_with_whoever_gets_it(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind)
    inner = logits * 1.0
    inner.register_hook(lambda grad: grad.mul_(2.0))
    loss = loss_of(kind)(inner, y)
    found = [torch.autograd.grad(loss, logits, retain_graph=keep)[0] for keep in (True, True, False)]
    expected = 2.0 * with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    assert_close(found, [expected] * 3, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_may_change_between_forward_and_backward(kind):
    """In memory that torch does not watch, such as an array that is filled again for each batch."""
    logits, y = random(6, 4).requires_grad_(), targets(kind)
    expected = with_gradient(lambda f: loss_of(kind)(f, y), logits)[1]
    loss = loss_of(kind)(logits, y)
    y.numpy()[:] = 77
    assert_close(torch.autograd.grad(loss, logits)[0], expected, **EXACT)


@each_value(kind=KINDS, form=["mean", "weighted rows"])
def test_labels_of_inference_mode_serve_training(kind, form):
    logits, y = random(6, 4), targets(kind)
    with torch.inference_mode():
        same = y.clone()
    expected = with_gradient(lambda f: loss_of(kind, form)(f, y), logits)
    assert_close(with_gradient(lambda f: loss_of(kind, form)(f, same), logits), expected, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_where_the_logits_are(kind):
    logits, y = random(6, 4), targets(kind)
    with torch.device("meta"):
        assert loss_of(kind, alpha_eps=0.1234)(logits, y).device.type == "cpu"


@each_value(kind=KINDS, form=FORMS)
def test_forward_mode_agrees_with_backward(kind, form):
    logits, y, direction, loss = random(6, 4), targets(kind), random(6, 4, seed=5), loss_of(kind, form)
    _, gradient = with_gradient(lambda f: loss(f, y), logits)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(logits, direction)
        tangent = torch.autograd.forward_ad.unpack_dual(loss(dual, y)).tangent
    assert_close(tangent, (gradient * direction).sum(), **EXACT)


# torch has no forward mode for zeta, which "moment" needs, nor for the Newton steps of a variational Beta
@pairs_first(kind=KINDS[:4], method=["laplace", "variational", "moment-ori"], n_numbers=[1, 4])
def test_derivatives_by_concentrations_agree_in_every_mode(kind, method, n_numbers):
    logits, y = random(6, 4), targets(kind)
    eps = torch.linspace(0.3, 0.9, n_numbers, dtype=torch.float64).squeeze()

    def loss(eps: Tensor) -> Tensor:
        return loss_of(kind, alpha_eps=eps, method=method)(logits, y)

    expected = with_gradient(loss, eps)[1]
    with torch.autograd.forward_ad.dual_level():
        tangent = torch.autograd.forward_ad.unpack_dual(
            loss(torch.autograd.forward_ad.make_dual(eps, torch.ones_like(eps)))
        ).tangent
    assert_close(tangent, expected.sum(), **EXACT)
    assert_close(torch.func.grad(loss)(eps), expected, **EXACT)
    if "binary" not in kind:
        assert_close(
            torch.vmap(loss)(torch.stack([eps, 2.0 * eps])), torch.stack([loss(eps), loss(2.0 * eps)]), **EXACT
        )


@pytest.mark.parametrize("method", ["laplace", "gauss"])
def test_derivatives_by_binary_labels_agree_in_forward_mode(method):
    logits, y = random(6, 4), targets("soft binary")
    expected = with_gradient(lambda y: loss_of("binary", method=method)(logits, y), y)[1]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(y, torch.ones_like(y))
        tangent = torch.autograd.forward_ad.unpack_dual(loss_of("binary", method=method)(logits, dual)).tangent
    assert_close(tangent, expected.sum(), **EXACT)


# --- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_first_and_second_derivatives_with_weights(kind):
    logits, y = random(6, 4).requires_grad_(), targets(kind)
    loss = loss_of(kind, "weighted rows", alpha_eps=0.3)
    assert torch.autograd.gradcheck(lambda f: loss(f, y), logits)
    assert torch.autograd.gradgradcheck(lambda f: loss(f, y), logits)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_flow_to_weights_that_are_learnt(kind):
    logits, y, name = random(6, 4), targets(kind), "pos_weight" if "binary" in kind else "weight"
    function = matched_binary_cross_entropy_with_logits if "binary" in kind else matched_cross_entropy
    weight = torch.linspace(0.3, 1.9, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: function(logits, y, **{name: w}), weight)


def test_weights_that_sum_to_nothing_give_no_number():
    logits, y = random(6, 4), targets("labels")
    assert matched_cross_entropy(logits, y, torch.zeros(4)).isnan()


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_weights_of_classes_that_no_label_has_do_not_count(number):
    logits, y = random(6, 4), torch.tensor([0, 1, 2, 1, 0, 2])
    weight = torch.tensor([0.5, 1.0, 2.0, number])
    expected = matched_cross_entropy(logits, y, torch.tensor([0.5, 1.0, 2.0, 1.0]))
    assert_close(matched_cross_entropy(logits, y, weight), expected, **EXACT)


# --- what is no number, label or option --------------------------------------------------------------------------


@each_value(kind=KINDS, number=[math.nan, math.inf])
def test_logits_that_are_no_numbers_give_none(kind, number):
    logits, y = torch.zeros(6, 4), targets(kind)
    logits[3, 1] = number
    if kind == "ignored":
        y[3] = 2
    assert not loss_of(kind)(logits, y).isfinite()


@pytest.mark.parametrize(("label", "count"), [(20, -1.0), (-1, math.inf), (-(2**40), math.nan)])
def test_a_wrong_label_in_any_place_is_an_error(label, count):
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


def test_counts_are_checked_before_they_are_rounded():
    with pytest.raises(InvalidArgumentError, match="at least 0"):
        matched_cross_entropy(torch.zeros(2, 3), torch.full((2, 3), -1e-300, dtype=torch.float64))


def test_any_whole_number_may_be_ignored():
    logits, y = random(6, 4), targets("labels")
    assert_close(matched_cross_entropy(logits, y, ignore_index=2**62), matched_cross_entropy(logits, y))


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
