"""Named tensors to and from safetensors, one at a time; nothing that is read can run code.

A model may be larger than what one process has memory for: the file is written as its tensors come,
which the library that reads it cannot do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel.training.distributed import Wholes

_SHARED = "shared"
_CHUNK = 1 << 20
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def pack(tensors: Mapping[str, Tensor] | Wholes) -> Iterator[bytes | memoryview]:
    """The bytes of a file in turn, each storage once: tied weights are named in its metadata."""
    _library()  # rather than files that cannot be read
    wholes = tensors if isinstance(tensors, Wholes) else Wholes(tensors)
    gathered = bytearray(_header(wholes))
    for _, tensor in wholes:
        data = tensor.reshape(-1).view(torch.uint8).numpy().data
        if len(gathered) + len(data) > _CHUNK:
            yield bytes(gathered)
            gathered.clear()
        if len(data) > _CHUNK:
            yield data
        else:
            gathered += data
    yield bytes(gathered)


def unpack(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, each in memory of its own except those that were tied."""
    tensors = dict(unpack_each(path))
    with _open(path) as file:
        shared = json.loads((file.metadata() or {}).get(_SHARED, "{}"))
    tensors.update({name: tensors[origin] for name, origin in shared.items()})
    return tensors


def unpack_each(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file one after the other, without those that are tied to another."""
    with _open(path) as file:
        for name in file.keys():  # noqa: SIM118 (it is no mapping)
            yield name, file.get_tensor(name).clone()  # of memory that is the file's


def _header(wholes: Wholes) -> bytes:
    # One key only: the order of several would be the library's to choose.
    header: dict[str, Any] = {"__metadata__": {_SHARED: json.dumps(wholes.tied, sort_keys=True)}}
    end = 0
    for name, tensor in wholes.tensors.items():
        if tensor.dtype not in _TYPES:
            raise FenchelError(
                f"checkpoint: expected `{name}` to have one of the dtypes "
                f"{', '.join(str(kind).removeprefix('torch.') for kind in _TYPES)}, but got "
                f"{str(tensor.dtype).removeprefix('torch.')}; convert it, or leave it out of the "
                f"state dict."
            )
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind, shape = _TYPES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers after it are aligned
    return len(text).to_bytes(8, "little") + text


def _open(path: Path) -> Any:
    return _library().safe_open(path, framework="pt")


def _library() -> Any:
    return require("safetensors", extra="train", purpose="a checkpoint")
