"""ctypes binding of the C++ core: raw pointers, sizes and one parameter a row.

The core has a plain C ABI and links the OpenMP runtime that torch has already loaded, so
``torch.set_num_threads`` governs it too. ``FENCHEL_NATIVE=0`` in the environment turns it off;
``FENCHEL_LIBRARY`` names another build of it (the sanitizer's, say);
``FENCHEL_INSTRUCTION_SET`` asks for less than the machine has (``baseline``, ``avx2``).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Parameter = float | Tensor

ABI_VERSION = 2
_HERE = Path(__file__).parent
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_OPS = ("entmax", "normmax", "budget", "sq_pnorm_max", "renyimax")

_FORWARD = [c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64]
_BACKWARD = [c_void_p] * 4 + [c_int64] * 3 + [c_void_p, c_int64]


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The core and "", or None and the sentence that says why there is none."""
    if os.environ.get("FENCHEL_NATIVE", "1") == "0":
        return None, "the native core is disabled by FENCHEL_NATIVE=0."
    wanted = os.environ.get("FENCHEL_INSTRUCTION_SET", "baseline")
    if wanted not in ("baseline", "avx2", "avx512"):
        return None, (
            "FENCHEL_INSTRUCTION_SET must be baseline, avx2 or avx512, but it is "
            + repr(wanted)
            + "."
        )
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    path = Path(os.environ.get("FENCHEL_LIBRARY", _HERE / f"libfenchel_core{suffix}"))
    if not path.exists():
        return None, _why_not_built(path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the native core could not be loaded ({error})."
    library.fenchel_abi_version.restype = c_int
    version = library.fenchel_abi_version()
    if version != ABI_VERSION:
        return None, (
            f"the native core has ABI version {version}, but this fenchel needs {ABI_VERSION}; "
            "reinstall fenchel."
        )
    return library, ""


def _why_not_built(path: Path) -> str:
    info = _HERE / "_build_info.json"
    if info.exists():
        built = json.loads(info.read_text())
        if not built["native"]:
            return f"the native core was not built: {built['reason']}."
    return f"the native core was not found (no {path.name} beside fenchel's kernels)."


LIBRARY, REASON = _load()
_forward = {}
_backward = {}
if LIBRARY is not None:
    LIBRARY.fenchel_instruction_set.restype = c_char_p
    for _dtype, _name in SUFFIX.items():
        for _op in _OPS:
            _forward[_op, _dtype] = getattr(LIBRARY, f"fenchel_{_op}_forward_{_name}")
            _forward[_op, _dtype].argtypes = _FORWARD
            _backward[_op, _dtype] = getattr(LIBRARY, f"fenchel_{_op}_backward_{_name}")
            _backward[_op, _dtype].argtypes = _BACKWARD


def instruction_set() -> str | None:
    """What the core runs on (``"avx512"``, ``"avx2"``, ``"baseline"``), or None without it."""
    return None if LIBRARY is None else LIBRARY.fenchel_instruction_set().decode()


def entmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``entmax``."""
    return _run_forward("entmax", x, alpha, dim)


def normmax(x: Tensor, alpha: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``normmax``."""
    return _run_forward("normmax", x, alpha, dim)


def budget(x: Tensor, k: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``budget``."""
    return _run_forward("budget", x, k, dim)


def sq_pnorm_max(x: Tensor, q: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``sq_pnorm_max``."""
    return _run_forward("sq_pnorm_max", x, q, dim)


def renyimax(x: Tensor, beta: Parameter, dim: int) -> Tensor:
    """Native twin of the reference's ``renyimax``."""
    return _run_forward("renyimax", x, beta, dim)


def backward(
    op: str, p: Tensor, grad: Tensor, parameter: Parameter, dim: int, with_parameter: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of ``op`` in the scores and, if asked, in its parameter (one value a row)."""
    p, grad = readable(p), readable(grad)
    grad_x = torch.empty_like(p)
    at = layout(p, dim)
    values, stride = parameter_pointer(parameter, p, dim)
    rows = list(p.shape)
    rows[dim] = 1
    grad_rows = torch.empty(rows, dtype=torch.float64) if with_parameter else None
    check_status(
        _backward[op, p.dtype](
            p.data_ptr(),
            grad.data_ptr(),
            grad_x.data_ptr(),
            None if grad_rows is None else grad_rows.data_ptr(),
            *at,
            values if stride == 0 else values.data_ptr(),
            stride,
        )
    )
    return grad_x, grad_rows


def _run_forward(op: str, x: Tensor, parameter: Parameter, dim: int) -> Tensor:
    x = readable(x)
    p = torch.empty_like(x)
    outer, n, inner = layout(x, dim)
    values, stride = parameter_pointer(parameter, x, dim)
    check_status(
        _forward[op, x.dtype](
            x.data_ptr(),
            p.data_ptr(),
            outer,
            n,
            inner,
            values if stride == 0 else values.data_ptr(),
            stride,
        )
    )
    return p


def readable(x: Tensor) -> Tensor:
    """x with its entries in memory as they are: contiguous, not lazily negated, not lazily zero."""
    if x._is_zerotensor():
        return torch.zeros(x.shape, dtype=x.dtype)
    return x.resolve_neg().contiguous()


def layout(x: Tensor, dim: int) -> tuple[int, int, int]:
    """A contiguous tensor as (outer, n, inner), n being the size along ``dim``."""
    shape = x.shape
    n = shape[dim]
    if dim == len(shape) - 1:
        return x.numel() // n, n, 1
    inner = math.prod(shape[dim + 1 :])
    return math.prod(shape[:dim]), n, inner


def parameter_pointer(value: Parameter, x: Tensor, dim: int) -> tuple[Any, int]:
    """The parameter as (pointer to one double, 0) or (tensor of one double a row, 1)."""
    if not isinstance(value, Tensor):
        return byref(c_double(value)), 0
    rows = list(x.shape)
    rows[dim] = 1
    return value.detach().expand(rows).to("cpu", torch.float64).contiguous(), 1


def check_status(status: int) -> None:
    if status != 0:
        raise MemoryError("fenchel: the native core ran out of memory for its scratch rows.")
