"""The basis in which a distribution is matched: its variable, transformed to the real line."""

import torch
from torch.distributions import (
    Dirichlet,
    Distribution,
    ExpTransform,
    Gamma,
    Independent,
    TransformedDistribution,
    biject_to,
    constraints,
)

from gaussify._validation import check_distribution
from gaussify.exceptions import UnsupportedMatchError


def to_basis(distribution: Distribution) -> TransformedDistribution:
    r"""Return the distribution of :math:`\psi = g(\omega)`: the density that :func:`match` approximates.

    .. math:: p_\psi(\psi) = p_\omega(g^{-1}(\psi)) \left| \partial g^{-1}(\psi) / \partial\psi \right|

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Exponential
    >>> to_basis(Exponential(torch.tensor(1.0))).log_prob(torch.tensor(0.0))  # psi - exp(psi) at 0
    tensor(-1.)
    """
    distribution = check_distribution(distribution, owner="to_basis")
    if isinstance(distribution, Dirichlet):
        gammas = Gamma(distribution.concentration, distribution.concentration.new_ones(()))
        return TransformedDistribution(Independent(gammas, 1), [ExpTransform().inv])
    if distribution.event_shape:
        base = distribution.base_dist if isinstance(distribution, Independent) else None
        if base is None or base.event_shape:
            raise UnsupportedMatchError(
                f"{type(distribution).__name__} is multivariate: only Dirichlet and Independent are supported."
            )
    support = support_of(distribution)
    try:
        transform = biject_to(support)
    except NotImplementedError:
        raise UnsupportedMatchError(
            f"{type(distribution).__name__} has no basis on the real line: its support is {support}, not an interval "
            "or a half line of the reals."
        ) from None
    return TransformedDistribution(distribution, [transform.inv])


def support_of(distribution: Distribution) -> constraints.Constraint | None:
    """Return the support in its simplest form.

    That of a mixture is the support of its parts, and an interval without an upper end is a half line.
    """
    support = getattr(distribution.support, "base_constraint", distribution.support)
    if isinstance(support, constraints.interval) and bool(torch.isinf(torch.as_tensor(support.upper_bound)).all()):
        return constraints.greater_than_eq(support.lower_bound)
    return support
