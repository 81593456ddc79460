"""The base class of all likelihoods: their parameters, and the checks of latents."""

import math
from abc import ABC
from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor

from gaussify._typing import no_type_check
from gaussify._validation import ArrayInput, as_concentration, as_floats, check_option, check_same_rows
from gaussify.likelihoods._targets import LikelihoodMethod, LikelihoodMethodName

BETA_METHODS = tuple(method for method in LikelihoodMethod if method is not LikelihoodMethod.MOMENT_ORI)
"""Methods for posteriors on the unit interval, where no log-normal can match moments."""

_FEW = 1 << 10  # so many numbers, and fewer, Python checks faster than torch


class Likelihood(ABC):
    """Labels or counts as Gaussian observations of ``n_latents`` latents."""

    n_latents: int
    _parameters: tuple[str, ...]  # names of those that ``repr`` shows
    _methods: Sequence[LikelihoodMethod] = tuple(LikelihoodMethod)

    @no_type_check
    def __init__(
        self, alpha_eps: ArrayInput, method: LikelihoodMethodName | LikelihoodMethod, label_variance: float | Tensor
    ) -> None:
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
        """Return a parameter as a float64 tensor; computed on each use, so that a learnt or changed value counts."""
        value = getattr(self, name)
        owner = type(self).__name__
        return as_concentration(value, name=name, owner=owner, sizes=sizes, allow_zero=allow_zero).double()

    def _latent_gaussian(self, mean: ArrayInput, variance: ArrayInput, function: str) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the latents (n, l): finite, of one dtype and on one device."""
        if isinstance(mean, Tensor) and isinstance(variance, Tensor) and _are_sound(mean, variance, self.n_latents):
            return mean, variance
        owner = self._owner(function)
        mean = as_floats(mean, name="mean", owner=owner, ndim=2, columns=self.n_latents)
        variance = as_floats(variance, name="variance", owner=owner, ndim=2, columns=self.n_latents, minimum=0.0)
        check_same_rows(owner, mean=mean, variance=variance)
        dtype = torch.promote_types(mean.dtype, variance.dtype)
        return mean.to(dtype), variance.to(mean.device, dtype)


def _are_sound(mean: Tensor, variance: Tensor, columns: int) -> bool:
    """Return True if a few numbers, as a stream gives them, pass every check of latents: in plain Python, for speed.

    A finite sum proves that all numbers are finite. Large numbers whose sum overflows are left to the full check.
    """
    return (
        mean.ndim == 2
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
