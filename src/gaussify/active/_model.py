"""Two kinds of models of a learner: Gaussian ones, updated label by label, and any others, fitted again.

Each model *watches* rows: it keeps their predictions up to date while it learns.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._estimators import Floats, WeightSpace, expect, unchanged_on_error
from gaussify.exceptions import NumericalError
from gaussify.likelihoods import PredictiveMethod
from gaussify.posterior import CarriedLatents, GaussianPosterior, Observation, sample

_MOST_UPDATES = 10_000  # then compute again from the estimator, to clear rounding errors
_GROWTH = 0.25  # of the rows, after which a linear model is refined again
_FEATURES_PER_ROW = 16  # at least a row for so many features must be new, as many features make refinement expensive
_AT_ONCE = 8  # rows that a refined model learns one by one, each with a site of its own
_FEW = 0.25  # rows per feature: up to this many, updates one by one cost less than computing again
_ELEMENTS = 1 << 22  # of draws, or of observations to apply, at a time


@runtime_checkable
class ProbabilisticClassifier(Protocol):
    """What a learner asks of an estimator."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn rows and labels."""

    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities."""


class WatchedRows(ABC):
    """Rows whose class probabilities are kept up to date."""

    @abstractmethod
    def probs(self) -> Float[Tensor, "n c"]:
        """Return the class probabilities."""

    @abstractmethod
    def decisions(self) -> Int[np.ndarray, " n"]:
        """Return the index of the most probable class, approximately."""


class Model(ABC):
    """An estimator that learns labels as they arrive."""

    estimator: Any

    @property
    def can_predict(self) -> bool:
        """True if the estimator has seen two classes."""
        return is_fitted(self.estimator) and len(self.estimator.classes_) > 1

    @abstractmethod
    def learn(self, X: Any, y: NDArray) -> None:
        """Learn more rows; an error leaves everything unchanged."""

    @abstractmethod
    def watch(self, X: Any) -> WatchedRows:
        """Return the rows with predictions that are kept up to date."""


class FollowedWeights:
    """The current posterior of an estimator's weights, shared by the model and the rows it watches.

    The rows refer to this object and not to the model, which refers to them. Without that cycle, Python frees the
    memory of a learner at once.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.forget()

    def forget(self) -> None:
        """Ask the estimator for its posterior again when it is next needed."""
        self._space: WeightSpace | None = None
        self.n_updates = 0

    @property
    def space(self) -> WeightSpace:
        """The posterior of the weights, and the observation that each label stands for."""
        if self._space is None:
            self._space = self.estimator.weight_space()
        return self._space

    def observe(self, X: Floats, y: NDArray) -> list[Observation] | None:
        """Apply rows that the estimator has learnt; return None if its posterior must be computed again."""
        space = self._space
        if space is None or not self._may_follow(space, len(X)):
            self.forget()
            return None
        labels = np.searchsorted(self.estimator.classes_, y).tolist()
        features, _ = space.features(X)
        self.n_updates += len(X)
        return [space.observe(feature, label) for feature, label in zip(features, labels, strict=True)]

    def _may_follow(self, space: WeightSpace, n_rows: int) -> bool:
        few = n_rows <= max(1.0, _FEW * space.posterior.mean.shape[1])
        return few and self.n_updates + n_rows <= _MOST_UPDATES and self.estimator.has_weight_space(space)


