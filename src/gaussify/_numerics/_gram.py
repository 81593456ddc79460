"""The product of a matrix with its own transpose, of which one half is enough."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics._special import is_constant


def add_moments_(
    total: Float[Tensor, " d"],
    gram: Float[Tensor, "d d"],
    rows: Float[Tensor, "n d"],
    weight: Float[Tensor, " n"] | None = None,
) -> None:
    r"""Add :math:`\sum_i w_i \phi_i` to ``total`` and :math:`\sum_i w_i \phi_i\phi_i^\top` to ``gram``, in place.

    NumPy sees that a matrix meets its own transpose and computes one triangle, in half of the time of torch.

    Examples
    --------
    >>> import torch
    >>> total, gram = torch.zeros(2), torch.zeros(2, 2)
    >>> add_moments_(total, gram, torch.tensor([[1.0, 2.0]]), torch.tensor([3.0]))
    >>> total.tolist(), gram.tolist()
    ([3.0, 6.0], [[3.0, 6.0], [6.0, 12.0]])
    """
    if not (gram.is_cpu and is_constant(total, gram, rows)):
        total.addmv_(rows.mT, rows.new_ones(len(rows)) if weight is None else weight)
        gram.addmm_(rows.mT, rows if weight is None else rows * weight[:, None])
        return
    array, factor = rows.numpy(), np.ones(len(rows), rows.numpy().dtype) if weight is None else weight.numpy()
    sums, squares = total.numpy(), gram.numpy()
    sums += factor.dot(array)
    squares += np.matmul(array.T, array if weight is None else array * factor[:, None])
