"""Base classes of classifiers, which check rows, labels and weights: for batches, and for streams."""

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussify._estimators._distinct import Floats, Indices
from gaussify._estimators._model_file import expect, pack_classes, unpack_classes, whole
from gaussify._validation import ArrayInput, as_floats
from gaussify.exceptions import InvalidArgumentError

Fitted = TypeVar("Fitted", bound="CheckedClassifier")
Model = TypeVar("Model", bound="StreamingClassifier")

_LARGEST = 1e140  # whose square can still be summed


class CheckedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns from all rows at once.

    Everything is checked before anything is learnt, and an error leaves the state exactly as it was. Subclasses define
    how to begin, to make room for classes, to learn, and to predict probabilities.
    """

    _one_class_remedy = "Give rows of another class too."

    @abstractmethod
    def _begin(self, n_features: int) -> None:
        """Forget everything and begin without classes."""

    @abstractmethod
    def _make_room(self, places: Indices, classes: NDArray) -> None:
        """Move the classes so far to ``places`` among ``classes``; the others are new."""

    @abstractmethod
    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        """Learn from rows with class indices; arrays that are kept must be copied."""

    @abstractmethod
    def _probs(self, X: Floats) -> Floats:
        """Return class probabilities (n, c), if there are at least two classes."""

    def fit(self: Fitted, X: ArrayInput, y: ArrayInput, sample_weight: ArrayInput | None = None) -> Fitted:
        """Learn from these rows alone, and forget all others.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows of numbers. If they are a pandas or polars frame, later frames must have the same column names.
        y : array-like of shape (n,)
            Labels, integers or strings, of at least two classes.
        sample_weight : array-like of shape (n,), optional
            Weights. A row of weight two counts as that row twice.
        """
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=True)
            classes = np.unique(y)
            if len(classes) < 2:
                raise InvalidArgumentError(
                    f"{type(self).__name__}.fit needs rows of at least two classes; got only the class "
                    f"{classes[0]!s}. {self._one_class_remedy}"
                )
            if sample_weight is not None and not sample_weight.any():
                raise InvalidArgumentError(
                    f"'sample_weight' of {type(self).__name__}.fit must not be zero for every row."
                )
            if hasattr(self, "classes_"):
                del self.classes_
            self._begin(X.shape[1])
            self._admit(classes)
            index = self._index(y)
            self._learn(X, index, sample_weight)
            self._complete_fit(X, index, sample_weight)
        return self

    def predict_proba(self, X: ArrayInput) -> Floats:
        """Return the probability of each class, (n, n_classes), in the order of ``classes_``."""
        X = self._check_features(X)
        if len(self.classes_) == 1:
            return np.ones((X.shape[0], 1))
        return np.minimum(self._probs(X), 1.0)  # rounding may exceed one, which scikit-learn's metrics refuse

    def predict(self, X: ArrayInput) -> NDArray:
        """Return the most probable class of each row, (n,)."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def _complete_fit(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        """Do what ``fit`` does after learning the rows, while they are at hand."""

    def set_params(self: Fitted, **params: Any) -> Fitted:
        """Change parameters, or none of them if one is unknown."""
        with unchanged_on_error(self):
            return super().set_params(**params)

    def _check_features(self, X: Any) -> Floats:
        """Return rows as float64, after checking their number of features and column names."""
        if not hasattr(self, "classes_"):  # scikit-learn's own check takes as long as a prediction
            check_is_fitted(self, "classes_")
        if not self._is_plain(X):
            _check_kind(X, type(self).__name__)
            with np.errstate(invalid="ignore"):  # infinities of both signs have no sum
                X = validate_data(self, X, reset=False, dtype=np.float64)
            _check_size(X, type(self).__name__)
        return X

    def _check_rows(self, X: Any, y: Any, sample_weight: Any, *, first: bool) -> tuple[Floats, NDArray, Floats | None]:
        owner = type(self).__name__
        plain_labels = type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biuU"
        if first or not (plain_labels and self._is_plain(X) and len(X) == len(y)):
            _check_kind(X, owner)
            with np.errstate(invalid="ignore"):
                X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
            _check_size(X, owner)
            y = _as_labels(y, owner)
        if not first and (y.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            raise InvalidArgumentError(
                f"'y' of {owner} must stay of one type: labels so far are like {self.classes_[0]!r}; got {y[0]!r}."
            )
        if sample_weight is not None:
            weight = as_floats(sample_weight, name="sample_weight", owner=owner, minimum=0.0)
            if weight.shape not in ((), (len(X),)):
                raise InvalidArgumentError(
                    f"'sample_weight' of {owner} must be one number, or one for each of {len(X)} rows; got shape "
                    f"{tuple(weight.shape)}."
                )
            sample_weight = weight.double().expand(len(X)).numpy()
        return X, y, sample_weight

    def _is_plain(self, X: object) -> bool:
        """Return True if X needs none of scikit-learn's conversions, which take longer than learning from a row."""
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and bool(np.vdot(X, X) < _LARGEST**2)  # in one pass; false for NaN
        )

    def _admit(self, classes: NDArray) -> None:
        """Make room for the classes that are new; labels stay sorted."""
        old = getattr(self, "classes_", classes[:0])
        union = np.union1d(old, classes)
        if len(union) > len(old):
            self._make_room(np.searchsorted(union, old), union)
            self.classes_ = union
            self._places = {label: place for place, label in enumerate(union.tolist())}

    def _index(self, y: NDArray) -> Indices:
        return np.searchsorted(self.classes_, y)


