"""Scores of class probabilities against the true classes."""

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from gaussify._validation import as_predictions


def nll(probs: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float:
    r"""Return the mean negative log-probability of the true class, in nats.

    .. math:: -\frac{1}{n} \sum_{i=1}^{n} \log p_{i, y_i}

    Nothing is clipped: one true class with probability zero makes the score infinite.

    Parameters
    ----------
    probs : array-like or tensor of shape (n, n_classes)
        Class probabilities, each row summing to one.
    y : array-like or tensor of shape (n,)
        True class indices, from 0 to ``n_classes - 1``.

    Returns
    -------
    float
        A number of at least 0; lower is better.

    Examples
    --------
    >>> nll([[0.5, 0.5], [0.1, 0.9]], [0, 1])
    0.39925
    >>> nll([[0.0, 1.0]], [0])
    inf
    """
    p, labels = (tensor.numpy() for tensor in as_predictions(probs, y, owner="nll"))
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer here
        return float(-np.log(p[np.arange(len(p)), labels]).mean())


def accuracy(probs: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float:
    r"""Return the share of rows whose most probable class is the true one.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \mathbb{1}[\arg\max_k p_{ik} = y_i]

    If several classes are equally probable, the first of them is the prediction.

    Parameters
    ----------
    probs : array-like or tensor of shape (n, n_classes)
        Class probabilities, each row summing to one.
    y : array-like or tensor of shape (n,)
        True class indices, from 0 to ``n_classes - 1``.

    Returns
    -------
    float
        A number from 0 to 1; higher is better.

    Examples
    --------
    >>> accuracy([[0.8, 0.2], [0.1, 0.9], [0.6, 0.4]], [0, 1, 1])
    0.6667
    """
    p, labels = (tensor.numpy() for tensor in as_predictions(probs, y, owner="accuracy"))
    return float((p.argmax(axis=1) == labels).mean())


def brier(probs: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float:
    r"""Return the Brier score in its original form, summed over the classes.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \sum_{k} (p_{ik} - \mathbb{1}[y_i = k])^2

    This is Brier's definition [1]_. For two classes it is twice the score of the second class alone.

    Parameters
    ----------
    probs : array-like or tensor of shape (n, n_classes)
        Class probabilities, each row summing to one.
    y : array-like or tensor of shape (n,)
        True class indices, from 0 to ``n_classes - 1``.

    Returns
    -------
    float
        A number from 0 to 2; lower is better.

    References
    ----------
    .. [1] G. W. Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather
       Review 78, 1950.

    Examples
    --------
    >>> brier([[0.8, 0.2], [0.1, 0.9]], [0, 1])
    0.05
    """
    p, labels = (tensor.numpy() for tensor in as_predictions(probs, y, owner="brier"))
    return float(np.square(p - np.eye(p.shape[1])[labels]).sum(axis=1).mean())
