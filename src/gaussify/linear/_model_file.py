"""Reservoir and refined sites as parts of a model file, and both again, checked."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaussify._calibration import pack_choice, unpack_choice
from gaussify._estimators import Packed, expect, expect_numbers
from gaussify.linear._refinement import RefinedSites, SiteSum
from gaussify.linear._reservoir import Reservoir, ReservoirRows
from gaussify.posterior import GaussianPosterior, NaturalParameters


def pack_reservoir(reservoir: Reservoir | None) -> Packed:
    """Return what a file holds of a reservoir: its rows, its size and its seed."""
    if reservoir is None:
        return Packed(None, {})
    arrays = reservoir.rows()._asdict()
    limits = {"log_limit": reservoir.present_log_limit.tolist(), "quota": reservoir.quota}
    config = {"size": reservoir.size, "seed": reservoir.seed, **limits}
    return Packed(config, {f"reservoir.{name}": torch.from_numpy(_signed(array)) for name, array in arrays.items()})


def unpack_reservoir(config: dict[str, Any], tensors: dict[str, Tensor], classes: NDArray) -> Reservoir | None:
    """Return the reservoir that ``pack_reservoir`` packed."""
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
    log_limit = np.array(saved["log_limit"], dtype=np.float64)  # the first files have one for all classes
    expect(log_limit.shape in ((), classes.shape), "there is a limit of ranks for each class")
    quota = float(saved.get("quota", math.inf))
    expect(quota >= 0.0, "quota is a number of rows")
    reservoir.restore(ReservoirRows(**arrays), np.broadcast_to(log_limit, classes.shape).copy(), quota)
    return reservoir


def _signed(array: NDArray) -> NDArray:
    """Return the array with signed integers, as safetensors has no unsigned ones for torch."""
    return array.view(np.int64) if array.dtype == np.uint64 else np.ascontiguousarray(array)


def pack_refined(refined: RefinedSites | None) -> Packed:
    """Return what a file holds of refined sites: their sum, the choice, and where the sites were made."""
    if refined is None:
        return Packed(None, {})
    choice, natural = pack_choice(refined.choice), refined.total.natural
    tensors = {"precision": natural.precision, "linear": natural.linear, **choice.tensors}
    if refined.reference is not None:
        tensors |= {"reference.mean": refined.reference.mean, "reference.root": refined.reference.root}
    # copies, as a file may not hold one tensor under two names
    return Packed(choice.config, {f"refined.{name}": tensor.clone() for name, tensor in tensors.items()})


def unpack_refined(
    config: dict[str, Any], tensors: dict[str, Tensor], n_classes: int, n_weights: int
) -> RefinedSites | None:
    """Return the refined sites that ``pack_refined`` packed; files of versions without them hold none."""
    saved = config.get("refined")
    if saved is None:
        return None
    own = {name.removeprefix("refined."): part for name, part in tensors.items() if name.startswith("refined.")}
    choice = unpack_choice({"choice": saved}, own, n_classes, n_weights)
    assert choice is not None
    n_latents = len(own["linear"])
    expect(n_latents in (1, n_classes), "there is a site for each latent")
    expect_numbers(own["precision"], (n_latents, n_weights, n_weights), "precisions of sites")
    expect_numbers(own["linear"], (n_latents, n_weights), "linear terms of sites")
    reference = None
    if "reference.mean" in own:
        expect_numbers(own["reference.mean"], (n_latents, n_weights), "means of weights")
        expect_numbers(own["reference.root"], (n_latents, n_weights, n_weights), "roots of covariances")
        reference = GaussianPosterior(own["reference.mean"], own["reference.root"])
    natural = NaturalParameters(own["precision"], own["linear"], torch.zeros(n_latents, dtype=torch.float64))
    return RefinedSites(SiteSum(natural), choice, reference)
