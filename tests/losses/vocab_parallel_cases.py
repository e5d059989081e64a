"""Inputs that every rank makes alike, their shards, and the comparison with one process."""

from __future__ import annotations

import torch
import torch.distributed as dist

import fenchel as fy
from tests.losses.linear_cases import gradients, make

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2}
UNEVEN = {1: [1.0], 2: [0.9, 0.1], 4: [0.5, 0.02, 0.0, 0.48]}


def split(classes: int, uneven: bool, group=None) -> tuple[int, int]:
    """First class of this rank and the one after its last."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    if uneven:
        sizes = [round(share * classes) for share in UNEVEN[ranks]]
        sizes[0] += classes - sum(sizes)
    else:
        sizes = [len(part) for part in torch.arange(classes).chunk(ranks)]
    first = sum(sizes[:rank])
    return first, first + sizes[rank]


def case(rows, classes, d, *, seed=0, **kwargs):
    return make(rows, classes, d, torch.Generator().manual_seed(seed), **kwargs)


def assert_same(
    hidden, weight, target, alpha=1.5, *, bias=None, uneven=False, group=None, tolerance=None, **kw
):
    """Value and gradients of the sharded loss and of the loss in one process."""
    tolerance = TOLERANCE[hidden.dtype] if tolerance is None else tolerance
    learned = isinstance(alpha, torch.Tensor) and alpha.requires_grad
    leaves = [hidden, weight, *([] if bias is None else [bias]), *([alpha] if learned else [])]
    wanted = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias, **kw)
    wanted_gradients = gradients(wanted, leaves)

    first, end = split(weight.shape[0], uneven, group)
    h = hidden.detach().clone().requires_grad_()
    w = weight.detach()[first:end].clone().requires_grad_()
    b = None if bias is None else bias.detach()[first:end].clone().requires_grad_()
    leaves = [h, w, *([] if b is None else [b]), *([alpha] if learned else [])]
    got = fy.vocab_parallel_entmax_loss(h, w, target, alpha, bias=b, group=group, **kw)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance, equal_nan=True)
    theirs = [torch.empty_like(got) for _ in range(dist.get_world_size(group))]
    dist.all_gather(theirs, got.detach(), group=group)
    for other in theirs:  # bit by bit
        assert torch.equal(other.nan_to_num(nan=-1.0), got.nan_to_num(nan=-1.0))

    got_gradients = gradients(got, leaves)
    wanted_gradients[1] = wanted_gradients[1][first:end]
    if bias is not None:
        wanted_gradients[2] = wanted_gradients[2][first:end]
    for mine, other in zip(got_gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=tolerance)
    return got
