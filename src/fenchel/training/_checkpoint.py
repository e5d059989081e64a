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
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from fenchel._checks import FenchelError
from fenchel.training._errors import TrainingError
from fenchel.training._files import DISK_FULL, replace_file, sync_directory, write_file
from fenchel.training._tensors import pack, unpack, unpack_each
from fenchel.training.distributed import Wholes

FORMAT = 1
POINTER = "checkpoints.json"
Tensors = Mapping[str, Tensor] | Wholes
GROUPS = ("model", "optimizer", "random")
_PARTIAL = ".partial"


@dataclass(frozen=True)
class Checkpoint:
    """What was read of a checkpoint: tensors by group (model, optimizer, random), JSON state."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]

    def load_weights(self, model: nn.Module) -> None:
        """Put the weights into ``model``, which must have the same names and shapes."""
        found, wanted = self.tensors["model"], model.state_dict()
        for name in {**wanted, **found}:
            has, needs = (_shape(one.get(name)) for one in (found, wanted))
            if has != needs:
                raise FenchelError(
                    f"{self.path}: expected the weights of this model, but they are another's, "
                    f"where {name} is {has} and not {needs}; build the model with the config of "
                    f"the run."
                )
        model.load_state_dict(found)


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"of shape {tuple(tensor.shape)}"


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
        name = self._pointer()[which]
        return None if name is None else self.directory / name

    def save(self, tensors: Mapping[str, Tensors], state: Mapping[str, Any], *, best: bool) -> Path:
        """Write a checkpoint, point to it, then remove those that are no longer wanted."""
        pointer = self._pointer()
        try:
            path = self._write(tensors, state)
            kept = [*pointer["kept"], path.name][-self.keep :]
            chosen = path.name if best else pointer["best"]
            new = {"format": FORMAT, "latest": path.name, "best": chosen, "kept": kept}
            replace_file(self.run_dir / POINTER, _json(new))
        except BaseException as error:
            self._remove_all_but(self._pointer())  # read again: the new one may be in place
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
    ) -> Checkpoint:
        """Read the latest or the best checkpoint; nothing is written, whatever is wrong with it.

        Of the groups that are to be read ``later``, one tensor at a time, the files are checked.
        """
        path = self.find(which)
        if path is None:
            raise FenchelError(
                f"{self.run_dir}: expected a run with a {which} checkpoint, but there is none."
            )
        state = _read_json(path / "state.json")
        _check_format(path / "state.json", state)
        for group in (*groups, *later):
            _check_digest(_file(path, group), state)
        checkpoint = Checkpoint(path, {}, state)
        for group in groups:
            with _explained(file := _file(path, group)):
                checkpoint.tensors[group] = unpack(file)
        return checkpoint

    def describe_latest(self) -> str:
        """The latest checkpoint in words, for messages."""
        path = self.find()
        return "no checkpoint" if path is None else f"the checkpoint {path}"

    def _pointer(self) -> dict[str, Any]:
        path = self.run_dir / POINTER
        if not path.exists():
            return {"latest": None, "best": None, "kept": []}
        pointer = _read_json(path)
        _check_format(path, pointer)
        if not {"latest", "best", "kept"} <= pointer.keys():
            raise FenchelError(
                f"{path}: expected the keys latest, best and kept, but got "
                f"{', '.join(pointer)}; the file is damaged."
            )
        return pointer

    def _write(self, tensors: Mapping[str, Tensors], state: Mapping[str, Any]) -> Path:
        final = self._free_name(int(state["step"]))
        partial = final.with_name(final.name + _PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        digests = {}
        for group, named in tensors.items():
            file, digest = _file(partial, group), hashlib.sha256()
            write_file(file, _digested(pack(named), digest))
            digests[file.name] = digest.hexdigest()
        write_file(partial / "state.json", [_json({"format": FORMAT, **state, "sha256": digests})])
        sync_directory(partial)
        os.replace(partial, final)
        sync_directory(self.directory)
        return final

    def _free_name(self, step: int) -> Path:
        """A name that no checkpoint has: one at the same step may be the last good one."""
        path, number = self.directory / f"step-{step:08d}", 1
        while path.exists():
            path, number = self.directory / f"step-{step:08d}.{number}", number + 1
        return path

    def _remove_all_but(self, pointer: Mapping[str, Any]) -> None:
        """Remove what the pointer does not name, also what a killed process has left behind."""
        wanted = {*pointer["kept"], pointer["latest"], pointer["best"]}
        for path in self.directory.glob("step-*"):
            if path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(
    run_dir: str | Path, which: Literal["latest", "best"] = "best", *, weights_only: bool = True
) -> Checkpoint:
    """The best or the latest checkpoint of a run, to predict with or to look into.

    Args:
        run_dir: where the run is.
        which: ``"best"`` by the validation metric, or ``"latest"``.
        weights_only: leave out the optimizer's tensors and the states of the generators.
    """
    groups = ("model",) if weights_only else GROUPS
    return CheckpointStore(Path(run_dir)).load(which, groups)


def tensors_of(checkpoint: Checkpoint, group: str) -> Iterator[tuple[str, Tensor]]:
    """The names and tensors of a group one after the other, each of tied ones once."""
    with _explained(file := _file(checkpoint.path, group)):
        yield from unpack_each(file)


def _file(directory: Path, group: str) -> Path:
    return directory / f"{group}.safetensors"


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if not isinstance(value, dict):
        raise FenchelError(f"{path}: expected a JSON object, but got {type(value).__name__}.")
    return value


def _check_format(path: Path, value: Mapping[str, Any]) -> None:
    if value.get("format") != FORMAT:
        raise FenchelError(
            f"{path}: expected checkpoint format {FORMAT}, but got {value.get('format')!r}; use "
            f"the version of fenchel that wrote it, or start a new run in another directory."
        )


def _check_digest(path: Path, state: Mapping[str, Any]) -> None:
    digest = hashlib.sha256()
    with _explained(path), path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    if digest.hexdigest() != state.get("sha256", {}).get(path.name):
        raise _damaged(path, "its SHA-256 is not the one in state.json")


def _digested(pieces: Iterable[bytes | memoryview], digest: Any) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        digest.update(piece)
        yield piece


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """A file that cannot be read is damaged, or was removed in the meantime."""
    try:
        yield
    except OSError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> FenchelError:
    return FenchelError(
        f"{path}: expected a complete checkpoint, but the file is damaged or missing ({reason}); "
        f"start a new run in another directory."
    )