class StreamingClassifier(CheckedClassifier):
    """A classifier that also learns from a stream of rows, in which new classes may appear at any time."""

    _one_class_remedy = "To begin with one class, use partial_fit, with classes=[...] if they are known."

    def partial_fit(
        self: Model,
        X: ArrayInput,
        y: ArrayInput,
        classes: ArrayInput | None = None,
        sample_weight: ArrayInput | None = None,
    ) -> Model:
        """Learn from more rows.

        Parameters
        ----------
        X, y, sample_weight
            Rows, labels and weights, as for ``fit``.
        classes : array-like, optional
            All labels, now and later. They need not be given: a class that appears later is treated as if it had been
            declared at the start.
        """
        with unchanged_on_error(self):
            first = not hasattr(self, "classes_")
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=first)
            index = None if first or classes is not None else self._find(y)
            if index is None:
                seen = np.unique(y)
                if classes is not None:
                    classes = _as_labels(np.asarray(classes), type(self).__name__)
                    undeclared = np.setdiff1d(seen, classes)
                    if len(undeclared):
                        raise InvalidArgumentError(
                            f"'y' of {type(self).__name__}.partial_fit must hold labels of 'classes', "
                            f"{_listed(classes)}; got {undeclared[0]!s}."
                        )
                    seen = np.unique(classes)
                if first:
                    self._begin(X.shape[1])
                self._admit(seen)
                index = self._index(y)
            self._learn(X, index, sample_weight)
        return self

    def _find(self, y: NDArray) -> Indices | None:
        """Return the class indices of labels, or None if any label is new."""
        if len(y) == 1:
            place = self._places.get(y.item())
            return None if place is None else np.array([place])
        index = np.searchsorted(self.classes_, y)
        index[index == len(self.classes_)] = 0
        return index if (self.classes_[index] == y).all() else None

    def _index_of_learnt(self, y: NDArray) -> Indices:
        """Return the class indices of labels of rows to be unlearnt."""
        index = self._find(y)
        if index is None:
            unknown = np.setdiff1d(y, self.classes_)[0]
            owner = f"{type(self).__name__}.unlearn"
            raise InvalidArgumentError(f"{owner} was given the label {unknown!s}, of which no row was learnt.")
        return index

    def _check_mergeable(self, other: "StreamingClassifier", **further: tuple[object, ...]) -> None:
        """Raise an error unless both models agree in features, labels and all ``further`` pairs; None is unknown."""
        names = [list(getattr(model, "feature_names_in_", [])) for model in (self, other)]
        both: dict[str, tuple[object, ...]] = {
            "number of features": (self.n_features_in_, other.n_features_in_),
            "names of features": (names[0], names[1]) if all(names) else (None, None),
            "type of labels": (_label_type(self), _label_type(other)),
        }
        for what, (own, theirs) in (both | further).items():
            if own != theirs and None not in (own, theirs):
                raise InvalidArgumentError(f"Models to merge must have the same {what}; got {own} and {theirs}.")

    def _header(self) -> dict[str, Any]:
        """Return classes and features as values for the JSON header of a file."""
        return {
            "classes": pack_classes(self.classes_),
            "n_features": self.n_features_in_,
            "feature_names": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
        }

    def _restore_header(self, config: dict[str, Any]) -> NDArray:
        """Set the features from a file, and return its classes, which are not admitted yet."""
        self.n_features_in_ = whole(config["n_features"], "the number of features")
        if config["feature_names"] is not None:
            self.feature_names_in_ = np.array(config["feature_names"], dtype=object)
            expect(self.feature_names_in_.shape == (self.n_features_in_,), "every feature has a name")
            expect(all(isinstance(name, str) for name in self.feature_names_in_), "names of features are text")
        return unpack_classes(config)


