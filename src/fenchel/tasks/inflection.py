"""Morphological inflection: from a lemma and tags to a form, one character at a time.

Files have the format of the CoNLL–SIGMORPHON 2018 shared task, ``lemma TAB form TAB tags``, with
the tags joined by semicolons (``V;PST``). Several languages make one model: the input is a token
for the language, one for each tag, then the characters of the lemma.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

from fenchel._checks import FenchelError
from fenchel.runs.files import is_text
from fenchel.runs.typed import check_whole, setting
from fenchel.tasks._task import Example, Task
from fenchel.tasks.files import STDIN, Line, LineError, check_not_empty, read_lines
from fenchel.tasks.metrics import edit_distance
from fenchel.tasks.tokens import Vocabulary

_GOLD = "`lemma TAB form TAB tags`"
_INPUT = "`lemma TAB tags` or `lemma TAB form TAB tags`"
_LANGUAGE, _TAG = "@", "+"  # so that neither can be taken for a character
_SPLIT = re.compile(r"-(train|dev|test|uncovered)\b.*$")


@dataclass(frozen=True)
class InflectionConfig:
    """How characters and tags become tokens."""

    kind: Literal["inflection"] = setting("inflection", "characters and tags")
    min_count: int = setting(1, "how often a character or tag must occur to get a token of its own")

    def __post_init__(self) -> None:
        check_whole("InflectionConfig", "min_count", self.min_count, 1)


class Inflection(Task):
    """Lemma and tags to form.

    Args:
        source: vocabulary of languages (``@english``), tags (``+V``) and characters.
        target: vocabulary of characters.

    Example:
        >>> from fenchel.tasks import Example, Inflection
        >>> example = Example("draw", "drawn", ("V.PTCP", "PST"), "english")
        >>> task = Inflection.learn([example])
        >>> task.source_names(example)
        ['@english', '+V.PTCP', '+PST', 'd', 'r', 'a', 'w']
        >>> task.decode(task.encode_target("drawn"))
        'drawn'
    """

    name = "inflection"
    metric = "accuracy"
    metrics: ClassVar[Mapping[str, str]] = {"accuracy": "max", "edit_distance": "min"}

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        self.source = source
        self.target = target

    @staticmethod
    def default_options() -> InflectionConfig:
        return InflectionConfig()

    @staticmethod
    def read_gold(paths: Sequence[str | Path], language: str | None = None) -> Iterator[Example]:
        for path in paths:
            yield from read_inflection(path, language=language)

    @classmethod
    def from_options(cls, examples: Sequence[Example], options: Any) -> Inflection:
        return cls.learn(examples, options.min_count)

    @classmethod
    def learn(cls, examples: Iterable[Example], min_count: int = 1) -> Inflection:
        """The task whose vocabularies are those of the examples."""
        known = list(examples)
        _check_some_known(known, min_count)
        source = Vocabulary.learn((_source_tokens(example) for example in known), min_count)
        return cls(source, Vocabulary.learn((e.target or "" for e in known), min_count))

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.source), len(self.target)

    @property
    def languages(self) -> list[str]:
        """The languages that training saw."""
        names = self.source.tokens
        return sorted(name[1:] for name in names if len(name) > 1 and name[0] == _LANGUAGE)

    def read(
        self, paths: Sequence[str | Path], *, gold: bool = True, language: str | None = None
    ) -> Iterator[Example]:
        for path in paths:
            yield from read_inflection(path, gold=gold, language=self._language(path, language))

    def _language(self, path: str | Path, language: str | None) -> str:
        known = self.languages
        if language is None and len(known) == 1:
            return known[0]
        name = language or language_of(path)
        if name in known:
            return name
        raise FenchelError(
            f"{'--language' if language else path}: expected one of this model's languages "
            f"({', '.join(known)}), but got {name!r}"
            + ("." if language else "; name it with `--language`.")
        )

    def encode_source(self, example: Example) -> list[int]:
        return self.source.encode(_source_tokens(example))

    def encode_target(self, text: str) -> list[int]:
        return self.target.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.target.decode(tokens))

    def source_names(self, example: Example) -> list[str]:
        return _source_tokens(example)

    def target_name(self, token: int) -> str:
        return self.target.token(token)

    def unknown(self, example: Example) -> set[str]:
        return {token for token in _source_tokens(example) if token not in self.source}

    def columns(self, example: Example, answer: str) -> tuple[str, ...]:
        return example.source, answer, ";".join(example.tags)

    def score(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        """Accuracy and mean edit distance: averaged over the languages, and for each of several."""
        right: dict[str, list[float]] = {}
        far: dict[str, list[float]] = {}
        for example, answer in zip(examples, answers, strict=True):
            gold = example.target or ""
            right.setdefault(example.group, []).append(float(answer == gold))
            far.setdefault(example.group, []).append(float(edit_distance(answer, gold)))
        accuracy = {group: fmean(values) for group, values in right.items()}
        distance = {group: fmean(values) for group, values in far.items()}
        scores = {
            "accuracy": fmean(accuracy.values()),
            "edit_distance": fmean(distance.values()),
        }
        if len(accuracy) > 1:
            scores |= {f"accuracy/{group}": value for group, value in sorted(accuracy.items())}
            scores |= {f"edit_distance/{group}": value for group, value in sorted(distance.items())}
        return scores

    def save(self, directory: Path) -> None:
        self.source.save(directory / "source.json")
        self.target.save(directory / "target.json")

    @classmethod
    def load(cls, directory: Path) -> Inflection:
        source, target = directory / "source.json", directory / "target.json"
        return cls(Vocabulary.load(source), Vocabulary.load(target))


def language_of(path: str | Path) -> str:
    """The language that a file of the shared task names.

    Example:
        >>> from fenchel.tasks.inflection import language_of
        >>> language_of("data/scottish-gaelic-train-high"), language_of("latin.tsv")
        ('scottish-gaelic', 'latin')
    """
    if str(path) == STDIN:
        return "<stdin>"
    return _SPLIT.sub("", Path(path).name.removesuffix(".gz").removesuffix(".tsv"))


def read_inflection(
    path: str | Path, *, gold: bool = True, language: str | None = None
) -> Iterator[Example]:
    """The examples of one file, one at a time; blank lines are passed over.

    Args:
        path: a file, or ``-`` for standard input.
        gold: whether every line must have its form; without, ``lemma TAB tags`` will do.
        language: by default what the file's name says.
    """
    group = language or language_of(path)
    if not is_text(group):
        raise FenchelError(
            f"{'--language' if language else path}: expected the name of a language in UTF-8, but "
            f"got {group!r}" + ("." if language else "; name it with `--language`.")
        )
    expected = _GOLD if gold else _INPUT
    lines = (line for line in read_lines(path) if line.text.strip())
    for line in check_not_empty(lines, path, expected):
        yield _example(line, group, gold, expected)


def _example(line: Line, group: str, gold: bool, expected: str) -> Example:
    columns = line.text.split("\t")
    if len(columns) != 3 and (gold or len(columns) != 2):
        count = f"{len(columns)} column{'s' * (len(columns) != 1)}"
        raise LineError(line, f"expected {expected}, but got {count}")
    lemma, form, tags = columns[0], columns[1] if len(columns) == 3 else None, columns[-1]
    for label, value in (("lemma", lemma), ("form", form), ("tags", tags)):
        if value is not None and not value.strip() and (gold or label != "form"):
            raise FenchelError(f"{line.place}: expected {expected}, but the {label} is empty.")
    return Example(lemma, form or None, tuple(tags.strip().split(";")), group, line.place)


def _check_some_known(examples: Sequence[Example], min_count: int) -> None:
    """Refuse a count that leaves no character of lemmas, or none of forms."""
    sides = ((e.source for e in examples), (e.target or "" for e in examples))
    counts = [Counter(character for text in side for character in text) for side in sides]
    most = min(max(count.values(), default=0) for count in counts)
    if 0 < most < min_count:
        raise FenchelError(
            f"InflectionConfig: expected `min_count` to be an int of at most {most} for these "
            f"files, in which no character is more frequent, but got {min_count}."
        )


def _source_tokens(example: Example) -> list[str]:
    tags = [_TAG + tag for tag in example.tags if tag]
    return [_LANGUAGE + example.group, *tags, *example.source]
