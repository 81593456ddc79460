"""Cholesky factors, and what is announced where they would not exist."""

import re
import warnings

import pytest
import torch
from torch.testing import assert_close

from gaussify._numerics import stable_cholesky
from gaussify.exceptions import GaussifyError, JitterWarning, NumericalError

DTYPES = [torch.float32, torch.float64]


def positive_definite(*batch: int, d: int = 4, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    root = torch.randn(*batch, d, d, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return root @ root.mT + torch.eye(d, dtype=dtype)


def singular(d: int = 4, dtype: torch.dtype = torch.float64, lowest: float = 0.0) -> torch.Tensor:
    """Of rank one, its smallest eigenvalue lowered to ``lowest``."""
    return torch.ones(d, d, dtype=dtype) + lowest * torch.eye(d, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_positive_definite_matrices_have_their_exact_factor(dtype, batch):
    matrix = positive_definite(*batch, dtype=dtype)
    assert_close(stable_cholesky(matrix), torch.linalg.cholesky(matrix), rtol=0, atol=0)


@pytest.mark.parametrize(("lowest", "amount"), [(-1e-11, 1e-10), (-1e-9, 1e-8), (-1e-7, 1e-6), (-1e-5, 1e-4)], ids=str)
def test_jitter_is_the_smallest_that_does_and_is_announced(lowest, amount):
    matrix = singular(lowest=lowest)
    with pytest.warns(JitterWarning, match=f"1 of 1 matrices .* {amount:g} of the diagonal"):
        factor = stable_cholesky(matrix)
    expected = matrix + amount * torch.diag(matrix.diagonal())
    assert_close(factor @ factor.mT, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10], ids=str)
def test_jitter_is_relative_to_the_scale_of_the_matrix(dtype, scale):
    matrix = scale * singular(dtype=dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        factor = stable_cholesky(matrix)
    amounts = [float(re.search(r"(\S+) of the\s+diagonal", str(w.message))[1]) for w in caught]
    assert amounts == [] or amounts[0] <= (1e-6 if dtype is torch.float32 else 1e-12)
    assert_close(factor @ factor.mT, matrix, rtol=1e-5, atol=0)


def test_only_the_matrices_that_need_it_are_touched():
    matrices = positive_definite(5)
    matrices[[1, 3]] = singular(lowest=-1e-9)
    with pytest.warns(JitterWarning, match="2 of 5 matrices"):
        factors = stable_cholesky(matrices)
    untouched = [0, 2, 4]
    assert_close(factors[untouched], torch.linalg.cholesky(matrices[untouched]), rtol=0, atol=0)


def test_a_matrix_that_needs_little_gets_no_more_because_another_needs_much():
    matrices = torch.stack([singular(lowest=-1e-11), singular(lowest=-1e-7)])
    with pytest.warns(JitterWarning):
        factors = stable_cholesky(matrices)
    added = (factors @ factors.mT - matrices).diagonal(dim1=-2, dim2=-1).amax(-1)
    assert added[0] < 1e-9


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_indefinite_matrix_is_an_error_that_names_its_smallest_eigenvalue(dtype):
    with pytest.raises(NumericalError, match=r"not positive definite.*smallest eigenvalue is -3"):
        stable_cholesky(torch.tensor([[1.0, 4.0], [4.0, 1.0]], dtype=dtype))


@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (1, 0)], ids=str)
def test_a_matrix_that_is_not_finite_is_an_error(value, place):
    matrices = positive_definite(3)
    matrices[1][place] = matrices[1][place[::-1]] = value
    with pytest.raises(NumericalError, match="infinities or NaN"):
        stable_cholesky(matrices)


def test_errors_are_arithmetic_errors_of_gaussify():
    assert issubclass(NumericalError, GaussifyError)
    assert issubclass(NumericalError, ArithmeticError)
    assert issubclass(JitterWarning, UserWarning)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("d", [1, 5, 80])
def test_what_is_not_finite_is_refused_wherever_it_is_read(value, batch, d):
    for place in {(0, 0), (d - 1, d - 1), (d - 1, 0), (d // 2, d // 2)}:
        matrix = positive_definite(*batch, d=d)
        matrix[(..., *place)] = value
        with pytest.raises(NumericalError, match="infinities or NaN"):
            stable_cholesky(matrix)


def test_the_upper_triangle_is_not_read():
    matrix = positive_definite()
    expected = torch.linalg.cholesky(matrix)
    matrix[0, 3] = torch.nan
    assert torch.equal(stable_cholesky(matrix), expected)
