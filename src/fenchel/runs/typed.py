"""Settings as fields of dataclasses: their help, and plain values and text as what they say."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from fenchel._checks import FenchelError
from fenchel._short import bare, short

LARGEST = 2**63 - 1  # of an int: what torch and files can hold
MANY = 2**53  # of anything that is counted: as far as floats do


def setting(default: Any, text: str, *, frozen: bool = True) -> Any:
    """A field of a config, with the comment that ``config.yaml`` shows above it.

    ``frozen`` is False where a resumed run may change it.
    """
    return dataclasses.field(default=default, metadata={"help": text, "frozen": frozen})


def check_whole(
    name: str, label: str, value: Any, low: int, high: int = MANY, none: str = ""
) -> None:
    """Check that a field is an int from ``low`` to ``high``; ``none`` is what else may be said."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at least {low}{none}, but got "
            f"{short(value)}."
        )
    if value > high:
        raise FenchelError(
            f"{name}: expected `{label}` to be an int of at most {high}{none}, but got "
            f"{short(value)}."
        )


def build(cls: Any, values: Any, where: str) -> Any:
    """A dataclass from a mapping, as YAML or JSON has it.

    ``where`` starts each message: the file, then the key. An int may stand for a float, and so
    may text such as ``1e-3``, which YAML does not take for a number; nothing else is converted.
    """
    if not isinstance(values, Mapping):
        raise FenchelError(f"{where}: expected keys and values, but got {_got(values)}.")
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    for key in values:
        if not isinstance(key, str) or key not in names:
            raise FenchelError(f"{where}: {_unknown(key, names)}")
    arguments = {
        key: _convert(hints[key], value, f"{where}: {key}") for key, value in values.items()
    }
    try:
        return cls(**arguments)
    except FenchelError as error:
        raise FenchelError(f"{where}: {error}") from None
    except TypeError as error:
        missing = [
            field.name
            for field in dataclasses.fields(cls)
            if field.init
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
            and field.name not in values
        ]
        if not missing:
            raise
        raise FenchelError(f"{where}: expected a value for {', '.join(missing)}.") from error


def resolve(config: Any, path: Sequence[str]) -> Any:
    """The type of the field that a dotted key names, starting from a dataclass."""
    for depth, name in enumerate(path):
        at = ".".join(path[:depth]) or type(config).__name__
        if not dataclasses.is_dataclass(config):
            raise FenchelError(f"override: {at} is a value and has no field {short(name)}.")
        names = [field.name for field in dataclasses.fields(config)]
        if name not in names:
            raise FenchelError(f"override: {at}: {_unknown(name, names)}")
        hint = typing.get_type_hints(type(config))[name]
        config = getattr(config, name)
    if dataclasses.is_dataclass(config):
        key = ".".join(path)
        raise FenchelError(f"override: {key} has fields of its own; set one of them, {key}.….")
    return hint


def parse(hint: Any, text: str, where: str) -> Any:
    """Read text as a type; ``where`` starts the message if it is not."""
    for candidate in _members(hint):
        try:
            return _parse_one(candidate, text)
        except ValueError:
            continue
    if int in _members(hint) and text.lstrip("+-").isdecimal():
        raise FenchelError(
            f"{where}: expected an int between {-LARGEST} and {LARGEST}, but got {short(text)}."
        )
    raise FenchelError(f"{where}: expected {_describe(hint)}, but got {short(text)}.")


