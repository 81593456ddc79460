"""The four ways to choose a Gaussian for a density on the real line."""

from enum import StrEnum
from typing import Literal

MethodName = Literal["laplace", "variational", "moment", "moment-ori"]
"""Names of the members of :class:`MatchMethod`."""


class MatchMethod(StrEnum):
    r"""How :math:`q = \mathcal{N}(\mu, \sigma^2)` is fitted to the density :math:`p` in the transformed basis.

    Members are strings, so ``"laplace"`` and ``MatchMethod.LAPLACE`` mean the same.

    Examples
    --------
    >>> [str(method) for method in MatchMethod]
    ['laplace', 'variational', 'moment', 'moment-ori']
    """

    LAPLACE = "laplace"
    r"""Mode and curvature: :math:`\mu = \arg\max \log p`, :math:`\sigma^{-2} = -(\log p)''(\mu)`."""
    VARIATIONAL = "variational"
    r"""The minimiser of :math:`\mathrm{KL}(q \,\|\, p)`."""
    MOMENT = "moment"
    r"""The minimiser of :math:`\mathrm{KL}(p \,\|\, q)`: mean and variance of :math:`p`."""
    MOMENT_ORI = "moment-ori"
    r"""The log-normal with the mean and variance that the distribution has in its standard basis."""
