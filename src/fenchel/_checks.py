"""One voice for errors: every wrong argument raises :class:`FenchelError` with one sentence.

A message says what was expected, what came, and, where it is not obvious, what to do. Only
metadata (types, dtypes, shapes, Python numbers) is checked here; the values inside tensors are
never read, so that no call on a GPU waits for the device.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fenchel._short import short

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


_P = ParamSpec("_P")
_R = TypeVar("_R")


class FenchelError(ValueError):
    """A wrong argument. The message says what was expected, what came, and what to do."""


def check_scores(
    name: str, scores: Any, dim: Any, label: str = "scores", *, may_be_empty: bool = False
) -> int:
    """Check ``scores`` and ``dim`` and return ``dim`` as a non-negative index.

    ``label`` is what messages call the tensor, for functions of something else than scores.
    ``may_be_empty`` lets pass what torch.softmax lets pass: no entries along ``dim``, and a number.
    """
    if not isinstance(scores, Tensor):
        raise FenchelError(
            f"{name}: expected `{label}` to be a torch.Tensor, but got {type(scores).__name__}."
        )
    if scores.dtype not in _DTYPES:
        remedy = "" if scores.is_complex() else f"; convert with `{label}.float()`"
        raise FenchelError(
            f"{name}: expected `{label}` of a floating dtype (float64, float32, float16 or "
            f"bfloat16), but got {scores.dtype}{remedy}."
        )
    if scores.layout != torch.strided or scores.is_nested:
        raise FenchelError(
            f"{name}: expected dense `{label}`, but got layout {scores.layout}; convert with "
            f"`{label}.to_dense()` or pad nested tensors."
        )
    rank = scores.dim()
    if rank == 0 and may_be_empty:
        rank = 1
    elif rank == 0:
        raise FenchelError(
            f"{name}: expected `{label}` with at least one dimension, but got a 0-d tensor."
        )
    dim = check_dim(name, dim)
    if not -rank <= dim < rank:
        raise FenchelError(
            f"{name}: expected `dim` in [{-rank}, {rank - 1}] for `{label}` of shape "
            f"{tuple(scores.shape)}, but got {dim}."
        )
    if dim < 0:
        dim += rank
    if not may_be_empty and scores.shape[dim] == 0:
        raise FenchelError(
            f"{name}: expected at least one entry along `dim`, but `{label}` of shape "
            f"{tuple(scores.shape)} has none along dim {dim}."
        )
    return dim


def check_wide(name: str, **tensors: Tensor) -> None:
    """Check that tensors are float32 or float64: half precision is widened before."""
    for label, x in tensors.items():
        if x.dtype not in (torch.float32, torch.float64):
            raise FenchelError(
                f"{name}: expected `{label}` of dtype float32 or float64, but got {x.dtype}."
            )


def check_dim(name: str, dim: Any) -> int:
    """Check that ``dim`` is an int (NumPy's count); whether the scores have it shows later."""
    if isinstance(dim, int) and not isinstance(dim, bool):
        return dim
    return check_int(name, "dim", dim)


def check_int(name: str, label: str, value: Any) -> int:
    """Check that ``value`` is an int (NumPy's count) that fits in 64 bits, as torch's do."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = operator.index(value)
        if -(2**63) <= number < 2**63:
            return number
        raise FenchelError(
            f"{name}: expected `{label}` to fit in 64 bits, but got {number}; use a smaller number."
        )
    raise FenchelError(f"{name}: expected `{label}` to be an int, but got {value!r}.")


def check_at_least(name: str, label: str, value: Any, low: int) -> int:
    """Check an int (NumPy's count, and a 0-d tensor's) of at least ``low``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or isinstance(value, bool):
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at least {low}, but got {value!r}."
        )
    return check_int(name, label, number)


def check_count(name: str, label: str, value: Any, meaning: str) -> int | None:
    """Check an int of at least 1, or None, which means ``meaning``."""
    if value is None:
        return None
    number = check_int(name, label, value)
    if number < 1:
        raise FenchelError(
            f"{name}: `{label}` must be at least 1, or None for {meaning}; got {value}."
        )
    return number


