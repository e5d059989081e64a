"""The command line as a process: exit codes, closed pipes, missing libraries."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import fenchel as fy
from tests.cli.cases import VERBS

COMMAND = [sys.executable, "-c", "import sys; from fenchel.cli import main; sys.exit(main())"]


def run(*arguments: object, **options) -> subprocess.CompletedProcess:
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, encoding="utf-8", **options)


def test_version(fenchel):
    assert fenchel("--version").out == f"{fy.__version__}\n"


def test_help_names_the_commands(fenchel):
    done = fenchel("--help")
    assert done.code == 0
    assert all(name in done.out for name in ("train", "predict", "evaluate", "demo"))
    assert "--nbest" in fenchel("predict", "--help").out
    assert "translation" in fenchel("train").out


@pytest.mark.parametrize(
    "arguments",
    [["translate"], ["predict"], ["predict", "--run", ".", "--nbest", "many"],
     ["evaluate", "--run", "."]],
)  # fmt: skip
def test_wrong_arguments_are_one_line(fenchel, arguments):
    done = fenchel(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("fenchel: ") and done.err.count("\n") == 1


def test_process(trained):
    done = run("predict", "--run", trained[0], input="walk\tV;PST\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("walk\twalked\t")
    done = run("predict", "--run", trained[0], input="walk\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "fenchel: <stdin>:1: expected `lemma TAB tags` or `lemma TAB form TAB tags`, but got 1 "
        "column: 'walk'.\n"
    )


def test_closed_pipe(trained, tmp_path):
    path = tmp_path / "words"
    path.write_text("".join(f"{verb}\tV;PST\n" for verb in VERBS) * 40)
    words = [*COMMAND, "predict", "--run", str(trained[0]), str(path), "--batch", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"walk\twalked")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_failure_of_a_write_is_code_1(trained, tmp_path, fenchel, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "checkpoint")

    monkeypatch.setattr("fenchel.cli._train.prepare_run", full)
    data = trained[1]
    done = fenchel("train", "inflection", "--run", tmp_path, "--train", data, "--dev", data)
    assert (done.code, done.err) == (1, "fenchel: checkpoint: No space left on device.\n")


@pytest.mark.parametrize("library", ["cyclopts", "yaml"])
def test_missing_library(trained, fenchel, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    done = fenchel("predict", "--run", trained[0], trained[1])
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1 and 'pip install "fenchel[train]"' in done.err


def test_interrupt(fenchel, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fenchel.cli._predict.open_runs", stop)
    done = fenchel("predict", "--run", ".")
    assert (done.code, done.err) == (130, "fenchel: interrupted.\n")


def test_output_is_utf8_in_any_locale(trained):
    done = run("predict", "--run", trained[0], "--support", input="walk\tV;PST\n",
               env={**os.environ, "PYTHONIOENCODING": "latin-1"})  # fmt: skip
    assert done.returncode == 0 and "⏎" in done.stdout
