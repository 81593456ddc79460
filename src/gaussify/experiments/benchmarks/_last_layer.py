"""Bayesian last layers on the same trained network: ours, last-layer Laplace and a variational last layer.

A convolutional network is trained once with cross-entropy. Each contender then learns a last layer on its features,
from the images that the network was trained on (``training``) or from as many that it has not seen (``held out``):

- ``network``: its own last layer and softmax; nothing is learnt.
- ``gaussify``: :class:`~gaussify.LastLayer` with ``refine=False``.
- ``gaussify, refined``: :class:`~gaussify.LastLayer` with default settings.
- ``laplace``: laplace-torch, full covariance of the last layer's weights around the trained ones, prior precision by
  marginal likelihood, probabilities by its probit approximation (its defaults for a last layer).
- ``laplace, sampled``: the same with probabilities by 100 samples of the logits.
- ``vbll``: a variational Bayesian last layer with full covariances, trained by AdamW on features.

``seconds`` is the time to learn from images, including passes through the network. ``auroc`` measures how well the
largest probability separates images of another data set, ``logit_auroc`` how well the largest (mean) logit does; it is
empty for contenders without logits. ``calibrated_nll`` and ``calibrated_ece`` are with a temperature, chosen by a few
images that nothing was trained on: by :meth:`LastLayer.calibrate` for ours, of log-probabilities for all others.
"""

import hashlib
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gaussify import metrics
from gaussify._calibration import best_temperature
from gaussify._optional import import_optional
from gaussify.experiments import _lab as lab
from gaussify.experiments._networks._architectures import MNISTNet, made
from gaussify.experiments._networks._images import load_images
from gaussify.experiments._networks._training import Recipe, logit_auroc, logit_scores, outputs_of, steps_down, train
from gaussify.likelihoods import SoftmaxLikelihood
from gaussify.nn import InputsOf, LastLayer, extract_features
from gaussify.plotting import SERIES_COLOURS, figure_file, plain_log_ticks

_SCORES = {"seconds": 2, "error_pct": 3} | dict.fromkeys(
    ("nll", "ece", "calibrated_nll", "calibrated_ece", "auroc", "logit_auroc"), 4
)
_N_SAMPLES = 100
_PEERS = {"laplace", "vbll"}
_N_CLASSES = 10
_BATCH = 500

_Rows = tuple[Tensor, Tensor]
Predict = Callable[[Tensor], Float[Tensor, "n c"]]


class Learnt(NamedTuple):
    """A learnt last layer."""

    probs: Predict
    calibrate: Callable[[_Rows], Predict]
    """Returns calibrated probabilities, from images and labels that nothing was trained on."""
    logits: Predict | None = None


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    seeds, rows = range(settings["n_seeds"]), ("training", "held out")
    return lab.combinations(seed=seeds, rows=rows, contender=settings["contenders"])


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    n = settings["n_train"]
    data = load_images(settings["dataset"])
    X, y = (torch.as_tensor(part) for part in (data.X_train, data.y_train))
    X_test, y_test = (torch.as_tensor(part)[: settings["n_test"]] for part in (data.X_test, data.y_test))
    other = torch.as_tensor(load_images(settings["ood"]).X_test)[: settings["n_test"]]
    network = _trained(settings, X[:n], y[:n], task["seed"])
    rows = slice(0, n) if task["rows"] == "training" else slice(n, 2 * n)
    few = slice(2 * n, 2 * n + settings["n_calibrate"])
    learn = _CONTENDERS[task["contender"]]
    learn(network, X[rows][:_BATCH], y[rows][:_BATCH], settings)  # imports do not count
    start = time.perf_counter()
    learnt = learn(network, X[rows], y[rows], settings)
    seconds = time.perf_counter() - start
    probs = learnt.probs(X_test).double()
    record: lab.Record = {"seconds": round(seconds, 3), **logit_scores(_log(probs), y_test)}
    record["auroc"] = round(metrics.ood_auroc(probs, learnt.probs(other).double()), 5)
    record["logit_auroc"] = learnt.logits and logit_auroc(learnt.logits(X_test), learnt.logits(other))
    calibrated = logit_scores(_log(learnt.calibrate((X[few], y[few]))(X_test).double()), y_test)
    return [record | {f"calibrated_{name}": calibrated[name] for name in ("nll", "ece")}]


