"""The losses as modules: in networks, compiled, saved, moved, and in place of torch's."""

import copy
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from gaussify import SoftmaxLikelihood
from gaussify.exceptions import InvalidArgumentError
from gaussify.nn import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss
from gaussify.nn.functional import matched_binary_cross_entropy_with_logits, matched_cross_entropy
from sampled import each_value, pairs_first

BETA_MATCHES = ["laplace", "variational", "moment"]
MATCHES = [*BETA_MATCHES, "moment-ori"]
BETA_METHODS, METHODS = [*BETA_MATCHES, "gauss"], [*MATCHES, "gauss"]

LABELS = torch.tensor([0, 2, 1, 2, 0])
SOFT = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0], [0.3, 0.4, 0.3], [0.1, 0.0, 0.9], [1.0, 0.0, 0.0]])
WEIGHT = torch.tensor([0.5, 3.0, 1.25])
BINARY = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])

methods = pytest.mark.parametrize("method", METHODS)
beta_methods = pytest.mark.parametrize("method", BETA_METHODS)


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    return 3.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_gradients(loss: nn.Module, *arguments: Tensor) -> tuple[Tensor, ...]:
    """The loss, and its derivatives by the logits and all that is learnt."""
    logits = arguments[0].detach().clone().requires_grad_()
    value = loss(logits, *arguments[1:])
    return value.detach(), *torch.autograd.grad(value.sum(), [logits, *loss.parameters()])


# --- options -----------------------------------------------------------------------------------------------------


@methods
def test_the_module_is_the_function_with_its_options(method):
    options = {"weight": WEIGHT, "ignore_index": 1, "label_smoothing": 0.1, "label_variance": 0.3}
    for reduction in ("mean", "sum", "none"):
        module = MatchedCrossEntropyLoss(3, 0.2, method, reduction, **options)
        for y in (LABELS, SOFT):
            logits = random_logits(5, 3)
            expected = matched_cross_entropy(logits, y, alpha_eps=0.2, method=method, reduction=reduction, **options)
            assert_close(module(logits, y), expected, rtol=0, atol=0)


@beta_methods
def test_the_binary_module_is_the_function_with_its_options(method):
    options = {"weight": WEIGHT[:1], "pos_weight": WEIGHT[1], "label_variance": 0.3}
    for reduction in ("mean", "sum", "none"):
        module = MatchedBCEWithLogitsLoss(0.2, 0.4, method, reduction, **options)
        logits = random_logits(5)
        expected = matched_binary_cross_entropy_with_logits(
            logits, BINARY, alpha_eps=0.2, beta_eps=0.4, method=method, reduction=reduction, **options
        )
        assert_close(module(logits, BINARY), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha_eps", 0.7),
        ("method", "laplace"),
        ("reduction", "sum"),
        ("label_smoothing", 0.2),
        ("label_variance", 3.0),
    ],
)
@pytest.mark.parametrize("y", [LABELS, SOFT], ids=["index", "soft"])
def test_options_may_be_changed_after_a_call(name, value, y):
    method = "gauss" if name == "label_variance" else "moment"
    module, logits = MatchedCrossEntropyLoss(3, 0.2, method), random_logits(5, 3)
    before = module(logits, y)
    setattr(module, name, value)
    expected = MatchedCrossEntropyLoss(3, **{"alpha_eps": 0.2, "method": method, name: value})(logits, y)
    assert_close(module(logits, y), expected, rtol=0, atol=0)
    assert before != expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha_eps", 0.7), ("beta_eps", 0.7), ("method", "laplace"), ("reduction", "sum"), ("label_variance", 3.0)],
)
@pytest.mark.parametrize("y", [BINARY, 0.2 + 0.6 * BINARY], ids=["hard", "soft"])
def test_options_of_the_binary_loss_may_be_changed_after_a_call(name, value, y):
    method = "gauss" if name == "label_variance" else "moment"
    module, logits = MatchedBCEWithLogitsLoss(0.2, 0.2, method), random_logits(5)
    before = module(logits, y)
    setattr(module, name, value)
    expected = MatchedBCEWithLogitsLoss(**{"alpha_eps": 0.2, "beta_eps": 0.2, "method": method, name: value})(logits, y)
    assert_close(module(logits, y), expected, rtol=0, atol=0)
    assert before != expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MatchedCrossEntropyLoss(1), ("'n_classes'", "at least 2; got 1")),
        (lambda: MatchedCrossEntropyLoss(3, method="laplce"), ("'method'", "got 'laplce'")),
        (lambda: MatchedCrossEntropyLoss(3, reduction="max"), ("'reduction'", "MatchedCrossEntropyLoss", "got 'max'")),
        (lambda: MatchedCrossEntropyLoss(3, -0.1), ("'alpha_eps'", "positive; got -0.1")),
        (lambda: MatchedCrossEntropyLoss(3, [0.1, 0.1]), ("'alpha_eps'", "length 3; got shape (2,)")),
        (lambda: MatchedCrossEntropyLoss(3)(torch.zeros(5, 4), LABELS), ("'input'", "3 logits", "shape (5, 4)")),
        (lambda: MatchedCrossEntropyLoss(3)(torch.zeros(2), LABELS[0]), ("'input'", "3 logits", "shape (2,)")),
        (lambda: MatchedCrossEntropyLoss(3)(torch.zeros(()), LABELS[0]), ("'input'", "shape ()")),
        (
            lambda: MatchedCrossEntropyLoss(3, weight=torch.ones(4))(torch.zeros(5, 3), LABELS),
            ("'weight'", "shape (3,)", "of shape (4,)"),
        ),
        (lambda: MatchedCrossEntropyLoss(3, "auto"), ("'alpha_eps'", "MatchedCrossEntropyLoss", "got 'auto'")),
        (lambda: MatchedBCEWithLogitsLoss(label_variance=-1.0), ("'label_variance'", "MatchedBCEWithLogitsLoss")),
        (lambda: MatchedBCEWithLogitsLoss(method="moment-ori"), ("'method'", "got 'moment-ori'")),
        (lambda: MatchedBCEWithLogitsLoss(reduction="max"), ("'reduction'", "MatchedBCEWithLogitsLoss", "got 'max'")),
        (lambda: MatchedBCEWithLogitsLoss(-0.1), ("'alpha_eps'", "positive; got -0.1")),
        (lambda: MatchedBCEWithLogitsLoss(0.1, -0.1), ("'beta_eps'", "positive; got -0.1")),
        (lambda: MatchedBCEWithLogitsLoss()(torch.zeros(5, 1), BINARY), ("'target'", "(5, 1); got (5,)")),
    ],
)
def test_arguments_of_modules_are_checked(call, message):
    with pytest.raises(InvalidArgumentError, match=".*".join(re.escape(part) for part in message)):
        call()


