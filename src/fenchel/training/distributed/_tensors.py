"""Weights and the optimizer's averages as whole tensors, though ranks may have parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.runs.tensors import GatheredTensors, Shapes, is_sharded
from fenchel.training.distributed._ranks import Ranks

_ADAM = ("step", "exp_avg", "exp_avg_sq")  # what it keeps of each parameter


def gather_to_write(
    ranks: Ranks, wholes: Iterable[GatheredTensors], write: Callable[[], object]
) -> None:
    """Let rank 0 write while all ranks gather; an error of its file is the error of all."""
    failure: Exception | None = None
    try:
        if ranks.leads:
            write()
    except Exception as error:
        failure = error
    for tensors in wholes:
        tensors.finish()
    with ranks.all_or_none():
        if failure is not None:
            raise failure


def model_tensors(model: torch.nn.Module) -> GatheredTensors:
    """The weights by name."""
    weights = model.state_dict()
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weights[name] = weights[first.setdefault(id(parameter), name)]  # one of tied weights
    return GatheredTensors(weights)


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> GatheredTensors:
    """Adam's averages and step counts, named ``<what>/<parameter>``."""
    return GatheredTensors(
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


def _part(value: Tensor, parameter: Any) -> Tensor:
    """This rank's part of a whole value, if the parameter is sharded and the value is its."""
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements
    part = distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
    return part.clone()  # a view would keep all of the value in memory
