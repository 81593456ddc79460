"""What a file says about a model that several estimators have in common, and that again, checked."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
    expect(len(np.unique(classes)) == len(classes), "classes are different")
    return classes


def expect(holds: bool, what: str) -> None:
    """Say what is wrong with a file."""
    if not holds:
        raise ValueError(f"it is not so that {what}")


def expect_numbers(tensor: Tensor, shape: tuple[int, ...], name: str, *, positive: bool = False) -> None:
    """Check a tensor of a file."""
    sound = tensor.shape == shape and tensor.dtype == torch.float64 and bool(torch.isfinite(tensor).all())
    expect(sound, f"{name} holds finite float64 numbers of shape {tuple(shape)}")
    expect(not positive or bool((tensor > 0.0).all()), f"{name} is positive")


def plain(value: Any) -> Any:
    """Numbers and lists in place of arrays, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