WRONG_TYPES = {
    "matched_cross_entropy(logits.numpy(), labels)": "'input' of matched_cross_entropy must be a tensor; got ndarray",
    "matched_cross_entropy(logits, [0, 1])": "'target' of matched_cross_entropy must be a tensor; got list",
    "matched_cross_entropy(logits, labels, [1.0] * 3)": "'weight' of matched_cross_entropy must be a tensor; got list",
    "matched_cross_entropy(logits, labels, ignore_index=None)": "'ignore_index' parameter of matched_cross_entropy",
    "binary(logits, 1.0)": "'target' of matched_binary_cross_entropy_with_logits must be a tensor; got float",
    "binary(logits, logits, pos_weight=2.0)": "'pos_weight' of matched_binary_cross_entropy_with_logits must be",
    "MatchedCrossEntropyLoss(3)([[1.0] * 3], labels)": "'input' of matched_cross_entropy must be a tensor; got list",
    "MatchedCrossEntropyLoss(3, weight=[1.0] * 3)": "'weight' of MatchedCrossEntropyLoss must be a tensor; got list",
    "MatchedCrossEntropyLoss(3, ignore_index='a')": "'ignore_index' parameter of MatchedCrossEntropyLoss",
    "MatchedBCEWithLogitsLoss(weight=[1.0])": "'weight' of MatchedBCEWithLogitsLoss must be a tensor; got list",
}


