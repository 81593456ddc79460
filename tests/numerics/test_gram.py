"""Sums of rows and of their outer products, against loops over rows."""

import pytest
import torch
from torch.testing import assert_close

from gaussify._numerics import add_moments_

DTYPES = [torch.float32, torch.float64]
WEIGHTS = {"unweighted": None, "positive": (0.1, 3.0), "negative": (-3.0, -0.1), "of both signs": (-2.0, 2.0)}
weights = pytest.mark.parametrize("limits", WEIGHTS.values(), ids=WEIGHTS)


def problem(limits=None, n: int = 7, d: int = 4, dtype: torch.dtype = torch.float64):
    """Rows, their weights, and moments that are not zero to begin with."""
    generator = torch.Generator().manual_seed(0)
    total, gram, rows = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((d,), (d, d), (n, d)))
    weight = None if limits is None else torch.empty(n, dtype=dtype).uniform_(*limits, generator=generator)
    return total, gram, rows, weight


def loop_over_rows(total, gram, rows, weight):
    for row, w in zip(rows, torch.ones(len(rows)) if weight is None else weight, strict=True):
        total, gram = total + w * row, gram + w * torch.outer(row, row)
    return total, gram


@weights
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_moments_equal_a_loop_over_rows(limits, dtype, n):
    total, gram, rows, weight = problem(limits, n=n, dtype=dtype)
    expected = loop_over_rows(total, gram, rows, weight)
    add_moments_(total, gram, rows, weight)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-13
    assert_close((total, gram), expected, rtol=tolerance, atol=tolerance)


@weights
def test_rows_and_weights_are_left_as_they_are(limits):
    total, gram, rows, weight = problem(limits)
    add_moments_(total, gram, rows, weight)
    assert_close((rows, weight), problem(limits)[2:], rtol=0, atol=0)


def test_moments_may_be_parts_of_larger_tensors():
    *_, rows, weight = problem((0.1, 3.0))
    totals, grams = torch.zeros(3, 4).double(), torch.zeros(3, 4, 4).double()
    add_moments_(totals[1], grams[1], rows, weight)
    assert_close((totals[1], grams[1]), loop_over_rows(torch.zeros(4), torch.zeros(4, 4), rows, weight))
    assert not totals[[0, 2]].any()
    assert not grams[[0, 2]].any()


@pytest.mark.parametrize(
    ("limits", "which"), [(None, "rows"), *((WEIGHTS["of both signs"], which) for which in ("rows", "weight", "both"))]
)
def test_gradients_are_those_of_a_loop_over_rows(limits, which):
    total, gram, rows, weight = problem(limits)
    a, b, *_ = problem(n=1)
    wanted = [x.requires_grad_() for name, x in (("rows", rows), ("weight", weight)) if which in (name, "both")]
    gradients = []
    for moments in (loop_over_rows(total, gram, rows, weight), (total, gram)):
        if moments[0] is total:
            add_moments_(total, gram, rows, weight)
        gradients.append(torch.autograd.grad((moments[0] * a).sum() + (moments[1] * b).sum(), wanted))
    assert gradients[0][0].any()
    assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-12)


@weights
def test_moments_with_a_graph_are_those_without(limits):
    total, gram, rows, weight = problem(limits)
    plain = total.clone(), gram.clone()
    add_moments_(*plain, rows, weight)
    add_moments_(total, gram, rows.requires_grad_(), weight)
    assert_close((total, gram), plain, rtol=1e-13, atol=1e-13, check_stride=False)
