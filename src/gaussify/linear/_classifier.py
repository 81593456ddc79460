"""Bayesian logistic regression in closed form."""

import math
import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._calibration import (
    AlphaOption,
    Choice,
    CriterionName,
    LabelledRows,
    LikelihoodName,
    MethodOption,
    is_usable,
    most_rows,
    pack_choice,
    spread_offset,
    unpack_choice,
)
from gaussify._estimators import (
    Floats,
    Indices,
    StreamingClassifier,
    WeightFeatures,
    WeightSpace,
    check_other_model,
    expect,
    plain,
    unchanged_on_error,
    unpack_statistics,
    unpacking,
    whole,
)
from gaussify._persistence import read_model, write_model
from gaussify._typing import Vector, no_type_check
from gaussify._validation import ArrayInput, check_count
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import ClassLikelihood, PredictiveMethod, PredictiveName
from gaussify.linear._current import FEW_ROWS, CurrentPosterior, LearntStatistics, RefinedPosterior
from gaussify.linear._hyperparameters import Options, choose_hyperparameters, prior_shapes
from gaussify.linear._model_file import pack_refined, pack_reservoir, unpack_refined, unpack_reservoir
from gaussify.linear._parameters import LinearParameters, checked_parameters
from gaussify.linear._refinement import (
    AUTO_PASSES,
    RefinedSites,
    RefineOption,
    SiteSum,
    chosen_again,
    faded,
    is_affordable,
    is_better,
    refined_sites,
    started_sites,
    with_block,
    without_sites,
)
from gaussify.linear._reservoir import Reservoir
from gaussify.posterior import (
    ClassStatistics,
    RowPosterior,
    SiteRows,
    StatisticsAccumulator,
    latent,
    sample,
    without_rows,
)

_FORMAT = 1
_BLOCK = 1 << 22  # numbers that are copied at a time
_FEW_TUNED = 100  # so few rows say so little that twice as many change the best choice
_Model = TypeVar("_Model", bound="BayesianLogisticRegression")


