"""Translation and summarization: parallel text, BPE that loses nothing, metrics to the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.models import EOS
from fenchel.tasks import Example, Summarization, Translation
from fenchel.tasks.tokens import BPE
from fenchel.tasks.translation import read_parallel

PAIRS = [Example("ein Haus", "a house"), Example("zwei Häuser", "two houses")]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def refused(*paths: Path) -> str:
    with pytest.raises(FenchelError) as error:
        list(read_parallel(paths))
    return str(error.value)


def test_two_files(tmp_path):
    paths = write(tmp_path, "a", "eins\n\n"), write(tmp_path, "b", "one\n\n")
    assert [(e.source, e.target) for e in read_parallel(paths)] == [("eins", "one"), ("", "")]


def test_one_file(tmp_path):
    path = write(tmp_path, "a", "eins\tone\n")
    assert list(read_parallel([path])) == [Example("eins", "one", place=f"{path}:1")]


def test_three_columns(tmp_path):
    path = write(tmp_path, "a", "eins\tone\nzwei\ttwo\tdeux\n")
    assert refused(path) == f"{path}:2: expected `source TAB target`, but got 3 columns."


def test_other_lengths(tmp_path):
    one, other = write(tmp_path, "a", "1\n2\n3\n"), write(tmp_path, "b", "1\n2\n")
    sentence = f"{other}: expected as many lines as {one} has, but it ends at line 2."
    assert refused(one, other) == refused(other, one) == sentence


def test_empty(tmp_path):
    empty, full = write(tmp_path, "a", ""), write(tmp_path, "b", "x\n")
    assert refused(empty) == (
        f"{empty}: expected lines of `source TAB target`, but the file is empty."
    )
    assert refused(full, empty) == f"{empty}: expected lines of text, but the file is empty."


def test_three_files(tmp_path):
    path = write(tmp_path, "a", "x\n")
    assert refused(path, path, path) == (
        "expected one file of `source TAB target`, or two files of parallel lines, but got 3."
    )


@pytest.mark.parametrize(
    "text", ["", "a house", "Ω≠α — 日本語, emoji 🙂", "two  spaces", "<s> </s>"]
)
def test_bpe_loses_nothing(text):
    bpe = BPE.learn(["a house", "two houses"], 300)
    assert bpe.decode(bpe.encode(text)) == text


def test_bpe_learns_merges():
    texts = ["a house", "two houses"]
    short, long = BPE.learn(texts, 261), BPE.learn(texts, 300)
    assert len(short) == 261 < len(long) <= 300
    assert len(long.encode("a house")) < len(short.encode("a house"))
    assert long.names(long.encode("a housed")) == [" a", " house", "d"]


def test_bpe_disk(tmp_path):
    bpe = BPE.learn(["a house"], 270)
    bpe.save(tmp_path / "bpe.json")
    assert BPE.load(tmp_path / "bpe.json").encode("a house") == bpe.encode("a house")


def test_bpe_errors(tmp_path):
    with pytest.raises(FenchelError) as error:
        BPE.learn(["a"], 259)
    assert str(error.value) == (
        "BPE: expected a vocabulary of at least 260 (every byte, and 4 special tokens), but got "
        "259."
    )
    path = write(tmp_path, "bpe.json", "{}")
    with pytest.raises(FenchelError) as error:
        BPE.load(path)
    assert str(error.value) == f"{path}: expected JSON of the tokenizers library."
    with pytest.raises(FenchelError) as error:
        BPE.load(tmp_path / "no")
    assert (
        str(error.value)
        == f"{tmp_path / 'no'}: expected the tokenizer of a run, but there is none."
    )


def test_joint_or_separate(tmp_path):
    joint, separate = (Translation.learn(PAIRS, 275, joint=j) for j in (True, False))
    assert joint.source is joint.target and separate.source is not separate.target
    assert separate.source.encode("Häuser") != separate.target.encode("Häuser")
    for task in (joint, separate):
        task.save(tmp_path)
        again = Translation.load(tmp_path)
        assert [again.pair(e) for e in PAIRS] == [task.pair(e) for e in PAIRS]


def test_empty_source_is_an_input():
    task = Translation.learn(PAIRS, 270)
    assert task.encode_source(Example("")) == [EOS]
    assert task.source_names(Example("ein"))[-1] == "</s>"


def test_bleu_gives_no_advice(caplog):
    gold = [Example("a", "b c ."), Example("d", "e f .")] * 100  # looks tokenized, which is fine
    assert Translation.learn(gold, 270).score(gold, ["b c .", "e f ."] * 100)["bleu"] > 0
    assert not caplog.records


def test_bleu_and_chrf():
    task = Translation.learn(PAIRS, 270)
    gold = [Example("", "the cat sat on the mat"), Example("", "a dog")]
    assert task.score(gold, [e.target for e in gold]) == pytest.approx({"bleu": 100, "chrf": 100})
    # the precisions 5/6, 3/5, 2/4 and 1/3 of the first sentence alone
    scores = task.score(gold[:1], ["the cat sat on a mat"])
    assert scores["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert 0 < scores["chrf"] < 100


def test_rouge_in_any_script():
    task = Summarization.learn(PAIRS, 270)
    gold = [Example("", "кот сел на ковёр")]
    scores = task.score(gold, ["кот сел на стул"])
    assert scores == pytest.approx({"rouge_1": 75.0, "rouge_2": 100 * 2 / 3, "rouge_l": 75.0})
