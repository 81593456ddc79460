"""Files of data sets: the folders that are searched, downloads and checksums."""

import gzip
import hashlib
import lzma
import os
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gaussify._atomic import write_bytes
from gaussify.exceptions import GaussifyError

Content = TypeVar("Content")

_TIMEOUT = 60.0  # seconds


class DatasetError(GaussifyError, OSError):
    """A file of a data set is missing, damaged, or cannot be downloaded.

    Examples
    --------
    >>> issubclass(DatasetError, OSError)
    True
    """


def cache_folder() -> Path:
    """Return the folder where gaussify keeps downloads and cached results; it may not exist yet.

    The environment variable ``GAUSSIFY_CACHE`` names it. Without this variable it is the folder ``gaussify`` in
    ``XDG_CACHE_HOME``, by default in ``~/.cache``.

    Examples
    --------
    >>> cache_folder().is_absolute()
    True
    """
    if own := os.environ.get("GAUSSIFY_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "gaussify"


def search_folders() -> list[Path]:
    """Return the folders that are searched for files: the one that ``GAUSSIFY_DATA`` names, then the cache."""
    named = os.environ.get("GAUSSIFY_DATA")
    return [Path(named).expanduser().absolute(), cache_folder()] if named else [cache_folder()]


def find(file: str, *, elsewhere: Sequence[Path] = ()) -> Path | None:
    """Return the path of a file in the search folders, or of its name in the folders ``elsewhere``; None if missing."""
    candidates = [folder / file for folder in search_folders()] + [folder / Path(file).name for folder in elsewhere]
    return next((path for path in candidates if path.is_file()), None)


def obtain(
    dataset: str,
    file: str,
    parse: Callable[[bytes, str], Content],
    *,
    remedy: str,
    fetch: Callable[[], bytes] | None,
    elsewhere: Sequence[Path] = (),
) -> Content:
    """Return the parsed content of a file, which is found, or else downloaded and then kept in the cache.

    Parameters
    ----------
    dataset, file
        Name of the data set, and path of the file relative to a search folder.
    parse
        Function from the content and a name for messages to the result. It raises an error for wrong content.
    remedy
        Advice for the error message if the file is missing.
    fetch
        Function that downloads the content; None if that is not possible or not wanted.
    elsewhere
        More folders that may hold the file.
    """
    path = find(file, elsewhere=elsewhere)
    if path is not None:
        return parse(path.read_bytes(), str(path))
    folders = ", ".join(str(folder) for folder in [*search_folders(), *elsewhere])
    unset = "" if os.environ.get("GAUSSIFY_DATA") else " (GAUSSIFY_DATA is not set)"
    message = f"Data set {dataset!r} needs the file {file}, which is not in {folders}{unset}"
    if fetch is None:
        raise DatasetError(f"{message}; {remedy}")
    try:
        content = fetch()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{message} and could not be downloaded ({str(error).rstrip('.')}); {remedy}") from error
    parsed = parse(content, f"The download of {file}")
    write_bytes(cache_folder() / file, content)
    return parsed


def download(url: str) -> bytes:
    """Return the content of an address; every error is an :class:`OSError`."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
        return bytes(answer.read())


def unpack(content: bytes, *, name: str, suffix: str) -> bytes:
    """Return the uncompressed content of a file that ends in ``.gz`` or ``.xz``.

    Examples
    --------
    >>> unpack(gzip.compress(b"pixels"), name="images.gz", suffix=".gz")
    b'pixels'
    """
    try:
        return {".gz": gzip.decompress, ".xz": lzma.decompress}[suffix](content)
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise damaged(name, str(error).rstrip(".")) from error


def check_sha256(content: bytes, expected: str, *, name: str) -> None:
    """Raise an error if content has another checksum."""
    if (found := hashlib.sha256(content).hexdigest()) != expected:
        raise damaged(name, f"its SHA-256 checksum begins with {found[:12]}, not {expected[:12]}")


def damaged(name: str, reason: str) -> DatasetError:
    """Return the error for a file with wrong content."""
    return DatasetError(
        f"{name} is truncated or not the right file: {reason}; remove it if it was kept, and download it again."
    )
