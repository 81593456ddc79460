"""Work in threads of one thread each, and the products within it."""

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch.testing import assert_close

from gaussify._numerics import product, solve_lower, worker_threads


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
    if n_threads > 1:
        assert all(of_blas == {1} for _, of_blas, _ in seen)
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