def check_other_model(other: object, kind: type) -> None:
    """Raise an error unless ``other`` is a fitted model of this kind."""
    if not isinstance(other, kind):
        raise InvalidArgumentError(f"merge takes another {kind.__name__}; got a {type(other).__name__}.")
    check_is_fitted(other, "classes_")


class unchanged_on_error:
    """A context that restores the attributes of an estimator after an error."""

    def __init__(self, estimator: BaseEstimator) -> None:
        self._attributes = vars(estimator)

    def __enter__(self) -> None:
        self._before = self._attributes.copy()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self._attributes.clear()
            self._attributes.update(self._before)


def _check_kind(X: object, owner: str) -> None:
    """Raise an error for dates and text, which NumPy would convert to numbers."""
    dtype = getattr(X, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mMSUT":
        raise InvalidArgumentError(f"'X' of {owner} must be numbers; got an array of {dtype}.")


def _check_size(X: Floats, owner: str) -> None:
    if not np.abs(X).max() < _LARGEST:
        raise InvalidArgumentError(
            f"'X' of {owner} is too large for sums of squares: it must lie within ±{_LARGEST:g}; got "
            f"{np.abs(X).max():g}. Rescale that column."
        )


def _as_labels(y: NDArray, owner: str) -> NDArray:
    """Return labels that can be sorted: numbers or strings, not a mixture."""
    if y.dtype.kind == "O" or y.dtype.kind == "T":
        if all(isinstance(label, str) for label in y.flat):
            y = y.astype(str)
        elif any(isinstance(label, str) or label is None for label in y.flat):
            raise InvalidArgumentError(f"'y' of {owner} must be all strings or all numbers; got {_listed(y)}.")
    if y.dtype.kind not in "biuU":  # for these it would only warn of many classes
        check_classification_targets(y)
    if y.dtype.kind not in "biufU":
        y = np.asarray(y.tolist())
    if y.dtype.kind not in "biufU":
        raise InvalidArgumentError(f"'y' of {owner} must be strings or numbers; got {_listed(y)}.")
    return y


def _label_type(model: StreamingClassifier) -> str:
    return "text" if model.classes_.dtype.kind == "U" else "number"


def _listed(labels: NDArray) -> str:
    shown = ", ".join(repr(label) for label in labels[:5].tolist())
    return f"[{shown}, ...]" if len(labels) > 5 else f"[{shown}]"
