"""Model files: safetensors files with JSON in the header. Nothing in them is ever executed.

A file is written under another name and then moved, so that a reader sees either the old model or the new one.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

from gaussify._atomic import replacing
from gaussify._version import __version__
from gaussify.exceptions import InvalidArgumentError, ModelFileError

_KEY = "gaussify"
_DAMAGED = (ValueError, KeyError, TypeError, RecursionError, struct.error)  # which reading any other file may raise


def write_model(
    path: str | os.PathLike[str],
    kind: str,
    format_version: int,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a model atomically.

    Parameters
    ----------
    path
        Path of the file. A file that exists is replaced once the new one is complete.
    kind, format_version
        Class of the model, and version of its file format.
    config
        Values that JSON can hold.
    tensors
        Tensors by name.
    """
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        text = json.dumps(config, allow_nan=True, sort_keys=True)
    except TypeError as error:
        raise InvalidArgumentError(f"A parameter of this {kind} cannot be saved: {error}.") from None
    header = {
        "kind": kind,
        "format": str(format_version),
        "version": __version__,
        "config": text,
        "digest": _digest(text, tensors),
    }
    data = format_tensors(tensors, {_KEY: json.dumps(header)})
    with replacing(path) as file:
        file.write(data)


def read_model(
    path: str | os.PathLike[str], kind: str, format_version: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return configuration and tensors of a model, after checking kind, format and digest."""
    data = _read(path)
    try:
        tensors = parse_tensors(data)
        header = _header(data)
        text, digest = header["config"], header["digest"]
        found_kind, found_format, version = header["kind"], int(header["format"]), header["version"]
        config = json.loads(text)
    except (SafetensorError, *_DAMAGED) as error:
        raise ModelFileError(
            f"{path} holds no model of gaussify, or only a part of one ({type(error).__name__}: {error}). Was it "
            "copied completely?"
        ) from None
    if found_kind != kind:
        remedy = f": load it with {found_kind}.load" if found_kind.isidentifier() else ""
        raise ModelFileError(f"{path} holds a {found_kind}, not a {kind}{remedy}.")
    if found_format > format_version:
        raise ModelFileError(
            f"{path} was written by gaussify {version} in format {found_format}; gaussify {__version__} reads formats "
            f"up to {format_version}. Update gaussify to read it."
        )
    if digest != _digest(text, tensors):
        raise ModelFileError(f"{path} was altered after it was saved: its contents do not match its digest.")
    return config, tensors


def stored_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of model that the header of a file names; None for a file that gaussify did not write."""
    try:
        return _header(_read(path))["kind"]
    except _DAMAGED:
        return None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no model file {os.fspath(path)!r}. Check the path and the current folder, or save a model first."
        ) from None


def _header(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of configuration and tensors (name, type, shape, numbers): it finds damage, not forgery."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