def test_arguments_of_the_wrong_type_are_named():
    """In a process of its own, since the tests have every call checked against its hints."""
    program = f"""
import torch
from gaussify.nn import *
from gaussify.nn.functional import matched_binary_cross_entropy_with_logits as binary, matched_cross_entropy
logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
for call in {list(WRONG_TYPES)}:
    try:
        eval(call)
    except Exception as error:
        print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == len(WRONG_TYPES)
    for line, message in zip(lines, WRONG_TYPES.values(), strict=True):
        assert line.startswith("InvalidArgumentError")
        assert message in line


def test_the_text_names_the_options():
    assert repr(MatchedCrossEntropyLoss(3, 0.2, "laplace", "sum")) == (
        "MatchedCrossEntropyLoss(3, alpha_eps=0.2, method=laplace, reduction=sum, "
        "ignore_index=-100, label_smoothing=0.0)"
    )
    assert repr(MatchedBCEWithLogitsLoss(0.2, 0.3, "moment", "none")) == (
        "MatchedBCEWithLogitsLoss(alpha_eps=0.2, beta_eps=0.3, method=moment, reduction=none)"
    )


# --- state -------------------------------------------------------------------------------------------------------


def test_a_move_to_another_dtype_takes_all_tensors_along():
    module = MatchedCrossEntropyLoss(3, torch.tensor([0.1, 0.2, 0.3]), weight=WEIGHT).to(torch.float64)
    assert module.weight.dtype is module.alpha_eps.dtype is torch.float64
    assert module(random_logits(5, 3).double(), LABELS).dtype is torch.float64
    binary = MatchedBCEWithLogitsLoss(torch.tensor(0.1), weight=WEIGHT[:1], pos_weight=WEIGHT[1]).to(torch.float64)
    assert binary.weight.dtype is binary.pos_weight.dtype is binary.alpha_eps.dtype is torch.float64
    assert binary(random_logits(5).double(), BINARY).dtype is torch.float64


def test_tensors_of_another_dtype_leave_that_of_the_loss_alone():
    wide = MatchedCrossEntropyLoss(3, [0.1, 0.2, 0.3], weight=WEIGHT.double())
    assert wide(random_logits(5, 3), LABELS).dtype is torch.float32


def class_loss(alpha_eps: float, *weights: float) -> nn.Module:
    return MatchedCrossEntropyLoss(3, nn.Parameter(torch.tensor(alpha_eps)), weight=torch.tensor(weights))


def binary_loss(alpha_eps: float, *weights: float) -> nn.Module:
    weight, pos_weight, beta_eps = torch.tensor(weights)
    return MatchedBCEWithLogitsLoss(
        nn.Parameter(torch.tensor(alpha_eps)), nn.Parameter(beta_eps), weight=weight, pos_weight=pos_weight
    )


@pytest.mark.parametrize(
    ("make", "arguments"),
    [(class_loss, (random_logits(5, 3), LABELS)), (binary_loss, (random_logits(5), BINARY))],
    ids=["classes", "binary"],
)
def test_saved_state_and_copies_give_the_same_loss(make, arguments):
    module, other, file = make(0.2, 0.5, 3.0, 1.25), make(0.7, 1.0, 1.0, 1.0), io.BytesIO()
    expected = with_gradients(module, *arguments)
    copied = copy.deepcopy(module)
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        module.alpha_eps += 1.0
    assert_close(with_gradients(other, *arguments), expected, rtol=0, atol=0)
    assert_close(with_gradients(copied, *arguments), expected, rtol=0, atol=0)


def test_state_has_the_names_of_torch_and_options_that_are_tensors():
    assert MatchedCrossEntropyLoss(3, weight=WEIGHT).state_dict().keys() == {"weight"}
    assert MatchedCrossEntropyLoss(3, [0.1, 0.2, 0.3]).state_dict().keys() == {"alpha_eps"}
    assert MatchedBCEWithLogitsLoss(weight=WEIGHT, pos_weight=WEIGHT).state_dict().keys() == {"weight", "pos_weight"}
    assert not MatchedCrossEntropyLoss(3).state_dict()


@pytest.mark.parametrize("method", MATCHES)
@pytest.mark.parametrize("alpha", [torch.tensor(0.3), torch.tensor([0.3, 0.1, 2.0])], ids=["scalar", "per-class"])
def test_a_parameter_is_learnt(method, alpha):
    parameter = nn.Parameter(alpha)
    loss = MatchedCrossEntropyLoss(3, parameter, method)
    assert [found is parameter for found in loss.parameters()] == [True]
    for y in (LABELS, SOFT):
        parameter.grad = None
        loss(random_logits(5, 3), y).backward()
        assert parameter.grad.shape == alpha.shape
        assert (parameter.grad != 0.0).all()


@pytest.mark.parametrize("method", BETA_MATCHES)
def test_binary_parameters_are_learnt(method):
    alpha, beta = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.2))
    module = MatchedBCEWithLogitsLoss(alpha, beta, method)
    module(random_logits(5), BINARY).backward()
    assert dict(module.named_parameters()) == {"alpha_eps": alpha, "beta_eps": beta}
    assert alpha.grad != 0.0
    assert beta.grad != 0.0


# --- in networks -------------------------------------------------------------------------------------------------


def blobs() -> tuple[Tensor, Tensor]:
    y = torch.arange(150) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -3.0], [-3.0, -3.0]])
    return centres[y] + torch.randn(150, 2, generator=torch.Generator().manual_seed(0)), y


def small_network(n_outputs: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, n_outputs))


def trained(loss: nn.Module, X: Tensor, y: Tensor, n_outputs: int) -> Tensor:
    network = small_network(n_outputs)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(100):
        optimiser.zero_grad()
        loss(network(X).squeeze(-1), y).backward()
        optimiser.step()
    return network(X).squeeze(-1).detach()


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), *[MatchedCrossEntropyLoss(3, 0.01, method) for method in METHODS]],
    ids=["torch", *METHODS],
)
def test_training_separates_blobs(loss):
    X, y = blobs()
    assert (trained(loss, X, y, 3).argmax(1) == y).double().mean() >= 0.95


@pytest.mark.parametrize(
    "loss",
    [nn.BCEWithLogitsLoss(), *[MatchedBCEWithLogitsLoss(0.01, method=method) for method in BETA_METHODS]],
    ids=["torch", *BETA_METHODS],
)
def test_training_separates_two_blobs(loss):
    X, y = blobs()
    threshold = 0.5 if getattr(loss, "method", None) == "gauss" else 0.0  # which regresses on 0 and 1
    predicted = trained(loss, X, (y == 0).float(), 1) > threshold
    assert (predicted == (y == 0)).double().mean() >= 0.95


@methods
def test_a_network_trains_under_autocast(method):
    X, y = blobs()
    network, loss = small_network(3), MatchedCrossEntropyLoss(3, 0.1, method)
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(X)
        before = loss(logits, y)
    before.backward()
    optimiser.step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = loss(network(X), y)
    assert logits.dtype is torch.bfloat16
    assert_close(before, loss(logits.float(), y))
    assert after < before


@methods
def test_a_batch_without_the_top_class_keeps_every_logit(method):
    loss = MatchedCrossEntropyLoss(4, [0.1, 0.2, 0.3, 0.4], method, "none")
    logits, y = random_logits(5, 4), torch.tensor([0, 3, 1, 2, 0])
    kept = y != 3
    assert_close(loss(logits[kept], y[kept]), loss(logits, y)[kept])


@each_value(method=METHODS, reduction=["none", "mean"], kind=["index", "soft", "binary"])
def test_no_device_is_used_but_that_of_the_logits(method, reduction, kind):
    """On one that, like a GPU, takes no tensors of the CPU."""
    if kind == "binary" and method == "moment-ori":
        pytest.skip("binary labels have no such method")
    y = {"index": LABELS, "soft": SOFT, "binary": SOFT}[kind].to("meta")
    logits = torch.zeros(5, 3, device="meta", requires_grad=True)
    options = {"method": method, "reduction": reduction}
    loss = MatchedBCEWithLogitsLoss(**options) if kind == "binary" else MatchedCrossEntropyLoss(3, **options)
    loss(logits, y).sum().backward()
    assert logits.grad.device.type == "meta"


class LargestTensor(TorchDispatchMode):
    """Count the elements of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pairs_first(method=METHODS, per_class={"one": False, "per-class": True}, soft={"index": False, "soft": True})
