r"""The kernel between rows and inducing points, and the way back from derivatives by it to those by its parameters.

Any kernel of GPyTorch goes by automatic differentiation. The scaled RBF kernel, the default, has a closed form, which
is several times faster: with :math:`\tilde x = x/\ell`,

.. math:: k(x, z) = \sigma^2\exp\big(\tilde x^\top\tilde z - \tfrac12|\tilde x|^2 - \tfrac12|\tilde z|^2\big)

is one matrix product and one exponential, and with :math:`W = \bar K \circ K`, :math:`r = W\mathbf{1}`,
:math:`c = W^\top\mathbf{1}` and :math:`V = W^\top\tilde X`,

.. math::
    \bar Z_{jd} &= \frac{V_{jd} - c_j\tilde z_{jd}}{\ell_d}, \\
    \bar\ell_d &= \frac1{\ell_d}\Big(\sum_i r_i\tilde x_{id}^2
    - 2\sum_jV_{jd}\tilde z_{jd} + \sum_jc_j\tilde z_{jd}^2\Big), \\
    \overline{\sigma^2} &= \frac{\mathbf{1}^\top c}{\sigma^2} + \sum_i\bar k(x_i, x_i).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import suits_numpy


class CrossBlock(NamedTuple):
    """The kernel of a few rows: with the inducing points, and of each row with itself.

    Examples
    --------
    >>> CrossBlock(torch.ones(3, 2), torch.ones(3)).matrix.shape
    torch.Size([3, 2])
    """

    matrix: Float[Tensor, "n m"]
    variance: Float[Tensor, " n"]


class CrossKernel(ABC):
    """k(X, Z) of a few rows at a time, for given kernel parameters and inducing points."""

    n_elements: int
    """Of the matrix that are best computed at a time."""

    @abstractmethod
    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        """Return the block of some rows, which can be pulled back if it is to be ``differentiable``."""

    @abstractmethod
    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> None:
        """Take derivatives by a block; ``by_matrix`` may be overwritten."""

    @abstractmethod
    def finish(self) -> None:
        """Add all that was pulled back to ``.grad`` of kernel parameters and inducing points."""


def cross_kernel(kernel: Kernel, points: Float[Tensor, "m d"]) -> CrossKernel:
    """Return the fastest way for a kernel.

    Examples
    --------
    >>> points = torch.zeros(2, 3).double()
    >>> [type(cross_kernel(kernel.double(), points)).__name__ for kernel in (ScaleKernel(RBFKernel()), RBFKernel())]
    ['RBFCross', 'AutogradCross']
    """
    plain = (
        type(kernel) is ScaleKernel
        and type(kernel.base_kernel) is RBFKernel
        and kernel.active_dims is None
        and kernel.base_kernel.active_dims is None
        and kernel.batch_shape == kernel.base_kernel.batch_shape == torch.Size()
    )
    return RBFCross(kernel, points) if plain and suits_numpy(points.detach()) else AutogradCross(kernel, points)


class AutogradCross(CrossKernel):
    """By automatic differentiation.

    Examples
    --------
    >>> kernel, points = RBFKernel().double(), torch.zeros(1, 1).double()
    >>> AutogradCross(kernel, points)(torch.ones(1, 1).double(), differentiable=False).variance
    tensor([1.], dtype=torch.float64)
    """

    n_elements = 1 << 22

    def __init__(self, kernel: Kernel, points: Float[Tensor, "m d"]) -> None:
        self._kernel, self._points = kernel, points

    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        with torch.set_grad_enabled(differentiable):
            return CrossBlock(self._kernel(rows, self._points).to_dense(), self._kernel(rows, diag=True))

    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> None:
        _backward({block.matrix: by_matrix, block.variance: by_variance})

    def finish(self) -> None:
        """Everything is there already."""


class RBFCross(CrossKernel):
    """The scaled RBF kernel, with one lengthscale or one for each feature, in closed form and in NumPy.

    Examples
    --------
    >>> kernel, points = ScaleKernel(RBFKernel()).double(), torch.zeros(1, 1).double()
    >>> kernel.initialize(outputscale=2.0).base_kernel.initialize(lengthscale=1.0)
    RBFKernel(...)
    >>> RBFCross(kernel, points)(torch.ones(1, 1).double(), differentiable=False).matrix  # 2 exp(-1/2)
    tensor([[1.2131]], dtype=torch.float64)
    """

    n_elements = 1 << 19  # which stay in the cache

    def __init__(self, kernel: ScaleKernel, points: Float[Tensor, "m d"]) -> None:
        self._lengthscale, self._outputscale = kernel.base_kernel.lengthscale, kernel.outputscale
        self._points = points
        array = points.detach().numpy()
        self._scale = self._lengthscale.detach().numpy()[0].astype(array.dtype)
        self._variance = self._outputscale.detach().item()
        self._centre = array.mean(0)  # distances do not change, and rounding errors of large numbers become small
        self._z = (array - self._centre) / self._scale
        m, d = array.shape
        constant = np.log(self._variance) - 0.5 * np.square(self._z).sum(1)
        self._right = np.vstack([self._z.T, constant, np.ones(m)]).astype(array.dtype)
        self._sums = np.zeros((m, d + 1), array.dtype)  # V and c
        self._squares = np.zeros(d, array.dtype)
        self._by_variance = 0.0

    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        matrix = self._left(rows) @ self._right
        np.exp(matrix, out=matrix)
        return CrossBlock(torch.from_numpy(matrix), rows.new_full((len(rows),), self._variance))

    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> None:
        left, d = self._left(rows), rows.shape[1]
        W = by_matrix.numpy()
        W *= block.matrix.numpy()
        self._sums += W.T @ left[:, : d + 1]
        self._squares += W.sum(1) @ np.square(left[:, :d])
        self._by_variance += by_variance.sum().item()

    def finish(self) -> None:
        V, c = self._sums[:, :-1], self._sums[:, -1]
        by_points = (V - c[:, None] * self._z) / self._scale
        by_scale = (self._squares - 2.0 * (V * self._z).sum(0) + c @ np.square(self._z)) / self._scale
        _backward(
            {
                self._lengthscale: torch.from_numpy(by_scale)[None].sum_to_size(self._lengthscale.shape),
                self._outputscale: self._outputscale.new_tensor(c.sum() / self._variance + self._by_variance),
                self._points: torch.from_numpy(by_points),
            }
        )

    def _left(self, rows: Float[Tensor, "n d"]) -> Float[np.ndarray, "n e"]:
        """Scaled rows, a one, and minus half their squared norm."""
        n, d = rows.shape
        left = np.empty((n, d + 2), self._z.dtype)
        scaled = left[:, :d]
        np.subtract(rows.numpy(), self._centre, out=scaled)
        scaled /= self._scale
        left[:, d] = 1.0
        left[:, d + 1] = -0.5 * np.einsum("nd,nd->n", scaled, scaled)
        return left


def _backward(gradients: dict[Tensor, Tensor]) -> None:
    """Pull derivatives by some tensors back, those that have a graph."""
    wanted = {tensor: gradient for tensor, gradient in gradients.items() if tensor.requires_grad}
    if wanted:
        torch.autograd.backward(list(wanted), list(wanted.values()))
