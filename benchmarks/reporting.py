"""What benchmarks take on the command line, and how they tell and keep what they measured."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import fenchel as fy


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What those take that compare kernels."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", help="append JSON lines to this file")
    parser.add_argument("--markdown", help="write the table of the docs to this file")
    parser.add_argument("--quick", action="store_true", help="shorter timings")
    parser.add_argument("--peers", action="store_true", help="time the entmax package too (slow)")
    return parser


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next(line.split(":")[1].strip() for line in info if "model name" in line)
    except (OSError, StopIteration):
        name = f"{name} (model unknown)"
    return {
        "cpu": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def place() -> str:
    """The machine in words, without the number of threads."""
    where = machine()
    return f"{where['cpu']}, {fy.backends().instruction_set}, torch {where['torch']}"


def today() -> str:
    """As in 2026-11-16."""
    return datetime.date.today().isoformat()


def place_and_day() -> str:
    """The end of a table's caption."""
    return f"{place()}, {torch.get_num_threads()} threads, {today()}."


def announce() -> None:
    """Print what everything below was measured on."""
    print(f"{machine()}\n{fy.backends()}\n", flush=True)


def keep(options: argparse.Namespace, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the table and append the rows where the options say so."""
    if options.markdown:
        Path(options.markdown).write_text(table)
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        with open(options.out, "a") as out:
            out.writelines(json.dumps({**machine(), **row}) + "\n" for row in rows)
