"""The one door to native code: no pointer leaves Python without having passed through here.

A pointer says nothing about what it points to. So a :class:`NativeFunction` knows the type of every
argument of a function of the core, looks at every tensor that it is given (plain, dense, on the
CPU, of this dtype, contiguous, not lazily negated or zero) and refuses the rest in a sentence.
:func:`readable` gives a tensor with its entries in memory as they are, :func:`empty` allocates
where the core can write.

Sizes and the range of indices are for the callers to check, where values are real: see
``_indices``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.kernels._plain import ORDINARY, is_captured, unwrapped
from fenchel.kernels.native._library import LIBRARY
from fenchel.kernels.native._signals import check_status

_REFERENCE = type(ctypes.byref(ctypes.c_int()))  # to a number of ours


class Strided:
    """In a signature: a tensor of any dtype and strides, which the caller passes along."""


def readable(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``x`` with its entries in memory as they are: contiguous, not lazily negated or zero.

    Args:
        x: a tensor on the CPU.
        dtype: what its entries must be; by default what they are.
    """
    if type(x) not in ORDINARY:
        x = unwrapped(x)
    if dtype is not None and x.dtype is not dtype:
        x = x.to(dtype)
    if x.is_contiguous() and not x.is_neg() and not x._is_zerotensor():  # most are
        return x
    if x._is_zerotensor():
        return torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    return x.resolve_neg().contiguous()


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Memory for a result of the core, on the CPU whatever torch's default device is."""
    return torch.empty(shape, dtype=dtype, device="cpu")


class NativeFunction:
    """A function of the core, called with tensors and numbers.

    Args:
        name: without the prefix ``fenchel_``.
        signature: for each argument the dtype of the tensor that is pointed to, :class:`Strided`,
            or the ctypes type of a number or of memory that is not a tensor's.
        result: the ctypes type of what it returns; by default a status, which is checked.

    Without the core it can be made but not called.
    """

    #: By name: what the tests compare with the core's header.
    every: ClassVar[dict[str, NativeFunction]] = {}

    def __init__(self, name: str, signature: Sequence[Any], result: Any = ctypes.c_int) -> None:
        self.name = name
        self.every[name] = self
        self.signature = tuple(signature)
        self.has_status = result is ctypes.c_int
        self.tensors = tuple(
            (place, kind)
            for place, kind in enumerate(self.signature)
            if isinstance(kind, torch.dtype) or kind is Strided
        )
        self.function: Callable[..., Any] | None = None
        if LIBRARY is not None:
            self.function = function = getattr(LIBRARY, f"fenchel_{name}")
            pointers = {place for place, _ in self.tensors}
            function.argtypes = [
                ctypes.c_void_p if place in pointers else kind
                for place, kind in enumerate(self.signature)
            ]
            function.restype = result

    def __call__(self, *arguments: Any) -> Any:
        if is_captured():
            raise FenchelError(
                f"fenchel's native core ({self.name}) was called while torch records operations, "
                "of which it cannot be one; call the public function, or leave the tracer."
            )
        assert self.function is not None  # the table of backends does not come here without it
        raw = list(arguments)
        kept = []  # copies of what did not lie in memory as it is
        for place, kind in self.tensors:
            x = raw[place]
            if x is None or type(x) is _REFERENCE:
                continue
            # A tensor that is lazily zero has no memory: it says 0.
            if type(x) in ORDINARY and x.dtype is kind and x.is_cpu and x.is_contiguous():
                try:
                    pointer = 0 if x.is_neg() else x.data_ptr()
                except RuntimeError:  # a batched tensor, or one of another layout
                    pointer = 0
                if pointer:
                    raw[place] = pointer
                    continue
            if kind is not Strided and x.dtype is kind and x.is_cpu:
                x = readable(x)
                kept.append(x)
            raw[place] = _pointer(self.name, x, kind)
        result = self.function(*raw)
        if result and self.has_status:
            check_status(result)
        return result


def _address(x: Tensor) -> int:
    try:
        return x.data_ptr()
    except RuntimeError:  # a batched tensor, or one of another layout
        return 0


def _pointer(name: str, x: Tensor, kind: Any) -> int:
    """Where the entries of ``x`` lie, if they are what the function expects."""
    if (
        type(x) in ORDINARY
        and x.is_cpu
        and x.layout is torch.strided
        and (kind is Strided or (x.dtype is kind and x.is_contiguous()))
        and not x.is_neg()
    ):
        pointer = _address(x)
        if pointer or x.numel() == 0:
            return pointer
    what = "of any dtype" if kind is Strided else f"contiguous, of dtype {kind}"
    raise FenchelError(
        f"fenchel's native core ({name}) expected a plain dense tensor on the CPU, {what}, but got "
        f"a {type(x).__name__} of {x.dtype} on {x.device} with shape {tuple(x.shape)}."
    )
