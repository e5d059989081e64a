"""How a model is trained: by one process as it is, or by several as DDP or FSDP2 have it.

All of them answer the same calls, so that the loop need not know which one it has. Gradients are
those of the mean over the tokens of all ranks. A config asks for one of them and for a device, if
the model allows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.models.output import OutputLayer
from fenchel.runs.machine import usable_device
from fenchel.runs.tensors import is_sharded, whole
from fenchel.runs.train_config import TrainConfig
from fenchel.training.distributed._ranks import Ranks
from fenchel.training.distributed._sharded_output import ShardedOutput

Loss = Callable[[nn.Module, Any], Tensor]


class SingleProcess:
    """One process: nothing is wrapped and nothing is sent.

    Args:
        model: the model, on its device, with its weights.
        loss: the mean loss per token of a batch.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self._loss = model, loss

    def groups(self) -> list[list[nn.Parameter]]:
        """The parameters to train; those that are sharded are not in one group with others."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        kinds = [[p for p in trained if is_sharded(p) is sharded] for sharded in (False, True)]
        return [kind for kind in kinds if kind]

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


class SeveralProcesses(SingleProcess):
    """What DDP and FSDP2 have in common: both average gradients over the ranks.

    Args:
        model: as for one process; the weights of rank 0 count.
        loss: as for one process.
        ranks: those that train together.
        device: of this rank.
        vocabulary: whether to deal out the output layer's tokens.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, ranks: Ranks, device: torch.device, vocabulary: bool
    ) -> None:
        super().__init__(model, loss)
        self.ranks, self.device = ranks, device
        self.group = ranks.group_on(device)
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0, group=self.group)
        self.output: ShardedOutput | None = None
        if vocabulary:
            self.output = ShardedOutput(model.output, self.mesh())  # type: ignore[arg-type]
            model.output = self.output
        self.wrap()

    def mesh(self) -> Any:
        """All ranks in a row, as DTensor sees them."""
        from torch.distributed.device_mesh import DeviceMesh  # takes long to import

        return DeviceMesh.from_group(self.group, self.device.type)

    def wrap(self) -> None:
        """Make it so that the backward pass averages gradients."""
        raise NotImplementedError

    def loss(self, batch: Any, counts: bool) -> Tensor:
        """Of this rank's batch, or of the batches of all ranks if the vocabulary is dealt out."""
        if self.output is not None:
            self.output.counts = counts
        return super().loss(batch, counts)

    def backward(self, loss: Tensor, share: float) -> None:
        """Weighted by tokens: a mean of the ranks' means would favour short shares."""
        weight = 1.0 if self.output is not None else share * self.ranks.size
        (loss * weight).backward()

    def clip(self, limit: float) -> float:
        """The norm counts each part of a sharded parameter once."""
        groups = self.groups()
        gradients = [[p.grad for p in group if p.grad is not None] for group in groups]
        norms = [whole(nn.utils.get_total_norm(of_group)) for of_group in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        for group in groups:
            nn.utils.clip_grads_with_norm_(group, limit, norm)
        return norm.item()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """With the whole output layer on each rank."""
        with ExitStack() as stack:
            if self.output is not None:
                stack.enter_context(self.output.gathered())
            yield


class Replicated(SeveralProcesses):
    """DDP: each rank has the whole model, but for a vocabulary that is dealt out."""

    def wrap(self) -> None:
        """DDP around the loss."""
        module = LossOf(self.model, self._loss)
        # A mask that is no part of the weights is the same everywhere and need not be sent.
        ignored = {name for name, _ in module.named_buffers()} - module.state_dict().keys()
        ignored |= {name for name, p in module.named_parameters() if is_sharded(p)}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)
        wrapped = DistributedDataParallel(
            module,
            process_group=self.group,
            gradient_as_bucket_view=True,
            # Not only for such parameters: DDP would sort its buckets anew after the first step,
            # and a resumed run would add up gradients in another order than one that went on.
            find_unused_parameters=True,
        )
        self._loss = lambda model, batch: wrapped(batch)


