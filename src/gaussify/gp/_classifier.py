"""Gaussian process classification as regression on matched targets."""

import copy
import os
import warnings
from typing import Any, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._estimators import (
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
from gaussify._persistence import read_model, write_model
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._choice import (
    LabelChoice,
    make_table,
)
from gaussify.gp._fitting import fit_model
from gaussify.gp._kernels import kernel_form, make_kernel
from gaussify.gp._model_file import pack_choice, pack_model, unpack_choice, unpack_model, unpack_scaling
from gaussify.gp._models import InducingFeatures, LatentModel, LatentPosterior, Latents, SparseModel
from gaussify.gp._objective import SortedRows
from gaussify.gp._parameters import Given, Objective, checked_parameters
from gaussify.gp._scaling import Scaling, fit_scaling
from gaussify.gp._search import SearchReport
from gaussify.likelihoods import ClassLikelihood
from gaussify.posterior import RowPosterior, without_rows

_FORMAT = 1
_MANY_ROWS = 5000  # whose exact model takes minutes and gigabytes
_CUSTOM = "custom"  # stands for a kernel object in files
_Model = TypeVar("_Model", bound="GPClassifier")


def _is_sparse(estimator: Any) -> bool:
    if estimator.n_inducing is None:
        raise AttributeError(
            "GPClassifier has partial_fit with inducing points only, as an exact model is a function of all rows; give "
            "n_inducing, or fit again with all rows."
        )
    return True


class GPClassifier(StreamingClassifier):
    r"""Gaussian process classification, at the cost of one regression whatever the number of classes.

    Each label is a Gaussian observation of the latents (:class:`~gaussify.SoftmaxLikelihood`), so hyperparameters
    maximise the evidence of a regression with two variances, and predictions are in closed form. Exact models share one
    factorisation between all classes. Sparse models (``n_inducing``) maximise Titsias' collapsed bound, a function of
    class statistics: objective and gradient cost n m² whatever the number of classes, in bounded memory; rows can be
    added, merged and unlearnt once hyperparameters are fixed.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel, {"rbf", "matern12", "matern32", "matern52", "linear"} or None
        Covariance of the latents. By default, and by name, one lengthscale for each feature, with a broad prior, and a
        variance. A kernel object is copied and begins with the parameters it has; its priors count.
    n_inducing : int or None
        Number of inducing points, or of distinct rows if these are fewer; None is the exact model, for up to a few
        thousand rows.
    objective : {"matched", "elbo", "leave-one-out"}
        What hyperparameters maximise: ``"matched"`` the evidence of the Gaussian model, or Titsias' bound on it. From
        there on, with the exact likelihood and ``alpha_eps`` learnt along (unless it is given): ``"elbo"`` the bound on
        the evidence of the exact model that the posterior of the Gaussian model gives, ``"leave-one-out"`` the
        log-likelihood of each row given all others (of equal rows, which count as one of their weight, one is left
        out). With inducing points and at least four times ``sample_size`` rows, some rows have no say in such a search,
        which ends before they are predicted worse; as that happens while the bound still rises, ``"elbo"`` then goes on
        by leaving rows out, and keeps the best that it came by.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss", "auto"}
        How labels become Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"auto"`` takes the best by
        ``criterion``. With other objectives than ``"matched"`` hyperparameters are learnt with each, and compared by
        rows that no search has seen, or where rows are few by the objective.
    alpha_eps : float, one per class, "auto" or "per-class"
        Concentration of the prior behind a label. With ``"auto"`` hyperparameters are learnt with 0.1 (from many rows
        with 0.02 for ``"variational"`` and 0.001 for ``"moment-ori"``), and predictions go from 0.1 along a grid from
        0.001 to 1 for as long as ``criterion`` improves, and with few rows a broad prior. With many rows,
        hyperparameters are then learnt on with the method and number that were chosen, and kept if ``criterion``
        improves, by rows that no search has seen. With other objectives than ``"matched"`` it is learnt along, one
        number or (``"per-class"``) one for each class.
    temperature : float or "auto"
        Latents are divided by it. ``"auto"`` takes the best by ``criterion``; 1 is the paper's model.
    scaling : {"standard", "quantile", None}
        Of inputs: to mean zero and variance one; by rank to normal quantiles, for heavy tails and outliers; or none. It
        is learnt by ``fit`` and stays.
    likelihood : {"auto", "softmax", "logistic"}
        One latent a class, or for two classes a single one; ``"auto"`` is softmax, the better on most data.
    inducing : {"kmeans", "greedy"} or array-like of shape (n_inducing, n_features)
        Where inducing points begin: at centres of clusters, at rows of largest conditional variance, or as given.
    learn_inducing : bool
        Whether they move with the hyperparameters.
    shared_kernel : bool
        Whether all latents share kernel and inducing points; if not, the cost is that of one model for each class.
    n_inducing_predict : int or None
        Inducing points for predictions, more than the kernel is learnt with: they cost one pass, and no search.
    max_iter : int
        Iterations of each search at most; 0 leaves kernel and inducing points where they begin.
    tol : float
        The search ends when ten iterations together improve the objective by less than this for each row; with steps
        of which each has other rows, when a quarter of ``max_iter`` does. Where rows held out may end it, iterations
        are counted anew with each quarter.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    criterion : {"leave-one-out", "training"}
        What ``method``, ``alpha_eps`` and ``temperature`` are chosen by: the predictive log-likelihood of rows, each
        from all others, in closed form, or the paper's log-likelihood of the training rows.
    sample_size : int
        How many rows that is computed on, at most.
    batch_size : int or None
        For other objectives than ``"matched"``, over how many rows expectations are taken: if not over all, each step
        of the search is with others. By default, so many that the time does not grow with the number of classes: all
        for two classes, 2/n_classes of them for more, and at least 1000. Exact models take all.
    expectation : "quadrature" or int
        For other objectives than ``"matched"``, how expectations under latents are computed: to full precision, or
        with so many samples of the latents, always the same.
    predictive : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
        How latents become probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
    verbose : bool or callable
        Whether to print the progress of the search; or what to call after each iteration instead, with the title of the
        search, the number of the iteration and the objective.
    random_state : int
        Seed of the first inducing points, and of the rows and samples of ``batch_size`` and ``expectation``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    kernel_ : gpytorch.kernels.Kernel, or list of them
        With the hyperparameters that were learnt, for scaled inputs; one for each latent unless they share it.
    inducing_points_ : ndarray of shape (m, n_features), or list of them
        In scaled units.
    method_, alpha_eps_, temperature_ : str, float or list of float, float
        The numbers in use.
    score_ : float
        Mean log-likelihood of a row by ``criterion``, with these numbers.
    objective_value_ : float
        Value of ``objective`` at the hyperparameters that were learnt, of the rows that they were learnt from, and the
        log-density of their priors. All are at temperature one, but for rows left out with a ``temperature`` given.
    objective_ : {"matched", "elbo", "leave-one-out"}
        By which the hyperparameters that were kept were learnt: what ``objective`` says, or with many rows what led to
        better predictions.
    search_ : list of SearchReport
        How the search that was kept went, for each kernel.
    n_iter_ : int
        Iterations of the longest search.
    likelihood_ : ClassLikelihood
        In use: from latents to probabilities and how sure these are.
    n_rows_seen_ : int
        How many rows were learnt.

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

    _one_class_remedy = "Hyperparameters are learnt from the first rows, and one class tells nothing about them."

    # What was learnt
    n_features_in_: int
    n_rows_seen_: int
    objective_value_: float
    objective_: str
    search_: list[SearchReport]
    _given: Given
    _params_of_fit: dict[str, Any]
    _scaling: Scaling
    _model: LatentModel | None
    _choice: LabelChoice
    # What follows from it
    _predict: tuple[ClassLikelihood, LatentPosterior] | None

    def __init__(
        self,
        kernel: Any = None,  # checked when they are used, as scikit-learn wants it
        n_inducing: Any = None,
        objective: Any = "matched",
        method: Any = "variational",
        alpha_eps: Any = "auto",
        temperature: Any = "auto",
        *,
        scaling: Any = "standard",
        likelihood: Any = "auto",
        inducing: Any = "kmeans",
        learn_inducing: Any = True,
        shared_kernel: Any = True,
        n_inducing_predict: Any = None,
        max_iter: Any = 200,
        tol: Any = 1e-4,
        label_variance: Any = 0.1,
        criterion: Any = "leave-one-out",
        sample_size: Any = 2000,
        batch_size: Any = None,
        expectation: Any = "quadrature",
        predictive: Any = "quadrature",
        verbose: Any = False,
        random_state: Any = 0,
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
        self.predictive = predictive
        self.verbose = verbose
        self.random_state = random_state

    @available_if(_is_sparse)
    def partial_fit(self: _Model, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> _Model:
        """Learn from more rows, hyperparameters and scaling fixed; the first rows are fitted.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``. The first rows must be of at least two classes.
        classes : array-like, optional
            Labels that there are or will be; others may turn up later where latents share a kernel.
        """
        return super().partial_fit(X, y, classes, sample_weight)

    def predict_latent(self, X: Any) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_latents) each, divided by the temperature and its square."""
        mean, variance = self._latent(self._check_features(X))
        return mean.numpy(), variance.numpy()

    @available_if(_is_sparse)
    def weight_space(self) -> WeightSpace:
        """Return the weights' posterior and what labels observe, for whoever follows the model row by row."""
        check_is_fitted(self, "classes_")
        self._shared_features()
        likelihood, table = make_table(self._given.label, len(self.classes_), self._choice)
        (posterior,), T = self._sparse("weight_space").posteriors(table), self._choice.temperature
        return WeightSpace(
            features=self._weight_features,
            posterior=RowPosterior((posterior.mean / T).numpy(), (posterior.root / T).numpy()),
            targets=list(zip((table.mean / T).numpy(), (table.variance / T**2).numpy(), strict=True)),
            likelihood=likelihood,
            predictive=self._given.label.predictive,
            origin=self._origin(),
        )

    def has_weight_space(self, space: WeightSpace) -> bool:
        """Return whether, since it was given away, nothing but rows has been learnt."""
        return space.comes_from(self._origin())

    def merge(self: _Model, other: "GPClassifier") -> _Model:
        """Learn all that ``other`` has learnt from other rows with the same hyperparameters, see ``blank_copy``."""
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
            self.n_rows_seen_ += other.n_rows_seen_
            self._predict = None
        return self

    def unlearn(self: _Model, X: Any, y: Any, sample_weight: Any = None) -> _Model:
        """Take out rows that were learnt before; hyperparameters stay. Rows not learnt are refused where it shows."""
        check_is_fitted(self, "classes_")
        model = self._sparse("unlearn")
        with unchanged_on_error(self):
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            index = self._index_of_learnt(y)
            weight = None if sample_weight is None else torch.from_numpy(sample_weight)
            own = model.statistics_of(self._scaled(X), torch.from_numpy(index), weight, len(self.classes_))
            self._model = model.with_statistics(
                [without_rows(all_rows, some) for all_rows, some in zip(model.statistics, own, strict=True)]
            )
            self.n_rows_seen_ = max(0, self.n_rows_seen_ - len(X))
            self._predict = None
        return self

    def blank_copy(self: _Model) -> _Model:
        """Return a copy with the same hyperparameters, scaling and classes, and no rows: to learn a shard with."""
        check_is_fitted(self, "classes_")
        model = self._sparse("blank_copy")
        twin = copy.copy(self)
        twin._model = SparseModel(model.features, len(self.classes_))
        twin.n_rows_seen_, twin._predict = 0, None
        return twin

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (safetensors and JSON), atomically; a sparse one without any training row."""
        write_model(path, type(self).__name__, _FORMAT, *self.packed())

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what a file holds of the model: what JSON can hold, and tensors; ``unpacked`` takes both."""
        check_is_fitted(self, "classes_")
        assert self._model is not None
        choice, model = pack_choice(self._choice), pack_model(self._model)
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
        }
        scaling = {name: torch.from_numpy(getattr(self._scaling, name)) for name in ("knots", "values")}
        return config, choice.tensors | model.tensors | {f"scaling.{name}": part for name, part in scaling.items()}

    @classmethod
    def load(cls: type[_Model], path: str | os.PathLike[str], kernel: Kernel | None = None) -> _Model:
        """Return the model that ``save`` wrote; a file that is not one gets an error, and never runs anything.

        Parameters
        ----------
        path
            Of the file.
        kernel
            If the model was given a kernel object: one of the same form, whose parameters are then those of the file.
        """
        config, tensors = read_model(path, cls.__name__, _FORMAT)
        cls._check_kernel(config, kernel, path)
        with unpacking(path, cls.__name__):
            return cls.unpacked(config, tensors, kernel)

    @classmethod
    def unpacked(
        cls: type[_Model], config: dict[str, Any], tensors: dict[str, Tensor], kernel: Kernel | None = None
    ) -> _Model:
        """Return the model of what ``packed`` gave, with a kernel as for ``load``."""
        now, of_fit = (cls(**_unpacked_params(config[name], kernel)) for name in ("params", "params_of_fit"))
        now._restore(of_fit, config, tensors)
        return now

    @classmethod
    def _check_kernel(cls, config: dict[str, Any], kernel: Kernel | None, path: str | os.PathLike[str]) -> None:
        both = [config.get(name) for name in ("params", "params_of_fit")]
        has_custom = any(isinstance(params, dict) and params.get("kernel") == _CUSTOM for params in both)
        if has_custom and kernel is None:
            raise InvalidArgumentError(
                f"{path} holds a {cls.__name__} with a kernel of your own, of which files hold the parameters alone; "
                "give load(path, kernel=...) one of the same form."
            )
        if kernel is not None and not has_custom:
            raise InvalidArgumentError(f"{path} holds a {cls.__name__} with a named kernel; load it without 'kernel'.")

    def _restore(self, of_fit: "GPClassifier", config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take over what ``save`` wrote; ``of_fit`` has the parameters that the model was fitted with."""
        classes = self._restore_header(config)
        of_fit.n_features_in_ = self.n_features_in_
        of_fit._begin(self.n_features_in_)
        self._given, self._params_of_fit = of_fit._given, of_fit._params_of_fit
        self._model = self._predict = None
        self._admit(classes)
        self._scaling = unpack_scaling(config, tensors)
        self._choice = unpack_choice(config, tensors, len(classes))
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
        return self._choice.temperature

    @property
    def score_(self) -> float | None:
        check_is_fitted(self, "classes_")
        return self._choice.score

    @property
    def likelihood_(self) -> ClassLikelihood:
        check_is_fitted(self, "classes_")
        return self._current()[0]

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
        self._model = self._predict = None
        self.n_rows_seen_ = 0

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        self._given.label.check_number_of_classes(len(classes), type(self).__name__)
        self._predict = None
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
            model.learn(self._scaled(X), torch.from_numpy(labels), weight)
            self._model = model
        self._predict = None
        self.n_rows_seen_ += len(X)
        if first:
            self._current()  # predictions do not change the model

    @torch.inference_mode(False)  # whatever the caller does, gradients are needed here
    @torch.enable_grad()
    def _learn_everything(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        """Learn scaling, hyperparameters and label parameters."""
        given, owner = self._given, type(self).__name__
        distinct = distinct_rows(X, labels, sample_weight, seed=given.seed)
        if len(np.unique(distinct.labels)) < 2:
            raise InvalidArgumentError(
                f"{owner} needs rows of at least two classes to learn hyperparameters from; got only the class "
                f"{self.classes_[distinct.labels[0]] if len(distinct.labels) else None!s}."
            )
        self._scaling = fit_scaling(distinct.features, distinct.weight, given.scaling)
        rows = SortedRows.of(
            self._scaled(distinct.features),
            torch.from_numpy(distinct.labels),
            torch.from_numpy(distinct.weight),
            n_classes=len(self.classes_),
        )
        if isinstance(given.inducing, Tensor):
            given = given._replace(inducing=self._scaled(given.inducing.numpy()))
        self._model, self._choice, self.search_, objective = fit_model(given, rows, self.kernel, owner=owner)
        self.objective_ = str(objective)
        self.objective_value_ = sum(report.value for report in self.search_)

    def _probs(self, X: Floats) -> Floats:
        mean, variance = self._latent(X)
        likelihood, _ = self._current()
        return likelihood.predict_proba(mean, variance, self._given.label.predictive).numpy()

    def _latent(self, X: Floats) -> Latents:
        mean, variance = self._current()[1](self._scaled(X))
        return mean / self._choice.temperature, variance / self._choice.temperature**2

    def _current(self) -> tuple[ClassLikelihood, LatentPosterior]:
        if self._predict is None:
            assert self._model is not None
            likelihood, table = make_table(self._given.label, len(self.classes_), self._choice)
            self._predict = likelihood, self._model.posterior(table)
        return self._predict

    def _shared_features(self) -> InducingFeatures:
        features = self._sparse("weight_space").features
        if len(features) > 1:
            raise InvalidArgumentError("weight_space needs one kernel for all latents: shared_kernel=True.")
        return features[0]

    def _weight_features(self, X: Floats) -> WeightFeatures:
        features, left = self._shared_features()(self._scaled(X))
        return features.numpy(), (left / self._choice.temperature**2).numpy()

    def _origin(self) -> tuple[object, ...]:
        return self._choice, self.classes_, self._shared_features()

    def _scaled(self, X: Floats) -> Float[Tensor, "n d"]:
        return torch.from_numpy(self._scaling(X))

    def _sparse(self, what: str) -> SparseModel:
        if not isinstance(self._model, SparseModel):
            raise InvalidArgumentError(
                f"{type(self).__name__} has {what} with inducing points only, as an exact model is a function of all "
                "rows; give n_inducing, or fit again with all rows."
            )
        return self._model


def _packed_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters for JSON, without the kernel where that is an object, and without what hears of the progress."""
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
