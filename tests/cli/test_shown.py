"""What is printed cannot steer a terminal, and can be read back."""

from __future__ import annotations

import ast
import json
import re
import shutil
import unicodedata
from pathlib import Path

import pytest

import fenchel.cli
from fenchel.cli._shown import column, json_text, shown
from tests.cli.cases import is_harmless, train

EVERY = [chr(number) for number in range(0x110000)]
EVIL = "\x1b[31m\r\0\x07\x7f\x85\x9b\u2028\u2029\u202e\u2066\ufeff\U000e0041\udcff"


def test_every_character():
    seen = {}
    for character in EVERY:
        text = column(character)
        assert is_harmless(text) and "\t" not in text and "\n" not in text and text.splitlines()
        assert seen.setdefault(text, character) == character, f"{character!r} looks as another"
        kept = unicodedata.category(character)[0] not in "CZ" and character != "\\"
        assert not kept or text == character


def test_joiners_stay():
    assert shown("می\u200cخواهم क्\u200dष e\u0301") == "می\u200cخواهم क्\u200dष e\u0301"


def test_escapes():
    assert shown("a\tb\nc\r\x1b[0m\udcff\u202e\U000e0041") == (
        "a\\tb\\nc\\r\\x1b[0m\\xff\\u202e\\U000e0041"
    )
    assert shown(shown(EVIL)) == shown(EVIL) and is_harmless(shown(EVIL))
    assert column("\\x1b") == "\\\\x1b" != column("\x1b") == "\\x1b"


def test_json_is_the_same_value():
    text = json.dumps({"a": EVIL}, ensure_ascii=False)
    assert is_harmless(json_text(text)) and json.loads(json_text(text)) == {"a": EVIL}
    assert json_text(json.dumps({"ä": "ж"}, ensure_ascii=False)) == '{"ä": "ж"}'


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A run of which vocabulary, language and file have characters that nobody should send."""
    folder = tmp_path_factory.mktemp("evil")
    data = folder / "en\x1b[31mglish\u202e-train"
    lines = [f"wa{c}lk\twa{c}lked\tV;P\x1bST\n" for c in "\x1b\x85\u2028\x7f\u202e\\"]
    lines += ["a\tb\tV;[/red]\n"]
    data.write_text("".join(lines) * 3, "utf-8")
    assert train(folder / "r\x1b[/red]un", data, "train.max_epochs=8") == 0
    return folder / "r\x1b[/red]un", data


def test_columns_notes_and_tables_of_an_evil_run(evil, tmp_path, fenchel):
    words = tmp_path / "\x1bwords"
    words.write_text("wa\x1blk\tV;PST\n\x9b\x00c".replace("\x00", "\u2029") + "\tV\n", "utf-8")
    done = fenchel("predict", "--run", evil[0], words, "--nbest", 3, "--support")
    assert done.code == 0 and is_harmless(done.out) and is_harmless(done.err)
    lines = done.out.split("\n")[:-1]
    assert lines == done.out.splitlines() and {len(line.split("\t")) for line in lines} == {6}
    assert lines[0].startswith("wa\\x1blk\t") and "\\u2029" in lines[-1]
    assert "note: " in done.err and "\\x1bwords:2: training never saw" in done.err
    done = fenchel("predict", "--run", evil[0], words, "--format", "json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert is_harmless(done.out) and records[0]["source"] == "wa\x1blk" and len(records) == 2
    done = fenchel("evaluate", "--run", evil[0], evil[1])
    assert done.code == 0 and is_harmless(done.out) and "[/red]un" in "".join(done.out.split())


def test_errors_of_an_evil_run(evil, tmp_path, fenchel):
    shutil.copytree(evil[0], tmp_path / "\x1b]0;title\x07")
    run = tmp_path / "\x1b]0;title\x07"
    (run / "run.json").write_text(json.dumps({"format": 1, "task": "\x1b[31mtask\u202e"}))
    for arguments in (
        ["predict", "--run", run],
        ["predict", "--run", run / "no\r"],
        ["predict", "--run", evil[0], tmp_path / "no\x1b"],
        ["predict", "--run", evil[0], "--language", "\x1b[31m"],
        ["predict", "--run", evil[0], "--format", "\x1b[/red]"],
        ["predict", "--run", evil[0], "--device", "\x1b[/red]"],
        ["\x1b[31m[/red]"],
        ["evaluate", "--run", "[/red]", evil[1]],
        ["train", "inflection", "--run", tmp_path / "r", "--set", "\x1b[/red]=3"],
    ):
        done = fenchel(*arguments)
        assert (done.code, done.out) == (2, "")
        assert is_harmless(done.err) and done.err.count("\n") == 1
        assert "fault of fenchel" not in done.err


def test_everything_is_printed_through_one_door():
    """No other file of the command line prints, makes a console, or writes to a stream."""
    for path in Path(fenchel.cli.__file__).parent.glob("*.py"):
        if path.name == "_output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            wrong = re.fullmatch(r"print|.*\.Console|sys\.std(out|err)\.write", name)
            assert not wrong, f"{path.name}: {ast.unparse(node)}"
