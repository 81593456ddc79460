"""Class statistics: a count, a sum and a Gram matrix of the features of each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._numerics import add_moments_, large_zeros, suits_numpy
from gaussify._validation import ArrayInput, as_floats, as_labels, check_count, check_same_rows
from gaussify.exceptions import InvalidArgumentError

_ELEMENTS = 1 << 19  # numbers gathered at a time, so that a small buffer is used again and again
_FEWEST_TOGETHER = 4  # if a block has fewer rows of each class on average, blocks are joined first


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    r"""Sufficient statistics of rows with hard labels: a Gaussian posterior of the latents needs nothing else.

    .. math:: n_c = \sum_{i \in c} w_i, \qquad s_c = \sum_{i \in c} w_i \phi_i, \qquad
        G_c = \sum_{i \in c} w_i \phi_i \phi_i^\top

    :math:`G_c` is the Gram matrix of class c, the weighted sum of outer products of its feature vectors.

    They form a vector space: ``+`` joins data sets, ``-`` takes rows out again, ``scalar *`` forgets. A class that has
    no rows yet counts as zeros, so statistics of different numbers of classes add up. Likelihood and prior enter later:
    changing them never touches a row, and shards never count the prior twice. All classes together cost one pass of
    n d².

    Examples
    --------
    >>> import torch
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, 3.0]])
    >>> statistics = ClassStatistics.from_rows(features, torch.tensor([0, 1, 1]))
    >>> statistics.count, statistics.feature_sum
    (tensor([1., 2.]), tensor([[1., 0.],
            [2., 5.]]))
    >>> statistics.gram[1]
    tensor([[ 2.,  5.],
            [ 5., 13.]])
    >>> more = ClassStatistics.from_rows(features[:1], torch.tensor([2]))  # a class that was not seen before
    >>> (0.5 * statistics + more).count
    tensor([0.5000, 1.0000, 1.0000])
    """

    count: Float[Tensor, " c"]
    feature_sum: Float[Tensor, "c d"]
    gram: Float[Tensor, "c d d"]

    @classmethod
    def zeros(
        cls,
        n_classes: int,
        n_features: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> "ClassStatistics":
        """Return the statistics of no rows."""
        shapes = ((n_classes,), (n_classes, n_features), (n_classes, n_features, n_features))
        return ClassStatistics(*(large_zeros(shape, dtype, device) for shape in shapes))

    @classmethod
    def from_rows(
        cls,
        features: ArrayInput,
        labels: ArrayInput,
        sample_weight: ArrayInput | None = None,
        *,
        n_classes: int | None = None,
    ) -> "ClassStatistics":
        """Return the statistics of rows.

        Parameters
        ----------
        features : array-like of shape (n, d)
            Features of the rows.
        labels : array-like of shape (n,)
            Class indices, from 0.
        sample_weight : array-like of shape (n,), optional
            Weights. A row of weight two counts as that row twice; negative weights take rows out.
        n_classes : int, optional
            Number of classes; by default one more than the largest label, as ``+`` adds missing classes.
        """
        owner = "ClassStatistics.from_rows"
        features = as_floats(features, name="features", owner=owner, ndim=2)
        if features.shape[1] == 0:
            raise InvalidArgumentError(f"'features' of {owner} must have at least one column; got none.")
        limit = check_count(2**31 if n_classes is None else n_classes, name="n_classes", owner=owner)
        labels = as_labels(labels, n_classes=limit, owner=owner).to(features.device)
        check_same_rows(owner, features=features, labels=labels)
        if sample_weight is not None:
            sample_weight = as_floats(sample_weight, name="sample_weight", owner=owner, ndim=1).to(features)
            check_same_rows(owner, features=features, sample_weight=sample_weight)
        if n_classes is None:
            n_classes = int(labels.max()) + 1 if labels.numel() else 0
        statistics = ClassStatistics.zeros(n_classes, features.shape[1], dtype=features.dtype, device=features.device)
        add_rows_(statistics, [RowBlock(features, labels, sample_weight)])
        return statistics

    @property
    def n_classes(self) -> int:
        """Number of classes, with and without rows."""
        return self.gram.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.gram.shape[-1]

    def grow(self, n_classes: int | None = None, n_features: int | None = None) -> "ClassStatistics":
        """Return the same statistics with zeros for more classes or features."""
        more_classes = 0 if n_classes is None else n_classes - self.n_classes
        more_features = 0 if n_features is None else n_features - self.n_features
        if more_classes < 0 or more_features < 0:
            raise InvalidArgumentError(
                f"ClassStatistics of {self.n_classes} classes and {self.n_features} features cannot shrink; got "
                f"n_classes={n_classes}, n_features={n_features}."
            )
        if more_classes == more_features == 0:
            return self
        pad = torch.nn.functional.pad
        return ClassStatistics(
            pad(self.count, (0, more_classes)),
            pad(self.feature_sum, (0, more_features, 0, more_classes)),
            pad(self.gram, (0, more_features, 0, more_features, 0, more_classes)),
        )

    def take(self, classes: Int[Tensor, " k"]) -> "ClassStatistics":
        """Return the statistics of the given classes, in their order."""
        return ClassStatistics(self.count[classes], self.feature_sum[classes], self.gram[classes])

    def spread(self, places: Int[np.ndarray, " c"], n_classes: int) -> "ClassStatistics":
        """Return statistics of ``n_classes`` classes: these classes at ``places``, and zeros elsewhere."""
        if self.n_classes == 0:
            return ClassStatistics.zeros(n_classes, self.n_features, dtype=self.gram.dtype, device=self.gram.device)
        if np.array_equal(places, np.arange(n_classes)):
            return self
        order = np.full(n_classes, self.n_classes)  # one more class of zeros fills all other places
        order[places] = np.arange(self.n_classes)
        return self.grow(self.n_classes + 1).take(torch.from_numpy(order))

    def __add__(self, other: "ClassStatistics") -> "ClassStatistics":
        return self._combine(other, 1.0)

    def __sub__(self, other: "ClassStatistics") -> "ClassStatistics":
        return self._combine(other, -1.0)

    def __mul__(self, factor: float) -> "ClassStatistics":
        return ClassStatistics(self.count * factor, self.feature_sum * factor, self.gram * factor)

    __rmul__ = __mul__

    def _combine(self, other: "ClassStatistics", sign: float) -> "ClassStatistics":
        if not isinstance(other, ClassStatistics):
            return NotImplemented
        if self.n_features != other.n_features:
            raise InvalidArgumentError(
                f"Only ClassStatistics with the same number of features can be combined; got {self.n_features} and "
                f"{other.n_features}."
            )
        n_classes = max(self.n_classes, other.n_classes)
        a, b = self.grow(n_classes), other.grow(n_classes)
        return ClassStatistics(
            torch.add(a.count, b.count, alpha=sign),
            torch.add(a.feature_sum, b.feature_sum, alpha=sign),
            torch.add(a.gram, b.gram, alpha=sign),
        )


def without_rows(statistics: ClassStatistics, own: ClassStatistics) -> ClassStatistics:
    """Return ``statistics - own`` after checking that the rows were among them; a class without rows becomes zero.

    Examples
    --------
    >>> rows = ClassStatistics.from_rows([[1.0], [2.0]], [0, 0])
    >>> without_rows(rows, rows).gram.flatten()
    tensor([0.], dtype=torch.float64)
    """
    rest = statistics - own
    diagonal, before = (x.gram.diagonal(dim1=-2, dim2=-1) for x in (rest, statistics))
    short = (rest.count < -1e-9 * (1.0 + statistics.count)) | (diagonal < -1e-9 * (1.0 + before)).any(-1)
    gone = rest.count <= 1e-9 * (1.0 + statistics.count)
    short |= gone & (diagonal > 1e-7 * (1.0 + before)).any(-1)  # no rows are left, but squares of some are
    for c in ((own.count > 0.0) & ~short & ~gone).nonzero()[:, 0].tolist():
        smallest = torch.linalg.eigvalsh(rest.gram[c])[0]  # a Gram matrix has no negative eigenvalue
        short[c] = bool(smallest < -1e-7 * (1.0 + before[c].max()))
    if bool(short.any()):
        raise InvalidArgumentError(
            "unlearn was given rows that were not learnt: without them, the statistics of class number "
            f"{int(short.nonzero()[0])} would be impossible. Give rows with the weights they had."
        )
    for tensor in vars(rest).values():
        tensor[gone] = 0.0  # rounding errors
    for tensor in (rest.count, diagonal):
        tensor.clamp_min_(0.0)  # rounding errors, too
    return rest


class RowBlock(NamedTuple):
    """Rows with class indices and, unless all are one, weights.

    Examples
    --------
    >>> RowBlock(torch.ones(2, 3), torch.tensor([0, 1])).weight is None
    True
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"] | None = None


