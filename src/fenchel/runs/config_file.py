"""Dataclasses to and from YAML with a comment for each field, and overrides from text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel._short import short
from fenchel.runs.files import read_plain, replace_file
from fenchel.runs.typed import build, parse, resolve

Config = TypeVar("Config")
DEEPEST = 20  # levels of a YAML file


def dump_config(config: Any) -> str:
    """A dataclass as YAML, with the ``metadata["help"]`` of each field on the line above it.

    Example:
        >>> from fenchel.runs.train_config import TrainConfig
        >>> print(dump_config(TrainConfig(batch_size=32))[:114])
        # What batch_size counts: sentences, or tokens with padding.
        batch_unit: sentences
        # Size of a batch, in units ...
    """
    return "\n".join(_lines(config, "")) + "\n"


def save_config(config: Any, path: str | Path) -> None:
    """Write settings to a file, each with its meaning as a comment; it is replaced as a whole."""
    replace_file(Path(path), dump_config(config).encode())


def load_config(cls: type[Config], path: str | Path) -> Config:
    """Read a dataclass from YAML; what the file leaves out has its default.

    Args:
        cls: the dataclass; its fields may be dataclasses again.
        path: of the file. Unknown keys and wrong types are refused, with the key's name, and so is
            a file that is long, nests deep, or repeats a part by an alias: it may be a stranger's.
    """
    values = _load(Path(path))
    return build(cls, {} if values is None else values, str(path))


def override(config: Config, settings: Sequence[str]) -> Config:
    """A copy of a config with some fields set from text, ``"train.learning_rate=1e-3"``.

    Args:
        config: a dataclass.
        settings: each a dotted key, ``=`` and a value that is read as the field's type: ``null``
            for None, ``true`` or ``false``, numbers, text, and ``0.9,0.98`` for several.

    Example:
        >>> from fenchel.runs.train_config import TrainConfig
        >>> override(TrainConfig(), ["learning_rate=1e-2", "betas=0.9,0.98"]).betas
        (0.9, 0.98)
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise FenchelError(
                f"override: expected key=value, for example train.learning_rate=0.01, but got "
                f"{short(setting)}."
            )
        path = key.strip().split(".")
        level = changes
        for name in path[:-1]:
            level = level.setdefault(name, {})
        level[path[-1]] = parse(resolve(config, path), text.strip(), f"override: {key.strip()}")
    # All at once: two settings may be right together and wrong one by one.
    return _replace(config, changes)


def _load(path: Path) -> Any:
    loader = _loader()
    try:
        return loader(read_plain(path).decode("utf-8")).get_single_data()
    except FenchelError:
        raise
    except Exception as error:
        # Each kind of scalar has its own way to fail in this library (KeyError, OverflowError, …).
        reason = " ".join(str(error).split())[:200]
        raise FenchelError(
            f"{path}: expected a YAML file, but it cannot be read ({reason})."
        ) from error


def _loader() -> Any:
    """The safe loader, for what :func:`dump_config` writes and people add to it by hand."""
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[name-defined]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it repeats a part by an alias; write it out")
            if self.depth == DEEPEST:
                raise yaml.YAMLError(f"it nests more than {DEEPEST} levels deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return Loader


def _replace(config: Any, changes: Mapping[str, Any]) -> Any:
    values = {
        name: _replace(getattr(config, name), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **values)


def _lines(config: Any, indent: str) -> list[str]:
    lines = []
    for field in dataclasses.fields(config):
        text = field.metadata.get("help")
        if text:
            lines.append(f"{indent}# {' '.join(text.split())}")
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            inner = _lines(value, indent + "  ")
            lines += (
                [f"{indent}{field.name}:", *inner] if inner else [f"{indent}{field.name}: {{}}"]
            )
        else:
            lines.append(f"{indent}{field.name}: {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    # The library quotes what YAML would misread: "yes", "1e3", "a: b".
    text: str = _yaml().safe_dump(
        plain, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _yaml() -> Any:
    return require("yaml", extra="train", purpose="a config file", package="PyYAML")
