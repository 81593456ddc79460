"""The Dirichlet distribution through the independent Gammas it is made of (section 3.2 of the paper)."""

from torch.distributions import Dirichlet, Gamma, Independent

from gaussify.matching._methods import MatchMethod
from gaussify.matching._registry import match, register_match


def _register(method: MatchMethod) -> None:
    @register_match(Dirichlet, method)
    def _dirichlet(distribution: Dirichlet) -> Independent:
        r"""Match :math:`\omega_k \sim \mathrm{Gamma}(\alpha_k, 1)` each in the log basis.

        :math:`\pi_k = \omega_k / \sum_j \omega_j` is the Dirichlet, and the softmax of :math:`\psi = \log\omega`.
        """
        concentration = distribution.concentration
        return Independent(match(Gamma(concentration, concentration.new_ones(())), method), 1)


for _method in MatchMethod:
    _register(_method)