def _parse_one(hint: Any, text: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return _only(text.lower() in ("null", "none", "~"), None)
    if hint is bool:
        return _only(text.lower() in ("true", "false"), text.lower() == "true")
    if hint is int:
        number = int(text)
        return _only(abs(number) <= LARGEST, number)
    if hint is float:
        return float(text)
    if origin is Literal:
        matches = [value for value in arguments if str(value) == text]
        return _only(bool(matches), matches[0] if matches else None)
    if origin in (tuple, list):
        parts = [part.strip() for part in text.strip("[]()").split(",") if part.strip()]
        items = [_parse_any(kind, part) for kind, part in _pairs(origin, arguments, parts)]
        return origin(items)
    if hint is str or hint is Any:
        return text
    raise ValueError


def _parse_any(hint: Any, text: str) -> Any:
    for candidate in _members(hint):
        try:
            return _parse_one(candidate, text)
        except ValueError:
            continue
    raise ValueError


def _only(good: bool, value: Any) -> Any:
    if not good:
        raise ValueError
    return value


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Check a plain value against a type, and build dataclasses and tuples from it."""
    members = _members(hint)
    kinds = [member for member in members if dataclasses.is_dataclass(member)]
    if kinds and isinstance(value, Mapping):
        return build(_choose(kinds, value, where), value, where)
    for member in members:
        try:
            return _convert_one(member, value, where)
        except ValueError as error:
            if isinstance(error, FenchelError):
                raise
    raise FenchelError(f"{where}: expected {_describe(hint)}, but got {_got(value)}.")


def _convert_one(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if hint is type(None):
        return _only(value is None, None)
    if hint is float:
        number = isinstance(value, int | float | str) and not isinstance(value, bool)
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError
        return float(_only(number, value))
    if hint is int:
        return _only(type(value) is int and abs(value) <= LARGEST, value)
    if hint in (bool, str):
        return _only(type(value) is hint, value)
    if origin is Literal:
        return _only(type(value) in map(type, arguments) and value in arguments, value)
    if origin in (tuple, list):
        items = _only(isinstance(value, list | tuple), value)
        return origin(
            _convert(kind, item, where) for kind, item in _pairs(origin, arguments, items)
        )
    if origin is dict or origin is Mapping:
        items = _only(isinstance(value, Mapping) and all(type(k) is str for k in value), value)
        return {
            key: _convert(arguments[1], item, f"{where}.{bare(key)}") for key, item in items.items()
        }
    raise ValueError


def _choose(kinds: list[Any], value: Mapping[str, Any], where: str) -> Any:
    """Which of several dataclasses a mapping is for: its ``kind`` says so."""
    if len(kinds) == 1:
        return kinds[0]
    by_kind = {getattr(kind, "kind", kind.__name__): kind for kind in kinds}
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in by_kind:
        raise FenchelError(
            f"{where}: expected kind to be one of {', '.join(by_kind)}, but got {short(kind)}."
        )
    return by_kind[kind]


def _pairs(origin: Any, arguments: tuple[Any, ...], items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each item of a tuple or list with its type."""
    if origin is list or arguments[-1] is Ellipsis:
        return [(arguments[0], item) for item in items]
    if len(arguments) != len(items):
        raise ValueError
    return list(zip(arguments, items, strict=True))


def _members(hint: Any) -> list[Any]:
    """The types of a union, text last: everything is text."""
    union = typing.get_origin(hint) in (Union, types.UnionType)
    members = list(typing.get_args(hint)) if union else [hint]
    return sorted(members, key=lambda member: member is str)


def _describe(hint: Any) -> str:
    names = {
        type(None): "null",
        bool: "true or false",
        int: "an int",
        float: "a number",
        str: "text",
    }
    members = _members(hint)
    if len(members) > 1:
        return " or ".join(_describe(m) for m in sorted(members, key=lambda m: m is type(None)))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"{len(arguments)} values, each {_describe(arguments[0])}"
    if origin in (tuple, list):
        return f"a list of values, each {_describe(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "keys and values"
    return names.get(hint, str(hint))


def _got(value: Any) -> str:
    """A value for messages, with its type: 1 and "1" look alike."""
    names: dict[type, str] = {str: "text"}
    kind = names.get(type(value), type(value).__name__)
    return "null" if value is None else f"the {kind} {short(value)}"


def _unknown(key: Any, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, names, n=1) if _is_short(key) else []
    hint = f"did you mean {close[0]!r}" if close else f"the keys are {', '.join(names)}"
    return f"unknown key {short(key)}; {hint}{'?' if close else '.'}"


def _is_short(key: Any) -> bool:
    return isinstance(key, str) and len(key) < 100  # comparing takes the product of lengths
