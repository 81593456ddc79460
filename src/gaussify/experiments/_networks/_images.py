"""Images to train and to test on, and how they are made alike and varied."""

from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from gaussify import datasets
from gaussify.experiments._lab import load_rows

_PADDING = 4


def load_images(name: str) -> Any:
    """Return images to train and to test on; "digits" are scikit-learn's, enlarged to 28 × 28 pixels."""
    if name != "digits":
        return datasets.load(name)
    X, y = load_rows("digits")
    larger = np.kron(15.0 * X.reshape(-1, 8, 8), np.ones((1, 3, 3))).astype(np.uint8)
    X = np.pad(larger, ((0, 0), (2, 2), (2, 2)))  # 28 x 28
    names = tuple(str(digit) for digit in range(10))
    return datasets.Dataset(name, X[:1200], y[:1200], X[1200:], y[1200:], names, "scikit-learn", "BSD-3-Clause")


def in_colour(images: UInt8[Tensor, "n ..."]) -> UInt8[Tensor, "n 32 32 3"]:
    """Return grey images of 28 × 28 pixels in the format of CIFAR-10: with a black frame and three equal channels."""
    if images.shape[1:] == (32, 32, 3):
        return images
    return nn.functional.pad(images, (2, 2, 2, 2))[..., None].repeat(1, 1, 1, 3)


def augment(images: UInt8[Tensor, "n h w 3"], generator: torch.Generator) -> UInt8[Tensor, "n h w 3"]:
    """Return each image moved by up to four pixels, with black at the edges, and about half of them mirrored."""
    n, height, width, _ = images.shape
    padded = nn.functional.pad(images, (0, 0, _PADDING, _PADDING, _PADDING, _PADDING))
    shifts = torch.randint(2 * _PADDING + 1, (2, n, 1), generator=generator)
    rows, columns = shifts[0] + torch.arange(height), shifts[1] + torch.arange(width)  # (n, h), (n, w)
    mirrored = torch.rand(n, generator=generator) < 0.5
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
