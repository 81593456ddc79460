"""What the posterior would say about a row that it had not seen, without fitting again."""

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
    r"""Return the latents of rows, each without the rows' own observation.

    The posterior gives a row the latent mean m and variance s; with its own observation :math:`(y, v)` taken out
    (v divided by the weight of the row, where that is below one; of a row of more weight, which stands for several that
    are equal, one is taken out) it would have given

    .. math:: s_- = \frac{s}{1 - s/v}, \qquad m_- = \frac{m - (s/v)\,y}{1 - s/v}.

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
    # rounding may take the leverage of a row that decides a direction alone up to one
    rest = (1.0 - leverage).clamp_min(torch.finfo(mean.dtype).eps)
    return (mean - leverage * targets.mean) / rest, variance / rest
