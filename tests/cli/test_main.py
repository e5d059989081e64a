"""The command line as a process: exit codes, closed pipes, missing libraries."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import fenchel as fy
from tests.cli.cases import TINY, VERBS

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


def test_diverged_weights(trained, tmp_path, fenchel):
    words = ["train", "inflection", "--run", tmp_path / "run", "--train", trained[1], "--quiet"]
    done = fenchel(
        *words, "--dev", trained[1], "--set", *TINY, "train.learning_rate=10", "train.max_steps=20"
    )
    assert done.code == 1 and done.err.count("\n") == 1
    assert "beam_search" not in done.err and "lower learning_rate" in done.err


def test_a_model_that_has_diverged(trained, fenchel, monkeypatch):
    def ruin(runs, device):
        model = runs[0].model(device)
        for parameter in model.parameters():
            parameter.data.fill_(float("nan"))
        return model

    monkeypatch.setattr("fenchel.cli._predict.ensemble", ruin)
    for search in ([], ["--exact"]):
        done = fenchel("predict", "--run", trained[0], trained[1], *search)
        assert (done.code, done.err) == (
            2,
            "fenchel: expected a model whose probabilities are finite and sum to 1, but its "
            "weights have diverged; train it again with a smaller train.learning_rate.\n",
        )


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


def test_what_nobody_has_foreseen_is_one_line(fenchel, monkeypatch):
    def fail(*_, **__):
        raise TypeError("two\nlines, and \x1b[31m" + "x" * 9999)

    monkeypatch.setattr("fenchel.cli._predict.open_runs", fail)
    done = fenchel("predict", "--run", ".")
    assert done.code == 1 and done.err.count("\n") == 1 and len(done.err) < 600
    assert done.err.startswith(
        "fenchel: expected no error here, but got TypeError: 'two\\nlines, and"
    )
    assert "please report it with what FENCHEL_TRACEBACK=1 shows." in done.err
    monkeypatch.setenv("FENCHEL_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in fenchel("predict", "--run", ".").err


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_memory_that_is_used_up(fenchel, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("fenchel.cli._predict.open_runs", fail)
    done = fenchel("predict", "--run", ".")
    assert (done.code, done.err) == (
        1,
        "fenchel: expected to fit into memory, but it is used up; a smaller --batch, --beam or "
        "model needs less.\n",
    )


def test_output_is_utf8_in_any_locale(trained):
    done = run("predict", "--run", trained[0], "--support", input="walk\tV;PST\n",
               env={**os.environ, "PYTHONIOENCODING": "latin-1"})  # fmt: skip
    assert done.returncode == 0 and "⏎" in done.stdout
