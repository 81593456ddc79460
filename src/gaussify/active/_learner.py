"""The loop of active learning: ask for the labels of a few rows, learn them, ask again."""

import os
from collections.abc import Iterator
from typing import Any, TypeVar

import joblib
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples
from torch import Tensor

from gaussify._estimators import Floats, Indices, expect, pack_classes, unpack_classes, unpacking
from gaussify._persistence import read_model, write_model
from gaussify._typing import no_type_check
from gaussify._validation import check_count, check_option
from gaussify.active._acquisition import Acquisition, AcquisitionName, bald, entropy, epig, least_confidence, margin
from gaussify.active._model import (
    GaussianModel,
    GaussianRows,
    Model,
    ProbabilisticClassifier,
    RefittedModel,
    WatchedRows,
    column_names,
    is_fitted,
    take,
)
from gaussify.active._selection import Explained, greedy_beyond, near_even, spread_rows
from gaussify.exceptions import InvalidArgumentError, ModelFileError
from gaussify.likelihoods import PredictiveMethod

_FORMAT = 1
_PROB_SCORES = {  # that need class probabilities alone
    Acquisition.ENTROPY: entropy,
    Acquisition.MARGIN: margin,
    Acquisition.LEAST_CONFIDENCE: least_confidence,
}
_OPTIONS = ("acquisition", "diverse", "n_draws", "random_state")
_MODEL = "model."  # prefix, in files, of the names of the estimator's tensors
_CANDIDATES, _FEWEST_CANDIDATES = 2, 20  # for each row of a batch, and in all: rows among which it is made diverse
_N_TARGETS = 100  # target rows drawn from the pool if none are given
_Learner = TypeVar("_Learner", bound="ActiveLearner")


