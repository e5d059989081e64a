"""Named tensors to and from safetensors, one at a time; nothing that is read can run code.

A model may be larger than what one process has memory for: the file is written as its tensors come,
which the library that reads it cannot do. Ranks that train together may have parts of a tensor;
what is written is whole.

A file of a few kilobytes can claim to be terabytes long. So names, shapes and sizes are compared
with its length and with what is wanted before a tensor is read, and before a model is built to put
them into.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel._short import bare, short
from fenchel.runs.files import Unreadable, open_plain, parse_json

LONGEST = 16 << 20  # bytes of a header: about a hundred thousand tensors
SHARED = "shared"  # the key of names of tied tensors, in the file's metadata
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_SIZES = {code: getattr(torch, name).itemsize for name, code in DTYPES.items()}
Shapes = dict[str, tuple[int, ...]]
_CHUNK = 1 << 20
_NUMBERED = os.path.isdir("/dev/fd")


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor; torch's module for them takes long to import."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "device_mesh")


def whole(tensor: Any) -> Any:
    """All of a tensor, of which ranks may have parts; each of them must then ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


class GatheredTensors:
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


def pack(tensors: Mapping[str, Tensor] | GatheredTensors) -> Iterator[bytes | memoryview]:
    """The bytes of a file in turn, each storage once: tied weights are named in its metadata."""
    _library()  # rather than files that cannot be read
    wholes = tensors if isinstance(tensors, GatheredTensors) else GatheredTensors(tensors)
    gathered = bytearray(_packed_header(wholes))
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


def _packed_header(wholes: GatheredTensors) -> bytes:
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


@dataclass(frozen=True)
class Header:
    """The shapes by name, those of tied tensors too, and which names are tied to which."""

    shapes: Shapes
    tied: dict[str, str]


def read_header(path: Path) -> Header:
    """The header of a file whose length is exactly what the header says.

    Raises:
        Unreadable: it is damaged; the text says how.
    """
    with open_weights(path) as file:
        return header_of(file)


@contextmanager
def open_weights(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read; an error of the system is :class:`Unreadable`."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            yield file
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def header_of(file: IO[bytes]) -> Header:
    """See :func:`read_header`."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(LONGEST, size - 8):
        raise Unreadable("it does not begin with the header of a safetensors file")
    document = parse_json(file.read(length))
    if not isinstance(document, dict):
        raise Unreadable("its header is no JSON object")
    tied = _tied(document.pop("__metadata__", None))
    entries = {name: _entry(name, entry) for name, entry in document.items()}
    _check_layout(entries, size - 8 - length)
    shapes = {name: shape for name, (shape, _) in entries.items()}
    if not tied.keys().isdisjoint(shapes) or not set(tied.values()) <= shapes.keys():
        raise Unreadable("its tied names are not those of its tensors")
    return Header(shapes | {name: shapes[origin] for name, origin in tied.items()}, tied)


def check_shapes(path: Path, found: Shapes, wanted: Shapes) -> None:
    """Check that the weights of a file are those of a model, by name and shape."""
    for name in {**wanted, **found}:
        has, needs = (_describe(one.get(name)) for one in (found, wanted))
        if has != needs:
            raise FenchelError(
                f"{path}: expected the weights of this model, but they are another's, where "
                f"{bare(name)} is {has} and not {needs}; build the model with the config of "
                f"the run."
            )


def shapes_of(tensors: Mapping[str, Any]) -> Shapes:
    """The shapes of named tensors."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _describe(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"of shape {short(shape)}"


def _tied(metadata: Any) -> dict[str, str]:
    if metadata is None:
        return {}
    if not _are_texts(metadata):
        raise Unreadable("its metadata are not texts")
    tied = parse_json(metadata.get(SHARED, "{}").encode("utf-8", "replace"))
    if not _are_texts(tied):
        raise Unreadable("the list of its tied tensors is damaged")
    names: dict[str, str] = tied
    return names


def _are_texts(values: Any) -> bool:
    return isinstance(values, dict) and all(isinstance(value, str) for value in values.values())


def _entry(name: str, entry: Any) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The shape and the range of bytes of one tensor."""
    values: Any = entry if isinstance(entry, dict) else {}
    keys = ("dtype", "shape", "data_offsets")
    dtype, shape, span = (values.get(key) for key in keys)
    good = dtype in _SIZES if isinstance(dtype, str) else False
    if not (good and _are_counts(shape) and _are_counts(span) and len(span) == 2):
        raise Unreadable(f"its header says nothing sound of the tensor {short(name)}")
    if prod(shape) * _SIZES[dtype] != span[1] - span[0]:
        raise Unreadable(f"the tensor {short(name)} has another size than its shape says")
    return tuple(shape), (span[0], span[1])


def _are_counts(values: Any) -> bool:
    plain = isinstance(values, list) and len(values) <= 64
    return plain and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _check_layout(entries: Mapping[str, tuple[Any, tuple[int, int]]], size: int) -> None:
    """The tensors fill the file, one after the other, without a gap."""
    end = 0
    for start, stop in sorted(span for _, span in entries.values()):
        if start != end:
            raise Unreadable("its tensors overlap or have gaps between them")
        end = stop
    if end != size:
        raise Unreadable(f"its tensors take {end:,} bytes, but it has {size:,}")


def _identity(tensor: Tensor) -> Any:
    """The same for two names of one tensor; empty ones are never the same."""
    if is_sharded(tensor) or not tensor.numel():
        return id(tensor)
    where = (tensor.untyped_storage()._cdata, tensor.storage_offset())
    return (*where, tensor.dtype, tensor.shape, tensor.stride())
