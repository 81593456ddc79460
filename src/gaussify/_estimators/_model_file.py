"""What a file says about a model that several estimators have in common, and that again, checked."""

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
    """A part of a model, for the JSON header and as tensors."""

    config: dict[str, Any] | None
    tensors: dict[str, Tensor]


def pack_classes(classes: NDArray) -> dict[str, Any]:
    """Return the labels for JSON."""
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def unpack_classes(config: dict[str, Any]) -> NDArray:
    """Return the labels."""
    dtype = np.dtype(config["classes"]["dtype"])
    expect(dtype.kind in "biufU", "labels are numbers or text")
    classes = np.array(config["classes"]["values"], dtype=dtype)
    expect(classes.ndim == 1 and (dtype.kind == "U" or bool(np.isfinite(classes).all())), "there is a list of labels")
    expect(bool((classes[1:] > classes[:-1]).all()), "classes are different and in order")
    return classes


def unpack_statistics(tensors: dict[str, Tensor], n_classes: int, n_features: int, prefix: str = "") -> ClassStatistics:
    """Return statistics of rows."""
    shapes = {"count": (), "feature_sum": (n_features,), "gram": (n_features, n_features)}
    for name, shape in shapes.items():
        expect_numbers(tensors[prefix + name], (n_classes, *shape), name)
    statistics = ClassStatistics(**{name: tensors[prefix + name] for name in shapes})
    diagonal = statistics.gram.diagonal(dim1=-2, dim2=-1)
    least = -1e-9 * (1.0 + diagonal.max())  # as the first files may have after rows were unlearnt
    expect(bool((statistics.count >= 0.0).all() and (diagonal >= least).all()), "statistics are those of rows")
    return statistics


@contextmanager
def unpacking(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Say that a file does not hold a model of this kind, whatever is wrong with what it holds."""
    try:
        yield
    except _ERRORS as error:
        raise ModelFileError(f"{path} does not hold a complete {kind}: {error!s}.") from None


def expect(holds: bool, what: str) -> None:
    """Say what is wrong with a file."""
    if not holds:
        raise ValueError(f"it is not so that {what}")


def expect_numbers(tensor: Tensor, shape: tuple[int, ...], name: str, *, positive: bool = False) -> None:
    """Check a tensor of a file."""
    sound = tensor.shape == shape and tensor.dtype == torch.float64 and bool(torch.isfinite(tensor).all())
    expect(sound, f"{name} holds finite float64 numbers of shape {tuple(shape)}")
    expect(not positive or bool((tensor > 0.0).all()), f"{name} is positive")


def whole(value: Any, what: str) -> int:
    """Return a number of a file that counts something."""
    expect(type(value) is int and value >= 0, f"{what} is a whole number")
    return int(value)


def plain(value: Any) -> Any:
    """Numbers and lists in place of arrays, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
