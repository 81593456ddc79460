r"""Baselines of the paper's streaming experiments, with the interface of the other classifiers.

:class:`ADFClassifier` approximates the posterior of the softmax model row by row.
:class:`MomentumSGDClassifier` learns weights without their uncertainty. :class:`LeastSquaresClassifier` regresses on
the labels. Unlike matched models, the first two depend on the order of the rows and on random numbers. They also
distinguish two kinds of new classes. One that was declared at the start has become improbable with each row of the
others; one that was not declared starts at the prior.

References
----------
.. [1] M. Opper, "A Bayesian approach to on-line learning", 1998; T. Minka, "A family of algorithms for approximate
   Bayesian inference", 2001.
.. [2] B. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
"""

import math
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gaussify._calibration import CriterionName
from gaussify._estimators import Floats, Indices, StreamingClassifier, unchanged_on_error
from gaussify._typing import Vector, no_type_check
from gaussify._validation import ArrayInput, as_concentration, check_count
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import PredictiveName, SoftmaxLikelihood
from gaussify.linear._classifier import BayesianLogisticRegression
from gaussify.posterior import GaussianPosterior, latent

__all__ = [
    "ADFClassifier",
    "LeastSquaresClassifier",
    "LogNormaliser",
    "MomentumSGDClassifier",
    "absorb_",
    "log_normaliser",
    "softmax_gradient",
]

_SGD = TypeVar("_SGD", bound="MomentumSGDClassifier")
_WIDE = 16.0  # variance of a latent above which moments of samples are more precise than slopes of the softmax
_LEAST_LEFT = 0.01  # smallest share of the variance of a latent that one row may leave


class LogNormaliser(NamedTuple):
    r"""Logarithm of :math:`Z = \mathbb{E}[\mathrm{softmax}_y(f)^w]` and its derivatives.

    Examples
    --------
    >>> mean, variance, noise = torch.zeros(2), torch.zeros(2), torch.zeros(2, 1)
    >>> log_normaliser(mean, variance, 0, noise).grad_mean
    tensor([ 0.5000, -0.5000])
    """

    value: Float[Tensor, ""]
    grad_mean: Float[Tensor, " c"]
    grad_variance: Float[Tensor, " c"]


def log_normaliser(
    mean: Float[Tensor, " c"],
    variance: Float[Tensor, " c"],
    label: int,
    noise: Float[Tensor, "c s"],
    weight: float = 1.0,
) -> LogNormaliser:
    r"""Return a Monte Carlo estimate of the log-normaliser of a row's tilted distribution, with its derivatives.

    For independent latents :math:`f_l \sim \mathcal{N}(m_l, v_l)` and the label y of a row of weight w, with
    :math:`p = \mathrm{softmax}(f)` and the expectation :math:`\tilde{\mathbb{E}}` under the tilted distribution
    :math:`p_y^w\,\mathcal{N}(f \mid m, v) / Z`, the derivatives of :math:`\log Z` are

    .. math::
        g_l &= w\,\tilde{\mathbb{E}}[\delta_{yl} - p_l] = \tilde{\mathbb{E}}[f_l - m_l] / v_l, \\
        h_l &= \tfrac{w}{2}\tilde{\mathbb{E}}[w(\delta_{yl} - p_l)^2 - p_l(1 - p_l)]
            = \tfrac12\big(\tilde{\mathbb{E}}[(f_l - m_l)^2] / v_l - 1\big) / v_l.

    The first form, with slopes of the softmax, is exact for zero variance. The second, with moments of the samples, has
    the same relative error for any variance. It is used for large variances, where the slope is zero at most samples.

    Parameters
    ----------
    mean, variance
        Mean and variance of the latents, (c,).
    label
        Index of the class.
    noise
        Standard normal draws, (c, s).
    weight
        Weight of the row.

    Examples
    --------
    >>> mean, variance = torch.tensor([1.0, 0.0, 0.0]), torch.ones(3)
    >>> noise = torch.randn(3, 100_000, generator=torch.Generator().manual_seed(0))
    >>> estimate = log_normaliser(mean, variance, 0, noise)
    >>> bool((estimate.value.exp() - SoftmaxLikelihood(3).predict_proba(mean[None], variance[None])[0, 0]).abs() < 2e-3)
    True
    """
    deviation = variance.sqrt()[:, None] * noise
    log_probs = torch.log_softmax(mean[:, None] + deviation, 0)
    log_tilt = weight * log_probs[label]  # (s,)
    tilt = torch.softmax(log_tilt, 0)
    probs = log_probs.exp_()
    mean_prob, mean_square = probs @ tilt, probs.square() @ tilt
    one_hot = torch.zeros_like(mean)
    one_hot[label] = 1.0
    grad_mean = weight * (one_hot - mean_prob)
    square = one_hot * (1.0 - 2.0 * mean_prob) + mean_square  # E[(one_hot - p)²]
    grad_variance = 0.5 * weight * (weight * square - mean_prob + mean_square)
    wide = variance > _WIDE
    if bool(wide.any()):
        grad_mean = torch.where(wide, deviation @ tilt / variance, grad_mean)
        spread = deviation.square() @ tilt / variance
        grad_variance = torch.where(wide, 0.5 * (spread - 1.0) / variance, grad_variance)
    value = torch.logsumexp(log_tilt, 0) - math.log(noise.shape[1])
    return LogNormaliser(value, grad_mean, grad_variance)


