"""Gaussian process classification as regression on matched targets."""

import copy
import math
import os
import warnings
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._calibration import (
    AlphaOption,
    Choice,
    CriterionName,
    LikelihoodName,
    MethodOption,
    make_table,
    pack_choice,
    unpack_choice,
)
from gaussify._estimators import (
    ClassTargets,
    Floats,
    Indices,
    StreamingClassifier,
    WeightFeatures,
    WeightSpace,
    check_other_model,
    distinct_rows,
    expect,
    plain,
    unchanged_on_error,
    unpacking,
    whole,
)
from gaussify._numerics._memory import installed_memory
from gaussify._numerics._optimise import SearchReport
from gaussify._persistence import read_model, write_model
from gaussify._typing import Matrix, no_type_check
from gaussify._validation import ArrayInput
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._exact import exact_gibibytes
from gaussify.gp._fitted import FittedSparseGP
from gaussify.gp._kernels import KernelOption, kernel_form, make_kernel
from gaussify.gp._model_file import (
    pack_model,
    pack_refined_gp,
    unpack_model,
    unpack_refined_gp,
    unpack_scaling,
)
from gaussify.gp._models import LatentModel, LatentPosterior, Latents, SparseModel
from gaussify.gp._parameters import (
    GPParameters,
    InducingName,
    Objective,
    ObjectiveName,
    ScalingName,
    Verbosity,
    checked_parameters,
)
from gaussify.gp._refinement import RefinedGP, refined_gp
from gaussify.gp._rows import SortedRows
from gaussify.gp._scaling import Scaling, fit_scaling
from gaussify.gp.learning._schedule import fit_model
from gaussify.likelihoods import ClassLikelihood, PredictiveName
from gaussify.linear._refinement import AUTO_PASSES, RefineOption
from gaussify.posterior import RowPosterior, without_rows

_FORMAT = 1
_MANY_ROWS = 5000  # an exact model of more rows takes minutes and gigabytes
_CUSTOM = "custom"  # stands for a kernel object in files
_Model = TypeVar("_Model", bound="GPClassifier")


class _Prediction(NamedTuple):
    """The likelihood and the posterior that follow from a model: computed once, for that model alone."""

    model: LatentModel
    refined: RefinedGP | None
    likelihood: ClassLikelihood
    posterior: LatentPosterior


def _is_sparse(estimator: Any) -> bool:
    if estimator.n_inducing is None:
        raise AttributeError(
            "GPClassifier has partial_fit with inducing points only, as an exact model is a function of all rows; give "
            "n_inducing, or fit again with all rows."
        )
    return True


