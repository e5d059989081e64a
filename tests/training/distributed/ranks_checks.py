"""What two ranks do, each of them: runs that tests compare with others, and checks of their own."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from fenchel import FenchelError
from fenchel.models import Batch
from fenchel.runs import files as files_module
from fenchel.runs import tensors as tensors_module
from fenchel.runs.errors import RankError, TrainingError
from fenchel.tasks import DataConfig, prepare_run, train_run
from fenchel.training import _session
from fenchel.training.distributed._ranks import Ranks
from tests.training.distributed.ranks_cases import CASES, SINGLE, folder_of, pairs, trainer

DROPOUT = 0.2
TINY = ["train.max_epochs=4", "train.learning_rate=0.02", "train.batch_size=8", "model.dropout=0"]
SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.feedforward=16"]
SHARDED = ["train.parallel=fsdp", "train.vocabulary_parallel=true", "train.schedule=constant"]
TASKS = {
    "lstm": ("lstm", [*TINY, "model.hidden=32", "model.embedding=16", "model.layers=1"]),
    "transformer": ("transformer", [*TINY, *SMALL, *SHARDED]),
}


def curves(folder: Path) -> None:
    """All cases."""
    for name in CASES:
        for dtype in (torch.float64, torch.float32)[: 1 + (name in SINGLE)]:
            trainer(name, folder / folder_of(name, dtype), dtype).run()


def resumes(folder: Path, names: Sequence[str] = ("transformer", "fsdp, vocabulary")) -> None:
    """Straight to the end, and with a stop, in which the generators of all ranks matter."""
    for name in names:
        trainer(name, folder / name / "straight", dropout=DROPOUT).run()
        trainer(name, folder / name / "stopped", dropout=DROPOUT, max_epochs=1).run()
        trainer(name, folder / name / "stopped", dropout=DROPOUT).run(resume=True)


def resumes_ddp(folder: Path) -> None:
    """With three ranks, a sum depends on its order."""
    resumes(folder, ("transformer",))


def moves(folder: Path) -> None:
    """The first half of a run that one process ends, and the second half of one that it began."""
    for name in ("lstm", "fsdp, tied", "fsdp, vocabulary"):
        trainer(name, folder / name / "two, then one", max_epochs=1).run()
        trainer(name, folder / name / "one, then two").run(resume=True)


def a_signal_to_one_rank_stops_all(folder: Path) -> None:
    """After the same step, and a second signal changes nothing: torchrun sends it."""
    calls = []

    def collate(examples: list) -> Batch:
        calls.append(examples)
        if len(calls) == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return Batch.collate(examples)

    stopped = trainer("transformer", folder / "stopped", dropout=DROPOUT, collate=collate).run()
    assert (stopped.reason, stopped.step) == ("interrupted", 2)
    trainer("transformer", folder / "stopped", dropout=DROPOUT).run(resume=True)


def the_clock_of_rank_0_counts(folder: Path) -> None:
    for ahead, reason in ((1, "max_epochs"), (0, "max_minutes")):
        hours = 3600.0 * (dist.get_rank() == ahead)
        now = [0.0]

        def clock(now: list[float] = now, hours: float = hours) -> float:
            now[0] += hours
            return now[0]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_session, "clock", clock)
            result = trainer("transformer", folder / reason, max_minutes=20.0).run()
        assert result.reason == reason


def metrics_are_those_of_rank_0(folder: Path) -> None:
    result = trainer(
        "lstm", folder, max_steps=1, validate=lambda _: {"loss": dist.get_rank()}
    ).run()
    assert result.best == 0


def ranks_start_from_the_weights_of_rank_0(folder: Path) -> None:
    for number, name in enumerate(("lstm", "fsdp", "vocabulary")):
        run = trainer(name, folder / str(number), max_steps=1)
        if dist.get_rank() == 1:
            for parameter in run.model.parameters():
                torch.nn.init.normal_(parameter)
        run.run()
        trainer(name, folder / f"{number}-alike", max_steps=1).run()


def a_loss_that_is_no_number(folder: Path) -> None:
    calls = []

    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        calls.append(batch)
        wrong = len(calls) == 3 and dist.get_rank() == 1
        return model.loss(batch) * (float("nan") if wrong else 1.0)

    _fails(
        lambda: trainer("lstm", folder, loss=loss).run(),
        TrainingError,
        "the loss is nan at step 3 (epoch 1, batch 3 of 3); lower learning_rate or clip_norm: the "
        f"checkpoint {folder / 'checkpoints' / 'step-00000000'} is kept.",
    )


def a_wrong_metric(folder: Path) -> None:
    _fails(
        lambda: trainer("lstm", folder, metric="accuracy").run(),
        FenchelError,
        "Trainer: expected `validate` to return the metric 'accuracy', but got loss, answers; set "
        "`metric` to one of them.",
    )


def a_full_disk(folder: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise TrainingError("the disk is full")

    run = trainer("lstm", folder)
    run._store.save = full  # type: ignore[method-assign]
    _fails(run.run, TrainingError, "the disk is full")


def a_disk_that_fills_up(folder: Path) -> None:
    """In the middle of a file, while rank 0 still gathers what it is to write."""
    write, chunk = files_module.write_all, tensors_module._CHUNK

    def full(descriptor: int, data: bytes | memoryview) -> None:
        if len(data) < 500:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor, data)

    trainer("fsdp", folder, max_epochs=1).run()
    files_module.write_all, tensors_module._CHUNK = full, 1000
    try:
        last = str(max((folder / "checkpoints").iterdir()))
        sentence = (
            f"the disk of {folder} is full; free some space and resume: the checkpoint {last} is "
            f"kept."
        )
        _fails(lambda: trainer("fsdp", folder).run(resume=True), TrainingError, sentence)
    finally:
        files_module.write_all, tensors_module._CHUNK = write, chunk
    trainer("fsdp", folder).run(resume=True)


def rank_0_cannot_gather(folder: Path) -> None:
    """What it is to write."""
    _cannot_gather(folder, 0)


def rank_1_cannot_gather(folder: Path) -> None:
    """What rank 0 is to write."""
    _cannot_gather(folder, 1)


def refusals(folder: Path) -> None:
    """Before anything is written."""
    deals = "TrainConfig: `vocabulary_parallel` deals out the tokens of the output layer"
    cases = {
        "TrainConfig: `parallel: fsdp` shards the layers of a Transformer, but the model is "
        "LSTMSeq2Seq, which has none to shard; use ddp.": ("lstm", {"parallel": "fsdp"}),
        f"{deals}, but its weight is tied to source_embedding.weight, which every rank needs "
        "whole; set model.tied_embeddings=false.": ("lstm, tied", {"vocabulary_parallel": True}),
        f"{deals}, for which it expects a model of fenchel.models with its own loss, but got "
        "LSTMSeq2Seq.": ("vocabulary, softmax", {"loss": lambda m, b: m.loss(b)}),
        "TrainConfig: expected `device` to be cuda with several processes, each of which takes its "
        "own GPU, but got 'cuda:1'.": ("lstm", {"device": "cuda:1"}),
    }
    for sentence, (name, fields) in cases.items():
        _fails(trainer(name, folder / "run", **fields).run, FenchelError, sentence)
    assert not (folder / "run").exists()
    run = trainer("fsdp", folder / "first", max_steps=1)
    run.run()
    run.run_dir = folder / "second"
    _fails(
        run.run,
        FenchelError,
        "Trainer: expected a whole model, but this FSDPTransformerSeq2Seq is sharded already; "
        "build it again for another run.",
    )
    _fails(
        lambda: trainer("lstm", folder / "first").run(),
        FenchelError,
        f"{folder / 'first'}: expected a directory without a run, but it holds one; resume it or "
        "choose another directory.",
    )


def other_files_on_another_machine(folder: Path) -> None:
    rank = dist.get_rank()
    with pytest.raises((FenchelError, RankError), match="all ranks to see the same training data"):
        trainer("lstm", folder / "data", examples=pairs()[rank:]).run()
    trainer("lstm", folder / "rank-0", max_steps=1).run()
    with pytest.raises((FenchelError, RankError), match=r"same checkpoint, .* step-\d+, None; put"):
        trainer("lstm", folder / f"rank-{rank}").run(resume=True)


def an_output_layer_in_parts(folder: Path) -> None:
    run = trainer("vocabulary", folder, max_steps=1)
    run.run()
    weight = run.model.output.weight
    assert weight.shape == (13, 8) and weight.to_local().shape == (7 - dist.get_rank(), 8)
    with pytest.raises(FenchelError, match=r"^ShardedOutput: expected `with layer.gathered\(\):`"):
        run.model.eval().probabilities(Batch.collate(pairs()[:1]))


def unused_parameters(folder: Path) -> None:
    """They stay as they are, as in one process."""
    run = trainer("lstm", folder, weight_decay=0.1)
    run.model.spare = torch.nn.Parameter(torch.ones(3))
    run.run()
    assert run.model.spare.grad is None and torch.equal(run.model.spare, torch.ones(3))


def a_task(folder: Path) -> None:
    """Its validation is shared, or in lockstep where weights are sharded."""
    ranks = Ranks()
    for name, (kind, settings) in TASKS.items():
        data = DataConfig((str(folder / "english-train"),), (str(folder / "english-train"),))
        run, resume = prepare_run(
            folder / name, "inflection", data, ranks, model=kind, settings=settings
        )
        train_run(run, resume=resume, show_progress=False)


def bf16(folder: Path) -> None:
    for number, name in enumerate(("transformer", "fsdp, vocabulary")):
        result = trainer(name, folder / str(number), torch.float32, bf16=True).run()
        assert result.best is not None and 0.8 < result.best < 1.0


def a_rank_that_hangs(folder: Path) -> None:
    """Until the other one has given up. The last check: what waited cannot be used again."""
    rank, told = dist.get_rank(), folder / "told"

    def collate(examples: list) -> Batch:
        while rank == 1 and not told.exists():
            time.sleep(0.05)
        return Batch.collate(examples)

    with pytest.raises(TrainingError) as error:
        trainer("lstm", folder, collate=collate, timeout_minutes=0.03).run()
    assert str(error.value) == (
        f"rank {rank} of 2 gets no answer from the others: one has ended, or is late by more than "
        "timeout_minutes = 0.03; start again to go on from the last checkpoint."
    )
    told.touch()


def _cannot_gather(folder: Path, failing: int) -> None:
    """The rank that has the trouble says so at once. Afterwards the ranks are out of step."""
    rank, whole, calls = dist.get_rank(), tensors_module.whole, [0]

    def fails(tensor: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if rank == failing and calls[0] == 5:
            raise MemoryError("no room for it")
        return whole(tensor)

    tensors_module.whole = fails
    start = time.perf_counter()
    with pytest.raises(MemoryError if rank == failing else TrainingError) as error:
        trainer("fsdp", folder, max_epochs=1, timeout_minutes=0.05).run()
    if rank == failing:
        assert str(error.value) == "no room for it" and time.perf_counter() - start < 2
    else:
        assert f"rank {rank} of 2 gets no answer from the others" in str(error.value)


def _fails(run: Callable[[], object], kind: type[Exception], sentence: str) -> None:
    """On rank 0 with its own error, on the other with one that repeats it."""
    leads = dist.get_rank() == 0
    with pytest.raises(kind if leads else RankError) as error:
        run()
    assert type(error.value) is (kind if leads else RankError)
    assert str(error.value) == (sentence if leads else f"rank 0: {sentence}")