def test_a_vocabulary_needs_no_table_of_all_classes(method, per_class, soft):
    n_classes, y = 50_000, torch.tensor([0, 49_999, 123, 0])
    alpha = (
        torch.linspace(0.1, 0.2, n_classes, dtype=torch.float64)
        if per_class
        else torch.tensor(0.1, dtype=torch.float64)
    )
    counts = F.one_hot(y, n_classes)
    logits = random_logits(4, n_classes).double()
    loss = MatchedCrossEntropyLoss(n_classes, alpha if per_class else 0.1, method)
    with LargestTensor() as largest:
        value, _ = with_gradients(loss, logits, counts.double() if soft else y)
    mean, variance = SoftmaxLikelihood(n_classes, alpha, method).encode(counts)
    expected = -Normal(mean, variance.sqrt()).log_prob(logits).sum(-1).mean()
    assert largest.numel == logits.numel()
    assert_close(value, expected, rtol=1e-10, atol=0)


# --- compiled ----------------------------------------------------------------------------------------------------
# in a process without the type checker of the tests, which torch.compile cannot trace

WHOLE, BROKEN = {"backend": "aot_eager", "fullgraph": True}, {"backend": "aot_eager"}
IGNORED, SOFT_BINARY = torch.tensor([0, -100, 1, 2, -100]), 0.2 + 0.6 * BINARY
MANY_BINARY = torch.linspace(0.0, 1.0, 9_000)
MANY_LABELS = torch.arange(400) % 100
MANY_SOFT = torch.linspace(0.0, 1.0, 40_000).reshape(400, 100) ** 4
# rows of logits, and how many of a class are side by side
PLANES = {"few": (2, 3), "many": (20, 20), "short": (200, 2), "single": (400, 1)}


def learnt(*alpha_eps: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(alpha_eps).squeeze())


class OfFunction(nn.Module):
    """A loss by its function, whose options are plain words and numbers."""

    def __init__(self, function: Callable[..., Tensor], n_classes: int | None = None, **options: Any) -> None:
        super().__init__()
        self.function, self.n_classes, self.options = function, n_classes, options

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.function(logits, y, **self.options)


class OfSomeRows(nn.Module):
    """A loss of rows whose number is not known before."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss, self.n_classes = loss, getattr(loss, "n_classes", None)

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        rows = logits.reshape(len(y), -1)[:, 0] > 0.0
        return self.loss(logits[rows], y[rows])


class OfSomePlaces(OfSomeRows):
    """A loss of planes of which it is not known before how many logits of a class are side by side."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        places = (logits[0, 0] > 0.0).nonzero().squeeze(1)
        return self.loss(logits[..., places], y[..., places])


class OfIndex(nn.Module):
    """A loss whose index to be ignored is a number that a compiler does not know, such as a size."""

    n_classes = 3

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        smoothed = matched_cross_entropy(logits, y, ignore_index=len(y), label_smoothing=0.1)
        return smoothed + matched_cross_entropy(logits, y, ignore_index=len(y))


class OwnTensor(Tensor):
    """Of which the operations may be anything."""


