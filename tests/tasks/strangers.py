"""A small run, and ways to damage a copy of it."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fenchel.tasks import (
    DataConfig,
    SearchOptions,
    ensemble,
    evaluate,
    open_runs,
    resume_run,
    start_run,
    train_run,
)

TINY = ["model.hidden=8", "model.embedding=4", "model.layers=1", "train.max_steps=4"]
TINY += ["train.validate_every=4", "train.batch_size=4", "search.max_length=6", "search.beam=2"]
CHECKPOINT = "checkpoints/step-00000004"
BOMB = "[" + ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}' if i else 'lol'] * 9)}]" for i in range(9))
BOMB += "]"


def make_run(folder: Path, task: str = "inflection") -> Path:
    """Train a model for four updates; the run is ``folder/run``."""
    path = folder / "x-train"
    lines = ["ab\tba\tV", "ba\tab\tN", "aab\tbaa\tV", "bba\tabb\tN"]
    if task != "inflection":
        lines = ["\t".join(line.split("\t")[:2]) for line in lines]
    path.write_text("\n".join(lines) + "\n")
    data = DataConfig((str(path),), (str(path),))
    settings = TINY + (["task.vocabulary=262"] if task != "inflection" else [])
    train_run(start_run(folder / "run", task, data, settings=settings), show_progress=False)
    config = folder / "run" / "config.yaml"
    lines = config.read_text().splitlines(keepends=True)
    # Comments take most of the time to read it.
    config.write_text("".join(line for line in lines if not line.strip().startswith("#")))
    return folder / "run"


def use(run: Path) -> dict[str, float]:
    """What ``fenchel evaluate`` does."""
    runs = open_runs([run])
    task = runs[0].task
    search = runs[0].config.search
    options = SearchOptions(beam=search.beam, max_length=search.max_length)
    examples = list(task.read([run.parent / "x-train"]))
    return evaluate(ensemble(runs), task, examples, options)


def resume(run: Path) -> dict[str, Any]:
    """What ``fenchel train --resume`` does, for one more update."""
    opened = resume_run(run, "inflection", DataConfig(), ["train.max_steps=5"])
    result = train_run(opened, resume=True, show_progress=False, note=lambda sentence: None)
    return {"step": result.step, "best": result.best}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a JSON document, of lists to the first."""
    items: list[Any] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:1]
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a document with another value at one place, or without it."""
    changed = copy.deepcopy(document)
    at = changed
    for key in path[:-1]:
        at = at[key]
    if new is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return changed


MISSING = object()
DEEP = "<deep>"  # a text that :func:`dump` turns into something else
VALUES: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "true": True,
    "minus one": -1,
    "huge": 10**30,
    "endless digits": "<digits>",
    "infinite": float("inf"),
    "NaN": float("nan"),
    "text": "x\x1b[31m",
    "long text": "x" * 100_000,
    "dots": "../../outside",
    "absolute": "/outside",
    "list": [],
    "object": {"a": 1},
    "deep": DEEP,
}


def dump(document: Any) -> str:
    """JSON, with values that Python would not write."""
    text = json.dumps(document)
    text = text.replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000)
    return text.replace('"<digits>"', "9" * 10_000)


def reseal(run: Path) -> None:
    """Write the digests anew, as someone who means harm would."""
    state_path = run / CHECKPOINT / "state.json"
    try:
        state = json.loads(state_path.read_text())
        for name in state["sha256"]:
            data = (run / CHECKPOINT / name).read_bytes()
            state["sha256"][name] = hashlib.sha256(data).hexdigest()
        state_path.write_text(json.dumps(state))
        about = json.loads((run / "run.json").read_text())
        for name in ("source.json", "target.json"):
            if name in about["sha256"]:
                data = (run / name).read_bytes()
                about["sha256"][name] = hashlib.sha256(data).hexdigest()
        (run / "run.json").write_text(json.dumps(about))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # so damaged that there is nothing to seal


def rewritten_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of a safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header = change(header) or header
    text = dump(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def _sparse(path: Path, outside: Path) -> None:
    os.truncate(path, 5_000_000_000)


def _link(path: Path, outside: Path) -> None:
    shutil.move(path, outside / path.name)
    path.symlink_to(outside / path.name)


def _folder(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_to(target: str) -> Callable[[Path, Path], None]:
    def link(path: Path, outside: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return link


def _rotated(path: Path, outside: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:] + lines[:1]))


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "gone": lambda path, outside: path.unlink(),
    "empty": lambda path, outside: path.write_bytes(b""),
    "cut": lambda path, outside: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path, outside: path.write_bytes(path.read_bytes() + b"x"),
    "garbage": lambda path, outside: path.write_bytes(bytes(range(256)) * 64),
    "one bit": lambda path, outside: path.write_bytes(_flipped(path.read_bytes())),
    "deep": lambda path, outside: path.write_bytes(b"[" * 200_000),
    "deep objects": lambda path, outside: path.write_bytes(b'{"a":' * 200_000),
    "wide": lambda path, outside: path.write_bytes(b"[" + b"[]," * 3_000_000 + b"[]]"),
    "rotated": _rotated,
    "sparse": _sparse,
    "folder": _folder,
    "pipe": _pipe,
    "link out": _link,
    "link to nothing": _link_to("nothing"),
    "link to itself": _link_to("itself"),
    "device": _link_to("/dev/zero"),
}


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
