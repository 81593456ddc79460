"""Bayesian logistic regression in closed form."""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._estimators import (
    Floats,
    Indices,
    LabelledRows,
    StreamingClassifier,
    WeightFeatures,
    WeightSpace,
    check_other_model,
    expect,
    is_usable,
    most_rows,
    plain,
    unchanged_on_error,
    unpack_statistics,
    unpacking,
    whole,
)
from gaussify._persistence import read_model, write_model
from gaussify._validation import check_count
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod, PredictiveMethod
from gaussify.linear._hyperparameters import (
    Choice,
    Options,
    choose,
    disperse,
    prior_shapes,
)
from gaussify.linear._model_file import pack_choice, pack_reservoir, unpack_choice, unpack_reservoir
from gaussify.linear._parameters import Given, checked_parameters
from gaussify.linear._reservoir import Reservoir
from gaussify.posterior import (
    ClassStatistics,
    GaussianPrior,
    RowLatent,
    RowPosterior,
    StatisticsAccumulator,
    class_posterior,
    latent,
    latent_of_row,
    observe_,
    sample,
    without_rows,
)

_FORMAT = 1
_BLOCK = 1 << 22  # numbers that are copied at a time
_FEW_ROWS = 8  # cost more to factorise anew than to condition on one by one
_MOST_UPDATES = 10_000  # after which rounding errors are cleared away by factorising anew
_FEW_TUNED = 100  # rows, which say so little that twice as many change what is best
_Model = TypeVar("_Model", bound="BayesianLogisticRegression")


class _Rows(NamedTuple):
    features: Floats  # (n, d)
    labels: list[int]
    weights: list[float]