def check_choice(name: str, label: str, value: Any, choices: Sequence[str]) -> None:
    """Check that ``value`` is one of some words."""
    if value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise FenchelError(
            f"{name}: expected `{label}` to be {', '.join(others)} or {last}, but got {value!r}."
        )


def check_bool(name: str, label: str, value: Any) -> bool:
    """Check that ``value`` is True or False."""
    if not isinstance(value, bool):
        raise FenchelError(f"{name}: expected `{label}` to be a bool, but got {value!r}.")
    return value


def check_ignore_index(name: str, value: Any) -> int | Tensor:
    """An int (NumPy's count), or a 0-d integer tensor, such as an entry of a target: not read."""
    if isinstance(value, Tensor) and value.dim() == 0 and value.dtype in INTEGERS:
        return value
    if isinstance(value, Tensor):
        got = f"{value.dtype} of shape {tuple(value.shape)}"
        raise FenchelError(f"{name}: expected `ignore_index` to be an int, but got {got}.")
    return check_int(name, "ignore_index", value)


def no_bare_int(name: str, parameter: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """For a map whose second argument is a ``parameter``: refuse an int there without its name.

    ``torch.softmax(x, 1)`` means ``dim=1``, and so does ``torch.nn.Softmax(1)``. A map that took
    the 1 for its parameter would answer along another axis without a word.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if len(args) > 1 and _is_int(args[1]):
                given = short(operator.index(args[1]))  # type: ignore[arg-type]
                raise FenchelError(
                    f"{name}: a bare {given} could mean `dim` or `{parameter}`; write "
                    f"`dim={given}` or `{parameter}={given}`."
                )
            return function(*args, **kwargs)

        return call

    return decorate


def _is_int(value: Any) -> bool:
    kind = type(value)
    if kind is float:  # most often; numbers.Integral asks around
        return False
    return kind is int or (isinstance(value, numbers.Integral) and kind is not bool)


def is_transformed() -> bool:
    """Whether torch.func or forward mode is at work: these know nothing of a registered op."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def refuse_transforms(name: str, reason: str) -> None:
    """For what has reverse mode only: a tangent would be lost without a word."""
    if is_transformed():
        raise FenchelError(f"{name}: expected no torch.func and no forward mode, because {reason}.")


def refuse_forward_over_forward(op: str) -> None:
    """torch evaluates a Function's jvp outside the outer jvp and would return wrong numbers."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    jvp = torch._C._functorch.TransformType.Jvp
    if sum(level.key() == jvp for level in stack) > 1:
        raise FenchelError(
            f"{op}: forward-over-forward derivatives are not supported; use "
            "`torch.func.jacfwd(torch.func.jacrev(f))` or `torch.func.hessian(f)`."
        )


def check_mask(name: str, mask: Any, scores: Tensor) -> None:
    """Check that ``mask`` is a boolean tensor that broadcasts to the shape of ``scores``."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise FenchelError(
            f"{name}: expected `mask` to be a boolean tensor (True = keep), but got {got}."
        )
    if mask.device != scores.device:
        raise FenchelError(
            f"{name}: expected `mask` on the device of `scores` ({scores.device}), but it is on "
            f"{mask.device}."
        )
    if not _broadcasts_to(mask.shape, scores.shape):
        raise FenchelError(
            f"{name}: expected `mask` broadcastable to the shape of `scores` "
            f"{tuple(scores.shape)}, but got {tuple(mask.shape)}."
        )


def check_parameter(
    name: str, label: str, value: Any, scores: Tensor, dim: int, low: float, meaning: str
) -> float | Tensor:
    """Check a map's parameter: a number of at least ``low``, or a tensor with one value a row.

    Returns a Python float, or a tensor of the same rank as ``scores`` with size 1 along ``dim``.
    """
    if isinstance(value, Tensor):
        return check_parameter_tensor(name, label, value, scores, dim)
    return check_number(name, label, value, low, meaning, "a number or a torch.Tensor")


