"""Matched labels as a likelihood of GPyTorch, for models written for its Dirichlet classification."""

from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.priors import Prior
from jaxtyping import Float
from torch import Tensor

from gaussify._validation import as_concentration, as_floats, check_count, check_same_rows
from gaussify.exceptions import GaussifyError, InvalidArgumentError
from gaussify.likelihoods import LikelihoodMethod, SoftmaxLikelihood

__all__ = ["MatchedClassificationLikelihood"]


class MatchedClassificationLikelihood(FixedNoiseGaussianLikelihood):
    r"""Labels as Gaussian observations of one Gaussian process per class, by any way of matching.

    It stands where ``gpytorch.likelihoods.DirichletClassificationLikelihood`` does, whose observations are those of
    ``method="moment-ori"``. Row i observes the latent of class k as

    .. math:: \tilde y_{ki} = f_k(x_i) + \varepsilon_{ki}, \qquad \varepsilon_{ki} \sim \mathcal{N}(0, v_{ki} + s_k),

    with :math:`\tilde y_{ki}` and :math:`v_{ki}` from :class:`~gaussify.SoftmaxLikelihood` and :math:`s_k` learnt, if
    wanted. The number of classes is given, never guessed, and new labels are encoded as the first ones were.

    Parameters
    ----------
    targets : array-like
        Class indices of shape (n,), or counts of shape (n, n_classes), as in ``SoftmaxLikelihood.encode``.
    n_classes : int
        Number of classes, at least 2; classes that do not occur are allowed.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        See :class:`~gaussify.likelihoods.LikelihoodMethod`.
    alpha_eps : float or sequence of float
        Concentration of the prior, one number or one per class; fixed, also where it is a tensor with a graph.
    label_variance : float
        Variance of a label for ``method="gauss"``.
    learn_additional_noise : bool
        Whether to learn :math:`s_k`.
    batch_shape : torch.Size, optional
        Of the additional noise: by default one for each class, ``torch.Size()`` for one that all share.
    noise_prior, noise_constraint : optional
        Of the additional noise, as in GPyTorch.
    dtype : torch.dtype, optional
        Of all numbers; torch's default if not given.

    Examples
    --------
    A model as for GPyTorch's likelihood, a batch of independent processes:

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

    Probabilities by quadrature, not by sampling:

    >>> model, likelihood = model.eval(), likelihood.eval()
    >>> with torch.no_grad():
    ...     likelihood.predict_proba(model(torch.tensor([-1.8, 4.0])))
    tensor([[0.99, 0.01, 0.00],
            [0.44, 0.46, 0.10]])

    New rows join without refitting, here of the class that was missing:

    >>> wider = likelihood.get_fantasy_model(model, torch.tensor([4.0, 4.5]), [2, 2])
    >>> with torch.no_grad():
    ...     wider.likelihood.predict_proba(wider(torch.tensor([4.0])))
    tensor([[0.09, 0.09, 0.82]])

    The same by GPyTorch's own method, which needs inputs with the batch of classes, (n_classes, m, d):

    >>> mean, noise = likelihood.encode([2, 2])
    >>> same = model.get_fantasy_model(torch.tensor([[4.0], [4.5]]).expand(3, 2, 1), mean, noise=noise)
    >>> torch.equal(same.train_targets, wider.train_targets)
    True
    """

    def __init__(
        self,
        targets: Any,
        *,
        n_classes: int,
        method: str = "variational",
        alpha_eps: Any = 0.1,
        label_variance: float = 1.0,
        learn_additional_noise: bool = False,
        batch_shape: torch.Size | None = None,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        owner = type(self).__name__
        n_classes = check_count(n_classes, name="n_classes", owner=owner, minimum=2)
        # a float64 tensor, for then the targets are not rounded to torch's default before they get their dtype; a
        # copy of its own, for what the caller does to the original must not change how new labels are encoded
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
        # moves with the module, but is data: what is learnt can be loaded next to other data
        self._transformed_targets: Tensor | None
        self.register_buffer("_transformed_targets", mean, persistent=False)
        self.to(mean)  # the additional noise too

    @property
    def n_classes(self) -> int:
        """Number of classes, which is that of latents."""
        return self._softmax.n_classes

    @property
    def num_classes(self) -> int:
        """As ``n_classes``, by GPyTorch's name."""
        return self._softmax.n_classes

    @property
    def method(self) -> LikelihoodMethod:
        """How labels are matched."""
        return self._softmax.method

    @property
    def alpha_eps(self) -> Tensor:
        """Concentration of the prior, float64: one, or one per class."""
        return self._softmax.alpha_eps

    @property
    def transformed_targets(self) -> Float[Tensor, "c n"]:
        """Observed values of the latents, one row per class: what the model and its objective take for ``y``."""
        if self._transformed_targets is None:
            raise GaussifyError(
                f"{type(self).__name__} got rows by their noise alone and does not know their targets. The model has "
                "them: use its train_targets, or add rows by likelihood.get_fantasy_model(model, inputs, labels)."
            )
        return self._transformed_targets

    def encode(self, targets: Any) -> tuple[Float[Tensor, "c m"], Float[Tensor, "c m"]]:
        """Return the values and noise variances, (n_classes, m), that new labels or counts stand for.

        Without the additional noise, which is added wherever ``noise`` is taken.
        """
        noise = self.noise_covar.noise
        return _observations(self._softmax, targets, noise.device, noise.dtype)

    def predict_proba(
        self, distribution: MultivariateNormal, method: str = "quadrature"
    ) -> Float[Tensor, "*batch m c"]:
        """Return the probability of each class, (m, n_classes), given the latents at m rows.

        Parameters
        ----------
        distribution : gpytorch.distributions.MultivariateNormal
            What the model returns, a batch of n_classes over m rows: the latents themselves, without noise.
        method : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
            See :class:`~gaussify.likelihoods.PredictiveMethod`.
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

    def get_fantasy_model(self, model: ExactGP, inputs: Tensor, targets: Any) -> ExactGP:
        """Return ``model``, whose likelihood this is, given more rows as well; hyperparameters stay as they are.

        Predictions are those of a model given all rows at once. Beyond 800 rows GPyTorch solves by iterations, roughly;
        ``gpytorch.settings.max_cholesky_size`` says from where on.

        Parameters
        ----------
        model : gpytorch.models.ExactGP
            One that has made a prediction, for GPyTorch extends what it kept of that.
        inputs : Tensor of shape (m, d), (m,) or (n_classes, m, d)
            New rows.
        targets : array-like
            Their labels, or counts.
        """
        mean, noise = self.encode(targets)
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        check_same_rows(f"{type(self).__name__}.get_fantasy_model", inputs=inputs.movedim(-2, 0), targets=mean.mT)
        # GPyTorch reads the batch shape off the inputs, and mixes up classes and rows where only the targets have it
        inputs = inputs.expand(self.n_classes, *inputs.shape[-2:])
        fantasy = model.get_fantasy_model(inputs, mean, noise=noise)
        fantasy.likelihood._transformed_targets = fantasy.train_targets
        return fantasy

    def get_fantasy_likelihood(
        self, *, targets: Any = None, noise: Float[Tensor, "*batch c m"] | None = None
    ) -> "MatchedClassificationLikelihood":
        """Return this likelihood with more rows: by their labels or counts, or by noise variances from ``encode``."""
        owner = f"{type(self).__name__}.get_fantasy_likelihood"
        if (targets is None) == (noise is None):
            raise InvalidArgumentError(
                f"{owner} needs either 'targets' or 'noise'. For model.get_fantasy_model: targets, noise = "
                "likelihood.encode(labels), and pass both."
            )
        mean = None
        if noise is None:
            mean, noise = self.encode(targets)
        noise = as_floats(noise, name="noise", owner=owner, min_ndim=2, minimum=0.0)
        if noise.shape[-2] != self.n_classes:
            raise InvalidArgumentError(
                f"'noise' of {owner} must have shape (..., {self.n_classes}, m), as encode gives it; got shape "
                f"{tuple(noise.shape)}."
            )
        fantasy = super().get_fantasy_likelihood(noise=noise)
        old = self._transformed_targets
        fantasy._transformed_targets = None if old is None or mean is None else torch.cat([old, mean], -1)
        return fantasy

    def __call__(self, input: Tensor | MultivariateNormal, *args: Any, targets: Any = None, **kwargs: Any) -> Any:
        """Return latents with noise: that of the labels or counts ``targets`` where they are given.

        Otherwise that of ``noise=``, as ``encode`` gives it, or of the rows the likelihood was made with.
        """
        if targets is None:
            return super().__call__(input, *args, **kwargs)
        return super().__call__(input, *args, noise=self.encode(targets)[1], **kwargs)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, noise: Tensor | None = None, **kwargs: Any
    ) -> Any:
        if noise is None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        # GPyTorch would put this in the place of the additional noise as well: twice the one, nothing of the other
        return self.noise_covar(shape=base_shape, noise=noise + self.second_noise)


def _observations(
    softmax: SoftmaxLikelihood, targets: Any, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, "c n"], Float[Tensor, "c n"]]:
    """Values and variances, one row per class as a batch of GPyTorch has it."""
    mean, variance = (x.mT.to(device, dtype).contiguous() for x in softmax.encode(targets))
    return mean, variance
