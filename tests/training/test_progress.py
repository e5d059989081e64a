"""What training shows and writes: a live line, plain lines, JSON lines, TensorBoard."""

from __future__ import annotations

import io
import json
import sys
import warnings

import pytest
import torch

from fenchel._compat import MissingDependency
from fenchel.training._progress import Lines, Live, Silent, describe, make_progress
from fenchel.training._records import Records, observe
from tests.training.tiny import TinyModel, trainer

TRAIN = {
    "kind": "train",
    "epoch": 2,
    "step": 30,
    "loss": 1.25,
    "learning_rate": 0.001,
    "tokens_per_second": 12345.6,
    "support_size": 3.21,
    "alphas": {"encoder": [1.2, 1.5], "decoder": [1.91]},
}
VALIDATION = {
    "kind": "validation",
    "epoch": 2,
    "step": 30,
    "metrics": {"accuracy": 0.5, "loss": None},
    "improved": True,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_line_for_a_record():
    assert describe(TRAIN) == (
        "epoch 2 · step 30 · loss 1.2500 · lr 1.00e-03 · 12,346 tokens/s · support 3.2 · "
        "α 1.20–1.91"
    )
    assert describe(VALIDATION) == "epoch 2 · step 30 · accuracy 0.5000 · loss none · best so far"


def test_plain_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = make_progress(True, 100, stream)
    assert isinstance(progress, Lines)
    progress.step(TRAIN)
    progress.log(TRAIN)
    progress.log(VALIDATION)
    progress.close()
    assert stream.getvalue() == f"{describe(TRAIN)}\nvalidation: {describe(VALIDATION)}\n"


@pytest.mark.parametrize("total", [100, None])
def test_a_live_line_in_a_terminal(monkeypatch, total):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    progress = make_progress(True, total, stream)
    assert isinstance(progress, Live)
    progress.log(TRAIN)
    progress.step({"kind": "train", "epoch": 3, "step": 31, "loss": 1.0, "learning_rate": 0.001})
    progress.log(VALIDATION)
    progress.say("a word [x]")
    progress.close()
    text = stream.getvalue()
    # The step's own numbers, and the last log line's where it has none.
    assert "epoch 3 · step 31 · loss 1.0000 · lr 1.00e-03 · 12,346 tokens/s · support 3.2" in text
    assert "accuracy 0.5000" in text
    assert "a word [x]" in text


def test_nothing_is_shown_if_nobody_asks():
    stream = Terminal()
    progress = make_progress(False, 100, stream)
    assert isinstance(progress, Silent)
    progress.step(TRAIN)
    progress.log(TRAIN)
    progress.say("x")
    progress.close()
    assert stream.getvalue() == ""


def test_a_run_shows_itself_on_standard_error(tmp_path, capsys):
    trainer(tmp_path, max_epochs=1, show_progress=True).run()
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(" · ")[1] for line in err.splitlines()] == ["step 2", "step 4", "step 5"]


@pytest.mark.parametrize(
    ("alphas", "expected"),
    [
        (
            {"a": torch.tensor([[1.5], [2.0]]), "b": torch.tensor(1.25)},
            {"a": [1.5, 2.0], "b": [1.25]},
        ),
        ([1.5, torch.tensor(2.0)], {"alpha": [1.5, 2.0]}),
        ({"a": None}, None),
        ({}, None),
    ],
)
def test_learned_alphas(alphas, expected):
    model = TinyModel()
    model.alphas = lambda: alphas
    assert observe(model) == ({} if expected is None else {"alphas": expected})


@pytest.mark.parametrize(("size", "expected"), [(2.5, 2.5), (float("nan"), None), (None, None)])
def test_support_size(size, expected):
    model = TinyModel()
    model.support_size = lambda: size
    assert observe(model) == ({} if expected is None else {"support_size": expected})


def test_what_a_model_reports_is_recorded(tmp_path):
    model = TinyModel()
    model.alphas = lambda: {"a": model.hidden.bias[:1]}
    model.support_size = lambda: 4.5
    trainer(tmp_path, model=model, max_steps=2).run()
    record = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert record["support_size"] == 4.5
    assert record["alphas"] == {"a": [model.hidden.bias[0].item()]}


def test_records_are_cut_back(tmp_path):
    records = Records(tmp_path, size=0, step=0, tensorboard=False)
    records.write({"kind": "train", "step": 1, "loss": float("inf"), "é": [1.5, None]})
    size = records.sync()
    records.write({"kind": "train", "step": 2})
    records.close()
    path = tmp_path / "metrics.jsonl"
    first = path.read_bytes()[:size]
    assert json.loads(first) == {"kind": "train", "step": 1, "loss": None, "é": [1.5, None]}
    with path.open("ab") as file:
        file.write(b'{"half')
    Records(tmp_path, size=size, step=1, tensorboard=False).close()
    assert path.read_bytes() == first


def test_tensorboard(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tensorboard's own imports
        trainer(tmp_path, max_epochs=1, tensorboard=True).run()
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [2, 4]
    assert [event.step for event in events.Scalars("validation/loss")] == [5]
    trainer(tmp_path / "without", max_epochs=1).run()
    assert not (tmp_path / "without" / "tensorboard").exists()


def test_without_tensorboard_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependency, match=r'pip install "fenchel\[tensorboard\]"'):
        trainer(tmp_path, tensorboard=True).run()


def test_without_safetensors_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingDependency, match=r"a checkpoint needs safetensors, .*fenchel\[trai"):
        trainer(tmp_path).run()
