"""Work in several processes, which end when the first process ends, for whatever reason.

Threads would be enough for large matrices. Many small operations in sequence need processes because of Python's lock.
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

_MANY = 10  # calls per process, so that starting it is worth its seconds

_shared: tuple[Any, ...] = ()  # in a worker


@contextmanager
def worker_processes(n_calls: int, *shared: Any) -> Iterator[Map]:
    """Yield a ``map`` for functions of ``shared`` and an item, which runs in as many processes as torch has threads.

    Each process computes with one thread and receives ``shared`` once. A few calls run in this process alone.

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
    # a forked process would wait forever for the threads of libraries, which it does not inherit
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles it
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _call(function: Callable[..., Any], item: Any) -> Any:
    return function(*_shared, item)
