"""The C++ core against the reference, called directly: what ``make sanitize`` runs."""

from __future__ import annotations

import math

import pytest
import torch

from fenchel.kernels._table import definition, kernel_for, row_maps
from fenchel.kernels.native import _library
from fenchel.maps.declaration import MAPS

pytestmark = pytest.mark.skipif(_library.LIBRARY is None, reason=_library.REASON)

ROW_MAPS = {m.name: m for _, m in sorted(MAPS.items()) if m.name in row_maps()}
#: Exponents whose powers the core takes in other ways than those of the examples.
MORE = {"entmax": (1.1, 1.125, 7 / 6, 1.2, 1.3, 1.7, 1.95, 6.0, 0.3), "sq_pnorm_max": (1.2, 1.7)}
PARAMETERS = [
    (name, value)
    for name, declared in ROW_MAPS.items()
    for value in (declared.default, *declared.argument.examples, *MORE.get(name, ()))
    if value <= 3 or not declared.argument.up_to_entries
]
ALPHAS = [value for name, value in PARAMETERS if name == "entmax"]
NUMBER_ONLY = tuple(name for name, m in ROW_MAPS.items() if not m.argument.per_row)
LENGTHS = [3, 8, 15, 16, 17, 33, 64, 65, 160, 161, 255, 1024, 1500, 9001]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
every_kernel = pytest.mark.parametrize(("op", "parameter"), PARAMETERS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def native(op):
    return kernel_for(op, torch.zeros(1))


def scores(*shape, rng, dtype, scale=1.0):
    x = scale * torch.randn(shape, generator=rng, dtype=torch.float64)
    x[torch.rand(shape, generator=rng) < 0.1] = -math.inf
    return x.to(dtype)


def assert_close(got, expected, dtype):
    torch.testing.assert_close(
        got.double(), expected, atol=TOLERANCE[dtype], rtol=0, equal_nan=True
    )


@every_kernel
@every_dtype
@pytest.mark.parametrize("n", LENGTHS)
def test_forward(op, parameter, dtype, n, rng):
    for scale in (0.05, 1.0, 10.0):
        x = scores(19 if n < 2000 else 3, n, rng=rng, dtype=dtype, scale=scale)
        x[0] = -math.inf
        x[1, n // 2] = math.nan
        x[2, 0] = math.inf
        got = native(op)(x, parameter, 1)
        assert_close(got, definition(op)(x.double(), parameter, 1), dtype)


@every_kernel
@every_dtype
@pytest.mark.parametrize("shape", [(7, 5, 3), (2, 161, 20), (3, 4, 1), (0, 4, 2), (2, 3, 0)])
def test_any_axis(op, parameter, dtype, shape, rng):
    x = scores(*shape, rng=rng, dtype=dtype)
    for dim in range(3):
        if shape[dim] >= 3:
            got = native(op)(x, parameter, dim)
            expected = native(op)(x.movedim(dim, -1), parameter, 2).movedim(-1, dim)
            assert torch.equal(got, expected)


@every_dtype
@pytest.mark.parametrize("n", [5, 50, 300])
def test_one_parameter_a_row_equals_one_for_all(dtype, n, rng):
    x = scores(len(ALPHAS), n, rng=rng, dtype=dtype)
    mixed = native("entmax")(x, torch.tensor(ALPHAS, dtype=torch.float64).unsqueeze(1), 1)
    for row, alpha in enumerate(ALPHAS):
        assert torch.equal(mixed[row], native("entmax")(x[row : row + 1], alpha, 1)[0])


@every_kernel
@every_dtype
@pytest.mark.parametrize("shape", [(9, 1, 4), (9, 4), (9, 50), (40, 65), (9, 161), (3, 5, 200)])
def test_backward_sums_to_zero_and_skips_zeros(op, parameter, dtype, shape, rng):
    x = scores(*shape, rng=rng, dtype=dtype)
    grad = torch.randn(shape, generator=rng, dtype=dtype)
    dim = len(shape) - 1
    p = native(op)(x, parameter, dim)
    grad = torch.where(p == 0, torch.nan, grad)  # what has no mass must not even be read
    grad_x, grad_rows = native(f"{op}.backward")(p, grad, parameter, dim, True)
    assert (grad_x[p == 0] == 0).all()
    assert grad_x.isfinite().all()
    assert grad_rows.isnan().all() if op in NUMBER_ONLY else grad_rows.isfinite().all()
    scale = grad_x.abs().sum(-1).double().clamp(min=1)
    assert (grad_x.double().sum(-1).abs() <= 1e-5 * scale).all()


@every_dtype
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [4, 50, 700])
def test_sparse_rows_are_the_dense_rows(dtype, alpha, n, rng):
    x = scores(23, n, rng=rng, dtype=dtype, scale=2.0)
    x[3] = -math.inf
    dense = native("entmax")(x, alpha, 1)
    indices, values, sizes, threshold = native("entmax.sparse")(x, alpha)
    rows, columns = dense.nonzero(as_tuple=True)
    assert torch.equal(indices, columns)
    assert torch.equal(values, dense[rows, columns])
    assert torch.equal(sizes, (dense > 0).sum(1))
    assert threshold.shape == sizes.shape


def test_same_result_for_any_number_of_threads(threads, rng):
    x = scores(4000, 50, rng=rng, dtype=torch.float32)
    results = []
    for count in (1, 2, 3, 7):
        threads(count)
        results.append(native("entmax")(x, 1.3, 1))
    assert all(torch.equal(results[0], other) for other in results[1:])
