"""`fenchel predict` and `fenchel evaluate`: formats, certificates, options, and wrong input."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest

from tests.cli.cases import VERBS

UNSURE = "walk\tV\n"  # tags that are no cell: the model has to guess


def records(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words"
    path.write_text("walk\tV;PST\nbait\tV;V.PTCP;PRS\n")
    return path


def test_tsv(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words)
    assert (done.code, done.err) == (0, "")
    first, second = (line.split("\t") for line in done.out.splitlines())
    assert first[:3] == ["walk", "walked", "V;PST"]
    assert second[:3] == ["bait", "baiting", "V;V.PTCP;PRS"]
    assert 0.5 < float(first[3]) <= 1
    assert first[4] in ("exhaustive", "proved best")


def test_json(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words, "--format", "json", "--nbest", 4)
    assert done.code == 0
    for record, (source, text) in zip(
        records(done.out), [("walk", "walked"), ("bait", "baiting")], strict=True
    ):
        assert record["source"] == source and record["answers"][0]["text"] == text
        assert record["certificate"].keys() == {"kind", "gap", "mass", "proved", "reason"}
        answers = record["answers"]
        total = sum(answer["probability"] for answer in answers)
        assert total <= 1 + 1e-6
        assert total <= record["certificate"]["mass"] + 1e-6
        if record["certificate"]["kind"] == "exhaustive":
            assert record["certificate"]["mass"] == pytest.approx(1, abs=1e-5)
        ranked = [answer["log_probability"] for answer in answers]
        assert ranked == sorted(ranked, reverse=True)
        assert "support" not in answers[0]


def test_support_sums_to_one_at_each_step(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words, "--format", "json", "--support")
    answer = records(done.out)[0]["answers"][0]
    assert len(answer["support"]) == len("walked") + 1  # and the end
    taken = 1.0
    for step, character in zip(answer["support"], [*"walked", "</s>"], strict=True):
        assert sum(probability for _, probability in step) == pytest.approx(1, abs=1e-5)
        taken *= dict(map(tuple, step))[character]
    assert taken == pytest.approx(answer["probability"], rel=1e-5)


def test_support_as_text(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words, "--support")
    column = done.out.splitlines()[0].split("\t")[5]
    assert len(column.split(" ")) >= len("walked") + 1 and "⏎" in column


def test_nbest_gives_more(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text(UNSURE)
    one = fenchel("predict", "--run", trained[0], path)
    many = fenchel("predict", "--run", trained[0], path, "--nbest", 5)
    assert len(one.out.splitlines()) == 1 < len(many.out.splitlines()) <= 5
    assert many.out.splitlines()[0].split("\t")[:4] == one.out.strip().split("\t")[:4]


def test_beam_and_exact_and_budget(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text("xkqlw\tV;PST\n")
    options = ["predict", "--run", trained[0], path, "--format", "json", "--nbest", 3]
    narrow, wide = (records(fenchel(*options, "--beam", b).out)[0] for b in (1, 40))
    assert narrow["certificate"]["mass"] < wide["certificate"]["mass"]
    exact = records(fenchel(*options, "--exact").out)[0]
    assert exact["certificate"]["kind"] != "none" and exact["certificate"]["proved"] >= 3
    assert exact["answers"][0]["probability"] >= narrow["answers"][0]["probability"]
    cheap = records(fenchel(*options, "--exact", "--budget", 1).out)[0]
    assert cheap["certificate"]["kind"] == "none"


def test_max_length(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words, "--max-length", 3, "--format", "json")
    answer = records(done.out)[0]["answers"][0]
    assert len(answer["text"]) <= 3 and not answer["finished"]


def test_batches_do_not_change_answers(trained, fenchel):
    outputs = [
        [line.split("\t")[:3] for line in
         fenchel("predict", "--run", trained[0], trained[1], "--batch", b).out.splitlines()]
        for b in (1, 3, 64)
    ]  # fmt: skip
    assert outputs[0] == outputs[1] == outputs[2] and len(outputs[0]) == 2 * len(VERBS)


def test_standard_input(trained, fenchel, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"walk\tV;PST\n")))
    assert fenchel("predict", "--run", trained[0]).out.startswith("walk\twalked\tV;PST\t")


def test_unknown_characters_are_noted_once(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text("wälk\tV;PST\nbälk\tV;PST\n", "utf-8")
    done = fenchel("predict", "--run", trained[0], path)
    assert done.code == 0 and len(done.out.splitlines()) == 2
    assert done.err == f"note: {path}:1: training never saw 'ä'; read as unknown.\n"


def test_notes_end(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text("".join(f"{letter}\tV;PST\n" for letter in "äöüßéèñç"), "utf-8")
    notes = fenchel("predict", "--run", trained[0], path).err.splitlines()
    assert len(notes) == 5
    assert notes[-1] == (
        f"note: {path}:5: training never saw 'é'; read as unknown; no more notes of this kind."
    )


def test_language(trained, words, fenchel):
    done = fenchel("predict", "--run", trained[0], words, "--language", "latin")
    assert (done.code, done.err) == (
        2,
        "fenchel: --language: expected one of this model's languages (english), but got 'latin'.\n",
    )
    assert fenchel("predict", "--run", trained[0], words, "--language", "english").code == 0


def test_malformed_line_ends_the_output_there(trained, tmp_path, fenchel):
    path = tmp_path / "words"
    path.write_text("walk\tV;PST\nwalk\n")
    done = fenchel("predict", "--run", trained[0], path, "--batch", 1)
    assert done.code == 2 and done.out.startswith("walk\twalked")
    assert done.err == (
        f"fenchel: {path}:2: expected `lemma TAB tags` or `lemma TAB form TAB tags`, but got 1 "
        "column: 'walk'.\n"
    )


def test_no_run(tmp_path, fenchel):
    done = fenchel("predict", "--run", tmp_path / "no")
    assert (done.code, done.err) == (
        2,
        f"fenchel: {tmp_path / 'no'}: expected a run directory, but there is no such directory; "
        "`fenchel train` makes one.\n",
    )
    assert "there is no run.json" in fenchel("predict", "--run", tmp_path).err


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        (
            {"format": 7, "fenchel": "9.1", "task": "inflection"},
            "expected a run of format 1, but fenchel 9.1 wrote it in format 7; use that version, "
            "or train again.",
        ),
        (
            {"format": 1, "fenchel": "0.1.0", "task": "parsing"},
            "expected a run of inflection or translation or summarization, but it is one of "
            "parsing.",
        ),
    ],
)
def test_other_runs(trained, tmp_path, fenchel, about, sentence):
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    (run / "run.json").write_text(json.dumps(about))
    done = fenchel("predict", "--run", run)
    assert (done.code, done.err) == (2, f"fenchel: {run}: {sentence}\n")


def test_resuming_a_run_of_another_task(trained, fenchel):
    done = fenchel("train", "translation", "--run", trained[0], "--resume")
    assert (done.code, done.err) == (
        2,
        f"fenchel: {trained[0]}: expected a run of translation, but it is one of inflection.\n",
    )


def test_damaged_run(trained, tmp_path, fenchel):
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    (run / "run.json").write_text("{")
    done = fenchel("evaluate", "--run", run, trained[1])
    assert (done.code, done.err) == (
        2, f"fenchel: {run / 'run.json'}: expected a JSON object, but the file is damaged.\n"
    )  # fmt: skip


def test_evaluate(trained, fenchel):
    done = fenchel("evaluate", "--run", trained[0], trained[1], "--format", "json")
    assert (done.code, done.err) == (0, "")
    scores = json.loads(done.out)
    assert scores["examples"] == 16 and scores["accuracy"] > 0.9
    assert scores["single"] <= scores["exhaustive"] <= scores["certified"] <= 1
    assert 1 <= scores["support"] < 3
    table = fenchel("evaluate", "--run", trained[0], trained[1]).out
    assert "accuracy" in table and f"{100 * scores['accuracy']:.2f} %" in table


def test_evaluate_options(trained, tmp_path, fenchel):
    path = tmp_path / "odd"
    path.write_text("xkqlw\tx\tV;PST\n")
    words = ["evaluate", "--run", trained[0], path, "--format", "json"]
    plain = json.loads(fenchel(*words).out)
    assert json.loads(fenchel(*words, "--exact").out)["certified"] == 1
    assert json.loads(fenchel(*words, "--exact", "--budget", 1).out)["certified"] == 0
    short = json.loads(fenchel(*words, "--max-length", 1).out)
    assert short["edit_distance"] != plain["edit_distance"]
    assert fenchel(*words, "--language", "latin").code == 2


def test_evaluate_needs_answers(trained, words, fenchel):
    done = fenchel("evaluate", "--run", trained[0], words)
    assert done.code == 2 and f"{words}:1: expected `lemma TAB form TAB tags`" in done.err
