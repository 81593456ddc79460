"""Work in several processes, which end with the one that began them, however that ends.

Threads would do for large matrices. What is many small operations one after another waits for Python's own lock.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

import torch

from gaussify._numerics import Map

_MANY = 10  # calls that are worth the seconds which a process takes to begin

_shared: tuple[Any, ...] = ()  # in a worker


@contextmanager
def worker_processes(n_calls: int, *shared: Any) -> Iterator[Map]:
    """Give a ``map`` of functions of ``shared`` and an item, in as many processes as torch may use threads.

    Each of them computes with one thread and is sent ``shared`` once. For few calls there is none but this process.

    Examples
    --------
    >>> with worker_processes(2, 10) as over:
    ...     list(over(pow, [1, 2]))
    [10, 100]
    """
    n_workers = min(torch.get_num_threads(), n_calls // _MANY)
    if n_workers < 2:
        yield lambda function, items: map(partial(function, *shared), items)
        return
    # a fork would inherit the threads of libraries, and wait for them for ever
    pool = ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn"), _begin, shared)
    try:
        yield lambda function, items: pool.map(partial(_call, function), items)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(*shared: Any) -> None:
    from threadpoolctl import threadpool_limits

    global _shared
    _shared = shared
    torch.set_num_threads(1)
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the first process answers for all
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _call(function: Callable[..., Any], item: Any) -> Any:
    return function(*_shared, item)
