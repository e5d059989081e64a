"""Processes that train until SIGKILL ends them; run as ``python -m tests.training.killed``.

The process imports torch once and forks a child for each training run, so that a hundred of them
take seconds. It ends with an assertion if a resumed run is not the uninterrupted one.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from fenchel.runs import files as files_module
from fenchel.runs.checkpoint import CheckpointStore
from fenchel.runs.config_file import dump_config
from fenchel.runs.tensors import pack, unpack
from fenchel.training import _records
from tests.training.tiny import TinyModel, config_with, sentences, trainer

TIMING = ("tokens_per_second", "seconds", "train_seconds", "elapsed", "window_seconds")


def train(run_dir, seed=0):
    """Train to the end, or resume; ``seed`` is of weights that a resumed run must not use."""
    trainer(
        run_dir,
        model=TinyModel(seed=seed),
        examples=sentences(16),
        max_epochs=2,
        checkpoint_every=3,
        log_every=1,
        plateau_factor=0.3,
        # Never improves after the first, so that the schedule's state matters as well.
        mode="max",
    ).run(resume=True)


def outcome(run_dir):
    """All that a run has left, without what times it."""
    files = {}
    for which in ("latest", "best"):
        path = CheckpointStore(run_dir).find(which)
        for file in sorted(path.glob("*.safetensors")):
            files[f"{which}/{file.name}"] = file.read_bytes()
        state = json.loads((path / "state.json").read_text())
        timed = (*TIMING, "records_bytes")
        files[f"{which}/state"] = {k: v for k, v in state.items() if k not in timed}
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    files["records"] = [{k: v for k, v in r.items() if k not in TIMING} for r in records]
    return files


def child(run_dir, seed=0, prepare=None):
    """Train in a new process; returns its id."""
    process = os.fork()
    if process:
        return process
    try:
        if prepare is not None:
            prepare()
        train(run_dir, seed)
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def ended(process):
    """Wait for a child: 0 if it came to its end, else minus the signal that killed it."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code


def same(run_dir, expected, what):
    found = outcome(run_dir)
    assert found.keys() == expected.keys(), what
    for key, value in expected.items():
        assert found[key] == value, f"{what}: {key} differs"


def die_at(number):
    """Kill this process at its file operation of that number, a write when it is half done."""
    count = 0

    def due():
        nonlocal count
        count += 1
        return count == number

    def wrap(module, name):
        original = getattr(module, name)

        def dying(*arguments, **keywords):
            if due():
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)

        setattr(module, name, dying)

    def dying_write(descriptor, data):
        if due():
            os.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(descriptor, data)

    for name in ("replace", "ftruncate", "rmdir"):
        wrap(os, name)
    wrap(shutil, "rmtree")
    for module in (files_module, _records):
        module.write_all = dying_write


def slow_writes():
    """Spend most of the time in the middle of a file."""

    def slow(descriptor, data):
        for start in range(0, len(data), 2048):
            os.write(descriptor, data[start : start + 2048])
            time.sleep(0.002)

    for module in (files_module, _records):
        module.write_all = slow


def every_operation(root, expected):
    """Kill at the first file operation, at the second, …, until a run gets to its end."""
    number = 0
    while True:
        number += 1
        run_dir = root / f"operation-{number}"
        code = ended(child(run_dir, prepare=functools.partial(die_at, number)))
        found = CheckpointStore(run_dir).find() if run_dir.exists() else None
        if found is not None:
            CheckpointStore(run_dir).load()
        # Without a checkpoint the run starts again, from the weights it is given.
        assert ended(child(run_dir, seed=0 if found is None else 1)) == 0
        same(run_dir, expected, f"killed at operation {number}")
        shutil.rmtree(run_dir)
        if code == 0:
            return number - 1


def at_random(root, expected, kills):
    """Kill at random moments, one after another, until enough have hit."""
    draw, hits, runs = random.Random(0), 0, 0
    while hits < kills:
        runs += 1
        run_dir = root / f"random-{runs}"
        code = -signal.SIGKILL
        while code != 0:
            fresh = not run_dir.exists() or CheckpointStore(run_dir).find() is None
            process = child(run_dir, seed=0 if fresh else 1, prepare=slow_writes)
            time.sleep(draw.uniform(0.0, 0.25))
            os.kill(process, signal.SIGKILL)
            code = ended(process)
            hits += code != 0
        same(run_dir, expected, f"killed at random in run {runs}")
    return hits


def warm_up():
    """Import what a training run imports late (a second's worth), without starting a thread."""
    model = TinyModel()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.Adam(parameters).step()
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(pack(model.state_dict())))
        file.flush()
        unpack(Path(file.name))
    dump_config(config_with())


def main():
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # SIGKILL loses nothing of what the system was given
    warm_up()
    root = Path(sys.argv[1])
    assert ended(child(root / "straight")) == 0
    expected = outcome(root / "straight")
    again = root / "again"
    assert ended(child(again)) == 0
    same(again, expected, "an uninterrupted run")
    print(
        json.dumps(
            {
                "operations": every_operation(root, expected),
                "random": at_random(root, expected, kills=8),
            }
        )
    )


if __name__ == "__main__":
    main()
