"""Bayesian logistic regression as a river classifier: a row is a dictionary, whose keys may differ from row to row.

Needs river: ``pip install "gaussify[river]"``.
"""

import pickle
from collections.abc import Collection, Hashable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from gaussify._optional import import_optional
from gaussify.exceptions import InvalidArgumentError
from gaussify.linear import BayesianLogisticRegression

import_optional("river", extra="river", needed_by="gaussify.interop.river")

from river import base  # noqa: E402 - the line above says what to install

if TYPE_CHECKING:
    import pandas

__all__ = ["RiverClassifier"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_NUMBERS = frozenset({bool, int, float, np.float64, np.float32, np.int64})  # common types, checked quickly
_SHOWN = 60  # characters of a value in an error


class _Layout(NamedTuple):
    """The columns that the features of a row belong to."""

    names: tuple[Hashable, ...]
    places: Indices  # column of each feature, -1 if it has none
    complete: bool  # whether each feature has a column

    @classmethod
    def of(cls, names: tuple[Hashable, ...], columns: dict[Hashable, int]) -> "_Layout":
        places = [columns.get(name, -1) for name in names]
        return cls(names, np.array(places, dtype=np.int64), -1 not in places)


class RiverClassifier(base.MiniBatchClassifier):
    """Bayesian logistic regression with river's interface.

    A feature that is absent from a row counts as zero. A new feature gets a new column, as if it had been zero in all
    earlier rows. Predictions ignore features that were never learnt, and the order of the features does not matter.
    Labels may be any hashable values, of any number of classes. They are returned unchanged, in the order in which they
    were first learnt. A row that cannot be learnt raises an error and leaves the model unchanged.

    Parameters
    ----------
    estimator : BayesianLogisticRegression, optional
        Estimator that gives the parameters. It is not changed, and the classifier starts unfitted.

    Attributes
    ----------
    estimator_ : BayesianLogisticRegression
        The fitted estimator. Its classes and features are positions in ``classes_`` and ``features_``.
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

    Features and classes may appear at any time, and the posterior can be read:

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
        self._layout = _Layout.of((), {})  # of the last row: most rows of a stream have the same

    @property
    def estimator_(self) -> BayesianLogisticRegression:
        """The fitted estimator."""
        return self._learner

    @property
    def classes_(self) -> list[Hashable]:
        """Labels so far, in the order in which they were learnt."""
        return list(self._classes)

    @property
    def features_(self) -> list[Hashable]:
        """Names of the features so far."""
        return list(self._columns)

    def learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row; weight two counts it twice, weight zero skips it."""
        self._learn(tuple(x), _as_numbers(x.values(), x)[None], (y,), w)

    def learn_many(self, X: "pandas.DataFrame", y: "pandas.Series", w: "float | pandas.Series" = 1.0) -> None:
        """Learn many rows; the result is that of ``learn_one`` on each row in turn.

        Parameters
        ----------
        X : pandas.DataFrame
            One column per feature.
        y : pandas.Series
            Labels, in the order of the rows.
        w : float or pandas.Series
            One weight for all rows, or one for each row.
        """
        names, values = _as_matrix(X)
        labels = y.tolist()
        if len(labels) != len(values):
            raise InvalidArgumentError(
                "'X' and 'y' of RiverClassifier.learn_many must have the same length; got "
                f"{len(values)} and {len(labels)}."
            )
        self._learn(names, values, labels, w)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class learnt so far."""
        probs = self._probs(tuple(x), _as_numbers(x.values(), x)[None])
        return dict(zip(self._classes, probs[0].tolist(), strict=True))

    def predict_proba_many(self, X: "pandas.DataFrame") -> "pandas.DataFrame":
        """Return a data frame of probabilities, one column for each class learnt so far."""
        pandas = _import_pandas()
        columns = pandas.Index(self.classes_, tupleize_cols=False)
        return pandas.DataFrame(self._probs(*_as_matrix(X)), index=X.index, columns=columns)

    def predict_many(self, X: "pandas.DataFrame") -> "pandas.Series":
        """Return a series of the most probable classes, all None before the first row is learnt."""
        probs, classes = self._probs(*_as_matrix(X)), self.classes_ or [None]
        best = probs.argmax(1) if self._classes else np.zeros(len(probs), dtype=np.int64)
        return _import_pandas().Series([classes[place] for place in best], index=X.index)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _raw_memory_usage(self) -> int:
        # river's own count misses the contents of tensors
        return len(pickle.dumps(self))

    def _learn(self, names: tuple[Hashable, ...], values: Floats, labels: Sequence[Any], w: Any) -> None:
        """Learn rows (n, len(names)); the state changes only after everything has succeeded."""
        weight = _as_weight(w, len(labels))
        if weight is not None and weight.shape == (len(labels),) and 0.0 in weight:
            counted = np.flatnonzero(weight).tolist()
            values, labels, weight = values[counted], [labels[row] for row in counted], weight[counted]
        if not labels:
            return
        classes, columns, layout = self._with_classes(labels), self._columns, self._layout_of(names)
        if not layout.complete:
            # sorted, so that the order of a row's features does not matter
            new = sorted((name for name in names if name not in columns), key=repr)
            columns = columns | {name: len(columns) + i for i, name in enumerate(new)}
            layout = _Layout.of(names, columns)
        rows, learner = _spread(values, layout, columns), self._learner
        if self._classes and rows.shape[1] > learner.n_features_in_:
            learner = copy(learner).widen(rows.shape[1])
        learner.partial_fit(rows, np.array([classes[label] for label in labels]), sample_weight=weight)
        self._classes, self._columns, self._layout, self._learner = classes, columns, layout, learner

    def _with_classes(self, labels: Sequence[Any]) -> dict[Hashable, int]:
        """Return the classes so far and those that are new in ``labels``."""
        try:
            new = [label for label in dict.fromkeys(labels) if label not in self._classes]
        except TypeError as error:
            raise InvalidArgumentError(f"'y' of RiverClassifier must be hashable; got an {error!s}.") from None
        if not new:
            return self._classes
        new = [label.item() if isinstance(label, np.generic) else label for label in new]
        for label in new:
            # NaN does not equal itself, and comparing pandas.NA gives neither True nor False
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
    """Return rows (n, d) with each feature in its column.

    There is at least one column: if there are no features yet, it holds zeros, and the first feature then takes it.
    """
    width = max(1, len(columns))
    rows = np.zeros((len(values), width + 1))
    rows[:, layout.places] = values  # features without a column, -1, go to the last one, which is dropped
    return rows[:, :width]


def _as_weight(w: Any, n_rows: int) -> Floats | None:
    """Return the weight of each row, or None if all are one."""
    if np.isscalar(w) and w == 1.0:
        return None
    return np.asarray([w] * n_rows if np.isscalar(w) else w, dtype=np.float64)


def _as_numbers(values: Collection[Any], names: Collection[Hashable]) -> Floats:
    """Return the checked values of the features ``names``."""
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
    """Return the names and checked values of the features of a data frame."""
    names = tuple(X.columns)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"'X' of RiverClassifier must have distinct columns; got {_shown(list(names))}. Rename repeated ones."
        )
    values: NDArray[Any] = X.to_numpy()
    if values.dtype.kind in "biuf":
        values = values.astype(np.float64, copy=False)
        if np.isfinite(values).all():
            return names, values
    # cell by cell: for columns of Python numbers, and to name the wrong cell
    columns = [_as_numbers(X.iloc[:, j].tolist(), [name] * len(X)) for j, name in enumerate(names)]
    return names, np.stack(columns, 1) if columns else np.zeros((len(X), 0))


def _not_a_number(name: Hashable, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The feature {name!r} of RiverClassifier must be a finite number; got {_shown(value)}. Leave out features "
        "that are missing or zero, and encode words as numbers."
    )


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _import_pandas() -> Any:
    return import_optional("pandas", extra="river", needed_by="RiverClassifier.predict_many")
