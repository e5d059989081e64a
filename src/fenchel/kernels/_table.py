"""One table: which backend serves which op, for which tensors.

A backend is a folder beside this file. Its files register what they implement under the name of an
op (``"entmax"``, ``"entmax.backward"``, ``"oracle.tree"``), and nothing above ``kernels`` knows
them: :func:`find` gives the function that runs on tensors like the one it is shown. The reference
is the definition of an op in torch ops and serves any tensor; the other backends are asked before
it, those of the lowest rank first. Some ops are for them alone: see :func:`kernel_for`.

A backend asked for by name, with :class:`use_backend`, never falls back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from fenchel._checks import FenchelError

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Backend:
    """Who implements ops, and for which tensors.

    Args:
        name: that of its folder.
        rank: the lower, the earlier it is asked.
        devices: the types of devices whose tensors it takes.
        serves: whether it takes a tensor; asked for every call, so it must be fast.
        refusal: why it does not take a tensor: the rest of a sentence.
        missing: why it cannot run here: a sentence, or "" if it can.
        consequence: what follows if it is missing, a sentence, unless someone asked for that.
        about: what it runs on, a sentence.
        detail: a word on what it runs on (the instruction set, the device), or None.
    """

    name: str
    rank: int
    devices: tuple[str, ...]
    serves: Callable[[Tensor], bool]
    refusal: Callable[[Tensor], str]
    missing: str = ""
    consequence: str = ""
    about: str = ""
    detail: str | None = None


#: In torch ops: any device, any layout. It is never asked, it is what is left.
REFERENCE = Backend(
    "reference",
    1000,
    ("cpu", "cuda"),
    lambda x: True,
    lambda x: "",
    about="it is plain torch.",
)

_backends: dict[str, Backend] = {REFERENCE.name: REFERENCE}
_kernels: dict[str, list[tuple[Backend, Callable[..., Any]]]] = {}  # by op, the lowest rank first
_definitions: dict[str, Callable[..., Any]] = {}  # by op, the reference
_row_maps: list[str] = []  # ops (x, parameter, dim) that map rows to rows
_torch_alone: set[str] = set()  # ops that are torch ops by design, whatever backend is asked for
_requested: Backend | None = None  # what use_backend asked for; None = choose by tensor


def implements(op: str, backend: Backend, *, alone: bool = False) -> Callable[[_F], _F]:
    """Enter the decorated function into the table.

    Args:
        op: the name of the op.
        backend: whose it is.
        alone: for the reference: no backend is to have this op, so this is not a fallback.
    """

    def enter(function: _F) -> _F:
        _backends.setdefault(backend.name, backend)
        if alone:
            _torch_alone.add(op)
        if backend is REFERENCE:
            _definitions[op] = function
        else:
            rows = _kernels.setdefault(op, [])
            rows.append((backend, function))
            rows.sort(key=lambda row: row[0].rank)
        return function

    return enter


def load_backend(package: str, path: list[str]) -> None:
    """Import the files of a backend, which register themselves."""
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")


def find(op: str, x: Tensor) -> Callable[..., Any]:
    """What runs ``op`` on tensors like ``x``."""
    function = kernel_for(op, x)
    return _definitions[op] if function is None else function


def kernel_for(op: str, x: Tensor) -> Callable[..., Any] | None:
    """The kernel that a backend has for ``op`` on tensors like ``x``, or None.

    None means that torch ops serve: the reference's, or for some ops those of the caller.
    """
    if _requested is None:
        for backend, function in _kernels.get(op, ()):
            if backend.serves(x):
                return function
        return None
    if _requested is REFERENCE or op in _torch_alone:
        return None
    for backend, function in _kernels.get(op, ()):
        if backend is _requested:
            if backend.serves(x):
                return function
            raise FenchelError(f"use_backend({backend.name!r}): {backend.refusal(x)}")
    raise FenchelError(f"use_backend({_requested.name!r}): it has no {op}; leave the `with` block.")


def any_kernel(op: str, x: Tensor) -> Callable[..., Any]:
    """For a registered op that only kernels have: any that serves, whatever was asked for.

    A graph that one backend began may end after another was chosen.
    """
    for backend, function in _kernels.get(op, ()):
        if backend.serves(x):
            return function
    raise FenchelError(
        f"{op}: expected tensors that a backend with a kernel for it serves, but got {x.dtype} on "
        f"{x.device}."
    )


def is_known(op: str) -> bool:
    """Whether some backend has ``op``, the reference included."""
    return op in _definitions or bool(_kernels.get(op))


def row_maps() -> list[str]:
    """The maps of the reference."""
    return _row_maps


def known(prefix: str) -> list[str]:
    """The ops of the reference with a prefix, without it."""
    return [op.removeprefix(prefix) for op in _definitions if op.startswith(prefix)]


def definition(op: str) -> Callable[..., Any]:
    """The reference's ``op``: torch ops, which carry a graph."""
    return _definitions[op]


