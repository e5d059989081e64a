"""``torch.ops.fenchel.*``: they keep torch's promises, and refuse garbage in a sentence.

Saved graphs and passes of compilers call these ops without the public functions in front of them.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import fenchel as fy
from fenchel.maps.declaration import MAPS as DECLARED

OPS = torch.ops.fenchel
#: The maps whose ops are (scores, parameter, dim): not those that fuse entries.
MAPS = [name for name, m in sorted(DECLARED.items()) if m.argument and not m.lengths]
VALUE = {name: DECLARED[name].default for name in MAPS}
F64 = torch.float64
compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler of itself


def every_op() -> list[str]:
    return sorted(
        schema.name.split("::")[1]
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("fenchel::")
    )


def test_all_ops_are_tested_here():
    tested = {*MAPS, "fusedmax", "oscarmax", "sparse_entmax", "checked_classes"}
    tested |= {"entmax_attention", "entmax_attention_backward"}
    tested |= {"linear_entmax_loss", "linear_entmax_loss_backward"}
    assert set(every_op()) == tested


# ------------------------------------------------------------------------ torch's own checks


@compiled
@pytest.mark.parametrize("op", MAPS)
@pytest.mark.parametrize("dim", [-2, 0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_opcheck_maps(op, dim, dtype, rng):
    x = torch.randn(3, 4, generator=rng, dtype=dtype)
    rows = list(x.shape)
    rows[dim] = 1
    learned = DECLARED[op].argument.per_row  # a number has no gradient
    for shape, layout in itertools.product(((), rows), (x, x.t().contiguous().t())):
        parameter = torch.full(shape, VALUE[op], dtype=F64, requires_grad=learned)
        arguments = (layout.detach().requires_grad_(), parameter, dim)
        # Compiled graphs differentiate by torch ops, in the dtype of the scores.
        close = {"atol": 1e-5, "rtol": 1e-4} if dtype is torch.float32 else {}
        torch.library.opcheck(getattr(OPS, op), arguments, **close)


@compiled
@pytest.mark.parametrize("op", ["fusedmax", "oscarmax"])
def test_opcheck_group_maps(op, rng):
    x = torch.randn(3, 4, generator=rng, dtype=F64, requires_grad=True)
    for lam in (torch.tensor(0.1, dtype=F64), torch.full((3, 1), 0.1, dtype=F64)):
        torch.library.opcheck(getattr(OPS, op), (x, lam.requires_grad_()))


MASKS = {
    "none": None,
    "bool": torch.ones(2, 4, 5, 6).bool().tril(1),
    "broadcast": torch.ones(1, 1, 5, 6).bool().tril(1),
    "added": torch.zeros(2, 4, 5, 6, dtype=F64),
    "added to all": torch.zeros(5, 6, dtype=F64),
}


@compiled
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_opcheck_attention(mask, kv_heads, rng):
    q = torch.randn(2, 4, 5, 3, generator=rng, dtype=F64, requires_grad=True)
    k = torch.randn(2, kv_heads, 6, 3, generator=rng, dtype=F64, requires_grad=True)
    v = torch.randn(2, kv_heads, 6, 7, generator=rng, dtype=F64, requires_grad=True)
    for alpha in (torch.tensor([1.5], dtype=F64), torch.full((2, 4), 1.3, dtype=F64)):
        arguments = (q, k, v, mask, alpha.requires_grad_(), 0.0, False, 0.5)
        torch.library.opcheck(OPS.entmax_attention, arguments)
        plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments]
        out, *lists, factor = OPS.entmax_attention(*plain)
        dense = plain[3] is None or fy.entmax_attention(
            *plain[:3], plain[3], scale=0.5, enable_gqa=kv_heads < 4,
            alpha=alpha.detach() if alpha.numel() == 1 else alpha.detach()[..., None, None],
        )  # fmt: skip
        assert dense is True or torch.equal(out, dense)
        inputs = (torch.ones_like(out), *plain[:3], plain[4], 0.5, *lists, factor, True)
        torch.library.opcheck(OPS.entmax_attention_backward, inputs)


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_opcheck_output_layer(dtype, with_bias, rng):
    hidden = torch.randn(5, 3, generator=rng).to(dtype).requires_grad_()
    weight = torch.randn(8, 3, generator=rng).to(dtype).requires_grad_()
    bias = torch.randn(8, generator=rng).to(dtype) if with_bias else None
    target = torch.tensor([0, 7, fy.kernels.IGNORED, 3, 3])
    for alpha in (torch.tensor([1.5], dtype=F64), torch.full((5,), 1.3, dtype=F64)):
        arguments = (hidden, weight, bias, target, alpha.requires_grad_(), True, True, False)
        torch.library.opcheck(OPS.linear_entmax_loss, arguments)


@compiled
def test_opcheck_classes():
    torch.library.opcheck(OPS.checked_classes, (torch.tensor([[0, 3], [1, 2]]), 4, "f"))


# ------------------------------------------------------------------------ negative axes


@pytest.mark.parametrize("op", MAPS)
def test_a_negative_axis_is_the_axis_it_names(op, rng, backend):
    """In the backward pass and under vmap too."""
    x = torch.randn(3, 4, 5, generator=rng, dtype=F64, requires_grad=True)
    parameter = torch.tensor(VALUE[op], dtype=F64)
    for dim in (0, 1, 2):
        results = []
        for given in (dim, dim - 3):
            p = getattr(OPS, op)(x, parameter, given)
            weights = torch.linspace(-1, 2, p.numel(), dtype=F64).view_as(p)
            results.append((p, *torch.autograd.grad((p * weights).sum(), x)))
        torch.testing.assert_close(results[0], results[1], atol=0, rtol=0)
    mapped = torch.vmap(lambda row: getattr(OPS, op)(row, parameter, -1))(x.detach())
    assert torch.equal(mapped, getattr(OPS, op)(x.detach(), parameter, 2))
    mapped = torch.vmap(lambda row: getattr(OPS, op)(row, parameter, -1), in_dims=1)(x.detach())
    assert torch.equal(mapped, getattr(OPS, op)(x.detach().movedim(1, 0), parameter, 2))


# ------------------------------------------------------------------------ garbage


@compiled
def test_classes_out_of_range_are_refused_where_values_are_real(rng):
    """Compiled, counted, wrapped: nothing reads or writes past the end of a row."""
    hidden, weight = torch.randn(4, 3, generator=rng), torch.randn(5, 3, generator=rng)
    scores = hidden @ weight.t()
    torch._dynamo.reset()
    for loss in (
        torch.compile(lambda y: fy.linear_entmax_loss(hidden, weight, y), backend="aot_eager"),
        torch.compile(lambda y: fy.entmax_loss(scores, y), backend="aot_eager"),
        torch.compile(lambda y: fy.sparsemax_loss(scores, y), backend="aot_eager"),
        lambda y: fy.entmax_loss(scores, y.as_subclass(Plain)),
        lambda y: fy.linear_entmax_loss(hidden, weight, y.as_subclass(Plain)),
        lambda y: OPS.linear_entmax_loss(
            hidden, weight, None, y, torch.tensor([1.5]), True, False, False
        )[0],
    ):
        assert bool(loss(torch.tensor([0, 4, 2, 1])).isfinite().all())
        for wrong in (5, -1, 10**6, 2**40, -(2**40)):
            with pytest.raises(fy.FenchelError, match=rf"indices in \[0, 4\] .* but got {wrong}"):
                loss(torch.tensor([0, wrong, 2, 1]))


class Plain(torch.Tensor):
    """A subclass that adds nothing."""


def some_tensor(random_: random.Random) -> torch.Tensor:
    """Well-typed garbage: small sizes, every dtype, odd values and layouts."""
    shape = [random_.choice([0, 1, 2, 3, 5]) for _ in range(random_.randint(0, 5))]
    dtype = random_.choice(
        [torch.float32, F64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
    )
    x = torch.randn(shape) * random_.choice([0.0, 1.0, 1e3, float("nan")])
    if dtype in (torch.int64, torch.int32):
        x = torch.randint(-3, 8, shape) * random_.choice([1, 1, 10**6])
    x = x.to(dtype)
    if x.dim() > 1 and random_.random() < 0.3:
        x = x.transpose(0, -1)
    if random_.random() < 0.2:
        x = x.as_subclass(Plain)
    return x


def arguments_for(schema, good: list, random_: random.Random) -> list:
    """Mostly good arguments, some of them replaced."""
    arguments = list(good)
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(arguments))
        kind = str(schema.arguments[at].type)
        if "Tensor" in kind:
            arguments[at] = None if "Optional" in kind and random_.random() < 0.3 else (
                some_tensor(random_)
            )  # fmt: skip
        elif kind == "bool":
            arguments[at] = not arguments[at]
        elif kind == "int":
            arguments[at] = random_.choice([-7, -2, -1, 0, 1, 2, 3, 2**40])
        elif kind == "float":
            arguments[at] = random_.choice([-1.0, 0.0, 0.5, 2.0, float("inf"), float("nan")])
    return arguments


def good_arguments(name: str) -> list:
    x = torch.randn(3, 4)
    if name in MAPS:
        return [x, torch.tensor(VALUE[name], dtype=F64), 1]
    if name in ("fusedmax", "oscarmax"):
        return [x, torch.tensor(0.1, dtype=F64)]
    if name == "sparse_entmax":
        return [x, torch.full((3, 1), 1.5), 0.0]
    if name == "checked_classes":
        return [torch.tensor([0, 1, 2]), 3, "f"]
    alpha = torch.tensor([1.5], dtype=F64)
    if name.startswith("entmax_attention"):
        q, k = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 6, 5)
        forward = [q, k, k, torch.zeros(2, 4, 3, 6), alpha, 0.3, False, 0.5]
        if not name.endswith("backward"):
            return forward
        out, *lists, factor = OPS.entmax_attention(*forward)
        return [torch.ones_like(out), q, k, k, alpha, 0.5, *lists, factor, True]
    hidden, weight, target = torch.randn(4, 3), torch.randn(6, 3), torch.tensor([0, 5, 2, 1])
    forward = [hidden, weight, torch.zeros(6), target, alpha, True, False, False]
    if not name.endswith("backward"):
        return forward
    loss, _, *lists, dense = OPS.linear_entmax_loss(*forward)
    return [torch.ones_like(loss), hidden, weight, torch.zeros(6), target, alpha, *lists, dense]


@pytest.mark.parametrize("name", every_op())
def test_fuzz(name):
    """Any answer or a ValueError or torch's own error; nothing crashes, whatever comes."""
    op = getattr(OPS, name).default
    random_ = random.Random(name)
    torch.manual_seed(0)
    refused = 0
    for _ in range(400):
        arguments = arguments_for(op._schema, good_arguments(name), random_)
        try:
            op(*arguments)
        except fy.FenchelError as error:
            refused += 1
            assert str(error).endswith(".") and "\n" not in str(error)
    assert refused > 20
