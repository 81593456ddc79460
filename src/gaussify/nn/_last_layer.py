"""A Bayesian last layer on a frozen network, in closed form."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gaussify._calibration import AlphaOption, CriterionName, LikelihoodName, MethodOption, best_temperature
from gaussify._estimators import plain, unchanged_on_error, unpacking
from gaussify._persistence import read_model, write_model
from gaussify._typing import Vector, no_type_check
from gaussify._validation import as_labels, as_tensor, check_count
from gaussify.exceptions import InvalidArgumentError, ModelFileError
from gaussify.likelihoods import PredictiveName, ProbabilityUncertainty
from gaussify.linear import BayesianLogisticRegression
from gaussify.linear._parameters import checked_parameters
from gaussify.linear._refinement import AUTO_PASSES, RefineOption, is_affordable
from gaussify.nn._features import (
    Features,
    InputsOf,
    all_features,
    as_batches,
    feature_batches,
    features_of,
    fingerprint,
    joined,
    progress_of,
)

_FORMAT = 1
_MOST_KEPT = 1 << 27  # features that refine="auto" keeps in memory, a gigabyte of float64
_BLOCK = 1 << 23  # features (rows times columns) to learn from at a time
_Layer = TypeVar("_Layer", bound="LastLayer")


@contextmanager
def _in_its_own_name() -> Iterator[None]:
    """Return a context in which errors of the head name ``LastLayer``, the class that users know."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace(BayesianLogisticRegression.__name__, "LastLayer")
        text = text.replace(" set_params(", " head.set_params(")
        if text == str(error):
            raise
        raise type(error)(text) from error


class HeadOptions(TypedDict, total=False):
    """The keyword parameters of the head that :class:`LastLayer` passes on."""

    forgetting: float
    dispersion: float | Literal["auto"]
    likelihood: LikelihoodName
    fit_intercept: bool
    intercept_variance: float
    label_variance: float
    criterion: CriterionName
    reservoir_size: int
    predictive: PredictiveName
    random_state: int


