"""Named tensors to and from safetensors, one at a time; nothing that is read can run code.

A model may be larger than what one process has memory for: the file is written as its tensors come,
which the library that reads it cannot do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel.training._header import DTYPES, SHARED, header_of, open_weights, read_header
from fenchel.training._reading import Unreadable
from fenchel.training.distributed import Wholes

_CHUNK = 1 << 20
_NUMBERED = os.path.isdir("/dev/fd")


def pack(tensors: Mapping[str, Tensor] | Wholes) -> Iterator[bytes | memoryview]:
    """The bytes of a file in turn, each storage once: tied weights are named in its metadata."""
    _library()  # rather than files that cannot be read
    wholes = tensors if isinstance(tensors, Wholes) else Wholes(tensors)
    gathered = bytearray(_header(wholes))
    for _, tensor in wholes:
        # A tensor of one entry may have any stride, which a view of its bytes may not.
        flat = tensor.reshape(-1)
        if len(flat) == 1:
            flat = flat.clone(memory_format=torch.contiguous_format)
        data = flat.view(torch.uint8).numpy().data
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
    tied = read_header(path).tied
    tensors = dict(unpack_each(path))
    tensors.update({name: tensors[origin] for name, origin in tied.items()})
    return tensors


def unpack_each(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file one after the other, without those that are tied to another."""
    library = _library()
    with open_weights(path) as opened:
        header_of(opened)  # which refuses what the library would not: a false length, gaps
        # By its number: this very file, whose name may not be UTF-8, as the library wants it.
        number = f"/dev/fd/{opened.fileno()}"
        try:
            with library.safe_open(number if _NUMBERED else path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    yield name, file.get_tensor(name).clone()  # of memory that is the file's
        except library.SafetensorError as error:
            raise Unreadable(str(error)) from error


def _header(wholes: Wholes) -> bytes:
    # One key only: the order of several would be the library's to choose.
    header: dict[str, Any] = {"__metadata__": {SHARED: json.dumps(wholes.tied, sort_keys=True)}}
    end = 0
    for name, tensor in wholes.tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise FenchelError(
                f"checkpoint: expected `{name}` to have one of the dtypes {', '.join(DTYPES)}, but "
                f"got {dtype}; convert it, or leave it out of the state dict."
            )
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind, shape = DTYPES[dtype], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers after it are aligned
    return len(text).to_bytes(8, "little") + text


def _library() -> Any:
    return require("safetensors", extra="train", purpose="a checkpoint")
