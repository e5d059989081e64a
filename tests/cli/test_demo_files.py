"""`fenchel demo --out DIR` replaces what an earlier demo made there, and nothing else."""

from __future__ import annotations

import json
import shutil

import pytest

from fenchel import FenchelError
from fenchel.cli._demo_files import DemoFiles
from tests.cli.cases import train


def tree(folder):
    """Every file below a folder, with what it says."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["entmax", "softmax"])
def test_a_run_of_the_user_stays(trained, tmp_path, fenchel, name):
    shutil.copytree(trained[0], tmp_path / name)
    before = tree(tmp_path)
    done = fenchel("demo", "--out", tmp_path, "--lemmas", 5, "--steps", 1)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"fenchel: {tmp_path / name}: expected nothing there, or what an earlier demo made, but it "
        "is something else, which the demo does not replace; choose another directory with "
        "`--out`.\n"
    )
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["data/english-train", "beam-1.png", "attention-3.png"])
def test_a_file_of_the_user_stays(tmp_path, fenchel, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    done = fenchel("demo", "--out", tmp_path, "--lemmas", 5, "--steps", 1)
    assert (done.code, done.out) == (2, "") and str(tmp_path / name) in done.err
    assert tree(tmp_path) == {tmp_path / name: b"mine"}


def test_files_are_replaced_unless_edited(tmp_path):
    files = DemoFiles(tmp_path)
    files.check(files=["data/a"], runs=[])
    files.replace("data/a", b"one")
    again = DemoFiles(tmp_path)
    again.check(files=["data/a"], runs=[])
    assert again.replace("data/a", b"two").read_bytes() == b"two"
    (tmp_path / "data" / "a").write_bytes(b"edited")
    with pytest.raises(FenchelError, match="data/a: expected nothing there"):
        again.replace("data/a", b"three")
    assert (tmp_path / "data" / "a").read_bytes() == b"edited"
    assert {path.name for path in tmp_path.rglob("*")} == {"data", "a", "made-by-demo.json"}


def test_a_demo_that_was_killed_can_be_repeated(tmp_path, monkeypatch):
    files = DemoFiles(tmp_path)
    files.check(files=[], runs=[])
    files.replace("a", b"one")
    listed = json.loads((tmp_path / "made-by-demo.json").read_text())
    files.replace("a", b"two")
    # As if it had stopped after the file was written, and before that was noted.
    listed["a"].append(json.loads((tmp_path / "made-by-demo.json").read_text())["a"][0])
    (tmp_path / "made-by-demo.json").write_text(json.dumps(listed))
    DemoFiles(tmp_path).check(files=["a"], runs=[])


def test_runs_are_removed_by_their_mark_only(trained, tmp_path):
    files = DemoFiles(tmp_path)
    files.check(files=[], runs=["entmax"])
    shutil.copytree(trained[0], tmp_path / "entmax")
    files.mark_run("entmax")
    again = DemoFiles(tmp_path)
    again.check(files=[], runs=["entmax"])
    assert not again.clear_run("entmax").exists()
    # Another run in the same place, trained by the user, has no mark.
    assert train(tmp_path / "entmax", trained[1], epochs=1) == 0
    before = tree(tmp_path)
    with pytest.raises(FenchelError, match="entmax: expected nothing there"):
        again.clear_run("entmax")
    assert tree(tmp_path) == before


def test_links_are_not_followed(trained, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    files = DemoFiles(out)
    files.check(files=[], runs=[])
    shutil.copytree(trained[0], other)
    (out / "entmax").symlink_to(other)
    (out / "a").symlink_to(other / "run.json")
    before = tree(other)
    with pytest.raises(FenchelError, match="entmax: expected nothing there"):
        files.clear_run("entmax")
    with pytest.raises(FenchelError, match="a: expected nothing there"):
        files.replace("a", b"x")
    assert tree(other) == before


def test_a_list_that_is_damaged(tmp_path, fenchel):
    for text in ("{", "[]", '{"entmax": 3}', "[" * 100_000):
        (tmp_path / "made-by-demo.json").write_text(text)
        done = fenchel("demo", "--out", tmp_path, "--lemmas", 5, "--steps", 1)
        assert done.code == 2 and "expected a demo's list of what it made" in done.err


def test_a_directory_that_cannot_be(tmp_path, fenchel):
    (tmp_path / "file").write_text("mine")
    for name in ("file", "file/below"):
        done = fenchel("demo", "--out", tmp_path / name, "--lemmas", 5, "--steps", 1)
        assert (done.code, done.out) == (2, "")
        assert "expected a directory that can be written" in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_too_many_lemmas(tmp_path, fenchel):
    pytest.importorskip("lemminflect")
    done = fenchel("demo", "--out", tmp_path, "--lemmas", 1_000_000)
    assert done.code == 2 and done.err.startswith("fenchel: --lemmas: expected at most ")
    assert not list(tmp_path.iterdir())
