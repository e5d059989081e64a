"""Runs of strangers: whatever is wrong with a file, the answer is one short sentence.

Or a correct result. No other exception, no memory that the files do not need, and nothing written
outside of the directory.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.runs.errors import TrainingError
from fenchel.tasks import open_run
from tests.tasks import strangers
from tests.tasks.strangers import BOMB, CHECKPOINT, DAMAGES, VALUES

# On one worker: what they share takes long to make.
pytestmark = pytest.mark.xdist_group("attacks")

resource = pytest.importorskip("resource", reason="asks the system for memory and makes pipes")

FILES = [
    "run.json",
    "config.yaml",
    "source.json",
    "target.json",
    "checkpoints.json",
    *(f"{CHECKPOINT}/{name}.safetensors" for name in ("model", "optimizer", "random")),
    f"{CHECKPOINT}/state.json",
]
JSON = [name for name in FILES if name.endswith(".json")]
ALIKE = ("dots", "absolute", "true", "object")  # to others, where no name is expected
LONGEST = 600  # characters of a sentence, with two long names of files


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return strangers.make_run(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="module")
def expected(original, tmp_path_factory):
    """What the run answers, and how it goes on."""
    copy = tmp_path_factory.mktemp("expected") / "run"
    _copy(original, copy)
    return strangers.use(copy), strangers.resume(copy)


@pytest.fixture(autouse=True)
def quick_and_small(monkeypatch):
    """The disk need not be waited for; memory must not grow."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400_000, f"{grown} kB"


