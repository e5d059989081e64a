"""Checkpoints: what is kept, and what happens when the disk is full or a file is damaged."""

from __future__ import annotations

import errno
import json
import os
import re
import weakref
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fenchel.runs
import fenchel.training
from fenchel import FenchelError
from fenchel.runs import checkpoint as checkpoint_module
from fenchel.runs import files as files_module
from fenchel.runs import load_checkpoint
from fenchel.runs import tensors as tensors_module
from fenchel.runs.checkpoint import CheckpointStore
from fenchel.runs.errors import TrainingError
from fenchel.runs.tensors import pack, unpack
from tests.training.tiny import TinyModel, trainer


def steps(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_the_best_and_the_last_ones_are_kept(tmp_path):
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0])
    trainer(
        tmp_path,
        max_epochs=5,
        keep_checkpoints=2,
        validate=lambda model: {"loss": next(losses)},
        extra={"vocabulary": ["a", "б"]},
    ).run()
    assert steps(tmp_path) == ["step-00000010", "step-00000020", "step-00000025"]
    best, latest = (
        load_checkpoint(tmp_path),
        load_checkpoint(tmp_path, "latest", weights_only=False),
    )
    assert (best.state["step"], latest.state["step"]) == (10, 25)
    assert best.state["best"] == 1.0
    assert best.state["extra"] == {"vocabulary": ["a", "б"]}
    assert best.tensors.keys() == {"model"}
    assert latest.tensors.keys() == {"model", "optimizer", "random"}


def test_weights_come_back(tmp_path):
    trained = trainer(tmp_path)
    trained.run()
    model = TinyModel(seed=9)
    load_checkpoint(tmp_path, "latest").load_weights(model)
    for name, value in trained.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_weights_of_another_model_are_refused_in_one_sentence(tmp_path):
    trainer(tmp_path).run()
    checkpoint, model = load_checkpoint(tmp_path, "latest"), TinyModel(seed=9)
    name, tensor = next(iter(model.state_dict().items()))
    checkpoint.tensors["model"][name] = tensor.new_zeros(7, 7)
    for other, said in (
        (torch.nn.Linear(2, 3), "weight is absent and not of shape (3, 2)"),
        (model, f"{name} is of shape (7, 7) and not of shape {tuple(tensor.shape)}"),
    ):
        with pytest.raises(FenchelError) as error:
            checkpoint.load_weights(other)
        assert str(error.value) == (
            f"{checkpoint.path}: expected the weights of this model, but they are another's, "
            f"where {said}; build the model with the config of the run."
        )


def test_tied_tensors_are_stored_once_and_views_apart(tmp_path):
    base = torch.arange(6.0)
    tensors = {"a": base, "b": base, "tail": base[3:], "none": torch.zeros(0), "n": torch.tensor(3)}
    data = b"".join(pack(tensors))
    path = tmp_path / "tensors.safetensors"
    path.write_bytes(data)
    back = unpack(path)
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())
    assert back["a"] is back["b"]
    assert data.count(base.numpy().tobytes()) == 1
    assert b"".join(pack(tensors)) == data


def test_files_are_the_library_s(tmp_path):
    """Every dtype, names that need escapes, and small tensors between large ones."""
    kinds = [getattr(torch, name) for name in tensors_module.DTYPES]
    tensors = {f'a/{kind} "ж"': torch.arange(5).to(kind) for kind in kinds}
    tensors |= {
        "large": torch.rand(400_000),
        "scalar": torch.tensor(2.5),
        "transposed": torch.rand(9, 2).T,
        "spread": torch.tensor(3.0).expand(4),
        "one of a row": torch.rand(1, 5)[:, 0],
        "of no stride": torch.tensor(1.0).expand(1),
    }
    path = tmp_path / "tensors.safetensors"
    path.write_bytes(b"".join(pack(tensors)))
    back = safetensors.torch.load_file(path)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape
        assert back[name].tolist() == tensor.tolist() == unpack(path)[name].tolist()


def test_files_that_the_library_wrote_are_read(tmp_path):
    path = tmp_path / "tensors.safetensors"
    base = torch.rand(3)
    safetensors.torch.save_file({"a": base}, path, metadata={"shared": json.dumps({"b": "a"})})
    back = unpack(path)
    assert torch.equal(back["a"], base) and back["b"] is back["a"]


def test_tensors_are_gathered_one_at_a_time(monkeypatch):
    """Of a model in parts, no more than two are in memory as a whole."""
    gathered = []

    def whole(tensor):
        value = tensor.clone()
        gathered.append(weakref.ref(value))
        return value

    monkeypatch.setattr(tensors_module, "whole", whole)
    tensors = {f"layer {i}": torch.rand(300_000) for i in range(6)}
    alive = [sum(ref() is not None for ref in gathered) for _ in pack(tensors)]
    assert len(gathered) == 6 and max(alive) <= 2


def test_only_tensors_of_known_types_are_stored():
    message = r"`x` to have one of the dtypes float64, .*bool, but got complex128; convert it"
    with pytest.raises(FenchelError, match=message):
        next(pack({"x": torch.zeros(2, dtype=torch.complex128)}))


def test_only_tensors_are_stored():
    with pytest.raises(FenchelError, match="expected `x` to be a tensor, but got dict"):
        next(pack({"x": {}}))