class OfSubclass(OfSomeRows):
    """A loss of tensors of another class."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.loss(logits.as_subclass(OwnTensor), y)


DYNAMIC = WHOLE | {"dynamic": True}
COMPILED = {  # each case: losses to compile, one after the other, with targets and options of torch.compile
    **{f"index-{method}": [(MatchedCrossEntropyLoss(3, 0.2, method), LABELS, WHOLE)] for method in ("moment", "gauss")},
    **{f"soft-{method}": [(MatchedCrossEntropyLoss(3, 0.2, method), SOFT, WHOLE)] for method in METHODS},
    **{
        f"{name}-all-options": [
            (MatchedCrossEntropyLoss(3, [0.1, 0.2, 0.3], weight=WEIGHT, label_smoothing=0.1), y, WHOLE)
        ]
        for name, y in {"ignored": IGNORED, "soft": SOFT}.items()
    },
    **{
        f"{name}-binary-{method}": [(MatchedBCEWithLogitsLoss(0.2, 0.3, method, pos_weight=WEIGHT[1]), y, WHOLE)]
        for name, y, method in [
            ("integer", BINARY.long(), "variational"),
            ("hard", BINARY, "laplace"),
            ("soft", SOFT_BINARY, "variational"),
            ("soft", SOFT_BINARY, "moment"),
            ("soft", SOFT_BINARY, "gauss"),
        ]
    },
    **{
        f"many-{name}-binary-{method}": [(MatchedBCEWithLogitsLoss(0.2, 0.3, method), y, WHOLE)]
        for name, y, method in [
            ("hard", MANY_BINARY.round(), "variational"),
            ("soft", MANY_BINARY, "variational"),
            ("hard", MANY_BINARY.round(), "gauss"),
        ]
    },
    **{
        f"few-{name}-binary-{method}-{reduction}": [(MatchedBCEWithLogitsLoss(0.2, 0.3, method, reduction), y, WHOLE)]
        for name, y, method, reduction in [
            ("hard", BINARY, "variational", "mean"),
            ("soft", SOFT_BINARY, "variational", "sum"),
            ("soft", SOFT_BINARY.double(), "moment", "mean"),
        ]
    },
    **{
        f"many-{name}-{method}-{reduction}": [(MatchedCrossEntropyLoss(100, 0.2, method, reduction), y, WHOLE)]
        for name, y, method, reduction in [
            ("labels", MANY_LABELS, "variational", "mean"),
            ("ignored", torch.where(MANY_LABELS == 7, -100, MANY_LABELS), "moment", "mean"),
            ("soft", MANY_SOFT, "variational", "sum"),
        ]
    },
    **{
        f"{name}-{form}": [(MatchedCrossEntropyLoss(c, 0.2, **options), y, WHOLE)]
        for name, c, y in [
            ("labels", 3, LABELS),
            ("ignored", 3, IGNORED),
            ("soft", 3, SOFT),
            ("many-labels", 100, MANY_LABELS),
            ("many-soft", 100, MANY_SOFT),
        ]
        for form, options in {
            "weighted": {"weight": torch.linspace(0.3, 1.9, c)},
            "weighted-rows": {"weight": torch.linspace(0.3, 1.9, c), "reduction": "none"},
        }.items()
    },
    **{
        f"{name}-binary-{form}": [(MatchedBCEWithLogitsLoss(0.2, **options), y, WHOLE)]
        for name, y in {"soft": SOFT_BINARY, "many": MANY_BINARY}.items()
        for form, options in {
            "weighted": {"weight": torch.linspace(0.3, 1.9, len(y)), "pos_weight": WEIGHT[1]},
            "weighted-rows": {"pos_weight": WEIGHT[:1], "reduction": "none"},
            "learnt-weight": {"weight": torch.ones(len(y), requires_grad=True)},
        }.items()
    },
    **{
        f"{size}-planes-{name}-{form}": [
            (
                MatchedCrossEntropyLoss(100, 0.2, **options),
                labels[: n * inner].reshape(n, *labels.shape[1:], inner),
                how,
            )
        ]
        for size, (n, inner) in PLANES.items()
        for name, labels in {"labels": torch.where(MANY_LABELS == 7, -100, MANY_LABELS), "soft": MANY_SOFT}.items()
        for form, options, how in [
            ("mean", {}, WHOLE),
            ("dynamic", {}, WHOLE | {"dynamic": True}),
            ("weighted", {"weight": torch.linspace(0.3, 1.9, 100)}, WHOLE),
            ("weighted-rows", {"weight": torch.linspace(0.3, 1.9, 100), "reduction": "none"}, WHOLE),
        ]
    },
    "planes-of-several-sizes": [
        (MatchedCrossEntropyLoss(100), MANY_LABELS[: n * inner].reshape(n, inner), WHOLE)
        for n, inner in ((20, 20), (2, 3), (200, 2), (40, 10))
    ],
    "learnt-weight": [
        (MatchedCrossEntropyLoss(100, weight=torch.ones(100, requires_grad=True)), y, WHOLE)
        for y in (MANY_LABELS, MANY_SOFT)
    ],
    "binary-batches-of-several-sizes": [
        (MatchedBCEWithLogitsLoss(0.2), MANY_BINARY[:n], WHOLE) for n in (5, 9_000, 8_500, 3, 2_000)
    ],
    "label-batches-of-several-sizes": [
        (MatchedCrossEntropyLoss(100, 0.2), MANY_LABELS[:n], WHOLE) for n in (5, 400, 390, 3)
    ],
    "batches-of-several-sizes": [(MatchedCrossEntropyLoss(3), LABELS[:n], WHOLE) for n in (5, 4, 3, 1)],
    **{
        f"several-numbers-of-classes-smoothed-{smoothing}": [
            (MatchedCrossEntropyLoss(c, label_smoothing=smoothing), LABELS[:n], WHOLE)
            for n, c in ((5, 3), (4, 5), (3, 7))
        ]
        for smoothing in (0.0, 0.1)
    },
    "several-smoothings": [
        (MatchedCrossEntropyLoss(5, alpha_eps, method=method, label_smoothing=smoothing), LABELS, WHOLE)
        for method, alpha_eps in (("variational", 0.1), ("gauss", 0.2))
        for smoothing in (0.1, 0.2, 0.3)
    ],
    "several-alpha-eps": [(MatchedCrossEntropyLoss(3, alpha_eps), LABELS, WHOLE) for alpha_eps in (0.1, 0.2, 0.3)],
    **{
        f"several-binary-alpha-eps-{name}": [
            (MatchedBCEWithLogitsLoss(alpha_eps), y, WHOLE) for alpha_eps in (0.1, 0.2, 0.3)
        ]
        for name, y in {"integer": BINARY.long(), "hard": BINARY, "soft": SOFT_BINARY}.items()
    },
    **{
        f"function-{name}": [(OfFunction(function, n_classes, **options), y, how)]
        for name, function, n_classes, y, options, how in [
            ("soft", matched_cross_entropy, 3, SOFT, {"method": "variational"}, WHOLE),
            ("labels-dynamic", matched_cross_entropy, 3, LABELS, {"ignore_index": 1}, DYNAMIC),
            ("many-soft-dynamic", matched_cross_entropy, 100, MANY_SOFT, {}, DYNAMIC),
            ("binary-dynamic", matched_binary_cross_entropy_with_logits, None, SOFT_BINARY, {}, DYNAMIC),
            ("many-binary-dynamic", matched_binary_cross_entropy_with_logits, None, MANY_BINARY, {}, DYNAMIC),
        ]
    },
    "some-labels": [(OfSomeRows(MatchedCrossEntropyLoss(100)), MANY_LABELS, WHOLE)],
    "some-places": [(OfSomePlaces(MatchedCrossEntropyLoss(100)), MANY_LABELS.reshape(20, 20), WHOLE)],
    "some-binary-labels": [(OfSomeRows(MatchedBCEWithLogitsLoss()), MANY_BINARY, WHOLE)],
    "small-alpha-eps": [(MatchedCrossEntropyLoss(100, 1e-11), MANY_SOFT, WHOLE)],
    "integers-as-alpha-eps": [(MatchedCrossEntropyLoss(3, alpha_eps), LABELS, WHOLE) for alpha_eps in (1, 2, 3)],
    "learnt": [(MatchedCrossEntropyLoss(3, learnt(0.3, 0.1, 2.0)), LABELS, WHOLE)],
    "learnt-soft": [(MatchedCrossEntropyLoss(3, learnt(0.3, 0.1, 2.0), "moment"), SOFT, WHOLE)],
    "index-given": [(OfIndex(), LABELS, DYNAMIC)],
    "subclass": [(OfSubclass(MatchedCrossEntropyLoss(3)), LABELS, WHOLE)],
    "subclass-binary": [(OfSubclass(MatchedBCEWithLogitsLoss()), SOFT_BINARY, WHOLE)],
    "learnt-binary": [(MatchedBCEWithLogitsLoss(learnt(0.3), learnt(0.2)), SOFT_BINARY, BROKEN)],
}
WRONG = {  # labels out of their limits, whose compiled losses give no number
    "wrong-few": (MatchedBCEWithLogitsLoss(), torch.tensor([0.0, 2.0, 1.0])),
    "wrong-not-a-number": (MatchedBCEWithLogitsLoss(), torch.tensor([0.0, math.nan, 1.0])),
    "wrong-labels": (MatchedCrossEntropyLoss(100), MANY_LABELS + 1),
    "wrong-labels-of-classes": (MatchedCrossEntropyLoss(100, torch.linspace(0.1, 0.5, 100)), MANY_LABELS + 1),
    "wrong-labels-smoothed": (
        MatchedCrossEntropyLoss(100, weight=torch.ones(100), label_smoothing=0.1),
        MANY_LABELS + 1,
    ),
    "wrong-many": (MatchedBCEWithLogitsLoss(), torch.linspace(0.0, 1.1, 9_000)),
    "wrong-counts": (MatchedCrossEntropyLoss(100), MANY_SOFT - 0.01),
    "wrong-rows": (MatchedCrossEntropyLoss(100, reduction="none"), MANY_SOFT - 0.01),
}
REFUSED = {  # also within compiled graphs
    "complex-weight": (MatchedCrossEntropyLoss(3), LABELS),
    "complex-weight-many": (MatchedCrossEntropyLoss(100), MANY_LABELS),
    "complex-weight-binary": (MatchedBCEWithLogitsLoss(), SOFT_BINARY),
    "complex-weight-binary-many": (MatchedBCEWithLogitsLoss(), MANY_BINARY),
}
REFUSED_OPTIONS = {
    f"refused-{name}-{kind}-{method}": (make(method=method), y, name, value)
    for kind, make, y in (
        ("index", partial(MatchedCrossEntropyLoss, 3), LABELS),
        ("soft", partial(MatchedCrossEntropyLoss, 3), SOFT),
        ("binary", MatchedBCEWithLogitsLoss, SOFT_BINARY),
    )
    for method, name, value in (
        ("variational", "alpha_eps", -0.05),
        ("gauss", "alpha_eps", -3.0),
        ("gauss", "label_variance", -1.0),
    )
}
FOR_TWO = torch.tensor([0.1, 0.2])
REFUSED_OPTIONS["refused-length"] = (MatchedCrossEntropyLoss(3, torch.ones(3)), LABELS, "alpha_eps", FOR_TWO)
BACKWARD_ALONE = {
    "labels": (MatchedCrossEntropyLoss(3), LABELS),
    "rows": (MatchedCrossEntropyLoss(3, reduction="none"), LABELS),
    "binary": (MatchedBCEWithLogitsLoss(), SOFT_BINARY),
}
WITHIN_FUNCTIONS = {"functions-few": MANY_BINARY[:5], "functions-many": MANY_BINARY}
BY_DEFAULT = {
    "default": [(MatchedCrossEntropyLoss(3, 0.2), y, {"fullgraph": True}) for y in (LABELS, SOFT)],
    "default-binary": [(MatchedBCEWithLogitsLoss(0.2), y, {"fullgraph": True}) for y in (BINARY.long(), SOFT_BINARY)],
    "default-many-binary": [
        (MatchedBCEWithLogitsLoss(0.2), y, {"fullgraph": True}) for y in (MANY_BINARY.round(), MANY_BINARY)
    ],
    "default-many": [(MatchedCrossEntropyLoss(100, 0.2), y, {"fullgraph": True}) for y in (MANY_LABELS, MANY_SOFT)],
}


def logits_for(loss: nn.Module, y: Tensor) -> Tensor:
    n_classes = getattr(loss, "n_classes", None)
    inner = y.shape[2:] if y.is_floating_point() else y.shape[1:]
    shape = (len(y),) if n_classes is None else (len(y), n_classes, *inner)
    return random_logits(*shape).to(y.dtype if y.is_floating_point() else torch.float32)


def difference_when_compiled(case: str) -> str:
    """What is wrong with values and gradients of a case, nothing at best."""
    torch._dynamo.reset()
    try:
        for loss, y, options in (COMPILED | BY_DEFAULT).get(case, []):
            plain, compiled = (
                with_gradients(f, logits_for(loss, y), y) for f in (loss, torch.compile(loss, **options))
            )
            assert_close(compiled, plain, rtol=1e-5, atol=5e-6)
        if case in BACKWARD_ALONE:
            loss, y = BACKWARD_ALONE[case]
            logits = logits_for(loss, y).requires_grad_()
            expected, value = with_gradients(loss, logits, y)[1], loss(logits, y)
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
                value.sum().backward()
            assert_close(logits.grad, expected)
        if case in WRONG:
            loss, y = WRONG[case]
            assert torch.compile(loss, **WHOLE)(logits_for(loss, y), y).isnan().any()
        if case in REFUSED:
            loss, y = REFUSED[case]
            loss.weight = torch.ones(getattr(loss, "n_classes", 1)) + 0j
            with pytest.raises(InvalidArgumentError, match="real"):
                torch.compile(loss, **BROKEN)(logits_for(loss, y), y)
        if case in REFUSED_OPTIONS:
            loss, y, name, value = REFUSED_OPTIONS[case]
            setattr(loss, name, value)
            with pytest.raises(InvalidArgumentError, match=f"'{name}' parameter .* must be"):
                torch.compile(loss, **BROKEN)(logits_for(loss, y), y)
        if case in WITHIN_FUNCTIONS:
            y = WITHIN_FUNCTIONS[case].expand(2, -1)
            gradients, logits = torch.vmap(torch.func.grad(MatchedBCEWithLogitsLoss(0.2))), random_logits(*y.shape)
            assert_close(torch.compile(gradients, **WHOLE)(logits, y), gradients(logits, y), rtol=1e-5, atol=1e-6)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:1000]
    return ""


def differences_when_compiled(cases: Iterable[str]) -> dict[str, str]:
    program = [sys.executable, __file__, *cases]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # this file imports what lies beside it
    run = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return {case: text for case, text in json.loads(run.stdout.splitlines()[-1]).items() if text}


# by name: those that trace what others do not
IN_EVERY_RUN = """
index-moment soft-variational ignored-all-options integer-binary-variational soft-binary-variational soft-binary-gauss
many-soft-variational-sum labels-weighted-rows soft-binary-weighted few-planes-labels-weighted few-planes-soft-dynamic
several-numbers-of-classes-smoothed-0.1 function-labels-dynamic function-binary-dynamic some-labels some-binary-labels
learnt learnt-soft learnt-binary index-given wrong-labels-of-classes wrong-counts complex-weight
refused-alpha_eps-binary-gauss labels functions-few
""".split()
ALL = [*COMPILED, *WRONG, *REFUSED, *REFUSED_OPTIONS, *WITHIN_FUNCTIONS, *BACKWARD_ALONE]


def test_compiled_losses_are_the_plain_ones():
    """Values, gradients and errors; each case is named that differs."""
    assert set(IN_EVERY_RUN) <= set(ALL)
    assert differences_when_compiled(IN_EVERY_RUN) == {}


@pytest.mark.slow
@pytest.mark.parametrize("share", range(3))
def test_more_compiled_losses_are_the_plain_ones(share):
    assert differences_when_compiled([case for case in ALL if case not in IN_EVERY_RUN][share::3]) == {}


@pytest.mark.parametrize("y", [LABELS + 0j, torch.eye(5, 3) + 0j], ids=["labels", "probabilities"])
def test_complex_labels_are_refused(y):
    with pytest.raises(InvalidArgumentError, match="target"):
        matched_cross_entropy(random_logits(5, 3), y)
    with pytest.raises(InvalidArgumentError, match="target"):
        matched_binary_cross_entropy_with_logits(random_logits(*y.shape), y)


@pytest.mark.parametrize(
    "loss", [MatchedCrossEntropyLoss(3, 1), MatchedBCEWithLogitsLoss(1, 2)], ids=["class", "binary"]
)
def test_whole_numbers_as_options_are_numbers_as_others(loss):
    same = type(loss)(*([3] if isinstance(loss, MatchedCrossEntropyLoss) else []), 1.0)
    assert type(loss.alpha_eps) is float
    assert loss.alpha_eps == same.alpha_eps


def test_a_weight_may_be_learnt():
    loss, logits = MatchedCrossEntropyLoss(3), random_logits(5, 3)
    expected = MatchedCrossEntropyLoss(3, weight=WEIGHT)(logits, LABELS)
    loss.weight = None
    del loss.weight
    loss.weight = nn.Parameter(WEIGHT)
    assert_close(loss(logits, LABELS), expected)
    assert torch.autograd.grad(loss(logits, LABELS), loss.weight)[0].abs().sum() > 0.0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default compiler needs one for C++")
def test_the_default_compiler_gives_the_same():
    assert differences_when_compiled(BY_DEFAULT) == {}


KEPT_GRAPH = """
import torch
import torch._functorch.config
torch._functorch.config.donated_buffer = False  # without this, torch refuses to keep any compiled graph with buffers
from gaussify import MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss
for loss, y in [
    (MatchedCrossEntropyLoss(5), torch.arange(64) % 5),
    (MatchedCrossEntropyLoss(5), torch.rand(64, 5)),
    (MatchedBCEWithLogitsLoss(), torch.rand(64, 5)),
]:
    logits = torch.randn(64, 5, requires_grad=True)
    torch.compile(loss)(logits, y).backward()  # which puts a graph that is not kept into the compiler's cache
    torch._dynamo.reset()
    value = 3.0 * torch.compile(loss)(logits, y)
    (expected,) = torch.autograd.grad(3.0 * loss(logits, y), logits)
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(value, logits, retain_graph=True)[0], expected)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default compiler needs one for C++")
def test_backward_of_a_compiled_loss_may_be_called_again(tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    program = [sys.executable, "-c", KEPT_GRAPH]
    run = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr


if __name__ == "__main__":
    torch._dynamo.config.capture_dynamic_output_shape_ops = True  # for rows whose number is not known before
    cases = [argument for argument in sys.argv[1:] if argument != __file__]
    print(json.dumps({case: difference_when_compiled(case) for case in cases}))


# --- modes of torch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["fake", "real"])
def test_what_a_fake_call_leaves_serves_real_ones_and_the_other_way_round(first):
    from torch._subclasses.fake_tensor import FakeTensorMode

    loss, binary = MatchedCrossEntropyLoss(3, 0.372), MatchedBCEWithLogitsLoss(0.372)
    logits, labels, soft = torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), torch.full((4, 3), 1 / 3)
    expected = [
        matched_cross_entropy(logits, labels, alpha_eps=torch.tensor(0.372)),
        matched_cross_entropy(logits, soft, alpha_eps=torch.tensor(0.372)),
        matched_binary_cross_entropy_with_logits(logits, soft.round(), alpha_eps=torch.tensor(0.372)),
    ]

    def call(logits, labels, soft):
        return [loss(logits, labels), loss(logits, soft), binary(logits, soft.round())]

    def fake():
        with FakeTensorMode() as mode:
            return call(*(mode.from_tensor(own) for own in (logits, labels, soft)))

    if first == "real":
        call(logits, labels, soft)
    assert [own.shape for own in fake()] == [()] * 3
    for own, value in zip(call(logits, labels, soft), expected, strict=True):
        assert type(own) is torch.Tensor
        torch.testing.assert_close(own, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "labels", [torch.tensor([0, 1, 1, 0]), torch.tensor([0.0, 1.0, 0.3, 0.0])], ids=["hard", "soft"]
)
def test_the_binary_loss_is_exported_and_works_on(labels):
    logits, loss = torch.randn(4), MatchedBCEWithLogitsLoss(0.213)
    exported = torch.export.export(loss, (logits, labels)).module()
    torch.testing.assert_close(exported(logits, labels), loss(logits, labels))
    torch.testing.assert_close(loss(logits, labels.round().float()), loss(logits, labels.round().double().float()))


