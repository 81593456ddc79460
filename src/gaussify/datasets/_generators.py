"""Artificial data: streams whose distribution changes, four classes in the plane, and a rare class."""

from enum import StrEnum
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64
from scipy.optimize import brentq
from scipy.special import expit

from gaussify._typing import no_type_check
from gaussify._validation import check_count, check_option
from gaussify.exceptions import InvalidArgumentError

_LOGIT_STD = 4.0  # with three classes, the best classifier is then right for about six of seven rows


DriftName = Literal["none", "abrupt", "gradual"]
"""Names of the members of :class:`Drift`."""


class Drift(StrEnum):
    """How the dependence of labels on features changes in a stream.

    Examples
    --------
    >>> [drift.value for drift in Drift]
    ['none', 'abrupt', 'gradual']
    """

    NONE = "none"
    """The same weights for all rows."""
    ABRUPT = "abrupt"
    """One matrix of weights for the first half of the rows, another for the second."""
    GRADUAL = "gradual"
    """The first matrix of weights turns into the second, by the same angle in every row."""


@no_type_check
def make_drifting_stream(
    n: int,
    n_features: int = 10,
    n_classes: int = 3,
    drift: DriftName | Drift = "abrupt",
    random_state: int | np.random.Generator | None = None,
) -> tuple[Float[np.ndarray, "n d"], Int64[np.ndarray, " n"]]:
    r"""Return rows in the order of time, and labels whose dependence on the features drifts.

    Features are standard normal. With two random weight matrices, labels follow

    .. math:: y_t \sim \mathrm{softmax}(W_t x_t), \qquad W_t = \cos(\theta_t) W_0 + \sin(\theta_t) W_1,

    Without drift the angle is always 0. With abrupt drift it is 0 in the first half and :math:`\pi/2` in the second,
    and with gradual drift it grows evenly from 0 to :math:`\pi/2`. The logits have the same variance at all times.

    Parameters
    ----------
    n, n_features, n_classes : int
        Numbers of rows, features and classes.
    drift : {"none", "abrupt", "gradual"}
        How the weights change, see :class:`Drift`.
    random_state : int, numpy.random.Generator or None
        Seed, or generator that is used.

    Examples
    --------
    >>> X, y = make_drifting_stream(1000, n_features=5, n_classes=3, drift="gradual", random_state=0)
    >>> X.shape, np.unique(y)
    ((1000, 5), array([0, 1, 2]))
    """
    owner = "make_drifting_stream"
    n = check_count(n, name="n", owner=owner)
    n_features = check_count(n_features, name="n_features", owner=owner)
    n_classes = check_count(n_classes, name="n_classes", owner=owner, minimum=2)
    kind = check_option(drift, Drift, name="drift", owner=owner)
    rng = np.random.default_rng(random_state)
    X = rng.standard_normal((n, n_features))
    weights = rng.standard_normal((2, n_classes, n_features)) * _LOGIT_STD / np.sqrt(n_features)
    time = np.arange(n) / n
    turned = {Drift.NONE: np.zeros(n), Drift.ABRUPT: time >= 0.5, Drift.GRADUAL: time}[kind]
    angle = 0.5 * np.pi * turned.astype(np.float64)
    before, after = (X @ w.T for w in weights)  # (n, c)
    logits = np.cos(angle)[:, None] * before + np.sin(angle)[:, None] * after
    return X, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)  # with Gumbel noise, a draw from the softmax


def make_four_classes(
    n: int = 400, random_state: int | np.random.Generator | None = None
) -> tuple[Float[np.ndarray, "n 2"], Int64[np.ndarray, " n"]]:
    """Return points in the plane and their classes: four overlapping ellipses around the origin.

    The ellipse of class k is that of class 0, rotated by k right angles. Rows are shuffled. The sizes of classes differ
    by at most one.

    Parameters
    ----------
    n : int
        Number of rows.
    random_state : int, numpy.random.Generator or None
        Seed, or generator that is used.

    Examples
    --------
    >>> X, y = make_four_classes(100, random_state=0)
    >>> X.shape, np.bincount(y)
    ((100, 2), array([25, 25, 25, 25]))
    """
    n = check_count(n, name="n", owner="make_four_classes")
    rng = np.random.default_rng(random_state)
    y = rng.permutation(np.arange(n) % 4)
    radial, across = 1.5 + 0.4 * rng.standard_normal(n), 0.9 * rng.standard_normal(n)
    angle = 0.25 * np.pi + 0.5 * np.pi * y
    cos, sin = np.cos(angle), np.sin(angle)
    return np.column_stack([cos * radial - sin * across, sin * radial + cos * across]), y


def make_rare_class(
    n: int = 10_000, prevalence: float = 0.033, random_state: int | np.random.Generator | None = None
) -> tuple[Float[np.ndarray, "n 3"], Int64[np.ndarray, " n"]]:
    r"""Return customers of a bank, and whether they default: a rare class that one column predicts well.

    The columns are whether the customer is a student (0 or 1), the balance of the account and the income. The logit is

    .. math:: a + 8 \tanh\frac{\text{balance} - 1000}{1500} - 0.65\,\text{student},

    which covers more than ten units and bends at both ends. The income says nothing that the other columns do not say.

    Parameters
    ----------
    n : int
        Number of rows.
    prevalence : float
        Mean probability of the rare class over the rows, in (0, 1). It sets the constant a.
    random_state : int, numpy.random.Generator or None
        Seed, or generator that is used.

    Examples
    --------
    >>> X, y = make_rare_class(random_state=0)
    >>> X.shape, float(y.mean())
    ((10000, 3), 0.03)
    >>> X, y = make_rare_class(50_000, prevalence=0.001, random_state=0)
    >>> int(y.sum())
    54
    """
    n = check_count(n, name="n", owner="make_rare_class")
    if not 0.0 < prevalence < 1.0:
        raise InvalidArgumentError(
            f"The 'prevalence' parameter of make_rare_class must lie between 0 and 1; got {prevalence}."
        )
    rng = np.random.default_rng(random_state)
    student = (rng.random(n) < 0.3).astype(np.float64)
    balance = np.maximum(0.0, 770.0 + 200.0 * student + 480.0 * rng.standard_normal(n))
    spread = rng.standard_normal(n)
    income = np.maximum(1000.0, np.where(student == 1.0, 18_000.0 + 4500.0 * spread, 40_000.0 + 10_000.0 * spread))
    logit = 8.0 * np.tanh((balance - 1000.0) / 1500.0) - 0.65 * student
    constant = brentq(lambda a: expit(a + logit).mean() - prevalence, -800.0, 800.0)
    y = (rng.random(n) < expit(constant + logit)).astype(np.int64)
    return np.column_stack([student, balance, income]), y