class GaussianRows(WatchedRows):
    """Rows with Gaussian latents, whose mean and variance are updated with each observation."""

    def __init__(self, weights: FollowedWeights, X: Floats) -> None:
        self._weights, self.X = weights, X
        self._carried: CarriedLatents | None = None
        self._unapplied: list[Observation] = []  # applied when the latents are next needed

    @property
    def carried(self) -> CarriedLatents:
        """Mean and variance of the latents, up to date."""
        space = self._weights.space
        for _ in self._stages():
            pass
        if self._carried is None:
            features, unexplained = space.features(self.X)
            self._carried = CarriedLatents(features, space.posterior, unexplained)
        return self._carried

    @property
    def knows_stages(self) -> bool:
        """True if the observations since the last call are kept one by one."""
        return self._carried is not None

    def staged_probs(self) -> Iterator[Float[Tensor, "n c"]]:
        """Yield the class probabilities after each observation since the last call."""
        for carried in self._stages():
            if carried.is_worn:
                raise NumericalError(
                    "TrackedRows.staged_predict_proba would lose digits: variances have become tiny relative to their "
                    "first values. Call predict_proba after each label instead."
                )
            yield self._probs_by(carried)

    def _stages(self) -> Iterator[CarriedLatents]:
        carried, unapplied = self._carried, self._unapplied
        if carried is None or not unapplied:
            return
        observations = tuple(unapplied)
        steps = carried.stages(observations)
        for observation in observations:
            if not unapplied or unapplied[0] is not observation:
                return  # another call has applied the remaining observations meanwhile
            next(steps)
            del unapplied[0]
            yield carried
        if carried.is_worn and carried is self._carried:
            self._carried = None

    def latents(self, rows: NDArray | slice = slice(None)) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return mean and variance of the latents of some rows."""
        return _some_latents(self.carried, rows)

    def probs(self, rows: NDArray | slice = slice(None)) -> Float[Tensor, "n c"]:
        """Return the class probabilities of some rows."""
        return self._probs_by(self.carried, rows)

    def _probs_by(self, carried: CarriedLatents, rows: NDArray | slice = slice(None)) -> Float[Tensor, "n c"]:
        space = self._weights.space
        return space.likelihood.predict_proba(*_some_latents(carried, rows), space.predictive)

    def draws(self, n_draws: int, seed: int, rows: NDArray | slice = slice(None)) -> Float[Tensor, "s n c"]:
        """Return the class probabilities of some rows under draws of the weights, the same draws for all rows.

        The part of a latent that features do not explain is integrated out.
        """
        space, carried = self._weights.space, self.carried
        mean, root = space.posterior.tensors
        posterior = GaussianPosterior(mean, _triangular(root))
        weights = sample(posterior, n_draws, torch.Generator().manual_seed(seed))  # (s, l, e)
        latents = torch.einsum("ne,sle->snl", torch.from_numpy(carried.features[rows]), weights)
        unexplained = torch.from_numpy(carried.unexplained[rows])[:, None].expand_as(latents)
        has_rest = bool((unexplained > 0.0).any())
        method = PredictiveMethod.QUADRATURE if has_rest else PredictiveMethod.PLUG_IN
        probs = space.likelihood.predict_proba(latents.flatten(0, 1), unexplained.flatten(0, 1), method)
        return probs.unflatten(0, latents.shape[:2])

    def parts(self, rows: NDArray, n_draws: int) -> list[NDArray]:
        """Split rows into parts whose draws fit into memory."""
        size = max(1, _ELEMENTS // (n_draws * self._weights.space.likelihood.n_classes))
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def covariance_with(self, row: int) -> Float[np.ndarray, "n l"]:
        """Return the covariance of all latents with those of one row, without the part that features do not explain."""
        posterior = self._weights.space.posterior
        u = posterior.root @ self.carried.features[row]  # (l, e)
        return self.carried.covariance_with(np.matmul(u[:, None, :], posterior.root)[:, 0])

    def decisions(self) -> Int[np.ndarray, " n"]:
        mean = self.carried.mean
        return (mean[:, 0] > 0.0).astype(np.int64) if mean.shape[1] == 1 else mean.argmax(1)

    def follow(self, observations: list[Observation] | None) -> None:
        """Note what the model has observed; None if its posterior must be computed again."""
        if self._carried is None:
            return
        self._unapplied += observations or []
        n_latents, n_features = self._weights.space.posterior.mean.shape if observations else (1, 1)
        most = max(n_features, _ELEMENTS // (n_latents * n_features))  # then gains take more memory than roots
        if observations is None or len(self._unapplied) > most:
            self._carried, self._unapplied = None, []


class GaussianModel(Model):
    """A classifier that is linear in features: each label is one update in closed form.

    A Gaussian process must learn its kernel from rows. It is fitted as soon as there are two classes, and again
    whenever the number of rows has doubled; one that was already fitted keeps its kernel. A linear model that may be
    refined is refined again, from all rows, whenever they have grown by a quarter; in between, a label gets its site
    when it comes.
    """

    def __init__(self, estimator: Any, classes: NDArray | None) -> None:
        self._came_fitted = is_fitted(estimator)
        self._blank = estimator
        self.weights = FollowedWeights(copy.deepcopy(estimator) if self._came_fitted else clone(estimator))
        self._classes = classes
        self._learns_kernel = hasattr(estimator, "kernel")
        self._refines = getattr(estimator, "refines_again", False)
        self.names: list[str] | None = None  # of columns
        self.X: Floats | None = None  # with y: all rows so far, for a model that may be fitted again
        self.y: NDArray | None = None
        self.n_fitted = 0  # rows that the last fit or refinement saw
        self._watched: list[GaussianRows] = []

    @property
    def estimator(self) -> Any:
        return self.weights.estimator

    @estimator.setter
    def estimator(self, estimator: Any) -> None:
        self.weights.estimator = estimator

    @property
    def space(self) -> WeightSpace:
        """The current posterior."""
        return self.weights.space

    def watch(self, X: Floats) -> GaussianRows:
        rows = GaussianRows(self.weights, X)
        self._watched.append(rows)
        return rows

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the configuration and tensors that a file holds."""
        config, tensors = self.estimator.packed()
        name = type(self.estimator).__name__
        return {"kind": name, "estimator": config, "n_fitted": self.n_fitted, "came_fitted": self._came_fitted}, tensors

    def restore(self, config: dict[str, Any], tensors: dict[str, Tensor], X: Floats, y: NDArray) -> None:
        """Set the state from a file; rows and labels are kept for an estimator that may be fitted again."""
        kind, kernel = type(self.estimator).__name__, getattr(self.estimator, "kernel", None)
        expect(config["kind"] == kind, f"its estimator, a {config['kind']}, is the {kind} given")
        objects = {} if kernel is None or isinstance(kernel, str) else {"kernel": kernel}
        self.estimator = type(self.estimator).unpacked(config["estimator"], tensors, **objects)
        self.n_fitted, self._came_fitted = int(config["n_fitted"]), bool(config["came_fitted"])
        self.X, self.y = X, y
        self.weights.forget()

    def learn(self, X: Floats, y: NDArray) -> None:
        if (self._learns_kernel or self._refines) and not self._came_fitted:
            all_X = X if self.X is None else np.concatenate([self.X, X])
            all_y = y if self.y is None else np.concatenate([self.y, y])
            if self._refines:
                self._learn_and_refine(X, y, all_X, all_y)
            elif len(all_X) >= 2 * self.n_fitted and len(np.unique(all_y)) > 1:
                self.estimator = clone(self._blank).fit(self._named(all_X), all_y)
                self.n_fitted = len(all_X)
            elif self.n_fitted:
                self.estimator.partial_fit(self._named(X), y)
            self.X, self.y = all_X, all_y
        elif is_fitted(self.estimator):
            self.estimator.partial_fit(self._named(X), y)
        else:
            self.estimator.partial_fit(self._named(X), y, classes=self._classes)
        observations = self.weights.observe(X, y)
        for rows in self._watched:
            rows.follow(observations)

    def _learn_and_refine(self, X: Floats, y: NDArray, all_X: Floats, all_y: NDArray) -> None:
        estimator, n_features = self.estimator, X.shape[1]
        with unchanged_on_error(estimator):
            if is_fitted(estimator):
                for start in range(0, len(X), _AT_ONCE):
                    part = slice(start, start + _AT_ONCE)
                    estimator.partial_fit(self._named(X[part]), y[part])
            else:
                estimator.partial_fit(self._named(X), y, classes=self._classes)
            n_classes = len(np.unique(all_y))
            n_due = self.n_fitted + max(_GROWTH * self.n_fitted, n_features / _FEATURES_PER_ROW)
            is_due = len(all_X) >= n_due or n_classes > len(np.unique(all_y[: self.n_fitted]))
            if n_classes > 1 and (is_due or not estimator.refined_):
                estimator.refine_again(self._named(all_X), all_y)
                self.n_fitted = len(all_X)

    def _named(self, X: Floats) -> Any:
        """Return rows in the form that the estimator expects."""
        if self.names is None:
            return X
        import pandas as pd

        return pd.DataFrame(X, columns=self.names, copy=False)


