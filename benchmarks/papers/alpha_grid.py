"""The α of attention and of output one at a time, as in Figure 4 of Peters et al. (2019), small.

    python -m benchmarks.papers.alpha_grid DATA OUT [--only NAME] [--share 1/2]

An LSTM of one layer on the German and English of Multi30k: α of the attention from 1 to 2.25 while
the output has 1.5, then the other way around. What counts is the accuracy of the next token on the
validation set, given the right prefix.
"""

from __future__ import annotations

from typing import Any

from benchmarks.papers.nonzeros import count_nonzeros
from benchmarks.papers.runs import Model, arguments, train_all
from fenchel.tasks import DataConfig, Run

GRID = (1.0, 1.25, 1.33, 1.5, 1.75, 2.0, 2.25)
SETTINGS = (
    "task.vocabulary=4000",
    "train.batch_size=2000",
    "search.max_length=60",
    "model.embedding=128",
    "model.hidden=128",
    "model.layers=1",
    "train.learning_rate=0.003",
    "train.schedule=linear",
    "train.warmup_steps=200",
    "train.max_steps=1056",  # four epochs
    "train.max_epochs=null",
)


def models() -> list[Model]:
    pairs = [(alpha, 1.5) for alpha in GRID] + [(1.5, alpha) for alpha in GRID if alpha != 1.5]
    return [
        Model(
            f"grid-attention{attention:g}-output{output:g}",
            "translation",
            "lstm",
            (*SETTINGS, f"model.attention={_spec(attention)}", f"model.output={_spec(output)}"),
            {"attention": attention, "output": output},
        )
        for attention, output in pairs
    ]


def _spec(alpha: float) -> str:
    return "softmax" if alpha == 1 else f"entmax:{alpha:g}"


def main() -> None:
    options = arguments(__doc__).parse_args()
    train, dev = (
        [str(options.data / f"{split}.{language}.gz") for language in ("de", "en")]
        for split in ("train", "val")
    )

    def measure(run: Run) -> dict[str, Any]:
        return count_nonzeros(run.model(), run.task, list(run.task.read(dev)))

    train_all(models(), DataConfig(tuple(train), tuple(dev)), measure, options)


if __name__ == "__main__":
    main()
