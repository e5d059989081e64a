"""The maps inside torch.compile, torch.export and the dispatcher's own checks."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fenchel as fy
from fenchel.maps._family import Family
from tests.maps.cases import MAPS, randn
from tests.maps.cases import PER_ROW as PER_ROW_NAMES


def with_an_example(map_):
    """The map at a value that is not the default."""
    param = next((v for v in map_.smooth if v != map_.params[0]), None)
    return lambda x: map_(x, param)


FIXED = {name: with_an_example(map_) for name, map_ in MAPS.items()} | {
    "entmax 1.25": lambda x: fy.entmax(x, 1.25),
    "sq_pnorm_max with gamma": lambda x: fy.sq_pnorm_max(x, 1.5, gamma=2.0),
    "sq_pnorm_max above 2": lambda x: fy.sq_pnorm_max(x, 4.0),
    "a tensor gamma": lambda x: fy.entmax(x, 1.25, gamma=torch.full((5, 1), 0.7)),
    "dim 0": lambda x: fy.entmax15(x, dim=0),
    "mask": lambda x: fy.entmax15(x, mask=torch.arange(6) < 4),
}
PER_ROW = {name: MAPS[name].function for name in PER_ROW_NAMES}
#: Their registered ops are (scores, parameter, dim).
ROW_OPS = [name for name in PER_ROW if isinstance(MAPS[name].declared.family, Family)]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


def gradients(function, *inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    p = function(*leaves)
    return p, torch.autograd.grad((p * torch.linspace(-1, 2, p.numel()).view_as(p)).sum(), leaves)


def assert_compiles(function, *inputs):
    eager, eager_grads = gradients(function, *inputs)
    compiled, compiled_grads = gradients(torch.compile(function, fullgraph=True), *inputs)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(compiled_grads, eager_grads)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler warns of itself
@pytest.mark.parametrize("name", FIXED)
def test_compile_native(name, rng):
    assert_compiles(FIXED[name], randn(5, 6, rng=rng, dtype=torch.float32))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_half(rng):
    # torch's compiler leaves out roundings to half between fused ops, so half's own tolerance.
    x = randn(5, 6, rng=rng, dtype=torch.bfloat16)
    eager, compiled = fy.entmax15(x), torch.compile(fy.entmax15, fullgraph=True)(x)
    assert compiled.dtype == torch.bfloat16
    torch.testing.assert_close(compiled, eager)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_compile_reference_into_fused_code(name, rng):
    with fy.use_backend("reference"):
        x = randn(5, 6, rng=rng, dtype=torch.float32)
        assert_compiles(FIXED[name], x)
        torch._dynamo.reset()
        graphs = []

        def keep(module, example_inputs):
            graphs.append(module)
            return module.forward

        torch.compile(FIXED[name], fullgraph=True, backend=keep)(x)
        code = graphs[0].print_readable(print_output=False)
        assert "fenchel" not in code.replace("fenchel/", "")  # torch ops only: free to be fused


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PER_ROW)
def test_compile_with_one_parameter_a_row(name, backend, rng):
    x, parameter = randn(5, 6, rng=rng), 1.2 + torch.rand(5, 1, generator=rng).double()
    assert_compiles(PER_ROW[name], x, parameter)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_with_changing_batch_size(rng):
    function = torch.compile(fy.entmax15, fullgraph=True, dynamic=True)
    for rows in (2, 3, 7):
        x = randn(rows, 9, rng=rng)
        torch.testing.assert_close(function(x), fy.entmax15(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FIXED)
def test_export(name, rng):
    class Module(torch.nn.Module):
        def forward(self, x):
            return FIXED[name](x)

    x = randn(5, 6, rng=rng, dtype=torch.float32)
    exported = torch.export.export(Module(), (x,))
    torch.testing.assert_close(exported.module()(x), FIXED[name](x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ROW_OPS)
@pytest.mark.parametrize("dim", [0, 1])
def test_opcheck(name, dim, backend, rng):
    op = getattr(torch.ops.fenchel, name)
    x = randn(4, 4, rng=rng).requires_grad_()
    parameter = 1.2 + torch.rand(4, generator=rng).double().unsqueeze(dim)
    torch.library.opcheck(op, (x, parameter.requires_grad_(), dim))


@pytest.mark.parametrize("name", PER_ROW)
def test_fake_tensors_keep_the_shape(name):
    with FakeTensorMode():
        p = PER_ROW[name](torch.empty(3, 5))
    assert p.shape == (3, 5)


@pytest.mark.parametrize("name", ROW_OPS)
def test_vmap_of_the_registered_op(name, rng):
    x, parameter = randn(3, 4, 6, rng=rng), 1.2 + torch.rand(3, generator=rng).double()
    op = getattr(torch.ops.fenchel, name)
    batched = torch.func.vmap(lambda x, a: op(x, a.view(1, 1), 1), in_dims=(0, 0))(x, parameter)
    expected = PER_ROW[name](x, parameter.view(3, 1, 1))
    torch.testing.assert_close(batched, expected)
    shared = torch.func.vmap(lambda x: op(x, parameter[0].view(1, 1), 1), in_dims=1)(x)
    torch.testing.assert_close(shared, PER_ROW[name](x, parameter[:1].view(1, 1, 1)).movedim(1, 0))


def test_make_fx_sees_the_op_not_a_constant(rng):
    x = randn(3, 5, rng=rng)
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: fy.entmax15(x))(x)
    other = randn(3, 5, rng=rng)
    torch.testing.assert_close(graph(other), fy.entmax15(other))


def test_jit_trace_sees_the_op(rng):
    x, other = randn(3, 5, rng=rng), randn(3, 5, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates its tracer
        traced = torch.jit.trace(fy.nn.Sparsemax(), (x,))
    torch.testing.assert_close(traced(other), fy.sparsemax(other))


@pytest.mark.parametrize("dim", [-1, -2, 0])
def test_the_registered_op_takes_any_dim(dim, backend, rng):
    x = randn(3, 5, rng=rng)
    got = torch.ops.fenchel.entmax(x, torch.tensor(1.5), dim)
    torch.testing.assert_close(got, fy.entmax15(x, dim))
    with pytest.raises(fy.FenchelError, match="at least one entry"):
        torch.ops.fenchel.entmax(torch.zeros(3, 0), torch.tensor(1.5), -1)


def test_a_fake_parameter_is_not_read(rng):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        alpha = mode.from_tensor(torch.tensor(1.3))
    with mode:
        assert fy.entmax(torch.zeros(2, 3), alpha).shape == (2, 3)


def test_meta_tensors_have_shapes_only():
    assert fy.entmax(torch.zeros(2, 3, device="meta"), 1.3).shape == (2, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_with_a_float_alpha_that_varies(rng):
    function = torch.compile(lambda x, alpha: fy.entmax(x, alpha), fullgraph=True)
    x = randn(3, 5, rng=rng)
    for alpha in (1.2, 1.3, 1.7):
        torch.testing.assert_close(function(x, alpha), fy.entmax(x, alpha))


TRANSFORMS = {
    "grad": lambda x: torch.func.grad(lambda x: fy.entmax15(x).pow(2).sum())(x),
    "jvp": lambda x: torch.func.jvp(fy.entmax15, (x,), (torch.arange(5.0),))[1],
    "jacrev": lambda x: torch.func.jacrev(fy.entmax15)(x),
    "vmap": lambda x: torch.func.vmap(fy.entmax15)(x.view(1, 5)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_compile_around_a_transform(name, backend, rng):
    x = randn(5, rng=rng, dtype=torch.float32)
    compiled = torch.compile(TRANSFORMS[name], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), TRANSFORMS[name](x))
