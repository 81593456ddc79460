"""Hashes of rows, and distinct rows with the sum of their weights."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Keys = NDArray[np.uint64]

_IN_CACHE = 1 << 14  # numbers that are hashed at a time, so that they stay in the cache


class DistinctRows(NamedTuple):
    """Rows of which no two have equal features and labels."""

    features: Floats  # (n, d)
    labels: Indices  # (n,)
    weight: Floats  # (n,)


def distinct_rows(features: Floats, labels: Indices, weight: Floats | None, *, seed: int) -> DistinctRows:
    """Return each row once, with the sum of its weights, in the order of a hash; rows of weight zero are left out.

    So the result does not depend on the order of rows, a row of weight two counts as that row twice, and the first rows
    are a random sample of any size.

    Examples
    --------
    >>> distinct_rows(np.array([[1.0], [2.0], [1.0]]), np.array([0, 1, 0]), None, seed=0).weight.tolist()
    [2.0, 1.0]
    """
    weight = np.ones(len(labels)) if weight is None else weight
    key = mix(mix(row_sums(features, multipliers(seed, features.shape[1])) ^ mix(labels.astype(np.uint64))))
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(place, weight).astype(np.float64)
    has_weight = total > 0.0
    first = first[has_weight]
    return DistinctRows(features[first], labels[first], total[has_weight])


def row_sums(features: Floats, factors: Keys) -> Keys:
    """Return a hash of 64 bits for each row: the sum of random multiples of both halves of all numbers.

    Integers are exact, so a hash does not depend on the batch. Two different rows rarely have the same one [1]_.

    References
    ----------
    .. [1] D. Lemire, O. Kaser, "Strongly universal string hashing is fast", 2014.
    """
    rows = max(1, _IN_CACHE // features.shape[1])
    if len(features) > rows:
        return np.concatenate([row_sums(features[i : i + rows], factors) for i in range(0, len(features), rows)])
    halves = np.add(features, 0.0, order="C").view(np.uint32)  # adding zero turns -0 into 0
    halves ^= halves >> 20  # round numbers have zeros as their last bits, and so would their sums
    return halves.astype(np.uint64).dot(factors)


def mix(bits: Keys) -> Keys:
    """Return well mixed bits, by half a round of splitmix64."""
    mixed = bits ^ (bits >> np.uint64(32))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def multipliers(seed: int, n_features: int) -> Keys:
    """Return two random numbers for each feature; more features leave those of the first ones unchanged."""
    return np.random.default_rng(seed).integers(0, 2**64, size=2 * n_features, dtype=np.uint64)
