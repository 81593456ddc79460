"""Options of a fit to a table. This file imports little, so that the command line shows defaults quickly."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

ModelName = Literal["auto", "linear", "gp"]


class ModelKind(StrEnum):
    """Kind of model to fit.

    Examples
    --------
    >>> [str(kind) for kind in ModelKind]
    ['auto', 'linear', 'gp']
    """

    AUTO = "auto"
    """The kind that predicts training rows set aside better."""
    LINEAR = "linear"
    """Bayesian logistic regression: closed form, a small model, any number of rows."""
    GP = "gp"
    """A sparse Gaussian process."""


class FitOptions(NamedTuple):
    """Options of a fit, with their defaults.

    Examples
    --------
    >>> FitOptions(model=ModelKind.LINEAR, ignored=["id"]).test_share
    0.2
    """

    model: ModelKind | ModelName = ModelKind.AUTO
    """Kind of model."""
    categories: Sequence[str] = ()
    """Columns whose numbers are names of categories."""
    ignored: Sequence[str] = ()
    """Columns to leave out."""
    test_share: float = 0.2
    """Share of the rows that are held out."""
    n_inducing: int = 200
    """Number of inducing points of a Gaussian process."""
    max_iter: int = 100
    """Largest number of iterations when a Gaussian process is fitted."""
    compare: bool = True
    """If true, scikit-learn's models are fitted to the same rows for comparison."""
    use_all: bool = False
    """If true, the model also learns the held-out rows after it has predicted them."""
    seed: int = 0
    """Seed of the split and of the fit."""