def add_rows_(statistics: ClassStatistics, blocks: Sequence[RowBlock]) -> None:
    """Add rows to ``statistics`` in place, by one matrix product for each class, which cost n d² together.

    Examples
    --------
    >>> statistics = ClassStatistics.zeros(2, 1)
    >>> add_rows_(statistics, [RowBlock(torch.tensor([[3.0], [4.0]]).double(), torch.tensor([1, 1]))])
    >>> statistics.gram.flatten()
    tensor([ 0., 25.], dtype=torch.float64)
    """
    n_classes, n_features = statistics.n_classes, statistics.n_features
    in_numpy = suits_numpy(*(block.features for block in blocks))
    few_together = sum(len(block.labels) for block in blocks) < _FEWEST_TOGETHER * len(blocks) * n_classes
    if len(blocks) > 1 and (few_together or not in_numpy):
        blocks = [joined(blocks)]
    labels, weight = _joined_labels(blocks)
    sizes = torch.bincount(labels, minlength=n_classes)
    statistics.count.add_(sizes) if weight is None else statistics.count.index_add_(0, labels, weight)
    most = max(1, _ELEMENTS // n_features)
    room = blocks[0].features.new_empty(min(most, max(sizes.tolist(), default=0)), n_features)
    for c, own in enumerate(torch.argsort(labels, stable=True).split(sizes.tolist())):
        for index in own.split(most) if len(own) else ():
            few = _take(blocks, index, room) if in_numpy else blocks[0].features.index_select(0, index)
            add_moments_(statistics.feature_sum[c], statistics.gram[c], few, None if weight is None else weight[index])


def joined(blocks: Sequence[RowBlock]) -> RowBlock:
    """Return all rows as one block.

    Examples
    --------
    >>> joined([RowBlock(torch.ones(2, 3), torch.tensor([0, 1])), RowBlock(torch.ones(1, 3), torch.tensor([1]))]).labels
    tensor([0, 1, 1])
    """
    parts = [block.features for block in blocks]
    if suits_numpy(*parts):  # as in _take
        shape = (sum(map(len, parts)), parts[0].shape[1])
        features = large_zeros(shape, parts[0].dtype)
        np.concatenate([part.numpy() for part in parts], out=features.numpy())
    else:
        features = torch.cat(parts)
    return RowBlock(features, *_joined_labels(blocks))


def _joined_labels(blocks: Sequence[RowBlock]) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"] | None]:
    """Return all labels, and all weights unless no block has any."""
    labels = torch.cat([block.labels for block in blocks])
    if all(block.weight is None for block in blocks):
        return labels, None
    ones = (torch.ones_like(block.features[:, 0]) if block.weight is None else block.weight for block in blocks)
    return labels, torch.cat(list(ones))


def _take(blocks: Sequence[RowBlock], index: Int[Tensor, " n"], room: Float[Tensor, "_ d"]) -> Float[Tensor, "n d"]:
    """Copy the rows with sorted indices ``index``, counted through all blocks, into ``room`` and return them.

    NumPy does it, as torch's threads would still be waiting for work while those of NumPy's next product compute.
    """
    places, out = index.numpy(), room.numpy()
    ends = np.cumsum([len(block.labels) for block in blocks])
    start = 0
    for block, end, stop in zip(blocks, ends, np.searchsorted(places, ends), strict=True):
        if stop > start:
            features = block.features.numpy()
            np.take(features, places[start:stop] - (end - len(features)), axis=0, out=out[start:stop], mode="clip")
        start = stop
    return room[: len(index)]
