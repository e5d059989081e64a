"""The run directory: written whole or not at all, and read back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.tasks import DataConfig, Example, Inflection, open_run, resume_run, start_run
from fenchel.tasks._run import create_run
from fenchel.tasks.run_config import default_config

TASK = Inflection.learn([Example("ab", "ba", ("V",), "x")])


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "x-train"
    path.write_text("ab\tba\tV\n")
    return DataConfig((str(path),), (str(path),))


def test_round_trip(tmp_path, data):
    settings = ["model.hidden=8", "train.betas=0.5,0.6", "search.beam=7", "task.min_count=1"]
    run = start_run(tmp_path / "run", "inflection", data, settings=settings)
    again = open_run(tmp_path / "run")
    assert again.config == run.config
    assert again.config.search.beam == 7 and again.config.train.betas == (0.5, 0.6)
    assert again.task.source.tokens == run.task.source.tokens
    assert again.config.model.source_vocabulary == len(run.task.source)


@pytest.mark.parametrize("task", ["translation", "summarization"])
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_round_trip_of_other_kinds(tmp_path, task, model):
    path = tmp_path / "pairs"
    path.write_text("a\tb\n")
    data = DataConfig((str(path),), (str(path),))
    settings = ["task.vocabulary=261", "task.joint=false"]
    run = start_run(tmp_path / "run", task, data, model=model, settings=settings)
    again = open_run(tmp_path / "run", task)
    assert again.config == run.config and again.config.train.batch_unit == "tokens"
    assert again.config.model.kind == model and again.task.name == task


def test_fresh_weights_follow_the_seed(tmp_path, data):
    runs = [
        start_run(tmp_path / str(i), "inflection", data, settings=[f"train.seed={seed}"])
        for i, seed in enumerate((0, 0, 1))
    ]
    first, same, other = (next(run.new_model().parameters()) for run in runs)
    assert (first == same).all() and (first != other).any()


def test_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk")

    monkeypatch.setattr(Inflection, "save", fail)
    config = default_config(Inflection, "lstm")
    with pytest.raises(OSError, match="disk"):
        create_run(tmp_path / "run", TASK, config)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_will_do(tmp_path):
    (tmp_path / "run").mkdir()
    create_run(tmp_path / "run", TASK, default_config(Inflection, "lstm"))
    assert open_run(tmp_path / "run").task.name == "inflection"


def test_resume_may_name_other_files(tmp_path, data):
    start_run(str(tmp_path / "run"), "inflection", data)
    kept = resume_run(str(tmp_path / "run"), "inflection", DataConfig(), ["train.max_epochs=2"])
    assert open_run(str(tmp_path / "run")).directory == kept.directory == tmp_path / "run"
    assert kept.config.data == data and kept.config.train.max_epochs == 2
    moved = resume_run(tmp_path / "run", "inflection", DataConfig(("elsewhere",)), [])
    assert moved.config.data == DataConfig((str(Path.cwd() / "elsewhere"),), data.dev)


def test_files_are_found_from_elsewhere(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    near = DataConfig(("x-train",), ("x-train",))
    assert start_run(tmp_path / "run", "inflection", near).config.data == data


def test_no_checkpoint_yet(tmp_path, data):
    run = start_run(tmp_path / "run", "inflection", data)
    with pytest.raises(FenchelError, match="expected a run with a best checkpoint"):
        run.model()


def test_damaged_config(tmp_path, data):
    run = start_run(tmp_path / "run", "inflection", data)
    path = run.directory / "config.yaml"
    path.write_text(path.read_text().replace("hidden: 300", "hidden: many"))
    with pytest.raises(FenchelError) as error:
        open_run(run.directory)
    assert str(error.value).startswith(f"{path}: model: hidden: expected an int, but got the text")
