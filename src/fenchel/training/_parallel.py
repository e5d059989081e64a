"""How a model is trained: by one process as it is, or by several as DDP or FSDP2 have it.

All three answer the same calls, so that the loop need not know which one it has. Gradients are
those of the mean over the tokens of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fenchel.training._config import TrainConfig
from fenchel.training._ranks import Ranks
from fenchel.training._task import Task
from fenchel.training._wholes import whole

Loss = Callable[[nn.Module, Any], Tensor]


class Plain:
    """One process: nothing is wrapped and nothing is sent.

    Args:
        model: the model, on its device, with its weights.
        loss: the mean loss per token of a batch.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self._loss = model, loss

    def groups(self) -> list[list[nn.Parameter]]:
        """The parameters to train; DTensors and plain tensors are not in one group."""
        return [[p for p in self.model.parameters() if p.requires_grad]]

    def loss(self, batch: Any, counts: bool) -> Tensor:
        """The mean loss per token of a batch; one that stands in for an empty share counts not."""
        return self._loss(self.model, batch)

    def backward(self, loss: Tensor, share: float) -> None:
        """Gradients of the mean over all ranks; ``share`` of its tokens are this rank's."""
        loss.backward()

    def clip(self, limit: float) -> float:
        """Scale all gradients down to a norm of ``limit``, if it is more; returns what it was."""
        return nn.utils.clip_grad_norm_(self.groups()[0], limit).item()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While the model is used other than for the loss of a step."""
        yield


class Several(Plain):
    """What DDP and FSDP2 have in common: both average gradients over the ranks."""

    def __init__(self, model: nn.Module, loss: Loss, ranks: Ranks, device: torch.device) -> None:
        super().__init__(model, loss)
        self.ranks = ranks
        # Control goes over gloo, gradients over what the device has.
        self.group = ranks.group
        if device.type == "cuda":
            self.group = dist.new_group(timeout=ranks.timeout, backend="nccl")
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0, group=self.group)

    def backward(self, loss: Tensor, share: float) -> None:
        """Weighted by tokens: a mean of the ranks' means would favour short shares."""
        (loss * (share * self.ranks.size)).backward()

    def clip(self, limit: float) -> float:
        """The norm counts each part of a sharded parameter once."""
        groups = self.groups()
        norms = [whole(nn.utils.get_total_norm(_gradients(group))) for group in groups]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        for group in groups:
            nn.utils.clip_grads_with_norm_(group, limit, norm)
        return norm.item()


class Replicated(Several):
    """DDP: each rank has the whole model."""

    def __init__(self, model: nn.Module, loss: Loss, ranks: Ranks, device: torch.device) -> None:
        super().__init__(model, loss, ranks, device)
        module = LossOf(model, loss)
        # A mask that is no part of the weights is the same everywhere and need not be sent.
        fixed = {name for name, _ in module.named_buffers()} - module.state_dict().keys()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, fixed)
        self._ddp = DistributedDataParallel(
            module, process_group=self.group, gradient_as_bucket_view=True
        )

    def loss(self, batch: Any, counts: bool) -> Tensor:
        """Through DDP, so that it sees the backward pass come."""
        loss: Tensor = self._ddp(batch)
        return loss


class LossOf(nn.Module):
    """The loss as a forward pass, which is what DDP wraps."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, batch: Any) -> Tensor:
        """The mean loss per token."""
        return self._loss(self.model, batch)


def make_parallel(
    model: nn.Module, task: Task, config: TrainConfig, ranks: Ranks, device: torch.device
) -> Plain:
    """The model as a config and the number of ranks have it trained."""
    if ranks.size == 1:
        return Plain(model, task.loss)
    return Replicated(model, task.loss, ranks, device)


def _gradients(group: list[nn.Parameter]) -> list[Tensor]:
    return [p.grad for p in group if p.grad is not None]