class LastLayer(nn.Module):
    r"""The last layer of a trained network as Bayesian logistic regression on its features, in closed form.

    The network is frozen, and the data pass through it once. Their features go into the statistics of
    :class:`~gaussify.BayesianLogisticRegression`, whose posterior is exact in the matched model. Rows and classes can
    be added later, and likelihood and prior can be changed without another pass. By default, ``fit`` then *refines*
    the posterior where that predicts better, on features that it keeps in memory until it ends.

    Parameters
    ----------
    features : nn.Module
        Network that maps a batch of inputs to features (n, d). It is set to evaluation mode for good, and its
        parameters no longer require gradients. :class:`~gaussify.nn.InputsOf` makes such a network from one that still
        has its last layer; ``LastLayer.of`` uses it.
    n_classes : int
        Number of classes. Labels are class indices below it.
    method, alpha_eps, temperature, prior_variance, **head
        Parameters of :class:`~gaussify.BayesianLogisticRegression`. Those that are ``"auto"`` are chosen by their
        leave-one-out score.
    batch_size : int
        Number of rows of a tensor or Dataset that pass through the network at a time. A DataLoader has its own.
    refine : {"auto", False} or int
        Whether ``fit`` refines the posterior, as :class:`~gaussify.BayesianLogisticRegression` does. ``"auto"`` refines
        where that raises the leave-one-out score. It keeps to the matched model for more than 2^27 features in all
        (rows times columns, a gigabyte in double precision), where a pass over them would take minutes, and where
        ``method``, ``alpha_eps`` or ``dispersion`` are set. An integer is the largest number of passes over the
        features, of which all are kept whatever their number. With ``False``, memory does not grow with the rows.
    progress : bool, optional
        ``True`` shows a progress bar. By default it is shown when the standard error is a terminal.

    Attributes
    ----------
    head : BayesianLogisticRegression
        Classifier of the features, which holds everything that was learnt. It has further methods and attributes, such
        as ``head.coef_``, ``head.sample()`` and ``head.set_params(alpha_eps=0.05)``. ``head.refined_`` says whether the
        refined posterior is in use.

    Notes
    -----
    ``state_dict`` holds the network alone. ``save`` and ``load`` are for the head.

    Features of the rows that the network was trained on are better separated than those of new rows. Leave-one-out
    cannot know that, so its choice between the matched and the refined model is not always the best one there.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    >>> X = X.float() / 16
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(64, 100), nn.ReLU())  # random here; usually it is trained
    >>> model = LastLayer(network, n_classes=10).fit(X[:1000], y[:1000])
    >>> probs = model.predict_proba(X[1000:])
    >>> bool((probs.argmax(1) == y[1000:]).float().mean() > 0.85)
    True
    >>> model.partial_fit(X[1000:], y[1000:]).head.n_rows_seen_
    1797
    """

    @no_type_check
    def __init__(
        self,
        features: nn.Module,
        n_classes: int,
        method: MethodOption = "variational",
        alpha_eps: AlphaOption = "auto",
        temperature: float | Literal["auto"] = "auto",
        prior_variance: float | Vector | Literal["auto"] = "auto",
        *,
        batch_size: int = 256,
        refine: RefineOption = "auto",
        progress: bool | None = None,
        **head: Unpack[HeadOptions],
    ) -> None:
        super().__init__()
        _check_features(features, owner="LastLayer")
        if progress not in (None, True, False):
            raise InvalidArgumentError(
                f"The 'progress' parameter of LastLayer must be True, False or None; got {progress!r}."
            )
        self.n_classes = check_count(n_classes, name="n_classes", owner="LastLayer", minimum=2)
        self.batch_size = check_count(batch_size, name="batch_size", owner="LastLayer")
        self.progress = progress
        known = BayesianLogisticRegression().get_params()
        if unknown := [name for name in head if name not in known]:
            raise InvalidArgumentError(
                f"LastLayer has no parameter {unknown[0]!r}; those of its head are {', '.join(sorted(known))}."
            )
        self.head = BayesianLogisticRegression(method, alpha_eps, temperature, prior_variance, refine=refine, **head)
        with _in_its_own_name():  # refuse wrong parameters before any data pass through the network
            checked_parameters(self.head).label.check_number_of_classes(self.n_classes, "LastLayer")
        self._calibrated: dict[str, tuple[Any, Any]] = {}  # parameters of the head before and after calibrate
        self._calibrates_refined = False
        self.features = features.eval()
        for parameter in features.parameters():
            parameter.requires_grad_(False)
        self.training = False  # train() does not change it

    @classmethod
    def of(cls: type[_Layer], network: Any, layer: nn.Module | None = None, **options: Any) -> _Layer:
        """Return a Bayesian last layer that replaces the last layer of a trained network.

        Parameters
        ----------
        network : nn.Module
            Network that maps inputs to logits.
        layer : nn.Module, optional
            Last layer of the network. The default is its last ``nn.Linear``.
        **options
            Parameters of ``LastLayer``. ``n_classes`` is needed only if the layer has no ``out_features``.

        Examples
        --------
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> LastLayer.of(network).n_classes
        3
        """
        features = InputsOf(network, layer)
        options.setdefault("n_classes", getattr(features.layer, "out_features", None))
        return cls(features, **options)

    @_in_its_own_name()
    def fit(self: _Layer, data: Any, y: Any = None, *, cache: str | os.PathLike[str] | None = None) -> _Layer:
        """Learn from these rows alone, forget everything learnt before, and return the layer.

        Parameters
        ----------
        data, y
            Inputs and labels, as :func:`~gaussify.nn.extract_features` takes them.
        cache : path, optional
            File for the features, as in :func:`~gaussify.nn.extract_features`. With a cache, all features are held in
            memory at once.
        """
        params = self._parameters_given()
        head = BayesianLogisticRegression(**params | {"refine": False})
        n_classes, given = self.n_classes, checked_parameters(BayesianLogisticRegression(**params))

        def keeps(n_rows: int, n_features: int) -> bool:
            if given.refine is not None:
                return given.refine > 0
            is_small = n_rows * n_features <= _MOST_KEPT and is_affordable(n_rows, n_features + 1, n_classes)
            return is_small and given.may_refine

        kept = self._learn(head, data, y, n_classes, cache, keeps=keeps)
        head.set_params(refine=params["refine"])
        if kept is None:
            head.tune()
        else:
            X, labels = _labelled(joined(kept, owner="LastLayer"), "LastLayer")
            kept.clear()
            with progress_of("refinement", self.progress) as report:
                head.refine_on(X, labels.numpy(), report=report)
        self.head, self._calibrated, self._calibrates_refined = head, {}, False
        return self

    @_in_its_own_name()
    def partial_fit(self: _Layer, data: Any, y: Any = None, *, n_classes: int | None = None) -> _Layer:
        """Learn from more rows, and of more classes if ``n_classes`` is larger than before. Return the layer.

        With ``refine=False``, the posterior is that of ``fit`` on all rows seen so far. A refined head gives each row a
        site as it arrives, so order and blocks matter a little, and goes back to the matched model for a new class.
        Parameters that are ``"auto"`` were chosen by the first rows. They are chosen again when there are four times as
        many rows, or at once by ``head.tune()``.
        """
        n_classes = self.n_classes if n_classes is None else n_classes
        n_classes = check_count(n_classes, name="n_classes", owner="LastLayer.partial_fit", minimum=self.n_classes)
        is_lost = n_classes > self.n_classes and self._calibrates_refined  # a new class ends the refined model
        with unchanged_on_error(self.head):
            if is_lost:
                self._give_parameters_back()
            self._learn(self.head, data, y, n_classes)
        self.n_classes = n_classes
        if is_lost:
            self._calibrated, self._calibrates_refined = {}, False
        return self

    @_in_its_own_name()
    def calibrate(self: _Layer, data: Any, y: Any = None) -> _Layer:
        """Choose the temperature by rows that neither the network nor this layer has learnt from, and return the layer.

        A layer that learns from the training rows of its network is overconfident. The leave-one-out score cannot
        correct this, because the features have seen the rows that are left out. Other parameters that are ``"auto"``
        keep their chosen values, and a refined head stays refined. The next ``fit`` starts from the parameters as they
        were given. So does a refined head that goes back to the matched model, whose logits have another scale.
        """
        self._check_is_fitted()
        head, owner = self.head, "LastLayer.calibrate"
        X, y = _labelled(self._extract(data, y), owner)
        labels = as_labels(y, n_classes=self.n_classes, owner=owner)
        before = head.temperature_
        mean, variance = (torch.from_numpy(part) for part in head.predict_latent(X))
        mean, variance = (mean - torch.from_numpy(head.offset_)) * before, variance * before**2
        best = best_temperature(head.likelihood_, mean, variance, labels, torch.ones(len(labels)).double())
        chosen = {name: getattr(head, f"{name}_") for name in ("method", "alpha_eps", "prior_variance", "dispersion")}
        chosen["temperature"] = best
        if head.refined_:  # "auto" takes a refined model only where alpha_eps is "auto" too
            chosen["refine"] = AUTO_PASSES if head.refine == "auto" else head.refine
        given = {name: self._calibrated.get(name, (value,))[0] for name, value in head.get_params().items()}
        head.set_params(**chosen)
        self._calibrated = {name: (given[name], value) for name, value in chosen.items()}
        self._calibrates_refined = head.refined_
        return self

    @_in_its_own_name()
    def unlearn(self: _Layer, data: Any, y: Any = None) -> _Layer:
        """Remove rows that were learnt before, and return the layer.

        The posterior is then that of the remaining rows; that of a refined head is without their sites. Parameters that
        are ``"auto"`` keep the values that were chosen with the removed rows, until ``head.tune()``. A refined head
        takes out rows of ``fit`` until it has learnt more rows.
        """
        self._check_is_fitted()
        owner = "LastLayer.unlearn"
        X, y = _labelled(self._extract(data, y), owner)
        self.head.unlearn(X, as_labels(y, n_classes=self.n_classes, owner=owner).numpy())
        return self

    @_in_its_own_name()
    def merge(self: _Layer, other: Any) -> _Layer:
        """Add what ``other`` has learnt from other rows with the same network, and return the layer."""
        if not isinstance(other, LastLayer):
            raise InvalidArgumentError(f"LastLayer.merge takes another LastLayer; got a {type(other).__name__}.")
        self._check_is_fitted()
        other._check_is_fitted()
        if fingerprint(self.features) != fingerprint(other.features):
            raise InvalidArgumentError("Last layers to merge must have networks with the same weights.")
        self.head.merge(other.head)
        self.n_classes = max(self.n_classes, other.n_classes)
        self._check_is_fitted()
        return self

    @_in_its_own_name()
    def forward(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "n c"]:
        """Return log-probabilities, which serve as logits: their softmax is the probabilities."""
        self._check_is_fitted()
        X = features_of(self.features, *inputs, **keywords)
        probs = self.head.predict_proba(X.double().numpy())
        like = next((part for part in (*inputs, *keywords.values()) if isinstance(part, Tensor)), torch.empty(0))
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        return torch.from_numpy(probs).log().to(like.device, dtype)

    @_in_its_own_name()
    def predict_proba(self, data: Any) -> Float[Tensor, "n c"]:
        """Return the probability of each class, by quadrature over the posterior of the logits.

        Labels in the data are ignored. In a batch that is a tuple, the last part counts as labels.
        """
        self._check_is_fitted()
        return torch.from_numpy(self.head.predict_proba(self._extract(data).X.double().numpy()))

    def predict(self, data: Any) -> Int64[Tensor, " n"]:
        """Return the most probable class of each row."""
        return self.predict_proba(data).argmax(1)

    @_in_its_own_name()
    def predict_latent(self, data: Any) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return mean and variance of the logits."""
        self._check_is_fitted()
        rows = self._extract(data)
        mean, variance = self.head.predict_latent(rows.X.double().numpy())
        return torch.from_numpy(mean), torch.from_numpy(variance)

    def predict_uncertainty(self, data: Any) -> ProbabilityUncertainty:
        """Return the probabilities, their standard deviations, and the parts of their entropy."""
        mean, variance = self.predict_latent(data)
        return self.head.likelihood_.predict_uncertainty(mean, variance)

    def train(self: _Layer, mode: bool = True) -> _Layer:
        """Return the layer unchanged: the network stays in evaluation mode."""
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learnt to one file (safetensors and JSON), atomically. The network is not saved."""
        self._check_is_fitted()
        config, tensors = self.head.packed()
        own = {
            "head": config,
            "n_classes": self.n_classes,
            "batch_size": self.batch_size,
            "progress": self.progress,
            "weights": fingerprint(self.features),
            "calibrated": {name: [plain(value) for value in pair] for name, pair in self._calibrated.items()},
        }
        write_model(path, "LastLayer", _FORMAT, own, tensors)

    @classmethod
    def load(cls: type[_Layer], path: str | os.PathLike[str], features: Any) -> _Layer:
        """Return the last layer that ``save`` wrote, on the network that it was learnt with.

        Parameters
        ----------
        path : path
            File that ``save`` wrote.
        features : nn.Module
            The network of features. For a layer that ``LastLayer.of(network)`` made, it is ``InputsOf(network)``.
        """
        config, tensors = read_model(path, "LastLayer", _FORMAT)
        with unpacking(path, "LastLayer"):
            head = BayesianLogisticRegression.unpacked(config["head"], tensors)
            options = {name: config[name] for name in ("n_classes", "batch_size")} | {
                "progress": config.get("progress")
            }
            weights = config["weights"]
            calibrated = {name: (given, now) for name, (given, now) in config.get("calibrated", {}).items()}
        _check_features(features, owner="LastLayer.load")
        if weights != fingerprint(features):
            raise ModelFileError(
                f"{path} was learnt from features of another network, or of one with other weights: load those first, "
                "or fit again. For one that LastLayer.of made, 'features' is InputsOf(network)."
            )
        layer = cls(features, **options)
        layer.head, layer._calibrated = head, calibrated
        layer._calibrates_refined = bool(calibrated) and head.refined_
        return layer

    def extra_repr(self) -> str:
        """Return the number of classes and the head."""
        return f"n_classes={self.n_classes}, head={self.head}"

    def _check_is_fitted(self) -> None:
        check_is_fitted(
            self.head, "classes_", msg="This LastLayer is not fitted yet: call 'fit' or 'partial_fit' first."
        )
        if self._calibrates_refined and not self.head.refined_:
            # Latents of the two models have different scales, so neither temperature nor prior variance suits both.
            self._give_parameters_back()
            self._calibrated, self._calibrates_refined = {}, False

    def _parameters_given(self) -> dict[str, Any]:
        """Return the parameters of the head, without what ``calibrate`` has set and nobody has changed since."""
        params = self.head.get_params()
        return params | {name: given for name, (given, now) in self._calibrated.items() if _is_same(params[name], now)}

    def _give_parameters_back(self) -> None:
        self.head.set_params(**self._parameters_given())

    def _extract(self, data: Any, y: Any = None) -> Features:
        return joined(list(self._batches(data, y)), owner="LastLayer")

    def _batches(self, data: Any, y: Any) -> Iterator[Features]:
        batches = as_batches(data, y, self.batch_size, owner="LastLayer")
        return feature_batches(self.features, batches, progress=self.progress, owner="LastLayer")

    def _learn(
        self,
        head: BayesianLogisticRegression,
        data: Any,
        y: Any,
        n_classes: int,
        cache: str | os.PathLike[str] | None = None,
        *,
        keeps: Callable[[int, int], bool] = lambda n_rows, n_features: False,
    ) -> list[Features] | None:
        """Let the head learn from all rows, block by block, and return the blocks if so many features are to be kept.

        ``keeps`` says so by the numbers of rows and features.
        """
        n_rows, owner = 0, "LastLayer (partial_fit takes n_classes for more)"
        kept: list[Features] | None = []
        if isinstance(data, Tensor) and y is not None:  # refuse wrong labels before any data pass through the network
            as_labels(as_tensor(y, name="y", owner="LastLayer"), n_classes=n_classes, owner=owner)
        blocks: Iterable[Features] = self._blocks(data, y)
        if cache is not None:
            options: dict[str, Any] = {"batch_size": self.batch_size, "progress": self.progress, "owner": "LastLayer"}
            blocks = [all_features(self.features, data, y, cache=cache, **options)]
        for rows in blocks:
            X, own = _labelled(rows, "LastLayer")
            labels = as_labels(own, n_classes=n_classes, owner=owner).numpy()
            head.partial_fit(X, labels, classes=np.arange(n_classes))
            n_rows += len(labels)
            kept = [*kept, rows] if kept is not None and keeps(n_rows, X.shape[1]) else None
        if not n_rows:
            raise InvalidArgumentError("'data' of LastLayer must hold at least one batch.")
        return kept

    def _blocks(self, data: Any, y: Any) -> Iterator[Features]:
        """Yield batches joined to larger ones, because each step of learning has a fixed cost."""
        waiting: list[Features] = []
        n_waiting = 0
        for rows in self._batches(data, y):
            waiting.append(rows)
            n_waiting += rows.X.numel()
            if n_waiting >= _BLOCK:
                yield joined(waiting, owner="LastLayer")
                waiting, n_waiting = [], 0
        if waiting:
            yield joined(waiting, owner="LastLayer")


def _labelled(rows: Features, owner: str) -> tuple[Float64[np.ndarray, "n d"], Int64[Tensor, " n"]]:
    if rows.y is None:
        raise InvalidArgumentError(f"'data' of {owner} must bring labels: batches of (inputs, y).")
    return rows.X.double().numpy(), rows.y


def _check_features(features: Any, *, owner: str) -> None:
    if not isinstance(features, nn.Module):
        raise InvalidArgumentError(
            f"The 'features' parameter of {owner} must be an nn.Module; got {type(features).__name__}."
        )
    if any(is_lazy(parameter) for parameter in features.parameters()):
        raise InvalidArgumentError(
            f"The 'features' parameter of {owner} has layers without weights yet: call it once, or load its weights."
        )


def _is_same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))
