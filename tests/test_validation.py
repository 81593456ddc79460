from enum import StrEnum

import numpy as np
import pytest
import torch
from torch.distributions import Gamma

from gaussify._validation import (
    as_concentration,
    as_floats,
    as_labels,
    as_tensor,
    check_count,
    check_distribution,
    check_option,
)
from gaussify.exceptions import InvalidArgumentError


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "pear"


def test_check_option_takes_a_member():
    assert check_option(Fruit.PEAR, Fruit, name="fruit", owner="eat") is Fruit.PEAR


def test_check_option_refuses_a_member_that_is_not_allowed_here():
    with pytest.raises(InvalidArgumentError, match=r"'fruit' parameter of eat must be one of 'apple'; got .*pear"):
        check_option(Fruit.PEAR, Fruit, name="fruit", owner="eat", allowed=[Fruit.APPLE])


@pytest.mark.parametrize("value", ["APPLE", None, 1, ["apple"]], ids=["case", "none", "number", "list"])
def test_check_option_refuses_anything_else(value):
    with pytest.raises(InvalidArgumentError, match="must be one of 'apple', 'pear'; got"):
        check_option(value, Fruit, name="fruit", owner="eat")


@pytest.mark.parametrize("value", [True, np.bool_(True), 2.0, "2", None, [2]])
def test_check_count_refuses_what_is_no_integer(value):
    with pytest.raises(InvalidArgumentError, match="'n' parameter of f must be an integer of at least 1; got"):
        check_count(value, name="n", owner="f")


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)], ids=["int", "int64", "uint8"])
def test_check_count_returns_a_plain_int(value):
    assert type(check_count(value, name="n", owner="f")) is int


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(InvalidArgumentError) as error:
        as_tensor(["label"] * 1000, name="y", owner="f")
    assert len(str(error.value)) < 120


def test_tensors_pass_through_untouched():
    given = torch.ones(3, requires_grad=True)
    assert as_tensor(given, name="x", owner="f") is given


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6.0)[::-1],
        lambda: np.arange(6.0)[::2],
        lambda: np.arange(6.0).reshape(2, 3).T,
        lambda: np.broadcast_to(1.0, (3,)),
        lambda: np.frombuffer(bytes(24), dtype=float),
    ],
    ids=["negative-strides", "strided", "transposed", "broadcast", "read-only"],
)
def test_every_memory_layout_of_numpy_is_taken(make):
    assert np.array_equal(as_tensor(make(), name="x", owner="f").numpy(), make())


@pytest.mark.parametrize("value", ["text", None, [1, None], 1j, np.array([object()])])
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="'x' of f must be numbers; got"):
        as_tensor(value, name="x", owner="f")


def test_a_complex_tensor_is_refused():
    with pytest.raises(InvalidArgumentError, match="'x' of f must be"):
        as_floats(torch.ones(2, dtype=torch.complex64), name="x", owner="f")


def test_integers_become_float64():
    assert as_floats(torch.tensor([1, 2]), name="x", owner="f").dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_floats_keep_their_dtype(dtype):
    assert as_floats(torch.ones(2, dtype=dtype), name="x", owner="f").dtype == dtype


def test_a_learnt_concentration_keeps_its_graph():
    given = torch.tensor(0.1, requires_grad=True)
    assert as_concentration(given, name="alpha_eps", owner="f") is given


def test_zero_is_a_concentration_only_where_allowed():
    assert as_concentration(0.0, name="beta_eps", owner="f", allow_zero=True).item() == 0.0
    with pytest.raises(InvalidArgumentError, match="'beta_eps' parameter of f must be positive; got 0"):
        as_concentration(0.0, name="beta_eps", owner="f")


def test_labels_become_integers():
    assert as_labels(np.array([0.0, 2.0]), n_classes=3, owner="f").dtype == torch.int64


def test_labels_must_have_one_dimension():
    with pytest.raises(InvalidArgumentError, match=r"Labels given to f must be integers from 0 to 2, in one dimension"):
        as_labels([[0, 1]], n_classes=3, owner="f")


def test_what_is_not_a_distribution_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"match takes a torch\.distributions\.Distribution; got 3"):
        check_distribution(3, owner="match")


@pytest.mark.parametrize("bad", [torch.inf, torch.nan, -1.0], ids=["inf", "nan", "negative"])
def test_parameters_of_a_distribution_are_checked_and_located(bad):
    distribution = Gamma(torch.tensor([1.0, bad]), torch.tensor(1.0), validate_args=False)
    with pytest.raises(InvalidArgumentError, match=r"'concentration' parameter of Gamma, given to match.*at index 1"):
        check_distribution(distribution, owner="match")
