"""Training speed in tokens a second: softmax, entmax 1.5, another α, and a learned one.

    python -m benchmarks.papers.speed DATA OUT.json [--steps 300] [--threads 1] [--lstm 128 ...]

DATA has the files of Multi30k. The models of one architecture differ in attention and output only,
start from the same weights and take turns on the same batches, each for a whole update (collate,
loss, gradient, clipping, Adam), so that all meet the same machine. They learn as they go, and their
supports shrink as in training. A ratio is the median over the batches of the softmax model's time
divided by the other's on the same batch; above 1 is faster than softmax. Results are added to OUT.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.papers.runs import write_json
from benchmarks.reporting import machine
from fenchel.models import Batch, LSTMConfig, Seq2Seq, TransformerConfig, build_model
from fenchel.tasks import Translation
from fenchel.tasks.translation import read_parallel
from fenchel.training.batches import bucketed_batches, pair_length

# Attention and output of each model; the first one is what the others are compared with.
MAPS = {
    "softmax": ("softmax", "softmax"),
    "entmax 1.5": ("entmax", "entmax"),
    "sparsemax": ("sparsemax", "sparsemax"),
    "entmax 1.3": ("entmax:1.3", "entmax:1.3"),
    "learned": ("entmax:learned", "entmax"),
}


def lstm(width: int, vocabulary: int, attention: str, output: str) -> Seq2Seq:
    return build_model(
        LSTMConfig(
            source_vocabulary=vocabulary,
            target_vocabulary=vocabulary,
            embedding=width,
            hidden=width,
            attention=attention,
            output=output,
        )
    )


def transformer(width: int, vocabulary: int, attention: str, output: str) -> Seq2Seq:
    return build_model(
        TransformerConfig(
            source_vocabulary=vocabulary,
            target_vocabulary=vocabulary,
            width=width,
            layers=2,
            feedforward=4 * width,
            encoder_attention=attention,
            decoder_attention=attention,
            cross_attention=attention,
            output=output,
        )
    )


class Learner:
    """A model that is timed while it learns."""

    def __init__(self, model: Seq2Seq, rate: float) -> None:
        self.model, self.seconds, self.losses = model, [], []
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step(self, pairs: list[tuple[list[int], list[int]]]) -> None:
        start = time.perf_counter()
        batch = Batch.collate(pairs)
        self.optimizer.zero_grad()
        loss = self.model.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - start)


def compare(
    build: Callable[..., Seq2Seq], width: int, data: Any, options: argparse.Namespace
) -> dict[str, Any]:
    """Train all models in turns; speeds of the first fifth and of the last half of the steps."""
    vocabulary, batches = data
    learners = {}
    for name, (attention, output) in MAPS.items():
        torch.manual_seed(0)
        learners[name] = Learner(build(width, vocabulary, attention, output), options.rate)
    names, order = list(learners), random.Random(0)
    for pairs in batches:
        order.shuffle(names)  # so that none always meets the caches of the same other
        for name in names:
            learners[name].step(pairs)
    tokens = [sum(len(target) + 1 for _, target in pairs) for pairs in batches]
    spans = {"early": slice(2, len(batches) // 5), "late": slice(len(batches) // 2, None)}
    base = learners["softmax"].seconds
    return {
        name: {
            "parameters": sum(p.numel() for p in learner.model.parameters()),
            "support_size": learner.model.support_size(),
            "last_loss": statistics.fmean(learner.losses[-20:]),
            **{
                f"{span}_tokens_per_second": sum(tokens[part]) / sum(learner.seconds[part])
                for span, part in spans.items()
            },
            **{
                f"{span}_ratio": statistics.median(
                    a / b for a, b in zip(base[part], learner.seconds[part], strict=True)
                )
                for span, part in spans.items()
            },
        }
        for name, learner in learners.items()
    }


def read(directory: Path, vocabulary: int, batch: int, steps: int) -> tuple[int, list]:
    """The size of the vocabulary, and as many batches as there are steps."""
    paths = [directory / f"train.{language}.gz" for language in ("de", "en")]
    examples = list(read_parallel(paths))
    task = Translation.learn(examples, vocabulary)
    pairs = [task.pair(example) for example in examples]
    lengths = [pair_length(pair) for pair in pairs]
    plan: list[list[int]] = []
    epoch = 1
    while len(plan) < steps:
        plan += bucketed_batches(
            lengths, unit="tokens", size=batch, window=2048, seed=0, epoch=epoch
        )
        epoch += 1
    return task.sizes[1], [[pairs[index] for index in batch] for batch in plan[:steps]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lstm", type=int, nargs="*", default=[128], help="widths")
    parser.add_argument("--transformer", type=int, nargs="*", default=[128], help="widths")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=2000, help="tokens, with padding")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.steps < 15:
        parser.error(f"--steps: expected at least 15, but got {options.steps}")
    torch.set_num_threads(options.threads)
    data = read(options.data, options.vocabulary, options.batch, options.steps)
    for name, build, widths in (
        ("lstm", lstm, options.lstm),
        ("transformer", transformer, options.transformer),
    ):
        for width in widths:
            title = f"{name} {width}, {data[0]} tokens, {options.threads} thread(s)"
            before = _document(options.out).get(title)
            if before is not None:
                if before["settings"] != _settings(options):
                    raise SystemExit(f"{options.out}: {title} with other settings; choose another")
                print(f"{title}: done before")
                continue
            _add(options, title, compare(build, width, data, options))


def _document(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {key: getattr(options, key) for key in ("batch", "steps", "rate", "threads")}


def _add(options: argparse.Namespace, name: str, found: dict[str, Any]) -> None:
    document = _document(options.out)
    document[name] = {"settings": _settings(options), "machine": machine(), "models": found}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, document)
    print(f"\n{name}")
    for model, numbers in found.items():
        print(
            f"  {model:12} {numbers['late_tokens_per_second']:8.0f} tokens/s, ratio "
            f"{numbers['late_ratio']:.2f} (early {numbers['early_ratio']:.2f}), "
            f"support {numbers['support_size']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
