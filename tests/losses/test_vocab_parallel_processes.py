"""`fy.vocab_parallel_entmax_loss` as it is launched, and as it is left by a rank that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def environment() -> dict[str, str]:
    """That of this process, with its paths: a subprocess must import the same fenchel."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def test_under_torchrun():
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "tests.losses.vocab_parallel_torchrun"],
        env=environment() | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0 agrees" in done.stdout and "rank 1 agrees" in done.stdout


def test_a_rank_that_is_late_or_dies_leaves_an_error(tmp_path):
    command = [sys.executable, "-m", "tests.losses.vocab_parallel_death"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous")],
            env=environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ranks[1].communicate(timeout=120)
        killed = time.monotonic()
        out, err = ranks[0].communicate(timeout=50)  # below the timeout of the group
        waited = time.monotonic() - killed
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert ranks[1].returncode == -signal.SIGKILL
    sentence = (
        "vocab_parallel_entmax_loss: rank 0 of 2 gets no answer from the others; one has died"
    )
    assert f"late: {sentence}" in out
    assert ranks[0].returncode == 1 and sentence in err, err[-3000:]
    assert waited < 20
