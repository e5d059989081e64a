"""The maps of the drop-in against the installed ``entmax`` 1.3: signatures, answers, gradients.

Where the package is itself inexact the two cannot agree, and the truth is taken from
``tests/reference.py``: for a large alpha its bisection loses the small probabilities (1.5e-7 at
alpha = 10 in float64), at alpha = 1 its answer is uniform, and in float32 its normmax at alpha = 3
is off by 1e-5, which its gradient makes 0.05 of (so float32 is compared with its float64).
"""

from __future__ import annotations

import inspect

import entmax as package
import numpy as np
import pytest
import torch

import fenchel as fy
from fenchel.integrations import entmax as ours
from tests.maps.cases import INF, randn
from tests.reference import REFERENCE

F64 = torch.float64
SORTED = ("sparsemax", "entmax15")
FUNCTIONS = (*SORTED, "sparsemax_bisect", "entmax_bisect", "normmax_bisect", "budget_bisect")
MODULES = {  # module: its function
    "Sparsemax": "sparsemax",
    "Entmax15": "entmax15",
    "SparsemaxBisect": "sparsemax_bisect",
    "EntmaxBisect": "entmax_bisect",
    "NormmaxBisect": "normmax_bisect",
    "BudgetBisect": "budget_bisect",
}
every_name = pytest.mark.parametrize("name", [*FUNCTIONS, *MODULES])
every_function = pytest.mark.parametrize("name", FUNCTIONS)
every_module = pytest.mark.parametrize("name", MODULES)

CALLS = [
    *((name, {}) for name in FUNCTIONS),
    *((name, {"k": 3}) for name in SORTED),
    *(("entmax_bisect", {"alpha": alpha}) for alpha in (1.05, 1.25, 1.7, 2, 3.0)),
    *(("normmax_bisect", {"alpha": alpha}) for alpha in (1.25, 1.5, 3, 5.0)),
    *(("budget_bisect", {"budget": budget}) for budget in (0.5, 1, 2.5, 3)),
]
every_call = pytest.mark.parametrize(
    ("name", "kwargs"), [pytest.param(n, k, id=f"{n}-{k}") for n, k in CALLS]
)


def agree(function: str, x: torch.Tensor, atol: float = 1e-9, **kwargs) -> None:
    """Both give the same answer, and the same gradient in the scores and in a tensor parameter."""
    results = []
    for library in (package, ours):
        leaf = (x.double() if library is package else x.clone()).detach().requires_grad_()
        tensors = {
            key: value.clone().requires_grad_()
            for key, value in kwargs.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        }
        p = getattr(library, function)(leaf, **(kwargs | tensors))
        weight = torch.linspace(-1, 2, p.numel(), dtype=p.dtype).reshape(p.shape)
        grads = torch.autograd.grad(
            (p * weight).sum(), [leaf, *tensors.values()], allow_unused=True
        )
        results.append([p.detach(), *grads])
    for theirs, mine in zip(*results, strict=True):
        if theirs is None:  # no gradient in normmax's alpha and in the budget over there
            assert mine is not None and mine.isfinite().all()
        else:
            torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=atol)


# ------------------------------------------------------------------------------------- signatures


def test_every_name_of_the_package_is_there():
    public = {name for name in vars(package) if not name.startswith("_")}
    assert public - {"activations", "losses", "root_finding"} == set(ours.__all__)