class ActiveLearner:
    r"""Active learning on a pool of unlabelled rows.

    ``query`` returns the rows whose labels would be most useful; ``teach`` learns their labels. For
    :class:`~gaussify.BayesianLogisticRegression` and a sparse :class:`~gaussify.GPClassifier`, each label updates the
    mean and variance of every latent of the pool in closed form. It costs d² for the weights and n d for n rows. Any
    other scikit-learn classifier with ``predict_proba`` is fitted again with all labels.

    Labels that were chosen near the boundary of the classes mislead least squares. So a linear model that may be
    refined (see its parameter ``refine``) is refined again, with all labels, whenever their number has grown by a
    quarter; in between, each label gets a site of its own. The temperature is then 1 unless it is given. With
    ``refine=False``, and for a sparse Gaussian process, hyperparameters are chosen again when the number of labels has
    doubled. An estimator that was already fitted, or whose hyperparameters are given, keeps them.

    Parameters
    ----------
    estimator : classifier
        Classifier to teach; the learner works on a copy. A fitted ``BayesianLogisticRegression`` or sparse
        ``GPClassifier`` keeps what it has learnt. Any other estimator starts unfitted.
    X_pool : array-like of shape (n, d)
        Rows to choose from. Do not change them later: float64 arrays are not copied, nor are the rows for estimators of
        other libraries. The estimator gets the column names of a data frame.
    acquisition : str
        Score that chooses rows, see :class:`~gaussify.active.Acquisition`. ``"entropy"``, ``"margin"``,
        ``"least-confidence"`` and ``"random"`` work with any estimator; ``"bald"``, ``"epig"``, ``"variance"`` and
        ``"thompson"`` need one of gaussify's.
    X_initial, y_initial : array-like, optional
        First rows and their labels.
    classes : array-like, optional
        All labels that may occur, if they are known. Until labels of two classes have been taught, ``query`` returns
        rows that are spread over the pool.
    X_target : array-like of shape (m, d), optional
        Rows whose predictions matter, for ``"epig"``; 100 rows of the pool by default.
    diverse : bool
        Whether to avoid near-duplicates among the rows of a query, see :func:`~gaussify.active.greedy`. They are chosen
        among twice as many rows of the largest scores, or 20. It applies to gaussify's estimators.
    n_draws : int
        Number of draws from the posterior, for ``"epig"``.
    random_state : int
        Seed of all draws.

    Attributes
    ----------
    estimator_ : classifier
        The classifier, after all labels so far.
    labelled_, labels_ : ndarray
        Indices of the rows of the pool that were taught, in order, and their labels.
    pending_ : ndarray of int
        Indices of the rows that were asked for and not yet taught.
    agreement_ : list of float
        Cohen's kappa between the predicted classes of the pool at one query and at the next.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from gaussify import BayesianLogisticRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = ActiveLearner(BayesianLogisticRegression(), X, acquisition="entropy")
    >>> for _ in range(40):
    ...     rows = learner.query()  # here a person labels these rows
    ...     _ = learner.teach(rows, y[rows])
    >>> learner.estimator_.score(X, y) > 0.9
    True
    """

    @no_type_check
    def __init__(
        self,
        estimator: ProbabilisticClassifier,
        X_pool: Any,
        acquisition: Acquisition | AcquisitionName = "entropy",
        *,
        X_initial: Any = None,
        y_initial: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        X_target: Any = None,
        diverse: bool = True,
        n_draws: int = 512,
        random_state: int = 0,
    ) -> None:
        self.acquisition = check_option(acquisition, Acquisition, name="acquisition", owner="ActiveLearner")
        self.diverse = bool(diverse)
        self.n_draws = check_count(n_draws, name="n_draws", owner="ActiveLearner")
        self.random_state = check_count(random_state, name="random_state", owner="ActiveLearner", minimum=0)
        self._classes = None if classes is None else np.unique(np.asarray(classes))
        self._known: NDArray | None = None  # first labels: later ones must be of the same type
        self._model = self._make_model(estimator)
        self._X = self._rows(X_pool, "X_pool")
        self.n_pool = _num_samples(self._X)
        if self.n_pool == 0:
            raise InvalidArgumentError("'X_pool' of ActiveLearner must have at least one row; got 0.")
        self._X_target = None if X_target is None else self._rows(X_target, "X_target")
        self._begin()
        if (X_initial is None) != (y_initial is None):
            raise InvalidArgumentError("ActiveLearner needs 'X_initial' and 'y_initial' together; got one of them.")
        if X_initial is not None and y_initial is not None:
            first = self._rows(X_initial, "X_initial")
            self._model.learn(first, self._checked_labels(y_initial, _num_samples(first), "y_initial"))

    def _begin(self) -> None:
        self._is_open = np.ones(self.n_pool, dtype=bool)  # neither asked for, nor taught, nor skipped
        self._labelled: list[int] = []
        self._labels: list[Any] = []
        self._pending: list[int] = []
        self._skipped: list[int] = []
        self._n_queries = 0
        self.agreement_: list[float] = []
        self._decisions: NDArray | None = None
        self._explained: Explained | None = None  # variances given the pending rows; outdated by the next label
        self._is_new = True  # whether the model has learnt since its decisions were last compared
        self._pool, self._targets = self._watch()

    def _watch(self) -> tuple[WatchedRows, GaussianRows | None]:
        pool = self._model.watch(self._X)
        if self.acquisition is not Acquisition.EPIG:
            return pool, None
        assert isinstance(self._model, GaussianModel)
        if self._X_target is None:
            size = min(_N_TARGETS, self.n_pool)
            drawn = np.random.default_rng(self.random_state).choice(self.n_pool, size, replace=False)
            return pool, self._model.watch(take(self._X, drawn))
        return pool, self._model.watch(self._X_target)

    @property
    def estimator_(self) -> Any:
        """The classifier, after all labels so far."""
        return self._model.estimator

    @property
    def labelled_(self) -> Indices:
        """Indices of the rows of the pool that were taught, in order."""
        return np.array(self._labelled, dtype=np.int64)

    @property
    def labels_(self) -> NDArray:
        """Labels of the rows in ``labelled_``."""
        return np.array(self._labels)

    @property
    def pending_(self) -> Indices:
        """Indices of the rows that were asked for and not yet taught."""
        return np.array(self._pending, dtype=np.int64)

    @property
    def n_open(self) -> int:
        """Number of rows that can still be asked for."""
        return int(self._is_open.sum())

    def query(self, n: int = 1) -> Indices:
        """Return the indices of the n rows to label next; they are pending until they are taught or skipped.

        A query never returns a pending row, and with ``diverse=True`` it avoids near-duplicates of pending rows.
        """
        n = check_count(n, name="n", owner="ActiveLearner.query")
        if n > self.n_open:
            raise InvalidArgumentError(
                f"'n' of ActiveLearner.query must be at most {self.n_open}, the number of rows of the pool that are "
                f"neither taught nor pending nor skipped; got {n}."
            )
        chosen = self._choose(n)
        self._n_queries += 1
        self._is_open[chosen] = False
        self._pending += chosen
        return np.array(chosen, dtype=np.int64)

    def teach(self: _Learner, indices: ArrayLike, labels: ArrayLike) -> _Learner:
        """Learn the labels of rows of the pool; the rows need not have been asked for."""
        rows = self._checked_rows(indices, "teach")
        y = self._checked_labels(labels, len(rows), "labels")
        if len(rows):
            self._model.learn(take(self._X, rows), y)
            self._close(rows)
            self._labelled += rows.tolist()
            self._labels += y.tolist()
            self._is_new, self._explained = True, None
        return self

    def skip(self: _Learner, indices: ArrayLike) -> _Learner:
        """Never ask for these rows again: for rows that nobody can label."""
        rows = self._checked_rows(indices, "skip")
        self._close(rows)
        self._skipped += rows.tolist()
        return self

    def scores(self) -> Float[np.ndarray, " n"]:
        """Return the score of each row of the pool; -inf for rows that cannot be asked for."""
        if not self._model.can_predict:
            raise InvalidArgumentError(
                "ActiveLearner.scores needs labels of two classes. Teach some rows first; 'query' works without labels."
            )
        scores = np.full(self.n_pool, -np.inf)
        open_rows = self._is_open.nonzero()[0]
        scores[open_rows] = self._score(open_rows).numpy()
        return scores

    def has_converged(self, agreement: float = 0.99, n_queries: int = 3) -> bool:
        """Return whether the predicted classes of the pool have hardly changed over the last queries: a reason to stop.

        Parameters
        ----------
        agreement
            Smallest mean of Cohen's kappa (``agreement_``) that counts as converged.
        n_queries
            Number of queries that the mean is taken over.

        References
        ----------
        M. Bloodgood, K. Vijay-Shanker, "A method for stopping active learning based on stabilizing predictions and the
        need for user-adjustable stopping", 2009.
        """
        n_queries = check_count(n_queries, name="n_queries", owner="ActiveLearner.has_converged")
        last = self.agreement_[-n_queries:]
        return len(last) == n_queries and float(np.mean(last)) >= agreement

    def track(self, X: Any) -> "TrackedRows":
        """Return a view of other rows, such as a test set, whose predictions follow each label at low cost."""
        return TrackedRows(self._model, self._model.watch(self._rows(X, "X")))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write labels, pending rows and the estimator to one file, atomically; the pool itself is not saved."""
        config: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        config |= {
            "pool": joblib.hash(self._X),
            "classes": None if self._classes is None else {"classes": pack_classes(self._classes)},
            "labels": None,
            "decisions": None,
            "n_queries": self._n_queries,
            "agreement": self.agreement_,
            "is_new": self._is_new,
            "model": None,
        }
        positions = {"labelled": self._labelled, "pending": self._pending, "skipped": self._skipped}
        tensors = {name: torch.tensor(rows, dtype=torch.int64) for name, rows in positions.items()}
        for name, labels in (("labels", self.labels_), ("decisions", self._decisions)):
            if labels is not None and len(labels):
                classes, codes = np.unique(labels, return_inverse=True)
                config[name], tensors[name] = {"classes": pack_classes(classes)}, torch.from_numpy(codes)
        if isinstance(self._model, GaussianModel) and is_fitted(self._model.estimator):
            config["model"], of_model = self._model.packed()
            tensors |= {f"{_MODEL}{name}": tensor for name, tensor in of_model.items()}
        write_model(path, "ActiveLearner", _FORMAT, config, tensors)

    @classmethod
    def load(
        cls: type[_Learner],
        path: str | os.PathLike[str],
        estimator: ProbabilisticClassifier,
        X_pool: Any,
        *,
        X_initial: Any = None,
        y_initial: ArrayLike | None = None,
        X_target: Any = None,
    ) -> _Learner:
        """Return the learner that ``save`` wrote.

        Parameters
        ----------
        path
            File that ``save`` wrote.
        estimator, X_pool, X_initial, y_initial, X_target
            The arguments that the saved learner was made with. The file holds what an estimator of gaussify has learnt;
            any other estimator is fitted again.
        """
        config, tensors = read_model(path, "ActiveLearner", _FORMAT)
        with unpacking(path, "ActiveLearner"):
            options = {name: config[name] for name in _OPTIONS}
            classes = None if config["classes"] is None else unpack_classes(config["classes"])
            expect("model" in config and "pool" in config, "it holds a model and the hash of a pool")
        # the saved model has already learnt the first rows
        first = {} if config["model"] is not None else {"X_initial": X_initial, "y_initial": y_initial}
        learner = cls(estimator, X_pool, classes=classes, X_target=X_target, **options, **first)
        if config["pool"] != joblib.hash(learner._X):
            raise ModelFileError(f"{path} belongs to another pool; give the 'X_pool' that it was saved with.")
        with unpacking(path, "ActiveLearner"):
            X, y = learner._restore(config, tensors)
            if config["model"] is None:
                if len(y):
                    learner._model.learn(X, y)
                return learner
            expect(isinstance(learner._model, GaussianModel), "the estimator is the one it was saved with")
            if X_initial is not None:
                X = np.concatenate([learner._rows(X_initial, "X_initial"), X])
                y = np.concatenate([np.asarray(y_initial), y])
            of_model = {
                name.removeprefix(_MODEL): tensor for name, tensor in tensors.items() if name.startswith(_MODEL)
            }
            learner._model.restore(config["model"], of_model, X, y)  # type: ignore[attr-defined]
        return learner

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Any, NDArray]:
        """Set the state of the pool from a file, and return the rows with labels."""
        rows = {name: tensors[name].numpy() for name in ("labelled", "pending", "skipped")}
        taken = np.concatenate(list(rows.values()))
        expect(len(np.unique(taken)) == len(taken) and set(taken) <= set(range(self.n_pool)), "rows are of the pool")
        labels, self._decisions = (
            None if config[name] is None else unpack_classes(config[name])[tensors[name].numpy()]
            for name in ("labels", "decisions")
        )
        labels = np.empty(0) if labels is None else labels
        expect(len(labels) == len(rows["labelled"]), "each row has a label")
        self._labelled, self._pending, self._skipped = (rows[name].tolist() for name in rows)
        self._labels = labels.tolist()
        self._known = labels if len(labels) else None
        self._is_open[taken] = False
        self._n_queries, self._is_new = int(config["n_queries"]), bool(config["is_new"])
        self.agreement_ = [float(value) for value in config["agreement"]]
        return take(self._X, self.labelled_), labels

    def _make_model(self, estimator: Any) -> Model:
        for needed in ("fit", "predict_proba"):
            if not hasattr(estimator, needed):
                raise InvalidArgumentError(
                    f"The 'estimator' parameter of ActiveLearner must be a classifier with {needed}; got "
                    f"{type(estimator).__name__}."
                )
        if hasattr(estimator, "weight_space") and getattr(estimator, "shared_kernel", True):
            return GaussianModel(estimator, self._classes)
        if self.acquisition.needs_latents:
            raise InvalidArgumentError(
                f"acquisition='{self.acquisition}' of ActiveLearner needs Gaussian latents. Use "
                f"BayesianLogisticRegression, or GPClassifier with n_inducing; got {type(estimator).__name__}."
            )
        return RefittedModel(estimator)

    def _rows(self, X: Any, name: str) -> Any:
        """Return rows in the form that the model takes."""
        if isinstance(self._model, RefittedModel):
            return X.tocsr() if issparse(X) else X
        rows = check_array(X, dtype=np.float64, order="C", input_name=name, estimator="ActiveLearner")
        like = self._X.shape[1] if hasattr(self, "_X") else getattr(self.estimator_, "n_features_in_", rows.shape[1])
        if rows.shape[1] != like:
            raise InvalidArgumentError(f"'{name}' of ActiveLearner must have {like} columns; got {rows.shape[1]}.")
        self._check_names(column_names(X), name)
        return rows

    def _check_names(self, names: list[str] | None, name: str) -> None:
        """Check column names, if there are any, against those of the pool or of the fitted estimator."""
        assert isinstance(self._model, GaussianModel)
        if hasattr(self, "_X"):
            like = self._model.names
        else:
            like = getattr(self.estimator_, "feature_names_in_", None)
            self._model.names = names if names is not None or like is None else list(like)
        if names is not None and like is not None and names != list(like):
            raise InvalidArgumentError(f"'{name}' of ActiveLearner must have the columns {list(like)}; got {names}.")

    def _checked_rows(self, indices: ArrayLike, function: str) -> Indices:
        owner = f"ActiveLearner.{function}"
        rows = np.atleast_1d(np.asarray(indices))
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise InvalidArgumentError(f"'indices' of {owner} must be rows of the pool, as integers; got {indices!r}.")
        rows = rows.astype(np.int64)
        if rows.size and not (0 <= rows.min() and rows.max() < self.n_pool):
            raise InvalidArgumentError(
                f"'indices' of {owner} must lie between 0 and {self.n_pool - 1}; got {rows.min()} to {rows.max()}."
            )
        if len(np.unique(rows)) < len(rows):
            raise InvalidArgumentError(f"'indices' of {owner} must not repeat a row; got {rows.tolist()}.")
        if len(known := np.intersect1d(rows, self._labelled)):
            raise InvalidArgumentError(
                f"'indices' of {owner} must not hold rows that were taught before; got row {known[0]}."
            )
        return rows

    def _checked_labels(self, labels: ArrayLike, n_rows: int, name: str) -> NDArray:
        y = np.atleast_1d(np.asarray(labels))
        if y.shape != (n_rows,):
            raise InvalidArgumentError(
                f"{name!r} of ActiveLearner must hold one label for each row; got shape {y.shape} for {n_rows} rows."
            )
        if y.dtype.kind not in "biufUO" or (y.dtype.kind == "f" and np.isnan(y).any()):
            raise InvalidArgumentError(f"{name!r} of ActiveLearner must be text, or numbers without NaN; got {y}.")
        known = self._classes if self._classes is not None else self._known
        if known is not None and len(y) and (y.dtype.kind in "biuf") != (known.dtype.kind in "biuf"):
            raise InvalidArgumentError(
                f"{name!r} of ActiveLearner must be of the same type as {known[0]!r}; got {y[0]!r}."
            )
        if self._classes is not None and len(unknown := np.setdiff1d(y, self._classes)):
            raise InvalidArgumentError(
                f"{name!r} of ActiveLearner must be among 'classes', {self._classes.tolist()}; got {unknown[0]!s}."
            )
        self._known = y if known is None and len(y) else known
        return y

    def _close(self, rows: Indices) -> None:
        gone = set(rows.tolist())
        self._is_open[rows] = False
        self._pending = [row for row in self._pending if row not in gone]
        self._skipped = [row for row in self._skipped if row not in gone]

    def _choose(self, n: int) -> list[int]:
        open_rows = self._is_open.nonzero()[0]
        rng = np.random.default_rng([self.random_state, self._n_queries])
        if self._model.can_predict:
            self._record_agreement()
        if self.acquisition is Acquisition.RANDOM:
            return rng.choice(open_rows, n, replace=False).tolist()
        if not self._model.can_predict:
            return self._spread(n, rng)
        is_gaussian = isinstance(self._pool, GaussianRows)
        if is_gaussian and self.diverse and n + len(self._pending) > 1:
            return self._choose_diverse(n)
        if n == 1 and is_gaussian and self.acquisition in _PROB_SCORES and self._can_screen():
            carried = self._pool.carried  # type: ignore[attr-defined]
            open_rows = open_rows[near_even(carried.mean[open_rows], carried.variance[open_rows])]
        best = torch.sort(self._score(open_rows), descending=True, stable=True).indices[:n]
        return open_rows[best.numpy()].tolist()

    def _can_screen(self) -> bool:
        """Return whether the row with the probability nearest to a half has the largest score."""
        predictive = self._model.space.predictive  # type: ignore[attr-defined]
        are_exact = predictive in (PredictiveMethod.QUADRATURE, PredictiveMethod.MEAN_FIELD)
        return are_exact and len(self.estimator_.classes_) == 2

    def _choose_diverse(self, n: int) -> list[int]:
        pool = self._pool
        assert isinstance(pool, GaussianRows)
        explained = self._explained
        if explained is None or explained.rows != self._pending[: len(explained.rows)]:
            carried = pool.carried
            explained = self._explained = Explained(
                carried.variance - carried.unexplained[:, None], pool.covariance_with
            )
        for row in self._pending[len(explained.rows) :]:
            explained.add(row)
        return greedy_beyond(explained, self._best(self.scores(), n), n)

    def _best(self, scores: Floats, n: int) -> Floats:
        """Return the scores, with -inf for all but the best rows: those that differ most are often mere outliers."""
        n_wanted = n + len(self._pending)
        n_kept = max(_FEWEST_CANDIDATES, _CANDIDATES * n_wanted) - len(self._pending)
        if n_kept >= self.n_open:
            return scores
        least = np.partition(scores, -n_kept)[-n_kept]
        return np.where(scores >= least, scores, -np.inf)

    def _spread(self, n: int, rng: np.random.Generator) -> list[int]:
        """Return rows that are spread over the pool, until the model can predict."""
        X = self._X
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
            return spread_rows(X.astype(np.float64, copy=False), self._is_open, n, rng)
        return rng.choice(self._is_open.nonzero()[0], n, replace=False).tolist()  # text, for example, has no distances

    def _record_agreement(self) -> None:
        """Append the agreement of the pool's predicted classes with those of the last query."""
        if not self._is_new:
            return
        decisions = self.estimator_.classes_[self._pool.decisions()]
        if self._decisions is not None:
            self.agreement_.append(float(cohen_kappa(self._decisions, decisions)))
        self._decisions, self._is_new = decisions, False

    def _score(self, rows: Indices) -> Float[Tensor, " n"]:
        """Return the scores of some rows."""
        pool = self._pool
        if self.acquisition is Acquisition.RANDOM:
            return torch.rand(len(rows), generator=torch.Generator().manual_seed(self._seed())).double()
        if not isinstance(pool, GaussianRows):
            return _PROB_SCORES[self.acquisition](pool.probs()[rows])
        if self.acquisition in _PROB_SCORES:
            return _PROB_SCORES[self.acquisition](pool.probs(rows))
        if self.acquisition is Acquisition.BALD:
            return bald(self._model.space.likelihood, *pool.latents(rows))  # type: ignore[attr-defined]
        if self.acquisition is Acquisition.VARIANCE:
            return pool.latents(rows)[1].sum(1)
        n_draws = 1 if self.acquisition is Acquisition.THOMPSON else self.n_draws
        return torch.cat([self._score_by_draws(part, n_draws) for part in pool.parts(rows, n_draws)])

    def _score_by_draws(self, rows: Indices, n_draws: int) -> Float[Tensor, " n"]:
        assert isinstance(self._pool, GaussianRows)
        draws = self._pool.draws(n_draws, self._seed(), rows)
        if self._targets is None:
            return entropy(draws[0])
        return epig(draws, self._targets.draws(n_draws, self._seed()))

    def _seed(self) -> int:
        return int(np.random.default_rng([self.random_state, self._n_queries, 1]).integers(2**31))