class BayesianLogisticRegression(StreamingClassifier):
    r"""Logistic regression with a Gaussian posterior of its weights, exact in the matched model, without iterations.

    Each label is a Gaussian observation of the logits (:class:`~gaussify.SoftmaxLikelihood`, or for two classes
    :class:`~gaussify.LogisticLikelihood`), so the posterior is that of least squares and a function of
    :class:`~gaussify.posterior.ClassStatistics`. Fitting at once, in any chunks and order, and in shards that are
    merged give the same model (after ``tune``, where predictions were made on the way and something is ``"auto"``);
    rows can be unlearnt; likelihood and prior can be changed after the data (``set_params``).

    Learning n rows costs n d² whatever the number of classes K; the first prediction after that K d³ (K d² for a few
    rows), and predicting n rows n K d². Memory is 2 K d² numbers, and as much again at most while rows are added or
    wait.

    Parameters
    ----------
    method : {"variational", "moment", "laplace", "moment-ori", "gauss", "auto"}
        How labels become Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"auto"`` takes the best by
        ``criterion``.
    alpha_eps : float, one per class, or "auto"
        Concentration of the prior behind a label, at least 1e-8. ``"auto"`` goes from 0.1 along a grid from 0.001 to 1
        for as long as ``criterion`` improves.
    temperature : float or "auto"
        Latents are divided by it. ``"auto"`` takes the best by ``criterion``; 1 is the paper's model.
    prior_variance : float, one per feature, or "auto"
        Of the weights before they are divided by the temperature (with ``dispersion="auto"``, of ``coef_``).
        ``"auto"`` maximises the evidence, from the statistics alone: over a common factor, and the choice between the
        same variance for all features and one in inverse proportion to the variance of each feature (right where their
        units have nothing to do with each other).
    forgetting : float
        Factor in (0, 1] by which each row reduces the weight of all rows before it: a row counts 1 / (1 - forgetting)
        rows long. Rows of weight zero count as time, too. The prior is never forgotten: where rows fade and say
        nothing new, the posterior returns to it.
    dispersion : float or "auto"
        Variances of labels are multiplied by it. With 1, the paper's, ``alpha_eps`` and ``temperature`` give the best
        predictions, but the posterior of the weights can be too narrow or too wide by half and more. With ``"auto"`` a
        label tells as much about the logits as by the exact likelihood, on average over rows and directions. For two
        classes and some twenty features or more, standard deviations of the weights are then those of the exact
        posterior to a few per cent; for fewer features and strong signals they are too small along the weights, where
        labels tell less. Of more classes, the same holds for differences between the weights of two classes.
    likelihood : {"auto", "softmax", "logistic"}
        ``"auto"`` is logistic (one latent) for two classes where ``method`` allows it, softmax (one latent a class)
        otherwise.
    fit_intercept : bool
        Whether each latent has a constant term.
    intercept_variance : float
        Prior variance of the constant terms.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    criterion : {"leave-one-out", "training"}
        What ``method``, ``alpha_eps`` and ``temperature`` are chosen by: the predictive log-likelihood of each row from
        all others, in closed form, or the paper's log-likelihood of the training rows.
    reservoir_size : int
        How many rows are kept for that, a sample that does not depend on the order of the rows; it is saved and merged
        with the model. With 0, what is ``"auto"`` is ``"variational"``, 0.1, 1 and 1.
    predictive : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
        How latents become probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
    random_state : int
        Seed of the sample of rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels so far, sorted.
    coef_, intercept_ : ndarray of shape (n_latents, n_features) and (n_latents,)
        Posterior mean of the weights, divided by the temperature.
    covariance_ : ndarray of shape (n_latents, n_features, n_features)
        Posterior covariance of ``coef_``, for each latent.
    method_, alpha_eps_, temperature_, dispersion_ : str, float or ndarray, float, float
        The numbers in use. ``fit`` chooses those that are ``"auto"``; on a stream they are chosen again, at the next
        prediction, each time the data have doubled (up to a hundred rows) or become four times as many, or grown by a
        tenth with a new class, after ``merge``, and whenever ``tune`` is called.
    prior_variance_ : ndarray of shape (n_features,)
        Likewise; before weights are divided by the temperature.
    score_ : float or None
        Mean log-likelihood of a row by ``criterion``, with these numbers.
    likelihood_ : ClassLikelihood
        In use: from latents to probabilities and how sure these are.
    statistics_ : ClassStatistics
        Of all rows, the last feature being the constant where there is an intercept.
    n_rows_seen_ : int
        How many rows were learnt.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BayesianLogisticRegression().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    0.98
    >>> mean, variance = model.predict_latent(X[:1])  # of the three logits
    >>> more = BayesianLogisticRegression().fit(X[1::2], y[1::2])
    >>> whole = BayesianLogisticRegression().fit(X, y)
    >>> bool(np.allclose(model.merge(more).tune().predict_proba(X), whole.predict_proba(X)))
    True
    """

    # What was learnt
    n_features_in_: int
    n_rows_seen_: int
    _has_forgotten: bool
    _is_seen: NDArray[np.bool_]  # of each class
    _accumulator: StatisticsAccumulator
    _reservoir: Reservoir | None
    # What follows from it and the parameters
    _given: Given
    _choice: Choice | None
    _n_rows_tuned: int
    _n_classes_tuned: int
    _posterior: RowPosterior | None
    _likelihood_in_use: ClassLikelihood
    _targets: list[tuple[Floats, Floats]]  # mean and variance (l,) that each class observes
    _waiting: list[_Rows]  # that the posterior has not seen yet
    _asked: tuple[bytes, RowLatent] | None  # the last row that was predicted, which is often learnt next
    _n_waiting: int
    _n_updates: int  # since it was factorised

    def __init__(
        self,
        method: Any = "variational",  # checked when they are used, as scikit-learn wants it
        alpha_eps: Any = "auto",
        temperature: Any = "auto",
        prior_variance: Any = "auto",
        forgetting: Any = 1.0,
        *,
        dispersion: Any = 1.0,
        likelihood: Any = "auto",
        fit_intercept: Any = True,
        intercept_variance: Any = 1000.0,
        label_variance: Any = 1.0,
        criterion: Any = "leave-one-out",
        reservoir_size: Any = 1000,
        predictive: Any = "quadrature",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.alpha_eps = alpha_eps
        self.temperature = temperature
        self.prior_variance = prior_variance
        self.forgetting = forgetting
        self.dispersion = dispersion
        self.likelihood = likelihood
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.label_variance = label_variance
        self.criterion = criterion
        self.reservoir_size = reservoir_size
        self.predictive = predictive
        self.random_state = random_state

    def fit(self: _Model, X: Any, y: Any, sample_weight: Any = None) -> _Model:
        with unchanged_on_error(self):
            super().fit(X, y, sample_weight)
            self.tune()
            self._current()
        return self

    def __copy__(self: _Model) -> _Model:
        """Copy all but the posterior, which is updated in place."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._posterior = None
        return twin

    def set_params(self: _Model, **params: Any) -> _Model:
        """Change parameters. What was learnt stays: likelihood and prior enter after the data.

        All but ``forgetting`` (which acts on rows as they come), ``fit_intercept``, ``reservoir_size`` and
        ``random_state`` (which need another ``fit``) take effect at once.
        """
        with unchanged_on_error(self):
            super().set_params(**params)
            if hasattr(self, "classes_"):
                self._given, self._choice, self._posterior = checked_parameters(self), None, None
                self._given.label.check_number_of_classes(len(self.classes_), type(self).__name__)
        return self

    def tune(self: _Model, *, report: Callable[[float], None] | None = None) -> _Model:
        """Choose what is ``"auto"`` anew, from the rows so far.

        Parameters
        ----------
        report : callable, optional
            Called with the share that is done, from time to time: a thousand features take a minute.
        """
        check_is_fitted(self, "classes_")
        if len(self.classes_) < 2:
            raise InvalidArgumentError(
                f"{type(self).__name__} knows only the class {self.classes_[0]!s} so far; latents need two classes."
            )
        self._posterior = None  # first: it can be large
        rows = self._rows_for_choice() if self._given.by_rows else None
        self._choice = choose(self._accumulator.statistics, rows, self._options(), report)
        self._n_rows_tuned, self._n_classes_tuned = self.n_rows_seen_, int(self._is_seen.sum())
        return self

    def predict_latent(self, X: Any) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_latents) each, divided by the temperature and its square."""
        mean, variance = self._latent(self._check_features(X))
        return mean.numpy(), variance.numpy()

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Return draws of the weights, (n_samples, n_latents, n_features), the intercept last where there is one.

        Like ``coef_`` they are divided by the temperature: a draw's logits are ``X @ coef.T + intercept``. Thompson
        sampling acts on one draw.
        """
        check_is_fitted(self, "classes_")
        n_samples = check_count(n_samples, name="n_samples", owner="BayesianLogisticRegression.sample")
        seed = check_random_state(random_state).randint(2**31)
        draws = sample(self._current().tensors, n_samples, torch.Generator().manual_seed(int(seed)))
        return draws.numpy()

    def weight_space(self) -> WeightSpace:
        """Return the weights' posterior and what labels observe, for whoever follows the model row by row."""
        mean, root = self._current()
        return WeightSpace(
            features=self._weight_features,
            posterior=RowPosterior(mean.copy(), root.copy()),
            targets=self._targets,
            likelihood=self._likelihood_in_use,
            predictive=self._given.label.predictive,
            origin=self._origin(),
        )

    def has_weight_space(self, space: WeightSpace) -> bool:
        """Return whether, since it was given away, nothing but rows has been learnt."""
        return space.comes_from(self._origin())

    def merge(self: _Model, other: "BayesianLogisticRegression") -> _Model:
        """Learn all that ``other`` has learnt from other rows; parameters stay those of this model."""
        check_is_fitted(self, "classes_")
        check_other_model(other, BayesianLogisticRegression)
        self._check_mergeable(
            other,
            fit_intercept=tuple(m._accumulator.n_features > m.n_features_in_ for m in (self, other)),
            random_state=tuple(None if m._reservoir is None else m._reservoir.seed for m in (self, other)),
        )
        with unchanged_on_error(self):
            self._admit(other.classes_)
            places = np.searchsorted(self.classes_, other.classes_)
            theirs = other._accumulator.statistics.spread(places, len(self.classes_))
            self._accumulator = StatisticsAccumulator(self._accumulator.statistics + theirs)
            if self._reservoir is not None and other._reservoir is not None:
                self._reservoir = self._reservoir.copy()
                self._reservoir.merge(other._reservoir, places)
            self.n_rows_seen_ += other.n_rows_seen_
            self._has_forgotten |= other._has_forgotten
            self._is_seen = self._is_seen.copy()
            self._is_seen[places] |= other._is_seen
            self._choice = self._posterior = None
        return self

    def unlearn(self: _Model, X: Any, y: Any, sample_weight: Any = None) -> _Model:
        """Take out rows that were learnt before, as if they had never come; their classes stay.

        What was chosen automatically stays, too, until ``tune``. Rows that were not learnt are refused where that can
        be seen.
        """
        check_is_fitted(self, "classes_")
        if self._has_forgotten:
            raise InvalidArgumentError(
                "unlearn needs forgetting=1 from the first row on: how much of a row is left depends on how many came "
                "after it."
            )
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            index = self._index_of_learnt(y)
            own = ClassStatistics.from_rows(self._features(X), index, sample_weight, n_classes=len(self.classes_))
            self._accumulator = StatisticsAccumulator(without_rows(self._accumulator.statistics, own))
            if self._reservoir is not None:
                self._reservoir = self._reservoir.copy()
                self._reservoir.add(X, index, sample_weight, sign=-1.0)
            self.n_rows_seen_ = max(0, self.n_rows_seen_ - len(X))
            self._posterior = None
        return self

    def widen(self: _Model, n_features: int) -> _Model:
        """Make room for features that turn up later: in every row so far, the new ones at the end were zero."""
        check_is_fitted(self, "classes_")
        n_old = self.n_features_in_
        n_features = check_count(n_features, name="n_features", owner=f"{type(self).__name__}.widen", minimum=n_old)
        if hasattr(self, "feature_names_in_") or (
            self._given.prior_variance is not None and self._given.prior_variance.ndim
        ):
            raise InvalidArgumentError(
                f"{type(self).__name__}.widen needs features without names and one prior variance for all."
            )
        n_constants = self._accumulator.n_features - n_old  # they stay last
        kept, more = torch.arange(n_old), torch.arange(n_old + n_constants, n_features + n_constants)
        order = torch.cat([kept, more, torch.arange(n_old, n_old + n_constants)])
        grown = self._accumulator.statistics.grow(n_features=len(order))
        self._accumulator = StatisticsAccumulator(
            ClassStatistics(grown.count, grown.feature_sum[:, order], grown.gram[:, order][:, :, order])
        )
        if self._reservoir is not None:
            self._reservoir = self._reservoir.copy()
            self._reservoir.widen(n_features)
        self.n_features_in_, self._posterior = n_features, None
        if self._choice is not None:  # until the next tuning, new features have the prior that is usual so far
            old, constant = self._choice.prior_variance.split([n_old, n_constants])
            more = old.median().expand(n_features - n_old)
            self._choice = self._choice._replace(prior_variance=torch.cat([old, more, constant]))
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (safetensors and JSON), atomically."""
        write_model(path, type(self).__name__, _FORMAT, *self.packed())

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what a file holds of the model: what JSON can hold, and tensors; ``unpacked`` takes both."""
        check_is_fitted(self, "classes_")
        choice, reservoir = pack_choice(self._choice), pack_reservoir(self._reservoir)
        config = {
            "params": {name: plain(value) for name, value in self.get_params().items()},
            **self._header(),
            "n_rows_seen": self.n_rows_seen_,
            "has_forgotten": self._has_forgotten,
            "n_rows_tuned": self._n_rows_tuned,
            "n_classes_tuned": self._n_classes_tuned,
            "choice": choice.config,
            "reservoir": reservoir.config,
        }
        return config, vars(self._accumulator.statistics) | choice.tensors | reservoir.tensors

    @classmethod
    def load(cls: type[_Model], path: str | os.PathLike[str]) -> _Model:
        """Return the model that ``save`` wrote; a file that is not one gets an error, and never runs anything."""
        config, tensors = read_model(path, cls.__name__, _FORMAT)
        with unpacking(path, cls.__name__):
            return cls.unpacked(config, tensors)

    @classmethod
    def unpacked(cls: type[_Model], config: dict[str, Any], tensors: dict[str, Tensor]) -> _Model:
        """Return the model of what ``packed`` gave."""
        model = cls(**config["params"])
        model._restore(config, tensors)
        return model

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take over what ``save`` wrote."""
        classes, n_columns = self._restore_header(config), tensors["gram"].shape[-1]
        # whether there is an intercept is theirs to say, as the parameter may have been changed
        expect(0 <= n_columns - self.n_features_in_ <= 1, "there is a Gram column for each feature")
        statistics = unpack_statistics(tensors, len(classes), n_columns)
        self._begin(self.n_features_in_)
        self._admit(classes)
        self._accumulator = StatisticsAccumulator(statistics)
        self._is_seen = (statistics.count > 0.0).numpy()
        self.n_rows_seen_ = whole(config["n_rows_seen"], "the number of rows")
        self._has_forgotten = bool(config["has_forgotten"])
        self._n_rows_tuned, self._n_classes_tuned = int(config["n_rows_tuned"]), int(config["n_classes_tuned"])
        self._choice = unpack_choice(config, tensors)
        self._reservoir = unpack_reservoir(config, tensors, classes)

    @property
    def statistics_(self) -> ClassStatistics:
        check_is_fitted(self, "classes_")
        return 1.0 * self._accumulator.statistics  # the caller's own

    @property
    def likelihood_(self) -> ClassLikelihood:
        self._current()
        return self._likelihood_in_use

    @property
    def method_(self) -> str:
        return str(self._tuned().method)

    @property
    def alpha_eps_(self) -> Any:
        return plain(self._tuned().alpha_eps)

    @property
    def temperature_(self) -> float:
        return self._tuned().temperature

    @property
    def dispersion_(self) -> float:
        return self._tuned().dispersion

    @property
    def prior_variance_(self) -> Floats:
        return self._tuned().prior_variance[: self.n_features_in_].numpy().copy()

    @property
    def score_(self) -> float | None:
        return self._tuned().score

    @property
    def coef_(self) -> Floats:
        return self._current().mean[:, : self.n_features_in_].copy()

    @property
    def covariance_(self) -> Floats:
        covariance = self._current().tensors.covariance
        return covariance[:, : self.n_features_in_, : self.n_features_in_].numpy()

    @property
    def intercept_(self) -> Floats:
        mean = self._current().mean
        if self._accumulator.n_features == self.n_features_in_:
            return np.zeros(mean.shape[0])
        return mean[:, -1].copy()

    def _begin(self, n_features: int) -> None:
        self._given = checked_parameters(self)
        size, seed = self._given.reservoir_size, self._given.random_state
        self._accumulator = StatisticsAccumulator(ClassStatistics.zeros(0, n_features + bool(self.fit_intercept)))
        self._reservoir = Reservoir(size, seed=seed, n_features=n_features) if size else None
        self.n_rows_seen_ = self._n_rows_tuned = self._n_classes_tuned = 0
        self._has_forgotten, self._is_seen = False, np.zeros(0, dtype=bool)
        self._choice = self._posterior = None

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        self._given.label.check_number_of_classes(len(classes), type(self).__name__)
        seen, self._is_seen = self._is_seen, np.zeros(len(classes), dtype=bool)
        self._is_seen[places] = seen
        self._accumulator = StatisticsAccumulator(self._accumulator.statistics.spread(places, len(classes)))
        if self._reservoir is not None:
            self._reservoir = self._reservoir.copy()
            self._reservoir.set_classes(classes, places)
        self._posterior = None

    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        # work on copies, which an error or an interrupt drops
        self._accumulator = self._accumulator.copy()
        self._reservoir = None if self._reservoir is None else self._reservoir.copy()
        self._has_forgotten |= self._given.forgetting != 1.0
        if not self._is_seen[labels].all():
            self._is_seen = self._is_seen.copy()
            self._is_seen[labels] = True
        rows = max(1, _BLOCK // self._accumulator.n_features)
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            weight = None if sample_weight is None else sample_weight[part]
            features = self._features(X[part])
            self._remember(features, labels[part], weight)
            self._learn_block(X[part], features, labels[part], weight)

    def _learn_block(self, X: Floats, features: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        forgetting, age = self._given.forgetting, None
        weight = None if sample_weight is None else torch.from_numpy(sample_weight.copy())
        if forgetting != 1.0:
            age = -math.log(forgetting) * np.arange(len(X) - 1, -1, -1.0)
            left = torch.from_numpy(np.exp(-age))
            weight = left if weight is None else weight * left
            self._accumulator.scale(forgetting ** len(X))
        self._accumulator.append(torch.from_numpy(features), torch.from_numpy(labels), weight)
        if self._reservoir is not None:
            if age is not None:
                self._reservoir.decay(-math.log(forgetting) * len(X))
            self._reservoir.add(X, labels, sample_weight, age=age)
        self.n_rows_seen_ += len(X)

    def _remember(self, features: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        """Let a few rows wait for the posterior; let go of it where factorising anew is cheaper, or needed."""
        if self._posterior is None:
            return
        n_waiting = self._n_waiting + len(features)
        if n_waiting > _FEW_ROWS or self._n_updates + n_waiting > _MOST_UPDATES or self._given.forgetting != 1.0:
            self._posterior = None
            return
        weights = [1.0] * len(features) if sample_weight is None else sample_weight.tolist()
        rows = _Rows(features, labels.tolist(), weights)
        self._waiting, self._n_waiting = [*self._waiting, rows], n_waiting

    def _probs(self, X: Floats) -> Floats:
        if len(X) == 1 and self._given.label.predictive is PredictiveMethod.QUADRATURE:
            feature = self._features(X)[0]
            latents = latent_of_row(self._current(), feature)
            self._asked = feature.tobytes(), latents
            probs = self._likelihood_in_use.row_probs(latents.mean, latents.variance)
            if not math.isnan(probs[0]):  # else the general path says what is wrong
                return probs[None]
        mean, variance = self._latent(X)
        return self._likelihood_in_use.predict_proba(mean, variance, self._given.label.predictive).numpy()

    def _latent(self, X: Floats) -> tuple[Tensor, Tensor]:
        return latent(self._current().tensors, torch.from_numpy(self._features(X)))

    def _features(self, X: Floats) -> Floats:
        """A copy of the rows, with the constant of an intercept."""
        features = np.empty((len(X), self._accumulator.n_features))
        features[:, : X.shape[1]] = X
        features[:, X.shape[1] :] = 1.0
        return features

    def _weight_features(self, X: Floats) -> WeightFeatures:
        return self._features(X), np.zeros(len(X))

    def _origin(self) -> tuple[object, ...]:
        fades = object() if self._given.forgetting != 1.0 else None  # then each row changes the weight of all others
        return self._tuned(), self.classes_, fades

    def _current(self) -> RowPosterior:
        """The posterior of the logits' weights: one row at a time where that is cheaper than factorising anew."""
        choice = self._tuned()
        if self._posterior is None:
            self._likelihood_in_use = self._make_likelihood(choice.method, choice.alpha_eps)
            # the latents are divided by the temperature, and so may be what is observed of them, and the prior
            table = disperse(self._likelihood_in_use.target_table(), choice.dispersion / choice.temperature**2)
            table = table._replace(mean=table.mean / choice.temperature)
            self._targets = list(zip(*(part.numpy() for part in table), strict=True))
            prior_variance = choice.prior_variance / choice.temperature**2
            prior = GaussianPrior.centred(prior_variance, n_latents=self._likelihood_in_use.n_latents)
            self._posterior = RowPosterior.of(class_posterior(prior, self._accumulator.statistics, table))
            self._waiting, self._n_waiting, self._n_updates, self._asked = [], 0, 0, None
        posterior = self._posterior
        if self._waiting:
            self._posterior = None  # until it is whole again
            asked, self._asked = self._asked, None
            for rows in self._waiting:
                for feature, label, weight in zip(*rows, strict=True):
                    if weight > 0.0:
                        mean, variance = self._targets[label]
                        known = None if asked is None or asked[0] != feature.tobytes() else asked[1]
                        observe_(posterior, feature, mean, variance if weight == 1.0 else variance / weight, known)
                        asked = None  # which was of the posterior before
            self._n_updates += self._n_waiting
            self._posterior, self._waiting, self._n_waiting = posterior, [], 0
        return posterior

    def _tuned(self) -> Choice:
        if not hasattr(self, "classes_"):
            check_is_fitted(self, "classes_")
        if self._choice is None or self._is_due():
            self.tune()
        assert self._choice is not None
        return self._choice

    def _is_due(self) -> bool:
        """Whether what is chosen automatically was chosen for far fewer rows, or for fewer classes and 10 % less."""
        seen, tuned = self.n_rows_seen_, self._n_rows_tuned
        if seen < 1.1 * tuned or (not self._given.by_rows and self._given.prior_variance is not None):
            return False
        if seen >= (2 if tuned < _FEW_TUNED else 4) * tuned:
            return seen > tuned
        return int(self._is_seen.sum()) > self._n_classes_tuned

    def _make_likelihood(self, method: LikelihoodMethod, alpha_eps: Tensor) -> ClassLikelihood:
        return self._given.label.likelihood(len(self.classes_), method, alpha_eps)

    def _rows_for_choice(self) -> LabelledRows | None:
        if self._reservoir is None:
            return None
        kept = self._reservoir.rows()
        some = slice(most_rows(len(self.classes_)))
        labels, weight = torch.from_numpy(kept.labels[some]), torch.from_numpy(kept.weight[some])
        rows = LabelledRows(torch.from_numpy(self._features(kept.features[some])), labels, weight)
        return rows if is_usable(rows) else None

    def _options(self) -> Options:
        given, statistics = self._given, self._accumulator.statistics
        constant = torch.full((statistics.n_features - self.n_features_in_,), given.intercept_variance).double()
        if given.prior_variance is None:
            shapes = prior_shapes(statistics, self.n_features_in_)
        else:
            shapes = [given.prior_variance.expand(self.n_features_in_)]
        return Options(
            methods=given.label.methods(len(self.classes_)),
            alpha_eps=given.label.alpha_eps,
            temperature=given.label.temperature,
            dispersion=given.dispersion,
            prior_shapes=[torch.cat([shape, constant]) for shape in shapes],
            chooses_prior=given.prior_variance is None,
            of_features=torch.arange(statistics.n_features) < self.n_features_in_,
            likelihood=self._make_likelihood,
            criterion=given.label.criterion,
        )