def absorb_(
    posterior: GaussianPosterior,
    feature: Float[Tensor, " d"],
    label: int,
    noise: Float[Tensor, "c s"],
    weight: float = 1.0,
    damping: float = 1.0,
) -> None:
    r"""Replace the posterior, in place, by the Gaussian with the moments of posterior times softmax.

    With :math:`S_l = R_l^\top R_l`, :math:`u = R_l\phi`, :math:`v = |u|^2` and the derivatives g, h of
    :func:`log_normaliser` at the latents :math:`\phi^\top m_l` and v,

    .. math:: m_l \leftarrow m_l + \eta g S_l\phi, \qquad
        S_l \leftarrow S_l - \eta c\,(S_l\phi)(S_l\phi)^\top, \qquad c = g^2 - 2h.

    The damping :math:`\eta` is the given number, or a smaller one if the estimate would leave less than a hundredth of
    the variance of the latent. The root of the new covariance is :math:`(I - \beta uu^\top)R_l` with
    :math:`\beta = \eta c / (1 + \sqrt{1 - \eta cv})`, so the covariance stays positive definite. The cost is c d² for
    c classes.

    Examples
    --------
    >>> posterior = GaussianPosterior(torch.zeros(2, 1), torch.ones(2, 1, 1))
    >>> noise = torch.randn(2, 10_000, generator=torch.Generator().manual_seed(0))
    >>> absorb_(posterior, torch.ones(1), 0, noise)
    >>> posterior.mean.flatten().round(decimals=1), posterior.covariance.flatten().round(decimals=1)
    (tensor([ 0.4000, -0.4000]), tensor([0.9000, 0.9000]))
    """
    n_latents, d = posterior.mean.shape
    u = torch.mv(posterior.root.view(-1, d), feature).view(n_latents, d)
    variance = u.square().sum(1)
    _, slope, by_variance = log_normaliser(torch.mv(posterior.mean, feature), variance, label, noise, weight)
    shrinkage = slope.square() - 2.0 * by_variance
    most = (1.0 - _LEAST_LEFT) / (shrinkage * variance).clamp_min(torch.finfo(variance.dtype).tiny)
    step = most.clamp_max(damping)
    gain = torch.bmm(u[:, None, :], posterior.root)[:, 0]  # (c, d), covariance times feature
    shrinkage = step * shrinkage
    beta = shrinkage / (1.0 + torch.sqrt(1.0 - shrinkage * variance))
    posterior.mean.addcmul_(gain, (step * slope)[:, None])
    posterior.root.baddbmm_((-beta[:, None] * u)[:, :, None], gain[:, None, :])


