"""A tiny run that all tests of the command line share."""

from __future__ import annotations

from pathlib import Path

from fenchel.cli import main

VERBS = ("walk", "talk", "bake", "rake", "lick", "kick", "wait", "bait")
TINY = (
    "model.hidden=32",
    "model.embedding=16",
    "model.layers=1",
    "model.dropout=0",
    "train.batch_size=8",
    "train.learning_rate=0.02",
    "train.schedule=constant",
)


def write_inflection(folder: Path) -> Path:
    """Past tenses and present participles, as ``english-train``."""
    path = folder / "english-train"
    lines = []
    for verb in VERBS:
        stem = verb.removesuffix("e")
        lines += [f"{verb}\t{stem}ed\tV;PST\n", f"{verb}\t{stem}ing\tV;V.PTCP;PRS\n"]
    path.write_text("".join(lines))
    return path


def train(run: Path, data: Path, *extra: str, epochs: int = 30) -> int:
    """Train on ``data`` and validate on it; returns the exit code."""
    settings = [*TINY, f"train.max_epochs={epochs}", *extra]
    words = ["train", "inflection", "--run", str(run), "--quiet", "--train", str(data)]
    return main([*words, "--dev", str(data), "--set", *settings])


# Controls but for tab and line end, what ends a line or turns the direction, what is invisible.
BAD = set(range(0x20)) - {9, 10} | {0x7F} | set(range(0x80, 0xA0)) | set(range(0xD800, 0xE000))
BAD |= {0x2028, 0x2029, 0x200E, 0x200F, 0x61C, 0xFEFF}
BAD |= set(range(0x202A, 0x202F)) | set(range(0x2066, 0x206A)) | set(range(0xE0000, 0xE0080))


def is_harmless(text: str) -> bool:
    """Whether a text has nothing that moves a cursor, ends a line, or turns the direction."""
    return BAD.isdisjoint(map(ord, text))
