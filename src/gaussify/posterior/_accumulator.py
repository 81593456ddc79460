"""Class statistics of a stream: rows are collected and added many at a time, which is faster."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify.posterior._statistics import ClassStatistics, RowBlock, add_rows_, joined

_FEWEST_ROWS = 256
_MOST_ELEMENTS = 1 << 24  # 128 MiB of float64
_MOST_BLOCKS = 256  # more are joined into one, so that copying the list stays cheap
_SMALLEST_FACTOR = 1e-100


class StatisticsAccumulator:
    r"""The statistics of all rows given so far, of which the last wait in a bounded buffer.

    Adding a few rows of each class to K Gram matrices moves K d² numbers for little arithmetic. So rows wait until
    they hold as many numbers as the Gram matrices (d rows for each class). Adding them then runs at the speed of a
    matrix product, whatever the number of classes and the size of the blocks in which rows came. At most 128 MiB of
    rows wait.

    Statistics that were returned never change, and ``copy`` is cheap, so one can work on a copy and discard it.

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
        self.n_classes, self.n_features = statistics.n_classes, statistics.n_features
        self._factor = 1.0  # by which everything is to be multiplied; rows that come later are divided by it
        self._waiting: list[RowBlock] = []
        self._n_waiting = 0
        self._n_joined = 0  # number of first blocks that are joins of many

    @property
    def statistics(self) -> ClassStatistics:
        """The statistics of every row."""
        self._settle()
        return self._settled

    def copy(self) -> "StatisticsAccumulator":
        """Return a copy; changes of one do not affect the other."""
        twin = object.__new__(StatisticsAccumulator)
        twin.__dict__.update(self.__dict__)
        twin._waiting = list(self._waiting)
        return twin

    def append(
        self,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> None:
        """Add rows. They are kept without a copy, so they must not change afterwards. Weights are not negative."""
        self._waiting.append(_scaled(RowBlock(features, labels, sample_weight), 1 / self._factor))
        self._n_waiting += features.shape[0]
        if len(self._waiting) - self._n_joined >= _MOST_BLOCKS:
            self._waiting = [*self._waiting[: self._n_joined], joined(self._waiting[self._n_joined :])]
            self._n_joined += 1
        n_classes, n_features = self.n_classes, self.n_features
        limit = min(max(n_classes * n_features, _FEWEST_ROWS), max(_MOST_ELEMENTS // n_features, _FEWEST_ROWS))
        if self._n_waiting >= limit:
            self._settle()

    def scale(self, factor: float) -> None:
        """Multiply the weight of every row so far by ``factor``."""
        self._factor *= factor
        if self._factor < _SMALLEST_FACTOR:
            self._settle()

    def _settle(self) -> None:
        if not self._waiting and self._factor == 1.0:
            return
        # a new sum, as the old one may have been returned, and so that an interruption adds nothing twice
        settled = ClassStatistics.zeros(
            self.n_classes, self.n_features, dtype=self._settled.gram.dtype, device=self._settled.gram.device
        )
        if bool(self._settled.count.any() or self._settled.feature_sum.any()):
            for new, old in zip(vars(settled).values(), vars(self._settled).values(), strict=True):
                torch.mul(old, self._factor, out=new)
        if self._waiting:
            add_rows_(settled, [_scaled(block, self._factor) for block in self._waiting])
        self._settled, self._factor = settled, 1.0
        self._waiting, self._n_waiting, self._n_joined = [], 0, 0


def _scaled(block: RowBlock, factor: float) -> RowBlock:
    if factor == 1.0:
        return block
    weight = torch.ones_like(block.features[:, 0]) if block.weight is None else block.weight
    return block._replace(weight=factor * weight)
