"""What `fenchel predict` reads: standard input, terminals, bad lines, files that are no text."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys

import pytest

from fenchel.cli import _output
from fenchel.tasks import files
from tests.cli.cases import is_harmless, train


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def give(monkeypatch, text: bytes, kind=io.TextIOWrapper) -> None:
    monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(text)))


def test_a_dash_is_standard_input(trained, fenchel, monkeypatch):
    give(monkeypatch, b"walk\tV;PST\n")
    assert fenchel("predict", "--run", trained[0], "-").out.startswith("walk\twalked\tV;PST\t")
    give(monkeypatch, b"walk\tV;PST\n")
    assert fenchel("predict", "-", "--run", trained[0]).out.startswith("walk\twalked\tV;PST\t")
    give(monkeypatch, trained[1].read_bytes())
    assert "16 examples" in fenchel("evaluate", "--run", trained[0], "-").out
    assert "Unused Tokens: ['-']" in fenchel("predict", "--run", trained[0], "a", "-").err


def test_a_terminal_is_told_that_it_is_waited_for(trained, fenchel, monkeypatch):
    give(monkeypatch, b"walk\tV;PST\nbait\tV;PST\n", Terminal)
    flushed, flush = [], _output._Stream.flush
    monkeypatch.setattr(_output._Stream, "flush", lambda self: (flushed.append(1), flush(self)))
    done = fenchel("predict", "--run", trained[0])
    assert done.err == "note: waiting for lines from the terminal; Ctrl-D ends them.\n"
    assert len(done.out.splitlines()) == 2 and len(flushed) >= 2  # an answer to each line at once
    give(monkeypatch, b"walk\tV;PST\n")
    assert fenchel("predict", "--run", trained[0]).err == ""
    give(monkeypatch, trained[1].read_bytes(), Terminal)
    assert fenchel("evaluate", "--run", trained[0], "-").err == done.err


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_a_bad_line_does_not_cost_the_answers_before_it(trained, tmp_path, fenchel, batch):
    path = tmp_path / "words"
    path.write_text("walk\tV;PST\nbait\tV;PST\nkick\tV;PST\nbad\nrake\tV;PST\n")
    done = fenchel("predict", "--run", trained[0], path, "--batch", batch)
    assert done.code == 2
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["walk", "bait", "kick"]
    assert done.err.startswith(f"fenchel: {path}:4: expected `lemma TAB tags` or")
    path.write_bytes(b"walk\tV;PST\nb\xe4it\tV;PST\n")
    done = fenchel("predict", "--run", trained[0], path, "--batch", batch)
    assert done.out.startswith("walk\twalked") and f"{path}:2: expected UTF-8 text" in done.err


def test_a_bad_line_is_cut(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text("x" * 100_000 + "\n")
    done = fenchel("predict", "--run", trained[0], path)
    assert done.code == 2 and len(done.err) < len(str(path)) + 200
    assert done.err.endswith("but got 1 column: '" + "x" * 59 + "…'.\n")


def test_a_file_without_line_ends_is_not_read_whole(trained, tmp_path, fenchel, monkeypatch):
    done = fenchel("predict", "--run", trained[0], "/dev/zero")
    assert (done.code, done.err) == (
        2,
        "fenchel: /dev/zero:1: expected a line of text of at most 1,048,576 bytes, but this one is "
        "longer.\n",
    )
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.write(b"walk\tV;PST\n")
        stream.truncate(5 << 30)
    sizes = []
    real = files._open

    class Counted:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.stream.close()

        def readline(self, size):
            sizes.append(size)
            return self.stream.readline(size)

    monkeypatch.setattr(files, "_open", lambda path: Counted(real(path)))
    done = fenchel("predict", "--run", trained[0], path)
    assert done.out.startswith("walk\twalked") and f"{path}:2: expected a line of" in done.err
    assert max(sizes) <= files.LONGEST_LINE + 1


def damaged(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


@pytest.mark.parametrize("kind", ["cut", "bits", "header", "checksum", "other"])
def test_gzip_files_that_are_damaged(trained, tmp_path, fenchel, kind):
    path = tmp_path / "english-words.gz"
    data = gzip.compress(b"walk\tV;PST\n" * 300)
    path.write_bytes(
        {
            "cut": data[:-12],
            "bits": damaged(data, 12),
            "header": damaged(data, 2),
            "checksum": damaged(data, len(data) - 6),
            "other": b"hello\n",
        }[kind]
    )
    done = fenchel("predict", "--run", trained[0], path, "--language", "english")
    assert done.code == 2 and "fault of fenchel" not in done.err
    assert done.err == f"fenchel: {path}: expected a whole gzip file, as its name says.\n"


@pytest.mark.parametrize("name", ["", ".", "/proc/self/mem", "x" * 5000, "no/such", "/dev/null"])
def test_what_is_no_file(trained, fenchel, name):
    done = fenchel("predict", "--run", trained[0], name)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1 and "fault of fenchel" not in done.err


def test_random_input_is_answered_or_refused(trained, tmp_path, fenchel):
    """Whatever comes in: a line of five columns for each answer, one sentence, no traceback."""
    choice = random.Random(0)
    pieces = [
        "walk",
        "bait",
        "\t",
        "\t",
        "\n",
        "\n",
        "V;PST",
        "V",
        ";",
        " ",
        "\x1b[31m",
        "\r",
        "\x85",
    ]
    pieces += ["\u2028", "\u202e", "\x0b", "\x1c", "\\", "\ufeff", "é", "e\u0301", "𝒳", "{", "|"]
    pieces += ["\0", "\udcff"]
    answered = refused = 0
    for number in range(150):
        count = choice.choice((3, 10, 40))
        some = pieces if number % 3 else pieces[:-2]
        text = "".join(choice.choices(some, k=count))
        text = "walk\tV;PST\n" * choice.choice((0, 2)) + text
        path = tmp_path / f"words{number}"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        done = fenchel("predict", "--run", trained[0], path, "--batch", choice.choice((1, 64)))
        lines = done.out.split("\n")[:-1]
        assert done.code in (0, 2) and is_harmless(done.out) and is_harmless(done.err)
        assert lines == done.out.splitlines() and all(len(x.split("\t")) == 5 for x in lines)
        complaints = [x for x in done.err.splitlines() if not x.startswith("note: ")]
        assert len(complaints) == (done.code == 2) and "fault of fenchel" not in done.err
        answered, refused = answered + len(lines), refused + len(complaints)
    assert answered > 100 and refused > 50


def test_closed_standard_input(trained, fenchel, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    done = fenchel("predict", "--run", trained[0])
    assert (done.code, done.err) == (
        2, "fenchel: <stdin>: expected lines on standard input, but it is closed.\n"
    )  # fmt: skip


def test_names_that_are_not_utf8(trained, tmp_path, fenchel):
    data = tmp_path / os.fsdecode(b"w\xff\x1b")
    data.write_text("walk\tV;PST\nw\u00e4lk\tV;PST\nbad\n", "utf-8")
    done = fenchel("predict", "--run", trained[0], data)
    assert done.code == 2 and len(done.out.splitlines()) == 2
    assert [line.rpartition("/")[2][:9] for line in done.err.splitlines()] == ["w\\xff\\x1b"] * 2
    done = fenchel("predict", "--run", trained[0], data, "--format", "json")
    assert '"place": "' in done.out and "w\\udcff\\u001b:1" in done.out
    run = tmp_path / os.fsdecode(b"r\xff")
    files = ["--train", trained[1], "--dev", trained[1]]
    for arguments in (
        ["predict", "--run", run], ["evaluate", "--run", run, trained[1]],
        ["train", "inflection", "--run", run, *files], ["demo", "--out", run],
    ):  # fmt: skip
        done = fenchel(*arguments)
        assert done.code == 2 and "\\xff; rename it, or choose another.\n" in done.err
    assert "r\\xff" in fenchel(os.fsdecode(b"r\xff")).err
    assert not run.exists()


def test_files_to_train_on_that_are_not_utf8(trained, tmp_path, fenchel):
    data = tmp_path / os.fsdecode(b"engl\xff-train")
    data.write_bytes(trained[1].read_bytes())
    words = ["train", "inflection", "--run", tmp_path / "run", "--train", data, "--dev", data]
    done = fenchel(*words)
    assert done.code == 2 and "expected the name of a language in UTF-8, but got" in done.err
    done = fenchel(*words, "--language", os.fsdecode(b"\xff"))
    assert done.code == 2 and done.err.startswith("fenchel: --language: expected the name of a")
    assert not (tmp_path / "run").exists()
    few = ["--quiet", "--set", "model.hidden=8", "train.max_epochs=1"]
    assert fenchel(*words, "--language", "english", *few).code == 0
    few[-1] = "train.max_epochs=2"
    assert fenchel("train", "inflection", "--run", tmp_path / "run", "--resume", *few).code == 0


def test_a_config_does_not_show_what_is_in_a_file(tmp_path, fenchel, trained):
    secret = tmp_path / "english-secret"
    secret.write_text("root:x:0:0:hunter2\n")
    run = tmp_path / "run"
    assert train(run, trained[1], epochs=1) == 0
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(trained[1]), str(secret)))
    done = fenchel("train", "inflection", "--run", run, "--resume", "--set", "train.max_epochs=2")
    assert done.code == 2 and "hunter2" not in done.err
    # Whoever names the file may see the line.
    words = ["train", "inflection", "--run", tmp_path / "new", "--train", secret, "--dev", secret]
    assert "hunter2" in fenchel(*words).err
