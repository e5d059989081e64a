"""The losses of the drop-in against the installed ``entmax`` 1.3: signatures, answers, gradients.

The package is compared in float64, where its bisection is exact to 1e-9; in float32 its normmax is
off by 1e-5 (see ``test_entmax.py``), and in half precision by some units in the last place.
"""

from __future__ import annotations

import inspect

import pytest
import torch

from fenchel.integrations import entmax as ours
from tests.integrations.loss_cases import (
    FUNCTIONS,
    MODULES,
    SORTED,
    WITH_ALPHA,
    agree,
    classes,
    every_function,
    every_module,
    every_reduction,
)
from tests.maps.cases import randn

package = pytest.importorskip("entmax")

CALLS = [
    *((name, {}) for name in FUNCTIONS),
    *((name, {"k": 3}) for name in SORTED),
    *(("entmax_bisect_loss", {"alpha": alpha}) for alpha in (1.05, 1.25, 1.7, 2, 3.0)),
    *(("normmax_bisect_loss", {"alpha": alpha}) for alpha in (1.25, 1.5, 3, 5.0)),
]
every_call = pytest.mark.parametrize(
    ("name", "kwargs"), [pytest.param(n, k, id=f"{n}-{k}") for n, k in CALLS]
)
DTYPES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


# ------------------------------------------------------------------------------------- signatures


@pytest.mark.parametrize("name", [*FUNCTIONS, *MODULES])
def test_signature(name):
    def described(function):
        return [
            (p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()
        ]

    assert described(getattr(ours, name)) == described(getattr(package, name))


@every_module
def test_methods_and_attributes_keep_their_names(name):
    theirs, mine = getattr(package, name)(), getattr(ours, name)()
    for method in ("forward", "loss"):
        assert list(inspect.signature(getattr(mine, method)).parameters) == ["X", "target"]
    for attribute in inspect.signature(getattr(package, name)).parameters:
        assert getattr(mine, attribute) == getattr(theirs, attribute)


# ---------------------------------------------------------------------------------------- answers


@every_call
@pytest.mark.parametrize("shape", [(40, 9), (1, 1), (3, 2), (5, 1), (1, 300)], ids=str)
def test_losses_and_gradients(name, kwargs, shape, rng):
    x, target = randn(*shape, rng=rng, scale=1.5), classes(shape[0], n=shape[1], rng=rng)
    agree(
        lambda x, t: getattr(package, name)(x, t, **kwargs),
        lambda x, t: getattr(ours, name)(x, t, **kwargs),
        x,
        target,
    )


@every_function
def test_both_backends(name, backend, rng):
    x, target = randn(20, 7, rng=rng), classes(20, n=7, rng=rng)
    agree(getattr(package, name), getattr(ours, name), x, target)


@every_call
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_dtypes(name, kwargs, dtype, rng):
    x, target = randn(40, 9, rng=rng, dtype=dtype), classes(40, n=9, rng=rng)
    agree(
        lambda x, t: getattr(package, name)(x, t, **kwargs),
        lambda x, t: getattr(ours, name)(x, t, **kwargs),
        x,
        target,
        atol=DTYPES[dtype],
    )
    assert getattr(ours, name)(x, target, **kwargs).dtype == dtype
    assert getattr(package, name)(x, target, **kwargs).dtype == dtype


@every_function
def test_autocast_keeps_the_dtype_of_the_scores(name, rng):
    x, target = randn(4, 5, rng=rng, dtype=torch.bfloat16), classes(4, n=5, rng=rng)
    with torch.autocast("cpu"):
        assert getattr(ours, name)(x, target).dtype == torch.bfloat16
        assert getattr(package, name)(x, target).dtype == torch.bfloat16


@every_function
def test_strides_and_an_int32_target(name, rng):
    x, target = randn(9, 40, rng=rng).T, classes(80, n=9, rng=rng)[::2]
    agree(getattr(package, name), getattr(ours, name), x, target)
    assert torch.equal(getattr(ours, name)(x, target.int()), getattr(ours, name)(x, target))


@every_function
def test_no_rows(name):
    x, target = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    assert getattr(ours, name)(x, target).shape == (0,)


@every_module
@every_reduction
@pytest.mark.parametrize("ignore_index", [-100, -1, 0, 3])
def test_modules(name, reduction, ignore_index, rng):
    x, target = randn(12, 5, rng=rng), classes(12, n=5, rng=rng)
    assert (target == 0).any() and (target == 3).any()
    kwargs = {"ignore_index": ignore_index, "reduction": reduction}
    agree(getattr(package, name)(**kwargs), getattr(ours, name)(**kwargs), x, target)


@pytest.mark.parametrize("name", ["EntmaxBisectLoss", "NormmaxBisectLoss"])
def test_alpha_of_a_module(name, rng):
    x, target = randn(12, 5, rng=rng), classes(12, n=5, rng=rng)
    agree(getattr(package, name)(1.3), getattr(ours, name)(1.3), x, target)
    assert not torch.equal(getattr(ours, name)(1.3)(x, target), getattr(ours, name)()(x, target))


@every_module
@every_reduction
def test_all_rows_ignored(name, reduction, rng):
    x, target = randn(3, 5, rng=rng), torch.full((3,), 2)
    mine = getattr(ours, name)(ignore_index=2, reduction=reduction)
    agree(getattr(package, name)(ignore_index=2, reduction=reduction), mine, x, target)
    assert mine(x, target).isnan().all() == (reduction == "elementwise_mean")


@every_module
def test_the_loss_of_a_module_ignores_nothing(name, rng):
    x, target = randn(6, 5, rng=rng), torch.full((6,), 2)
    losses = getattr(ours, name)(ignore_index=2).loss(x, target)
    assert torch.equal(losses, getattr(ours, MODULES[name])(x, target))
    theirs = getattr(package, name)(ignore_index=2).loss(x, target)
    torch.testing.assert_close(losses, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", WITH_ALPHA)
@pytest.mark.parametrize("alpha", [torch.tensor(1.3), torch.tensor([2.5]), torch.tensor(2)])
def test_one_alpha_in_a_tensor(name, alpha, rng):
    x, target = randn(6, 5, rng=rng), classes(6, n=5, rng=rng)
    alpha = alpha.double() if alpha.is_floating_point() else alpha
    agree(
        lambda x, t: getattr(package, name)(x, t, alpha),
        lambda x, t: getattr(ours, name)(x, t, alpha),
        x,
        target,
    )


def test_positional_order_is_that_of_the_package(rng):
    x, target = randn(5, 8, rng=rng), classes(5, n=8, rng=rng)
    for name, arguments in {
        "SparsemaxLoss": (3, 2, "sum"),
        "Entmax15Loss": (3, 2, "sum"),
        "SparsemaxBisectLoss": (60, 2, "sum"),
        "EntmaxBisectLoss": (1.25, 60, 2, "sum"),
        "NormmaxBisectLoss": (3.0, 60, 2, "sum"),
    }.items():
        agree(getattr(package, name)(*arguments), getattr(ours, name)(*arguments), x, target)