@every_name
def test_signature(name):
    def described(function):
        return [
            (p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()
        ]

    theirs, mine = described(getattr(package, name)), described(getattr(ours, name))
    if name in (*SORTED, "Sparsemax", "Entmax15"):
        assert mine.pop() == ("return_support_size", inspect.Parameter.POSITIONAL_OR_KEYWORD, False)
    assert mine == theirs


@every_module
def test_forward_takes_X_and_attributes_keep_their_names(name):
    theirs, mine = getattr(package, name)(), getattr(ours, name)()
    assert list(inspect.signature(mine.forward).parameters) == ["X"]
    for attribute in inspect.signature(getattr(package, name)).parameters:
        assert getattr(mine, attribute) == getattr(theirs, attribute)


# ---------------------------------------------------------------------------------------- answers


@every_call
def test_answers_and_gradients(name, kwargs, rng):
    agree(name, randn(40, 9, rng=rng, scale=1.5), **kwargs)


@every_call
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_any_dim(name, kwargs, dim, rng):
    if "k" in kwargs and dim == -2:
        pytest.skip("the package fails for k with a negative dim that is not -1")
    if name == "budget_bisect" and dim == 2:
        pytest.skip("the backward of the package fails for the last dim unless it is called -1")
    agree(name, randn(3, 5, 4, rng=rng), dim=dim, **kwargs)


@every_call
def test_float32(name, kwargs, rng):
    agree(name, randn(40, 9, rng=rng, dtype=torch.float32), atol=2e-5, **kwargs)


@every_function
def test_one_row_without_a_batch(name, rng):
    agree(name, randn(6, rng=rng))


@pytest.mark.parametrize(
    ("name", "key"),
    [("entmax_bisect", "alpha"), ("normmax_bisect", "alpha"), ("budget_bisect", "budget")],
)
@pytest.mark.parametrize("shape", [(), (1,), (5, 1), (3, 1, 1), (3, 5, 1)], ids=str)
def test_tensor_parameters_and_their_gradients(name, key, shape, rng):
    x = randn(3, 5, 4, rng=rng)
    agree(name, x, **{key: 1.1 + torch.rand(shape, generator=rng, dtype=F64)})
    agree(name, x, **{key: torch.full(shape, 2)})


@every_function
def test_where_the_package_has_no_answer_dims_agree_among_themselves(name, rng):
    x = randn(3, 5, 4, rng=rng)
    more = {"k": 2} if name in SORTED else {}
    expected = getattr(ours, name)(x, dim=1)
    assert torch.equal(getattr(ours, name)(x, dim=-2, **more), expected)
    assert torch.equal(getattr(ours, name)(x.movedim(1, 2), dim=2, **more), expected.movedim(1, 2))


def test_budget_above_the_number_of_entries(rng):
    agree("budget_bisect", randn(3, 4, rng=rng), budget=7)


@every_module
def test_modules_are_their_functions(name, rng):
    x = randn(6, 6, rng=rng)
    module, function = getattr(ours, name), getattr(ours, MODULES[name])
    assert torch.equal(module()(x), function(x))
    assert torch.equal(module(dim=0)(x), function(x, dim=0))
    assert not torch.equal(module(dim=0)(x), module()(x))
    torch.testing.assert_close(module()(x), getattr(package, name)()(x), rtol=0, atol=1e-9)
    first = next(iter(inspect.signature(module).parameters))
    if first != "dim":
        assert torch.equal(module(1.25)(x), function(x, 1.25))
        assert not torch.equal(module(1.25)(x), module()(x))


@pytest.mark.parametrize("name", ["EntmaxBisect", "NormmaxBisect", "BudgetBisect"])
def test_a_module_takes_a_parameter(name, rng):
    module = getattr(ours, name)(torch.nn.Parameter(torch.tensor(1.75, dtype=F64)))
    assert len(list(module.parameters())) == 1
    module(randn(2, 5, rng=rng)).square().sum().backward()
    assert next(module.parameters()).grad.isfinite()


@pytest.mark.parametrize("name", SORTED)
@pytest.mark.parametrize("dim", [0, -1])
def test_return_support_size(name, dim, rng):
    x = randn(4, 7, rng=rng)
    module = {"sparsemax": "Sparsemax", "entmax15": "Entmax15"}[name]
    for p, size in (
        getattr(ours, name)(x, dim, None, True),
        getattr(ours, name)(x, dim=dim, return_support_size=True),
        getattr(ours, module)(dim, return_support_size=True)(x),
    ):
        assert torch.equal(p, getattr(ours, name)(x, dim))
        assert size.dtype == torch.int64
        assert torch.equal(size, (p > 0).sum(dim, keepdim=True))
    assert getattr(ours, name)(torch.tensor([2.0, 0.0, 0.0]), return_support_size=True)[1] == 1


# ----------------------------------------------------------------- where the package is not exact


@pytest.mark.parametrize("alpha", [1.0, 10.0, 50.0])
def test_the_truth_where_the_package_misses_it(alpha, rng):
    x = randn(50, 9, rng=rng, scale=0.3 / alpha)
    truth = REFERENCE["entmax"](x.numpy(), alpha)
    assert np.abs(ours.entmax_bisect(x, alpha).numpy() - truth).max() < 1e-12
    assert np.abs(package.entmax_bisect(x, alpha).numpy() - truth).max() > 1e-12


@every_function
def test_a_fully_masked_row_is_zero(name):
    x = torch.tensor([[0.0, 1.0, 0.5], [-INF, -INF, -INF]], requires_grad=True)
    p = getattr(ours, name)(x)
    assert (p[1] == 0).all() and p[0].isfinite().all()
    p.square().sum().backward()
    assert (x.grad[1] == 0).all()


# ------------------------------------------------------------- arguments without effect, checked


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, "k") for name in SORTED] + [(name, "n_iter") for name in FUNCTIONS[2:]],
)
def test_counts_have_no_effect_but_are_checked(name, key, rng):
    x, function = randn(5, 8, rng=rng), getattr(ours, name)
    for value in (1, 3, np.int64(50), None):
        assert torch.equal(function(x, **{key: value}), function(x))
    for value in (0, -1, 2.5, "3", True):
        with pytest.raises(fy.FenchelError) as error:
            function(x, **{key: value})
        assert str(error.value) == (
            f"{name}: expected `{key}` to be a positive int or None, but got {value!r}."
        )


@pytest.mark.parametrize("name", ["sparsemax_bisect", "entmax_bisect"])
def test_ensure_sum_one_has_no_effect_but_is_checked(name, rng):
    x, function = randn(5, 8, rng=rng), getattr(ours, name)
    assert torch.equal(function(x, ensure_sum_one=False), function(x))
    with pytest.raises(fy.FenchelError) as error:
        function(x, ensure_sum_one="no")
    assert str(error.value) == (
        f"{name}: expected `ensure_sum_one` to be True or False, but got 'no'."
    )


def test_positional_order_is_that_of_the_package(rng):
    x = randn(5, 8, rng=rng)
    for name, arguments in {
        "sparsemax": (0, 4),
        "entmax15": (0, 4),
        "sparsemax_bisect": (0, 60, False),
        "entmax_bisect": (1.25, 0, 60, True),
        "normmax_bisect": (3.0, 0, 60),
        "budget_bisect": (3, 0, 60),
    }.items():
        mine, theirs = getattr(ours, name)(x, *arguments), getattr(package, name)(x, *arguments)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: ours.entmax_bisect(x, -0.5),
            "entmax: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got -0.5.",
        ),
        (
            lambda x: ours.budget_bisect(x, -1),
            "budget: `k` must be a finite number of at least 0 (the mass to distribute); got -1.",
        ),
        (
            lambda x: ours.budget_bisect(x.tolist()),
            "budget_bisect: expected `scores` to be a torch.Tensor, but got list.",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call(torch.zeros(2, 3))
    assert str(error.value) == message
