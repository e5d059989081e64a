"""Two processes train what one trains: curves, checkpoints, resuming, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fenchel.runs import load_checkpoint
from fenchel.tasks import DataConfig, start_run, train_run
from tests.cli.cases import write_inflection
from tests.processes import run_checks
from tests.training.distributed.ranks_cases import CASES, SINGLE, folder_of, trainer
from tests.training.distributed.ranks_checks import TASKS
from tests.training.killed import outcome

# On one worker: what they share takes long to make.
pytestmark = pytest.mark.xdist_group("ranks")

CHECKED = "tests.training.distributed.ranks_checks"
RUNS = ("curves", "resumes", "moves", "a_task")
CHECKS = (
    "a_signal_to_one_rank_stops_all",
    "the_clock_of_rank_0_counts",
    "metrics_are_those_of_rank_0",
    "ranks_start_from_the_weights_of_rank_0",
    "a_loss_that_is_no_number",
    "a_wrong_metric",
    "a_full_disk",
    "a_disk_that_fills_up",
    "refusals",
    "other_files_on_another_machine",
    "an_output_layer_in_parts",
    "bf16",
    "unused_parameters",
    "a_rank_that_hangs",
)
CURVES = [(name, torch.float64) for name in CASES] + [(name, torch.float32) for name in SINGLE]
MOVED = ("lstm", "fsdp, tied", "fsdp, vocabulary")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, dict[str, list[str]]]:
    """A folder for each check with what two ranks have left there, and the errors of each."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "a_task").mkdir()
    write_inflection(folder / "a_task")
    for name in MOVED:
        trainer(name, folder / "moves" / name / "one, then two", max_epochs=1).run()
    return folder, run_checks([CHECKED], (*RUNS, *CHECKS), folder=folder)


def ran(two, name: str) -> Path:
    folder, errors = two
    assert not errors[name], "\n".join(errors[name])
    return folder / name


def records(run_dir: Path, kind: str) -> list[dict]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


def assert_same_run(one: Path, other: Path, tolerance: float) -> None:
    """The loss of each step, all metrics, and the weights and averages at the end."""
    for kind, keys in (("train", ("step", "loss", "gradient_norm", "tokens")), ("validation", ())):
        found, wanted = records(one, kind), records(other, kind)
        assert len(found) == len(wanted) > 0
        for a, b in zip(found, wanted, strict=True):
            a, b = ({key: r[key] for key in keys} | r.get("metrics", {}) for r in (a, b))
            assert a == pytest.approx(b, abs=tolerance), kind
    if tolerance > 1e-9:
        return  # Adam makes large steps of gradients that are 0 but for rounding
    ends = [load_checkpoint(path, "latest", weights_only=False) for path in (one, other)]
    for group in ("model", "optimizer"):
        found, wanted = (end.tensors[group] for end in ends)
        assert found.keys() == wanted.keys()
        for name, tensor in found.items():
            assert type(tensor) is torch.Tensor and tensor.dtype == wanted[name].dtype
            torch.testing.assert_close(tensor, wanted[name], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("name", "dtype"), CURVES, ids=lambda value: str(value))
def test_the_curve_is_that_of_one_process(two, tmp_path, name, dtype):
    trainer(name, tmp_path, dtype).run()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert_same_run(ran(two, "curves") / folder_of(name, dtype), tmp_path, tolerance)


def test_two_ranks_differ_from_one_in_dropout_only_and_each_has_its_own(two, tmp_path):
    trainer("transformer", tmp_path, dropout=0.2).run()
    run = ran(two, "resumes") / "transformer" / "straight"
    alone, both = (load_checkpoint(path, "latest", weights_only=False) for path in (tmp_path, run))
    assert both.tensors["random"].keys() == {"cpu", "rank-1/cpu"}
    assert not torch.equal(both.tensors["random"]["cpu"], both.tensors["random"]["rank-1/cpu"])
    name = "encoder.0.feedforward.0.weight"
    assert not torch.equal(alone.tensors["model"][name], both.tensors["model"][name])


@pytest.mark.parametrize("name", ["transformer", "fsdp, vocabulary"])
def test_a_stopped_run_resumes_bit_for_bit(two, name):
    run = ran(two, "resumes") / name
    assert outcome(run / "stopped") == outcome(run / "straight")


def test_so_does_one_of_three_ranks(two, tmp_path):
    errors = run_checks([CHECKED], ["resumes_ddp"], ranks=3, folder=tmp_path)
    run = ran((tmp_path, errors), "resumes_ddp") / "transformer"
    assert outcome(run / "stopped") == outcome(run / "straight")


@pytest.mark.parametrize("name", ["rank_0_cannot_gather", "rank_1_cannot_gather"])
def test_a_tensor_that_cannot_be_gathered_for_a_checkpoint(tmp_path, name):
    errors = run_checks([CHECKED], [name], folder=tmp_path)
    ran((tmp_path, errors), name)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_validated_as_by_one_process(two, tmp_path, name):
    both = ran(two, "a_task")
    kind, settings = TASKS[name]
    files = (str(both / "english-train"),)
    run = start_run(
        tmp_path / "run", "inflection", DataConfig(files, files), model=kind, settings=settings
    )
    train_run(run, show_progress=False)
    found, wanted = (
        [record["metrics"] for record in records(path, "validation")]
        for path in (both / name, tmp_path / "run")
    )
    assert found == wanted and len(found) == 4
    assert wanted[0] != wanted[-1]  # a model that says nothing is validated alike by all


def test_a_signal_to_one_rank_stops_all_and_the_run_resumes_bit_for_bit(two):
    stopped = ran(two, "a_signal_to_one_rank_stops_all") / "stopped"
    assert outcome(stopped) == outcome(ran(two, "resumes") / "transformer" / "straight")


@pytest.mark.parametrize("name", MOVED)
def test_another_number_of_processes_goes_on(two, tmp_path, name):
    trainer(name, tmp_path).run()
    run = ran(two, "moves") / name
    trainer(name, run / "two, then one").run(resume=True)
    for moved in ("two, then one", "one, then two"):
        assert_same_run(run / moved, tmp_path, 1e-12)


def test_ranks_start_from_the_weights_of_rank_0(two):
    folder = ran(two, "ranks_start_from_the_weights_of_rank_0")
    for number in range(3):
        assert outcome(folder / str(number)) == outcome(folder / f"{number}-alike")


@pytest.mark.parametrize("name", CHECKS)
def test_check(two, name):
    ran(two, name)