def test_nothing_can_be_unpickled():
    rooms = (Path(room.__file__).parent for room in (fenchel.runs, fenchel.training))
    for path in (path for room in rooms for path in room.rglob("*.py")):
        assert not re.search(r"pickle|torch\.load|torch\.save", path.read_text()), path


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks the system for file names")
def test_files_reach_the_disk_before_the_pointer_moves(tmp_path, monkeypatch):
    events = []
    replace = os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: events.append(Path(f"/proc/self/fd/{fd}").resolve())
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b)))
    CheckpointStore(tmp_path).save({"model": {"w": torch.ones(2)}}, {"step": 7}, best=True)
    names = [event if isinstance(event, str) else event.name for event in events]
    assert names == [
        "model.safetensors",
        "state.json",
        "step-00000007.partial",
        "step-00000007",
        "checkpoints",
        ".checkpoints.json.tmp",
        "checkpoints.json",
        tmp_path.name,
    ]


@pytest.mark.parametrize("failing", range(10))
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, failing):
    """Fails at each write of the second epoch: the config, records, four files, the pointer."""
    trainer(tmp_path, max_epochs=1).run()
    good = load_checkpoint(tmp_path, "latest", weights_only=False)
    count, write_all = 0, files_module.write_all

    def full(descriptor, data):
        nonlocal count
        count += 1
        if count > failing:
            os.write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(descriptor, data)

    monkeypatch.setattr(files_module, "write_all", full)
    monkeypatch.setattr(fenchel.training._records, "write_all", full)
    with pytest.raises(TrainingError) as error:
        trainer(tmp_path, max_epochs=2).run(resume=True)
    assert str(error.value) == (
        f"the disk of {tmp_path} is full; free some space and resume: the checkpoint "
        f"{good.path} is kept."
    )
    assert steps(tmp_path) == ["step-00000005"]
    monkeypatch.undo()
    assert trainer(tmp_path, max_epochs=2).run(resume=True).step == 10
    trainer(tmp_path / "straight", max_epochs=2).run()
    for name in ("model", "optimizer", "random"):
        found, expected = (
            load_checkpoint(path, "latest").path / f"{name}.safetensors"
            for path in (tmp_path, tmp_path / "straight")
        )
        assert found.read_bytes() == expected.read_bytes()


def test_other_errors_of_the_disk_are_not_renamed(tmp_path, monkeypatch):
    def broken(path, data):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_module, "write_file", broken)
    with pytest.raises(OSError, match="Input/output error"):
        trainer(tmp_path).run()


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink], ids=["flip", "cut", "gone"])
def test_a_damaged_checkpoint_is_refused_and_left(tmp_path, name, damage):
    trainer(tmp_path, max_epochs=1).run()
    path = tmp_path / "checkpoints" / "step-00000005" / name
    damage(path)
    if (name, damage) == ("state.json", flip):
        path.write_bytes(b"\xff" + path.read_bytes())  # its last byte is white space
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    words = f"{path}: expected a complete checkpoint, but the file is damaged or missing ("
    again = trainer(tmp_path, max_epochs=2)
    weights = {name: value.clone() for name, value in again.model.state_dict().items()}
    with pytest.raises(FenchelError, match=re.escape(words)):
        again.run(resume=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert all(torch.equal(value, weights[k]) for k, value in again.model.state_dict().items())


def test_a_checkpoint_that_is_removed_while_it_is_read(tmp_path, monkeypatch):
    """By the training that goes on beside it."""
    trainer(tmp_path, max_epochs=1).run()
    check = checkpoint_module._check_digest

    def then_removed(path, state):
        check(path, state)
        path.unlink()

    monkeypatch.setattr(checkpoint_module, "_check_digest", then_removed)
    with pytest.raises(FenchelError, match=r"model.safetensors: .* damaged or missing \(No such"):
        load_checkpoint(tmp_path)


def test_what_cannot_be_stored_leaves_nothing_behind(tmp_path):
    trainer(tmp_path, max_epochs=1).run()
    with pytest.raises(FenchelError, match="complex128"):
        CheckpointStore(tmp_path).save(
            {"model": {"x": torch.zeros(1, dtype=torch.complex128)}}, {"step": 9}, best=False
        )
    assert steps(tmp_path) == ["step-00000005"]


@pytest.mark.parametrize("name", ["checkpoints.json", "checkpoints/step-00000005/state.json"])
@pytest.mark.parametrize("resume", [True, False])
def test_another_format_is_refused_and_left(tmp_path, name, resume):
    trainer(tmp_path, max_epochs=1).run()
    path = tmp_path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path, max_epochs=2).run(resume=resume)
    if resume:
        assert str(error.value) == (
            f"{path}: expected checkpoint format 1, but got 99; use the version of fenchel that "
            f"wrote it, or start a new run in another directory."
        )
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "expected a JSON object, but got list"),
        ('{"format": 1}', "expected the keys latest, best and kept, but got format; the file is"),
    ],
)
def test_a_strange_pointer_is_refused(tmp_path, text, words):
    (tmp_path / "checkpoints.json").write_text(text)
    with pytest.raises(FenchelError, match=re.escape(words)):
        load_checkpoint(tmp_path)


def test_a_state_that_lacks_something_is_refused(tmp_path):
    trainer(tmp_path, max_epochs=1).run()
    path = tmp_path / "checkpoints" / "step-00000005" / "state.json"
    state = json.loads(path.read_text())
    del state["waited"]
    path.write_text(json.dumps(state))
    with pytest.raises(FenchelError, match="expected a training state, but it lacks waited"):
        trainer(tmp_path, max_epochs=2).run(resume=True)


def test_no_checkpoint(tmp_path):
    with pytest.raises(FenchelError) as error:
        load_checkpoint(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: expected a run with a best checkpoint, but there is none."
    )