def _log(probs: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    return probs.clamp_min(1e-30).log()


def _by_temperature(probs: Predict, apart: _Rows) -> Predict:
    """Return probabilities whose logarithms are divided by the temperature that is best for other rows."""
    log_probs, labels = _log(probs(apart[0]).double()), apart[1]
    likelihood, weight = SoftmaxLikelihood(_N_CLASSES), torch.ones(len(labels)).double()
    temperature = best_temperature(likelihood, log_probs, torch.zeros_like(log_probs), labels, weight)
    return lambda images: (_log(probs(images).double()) / temperature).softmax(-1)


def _check(settings: lab.Settings) -> None:
    for name in ("dataset", "ood"):
        load_images(settings[name])
    for package in _PEERS.intersection(name.partition(",")[0] for name in settings["contenders"]):
        _peer(package)


def _peer(package: str) -> Any:
    return import_optional(package, extra="peers", needed_by=f"the contender {package!r}")


def _trained(settings: lab.Settings, X: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Return the network, from a checkpoint that all contenders share."""
    network, n_epochs = made(partial(MNISTNet, settings["width"]), seed), settings["n_epochs"]
    optimiser = torch.optim.Adadelta(network.parameters())
    recipe = Recipe(n_epochs, 64, 1.0, steps_down(n_epochs, 0.7), seed=seed)
    digest = hashlib.sha256(X.numpy().tobytes() + y.numpy().tobytes()).hexdigest()[:16]
    folder = lab.scratch_folder("last-layer", settings) / f"seed{seed}-{digest}"
    train(network, nn.functional.cross_entropy, optimiser, X, y, recipe, folder, name=f"network {seed}")
    return network.requires_grad_(True).eval()


def _network(network: nn.Module, X: Tensor, y: Tensor, settings: lab.Settings) -> Learnt:
    logits = partial(outputs_of, network)

    def probs(images: Tensor) -> Tensor:
        return logits(images).softmax(-1)

    return Learnt(probs, partial(_by_temperature, probs), logits)


def _gaussify(network: nn.Module, X: Tensor, y: Tensor, settings: lab.Settings, **options: Any) -> Learnt:
    model = LastLayer.of(network, progress=False, batch_size=_BATCH, **options).fit(X, y)
    model.predict_proba(X[:1])
    return Learnt(
        model.predict_proba,
        lambda apart: model.calibrate(*apart).predict_proba,
        lambda images: model.predict_latent(images)[0],
    )


def _laplace(
    network: nn.Module, X: Tensor, y: Tensor, settings: lab.Settings, *, link: str = "probit", **sampling: int
) -> Learnt:
    laplace = _peer("laplace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = laplace.Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="full")
        model.fit(DataLoader(TensorDataset(X, y), batch_size=_BATCH))
        model.optimize_prior_precision(method="marglik")

    predict = partial(model, pred_type="glm", link_approx=link, **sampling)

    def probs(images: Tensor) -> Tensor:
        return made(lambda: torch.cat([predict(batch) for batch in images.split(_BATCH)]), 0).detach()

    return Learnt(probs, partial(_by_temperature, probs))


def _vbll(network: nn.Module, X: Tensor, y: Tensor, settings: lab.Settings) -> Learnt:
    vbll = _peer("vbll")
    features_of = partial(extract_features, InputsOf(network), batch_size=_BATCH, progress=False)
    features = features_of(X).X

    def trained() -> nn.Module:
        layer = vbll.DiscClassification(features.shape[1], _N_CLASSES, 1.0 / len(X))
        optimiser = torch.optim.AdamW(layer.parameters(), lr=settings["vbll_rate"])
        for _ in range(settings["vbll_epochs"]):
            for rows in torch.randperm(len(X)).split(_BATCH):
                optimiser.zero_grad()
                layer(features[rows]).train_loss_fn(y[rows]).backward()
                nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
                optimiser.step()
        return layer

    layer = made(trained, 0)

    @torch.no_grad()
    def probs(images: Tensor) -> Tensor:
        return made(lambda: layer(features_of(images).X).predictive.probs, 0)

    return Learnt(probs, partial(_by_temperature, probs))


_CONTENDERS: dict[str, Callable[..., Learnt]] = {
    "network": _network,
    "gaussify": partial(_gaussify, refine=False),
    "gaussify, refined": _gaussify,
    "laplace": _laplace,
    "laplace, sampled": partial(_laplace, link="mc", n_samples=_N_SAMPLES),
    "vbll": _vbll,
}


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the networks, with their standard errors."""
    return [
        {"rows": rows, "contender": contender} | lab.means(own, _SCORES) | {"networks": len(own)}
        for (rows, contender), own in lab.group(records, "rows", "contender").items()
    ]


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw NLL against seconds, a panel for each set of rows."""
    kinds = lab.by(records, "rows")
    with figure_file(folder, "last_layer", 1, len(kinds), width=4.2 * len(kinds), height=3.4, sharey=True) as (_, axes):
        for axis, (rows, some) in zip(axes[0], kinds.items(), strict=True):
            for colour, (contender, own) in zip(SERIES_COLOURS, lab.by(some, "contender").items(), strict=False):
                seconds, nll = lab.column(own, "seconds"), lab.column(own, "nll")
                if contender == "network":
                    axis.axhline(nll.mean(), color=colour, ls="--", label=contender)
                else:
                    axis.scatter(seconds, nll, color=colour, label=contender, zorder=3)
            axis.set(xscale="log", xlabel="seconds to learn", title=f"{rows} images")
            plain_log_ticks(axis.xaxis)
        axes[0, 0].set_ylabel("test NLL")
        axes[0, -1].legend(fontsize=8)


TITLE = "Bayesian last layers on the same trained network: gaussify, laplace-torch and VBLL"
PRESETS = lab.presets(
    dict(dataset="fashion-mnist", ood="mnist", width=0.5, n_train=10_000, n_calibrate=1000, n_test=10_000)
    | dict(n_epochs=5, vbll_rate=3e-3, vbll_epochs=30, contenders=list(_CONTENDERS), n_seeds=6),
    smoke=dict(dataset="digits", ood="digits", width=0.125, n_train=300, n_test=100, n_epochs=1, n_seeds=1)
    | dict(n_calibrate=100, contenders=["network", "gaussify", "gaussify, refined"]),
    laptop={},
    paper=dict(width=1.0, n_train=25_000, n_epochs=10, n_seeds=10),
)

lab.register(lab.Experiment("last-layer", TITLE, PRESETS, _tasks, _run, _draw, _summarise, check=_check))
