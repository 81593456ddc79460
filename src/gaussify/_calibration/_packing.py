"""A choice as a part of a model file, and the choice again, checked."""

import math
from typing import Any

from torch import Tensor

from gaussify._calibration._choice import Choice
from gaussify._estimators import Packed, expect, expect_numbers
from gaussify.likelihoods import LikelihoodMethod


def pack_choice(choice: Choice | None) -> Packed:
    """Return what a file holds of a choice; None is a model that has not chosen yet."""
    if choice is None:
        return Packed(None, {})
    config: dict[str, Any] = {"method": str(choice.method), "temperature": choice.temperature, "score": choice.score}
    tensors = {"choice.alpha_eps": choice.alpha_eps}
    if choice.prior_variance.numel():
        config["dispersion"] = choice.dispersion
        tensors["choice.prior_variance"] = choice.prior_variance
    if choice.offset is not None:
        tensors["choice.offset"] = choice.offset
    return Packed(config, tensors)


def unpack_choice(
    config: dict[str, Any], tensors: dict[str, Tensor], n_classes: int, n_weights: int | None = None
) -> Choice | None:
    """Return the choice that ``pack_choice`` packed.

    Parameters
    ----------
    config, tensors : dict
        What the file holds.
    n_classes : int
        Number of classes of the model.
    n_weights : int, optional
        Number of weights of each latent, for linear models.
    """
    saved = config["choice"]
    if saved is None:
        return None
    choice = Choice(
        LikelihoodMethod(saved["method"]),
        tensors["choice.alpha_eps"],
        float(saved["temperature"]),
        saved["score"],
        dispersion=float(saved.get("dispersion", 1.0)),  # the first files lack it
    )
    expect(0.0 < choice.temperature < math.inf, "temperature is positive")
    expect(0.0 < choice.dispersion < math.inf, "dispersion is positive")
    expect_numbers(choice.alpha_eps, (n_classes,) if choice.alpha_eps.ndim else (), "alpha_eps", positive=True)
    if n_weights is not None:
        choice = choice._replace(prior_variance=tensors["choice.prior_variance"])
        expect_numbers(choice.prior_variance, (n_weights,), "prior_variance", positive=True)
        offset = tensors.get("choice.offset")
        if offset is not None:
            n_latents = 1 if n_classes == 2 and offset.shape == (1,) else n_classes
            expect_numbers(offset, (n_latents,), "offset")
            choice = choice._replace(offset=offset)
    return choice
