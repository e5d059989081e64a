"""The recipes of ``benchmarks/papers``: what they count, and that a second start resumes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.papers import alpha_grid, inflection, speed, translation
from benchmarks.papers.nonzeros import count_nonzeros
from benchmarks.papers.runs import arguments, results, train_all
from fenchel.models import EOS, Batch, TransformerConfig, build_model
from fenchel.tasks import DataConfig, Example, Translation

PAIRS = [
    ("ein Haus", "a house"),
    ("zwei große Häuser", "two large houses"),
    ("ein Hund", "a dog"),
    ("der Hund sieht ein Haus", "the dog sees a house"),
]


def test_nonzeros_are_those_of_a_loop_over_single_tokens() -> None:
    task = Translation.learn([Example(*pair) for pair in PAIRS], 300)
    torch.manual_seed(0)
    size = task.sizes[0]
    config = TransformerConfig(
        source_vocabulary=size,
        target_vocabulary=size,
        width=16,
        heads=2,
        layers=2,
        feedforward=16,
        cross_attention="sparsemax",
        output="sparsemax",
    )
    model = build_model(config).double().eval()
    with torch.no_grad():  # scores far enough apart for some zeros
        for parameter in model.parameters():
            parameter.mul_(3)
    examples = [Example(*pair) for pair in PAIRS]
    found = count_nonzeros(model, task, examples)
    words, right, attended, available, shares = 0, 0, 0.0, 0, []
    tokens = 0
    for example in examples:
        source, target = task.pair(example)
        state = model.start(torch.tensor([source]), torch.tensor([len(source)]))
        prefix = [1, *target]
        for fed, gold in zip(prefix, [*target, EOS], strict=True):
            step = model.step(state, torch.tensor([fed]))
            state = step.state
            tokens += 1
            words += int((step.probabilities > 0).sum())
            right += int(step.probabilities.argmax() == gold)
        weights = model.attention_maps(Batch.collate([(source, target)]))["cross"]
        counts = (weights > 0).sum(-1).double()
        attended += float(counts.mean((0, 2)).sum())
        available += len(source) * (len(target) + 1)
        shares.append((counts / len(source)).sum((1, 3)))
    assert found["target_words"] == pytest.approx(words / tokens)
    assert found["target_words"] < size - 2
    assert found["token_accuracy"] == pytest.approx(right / tokens)
    assert found["attended"] == pytest.approx(attended / tokens)
    assert found["available"] == pytest.approx(available / tokens)
    expected = torch.stack(shares).sum(0) / tokens
    torch.testing.assert_close(torch.tensor(found["density"]["cross"]), expected.float())
    assert 0 < expected.min() < expected.max() < 1


def test_a_dense_model_has_no_zeros_where_a_query_may_look() -> None:
    examples = [Example(*pair) for pair in PAIRS]
    task = Translation.learn(examples, 300)
    size = task.sizes[0]
    kinds = ("encoder_attention", "decoder_attention", "cross_attention", "output")
    config = TransformerConfig(
        source_vocabulary=size,
        target_vocabulary=size,
        width=16,
        heads=2,
        layers=1,
        feedforward=16,
        **dict.fromkeys(kinds, "softmax"),
    )
    found = count_nonzeros(build_model(config), task, examples)
    assert found["target_words"] == size - 2
    assert found["attended"] == pytest.approx(found["available"])
    for shares in found["density"].values():
        assert torch.tensor(shares).flatten().tolist() == pytest.approx([1.0, 1.0])


TINY = ("model.embedding=8", "model.hidden=8", "train.max_steps=2", "train.warmup_steps=1")


def tiny_options(out: Path, *more: str) -> object:
    settings = [word for setting in TINY for word in ("--set", setting)]
    return arguments(None).parse_args(["data", str(out), *settings, *more])


def test_finished_models_are_not_trained_twice(tmp_path: Path) -> None:
    lines = "".join(f"{word}\t{word}s\tN;PL\n" for word in ("dog", "cat", "hat", "log"))
    paths = []
    for split in ("train-medium", "dev"):
        path = tmp_path / f"english-{split}"
        path.write_text(lines)
        paths.append(str(path))
    data = DataConfig((paths[0],), (paths[1],))
    out = tmp_path / "out"
    chosen = inflection.models([0])
    measured: list[str] = []

    def measure(run) -> dict[str, float]:
        measured.append(run.directory.name)
        return {"score": 0.5}

    options = tiny_options(out, "--only", "*-sparsemax-softmax-0")
    for _ in range(2):
        train_all(chosen, data, measure, options)
    assert measured == ["inflection-sparsemax-softmax-0"]
    (document,) = results(out)
    assert (document["output"], document["attention"], document["seed"]) == (2.0, 1.0, 0)
    assert document["training"]["step"] == 2
    assert document["measured"] == {"score": 0.5}

    # One that was cut off after training, before its results were written, is not started anew.
    (out / "inflection-sparsemax-softmax-0.json").unlink()
    records = out / "runs" / "inflection-sparsemax-softmax-0" / "metrics.jsonl"
    before = records.read_bytes()
    train_all(chosen, data, measure, options)
    assert records.read_bytes() == before
    assert len(results(out)) == 1


def test_every_model_of_an_experiment_has_its_name() -> None:
    names = [model.name for model in inflection.models([0, 1, 2])]
    assert len(set(names)) == 27
    assert len({model.name for model in translation.models([0])}) == 9
    grid = [(model.facts["attention"], model.facts["output"]) for model in alpha_grid.models()]
    assert len(set(grid)) == len(grid) == 2 * len(alpha_grid.GRID) - 1
    assert all(1.5 in pair for pair in grid)


def test_speeds_are_measured_for_every_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, language in enumerate(("de", "en")):
        with gzip.open(tmp_path / f"train.{language}.gz", "wt") as file:
            file.write("".join(pair[place] + "\n" for pair in PAIRS * 8))
    out = tmp_path / "speed.json"
    sizes = ["--lstm", "8", "--transformer", "8", "--vocabulary", "280"]
    monkeypatch.setattr(
        sys, "argv", ["speed", str(tmp_path), str(out), *sizes, "--batch", "60", "--steps", "15"]
    )
    threads = torch.get_num_threads()
    try:
        speed.main()
        monkeypatch.setattr(sys, "argv", [*sys.argv, "--rate", "0.5"])
        with pytest.raises(SystemExit, match="with other settings; choose another"):
            speed.main()
    finally:
        torch.set_num_threads(threads)
    found = json.loads(out.read_text())
    assert len(found) == 2
    for comparison in found.values():
        assert list(comparison["models"]) == list(speed.MAPS)
        assert comparison["models"]["softmax"]["late_ratio"] == 1
        counts = {model["parameters"] for model in comparison["models"].values()}
        # One more for the LSTM's learned α; 2 layers of 3 kinds of attention with 4 heads.
        assert max(counts) - min(counts) in (1, 24)
