"""Bayesian logistic regression as a classifier of river: features are dictionaries that may change from row to row.

Needs river: ``pip install "gaussify[river]"``.
"""

import pickle
from collections.abc import Collection, Hashable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from gaussify._optional import import_optional
from gaussify.exceptions import InvalidArgumentError
from gaussify.linear import BayesianLogisticRegression

import_optional("river", extra="river", needed_by="gaussify.interop.river")

from river import base  # noqa: E402 - the line above says what to install

__all__ = ["RiverClassifier"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_NUMBERS = frozenset({bool, int, float, np.float64, np.float32, np.int64})  # the common ones, known at once
_SHOWN = 60  # characters of a value in an error


class _Layout(NamedTuple):
    """Where the features of a row go."""

    names: tuple[Hashable, ...]
    places: Indices  # the column of each, -1 where it has none
    complete: bool  # whether each has one

    @classmethod
    def of(cls, names: tuple[Hashable, ...], columns: dict[Hashable, int]) -> "_Layout":
        places = [columns.get(name, -1) for name in names]
        return cls(names, np.array(places, dtype=np.int64), -1 not in places)


class RiverClassifier(base.MiniBatchClassifier):
    """Bayesian logistic regression with the methods of river.

    A feature that is absent from a row is zero there. One that turns up later gets a column of its own, as if it had
    been zero in every row before; one that was never learnt is ignored in predictions. The order of the features of a
    row never matters. Labels are anything hashable, of any number of classes, and come back as they were given, in
    the order in which they were first learnt. What cannot be learnt gets an error and leaves the model as it was.

    Parameters
    ----------
    estimator : BayesianLogisticRegression, optional
        Whose parameters to use; it is not changed, and what it has learnt is not used.

    Attributes
    ----------
    estimator_ : BayesianLogisticRegression
        What has been learnt so far; its classes and features are positions in ``classes_`` and ``features_``.
    classes_ : list
        Labels so far.
    features_ : list
        Names of the features so far.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | RiverClassifier()
    >>> evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.LogLoss())
    LogLoss: 0.3

    Features and classes come as they like, and the posterior is there to be asked:

    >>> model = RiverClassifier(BayesianLogisticRegression(alpha_eps=0.1, prior_variance=1.0, temperature=1.0))
    >>> model.predict_proba_one({"warm": 1.0})
    {}
    >>> model.learn_one({"warm": 1.0}, "summer")
    >>> model.learn_one({"snow": 2.0}, "winter")
    >>> model.predict_proba_one({"warm": 1.0})
    {'summer': 0.55, 'winter': 0.45}
    >>> model.predict_one({"snow": 1.0, "dark": 1.0})
    'winter'
    >>> model.features_, model.estimator_.coef_.shape
    (['warm', 'snow'], (1, 2))
    """

    def __init__(self, estimator: BayesianLogisticRegression | None = None) -> None:
        if not isinstance(estimator, BayesianLogisticRegression | None):
            raise InvalidArgumentError(
                "The 'estimator' parameter of RiverClassifier must be a BayesianLogisticRegression; got "
                f"{_shown(estimator)}."
            )
        self.estimator = estimator
        self._learner = BayesianLogisticRegression() if estimator is None else clone(estimator)
        self._classes: dict[Hashable, int] = {}
        self._columns: dict[Hashable, int] = {}
        self._layout = _Layout.of((), {})  # of the last row: those of a stream are mostly alike

    @property
    def estimator_(self) -> BayesianLogisticRegression:
        """What has been learnt so far."""
        return self._learner

    @property
    def classes_(self) -> list[Any]:
        """Labels so far."""
        return list(self._classes)

    @property
    def features_(self) -> list[Hashable]:
        """Names of the features so far."""
        return list(self._columns)

    def learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learn from a row; one of weight two counts as that row twice, one of weight zero is passed over."""
        self._learn(tuple(x), _as_numbers(x.values(), x)[None], (y,), w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn from rows, as ``learn_one`` does from one after the other.

        Parameters
        ----------
        X : pandas.DataFrame
            One column per feature.
        y : pandas.Series
            Labels, in the order of the rows.
        w : float or pandas.Series
            Weight of all rows or of each.
        """
        names, values = _as_matrix(X)
        labels = y.tolist()
        if len(labels) != len(values):
            raise InvalidArgumentError(
                f"'X' and 'y' of RiverClassifier.learn_many must be of one length; got {len(values)} and {len(labels)}."
            )
        self._learn(names, values, labels, w)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class so far."""
        probs = self._probs(tuple(x), _as_numbers(x.values(), x)[None])
        return dict(zip(self._classes, probs[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Return a pandas.DataFrame of probabilities, one column per class so far."""
        pandas = _import_pandas()
        columns = pandas.Index(self.classes_, tupleize_cols=False)
        return pandas.DataFrame(self._probs(*_as_matrix(X)), index=X.index, columns=columns)

    def predict_many(self, X: Any) -> Any:
        """Return a pandas.Series of the most probable classes, of None before anything is learnt."""
        probs, classes = self._probs(*_as_matrix(X)), self.classes_ or [None]
        best = probs.argmax(1) if self._classes else np.zeros(len(probs), dtype=np.int64)
        return _import_pandas().Series([classes[place] for place in best], index=X.index)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _raw_memory_usage(self) -> int:
        # river's own count does not see what is in tensors
        return len(pickle.dumps(self))

    def _learn(self, names: tuple[Hashable, ...], values: Floats, labels: Sequence[Any], w: Any) -> None:
        """Learn from rows (n, len(names)); nothing changes before all has gone well."""
        weight = _as_weight(w, len(labels))
        if weight is not None and weight.shape == (len(labels),) and 0.0 in weight:
            some = np.flatnonzero(weight).tolist()
            values, labels, weight = values[some], [labels[row] for row in some], weight[some]
        if not labels:
            return
        classes, columns, layout = self._with_classes(labels), self._columns, self._layout_of(names)
        if not layout.complete:
            new = sorted((name for name in names if name not in columns), key=repr)  # whatever their order in the row
            columns = columns | {name: len(columns) + i for i, name in enumerate(new)}
            layout = _Layout.of(names, columns)
        rows, learner = _spread(values, layout, columns), self._learner
        if self._classes and rows.shape[1] > learner.n_features_in_:
            learner = copy(learner).widen(rows.shape[1])
        learner.partial_fit(rows, np.array([classes[label] for label in labels]), sample_weight=weight)
        self._classes, self._columns, self._layout, self._learner = classes, columns, layout, learner

    def _with_classes(self, labels: Sequence[Any]) -> dict[Hashable, int]:
        """The classes so far and those of ``labels``."""
        try:
            new = [label for label in dict.fromkeys(labels) if label not in self._classes]
        except TypeError as error:
            raise InvalidArgumentError(f"'y' of RiverClassifier must be hashable; got {error!s}.") from None
        if not new:
            return self._classes
        new = [label.item() if isinstance(label, np.generic) else label for label in new]
        for label in new:
            # NaN does not equal itself, and pandas.NA says neither yes nor no
            if label is None or (label == label) is not True:
                raise InvalidArgumentError(f"'y' of RiverClassifier must not be missing; got {_shown(label)}.")
        return self._classes | {label: len(self._classes) + i for i, label in enumerate(new)}

    def _layout_of(self, names: tuple[Hashable, ...]) -> _Layout:
        if names != self._layout.names:
            self._layout = _Layout.of(names, self._columns)
        return self._layout

    def _probs(self, names: tuple[Hashable, ...], values: Floats) -> Floats:
        if not self._classes or not len(values):
            return np.zeros((len(values), len(self._classes)))
        return self._learner.predict_proba(_spread(values, self._layout_of(names), self._columns))


def _spread(values: Floats, layout: _Layout, columns: dict[Hashable, int]) -> Floats:
    """Rows (n, d) of features at their places.

    There is always a column: rows without any feature have one of zeros, which the first feature then takes.
    """
    width = max(1, len(columns))
    rows = np.zeros((len(values), width + 1))
    rows[:, layout.places] = values  # what has no place, -1, ends in the last column
    return rows[:, :width]


def _as_weight(w: Any, n_rows: int) -> Floats | None:
    """Weight of each row, None where all are one."""
    if np.isscalar(w) and w == 1.0:
        return None
    return np.asarray([w] * n_rows if np.isscalar(w) else w, dtype=np.float64)


def _as_numbers(values: Collection[Any], names: Collection[Hashable]) -> Floats:
    """Values of the features ``names``, checked."""
    if not _NUMBERS.issuperset(map(type, values)):
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, Real | Decimal | np.bool_):
                raise _not_a_number(name, value)
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        numbers = np.array([_float(value) for value in values])
    finite = np.isfinite(numbers)
    if not finite.all():
        wrong = int(finite.argmin())
        raise _not_a_number(list(names)[wrong], list(values)[wrong])
    return numbers


def _as_matrix(X: Any) -> tuple[tuple[Hashable, ...], Floats]:
    """Names and values of the features of a data frame, checked."""
    names = tuple(X.columns)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"'X' of RiverClassifier must have distinct columns; got {_shown(list(names))}.")
    values: NDArray[Any] = X.to_numpy()
    if values.dtype.kind in "biuf":
        values = values.astype(np.float64, copy=False)
        if np.isfinite(values).all():
            return names, values
    # cell by cell, for numbers among objects and for the message
    columns = [_as_numbers(X.iloc[:, j].tolist(), [name] * len(X)) for j, name in enumerate(names)]
    return names, np.stack(columns, 1) if columns else np.zeros((len(X), 0))


def _not_a_number(name: Hashable, value: Any) -> InvalidArgumentError:
    remedy = "leave a feature out where it is zero, and encode what is not a number"
    return InvalidArgumentError(
        f"The feature {name!r} of RiverClassifier must be a finite number; got {_shown(value)}. Hint: {remedy}."
    )


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _import_pandas() -> Any:
    return import_optional("pandas", extra="river", needed_by="RiverClassifier.predict_many")
