"""What is refused before a run begins, and where a run can begin."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from fenchel import FenchelError
from fenchel._compat import MissingDependency
from fenchel.tasks import DataConfig, open_run, resume_run, start_run, train_run
from fenchel.training.distributed import Ranks, find_device
from tests.tasks.strangers import TINY

LINES = "ab\tba\tV\nba\tab\tN\naab\tbaa\tV\nbba\tabb\tN\n"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "x-train"
    path.write_text(LINES)
    return DataConfig((str(path),), (str(path),))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "train.metric=acuracy",
            "train.metric: expected one of accuracy, edit_distance for inflection, but got "
            "'acuracy'.",
        ),
        (
            "train.metric=edit_distance",
            "train.mode: expected min for the metric edit_distance, but got max.",
        ),
        (
            "data.train=x",
            "--set: expected settings other than data.train, but got 'data.train=x'; name the "
            "files by `--train`.",
        ),
        (
            "model.source_vocabulary=7",
            "--set: expected settings other than model.source_vocabulary, but got "
            "'model.source_vocabulary=7'; it is counted in the training files.",
        ),
        (
            "model.hidden=20000000",
            "LSTMConfig: expected `hidden` of at most 65536, but got 20000000.",
        ),
        ("model.layers=1000000", "LSTMConfig: expected `layers` of at most 256, but got 1000000."),
        (
            "train.seed=18446744073709551616",
            "override: train.seed: expected an int between -9223372036854775807 and "
            "9223372036854775807, but got '18446744073709551616'.",
        ),
        (
            "train.threads=3000000000",
            "TrainConfig: expected `threads` to be an int of at most 1024, or None, but got "
            "3000000000.",
        ),
        (
            "train.learning_rate=1e30",
            "TrainConfig: expected `learning_rate` to be a number of at most 10, but got 1e+30.",
        ),
        (
            "search.length_penalty=inf",
            "SearchConfig: expected `length_penalty` between 0 and 100, but got inf.",
        ),
        (
            "search.beam=100000000000",
            "SearchConfig: expected `beam` to be an int of at most 1000000, but got 100000000000.",
        ),
        (
            "task.min_count=100000",
            "InflectionConfig: expected `min_count` to be an int of at most 5 for these files, in "
            "which no character is more frequent, but got 100000.",
        ),
        (
            "model.attention=structured:subsets:" + "9" * 90,
            "LSTMConfig: expected `attention` to name a map in at most 100 characters, but got "
            f"'structured:subsets:{'9' * 61}'….",
        ),
        (
            "train.device=meta",
            "TrainConfig: expected `device` to be one that torch can use here, but got 'meta' "
            "(Cannot copy out of meta tensor; no data!).",
        ),
        ("train.timeout_minutes=1e300", None),
        ("train.max_steps=" + "9" * 5000, None),
        ("train.device=toaster", None),
    ],
)
def test_wrong_settings_leave_no_run(tmp_path, data, setting, sentence):
    with pytest.raises(FenchelError) as error:
        start_run(tmp_path / "run", "inflection", data, settings=[setting])
    assert sentence in (None, str(error.value))
    assert len(str(error.value)) < 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-train"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_leaves_no_run(tmp_path, data):
    with pytest.raises(FenchelError, match="expected `device` to be one that torch can use here"):
        start_run(tmp_path / "run", "inflection", data, settings=["train.device=cuda"])
    assert not (tmp_path / "run").exists()


def test_vocabularies_have_limits(tmp_path):
    path = tmp_path / "pairs"
    path.write_text("a\tb\n")
    data = DataConfig((str(path),), (str(path),))
    for size, bound in (("1000000000000", "most 1000000"), ("7", "least 260")):
        with pytest.raises(FenchelError, match=rf"`vocabulary` to be an int of at {bound}, but"):
            start_run(tmp_path / "run", "translation", data, settings=[f"task.vocabulary={size}"])
    assert not (tmp_path / "run").exists()


def test_a_model_without_room_is_refused(tmp_path, data):
    settings = ["model.hidden=65536", "model.layers=256"]
    with pytest.raises(
        FenchelError, match=r"model: expected what fits into the .* GB of memory of"
    ):
        start_run(tmp_path / "run", "inflection", data, settings=settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_cannot_be_read_twice(tmp_path, data):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Whoever opens it must not wait for ever.
    writer = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDWR)), daemon=True)
    writer.start()
    for files in (DataConfig((str(pipe),), data.dev), DataConfig(data.train, (str(pipe),))):
        with pytest.raises(FenchelError) as error:
            start_run(tmp_path / "run", "inflection", files)
        assert str(error.value) == (
            f"{pipe}: expected a regular file, because it is read again when training resumes, but "
            f"it is a pipe; write it to a file first."
        )
    with pytest.raises(FenchelError, match=r"--dev: expected files, .* but got - \(standard input"):
        start_run(tmp_path / "run", "inflection", DataConfig(data.train, ("-",)))
    assert not (tmp_path / "run").exists()


def trained(run) -> int:
    return train_run(run, show_progress=False).step


def test_the_current_directory(tmp_path, data, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert trained(start_run(".", "inflection", data, settings=TINY)) == 4
    assert open_run(tmp_path / "here").model() is not None
    (tmp_path / "there" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "there" / "x")
    assert trained(start_run("../../new/../other", "inflection", data, settings=TINY)) == 4
    assert not list((tmp_path / "here").glob("*.partial"))


def test_a_link_to_an_empty_directory(tmp_path, data):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk")
    assert trained(start_run(tmp_path / "run", "inflection", data, settings=TINY)) == 4
    assert (tmp_path / "disk" / "run.json").exists() and (tmp_path / "run").is_symlink()


def test_a_link_to_nothing(tmp_path, data):
    (tmp_path / "run").symlink_to("nothing")
    with pytest.raises(FenchelError, match="expected a new or an empty directory; choose another"):
        start_run(tmp_path / "run", "inflection", data)


def test_a_mount_point(tmp_path, data, monkeypatch):
    """It cannot be removed or replaced, and a new file system is not quite empty."""
    run = tmp_path / "run"
    (run / "lost+found").mkdir(parents=True)
    replace, rmdir = os.replace, os.rmdir

    def busy(original):
        def call(*paths, **keywords):
            if run in map(Path, paths):
                raise OSError(16, "Device or resource busy")
            return original(*paths, **keywords)

        return call

    monkeypatch.setattr(os, "replace", busy(replace))
    monkeypatch.setattr(os, "rmdir", busy(rmdir))
    assert trained(start_run(run, "inflection", data, settings=TINY)) == 4


def test_of_two_that_start_at_once_one_is_refused(tmp_path, data, monkeypatch):
    """Neither sees the other when it looks; the rename decides."""
    replace, second = os.replace, []

    def late(a, b):
        if Path(b) == tmp_path / "run" and not second:
            second.append(True)
            start_run(tmp_path / "run", "inflection", data)
        replace(a, b)

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(FenchelError, match="expected a new directory, but it holds a run"):
        start_run(tmp_path / "run", "inflection", data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x-train"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks the system for file names")
def test_all_files_reach_the_disk_before_the_run_is_there(tmp_path, data, monkeypatch):
    events = []
    replace = os.replace
    name = lambda fd: Path(f"/proc/self/fd/{fd}").resolve().name  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda fd: events.append(name(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b)))
    start_run(tmp_path / "run", "inflection", data)
    end = events.index("run")
    assert {"source.json", "target.json", ".config.yaml.tmp", "run.json"} <= set(events[:end])
    assert events[end - 1].endswith(".partial") and events[end + 1 :] == [tmp_path.name]


def test_resume_notices_another_text_of_the_same_lengths(tmp_path, data):
    run = start_run(tmp_path / "run", "inflection", data, settings=TINY)
    trained(run)
    Path(data.train[0]).write_text(LINES.replace("ab\tba", "bb\tba", 1))
    again = resume_run(tmp_path / "run", "inflection", DataConfig(), ["train.max_steps=6"])
    with pytest.raises(FenchelError, match="expected the training data that the run was started w"):
        train_run(again, resume=True, show_progress=False)


@pytest.mark.skipif(os.name != "posix", reason="names are bytes")
def test_names_that_are_not_utf_8(tmp_path):
    name = tmp_path / os.fsdecode(b"x\xff-train")
    try:
        name.write_text(LINES)
    except OSError:
        pytest.skip("the file system has no such names")
    data = DataConfig((str(name),), (str(name),), language="x")
    run = tmp_path / os.fsdecode(b"run\xfe")
    assert trained(start_run(run, "inflection", data, settings=TINY)) == 4
    again = resume_run(run, "inflection", DataConfig(), ["train.max_steps=6"])
    assert again.config.data == data
    assert train_run(again, resume=True, show_progress=False).step == 6
    assert open_run(run).model() is not None


def test_a_name_with_a_zero_byte(tmp_path, data):
    with pytest.raises(FenchelError) as error:
        DataConfig(("a\0b",), data.dev)
    assert str(error.value) == "DataConfig: expected names of files, but got 'a\\x00b'."


def test_a_package_that_is_missing_leaves_no_run(tmp_path, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependency, match="`tensorboard: true` needs tensorboard"):
        start_run(tmp_path / "run", "inflection", data, settings=["train.tensorboard=true"])
    assert not (tmp_path / "run").exists()


def test_a_run_without_digests(tmp_path, data):
    run = start_run(tmp_path / "run", "inflection", data, settings=TINY)
    (run.directory / "run.json").write_text('{"format": 1, "fenchel": "0.1", "task": "inflection"}')
    with pytest.raises(FenchelError) as error:
        open_run(run.directory)
    assert str(error.value) == (
        f"{run.directory / 'run.json'}: expected the SHA-256 of vocabularies and settings, but "
        f"there is none; the run is of an early version and cannot be checked: train again."
    )


def test_devices():
    assert find_device("cpu", Ranks()) == torch.device("cpu")