def test_labels_that_cannot_be_looked_at_and_are_no_classes_give_no_number():
    logits, labels = torch.randn(2, 4, 3), torch.tensor([[0, 1, 5, 0], [0, 1, 2, 0]])
    assert torch.vmap(matched_cross_entropy)(logits, labels).isnan().tolist() == [True, False]


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (MatchedBCEWithLogitsLoss(0.1), torch.tensor([[0, 2, 1], [0, 0, 1]])),
        (MatchedBCEWithLogitsLoss(0.1, method="gauss"), torch.tensor([[0, 2, 1], [0, 0, 1]])),
        (MatchedBCEWithLogitsLoss(0.1), torch.tensor([[0.0, 1.05, 1.0], [0.0, 1.0, 0.4]])),
        (MatchedBCEWithLogitsLoss(0.1), torch.tensor([[0.0, 2.0, 1.0], [0.0, 1.0, 0.4]])),
        (MatchedCrossEntropyLoss(2, 0.1), torch.tensor([[[0.5, -0.05]], [[0.0, 1.0]]])),
    ],
    ids=["integer", "integer-gauss", "above", "far-above", "negative-count"],
)
def test_labels_out_of_limits_give_no_number_where_they_cannot_be_looked_at(loss, labels):
    assert torch.vmap(loss)(torch.randn(labels.shape), labels).isnan().tolist() == [True, False]


