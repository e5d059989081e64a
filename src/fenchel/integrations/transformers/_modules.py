"""Which modules of a model take their attention function from the registry."""

from __future__ import annotations

import inspect
from typing import Any

from torch.nn import Module

from fenchel._checks import FenchelError

NAME = "entmax"  # the implementation whose alpha can be set
_REGISTRY = "ALL_ATTENTION_FUNCTIONS"


def attention_modules(model: Module) -> dict[str, Module]:
    """The modules under ``model``, itself included, that look up the registry, by name."""
    return {name: m for name, m in model.named_modules() if _looks_up(type(m))}


def entmax_modules(name: str, model: Any) -> dict[str, Module]:
    """Those of them whose implementation is ``"entmax"``: at least one, or an error."""
    if not isinstance(model, Module):
        raise FenchelError(
            f"{name}: expected `model` to be a torch.nn.Module, but got {type(model).__name__}."
        )
    everything = attention_modules(model)
    if not everything:
        raise FenchelError(
            f"{name}: expected a model whose attention looks up the registry of transformers, but "
            f"no module of {type(model).__name__} does."
        )
    found = {path: m for path, m in everything.items() if implementation(m) == NAME}
    if not found:
        got = ", ".join(sorted({repr(implementation(m)) for m in everything.values()}))
        raise FenchelError(
            f'{name}: expected a model with attn_implementation="{NAME}", the one whose alpha can '
            f"be set, but got {got}; use `use_entmax_attention(model)`."
        )
    return found


def implementation(module: Module) -> Any:
    """The name under which a module looks up its attention function."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None)


def _looks_up(kind: type[Module]) -> bool:
    if kind not in _known:
        _known[kind] = _names_registry(kind)
    return _known[kind]


_known: dict[type[Module], bool] = {}


def _names_registry(kind: type[Module]) -> bool:
    if hasattr(kind, "set_attn_implementation"):  # a whole model, which checks names there
        return False
    for ancestor in kind.__mro__:
        if ancestor is Module:
            return False
        for member in vars(ancestor).values():
            if inspect.isfunction(member):
                code = getattr(inspect.unwrap(member), "__code__", None)
                if code is not None and _REGISTRY in code.co_names:
                    return True
    return False
