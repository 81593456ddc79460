r"""The kernel between rows and inducing points, and the pull-back of derivatives to its parameters and the points.

Any kernel of GPyTorch works, by automatic differentiation. The scaled RBF kernel, which is the default, has a closed
form that is several times faster: with :math:`\tilde x = x/\ell`,

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
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from gaussify._numerics import product


class CrossBlock(NamedTuple):
    """The kernel of a few rows with the inducing points, and of each row with itself.

    Examples
    --------
    >>> CrossBlock(torch.ones(3, 2), torch.ones(3)).matrix.shape
    torch.Size([3, 2])
    """

    matrix: Float[Tensor, "n m"]
    variance: Float[Tensor, " n"]


class CrossKernel(ABC):
    """k(X, Z) for a few rows X at a time, with given kernel parameters and inducing points."""

    n_elements: int
    """Best size of a block, in elements."""
    n_kept: int
    """Largest matrix of all rows, in elements, whose blocks are kept for the pull-back."""
    in_threads: bool
    """True if several threads may compute and pull back blocks at the same time."""

    @abstractmethod
    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        """Return the block of some rows; only a ``differentiable`` one can be pulled back."""

    @abstractmethod
    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> Any:
        """Return the contribution of a block to the gradient, for :meth:`add`; ``by_matrix`` may be overwritten."""

    @abstractmethod
    def add(self, pulled: Any) -> None:
        """Add the contribution of one block."""

    @abstractmethod
    def finish(self) -> None:
        """Add all contributions to ``.grad`` of kernel parameters and inducing points."""


def cross_kernel(kernel: Kernel, points: Float[Tensor, "m d"]) -> CrossKernel:
    """Return the closed form where the kernel has one, otherwise automatic differentiation.

    Examples
    --------
    >>> points = torch.zeros(2, 3).double()
    >>> [type(cross_kernel(kernel.double(), points)).__name__ for kernel in (ScaleKernel(RBFKernel()), RBFKernel())]
    ['RBFCross', 'AutogradCross']
    """
    is_scaled_rbf = (
        type(kernel) is ScaleKernel
        and type(kernel.base_kernel) is RBFKernel
        and kernel.active_dims is None
        and kernel.base_kernel.active_dims is None
        and kernel.batch_shape == kernel.base_kernel.batch_shape == torch.Size()
    )
    return RBFCross(kernel, points) if is_scaled_rbf else AutogradCross(kernel, points)


class AutogradCross(CrossKernel):
    """Any kernel, by automatic differentiation.

    Examples
    --------
    >>> kernel, points = RBFKernel().double(), torch.zeros(1, 1).double()
    >>> AutogradCross(kernel, points)(torch.ones(1, 1).double(), differentiable=False).variance
    tensor([1.], dtype=torch.float64)
    """

    n_elements = 1 << 20
    n_kept = 1 << 21  # its graph is ten times the size
    in_threads = False  # GPyTorch changes a kernel while it is evaluated

    def __init__(self, kernel: Kernel, points: Float[Tensor, "m d"]) -> None:
        self._kernel, self._points = kernel, points

    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        with torch.set_grad_enabled(differentiable):
            # Kernels shift both by the mean of the first, which must not depend on the other rows: points go first.
            return CrossBlock(self._kernel(self._points, rows).to_dense().mT, self._kernel(rows, diag=True))

    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> dict[Tensor, Tensor]:
        return {block.matrix: by_matrix, block.variance: by_variance}

    def add(self, pulled: dict[Tensor, Tensor]) -> None:
        _backward(pulled)

    def finish(self) -> None:
        """Do nothing: ``add`` has added everything."""


class RBFCross(CrossKernel):
    """The scaled RBF kernel, with one lengthscale or one for each feature, in closed form.

    Examples
    --------
    >>> kernel, points = ScaleKernel(RBFKernel()).double(), torch.zeros(1, 1).double()
    >>> kernel.initialize(outputscale=2.0).base_kernel.initialize(lengthscale=1.0)
    RBFKernel(...)
    >>> RBFCross(kernel, points)(torch.ones(1, 1).double(), differentiable=False).matrix  # 2 exp(-1/2)
    tensor([[1.2131]], dtype=torch.float64)
    """

    n_elements = 1 << 18  # a block stays in the cache, and leaves work for several threads
    n_kept = 1 << 24
    in_threads = True

    def __init__(self, kernel: ScaleKernel, points: Float[Tensor, "m d"]) -> None:
        self._lengthscale, self._outputscale, self._points = kernel.base_kernel.lengthscale, kernel.outputscale, points
        self._scale = self._lengthscale.detach()[0]
        self._variance = self._outputscale.detach()
        self._centre = points.detach().mean(0)  # a shift changes no distance, and reduces rounding errors
        self._z = (points.detach() - self._centre) / self._scale
        constant = self._variance.log() - 0.5 * self._z.square().sum(1)
        self._right = torch.cat([self._z.mT, constant[None], torch.ones_like(constant)[None]])
        self._sums = torch.zeros_like(self._right[:-1].mT)  # V and c
        self._squares = torch.zeros_like(self._z[0])
        self._by_variance = torch.zeros_like(self._variance)

    @torch.no_grad()
    def __call__(self, rows: Float[Tensor, "n d"], *, differentiable: bool) -> CrossBlock:
        exponent = product(self._left(rows), self._right)
        exponent.clamp_max_(self._variance.log())  # rounding may exceed it, billions of lengthscales away
        return CrossBlock(exponent.exp_(), self._variance.expand(len(rows)))

    @torch.no_grad()
    def pull_back(
        self,
        rows: Float[Tensor, "n d"],
        block: CrossBlock,
        by_matrix: Float[Tensor, "n m"],
        by_variance: Float[Tensor, " n"],
    ) -> tuple[Float[Tensor, "m e"], Float[Tensor, " d"], Float[Tensor, ""]]:
        left, d = self._left(rows), rows.shape[1]
        W = by_matrix.mul_(block.matrix)
        return product(W.mT, left[:, : d + 1]), W.sum(1) @ left[:, :d].square(), by_variance.sum()

    def add(self, pulled: tuple[Float[Tensor, "m e"], Float[Tensor, " d"], Float[Tensor, ""]]) -> None:
        sums, squares, by_variance = pulled
        self._sums += sums
        self._squares += squares
        self._by_variance += by_variance

    def finish(self) -> None:
        V, c = self._sums[:, :-1], self._sums[:, -1]
        by_scale = (self._squares - 2.0 * (V * self._z).sum(0) + c @ self._z.square()) / self._scale
        _backward(
            {
                self._lengthscale: by_scale[None].sum_to_size(self._lengthscale.shape),
                self._outputscale: c.sum() / self._variance + self._by_variance,
                self._points: (V - c[:, None] * self._z) / self._scale,
            }
        )

    def _left(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Return scaled rows, a one, and minus half their squared norm."""
        n, d = rows.shape
        left = rows.new_ones(n, d + 2)
        scaled = torch.sub(rows, self._centre, out=left[:, :d]).div_(self._scale)
        left[:, d + 1] = -0.5 * scaled.square().sum(1)
        return left


def _backward(gradients: dict[Tensor, Tensor]) -> None:
    """Pull derivatives back through the graphs of the tensors that have one."""
    wanted = {tensor: gradient for tensor, gradient in gradients.items() if tensor.requires_grad}
    if wanted:
        torch.autograd.backward(list(wanted), list(wanted.values()))
