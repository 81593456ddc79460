"""The base class of likelihoods of class labels."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput, as_floats, as_labels, check_count, check_option, check_same_rows
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods._base import Likelihood
from gaussify.likelihoods._predictive import PredictiveMethod, PredictiveName
from gaussify.likelihoods._targets import LikelihoodMethod, PseudoTargets, target_dtype

_METHODS = {str(method): method for method in PredictiveMethod}  # a single row has no time for check_option


class ProbabilityUncertainty(NamedTuple):
    """How certain class probabilities are, given Gaussian latents.

    Examples
    --------
    >>> from gaussify import SoftmaxLikelihood
    >>> uncertainty = SoftmaxLikelihood(3).predict_uncertainty([[2.0, 0.0, 0.0]], [[4.0, 4.0, 4.0]])
    >>> uncertainty.probs
    tensor([[0.5865, 0.2068, 0.2068]], dtype=torch.float64)
    >>> uncertainty.std
    tensor([[0.3411, 0.2697, 0.2697]], dtype=torch.float64)
    >>> [round(entropy.item(), 4) for entropy in uncertainty[2:]]  # total, aleatoric, epistemic
    [0.9647, 0.5297, 0.4350]
    """

    probs: Float[Tensor, "n c"]
    """Expected class probabilities."""
    std: Float[Tensor, "n c"]
    """Standard deviation of each class probability."""
    total_entropy: Float[Tensor, " n"]
    """Entropy of the expected probabilities."""
    aleatoric_entropy: Float[Tensor, " n"]
    """Expected entropy of the label given the latents: the part that would remain if the latents were known."""
    epistemic_entropy: Float[Tensor, " n"]
    """The difference, the mutual information of label and latents (BALD): the part that more data could remove."""


class ExpectedLogProb(NamedTuple):
    r"""Expectation E of the log-probability of labels under Gaussian latents, and its derivatives.

    By the identities of Bonnet and Price, they are the expected gradient and the expected curvature of the
    log-probability itself.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood
    >>> expected = LogisticLikelihood().expected_derivatives([[0.0]], [[0.0]], [1])
    >>> [round(float(part), 4) for part in expected[:3]]
    [-0.6931, 0.5, 0.25]
    """

    value: Float[Tensor, " n"]
    gradient: Float[Tensor, "n l"]
    """Derivative of E by the mean of each latent."""
    curvature: Float[Tensor, "n l"]
    """Minus twice the derivative of E by the variance of each latent; never negative."""
    coupling: Float[Tensor, "n l"] | None = None
    r"""Vectors h for which :math:`\mathrm{diag}(h \sum_l h_l) - hh^\top` is about the whole curvature matrix.

    None for a single latent, which couples with nothing.
    """


class ClassLikelihood(Likelihood):
    """Labels of ``n_classes`` classes as Gaussian observations of ``n_latents`` latents.

    Examples
    --------
    >>> from gaussify import LogisticLikelihood, SoftmaxLikelihood
    >>> [issubclass(likelihood, ClassLikelihood) for likelihood in (LogisticLikelihood, SoftmaxLikelihood)]
    [True, True]
    """

    n_classes: int

    @abstractmethod
    def _match_counts(self, counts: Tensor) -> PseudoTargets:
        """Return the Gaussians for float64 counts (n, c) by the chosen way of matching."""

    @abstractmethod
    def _regression_means(self, shares: Tensor) -> Tensor:
        """Return the means (n, l) for least squares on the labels, from the share (n, c) of each class."""

    @abstractmethod
    def _log_prob_of_counts(self, latents: Tensor, counts: Tensor) -> Tensor:
        """Return the exact log-probability of counts (n, c) given latents (*s, n, l)."""

    @abstractmethod
    def _expected_log_prob_of_counts(self, mean: Tensor, variance: Tensor, counts: Tensor) -> Tensor:
        """Return the expectation of the exact log-probability of counts (n, c)."""

    @abstractmethod
    def _expected_moments(self, mean: Tensor, variance: Tensor, *, rough: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return expectations for one label: its probabilities and slopes of the latents (n, l), and normaliser (n,).

        A label of the class of latent l has the log-probability :math:`f_l` less the normaliser, whose expected first
        and second derivatives by the latents are the other two.
        """

    @abstractmethod
    def _regressors(self, counts: Tensor) -> Tensor:
        """Return the part (n, l) of counts (n, c) by which the latents enter the log-probability linearly."""

    @abstractmethod
    def _probs(self, mean: Tensor, variance: Tensor, method: PredictiveMethod, n_samples: int, seed: int) -> Tensor:
        """Return class probabilities (n, c) for Gaussian latents (n, l)."""

    def target_table(self) -> PseudoTargets:
        """Return the mean and variance that a label of each class gives every latent, (n_classes, n_latents).

        For hard labels, ``encode`` returns rows of this table.
        """
        return self._encode_counts(torch.eye(self.n_classes, dtype=torch.float64), target_dtype(self.alpha_eps))

    def encode(self, y: ArrayInput) -> PseudoTargets:
        """Return the Gaussian observations of the latents that replace the labels ``y``, (n, n_latents).

        Parameters
        ----------
        y : array-like
            Class indices of shape (n,), or counts of shape (n, n_classes). Counts need not be whole numbers: a soft
            label is a row of counts that sum to one, and k equal labels of a row are a count of k.
        """
        labels = self._labels_or_counts(y, "encode")
        if labels.ndim == 1:
            mean, variance = self.target_table()
            return PseudoTargets(mean[labels.to(mean.device)], variance[labels.to(mean.device)])
        return self._encode_counts(labels.double(), target_dtype(self.alpha_eps, y))

    def log_prob(self, latents: ArrayInput, y: ArrayInput) -> Tensor:
        """Return the exact log-probability of labels or counts ``y`` given ``latents`` (..., n, n_latents).

        For counts it is the sum over their labels, without the multinomial coefficient, which is constant in the
        latents.
        """
        owner = self._owner("log_prob")
        latents = as_floats(latents, name="latents", owner=owner, columns=self.n_latents, min_ndim=2)
        counts = self._counts(y, latents, "log_prob", name="latents")
        return self._log_prob_of_counts(latents, counts)

    def expected_log_prob(self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput) -> Tensor:
        """Return the expectation of ``log_prob`` under independent Gaussian latents, (n,).

        It is deterministic, and differentiable by ``mean`` and ``variance``. Variational bounds on the evidence use
        it.
        """
        mean, variance = self._latent_gaussian(mean, variance, "expected_log_prob")
        return self._expected_log_prob_of_counts(
            mean, variance, self._counts(y, mean, "expected_log_prob", name="mean")
        )

    def expected_derivatives(
        self, mean: ArrayInput, variance: ArrayInput, y: ArrayInput, *, rough: bool = False
    ) -> ExpectedLogProb:
        r"""Return the expectation of ``log_prob`` under independent Gaussian latents, and its derivatives.

        The log-probability of counts c is :math:`\sum_l c_l f_l - (\sum_k c_k) A(f)` with the log-normaliser A. So
        the gradient is :math:`c_l - (\sum_k c_k)\,\mathbb{E}[\partial_l A]`, and the curvature
        :math:`(\sum_k c_k)\,\mathbb{E}[\partial_l^2 A]`. They are computed by quadrature, without a graph. With
        ``rough``, those of three classes and more have errors of about 0.01, and take a fifth of the time.
        """
        mean, variance = self._latent_gaussian(mean, variance, "expected_derivatives")
        counts = self._counts(y, mean, "expected_derivatives", name="mean")
        own, total = self._regressors(counts), counts.sum(-1, keepdim=True)
        probs, slope, normaliser = self._expected_moments(mean, variance, rough=rough)
        value, slope = (own * mean).sum(-1) - total[:, 0] * normaliser, slope.clamp_min(0.0)
        coupling = None
        if self.n_latents > 1:  # with the trace of the expected curvature matrix
            trace = (probs * (1.0 - probs)).sum(-1, keepdim=True).clamp_min(torch.finfo(probs.dtype).tiny)
            share = (slope.sum(-1, keepdim=True) / trace).clamp_max(1.0)  # more is rounding, in certain rows
            coupling = (total * share).sqrt() * probs
        return ExpectedLogProb(value, own - total * probs, total * slope, coupling)

    @no_type_check
    def predict_proba(
        self,
        mean: ArrayInput,
        variance: ArrayInput,
        method: PredictiveName | PredictiveMethod = "quadrature",
        *,
        n_samples: int = 256,
        seed: int = 0,
    ) -> Tensor:
        """Return the probability of each class given independent Gaussian latents, (n, n_classes).

        Probabilities are differentiable by ``mean`` and ``variance``. Those of a row depend on that row alone.

        Parameters
        ----------
        mean, variance : array-like of shape (n, n_latents)
            Mean and variance of the latents.
        method : {"quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"}
            Method that computes the probabilities, see :class:`~gaussify.likelihoods.PredictiveMethod`.
        n_samples, seed : int
            Number of samples and seed for ``"monte-carlo"``.
        """
        owner = self._owner("predict_proba")
        chosen = _METHODS.get(method) if isinstance(method, str) else None
        chosen = chosen or check_option(method, PredictiveMethod, name="method", owner=owner)
        n_samples = check_count(n_samples, name="n_samples", owner=owner)
        seed = check_count(seed, name="seed", owner=owner, minimum=0) % 2**63
        return self._probs(*self._latent_gaussian(mean, variance, "predict_proba"), chosen, n_samples, seed)

    @abstractmethod
    def predict_uncertainty(self, mean: ArrayInput, variance: ArrayInput) -> ProbabilityUncertainty:
        """Return the standard deviation of each probability and the split of the predictive entropy."""

    @abstractmethod
    def row_probs(self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]) -> Float[np.ndarray, " c"]:
        """Return ``predict_proba`` of one row by quadrature, in NumPy and without checks, as streams need it."""

    @abstractmethod
    def row_moments(
        self, mean: Float[np.ndarray, " l"], variance: Float[np.ndarray, " l"]
    ) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
        """Return the expected probabilities of the latents' classes and their slopes for one row, without checks.

        For a label, ``expected_derivatives`` has the difference from these probabilities as gradient, and these slopes
        as curvature.
        """

    def _encode_counts(self, counts: Tensor, dtype: torch.dtype) -> PseudoTargets:
        if self.method is LikelihoodMethod.GAUSS:
            total = counts.sum(-1, keepdim=True)
            if not bool((total > 0).all()):
                raise InvalidArgumentError(
                    f"{self._owner('encode')} with method 'gauss' needs at least one count in each row; row "
                    f"{(total[:, 0] <= 0).nonzero()[0].item()} has none."
                )
            mean = self._regression_means(counts / total)
            targets = PseudoTargets(mean, (self.label_variance.double() / total).expand_as(mean))
        else:
            targets = self._match_counts(counts)
        return PseudoTargets(*(tensor.to(dtype) for tensor in targets))

    def _labels_or_counts(self, y: ArrayInput, function: str) -> Tensor:
        """Return labels (n,) or counts (n, n_classes)."""
        if not hasattr(y, "shape"):
            y = as_floats(y, name="y", owner=self._owner(function))
        shape = tuple(y.shape)
        if len(shape) == 1:
            return as_labels(y, n_classes=self.n_classes, owner=self._owner(function))
        if len(shape) != 2:
            raise InvalidArgumentError(
                f"'y' of {self._owner(function)} must be labels of shape (n,) or counts of shape "
                f"(n, {self.n_classes}); got shape {shape}."
            )
        return as_floats(y, name="y", owner=self._owner(function), columns=self.n_classes, minimum=0.0)

    def _counts(self, y: ArrayInput, like: Tensor, function: str, *, name: str) -> Tensor:
        """Return counts (n, n_classes) for the rows of ``like``, the argument called ``name``."""
        y = self._labels_or_counts(y, function)
        check_same_rows(self._owner(function), **{name: like.movedim(-2, 0), "y": y})
        if y.ndim == 1:
            y = torch.nn.functional.one_hot(y, self.n_classes)
        return y.to(like)


def entropy_split(probs: Tensor, variance: Tensor, aleatoric: Tensor, dtype: torch.dtype) -> ProbabilityUncertainty:
    r"""Return the uncertainty, from :math:`\mathbb{E}[p]`, :math:`\mathrm{Var}[p]` and :math:`\mathbb{E}[H(p)]`.

    Rounding errors are clamped: variances and entropies are at least zero, and the expected entropy is at most the
    entropy of the expectation.
    """
    total = torch.special.entr(probs).sum(-1).clamp_min(0.0)
    aleatoric = torch.minimum(aleatoric.clamp_min(0.0), total)
    std = variance.clamp_min(0.0).sqrt()
    return ProbabilityUncertainty(*(x.to(dtype) for x in (probs, std, total, aleatoric, total - aleatoric)))
