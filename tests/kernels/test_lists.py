"""Products of listed rows: the core, the reference and dense matrices agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fenchel import kernels
from fenchel.kernels import Lists

DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12}
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
WIDTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 160, 200, 257, 300]
SHAPES = [(1, 1), (1, 40), (40, 1), (50, 300), (300, 50)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
densities = pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 1.0])


def sparse(rows: int, n: int, density: float, rng, dtype=torch.float64) -> Tensor:
    x = torch.randn(rows, n, generator=rng, dtype=torch.float64).to(dtype)
    return x * (torch.rand(rows, n, generator=rng) < density)


def listed(dense: Tensor) -> Lists:
    inside = dense != 0
    sizes = inside.sum(1)
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return Lists(starts, inside.nonzero()[:, 1].int(), dense[inside])


def to_dense(lists: Lists, n: int) -> Tensor:
    dense = torch.zeros(lists.rows, n, dtype=lists.values.dtype)
    row = torch.arange(lists.rows).repeat_interleave(lists.starts.diff())
    assert (dense[row, lists.indices.long()] == 0).all()
    dense[row, lists.indices.long()] = lists.values
    return dense


def assert_close(got, wanted, dtype, size=1):
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted.double(), atol=DTYPES[dtype] * size, rtol=0)


@every_dtype
@shapes
@densities
@pytest.mark.parametrize("scaled", [False, True])
def test_times_matrix(dtype, shape, density, scaled, backend, rng):
    dense = sparse(*shape, density, rng, dtype)
    matrix = torch.randn(shape[1], 19, generator=rng).to(dtype)
    scale = torch.randn(shape[0], generator=rng).to(dtype) if scaled else None
    got = kernels.times_matrix(listed(dense), matrix, scale)
    wanted = dense.double() @ matrix.double()
    wanted = wanted if scale is None else wanted * scale.double()[:, None]
    assert_close(got, wanted, dtype, size=10)


@every_dtype
@pytest.mark.parametrize("d", WIDTHS)
def test_times_matrix_of_any_width(dtype, d, backend, rng):
    dense = sparse(9, 30, 0.3, rng, dtype)
    matrix = torch.randn(30, d, generator=rng).to(dtype)
    got = kernels.times_matrix(listed(dense), matrix)
    assert got.shape == (9, d)
    assert_close(got, dense.double() @ matrix.double(), dtype)


@every_dtype
def test_times_matrix_does_not_read_what_is_not_named(dtype, backend, rng):
    dense = sparse(9, 30, 0.3, rng, dtype)
    dense[:, ::3] = 0
    matrix = torch.randn(30, 21, generator=rng).to(dtype)
    wanted = kernels.times_matrix(listed(dense), matrix)
    matrix[::3] = torch.nan
    assert torch.equal(kernels.times_matrix(listed(dense), matrix), wanted)


def test_times_matrix_takes_any_layout(backend, rng):
    dense = sparse(9, 30, 0.3, rng)
    matrix = torch.randn(21, 30, generator=rng).double().t()
    scale = torch.randn(9, 2, generator=rng).double()[:, 0]
    got = kernels.times_matrix(listed(dense), matrix, scale)
    assert_close(got, dense @ matrix * scale[:, None], torch.float64)
    ones = torch.ones((), dtype=torch.float64).expand(9)
    assert_close(kernels.times_matrix(listed(dense), matrix, ones), dense @ matrix, torch.float64)


def test_times_matrix_of_lists_that_start_later(backend, rng):
    """Rows from the middle of a longer list: starts do not begin at 0."""
    dense = sparse(9, 30, 0.3, rng)
    matrix = torch.randn(30, 5, generator=rng).double()
    whole = listed(dense)
    if backend == "reference":
        pytest.skip("the reference numbers values from the first start")
    got = kernels.times_matrix(Lists(whole.starts[3:8], whole.indices, whole.values), matrix)
    assert_close(got, dense[3:7] @ matrix, torch.float64)


@every_dtype
@shapes
@densities
@pytest.mark.parametrize("scaled", [False, True])
def test_transpose(dtype, shape, density, scaled, backend, rng):
    dense = sparse(*shape, density, rng, dtype)
    scale = torch.randn(shape[0], generator=rng).to(dtype) if scaled else None
    lists = listed(dense)
    kept = [x.clone() for x in lists]
    got = kernels.transpose(lists, shape[1], scale)
    assert got.rows == shape[1]
    assert got.starts[0] == 0
    assert (got.starts.dtype, got.indices.dtype) == (torch.int64, torch.int32)
    turned = dense.t() if scale is None else dense.t() * scale
    assert torch.equal(to_dense(got, shape[0]), turned)
    column = torch.arange(shape[1]).repeat_interleave(got.starts.diff())
    assert ((column * shape[0] + got.indices).diff() > 0).all()  # rows in order in each column
    assert all(torch.equal(a, b) for a, b in zip(lists, kept, strict=True))
    back = kernels.transpose(kernels.transpose(lists, shape[1]), shape[0])
    assert all(torch.equal(a, b) for a, b in zip(back, lists, strict=True))


def test_transpose_keeps_zeros_that_are_listed(backend):
    """A scale of 0 makes zeros; the lists keep their lengths."""
    lists = listed(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    got = kernels.transpose(lists, 2, torch.tensor([0.0, 1.0]))
    assert got.starts.tolist() == [0, 1, 3]
    assert got.indices.tolist() == [0, 0, 1]
    assert got.values.tolist() == [0.0, 0.0, 3.0]


@every_dtype
def test_no_rows_and_no_columns(dtype, backend):
    none = listed(torch.zeros(0, 5, dtype=dtype))
    assert none.rows == 0
    assert kernels.times_matrix(none, torch.ones(5, 3, dtype=dtype)).shape == (0, 3)
    turned = kernels.transpose(none, 5)
    assert turned.starts.tolist() == [0] * 6
    assert turned.values.shape == (0,)
    empty = listed(torch.zeros(4, 5, dtype=dtype))
    assert (kernels.times_matrix(empty, torch.full((5, 3), torch.nan, dtype=dtype)) == 0).all()


@every_dtype
@pytest.mark.parametrize("sizes", [[5], [1, 1, 1], [0, 3, 0], [0, 0], [4, 1, 6]], ids=str)
def test_join(dtype, sizes, rng):
    dense = sparse(sum(sizes), 8, 0.4, rng, dtype)
    got = kernels.join([listed(part) for part in dense.split(sizes)])
    wanted = listed(dense)
    for mine, theirs in zip(got, wanted, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype


def test_join_leaves_its_parts_alone(rng):
    parts = [listed(sparse(3, 8, 0.4, rng)) for _ in range(3)]
    kept = [[x.clone() for x in part] for part in parts]
    kernels.join(parts)
    for part, copy in zip(parts, kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(part, copy, strict=True))


@every_dtype
def test_threads_change_no_digit(dtype, threads, rng):
    dense = sparse(700, 400, 0.1, rng, dtype)
    matrix = torch.randn(400, 70, generator=rng).to(dtype)
    scale = torch.randn(700, generator=rng).to(dtype)
    results = []
    for count in (1, 2, 3, 7, 16):
        threads(count)
        lists = listed(dense)
        results.append([kernels.times_matrix(lists, matrix, scale)])
        results[-1] += kernels.transpose(lists, 400, scale)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@every_dtype
def test_a_row_does_not_depend_on_its_neighbours(dtype, rng):
    dense = sparse(40, 60, 0.3, rng, dtype)
    matrix = torch.randn(60, 33, generator=rng).to(dtype)
    together = kernels.times_matrix(listed(dense), matrix)
    for row in (0, 17, 39):
        alone = kernels.times_matrix(listed(dense[row : row + 1]), matrix)
        assert torch.equal(alone[0], together[row])
