"""Gaussian process models as parts of a model file, and the parts again, checked."""

import copy
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gaussify._calibration import Choice, LabelParameters
from gaussify._estimators import Packed, expect, expect_numbers, unpack_statistics
from gaussify.gp._kernels import kernel_form
from gaussify.gp._models import ExactModel, InducingFeatures, LatentModel, SparseModel
from gaussify.gp._refinement import RefinedGP, options_of
from gaussify.gp._rows import SortedRows
from gaussify.gp._scaling import Scaling
from gaussify.linear._model_file import pack_refined, unpack_refined


def unpack_scaling(config: dict[str, Any], tensors: dict[str, Tensor]) -> Scaling:
    """Return the scaling of inputs."""
    knots, values = tensors["scaling.knots"], tensors["scaling.values"]
    shape = (len(knots), int(config["n_features"]))
    is_clamped = bool(config["scaling_is_clamped"])
    expect_numbers(knots, shape, "knots")
    expect_numbers(values, shape, "values")
    rising = knots.diff(dim=0) >= 0.0 if is_clamped else knots.diff(dim=0) > 0.0
    expect(bool(rising.all()) and len(knots) >= (1 if is_clamped else 2), "scaling has knots in increasing order")
    return Scaling(knots.numpy(), values.numpy(), is_clamped)


def pack_model(model: LatentModel) -> Packed:
    """Return kernels with inducing points and statistics, or with all training rows."""
    tensors = {
        f"kernel{i}.{name}": parameter.detach().clone()
        for i, kernel in enumerate(model.kernels)
        for name, parameter in kernel.state_dict().items()
    }
    tensors |= {f"kernel{i}_sample": _sample(kernel, _known(model)) for i, kernel in enumerate(model.kernels)}
    config: dict[str, Any] = {
        "n_kernels": len(model.kernels),
        "kernel_form": kernel_form(model.kernels[0]),
        "is_sparse": isinstance(model, SparseModel),
    }
    if isinstance(model, SparseModel):
        for i, (features, statistics) in enumerate(zip(model.features, model.statistics, strict=True)):
            tensors[f"points{i}"] = features.points
            tensors |= {f"statistics{i}.{name}": part for name, part in vars(statistics).items()}
    elif isinstance(model, ExactModel):
        rows = model.rows
        tensors |= {"rows.features": rows.features, "rows.labels": rows.labels, "rows.weight": rows.weight}
    return Packed(config, tensors)


@torch.no_grad()
def _sample(kernel: Kernel, rows: Tensor) -> Tensor:
    """Return a small kernel matrix: it also shows settings of a kernel that are not parameters."""
    return kernel(rows).to_dense()


def _known(model: LatentModel) -> Tensor:
    points = model.features[0].points if isinstance(model, SparseModel) else cast(ExactModel, model).rows.features
    return points[:5]


def unpack_model(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    kernel: Kernel,
    *,
    n_classes: int,
    n_latents: int,
    n_features: int,
) -> LatentModel:
    """Return the model; ``kernel`` must be of the same form."""
    saved = config["model"]
    expect(saved["kernel_form"] == kernel_form(kernel), "the kernel is of the form of the one that was saved")
    kernels = []
    for i in range(int(saved["n_kernels"])):
        own = copy.deepcopy(kernel)
        state = {name: tensors[f"kernel{i}.{name}"] for name in own.state_dict()}
        for name, parameter in own.named_parameters():
            expect_numbers(state[name], tuple(parameter.shape), f"parameter {name} of the kernel")
        own.load_state_dict(state)
        kernels.append(own)
    expect(len(kernels) in (1, n_latents), "there is one kernel, or one for each latent")
    if saved["is_sparse"]:
        features, statistics = [], []
        for i, own in enumerate(kernels):
            points = tensors[f"points{i}"]
            expect_numbers(points, (len(points), n_features), "points")
            features.append(InducingFeatures.of(own, points))
            statistics.append(unpack_statistics(tensors, n_classes, len(points) + 1, prefix=f"statistics{i}."))
        return _checked(SparseModel(features, n_classes, statistics), tensors)
    rows, labels, weight = (tensors[f"rows.{name}"] for name in ("features", "labels", "weight"))
    expect(len(rows) > 0, "there are rows")
    expect_numbers(rows, (len(rows), n_features), "rows")
    expect_numbers(weight, (len(rows),), "weights of rows", positive=True)
    expect(labels.shape == (len(rows),) and labels.dtype == torch.int64, "rows have labels")
    expect(bool(((labels >= 0) & (labels < n_classes)).all()), "labels are known")
    return _checked(ExactModel(kernels, SortedRows.of(rows, labels, weight, n_classes=n_classes)), tensors)


def pack_refined_gp(refined: RefinedGP | None, *, is_sparse: bool) -> Packed:
    """Return what a file holds of a refined model: the sum of its sites, the choice, and points of an exact model."""
    if refined is None:
        return Packed(None, {})
    sites = refined.sites if is_sparse else refined.sites._replace(reference=None)  # only sparse models unlearn
    packed = pack_refined(sites)
    points = {} if is_sparse else {f"refined.points{i}": own.points for i, own in enumerate(refined.features)}
    return Packed(packed.config, packed.tensors | points)


def unpack_refined_gp(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    model: LatentModel,
    label: LabelParameters,
    matched: Choice,
    *,
    n_classes: int,
) -> RefinedGP | None:
    """Return the refined model of a matched one; files of versions without refinement hold none."""
    if config.get("refined") is None:
        return None
    if isinstance(model, SparseModel):
        features = model.features
    else:
        features = []
        for i, kernel in enumerate(model.kernels):
            points = tensors[f"refined.points{i}"]
            expect_numbers(points, (len(points), int(config["n_features"])), "points of the refined model")
            features.append(InducingFeatures.of(kernel, points))
    options = options_of(features, label, n_classes, matched)
    sites = unpack_refined(config, tensors, n_classes, len(options.of_features))
    assert sites is not None
    n_latents = label.likelihood(n_classes, matched.method, matched.alpha_eps).n_latents
    expect(len(sites.total.natural.linear) == n_latents, "there is a site for each latent")
    return RefinedGP(features, sites, options)


def _checked(model: LatentModel, tensors: dict[str, Tensor]) -> LatentModel:
    for i, kernel in enumerate(model.kernels):
        same = torch.allclose(_sample(kernel, _known(model)), tensors[f"kernel{i}_sample"], rtol=1e-6, atol=1e-9)
        expect(same, "the kernel gives the numbers of the one that was saved")
    return model
