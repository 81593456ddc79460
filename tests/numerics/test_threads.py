"""Work in threads of one thread each, and the products within it."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch.testing import assert_close

from gaussify._numerics import noting_jitter, product, solve_lower, stable_cholesky, worker_threads
from gaussify.exceptions import JitterWarning


@pytest.fixture(params=[1, 2])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_results_come_in_order_and_items_are_paired_as_by_map(n_threads):
    with worker_threads() as over:
        assert list(over(lambda x, y: x - y, range(50), range(0, 100, 2))) == [-i for i in range(50)]


def test_every_worker_computes_with_one_thread_and_afterwards_all_is_as_before(n_threads):
    before = blas_threads()
    with worker_threads() as over:
        seen = list(over(lambda _: (torch.get_num_threads(), blas_threads(), threading.get_ident()), range(20)))
    assert {of_torch for of_torch, *_ in seen} == {1}
    assert all(of_blas == {1} for _, of_blas, _ in seen)
    if n_threads > 1:
        assert threading.get_ident() not in {ident for *_, ident in seen}
    assert torch.get_num_threads() == n_threads
    assert blas_threads() == before


def test_an_error_reaches_the_caller_and_leaves_no_trace(n_threads):
    before = blas_threads()

    def fail(number):
        raise ArithmeticError(str(number))

    with pytest.raises(ArithmeticError, match=r"^3$"), worker_threads() as over:
        list(over(fail, [3, 4, 5]))
    assert torch.get_num_threads() == n_threads
    assert blas_threads() == before
    with worker_threads() as over:
        assert list(over(abs, [-1])) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("is_written", [False, True], ids=["new", "out"])
def test_products_are_those_of_torch(n_threads, dtype, is_written):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape, generator=generator).to(dtype) for shape in ((7, 5), (5, 4)))
    out = torch.full((9, 4), torch.nan, dtype=dtype)
    found = product(left, right, out=out[1:8] if is_written else None)
    assert_close(found, left @ right)
    assert_close(product(left.mT, left), left.mT @ left)
    if is_written:
        assert_close(out[1:8], left @ right)
        assert torch.isnan(out[[0, 8]]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_triangular_systems_are_solved(n_threads, dtype):
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(6, 6, generator=generator, dtype=dtype).tril() + 3.0 * torch.eye(6, dtype=dtype)
    right = torch.randn(6, 4, generator=generator, dtype=dtype)
    kept = right.clone()
    found = solve_lower(factor, right)
    assert found.dtype == dtype
    assert_close(found, torch.from_numpy(np.linalg.solve(factor.numpy(), right.numpy())))
    assert torch.equal(right, kept)
    assert_close(solve_lower(factor, torch.eye(6, dtype=dtype)) @ factor, torch.eye(6, dtype=dtype), atol=1e-6, rtol=0)


def test_the_last_of_several_threads_that_work_at_once_restores_the_blas():
    before, order, n_torch = blas_threads(), [], []
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        torch.set_num_threads(2)
        with worker_threads() as over:
            first_in.set()
            second_in.wait()
            list(over(abs, [-1, -2]))
        n_torch.append(torch.get_num_threads())
        first_out.set()

    def second():
        torch.set_num_threads(2)
        first_in.wait()
        with worker_threads() as over:
            second_in.set()
            first_out.wait()
            order.extend(over(lambda _: (torch.get_num_threads(), blas_threads()), range(4)))
        n_torch.append(torch.get_num_threads())

    n_own = torch.get_num_threads()
    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == [(1, {1})] * 4  # although the other has left
    assert n_torch == [2, 2]
    assert blas_threads() == before
    assert torch.get_num_threads() == n_own
    torch.set_num_threads(n_own)  # for threads that begin later, too


def test_few_results_wait_to_be_taken():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    begun = []
    try:
        with worker_threads() as over:
            results = over(begun.append, range(100))
            next(results)
            time.sleep(0.2)
            assert len(begun) <= 5
            assert len(list(results)) == 99
    finally:
        torch.set_num_threads(before)


def test_work_goes_on_when_the_main_thread_has_ended():
    program = """
import threading, time, torch
from gaussify._numerics import worker_threads

def work():
    time.sleep(0.5)
    with worker_threads() as over:
        print(sum(over(abs, [-1, -2, -3])))

torch.set_num_threads(2)
threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("6", "")


def test_jitter_is_noted_by_the_search_that_the_work_is_for(n_threads):
    singular = torch.ones(3, 3).double()
    with noting_jitter() as noted, worker_threads() as over:
        list(over(stable_cholesky, [singular] * 4))
        with noting_jitter() as inner:
            list(over(stable_cholesky, [singular] * 2))
    assert (len(noted), len(inner)) == (4, 2)
    with pytest.warns(JitterWarning):
        stable_cholesky(singular)
