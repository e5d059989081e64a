"""What the words of a command line may be: types of options, names, devices, a lone ``-``."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import torch
from cyclopts import Parameter

from fenchel._checks import FenchelError
from fenchel.cli._shown import cut
from fenchel.runs.files import is_text
from fenchel.tasks import SearchOptions

# No word of a real command line has a zero byte, so that nothing else can be taken for it.
_DASH = "\0-"


class WrongOption(Exception):
    """A value that an option cannot have. No ValueError: the parser would word those anew."""


def _whole(low: int, high: int) -> Callable[[Any, Sequence[Any]], int]:
    def convert(_: Any, tokens: Sequence[Any]) -> int:
        token = tokens[0]
        text = token.value.strip()
        if re.fullmatch(r"[+-]?[0-9]{1,30}", text) and low <= int(text) <= high:
            return int(text)
        raise WrongOption(
            f"{token.keyword}: expected a whole number from {low} to {high:,}, but got "
            f"{cut(token.value, 40)!r}; the nearest is {_nearest(text, low, high)}."
        )

    return convert


def _nearest(text: str, low: int, high: int) -> int:
    """The allowed whole number that is nearest to a text; the lowest if that is no number."""
    try:
        value = float(text)
    except ValueError:
        return low
    return low if math.isnan(value) else round(min(max(value, low), high))


def _positive(_: Any, tokens: Sequence[Any]) -> float:
    token = tokens[0]
    try:
        value = float(token.value)
    except ValueError:
        value = math.nan
    if 0 < value <= _LONGEST:
        return value
    nearest = f"{_LONGEST:g}" if value > _LONGEST else "0.01"
    raise WrongOption(
        f"{token.keyword}: expected a number above 0 and up to {_LONGEST:g}, but got "
        f"{cut(token.value, 40)!r}; try {nearest}."
    )


def _name(_: Any, tokens: Sequence[Any]) -> str:
    token = tokens[0]
    if not token.value.strip():
        raise WrongOption(f"{token.keyword}: expected a name, but got {token.value!r}.")
    return str(token.value)


def check_run_name(flag: str, path: Path) -> None:
    """Refuse the name of a run that is not UTF-8, which the library of its weights cannot open."""
    if not is_text(str(path)):
        raise FenchelError(
            f"{flag}: expected a directory whose name is UTF-8, but got {path}; rename it, or "
            "choose another."
        )


def check_device(name: str) -> str:
    """Refuse, before a model is read, a device on which this torch cannot compute a number."""
    with warnings.catch_warnings(), suppress(Exception):  # torch raises what it likes
        warnings.simplefilter("ignore")
        if float(torch.ones(1, device=name)) == 1:
            return name
    known = ["cpu"]
    known += ["cuda"] if torch.cuda.is_available() else []
    known += ["mps"] if torch.backends.mps.is_available() else []
    raise FenchelError(
        f"--device: expected a device that torch can compute on here ({', '.join(known)}), but got "
        f"{name!r}."
    )


def hide_dashes(tokens: list[str]) -> list[str]:
    """The words for the parser, which would take a lone ``-`` for an option without a name."""
    for token in tokens:
        if "\0" in token:
            raise FenchelError(f"{token!r}: expected a word without a zero byte.")
    return [_DASH if token == "-" else token for token in tokens]


def restore_dashes(value: Any) -> Any:
    """What the parser has made of the words, or says of them, with ``-`` again."""
    if isinstance(value, str):
        return value.replace(_DASH, "-").replace(repr(_DASH)[1:-1], "-")
    if isinstance(value, Path):
        return type(value)(str(value).replace(_DASH, "-"))
    if isinstance(value, list | tuple):
        return type(value)(restore_dashes(item) for item in value)
    if isinstance(value, dict):
        return {key: restore_dashes(item) for key, item in value.items()}
    return value


_LONGEST = 1e5  # minutes

Flag = Annotated[bool, Parameter(show_default=False)]
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True)]
Runs = list[Path]  # --run A --run B: files may follow, so that one value a flag is all
Beam = Annotated[int, Parameter(converter=_whole(1, SearchOptions.limits["beam"]))]
Nbest = Annotated[int, Parameter(converter=_whole(1, SearchOptions.limits["nbest"]))]
Budget = Annotated[int, Parameter(converter=_whole(1, SearchOptions.limits["budget"]))]
Length = Annotated[int, Parameter(converter=_whole(1, SearchOptions.limits["max_length"]))]
Lines = Annotated[int, Parameter(converter=_whole(1, SearchOptions.limits["batch"]))]
Count = Annotated[int, Parameter(converter=_whole(1, 1_000_000))]
Language = Annotated[str, Parameter(converter=_name)]
Minutes = Annotated[float, Parameter(converter=_positive)]
