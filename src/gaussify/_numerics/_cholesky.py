"""Cholesky factors of matrices that rounding may have left short of positive definite."""

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
    """Return the lower Cholesky factor, after adding as little to the diagonal as makes it exist.

    What is added is relative to the diagonal, only to the matrices of the batch that need it, and never silent: a
    :class:`~gaussify.exceptions.JitterWarning` names the amount. Beyond 1e-4 of the diagonal it is a
    :class:`~gaussify.exceptions.NumericalError`.

    Examples
    --------
    >>> stable_cholesky(torch.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    failed = info != 0
    # of the lower triangle, which alone is read, NaN and infinities make it fail, but on the diagonal infinities stay
    if not bool(failed.any()) and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
        return factor
    if not bool(torch.isfinite(matrix).all()):
        raise NumericalError("A matrix that is to be factorised holds infinities or NaN; are the inputs of sane scale?")
    # a diagonal of zeros would stay zero in relative terms
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(matrix.dtype).tiny)
    relative, failing = torch.zeros_like(info, dtype=matrix.dtype), failed
    for jitter in _JITTERS:
        relative = torch.where(failing, jitter, relative)
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(relative[..., None] * diagonal))
        failing = info != 0
        if not bool(failing.any()):
            message = (
                f"{int(failed.sum())} of {failed.numel()} matrices were not positive definite; up to {jitter:g} of the "
                "diagonal was added to them. Columns that are nearly multiples of each other, or a prior that is too "
                "broad, can be the cause."
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
    """Collect what would be a :class:`~gaussify.exceptions.JitterWarning`, in the threads of this one's work as well.

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
