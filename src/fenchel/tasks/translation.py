"""Translation and summarization: from one text to another, in pieces of words.

Parallel text comes as two files with as many lines, or as one file of ``source TAB target``. Byte
pair encoding is learned from the training text, one for both sides or one for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

from fenchel._checks import FenchelError
from fenchel.models import EOS
from fenchel.runs.typed import check_whole, setting
from fenchel.tasks._task import Example, Task
from fenchel.tasks.files import Line, check_not_empty, read_lines
from fenchel.tasks.metrics import bleu_and_chrf, rouge
from fenchel.tasks.tokens import BPE, LEAST

_GOLD = "`source TAB target`"


@dataclass(frozen=True)
class TextConfig:
    """How text becomes tokens."""

    kind: Literal["text"] = setting("text", "byte pair encoding")
    vocabulary: int = setting(8000, "how many tokens the byte pair encoding has at most")
    joint: bool = setting(True, "one encoding for both sides; false = one for each")
    max_tokens: int | None = setting(
        120, "training pairs with a side of more tokens are left out; null = none"
    )

    def __post_init__(self) -> None:
        check_whole("TextConfig", "vocabulary", self.vocabulary, LEAST, 1_000_000)
        if self.max_tokens is not None:
            check_whole("TextConfig", "max_tokens", self.max_tokens, 1)


class Translation(Task):
    """Text to text, scored by BLEU and chrF.

    Args:
        source: byte pair encoding of the input.
        target: that of the answer; the same object where one serves both.

    Example:
        >>> from fenchel.tasks import Example, Translation
        >>> task = Translation.learn([Example("ein Haus", "a house")], size=270)
        >>> task.decode(task.encode_target("a house"))
        'a house'
    """

    name = "translation"
    metric = "bleu"
    metrics: ClassVar[Mapping[str, str]] = {"bleu": "max", "chrf": "max"}
    training: ClassVar[Mapping[str, Any]] = {"batch_unit": "tokens", "batch_size": 4000}

    def __init__(self, source: BPE, target: BPE) -> None:
        self.source = source
        self.target = target

    @staticmethod
    def default_options() -> TextConfig:
        return TextConfig()

    @staticmethod
    def read_gold(paths: Sequence[str | Path], language: str | None = None) -> Iterator[Example]:
        return read_parallel(paths)

    @classmethod
    def from_options(cls, examples: Sequence[Example], options: Any) -> Task:
        return cls.learn(examples, options.vocabulary, options.joint)

    @classmethod
    def learn(cls, examples: Iterable[Example], size: int = 8000, joint: bool = True) -> Task:
        """The task whose encoding is learned from the examples.

        Args:
            examples: of the training data.
            size: how many tokens each encoding has at most.
            joint: one encoding for both sides; else one for each.
        """
        known = list(examples)
        sources = [example.source for example in known]
        targets = [example.target or "" for example in known]
        if joint:
            both = BPE.learn(sources + targets, size)
            return cls(both, both)
        return cls(BPE.learn(sources, size), BPE.learn(targets, size))

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.source), len(self.target)

    def read(
        self, paths: Sequence[str | Path], *, gold: bool = True, language: str | None = None
    ) -> Iterator[Example]:
        if language is not None:
            raise FenchelError("--language: expected with inflection only; text has none.")
        return read_parallel(paths) if gold else read_sources(paths)

    def encode_source(self, example: Example) -> list[int]:
        return [*self.source.encode(example.source), EOS]  # an empty line has a token, too

    def encode_target(self, text: str) -> list[int]:
        return self.target.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.target.decode(tokens)

    def source_names(self, example: Example) -> list[str]:
        return self.source.names(self.encode_source(example))

    def target_name(self, token: int) -> str:
        return self.target.names([token])[0]

    def columns(self, example: Example, answer: str) -> tuple[str, ...]:
        return example.source, answer

    def score(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        return bleu_and_chrf(answers, [example.target or "" for example in examples])

    def save(self, directory: Path) -> None:
        self.source.save(directory / "source.json")
        if self.target is not self.source:
            self.target.save(directory / "target.json")

    @classmethod
    def load(cls, directory: Path) -> Task:
        source = BPE.load(directory / "source.json")
        target = directory / "target.json"
        return cls(source, BPE.load(target) if target.exists() else source)


class Summarization(Translation):
    """Text to shorter text, scored by ROUGE."""

    name = "summarization"
    metric = "rouge_l"
    metrics: ClassVar[Mapping[str, str]] = {"rouge_1": "max", "rouge_2": "max", "rouge_l": "max"}

    def score(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        return rouge(answers, [example.target or "" for example in examples])


def read_parallel(paths: Sequence[str | Path]) -> Iterator[Example]:
    """The pairs of one TSV file, or of two files whose lines belong together."""
    if len(paths) == 1:
        for line in check_not_empty(read_lines(paths[0]), paths[0], _GOLD):
            columns = line.text.split("\t")
            if len(columns) != 2:
                count = f"{len(columns)} column{'s' * (len(columns) != 1)}"
                raise FenchelError(f"{line.place}: expected {_GOLD}, but got {count}.")
            yield _pair(line, *columns)
        return
    if len(paths) != 2:
        raise FenchelError(
            f"expected one file of {_GOLD}, or two files of parallel lines, but got {len(paths)}."
        )
    one = check_not_empty(read_lines(paths[0]), paths[0], "text")
    other = check_not_empty(read_lines(paths[1]), paths[1], "text")
    for number, (source, target) in enumerate(zip_longest(one, other), 1):
        if source is None or target is None:
            short, long = (paths[0], paths[1]) if source is None else (paths[1], paths[0])
            raise FenchelError(
                f"{short}: expected as many lines as {long} has, but it ends at line {number - 1}."
            )
        yield _pair(source, source.text, target.text)


def read_sources(paths: Sequence[str | Path]) -> Iterator[Example]:
    """Texts to be answered: a line each, of which only what stands before a tab is read."""
    for path in paths:
        for line in check_not_empty(read_lines(path), path, "text"):
            yield Example(line.text.split("\t")[0], place=line.place)


def _pair(line: Line, source: str, target: str) -> Example:
    return Example(source, target, place=line.place)
