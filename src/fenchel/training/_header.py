"""What a safetensors file says it holds, compared with its length and with what is wanted.

A file of a few kilobytes can claim to be terabytes long. So names, shapes and sizes are looked at
before a tensor is read, and before a model is built to put them into.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import torch

from fenchel._checks import FenchelError
from fenchel._short import bare, short
from fenchel.training._files import open_plain
from fenchel.training._reading import Unreadable, parse_json

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