class GPClassifier(StreamingClassifier):
    r"""Gaussian process classification, at the cost of one regression whatever the number of classes.

    Each label is a Gaussian observation of the latents (:class:`~gaussify.SoftmaxLikelihood`). So hyperparameters
    maximise the evidence of a regression with two noise variances, and predictions are in closed form. Exact models
    share one factorisation between all classes. Sparse models (``n_inducing``) use m inducing points, inputs whose
    latents summarise all others. They maximise Titsias' collapsed bound, a function of class statistics: objective and
    gradient cost n m² whatever the number of classes, in bounded memory. Once hyperparameters are fixed, rows can be
    added, merged and unlearnt.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel, {"rbf", "matern12", "matern32", "matern52", "linear"} or None
        Covariance of the latents. A named kernel (None is ``"rbf"``) has a variance, one lengthscale for each feature
        and a broad prior of lengthscales. A kernel object is copied; the search starts at its parameters, and its
        priors count.
    n_inducing : int or None
        Number of inducing points; all distinct rows if these are fewer. None is the exact model, for up to a few
        thousand rows.
    objective : {"matched", "elbo", "leave-one-out"}
        The objective that hyperparameters maximise. ``"matched"`` is the evidence of the Gaussian model, or Titsias'
        bound on it. The others evaluate the softmax or logistic likelihood itself, and also learn ``alpha_eps`` unless
        it is given: ``"elbo"`` is a bound on the evidence, ``"leave-one-out"`` the log-likelihood of each row given all
        others. With many rows, held-out rows decide when their search ends, and ``"elbo"`` may end with leave-one-out.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss", "auto"}
        Method that turns labels into Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"auto"`` takes
        the best by ``criterion``. With an objective other than ``"matched"``, it learns hyperparameters with each
        method and compares them on held-out rows, or by the objective if rows are few.
    alpha_eps : float, one per class, "auto" or "per-class"
        Small count that every class has before a label is seen; it sets how certain one label is. ``"auto"`` takes the
        best value of a grid by ``criterion``. With an objective other than ``"matched"``, it is learnt with the
        hyperparameters instead: as one value (``"auto"``) or one for each class (``"per-class"``).
    temperature : float or "auto"
        Divisor of the latents. ``"auto"`` takes the best by ``criterion``; 1 is the paper's model.
    scaling : {"standard", "quantile", None}
        Scaling of inputs: to mean zero and variance one; by rank to normal quantiles, for heavy tails and outliers; or
        none. The first fit learns it, and it stays.
    likelihood : {"auto", "softmax", "logistic"}
        Softmax has one latent for each class; logistic has a single latent, for two classes. ``"auto"`` is softmax,
        which is better on most data.
    inducing : {"kmeans", "greedy"} or array-like of shape (n_inducing, n_features)
        First inducing points: cluster centres, rows of largest conditional variance, or the points given.
    learn_inducing : bool
        Whether inducing points move with the hyperparameters.
    shared_kernel : bool
        Whether all latents share kernel and inducing points. If not, the cost is that of one model for each class.
    n_inducing_predict : int or None
        Number of inducing points for predictions, if larger: the additional points cost one pass and no search.
    max_iter : int
        Largest number of iterations of each search; 0 keeps the first kernel and inducing points.
    tol : float
        Smallest gain of the objective per row. A search ends when ten iterations together gain less, or a quarter of
        ``max_iter`` if each step samples other rows.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    criterion : {"leave-one-out", "training"}
        Score that chooses ``method``, ``alpha_eps`` and ``temperature``: the predictive log-likelihood of each row
        given all others, in closed form, or the paper's log-likelihood of the training rows.
    sample_size : int
        Largest number of rows on which the criterion is computed.
    batch_size : int or None
        Number of rows over which each step of an objective other than ``"matched"`` takes expectations; if these are
        not all rows, each step samples others. By default, all rows for two classes, a fraction 2/n_classes for more,
        and at least 1000, so that the cost does not grow with the number of classes. Exact models take all rows.
    expectation : "quadrature" or int
        How objectives other than ``"matched"`` compute expectations over latents: by quadrature to full precision, or
        by averaging this number of draws, the same in every step.
    refine : {False, "auto"} or int
        Whether the fit refines the matched posterior towards that of the class likelihood, with the kernels that the
        matched model has learnt. It chooses a common factor of the kernels and the temperature by cross-validation with
        five folds. An integer is the largest number of passes over the rows for one factor. ``"auto"`` refines where
        the same folds prefer it. It keeps to the matched model where ``method`` or ``alpha_eps`` are set, and where the
        fit would take many minutes. See the notes for what a refined model gives up.
    max_memory_gib : float or None
        Memory in gibibytes that an exact model may need; a larger one is refused before it allocates. None is the
        memory of the machine, and ``float("inf")`` insists.
    predictive : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
        Method that turns latents into probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
    verbose : bool or callable
        True prints the progress of each search. A function is called after each iteration instead, with the title of
        the search, the number of the iteration and the objective.
    random_state : int
        Seed of the first inducing points, and of the samples that ``batch_size`` and ``expectation`` ask for.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    kernel_ : gpytorch.kernels.Kernel, or list of them
        Kernel with the learnt hyperparameters, for scaled inputs; one for each latent unless they share it.
    inducing_points_ : ndarray of shape (m, n_features), or list of them
        Inducing points in scaled units.
    method_, alpha_eps_, temperature_ : str, float or list of float, float
        The values in use.
    score_ : float
        Mean log-likelihood of a row by ``criterion``, with these values; of a refined model, by cross-validation.
    refined_ : bool
        Whether the refined posterior is in use.
    objective_value_ : float
        Value of ``objective``, priors included, at the learnt hyperparameters, over the rows they were learnt from. It
        is taken at temperature one, except that leave-one-out uses a ``temperature`` that is given.
    objective_ : {"matched", "elbo", "leave-one-out"}
        The objective of the search that was kept: ``objective``, or with many rows the one that led to better
        predictions.
    search_ : list of SearchReport
        Report of the search that was kept, for each kernel.
    n_iter_ : int
        Number of iterations of the longest of these searches.
    likelihood_ : ClassLikelihood
        The likelihood in use: it turns latents into probabilities and says how certain these are.
    fitted_ : FittedSparseGP
        Everything another model needs to start from this one; for sparse models whose latents share a kernel. It is
        the matched model, also where a refined one is in use.
    n_rows_seen_ : int
        Number of rows learnt so far.

    Notes
    -----
    A matched label has a fixed variance, so it can express neither certainty nor doubt about a single row. Where
    classes follow a rule without noise, a refined model is much better. It replaces each row by a Gaussian factor (its
    *site*) with the gradient and curvature that the class likelihood has at that row. What holds for streams of the
    matched model changes:

    - Rows of ``partial_fit`` get their sites from the posterior before them, so order and blocks matter a little.
    - ``merge`` adds the sites of both models if both are refined and know the same classes. Otherwise the matched
      model takes over.
    - ``unlearn`` takes out sites that the first fit made. Once other sites have joined them, it is refused.
    - With a new class, the matched model takes over.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    0.96
    >>> mean, variance = model.predict_latent(X[:5])

    With inducing points, rows can be added later:

    >>> sparse = GPClassifier(n_inducing=20).fit(X[::2], y[::2])
    >>> sparse.partial_fit(X[1::2], y[1::2]).n_rows_seen_
    150
    """

    _one_class_remedy = "Hyperparameters cannot be learnt from one class."

    n_features_in_: int
    n_rows_seen_: int
    objective_value_: float
    objective_: str
    search_: list[SearchReport]
    _given: GPParameters
    _params_of_fit: dict[str, Any]
    _scaling: Scaling
    _model: LatentModel | None
    _choice: Choice
    _refined: RefinedGP | None  # None: the matched model is in use
    _prediction: _Prediction | None

    @no_type_check
    def __init__(
        self,
        kernel: KernelOption = None,
        n_inducing: int | None = None,
        objective: ObjectiveName = "matched",
        method: MethodOption = "variational",
        alpha_eps: AlphaOption | Literal["per-class"] = "auto",
        temperature: float | Literal["auto"] = "auto",
        *,
        scaling: ScalingName | None = "standard",
        likelihood: LikelihoodName = "auto",
        inducing: InducingName | Matrix = "kmeans",
        learn_inducing: bool = True,
        shared_kernel: bool = True,
        n_inducing_predict: int | None = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        label_variance: float = 0.1,
        criterion: CriterionName = "leave-one-out",
        sample_size: int = 2000,
        batch_size: int | None = None,
        expectation: Literal["quadrature"] | int = "quadrature",
        refine: RefineOption = False,
        max_memory_gib: float | None = None,
        predictive: PredictiveName = "quadrature",
        verbose: Verbosity = False,
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.objective = objective
        self.method = method
        self.alpha_eps = alpha_eps
        self.temperature = temperature
        self.scaling = scaling
        self.likelihood = likelihood
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.shared_kernel = shared_kernel
        self.n_inducing_predict = n_inducing_predict
        self.max_iter = max_iter
        self.tol = tol
        self.label_variance = label_variance
        self.criterion = criterion
        self.sample_size = sample_size
        self.batch_size = batch_size
        self.expectation = expectation
        self.refine = refine
        self.max_memory_gib = max_memory_gib
        self.predictive = predictive
        self.verbose = verbose
        self.random_state = random_state

    @available_if(_is_sparse)
    def partial_fit(
        self: _Model,
        X: ArrayInput,
        y: ArrayInput,
        classes: ArrayInput | None = None,
        sample_weight: ArrayInput | None = None,
    ) -> _Model:
        """Learn from more rows with fixed hyperparameters and scaling; the first call fits them.

        Parameters
        ----------
        X, y, sample_weight
            Rows, labels and weights as for ``fit``. The first rows must be of at least two classes.
        classes : array-like, optional
            All labels, now and later. Labels that are not declared may still turn up later if latents share a kernel.
        """
        return super().partial_fit(X, y, classes, sample_weight)

    def predict_latent(self, X: ArrayInput) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_latents) each, divided by the temperature and its square."""
        mean, variance = self._latent(self._check_features(X))
        return mean.numpy(), variance.numpy()

    def scale(self, X: ArrayInput) -> Floats:
        """Return rows in the scaled units of ``kernel_`` and ``inducing_points_``, (n, n_features)."""
        return self._scaling(self._check_features(X))

    @available_if(_is_sparse)
    def weight_space(self) -> WeightSpace:
        """Return the model as Gaussian weights of features, for callers that update latents row by row."""
        fitted, refined, T = self.fitted_, self._refined, self.temperature_
        posterior = fitted.posterior() if refined is None else refined.weights()
        mean, variance = fitted.table.mean / T, fitted.table.variance / T**2
        scale = (1.0 if refined is None else refined.scale) / T**2

        def features(X: Floats) -> WeightFeatures:
            own, left = fitted.features(torch.from_numpy(fitted.scaling(X)))
            return own.numpy(), (scale * left).numpy()

        return WeightSpace(
            features=features,
            posterior=RowPosterior((posterior.mean / T).numpy(), (posterior.root / T).numpy()),
            target=ClassTargets(mean.numpy(), variance.numpy()) if refined is None else refined.target,
            likelihood=fitted.likelihood,
            predictive=self._given.label.predictive,
            origin=self._origin(),
        )

    def has_weight_space(self, space: WeightSpace) -> bool:
        """Return whether the model has learnt nothing but rows since ``weight_space`` returned this."""
        return space.comes_from(self._origin())

    def merge(self: _Model, other: "GPClassifier") -> _Model:
        """Add all rows that ``other`` has learnt with the same hyperparameters, see ``blank_copy``."""
        check_is_fitted(self, "classes_")
        check_other_model(other, GPClassifier)
        own, theirs = self._sparse("merge"), other._sparse("merge")
        if not _same_features(own, theirs) or not self._scaling.equals(other._scaling):
            raise InvalidArgumentError(
                "Models to merge must have the same hyperparameters, inducing points and scaling. Fit one, and let "
                "others learn their rows with copies of it: fitted.blank_copy().partial_fit(X, y)."
            )
        self._check_mergeable(other)
        with unchanged_on_error(self):
            self._admit(other.classes_)
            own = self._sparse("merge")
            places = np.searchsorted(self.classes_, other.classes_)
            spread = [statistics.spread(places, len(self.classes_)) for statistics in theirs.statistics]
            self._model = own.with_statistics([a + b for a, b in zip(own.statistics, spread, strict=True)])
            if self._refined is not None:
                theirs_too = other._refined if np.array_equal(self.classes_, other.classes_) else None
                self._refined = None if theirs_too is None else self._refined.merged(theirs_too)
            self.n_rows_seen_ += other.n_rows_seen_
        return self

    def unlearn(self: _Model, X: ArrayInput, y: ArrayInput, sample_weight: ArrayInput | None = None) -> _Model:
        """Remove rows that were learnt before; hyperparameters do not change.

        Rows that were never learnt are refused, as far as the statistics show it.
        """
        check_is_fitted(self, "classes_")
        model = self._sparse("unlearn")
        if self._refined is not None and self._refined.sites.reference is None:
            raise InvalidArgumentError(
                "unlearn of a refined model needs a fit without more rows after it, as later rows have sites that "
                "cannot be made again. Fit again with refine=False: the matched model unlearns any row."
            )
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            index = self._index_of_learnt(y)
            weight = None if sample_weight is None else torch.from_numpy(sample_weight)
            rows, labels = torch.from_numpy(self._scaling(X)), torch.from_numpy(index)
            own = model.statistics_of(rows, labels, weight, len(self.classes_))
            self._model = model.with_statistics(
                [without_rows(all_rows, some) for all_rows, some in zip(model.statistics, own, strict=True)]
            )
            if self._refined is not None:
                self._refined = self._refined.without_rows(rows, labels, weight)
            self.n_rows_seen_ = max(0, self.n_rows_seen_ - len(X))
        return self

    def blank_copy(self: _Model) -> _Model:
        """Return a copy with the same hyperparameters, scaling and classes but no rows, to learn a shard with."""
        check_is_fitted(self, "classes_")
        model = self._sparse("blank_copy")
        twin = copy.copy(self)
        twin._model = SparseModel(model.features, len(self.classes_))
        twin._refined = None if self._refined is None else self._refined.blank()
        twin.n_rows_seen_ = 0
        return twin

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (safetensors and JSON), atomically. A sparse model holds no training rows."""
        write_model(path, type(self).__name__, _FORMAT, *self.packed())

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the contents of a model file, a dictionary for JSON and tensors; ``unpacked`` reads both."""
        check_is_fitted(self, "classes_")
        assert self._model is not None
        choice, model = pack_choice(self._choice), pack_model(self._model)
        refined = pack_refined_gp(self._refined, is_sparse=isinstance(self._model, SparseModel))
        config = {
            "params": _packed_params(self.get_params(deep=False)),
            "params_of_fit": _packed_params(self._params_of_fit),
            **self._header(),
            "n_rows_seen": self.n_rows_seen_,
            "objective_value": self.objective_value_,
            "search": [list(report) for report in self.search_],
            "objective": self.objective_,
            "scaling_is_clamped": self._scaling.is_clamped,
            "choice": choice.config,
            "model": model.config,
            "refined": refined.config,
        }
        scaling = {f"scaling.{name}": torch.from_numpy(getattr(self._scaling, name)) for name in ("knots", "values")}
        return config, choice.tensors | model.tensors | refined.tensors | scaling

    @classmethod
    def load(cls: type[_Model], path: str | os.PathLike[str], kernel: Kernel | None = None) -> _Model:
        """Return the model that ``save`` wrote. Any other file raises an error, and no file can run code.

        Parameters
        ----------
        path
            Path of the file.
        kernel
            Kernel object of the same form, if the saved model was given one; it takes the parameters of the file.
        """
        config, tensors = read_model(path, cls.__name__, _FORMAT)
        cls._check_kernel(config, kernel, path)
        with unpacking(path, cls.__name__):
            return cls.unpacked(config, tensors, kernel)

    @classmethod
    def unpacked(
        cls: type[_Model], config: dict[str, Any], tensors: dict[str, Tensor], kernel: Kernel | None = None
    ) -> _Model:
        """Return the model from what ``packed`` returned, with a kernel as for ``load``."""
        now, of_fit = (cls(**_unpacked_params(config[name], kernel)) for name in ("params", "params_of_fit"))
        now._restore(of_fit, config, tensors)
        return now

    @classmethod
    def _check_kernel(cls, config: dict[str, Any], kernel: Kernel | None, path: str | os.PathLike[str]) -> None:
        both = [config.get(name) for name in ("params", "params_of_fit")]
        has_custom = any(isinstance(params, dict) and params.get("kernel") == _CUSTOM for params in both)
        if has_custom and kernel is None:
            raise InvalidArgumentError(
                f"{path} holds a {cls.__name__} with a custom kernel, of which a file stores only the parameters; "
                "call load(path, kernel=...) with a kernel of the same form."
            )
        if kernel is not None and not has_custom:
            raise InvalidArgumentError(f"{path} holds a {cls.__name__} with a named kernel; load it without 'kernel'.")

    def _restore(self, of_fit: "GPClassifier", config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Restore what ``save`` wrote; ``of_fit`` has the parameters with which the model was fitted."""
        classes = self._restore_header(config)
        of_fit.n_features_in_ = self.n_features_in_
        of_fit._begin(self.n_features_in_)
        self._given, self._params_of_fit = of_fit._given, of_fit._params_of_fit
        self._model = self._prediction = self._refined = None
        self._admit(classes)
        self._scaling = unpack_scaling(config, tensors)
        choice = unpack_choice(config, tensors, len(classes))
        if choice is None:
            raise ValueError("it lacks the label parameters")
        self._choice = choice
        blank = make_kernel(of_fit.kernel, torch.ones(self.n_features_in_).double(), 1.0, owner=type(self).__name__)
        likelihood, _ = make_table(self._given.label, len(classes), self._choice)
        self._model = unpack_model(
            config,
            tensors,
            blank,
            n_classes=len(classes),
            n_latents=likelihood.n_latents,
            n_features=self.n_features_in_,
        )
        self._refined = unpack_refined_gp(
            config, tensors, self._model, self._given.label, choice, n_classes=len(classes)
        )
        self.n_rows_seen_ = whole(config["n_rows_seen"], "the number of rows")
        self.objective_value_ = float(config["objective_value"])
        self.search_ = [SearchReport(*report) for report in config["search"]]
        expect(len(self.search_) > 0, "there was a search")
        self.objective_ = str(Objective(config["objective"]))

    @property
    def n_iter_(self) -> int:
        check_is_fitted(self, "classes_")
        return max(report.n_iterations for report in self.search_)

    @property
    def method_(self) -> str:
        check_is_fitted(self, "classes_")
        return str(self._choice.method)

    @property
    def alpha_eps_(self) -> Any:
        check_is_fitted(self, "classes_")
        return plain(self._choice.alpha_eps)

    @property
    def temperature_(self) -> float:
        check_is_fitted(self, "classes_")
        return self._in_use().temperature

    @property
    def score_(self) -> float | None:
        check_is_fitted(self, "classes_")
        return self._in_use().score

    @property
    def refined_(self) -> bool:
        check_is_fitted(self, "classes_")
        return self._refined is not None

    @property
    def likelihood_(self) -> ClassLikelihood:
        check_is_fitted(self, "classes_")
        return self._current().likelihood

    @property
    def fitted_(self) -> FittedSparseGP:
        check_is_fitted(self, "classes_")
        model = self._model
        if not isinstance(model, SparseModel) or len(model.features) > 1:
            raise AttributeError(
                f"{type(self).__name__} has fitted_ and weight_space with inducing points and one kernel for all "
                "latents only. Fit it with n_inducing=... and shared_kernel=True."
            )
        likelihood, table = make_table(self._given.label, len(self.classes_), self._choice)
        return FittedSparseGP(
            model.features[0], self._scaling, model.statistics[0], likelihood, table, self._choice.temperature
        )

    @property
    def kernel_(self) -> Any:
        check_is_fitted(self, "classes_")
        assert self._model is not None
        return self._model.kernels[0] if len(self._model.kernels) == 1 else list(self._model.kernels)

    @property
    def inducing_points_(self) -> Any:
        check_is_fitted(self, "classes_")
        if not isinstance(self._model, SparseModel):
            raise AttributeError(
                f"{type(self).__name__} has inducing_points_ with inducing points only; give n_inducing, or fit again "
                "with all rows."
            )
        points = [features.points.numpy().copy() for features in self._model.features]
        return points[0] if len(points) == 1 else points

    def _begin(self, n_features: int) -> None:
        self._given, self._params_of_fit = checked_parameters(self), self.get_params(deep=False)
        self._model = self._prediction = self._refined = None
        self.n_rows_seen_ = 0

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        self._given.label.check_number_of_classes(len(classes), type(self).__name__)
        if self._model is None:
            return
        model = self._sparse("a new class")
        if len(model.kernels) > 1:
            raise InvalidArgumentError(
                f"{type(self).__name__} with shared_kernel=False has kernels for the classes of the first rows only; "
                f"got {len(classes) - len(places)} more. Declare them in the first call: partial_fit(classes=[...])."
            )
        n_known = self._choice.alpha_eps.numel() if self._choice.alpha_eps.ndim else len(classes)
        if n_known != len(classes):
            raise InvalidArgumentError(
                f"{type(self).__name__} has learnt an 'alpha_eps' for each of {n_known} classes; got {len(classes)}. "
                "Declare them in the first call, partial_fit(classes=[...]), or learn one number: alpha_eps='auto'."
            )
        self._model = model.with_statistics([own.spread(places, len(classes)) for own in model.statistics])
        self._refined = None  # sites say nothing about a class that was not known

    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        first = self._model is None
        if first:
            if self._given.n_inducing is None and len(X) > _MANY_ROWS:
                warnings.warn(
                    f"An exact {type(self).__name__} of {len(X)} rows needs {8e-9 * len(X) ** 2:.1f} GB for each of "
                    "several matrices, and its time grows with the cube of the rows; n_inducing=200 is a model of "
                    "fixed size.",
                    UserWarning,
                    stacklevel=3,  # of the caller of fit
                )
            self._learn_everything(X, labels, sample_weight)
        else:
            model = self._sparse("partial_fit").copy()
            weight = None if sample_weight is None else torch.from_numpy(sample_weight.copy())
            rows, own = torch.from_numpy(self._scaling(X)), torch.from_numpy(labels)
            refined = None if self._refined is None else self._refined.with_rows(rows, own, weight)
            model.learn(rows, own, weight)
            self._model, self._refined = model, refined
        self.n_rows_seen_ += len(X)
        if first:
            self._current()  # so that predictions do not change the attributes of the estimator

    @torch.inference_mode(False)  # whatever the caller does, gradients are needed here
    @torch.enable_grad()
    def _learn_everything(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        """Learn scaling, hyperparameters and label parameters from the first rows."""
        given, owner = self._given, type(self).__name__
        distinct = distinct_rows(X, labels, sample_weight, seed=given.seed)
        if len(np.unique(distinct.labels)) < 2:
            raise InvalidArgumentError(
                f"{owner} needs rows of at least two classes to learn hyperparameters from; got only the class "
                f"{self.classes_[distinct.labels[0]] if len(distinct.labels) else None!s}."
            )
        if given.n_inducing is None:
            self._check_memory(len(distinct.features))
        self._scaling = fit_scaling(distinct.features, distinct.weight, given.scaling)
        rows = SortedRows.of(
            torch.from_numpy(self._scaling(distinct.features)),
            torch.from_numpy(distinct.labels),
            torch.from_numpy(distinct.weight),
            n_classes=len(self.classes_),
        )
        if isinstance(given.inducing, Tensor):
            given = given._replace(inducing=torch.from_numpy(self._scaling(given.inducing.numpy())))
        self._model, self._choice, self.search_, objective = fit_model(given, rows, self.kernel, owner=owner)
        self.objective_ = str(objective)
        self.objective_value_ = sum(report.value for report in self.search_)
        self._refined = self._refinement_of(rows)

    def _check_memory(self, n_rows: int) -> None:
        """Refuse an exact model that would not fit in memory."""
        given, memory = self._given, installed_memory()
        limit = given.max_memory_gib
        if limit is None:
            limit = math.inf if memory is None else memory / 2**30
        is_per_class = given.label.alpha_per_class or (given.label.alpha_eps is not None and given.label.alpha_eps.ndim)
        n_latents = len(self.classes_) if given.shared_kernel else 1
        needed = exact_gibibytes(n_rows, n_latents, shared=not is_per_class)
        if needed > limit:
            has = "" if memory is None else f" This machine has {memory / 2**30:.1f} GiB."
            raise InvalidArgumentError(
                f"An exact {type(self).__name__} of {n_rows} distinct rows needs about {needed:.1f} GiB of memory, "
                f"more than the {limit:.1f} GiB that it may use.{has} Give n_inducing=200, a model of fixed size, or "
                "insist with max_memory_gib=float('inf')."
            )

    @torch.no_grad()
    def _refinement_of(self, rows: SortedRows) -> RefinedGP | None:
        """Return the refined model where it is asked for, or where it is allowed and better."""
        given = self._given
        is_asked = bool(given.refine)
        if not (is_asked or given.may_refine):
            return None
        assert self._model is not None
        passes = given.refine or AUTO_PASSES
        n_scored = min(given.sample_size, len(rows.labels))
        return refined_gp(self._model, rows, n_scored, self._choice, given.label, passes, must=is_asked)

    def _probs(self, X: Floats) -> Floats:
        mean, variance = self._latent(X)
        return self._current().likelihood.predict_proba(mean, variance, self._given.label.predictive).numpy()

    def _latent(self, X: Floats) -> Latents:
        mean, variance = self._current().posterior(torch.from_numpy(self._scaling(X)))
        temperature = self._in_use().temperature
        return mean / temperature, variance / temperature**2

    def _current(self) -> _Prediction:
        assert self._model is not None
        model, refined, now = self._model, self._refined, self._prediction
        if now is None or now.model is not model or now.refined is not refined:
            likelihood, table = make_table(self._given.label, len(self.classes_), self._choice)
            posterior = model.posterior(table) if refined is None else refined.posterior()
            self._prediction = now = _Prediction(model, refined, likelihood, posterior)
        return now

    def _in_use(self) -> Choice:
        """Return the choice of the model in use: refined or matched."""
        return self._choice if self._refined is None else self._refined.choice

    def _origin(self) -> tuple[object, ...]:
        """Return the objects that stay the same for as long as the model learns nothing but rows."""
        return self._in_use(), self.classes_, self._sparse("weight_space").features[0]

    def _sparse(self, what: str) -> SparseModel:
        if not isinstance(self._model, SparseModel):
            raise InvalidArgumentError(
                f"{type(self).__name__} has {what} with inducing points only, as an exact model is a function of all "
                "rows; give n_inducing, or fit again with all rows."
            )
        return self._model


def _packed_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters for JSON: without kernel objects, and without functions that are told about progress."""
    named = {name: _CUSTOM if isinstance(value, Kernel) else value for name, value in params.items()}
    return {name: False if callable(value) else plain(value) for name, value in named.items()}


def _unpacked_params(params: dict[str, Any], kernel: Kernel | None) -> dict[str, Any]:
    return params | {"kernel": kernel} if params["kernel"] == _CUSTOM else params


def _same_features(a: SparseModel, b: SparseModel) -> bool:
    return len(a.features) == len(b.features) and all(
        torch.equal(own.points, theirs.points) and _same_kernel(own.kernel, theirs.kernel)
        for own, theirs in zip(a.features, b.features, strict=True)
    )


def _same_kernel(a: Kernel, b: Kernel) -> bool:
    own, theirs = a.state_dict(), b.state_dict()
    return kernel_form(a) == kernel_form(b) and all(torch.equal(own[name], theirs[name]) for name in own)
