"""Features of data, computed batch by batch by a frozen network."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, TensorDataset

from gaussify._persistence import read_model, stored_kind, write_model
from gaussify._validation import as_tensor, check_count
from gaussify.exceptions import InvalidArgumentError, ModelFileError

_FORMAT = 2
_KIND, _OLD_KIND = "cache of features", "features"
_LABEL_KEYS = ("labels", "label")


class Features(NamedTuple):
    """Features of rows, computed by a network, on the CPU.

    Examples
    --------
    >>> Features(torch.zeros(3, 2), torch.tensor([0, 1, 1])).X.shape
    torch.Size([3, 2])
    """

    X: Float[Tensor, "n d"]
    y: Int64[Tensor, " n"] | None


class InputsOf(nn.Module):
    """A network that stops before one of its layers and returns the input of that layer.

    Parameters
    ----------
    network : nn.Module
        Network of any form. It is run as a whole.
    layer : nn.Module, optional
        Module of the network whose input is returned. The default is the last ``nn.Linear``.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> features = InputsOf(network)
    >>> features(torch.zeros(2, 4)).shape, features.layer
    (torch.Size([2, 8]), Linear(in_features=8, out_features=3, bias=True))
    """

    layer: nn.Module

    def __init__(self, network: Any, layer: nn.Module | None = None) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise InvalidArgumentError(
                f"The 'network' parameter of InputsOf must be an nn.Module; got {type(network).__name__}."
            )
        modules, was_given = list(network.modules()), layer is not None
        if layer is None:
            linear = [module for module in modules if isinstance(module, nn.Linear)]
            if not linear:
                raise InvalidArgumentError(
                    "InputsOf finds no nn.Linear in this network: say which 'layer' is the last."
                )
            layer = linear[-1]
        elif not any(module is layer for module in modules):
            raise InvalidArgumentError("The 'layer' parameter of InputsOf must be a module of the network.")
        self.network = network
        self.__dict__["layer"] = layer  # not registered as a module again, because the network contains it
        # a network may call its layers in another order than it registers them
        self._rivals = [] if was_given else [module for module in modules if isinstance(module, nn.Linear)]

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        """Return the input of the layer, or the last one if the layer is called more than once."""
        seen: list[Tensor] = []
        order: list[nn.Module] = []
        thread = get_ident()

        def follow(module: nn.Module, _: Any) -> None:
            if get_ident() == thread:  # other threads may use the network at the same time
                order.append(module)

        # another thread's call may get here before torch has noted that this hook takes keywords
        def keep(_: nn.Module, arguments: Any, named: Any = None) -> None:
            if get_ident() == thread:
                seen.append([*arguments, *named.values()][0])

        handles = [rival.register_forward_pre_hook(follow) for rival in self._rivals]
        handles.append(self.layer.register_forward_pre_hook(keep, with_kwargs=True))
        try:
            self.network(*inputs, **keywords)
        finally:
            for handle in handles:
                handle.remove()
        if not seen:
            remedy = ": say which 'layer' is the last." if self._rivals else "."
            raise InvalidArgumentError(
                f"The network of InputsOf did not call its layer '{self.extra_repr()}' in evaluation mode{remedy}"
            )
        if order and order[-1] is not self.layer:
            raise InvalidArgumentError(
                f"The last nn.Linear that this network has, '{self.extra_repr()}', is not the last one it uses: say "
                "which 'layer' is the last."
            )
        return seen[-1]

    def extra_repr(self) -> str:
        """Return the name of the layer within the network."""
        return next(name for name, module in self.network.named_modules() if module is self.layer)


def extract_features(
    network: nn.Module,
    data: Any,
    y: Any = None,
    *,
    batch_size: int = 256,
    progress: bool | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Features:
    """Return the features of all rows, computed in evaluation mode and without a graph.

    Parameters
    ----------
    network : nn.Module
        Network that maps a batch of inputs to features (n, d). Further dimensions are flattened.
    data : Tensor, Dataset or iterable of batches such as a DataLoader
        Inputs, with labels or without. A batch is a tensor of inputs, a tuple of inputs that ends with the labels, or a
        mapping. A mapping has its labels under "labels" or "label"; the network receives the other entries by name.
    y : array-like of shape (n,), optional
        Labels, if the data are a tensor of inputs.
    batch_size : int
        Number of rows of a tensor or Dataset in a batch.
    progress : bool, optional
        ``True`` shows a progress bar. By default it is shown when the standard error is a terminal.
    cache : path, optional
        File for the features. Nothing is computed if the same network has written it for the same data. A tensor or
        TensorDataset is compared by all its numbers, another Dataset by its length and its first, middle and last rows.
        A DataLoader is also compared by the rows that it takes and by their collated batch. Other batches are compared
        by their number and the first one, and must allow a second pass. Labels given as ``y`` are not stored.

    Examples
    --------
    >>> network = nn.Linear(4, 2)
    >>> extract_features(network, torch.zeros(5, 4), [0, 1, 1, 0, 1]).X.shape
    torch.Size([5, 2])
    """
    owner = "extract_features"
    return all_features(network, data, y, batch_size=batch_size, progress=progress, cache=cache, owner=owner)


def all_features(
    network: nn.Module,
    data: Any,
    y: Any,
    *,
    batch_size: Any,
    progress: bool | None,
    cache: Any,
    owner: str,
) -> Features:
    """Return the features of all rows; errors name ``owner``."""
    batches = as_batches(data, y, batch_size, owner=owner)

    def computed() -> Features:
        return joined(list(feature_batches(network, batches, progress=progress, owner=owner)), owner=owner)

    if cache is None:
        return computed()
    _check_place(cache, owner=owner)
    identity = {"weights": fingerprint(network), "data": _identity(data, batches, owner=owner)}
    state = network.state_dict()
    # these buffers may change when the network is used, so they are no part of the fingerprint
    identity["others"] = [[k, digest_of_tensor(v)] for k, v in network.named_buffers() if k not in state]
    features = _read_cache(cache, identity, owner=owner)
    if features is None:
        features = computed()
        # the labels of a tensor come as an argument, so they are not stored
        kept = features._replace(y=None) if isinstance(data, Tensor) else features
        write_model(cache, _KIND, _FORMAT, identity, {k: v for k, v in kept._asdict().items() if v is not None})
    if isinstance(data, Tensor):
        features = features._replace(y=None if y is None else _as_indices(y, owner=owner))
    return features


def joined(batches: list[Features], *, owner: str) -> Features:
    """Return all batches as one.

    Examples
    --------
    >>> joined([Features(torch.zeros(2, 1), None), Features(torch.zeros(3, 1), None)], owner="LastLayer").X.shape
    torch.Size([5, 1])
    """
    if not batches:
        raise InvalidArgumentError(f"'data' of {owner} must hold at least one batch.")
    labels = [own for _, own in batches if own is not None]
    if 0 < len(labels) < len(batches):
        raise InvalidArgumentError(f"'data' of {owner} must have labels in every batch, or in none.")
    widths = {own.shape[1] for own, _ in batches}
    if len(widths) > 1:
        raise InvalidArgumentError(
            f"The network of {owner} must return as many features for each batch; got {min(widths)} and {max(widths)}."
        )
    return Features(torch.cat([own for own, _ in batches]), torch.cat(labels) if labels else None)


def feature_batches(
    network: nn.Module, batches: Iterable[Any], *, progress: bool | None = None, owner: str
) -> Iterator[Features]:
    """Yield the features of each batch, computed in evaluation mode and without a graph."""
    for batch in _with_progress(batches, progress):
        inputs, keywords, y = _parts(batch, owner=owner)
        rows = Features(features_of(network, *inputs, **keywords), None if y is None else _as_indices(y, owner=owner))
        if rows.y is not None and len(rows.y) != len(rows.X):
            raise InvalidArgumentError(
                f"A batch of {owner} must hold a label for each row; got {len(rows.X)} and {len(rows.y)}."
            )
        yield rows


def features_of(network: nn.Module, *inputs: Any, **keywords: Any) -> Float[Tensor, "n d"]:
    """Return the features of one batch, computed in evaluation mode and without a graph; the mode is then restored.

    Examples
    --------
    >>> features_of(nn.Sequential(nn.Conv2d(1, 3, 2), nn.Dropout()), torch.zeros(5, 1, 4, 4)).shape
    torch.Size([5, 27])
    """
    device = next((tensor.device for tensor in chain(network.parameters(), network.buffers())), torch.device("cpu"))
    in_training = [module for module in network.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        with torch.no_grad():
            X = network(
                *(_moved(part, device) for part in inputs), **{k: _moved(v, device) for k, v in keywords.items()}
            )
    finally:
        for module in in_training:
            module.training = True
    return _checked(X, network)


def as_batches(data: Any, y: Any, batch_size: int, *, owner: str) -> Iterable[Any]:
    """Return data as an iterable of batches."""
    if isinstance(data, np.ndarray):
        raise InvalidArgumentError(
            f"'data' of {owner} must be a tensor; torch.as_tensor(data, dtype=torch.float32) makes one of an array."
        )
    if isinstance(data, Tensor):
        if not len(data):
            raise InvalidArgumentError(f"'data' of {owner} must hold at least one row; got shape {tuple(data.shape)}.")
        if y is None:
            return DataLoader(TensorDataset(data), batch_size=check_count(batch_size, name="batch_size", owner=owner))
        y = as_tensor(y, name="y", owner=owner)
        if y.shape != data.shape[:1]:
            raise InvalidArgumentError(
                f"'y' of {owner} must hold a label for each of {len(data)} rows; got shape {tuple(y.shape)}."
            )
        if y.is_floating_point():
            raise InvalidArgumentError(
                f"'y' of {owner} must be class indices; got {y.dtype}, of which y.long() makes them."
            )
        data = TensorDataset(data, y)
    elif y is not None:
        raise InvalidArgumentError(f"'y' of {owner} goes with a tensor; data of any other kind brings its labels.")
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=check_count(batch_size, name="batch_size", owner=owner))
    if isinstance(data, tuple) and any(isinstance(part, Tensor) for part in data):
        raise InvalidArgumentError(f"'data' of {owner} must not be a tuple of tensors: give labels apart, as 'y'.")
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return data
    raise InvalidArgumentError(
        f"'data' of {owner} must be a tensor, a Dataset or an iterable of batches such as a DataLoader; got "
        f"{type(data).__name__}."
    )


def fingerprint(network: nn.Module) -> str:
    """Return a text that identifies a network by its weights and by the texts of its modules.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> before = fingerprint(layer)
    >>> with torch.no_grad():
    ...     _ = layer.bias.add_(1.0)
    >>> fingerprint(layer) == before
    False
    """
    digest = hashlib.sha256(repr(network).encode())
    for name, value in sorted(network.state_dict().items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {digest_of_tensor(value)}".encode())
    return digest.hexdigest()


def digest_of_tensor(tensor: Tensor) -> str:
    """Return a text that identifies a tensor by its type, its shape and all its numbers.

    Examples
    --------
    >>> digest_of_tensor(torch.zeros(2, 1)) == digest_of_tensor(torch.zeros(1, 2))
    False
    """
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride() != (1,):  # a tensor with one number may have any stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_place(cache: str | os.PathLike[str], *, owner: str) -> None:
    if not Path(cache).parent.is_dir():
        raise InvalidArgumentError(f"There is no folder {Path(cache).parent} for the 'cache' of {owner}.")
    if Path(cache).is_dir():
        raise InvalidArgumentError(f"The 'cache' of {owner} must be a file; {cache} is a folder.")


def _identity(data: Any, batches: Any, *, owner: str) -> list[Any]:
    """Return what identifies data: all numbers of a tensor, otherwise the length, some rows and a loader's order."""
    if isinstance(data, Tensor):
        return ["tensor", digest_of_tensor(data)]
    n_rows = _length(getattr(batches, "dataset", None))
    if isinstance(batches, DataLoader) and n_rows and hasattr(batches.dataset, "__getitem__"):
        return ["loader", n_rows, *_identity_of_rows(batches, n_rows), _identity_of_order(batches, n_rows)]
    again = iter(batches)
    if again is batches:
        raise InvalidArgumentError(
            f"The 'cache' of {owner} is for data that one can go through again, such as a DataLoader or a list of "
            f"batches; got {type(batches).__name__}, which is used up by a look at its first batch."
        )
    return ["batches", _length(batches), _digest_of(next(again, None))]


