"""Folders in the cache for what an experiment keeps while it runs; the runner removes them."""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path

from gaussify import datasets
from gaussify.experiments._lab._registry import Settings, Task


def scratch_folder(experiment: str, settings: Settings, task: Task | None = None) -> Path:
    """Return the scratch folder of an experiment, or of one of its tasks; it need not exist yet.

    That of a task lasts until its result is on disk, that of an experiment until all tasks are done. ``--fresh``
    removes both.
    """
    folder = datasets.cache_folder() / "scratch" / experiment / _short_digest(settings)
    return folder if task is None else folder / _short_digest(task)


def remove_scratch(experiment: str, settings: Settings, task: Task | None = None) -> None:
    """Remove a scratch folder if it exists, and the folder above it if that is empty then."""
    folder = scratch_folder(experiment, settings, task)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # other tasks have theirs in it
        folder.parent.rmdir()


def _short_digest(values: Settings) -> str:
    return hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()[:16]
