"""SHA-256 of what a run must find again as it was: files, settings, training examples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor


def digest_bytes(data: bytes) -> str:
    """Of the bytes of a file."""
    return hashlib.sha256(data).hexdigest()


def digest_values(values: Any) -> str:
    """Of plain values: dicts (in any order), lists, text and numbers."""
    return digest_bytes(json.dumps(values, sort_keys=True, ensure_ascii=False).encode())


def digest_examples(examples: Iterable[Any], lengths: Sequence[int]) -> str:
    """Of training examples, by content and order.

    Plain values, tensors, arrays, bytes and dataclasses of these count with all that is in them; of
    an object of another class only its class does, and the example's length.
    """
    digest = hashlib.sha256()
    for example, length in zip(examples, lengths, strict=True):
        try:
            text = json.dumps([length, example], default=_plain, skipkeys=True)
        except (ValueError, RecursionError):  # it holds itself
            text = json.dumps([length, _name(example)])
        digest.update(text.encode())
    return digest.hexdigest()


def digested(pieces: Iterable[bytes | memoryview], digest: Any) -> Iterator[bytes | memoryview]:
    """Pass pieces on, and add each to a digest."""
    for piece in pieces:
        digest.update(piece)
        yield piece


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return [str(value.dtype), list(value.shape), value.flatten().tolist()]
    if isinstance(value, bytes | bytearray | memoryview):
        return digest_bytes(bytes(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names}
    if hasattr(value, "tolist"):  # NumPy's
        return [str(getattr(value, "dtype", "")), value.tolist()]
    return _name(value)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
