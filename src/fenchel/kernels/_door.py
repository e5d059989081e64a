"""The one door to native code: no pointer leaves Python without having passed through here.

A pointer says nothing about what it points to. So a :class:`NativeFunction` knows the type of every
argument of a function of the core, looks at every tensor that it is given (plain, dense, on the
CPU, of this dtype, contiguous, not lazily negated or zero) and refuses the rest in a sentence.
What callers need to come through the door is here too: :func:`is_plain` tells whether tensors may
be read now, :func:`readable` gives a tensor with its entries in memory as they are, :func:`empty`
allocates where the core can write.

Sizes and the range of indices are for the callers to check, where values are real: see
``_indices``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from fenchel._checks import FenchelError
from fenchel.kernels._library import LIBRARY
from fenchel.kernels._signals import check_status

_ORDINARY = (Tensor, torch.nn.Parameter)
_PYTHON = torch._C.DispatchKey.Python
_REFERENCE = type(ctypes.byref(ctypes.c_int()))  # to a number of ours
# Asked before every call: a name costs less than the way to it.
_modes = torch._C._len_torch_dispatch_stack
_tracing = torch._C._get_tracing_state
_is_batched = torch._C._functorch.is_legacy_batchedtensor


class Strided:
    """In a signature: a tensor of any dtype and strides, which the caller passes along."""


def is_plain(*values: Any) -> bool:
    """Whether all tensors among ``values`` can be read now, and nothing must see how.

    That is not so while torch compiles, traces or transforms, and for tensors of a subclass or
    without memory (fake, meta, batched): there, registered ops and the reference's torch ops serve.
    Values that are no tensors do not matter.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or _modes() > 0
        or _tracing() is not None
    ):
        return False
    return have_memory(*values)


def in_eager_mode(x: Tensor, parameter: Any) -> bool:
    """:func:`is_plain`, where torch neither compiles nor transforms: it comes before every map."""
    return (
        type(x) in _ORDINARY
        and not x.is_meta
        and _modes() == 0
        and _tracing() is None
        and (type(parameter) is float or have_memory(parameter))
    )


def is_captured() -> bool:
    """Whether torch records operations to run them again, or only works out their shapes.

    Other dispatch modes (a counter of FLOPs, a policy of what to recompute) run what they see.
    """
    if _tracing() is not None:
        return True
    return _modes() > 0 and any(
        getattr(mode, "_mode_key", None) is not None for mode in _get_current_dispatch_mode_stack()
    )


def has_sizes_only(*values: Any) -> bool:
    """Whether tensors are fake and torch keeps no symbols for sizes that depend on data."""
    if torch.compiler.is_compiling():  # which keeps symbols
        return False
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not is_captured() and have_memory(*tensors):
        return False
    mode = detect_fake_mode(tensors)
    return mode is not None and mode.shape_env is None


def have_memory(*values: Any) -> bool:
    """Whether all tensors among ``values`` are ordinary ones, whose entries lie in memory."""
    for value in values:
        if type(value) in _ORDINARY:
            # A batch of gradients (autograd.grad(is_grads_batched=True)) has the type Tensor.
            if value.is_meta or _is_batched(value):
                return False
        elif isinstance(value, Tensor):
            return False
    return True


def unwrapped(x: Tensor) -> Tensor:
    """``x`` without a subclass that only adds methods; one that wraps other tensors stays."""
    if type(x) in _ORDINARY or torch._C._dispatch_keys(x).has(_PYTHON):
        return x
    return x.as_subclass(Tensor)


def readable(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``x`` with its entries in memory as they are: contiguous, not lazily negated or zero.

    Args:
        x: a tensor on the CPU.
        dtype: what its entries must be; by default what they are.
    """
    if type(x) not in _ORDINARY:
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

    def __init__(self, name: str, signature: Sequence[Any], result: Any = ctypes.c_int) -> None:
        self.name = name
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
        if (_modes() or _tracing()) and is_captured():
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
            if type(x) in _ORDINARY and x.dtype is kind and x.is_cpu and x.is_contiguous():
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
        type(x) in _ORDINARY
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
