"""Latents of a row given all other rows, without fitting again."""

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify.likelihoods import PseudoTargets


def leave_one_out(
    mean: Float[Tensor, "n l"],
    variance: Float[Tensor, "n l"],
    targets: PseudoTargets,
    sample_weight: Float[Tensor, " n"] | None = None,
) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
    r"""Return mean and variance of the latents of each row, given all rows but that one.

    The posterior of all rows gives a row the latent mean m and variance s. Without its own observation :math:`(y, v)`
    they would be

    .. math:: s_- = \frac{s}{1 - s/v}, \qquad m_- = \frac{m - (s/v)\,y}{1 - s/v}.

    A weight w below one turns v into v / w. A row with a weight above one counts as several equal rows, of which one is
    left out.

    Examples
    --------
    >>> targets = PseudoTargets(torch.tensor([[2.0]]), torch.tensor([[1.0]]))
    >>> leave_one_out(torch.tensor([[1.0]]), torch.tensor([[0.5]]), targets)  # of prior N(0, 1)
    (tensor([[0.]]), tensor([[1.]]))
    """
    precision = 1.0 / targets.variance
    if sample_weight is not None:
        precision = precision * sample_weight.clamp_max(1.0)[:, None]
    leverage = variance * precision
    # rounding may raise the leverage of a row that alone determines a direction to one
    rest = (1.0 - leverage).clamp_min(torch.finfo(mean.dtype).eps)
    return (mean - leverage * targets.mean) / rest, variance / rest
