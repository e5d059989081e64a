"""``checkpoints.json``: which checkpoint of a run is the latest, which the best, which are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel._short import bare, short
from fenchel.training._reading import Unreadable, read_json

FORMAT = 1
POINTER = "checkpoints.json"
# A name with a slash or dots would lead out of the run.
_NAME = re.compile(r"step-[0-9]{8,20}(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Pointer:
    """Names of directories in ``checkpoints/``."""

    latest: str | None = None
    best: str | None = None
    kept: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"format": FORMAT, **asdict(self)}


def read_pointer(run_dir: Path) -> Pointer:
    """The pointer of a run; of a run that has no checkpoint yet, one that names none."""
    path = run_dir / POINTER
    if not path.is_symlink() and not path.exists():
        return Pointer()
    try:
        values = read_json(path)
    except Unreadable as error:
        raise FenchelError(
            f"{path}: expected the names of checkpoints, but the file is damaged ({error}); start "
            f"a new run in another directory."
        ) from error
    check_format(path, values)
    if not {"latest", "best", "kept"} <= values.keys():
        raise FenchelError(
            f"{path}: expected the keys latest, best and kept, but got "
            f"{bare(', '.join(values))}; the file is damaged."
        )
    kept = values["kept"]
    if not isinstance(kept, list):
        raise FenchelError(f"{path}: expected `kept` to be a list, but got {short(kept)}.")
    for name in (values["latest"], values["best"], *kept):
        good = isinstance(name, str) and _NAME.fullmatch(name)
        if not good and (name is not None or name in kept):
            raise FenchelError(
                f"{path}: expected names of checkpoints, for example step-00000100, but got "
                f"{short(name)}; the file is damaged."
            )
    return Pointer(values["latest"], values["best"], tuple(kept))


def check_format(path: Path, value: Mapping[str, Any]) -> None:
    """Refuse what another version wrote."""
    if value.get("format") != FORMAT or value["format"] is True:
        raise FenchelError(
            f"{path}: expected checkpoint format {FORMAT}, but got {short(value.get('format'))}; "
            f"use the version of fenchel that wrote it, or start a new run in another directory."
        )