class use_backend:
    """Choose the kernels for all following calls, or for the body of a ``with`` block.

    Args:
        name: ``"native"`` (C++ core, CPU tensors only) or ``"reference"`` (plain torch).

    A backend asked for by name never falls back: ``"native"`` raises :class:`FenchelError` if the
    core is not there, and then for every tensor it cannot serve. A few ops (:func:`backends` lists
    them) are plain torch by design and stay so. The choice holds for the whole process.

    Example:
        >>> with use_backend("reference"):
        ...     p = fy.sparsemax(torch.tensor([-2.0, 0.0, 0.5]))
        >>> p
        tensor([0.0000, 0.2500, 0.7500])
    """

    def __init__(self, name: str) -> None:
        global _requested
        if name not in _backends:
            *first, last = (repr(backend.name) for backend in _in_order())
            raise FenchelError(
                f"use_backend: expected {', '.join(first)} or {last}, but got {name!r}."
            )
        if _backends[name].missing:
            raise FenchelError(f"use_backend({name!r}): {_backends[name].missing}")
        self.name = name
        self._previous = _requested
        _requested = _backends[name]

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
    """What :func:`backends` reports; printed, it is a table.

    Attributes:
        active: the backend that a CPU tensor of dtype float32 gets now.
        reason: one sentence on why it is that one.
        instruction_set: what the native core runs on (``"avx512"``, ``"avx2"``, ``"baseline"``),
            or None without it.
        ops: for each op the names of the backends that would serve a CPU and a CUDA tensor now;
            None where no backend has it, and the torch ops of its caller run.
        reasons: for each backend one sentence on whether it is there.
    """

    active: str
    reason: str
    instruction_set: str | None
    ops: dict[str, tuple[str | None, str | None]] = field(repr=False)
    reasons: dict[str, str] = field(repr=False)

    def __str__(self) -> str:
        width = max(len(op) for op in self.ops)
        lines = [f"{name}: {reason}" for name, reason in self.reasons.items()]
        lines += ["", f"{'op':{width}}  {'CPU':9}  CUDA"]
        for op, (cpu, cuda) in self.ops.items():
            lines.append(f"{op:{width}}  {cpu or 'torch':9}  {cuda or 'torch'}")
        return "\n".join(lines)


def backends() -> Backends:
    """Tell which backend serves which op, and why.

    Example:
        >>> backends().active in ("native", "reference")
        True
        >>> backends().ops["entmax"][1]  # a CUDA tensor
        'reference'
    """
    active = _server("entmax", "cpu") or REFERENCE.name
    waiting = [backend for backend in _in_order() if backend.missing and "cpu" in backend.devices]
    if active == REFERENCE.name and _requested is not REFERENCE and waiting:
        reason = f"{waiting[0].missing} {waiting[0].consequence}".strip()
    elif _requested is not None and _requested.name == active and _requested is REFERENCE:
        reason = f"asked for with use_backend({active!r})."
    else:
        reason = _backends[active].about
    native = _backends.get("native")
    return Backends(
        active,
        reason,
        None if native is None else native.detail,
        {
            op: (_server(op, "cpu"), _server(op, "cuda"))
            for op in sorted({*_kernels, *_definitions})
        },
        {backend.name: backend.missing or backend.about for backend in _in_order()},
    )


# Their tensors are moved to the CPU first, wherever the scores are.
_ON_CPU = ("active_set", "face_product", "k_best", "oracle", "product", "sample", "smoothed")


def _server(op: str, device: str) -> str | None:
    if device != "cpu" and op.split(".")[0] in _ON_CPU:
        served = _server(op, "cpu")
        return None if served is None else f"{served} (CPU)"
    for backend, _ in _kernels.get(op, ()):
        chosen = _requested is None or _requested is backend
        if chosen and device in backend.devices and not backend.missing:
            return backend.name
    return REFERENCE.name if op in _definitions else None


def _in_order() -> list[Backend]:
    return sorted(_backends.values(), key=lambda backend: backend.rank)


def row_map(op: str) -> Callable[[_F], _F]:
    """For the reference's maps: enter ``(x, parameter, dim)``, made to work on contiguous rows.

    On these torch adds up a row in the same order whatever the layout was.
    """

    def enter(function: _F) -> _F:
        @functools.wraps(function)
        def on_rows(x: Tensor, parameter: float | Tensor, dim: int) -> Tensor:
            if torch.compiler.is_compiling():  # torch ops are what a graph can hold, as they are
                traced: Tensor = function(x, parameter, dim)
                return traced
            rows = x.movedim(dim, -1).contiguous()
            if isinstance(parameter, Tensor) and parameter.dim() == x.dim():
                parameter = parameter.movedim(dim, -1)
            p: Tensor = function(rows, parameter, x.dim() - 1)
            return p.movedim(-1, dim).contiguous()

        _row_maps.append(op)
        implements(op, REFERENCE)(on_rows)
        return function

    return enter