class ADFClassifier(StreamingClassifier):
    r"""Assumed density filtering in the softmax model, one row at a time.

    The weights of each class have a Gaussian posterior with full covariance; weights of different classes are
    independent. A row multiplies the posterior by :math:`\mathrm{softmax}_y`, and the Gaussian with the same moments
    replaces the product (:func:`absorb_`). The moments come from the log-normaliser and its derivatives, which Monte
    Carlo estimates [1]_ (:func:`log_normaliser`). A row costs K d² and K numbers for each sample, with K classes and d
    features; memory is K d² numbers.

    ``fit`` also visits rows once, in their order. Shuffle rows that are sorted by class, because the model learns
    little from them in that order. Rows that come before a second class is known are not learnt.

    Parameters
    ----------
    prior_variance : float
        Prior variance of the weights.
    n_samples : int
        Number of draws of the latents for each row.
    damping : float
        Share in (0, 1] of each update that is made. Updates that would be invalid are shortened further.
    fit_intercept : bool
        Whether each latent has a constant term.
    intercept_variance : float
        Prior variance of the constant terms. Latents with variances of several tens or more need many samples.
    random_state : int
        Seed of the draws, which do not depend on how rows are split into chunks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels so far.
    coef_, intercept_ : ndarray of shape (n_classes, n_features) and (n_classes,)
        Posterior mean of the weights and of the constant terms.
    posterior_ : GaussianPosterior
        Posterior of the weights; the last weight is the constant term, if there is one.

    References
    ----------
    .. [1] See the references of :mod:`gaussify.linear.baselines`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.utils import shuffle
    >>> X, y = shuffle(*load_iris(return_X_y=True), random_state=0)
    >>> model = ADFClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    n_features_in_: int
    posterior_: GaussianPosterior
    _state: Tensor  # of the generator

    @no_type_check
    def __init__(
        self,
        prior_variance: float = 1.0,
        *,
        n_samples: int = 1000,
        damping: float = 1.0,
        fit_intercept: bool = True,
        intercept_variance: float = 1.0,
        random_state: int = 0,
    ) -> None:
        self.prior_variance = prior_variance
        self.n_samples = n_samples
        self.damping = damping
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.random_state = random_state

    def predict_latent(self, X: ArrayInput) -> tuple[Floats, Floats]:
        """Return mean and variance of the latents, (n, n_classes) each."""
        mean, variance = latent(self.posterior_, self._features(self._check_features(X)))
        return mean.numpy(), variance.numpy()

    @property
    def coef_(self) -> Floats:
        """Weights of the features."""
        return self.posterior_.mean[:, : self.n_features_in_].numpy()

    @property
    def intercept_(self) -> Floats:
        """Constant terms, zeros where there are none."""
        return _intercept(self.posterior_.mean.numpy(), self.n_features_in_)

    def _begin(self, n_features: int) -> None:
        owner = type(self).__name__
        weights = _positive(self, "prior_variance") * torch.ones(n_features, dtype=torch.float64)
        constant = _positive(self, "intercept_variance") * torch.ones(int(bool(self.fit_intercept))).double()
        self._prior_scale = torch.cat([weights, constant]).sqrt()
        self._n_samples = check_count(self.n_samples, name="n_samples", owner=owner)
        self._damping = _at_most_one(self, "damping")
        seed = check_count(self.random_state, name="random_state", owner=owner, minimum=0)
        self._state = torch.Generator().manual_seed(seed).get_state()
        d = len(self._prior_scale)
        self.posterior_ = GaussianPosterior(torch.zeros(0, d).double(), torch.zeros(0, d, d).double())

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        n_classes, d = len(classes), len(self._prior_scale)
        mean, root = torch.zeros(n_classes, d).double(), torch.diag(self._prior_scale).repeat(n_classes, 1, 1)
        mean[places], root[places] = self.posterior_
        self.posterior_ = GaussianPosterior(mean, root)

    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        if len(self.classes_) < 2:
            return
        posterior = GaussianPosterior(*(tensor.clone() for tensor in self.posterior_))
        generator = torch.Generator().set_state(self._state)
        weights = [1.0] * len(X) if sample_weight is None else sample_weight.tolist()
        for feature, label, weight in zip(self._features(X), labels.tolist(), weights, strict=True):
            if weight > 0.0:
                # float32 takes a fifth of the time of drawing in float64
                noise = torch.randn(len(self.classes_), self._n_samples, generator=generator, dtype=torch.float32)
                absorb_(posterior, feature, label, noise.double(), weight, self._damping)
        self.posterior_, self._state = posterior, generator.get_state()

    def _probs(self, X: Floats) -> Floats:
        mean, variance = latent(self.posterior_, self._features(X))
        return SoftmaxLikelihood(len(self.classes_)).predict_proba(mean, variance).numpy()

    def _features(self, X: Floats) -> Tensor:
        return torch.from_numpy(_with_constant(X, len(self._prior_scale)))


def softmax_gradient(
    weights: Float[np.ndarray, "c d"],
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    sample_weight: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, "c d"]:
    r"""Return the gradient of the mean softmax cross-entropy of rows with respect to the weights.

    .. math:: \nabla_W \frac1n\sum_i -w_i\log\mathrm{softmax}_{y_i}(W\phi_i)
        = \frac1n\sum_i w_i(\mathrm{softmax}(W\phi_i) - e_{y_i})\phi_i^\top

    Examples
    --------
    >>> softmax_gradient(np.zeros((2, 1)), np.array([[3.0]]), np.array([0]))
    array([[-1.5], [ 1.5]])
    """
    logits = features @ weights.T
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    probs[np.arange(len(labels)), labels] -= 1.0
    if sample_weight is not None:
        probs *= sample_weight[:, None]
    return probs.T @ features / len(labels)


class MomentumSGDClassifier(StreamingClassifier):
    r"""Multinomial logistic regression by stochastic gradient descent with momentum.

    ``partial_fit`` visits its rows once, in their order, in minibatches. ``fit`` visits them ``n_epochs`` times, at
    first in their order and then in random orders. With the gradient :math:`\nabla` of :func:`softmax_gradient` and
    weight decay :math:`\lambda`, each minibatch makes the step [1]_

    .. math:: V \leftarrow \mu V - \gamma(\nabla + \lambda W), \qquad W \leftarrow W + V.

    Parameters
    ----------
    learning_rate : float or "auto"
        Step size :math:`\gamma`. ``"auto"`` is the inverse of the mean squared length of the rows so far, including the
        constant for the intercept. The curvature is at most half that mean, so gradient descent on these rows would be
        stable up to :math:`4(1 + \mu)` times this step.
    momentum : float
        Factor :math:`\mu` in [0, 1).
    batch_size : int
        Number of rows of a minibatch. The last minibatch of a call may have fewer.
    weight_decay : float
        Factor :math:`\lambda`, which does not apply to intercepts.
    n_epochs : int
        Number of times that ``fit`` visits its rows.
    fit_intercept : bool
        Whether each logit has a constant term.
    random_state : int
        Seed of the random orders in ``fit``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels so far.
    coef_, intercept_ : ndarray of shape (n_classes, n_features) and (n_classes,)
        Weights and constant terms.

    References
    ----------
    .. [1] See the references of :mod:`gaussify.linear.baselines`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MomentumSGDClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    n_features_in_: int

    @no_type_check
    def __init__(
        self,
        learning_rate: float | Literal["auto"] = "auto",
        momentum: float = 0.9,
        *,
        batch_size: int = 8,
        weight_decay: float = 0.0,
        n_epochs: int = 30,
        fit_intercept: bool = True,
        random_state: int = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.n_epochs = n_epochs
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self: _SGD, X: ArrayInput, y: ArrayInput, sample_weight: ArrayInput | None = None) -> _SGD:
        """Learn these rows alone, in ``n_epochs`` passes; arguments as for the other estimators."""
        owner = type(self).__name__
        with unchanged_on_error(self):
            n_epochs = check_count(self.n_epochs, name="n_epochs", owner=owner)
            seed = check_count(self.random_state, name="random_state", owner=owner, minimum=0)
            super().fit(X, y, sample_weight)  # the first epoch
            X, y, sample_weight = self._check_rows(X, y, sample_weight, first=False)
            labels, rng = self._index(y), np.random.default_rng(seed)
            for _ in range(n_epochs - 1):
                order = rng.permutation(len(X))
                self._learn(X[order], labels[order], None if sample_weight is None else sample_weight[order])
        return self

    @property
    def coef_(self) -> Floats:
        """Weights of the features."""
        return self._weights[:, : self.n_features_in_]

    @property
    def intercept_(self) -> Floats:
        """Constant terms, zeros where there are none."""
        return _intercept(self._weights, self.n_features_in_)

    def _begin(self, n_features: int) -> None:
        owner = type(self).__name__
        automatic = isinstance(self.learning_rate, str) and self.learning_rate == "auto"
        self._rate = None if automatic else _positive(self, "learning_rate")
        self._momentum = _at_most_one(self, "momentum", allow_zero=True, allow_one=False)
        self._batch_size = check_count(self.batch_size, name="batch_size", owner=owner)
        self._decay = np.full(n_features + bool(self.fit_intercept), _positive(self, "weight_decay", allow_zero=True))
        self._decay[n_features:] = 0.0
        self._weights = self._velocity = np.zeros((0, len(self._decay)))
        self._n_rows, self._sum_of_squares = 0, 0.0

    def _make_room(self, places: Indices, classes: NDArray) -> None:
        weights, velocity = np.zeros((2, len(classes), len(self._decay)))
        weights[places], velocity[places] = self._weights, self._velocity
        self._weights, self._velocity = weights, velocity

    def _learn(self, X: Floats, labels: Indices, sample_weight: Floats | None) -> None:
        features = _with_constant(X, len(self._decay))
        weights, velocity = self._weights.copy(), self._velocity.copy()
        n_rows, sum_of_squares = self._n_rows, self._sum_of_squares
        for start in range(0, len(X), self._batch_size):
            part = slice(start, start + self._batch_size)
            batch = features[part]
            n_rows, sum_of_squares = n_rows + len(batch), sum_of_squares + float(np.vdot(batch, batch))
            rate = self._rate or (n_rows / sum_of_squares if sum_of_squares else 0.0)
            gradient = softmax_gradient(
                weights, batch, labels[part], None if sample_weight is None else sample_weight[part]
            )
            velocity *= self._momentum
            velocity -= rate * (gradient + self._decay * weights)
            weights += velocity
        self._weights, self._velocity = weights, velocity
        self._n_rows, self._sum_of_squares = n_rows, sum_of_squares

    def _probs(self, X: Floats) -> Floats:
        logits = torch.from_numpy(_with_constant(X, len(self._decay)) @ self._weights.T)
        return torch.softmax(logits, 1).numpy()


