"""Under torchrun: a tensor-parallel model learns what the same model learns in one process."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import fenchel as fy


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.head = torch.nn.Linear(8, 51)

    def forward(self, x, y, loss):
        h = self.down(self.up(x).relu())
        return loss(h, self.head.weight, y, bias=self.head.bias)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    alone = Model().double()
    model = copy.deepcopy(alone)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel()}
    parallelize_module(model, mesh, plan)
    x, y = torch.randn(20, 8).double(), torch.randint(0, 51, (20,))
    losses = []
    for module, loss in ((model, fy.vocab_parallel_entmax_loss), (alone, fy.linear_entmax_loss)):
        # One tensor at a time: DTensors and plain ones are not mixed.
        optimizer = torch.optim.Adam(module.parameters(), lr=0.02, foreach=False)
        values = []
        for _ in range(10):
            optimizer.zero_grad()
            value = module(x, y, loss)
            value.backward()
            optimizer.step()
            values.append(value.item())
        losses.append(values)
    assert losses[0][-1] < 0.8 * losses[0][0], losses[0]
    torch.testing.assert_close(losses[0], losses[1], atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(
        model.head.weight.full_tensor(), alone.head.weight.detach(), atol=1e-6, rtol=1e-6
    )
    print(f"rank {dist.get_rank()} agrees\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
