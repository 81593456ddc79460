"""Where files are looked for, and how they are checked on reading and written whole."""

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

_TIMEOUT = 60.0  # seconds without an answer


class DatasetError(GaussifyError, OSError):
    """A file of a data set is missing, damaged, or cannot be downloaded.

    Examples
    --------
    >>> issubclass(DatasetError, OSError)
    True
    """


def cache_folder() -> Path:
    """Return the folder for what gaussify downloads or computes once; it need not be there yet.

    It is named by the environment variable ``GAUSSIFY_CACHE``; without it, it is ``gaussify`` in ``XDG_CACHE_HOME``,
    and without that in ``~/.cache``.

    Examples
    --------
    >>> cache_folder().is_absolute()
    True
    """
    if own := os.environ.get("GAUSSIFY_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "gaussify"


def search_folders() -> list[Path]:
    """Return the folders in which a file is looked for: that named by ``GAUSSIFY_DATA``, and the cache."""
    named = os.environ.get("GAUSSIFY_DATA")
    return [Path(named).expanduser().absolute(), cache_folder()] if named else [cache_folder()]


def find(file: str, *, elsewhere: Sequence[Path] = ()) -> Path | None:
    """Return the path of a file in the search folders, or in those of its kind alone; None where there is none."""
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
    """Return what ``parse`` makes of a file: found, or fetched and then kept in the cache.

    Parameters
    ----------
    dataset, file
        The name of the data set, and the path of the file in any of the search folders.
    parse
        From the content and a name for messages, what is wanted; it refuses content that is not right.
    remedy
        What to do where the file is missing.
    fetch
        Downloads the content; None where that is not possible or not wanted.
    elsewhere
        Further folders that may hold the file.
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
    """Return what an address holds; any error is an :class:`OSError`."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
        return bytes(answer.read())


def unpack(content: bytes, *, name: str, suffix: str) -> bytes:
    """Return what a file holds that ends in ``.gz`` or ``.xz``.

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
    """Refuse content of another checksum."""
    if (found := hashlib.sha256(content).hexdigest()) != expected:
        raise damaged(name, f"its SHA-256 checksum begins with {found[:12]}, not {expected[:12]}")


def damaged(name: str, reason: str) -> DatasetError:
    """Return the error for a file that is not what it should be."""
    return DatasetError(
        f"{name} is truncated or not the right file: {reason}; remove it if it was kept, and fetch it anew."
    )
