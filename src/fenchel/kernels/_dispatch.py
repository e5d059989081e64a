"""Which kernel runs: a table op x backend, and the switch :func:`use_backend`.

``"native"`` is the C++ core (CPU, float32 and float64); ``"reference"`` is plain torch (any
device). Left alone, a CPU tensor goes to the native core where that is available and anything
else to the reference, with the same results. Without the core the first CPU call warns, unless
``FENCHEL_NATIVE=0`` asked for that. A backend asked for by name never falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.kernels import _library, _native, _native_groups, _native_nonzeros, reference

_BACKENDS = ("native", "reference")
_TOO_LONG = 2**31  # for the native core: positions in a row are 32-bit numbers there
_NATIVE_DTYPES = (torch.float32, torch.float64)
_TABLE: dict[str, dict[str, Callable[[Tensor, float | Tensor, int], Tensor]]] = {
    "entmax": {"reference": reference.entmax, "native": _native.entmax},
    "normmax": {"reference": reference.normmax, "native": _native.normmax},
    "budget": {"reference": reference.budget, "native": _native.budget},
    "sq_pnorm_max": {"reference": reference.sq_pnorm_max, "native": _native.sq_pnorm_max},
    "renyimax": {"reference": reference.renyimax, "native": _native.renyimax},
}
_SPARSE_TABLE = {
    "entmax": {"reference": reference.sparse_entmax, "native": _native_nonzeros.sparse_entmax},
}

_requested: str | None = None  # what use_backend asked for; None = choose by tensor


def choose_backend(x: Tensor) -> str:
    """The backend that serves ``x`` (float32 or float64)."""
    if _requested == "reference":
        return "reference"
    if x.numel() >= _TOO_LONG and max(x.shape) >= _TOO_LONG:
        if _requested == "native":
            raise FenchelError(
                "use_backend('native'): expected fewer than 2**31 entries along every dimension, "
                f"but got shape {tuple(x.shape)}; leave the `with` block."
            )
    elif x.is_cpu and x.dtype in _NATIVE_DTYPES:
        if _native.LIBRARY is not None:
            return "native"
        _library.warn_of_fallback()
    elif _requested == "native":
        raise FenchelError(
            f"use_backend('native'): expected a CPU tensor of dtype float32 or float64, but got "
            f"{x.dtype} on {x.device}; leave the `with` block or move the tensor."
        )
    return "reference"


def run(op: str, x: Tensor, parameter: float | Tensor, dim: int) -> Tensor:
    """Run the forward kernel ``op`` on ``x`` along ``dim``; the result is contiguous."""
    if torch.compiler.is_compiling():  # being traced: torch ops are what a graph can hold
        return _TABLE[op]["reference"](x, parameter, dim)
    backend = choose_backend(x)
    kernel = _TABLE[op][backend]
    if backend == "native":
        return kernel(x, parameter, dim)
    # On contiguous rows torch adds up a row in the same order whatever the layout was.
    rows = x.movedim(dim, -1).contiguous()
    if isinstance(parameter, Tensor) and parameter.dim() == x.dim():
        parameter = parameter.movedim(dim, -1)
    return kernel(rows, parameter, x.dim() - 1).movedim(-1, dim).contiguous()


def run_sparse(
    op: str, x: Tensor, parameter: float | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The nonzeros of ``op`` along the last axis: (indices, values, sizes, threshold)."""
    return _SPARSE_TABLE[op][choose_backend(x)](x, parameter)


def run_groups(
    op: str, x: Tensor, lam: float | Tensor, with_slope: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``op`` along the last axis, the group of each entry that has mass (-1 for the others), and
    its level's slope in ``lam`` (if it is not wanted, maybe None)."""
    if choose_backend(x) == "native":
        return _native_groups.forward(op, x, lam, with_slope)
    return {"fusedmax": reference.fusedmax, "oscarmax": reference.oscarmax}[op](x, lam)


class use_backend:
    """Choose the kernels for all following calls, or for the body of a ``with`` block.

    Args:
        name: ``"native"`` (C++ core, CPU tensors only) or ``"reference"`` (plain torch).

    A backend asked for by name never falls back: ``"native"`` raises :class:`FenchelError` if the
    core is not there, and then for every tensor it cannot serve. The choice holds for the whole
    process.

    Example:
        >>> with use_backend("reference"):
        ...     p = fy.sparsemax(torch.tensor([-2.0, 0.0, 0.5]))
        >>> p
        tensor([0.0000, 0.2500, 0.7500])
    """

    def __init__(self, name: str) -> None:
        global _requested
        if name not in _BACKENDS:
            raise FenchelError(f"use_backend: expected 'native' or 'reference', but got {name!r}.")
        if name == "native" and _native.LIBRARY is None:
            raise FenchelError(f"use_backend('native'): {_native.REASON}")
        self.name = name
        self._previous = _requested
        _requested = name

    def __enter__(self) -> use_backend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _requested
        _requested = self._previous

    def __repr__(self) -> str:
        return f"use_backend({self.name!r})"


@dataclass(frozen=True)
class Backends:
    """What :func:`backends` reports.

    Attributes:
        active: the backend that a CPU tensor of dtype float32 gets now.
        reason: one sentence on why it is that one.
        instruction_set: what the native core runs on (``"avx512"``, ``"avx2"``, ``"baseline"``),
            or None without it.
    """

    active: str
    reason: str
    instruction_set: str | None


def backends() -> Backends:
    """Tell which backend serves CPU tensors, and why.

    Example:
        >>> backends().active in ("native", "reference")
        True
    """
    instruction_set = _native.instruction_set()
    if _native.LIBRARY is None:
        return Backends("reference", f"{_native.REASON} {_library.CONSEQUENCE}".strip(), None)
    if _requested == "reference":
        return Backends("reference", "asked for with use_backend('reference').", instruction_set)
    return Backends("native", f"the native core runs on {instruction_set}.", instruction_set)
