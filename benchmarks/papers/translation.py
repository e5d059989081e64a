"""German to English captions: LSTM and Transformer, softmax and sparse, fixed and learned α.

    python -m benchmarks.papers.translation DATA OUT [--seeds 0] [--only NAME] [--share 1/2]

DATA has Multi30k: ``train.de.gz``, ``train.en.gz``, the same for ``val`` and ``test_2016_flickr``.
The LSTMs are those of Peters et al. (2019), Tables 2 and 3, the Transformers those of Correia et
al. (2019), Table 1 and Figures 3 and 4, both smaller: BLEU on the test set, and nonzeros in
attention and output on the validation set.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from benchmarks.papers.nonzeros import count_nonzeros
from benchmarks.papers.runs import Model, arguments, train_all
from fenchel.tasks import DataConfig, Run, SearchOptions, evaluate

COMMON = (
    "task.vocabulary=8000",
    "search.max_length=60",
    "train.learning_rate=0.003",
    "train.schedule=linear",
    "train.warmup_steps=400",
    "train.max_epochs=null",
)
LSTM = (
    *COMMON,
    "model.embedding=128",
    "model.hidden=128",
    "model.dropout=0.2",
    "train.batch_size=1000",  # about the paper's 64 sentences
    "train.max_steps=4200",  # eight epochs
)
TRANSFORMER = (
    *COMMON,
    "model.width=128",
    "model.layers=2",
    "model.feedforward=512",
    "model.dropout=0.2",
    "train.batch_size=2000",
    "train.max_steps=3168",  # twelve epochs
)
# What is special about each model: its attention, and its output.
LSTMS = {
    "softmax": ("softmax", "softmax"),
    "entmax": ("entmax", "entmax"),
    "sparsemax": ("sparsemax", "sparsemax"),
    "learned": ("entmax:learned", "entmax"),
}
TRANSFORMERS = {
    "softmax": ("softmax", "softmax"),
    "entmax": ("entmax", "entmax"),
    "learned": ("entmax:learned", "entmax"),
    "entmax-attention": ("entmax", "softmax"),
    "learned-attention": ("entmax:learned", "softmax"),
}


def models(seeds: list[int]) -> list[Model]:
    found = []
    for seed, (name, (attention, output)) in product(seeds, LSTMS.items()):
        own = (f"model.attention={attention}", f"model.output={output}", f"train.seed={seed}")
        facts = {"model": "lstm", "attention": attention, "output": output, "seed": seed}
        found.append(Model(f"lstm-{name}-{seed}", "translation", "lstm", (*LSTM, *own), facts))
    for seed, (name, (attention, output)) in product(seeds, TRANSFORMERS.items()):
        kinds = ("encoder", "decoder", "cross")
        own = (
            *(f"model.{kind}_attention={attention}" for kind in kinds),
            f"model.output={output}",
            f"train.seed={seed}",
        )
        facts = {"model": "transformer", "attention": attention, "output": output, "seed": seed}
        settings = (*TRANSFORMER, *own)
        found.append(
            Model(f"transformer-{name}-{seed}", "translation", "transformer", settings, facts)
        )
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    train, dev, test = (
        [str(options.data / f"{split}.{language}.gz") for language in ("de", "en")]
        for split in ("train", "val", "test_2016_flickr")
    )

    def measure(run: Run) -> dict[str, Any]:
        model = run.model()
        search = SearchOptions(beam=5, max_length=60)
        on_test = evaluate(model, run.task, run.task.read(test), search)
        on_dev = count_nonzeros(model, run.task, list(run.task.read(dev)))
        alphas = {kind: alpha.tolist() for kind, alpha in model.alphas().items()}
        return {**on_test, **on_dev, "alphas": alphas}

    train_all(models(options.seeds), DataConfig(tuple(train), tuple(dev)), measure, options)


if __name__ == "__main__":
    main()
