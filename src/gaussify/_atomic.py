"""Files that are written completely or not at all: under another name first, and renamed once they are complete."""

import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_TOKEN_BYTES = 8
_SETTLED = 60.0  # seconds after which a file that is being written is surely locked

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: open files cannot be removed there, and folders cannot be locked

    def _lock(file: IO[bytes] | int) -> None:
        """Nothing is needed."""

    def _wait_for(folder: int) -> None:
        """Nothing can be done."""
else:

    def _lock(file: IO[bytes] | int) -> None:
        """Lock a file until it is closed or the process ends; BlockingIOError if another process holds it."""
        flock(file, LOCK_EX | LOCK_NB)

    def _wait_for(folder: int) -> None:
        """Lock a folder, after waiting for the process that holds it."""
        flock(folder, LOCK_EX)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``path`` once it is complete, and is removed if an error occurs.

    A process that is killed cannot remove its file; the next process that writes this path does so.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "greeting.txt")) as file:
    ...         _ = file.write(b"hello")
    ...     [path.name for path in Path(folder).iterdir()]
    ['greeting.txt']
    """
    _remove_remains(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
    try:
        with open(beside, "xb") as file:
            with suppress(OSError):  # some network drives have no locks; remains then stay
                _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == os.fspath(beside):
            error.filename = os.fspath(path)  # the name that the user gave
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, and the folders above it, so that it holds either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


@contextmanager
def only_one(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold a folder so that one process at a time reads and replaces its files; others wait until it has ended.

    Without waiting, BlockingIOError is raised if another process holds the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, only_one(Path(folder)):
    ...     pass
    """
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError:  # reading the folder will explain it
        yield
        return
    try:
        _hold(folder, waits=waits)
        yield
    finally:
        os.close(folder)


def _hold(folder: int, *, waits: bool) -> None:
    try:
        (_wait_for if waits else _lock)(folder)
    except BlockingIOError:
        raise
    except OSError:  # some network drives have no locks
        pass


def _remove_remains(path: Path) -> None:
    """Remove the files that killed processes left beside a path: those that no process holds."""
    pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * (2 * _TOKEN_BYTES)}"
    for left in path.parent.glob(pattern):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _SETTLED:
                with open(left, "rb") as file:
                    _lock(file)
                left.unlink()
