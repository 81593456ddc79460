"""Gaussian process classification by stochastic variational inference, as a reference."""

import warnings
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._calibration import (
    FIRST_ALPHA,
    Criterion,
    LabelParameters,
    LikelihoodKind,
    LikelihoodName,
    as_alpha,
    is_auto,
)
from gaussify._estimators import CheckedClassifier, Floats, Indices, distinct_rows
from gaussify._numerics import noting_jitter
from gaussify._typing import Matrix, no_type_check
from gaussify._validation import ArrayInput, as_concentration
from gaussify.exceptions import InvalidArgumentError, JitterWarning
from gaussify.gp._classifier import GPClassifier
from gaussify.gp._fitted import FittedSparseGP
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import KernelOption, first_scales, make_kernel
from gaussify.gp._models import Latents, SparsePosterior
from gaussify.gp._parameters import InducingName, ParameterReader, ScalingName
from gaussify.gp._rows import SortedRows
from gaussify.gp._scaling import Scaling, ScalingKind, fit_scaling
from gaussify.gp.learning._variational import (
    COLD_RATE,
    WARM_RATE,
    Checkpoint,
    Optimizer,
    OptimizerName,
    Start,
    TrainingSettings,
    VariationalTrainer,
    train,
)
from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod, PredictiveMethod, PredictiveName, PseudoTargets

_MATCHED = "matched"


