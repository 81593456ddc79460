"""A bounded sample of each class of a stream that depends neither on the order of rows nor on how they were split."""

import hashlib
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaussify._estimators import Floats, Indices, Keys, mix, multipliers, row_sums

_LAST_KEY = np.uint64(2**64 - 1)
_FADED = 1e-100  # weight under which a row counts as forgotten


class ReservoirRows(NamedTuple):
    """Distinct rows (features and label), their total weights, and the hashes and ranks that select them."""

    features: Floats  # (n, d)
    labels: Indices  # (n,)
    weight: Floats  # (n,)
    key: Keys  # (n,), a hash of features and label
    log_rank: Floats  # (n,), in increasing order within each class


class Reservoir:
    r"""A sample of a stream: in each class the distinct rows of smallest rank, where the rank is a hash of the row.

    A hash serves as a random number that is always the same for the same row. So the sample depends on the set of rows
    alone: any order, any chunks and any merging of shards give the same rows (a bottom-k sketch [1]_). Repeated rows
    are one row with the sum of their weights. With forgetting, the rank of a row grows as its weight decays, so recent
    rows of a class replace old ones. Rows are then sampled in proportion to their remaining weight [2]_.

    If there are more than ``size`` rows, each class keeps at most q, where q is the largest number that fits:
    :math:`\sum_c \min(n_c, q) \le` ``size``. So all rows of rare classes stay. As rows only lower q, a row that was
    dropped is never needed again. If there are more classes than ``size``, those with the smallest ranks keep one row.

    Up to twice ``size`` rows are kept and cut to ``size`` when they are needed. ``rows`` returns the first row of each
    class, then the second ones, and so on. So the first rows of the sample are such a sample too.

    References
    ----------
    .. [1] E. Cohen, H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
    .. [2] P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", 2006.

    Examples
    --------
    >>> X, y = np.random.default_rng(0).normal(size=(1000, 2)), np.zeros(1000, dtype=int)
    >>> whole, parts = (Reservoir(10, seed=0, n_features=2) for _ in range(2))
    >>> for reservoir in (whole, parts):
    ...     reservoir.set_classes(np.array(["a"]))
    >>> whole.add(X, y)
    >>> for part in np.split(X[::-1], 10):
    ...     parts.add(part, y[:100])
    >>> bool((whole.rows().features == parts.rows().features).all())
    True
    """

    def __init__(self, size: int, *, seed: int, n_features: int) -> None:
        self.size, self.seed, self.n_features = size, seed, n_features
        self._multipliers = multipliers(seed, n_features)
        self._salts = np.zeros(0, dtype=np.uint64)
        self._kept: list[ReservoirRows] = []
        self._n_kept = 0
        self._age = 0.0  # minus the logarithm of the present weight of a row that began with weight one
        self.quota = math.inf  # the smallest q so far
        self.log_limit = np.zeros(0)  # of each class, smallest log-rank ever rejected, on the scale of age zero
        self._key_limit = np.zeros(0, dtype=np.uint64)  # at age zero, no larger key has a rank below the limit

    def copy(self) -> "Reservoir":
        """Return an independent reservoir with the same rows."""
        twin = object.__new__(Reservoir)
        twin.__dict__.update(self.__dict__)
        twin._kept = list(self._kept)
        return twin

    def set_classes(self, classes: NDArray, places: Indices | None = None) -> None:
        """Set the labels of the class indices; index i of rows so far becomes ``places[i]``."""
        self._salts = np.array([_salt(label, self.seed) for label in classes.tolist()], dtype=np.uint64)
        if places is None:
            places = np.arange(len(self.log_limit))
        else:
            self._kept = [rows._replace(labels=places[rows.labels]) for rows in self._kept]
        log_limit, key_limit = np.full(len(classes), np.inf), np.full(len(classes), _LAST_KEY)
        log_limit[places], key_limit[places] = self.log_limit, self._key_limit
        self.log_limit, self._key_limit = log_limit, key_limit

    def add(
        self,
        features: Floats,
        labels: Indices,
        sample_weight: Floats | None = None,
        *,
        age: Floats | None = None,
        sign: float = 1.0,
    ) -> None:
        """Add rows with weights decayed by ``exp(-age)``; ``sign=-1`` removes them."""
        if sign > 0.0 and len(labels) > 2 * self.size:  # the first half sets limits that most of the second exceed
            middle = len(labels) // 2
            for half in (slice(middle), slice(middle, None)):
                weight, ages = (None if part is None else part[half] for part in (sample_weight, age))
                self.add(features[half], labels[half], weight, age=ages)
            return
        key = self._hash(features, labels)
        if age is None and self._age == 0.0:
            if len(key) == 1:
                if key[0] > self._key_limit[labels[0]]:
                    return  # nearly all rows of a long stream end here
            else:
                may_enter = key <= self._key_limit[labels]
                if not may_enter.any():
                    return
                features, labels, key = features[may_enter], labels[may_enter], key[may_enter]
                sample_weight = None if sample_weight is None else sample_weight[may_enter]
        # log of a standard exponential variate, made from the hash; dividing it by the weight exp(-age) adds the age
        log_rank = np.log(-np.log1p(-((key >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)) - self._age
        if age is not None:
            log_rank += age
        admitted = log_rank < self.log_limit[labels]
        if sample_weight is not None:
            admitted &= sample_weight > 0.0
        if not admitted.any():
            return
        if sign < 0.0 and self._n_kept > self.size:
            self._sorted_out()  # with these rows, so that the sample does not depend on when rows were sorted out
        weight = np.ones(len(key)) if sample_weight is None else sample_weight
        if age is not None:
            weight = weight * np.exp(-age)
        # weights are kept on the scale of age zero too, so that decay changes a single number
        weight = sign * weight[admitted] * np.exp(self._age)
        self._keep(
            ReservoirRows(features[admitted], labels[admitted].copy(), weight, key[admitted], log_rank[admitted])
        )

    def decay(self, age: float) -> None:
        """Multiply the weight of every row so far by ``exp(-age)``."""
        self._age += age
        if self._age > 300.0:  # well before exp overflows
            rows = self._sorted_out()
            faded = rows.weight * np.exp(-self._age)
            aged = rows._replace(weight=faded, log_rank=rows.log_rank + self._age)
            self.log_limit = self.log_limit + self._age
            self._age, self._kept = 0.0, [aged]
            self._set_key_limits()

    def merge(self, other: "Reservoir", places: Indices) -> None:
        """Add the rows of another reservoir with the same seed; its class index i becomes ``places[i]``."""
        rows = other._sorted_out()
        shift = self._age - other._age
        moved = rows._replace(
            labels=places[rows.labels], weight=rows.weight * np.exp(shift), log_rank=rows.log_rank - shift
        )
        self.log_limit = self.log_limit.copy()
        self.log_limit[places] = np.minimum(self.log_limit[places], other.log_limit - shift)
        self.quota = min(self.quota, other.quota)
        self._set_key_limits()
        self._keep(moved)

    def widen(self, n_features: int) -> None:
        """Add features that were zero so far; hashes do not change, for zeros do not count in them."""
        more = n_features - self.n_features
        self._kept = [rows._replace(features=np.pad(rows.features, ((0, 0), (0, more)))) for rows in self._kept]
        self.n_features, self._multipliers = n_features, multipliers(self.seed, n_features)

    def rows(self) -> ReservoirRows:
        """Return the sample with present weights, in the order of ranks within classes."""
        rows = self._sorted_out()
        left = rows._replace(weight=rows.weight * np.exp(-self._age), log_rank=rows.log_rank + self._age)
        remains = left.weight > _FADED
        return left if remains.all() else ReservoirRows._make(array[remains] for array in left)

    def restore(self, rows: ReservoirRows, log_limit: Floats, quota: float = math.inf) -> None:
        """Set the sample to what ``rows`` returned, and the limits to ``present_log_limit`` at that time."""
        self._kept, self._n_kept, self._age = [rows], len(rows.key), 0.0
        self.log_limit, self.quota = log_limit, quota
        self._set_key_limits()

    @property
    def present_log_limit(self) -> Floats:
        """The limit of each class on the scale of the ranks in ``rows``."""
        return self.log_limit + self._age

    def _keep(self, rows: ReservoirRows) -> None:
        self._kept.append(rows)
        self._n_kept += len(rows.key)
        if self._n_kept >= 2 * self.size:
            self._sorted_out()

    def _sorted_out(self) -> ReservoirRows:
        """Return the sample: join repeated rows, drop rows without weight, keep the smallest ranks."""
        if not self._kept:
            empty = np.zeros(0)
            return ReservoirRows(
                np.zeros((0, self.n_features)), empty.astype(np.int64), empty, empty.astype(np.uint64), empty
            )
        features, labels, weight, key, log_rank = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        gross, weight = (np.bincount(place, w).astype(np.float64) for w in (np.abs(weight), weight))
        # with forgetting, copies of a row have different ranks: the latest copy has the smallest, which counts
        rank = np.full(len(first), np.inf)
        np.minimum.at(rank, place, log_rank)
        own = labels[first]
        keep = np.flatnonzero((weight > 1e-9 * gross) & (rank < self.log_limit[own]))
        keep = keep[np.lexsort((key[first][keep], rank[keep], own[keep]))]
        count = np.bincount(own[keep], minlength=len(self.log_limit))
        place = np.arange(len(keep)) - (np.cumsum(count) - count)[own[keep]]  # among the rows of its class
        order = np.lexsort((rank[keep], place))
        keep, place = keep[order], place[order]
        self.quota = min(self.quota, _quota(count, self.size))
        n_fit = max(int(np.searchsorted(place, self.quota)), min(self.size, int((count > 0).sum())))
        if n_fit < len(keep):
            self.log_limit, out = self.log_limit.copy(), keep[n_fit:]
            np.minimum.at(self.log_limit, own[out], rank[out])
            self._set_key_limits()
            keep = keep[:n_fit]
        rows = ReservoirRows(features[first][keep], own[keep], weight[keep], key[first][keep], rank[keep])
        self._kept, self._n_kept = [rows], len(keep)
        return rows

    def _set_key_limits(self) -> None:
        """Set the limits of keys that follow from those of ranks; they hold as long as the age is zero."""
        below = -np.expm1(-np.exp(np.minimum(self.log_limit, 3.0))) + 1e-9
        is_limited = (below < 1.0) & (self.log_limit < 3.0) & (self._age == 0.0)
        self._key_limit = np.full(len(below), _LAST_KEY)
        self._key_limit[is_limited] = (below[is_limited] * 2.0**64).astype(np.uint64)

    def _hash(self, features: Floats, labels: Indices) -> Keys:
        """Return a 64-bit hash of each row's features and label; integer arithmetic is the same in any batch."""
        if len(features) == 1:  # Python integers are faster for one row
            key = int(row_sums(features, self._multipliers)[0]) ^ int(self._salts[labels[0]])
            return np.array([_mix_one(_mix_one(key))], dtype=np.uint64)
        return mix(mix(row_sums(features, self._multipliers) ^ self._salts[labels]))


def _quota(count: Indices, size: int) -> float:
    """Return the largest number of rows that each class may keep, if there are ``count`` and ``size`` fit in all.

    Examples
    --------
    >>> _quota(np.array([3, 500, 700]), 100)  # three rows, 48 and 48
    48.0
    """
    left = size
    for n_larger, n_rows in zip(range(len(count), 0, -1), np.sort(count).tolist(), strict=True):
        if n_rows * n_larger > left:
            return float(left // n_larger)
        left -= n_rows
    return math.inf


def _mix_one(bits: int) -> int:
    mixed = (bits ^ (bits >> 32)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    return mixed ^ (mixed >> 29)


def _salt(label: object, seed: int) -> int:
    """Return 64 bits from a label, the same for 1, 1.0 and True."""
    text = repr(float(label)) if isinstance(label, int | float) else repr(label)
    return int.from_bytes(hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest(), "little")
