"""The Dirichlet distribution, matched through the independent Gammas it consists of (section 3.2 of the paper)."""

from torch.distributions import Dirichlet, Gamma, Independent

from gaussify.matching._methods import MatchMethod
from gaussify.matching._registry import match, register_match


def _register(method: MatchMethod) -> None:
    @register_match(Dirichlet, method)
    def _dirichlet(distribution: Dirichlet) -> Independent:
        r"""Match each :math:`\omega_k \sim \mathrm{Gamma}(\alpha_k, 1)` in the log basis.

        Then :math:`\pi_k = \omega_k / \sum_j \omega_j`, the softmax of :math:`\psi = \log\omega`, is the Dirichlet.
        """
        concentration = distribution.concentration
        return Independent(match(Gamma(concentration, concentration.new_ones(())), method), 1)


for _method in MatchMethod:
    _register(_method)