class LeastSquaresClassifier(BayesianLogisticRegression):
    """Least-squares regression on one-hot labels with a fixed variance, the paper's ``gauss``.

    It is :class:`~gaussify.BayesianLogisticRegression` with ``method="gauss"`` and has all of its methods.

    Parameters
    ----------
    label_variance : float
        Variance of a label.
    prior_variance : float, one per feature, or "auto"
        Prior variance of the weights; ``"auto"`` maximises the evidence.
    temperature : float or "auto"
        Divisor of the latents. The default, 1, is the paper's model, which is far from calibrated.
    forgetting, fit_intercept, intercept_variance, criterion, reservoir_size, predictive, random_state
        See :class:`~gaussify.BayesianLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LeastSquaresClassifier().fit(X[::2], y[::2])
    >>> model.predict_proba(X[:1]).round(2)  # correct, with low confidence
    array([[0.52, 0.27, 0.21]])
    """

    @no_type_check
    def __init__(
        self,
        label_variance: float = 1.0,
        prior_variance: float | Vector | Literal["auto"] = "auto",
        temperature: float | Literal["auto"] = 1.0,
        forgetting: float = 1.0,
        *,
        fit_intercept: bool = True,
        intercept_variance: float = 1000.0,
        criterion: CriterionName = "leave-one-out",
        reservoir_size: int = 1000,
        predictive: PredictiveName = "quadrature",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            "gauss",
            0.1,  # alpha_eps, which this method does not use
            temperature,
            prior_variance,
            forgetting,
            likelihood="softmax",
            fit_intercept=fit_intercept,
            intercept_variance=intercept_variance,
            label_variance=label_variance,
            criterion=criterion,
            reservoir_size=reservoir_size,
            predictive=predictive,
            random_state=random_state,
        )


def _positive(estimator: StreamingClassifier, name: str, *, allow_zero: bool = False) -> float:
    owner = type(estimator).__name__
    return float(as_concentration(getattr(estimator, name), name=name, owner=owner, allow_zero=allow_zero))


def _at_most_one(
    estimator: StreamingClassifier, name: str, *, allow_zero: bool = False, allow_one: bool = True
) -> float:
    value = _positive(estimator, name, allow_zero=allow_zero)
    if value > 1.0 or (value == 1.0 and not allow_one):
        limit = "at most 1" if allow_one else "below 1"
        raise InvalidArgumentError(
            f"The {name!r} parameter of {type(estimator).__name__} must be {limit}; got {value:g}."
        )
    return value


def _with_constant(X: Floats, width: int) -> Floats:
    """Return a copy of the rows, with columns of ones appended up to ``width``."""
    features = np.ones((X.shape[0], width))
    features[:, : X.shape[1]] = X
    return features


def _intercept(weights: Floats, n_features: int) -> Floats:
    """Return the constant terms among the weights (c, d), or zeros if there are none."""
    return weights[:, -1] if weights.shape[1] > n_features else np.zeros(len(weights))
