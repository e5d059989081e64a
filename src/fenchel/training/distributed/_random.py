"""The states of torch's generators, of which each rank has its own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._short import bare, short
from fenchel.runs.tensors import Shapes
from fenchel.training.distributed._ranks import Ranks

_LONGEST = 1 << 20


def random_tensors(*, own_gpu: bool = False) -> dict[str, Tensor]:
    """The states on the CPU and on each GPU, or on this rank's GPU alone."""
    states = {"cpu": torch.get_rng_state()}
    if own_gpu and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    elif not own_gpu and torch.cuda.is_available():
        states |= {f"cuda:{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    return states


def load_random(tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`random_tensors` took, on the devices that are there."""
    torch.set_rng_state(tensors["cpu"])
    for name, state in tensors.items():
        if name != "cpu" and torch.cuda.is_available():
            torch.cuda.set_rng_state(state, name)


def seed_rank(seed: int, rank: int, step: int = 0) -> None:
    """Start the generators: rank 0's at the seed, others at numbers that it gives."""
    # A string seeds random.Random through SHA-512: the same on every platform and version.
    other = random.Random(f"{seed} {rank} {step}").getrandbits(32)
    torch.manual_seed(seed if rank == 0 else other)


def gather_random(ranks: Ranks) -> dict[str, Tensor]:
    """The states of all ranks; those of rank 0 have the names that they have in one process."""
    if ranks.size == 1:
        return random_tensors()
    every = ranks.gather(random_tensors(own_gpu=True))
    return {
        (name if rank == 0 else f"{_of_rank(rank)}{name}"): state
        for rank, states in enumerate(every)
        for name, state in states.items()
    }


def load_random_of_rank(tensors: Mapping[str, Tensor], rank: int, seed: int, step: int) -> None:
    """Put back this rank's states; a rank that the checkpoint does not know starts new ones."""
    prefix = "" if rank == 0 else _of_rank(rank)
    own = {
        name.removeprefix(prefix): state
        for name, state in tensors.items()
        if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
    }
    if not own:
        seed_rank(seed, rank, step)
        return
    try:
        load_random(own)
    except (KeyError, RuntimeError, TypeError):  # of a state that no generator has
        raise FenchelError(
            "checkpoint: expected the states of torch's generators, but random.safetensors has "
            "others; it is damaged, or of another version of torch."
        ) from None


def sound_states(path: Path, shapes: Shapes) -> None:
    """Check that a file has states of generators, by their shapes: a few thousand bytes each."""
    for name, shape in shapes.items():
        if len(shape) != 1 or shape[0] > _LONGEST:
            raise FenchelError(
                f"{path}: expected states of generators, each of at most {_LONGEST:,} bytes, but "
                f"{bare(name)} is of shape {short(shape)}."
            )


def _of_rank(rank: int) -> str:
    return f"rank-{rank}/"
