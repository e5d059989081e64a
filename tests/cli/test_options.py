"""Options that are wrong: one sentence with the nearest value that is right, before any work."""

from __future__ import annotations

import os

import pytest

from fenchel import FenchelError
from fenchel.tasks import SearchOptions

HUGE = str(10**23)


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words"
    path.write_text("walk\tV;PST\n")
    return path


@pytest.fixture
def no_work(monkeypatch):
    """Fail if a command gets as far as opening a run."""

    def opened(*_):
        raise AssertionError("the run was opened")

    monkeypatch.setattr("fenchel.cli._predict.open_runs", opened)
    monkeypatch.setattr("fenchel.cli._evaluate.open_runs", opened)
    monkeypatch.setattr("fenchel.cli._demo.make_demo_data", opened)


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ("0", "1"), ("-1", "1"), ("1.5", "2"), ("2.4", "2"), ("1e3", "1000"), ("nan", "1"),
        ("", "1"), ("many", "1"), ("[/red]", "1"), ("9" * 5000, None), (HUGE, None), ("inf", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["beam", "nbest", "budget", "max-length", "batch"])
def test_whole_numbers(words, fenchel, no_work, option, value, nearest):
    done = fenchel("predict", "--run", "no", words, f"--{option}", value)
    most = "1,000,000,000" if option == "budget" else "1,000,000"
    cut = value if len(value) <= 40 else value[:39] + "…"
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"fenchel: --{option}: expected a whole number from 1 to {most}, but got {cut!r}; the "
        f"nearest is {nearest or most.replace(',', '')}.\n"
    )


@pytest.mark.parametrize("value", ["0", "1.5", HUGE])
@pytest.mark.parametrize("option", ["beam", "budget", "max-length", "batch"])
def test_whole_numbers_of_evaluate(words, fenchel, no_work, option, value):
    done = fenchel("evaluate", "--run", "no", words, f"--{option}", value)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fenchel: --{option}: expected a whole number from 1 to ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lemmas", "-5"], ["--lemmas", "0"], ["--lemmas", "1.5"], ["--steps", "0"],
        ["--steps", HUGE], ["--minutes", "0"], ["--minutes", "-1"], ["--minutes", "nan"],
        ["--minutes", "inf"], ["--minutes", "long"],
    ],
)  # fmt: skip
def test_numbers_of_the_demo(tmp_path, fenchel, no_work, arguments):
    done = fenchel("demo", "--out", tmp_path / "out", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fenchel: {arguments[0]}: expected a ")
    assert repr(arguments[1]) in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "device", ["toaster", "meta", "cuda:99", "mkldnn", "privateuseone", "cpu:-1", "", "[/red]"]
)
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_devices(words, fenchel, no_work, command, device):
    done = fenchel(command, "--run", "no", words, "--device", device)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "fenchel: --device: expected a device that torch can compute on here"
    )
    assert done.err.endswith(f", but got {device!r}.\n") and done.err.count("\n") == 1


def test_a_zero_byte_in_a_name(fenchel):
    done = fenchel("predict", "--run", "a\0b")
    assert (done.code, done.err) == (
        2, "fenchel: 'a\\x00b': expected a word without a zero byte.\n"
    )  # fmt: skip


def test_no_option_is_ignored(trained, words, fenchel):
    for arguments, sentence in (
        (["--exact", "--beam", 3], "--beam: expected without --exact, which searches without a"),
        (["--budget", 3], "--budget: expected with --exact only; a beam has none."),
        (["--language", ""], "--language: expected a name, but got ''."),
    ):
        for command in ("predict", "evaluate"):
            done = fenchel(command, "--run", trained[0], words, *arguments)
            assert (done.code, done.out) == (2, "") and f"fenchel: {sentence}" in done.err


def test_the_library_refuses_the_same():
    for name in ("beam", "nbest", "budget", "max_length", "batch"):
        for value in (0, 10**23, 1.5, True):
            with pytest.raises(FenchelError, match="expected a whole number from 1 to"):
                SearchOptions(**{name: value})


def test_brackets_in_a_name_are_no_json(trained, tmp_path, fenchel):
    done = fenchel("evaluate", "--run", trained[0], '["a"]')
    assert done.err == 'fenchel: ["a"]: expected a text file, but there is no such file.\n'


def test_training_reads_files_that_can_be_read_again(tmp_path, fenchel, trained):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name, what in (("-", "standard input"), (pipe, "none"), ("/dev/null", "none")):
        for files in (
            ["--train", name, "--dev", trained[1]],
            ["--train", trained[1], "--dev", name],
        ):
            done = fenchel("train", "inflection", "--run", tmp_path / "run", *files)
            flag = "--train" if files[1] == name else "--dev"
            assert (done.code, done.err) == (
                2,
                f"fenchel: {flag}: expected files, which are read more than once, but got {name}, "
                f"which is {what}; save it to a file first.\n",
            )
            assert not (tmp_path / "run").exists()
