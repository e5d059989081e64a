"""`torchrun -m fenchel`: what it trains, what it says, and how it is restarted."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fenchel.cli import main
from fenchel.runs import load_checkpoint
from fenchel.runs.owner import RunLock
from tests.cli.cases import write_inflection

# On one worker: what they share takes long to make.
pytestmark = pytest.mark.xdist_group("torchrun")

ROOT = Path(__file__).parent.parent.parent
TINY = ("model.hidden=16", "model.embedding=8", "model.layers=1", "train.batch_size=3")
SETTINGS = (*TINY, "train.max_epochs=2", "train.checkpoint_every=2", "train.log_every=1")
ONE_MACHINE = ("--standalone", "--nproc-per-node", "2")
RESTARTS = ("--max-restarts", "1")
# Six batches an epoch: killed at the fifth, with a checkpoint of the fourth.
KILLED = {"module": "tests.training.distributed.ranks_killed", "killed": "1:5"}


def torchrun(
    data: Path,
    run: Path,
    *options: str,
    module: str = "fenchel",
    killed: str = "",
    settings: tuple[str, ...] = (),
):
    launch = ["-m", "torch.distributed.run", *(options or ONE_MACHINE)]
    words = ["train", "inflection", "--run", run, "--train", data, "--dev", data, "--set"]
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *launch, "-m", "--", module, *map(str, words), *SETTINGS, *settings],
        env=os.environ
        | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        | {"KILLED_AT": killed, "KILLED": f"{run}.killed"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """All jobs of this file, two at a time: they mostly wait for imports and for each other."""
    folder = tmp_path_factory.mktemp("torchrun")
    data = write_inflection(folder)
    (folder / "old").mkdir()
    (folder / "old" / "thesis.tex").write_text("dear reader")
    begun = ["train", "inflection", "--run", folder / "locked", "--train", data, "--dev", data]
    assert main([*map(str, begun), "--quiet", "--set", *TINY, "train.max_epochs=1"]) == 0
    lock = RunLock(folder / "locked")
    lock.acquire()
    jobs = {
        "locked": ((), {"settings": ("--resume",)}),
        "straight": ((), {}),
        "restarted": ((*ONE_MACHINE, *RESTARTS), KILLED),
        "killed": ((), KILLED),
        "old": ((*ONE_MACHINE, *RESTARTS), {}),
        "wrong": ((), {"settings": ("train.parallel=fsdp",)}),
    }
    with closing(lock), ThreadPoolExecutor(2) as pool:
        running = {
            name: pool.submit(torchrun, data, folder / name, *options, **more)
            for name, (options, more) in jobs.items()
        }
        return folder, {name: job.result() for name, job in running.items()}


def two_machines(port: int) -> tuple[str, ...]:
    """The options of each of two launchers, of one rank each, that meet at a port."""
    meet = (
        "--rdzv-backend",
        "c10d",
        "--rdzv-id",
        "latin-7",
        "--rdzv-endpoint",
        f"localhost:{port}",
    )
    return ("--nnodes", "2", "--nproc-per-node", "1", *meet, *RESTARTS)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run, "latest").tensors["model"]


def assert_same_end(run: Path, straight: Path) -> None:
    """The same weights, byte for byte, and each step once."""
    end, expected = (
        (path / "checkpoints" / "step-00000012" / "model.safetensors").read_bytes()
        for path in (run, straight)
    )
    assert end == expected
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    steps = [record["step"] for record in records if record["kind"] == "train"]
    assert steps == list(range(1, 13))


def test_two_jobs_do_not_train_in_one_directory(jobs):
    folder, done = jobs
    assert done["locked"].returncode == 1  # torchrun's own
    said = f"fenchel: {folder / 'locked'}: another process trains here; wait until it ends, or"
    assert done["locked"].stderr.count(said) == 1, done["locked"].stderr[-3000:]


def test_it_trains_and_rank_0_alone_speaks(jobs):
    folder, done = jobs
    straight = done["straight"]
    assert straight.returncode == 0, straight.stderr[-3000:]
    lines = straight.stderr.splitlines()
    assert sum(line.startswith("validation: epoch") for line in lines) == 2
    assert sum("done after 2 epochs (max_epochs)" in line for line in lines) == 1
    assert len(lines) == 12 + 3, straight.stderr  # a line a step; no warning at the end
    records = (folder / "straight" / "metrics.jsonl").read_text().splitlines()
    assert len(records) == 12 + 2
    assert json.loads(records[-1])["metrics"].keys() == {"accuracy", "edit_distance"}


def test_predict_reads_what_two_ranks_have_written(jobs, tmp_path, capsys):
    (tmp_path / "words").write_text("walk\tV;PST\n")
    words = ["--run", str(jobs[0] / "straight"), "--language", "english"]
    assert main(["predict", str(tmp_path / "words"), *words]) == 0
    assert capsys.readouterr().out.startswith("walk\t")


def test_one_process_goes_on_with_it(jobs, tmp_path):
    run = shutil.copytree(jobs[0] / "straight", tmp_path / "run")
    words = ["--run", str(run), "--resume", "--quiet", "--set", "train.max_epochs=3"]
    before = weights(run)
    assert main(["train", "inflection", *words]) == 0
    after = weights(run)
    assert before.keys() == after.keys() and not torch.equal(
        before["output.bias"], after["output.bias"]
    )


def test_a_killed_rank_is_restarted_to_the_same_weights(jobs):
    folder, done = jobs
    assert done["restarted"].returncode == 0, done["restarted"].stderr[:3000]
    assert_same_end(folder / "restarted", folder / "straight")


def test_so_is_one_on_another_machine(jobs):
    folder, _ = jobs
    with socket.socket() as free:
        free.bind(("localhost", 0))
        options = two_machines(free.getsockname()[1])
    data, run = folder / "english-train", folder / "machines"
    with ThreadPoolExecutor(2) as pool:
        machines = [pool.submit(torchrun, data, run, *options, **KILLED) for _ in range(2)]
        done = [machine.result() for machine in machines]
    assert [machine.returncode for machine in done] == [0, 0], done[0].stderr + done[1].stderr
    assert Path(f"{run}.killed").exists()
    assert_same_end(run, folder / "straight")


def test_a_killed_rank_ends_the_job_with_a_message(jobs):
    folder, done = jobs
    killed = done["killed"]
    assert killed.returncode == 1
    sentence = "fenchel: rank 0 of 2 gets no answer from the others: one has ended,"
    assert killed.stderr.count(sentence) == 1, killed.stderr[-3000:]
    assert "Traceback" not in killed.stderr.split("fenchel: rank 0")[0]
    assert "Signal 9 (SIGKILL)" in killed.stderr
    assert load_checkpoint(folder / "killed", "latest").state["step"] == 4


def test_what_is_refused_is_said_once_and_refused_again_after_a_restart(jobs):
    folder, done = jobs
    assert done["old"].returncode == 1
    sentence = f"fenchel: {folder / 'old'}: expected a new or an empty directory; choose another."
    assert done["old"].stderr.count(sentence) == 2  # the first time, and after the restart
    assert [path.name for path in (folder / "old").iterdir()] == ["thesis.tex"]


def test_settings_that_cannot_be_are_said_once_before_anything_is_written(jobs):
    folder, done = jobs
    assert done["wrong"].returncode == 1
    sentence = "fenchel: TrainConfig: `parallel: fsdp` shards the layers of a Transformer, but"
    assert done["wrong"].stderr.count(sentence) == 1
    assert not (folder / "wrong").exists()
