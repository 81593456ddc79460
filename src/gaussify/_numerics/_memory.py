"""Large tensors, in memory that is fast to use for the first time."""

import os

import numpy as np
import torch
from torch import Tensor

NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def large_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
    """Return zeros; on the CPU, in huge pages if the system has them.

    NumPy asks the system for huge pages, and torch does not. Without them, the first pass over hundreds of megabytes
    costs as much as the arithmetic on them.

    Examples
    --------
    >>> large_zeros((2,), torch.float64)
    tensor([0., 0.], dtype=torch.float64)
    """
    if torch.device(device or "cpu").type == "cpu" and dtype in NUMPY_DTYPES:
        return torch.from_numpy(np.zeros(shape, dtype=NUMPY_DTYPES[dtype]))
    return torch.zeros(shape, dtype=dtype, device=device)


def installed_memory() -> int | None:
    """Return the memory of this machine in bytes; None where the system does not say it.

    Examples
    --------
    >>> memory = installed_memory()
    >>> memory is None or memory > 0
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # sysconf is not everywhere, and not all names are
        return None
