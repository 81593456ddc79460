"""Work in several threads, each of which computes in a single thread.

Threads inside a library synchronise after every operation, which costs a third of the time for matrices of a few
hundred columns, and threads of two libraries (torch and NumPy) compete. Threads that each take some rows or latents do
neither.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gaussify._numerics._gram import suits_numpy

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_Result = TypeVar("_Result")

Map = Callable[..., Iterator[Any]]
"""A function like the built-in ``map``: it yields results in the order of the items."""


@contextmanager
def worker_threads() -> Iterator[Map]:
    """Yield a ``map`` that works in as many threads as torch may use, each of which computes in a single thread.

    Results come in the order of the items, so sums of them are the same for any number of threads. Only a few results
    are computed ahead. Meanwhile, BLAS has one thread in the whole process, and torch has one in threads that start.

    Examples
    --------
    >>> with worker_threads() as over:
    ...     list(over(abs, [-1, -2]))
    [1, 2]
    """
    n_threads = torch.get_num_threads()
    with _single_blas:
        if n_threads == 1:
            yield map
            return
        try:
            torch.set_num_threads(1)  # for this thread alone
            with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                yield lambda function, *items: _in_order(pool, 2 * n_threads, function, list(zip(*items, strict=True)))
        finally:
            torch.set_num_threads(n_threads)


def _in_order(
    pool: ThreadPoolExecutor, n_waiting: int, function: Callable[..., _Result], items: list[tuple[object, ...]]
) -> Iterator[_Result]:
    if len(items) == 1:
        yield function(*items[0])
        return
    waiting: deque[Future[_Result]] = deque()
    for item in items:
        waiting.append(_submit(pool, function, item))
        if len(waiting) == n_waiting:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _submit(pool: ThreadPoolExecutor, function: Callable[..., _Result], item: tuple[object, ...]) -> Future[_Result]:
    try:
        return pool.submit(copy_context().run, function, *item)
    except RuntimeError:  # the main thread has ended, and with it all pools: compute here
        done: Future[_Result] = Future()
        done.set_result(function(*item))
        return done


class _SingleBlas:
    """A context that limits the BLAS of NumPy and SciPy to one thread, while any thread is inside."""

    def __init__(self) -> None:
        self._lock, self._n_inside = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._limits = _libraries().limit(limits=1, user_api="blas")
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._limits.restore_original_limits()


_single_blas = _SingleBlas()


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product of two matrices without a graph, by the faster library.

    In a single thread that is NumPy, which also takes half the time for a matrix times its own transpose.

    Examples
    --------
    >>> product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    if _prefers_numpy(left, right):
        found = np.matmul(left.numpy(), right.numpy(), out=None if out is None else out.numpy())
        return torch.from_numpy(found) if out is None else out
    return torch.mm(left, right, out=out)


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """Return the inverse of a lower triangular matrix times another one without a graph, by the faster library.

    Examples
    --------
    >>> solve_lower(torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[2.0], [2.0]]))
    tensor([[1.],
            [1.]])
    """
    if _prefers_numpy(factor, right):
        from scipy.linalg import get_blas_funcs  # imported here, as it is slow to import

        trsm = get_blas_funcs("trsm", (factor.numpy(), right.numpy()))
        return torch.from_numpy(trsm(1.0, factor.numpy().T, right.numpy().T, side=1, lower=0).T)  # by columns
    return torch.linalg.solve_triangular(factor, right, upper=False)


def _prefers_numpy(*tensors: Tensor) -> bool:
    return torch.get_num_threads() == 1 and suits_numpy(*tensors)


@lru_cache(maxsize=1)  # it searches all libraries that the process has loaded
def _libraries() -> "ThreadpoolController":
    import scipy.linalg  # noqa: F401, as its BLAS must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