@pytest.mark.parametrize("alpha_eps", [np.float64(0.5), np.float32(0.5), 1, np.int64(1)], ids=repr)
def test_numbers_of_any_kind_are_numbers(alpha_eps):
    logits, same = random_logits(5, 3), float(alpha_eps)
    assert type(MatchedCrossEntropyLoss(3, alpha_eps).alpha_eps) is float
    assert_close(
        MatchedCrossEntropyLoss(3, alpha_eps)(logits, LABELS), matched_cross_entropy(logits, LABELS, alpha_eps=same)
    )
    options = {"alpha_eps": alpha_eps, "label_smoothing": 0, "label_variance": 1}
    assert_close(
        matched_cross_entropy(logits, LABELS, **options), matched_cross_entropy(logits, LABELS, alpha_eps=same)
    )
    own = matched_binary_cross_entropy_with_logits(logits, logits.sigmoid(), beta_eps=alpha_eps)
    assert_close(own, matched_binary_cross_entropy_with_logits(logits, logits.sigmoid(), beta_eps=same))


def test_weights_of_binary_losses_are_real():
    logits = random_logits(5, 3)
    for name in ("weight", "pos_weight"):
        with pytest.raises(InvalidArgumentError, match=f"'{name}' of .* real numbers that.*complex64"):
            matched_binary_cross_entropy_with_logits(logits, logits.sigmoid(), **{name: torch.ones(3) + 0j})


