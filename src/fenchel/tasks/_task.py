from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Example:
    """One input of a task, with its gold answer where it is known."""

    source: str
    target: str | None = None
    tags: tuple[str, ...] = ()
    group: str = ""  # the language; metrics are also given for each group
    place: str = ""  # file and line


class Task(ABC):
    """What a task brings: how files are read, how text becomes numbers and back, how it is scored.

    Everything else (model, training, search, run directory, command line) is the same for all tasks
    and knows only this class.
    """

    name: ClassVar[str]
    metric: ClassVar[str]  # the one that training maximises
    metrics: ClassVar[Mapping[str, str]]  # all that `score` gives, each with "max" or "min"
    training: ClassVar[Mapping[str, Any]] = {}  # defaults of TrainConfig that suit the task

    @staticmethod
    @abstractmethod
    def default_options() -> Any:
        """The task's own settings, a dataclass: the section ``task`` of ``config.yaml``."""

    @staticmethod
    @abstractmethod
    def read_gold(paths: Sequence[str | Path], language: str | None = None) -> Iterator[Example]:
        """The examples of files with answers, before there is a vocabulary."""

    @classmethod
    @abstractmethod
    def from_options(cls, examples: Sequence[Example], options: Any) -> Task:
        """The task with the vocabularies of training examples."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """The sizes of the source and the target vocabulary."""

    @abstractmethod
    def read(
        self, paths: Sequence[str | Path], *, gold: bool = True, language: str | None = None
    ) -> Iterator[Example]:
        """The examples of these files, one at a time; ``gold=False`` where answers may lack."""

    @abstractmethod
    def encode_source(self, example: Example) -> list[int]:
        """The input's tokens."""

    @abstractmethod
    def encode_target(self, text: str) -> list[int]:
        """The tokens of an answer, without the end."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer."""

    @abstractmethod
    def source_names(self, example: Example) -> list[str]:
        """The input's tokens, each as a person would write it."""

    @abstractmethod
    def target_name(self, token: int) -> str:
        """One token of an answer as a person would write it."""

    def unknown(self, example: Example) -> set[str]:
        """What in the input training never saw."""
        return set()

    @abstractmethod
    def columns(self, example: Example, answer: str) -> tuple[str, ...]:
        """The columns that ``predict`` writes for an answer."""

    @abstractmethod
    def score(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        """The task's metrics."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write what :meth:`load` needs."""

    @classmethod
    @abstractmethod
    def load(cls, directory: Path) -> Task:
        """Read the task of a run."""

    def pair(self, example: Example) -> tuple[list[int], list[int]]:
        """Both sides in numbers, as a batch takes them."""
        return self.encode_source(example), self.encode_target(example.target or "")
