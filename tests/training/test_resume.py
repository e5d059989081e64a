"""A run that was stopped, by a signal or by SIGKILL, ends as one that was not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from fenchel import FenchelError
from tests.training.killed import outcome
from tests.training.tiny import TinyModel, collate, sentences, trainer, validate


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a child for each run")
def test_killed_at_any_moment_it_resumes_bit_for_bit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.killed", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert kills["operations"] > 30
    assert kills["random"] >= 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_with_a_checkpoint(tmp_path, number, capsys):
    straight = trainer(tmp_path / "straight").run()
    calls = []

    def stop_in_second_batch(examples):
        calls.append(examples)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return collate(examples)

    before = signal.getsignal(number)
    result = trainer(tmp_path / "stopped", collate=stop_in_second_batch, show_progress=True).run()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "Stopped at step 2 with a checkpoint; resume to go on."
    assert (result.reason, result.step) == ("interrupted", 2)
    assert signal.getsignal(number) is before
    resumed = trainer(tmp_path / "stopped", model=TinyModel(seed=3)).run(resume=True)
    assert resumed.reason == straight.reason == "max_epochs"
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    result = trainer(tmp_path).run()
    before = outcome(tmp_path)
    again = trainer(tmp_path).run(resume=True)
    assert (again.reason, again.step, again.best) == (result.reason, result.step, result.best)
    assert outcome(tmp_path) == before


def test_a_longer_limit_goes_on(tmp_path):
    trainer(tmp_path / "long", max_epochs=4).run()
    trainer(tmp_path / "short", max_epochs=2).run()
    trainer(tmp_path / "short", max_epochs=4).run(resume=True)
    long, short = outcome(tmp_path / "long"), outcome(tmp_path / "short")
    for name in ("latest/model.safetensors", "latest/optimizer.safetensors", "records"):
        assert long[name] == short[name]


def test_resume_starts_where_there_is_no_run(tmp_path):
    assert trainer(tmp_path / "new").run(resume=True).step == 15


def test_an_existing_run_is_not_overwritten(tmp_path):
    trainer(tmp_path).run()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path, learning_rate=0.5).run()
    assert str(error.value) == (
        f"{tmp_path}: expected a directory without a run, but it holds one; resume it or choose "
        f"another directory."
    )
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"learning_rate": 0.5},
            "resume with learning_rate = 0.02 as the run was started, but",
        ),
        ({"betas": (0.5, 0.9)}, "resume with betas = [0.9, 0.999] as the run was started, but"),
        ({"examples": sentences()[::-1]}, "expected the training data that the run was started wi"),
        (
            {"examples": [[*s[:-1], 11] for s in sentences()]},
            "but the examples are others or in an",
        ),
        ({"examples": sentences(39)}, "expected the training data that the run was started with"),
        ({"model": TinyModel().hidden, "loss": validate}, "expected the weights of this model"),
    ],
    ids=["learning_rate", "betas", "order", "text", "data", "model"],
)
def test_another_run_is_refused(tmp_path, changes, words):
    trainer(tmp_path).run()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FenchelError, match=re.escape(words)):
        trainer(tmp_path, **changes).run(resume=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_lost_metrics_file_does_not_stop_a_resume(tmp_path):
    trainer(tmp_path, max_epochs=1).run()
    (tmp_path / "metrics.jsonl").unlink()
    trainer(tmp_path, max_epochs=2).run(resume=True)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6, 8, 10, 10]
