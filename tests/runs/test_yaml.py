"""Configs as commented YAML, and overrides from text."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from fenchel import FenchelError
from fenchel._compat import MissingDependency
from fenchel.runs import load_config, save_config
from fenchel.runs.config_file import dump_config, override
from fenchel.runs.train_config import TrainConfig


@dataclass(frozen=True)
class Small:
    kind: str = field(default="small", metadata={"help": "The kind."})
    width: int = 3


@dataclass(frozen=True)
class Large:
    kind: str = "large"
    layers: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Run:
    name: str = field(metadata={"help": "What to\n call it."})
    model: Small | Large = field(default_factory=Small, metadata={"help": "The model."})
    train: TrainConfig = field(default_factory=TrainConfig, metadata={"help": "How to train."})
    files: list[str] = field(default_factory=list)
    note: str | None = None
    scale: float | Literal["auto"] = "auto"
    table: dict[str, float] = field(default_factory=dict)
    anything: Any = None


def load(tmp_path, text, cls=TrainConfig):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(cls, path)


def test_every_field_of_the_config_has_its_comment():
    lines = dump_config(TrainConfig()).splitlines()
    for one in dataclasses.fields(TrainConfig):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{one.name}: "))
        assert lines[at - 1] == f"# {one.metadata['help']}"
    assert len(lines) == 2 * len(dataclasses.fields(TrainConfig))


RUNS = [
    Run("plain"),
    Run("yes", model=Large(layers=()), files=["a: b", "#c", "é", "1e3"], note="null", scale=2.0),
    Run("1e-3", train=TrainConfig(learning_rate=1e-05, betas=(0.5, 1e-7), clip_norm=None)),
    Run("line\nbreak", note="", table={"a b": 1e22}, anything=[1, {"x": None}]),
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: repr(run.name))
def test_round_trip(tmp_path, run):
    save_config(run, tmp_path / "run.yaml")
    assert load_config(Run, tmp_path / "run.yaml") == run


def test_nested_comments():
    text = dump_config(Run("x"))
    assert text.startswith(
        "# What to call it.\nname: x\n"
        "# The model.\nmodel:\n  # The kind.\n  kind: small\n  width: 3\n"
    )


def test_what_is_left_out_has_its_default(tmp_path):
    assert load(tmp_path, "") == TrainConfig()
    assert load(tmp_path, "seed: 5\n") == TrainConfig(seed=5)


def test_a_number_that_yaml_takes_for_text(tmp_path):
    assert load(tmp_path, "learning_rate: 1e-3\n").learning_rate == 0.001
    assert load(tmp_path, "learning_rate: 1\n").learning_rate == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat: 1", "unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        ("batch_size: 2.5", "batch_size: expected an int, but got the float 2.5."),
        ("batch_size: true", "batch_size: expected an int, but got the bool True."),
        ("bf16: 1", "bf16: expected true or false, but got the int 1."),
        ("learning_rate: fast", "learning_rate: expected a number, but got the text 'fast'."),
        ("learning_rate: null", "learning_rate: expected a number, but got null."),
        ("clip_norm: []", "clip_norm: expected a number or null, but got the list []."),
        ("mode: up", "mode: expected one of min, max, but got the text 'up'."),
        ("betas: [1]", "betas: expected 2 values, each a number, but got the list [1]."),
        ("metric: 3", "metric: expected text, but got the int 3."),
        ("- 1", "expected keys and values, but got the list [1]."),
        (
            "batch_size: 0",
            "TrainConfig: expected `batch_size` to be an int of at least 1, but got 0.",
        ),
    ],
)
def test_errors_name_file_key_expected_and_got(tmp_path, text, message):
    with pytest.raises(FenchelError) as error:
        load(tmp_path, text)
    assert str(error.value) == f"{tmp_path / 'run.yaml'}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a value for name."),
        ("{name: x, train: {seed: a}}", "train: seed: expected an int, but got the text 'a'."),
        ("{name: x, train: 3}", "train: expected keys and values, but got the int 3."),
        (
            "{name: x, model: {kind: huge}}",
            "model: expected kind to be one of small, large, but got 'huge'.",
        ),
        ("{name: x, zzz: 1}", "unknown key 'zzz'; the keys are name, model, train, files, "),
        ("{name: x, table: {a: b}}", "table.a: expected a number, but got the text 'b'."),
    ],
)
def test_errors_of_nested_configs(tmp_path, text, message):
    with pytest.raises(FenchelError) as error:
        load(tmp_path, text, Run)
    assert str(error.value).startswith(f"{tmp_path / 'run.yaml'}: {message}")


ODD = [
    b"seed: 2001-99-99", b"seed: " + b"9" * 5000, b"seed: !!bool x", b"seed: !!timestamp x",
    b"seed: " + b"[" * 500 + b"]" * 500, b"a: &a [1]\nb: *a", b"#" * (1 << 20) + b"\n", b"a: \x00",
]  # fmt: skip


@pytest.mark.parametrize(
    "data", [b"a: [", b"\xff\xfe\x00", None, b"!!python/object:os.system {}", *ODD]
)
def test_what_is_not_yaml(tmp_path, data):
    path = tmp_path / "run.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(FenchelError) as error:
        load_config(TrainConfig, path)
    assert str(error.value).startswith(f"{path}: expected a YAML file, but it cannot be read (")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("train.learning_rate=1e-3", ("train", "learning_rate"), 0.001),
        ("train.learning_rate = 2", ("train", "learning_rate"), 2.0),
        ("train.clip_norm=null", ("train", "clip_norm"), None),
        ("train.bf16=True", ("train", "bf16"), True),
        ("train.max_steps=12", ("train", "max_steps"), 12),
        ("train.schedule=constant", ("train", "schedule"), "constant"),
        ("train.betas=0.9,0.98", ("train", "betas"), (0.9, 0.98)),
        ("train.betas=[0.9, 0.98]", ("train", "betas"), (0.9, 0.98)),
        ("model.width=7", ("model", "width"), 7),
        ("files=a,b", ("files",), ["a", "b"]),
        ("files=", ("files",), []),
        ("note=a=b", ("note",), "a=b"),
        ("note=none", ("note",), None),
        ("name=12", ("name",), "12"),
        ("scale=auto", ("scale",), "auto"),
        ("scale=1e-2", ("scale",), 0.01),
    ],
)
def test_override(setting, path, value):
    found = override(Run("x"), [setting])
    for name in path:
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_overrides_are_checked_together():
    config = override(TrainConfig(), ["max_epochs=null", "max_steps=5"])
    assert (config.max_epochs, config.max_steps) == (None, 5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.seed", "override: expected key=value, for example train.learning_rate=0.01, but"),
        ("train.sed=1", "override: train: unknown key 'sed'; did you mean 'seed'?"),
        ("tran.seed=1", "override: Run: unknown key 'tran'; did you mean 'train'?"),
        ("train=1", "override: train has fields of its own; set one of them, train.…."),
        ("name.x=1", "override: name is a value and has no field 'x'."),
        ("train.seed=1e3", "override: train.seed: expected an int, but got '1e3'."),
        ("train.bf16=yes", "override: train.bf16: expected true or false, but got 'yes'."),
        ("train.betas=1", "override: train.betas: expected 2 values, each a number, but got '1'."),
        ("train.mode=up", "override: train.mode: expected one of min, max, but got 'up'."),
        ("train.seed=-1", "TrainConfig: expected `seed` to be an int of at least 0, but got -1."),
    ],
)
def test_errors_of_overrides(setting, message):
    with pytest.raises(FenchelError) as error:
        override(Run("x"), [setting])
    assert str(error.value).startswith(message)


def test_without_pyyaml_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependency, match=r'a config file needs PyYAML, .*`pip install "fen'):
        dump_config(TrainConfig())