@pytest.mark.parametrize("alpha_eps", [0.1, [0.1, 0.2, 0.3]], ids=["one", "per-class"])
def test_losses_may_be_made_without_memory(alpha_eps):  # as transformers makes models before it reads their weights
    with torch.device("meta"):
        loss = MatchedCrossEntropyLoss(3, alpha_eps, weight=torch.ones(3))
        assert loss(torch.zeros(5, 3), torch.zeros(5).long()).is_meta
        binary = MatchedBCEWithLogitsLoss(0.1, pos_weight=torch.ones(3))
        assert binary(torch.zeros(5, 3), torch.zeros(5, 3)).is_meta
    made = MatchedCrossEntropyLoss(3, alpha_eps, weight=WEIGHT)
    filled = loss.to_empty(device="cpu")
    filled.load_state_dict(made.state_dict())
    logits = random_logits(5, 3)
    assert_close(filled(logits, LABELS), made(logits, LABELS), rtol=0, atol=0)
    assert made.to("meta")(logits.to("meta"), LABELS.to("meta")).is_meta


def test_smoothed_counts_have_the_digits_of_the_logits():
    logits, counts = random_logits(5, 3).double(), SOFT.float()
    options = {"label_smoothing": 0.1}
    expected = matched_cross_entropy(logits, counts.double(), **options)
    learnt_eps = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert_close(matched_cross_entropy(logits, counts, alpha_eps=learnt_eps, **options), expected, rtol=1e-12, atol=0)


def test_options_that_are_not_needed_are_looked_at_too():
    with pytest.raises(InvalidArgumentError, match="beta_eps"):
        matched_binary_cross_entropy_with_logits(torch.randn(4), torch.ones(4), method="gauss", beta_eps=-1.0)
