"""Cholesky factors of matrices that rounding may have made indefinite."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor

from gaussify.exceptions import JitterWarning, NumericalError

_noted: ContextVar[list[str] | None] = ContextVar("_noted", default=None)
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # relative to the diagonal


def stable_cholesky(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """Return the lower Cholesky factor, after adding as little jitter to the diagonal as it needs.

    Jitter is relative to the diagonal, and only those matrices of the batch get it that need it. It is never silent: a
    :class:`~gaussify.exceptions.JitterWarning` names the amount. A matrix that needs more than 1e-4 of its diagonal
    raises a :class:`~gaussify.exceptions.NumericalError`.

    Examples
    --------
    >>> stable_cholesky(torch.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    failed = info != 0
    # NaN and infinities in the lower triangle, which alone is read, make it fail, but infinities on the diagonal pass
    if not bool(failed.any()) and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
        return factor
    if not bool(torch.isfinite(matrix).all()):
        raise NumericalError("A matrix to be factorised holds infinities or NaN. Are the inputs of moderate size?")
    # relative jitter would leave a diagonal of zeros as it is
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(matrix.dtype).tiny)
    relative, failing = torch.zeros_like(info, dtype=matrix.dtype), failed
    for jitter in _JITTERS:
        relative = torch.where(failing, jitter, relative)
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(relative[..., None] * diagonal))
        failing = info != 0
        if not bool(failing.any()):
            message = (
                f"{int(failed.sum())} of {failed.numel()} matrices were not positive definite; up to {jitter:g} of the "
                "diagonal was added to them. Possible causes are columns that are nearly multiples of each other, or a "
                "prior that is too broad."
            )
            noted = _noted.get()
            if noted is None:
                warnings.warn(message, JitterWarning, stacklevel=2)
            else:
                noted.append(message)
            return factor
    raise NumericalError(
        f"A matrix is not positive definite, even with {_JITTERS[-1]:g} of its diagonal added; its smallest eigenvalue "
        f"is {torch.linalg.eigvalsh(matrix).min().item():g}."
    )


@contextmanager
def noting_jitter() -> Iterator[list[str]]:
    """Collect the messages of :class:`~gaussify.exceptions.JitterWarning` in a list, also those of worker threads.

    Examples
    --------
    >>> with noting_jitter() as noted:
    ...     factor = stable_cholesky(torch.ones(2, 2).double())
    >>> len(noted)
    1
    """
    noted: list[str] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
