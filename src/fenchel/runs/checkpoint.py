"""Checkpoints: safetensors and JSON in one directory each, and one pointer to the good ones.

``run/checkpoints/step-00000120/`` holds ``model.safetensors``, ``optimizer.safetensors``,
``random.safetensors`` and ``state.json``. It is written under another name and renamed into
place; then ``run/checkpoints.json``, which names the latest and the best, is replaced. A process
killed at any moment leaves the pointer at a complete checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from fenchel._checks import FenchelError
from fenchel._short import bare, short
from fenchel.runs.digest import digested
from fenchel.runs.errors import TrainingError
from fenchel.runs.files import (
    DISK_FULL,
    LARGE,
    Unreadable,
    check_directory,
    open_plain,
    read_json,
    replace_file,
    sync_directory,
    write_file,
)
from fenchel.runs.machine import check_fits
from fenchel.runs.tensors import (
    GatheredTensors,
    Shapes,
    check_shapes,
    pack,
    read_header,
    shapes_of,
    unpack,
    unpack_each,
)

FORMAT = 1
POINTER = "checkpoints.json"
# A name with a slash or dots would lead out of the run.
_NAME = re.compile(r"step-[0-9]{8,20}(\.[0-9]{1,9})?")
Tensors = Mapping[str, Tensor] | GatheredTensors
Checks = Mapping[str, Callable[[Path, Shapes], None]]
GROUPS = ("model", "optimizer", "random")
_PARTIAL = ".partial"


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


@dataclass(frozen=True)
class Checkpoint:
    """What was read of a checkpoint: tensors by group (model, optimizer, random), JSON state."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]

    def load_weights(self, model: nn.Module) -> None:
        """Put the weights into ``model``, which must have the same names and shapes."""
        found = self.tensors["model"]
        check_shapes(self.path, shapes_of(found), shapes_of(model.state_dict()))
        model.load_state_dict(found)


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        run_dir: of the run; created when the first checkpoint is saved.
        keep: how many of the last ones to keep, beside the best.
    """

    def __init__(self, run_dir: Path, keep: int = 1) -> None:
        self.run_dir = Path(run_dir)
        self.directory = self.run_dir / "checkpoints"
        self.keep = keep

    def find(self, which: Literal["latest", "best"] = "latest") -> Path | None:
        """Where the latest or the best checkpoint is, if there is one."""
        pointer = read_pointer(self.run_dir)
        name = pointer.latest if which == "latest" else pointer.best
        return None if name is None else self.directory / name

    def save(self, tensors: Mapping[str, Tensors], state: Mapping[str, Any], *, best: bool) -> Path:
        """Write a checkpoint, point to it, then remove those that are no longer wanted."""
        check_directory(self.directory)
        pointer = read_pointer(self.run_dir)
        try:
            path = self._write(tensors, state)
            kept = (*pointer.kept, path.name)[-self.keep :]
            new = Pointer(path.name, path.name if best else pointer.best, kept)
            replace_file(self.run_dir / POINTER, _json(new.document()))
        except BaseException as error:
            self._remove_all_but(
                read_pointer(self.run_dir)
            )  # read again: the new one may be in place
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise TrainingError(
                    f"the disk of {self.run_dir} is full; free some space and resume: "
                    f"{self.describe_latest()} is kept."
                ) from error
            raise
        self._remove_all_but(new)
        return path

    def load(
        self,
        which: Literal["latest", "best"] = "latest",
        groups: Iterable[str] = GROUPS,
        later: Iterable[str] = (),
        checks: Checks | None = None,
    ) -> Checkpoint:
        """Read the latest or the best checkpoint; nothing is written, whatever is wrong with it.

        Of the groups that are to be read ``later``, one tensor at a time, the files are checked.
        ``checks`` see the names and shapes of a group before any of it is read.
        """
        path = self.find(which)
        if path is None:
            raise FenchelError(
                f"{self.run_dir}: expected a run with a {which} checkpoint, but there is none."
            )
        check_directory(self.directory)
        check_directory(path)
        state = _read_state(path / "state.json")
        files = {group: _file(path, group) for group in (*groups, *later)}
        for group, file in files.items():
            with _explained(file):
                shapes = read_header(file).shapes
                check_fits(file, file.stat().st_size)
            if checks is not None and group in checks:
                checks[group](file, shapes)
        for file in files.values():
            _check_digest(file, state)
        checkpoint = Checkpoint(path, {}, state)
        for group in groups:
            with _explained(files[group]):
                checkpoint.tensors[group] = unpack(files[group])
        return checkpoint

    def describe_latest(self) -> str:
        """The latest checkpoint in words, for messages."""
        path = self.find()
        return "no checkpoint" if path is None else f"the checkpoint {path}"

    def _write(self, tensors: Mapping[str, Tensors], state: Mapping[str, Any]) -> Path:
        final = self._free_name(int(state["step"]))
        partial = final.with_name(final.name + _PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        digests = {}
        for group, named in tensors.items():
            file, digest = _file(partial, group), hashlib.sha256()
            write_file(file, digested(pack(named), digest))
            digests[file.name] = digest.hexdigest()
        write_file(partial / "state.json", [_json({"format": FORMAT, **state, "sha256": digests})])
        sync_directory(partial)
        os.replace(partial, final)
        sync_directory(self.directory)
        return final

    def _free_name(self, step: int) -> Path:
        """A name that no checkpoint has: one at the same step may be the last good one."""
        path, number = self.directory / f"step-{step:08d}", 1
        while os.path.lexists(path):
            path, number = self.directory / f"step-{step:08d}.{number}", number + 1
        return path

    def _remove_all_but(self, pointer: Pointer) -> None:
        """Remove what the pointer does not name, also what a killed process has left behind."""
        check_directory(self.directory)
        wanted = {*pointer.kept, pointer.latest, pointer.best}
        for path in self.directory.glob("step-*"):
            if path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(
    run_dir: str | Path,
    which: Literal["latest", "best"] = "best",
    *,
    weights_only: bool = True,
    model: nn.Module | None = None,
) -> Checkpoint:
    """The best or the latest checkpoint of a run, to predict with or to look into.

    Args:
        run_dir: where the run is.
        which: ``"best"`` by the validation metric, or ``"latest"``.
        weights_only: leave out the optimizer's tensors and the states of the generators.
        model: whose weights they must be, by name and shape; it may be on the device ``meta``, and
            is not changed. Without it, the file alone says how much memory is taken.
    """
    groups = ("model",) if weights_only else GROUPS
    checks = None if model is None else {"model": same_weights(model)}
    return CheckpointStore(Path(run_dir)).load(which, groups, checks=checks)


def same_weights(model: nn.Module) -> Callable[[Path, Shapes], None]:
    """A check that a file has the weights of a model, by name and shape."""
    wanted = shapes_of(model.state_dict())
    return lambda path, shapes: check_shapes(path, shapes, wanted)


def tensors_of(checkpoint: Checkpoint, group: str) -> Iterator[tuple[str, Tensor]]:
    """The names and tensors of a group one after the other, each of tied ones once."""
    with _explained(file := _file(checkpoint.path, group)):
        yield from unpack_each(file)


def _file(directory: Path, group: str) -> Path:
    return directory / f"{group}.safetensors"


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _read_state(path: Path) -> dict[str, Any]:
    with _explained(path):
        state = read_json(path, LARGE)
    check_format(path, state)
    kinds = {"config": dict, "sha256": dict, "extra": dict, "data": str}
    for name, kind in kinds.items():
        if not isinstance(state.get(name, kind()), kind):
            raise FenchelError(
                f"{path}: expected `{name}` to be a {kind.__name__}, but got {short(state[name])}; "
                f"the file is damaged."
            )
    return state


def _check_digest(path: Path, state: Mapping[str, Any]) -> None:
    digest = hashlib.sha256()
    with _explained(path), os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    if digest.hexdigest() != state.get("sha256", {}).get(path.name):
        raise _damaged(path, "its SHA-256 is not the one in state.json")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """A file that cannot be read is damaged, or was removed in the meantime."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> FenchelError:
    return FenchelError(
        f"{path}: expected a complete checkpoint, but the file is damaged or missing ({reason}); "
        f"start a new run in another directory."
    )
