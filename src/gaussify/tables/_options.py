"""How to fit a table. Light, so that the command line can show defaults without loading what fits."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class ModelKind(StrEnum):
    """What to fit.

    Examples
    --------
    >>> [str(kind) for kind in ModelKind]
    ['auto', 'linear', 'gp']
    """

    AUTO = "auto"
    """Whichever predicts rows better that neither has seen."""
    LINEAR = "linear"
    """Bayesian logistic regression: in closed form, small, for any number of rows."""
    GP = "gp"
    """A sparse Gaussian process."""


class FitOptions(NamedTuple):
    """How to fit, and the one place of the defaults.

    Examples
    --------
    >>> FitOptions(model=ModelKind.LINEAR, ignored=["id"]).test_share
    0.2
    """

    model: ModelKind | str = ModelKind.AUTO
    categories: Sequence[str] = ()
    ignored: Sequence[str] = ()
    test_share: float = 0.2
    """Of the rows that are held out."""
    n_inducing: int = 200
    max_iter: int = 100
    compare: bool = True
    """Whether to fit others to the same rows."""
    use_all: bool = False
    """Whether rows held out are learnt in the end, once they have been predicted."""
    seed: int = 0
