"""Checks of arguments, with errors that name the argument, its function, what is allowed and what came.

Public functions and classes call them first; the mathematics behind trusts its input.
"""

import inspect
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, Independent, constraints
from torch.distributions.utils import lazy_property

from gaussify.exceptions import InvalidArgumentError

Option = TypeVar("Option", bound=StrEnum)

if TYPE_CHECKING:
    ArrayInput = ArrayLike | Tensor
else:
    ArrayInput = object  # else the tests, which enforce types, would never reach the checks of this module
"""Numbers or labels as users give them, for editors and mypy; :func:`as_floats` and its like check them."""


def check_option(
    value: object,
    options: type[Option],
    *,
    name: str,
    owner: str,
    allowed: Iterable[Option] | None = None,
    also: str = "",
) -> Option:
    """Return the member of ``options`` that ``value`` names; errors also mention ``also``, which the caller allows.

    Examples
    --------
    >>> class Fruit(StrEnum):
    ...     APPLE = "apple"
    ...     PEAR = "pear"
    >>> check_option("pear", Fruit, name="fruit", owner="eat")
    <Fruit.PEAR: 'pear'>
    >>> check_option("plum", Fruit, name="fruit", owner="eat")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: The 'fruit' parameter of eat must be one of 'apple', 'pear'; got 'plum'.
    """
    if isinstance(value, options) and allowed is None:
        return value
    choices = list(options if allowed is None else allowed)
    if isinstance(value, str) and value in [choice.value for choice in choices]:
        return options(value)
    names = ", ".join(repr(choice.value) for choice in choices) + (f", or {also}" if also else "")
    raise InvalidArgumentError(f"The {name!r} parameter of {owner} must be one of {names}; got {_shown(value)}.")


