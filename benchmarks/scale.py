"""Training with two processes against one: speed, loss curves, memory of a rank, a killed rank.

    python -m benchmarks.scale [--parts speed memory restart] [--models LSTM Transformer] [--quick]
                               [--out FILE.json] [--markdown FILE.md]

*speed*: the same run (equal total batch, no dropout) by 1 process with 1 thread, 1 process with 2
threads, and 2 gloo processes of 1 thread each; target tokens a second of training alone, medians of
runs in turns, and the largest difference of a step's loss from the first. No speed is shown if that
is above 1e-4. *memory*: what one rank of two holds after a step, and the peak of its resident
memory over steps, and over steps and a checkpoint, with the interpreter and torch, while the
allocator keeps nothing back.
*restart*: rank 1 is killed in the middle of an epoch, and torchrun starts the job again; weights
are compared byte by byte with those of a run that was left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reporting import announce, machine, place, today

Job = dict[str, Any]
TOLERANCE = 1e-4

MODELS: dict[str, Job] = {
    "LSTM": {"kind": "lstm", "embedding": 300, "hidden": 300, "layers": 2, "dropout": 0.0},
    "Transformer": {
        "kind": "transformer", "width": 256, "heads": 4, "layers": 4, "feedforward": 1024,
        "dropout": 0.0,
    },
}  # fmt: skip
LARGE: Job = {
    "kind": "transformer", "width": 512, "heads": 8, "layers": 4, "feedforward": 2048,
    "dropout": 0.0,
}  # fmt: skip
SMALL: Job = {
    "kind": "transformer", "width": 32, "heads": 2, "layers": 2, "feedforward": 64, "dropout": 0.1,
}  # fmt: skip
# name: processes, threads of each
WAYS = {
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
KINDS: dict[str, tuple[int, Job]] = {
    "1 process": (1, {}),
    "DDP": (2, {"parallel": "ddp"}),
    "DDP, vocabulary parallel": (2, {"parallel": "ddp", "vocabulary_parallel": True}),
    "FSDP2": (2, {"parallel": "fsdp"}),
    "FSDP2, vocabulary parallel": (2, {"parallel": "fsdp", "vocabulary_parallel": True}),
}


def vocabulary(model: Job, size: int) -> Job:
    return {**model, "source_vocabulary": size, "target_vocabulary": size}


def train(job: Job, folder: Path, name: str, processes: int, threads: int, *options: str) -> Job:
    """Run a job to its end; its records, each rank's memory, and seconds from start to end."""
    run = folder / name
    shutil.rmtree(run, ignore_errors=True)
    path = folder / f"{name}.json"
    train_fields = {"batch_unit": "tokens", "clip_norm": 1.0, "log_every": 1, **job["train"]}
    path.write_text(json.dumps({**job, "train": train_fields, "run": str(run)}))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [*launch, *options, "-m"] if processes > 1 else ["-m"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command, "benchmarks.scale_job", str(path)],
        env=os.environ | {"OMP_NUM_THREADS": str(threads)} | job.get("env", {}),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ranks = [folder / f"{name}.rank-{rank}.json" for rank in range(processes)]
    return {
        "records": [r for r in records if r["kind"] == "train"],
        "memory": [json.loads(rank.read_text()) for rank in ranks],
        "weights": hashlib.sha256(_weights(run).read_bytes()).hexdigest(),
        "seconds": time.perf_counter() - start,
        "said": done.stdout.splitlines()[0],
    }


def _weights(run: Path) -> Path:
    latest = json.loads((run / "checkpoints.json").read_text())["latest"]
    return run / "checkpoints" / latest / "model.safetensors"


def tokens_per_second(records: list[Job], skip: int) -> float:
    """Over all steps but the first ones."""
    pairs = list(itertools.pairwise(records))[skip:]
    tokens = [after["tokens"] - before["tokens"] for before, after in pairs]
    rates = [after["tokens_per_second"] for _, after in pairs]
    return sum(tokens) / sum(n / rate for n, rate in zip(tokens, rates, strict=True))


