"""Rows in the order of their classes, and chunks of them: what objectives pass over."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class SortedRows(NamedTuple):
    """Rows sorted by class, so that the rows of each class are a slice.

    Examples
    --------
    >>> rows = SortedRows.of(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 0, 1]), n_classes=2)
    >>> rows.features.flatten(), rows.labels
    (tensor([2., 1., 3.]), tensor([0, 1, 1]))
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]
    n_classes: int

    @classmethod
    def of(
        cls,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        weight: Float[Tensor, " n"] | None = None,
        *,
        n_classes: int,
    ) -> "SortedRows":
        """Return the rows in the order of their labels; by default all weights are one."""
        weight = torch.ones_like(features[:, 0]) if weight is None else weight
        order = torch.argsort(labels, stable=True)
        return cls(features[order], labels[order], weight[order], n_classes)

    def take(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return the rows at these places, which must increase."""
        return SortedRows(self.features[places], self.labels[places], self.weight[places], self.n_classes)

    def without(self, places: Int[Tensor, " k"]) -> "SortedRows":
        """Return all rows but those at these places."""
        rest = torch.ones(len(self.labels), dtype=torch.bool)
        rest[places] = False
        return self.take(rest.nonzero()[:, 0])

    def chunks(self, size: int) -> Iterator["RowChunk"]:
        """Yield chunks of at most ``size`` rows; a chunk may hold rows of several classes."""
        weight = None if bool((self.weight == 1.0).all()) else self.weight
        ends = torch.bincount(self.labels, minlength=self.n_classes).cumsum(0).tolist()
        for start in range(0, len(self.labels), size):
            part = slice(start, min(start + size, len(self.labels)))
            own = [
                (label, slice(max(begin, part.start) - start, min(end, part.stop) - start))
                for label, (begin, end) in enumerate(pairwise([0, *ends]))
                if max(begin, part.start) < min(end, part.stop)
            ]
            yield RowChunk(self.features[part], None if weight is None else weight[part], own)


class RowChunk(NamedTuple):
    """Consecutive rows: features, weights (None if all are one) and the slice of each class.

    Examples
    --------
    >>> rows = SortedRows.of(torch.ones(5, 3), torch.tensor([0, 0, 0, 1, 1]), n_classes=2)
    >>> [chunk.slices for chunk in rows.chunks(4)]
    [[(0, slice(0, 3, None)), (1, slice(3, 4, None))], [(1, slice(0, 1, None))]]
    """

    features: Float[Tensor, "n d"]
    weight: Float[Tensor, " n"] | None
    slices: list[tuple[int, slice]]