class Attack:
    """A copy of the run, beside a folder that nothing may be written to."""

    def __init__(self, original: Path, folder: Path, expected) -> None:
        self.original, self.folder, self.expected = original, folder, expected
        self.outside = folder / "outside"
        self.refused = self.passed = 0

    def fresh(self) -> Path:
        """A new copy of the run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.outside.mkdir(parents=True)
        _copy(self.original, self.folder / "run")
        return self.folder / "run"

    def survives(self, what: str, *, same: bool = True, calls: str = "both") -> None:
        """Use the run and resume it; each says a sentence, or what the original says."""
        each = [(strangers.use, self.expected[0]), (strangers.resume, self.expected[1])]
        before = _contents(self.outside)
        for call, right in each:
            if calls not in ("both", call.__name__):
                continue
            try:
                found = call(self.folder / "run")
            except FenchelError as error:
                said = str(error)
                assert len(said) < LONGEST and "\n" not in said, f"{what}: {said[:2000]}"
                self.refused += 1
            except TrainingError as error:  # numbers that no training makes
                assert len(str(error)) < LONGEST
                self.refused += 1
            except BaseException as error:
                raise AssertionError(f"{what}: {call.__name__}: {error!r:.500}") from error
            else:
                assert not same or found == right, f"{what}: {call.__name__}: {found}"
                self.passed += 1
        assert _contents(self.outside) == before, what


@pytest.fixture
def attack(original, tmp_path, expected):
    return Attack(original, tmp_path / "attack", expected)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(attack, name):
    for how, damage in DAMAGES.items():
        for sealed in (False, True):
            if sealed and how in ("sparse", "pipe", "device"):
                continue
            run = attack.fresh()
            damage(run / name, attack.outside)
            if sealed:
                strangers.reseal(run)
            attack.survives(f"{name} {how}, sealed: {sealed}", same=not sealed)
    assert attack.refused > len(DAMAGES)


@pytest.mark.parametrize("name", JSON)
def test_every_value_of_every_json_file(attack, name):
    document = json.loads((attack.original / name).read_text())
    for number, place in enumerate(strangers.places(document)):
        short = place[0] in ("config", "sha256") and len(place) > 1
        alike = ALIKE if name.endswith("state.json") else ()
        for label, value in list(VALUES.items())[number % 7 :: 7] if short else VALUES.items():
            if label in alike:
                continue
            run = attack.fresh()
            (run / name).write_text(
                strangers.dump(strangers.replaced(document, place, value)), "utf-8"
            )
            # Of the state, only resuming reads all; of the settings in it, a few values will do.
            calls = {"state.json": "resume", "checkpoints.json": "both"}.get(Path(name).name, "use")
            attack.survives(f"{name} {place} {label}", same=False, calls=calls)
    assert attack.refused >= len(VALUES)


ODD = [
    "null", "[]", "{a: 1}", "-1", "1e400", ".nan", "0x" + "f" * 9000, "9" * 9000, "2001-99-99",
    "!!binary x", "!!python/object:os.system {}", "!!bool x", "1:99:99", "'" + "x" * 9000 + "'",
    BOMB, "[" * 500 + "]" * 500, "*a", "20000000",
]  # fmt: skip


def test_every_value_of_the_config(attack):
    lines = (attack.original / "config.yaml").read_text().splitlines()
    fields = range(len(lines))
    run = attack.fresh()
    for number, at in enumerate(fields):
        # All odd values of some fields, and of each field some of them.
        for odd in ODD if number % 12 == 0 else ODD[number % 3 :: 3]:
            key = lines[at].partition(":")[0]
            text = [*lines[:at], f"{key}: {odd}", *lines[at + 1 :]]
            (run / "config.yaml").write_text("\n".join(text) + "\n")
            try:
                open_run(run)
            except FenchelError as error:
                assert len(str(error)) < LONGEST and "\n" not in str(error), str(error)[:2000]


@pytest.mark.parametrize("name", ["model", "optimizer", "random"])
def test_every_value_of_a_header(attack, name):
    path = f"{CHECKPOINT}/{name}.safetensors"
    data = (attack.original / path).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    names = list(header)[:2]
    some = [place for place in strangers.places(header) if place[0] in names]
    for place in some:
        for label, value in VALUES.items():
            run = attack.fresh()
            new = strangers.replaced(header, place, value)
            strangers.rewritten_header(run / path, lambda _, new=new: new)
            strangers.reseal(run)
            attack.survives(
                f"{path} {place} {label}", same=False, calls="use" if name == "model" else "resume"
            )
    assert attack.refused > 20


def test_a_header_that_claims_much(attack):
    """Names and shapes come first: a long file of zeros is never read."""
    for name in ("model", "optimizer", "random"):
        run = attack.fresh()
        path = run / CHECKPOINT / f"{name}.safetensors"

        def claim(header):
            first = next(key for key in header if key != "__metadata__")
            size = 1_250_000_000
            return {first: {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}}

        strangers.rewritten_header(path, claim)
        length = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        os.truncate(path, length)
        os.truncate(path, length + 5_000_000_000)
        attack.survives(name)


def test_a_model_that_is_not_that_of_the_weights(attack):
    """With digests that fit: the shapes decide, before there is memory for either."""
    config = (attack.original / "config.yaml").read_text()
    about = json.loads((attack.original / "run.json").read_text())
    for change in ("hidden: 20000", "layers: 200", "embedding: 60000"):
        run = attack.fresh()
        key = change.partition(":")[0]
        was = next(line.strip() for line in config.splitlines() if line.strip().startswith(key))
        (run / "config.yaml").write_text(config.replace(was, change))
        with pytest.raises(FenchelError) as error:
            open_run(run)
        assert "expected model of config.yaml as the run was started with" in str(error.value)
        seal_config(run, about)
        with pytest.raises(FenchelError, match=r"expected the weights of this model, but they are"):
            strangers.use(run)
        with pytest.raises(FenchelError, match=r"expected (the weights of|what fits into)"):
            strangers.resume(run)


def seal_config(run: Path, about) -> None:
    """Put the digest of a changed config where it is looked for."""
    from dataclasses import asdict

    from fenchel.runs import load_config
    from fenchel.runs.digest import digest_values
    from fenchel.tasks import RunConfig

    config = load_config(RunConfig, run / "config.yaml")
    digests = {**about["sha256"], "model of config.yaml": digest_values(asdict(config.model))}
    (run / "run.json").write_text(json.dumps({**about, "sha256": digests}))
    state = run / CHECKPOINT / "state.json"
    values = json.loads(state.read_text())
    values["extra"] = {"meaning": digest_values(digests)}
    state.write_text(json.dumps(values))


def test_a_rotated_vocabulary_is_noticed(attack):
    run = attack.fresh()
    for name in ("source.json", "target.json"):
        tokens = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(tokens[1:] + tokens[:1]))
        with pytest.raises(FenchelError) as error:
            strangers.use(run)
        assert str(error.value) == (
            f"{run}: expected {name} as the run was started with, but its SHA-256 is not the one "
            f"in run.json; the weights mean something else without it, so restore it from a copy, "
            f"or train again."
        )
        # With a digest that fits it is another run, to which the checkpoint does not belong.
        strangers.reseal(run)
        with pytest.raises(FenchelError, match="expected a checkpoint of this run, but it was"):
            strangers.use(run)
        with pytest.raises(FenchelError, match="expected a checkpoint of this run, but it was"):
            strangers.resume(run)
        run = attack.fresh()


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", ".config.yaml.tmp", ".checkpoints.json.tmp", ".lock", ".torchrun"],
)
def test_nothing_is_written_through_a_link(attack, name, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    for there in (True, False):
        run = attack.fresh()
        target = attack.outside / "thesis.tex"
        if there:
            target.write_text("dear reader")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)
        attack.survives(f"{name}, {there}")
        assert target.exists() == there


def test_nothing_is_written_into_or_removed_from_linked_folders(attack):
    for name in ("checkpoints", CHECKPOINT):
        run = attack.fresh()
        shutil.move(run / name, attack.outside / "there")
        (attack.outside / "there" / "step-1").mkdir()
        (run / name).symlink_to(attack.outside / "there")
        attack.survives(name)
        assert attack.passed == 0
        with pytest.raises(FenchelError) as error:
            strangers.use(run)
        assert str(error.value) == (
            f"{run / name}: expected a directory in a run directory, but it is a symbolic link; "
            f"copy what it points to in its place."
        )


def test_tokenizers(tmp_path):
    """A tokenizer's file is the library's; of it only tokens and merges count."""
    run = strangers.make_run(tmp_path, "translation")
    document = json.loads((run / "source.json").read_text())
    right = strangers.use(run)
    places = [p for p in strangers.places(document) if p[0] != "model" or len(p) < 3]
    places += [("model", "vocab", name) for name in ("<pad>", "a", "Ġ")]
    places += [("model", "merges", 0)]
    for place in places:
        for label, value in list(VALUES.items())[::5]:
            new = strangers.replaced(document, place, value)
            (run / "source.json").write_text(strangers.dump(new), "utf-8")
            strangers.reseal(run)
            about = json.loads((run / "run.json").read_text())
            seal_config(run, about)
            try:
                assert strangers.use(run).keys() == right.keys()
            except FenchelError as error:
                assert len(str(error)) < LONGEST, f"{place} {label}"


def _copy(run: Path, to: Path) -> None:
    shutil.copytree(run, to, symlinks=True)
    shutil.copy(run.parent / "x-train", to.parent / "x-train")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() and path.stat().st_size < 10**8 else b""
        for path in sorted(folder.rglob("*"))
    }
