"""`fenchel train`: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import pytest
import yaml

from fenchel.runs import load_checkpoint
from fenchel.training import TrainingError, TrainResult
from tests.cli.cases import TINY, train, write_inflection


def weights(run):
    return load_checkpoint(run, "latest").tensors["model"]


def test_run_directory(trained):
    run, data = trained
    names = {path.name for path in run.iterdir()}
    assert names == {
        "run.json", "config.yaml", "source.json", "target.json", "checkpoints",
        "checkpoints.json", "metrics.jsonl",
    }  # fmt: skip
    about = json.loads((run / "run.json").read_text())
    assert about.pop("sha256").keys() == {
        "source.json", "target.json", "model of config.yaml", "task of config.yaml",
    }  # fmt: skip
    assert about == {
        "format": 1, "fenchel": "0.1.0", "task": "inflection",
    }  # fmt: skip
    text = (run / "config.yaml").read_text()
    config = yaml.safe_load(text)
    assert config["data"] == {"train": [str(data)], "dev": [str(data)], "language": None}
    assert config["model"]["hidden"] == 32 and config["train"]["metric"] == "accuracy"
    lines = text.splitlines()
    uncommented = [
        line
        for above, line in pairwise(lines)
        if not line.strip().startswith("#") and not above.strip().startswith("#")
    ]
    assert not uncommented


def test_it_learned(trained):
    text = (trained[0] / "metrics.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    validations = [record for record in records if record["kind"] == "validation"]
    assert validations[-1]["metrics"]["accuracy"] > 0.9 > validations[0]["metrics"]["accuracy"]


def test_resume_goes_on_to_the_same_weights(tmp_path, fenchel):
    data = write_inflection(tmp_path)
    assert train(tmp_path / "whole", data, epochs=3) == 0
    assert train(tmp_path / "parts", data, epochs=2) == 0
    start = weights(tmp_path / "parts")
    words = ["train", "inflection", "--run", tmp_path / "parts", "--quiet", "--resume"]
    assert fenchel(*words, "--set", "train.max_epochs=3").code == 0
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all((whole[name] == parts[name]).all() for name in whole)
    assert any((start[name] != parts[name]).any() for name in start)


def test_resume_needs_the_same_training(trained, tmp_path, fenchel):
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    words = ["train", "inflection", "--run", run, "--resume"]
    done = fenchel(*words, "--set", "train.batch_size=4")
    assert done.code == 2
    assert "expected to resume with batch_size = 8" in done.err and done.err.count("\n") == 1
    settings = (run / "config.yaml").read_bytes()
    for setting, was, got in (
        ("model.output=softmax", "model.output = 'entmax'", "'softmax'"),
        ("model.dropout=0.9", "model.dropout = 0.0", "0.9"),
        ("task.min_count=50", "task.min_count = 1", "50"),
    ):
        done = fenchel(*words, "--set", setting)
        assert (done.code, done.err) == (
            2,
            f"fenchel: {run}: expected to resume with {was} as the run was started, but got {got}; "
            "use another directory to change it.\n",
        )
    assert (run / "config.yaml").read_bytes() == settings
    done = fenchel(*words, "--model", "transformer")
    assert (done.code, done.err) == (
        2, "fenchel: --model: expected lstm, as the run was started, but got transformer.\n"
    )  # fmt: skip


def test_a_run_is_not_overwritten(trained, fenchel):
    run, data = trained
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = fenchel("train", "inflection", "--run", run, "--train", data, "--dev", data)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"fenchel: {run}: expected a new directory, but it holds a run; go on with it by "
        "`--resume`, or choose another.\n"
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_nor_is_another_directory(trained, tmp_path, fenchel):
    (tmp_path / "thesis.tex").write_text("dear reader")
    done = fenchel("train", "inflection", "--run", tmp_path, "--train", trained[1])
    assert (done.code, done.err) == (
        2, f"fenchel: {tmp_path}: expected a new or an empty directory; choose another.\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--train: expected at least one file, but got none."),
        (["--train", "{data}"], "--dev: expected at least one file, but got none."),
        (
            ["--train", "{no}", "--dev", "{data}"],
            "{no}: expected a text file, but there is no such file.",
        ),
        (
            ["--train", "{data}", "--dev", "{bad}"],
            "{bad}:2: expected `lemma TAB form TAB tags`, but got 1 column: 'sang'.",
        ),
        (
            ["--train", "{data}", "--dev", "{data}", "--set", "model.hiden=3"],
            "override: model: unknown key 'hiden'; did you mean 'hidden'?",
        ),
        (
            ["--train", "{data}", "--dev", "{data}", "--set", "train.batch_size=few"],
            "override: train.batch_size: expected an int, but got 'few'.",
        ),
        (
            ["--train", "{data}", "--dev", "{data}", "--set", "search.beam=0"],
            "SearchConfig: expected `beam` to be an int of at least 1, but got 0.",
        ),
        (
            ["--train", "{data}", "--dev", "{data}", "--set", "task.min_count=0"],
            "InflectionConfig: expected `min_count` to be an int of at least 1, but got 0.",
        ),
        (["--epochs", "3"], 'Unknown option: "--epochs".'),
    ],
)
def test_wrong_input(trained, tmp_path, fenchel, arguments, sentence):
    bad = tmp_path / "english-bad"
    bad.write_text("sing\tsang\tV;PST\nsang\n")
    names = {"data": trained[1], "bad": bad, "no": tmp_path / "no"}
    run = tmp_path / "run"
    given = [argument.format(**names) for argument in arguments]
    done = fenchel("train", "inflection", "--run", run, *given)
    assert (done.code, done.out) == (2, "")
    if "Unknown option" in sentence:  # the library words it
        assert "--epochs" in done.err and done.err.count("\n") == 1
    else:
        assert done.err == f"fenchel: {sentence.format(**names)}\n"
    assert not run.exists()


def test_options_change_something(trained, tmp_path, fenchel):
    words = ["train", "inflection", "--train", trained[1], "--dev", trained[1], "--quiet"]
    few = ["--set", *TINY, "train.max_epochs=1"]
    done = fenchel(*words, "--run", tmp_path / "latin", "--language", "latin", *few)
    assert done.code == 0 and done.err == ""
    assert "@latin" in json.loads((tmp_path / "latin" / "source.json").read_text())
    few = ["--set", "model.width=16", "model.heads=2", "model.layers=1", "train.max_epochs=1"]
    done = fenchel(*words, "--run", tmp_path / "t", "--model", "transformer", *few)
    assert done.code == 0
    assert yaml.safe_load((tmp_path / "t" / "config.yaml").read_text())["model"]["width"] == 16
    assert yaml.safe_load((tmp_path / "t" / "config.yaml").read_text())["train"]["betas"][1] == 0.98


def test_progress_is_shown_on_standard_error(trained, tmp_path, fenchel):
    run, data = tmp_path / "run", trained[1]
    settings = ["--set", *TINY, "train.max_epochs=1"]
    done = fenchel("train", "inflection", "--run", run, "--train", data, "--dev", data, *settings)
    assert done.out == "" and "accuracy" in done.err
    assert done.err.splitlines()[-1].startswith(f"note: {run}: done after 1 epochs (max_epochs)")


def test_translation_and_summarization(tmp_path, fenchel):
    source, target = tmp_path / "train.de", tmp_path / "train.en"
    source.write_text("ein Haus\nzwei Häuser\nein " + "sehr " * 99 + "langer Satz\n", "utf-8")
    target.write_text("a house\ntwo houses\na long sentence\n", "utf-8")
    tiny = "model.hidden=16 model.embedding=8 model.layers=1 train.max_epochs=1"
    tiny += " task.vocabulary=270 task.max_tokens=40 search.max_length=9"
    for task, metric in (("translation", "bleu"), ("summarization", "rouge_l")):
        run = tmp_path / task
        words = ["train", task, "--run", run, "--quiet", "--train", source, target]
        done = fenchel(*words, "--dev", source, target, "--set", *tiny.split())
        assert (done.code, done.err) == (
            0,
            "note: 1 of 3 training pairs have a side of more than 40 tokens and are left out.\n",
        )
        done = fenchel("evaluate", "--run", run, source, target, "--format", "json")
        assert done.code == 0 and metric in json.loads(done.out)
        done = fenchel("predict", "--run", run, source, "--language", "german")
        assert (done.code, done.err) == (
            2,
            "fenchel: --language: expected with inflection only; text has none.\n",
        )
        done = fenchel("predict", "--run", run, source)
        assert done.code == 0 and len(done.out.splitlines()) == 3
        assert [len(line.split("\t")) for line in done.out.splitlines()] == [4, 4, 4]


def test_max_tokens_that_leaves_nothing(tmp_path, fenchel):
    data = tmp_path / "pairs.tsv"
    data.write_text("ein Haus\ta house\n")
    words = ["train", "translation", "--run", tmp_path / "run", "--train", data, "--dev", data]
    done = fenchel(*words, "--set", "task.vocabulary=270", "task.max_tokens=1")
    assert (done.code, done.err) == (
        2,
        "fenchel: task.max_tokens: expected a limit that leaves training pairs, but all have a "
        "side of more than 1 tokens.\n",
    )
    assert not (tmp_path / "run").exists()


def test_directory_that_cannot_be_written(trained, tmp_path, fenchel):
    (tmp_path / "file").write_text("")
    run, data = tmp_path / "file" / "run", trained[1]
    done = fenchel("train", "inflection", "--run", run, "--train", data, "--dev", data)
    assert (done.code, done.err) == (
        2,
        f"fenchel: {run}: expected a directory that can be written (File exists).\n",
    )


def test_interrupted_training_says_how_to_go_on(trained, tmp_path, fenchel, monkeypatch):
    def interrupted(*_, **__):
        return TrainResult("interrupted", 7, 1, None, None, {}, 0.0, 0.0)

    monkeypatch.setattr("fenchel.cli._train.train_run", interrupted)
    data = trained[1]
    done = fenchel("train", "inflection", "--run", tmp_path / "r", "--train", data, "--dev", data)
    assert (done.code, done.err) == (
        130,
        "note: interrupted at step 7; add `--resume` to the command to go on.\n",
    )


def test_a_loss_that_is_no_number_is_code_1(trained, tmp_path, fenchel, monkeypatch):
    def fail(*_, **__):
        raise TrainingError("the loss is nan.")

    monkeypatch.setattr("fenchel.cli._train.train_run", fail)
    data = trained[1]
    done = fenchel("train", "inflection", "--run", tmp_path / "r", "--train", data, "--dev", data)
    assert (done.code, done.err) == (1, "fenchel: the loss is nan.\n")
