"""Files that are whole or not there: written beside their place and moved there once they are complete."""

import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_TOKEN_BYTES = 8
_SETTLED = 60.0  # seconds, after which a file that is being written has long been locked

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where nobody can remove a file that is open, and folders cannot be held

    def _lock(file: IO[bytes] | int) -> None:
        """Nothing is needed."""

    def _wait_for(folder: int) -> None:
        """Nothing can be done."""
else:

    def _lock(file: IO[bytes] | int) -> None:
        """Hold a file until it is closed or the process is dead; BlockingIOError if another holds it."""
        flock(file, LOCK_EX | LOCK_NB)

    def _wait_for(folder: int) -> None:
        """Hold a folder once nobody else does."""
        flock(folder, LOCK_EX)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of ``path`` once it is complete, and leaves nothing behind otherwise.

    A process that is killed cannot clear up; what it has left of this path is removed by the next that writes it.

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
            error.filename = os.fspath(path)  # which is what people know
        raise


@contextmanager
def only_one(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Let one process at a time read and replace what is in a folder; others wait until it is done, or dead.

    Without waiting, BlockingIOError where another has the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, only_one(Path(folder)):
    ...     pass
    """
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError:  # which whoever reads the model explains
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
    """Remove what processes that are dead have left beside a path: files that nobody holds."""
    pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * (2 * _TOKEN_BYTES)}"
    for left in path.parent.glob(pattern):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _SETTLED:
                with open(left, "rb") as file:
                    _lock(file)
                left.unlink()
