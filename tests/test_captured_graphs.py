"""Every public function and structure in graphs that torch captures, and on DTensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

import fenchel as fy
from tests import test_odd_tensors
from tests.test_odd_tensors import CASES, Case, every_case, make

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of its tracers

# Another shape for the same function; by default other rows, or other batches of structures.
OTHERS = {
    "entmax masked": (5, 6),
    "entmax dim 0": (5, 6),
    "entmax_loss of distributions": None,
    "linear_entmax_loss": None,
    "SparseMAP of assignments": (4, 4),
    "sinkhorn": (4, 4),
}


def other_shape(name: str, case: Case) -> tuple[int, ...] | None:
    if name in OTHERS:
        return OTHERS[name]
    if case.solves:
        return (case.shape[0] + 2, *case.shape[1:])
    return (*case.shape[:-1], case.shape[-1] + 3)


def with_gradient(call, x):
    x = x.clone().requires_grad_()
    out = call(x)
    return out.detach(), torch.autograd.grad(out.sum(), x)[0]


@pytest.mark.parametrize("name", CASES)
def test_compiled_for_shapes_that_change(name):
    case = CASES[name]
    torch._dynamo.reset()
    compiled = torch.compile(case.call, backend="aot_eager", dynamic=True)
    for seed, shape in enumerate([case.shape, other_shape(name, case), case.shape]):
        if shape is None:
            continue
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(with_gradient(compiled, x), with_gradient(case.call, x))


class Module(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


@every_case
@pytest.mark.parametrize("strict", [False, True])
def test_exported(case, strict, monkeypatch):
    """The saved program gives, on other input, what the function gives; or it is refused."""
    # Dynamo marks a global tensor that it once saw in a graph for all shapes, and export then asks
    # for its size by a name that the program does not have.
    monkeypatch.setattr(test_odd_tensors, "WEIGHT", test_odd_tensors.WEIGHT.clone())
    try:
        program = torch.export.export(Module(case.call), (make(case),), strict=strict).module()
    except fy.FenchelError as error:
        assert str(error).endswith(".") and case.solves
        return
    except torch._dynamo.exc.Unsupported as error:  # Dynamo's own sentence: the graph would break
        assert strict and case.solves and "torch.compiler.disable" in str(error)
        return
    assert not case.solves
    other = make(case, seed=1)
    torch.testing.assert_close(program(other), case.call(other))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("mesh") / "store"), 1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@every_case
def test_dtensors(case, mesh):
    """Right, our sentence, or torch's that an op does not know how to be sharded."""
    x = make(case)
    try:
        got = case.call(distribute_tensor(x, mesh, [Replicate()]))
    except fy.FenchelError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
    except NotImplementedError as error:
        assert "does not have a sharding strategy registered" in str(error)
    except RuntimeError as error:
        said = str(error)
        assert "mixed torch.Tensor and DTensor" in said or "Sharding propagation failed" in said
    else:
        torch.testing.assert_close(got.full_tensor(), case.call(x))