class VariationalGPClassifier(CheckedClassifier):
    r"""Sparse Gaussian process classification by stochastic variational inference: the usual way, as a reference.

    :class:`~gaussify.GPClassifier` has the posterior in closed form. Here the weights of every latent have a free
    Gaussian, which maximises the bound on the evidence together with kernel and inducing points, one minibatch at a
    time. A step costs n m² for each class. Training can start from a matched model, with the same predictions. The gain
    in the bound then shows what a free posterior adds.

    This is a reference: it cannot be saved, merged or given more rows. Keep the matched model.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel, {"rbf", "matern12", "matern32", "matern52", "linear"} or None
        Covariance that all latents share, as for :class:`~gaussify.GPClassifier`.
    n_inducing : int
        Number of inducing points; all distinct rows if these are fewer.
    warm_start : None, "matched" or GPClassifier
        Start of the training: the prior (None or False); a matched model that is fitted first, to the same rows with
        the same parameters; or a matched model that is fitted already, to the same classes and columns. Kernel,
        inducing points, scaling, likelihood, temperature and posterior are taken from the matched model, which is not
        changed. (scikit-learn's ``clone`` empties a model that is given, so pipelines and searches need ``"matched"``.)
    optimizer : {"natural", "adam"}
        How the Gaussians of the weights are learnt: with natural gradients, or with Adam.
    likelihood : {"auto", "softmax", "logistic"}
        Softmax has one latent for each class; logistic has a single latent, for two classes. ``"auto"`` is softmax.
    scaling : {"standard", "quantile", None}
        Scaling of inputs, as for :class:`~gaussify.GPClassifier`.
    inducing : {"kmeans", "greedy"} or array-like of shape (n_inducing, n_features)
        First inducing points.
    learn_inducing : bool
        Whether inducing points move.
    batch_size : int
        Number of rows in a minibatch.
    max_iter : int
        Number of steps, each with one minibatch; 0 keeps a matched model as it is.
    learning_rate : float or "auto"
        First learning rate of Adam, which falls to a tenth. With natural gradients, 0 keeps kernel and inducing points.
        ``"auto"`` is 0.1, or 0.02 after a matched model, from which longer steps would first lead away.
    natural_rate : float
        First length of natural gradient steps, up to 1, which falls to a tenth.
    predictive : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
        Method that turns latents into probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
    verbose : bool
        Whether to print progress.
    random_state : int
        Seed of the first inducing points and of the minibatches.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    kernel_ : gpytorch.kernels.Kernel
        Kernel with the learnt parameters, for scaled inputs.
    inducing_points_ : ndarray of shape (m, n_features)
        Inducing points in scaled units.
    temperature_ : float
        Divisor of the latents: that of the matched model, or one.
    bound_ : float
        Bound on the evidence of all rows after training, without priors of the kernel.
    history_ : list of Checkpoint
        Step, seconds and mean bound of the minibatches since the last checkpoint, about fifty times.
    n_iter_ : int
        Number of steps.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = VariationalGPClassifier(n_inducing=20, max_iter=50).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    0.95

    The bound shows how much there is to gain beyond a matched model:

    >>> matched = GPClassifier(n_inducing=20).fit(X[::2], y[::2])
    >>> same = VariationalGPClassifier(warm_start=matched, max_iter=0).fit(X[::2], y[::2])
    >>> better = VariationalGPClassifier(warm_start=matched, max_iter=50).fit(X[::2], y[::2])
    >>> same.bound_ < better.bound_
    True
    """

    _one_class_remedy = "Hyperparameters cannot be learnt from one class."

    n_features_in_: int
    temperature_: float
    bound_: float
    history_: list[Checkpoint]
    n_iter_: int
    _given: "_Parameters"
    _scaling: Scaling
    _likelihood: ClassLikelihood
    _posterior: SparsePosterior

    @no_type_check
    def __init__(
        self,
        kernel: KernelOption = None,
        n_inducing: int = 100,
        *,
        warm_start: GPClassifier | Literal["matched", False] | None = None,
        optimizer: OptimizerName = "natural",
        likelihood: LikelihoodName = "auto",
        scaling: ScalingName | None = "standard",
        inducing: InducingName | Matrix = "kmeans",
        learn_inducing: bool = True,
        batch_size: int = 500,
        max_iter: int = 500,
        learning_rate: float | Literal["auto"] = "auto",
        natural_rate: float = 0.1,
        predictive: PredictiveName = "quadrature",
        verbose: bool = False,
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.warm_start = warm_start
        self.optimizer = optimizer
        self.likelihood = likelihood
        self.scaling = scaling
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.natural_rate = natural_rate
        self.predictive = predictive
        self.verbose = verbose
        self.random_state = random_state

    def predict_latent(self, X: ArrayInput) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_latents) each, divided by the temperature and its square."""
        mean, variance = self._latent(self._check_features(X))
        return mean.numpy(), variance.numpy()

    def _begin(self, n_features: int) -> None:
        self._given = _checked(self)

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        self._given.label.check_number_of_classes(len(classes), type(self).__name__)

    @torch.inference_mode(False)  # whatever the caller does, gradients are needed here
    @torch.enable_grad()
    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        given, owner = self._given, type(self).__name__
        distinct = distinct_rows(X, labels, sample_weight, seed=given.training.seed)
        if len(np.unique(distinct.labels)) < 2:
            raise InvalidArgumentError(
                f"{owner} needs rows of at least two classes that 'sample_weight' leaves any weight; got only the "
                f"class {self.classes_[distinct.labels[0]]!s}."
            )
        matched = given.warm_start
        if isinstance(matched, GPClassifier):
            self._check_matched(matched)
        elif matched is not None:
            matched = self._matched_classifier().fit(X, self.classes_[labels], sample_weight)
        if matched is None:
            self._scaling = fit_scaling(distinct.features, distinct.weight, given.scaling)
        else:
            self._scaling = matched.fitted_.scaling
        rows = SortedRows.of(
            torch.from_numpy(self._scaling(distinct.features)),
            torch.from_numpy(distinct.labels),
            torch.from_numpy(distinct.weight),
            n_classes=len(self.classes_),
        )
        self._likelihood, start = self._cold_start(rows) if matched is None else matched_start(matched.fitted_)
        trainer = VariationalTrainer(rows, self._likelihood.expected_log_prob, start, given.training)
        with noting_jitter() as jitters:
            self.history_ = train(trainer, given.max_iter, verbose=given.verbose)
            self.bound_ = trainer.bound()
        if jitters:
            warnings.warn(f"{len(jitters)} times in {given.max_iter} steps: {jitters[-1]}", JitterWarning, stacklevel=2)
        self.n_iter_, self.temperature_ = given.max_iter, trainer.temperature
        self._posterior = trainer.latent_posterior
        self.kernel_ = trainer.kernel
        self.kernel_.zero_grad()
        self.inducing_points_ = trainer.points.detach().numpy()

    def _cold_start(self, rows: SortedRows) -> tuple[ClassLikelihood, Start]:
        given = self._given
        likelihood = given.label.likelihood(rows.n_classes, LikelihoodMethod.VARIATIONAL, as_alpha(FIRST_ALPHA))
        points = given.inducing
        if isinstance(points, Tensor):
            points = torch.from_numpy(self._scaling(points.numpy()))
        return likelihood, cold_start(
            rows, likelihood, self.kernel, given.n_inducing, points, given.training.seed, owner=type(self).__name__
        )

    def _matched_classifier(self) -> GPClassifier:
        """Return a matched classifier with the same parameters."""
        same = ("likelihood", "scaling", "inducing", "learn_inducing", "predictive", "verbose", "random_state")
        return GPClassifier(self.kernel, self.n_inducing, **{name: getattr(self, name) for name in same})

    def _check_matched(self, matched: GPClassifier) -> None:
        """Refuse a matched model that is not sparse, or that has other classes or columns."""
        which = f"The 'warm_start' parameter of {type(self).__name__} must be a fitted GPClassifier"
        try:
            check_is_fitted(matched, "classes_")
        except NotFittedError:
            raise InvalidArgumentError(
                f"{which}; got one that is not fitted (scikit-learn's clone empties models). Fit it, or give "
                f"'{_MATCHED}'."
            ) from None
        if not hasattr(matched, "fitted_"):
            raise InvalidArgumentError(
                f"{which} with inducing points and one kernel for all latents; got n_inducing={matched.n_inducing}, "
                f"shared_kernel={matched.shared_kernel}."
            )
        if not np.array_equal(matched.classes_, self.classes_):
            raise InvalidArgumentError(
                f"{which} of the same classes as 'y', {self.classes_.tolist()}; got {matched.classes_.tolist()}."
            )
        names = [list(getattr(model, "feature_names_in_", [])) for model in (self, matched)]
        if matched.n_features_in_ != self.n_features_in_ or (all(names) and names[0] != names[1]):
            raise InvalidArgumentError(
                f"{which} of the same columns as 'X', {names[0] or self.n_features_in_}; got "
                f"{names[1] or matched.n_features_in_}."
            )

    def _probs(self, X: Floats) -> Floats:
        mean, variance = self._latent(X)
        return self._likelihood.predict_proba(mean, variance, self._given.label.predictive).numpy()

    def _latent(self, X: Floats) -> Latents:
        mean, variance = self._posterior(torch.from_numpy(self._scaling(X)))
        return mean / self.temperature_, variance / self.temperature_**2


@no_type_check
def cold_start(
    rows: SortedRows,
    likelihood: ClassLikelihood,
    kernel: KernelOption = None,
    n_inducing: int = 100,
    inducing: InducingInit | Float[Tensor, "m d"] = InducingInit.KMEANS,
    seed: int = 0,
    *,
    owner: str = "cold_start",
) -> Start:
    """Return the prior, with the first kernel and inducing points of :class:`~gaussify.GPClassifier`.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> rows = SortedRows.of(torch.eye(4).double(), torch.tensor([0, 0, 1, 1]), n_classes=2)
    >>> cold_start(rows, SoftmaxLikelihood(2), n_inducing=2).points.shape
    torch.Size([2, 4])
    """
    table = PseudoTargets(*(part.double() for part in likelihood.target_table()))
    own = make_kernel(kernel, *first_scales(rows, table), owner=owner)
    if isinstance(inducing, InducingInit):
        inducing = first_points(inducing, n_inducing, rows.features, rows.weight, own, seed)
    return Start.cold(own, inducing, table)


def matched_start(fitted: FittedSparseGP) -> tuple[ClassLikelihood, Start]:
    """Return the likelihood of a matched model, and its posterior as the start of the training.

    Examples
    --------
    >>> matched = GPClassifier(n_inducing=2, max_iter=0).fit([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> matched_start(matched.fitted_)[1].temperature == matched.temperature_
    True
    """
    return fitted.likelihood, Start.matched(fitted)


class _Parameters(NamedTuple):
    """The parameters, checked."""

    label: LabelParameters
    warm_start: GPClassifier | str | None
    n_inducing: int
    inducing: InducingInit | Float[Tensor, "m d"]
    scaling: ScalingKind | None
    max_iter: int
    training: TrainingSettings
    verbose: bool


def _checked(estimator: VariationalGPClassifier) -> _Parameters:
    """Return the parameters, or raise an error that names the wrong one."""
    owner, read = type(estimator).__name__, ParameterReader(estimator)

    def number(name: str, *, allow_zero: bool = False) -> float:
        return float(as_concentration(getattr(estimator, name), name=name, owner=owner, allow_zero=allow_zero))

    start = None if estimator.warm_start is False else estimator.warm_start
    if not (start is None or isinstance(start, GPClassifier) or (isinstance(start, str) and start == _MATCHED)):
        raise InvalidArgumentError(
            f"The 'warm_start' parameter of {owner} must be None, '{_MATCHED}' or a fitted GPClassifier; got {start!r}."
        )
    if is_auto(estimator.learning_rate):
        learning_rate = COLD_RATE if start is None else WARM_RATE
    else:
        learning_rate = number("learning_rate", allow_zero=True)
    optimizer = read.option("optimizer", Optimizer)
    if optimizer is Optimizer.ADAM and learning_rate == 0.0:
        raise InvalidArgumentError(
            f"The 'learning_rate' parameter of {owner} must be positive with optimizer='adam', which learns all by "
            "it; got 0. optimizer='natural' learns the Gaussians of the weights without it."
        )
    natural_rate = number("natural_rate")
    if natural_rate > 1.0:
        raise InvalidArgumentError(f"The 'natural_rate' parameter of {owner} must be at most 1; got {natural_rate:g}.")
    kind = read.option("likelihood", LikelihoodKind)
    return _Parameters(
        LabelParameters(
            method=LikelihoodMethod.VARIATIONAL,
            alpha_eps=as_alpha(FIRST_ALPHA),
            temperature=1.0,
            kind=LikelihoodKind.SOFTMAX if kind is LikelihoodKind.AUTO else kind,
            label_variance=1.0,
            criterion=Criterion.LEAVE_ONE_OUT,
            predictive=read.option("predictive", PredictiveMethod),
        ),
        start,
        read.count("n_inducing", 1),
        read.inducing(),
        read.scaling(),
        read.count("max_iter", 0),
        TrainingSettings(
            optimizer,
            read.count("batch_size", 1),
            learning_rate,
            natural_rate,
            read.truth("learn_inducing"),
            read.seed(),
        ),
        read.truth("verbose"),
    )
