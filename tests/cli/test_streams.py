"""Standard streams that are closed, full or gone: as any other program of a shell."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from tests.cli.cases import write_inflection

COMMAND = [sys.executable, "-m", "fenchel"]
LEFT = "fenchel: standard output: "


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words"
    path.write_text("w\u00e4lk\tV;PST\n", "utf-8")
    return path


def broken_pipe() -> io.TextIOWrapper:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


COMMANDS = {
    "predict": ["predict", "--run", "{run}", "{words}"],
    "json": ["predict", "--run", "{run}", "{words}", "--format", "json"],
    "evaluate": ["evaluate", "--run", "{run}", "{data}"],
    "help": ["--help"],
    "version": ["--version"],
}


@pytest.fixture(params=COMMANDS)
def command(request, trained, words):
    names = {"run": trained[0], "data": trained[1], "words": words}
    return [word.format(**names) for word in COMMANDS[request.param]]


def test_closed_output(command, fenchel, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    done = fenchel(*command)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1] == LEFT + "Bad file descriptor."
    assert sys.stdout is None


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_output(command, fenchel, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        done = fenchel(*command)
        assert (done.code, done.out) == (1, "")
        assert done.err.splitlines()[-1] == LEFT + "No space left on device."
        monkeypatch.undo()


def test_output_that_nobody_reads(command, fenchel, monkeypatch):
    with broken_pipe() as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        done = fenchel(*command)
        assert done.code == 141 and "fenchel: " not in done.err
        monkeypatch.undo()


def test_notes_never_land_among_the_answers(trained, words, fenchel, monkeypatch):
    plain = fenchel("predict", "--run", trained[0], words)
    assert "note: " in plain.err
    streams = [None]
    if os.path.exists("/dev/full"):
        streams.append(open("/dev/full", "w"))  # noqa: SIM115
    for stream in streams:
        monkeypatch.setattr(sys, "stderr", stream)
        done = fenchel("predict", "--run", trained[0], words)
        assert (done.code, done.out, done.err) == (0, plain.out, "")
        assert fenchel("predict", "--run", "no").code == 2
        monkeypatch.undo()
    if streams[-1]:
        streams[-1].close()


def test_errors_that_nobody_reads(trained, words, fenchel, monkeypatch):
    with broken_pipe() as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        assert fenchel("predict", "--run", trained[0], words).code == 141
        assert fenchel("predict", "--run", "no").code == 2
        monkeypatch.undo()


def test_a_file_never_gets_the_number_of_a_closed_stream(trained, words, tmp_path):
    """With streams closed, the next file that is opened would get their numbers."""
    data = write_inflection(tmp_path)
    training = f"train inflection --run {tmp_path}/run --train {data} --dev {data} --set "
    training += "model.hidden=8 train.max_epochs=1"
    predict = f"predict --run {trained[0]} {words}"
    shell = [
        f"{' '.join(COMMAND)} {training} <&- >&- 2>&-; echo $? >{tmp_path}/1",
        f"{' '.join(COMMAND)} {predict} >{tmp_path}/out 2>&-; echo $? >{tmp_path}/2",
        f"{' '.join(COMMAND)} {predict} >&- 2>{tmp_path}/err; echo $? >{tmp_path}/3",
    ]
    subprocess.run(["sh", "-c", " & ".join(f"( {line} )" for line in shell) + "; wait"], check=True)
    assert [(tmp_path / name).read_text() for name in "123"] == ["0\n", "0\n", "1\n"]
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files and not any(b"validation: epoch" in path.read_bytes() for path in files)
    assert (tmp_path / "out").read_text("utf-8").startswith("w\u00e4lk\tw")
    assert len((tmp_path / "out").read_text("utf-8").splitlines()) == 1
    assert (tmp_path / "err").read_text().splitlines()[-1] == LEFT + "Bad file descriptor."
