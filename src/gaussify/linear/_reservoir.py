"""A bounded sample of the rows of a stream that depends neither on their order nor on how they were split."""

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
    log_rank: Floats  # (n,), in increasing order


class Reservoir:
    r"""A sample of a stream: the ``size`` distinct rows of smallest rank, where the rank is a hash of the row.

    A hash serves as a random number that is always the same for the same row. So the sample depends on the set of rows
    alone: any order, any chunks and any merging of shards give the same rows (a bottom-k sketch [1]_). Repeated rows
    are one row with the sum of their weights. With forgetting, the rank of a row grows as its weight decays, so recent
    rows replace old ones. Rows are then sampled in proportion to their remaining weight [2]_.

    Up to twice ``size`` rows are kept and cut to ``size`` when they are needed.

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
        self.log_limit = np.inf  # smallest log-rank ever rejected, on the scale of age zero
        self._key_limit = _LAST_KEY  # at age zero, no larger key has a rank below the limit

    def copy(self) -> "Reservoir":
        """Return an independent reservoir with the same rows."""
        twin = object.__new__(Reservoir)
        twin.__dict__.update(self.__dict__)
        twin._kept = list(self._kept)
        return twin

    def set_classes(self, classes: NDArray, places: Indices | None = None) -> None:
        """Set the labels of the class indices; index i of rows so far becomes ``places[i]``."""
        self._salts = np.array([_salt(label, self.seed) for label in classes.tolist()], dtype=np.uint64)
        if places is not None:
            self._kept = [rows._replace(labels=places[rows.labels]) for rows in self._kept]

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
        key = self._hash(features, labels)
        if age is None and self._age == 0.0 and (key[0] if len(key) == 1 else key.min()) > self._key_limit:
            return  # nearly all rows of a long stream end here
        # log of a standard exponential variate, made from the hash; dividing it by the weight exp(-age) adds the age
        log_rank = np.log(-np.log1p(-((key >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)) - self._age
        if age is not None:
            log_rank += age
        admitted = log_rank < self.log_limit
        if sample_weight is not None:
            admitted &= sample_weight > 0.0
        if not admitted.any():
            return
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
        self._age, self._key_limit = self._age + age, _LAST_KEY
        if self._age > 300.0:  # well before exp overflows
            rows = self._sorted_out()
            faded = rows.weight * np.exp(-self._age)
            aged = rows._replace(weight=faded, log_rank=rows.log_rank + self._age)
            self.log_limit += self._age
            self._age, self._kept = 0.0, [aged]

    def merge(self, other: "Reservoir", places: Indices) -> None:
        """Add the rows of another reservoir with the same seed; its class index i becomes ``places[i]``."""
        rows = other._sorted_out()
        shift = self._age - other._age
        moved = rows._replace(
            labels=places[rows.labels], weight=rows.weight * np.exp(shift), log_rank=rows.log_rank - shift
        )
        self.log_limit = min(self.log_limit, other.log_limit - shift)
        self._keep(moved)

    def widen(self, n_features: int) -> None:
        """Add features that were zero so far; hashes do not change, for zeros do not count in them."""
        more = n_features - self.n_features
        self._kept = [rows._replace(features=np.pad(rows.features, ((0, 0), (0, more)))) for rows in self._kept]
        self.n_features, self._multipliers = n_features, multipliers(self.seed, n_features)

    def rows(self) -> ReservoirRows:
        """Return the sample in order of rank, with present weights."""
        rows = self._sorted_out()
        left = rows._replace(weight=rows.weight * np.exp(-self._age), log_rank=rows.log_rank + self._age)
        remains = left.weight > _FADED
        return left if remains.all() else ReservoirRows._make(array[remains] for array in left)

    def restore(self, rows: ReservoirRows, log_limit: float) -> None:
        """Set the sample to what ``rows`` returned, and the limit to ``present_log_limit`` at that time."""
        self._kept, self._n_kept, self._age, self.log_limit = [rows], len(rows.key), 0.0, log_limit

    @property
    def present_log_limit(self) -> float:
        """The limit on the scale of the ranks in ``rows``."""
        return float(self.log_limit + self._age)

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
        keep = np.flatnonzero((weight > 1e-9 * gross) & (rank < self.log_limit))
        keep = keep[np.lexsort((key[first][keep], rank[keep]))]
        if len(keep) > self.size:
            self.log_limit = float(rank[keep[self.size]])
            if self._age == 0.0 and self.log_limit < 3.0:
                below = -math.expm1(-math.exp(self.log_limit)) + 1e-9
                self._key_limit = np.uint64(int(below * 2**64)) if below < 1.0 else _LAST_KEY
            keep = keep[: self.size]
        rows = ReservoirRows(features[first][keep], labels[first][keep], weight[keep], key[first][keep], rank[keep])
        self._kept, self._n_kept = [rows], len(keep)
        return rows

    def _hash(self, features: Floats, labels: Indices) -> Keys:
        """Return a 64-bit hash of each row's features and label; integer arithmetic is the same in any batch."""
        if len(features) == 1:  # Python integers are faster for one row
            key = int(row_sums(features, self._multipliers)[0]) ^ int(self._salts[labels[0]])
            return np.array([_mix_one(_mix_one(key))], dtype=np.uint64)
        return mix(mix(row_sums(features, self._multipliers) ^ self._salts[labels]))


def _mix_one(bits: int) -> int:
    mixed = (bits ^ (bits >> 32)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    return mixed ^ (mixed >> 29)


def _salt(label: object, seed: int) -> int:
    """Return 64 bits from a label, the same for 1, 1.0 and True."""
    text = repr(float(label)) if isinstance(label, int | float) else repr(label)
    return int.from_bytes(hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest(), "little")
