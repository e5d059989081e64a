"""One process at a time trains in a directory, and whoever dies leaves no lock behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.runs import owner as owner_module
from fenchel.runs.owner import RunLock
from tests.training.tiny import collate, trainer

HOLD = """
import os, sys, time
from fenchel.runs.owner import RunLock
from pathlib import Path
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def holder(run_dir: Path) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run_dir)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def refusal(run_dir: Path) -> str:
    return (
        f"{run_dir}: another process trains here; wait until it ends, or choose another directory."
    )


def test_a_second_process_is_refused_and_a_killed_one_leaves_nothing(tmp_path):
    trainer(tmp_path, max_epochs=1).run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = holder(tmp_path)
    try:
        with pytest.raises(FenchelError) as error:
            trainer(tmp_path, max_epochs=2).run(resume=True)
        assert str(error.value) == refusal(tmp_path)
        (tmp_path / "empty").mkdir()
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert (tmp_path / ".lock").exists()  # but nobody holds it
    (tmp_path / "empty").rmdir()
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before | {tmp_path / ".lock": b""}
    assert trainer(tmp_path, max_epochs=2).run(resume=True).step == 10
    assert not (tmp_path / ".lock").exists()


def test_a_new_run_is_refused_where_another_has_just_begun(tmp_path):
    (tmp_path / "run").mkdir()
    lock = RunLock(tmp_path / "run")
    lock.acquire()
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path / "run").run()
    assert str(error.value) == refusal(tmp_path / "run")
    lock.close()
    assert not list((tmp_path / "run").iterdir())


def test_it_is_held_while_training(tmp_path):
    said = []

    def look(examples):
        if not said:
            with pytest.raises(FenchelError) as error:
                trainer(tmp_path / "run").run(resume=True)
            said.append(str(error.value))
        return collate(examples)

    trainer(tmp_path / "run", max_epochs=1, collate=look).run()
    assert said == [refusal(tmp_path / "run")]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"checkpoints", "checkpoints.json", "config.yaml", "metrics.jsonl"}
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_an_error_gives_it_back(tmp_path):
    def fail(examples):
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        trainer(tmp_path, collate=fail).run()
    assert not (tmp_path / ".lock").exists()
    trainer(tmp_path, max_epochs=1).run(resume=True)


def test_a_file_that_was_removed_meanwhile_is_not_the_lock(tmp_path, monkeypatch):
    """Whoever had the lock removes its file: a newcomer must not hold what nobody can see."""
    first, second, exclusive = RunLock(tmp_path), RunLock(tmp_path), owner_module._exclusive
    first.acquire()
    calls = []

    def slow(descriptor):
        calls.append(descriptor)
        if len(calls) == 1:  # between our two steps
            first.close()
        exclusive(descriptor)

    monkeypatch.setattr(owner_module, "_exclusive", slow)
    second.acquire()
    assert len(calls) == 2 and (tmp_path / ".lock").exists()
    second.close()


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def none(descriptor):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(owner_module, "_exclusive", none)
    with pytest.warns(RuntimeWarning, match=r"has no locks \(Function not implemented\); make"):
        RunLock(tmp_path).acquire()
