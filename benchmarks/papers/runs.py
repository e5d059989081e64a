"""Train one model of an experiment, measure it, and keep what was measured as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.reporting import machine
from fenchel.tasks import DataConfig, Run, resume_run, start_run, train_run
from fenchel.training import TrainResult

Measure = Callable[[Run], Mapping[str, Any]]


@dataclass(frozen=True)
class Model:
    """One model of an experiment.

    Attributes:
        name: of its files; says what is special about it.
        task: ``"inflection"`` or ``"translation"``.
        kind: of model.
        settings: those of the run, as the command line takes them.
        facts: what the tables sort by; kept beside the measurements.
    """

    name: str
    task: str
    kind: Literal["lstm", "transformer"]
    settings: Sequence[str]
    facts: Mapping[str, Any] = field(default_factory=dict)


def places(description: str | None) -> argparse.ArgumentParser:
    """What all recipes take."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="data directory")
    parser.add_argument("out", type=Path, help="where runs and results go; resumed if it has some")
    parser.add_argument("--threads", type=int, default=1, help="of each model")
    return parser


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What those take that train."""
    parser = places(description)
    parser.add_argument("--only", default="*", help="models whose name matches, as 'lstm-*'")
    parser.add_argument("--share", default="1/1", help="2/3: the second of three equal shares")
    parser.add_argument(
        "--set", action="append", default=[], help="a setting of all models: train.max_epochs=1"
    )
    return parser


def train_all(models: Sequence[Model], data: DataConfig, measure: Measure, options: Any) -> None:
    """Train and measure those that the options choose and that have no results yet."""
    torch.set_num_threads(options.threads)
    part, parts = map(int, options.share.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit(f"--share: expected one of 1/{parts} to {parts}/{parts}")
    chosen = [model for model in models if fnmatch.fnmatch(model.name, options.only)]
    for model in chosen[part - 1 :: parts]:
        path = options.out / f"{model.name}.json"
        settings = [*model.settings, *options.set]
        if path.exists():
            if json.loads(path.read_text())["settings"] != settings:
                raise SystemExit(f"{path}: the results of other settings; choose another OUT")
            print(f"{model.name}: done before", flush=True)
            continue
        start = time.perf_counter()
        run, result = _train(model, data, options)
        trained = time.perf_counter()
        measured = dict(measure(run))
        document = {
            "name": model.name,
            **model.facts,
            "settings": settings,
            "parameters": sum(p.numel() for p in run.new_model().parameters()),
            "training": asdict(result),
            "measured": measured,
            "measuring_seconds": time.perf_counter() - trained,
            "machine": machine(),
            "threads": options.threads,
        }
        write_json(path, document)
        print(f"{model.name}: {time.perf_counter() - start:.0f} s, {_short(measured)}", flush=True)


def results(directory: Path) -> list[dict[str, Any]]:
    """All measurements in a directory, by name."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file that is there as a whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def _train(model: Model, data: DataConfig, options: Any) -> tuple[Run, TrainResult]:
    directory = options.out / "runs" / model.name
    settings = [*model.settings, *options.set, f"train.threads={options.threads}"]
    if (directory / "run.json").exists():
        run = resume_run(directory, model.task, data, settings)
    else:
        run = start_run(directory, model.task, data, model=model.kind, settings=settings)
    result = train_run(run, resume=True, note=print, show_progress=False)
    if result.reason == "interrupted":
        raise SystemExit(f"{model.name}: interrupted; the same command goes on with it")
    return run, result


def _short(measured: Mapping[str, Any]) -> str:
    numbers = ((name, value) for name, value in measured.items() if isinstance(value, float))
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers)
