"""Kernels: any kernel of GPyTorch, or a common one by its name."""

import copy
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from jaxtyping import Float
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.gp._rows import SortedRows
from gaussify.likelihoods import PseudoTargets

# Prior of log-lengthscales. It spans five orders of magnitude, so it matters only where rows are few.
_PRIOR_SHIFT, _PRIOR_SCALE = 2.0**0.5, 3.0**0.5


class KernelName(StrEnum):
    """Names of kernels; all but the linear one are scaled and have a lengthscale for each feature."""

    RBF = "rbf"
    """Exponentiated quadratic: functions with all derivatives."""
    MATERN12 = "matern12"
    """Matérn 1/2: rough functions."""
    MATERN32 = "matern32"
    """Matérn 3/2: functions with one derivative."""
    MATERN52 = "matern52"
    """Matérn 5/2: functions with two derivatives."""
    LINEAR = "linear"
    """Linear functions."""


if TYPE_CHECKING:

    class _Kernel(Protocol):
        """A kernel of GPyTorch, which has no types: as ``Any``, it would hide misspelt names from mypy."""

        @property
        def batch_shape(self) -> torch.Size: ...

else:
    _Kernel = Kernel

KernelOption = _Kernel | Literal["rbf", "matern12", "matern32", "matern52", "linear"] | None
"""The ``kernel`` parameter of estimators."""


@no_type_check
def make_kernel(kernel: KernelOption, spread: Float[Tensor, " d"], variance: float, *, owner: str) -> Kernel:
    r"""Return the kernel in float64 with which a search begins.

    Parameters
    ----------
    kernel : None, name or gpytorch.kernels.Kernel
        None is ``"rbf"``. A kernel object is copied and keeps its parameters.
    spread : tensor of shape (d,)
        Standard deviation of each feature. A named kernel begins with lengthscales of :math:`\sqrt d` times that, about
        the distance between two rows, and has a broad log-normal prior of lengthscales [1]_.
    variance : float
        Approximate variance of a latent.
    owner : str
        Name of the estimator, for errors.

    References
    ----------
    .. [1] C. Hvarfner, E. Hellsten, L. Nardi, "Vanilla Bayesian optimization performs great in high dimensions",
       ICML 2024.

    Examples
    --------
    >>> make_kernel("rbf", torch.tensor([1.0, 2.0]).double(), 9.0, owner="example").base_kernel.lengthscale.tolist()
    [[1.41, 2.83]]
    """
    if isinstance(kernel, Kernel):
        if kernel.batch_shape != torch.Size():
            raise InvalidArgumentError(
                f"The 'kernel' parameter of {owner} must have no batch_shape; got {tuple(kernel.batch_shape)}. "
                "With shared_kernel=False, each class gets its own kernel."
            )
        own = copy.deepcopy(kernel).double()
        try:
            with torch.no_grad():
                shape = own(torch.eye(2, len(spread)).double()).to_dense().shape
            if shape != (2, 2):
                raise ValueError(f"its matrix of two rows has the shape {tuple(shape)}.")
        except (RuntimeError, IndexError, ValueError) as error:
            raise InvalidArgumentError(
                f"The 'kernel' parameter of {owner} must suit rows of {len(spread)} features; got a kernel that does "
                f"not: {error}"
            ) from None
        return own
    if kernel is not None and not isinstance(kernel, str):
        raise InvalidArgumentError(
            f"The 'kernel' parameter of {owner} must be a kernel of GPyTorch or the name of one; got {kernel!r}."
        )
    kind = "a kernel of GPyTorch"
    name = KernelName.RBF if kernel is None else check_option(kernel, KernelName, name="kernel", owner=owner, also=kind)
    positive = Positive(torch.exp, torch.log)  # L-BFGS works best if all parameters have one scale, as logarithms do
    d = len(spread)
    if name is KernelName.LINEAR:
        linear = LinearKernel(variance_constraint=positive).double()
        linear.initialize(variance=variance / float(spread.square().sum()))
        return linear
    prior = LogNormalPrior((_PRIOR_SHIFT + math.log(d) / 2.0) + spread.log(), torch.full_like(spread, _PRIOR_SCALE))
    options = {"ard_num_dims": d, "lengthscale_constraint": positive, "lengthscale_prior": prior}
    base = RBFKernel(**options) if name is KernelName.RBF else MaternKernel(_SMOOTHNESS[name], **options)
    scaled = ScaleKernel(base, outputscale_constraint=copy.deepcopy(positive)).double()
    scaled.initialize(outputscale=variance)
    scaled.base_kernel.initialize(lengthscale=d**0.5 * spread)
    return scaled


def add_log_priors(kernel: Kernel) -> float:
    """Return the log-density of a kernel's priors, and add its gradient to ``.grad`` of the kernel's parameters.

    Examples
    --------
    >>> add_log_priors(RBFKernel())
    0.0
    """
    terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in kernel.named_priors()]
    total = torch.stack(terms).sum() if terms else torch.zeros(())
    if total.requires_grad:
        total.backward()
    return total.item()


_SMOOTHNESS = {KernelName.MATERN12: 0.5, KernelName.MATERN32: 1.5, KernelName.MATERN52: 2.5}


def kernel_form(kernel: Kernel) -> list[list[str]]:
    """Return name and class of each module of a kernel: its form without its parameters.

    Examples
    --------
    >>> kernel_form(LinearKernel())[:2]
    [['', 'LinearKernel'], ['raw_variance_constraint', 'Positive']]
    """
    return [[name, type(module).__name__] for name, module in kernel.named_modules()]


def first_scales(rows: SortedRows, table: PseudoTargets) -> tuple[Float[Tensor, " d"], float]:
    """Return the standard deviation of each feature, and the variance of the targets.

    Examples
    --------
    >>> rows = SortedRows.of(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1]), n_classes=2)
    >>> first_scales(rows, PseudoTargets(torch.tensor([[-2.0], [2.0]]), torch.ones(2, 1)))
    (tensor([1.]), 4.0)
    """
    share = rows.weight / rows.weight.sum()
    spread = (share @ (rows.features - share @ rows.features).square()).sqrt()
    targets = table.mean[rows.labels]
    variance = float((share @ (targets - share @ targets).square()).mean())
    return torch.where(spread > 0.0, spread, 1.0), max(variance, 1e-2)
