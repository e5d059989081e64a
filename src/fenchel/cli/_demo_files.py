"""What a demo has made in its directory, so that the next one replaces that and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from fenchel._checks import FenchelError

_LIST = "made-by-demo.json"
_MARK = ".made-by-demo"  # in a run directory, with the word that the list has for it


class DemoFiles:
    """The directory of a demo: files by their digests and runs by their marks, as it made them.

    Args:
        directory: of this demo, and perhaps of an earlier one.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / _LIST
        self._made: dict[str, list[str]] = {}

    def check(self, *, files: Iterable[str], runs: Iterable[str]) -> None:
        """Make the directory; refuse to begin where something is in the way that no demo made."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FenchelError(
                f"{self.directory}: expected a directory that can be written ({error.strerror})."
            ) from None
        self._made = self._read()
        for name in files:
            self._check_file(name)
        for name in runs:
            self._check_run(name)

    def replace(self, name: str, data: bytes) -> Path:
        """Write a file, or write it anew if a demo made it and nobody has edited it."""
        digest = hashlib.sha256(data).hexdigest()
        self._check_file(name, digest)
        path = self.directory / name
        self._note(name, [*self._made.get(name, []), digest])  # whenever it is stopped, one is true
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, data)
        self._note(name, [digest])
        return path

    def clear_run(self, name: str) -> Path:
        """Remove the run of an earlier demo, if it is there; returns where the next one goes."""
        self._check_run(name)
        path = self.directory / name
        if path.exists():
            shutil.rmtree(path)
        return path

    def mark_run(self, name: str) -> None:
        """Write down that this run is the demo's own."""
        mark = secrets.token_hex(16)
        self._note(name, [mark])
        (self.directory / name / _MARK).write_text(mark, "utf-8")

    def _check_file(self, name: str, *same: str) -> None:
        path = self.directory / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            self._refuse(path)
        if path.exists():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest not in (*same, *self._made.get(name, [])):
                self._refuse(path)

    def _check_run(self, name: str) -> None:
        path = self.directory / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            self._refuse(path)
        mark = path / _MARK
        own = mark.is_file() and mark.read_text("utf-8") in self._made.get(name, [])
        if path.exists() and not own and any(path.iterdir()):
            self._refuse(path)

    def _read(self) -> dict[str, list[str]]:
        try:
            made = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            made = None
        if not isinstance(made, dict) or not all(isinstance(v, list) for v in made.values()):
            raise FenchelError(
                f"{self._path}: expected a demo's list of what it made, but the file is damaged; "
                "choose another directory with `--out`."
            )
        return made

    def _note(self, name: str, words: list[str]) -> None:
        self._made[name] = words
        _write(self._path, (json.dumps(self._made, indent=1) + "\n").encode())

    def _refuse(self, path: Path) -> None:
        raise FenchelError(
            f"{path}: expected nothing there, or what an earlier demo made, but it is something "
            "else, which the demo does not replace; choose another directory with `--out`."
        )


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
