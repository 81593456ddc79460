"""Class statistics of a stream: rows wait until adding them pays."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import large_zeros
from gaussify.posterior._statistics import ClassStatistics, add_rows_

_FEWEST_ROWS = 256
_MOST_ELEMENTS = 1 << 24  # 128 MiB of float64


class StatisticsAccumulator:
    r"""The statistics of all rows given so far, of which the last few wait in a bounded buffer.

    Adding a handful of rows of each class to K Gram matrices moves K d² numbers for little arithmetic, and one row at a
    time is worse. So rows wait until there are as many numbers in them as in the Gram matrices (d rows a class), when
    the addition runs at the speed of a matrix product, however small the blocks in which they came and however many
    classes there are. The buffer never exceeds 128 MiB.

    Examples
    --------
    >>> accumulator = StatisticsAccumulator(ClassStatistics.zeros(n_classes=2, n_features=3))
    >>> accumulator.append(torch.ones(4, 3).double(), torch.tensor([0, 1, 1, 1]))
    >>> accumulator.scale(0.5)  # forget
    >>> accumulator.append(torch.ones(1, 3).double(), torch.tensor([0]))
    >>> accumulator.statistics.count
    tensor([1.5000, 1.5000], dtype=torch.float64)
    """

    def __init__(self, statistics: ClassStatistics) -> None:
        self._settled = statistics
        self._factor = 1.0  # of what is settled; rows that wait carry theirs
        self._waiting: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._n_waiting = 0

    @property
    def n_classes(self) -> int:
        """Number of classes, seen or not."""
        return self._settled.n_classes

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._settled.n_features

    @property
    def statistics(self) -> ClassStatistics:
        """The statistics of every row, none waiting any more. What is returned changes with later rows."""
        self._settle()
        return self._settled

    def append(
        self,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> None:
        """Add rows, which are kept as they are: they must not change afterwards."""
        self._waiting.append((features, labels, sample_weight))
        self._n_waiting += features.shape[0]
        n_classes, n_features = self.n_classes, self.n_features
        limit = min(max(n_classes * n_features, _FEWEST_ROWS), max(_MOST_ELEMENTS // n_features, _FEWEST_ROWS))
        if self._n_waiting >= limit:
            self._settle()

    def scale(self, factor: float) -> None:
        """Multiply the weight of every row so far by ``factor``."""
        self._factor *= factor
        self._waiting = [
            (features, labels, (torch.ones_like(features[:, 0]) if weight is None else weight) * factor)
            for features, labels, weight in self._waiting
        ]

    def replace(self, statistics: ClassStatistics) -> None:
        """Go on from other statistics."""
        self.__init__(statistics)  # type: ignore[misc]

    def _settle(self) -> None:
        if self._factor != 1.0:
            self._settled, self._factor = self._settled * self._factor, 1.0
        if not self._waiting:
            return
        features, labels, weights = zip(*self._waiting, strict=True)
        weight = None
        if any(own is not None for own in weights):
            filled = [torch.ones_like(f[:, 0]) if w is None else w for f, w in zip(features, weights, strict=True)]
            weight = _joined(filled)
        add_rows_(self._settled, _joined(features), _joined(labels), weight)
        self._waiting, self._n_waiting = [], 0


def _joined(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    if parts[0].is_floating_point():
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        return torch.cat(parts, out=large_zeros(shape, parts[0].dtype, parts[0].device))
    return torch.cat(parts)
