"""Calibration of the most probable class: the numbers of a reliability diagram, and the expected calibration error."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import as_predictions, check_count, check_option

BinConfidenceName = Literal["mean", "midpoint"]
"""Names of the members of :class:`BinConfidence`."""


class BinConfidence(StrEnum):
    """Definition of the confidence of a bin in :func:`ece`.

    Examples
    --------
    >>> [str(option) for option in BinConfidence]
    ['mean', 'midpoint']
    """

    MEAN = "mean"
    """The mean confidence of the bin's rows."""
    MIDPOINT = "midpoint"
    """The middle of the bin, as in Milios et al. (2018)."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence and accuracy of the most probable class, per bin of confidence.

    Bins are closed on the right, ``(edge[b], edge[b + 1]]``; the first also holds 0.

    Parameters
    ----------
    bin_edges : array of shape (n_bins + 1,)
        Edges of the bins, equally spaced from 0 to 1.
    mean_confidence : array of shape (n_bins,)
        Mean confidence of the rows in each bin; nan for an empty bin.
    accuracy : array of shape (n_bins,)
        Share of rows in each bin whose most probable class is the true one; nan for an empty bin.
    count : array of shape (n_bins,)
        Number of rows in each bin.

    Examples
    --------
    >>> bins = reliability([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]], [0, 0, 0], n_bins=5)
    >>> bins.count
    array([0, 0, 0, 2, 1])
    >>> bins.ece()
    0.2
    """

    bin_edges: Float64[np.ndarray, " edges"]
    mean_confidence: Float64[np.ndarray, " bins"]
    accuracy: Float64[np.ndarray, " bins"]
    count: Int64[np.ndarray, " bins"]

    @no_type_check
    def ece(self, *, confidence: BinConfidenceName | BinConfidence = "mean") -> float:
        """Return the expected calibration error of these bins, as the function :func:`ece` defines it."""
        option = check_option(confidence, BinConfidence, name="confidence", owner="ece")
        midpoint = (self.bin_edges[:-1] + self.bin_edges[1:]) / 2
        per_bin = self.mean_confidence if option is BinConfidence.MEAN else midpoint
        gap = np.abs(self.accuracy - per_bin)
        occupied = self.count > 0
        return float(np.average(gap[occupied], weights=self.count[occupied]))


def reliability(probs: ArrayLike | Tensor, y: ArrayLike | Tensor, n_bins: int = 15) -> Reliability:
    r"""Return accuracy and mean confidence of the most probable class in bins of equal width.

    With confidence :math:`q_i = \max_k p_{ik}` and :math:`B_b` the :math:`n_b` rows with
    :math:`q_i \in (\frac{b - 1}{B}, \frac{b}{B}]`,

    .. math:: a_b = \frac{1}{n_b} \sum_{i \in B_b} \mathbb{1}[\arg\max_k p_{ik} = y_i], \qquad
              c_b = \frac{1}{n_b} \sum_{i \in B_b} q_i.

    Parameters
    ----------
    probs : array-like or tensor of shape (n, n_classes)
        Class probabilities, each row summing to one.
    y : array-like or tensor of shape (n,)
        True class indices, from 0 to ``n_classes - 1``.
    n_bins : int, default=15
        Number of bins that divide [0, 1]. They are closed on the right, and the first also holds 0.

    Returns
    -------
    Reliability
        Numbers of a reliability diagram, which :class:`gaussify.plotting.ReliabilityDisplay` draws.

    Examples
    --------
    >>> bins = reliability([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1]], [0, 0, 0], n_bins=4)
    >>> bins.mean_confidence.tolist()
    [nan, nan, 0.65, 0.9]
    >>> bins.accuracy.tolist()
    [nan, nan, 0.5, 1.0]
    """
    return _bin(probs, y, n_bins, owner="reliability")


def _bin(probs: ArrayLike | Tensor, y: ArrayLike | Tensor, n_bins: int, *, owner: str) -> Reliability:
    n_bins = check_count(n_bins, name="n_bins", owner=owner)
    p, labels = (tensor.numpy() for tensor in as_predictions(probs, y, owner=owner))
    confidence = p.max(axis=1)
    correct = p.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    index = np.searchsorted(edges[1:-1], confidence, side="left")  # a value on an edge belongs to the bin below
    count = np.bincount(index, minlength=n_bins)

    def mean_per_bin(values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " bins"]:
        total = np.bincount(index, weights=values, minlength=n_bins)
        return np.divide(total, count, out=np.full(n_bins, np.nan), where=count > 0)

    return Reliability(edges, mean_per_bin(confidence), mean_per_bin(correct.astype(np.float64)), count)


@no_type_check
def ece(
    probs: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    n_bins: int = 15,
    *,
    confidence: BinConfidenceName | BinConfidence = "mean",
) -> float:
    r"""Return the expected calibration error of the most probable class.

    It is the mean distance between accuracy :math:`a_b` and confidence :math:`c_b` over the bins of
    :func:`reliability`, weighted by their :math:`n_b` rows [1]_,

    .. math:: \sum_b \frac{n_b}{n} |a_b - c_b|.

    Parameters
    ----------
    probs : array-like or tensor of shape (n, n_classes)
        Class probabilities, each row summing to one.
    y : array-like or tensor of shape (n,)
        True class indices, from 0 to ``n_classes - 1``.
    n_bins : int, default=15
        Number of bins that divide [0, 1]. They are closed on the right, and the first also holds 0.
    confidence : {"mean", "midpoint"}, default="mean"
        Definition of :math:`c_b`: the mean confidence of the bin's rows, or the middle of the bin as in [2]_. With
        ``"midpoint"`` even perfect predictions have an error of half a bin's width.

    Returns
    -------
    float
        A number from 0 to 1; lower is better.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Weinberger, "On calibration of modern neural networks", ICML 2017.
    .. [2] D. Milios, R. Camoriano, P. Michiardi, L. Rosasco and M. Filippone, "Dirichlet-based Gaussian
       processes for large-scale calibrated classification", NeurIPS 2018.

    Examples
    --------
    >>> probs = [[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]]
    >>> ece(probs, [0, 0, 0], n_bins=5)
    0.2
    >>> ece(probs, [0, 0, 0], n_bins=5, confidence="midpoint")
    0.1667
    """
    return _bin(probs, y, n_bins, owner="ece").ece(confidence=confidence)
