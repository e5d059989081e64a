"""Named tensors to and from safetensors bytes; nothing that is read can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._compat import require

_SHARED = "shared"


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialise tensors, each storage once: tied weights are named in the file's metadata."""
    kept: dict[str, Tensor] = {}
    first: dict[Any, str] = {}
    shared: dict[str, str] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise FenchelError(
                f"checkpoint: expected `{name}` to be a tensor, but got {type(tensor).__name__}; "
                f"only tensors are stored."
            )
        value = tensor.detach()
        key = (value.data_ptr(), value.dtype, value.device, value.shape, value.stride())
        if value.numel() and key in first:
            shared[name] = first[key]
            continue
        first[key] = name
        value = value.cpu().contiguous()
        # Two overlapping views are not the same tensor, and safetensors refuses them.
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        kept[name] = value if whole else value.clone()
    # One key only: safetensors does not keep their order, and files are compared byte by byte.
    metadata = {_SHARED: json.dumps(shared, sort_keys=True)}
    return bytes(_library().save(kept, metadata=metadata))


def unpack(data: bytes) -> dict[str, Tensor]:
    """The tensors of :func:`pack`, each in memory of its own except those that were tied."""
    tensors = {name: tensor.clone() for name, tensor in _library().load(data).items()}
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    shared = json.loads(header.get("__metadata__", {}).get(_SHARED, "{}"))
    tensors.update({name: tensors[origin] for name, origin in shared.items()})
    return tensors


def _library() -> Any:
    return require("safetensors.torch", extra="train", purpose="a checkpoint")
