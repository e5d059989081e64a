"""Weights and the optimizer's averages as whole tensors, though ranks may have parts of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor; torch's module for them takes long to import."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "device_mesh")


def whole(tensor: Any) -> Any:
    """All of a tensor, of which ranks may have parts; each of them must then ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def model_tensors(model: torch.nn.Module, *, keep: bool = True) -> dict[str, Tensor]:
    """The weights by name; without ``keep`` none: such a rank only brings its parts."""
    weights = model.state_dict()
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weights[name] = weights[first.setdefault(id(parameter), name)]  # one of tied weights
    return _wholes(weights.items(), keep)


def optimizer_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, keep: bool = True
) -> dict[str, Tensor]:
    """Adam's averages and step counts, named ``<what>/<parameter>``; without ``keep`` none."""
    # Sorted: what was read from a file has another order on each rank.
    named = (
        (f"{what}/{name}", value)
        for name, parameter in model.named_parameters()
        for what, value in sorted(optimizer.state.get(parameter, {}).items())
    )
    return _wholes(named, keep)


def load_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what :func:`optimizer_tensors` took."""
    parameters = dict(model.named_parameters())
    numbers = {
        id(p): i for i, p in enumerate(p for g in optimizer.param_groups for p in g["params"])
    }
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        what, _, name = key.partition("/")
        if name not in parameters or id(parameters[name]) not in numbers:
            raise FenchelError(
                f"checkpoint: its optimizer knows the parameter {name!r}, which this model does "
                f"not train; resume with the model the run was started with."
            )
        part = _part(value, parameters[name])
        state.setdefault(numbers[id(parameters[name])], {})[what] = part
    # Through the optimizer's own method, which puts each tensor on its parameter's device.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _wholes(named: Iterable[tuple[str, Tensor]], keep: bool) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    names: dict[int, str] = {}  # of tensors that were seen, on all ranks alike
    for name, tensor in named:
        first = names.setdefault(id(tensor), name)
        if first != name:
            found |= {name: found[first]} if keep else {}
            continue
        complete = whole(tensor)
        if keep:
            found[name] = complete.cpu() if is_sharded(tensor) else complete
    return found


def _part(value: Tensor, parameter: Any) -> Tensor:
    """This rank's part of a whole value, if the parameter is sharded and the value is its."""
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements
    part = distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
    return part.clone()  # a view would keep all of the value in memory
