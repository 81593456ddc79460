"""Parts of model files that several estimators share: they are packed, and checked when unpacked."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaussify.exceptions import ModelFileError, NumericalError
from gaussify.posterior import ClassStatistics

_ERRORS = (
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    NumericalError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Packed(NamedTuple):
    """A part of a model in a file: values for the JSON header, and tensors."""

    config: dict[str, Any] | None
    tensors: dict[str, Tensor]


def pack_classes(classes: NDArray) -> dict[str, Any]:
    """Return class labels as values for JSON."""
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def unpack_classes(config: dict[str, Any]) -> NDArray:
    """Return class labels from values of JSON."""
    dtype = np.dtype(config["classes"]["dtype"])
    expect(dtype.kind in "biufU", "labels are numbers or text")
    classes = np.array(config["classes"]["values"], dtype=dtype)
    expect(classes.ndim == 1 and (dtype.kind == "U" or bool(np.isfinite(classes).all())), "there is a list of labels")
    expect(bool((classes[1:] > classes[:-1]).all()), "classes are different and in order")
    return classes


def unpack_statistics(tensors: dict[str, Tensor], n_classes: int, n_features: int, prefix: str = "") -> ClassStatistics:
    """Return class statistics from tensors of a file."""
    shapes = {"count": (), "feature_sum": (n_features,), "gram": (n_features, n_features)}
    for name, shape in shapes.items():
        expect_numbers(tensors[prefix + name], (n_classes, *shape), name)
    statistics = ClassStatistics(**{name: tensors[prefix + name] for name in shapes})
    diagonal = statistics.gram.diagonal(dim1=-2, dim2=-1)
    least = -1e-9 * (1.0 + diagonal.max())  # which the first files may hold after unlearning
    expect(bool((statistics.count >= 0.0).all() and (diagonal >= least).all()), "statistics are those of rows")
    return statistics


@contextmanager
def unpacking(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Turn every error inside into a ModelFileError that names the file and the kind of model."""
    try:
        yield
    except _ERRORS as error:
        raise ModelFileError(f"{path} does not hold a complete {kind}: {error!s}.") from None


def expect(holds: bool, what: str) -> None:
    """Raise an error that says what does not hold for a file."""
    if not holds:
        raise ValueError(f"it is not true that {what}")


def expect_numbers(tensor: Tensor, shape: tuple[int, ...], name: str, *, positive: bool = False) -> None:
    """Check shape, dtype and values of a tensor from a file."""
    sound = tensor.shape == shape and tensor.dtype == torch.float64 and bool(torch.isfinite(tensor).all())
    expect(sound, f"{name} holds finite float64 numbers of shape {tuple(shape)}")
    expect(not positive or bool((tensor > 0.0).all()), f"{name} is positive")


def whole(value: object, what: str) -> int:
    """Return a whole number from a file."""
    if type(value) is not int or value < 0:
        raise ValueError(f"it is not true that {what} is a whole number")
    return value


def plain(value: Any) -> Any:
    """Return an array as a number or list, for JSON, and any other value unchanged."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
