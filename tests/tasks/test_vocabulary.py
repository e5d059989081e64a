"""Vocabularies: special tokens first, frequent ones next, and JSON on disk."""

from __future__ import annotations

import pytest

from fenchel import FenchelError
from fenchel.models import BOS, EOS, PAD, UNK
from fenchel.tasks.tokens import Vocabulary


def test_order_is_by_count_then_by_name():
    assert Vocabulary.learn(["cab", "ab", "b"]).tokens == ("b", "a", "c")


def test_min_count_cuts():
    assert Vocabulary.learn(["cab", "ab", "b"], min_count=2).tokens == ("b", "a")


def test_round_trip_with_unknown_and_special():
    vocabulary = Vocabulary("xyz")
    assert len(vocabulary) == 7
    assert vocabulary.encode("zyq") == [6, 5, UNK]
    assert vocabulary.decode([BOS, 6, 5, UNK, EOS, PAD]) == ["z", "y", "\ufffd"]
    assert [vocabulary.token(i) for i in range(5)] == ["<pad>", "<s>", "</s>", "\ufffd", "x"]
    assert "x" in vocabulary and "<s>" not in vocabulary


def test_a_token_that_looks_special_is_a_token():
    vocabulary = Vocabulary(["<pad>"])
    assert vocabulary.encode(["<pad>"]) == [4]


def test_disk(tmp_path):
    path = tmp_path / "v.json"
    Vocabulary(["é", "\n", "@en"]).save(path)
    assert Vocabulary.load(path).tokens == ("é", "\n", "@en")
    assert "é" in path.read_text("utf-8")  # readable


def test_twice():
    with pytest.raises(FenchelError) as error:
        Vocabulary("aba")
    assert str(error.value) == "Vocabulary: expected each token once, but 'a' came twice."


def test_missing_file(tmp_path):
    path = tmp_path / "v.json"
    with pytest.raises(FenchelError) as error:
        Vocabulary.load(path)
    assert str(error.value) == (
        f"{path}: expected the vocabulary of a run, but there is no such file."
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", ", but the file is damaged (it is not JSON in UTF-8)"),
        ('{"a": 1}', ""),
        ("[1]", ""),
    ],
)
def test_other_json(tmp_path, content, why):
    path = tmp_path / "v.json"
    path.write_text(content)
    with pytest.raises(FenchelError) as error:
        Vocabulary.load(path)
    assert str(error.value) == f"{path}: expected a JSON list of tokens{why}."
