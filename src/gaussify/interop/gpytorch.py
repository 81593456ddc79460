"""Matched labels and matched posteriors for GPyTorch.

:class:`MatchedClassificationLikelihood` replaces GPyTorch's Dirichlet likelihood in its exact models.
:func:`initialize_from_matched` starts its variational models at a matched posterior.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.priors import Prior
from gpytorch.utils.memoize import clear_cache_hook
from gpytorch.variational import (
    BatchDecoupledVariationalStrategy,
    IndependentMultitaskVariationalStrategy,
    MeanFieldVariationalDistribution,
    NNVariationalStrategy,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)
from jaxtyping import Float
from linear_operator.operators import CholLinearOperator, TriangularLinearOperator  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gaussify._numerics import stable_cholesky
from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput, as_concentration, as_floats, check_count, check_same_rows
from gaussify.exceptions import GaussifyError, InvalidArgumentError
from gaussify.gp import GPClassifier
from gaussify.gp.objectives._passes import factorise
from gaussify.likelihoods import (
    LikelihoodMethod,
    LikelihoodMethodName,
    PredictiveMethod,
    PredictiveName,
    PseudoTargets,
    SoftmaxLikelihood,
)
from gaussify.posterior import ClassStatistics, natural_parameters

__all__ = ["MatchedClassificationLikelihood", "initialize_from_matched", "scaled_inputs"]

_Model = TypeVar("_Model", bound=ApproximateGP)
_SCALES = {ScaleKernel: "raw_outputscale", LinearKernel: "raw_variance"}  # factor of the whole kernel
_SAME = {torch.float64: 1e-6, torch.float32: 1e-3}  # largest relative difference of equal kernel matrices


class MatchedClassificationLikelihood(FixedNoiseGaussianLikelihood):
    r"""GPyTorch likelihood for classes: labels are Gaussian observations of one latent process per class.

    It is used like ``gpytorch.likelihoods.DirichletClassificationLikelihood``, whose observations are those of
    ``method="moment-ori"``. Row i observes the latent of class k as

    .. math:: \tilde y_{ki} = f_k(x_i) + \varepsilon_{ki}, \qquad \varepsilon_{ki} \sim \mathcal{N}(0, v_{ki} + s_k),

    with :math:`\tilde y_{ki}` and :math:`v_{ki}` from :class:`~gaussify.SoftmaxLikelihood` and an optional learnt
    variance :math:`s_k`. New labels are encoded with the same number of classes and the same ``alpha_eps`` as the first
    ones.

    Parameters
    ----------
    targets : array-like
        Class indices of shape (n,), or counts of shape (n, n_classes), as in ``SoftmaxLikelihood.encode``.
    n_classes : int
        Number of classes, at least 2. Some classes may have no rows.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        Method that turns labels into Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`.
    alpha_eps : float or sequence of float
        Small count that every class has before a label is seen, one number or one per class. It is not learnt, even if
        it is a tensor that requires a gradient.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    learn_additional_noise : bool
        Whether to learn :math:`s_k`.
    batch_shape : torch.Size, optional
        Batch shape of :math:`s_k`. By default each class has its own; with ``torch.Size()`` all classes share one.
    noise_prior, noise_constraint : optional
        Prior and constraint of :math:`s_k`, as in GPyTorch.
    dtype : torch.dtype, optional
        Type of targets and noise; torch's default if not given.

    Examples
    --------
    The model is the one for GPyTorch's likelihood, a batch of independent processes:

    >>> import gpytorch, torch
    >>> class Model(gpytorch.models.ExactGP):
    ...     def __init__(self, x, y, likelihood, num_classes):
    ...         super().__init__(x, y, likelihood)
    ...         shape = torch.Size((num_classes,))
    ...         self.mean = gpytorch.means.ConstantMean(batch_shape=shape)
    ...         kernel = gpytorch.kernels.RBFKernel(batch_shape=shape)
    ...         self.kernel = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
    >>> x = torch.linspace(-2.0, 2.0, 40)
    >>> likelihood = MatchedClassificationLikelihood((x > 0).long(), n_classes=3, alpha_eps=0.1)
    >>> likelihood.transformed_targets[:, [0, -1]]  # of a row of class 0 and one of class 1
    tensor([[-0.3592, -7.3026],
            [-7.3026, -0.3592],
            [-7.3026, -7.3026]])
    >>> model = Model(x, likelihood.transformed_targets, likelihood, likelihood.num_classes)
    >>> objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     loss = -objective(model(x), likelihood.transformed_targets).sum()
    ...     loss.backward()
    ...     optimizer.step()
    >>> loss
    tensor(5.98, grad_fn=...)

    Probabilities are computed by quadrature, not by sampling:

    >>> model, likelihood = model.eval(), likelihood.eval()
    >>> with torch.no_grad():
    ...     likelihood.predict_proba(model(torch.tensor([-1.8, 4.0])))
    tensor([[0.99, 0.01, 0.00],
            [0.44, 0.46, 0.10]])

    New rows are added without fitting again, here rows of the class that was missing:

    >>> wider = likelihood.get_fantasy_model(model, torch.tensor([4.0, 4.5]), [2, 2])
    >>> with torch.no_grad():
    ...     wider.likelihood.predict_proba(wider(torch.tensor([4.0])))
    tensor([[0.09, 0.09, 0.82]])

    GPyTorch's own method does the same; its inputs need the batch of classes, (n_classes, m, d):

    >>> mean, noise = likelihood.encode([2, 2])
    >>> same = model.get_fantasy_model(torch.tensor([[4.0], [4.5]]).expand(3, 2, 1), mean, noise=noise)
    >>> torch.equal(same.train_targets, wider.train_targets)
    True
    """

    @no_type_check
    def __init__(
        self,
        targets: ArrayInput,
        *,
        n_classes: int,
        method: LikelihoodMethodName | LikelihoodMethod = "variational",
        alpha_eps: ArrayInput = 0.1,
        label_variance: float = 1.0,
        learn_additional_noise: bool = False,
        batch_shape: torch.Size | None = None,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        owner = type(self).__name__
        n_classes = check_count(n_classes, name="n_classes", owner=owner, minimum=2)
        # float64, so that targets are not rounded to torch's default before they get their dtype; a copy, so that
        # a later change of the caller's tensor does not change how new labels are encoded
        alpha = as_concentration(alpha_eps, name="alpha_eps", owner=owner, sizes=(n_classes,))
        alpha = alpha.detach().to("cpu", torch.float64, copy=True)
        softmax = SoftmaxLikelihood(n_classes, alpha, method, label_variance=label_variance)
        device = targets.device if isinstance(targets, Tensor) else torch.device("cpu")
        mean, noise = _observations(softmax, targets, device, dtype or torch.get_default_dtype())
        super().__init__(
            noise=noise,
            learn_additional_noise=learn_additional_noise,
            batch_shape=torch.Size((n_classes,)) if batch_shape is None else batch_shape,
            noise_prior=noise_prior,
            noise_constraint=noise_constraint,
        )
        self._softmax = softmax
        # a buffer moves with the module; not persistent, so that a state dict can be loaded for other data
        self._transformed_targets: Tensor | None
        self.register_buffer("_transformed_targets", mean, persistent=False)
        self.to(mean)  # the additional noise too

    @property
    def n_classes(self) -> int:
        """Number of classes, which is also the number of latents."""
        return self._softmax.n_classes

    @property
    def num_classes(self) -> int:
        """Number of classes, under GPyTorch's name."""
        return self._softmax.n_classes

    @property
    def method(self) -> LikelihoodMethod:
        """Method that turns labels into Gaussians."""
        return self._softmax.method

    @property
    def alpha_eps(self) -> Tensor:
        """Concentration of the prior in float64, one number or one per class."""
        return torch.as_tensor(self._softmax.alpha_eps)

    @property
    def transformed_targets(self) -> Float[Tensor, "c n"]:
        """Observed values of the latents, one row per class: the ``y`` of the model and its objective."""
        if self._transformed_targets is None:
            raise GaussifyError(
                f"{type(self).__name__} was given noise without targets, so it does not know the targets. Use "
                "model.train_targets, or add rows with likelihood.get_fantasy_model(model, inputs, labels)."
            )
        return self._transformed_targets

    def encode(self, targets: ArrayInput) -> tuple[Float[Tensor, "c m"], Float[Tensor, "c m"]]:
        """Return the values and noise variances, (n_classes, m) each, of new labels or counts.

        The variances are without :math:`s_k`, which is added wherever ``noise`` is passed.
        """
        noise = self.noise_covar.noise
        return _observations(self._softmax, targets, noise.device, noise.dtype)

    @no_type_check
    def predict_proba(
        self, distribution: MultivariateNormal, method: PredictiveName | PredictiveMethod = "quadrature"
    ) -> Float[Tensor, "*batch m c"]:
        """Return the probability of each class, (m, n_classes), given the latents at m rows.

        Parameters
        ----------
        distribution : gpytorch.distributions.MultivariateNormal
            Output of the model, a batch of n_classes over m rows: the latents without noise.
        method : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
            Method that turns latents into probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
        """
        if not isinstance(distribution, MultivariateNormal) or distribution.batch_shape[-1:] != (self.n_classes,):
            shape = getattr(distribution, "batch_shape", None)
            came = type(distribution).__name__ + ("" if shape is None else f" of batch shape {tuple(shape)}")
            raise InvalidArgumentError(
                f"'distribution' of {type(self).__name__}.predict_proba must be a MultivariateNormal whose batch shape "
                f"ends in {self.n_classes}, one for each class; got {came}."
            )
        mean, variance = distribution.mean.mT, distribution.variance.mT  # (..., m, c)
        probs = self._softmax.predict_proba(mean.flatten(0, -2), variance.flatten(0, -2), method)
        return probs.unflatten(0, mean.shape[:-1])

    def get_fantasy_model(self, model: ExactGP, inputs: Tensor, targets: ArrayInput) -> ExactGP:
        """Return a copy of ``model``, which has this likelihood, with more rows and the same hyperparameters.

        Predictions equal those of a model with all rows from the start. With more than 800 rows, GPyTorch solves
        iteratively and less precisely; ``gpytorch.settings.max_cholesky_size`` sets that limit.

        Parameters
        ----------
        model : gpytorch.models.ExactGP
            A model that has made a prediction; GPyTorch extends the cache of that prediction.
        inputs : Tensor of shape (m, d), (m,) or (n_classes, m, d)
            New rows.
        targets : array-like
            Their labels, or counts.
        """
        mean, noise = self.encode(targets)
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        check_same_rows(f"{type(self).__name__}.get_fantasy_model", inputs=inputs.movedim(-2, 0), targets=mean.mT)
        # GPyTorch reads the batch shape off the inputs; if only the targets have one, it confuses classes and rows
        inputs = inputs.expand(self.n_classes, *inputs.shape[-2:])
        fantasy = model.get_fantasy_model(inputs, mean, noise=noise)
        fantasy.likelihood._transformed_targets = fantasy.train_targets
        return fantasy

    def get_fantasy_likelihood(
        self, *, targets: ArrayInput | None = None, noise: Float[Tensor, "*batch c m"] | None = None
    ) -> "MatchedClassificationLikelihood":
        """Return this likelihood with more rows, given as labels or counts or as noise variances from ``encode``."""
        owner = f"{type(self).__name__}.get_fantasy_likelihood"
        if (targets is None) == (noise is None):
            raise InvalidArgumentError(
                f"{owner} needs either 'targets' or 'noise', not both. For model.get_fantasy_model, compute targets, "
                "noise = likelihood.encode(labels), and pass these."
            )
        mean = None
        if targets is not None:
            mean, noise = self.encode(targets)
        noise = as_floats(noise, name="noise", owner=owner, min_ndim=2, minimum=0.0)
        if noise.shape[-2] != self.n_classes:
            raise InvalidArgumentError(
                f"'noise' of {owner} must have shape (..., {self.n_classes}, m), as encode returns it; got shape "
                f"{tuple(noise.shape)}."
            )
        fantasy = super().get_fantasy_likelihood(noise=noise)
        old = self._transformed_targets
        fantasy._transformed_targets = None if old is None or mean is None else torch.cat([old, mean], -1)
        return fantasy

    def __call__(
        self, input: Tensor | MultivariateNormal, *args: Any, targets: ArrayInput | None = None, **kwargs: Any
    ) -> Any:
        """Return the latents with noise added.

        The noise is that of the labels or counts ``targets``, if given; else ``noise``, as ``encode`` returns it; else
        that of the rows the likelihood was made with.
        """
        if targets is None:
            return super().__call__(input, *args, **kwargs)
        return super().__call__(input, *args, noise=self.encode(targets)[1], **kwargs)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, noise: Tensor | None = None, **kwargs: Any
    ) -> Any:
        if noise is None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        # GPyTorch would use this noise a second time in place of the additional noise
        return self.noise_covar(shape=base_shape, noise=noise + self.second_noise)


def _observations(
    softmax: SoftmaxLikelihood, targets: ArrayInput, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, "c n"], Float[Tensor, "c n"]]:
    """Return values and variances, one row per class, as a batch in GPyTorch."""
    mean, variance = (x.mT.to(device, dtype).contiguous() for x in softmax.encode(targets))
    return mean, variance


def initialize_from_matched(model: _Model, classifier: GPClassifier) -> _Model:
    r"""Set a variational model to the posterior, kernel and inducing points of a fitted sparse classifier; return it.

    Variational training then starts at the matched posterior instead of the prior. The model must be trained on
    :func:`scaled_inputs`. The function sets

    - the inducing points Z,
    - the hyperparameters of ``model.covar_module``. It must have the form of ``classifier.kernel_``; constraints may
      differ, and with a batch shape every class gets the same values. Latents are divided by the temperature T, so the
      scale of the kernel is divided by T²,
    - the constants :math:`c_l` of ``model.mean_module``, if it is a ``ConstantMean``: one for each latent, or their
      average if the latents share one,
    - the variational distribution. With the model's whitened features :math:`\phi_i = L^{-1}k(Z, x_i)`, where
      :math:`LL^\top` is its kernel matrix with its jitter, and matched targets y with variances v, it is

      .. math:: q(w_l) = \mathcal{N}(B_l^{-1}b_l,\; B_l^{-1}), \qquad B_l = I + \sum_i\frac{\phi_i\phi_i^\top}{v_{il}},
          \qquad b_l = \sum_i\frac{y_{il} - c_l}{v_{il}}\phi_i,

      for :math:`w_l` if the strategy is whitened, else for the values :math:`c_l + Lw_l` at Z.

    This is the matched posterior under the model's own prior and jitter; it needs the classifier's statistics and no
    rows. If the model has no constants to set, the shift that all classes share is removed from the targets, for a
    softmax does not depend on it. A mean that is not constant is interpolated from its values at Z. A mean-field
    distribution gets the variances :math:`1/[B_l]_{jj}`, which minimise its divergence from the posterior.

    Parameters
    ----------
    model : gpytorch.models.ApproximateGP
        Model to change in place; an error leaves it unchanged, and its dtype and device stay. Its strategy must be a
        ``VariationalStrategy`` or ``UnwhitenedVariationalStrategy`` with a batch of ``n_classes``, usually within an
        ``IndependentMultitaskVariationalStrategy``. For ``likelihood="logistic"``, which has one latent, it has no
        batch. All variational distributions work. GPyTorch's ``BernoulliLikelihood`` is a probit, so its
        probabilities differ from the classifier's although the latents agree.
    classifier : GPClassifier
        Fitted classifier with inducing points and one kernel for all latents.

    Examples
    --------
    >>> import gpytorch, torch
    >>> from gaussify import GPClassifier
    >>> from gpytorch.variational import CholeskyVariationalDistribution
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GPClassifier(n_inducing=20).fit(X, y)

    The model is built as in GPyTorch's documentation:

    >>> class Model(gpytorch.models.ApproximateGP):
    ...     def __init__(self, n_inducing, n_features, n_classes):
    ...         shape = torch.Size((n_classes,))
    ...         points, q = torch.zeros(n_inducing, n_features), CholeskyVariationalDistribution(n_inducing, shape)
    ...         strategy = VariationalStrategy(self, points, q, learn_inducing_locations=True)
    ...         super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_tasks=n_classes))
    ...         self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
    ...         self.covar_module = ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=n_features))
    ...     def forward(self, x):
    ...         return MultivariateNormal(self.mean_module(x), self.covar_module(x))
    >>> model = initialize_from_matched(Model(20, 4, 3), classifier)

    Its latents have the classifier's means, and nearly its variances, because constants count as known:

    >>> x, labels = scaled_inputs(classifier, X), torch.from_numpy(y)
    >>> with torch.no_grad():
    ...     difference = model.eval()(x).mean.numpy() - classifier.predict_latent(X)[0]
    >>> float(abs(difference).max()) < 0.05  # float32, for which GPyTorch adds a larger jitter
    True

    It is then trained as usual:

    >>> likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=3, mixing_weights=False)
    >>> objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    >>> optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     loss = -objective(model(x), labels)
    ...     loss.backward()
    ...     optimizer.step()
    >>> loss.item() < 1.0
    True
    """
    strategy, matched = _strategy_of(model), _matched(classifier)
    _check_sizes(model.variational_strategy, strategy, matched)
    with _unchanged_on_error(model), torch.no_grad():
        strategy.inducing_points.copy_(matched.points.expand_as(strategy.inducing_points))
        _set_kernel(model.covar_module, matched)
        prior = model.forward(strategy.inducing_points)
        factor = _factor(prior.covariance_matrix, strategy.jitter_val, matched)
        joint = _weights(matched, factor)
        constants = torch.cholesky_solve(joint.linear[..., None], stable_cholesky(joint.precision))[:, -1, 0]
        mean_module = getattr(model, "mean_module", None)
        if isinstance(mean_module, ConstantMean):
            _set(mean_module, "raw_constant", constants if mean_module.raw_constant.numel() > 1 else constants.mean())
            prior = model.forward(strategy.inducing_points)
        at_points = prior.mean.to("cpu", torch.float64).expand(len(constants), -1)  # (l, m)
        _initialize(strategy, _given_mean(joint, constants, factor, at_points), factor, at_points)
    return model


def scaled_inputs(classifier: GPClassifier, X: ArrayInput, dtype: torch.dtype | None = None) -> Float[Tensor, "n d"]:
    """Return rows in the scaled units of the classifier's kernel: the inputs of a model initialised from it.

    Parameters
    ----------
    classifier : GPClassifier
        Fitted classifier.
    X : array-like of shape (n, n_features)
        Rows in the units that the classifier was fitted with.
    dtype : torch.dtype, optional
        Type of the model's parameters; torch's default if not given.

    Examples
    --------
    >>> from gaussify import GPClassifier
    >>> classifier = GPClassifier(n_inducing=2).fit([[1.0], [2.0], [3.0], [6.0]], [0, 0, 1, 1])
    >>> scaled_inputs(classifier, [[3.0], [6.0]])  # less the mean 3, over the standard deviation 1.87
    tensor([[0.0000],
            [1.6036]])
    """
    _check_classifier(classifier, "scaled_inputs")
    return torch.from_numpy(classifier.scale(X)).to(dtype or torch.get_default_dtype())


class _Matched(NamedTuple):
    """A fitted classifier in units of latents divided by the temperature."""

    kernel: Kernel
    temperature: float
    points: Float[Tensor, "m d"]
    factor: Float[Tensor, "m m"]
    """Cholesky factor of the kernel matrix of the points, before the division."""
    statistics: ClassStatistics
    """Class statistics of the features that ``factor`` whitens, and of a constant."""
    table: PseudoTargets
    constant_variance: float

    @property
    def n_latents(self) -> int:
        return self.table.mean.shape[1]


def _check_classifier(classifier: object, owner: str) -> None:
    if not isinstance(classifier, GPClassifier):
        raise InvalidArgumentError(
            f"The 'classifier' parameter of {owner} must be a GPClassifier; got {type(classifier).__name__}."
        )
    check_is_fitted(classifier, "classes_")


def _matched(classifier: GPClassifier) -> _Matched:
    owner = "initialize_from_matched"
    _check_classifier(classifier, owner)
    if not hasattr(classifier, "fitted_"):
        raise InvalidArgumentError(
            f"The 'classifier' parameter of {owner} must have inducing points, and one kernel for all latents; got "
            f"n_inducing={classifier.n_inducing}, shared_kernel={classifier.shared_kernel}. Fit GPClassifier("
            "n_inducing=..., shared_kernel=True) with as many inducing points as the variational model has."
        )
    fitted = classifier.fitted_
    temperature = fitted.temperature  # of the matched model, also where a refined one is in use
    return _Matched(
        fitted.kernel,
        temperature,
        fitted.points,
        factorise(fitted.kernel, fitted.points).detach(),
        fitted.statistics,
        PseudoTargets(fitted.table.mean / temperature, fitted.table.variance / temperature**2),
        float(fitted.prior.variance[-1]) / temperature**2,
    )


def _strategy_of(model: ApproximateGP) -> Any:
    """Return the strategy that holds the inducing points and the variational distribution."""
    owner = "initialize_from_matched"
    if not isinstance(model, ApproximateGP):
        raise InvalidArgumentError(
            f"The 'model' parameter of {owner} must be a gpytorch.models.ApproximateGP; got {type(model).__name__}."
        )
    strategy = model.variational_strategy
    if isinstance(strategy, IndependentMultitaskVariationalStrategy):
        strategy = strategy.base_variational_strategy
    others = (BatchDecoupledVariationalStrategy, NNVariationalStrategy)  # their parameters have another meaning
    if isinstance(strategy, others) or not isinstance(strategy, VariationalStrategy | UnwhitenedVariationalStrategy):
        raise InvalidArgumentError(
            f"The 'model' parameter of {owner} must have a VariationalStrategy or an UnwhitenedVariationalStrategy, "
            f"for several classes within an IndependentMultitaskVariationalStrategy; got {type(strategy).__name__}."
        )
    if not isinstance(getattr(model, "covar_module", None), Kernel):
        raise InvalidArgumentError(
            f"The 'model' parameter of {owner} must have its kernel as model.covar_module; got "
            f"{type(getattr(model, 'covar_module', None)).__name__}."
        )
    return strategy


def _check_sizes(outer: Any, strategy: Any, matched: _Matched) -> None:
    label, n_latents = "The 'model' parameter of initialize_from_matched", matched.n_latents
    shape, expected = tuple(strategy.inducing_points.shape), tuple(matched.points.shape)
    if shape[-2:] != expected:
        raise InvalidArgumentError(
            f"{label} must have {expected[0]} inducing points of {expected[1]} features, as the classifier; got shape "
            f"{shape}. Build the strategy with torch.zeros{expected}."
        )
    batch = tuple(strategy._variational_distribution.batch_shape)
    if batch != (n_latents,) and not (batch == () and n_latents == 1):
        remedy = "no batch_shape" if n_latents == 1 else f"batch_shape=torch.Size(({n_latents},))"
        raise InvalidArgumentError(
            f"{label} must have a variational distribution for {n_latents} latent{'s' * (n_latents > 1)}, as the "
            f"classifier; got batch_shape {batch}. Build it with {remedy}."
        )
    if getattr(outer, "num_tasks", n_latents) != n_latents:
        raise InvalidArgumentError(
            f"{label} must have {n_latents} tasks, one for each latent of the classifier; got {outer.num_tasks}."
        )


@contextmanager
def _unchanged_on_error(model: Module) -> Iterator[None]:
    kept = [(tensor, tensor.detach().clone()) for tensor in chain(model.parameters(), model.buffers())]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, before in kept:
                tensor.copy_(before)
        raise
    finally:
        for module in model.modules():
            if hasattr(module, "_memoize_cache"):  # GPyTorch's cache of results
                clear_cache_hook(module)


def _set_kernel(kernel: Kernel, matched: _Matched) -> None:
    """Copy hyperparameters to a kernel of the same form, with its scale divided by T²."""
    if _form(kernel) != _form(matched.kernel):
        raise InvalidArgumentError(
            "'model.covar_module' of initialize_from_matched must have the form of classifier.kernel_, "
            f"{_kernel_name(matched.kernel)}; got {_kernel_name(kernel)}. Fit the classifier with the model's kernel: "
            "GPClassifier(kernel=...)."
        )
    scale = _SCALES.get(type(matched.kernel))
    if matched.temperature != 1.0 and scale is None:
        raise InvalidArgumentError(
            f"initialize_from_matched divides latents by the temperature {matched.temperature:g}; for that the kernel "
            f"must be a ScaleKernel; got {type(matched.kernel).__name__}. Wrap it in a ScaleKernel, or fit "
            "GPClassifier(temperature=1.0)."
        )
    for name, parameter, constraint in matched.kernel.named_parameters_and_constraints():
        value = parameter if constraint is None else constraint.transform(parameter)
        _set(kernel, name, value / matched.temperature**2 if name == scale else value)


def _form(kernel: Kernel) -> list[tuple[str, str]]:
    """Return the names of the parts and parameters of a kernel."""
    parts = [(name, type(part).__name__) for name, part in kernel.named_modules() if isinstance(part, Kernel)]
    return parts + [(name, "") for name, _ in kernel.named_parameters()]


def _kernel_name(kernel: Kernel) -> str:
    lists = [part if isinstance(part, torch.nn.ModuleList) else [part] for part in kernel.children()]
    inner = ", ".join(_kernel_name(part) for part in chain(*lists) if isinstance(part, Kernel))
    return type(kernel).__name__ + (f"({inner})" if inner else "")


def _set(module: Module, name: str, value: Tensor) -> None:
    """Set a parameter to a constrained value, the same for every member of a batch."""
    raw, constraint = module.get_parameter(name), module.constraint_for_parameter_name(name)
    label = f"{name.removeprefix('raw_').replace('.raw_', '.')!r} of {type(module).__name__}"
    try:
        value = value.to(raw.device).expand(raw.shape)
    except RuntimeError:
        raise InvalidArgumentError(
            f"{label} must have the classifier's shape {tuple(value.shape)}, or a batch of it; got {tuple(raw.shape)}. "
            "A kernel needs ard_num_dims=n_features for one lengthscale per feature; a mean needs "
            "batch_shape=(n_classes,)."
        ) from None
    if constraint is not None:
        if not bool(constraint.check(value.to(raw))):
            raise InvalidArgumentError(
                f"{label} must be within {constraint} in the model; the classifier has learnt "
                f"{[round(number, 6) for number in value.unique().tolist()]}. Widen the constraint."
            )
        value = constraint.inverse_transform(value)
    raw.copy_(value)


def _factor(covariance: Float[Tensor, "*batch m m"], jitter: float, matched: _Matched) -> Float[Tensor, "m m"]:
    """Return the Cholesky factor of the model's kernel matrix, which must equal the classifier's."""
    expected = (matched.factor @ matched.factor.mT) / matched.temperature**2
    matrix, scale = covariance.to("cpu", torch.float64), expected.diagonal().max()
    if bool((matrix - expected).abs().max() > _SAME.get(covariance.dtype, 1e-2) * scale):
        raise InvalidArgumentError(
            "The 'model' parameter of initialize_from_matched must have the prior covariance of classifier.kernel_; "
            "got another covariance at the inducing points. model.forward must pass its inputs unchanged to "
            "covar_module, and fixed settings of kernels (nu, active_dims) must agree."
        )
    matrix = matrix.reshape(-1, *matrix.shape[-2:])[0]
    return stable_cholesky(matrix + jitter * torch.eye(len(matrix), dtype=matrix.dtype))


class _Weights(NamedTuple):
    """Precision and linear term of Gaussians, including the prior."""

    precision: Float[Tensor, "l e e"]
    linear: Float[Tensor, "l e"]


def _weights(matched: _Matched, factor: Float[Tensor, "m m"]) -> _Weights:
    """Return the posterior of the weights of the model's whitened features and of a constant.

    The model whitens with another factor than the classifier: its features are a linear function of the classifier's,
    and so its statistics follow without the rows.
    """
    m = len(factor)
    change = torch.eye(m + 1, dtype=factor.dtype)
    change[:m, :m] = torch.linalg.solve_triangular(factor, matched.factor, upper=False) / matched.temperature**2
    natural = natural_parameters(matched.statistics, matched.table)
    prior = torch.ones(m + 1, dtype=factor.dtype)
    prior[m] = 1.0 / matched.constant_variance
    return _Weights(change @ natural.precision @ change.mT + torch.diag(prior), natural.linear @ change.mT)


def _given_mean(
    joint: _Weights, constants: Float[Tensor, " l"], factor: Float[Tensor, "m m"], at_points: Float[Tensor, "l m"]
) -> _Weights:
    """Return the posterior of the weights given the mean of the latents: a constant plus a part linear in features."""
    m, constant = len(factor), at_points.mean(1)
    rest = torch.linalg.solve_triangular(factor, (at_points - constant[:, None]).mT, upper=False).mT
    if len(constants) > 1:  # a softmax ignores a common shift, so the weights need not explain it
        constant = constant + (constants - constant).mean()
    precision = joint.precision[:, :m, :m]
    linear = joint.linear[:, :m] - joint.precision[:, :m, m] * constant[:, None]
    return _Weights(precision, linear - (precision @ rest[..., None])[..., 0])


def _initialize(
    strategy: Any, weights: _Weights, factor: Float[Tensor, "m m"], at_points: Float[Tensor, "l m"]
) -> None:
    """Set the variational distribution of the whitened weights or of the values at inducing points."""
    distribution = strategy._variational_distribution
    root = stable_cholesky(weights.precision)  # precision = root root^T
    mean = torch.cholesky_solve(weights.linear[..., None], root)[..., 0]
    scale = torch.linalg.cholesky(torch.cholesky_inverse(root))
    if isinstance(strategy, UnwhitenedVariationalStrategy):
        mean, scale = at_points + mean @ factor.mT, factor @ scale
        root = torch.linalg.solve_triangular(factor.mT, root, upper=True)
    if isinstance(distribution, MeanFieldVariationalDistribution):
        scale = torch.diag_embed(root.square().sum(-1).rsqrt())
    shape = distribution.shape()
    covariance = CholLinearOperator(TriangularLinearOperator(scale.reshape(*shape, shape[-1])))
    std, distribution.mean_init_std = distribution.mean_init_std, 0.0  # else GPyTorch adds noise
    try:
        distribution.initialize_variational_distribution(MultivariateNormal(mean.reshape(shape), covariance))
    finally:
        distribution.mean_init_std = std
    strategy.variational_params_initialized.fill_(1)