def speed(folder: Path, quick: bool, models: Sequence[str]) -> Job:
    """By model and way: tokens a second, and the largest difference of a loss."""
    steps, times, batch, size = (6, 1, 500, 60) if quick else (20, 3, 4000, 4000)
    found: Job = {"batch tokens": batch, "vocabulary": size, "steps": steps, "runs": times}
    narrow = {"LSTM": {"embedding": 16, "hidden": 16}, "Transformer": {"width": 16}}
    for model in models:
        fields = {**MODELS[model], **(narrow[model] if quick else {})}
        train_fields = {"batch_size": batch, "max_steps": steps, "learning_rate": 3e-4}
        job = {"model": vocabulary(fields, size), "train": train_fields, "examples": 4000}
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        losses: dict[str, list[float]] = {}
        for _ in range(times):
            for way, (processes, threads) in WAYS.items():
                done = train(job, folder, way.replace(" ", "-"), processes, threads)
                rates[way].append(tokens_per_second(done["records"], steps // 5))
                losses[way] = [r["loss"] for r in done["records"]]
                print(f"{model}, {way}: {rates[way][-1]:.0f} tokens/s", flush=True)
        alone = next(iter(losses.values()))
        found[model] = {
            way: {
                "tokens_per_second": statistics.median(rates[way]),
                "all": rates[way],
                "difference": max(abs(a - b) for a, b in zip(alone, of_way, strict=True)),
            }
            for way, of_way in losses.items()
        }
        if any(not of_way["difference"] <= TOLERANCE for of_way in found[model].values()):
            raise SystemExit(f"correctness gate is red: the curves of {model} differ: {found}")
    return found


def memory(folder: Path, quick: bool) -> Job:
    """By kind: bytes of the largest rank."""
    size, batch, fields = (300, 300, SMALL) if quick else (16000, 1000, LARGE)
    # One validation before a checkpoint is written, which the peak of steps is without.
    train_fields = {"batch_size": batch, "max_steps": 7, "validate_every": 6, "learning_rate": 3e-4}
    # What is freed goes back to the system at once, or the peak would be that of the allocator.
    env = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    model = vocabulary({**fields, "dropout": 0.0}, size)
    job = {"model": model, "examples": 2000, "env": env}
    found: Job = {"vocabulary": size, "batch tokens": batch}
    for kind, (processes, more) in KINDS.items():
        of_kind = {**job, "train": train_fields | more}
        done = train(of_kind, folder, kind.replace(" ", "-"), processes, 1)
        ranks = done["memory"]
        found[kind] = {key: max(rank[key] for rank in ranks) for key in ranks[0]}
        found[kind]["loss"] = done["records"][-1]["loss"]
        found["said"] = done["said"]
        print(f"{kind}: {found[kind]}", flush=True)
    if any(abs(found[k]["loss"] - found["1 process"]["loss"]) > TOLERANCE for k in KINDS):
        raise SystemExit(f"correctness gate is red: the last losses differ: {found}")
    return found


def restart(folder: Path, quick: bool) -> Job:
    """A run that was left alone, and one of which a rank was killed."""
    steps = 12 if quick else 60
    train_fields = {
        "batch_size": 500, "max_steps": steps, "learning_rate": 1e-3,
        "checkpoint_every": steps // 6,
    }  # fmt: skip
    job = {"model": vocabulary(SMALL, 60), "train": train_fields, "examples": 2000}
    alone = train(job, folder, "alone", 2, 1)
    killed = {**job, "killed": f"1:{steps // 2 + 1}"}
    restarted = train(killed, folder, "killed", 2, 1, "--max-restarts", "1")
    steps_seen = [r["step"] for r in restarted["records"]]
    return {
        "steps": steps,
        "killed at step": steps // 2 + 1,
        "same weights": alone["weights"] == restarted["weights"],
        "each step once": steps_seen == list(range(1, steps + 1)),
        "seconds alone": alone["seconds"],
        "seconds with the restart": restarted["seconds"],
    }


def markdown(found: Job) -> str:
    lines = ["gloo on one machine, float32."]
    if "speed" in found:
        part = found["speed"]
        lines += [
            "",
            f"Batches of {part['batch tokens']} tokens in all, vocabulary {part['vocabulary']}, "
            f"medians of {part['runs']} runs of {part['steps']} steps in turns. The difference is "
            f"the largest of any step's loss from that of the first row ({part['on']}).",
            "",
            "| model | run by | tokens/s | ratio | difference |",
            "|---|---|---|---|---|",
        ]
        for model in (model for model in MODELS if model in part):
            first = next(iter(part[model].values()))["tokens_per_second"]
            lines += [
                f"| {model} | {way} | {of['tokens_per_second']:,.0f} | "
                f"{of['tokens_per_second'] / first:.2f} | {of['difference']:.0e} |"
                for way, of in part[model].items()
            ]
    if "memory" in found:
        part = found["memory"]
        lines += [
            "",
            f"A Transformer of {part['said'].split(',')[0]}, vocabulary {part['vocabulary']}, "
            f"batches of {part['batch tokens']} tokens in all; MiB of the larger rank. The peak is "
            "that of its resident memory, of which Python and torch take "
            f"{part['said'].split(', ')[1].removesuffix(' without them')} ({part['on']}).",
            "",
            "| trained by | parameters | gradients | Adam | peak | with a checkpoint |",
            "|---|---|---|---|---|---|",
        ]
        for kind in KINDS:
            keys = ("parameters", "gradients", "adam", "peak", "peak with a checkpoint")
            numbers = [part[kind][key] / 2**20 for key in keys]
            lines.append(f"| {kind} | " + " | ".join(f"{n:,.0f}" for n in numbers) + " |")
    if "restart" in found:
        part = found["restart"]
        outcome = "the same, byte for byte" if part["same weights"] else "NOT the same"
        lines += [
            "",
            f"Rank 1 of 2 killed at step {part['killed at step']} of {part['steps']}: torchrun "
            f"restarts both from the last checkpoint, and the weights at the end are {outcome}, as "
            f"those of a run that was left alone ({part['seconds with the restart']:.0f} s against "
            f"{part['seconds alone']:.0f} s, starts of Python included; {part['on']}).",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    parts = {"speed": speed, "memory": memory, "restart": restart}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts))
    parser.add_argument(
        "--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="of speed"
    )
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works")
    parser.add_argument("--out", help="JSON file for all numbers; other parts in it stay")
    parser.add_argument("--markdown", help="write the tables of the docs to this file")
    options = parser.parse_args()
    announce()
    found: Job = {"machine": machine(), "quick": options.quick}
    if options.out and Path(options.out).exists():  # parts that are not measured now stay
        found = json.loads(Path(options.out).read_text()) | found
    with tempfile.TemporaryDirectory() as folder:
        for name in options.parts:
            more = (options.models,) if name == "speed" else ()
            of_part = parts[name](Path(folder), options.quick, *more)
            stamp, before = f"{place()}, {today()}", found.get(name, {})
            # All rows of a table are of one machine and day.
            kept = before if before.get("on") == stamp else {}
            found[name] = {**kept, **of_part, "on": stamp}
            if options.out:
                Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    text = markdown(found)
    if options.markdown:
        Path(options.markdown).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
