"""A second progress bar, for long work within a task, below the bar of the tasks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.progress import Progress

_bars: ContextVar[Progress | None] = ContextVar("bars", default=None)


@contextmanager
def bars_in(progress: Progress) -> Iterator[None]:
    """Show the bars of :func:`bar_of` below those of ``progress``.

    Examples
    --------
    >>> with Progress(disable=True) as progress, bars_in(progress), bar_of("VGG-11", n_steps=3):
    ...     progress.tasks[0].description
    'VGG-11'
    """
    token = _bars.set(progress)
    try:
        yield
    finally:
        _bars.reset(token)


@contextmanager
def bar_of(words: str, n_steps: int, n_done: int = 0) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step; outside of :func:`bars_in`, nothing is shown."""
    progress = _bars.get()
    if progress is None:
        yield lambda: None
        return
    bar = progress.add_task(words, total=n_steps, completed=n_done)
    try:
        yield lambda: progress.advance(bar)
    finally:
        progress.remove_task(bar)
