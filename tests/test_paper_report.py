"""From recipes to the tables of the docs: small runs end to end, and tables of made-up results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.papers import ensembles, inflection, report

WORDS = ("dog", "cat", "hat", "log")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch):
    """Calls a recipe as a command."""
    threads = torch.get_num_threads()

    def with_arguments(module: Any, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
        module.main()

    yield with_arguments
    torch.set_num_threads(threads)


def test_from_data_to_tables(tmp_path: Path, call, capsys) -> None:
    data, out, docs = tmp_path / "data", tmp_path / "out", tmp_path / "docs"
    data.mkdir()
    docs.mkdir()
    results = tmp_path / "results"
    results.mkdir()
    for language in inflection.LANGUAGES:
        for split in ("train-medium", "dev", "test"):
            lines = "".join(f"{word}\t{word}s\tN;PL\n" for word in WORDS)
            (data / f"{language}-{split}").write_text(lines)
    small = ("model.embedding=16", "model.hidden=32", "train.max_steps=60", "train.warmup_steps=4")
    small += ("train.learning_rate=0.02", "train.validate_every=60")
    settings = [word for setting in small for word in ("--set", setting)]
    only = ("--only", "*-sparsemax-softmax-*")
    call(inflection, data, out / "inflection", "--seeds", 0, 1, *only, *settings)
    call(ensembles, data, out / "inflection")
    call(report, out, docs, results)
    found = json.loads((results / "evidence.json").read_text())
    accuracies = [run["measured"]["accuracy"] for run in found["inflection"]]
    (together,) = found["ensembles"]
    assert len(accuracies) == 2 and together["seeds"] == [0, 1]
    assert found["translation"] == found["grid"] == [] and found["speed"] == {}
    # Models that say nothing would all agree.
    assert max(accuracies) > 0 and together["measured"]["accuracy"] > 0
    written = {path.name for path in docs.iterdir()}
    assert written == {"evidence_inflection.md", "evidence_certificates.md"}
    (row,) = (docs / "evidence_inflection.md").read_text().splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["sparsemax", "softmax"] and cells[3] == "84.95" and cells[-1] == "2"
    assert cells[2].startswith(f"{50 * sum(accuracies):.2f}\u00a0±\u00a0")
    assert cells[4] == f"{100 * together['measured']['accuracy']:.2f}"

    # What is done is not done again, and other settings are not taken for the same.
    capsys.readouterr()
    call(ensembles, data, out / "inflection")
    assert not capsys.readouterr().out
    with pytest.raises(SystemExit, match="results of other settings; choose another OUT"):
        call(inflection, data, out / "inflection", "--seeds", 0, *only, *settings[2:])


def test_options_that_do_nothing_are_refused(tmp_path: Path, call, capsys) -> None:
    with pytest.raises(SystemExit):
        call(ensembles, tmp_path, tmp_path, "--only", "x")
    assert "unrecognized arguments: --only x" in capsys.readouterr().err


def translated(model: str, maps: str, seed: int, **measured: Any) -> dict[str, Any]:
    attention, output = {
        "softmax": ("softmax", "softmax"),
        "learned-attention": ("entmax:learned", "softmax"),
    }[maps]
    dense = {"target_words": 7998.0, "attended": 17.94, "available": 17.94, "token_accuracy": 0.5}
    return {
        "name": f"{model}-{maps}-{seed}",
        "model": model,
        "attention": attention,
        "output": output,
        "seed": seed,
        "training": {"minutes": 10.0 + seed},
        "settings": ["train.learning_rate=0.003", f"train.seed={seed}"],
        "measured": dense | {"alphas": {}} | measured,
    }


def test_tables_of_translation() -> None:
    kinds = ("encoder", "decoder", "cross")
    heads = {kind: [[0.2, 0.4], [0.6, 0.8]] for kind in kinds}
    alphas = {kind: [[1.25, 1.5], [1.0, 1.75]] for kind in kinds}
    learned = translated(
        "transformer", "learned-attention", 0, bleu=30.0, density=heads, alphas=alphas
    )
    found = [learned, *(translated("lstm", "softmax", s, bleu=20.0 + 2 * s) for s in (0, 1))]
    lstm, transformer = report.bleu_table(found)[2:]
    assert lstm == "| lstm | softmax | softmax | 21.00 ± 1.41 | 25.70 | 50.0 % | 10 | 2 |"
    assert transformer == "| transformer | learned α | softmax | 30.00 | 29.90 | 50.0 % | 10 | 1 |"
    nonzeros = report.nonzeros_table(found)[2]
    assert nonzeros.endswith("| 17.94 of 17.9 | 24.25 | 7,998.0 | 17,993 |")
    (density,) = report.density_table(found)[2:]
    assert density.split("|")[2:] == [" 50 % "] * 3 + [" 1.00 – 1.75 "] * 3 + [""]


def test_only_seeds_are_averaged() -> None:
    found = [translated("lstm", "softmax", seed, bleu=20.0) for seed in (0, 1)]
    found[1]["settings"].append("train.max_steps=10")
    with pytest.raises(SystemExit, match="lstm-softmax-0, lstm-softmax-1: models of one row have"):
        report.bleu_table(found)


def test_an_ensemble_of_other_seeds_is_not_shown() -> None:
    run = {"output": 2.0, "attention": 1.0, "seed": 0, "measured": {"accuracy": 0.8}}
    run |= {"settings": [], "training": {"minutes": 1.0}, "name": "one"}
    runs = [run, run | {"seed": 1}]
    three = {"output": 2.0, "attention": 1.0, "seeds": [0, 1, 2], "measured": {"accuracy": 0.9}}
    for ensemble, shown in ((three, "–"), (three | {"seeds": [0, 1]}, "90.00")):
        (row,) = report.inflection_table(runs, [ensemble])[2:]
        assert row == f"| sparsemax | softmax | 80.00 ± 0.00 | 84.95 | {shown} | 86.41 | 1 | 2 |"


def test_tables_of_models_trained_again() -> None:
    slow = translated("lstm", "softmax", 0, bleu=20.0)
    fast = translated("lstm", "softmax", 0, bleu=30.0)
    fast["settings"].append("train.learning_rate=0.01")
    found: dict[str, Any] = {part: [] for part in report.PARTS}
    found |= {"translation": [slow], "translation_fast": [fast]}
    (row,) = report.again_table(found, "train.learning_rate", "learning rate")[2:]
    assert row == "| lstm, translation | softmax | softmax | 0.003: 20.00 | 0.01: 30.00 |"
    assert not report.again_table(found, "train.max_steps", "updates")[2:]

    short = {"name": "inflection-softmax-entmax-0", "output": 1.0, "attention": 1.5}
    long = short | {"settings": ["train.max_steps=5", "train.max_steps=15"]}
    found["inflection"] = [
        short | {"settings": long["settings"][:1], "measured": {"accuracy": 0.5}}
    ]
    found["inflection_long"] = [long | {"measured": {"accuracy": 0.75}}]
    head, _, row = report.again_table(found, "train.max_steps", "updates")
    assert head == "| model | attention | output | updates | another |"
    assert row == "| lstm, inflection | entmax 1.5 | softmax | 5: 50.00 | 15: 75.00 |"


def test_table_of_the_grid() -> None:
    measured = {"token_accuracy": 0.5, "attended": 4.25, "target_words": 17.5}
    pairs = ((1.0, 1.5), (1.5, 1.5), (1.5, 2.0))
    found = [{"attention": a, "output": o, "measured": measured} for a, o in pairs]
    assert report.grid_table(found)[2:] == [
        "| 1 | 50.00 % | 4.2 | – | – |",
        "| 1.5 | 50.00 % | 4.2 | 50.00 % | 17.5 |",
        "| 2 | – | – | 50.00 % | 17.5 |",
    ]


def test_table_of_speeds() -> None:
    numbers = {
        "late_tokens_per_second": 1234.5,
        "late_ratio": 1.234,
        "early_ratio": 0.9,
        "support_size": 42.0,
    }
    found = {"transformer 128, 8000 tokens, 1 thread(s)": {"models": {"learned": numbers}}}
    (row,) = report.speed_table(found)[2:]
    assert row == "| transformer 128 | learned | 1,234 | 1.23 | 0.90 | 0.75 | 42 |"
