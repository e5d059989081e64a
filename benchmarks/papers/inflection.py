"""Morphological inflection in ten languages of ten families, as Peters et al. (2019) §4.1.

    python -m benchmarks.papers.inflection DATA OUT [--seeds 0 1 2] [--only NAME] [--share 1/2]

DATA has the files of the CoNLL–SIGMORPHON 2018 shared task, ``LANGUAGE-train-medium``, ``-dev`` and
``-test``. One model for all languages, for each of softmax, entmax 1.5 and sparsemax as output and
as attention: word accuracy on the test sets averaged over the languages (their Table 1), and what
beam search can prove on the dev sets (their §4.1).
"""

from __future__ import annotations

from itertools import product

from benchmarks.papers.runs import Model, arguments, train_all
from fenchel.tasks import DataConfig, Run, SearchOptions, evaluate

LANGUAGES = {
    "adyghe": "Northwest Caucasian",
    "arabic": "Afro-Asiatic",
    "bashkir": "Turkic",
    "finnish": "Uralic",
    "georgian": "Kartvelian",
    "haida": "isolate",
    "kannada": "Dravidian",
    "khaling": "Sino-Tibetan",
    "russian": "Indo-European",
    "swahili": "Niger-Congo",
}
MAPS = {"softmax": 1.0, "entmax": 1.5, "sparsemax": 2.0}
SETTINGS = (
    "model.embedding=128",
    "model.hidden=128",
    "train.learning_rate=0.003",
    "train.schedule=linear",
    "train.warmup_steps=300",
    "train.max_steps=4710",  # thirty epochs of ten thousand examples
    "train.max_epochs=null",
    "train.validate_every=942",
)


def models(seeds: list[int]) -> list[Model]:
    """Every output with every attention, all of one seed before the next."""
    return [
        Model(
            f"inflection-{output}-{attention}-{seed}",
            "inflection",
            "lstm",
            (
                *SETTINGS,
                f"model.output={output}",
                f"model.attention={attention}",
                f"train.seed={seed}",
            ),
            {"output": MAPS[output], "attention": MAPS[attention], "seed": seed},
        )
        for seed, output, attention in product(seeds, MAPS, MAPS)
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    train, dev, test = (
        [str(options.data / f"{language}-{split}") for language in LANGUAGES]
        for split in ("train-medium", "dev", "test")
    )

    def measure(run: Run) -> dict[str, float]:
        model = run.model()
        search = SearchOptions(beam=5)
        on_test = evaluate(model, run.task, run.task.read(test), search)
        on_dev = evaluate(model, run.task, run.task.read(dev), search)
        dev_names = ("accuracy", "certified", "exhaustive", "single", "support")
        return {
            **{name: value for name, value in on_test.items() if name.startswith("accuracy")},
            **{f"dev_{name}": on_dev[name] for name in dev_names},
        }

    train_all(models(options.seeds), DataConfig(tuple(train), tuple(dev)), measure, options)


if __name__ == "__main__":
    main()