class PlainRows(WatchedRows):
    """Rows whose probabilities are predicted again whenever the estimator was fitted again."""

    def __init__(self, model: "RefittedModel", X: Any) -> None:
        self._model, self.X = model, X
        self._predicted_by: object = None
        self._probs = torch.empty(0, 0)

    def probs(self) -> Float[Tensor, "n c"]:
        estimator = self._model.estimator
        if self._predicted_by is not estimator:
            self._predicted_by = estimator
            self._probs = torch.as_tensor(np.asarray(estimator.predict_proba(self.X), dtype=np.float64))
        return self._probs

    def decisions(self) -> Int[np.ndarray, " n"]:
        return self.probs().argmax(1).numpy()


class RefittedModel(Model):
    """Any classifier with probabilities, fitted again with all rows each time."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = self._blank = clone(estimator)
        self._X: list[Any] = []
        self._y: list[NDArray] = []

    def watch(self, X: Any) -> PlainRows:
        return PlainRows(self, X)

    def learn(self, X: Any, y: NDArray) -> None:
        all_X, all_y = [*self._X, X], [*self._y, y]
        labels = np.concatenate(all_y)
        if len(np.unique(labels)) > 1:
            self.estimator = clone(self._blank).fit(_joined(all_X), labels)
        self._X, self._y = all_X, all_y


def _triangular(root: Float[Tensor, "l d d"]) -> Float[Tensor, "l d d"]:
    """Return the lower triangular root of the same covariances, which does not depend on how they were computed.

    So a draw depends on the posterior alone, and is the same after saving and loading.
    """
    if not bool(root.triu(1).any()):
        return root
    lower = torch.linalg.qr(root.flip(-1), mode="r").R.flip(-2, -1)
    return lower * lower.diagonal(dim1=-2, dim2=-1).sign()[..., None]


def _some_latents(carried: CarriedLatents, rows: NDArray | slice) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
    return torch.from_numpy(carried.mean[rows]), torch.from_numpy(carried.variance[rows])


def is_fitted(estimator: Any) -> bool:
    """Return whether an estimator is fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a data frame if they are text, else None."""
    names = list(X.columns) if hasattr(X, "iloc") and hasattr(X, "columns") else []
    return names if names and all(isinstance(name, str) for name in names) else None


def take(X: Any, rows: NDArray) -> Any:
    """Return the given rows of an array, a sparse matrix, a frame or a list."""
    return _safe_indexing(X, rows)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    if hasattr(parts[0], "tocsr"):
        from scipy.sparse import vstack

        return vstack(parts).tocsr()
    return np.concatenate([np.asarray(part) for part in parts])
