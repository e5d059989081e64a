"""Weights and the optimizer's averages as whole tensors, though ranks may have parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.training._header import Shapes
from fenchel.training.distributed._ranks import Ranks

_ADAM = ("step", "exp_avg", "exp_avg_sq")  # what it keeps of each parameter


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor; torch's module for them takes long to import."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "device_mesh")


def whole(tensor: Any) -> Any:
    """All of a tensor, of which ranks may have parts; each of them must then ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


class Wholes:
    """Named tensors that come one at a time, each as a whole, in the same order on all ranks.

    Ranks may have parts of them, so each rank must go through all of them, once, whatever becomes
    of what it does with them: :meth:`finish`.

    Args:
        tensors: by name; one tensor may have several.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        first: dict[Any, str] = {}
        self.tied: dict[str, str] = {}
        distinct: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise FenchelError(
                    f"checkpoint: expected `{name}` to be a tensor, but got "
                    f"{type(tensor).__name__}; only tensors are stored."
                )
            origin = first.setdefault(_identity(tensor), name)
            if origin == name:
                distinct[name] = tensor.detach()
            else:
                self.tied[name] = origin
        # Large entries first, so that all are aligned in a file.
        order = sorted(distinct, key=lambda name: (-distinct[name].element_size(), name))
        self.tensors = {name: distinct[name] for name in order}
        self._rest = iter(self.tensors.items())
        self._broken: Exception | None = None

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Those that are left, on the CPU."""
        for name, tensor in self._rest:
            try:
                value = whole(tensor).cpu().contiguous()
            except Exception as error:
                self._broken = error
                raise
            yield name, value

    def finish(self) -> None:
        """Give the other ranks this one's parts of all that is left.

        If they no longer answer, or one could not be gathered, there is nothing to wait for.
        """
        if self._broken is not None:
            raise self._broken
        for _, tensor in self._rest:
            whole(tensor)


def gather_to_write(ranks: Ranks, wholes: Iterable[Wholes], write: Callable[[], object]) -> None:
    """Let rank 0 write while all ranks gather; an error of its file is the error of all."""
    failure: Exception | None = None
    try:
        if ranks.leads:
            write()
    except Exception as error:
        failure = error
    for tensors in wholes:
        tensors.finish()
    with ranks.together():
        if failure is not None:
            raise failure


def model_tensors(model: torch.nn.Module) -> Wholes:
    """The weights by name."""
    weights = model.state_dict()
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weights[name] = weights[first.setdefault(id(parameter), name)]  # one of tied weights
    return Wholes(weights)


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Wholes:
    """Adam's averages and step counts, named ``<what>/<parameter>``."""
    return Wholes(
        {
            f"{what}/{name}": value
            for name, parameter in model.named_parameters()
            for what, value in optimizer.state.get(parameter, {}).items()
        }
    )


def same_parameters(model: torch.nn.Module) -> Callable[[Path, Shapes], None]:
    """A check that a file has what Adam knows of a model's parameters, by name and shape."""
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}

    def check(path: Path, shapes: Shapes) -> None:
        names = {key.partition("/")[2] for key in shapes}
        for name in names & wanted.keys():
            known = {what: shapes.get(f"{what}/{name}") for what in _ADAM}
            if known != {what: () if what == "step" else wanted[name] for what in _ADAM}:
                raise FenchelError(
                    f"{path}: expected {', '.join(_ADAM)} of the parameter {name}, the averages "
                    f"with its shape {short(wanted[name])}, but got {short(known)}."
                )
        if len(shapes) != len(_ADAM) * len(names):
            raise FenchelError(
                f"{path}: expected {', '.join(_ADAM)} of {len(names)} parameters, but got "
                f"{len(shapes)} tensors; the file is damaged."
            )

    return check


def load_optimizer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Iterable[tuple[str, Tensor]],
) -> None:
    """Put back what :func:`optimizer_tensors` took, of each tensor this rank's part."""
    parameters = dict(model.named_parameters())
    numbers = {
        id(p): i for i, p in enumerate(p for g in optimizer.param_groups for p in g["params"])
    }
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors:
        what, _, name = key.partition("/")
        if name not in parameters or id(parameters[name]) not in numbers:
            raise FenchelError(
                f"checkpoint: its optimizer knows the parameter {short(name)}, which this model "
                f"does not train; resume with the model the run was started with."
            )
        part = _part(value, parameters[name])
        state.setdefault(numbers[id(parameters[name])], {})[what] = part
    if any(known.keys() != set(_ADAM) for known in state.values()):
        raise FenchelError(
            f"checkpoint: expected {', '.join(_ADAM)} of each parameter of its optimizer, but some "
            f"are missing; optimizer.safetensors is damaged."
        )
    # Through the optimizer's own method, which puts each tensor on its parameter's device.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _identity(tensor: Tensor) -> Any:
    """The same for two names of one tensor; empty ones are never the same."""
    if is_sharded(tensor) or not tensor.numel():
        return id(tensor)
    where = (tensor.untyped_storage()._cdata, tensor.storage_offset())
    return (*where, tensor.dtype, tensor.shape, tensor.stride())


def _part(value: Tensor, parameter: Any) -> Tensor:
    """This rank's part of a whole value, if the parameter is sharded and the value is its."""
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements
    part = distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
    return part.clone()  # a view would keep all of the value in memory
