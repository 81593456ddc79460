"""What a file says about a model, part by part, and the parts again, checked."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaussify._estimators import Packed, expect, expect_numbers
from gaussify.likelihoods import LikelihoodMethod
from gaussify.linear._hyperparameters import Choice
from gaussify.linear._reservoir import Reservoir, ReservoirRows


def pack_choice(choice: Choice | None) -> Packed:
    """Return what was chosen automatically."""
    if choice is None:
        return Packed(None, {})
    config = {name: getattr(choice, name) for name in ("temperature", "dispersion", "score")}
    tensors = {"choice.alpha_eps": choice.alpha_eps, "choice.prior_variance": choice.prior_variance}
    return Packed({"method": str(choice.method), **config}, tensors)


def unpack_choice(config: dict[str, Any], tensors: dict[str, Tensor]) -> Choice | None:
    """Return the choice again; it must suit the statistics."""
    saved = config["choice"]
    if saved is None:
        return None
    choice = Choice(
        LikelihoodMethod(saved["method"]),
        tensors["choice.alpha_eps"],
        float(saved["temperature"]),
        tensors["choice.prior_variance"],
        float(saved.get("dispersion", 1.0)),  # which the first files lack
        saved["score"],
    )
    expect(0.0 < choice.temperature < math.inf, "temperature is positive")
    expect(0.0 < choice.dispersion < math.inf, "dispersion is positive")
    n_classes, n_features = tensors["feature_sum"].shape
    expect_numbers(choice.alpha_eps, (n_classes,) if choice.alpha_eps.ndim else (), "alpha_eps", positive=True)
    expect_numbers(choice.prior_variance, (n_features,), "prior_variance", positive=True)
    return choice


def pack_reservoir(reservoir: Reservoir | None) -> Packed:
    """Return the rows that are kept, and what they were drawn by."""
    if reservoir is None:
        return Packed(None, {})
    config = {"size": reservoir.size, "seed": reservoir.seed, "log_limit": reservoir.present_log_limit}
    arrays = reservoir.rows()._asdict()
    return Packed(config, {f"reservoir.{name}": torch.from_numpy(_signed(array)) for name, array in arrays.items()})


def unpack_reservoir(config: dict[str, Any], tensors: dict[str, Tensor], classes: NDArray) -> Reservoir | None:
    """Return the reservoir again."""
    saved = config["reservoir"]
    if saved is None:
        return None
    n_features = int(config["n_features"])
    reservoir = Reservoir(int(saved["size"]), seed=int(saved["seed"]), n_features=n_features)
    reservoir.set_classes(classes)
    rows = {name: tensors[f"reservoir.{name}"] for name in ReservoirRows._fields}
    n = len(rows["key"])
    expect_numbers(rows["features"], (n, n_features), "rows")
    expect_numbers(rows["weight"], (n,), "weights of rows", positive=True)
    expect_numbers(rows["log_rank"], (n,), "ranks of rows")
    expect(rows["labels"].shape == rows["key"].shape == (n,), "rows have labels")
    arrays = {name: tensor.numpy() for name, tensor in rows.items()}
    expect(bool(np.isin(arrays["labels"], range(len(classes))).all()), "labels are known")
    arrays |= {"labels": arrays["labels"].astype(np.int64), "key": arrays["key"].view(np.uint64)}
    reservoir.restore(ReservoirRows(**arrays), float(saved["log_limit"]))
    return reservoir


def _signed(array: NDArray) -> NDArray:
    """Safetensors of torch know no unsigned integers."""
    return array.view(np.int64) if array.dtype == np.uint64 else np.ascontiguousarray(array)
