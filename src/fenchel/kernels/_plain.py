"""Whether tensors may be read now: asked before every kernel that works on memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

#: The types of tensors whose entries lie in memory; subclasses may hold them elsewhere.
ORDINARY = (Tensor, torch.nn.Parameter)
_PYTHON = torch._C.DispatchKey.Python
# Asked before every call: a name costs less than the way to it.
_modes = torch._C._len_torch_dispatch_stack
_tracing = torch._C._get_tracing_state
_is_batched = torch._C._functorch.is_legacy_batchedtensor


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
        type(x) in ORDINARY
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
        if type(value) in ORDINARY:
            # A batch of gradients (autograd.grad(is_grads_batched=True)) has the type Tensor.
            if value.is_meta or _is_batched(value):
                return False
        elif isinstance(value, Tensor):
            return False
    return True


def unwrapped(x: Tensor) -> Tensor:
    """``x`` without a subclass that only adds methods; one that wraps other tensors stays."""
    if type(x) in ORDINARY or torch._C._dispatch_keys(x).has(_PYTHON):
        return x
    return x.as_subclass(Tensor)
