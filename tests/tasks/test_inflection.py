"""Inflection: the shared task's format, its input tokens, and its metrics to the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.models import UNK
from fenchel.tasks import Example, Inflection
from fenchel.tasks.inflection import language_of, read_inflection
from fenchel.tasks.metrics import edit_distance

DRAW = Example("draw", "drawn", ("V.PTCP", "PST"), "english")


def write(folder: Path, text: str, name: str = "english-train") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def refused(path: Path, **options: bool) -> str:
    with pytest.raises(FenchelError) as error:
        list(read_inflection(path, **options))
    return str(error.value)


def test_reads_the_shared_tasks_format(tmp_path):
    path = write(tmp_path, "draw\tdrawn\tV.PTCP;PST\n\ngo out\twent out\tV;PST\n")
    first, second = read_inflection(path)
    assert first == Example("draw", "drawn", ("V.PTCP", "PST"), "english", f"{path}:1")
    assert (second.source, second.target, second.place) == ("go out", "went out", f"{path}:3")


def test_input_needs_no_form(tmp_path):
    path = write(tmp_path, "draw\tV;PST\nsee\tsaw\tV;PST\n")
    assert [e.target for e in read_inflection(path, gold=False)] == [None, "saw"]


def test_option_names_the_language(tmp_path):
    path = write(tmp_path, "draw\tdrew\tV;PST\n")
    assert next(read_inflection(path, language="old-english")).group == "old-english"


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("english-dev", "english"),
        ("data/norwegian-bokmal-train-medium", "norwegian-bokmal"),
        ("old-french-uncovered-test", "old-french"),
        ("english-train.tsv", "english"),
        ("english-test.gz", "english"),
        ("latin.tsv", "latin"),
        ("training", "training"),
    ],
)
def test_file_names_tell_the_language(name, language):
    assert language_of(name) == language


def test_one_column(tmp_path):
    path = write(tmp_path, "draw\tdrew\tV;PST\ndraw drew V;PST\n")
    assert refused(path) == (
        f"{path}:2: expected `lemma TAB form TAB tags`, but got 1 column: 'draw drew V;PST'."
    )


def test_two_columns_are_too_few_for_training(tmp_path):
    path = write(tmp_path, "draw\tV;PST\n")
    assert refused(path) == (
        f"{path}:1: expected `lemma TAB form TAB tags`, but got 2 columns: 'draw\\tV;PST'."
    )


def test_four_columns(tmp_path):
    path = write(tmp_path, "a\tb\tc\td\n")
    assert refused(path, gold=False) == (
        f"{path}:1: expected `lemma TAB tags` or `lemma TAB form TAB tags`, but got 4 columns: "
        "'a\\tb\\tc\\td'."
    )


@pytest.mark.parametrize(
    ("line", "label"), [("\ta\tV", "lemma"), ("a\t\tV", "form"), ("a\tb\t ", "tags")]
)
def test_empty_column(tmp_path, line, label):
    path = write(tmp_path, line + "\n")
    assert refused(path) == (
        f"{path}:1: expected `lemma TAB form TAB tags`, but the {label} is empty."
    )


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_file(tmp_path, content):
    path = write(tmp_path, content)
    assert refused(path) == (
        f"{path}: expected lines of `lemma TAB form TAB tags`, but the file is empty."
    )


def test_tokens_are_language_tags_characters():
    task = Inflection.learn([DRAW])
    assert task.source_names(DRAW) == ["@english", "+V.PTCP", "+PST", "d", "r", "a", "w"]
    assert task.sizes == (4 + 7, 4 + 5)
    source, target = task.pair(DRAW)
    assert UNK not in source + target
    assert task.decode(target) == "drawn"
    assert [task.target_name(token) for token in target] == list("drawn")
    assert task.columns(DRAW, "drawed") == ("draw", "drawed", "V.PTCP;PST")


def test_tag_and_language_are_no_characters():
    task = Inflection.learn([Example("V", "V", ("V",), "V")])
    assert task.sizes[0] == 4 + 3


def test_unknown_characters():
    task = Inflection.learn([DRAW])
    example = Example("drow", None, ("FUT",), "english")
    assert task.unknown(example) == {"o", "+FUT"}
    assert task.encode_source(example).count(UNK) == 2


def test_min_count_cuts_both_sides():
    task = Inflection.learn([DRAW, Example("dry", "dried", ("V",), "english")], min_count=2)
    assert set(task.source.tokens) == {"@english", "d", "r"}
    assert set(task.target.tokens) == {"d", "r"}


def test_languages_of_a_run(tmp_path):
    task = Inflection.learn([DRAW, Example("a", "b", ("N",), "latin")])
    assert task.languages == ["english", "latin"]
    path = write(tmp_path, "draw\tdrew\tV;PST\n", "words.tsv")
    assert next(task.read([path], language="latin")).group == "latin"
    with pytest.raises(FenchelError) as error:
        next(task.read([path]))
    assert str(error.value) == (
        f"{path}: expected one of this model's languages (english, latin), but got 'words'; name "
        "it with `--language`."
    )
    with pytest.raises(FenchelError) as error:
        next(task.read([path], language="greek"))
    assert str(error.value) == (
        "--language: expected one of this model's languages (english, latin), but got 'greek'."
    )


def test_one_language_needs_no_name(tmp_path):
    path = write(tmp_path, "draw\tdrew\tV;PST\n", "words.tsv")
    assert next(Inflection.learn([DRAW]).read([path])).group == "english"


def test_disk(tmp_path):
    task = Inflection.learn([DRAW])
    task.save(tmp_path)
    assert Inflection.load(tmp_path).pair(DRAW) == task.pair(DRAW)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2), ("same", "same", 0)],
)
def test_edit_distance(one, other, distance):
    assert edit_distance(one, other) == edit_distance(other, one) == distance


def test_scores_are_averaged_over_languages():
    gold = ["ab", "cd", "ef", "gh"]
    groups = ["x", "x", "x", "y"]
    examples = [Example("l", g, (), group) for g, group in zip(gold, groups, strict=True)]
    scores = Inflection.learn(examples).score(examples, ["ab", "cx", "f", "gh"])
    assert scores == pytest.approx(
        {
            "accuracy": (1 / 3 + 1) / 2,
            "edit_distance": (2 / 3 + 0) / 2,
            "accuracy/x": 1 / 3,
            "accuracy/y": 1.0,
            "edit_distance/x": 2 / 3,
            "edit_distance/y": 0.0,
        }
    )


def test_scores_of_one_language_have_no_groups():
    scores = Inflection.learn([DRAW]).score([DRAW], ["drawed"])
    assert scores == {"accuracy": 0.0, "edit_distance": 2.0}
