"""What all likelihoods have in common: their parameters, and the checks of latents."""

import math
from abc import ABC
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from gaussify._validation import as_concentration, as_floats, check_option, check_same_rows
from gaussify.likelihoods._targets import LikelihoodMethod

BETA_METHODS = tuple(method for method in LikelihoodMethod if method is not LikelihoodMethod.MOMENT_ORI)
"""Methods for posteriors on the unit interval, which no log-normal can stand for."""


_FEW = 1 << 10  # numbers up to which Python checks them faster than torch


class Likelihood(ABC):
    """Labels or counts, seen as Gaussian observations of ``n_latents`` latents."""

    n_latents: int
    _parameters: tuple[str, ...]  # what the text of a likelihood shows
    _methods: Sequence[LikelihoodMethod] = tuple(LikelihoodMethod)

    def __init__(self, alpha_eps: Any, method: str, label_variance: Any) -> None:
        owner = type(self).__name__
        self.alpha_eps = alpha_eps
        self.method = check_option(method, LikelihoodMethod, name="method", owner=owner, allowed=self._methods)
        self.label_variance = as_concentration(label_variance, name="label_variance", owner=owner)

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self._parameters)
        shown = (f"{name}={str(value) if isinstance(value, StrEnum) else value!r}" for name, value in values)
        return f"{type(self).__name__}({', '.join(shown)})"

    def _owner(self, function: str) -> str:
        return f"{type(self).__name__}.{function}"

    def _concentration(self, name: str, *, sizes: Sequence[int] = (), allow_zero: bool = False) -> Tensor:
        """A parameter as a float64 tensor; derived on each use, so that what is learnt or set anew counts."""
        value = getattr(self, name)
        owner = type(self).__name__
        return as_concentration(value, name=name, owner=owner, sizes=sizes, allow_zero=allow_zero).double()

    def _latent_gaussian(self, mean: Any, variance: Any, function: str) -> tuple[Tensor, Tensor]:
        """Mean and variance of the latents (n, l), finite, of one dtype and on one device."""
        if _are_sound(mean, variance, self.n_latents):
            return mean, variance
        owner = self._owner(function)
        mean = as_floats(mean, name="mean", owner=owner, ndim=2, columns=self.n_latents)
        variance = as_floats(variance, name="variance", owner=owner, ndim=2, columns=self.n_latents, minimum=0.0)
        check_same_rows(owner, mean=mean, variance=variance)
        dtype = torch.promote_types(mean.dtype, variance.dtype)
        return mean.to(dtype), variance.to(mean.device, dtype)


def _are_sound(mean: Any, variance: Any, columns: int) -> bool:
    """Whether a few numbers, as a stream gives them, pass every check of latents as they are: in plain Python.

    Sums are finite where all numbers are; those that overflow are left to the closer look.
    """
    return (
        isinstance(mean, Tensor)
        and isinstance(variance, Tensor)
        and mean.ndim == 2
        and mean.shape == variance.shape
        and mean.shape[1] == columns
        and 0 < mean.numel() <= _FEW
        and mean.is_floating_point()
        and mean.dtype is variance.dtype
        and mean.device == variance.device
        and math.isfinite(sum(map(sum, mean.tolist())))
        and math.isfinite(sum(map(sum, rows := variance.tolist())))
        and min(map(min, rows)) >= 0.0
    )