class TrackedRows:
    """Rows whose predictions are kept up to date while an :class:`ActiveLearner` learns.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from gaussify import BayesianLogisticRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = ActiveLearner(BayesianLogisticRegression(), X[::2])
    >>> test = learner.track(X[1::2])
    >>> rows = learner.query(10)
    >>> _ = learner.teach(rows, y[::2][rows])
    >>> test.predict_proba().shape
    (89, 3)
    """

    def __init__(self, model: Model, rows: WatchedRows) -> None:
        self._model, self._rows = model, rows

    def predict_proba(self) -> Floats:
        """Return the class probabilities given all labels so far."""
        if not self._model.can_predict:
            raise InvalidArgumentError("TrackedRows.predict_proba needs labels of two classes. Teach some rows first.")
        return self._rows.probs().numpy()

    def staged_predict_proba(self) -> Iterator[Floats]:
        """Yield the class probabilities after each label since the last call: the points of a learning curve.

        This is several times faster than ``predict_proba`` after each label, because it reads the rows once for many
        labels. It needs an estimator of gaussify with given hyperparameters. Call ``predict_proba`` first, then teach
        one or a few labels at a time.
        """
        if not (isinstance(self._rows, GaussianRows) and self._rows.knows_stages):
            raise InvalidArgumentError(
                "TrackedRows.staged_predict_proba needs a gaussify estimator that was not fitted again since the last "
                "call of predict_proba, which new hyperparameters or many labels at once make necessary. Call "
                "predict_proba after each label instead."
            )
        return (probs.numpy() for probs in self._rows.staged_probs())

    def predict(self) -> NDArray:
        """Return the most probable class of each row."""
        return self._model.estimator.classes_[self.predict_proba().argmax(1)]


def cohen_kappa(a: NDArray, b: NDArray) -> float:
    """Return Cohen's kappa of two sequences of labels: one if they are the same, zero for chance agreement.

    If there is a single label, kappa is undefined; zero is returned.

    Examples
    --------
    >>> cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    0.5
    """
    codes, index = np.unique(np.concatenate([a, b]), return_inverse=True)
    first, second = index[: len(a)], index[len(a) :]
    if len(codes) == 1:
        return 0.0
    shares = [np.bincount(labels, minlength=len(codes)) / len(a) for labels in (first, second)]
    by_chance = float(shares[0] @ shares[1])
    return (float((first == second).mean()) - by_chance) / (1.0 - by_chance)
