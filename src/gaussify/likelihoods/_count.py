"""Likelihoods of counts: events per exposure under a Poisson, successes of trials under a binomial."""

import math
from abc import abstractmethod

import torch
from torch import Tensor
from torch.distributions import Beta, Gamma, Normal
from torch.nn.functional import logsigmoid

from gaussify._numerics import cover, softplus_moment
from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput, as_floats, as_whole_counts, check_count, check_same_rows
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods._base import BETA_METHODS, Likelihood
from gaussify.likelihoods._targets import LikelihoodMethod, LikelihoodMethodName, PseudoTargets, target_dtype
from gaussify.matching import MatchMethod, match

_N_NODES = 193  # then a probability errs by less than 1e-9
_ELEMENTS = 1 << 12  # probabilities that are computed at a time


class CountLikelihood(Likelihood):
    """Counts, each with a size (an exposure, a number of trials), as Gaussian observations of one latent.

    Everything is computed in float64, as the terms of a log-probability of large counts cancel.
    """

    n_latents = 1
    _parameters = ("alpha_eps", "beta_eps", "method")
    _size_name: str

    @no_type_check
    def __init__(
        self,
        alpha_eps: float | Tensor,
        beta_eps: float | Tensor | None,
        method: LikelihoodMethodName | LikelihoodMethod,
        label_variance: float | Tensor,
    ) -> None:
        super().__init__(alpha_eps, method, label_variance)
        self.beta_eps = beta_eps
        self._prior()

    @abstractmethod
    def _prior(self) -> tuple[Tensor, Tensor]:
        """Return both parameters of the prior, in float64."""

    @abstractmethod
    def _match(self, y: Tensor, size: Tensor) -> Normal:
        """Return the Gaussians (n,) for counts by the chosen way of matching."""

    @abstractmethod
    def _regression_mean(self, y: Tensor, size: Tensor) -> Tensor:
        """Return the means (n,) of the latent for least squares on the counts."""

    @abstractmethod
    def _log_prob(self, latent: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Return the exact log-probability of counts given the latent."""

    @abstractmethod
    def _peak(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Return the latent at which likelihood times Gaussian is largest."""

    @abstractmethod
    def _counts_and_sizes(self, y: ArrayInput, size: ArrayInput, function: str) -> tuple[Tensor, Tensor]:
        """Return counts and sizes (n,), checked, in float64."""

    def _encode(self, y: ArrayInput, size: ArrayInput) -> PseudoTargets:
        counts, sizes = self._counts_and_sizes(y, size, "encode")
        if self.method is LikelihoodMethod.GAUSS:
            targets = self._regression_mean(counts, sizes), self.label_variance.double() / sizes
        else:
            matched = self._match(counts, sizes)
            targets = matched.mean, matched.variance
        dtype = target_dtype(self.alpha_eps, y)
        return PseudoTargets(*(tensor[:, None].to(dtype) for tensor in targets))

    def _exact_log_prob(self, latents: ArrayInput, y: ArrayInput, size: ArrayInput) -> Tensor:
        latents = as_floats(latents, name="latents", owner=self._owner("log_prob"), columns=1, min_ndim=2)
        y, size = self._counts_and_sizes(y, size, "log_prob")
        check_same_rows(self._owner("log_prob"), latents=latents.movedim(-2, 0), y=y)
        return self._log_prob(latents[..., 0].double(), y, size).to(latents.dtype)

    def _predictive_log_prob(self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, size: ArrayInput) -> Tensor:
        mean, variance = self._latent_gaussian(mean, variance, "predict_log_prob")
        y, size = self._counts_and_sizes(y, size, "predict_log_prob")
        check_same_rows(self._owner("predict_log_prob"), mean=mean, y=y)
        return self._integrate(mean, variance, y, size).to(mean.dtype)

    def _predictive_probs(self, mean: Tensor, variance: Tensor, size: Tensor, max_count: int) -> Tensor:
        """Return the probabilities of the counts 0 .. max_count, (n, max_count + 1)."""
        counts = torch.arange(max_count + 1, dtype=torch.float64, device=mean.device)
        rows, columns = mean.shape[0], counts.numel()
        log_probs = self._integrate(
            mean.repeat_interleave(columns),
            variance.repeat_interleave(columns),
            counts.repeat(rows),
            size.to(mean.device).repeat_interleave(columns),
        )
        return torch.exp(log_probs).reshape(rows, columns).to(mean.dtype)

    def _integrate(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        r"""Return :math:`\log\int p(y \mid f)\,\mathcal{N}(f \mid m, v)\,df`, (n,); the integrand is log-concave."""
        arguments = [x.detach().to(mean.device, torch.float64) for x in (mean, variance, y, size)]
        return torch.cat(
            [self._integrate_chunk(*chunk) for chunk in zip(*(x.split(_ELEMENTS) for x in arguments), strict=True)]
        )

    def _integrate_chunk(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        certain = variance < 1e-20  # narrower than any peak that cover finds
        spread = torch.where(certain, 1.0, variance)

        def log_joint(f: Tensor) -> Tensor:
            log_normal = -0.5 * ((f - mean).square() / spread + torch.log(2.0 * math.pi * spread))
            return self._log_prob(f, y, size) + log_normal

        _, nodes, log_weights = cover(log_joint, self._peak(mean, spread, y, size), n_nodes=_N_NODES)
        log_prob = torch.logsumexp(log_joint(nodes) + log_weights, 0)
        return torch.where(certain, self._log_prob(mean, y, size), log_prob)

    def _latent_gaussian(self, mean: ArrayInput, variance: ArrayInput, function: str) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the only latent, (n,)."""
        mean, variance = super()._latent_gaussian(mean, variance, function)
        return mean[:, 0], variance[:, 0]

    def _sizes(self, size: ArrayInput, n: int, function: str) -> Tensor:
        """Return one size for each row, from a number or a vector."""
        owner = self._owner(function)
        size = as_floats(size, name=self._size_name, owner=owner)
        if size.ndim == 0:
            size = size.expand(n)
        if size.shape != (n,):
            raise InvalidArgumentError(
                f"{self._size_name!r} of {owner} must be a number or one per row, {n} of them; got shape "
                f"{tuple(size.shape)}."
            )
        return size.double()


class PoissonLikelihood(CountLikelihood):
    r"""Counts of events as Gaussian observations of the logarithm of their rate.

    A count :math:`y` during an exposure :math:`e` and the prior :math:`\mathrm{Gamma}(\alpha_\epsilon, \beta_\epsilon)`
    on the rate give the posterior :math:`\mathrm{Gamma}(\alpha_\epsilon + y, \beta_\epsilon + e)`, matched in the log
    basis.

    Parameters
    ----------
    alpha_eps : float
        Shape of the prior: a number of events added to every count.
    beta_eps : float
        Rate of the prior: exposure without events, added to every exposure. The default, zero, leaves large counts
        unbiased.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        Method that chooses the Gaussian, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"gauss"`` is least
        squares on log((y + 1/2) / exposure), the usual baseline for counts.
    label_variance : float
        Variance of that logarithm for one unit of exposure, used by ``method="gauss"`` only.

    Examples
    --------
    >>> likelihood = PoissonLikelihood()
    >>> likelihood.encode([0, 3, 100], exposure=[1.0, 1.0, 50.0]).mean
    tensor([[-7.3026],
            [ 0.9701],
            [ 0.6892]])
    >>> likelihood.predict_mean([[0.0]], [[1.0]])
    tensor([1.6487], dtype=torch.float64)
    >>> likelihood.predict_proba([[0.0]], [[1.0]], max_count=3)
    tensor([[0.3818, 0.2589, 0.1449, 0.0807]], dtype=torch.float64)
    """

    _size_name = "exposure"

    @no_type_check
    def __init__(
        self,
        alpha_eps: float | Tensor = 0.1,
        beta_eps: float | Tensor = 0.0,
        method: LikelihoodMethodName | LikelihoodMethod = "variational",
        *,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__(alpha_eps, beta_eps, method, label_variance)

    def _prior(self) -> tuple[Tensor, Tensor]:
        return self._concentration("alpha_eps"), self._concentration("beta_eps", allow_zero=True)

    def encode(self, y: ArrayInput, exposure: ArrayInput = 1.0) -> PseudoTargets:
        """Return the Gaussian observations of the log-rate, (n, 1), for counts ``y`` (n,) during ``exposure``."""
        return self._encode(y, exposure)

    def log_prob(self, latents: ArrayInput, y: ArrayInput, exposure: ArrayInput = 1.0) -> Tensor:
        """Return the exact log-probability of the counts given log-rates ``latents`` (..., n, 1)."""
        return self._exact_log_prob(latents, y, exposure)

    def expected_log_prob(
        self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, exposure: ArrayInput = 1.0
    ) -> Tensor:
        r"""Return the expectation of ``log_prob`` under a Gaussian log-rate, (n,).

        .. math:: y(m + \log e) - e\,\exp(m + v/2) - \log y!
        """
        mean, variance = self._latent_gaussian(mean, variance, "expected_log_prob")
        y, exposure = self._counts_and_sizes(y, exposure, "expected_log_prob")
        check_same_rows(self._owner("expected_log_prob"), mean=mean, y=y)
        m, v = mean.double(), variance.double()
        value = y * (m + torch.log(exposure)) - exposure * torch.exp(m + 0.5 * v) - torch.lgamma(y + 1.0)
        return value.to(mean.dtype)

    def predict_mean(self, mean: ArrayInput, variance: ArrayInput, exposure: ArrayInput = 1.0) -> Tensor:
        r"""Return the expected count, :math:`e\,\exp(m + v/2)`, (n,)."""
        mean, variance = self._latent_gaussian(mean, variance, "predict_mean")
        return self._exposures(exposure, mean, "predict_mean") * torch.exp(mean + 0.5 * variance)

    def predict_proba(
        self, mean: ArrayInput, variance: ArrayInput, *, max_count: int, exposure: ArrayInput = 1.0
    ) -> Tensor:
        """Return the probability of each count 0, 1, ..., ``max_count``, (n, max_count + 1), without a graph."""
        max_count = check_count(max_count, name="max_count", owner=self._owner("predict_proba"), minimum=0)
        mean, variance = self._latent_gaussian(mean, variance, "predict_proba")
        return self._predictive_probs(mean, variance, self._exposures(exposure, mean, "predict_proba"), max_count)

    def predict_log_prob(
        self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, exposure: ArrayInput = 1.0
    ) -> Tensor:
        """Return the logarithm of the predictive probability of each count, (n,), without a graph."""
        return self._predictive_log_prob(mean, variance, y, exposure)

    def _exposures(self, exposure: ArrayInput, mean: Tensor, function: str) -> Tensor:
        sizes = self._sizes(exposure, mean.shape[0], function)
        if not bool((sizes > 0).all()):
            raise InvalidArgumentError(
                f"'exposure' of {self._owner(function)} must be positive; got {sizes.min().item():g}."
            )
        return sizes.to(mean)

    def _counts_and_sizes(self, y: ArrayInput, size: ArrayInput, function: str) -> tuple[Tensor, Tensor]:
        counts = as_whole_counts(y, name="y", owner=self._owner(function)).double()
        return counts, self._exposures(size, counts, function)

    def _match(self, y: Tensor, size: Tensor) -> Normal:
        alpha, beta = self._prior()
        posterior = Gamma(alpha + y.to(alpha.device), beta.to(alpha.device) + size.to(alpha.device))
        return match(posterior, MatchMethod(self.method))

    def _regression_mean(self, y: Tensor, size: Tensor) -> Tensor:
        return torch.log((y + 0.5) / size)

    def _log_prob(self, latent: Tensor, y: Tensor, size: Tensor) -> Tensor:
        log_rate = latent + torch.log(size)
        return y * log_rate - torch.exp(log_rate) - torch.lgamma(y + 1.0)

    def _peak(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        r"""Return the root of :math:`y - e\,\mathrm{e}^f - (f - m)/v`, by Wright's omega."""
        from scipy.special import wrightomega  # imported here, so that importing gaussify stays fast

        straight = mean + variance * y
        omega = wrightomega((straight + torch.log(variance * size)).cpu().numpy())
        return straight - torch.as_tensor(omega, dtype=mean.dtype, device=mean.device)


class BinomialLikelihood(CountLikelihood):
    r"""Successes of trials as Gaussian observations of the logit of their probability.

    :math:`y` successes of :math:`n` trials and the prior :math:`\mathrm{Beta}(\alpha_\epsilon, \beta_\epsilon)` on the
    probability give the posterior :math:`\mathrm{Beta}(\alpha_\epsilon + y, \beta_\epsilon + n - y)`, matched in the
    logit basis.

    Parameters
    ----------
    alpha_eps, beta_eps : float
        Concentrations of the prior for success and failure. ``beta_eps=None`` means ``alpha_eps``.
    method : {"variational", "moment", "laplace", "gauss"}
        Method that chooses the Gaussian, see :class:`~gaussify.likelihoods.LikelihoodMethod`. ``"gauss"`` is least
        squares on the share of successes. ``"moment-ori"`` is not defined for a Beta.
    label_variance : float
        Variance of one trial, used by ``method="gauss"`` only.

    Examples
    --------
    >>> likelihood = BinomialLikelihood()
    >>> likelihood.encode([0, 3, 10], n_trials=10).mean
    tensor([[-10.6046],
            [ -0.9201],
            [ 10.6046]])
    >>> likelihood.predict_proba([[0.0]], [[1.0]], n_trials=2)
    tensor([[0.2934, 0.4132, 0.2934]], dtype=torch.float64)
    """

    _size_name = "n_trials"
    _methods = BETA_METHODS

    @no_type_check
    def __init__(
        self,
        alpha_eps: float | Tensor = 0.1,
        beta_eps: float | Tensor | None = None,
        method: LikelihoodMethodName | LikelihoodMethod = "variational",
        *,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__(alpha_eps, beta_eps, method, label_variance)

    def _prior(self) -> tuple[Tensor, Tensor]:
        return self._concentration("alpha_eps"), self._concentration(
            "alpha_eps" if self.beta_eps is None else "beta_eps"
        )

    def encode(self, y: ArrayInput, n_trials: ArrayInput) -> PseudoTargets:
        """Return the Gaussian observations of the logit, (n, 1), for ``y`` (n,) successes of ``n_trials``."""
        return self._encode(y, n_trials)

    def log_prob(self, latents: ArrayInput, y: ArrayInput, n_trials: ArrayInput) -> Tensor:
        """Return the exact log-probability of the successes given logits ``latents`` (..., n, 1)."""
        return self._exact_log_prob(latents, y, n_trials)

    def expected_log_prob(self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, n_trials: ArrayInput) -> Tensor:
        r"""Return the expectation of ``log_prob`` under a Gaussian logit, (n,).

        .. math:: \log\binom{n}{y} + y m - n\,\mathbb{E}\log(1 + e^f)
        """
        mean, variance = self._latent_gaussian(mean, variance, "expected_log_prob")
        y, n_trials = self._counts_and_sizes(y, n_trials, "expected_log_prob")
        check_same_rows(self._owner("expected_log_prob"), mean=mean, y=y)
        m, v = mean.double(), variance.double()
        value = _log_binomial(n_trials, y) + y * m - n_trials * softplus_moment(0, m, v)
        return value.to(mean.dtype)

    def predict_mean(self, mean: ArrayInput, variance: ArrayInput, n_trials: ArrayInput = 1) -> Tensor:
        r"""Return the expected number of successes, :math:`n\,\mathbb{E}[\sigma(f)]`, (n,)."""
        mean, variance = self._latent_gaussian(mean, variance, "predict_mean")
        return self._trials(n_trials, mean, "predict_mean") * softplus_moment(1, mean, variance)

    def predict_proba(self, mean: ArrayInput, variance: ArrayInput, *, n_trials: ArrayInput) -> Tensor:
        """Return the probability of 0, 1, ... successes, (n, max(n_trials) + 1); zero for more than a row's trials."""
        mean, variance = self._latent_gaussian(mean, variance, "predict_proba")
        trials = self._trials(n_trials, mean, "predict_proba")
        given = as_floats(n_trials, name="n_trials", owner=self._owner("predict_proba"))
        most = int(given.max().item()) if given.numel() else 0
        probs = self._predictive_probs(mean, variance, trials, most)
        return torch.where(torch.arange(most + 1, device=mean.device) <= trials[:, None], probs, 0.0)

    def predict_log_prob(self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, n_trials: ArrayInput) -> Tensor:
        """Return the logarithm of the predictive probability of each number of successes, (n,), without a graph."""
        return self._predictive_log_prob(mean, variance, y, n_trials)

    def _trials(self, n_trials: ArrayInput, mean: Tensor, function: str) -> Tensor:
        sizes = self._sizes(n_trials, mean.shape[0], function)
        return as_whole_counts(sizes, name="n_trials", owner=self._owner(function)).to(mean)

    def _counts_and_sizes(self, y: ArrayInput, size: ArrayInput, function: str) -> tuple[Tensor, Tensor]:
        counts = as_whole_counts(y, name="y", owner=self._owner(function)).double()
        trials = self._trials(size, counts, function)
        if bool((counts > trials).any()):
            row = int((counts > trials).nonzero()[0].item())
            raise InvalidArgumentError(
                f"'y' of {self._owner(function)} must be at most 'n_trials'; got {counts[row].item():g} successes of "
                f"{trials[row].item():g} trials in row {row}."
            )
        return counts, trials

    def _match(self, y: Tensor, size: Tensor) -> Normal:
        alpha, beta = self._prior()
        y, size = y.to(alpha.device), size.to(alpha.device)
        posterior = Beta(alpha + y, beta.to(alpha.device) + size - y, validate_args=False)
        return match(posterior, MatchMethod(self.method))

    def _regression_mean(self, y: Tensor, size: Tensor) -> Tensor:
        if not bool((size > 0).all()):
            raise InvalidArgumentError(
                f"{self._owner('encode')} with method 'gauss' needs at least one trial in each row; row "
                f"{(size <= 0).nonzero()[0].item()} has none."
            )
        return y / size

    def _log_prob(self, latent: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return _log_binomial(size, y) + y * latent + size * logsigmoid(-latent)

    def _peak(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        r"""Return the root of :math:`y - n\,\sigma(f) - (f - m)/v`, by bisection."""
        low, high = mean - variance * (size - y).clamp_min(0.0), mean + variance * y
        for _ in range(80):
            middle = 0.5 * (low + high)
            rising = y - size * torch.sigmoid(middle) - (middle - mean) / variance > 0
            low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
        return 0.5 * (low + high)


def _log_binomial(n: Tensor, y: Tensor) -> Tensor:
    """Return the logarithm of the binomial coefficient for y <= n; for larger y a finite number without meaning."""
    return torch.lgamma(n + 1.0) - torch.lgamma(y + 1.0) - torch.lgamma((n - y).clamp_min(0.0) + 1.0)
