"""``match``, and the table of closed forms in which it looks first."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from torch.distributions import Dirichlet, Distribution, Independent, Normal

from gaussify._typing import no_type_check
from gaussify._validation import check_distribution, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.matching._basis import to_basis
from gaussify.matching._methods import MatchMethod, MethodName
from gaussify.matching._numerical import match_numerically

_AnyRule = Callable[[Any], Normal | Independent]  # from a distribution of one class
Rule = TypeVar("Rule", bound=_AnyRule)

_RULES: dict[tuple[type[Distribution], MatchMethod], _AnyRule] = {}


@overload
def match(  # type: ignore[overload-overlap]
    distribution: Dirichlet | Independent, method: MethodName | MatchMethod = ...
) -> Independent: ...
@overload
def match(distribution: Distribution, method: MethodName | MatchMethod = ...) -> Normal: ...
@no_type_check
def match(distribution: Distribution, method: MethodName | MatchMethod = "variational") -> Normal | Independent:
    r"""Return the Gaussian that approximates ``distribution`` in its basis.

    The basis is the logarithm for distributions on the positive reals and the logit for those on the unit interval,
    shifted and scaled to the support. So :math:`\psi = g(\omega)` takes values on the whole real line.

    Parameters
    ----------
    distribution : torch.distributions.Distribution
        Gamma, Exponential, Chi2, Weibull, HalfNormal, InverseGamma, LogNormal, Beta and Dirichlet have closed forms
        (``"variational"`` for Beta is solved by Newton's method). Any other continuous univariate distribution is
        matched numerically. Parameters may have any batch shape, dtype and device, and gradients flow to them.
    method : {"variational", "moment", "laplace", "moment-ori"}
        Method that chooses the Gaussian, see :class:`~gaussify.matching.MatchMethod`.

    Returns
    -------
    torch.distributions.Normal
        A normal with the batch shape of ``distribution``. For a Dirichlet or an ``Independent`` it is an
        ``Independent`` of normals. Those of a Dirichlet approximate K log-Gammas whose softmax is the Dirichlet.

    References
    ----------
    .. [1] T. D. Bui, "Likelihood approximations via Gaussian approximate inference", 2024, sections 3.2, 3.3
       and appendix A.
    .. [2] D. Milios et al., "Dirichlet-based Gaussian processes for large-scale calibrated classification", 2018.
    .. [3] M. Hobbhahn, P. Hennig, "Laplace matching for fast approximate inference in latent Gaussian models",
       2022.

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Beta, Dirichlet, Gamma
    >>> approximation = match(Gamma(torch.tensor([0.5, 2.0]), torch.tensor(1.0)))
    >>> approximation.mean, approximation.variance
    (tensor([-1.6931,  0.4431]), tensor([2.0000, 0.5000]))
    >>> match(Beta(torch.tensor(1.1), torch.tensor(0.1)), "moment").mean
    tensor(10.0000)
    >>> match(Dirichlet(torch.tensor([1.1, 0.1, 0.1])), "laplace").mean
    tensor([ 0.0953, -2.3026, -2.3026])
    """
    distribution = check_distribution(distribution, owner="match")
    chosen = check_option(method, MatchMethod, name="method", owner="match")
    if isinstance(distribution, Independent):
        return Independent(match(distribution.base_dist, chosen), distribution.reinterpreted_batch_ndims)
    for family in type(distribution).__mro__:
        if (rule := _RULES.get((family, chosen))) is not None:
            return rule(distribution)
    return match_numerically(distribution, to_basis(distribution), chosen)


@no_type_check
def register_match(family: type[Distribution], method: MethodName | MatchMethod) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a function from a distribution of ``family`` to its Normal, for one method.

    It works like :func:`torch.distributions.register_kl`. The rule of the most specific class wins, and every rule
    takes precedence over numerical matching.

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Normal, Uniform
    >>> class Coin(Uniform):
    ...     pass
    >>> @register_match(Coin, "moment")
    ... def _coin_moment(distribution: Coin) -> Normal:
    ...     return Normal(0.0, torch.pi / 3.0**0.5)
    >>> match(Coin(0.0, 1.0), "moment").variance
    tensor(3.2899)
    """
    if not (isinstance(family, type) and issubclass(family, Distribution)):
        raise InvalidArgumentError(f"register_match takes a class of torch distributions; got {family!r}.")
    chosen = check_option(method, MatchMethod, name="method", owner="register_match")

    def register(rule: Rule) -> Rule:
        _RULES[family, chosen] = rule
        return rule

    return register


def registered_matches() -> set[tuple[type[Distribution], MatchMethod]]:
    """Return every (family, method) that has a rule; the tests walk the set so that no rule goes untested."""
    return set(_RULES)