def check_number(
    name: str, label: str, value: Any, low: float, meaning: str, kind: str = "a number"
) -> float:
    """Check that ``value`` is a number (NumPy's count) of at least ``low``."""
    number = as_number(name, label, value, kind)
    if not number >= low:  # NaN is not
        least = f"{low:g} {meaning}".rstrip()
        raise FenchelError(f"{name}: `{label}` must be at least {least}; got {value!r}.")
    return number


def check_alpha(
    name: str, value: Any, meaning: str, kind: str = "a number", label: str = "alpha"
) -> float:
    """Check the order of a Tsallis entropy: a number above 0."""
    number = as_number(name, label, value, kind)
    if not number > 0:  # NaN is not
        raise FenchelError(f"{name}: `{label}` must be above 0 {meaning}; got {value!r}.")
    return number


def check_alphas(name: str, value: Any, scores: Tensor, dim: int, meaning: str) -> float | Tensor:
    """As :func:`check_parameter`, for the order of a Tsallis entropy."""
    if isinstance(value, Tensor):
        return check_parameter_tensor(name, "alpha", value, scores, dim)
    return check_alpha(name, value, meaning, "a number or a torch.Tensor")


def check_tol(name: str, tol: Any) -> float:
    """Check a tolerance: a finite number above 0."""
    value = check_number(name, "tol", tol, 0.0, "(and above it)")
    if not 0 < value < math.inf:
        raise FenchelError(f"{name}: `tol` must be a finite number above 0; got {tol!r}.")
    return value


def check_positive(name: str, label: str, value: Any, high: float, expected: str) -> float:
    """Check that ``value`` is a number above 0 and at most ``high``, as ``expected`` says."""
    number = as_number(name, label, value, "a number")
    if not 0 < number <= high:
        raise FenchelError(f"{name}: `{label}` must be {expected}; got {value!r}.")
    return number


def as_number(name: str, label: str, value: Any, kind: str) -> float:
    # A symbolic float of torch.compile has no numbers.Real about it.
    real = isinstance(value, float | int | numbers.Real | torch.SymFloat)
    if isinstance(value, bool) or not real:
        raise FenchelError(
            f"{name}: expected `{label}` to be {kind}, but got {type(value).__name__}."
        )
    try:
        return float(value)
    except OverflowError:
        raise FenchelError(
            f"{name}: `{label}` is too large for a float; use float('inf')."
        ) from None


def check_parameter_tensor(
    name: str, label: str, value: Tensor, scores: Tensor, dim: int
) -> Tensor:
    """Check a parameter with one value per row; it comes back in the rank of ``scores``."""
    if not value.is_floating_point():
        raise FenchelError(
            f"{name}: expected `{label}` of a floating dtype, but got {value.dtype}."
        )
    if value.device != scores.device and (value.dim() > 0 or value.is_meta):
        raise FenchelError(
            f"{name}: expected `{label}` on the device of `scores` ({scores.device}), but it is "
            f"on {value.device}."
        )
    rows = list(scores.shape)
    rows[dim : dim + 1] = [1] if rows else []
    if not _broadcasts_to(value.shape, rows):
        raise FenchelError(
            f"{name}: expected `{label}` broadcastable to {tuple(rows)} (one value per row: the "
            f"shape of `scores` with size 1 along dim {dim}), but got {tuple(value.shape)}."
        )
    if value.dim() < scores.dim():
        value = value.reshape((1,) * (scores.dim() - value.dim()) + tuple(value.shape))
    return value


def _broadcasts_to(shape: Any, target: Any) -> bool:
    if len(shape) > len(target):
        return False
    aligned = zip(reversed(tuple(shape)), reversed(tuple(target)), strict=False)
    return all(size in (1, wanted) for size, wanted in aligned)