class Sharded(SeveralProcesses):
    """FSDP2: each rank has a part of every parameter, and gathers one layer at a time."""

    def wrap(self) -> None:
        """Shard the layers one by one, and then what is left."""
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh: Any = self.mesh() if self.output is None else self.output.mesh
        model: Any = self.model
        ignored = {p for p in model.parameters() if is_sharded(p)}
        for module in (*model.blocks(), model):
            fully_shard(module, mesh=mesh, ignored_params=ignored)
            for name in getattr(module, "forward_methods", ()):
                register_fsdp_forward_method(module, name)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """With all but the layers gathered."""
        model: Any = self.model
        with super().evaluating():
            model.unshard()
            try:
                yield
            finally:
                model.reshard()


class LossOf(nn.Module):
    """The loss as a forward pass, which is what DDP wraps."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self._loss = model, loss
        # DDP, asked to look for a parameter that is not used, prints a warning if there is none.
        plain = next(p for p in model.parameters() if not is_sharded(p))
        self.unused = nn.Parameter(plain.detach().new_zeros(1))

    def forward(self, batch: Any) -> Tensor:
        """The mean loss per token."""
        return self._loss(self.model, batch)


OLDEST = (2, 7)  # whose FSDP2 can leave parameters alone


def find_device(name: str, ranks: Ranks) -> torch.device:
    """The device of this process; of several, each has the GPU of its number on the machine."""
    if ranks.size > 1 and name.startswith("cuda"):
        if name != "cuda":
            raise FenchelError(
                f"TrainConfig: expected `device` to be cuda with several processes, each of which "
                f"takes its own GPU, but got {short(name)}."
            )
        device = _found(f"cuda:{int(os.environ.get('LOCAL_RANK', ranks.rank))}", name)
        torch.cuda.set_device(device)
        return device
    return _found(name, name)


def make_parallel(
    model: nn.Module, loss: Loss, config: TrainConfig, ranks: Ranks, device: torch.device
) -> SingleProcess:
    """The model as a config and the number of ranks have it trained; see :func:`check_parallel`."""
    if ranks.size == 1:
        return SingleProcess(model, loss)
    kind = Sharded if config.parallel == "fsdp" else Replicated
    return kind(model, loss, ranks, device, config.vocabulary_parallel)


def check_parallel(model: Any, config: TrainConfig, ranks: Ranks, *, own_loss: bool = True) -> None:
    """Check that several processes can train a model in the way that a config says.

    ``own_loss`` is whether the loss is ``model.loss``.
    """
    if ranks.size == 1:
        return
    if _torch_version() < OLDEST:
        raise FenchelError(
            f"Trainer: several processes need torch {OLDEST[0]}.{OLDEST[1]} or newer, but this is "
            f"{torch.__version__}; train with one process, or install a newer torch."
        )
    name = type(model).__name__
    if any(is_sharded(p) for p in model.parameters()):
        raise FenchelError(
            f"Trainer: expected a whole model, but this {name} is sharded already; build it again "
            f"for another run."
        )
    if config.parallel == "fsdp" and not getattr(model, "blocks", list)():
        raise FenchelError(
            f"TrainConfig: `parallel: fsdp` shards the layers of a Transformer, but the model is "
            f"{name}, which has none to shard; use ddp."
        )
    if config.vocabulary_parallel:
        _check_vocabulary(model, own_loss)


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _check_vocabulary(model: Any, own_loss: bool) -> None:
    what = "TrainConfig: `vocabulary_parallel` deals out the tokens of the output layer"
    output = getattr(model, "output", None)
    if not isinstance(output, OutputLayer) or not own_loss:
        raise FenchelError(
            f"{what}, for which it expects a model of fenchel.models with its own loss, but got "
            f"{type(model).__name__}."
        )
    names = [n for n, p in model.named_parameters(remove_duplicate=False) if p is output.weight]
    if len(names) > 1:
        raise FenchelError(
            f"{what}, but its weight is tied to {names[0]}, which every rank needs whole; set "
            f"model.tied_embeddings=false."
        )


def _found(name: str, said: str) -> torch.device:
    try:
        return usable_device(name)
    except FenchelError as error:
        reason = str(error.__cause__).strip().split("\n")[0][:120]
        raise FenchelError(
            f"TrainConfig: expected `device` to be one that torch can use here, but got "
            f"{short(said)} ({reason})."
        ) from error
