"""`--run A --run B`: answers of the average of two models."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from fenchel.tasks import Example, SearchOptions, ensemble, open_runs, predict
from tests.cli.cases import train, write_inflection


@pytest.fixture(scope="module")
def other(trained, tmp_path_factory):
    """A run on the same words with another seed, stopped early: it is less certain."""
    folder = tmp_path_factory.mktemp("other")
    assert train(folder / "run", trained[1], "train.seed=5", "train.max_epochs=6") == 0
    return folder / "run"


def test_answers_are_those_of_the_average(trained, other, tmp_path, fenchel):
    words = tmp_path / "words"
    words.write_text("walk\tV\n")  # tags that are no cell: the models have to guess
    done = fenchel(
        "predict", "--run", trained[0], "--run", other, words, "--format", "json", "--nbest", 3
    )
    assert done.code == 0
    found = json.loads(done.out)["answers"]
    runs = open_runs([trained[0], other])
    task = runs[0].task
    example = Example("walk", tags=("V",), group=task.languages[0])
    source = torch.tensor([task.encode_source(example)])
    for answer in found:
        tokens = [*task.encode_target(answer["text"]), 2]
        total = 1.0
        states = [run.model().start(source, torch.tensor([source.shape[1]])) for run in runs]
        models = [run.model() for run in runs]
        fed = 1
        for token in tokens:
            steps = [m.step(s, torch.tensor([fed])) for m, s in zip(models, states, strict=True)]
            total *= sum(float(step.probabilities[0, token]) for step in steps) / 2
            states, fed = [step.state for step in steps], token
        assert answer["probability"] == pytest.approx(total, rel=1e-4)
    alone = [fenchel("predict", "--run", run, words).out for run in (trained[0], other)]
    assert f"{found[0]['probability']:.5f}" not in "".join(alone)


def test_evaluate_names_all_runs(trained, other, fenchel):
    done = fenchel("evaluate", "--run", trained[0], "--run", other, trained[1])
    assert done.code == 0
    assert "accuracy" in done.out
    # A narrow terminal breaks the line.
    assert f"{trained[0]},{other}:" in "".join(done.out.split())


def test_two_copies_are_one(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "copy")
    runs = open_runs([trained[0], tmp_path / "copy"])
    example = Example("walk", tags=("V", "PST"), group=runs[0].task.languages[0])
    options = SearchOptions(nbest=3)
    (one,) = predict(runs[0].model(), runs[0].task, [example], options)
    (two,) = predict(ensemble(runs), runs[0].task, [example], options)
    first, second = one[1].hypotheses, two[1].hypotheses
    assert [h.tokens for h in first] == [h.tokens for h in second]
    for a, b in zip(first, second, strict=True):
        assert a.probability == pytest.approx(b.probability, rel=1e-6)


def test_another_vocabulary_is_refused(trained, tmp_path, fenchel):
    folder = tmp_path / "data"
    folder.mkdir()
    data = write_inflection(folder)
    data.write_text(data.read_text() + "zyx\tzyxq\tV;PST\n")
    assert train(tmp_path / "run", data, "train.max_epochs=1") == 0
    done = fenchel("evaluate", "--run", trained[0], "--run", tmp_path / "run", trained[1])
    assert done.code == 2
    assert "expected the vocabulary of" in done.err and done.err.count("\n") == 1


def test_another_task_is_refused(trained, tmp_path, fenchel):
    text = tmp_path / "pairs"
    text.write_text("ein Haus\ta house\nzwei\ttwo\n")
    code = fenchel(
        "train", "translation", "--run", tmp_path / "mt", "--train", text, "--dev", text,
        "--set", "task.vocabulary=270", "--set", "train.max_epochs=1", "--set", "model.hidden=8",
        "--set", "model.embedding=8", "--quiet",
    ).code  # fmt: skip
    assert code == 0
    done = fenchel("predict", "--run", trained[0], "--run", tmp_path / "mt", text)
    assert done.code == 2
    assert "expected a run of inflection" in done.err
