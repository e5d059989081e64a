"""A small language model trained twice: softmax everywhere, and entmax everywhere.

    python -m benchmarks.language_model TEXT [TEXT ...] [--steps 500] [--out FILE.json]

Each TEXT is a file of sentences, one a line (.gz too). The model is a Transformer over words; the
two runs share data, order, initial weights and optimizer, and differ in attention
(F.scaled_dot_product_attention or fy.entmax_attention) and in output layer and loss (F.linear and
F.cross_entropy, or fy.linear_entmax_loss). They take turns, a few steps each, so that both meet the
same machine. On held-out text both are judged by measures that do not favour one of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fenchel as fy
from benchmarks.reporting import machine

TURN = 10  # steps of one model before the other has its turn


def read(paths: list[str]) -> tuple[Tensor, Tensor, int]:
    """Training and held-out text as numbers of words, and how many words there are."""
    sentences = []
    for path in paths:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
            sentences += [re.findall(r"\w+|[^\w\s]", line.lower()) for line in lines]
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(sentences), generator=generator).tolist()
    words: dict[str, int] = {"\n": 0}
    stream = []
    for i in order:
        for word in [*sentences[i], "\n"]:
            stream.append(words.setdefault(word, len(words)))
    text = torch.tensor(stream)
    held_out = len(text) // 20
    return text[:-held_out], text[-held_out:], len(words)


class Block(nn.Module):
    """Pre-norm Transformer block with causal attention of either kind."""

    def __init__(self, width: int, heads: int, sparse: bool) -> None:
        super().__init__()
        self.heads, self.sparse = heads, sparse
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.project(self.norm1(x)).chunk(3, -1)
        )
        attend = fy.entmax_attention if self.sparse else F.scaled_dot_product_attention
        x = x + self.out(attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


class Model(nn.Module):
    """Words in, hidden states out; the output layer shares the embedding's weight."""

    def __init__(self, words: int, width: int, heads: int, layers: int, length: int, sparse: bool):
        super().__init__()
        torch.manual_seed(0)
        self.sparse = sparse
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, sparse) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def hidden(self, text: Tensor) -> Tensor:
        x = self.words(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def loss(self, text: Tensor, target: Tensor) -> Tensor:
        hidden = self.hidden(text).flatten(0, 1)
        if self.sparse:
            return fy.linear_entmax_loss(hidden, self.words.weight, target.flatten())
        return F.cross_entropy(F.linear(hidden, self.words.weight), target.flatten())

    def probabilities(self, text: Tensor) -> Tensor:
        logits = F.linear(self.hidden(text), self.words.weight)
        return fy.entmax15(logits) if self.sparse else fy.softmax(logits)


def evaluate(model: Model, text: Tensor, length: int) -> dict[str, float]:
    metrics = fy.metrics.GoldMetrics()
    windows = text[: 64 * (length + 1)].reshape(-1, length + 1)
    with torch.no_grad():
        for window in windows.split(8):
            metrics.update(model.probabilities(window[:, :-1]), window[:, 1:])
    found = metrics.compute()
    return {
        "accuracy": found.accuracy,
        "epsilon_perplexity": found.epsilon_perplexity,
        "sparsemax_score": found.sparsemax_score,
        "jensen_shannon": found.jensen_shannon,
        "zero_mass_rate": found.zero_mass_rate,
        "support_size": found.support_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+", help="files of sentences, one a line")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--out", help="write the curves to this file")
    options = parser.parse_args()
    train, held_out, words = read(options.text)
    print(f"{machine()}\n{len(train)} training words, {words} different ones\n")
    shape = (words, options.width, options.heads, options.layers, options.length)
    models = {"softmax": Model(*shape, sparse=False), "entmax": Model(*shape, sparse=True)}
    optimizers = {
        name: torch.optim.Adam(model.parameters(), lr=options.rate)
        for name, model in models.items()
    }
    clocks = dict.fromkeys(models, 0.0)
    curves: dict[str, list[dict]] = {name: [] for name in models}
    generator = torch.Generator().manual_seed(1)
    last = len(train) - options.length - 1
    starts = torch.randint(0, last, (options.steps, options.batch), generator=generator)
    offsets = torch.arange(options.length + 1)
    for first in range(0, options.steps, TURN):
        for name, model in models.items():
            before = time.perf_counter()
            for step in range(first, min(first + TURN, options.steps)):
                window = train[starts[step][:, None] + offsets]
                optimizers[name].zero_grad()
                loss = model.loss(window[:, :-1], window[:, 1:])
                loss.backward()
                optimizers[name].step()
            clocks[name] += time.perf_counter() - before
            done = first + TURN
            if done % 50 == 0 or done >= options.steps:
                point = {"step": done, "seconds": clocks[name], "loss": loss.item()}
                point |= evaluate(model, held_out, options.length)
                curves[name].append(point)
                print(
                    f"{name:>8} step {done:4d} {clocks[name]:7.1f} s  loss {point['loss']:6.3f}  "
                    f"accuracy {point['accuracy']:.3f}  e-perplexity "
                    f"{point['epsilon_perplexity']:7.1f}  support {point['support_size']:8.1f}",
                    flush=True,
                )
    print(f"\nentmax / softmax wall-clock: {clocks['entmax'] / clocks['softmax']:.2f}")
    if options.out:
        text = {"machine": machine(), "words": words, **vars(options), "curves": curves}
        text.pop("text")
        text.pop("out")
        Path(options.out).write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