def _identity_of_rows(loader: DataLoader, n_rows: int) -> list[str]:
    """Return digests of all numbers of tensors, and of three rows after collation."""
    rows = [loader.dataset[row] for row in (0, n_rows // 2, n_rows - 1)]
    collated = rows if loader.batch_sampler is None else loader.collate_fn(rows)
    tensors = loader.dataset.tensors if isinstance(loader.dataset, TensorDataset) else ()
    return [*map(digest_of_tensor, tensors), _digest_of(collated)]


def _identity_of_order(loader: DataLoader, n_rows: int) -> list[Any]:
    """Return a digest of the rows that a loader takes, or ``"all"`` if it takes each row once, in any order."""
    sampler: Any = loader.sampler
    takes_all = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == n_rows
    )
    if takes_all and type(loader.batch_sampler) in (BatchSampler, type(None)):
        return ["all", len(loader) if loader.drop_last else None]
    with torch.random.fork_rng(devices=[]):  # a sampler may draw random numbers
        return ["some", _digest_of(list(sampler if loader.batch_sampler is None else loader.batch_sampler))]


def _digest_of(value: Any) -> str:
    """Return a digest of nested tuples and mappings of tensors and arrays. Other objects count by their ``repr``."""
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    if isinstance(value, np.ndarray):
        return hashlib.sha256(f"{value.dtype} {value.shape}".encode() + value.tobytes()).hexdigest()
    if isinstance(value, Mapping):
        value = [part for item in sorted(value.items(), key=lambda item: str(item[0])) for part in item]
    if isinstance(value, tuple | list):
        return hashlib.sha256(" ".join(map(_digest_of, value)).encode()).hexdigest()
    return repr(value)


def _read_cache(path: str | os.PathLike[str], identity: dict[str, Any], *, owner: str) -> Features | None:
    """Return the features in a file, or None if it is damaged or belongs to another network or other data."""
    if not Path(path).exists() or not Path(path).stat().st_size:
        return None
    if stored_kind(path) not in (_KIND, _OLD_KIND):
        raise InvalidArgumentError(
            f"The 'cache' of {owner}, {path}, is there already and holds no features: remove it, or choose another."
        )
    try:
        config, tensors = read_model(path, _KIND, _FORMAT)
    except ModelFileError:
        return None
    return Features(tensors["X"], tensors.get("y")) if config == identity else None


def _parts(batch: Any, *, owner: str) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return positional inputs, inputs by name, and labels of a batch."""
    if isinstance(batch, Mapping):
        labels = [batch[key] for key in _LABEL_KEYS if key in batch]
        return (), {k: v for k, v in batch.items() if k not in _LABEL_KEYS}, labels[0] if labels else None
    if isinstance(batch, Tensor):
        return (batch,), {}, None
    if isinstance(batch, tuple | list) and batch:
        return (tuple(batch), {}, None) if len(batch) == 1 else (tuple(batch[:-1]), {}, batch[-1])
    raise InvalidArgumentError(
        f"A batch of {owner} must be a tensor, a tuple of tensors that ends with labels, or a mapping with labels "
        f"under 'labels'; got {type(batch).__name__}."
    )


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _as_indices(y: Any, *, owner: str) -> Int64[Tensor, " n"]:
    y = torch.as_tensor(y).detach().cpu()
    if y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise InvalidArgumentError(
            f"Labels of a batch of {owner} must be class indices of shape (n,), the last part of a tuple; got "
            f"{y.dtype}, shape {tuple(y.shape)}. Inputs that come by name, in a mapping, are not taken for labels."
        )
    return y.long()


def _checked(X: Any, network: nn.Module) -> Float[Tensor, "n d"]:
    name = type(network).__name__
    if not isinstance(X, Tensor) or X.ndim < 2 or not X.is_floating_point():
        came = f"{X.dtype} of shape {tuple(X.shape)}" if isinstance(X, Tensor) else type(X).__name__
        raise InvalidArgumentError(
            f"The network of features, {name}, must return a tensor of numbers of shape (n, d) for a batch; got {came}."
        )
    X = X.detach().flatten(1).cpu()
    X = X.float() if X.dtype in (torch.float16, torch.bfloat16) else X
    if not bool(torch.isfinite(X).all()):
        raise InvalidArgumentError(f"The network of features, {name}, returned numbers that are not finite.")
    return X


@contextmanager
def progress_of(name: str, progress: bool | None) -> Iterator[Callable[[float], None] | None]:
    """Return a context with a progress bar, and a function that tells it the share of the work done; None if hidden."""
    if not _is_shown(progress):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _is_shown(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


def _with_progress(batches: Iterable[Any], progress: bool | None) -> Iterable[Any]:
    if not _is_shown(progress):
        return batches
    from rich.console import Console
    from rich.progress import track

    return track(batches, "features", total=_length(batches), console=Console(stderr=True))


def _length(data: Any) -> int | None:
    """Return the length, or None if it is unknown, as for a DataLoader of an IterableDataset."""
    with suppress(TypeError):
        return len(data)
    return None