def check_count(value: object, *, name: str, owner: str, minimum: int = 1) -> int:
    """Return ``value`` as an int that is at least ``minimum``.

    Examples
    --------
    >>> check_count(3, name="n_classes", owner="SoftmaxLikelihood", minimum=2)
    3
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_integer and int(value) >= minimum:  # type: ignore[call-overload]
        return int(value)  # type: ignore[call-overload]
    raise InvalidArgumentError(
        f"The {name!r} parameter of {owner} must be an integer of at least {minimum}; got {_shown(value)}."
    )


def as_tensor(value: object, *, name: str, owner: str) -> Tensor:
    """Return an array-like of numbers as a tensor; a tensor is returned unchanged.

    Examples
    --------
    >>> as_tensor([1.0, 2.0], name="mean", owner="predict_proba").dtype
    torch.float64
    """
    if isinstance(value, Tensor):
        if value.is_complex():
            raise InvalidArgumentError(f"{name!r} of {owner} must be real numbers; got {value.dtype}.")
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidArgumentError(
            f"{name!r} of {owner} must be an array of numbers with rows of equal length; got {_shown(value)}."
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError(f"{name!r} of {owner} must be numbers; got {_shown(value)}.")
    if array.dtype.kind == "u":
        array = array.astype(np.int64)  # torch has few functions for wide unsigned integers
    # torch accepts neither read-only memory nor negative strides
    return torch.as_tensor(array if array.flags.writeable and array.flags.contiguous else array.copy())


def float_dtype(value: object) -> torch.dtype | None:
    """Return the floating-point dtype of a tensor or array-like; None if it holds integers or anything else.

    Examples
    --------
    >>> float_dtype([0.5]), float_dtype([1, 2])
    (torch.float64, None)
    """
    dtype = value.dtype if isinstance(value, Tensor) else np.asarray(value).dtype
    if isinstance(dtype, torch.dtype):
        return dtype if dtype.is_floating_point else None
    return torch.as_tensor(np.empty(0, dtype)).dtype if dtype.kind == "f" else None


def as_floats(
    value: object,
    *,
    name: str,
    owner: str,
    ndim: int | None = None,
    min_ndim: int = 0,
    columns: int | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Tensor:
    """Return finite floating-point numbers as a tensor, after checks of their shape and limits.

    Examples
    --------
    >>> as_floats([[0.5, float("nan")]], name="variance", owner="predict_proba")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: 'variance' of predict_proba must be finite; got nan at index (0, 1).
    """
    tensor = as_tensor(value, name=name, owner=owner)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if tensor.ndim < min_ndim:
        raise InvalidArgumentError(
            f"{name!r} of {owner} must have at least {min_ndim} dimensions; got shape {tuple(tensor.shape)}."
        )
    if ndim is not None and tensor.ndim != ndim:
        raise InvalidArgumentError(
            f"{name!r} of {owner} must have {ndim} dimension{'s' * (ndim != 1)}; got shape {tuple(tensor.shape)}."
        )
    if columns is not None and (tensor.ndim == 0 or tensor.shape[-1] != columns):
        raise InvalidArgumentError(
            f"{name!r} of {owner} must have {columns} column{'s' * (columns != 1)} (its last dimension); "
            f"got shape {tuple(tensor.shape)}."
        )
    _refuse(~torch.isfinite(tensor), tensor, f"{name!r} of {owner} must be finite")
    if minimum is not None:
        _refuse(tensor < minimum, tensor, f"{name!r} of {owner} must be at least {minimum:g}")
    if maximum is not None:
        _refuse(tensor > maximum, tensor, f"{name!r} of {owner} must be at most {maximum:g}")
    return tensor


def as_concentration(
    value: object, *, name: str, owner: str, sizes: Sequence[int] = (), allow_zero: bool = False
) -> Tensor:
    """Return a finite, positive number as a tensor, or a vector of one of the lengths ``sizes``.

    Python numbers become float64. Tensors keep their dtype, device and graph, so that they can be learnt.

    Examples
    --------
    >>> as_concentration(-0.1, name="alpha_eps", owner="SoftmaxLikelihood")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: The 'alpha_eps' parameter of SoftmaxLikelihood must be positive; got -0.1.
    """
    label = f"The {name!r} parameter of {owner}"
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{label} must be a number; got {value}.")
    tensor = as_tensor(value, name=name, owner=owner)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if tensor.ndim and (tensor.ndim > 1 or tensor.shape[0] not in sizes):
        lengths = "".join(f" or a vector of length {size}" for size in sizes)
        raise InvalidArgumentError(f"{label} must be a number{lengths}; got shape {tuple(tensor.shape)}.")
    _refuse(~torch.isfinite(tensor), tensor, f"{label} must be finite")
    _refuse(
        tensor < 0 if allow_zero else tensor <= 0,
        tensor,
        f"{label} must be {'at least 0' if allow_zero else 'positive'}",
    )
    return tensor


def as_labels(y: object, *, n_classes: int, owner: str) -> Tensor:
    """Return class indices ``0 .. n_classes - 1`` as an integer tensor of shape (n,).

    Examples
    --------
    >>> as_labels([0, 2], n_classes=2, owner="encode")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: Labels given to encode must be integers from 0 to 1; got 2 at index 1.
    """
    allowed = f"Labels given to {owner} must be integers from 0 to {n_classes - 1}"
    labels = as_tensor(y, name="y", owner=owner)
    if labels.ndim != 1:
        raise InvalidArgumentError(f"{allowed}, in one dimension; got shape {tuple(labels.shape)}.")
    if labels.is_floating_point():
        _refuse(labels != labels.round(), labels, allowed)
    _refuse((labels < 0) | (labels >= n_classes), labels, allowed)
    return labels.long()


def as_probs(value: object, *, name: str, owner: str, columns: int | None = None) -> Tensor:
    """Return class probabilities of shape (n, n_classes) as a float64 tensor on the CPU, outside any graph.

    Entries may exceed one, and row sums may differ from one, by up to 1e-4; they are returned as they came.

    Examples
    --------
    >>> as_probs([[0.7, 0.2]], name="probs", owner="nll")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: Rows of 'probs' of nll must sum to one; got 0.9 at index 0.
    """
    label, tolerance = f"{name!r} of {owner}", 1e-4
    probs = as_floats(value, name=name, owner=owner, columns=columns).detach().to("cpu", torch.float64)
    shape = tuple(probs.shape)
    allowed = f"{label} must have shape (n, n_classes), with n >= 1 and n_classes >= 2; got shape {shape}."
    if probs.ndim == 1:
        remedy = f"For one probability per row, stack two columns: np.column_stack([1 - {name}, {name}])."
        raise InvalidArgumentError(f"{allowed} {remedy}")
    if probs.ndim != 2 or probs.shape[0] < 1 or probs.shape[1] < 2:
        raise InvalidArgumentError(allowed)
    _refuse((probs < 0) | (probs > 1 + tolerance), probs, f"{label} must be probabilities, from 0 to 1")
    sums = probs.mv(probs.new_ones(probs.shape[1]))  # for few columns ten times as fast as sum
    _refuse((sums - 1).abs() > tolerance, sums, f"Rows of {label} must sum to one")
    return probs


def as_predictions(probs: object, y: object, *, owner: str) -> tuple[Tensor, Tensor]:
    """Return class probabilities (n, n_classes) and the true class indices (n,), both on the CPU.

    Examples
    --------
    >>> as_predictions([[0.9, 0.1]], [0, 1], owner="nll")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: nll needs the same number of rows in each argument; got probs: 1, y: 2.
    """
    probs = as_probs(probs, name="probs", owner=owner)
    labels = as_labels(y, n_classes=probs.shape[1], owner=owner).cpu()
    check_same_rows(owner, probs=probs, y=labels)
    return probs, labels


def as_whole_counts(value: object, *, name: str, owner: str) -> Tensor:
    """Return non-negative whole numbers of shape (n,) as a floating-point tensor.

    Examples
    --------
    >>> as_whole_counts([3, 0.5], name="y", owner="PoissonLikelihood.encode")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: 'y' of PoissonLikelihood.encode must be whole numbers; got 0.5 at index 1.
    """
    counts = as_floats(value, name=name, owner=owner, ndim=1, minimum=0.0)
    _refuse(counts != counts.round(), counts, f"{name!r} of {owner} must be whole numbers")
    return counts


def check_same_rows(owner: str, **arrays: Tensor) -> None:
    """Raise an error if the first dimensions of arrays differ.

    Examples
    --------
    >>> check_same_rows("log_prob", latents=torch.zeros(3, 2), y=torch.zeros(4))
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: log_prob needs the same number of rows in each argument;
    got latents: 3, y: 4.
    """
    rows = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name}: {n}" for name, n in rows.items())
        raise InvalidArgumentError(f"{owner} needs the same number of rows in each argument; got {found}.")


def check_distribution(distribution: object, *, owner: str) -> Distribution:
    """Return a torch distribution after checking that its parameters are finite and satisfy their constraints.

    torch itself checks constraints only if ``validate_args`` is on, and accepts infinities.

    Examples
    --------
    >>> from torch.distributions import Gamma
    >>> check_distribution(Gamma(-1.0, 1.0, validate_args=False), owner="match")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: The 'concentration' parameter of Gamma, given to match, must satisfy
    GreaterThan(lower_bound=0.0); got -1.
    """
    if not isinstance(distribution, Distribution):
        raise InvalidArgumentError(f"{owner} takes a torch.distributions.Distribution; got {_shown(distribution)}.")
    if isinstance(distribution, Independent):
        check_distribution(distribution.base_dist, owner=owner)
    family = type(distribution).__name__
    for name, constraint in distribution.arg_constraints.items():
        lazy = isinstance(inspect.getattr_static(distribution, name, None), lazy_property)
        if constraints.is_dependent(constraint) or lazy:
            continue  # a lazy parameter follows from one that was given
        value = getattr(distribution, name)
        if value.numel() == 0:
            continue  # torch's own checks fail on empty tensors
        label = f"The {name!r} parameter of {family}, given to {owner}, must"
        _refuse(~torch.isfinite(value), value, f"{label} be finite")
        elementwise = getattr(constraint, "base_constraint", constraint)
        _refuse(~elementwise.check(value), value, f"{label} satisfy {elementwise}")
    return distribution


def _refuse(bad: Tensor, values: Tensor, allowed: str) -> None:
    """Raise an error that says what is allowed, and the first bad value with its index."""
    if bad.is_meta or not bool(bad.any()):  # a meta tensor has no values to check
        return
    index = tuple(bad.nonzero()[0].tolist())
    came = f"{values[index].item():g}"
    if len(index) == 1:
        came += f" at index {index[0]}"
    elif index:
        came += f" at index {index}"
    raise InvalidArgumentError(f"{allowed}; got {came}.")


def _shown(value: object) -> str:
    """Return a short text for a value of any type."""
    text = repr(value.value if isinstance(value, StrEnum) else value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}..."
