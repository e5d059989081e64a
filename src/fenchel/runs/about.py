"""``run.json``, and the digests in it of all that gives meaning to the weights of a run.

Weights say nothing without the vocabularies, whose order numbers their rows, and without the
settings of model and task. A file that was changed, exchanged or half copied is noticed here, and
not by wrong answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fenchel
from fenchel._checks import FenchelError
from fenchel._short import bare
from fenchel.runs.digest import digest_bytes, digest_values
from fenchel.runs.files import LARGE, Unreadable, read_json, read_plain, sync_directory, write_file
from fenchel.runs.typed import build

FORMAT = 1
ABOUT = "run.json"
VOCABULARIES = ("source.json", "target.json")
MEANING = "meaning"  # the key of a checkpoint's extra state


@dataclass(frozen=True)
class About:
    """What ``run.json`` says."""

    format: int
    fenchel: str
    task: str
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def meaning(self) -> str:
        """One digest for all."""
        return digest_values(self.sha256)


def write_about(directory: Path, task: str, config: Any) -> About:
    """Write ``run.json`` for the vocabularies that are in a directory, all down to the disk."""
    about = About(FORMAT, fenchel.__version__, task, _digests(directory, config))
    write_file(directory / ABOUT, [(json.dumps(asdict(about), indent=1) + "\n").encode()])
    sync_directory(directory)
    return about


def read_about(directory: Path, tasks: Collection[str]) -> About:
    """Read ``run.json``, which is what makes a directory a run of one of some tasks."""
    path = directory / ABOUT
    if not directory.is_dir() or not (path.exists() or path.is_symlink()):
        missing = "no run.json" if directory.is_dir() else "no such directory"
        raise FenchelError(
            f"{directory}: expected a run directory, but there is {missing}; `fenchel train` makes "
            "one."
        )
    try:
        values = read_json(path)
    except Unreadable as error:
        raise FenchelError(f"{path}: expected a JSON object, but the file is damaged.") from error
    if values.get("format") != FORMAT or values["format"] is True:
        raise FenchelError(
            f"{directory}: expected a run of format {FORMAT}, but fenchel "
            f"{bare(values.get('fenchel'))} wrote it in format {bare(values.get('format'))}; use "
            f"that version, or train again."
        )
    about: About = build(About, values, str(path))
    if about.task not in tasks:
        raise FenchelError(
            f"{directory}: expected a run of {' or '.join(tasks)}, but it is one of "
            f"{bare(about.task)}."
        )
    if not about.sha256:
        raise FenchelError(
            f"{path}: expected the SHA-256 of vocabularies and settings, but there is none; the "
            f"run is of an early version and cannot be checked: train again."
        )
    return about


def check_digests(directory: Path, about: About, config: Any) -> None:
    """Check that vocabularies and settings are those that the run was started with."""
    found = _digests(directory, config)
    for name in {**about.sha256, **found}:
        if found.get(name) != about.sha256.get(name):
            raise FenchelError(
                f"{directory}: expected {bare(name)} as the run was started with, but its SHA-256 "
                f"is not the one in {ABOUT}; the weights mean something else without it, so "
                f"restore it from a copy, or train again."
            )


def check_meaning(directory: Path, about_run: str, state: Mapping[str, Any]) -> None:
    """Check that a checkpoint was trained in this run, and not in another of the same sizes."""
    if state.get("extra", {}).get(MEANING) != about_run:
        raise FenchelError(
            f"{directory}: expected a checkpoint of this run, but it was trained with other "
            f"vocabularies or settings; copy run.json and its files from the run of the checkpoint."
        )


def _digests(directory: Path, config: Any) -> dict[str, str]:
    paths = [directory / name for name in VOCABULARIES]
    digests = {
        path.name: digest_bytes(_read(path)) for path in paths if path.exists() or path.is_symlink()
    }
    for part in ("model", "task"):
        digests[f"{part} of config.yaml"] = digest_values(asdict(getattr(config, part)))
    return digests


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, LARGE)
    except Unreadable as error:
        raise FenchelError(
            f"{path}: expected the vocabulary of a run, but it cannot be read ({error})."
        ) from error