class BayesianLogisticRegression(StreamingClassifier):
    r"""Logistic regression with a Gaussian posterior of its weights: exact in the matched model, without iterations.

    Each label is a Gaussian observation of the logits (:class:`~gaussify.SoftmaxLikelihood`, or for two classes
    :class:`~gaussify.LogisticLikelihood`). So the posterior is that of least squares, a function of
    :class:`~gaussify.posterior.ClassStatistics`: the *matched* model. With ``refine=False``, one ``fit``,
    ``partial_fit`` in any chunks and order, and merged shards give the same model. (Where a parameter is ``"auto"`` and
    predictions were made on the way, call ``tune`` first.) Rows can be unlearnt, and ``set_params`` can change
    likelihood and prior after the data. By default, ``fit`` then *refines* the posterior where that predicts better.

    Learning n rows costs n d², whatever the number of classes K. The first prediction after that costs K d³, or K d²
    after a few rows. Predicting n rows costs n K d². The model holds 2 K d² numbers, and at most as many again while it
    learns.

    Parameters
    ----------
    method : {"variational", "moment", "laplace", "moment-ori", "gauss", "auto"}
        Method that turns labels into Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"auto"`` takes
        the best by ``criterion``.
    alpha_eps : float, one per class, or "auto"
        Small count that every class has before a label is seen (the concentration of its prior), at least 1e-8. It
        keeps targets finite and sets how certain one label is. ``"auto"`` moves from 0.1 along a grid from 0.001 to 1
        while ``criterion`` improves; with leave-one-out, a log-normal prior around 0.1 counts as about one row.
    temperature : float or "auto"
        Divisor of the latents. ``"auto"`` takes the best by ``criterion``; 1 is the paper's model. With ``"auto"``, an
        intercept and ``criterion="leave-one-out"``, each latent also gets an offset, which corrects the probabilities
        of rare classes. A number for the temperature means no offsets.
    prior_variance : float, one per feature, or "auto"
        Prior variance of the weights before they are divided by the temperature (with ``dispersion="auto"``, that of
        ``coef_``). ``"auto"`` maximises the evidence, from the statistics alone. It chooses a common factor, and
        whether all features share one variance or each has one in inverse proportion to its own variance. The latter
        suits features in unrelated units, and must gain three nats. The factor has a log-normal prior, for which logits
        have a variance of 5, give or take a factor of 20; it matters where rows are few.
    forgetting : float
        Factor in (0, 1] by which each row reduces the weight of all rows before it. The rows then weigh as much as the
        last 1 / (1 - forgetting). Rows of weight zero count as time too. The prior is never forgotten: where rows fade
        and new ones say nothing, the posterior returns to it.
    dispersion : float or "auto"
        Factor of the variances of labels; 1 is the paper's model. With 1, ``alpha_eps`` and ``temperature`` give the
        best predictions, but the posterior of the weights can be too narrow or too wide by half and more. ``"auto"``
        gives a label the information about the logits that it has by the class likelihood, on average over rows and
        directions. For two classes and about twenty features or more, standard deviations of the weights are then those
        of the exact posterior to a few per cent. For fewer features and strong signals they are too small along the
        weights. For more classes, the same holds for differences between the weights of two classes.
    likelihood : {"auto", "softmax", "logistic"}
        Softmax has one latent for each class; logistic has a single latent, for two classes. ``"auto"`` is logistic for
        two classes where ``method`` allows it, and softmax otherwise.
    fit_intercept : bool
        Whether each latent has a constant term.
    intercept_variance : float
        Prior variance of the constant terms.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    criterion : {"leave-one-out", "training"}
        Score that chooses ``method``, ``alpha_eps`` and ``temperature``: the predictive log-likelihood of each row
        given all others, in closed form, or the paper's log-likelihood of the training rows.
    reservoir_size : int
        Number of rows kept to compute the criterion. They are a sample that does not depend on the order of the rows,
        and they are saved and merged with the model. Classes are cut to equal numbers, so that rows of rare classes
        stay, and a row weighs as much as the rows it stands for. With 0, ``"auto"`` means ``"variational"``, 0.1, 1 and
        1.
    refine : {"auto", False} or int
        Whether ``fit`` refines the matched posterior towards that of the class likelihood, by further passes of
        weighted least squares over the rows. An integer is the largest number of passes for one prior variance.
        ``"auto"`` refines unless the matched model has a clearly better leave-one-out score. It keeps to the matched
        model where ``method``, ``alpha_eps`` or ``dispersion`` are set, which shape matched labels alone, where
        ``reservoir_size`` is 0, and where a pass would take minutes.
        See the notes for what a refined model gives up.
    predictive : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
        Method that turns latents into probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
    random_state : int
        Seed of the sample of rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    coef_, intercept_ : ndarray of shape (n_latents, n_features) and (n_latents,)
        Posterior mean of the weights, divided by the temperature. The intercept includes the offset.
    covariance_ : ndarray of shape (n_latents, n_features, n_features)
        Posterior covariance of ``coef_``, for each latent.
    method_, alpha_eps_, temperature_, dispersion_ : str, float or ndarray, float, float
        The values in use. ``fit`` and ``tune`` choose those that are ``"auto"``. On a stream, a prediction chooses them
        again when the rows have doubled (up to a hundred rows) or quadrupled, or have grown by a tenth with a new
        class, and after ``merge``.
    offset_ : ndarray of shape (n_latents,)
        Number that is added to each latent after it was divided by the temperature, chosen at the same times.
    prior_variance_ : ndarray of shape (n_features,)
        The prior variance in use, chosen at the same times.
    score_ : float or None
        Mean log-likelihood of a row by ``criterion``, with these values.
    likelihood_ : ClassLikelihood
        The likelihood in use: it turns latents into probabilities and says how certain these are.
    statistics_ : ClassStatistics
        Statistics of all rows. With an intercept, the last feature is the constant.
    n_rows_seen_ : int
        Number of rows learnt so far.
    refined_ : bool
        Whether the refined posterior is in use.

    Notes
    -----
    A matched label depends on the label alone. So classes that are rare, or probabilities near 0 and 1, bend the
    logits, which calibration mends in part. A refined model replaces each row by a Gaussian factor (its *site*) with
    the gradient and curvature that the class likelihood has at that row. Its posterior is the variational one. Sites
    add up like matched labels, but depend on the posterior where they were made:

    - After ``fit``, a row of ``partial_fit`` gets its site from the posterior before it, so order and blocks matter a
      little. From nothing, ``partial_fit`` learns matched labels with ``refine="auto"``. With an integer, sites follow
      as soon as two classes are known.
    - ``merge`` adds the sites of both models. It counts no row and no prior twice.
    - ``unlearn`` takes out sites that ``fit`` made. Once other sites have joined them, the matched model, which can
      take out any row, takes over. With an integer, ``unlearn`` is refused then.
    - With a new class or ``widen``, the matched model takes over, as it knows what all rows say about new weights. With
      an integer, later rows refine it again.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BayesianLogisticRegression().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    0.97
    >>> mean, variance = model.predict_latent(X[:1])  # of the three logits
    >>> half, other, whole = (BayesianLogisticRegression(refine=False) for _ in range(3))
    >>> half.fit(X[::2], y[::2]).merge(other.fit(X[1::2], y[1::2])).tune()
    BayesianLogisticRegression(refine=False)
    >>> bool(np.allclose(half.predict_proba(X), whole.fit(X, y).predict_proba(X)))
    True
    """

    # What was learnt
    n_features_in_: int
    n_rows_seen_: int
    _has_forgotten: bool
    _is_seen: NDArray[np.bool_]  # of each class
    _learnt: LearntStatistics
    _reservoir: Reservoir | None
    # What follows from it and the parameters
    _given: LinearParameters
    _choice: Choice | None  # None: to be chosen at the next prediction
    _n_rows_tuned: int
    _n_classes_tuned: int
    _refined: RefinedSites | None  # None: the matched model is in use

    @no_type_check
    def __init__(
        self,
        method: MethodOption = "variational",
        alpha_eps: AlphaOption = "auto",
        temperature: float | Literal["auto"] = "auto",
        prior_variance: float | Vector | Literal["auto"] = "auto",
        forgetting: float = 1.0,
        *,
        dispersion: float | Literal["auto"] = 1.0,
        likelihood: LikelihoodName = "auto",
        fit_intercept: bool = True,
        intercept_variance: float = 1000.0,
        label_variance: float = 1.0,
        criterion: CriterionName = "leave-one-out",
        reservoir_size: int = 1000,
        refine: RefineOption = "auto",
        predictive: PredictiveName = "quadrature",
        random_state: int = 0,
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
        self.refine = refine
        self.predictive = predictive
        self.random_state = random_state

    def __copy__(self: _Model) -> _Model:
        """Return a shallow copy without the posterior, which is updated in place."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        if hasattr(self, "_learnt"):
            twin._learnt = LearntStatistics(self._accumulator)
        return twin

    def set_params(self: _Model, **params: Any) -> _Model:
        """Change parameters and keep what was learnt: likelihood and prior enter after the data.

        Parameters take effect at once, with these exceptions. ``forgetting`` acts on rows as they come.
        ``fit_intercept``, ``reservoir_size`` and ``random_state`` need another ``fit``, and so does ``refine``, unless
        it is set to False. Refined sites stay as they are when the prior changes. They are dropped with a likelihood
        of another number of latents.
        """
        with unchanged_on_error(self):
            super().set_params(**params)
            if hasattr(self, "classes_"):
                self._given, self._choice = checked_parameters(self), None
                self._given.label.check_number_of_classes(len(self.classes_), type(self).__name__)
                if self._given.refine == 0 or (self._given.refine is None and not self._given.may_refine):
                    self._refined = None
                self._drop_other_latents()
        return self

    def tune(self: _Model, *, report: Callable[[float], None] | None = None) -> _Model:
        """Choose all parameters that are ``"auto"`` again, from the rows so far.

        Parameters
        ----------
        report : callable, optional
            Function that is called with the share of the work done so far. With a thousand features, tuning takes a
            minute.
        """
        check_is_fitted(self, "classes_")
        if len(self.classes_) < 2:
            raise InvalidArgumentError(
                f"{type(self).__name__} knows only the class {self.classes_[0]!s} so far; it needs two classes."
            )
        self._learnt = LearntStatistics(self._accumulator)  # another choice will need another posterior
        rows = self._rows_for_choice() if self._given.by_rows else None
        options = self._options()
        self._choice = choose_hyperparameters(self._accumulator.statistics, rows, options, report)
        self._drop_other_latents(self._choice)
        if self._refined is not None:
            self._refined = chosen_again(self._refined, self._rows_for_choice(), self._choice, options)
        self._n_rows_tuned, self._n_classes_tuned = self.n_rows_seen_, int(self._is_seen.sum())
        return self

    def refine_on(
        self: _Model,
        X: ArrayInput,
        y: ArrayInput,
        sample_weight: ArrayInput | None = None,
        *,
        report: Callable[[float], None] | None = None,
    ) -> _Model:
        """Do what ``fit`` does after learning: tune, and refine as ``refine`` says, on all rows learnt so far.

        This is for rows that were learnt by ``partial_fit`` and are at hand once more.

        Parameters
        ----------
        X, y, sample_weight
            All rows learnt so far. With ``forgetting``, they must be in the order in which they were learnt.
        report : callable, optional
            Function that is called with the share of the refinement done so far.
        """
        check_is_fitted(self, "classes_")
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            index, learnt = self._find(y), self._accumulator.statistics.count
            weight = self._faded_weight(len(X), sample_weight)
            if index is None or not np.allclose(np.bincount(index, weight, len(learnt)), learnt):
                owner = f"{type(self).__name__}.refine_on"
                raise InvalidArgumentError(
                    f"{owner} needs all rows that were learnt, with their weights, and no others."
                )
            self._refined = None
            self._complete_fit(X, index, sample_weight, report)
        return self

    def predict_latent(self, X: ArrayInput) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_latents) each, divided by the temperature and its square."""
        mean, variance = self._latent(self._check_features(X))
        return mean.numpy(), variance.numpy()

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Return draws of the weights, (n_samples, n_latents, n_features), with the intercept last if there is one.

        Like ``coef_``, they are divided by the temperature: the logits of a draw are ``X @ coef.T + intercept``.
        Thompson sampling acts on one draw.
        """
        check_is_fitted(self, "classes_")
        n_samples = check_count(n_samples, name="n_samples", owner="BayesianLogisticRegression.sample")
        seed = check_random_state(random_state).randint(2**31)
        draws = sample(self._current().settled().tensors, n_samples, torch.Generator().manual_seed(int(seed)))
        return draws.numpy()

    @property
    def refines_again(self) -> bool:
        """Whether ``refine_again`` refines: unless ``refine``, ``forgetting`` or label parameters say otherwise."""
        given = checked_parameters(self)
        return given.forgetting == 1.0 and (given.may_refine if given.refine is None else given.refine > 0)

    def refine_again(self: _Model, X: ArrayInput, y: ArrayInput) -> _Model:
        """Refine the posterior with all rows learnt so far, which are given again, in any order.

        Rows of ``partial_fit`` have sites that were made when they came. Here, all rows get new sites, and the prior
        variance is chosen again. The search starts from the present sites. For rows that were chosen, the scores of
        leave-one-out mean little, so the refined model is taken in any case, with a temperature of 1 unless another one
        is given. Where a pass would take minutes, ``refine="auto"`` leaves the sites as they are.
        """
        check_is_fitted(self, "classes_")
        with unchanged_on_error(self):
            X, y, _ = self._check_rows(X, y, None, first=False)
            rows, options = self._site_rows(X, self._index_of_learnt(y), None), self._options()
            if self._given.refine is None and not is_affordable(len(y), rows.features.shape[1], options.n_classes):
                return self
            if self._choice is None:
                self.tune()
            passes = self._given.refine or AUTO_PASSES
            statistics, before = self._accumulator.statistics, self._refined
            assert self._choice is not None
            self._refined = refined_sites(rows, None, statistics, self._choice, options, passes, before=before)
            self._n_rows_tuned, self._n_classes_tuned = self.n_rows_seen_, int(self._is_seen.sum())
        return self

    def weight_space(self) -> WeightSpace:
        """Return the model as Gaussian weights of features, for callers that update latents row by row."""
        now = self._current()
        mean, root = now.settled()
        return WeightSpace(
            features=self._weight_features,
            posterior=RowPosterior(mean.copy(), root.copy()),
            target=now.target,
            likelihood=now.likelihood,
            predictive=self._given.label.predictive,
            origin=self._origin(),
        )

    def has_weight_space(self, space: WeightSpace) -> bool:
        """Return whether the model has learnt nothing but rows since ``weight_space`` returned this."""
        return space.comes_from(self._origin())

    def merge(self: _Model, other: "BayesianLogisticRegression") -> _Model:
        """Add all rows that ``other`` has learnt. The parameters of this model stay."""
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
            self._refined = self._merged_sites(other)
            self._choice = None
        return self

    def unlearn(self: _Model, X: ArrayInput, y: ArrayInput, sample_weight: ArrayInput | None = None) -> _Model:
        """Take out rows that were learnt before, as if they had never come.

        Their classes stay, and so do automatic choices until ``tune``. Rows that were never learnt are refused, as far
        as the statistics show it. A refined model takes out rows of its ``fit``. Once it has learnt more rows, the
        matched model takes over, which unlearns any row; with an integer as ``refine``, the call is refused.
        """
        check_is_fitted(self, "classes_")
        if self._has_forgotten:
            raise InvalidArgumentError(
                "unlearn needs forgetting=1 from the first row on: how much of a row is left depends on how many came "
                "after it."
            )
        can_take_out = self._refined is None or self._refined.reference is not None
        if not can_take_out and self._given.refine is not None:
            raise InvalidArgumentError(
                "unlearn of a refined model needs a fit without more rows after it, as later rows have sites that "
                "cannot be made again. set_params(refine=False) goes back to the matched model, which unlearns any row."
            )
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            index = self._index_of_learnt(y)
            own = ClassStatistics.from_rows(self._features(X), index, sample_weight, n_classes=len(self.classes_))
            self._accumulator = StatisticsAccumulator(without_rows(self._accumulator.statistics, own))
            if self._reservoir is not None:
                self._reservoir = self._reservoir.copy()
                self._reservoir.add(X, index, sample_weight, sign=-1.0)
            if not can_take_out:
                self._refined = None
            elif self._refined is not None:
                rows = self._site_rows(X, index, sample_weight)
                self._refined = without_sites(self._refined, rows, self._options())
            self.n_rows_seen_ = max(0, self.n_rows_seen_ - len(X))
        return self

    def widen(self: _Model, n_features: int) -> _Model:
        """Add features at the end, up to ``n_features`` in all; in every row so far they were zero."""
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
        self._refined = None  # sites of wider rows would have to be widened too: the matched model takes over
        grown = self._accumulator.statistics.grow(n_features=len(order))
        self._accumulator = StatisticsAccumulator(
            ClassStatistics(grown.count, grown.feature_sum[:, order], grown.gram[:, order][:, :, order])
        )
        if self._reservoir is not None:
            self._reservoir = self._reservoir.copy()
            self._reservoir.widen(n_features)
        self.n_features_in_ = n_features
        if self._choice is not None:  # until the next tuning, new features have the median of the variances so far
            old, constant = self._choice.prior_variance.split([n_old, n_constants])
            more = old.median().expand(n_features - n_old)
            self._choice = self._choice._replace(prior_variance=torch.cat([old, more, constant]))
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (safetensors and JSON), atomically."""
        write_model(path, type(self).__name__, _FORMAT, *self.packed())

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the contents of a model file, a dictionary for JSON and tensors; ``unpacked`` reads both."""
        check_is_fitted(self, "classes_")
        choice, reservoir = pack_choice(self._choice), pack_reservoir(self._reservoir)
        refined = pack_refined(self._refined)
        config = {
            "params": {name: plain(value) for name, value in self.get_params().items()},
            **self._header(),
            "n_rows_seen": self.n_rows_seen_,
            "has_forgotten": self._has_forgotten,
            "n_rows_tuned": self._n_rows_tuned,
            "n_classes_tuned": self._n_classes_tuned,
            "choice": choice.config,
            "reservoir": reservoir.config,
            "refined": refined.config,
        }
        statistics = vars(self._accumulator.statistics)
        return config, statistics | choice.tensors | reservoir.tensors | refined.tensors

    @classmethod
    def load(cls: type[_Model], path: str | os.PathLike[str]) -> _Model:
        """Return the model that ``save`` wrote. Any other file raises an error, and no file can run code."""
        config, tensors = read_model(path, cls.__name__, _FORMAT)
        with unpacking(path, cls.__name__):
            return cls.unpacked(config, tensors)

    @classmethod
    def unpacked(cls: type[_Model], config: dict[str, Any], tensors: dict[str, Tensor]) -> _Model:
        """Return the model from what ``packed`` returned."""
        model = cls(**config["params"])
        model._restore(config, tensors)
        return model

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Restore what ``save`` wrote."""
        classes, n_columns = self._restore_header(config), tensors["gram"].shape[-1]
        # The tensors say whether there is an intercept: the parameter may have changed after the fit.
        expect(0 <= n_columns - self.n_features_in_ <= 1, "there is a Gram column for each feature")
        statistics = unpack_statistics(tensors, len(classes), n_columns)
        self._begin(self.n_features_in_)
        self._admit(classes)
        self._accumulator = StatisticsAccumulator(statistics)
        self._is_seen = (statistics.count > 0.0).numpy()
        self.n_rows_seen_ = whole(config["n_rows_seen"], "the number of rows")
        self._has_forgotten = bool(config["has_forgotten"])
        self._n_rows_tuned, self._n_classes_tuned = int(config["n_rows_tuned"]), int(config["n_classes_tuned"])
        self._choice = unpack_choice(config, tensors, len(classes), n_columns)
        self._reservoir = unpack_reservoir(config, tensors, classes)
        self._refined = unpack_refined(config, tensors, len(classes), n_columns)

    @property
    def statistics_(self) -> ClassStatistics:
        check_is_fitted(self, "classes_")
        return 1.0 * self._accumulator.statistics  # a copy

    @property
    def likelihood_(self) -> ClassLikelihood:
        return self._current().likelihood

    @property
    def refined_(self) -> bool:
        check_is_fitted(self, "classes_")
        return self._refined is not None

    @property
    def method_(self) -> str:
        return str(self._tuned().method)

    @property
    def alpha_eps_(self) -> Any:
        return plain(self._tuned().alpha_eps)

    @property
    def temperature_(self) -> float:
        return self._in_use().temperature

    @property
    def offset_(self) -> Floats:
        choice, n_latents = self._in_use(), self.likelihood_.n_latents
        return np.zeros(n_latents) if choice.offset is None else choice.offset.numpy().copy()

    @property
    def dispersion_(self) -> float:
        return self._tuned().dispersion

    @property
    def prior_variance_(self) -> Floats:
        return self._in_use().prior_variance[: self.n_features_in_].numpy().copy()

    @property
    def score_(self) -> float | None:
        return self._in_use().score

    @property
    def coef_(self) -> Floats:
        return self._current().settled().mean[:, : self.n_features_in_].copy()

    @property
    def covariance_(self) -> Floats:
        covariance = self._current().settled().tensors.covariance
        return covariance[:, : self.n_features_in_, : self.n_features_in_].numpy()

    @property
    def intercept_(self) -> Floats:
        mean = self._current().settled().mean
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
        self._choice = self._refined = None

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        self._given.label.check_number_of_classes(len(classes), type(self).__name__)
        seen, self._is_seen = self._is_seen, np.zeros(len(classes), dtype=bool)
        self._is_seen[places] = seen
        self._accumulator = StatisticsAccumulator(self._accumulator.statistics.spread(places, len(classes)))
        if self._choice is not None and self._choice.offset is not None:
            offset = spread_offset(self._choice.offset, places, len(classes))
            self._choice = self._choice._replace(offset=offset)
        self._refined = None  # sites say nothing about a class that was not known
        if self._reservoir is not None:
            self._reservoir = self._reservoir.copy()
            self._reservoir.set_classes(classes, places)

    def _complete_fit(
        self,
        X: Floats,
        labels: Indices,
        sample_weight: Floats | None,
        report: Callable[[float], None] | None = None,
    ) -> None:
        self.tune()
        given, options = self._given, self._options()
        if given.refine != 0 and (given.refine is not None or given.may_refine):
            rows, matched = self._site_rows(X, labels, sample_weight), self._tuned()
            if given.refine is not None or is_affordable(len(labels), rows.features.shape[1], options.n_classes):
                judges, passes = self._rows_for_choice(), given.refine or AUTO_PASSES
                refined = refined_sites(rows, judges, self._accumulator.statistics, matched, options, passes, report)
                n_judges = 1.0 if judges is None else float(judges.weight.sum())
                if given.refine is not None or is_better(refined.choice, matched, n_judges):
                    self._refined = refined
        self._current()

    def _site_rows(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> SiteRows:
        weight = self._faded_weight(len(X), sample_weight)
        of_rows = None if weight is None else torch.from_numpy(weight.copy())
        return SiteRows(torch.from_numpy(self._features(X)), torch.from_numpy(labels), of_rows)

    def _faded_weight(self, n_rows: int, sample_weight: Floats | None) -> Floats | None:
        """Return the weights that rows have after the last of them; None if all are one."""
        if self._given.forgetting == 1.0:
            return sample_weight
        left = self._given.forgetting ** np.arange(n_rows - 1, -1, -1.0)
        return left if sample_weight is None else sample_weight * left

    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        # Work on copies, which an error or an interrupt drops.
        refined = self._refined_with(X, labels, sample_weight)
        before, now = self._accumulator, self._learnt.posterior
        self._accumulator = before.copy()
        self._reservoir = None if self._reservoir is None else self._reservoir.copy()
        self._has_forgotten |= self._given.forgetting != 1.0
        if not self._is_seen[labels].all():
            self._is_seen = self._is_seen.copy()
            self._is_seen[labels] = True
        n_rows = max(1, _BLOCK // self._accumulator.n_features)
        for start in range(0, len(X), n_rows):
            part = slice(start, start + n_rows)
            features, weight = self._features(X[part]), None if sample_weight is None else sample_weight[part]
            self._learn_block(X[part], features, labels[part], weight)
        if refined is not None:
            self._refined, self._learnt.posterior = refined
        elif now is not None and now.belongs_to(before, self._choice):
            if len(X) <= n_rows and self._given.forgetting == 1.0:
                self._learnt.posterior = now.after(self._accumulator, features, labels, sample_weight)

    def _refined_with(
        self, X: Floats, labels: Indices, sample_weight: Floats | None
    ) -> tuple[RefinedSites, RefinedPosterior | None] | None:
        """Return the sites with those of more rows, and their posterior if it is at hand; None in the matched model."""
        sites, given = self._refined, self._given
        if sites is None:
            if not given.refine or self._is_seen.sum() < 2:
                return None
            self._refined = sites = started_sites(self._accumulator.statistics, self._tuned(), self._options())
        if given.forgetting == 1.0 and len(X) <= FEW_ROWS:
            now = self._current()
            assert isinstance(now, RefinedPosterior)
            after = now.learn(self._features(X), labels, sample_weight)
            return after.sites, after
        if given.forgetting != 1.0:
            sites = faded(sites, given.forgetting ** len(X))
        return with_block(sites, self._site_rows(X, labels, sample_weight), self._options()), None

    def _drop_other_latents(self, choice: Choice | None = None) -> None:
        """Drop refined sites of one latent where there are now two, or the other way round."""
        if self._refined is None:
            return
        label, choice = self._given.label, choice or self._refined.choice
        method = choice.method if label.method is None else label.method
        likelihood = label.likelihood(len(self.classes_), method, choice.alpha_eps)
        if likelihood.n_latents != len(self._refined.total.natural.linear):
            self._refined = None

    def _merged_sites(self, other: "BayesianLogisticRegression") -> RefinedSites | None:
        """Return the sites of both models, or None unless both are refined with the same classes and latents."""
        own, theirs = self._refined, other._refined
        if own is None or theirs is None or not np.array_equal(self.classes_, other.classes_):
            return None
        if own.total.natural.linear.shape != theirs.total.natural.linear.shape:
            return None
        return own._replace(total=SiteSum(own.total.natural + theirs.total.natural), reference=None)

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

    def _probs(self, X: Floats) -> Floats:
        now, predictive = self._current(), self._given.label.predictive
        if len(X) == 1 and predictive is PredictiveMethod.QUADRATURE:
            probs = now.row_probs(self._features(X)[0])
            if probs is not None:  # else the general path says what is wrong
                return probs[None]
        return now.likelihood.predict_proba(*self._latent(X), predictive).numpy()

    def _latent(self, X: Floats) -> tuple[Tensor, Tensor]:
        return latent(self._current().settled().tensors, torch.from_numpy(self._features(X)))

    def _features(self, X: Floats) -> Floats:
        """Return a copy of the rows, with a constant for the intercept if there is one."""
        features = np.empty((len(X), self._accumulator.n_features))
        features[:, : X.shape[1]] = X
        features[:, X.shape[1] :] = 1.0
        return features

    def _weight_features(self, X: Floats) -> WeightFeatures:
        return self._features(X), np.zeros(len(X))

    def _origin(self) -> tuple[object, ...]:
        fades = object() if self._given.forgetting != 1.0 else None  # each row changes the weight of all others
        return self._in_use(), self.classes_, fades

    def _current(self) -> CurrentPosterior:
        choice, refined, label = self._tuned(), self._refined, self._given.label
        origin = (self._accumulator, choice) if refined is None else (refined,)
        now = self._learnt.posterior
        if now is None or not now.belongs_to(*origin):
            now = self._learnt.posterior = None  # first: it can be large
            if refined is None:
                now = CurrentPosterior(self._accumulator, choice, label)
            else:
                now = RefinedPosterior(refined, label, len(self.classes_))
            self._learnt.posterior = now
        return now

    @property
    def _accumulator(self) -> StatisticsAccumulator:
        return self._learnt.accumulator

    @_accumulator.setter
    def _accumulator(self, accumulator: StatisticsAccumulator) -> None:
        self._learnt = LearntStatistics(accumulator)  # without the posterior of other rows

    def _in_use(self) -> Choice:
        """Return the choice of the model in use: refined or matched."""
        choice = self._tuned()
        return choice if self._refined is None else self._refined.choice

    def _tuned(self) -> Choice:
        if not hasattr(self, "classes_"):
            check_is_fitted(self, "classes_")
        if self._choice is None or self._is_due():
            self.tune()
        assert self._choice is not None
        return self._choice

    def _is_due(self) -> bool:
        """Return whether automatic choices were made for far fewer rows, or for fewer classes and 10 % fewer rows."""
        seen, tuned = self.n_rows_seen_, self._n_rows_tuned
        if seen < 1.1 * tuned or (not self._given.by_rows and self._given.prior_variance is not None):
            return False
        if seen >= (2 if tuned < _FEW_TUNED else 4) * tuned:
            return seen > tuned
        return int(self._is_seen.sum()) > self._n_classes_tuned

    def _rows_for_choice(self) -> LabelledRows | None:
        if self._reservoir is None:
            return None
        kept = self._reservoir.rows()
        some = slice(most_rows(len(self.classes_)))
        labels, weight = torch.from_numpy(kept.labels[some]), torch.from_numpy(kept.weight[some])
        rows = LabelledRows(torch.from_numpy(self._features(kept.features[some])), labels, weight)
        if not is_usable(rows):
            return None
        return rows.weighed(self._accumulator.statistics.count)  # more rows of frequent classes were left out

    def _options(self) -> Options:
        given, statistics = self._given, self._accumulator.statistics
        constant = torch.full((statistics.n_features - self.n_features_in_,), given.intercept_variance).double()
        if given.prior_variance is None:
            shapes = prior_shapes(statistics, self.n_features_in_)
        else:
            shapes = [given.prior_variance.expand(self.n_features_in_)]
        return Options(
            label=given.label,
            n_classes=len(self.classes_),
            prior_shapes=[torch.cat([shape, constant]) for shape in shapes],
            chooses_prior=given.prior_variance is None,
            of_features=torch.arange(statistics.n_features) < self.n_features_in_,
            dispersion=given.dispersion,
        )
