"""What every rank checks of groups, DTensors, bytes and errors; see test_vocab_parallel.py."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist

import fenchel as fy
from fenchel.losses._vocab_ranks import Collectives
from tests.losses.vocab_parallel_cases import assert_same, case, split


def two_by_two():
    """Two groups of two at once, on other data each, and DDP across them."""
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    shards = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    copies = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    hidden, weight, bias, target = case(20, 60, 5, seed=rank // 2)
    assert_same(hidden, weight, target, bias=bias, group=shards)

    class Model(torch.nn.Module):
        def __init__(self, head):
            super().__init__()
            self.body, self.head = torch.nn.Linear(5, 5), head

        def forward(self, x, y):
            return self.head(self.body(x).tanh(), y)

    def draw(head):
        torch.manual_seed(3)
        return Model(head()).double()

    alone = draw(lambda: fy.nn.LinearEntmaxLoss(5, 31, 1.4, learnable=True))
    model = draw(lambda: fy.nn.VocabParallelEntmaxLoss(5, 31, 1.4, learnable=True, group=shards))
    first, end = split(31, False, shards)
    with torch.no_grad():
        model.body.load_state_dict(alone.body.state_dict())
        model.head.weight.copy_(alone.head.weight[first:end])
        model.head.bias.copy_(alone.head.bias[first:end])
    wrapped = DistributedDataParallel(model, process_group=copies)
    data = [case(20, 31, 5, seed=seed) for seed in (0, 1)]
    rates = {"lr": 0.3}
    mine, theirs = (torch.optim.SGD(m.parameters(), **rates) for m in (wrapped, alone))
    for _ in range(3):
        hidden, _, _, target = data[rank // 2]
        mine.zero_grad()
        wrapped(hidden.detach(), target).backward()
        mine.step()
        theirs.zero_grad()
        sum(alone(h.detach(), y) / 2 for h, _, _, y in data).backward()
        theirs.step()
    close = {"atol": 1e-11, "rtol": 1e-11}
    torch.testing.assert_close(model.body.weight, alone.body.weight, **close)
    torch.testing.assert_close(model.head.weight, alone.head.weight[first:end], **close)
    torch.testing.assert_close(model.head.bias, alone.head.bias[first:end], **close)
    torch.testing.assert_close(model.head.alpha_logit, alone.head.alpha_logit, **close)


def dtensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    hidden, weight, bias, target = case(20, 61, 5)
    wanted = fy.linear_entmax_loss(hidden, weight, target, bias=bias)
    wanted.backward()
    layer = torch.nn.Linear(5, 61).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    parallelize_module(layer, mesh, ColwiseParallel())
    for state in (
        hidden.detach().requires_grad_(),
        distribute_tensor(hidden.detach(), mesh, [Replicate()]).requires_grad_(),
    ):
        layer.zero_grad()
        loss = fy.vocab_parallel_entmax_loss(state, layer.weight, target, bias=layer.bias)
        loss.backward()
        torch.testing.assert_close(loss, wanted, atol=1e-12, rtol=1e-12)
        grad = state.grad.to_local() if hasattr(state.grad, "to_local") else state.grad
        torch.testing.assert_close(grad, hidden.grad, atol=1e-12, rtol=1e-12)
        assert layer.weight.grad.placements == (Shard(0),)
        torch.testing.assert_close(layer.weight.grad.full_tensor(), weight.grad)
        torch.testing.assert_close(layer.bias.grad.full_tensor(), bias.grad)


def shards_of_one_layer():
    torch.manual_seed(0)
    layer = fy.nn.VocabParallelEntmaxLoss(6, 30)
    torch.manual_seed(0)
    whole = fy.nn.LinearEntmaxLoss(6, 30)
    first, end = split(30, False)
    assert layer.vocab_start == first
    torch.testing.assert_close(layer.weight, whole.weight[first:end])
    torch.testing.assert_close(layer.bias, whole.bias[first:end])
    assert repr(layer) == "VocabParallelEntmaxLoss(6, 30, alpha=1.5)"


def any_order_of_shards():
    ranks, rank = dist.get_world_size(), dist.get_rank()
    hidden, weight, bias, target = case(20, 60, 5)
    size = 60 // ranks
    first = size * (ranks - 1 - rank)
    part = slice(first, first + size)
    loss = fy.vocab_parallel_entmax_loss(
        hidden, weight[part], target, bias=bias[part], vocab_start=first
    )
    wanted = fy.linear_entmax_loss(hidden, weight, target, bias=bias)
    torch.testing.assert_close(loss, wanted, atol=1e-12, rtol=1e-12)


@contextlib.contextmanager
def counted_collectives():
    """The bytes of what is handed to any function of torch.distributed that sends tensors."""
    seen, before = [], {}

    def counting(function):
        def call(*args, **kwargs):
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
            seen.extend(x.numel() * x.element_size() for x in given)
            return function(*args, **kwargs)

        return call

    for name, value in vars(dist).items():
        sends = ("all_", "broadcast", "reduce", "gather", "scatter", "send", "isend")
        if name.startswith(sends) and callable(value):
            before[name] = value
    try:
        for name, value in before.items():
            setattr(dist, name, counting(value))
        yield seen
    finally:
        for name, value in before.items():
            setattr(dist, name, value)


def bytes_of(classes, candidates, rows=64, d=8, alpha=1.5):
    """What this rank sends in a step on rows that have so many candidates in all."""
    ranks = dist.get_world_size()
    size = classes // ranks
    weight = torch.zeros(size, d)
    weight[:, 0] = -10.0
    weight[: candidates // ranks, 0] = 0.0  # alike, so all of them are in the support
    hidden = torch.zeros(rows, d)
    hidden[:, 0] = 1.0
    hidden.requires_grad_()
    weight.requires_grad_()
    target = torch.zeros(rows, dtype=torch.int64)
    with counted_collectives() as seen:
        Collectives.sent = 0
        loss = fy.vocab_parallel_entmax_loss(hidden, weight, target, alpha)
        forward = Collectives.sent
        loss.backward()
    assert sum(seen) == Collectives.sent
    assert Collectives.sent - forward == rows * d * 4  # the gradient of the hidden states
    return forward


def bytes_on_the_wire():
    few, many = bytes_of(8000, 40), bytes_of(8000, 400)
    assert bytes_of(16000, 40) == few and bytes_of(16000, 400) == many
    ranks, rows = dist.get_world_size(), 64
    assert many - few == rows * 4 * 360 // ranks  # a float a candidate, nothing else
    assert few < rows * (40 * 4 // ranks + 24)
    # More of them go by sums: no more bytes than so many a row, however many there are.
    assert bytes_of(8000, 8000) == bytes_of(16000, 16000) <= rows * 200
    assert bytes_of(8000, 8, alpha=1.0) == bytes_of(16000, 16000, alpha=1.0) <= rows * 100


def raises(sentence, *args, **kwargs):
    try:
        fy.vocab_parallel_entmax_loss(*args, **kwargs)
    except fy.FenchelError as error:
        assert str(error) == "vocab_parallel_entmax_loss: " + sentence, str(error)
    else:
        raise AssertionError("no error: " + sentence)


def errors():
    ranks, rank = dist.get_world_size(), dist.get_rank()
    hidden, weight, _, target = case(4, 8, 5)
    part = weight[slice(*split(8, False))].detach()
    own = len(part)
    raises(
        "expected the same `hidden` on all ranks of the group, but got (rows, d, bytes a number) "
        f"{[(4 - (r == 1), 5, 8) for r in range(ranks)]}.",
        hidden[: 4 - (rank == 1)],
        part,
        target[: 4 - (rank == 1)],
    )
    raises(
        "expected shards that follow each other from class 0 on, but they start at "
        f"{[3 * r for r in range(ranks)]} and have {[own] * ranks} classes.",
        hidden,
        part,
        target,
        vocab_start=3 * rank,
    )
    raises(
        "expected `vocab_start` to be the index of this rank's first class, but got 1.5.",
        hidden,
        part,
        target,
        vocab_start=1.5,
    )
    raises("expected class indices in [0, 7] in `target`, but got 8.", hidden, part, target * 0 + 8)
    raises("expected at least one class, but every shard is empty.", hidden, part[:0], target)
    raises(
        "expected `hidden` of shape (…, d) and `weight` of shape (V, d), d at least 1, but got "
        f"(4, 5) and ({own}, 4).",
        hidden,
        part[:, :4],
        target,
    )
    outside = dist.new_group([0])
    if rank > 0:
        raises(
            "expected a rank of `group`, but this process is not one.",
            hidden,
            part,
            target,
            group=outside,
        )
    loss = fy.vocab_parallel_entmax_loss(hidden, part, target)
    try:
        torch.autograd.grad(loss, hidden, create_graph=True)
    except fy.FenchelError as error:
        assert "expected no second derivative" in str(error)
    else:
        raise AssertionError("no error for a second derivative")


def errors_of_dtensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    hidden, weight, bias, target = (x.detach() for x in case(4, 8, 5))
    sharded = distribute_tensor(weight, mesh, [Shard(0)])
    whole = distribute_tensor(weight, mesh, [Replicate()])
    one = "sharded along dim 0 of a mesh of one dimension (`mesh['tp']` of a larger one)"
    raises(
        f"expected `weight` to be {one}, but got placements {(Replicate(),)}.",
        hidden,
        whole,
        target,
    )
    raises(
        "expected no `group` and no `vocab_start` with a DTensor, which knows both.",
        hidden,
        sharded,
        target,
        vocab_start=0,
    )
    raises(
        "expected `bias` to be a DTensor on the weight's mesh.",
        hidden,
        sharded,
        target,
        bias=bias,
    )
    raises(
        "expected `bias` to be sharded as `weight` is, but only `bias` is a DTensor.",
        hidden,
        weight,
        target,
        bias=distribute_tensor(bias, mesh, [Shard(0)]),
    )
    raises(
        f"expected `hidden` to be the same on all ranks, but got placements {(Shard(0),)}; call "
        "`hidden.redistribute(placements=[Replicate()])` first.",
        distribute_tensor(hidden, mesh, [Shard(0)]),
        sharded,
        target,
    )
