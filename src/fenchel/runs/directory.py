"""A new run directory, which is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fenchel._checks import FenchelError
from fenchel.runs.about import ABOUT
from fenchel.runs.files import sync_directory
from fenchel.runs.owner import claim, release_claim

T = TypeVar("T")
_OF_THE_SYSTEM = "lost+found"  # is in every new file system


def check_new(directory: Path) -> None:
    """Refuse a directory that has something in it."""
    if (directory / ABOUT).exists():
        release_claim(directory)
        raise FenchelError(
            f"{directory}: expected a new directory, but it holds a run; go on with it by "
            "`--resume`, or choose another."
        )
    try:
        used = os.path.lexists(directory) and (not directory.is_dir() or not _is_empty(directory))
    except OSError as error:
        raise _not_writable(directory, error) from None
    if used:
        raise FenchelError(f"{directory}: expected a new or an empty directory; choose another.")


def check_writable(directory: Path) -> None:
    """Refuse a place where nothing can be made, before anything long begins."""
    place = Path(os.path.abspath(directory))
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        reason = "Permission denied" if place.is_dir() else "File exists"
        raise FenchelError(f"{directory}: expected a directory that can be written ({reason}).")


def write_new(directory: Path, write: Callable[[Path], T]) -> T:
    """Let ``write`` fill a directory, and put it in its place when it is complete.

    A new one is renamed into its place. One that is there and empty may be a mount point, a link or
    the current directory, which cannot be replaced: files are moved into it, ``run.json`` last.
    """
    check_new(directory)
    there = directory.is_dir()
    whole = Path(os.path.abspath(directory))
    try:
        if not there:
            whole.parent.mkdir(parents=True, exist_ok=True)
        parent = directory if there else whole.parent
        partial = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", suffix=".partial", dir=parent))
    except OSError as error:
        raise _not_writable(directory, error) from None
    try:
        written = write(partial)
        claim(partial)
        _put_in_place(partial, directory, whole, there)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written


def _put_in_place(partial: Path, directory: Path, whole: Path, there: bool) -> None:
    if there:
        names = sorted(os.listdir(partial), key=lambda name: name == ABOUT)
        for name in names:
            os.replace(partial / name, directory / name)
        sync_directory(directory)
        return
    # A directory made for one person only would be a surprise to the others.
    mask = os.umask(0)
    os.umask(mask)
    partial.chmod(0o777 & ~mask)
    try:
        os.replace(partial, whole)
    except OSError:
        check_new(directory)  # of another process, that was quicker
        raise
    sync_directory(whole.parent)


def _is_empty(directory: Path) -> bool:
    return all(path.name == _OF_THE_SYSTEM for path in directory.iterdir())


def _not_writable(directory: Path, error: OSError) -> FenchelError:
    return FenchelError(
        f"{directory}: expected a directory that can be written ({error.strerror})."
    )
