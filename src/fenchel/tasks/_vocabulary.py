from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.models import BOS, EOS, PAD, UNK
from fenchel.runs.files import LARGE, Unreadable, parse_json, read_plain, write_file

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
if [PAD, BOS, EOS, UNK] != [0, 1, 2, 3]:  # the order of SPECIALS
    raise AssertionError("the special tokens of models and tasks differ")

REPLACEMENT = "\ufffd"  # what an unknown token is written as


class Vocabulary:
    """Tokens and their numbers: padding, start, end and unknown first, then the learned ones.

    Args:
        tokens: the learned tokens, without the four special ones, each once.

    Example:
        >>> from fenchel.tasks import Vocabulary
        >>> vocabulary = Vocabulary.learn(["banana", "bread"], min_count=2)
        >>> vocabulary.tokens
        ('a', 'b', 'n')
        >>> vocabulary.encode("bar")
        [5, 4, 3]
        >>> vocabulary.decode([5, 4, 3])
        ['b', 'a', '\ufffd']
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = tuple(tokens)
        self._numbers = {token: i for i, token in enumerate(self.tokens, len(SPECIALS))}
        if len(self._numbers) != len(self.tokens):
            twice = next(token for token, count in Counter(self.tokens).items() if count > 1)
            raise FenchelError(
                f"Vocabulary: expected each token once, but {short(twice)} came twice."
            )

    @classmethod
    def learn(cls, sequences: Iterable[Iterable[str]], min_count: int = 1) -> Vocabulary:
        """The tokens that occur at least ``min_count`` times, the most frequent first."""
        counts = Counter(token for sequence in sequences for token in sequence)
        kept = [token for token, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda token: (-counts[token], token)))

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._numbers

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The number of each token; that of ``UNK`` for a token that is not here."""
        return [self._numbers.get(token, UNK) for token in tokens]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        """The tokens of these numbers, without padding, start and end."""
        return [self.token(number) for number in numbers if number not in (PAD, BOS, EOS)]

    def token(self, number: int) -> str:
        """The token of one number; the special ones by name, the unknown one as U+FFFD."""
        if number >= len(SPECIALS):
            return self.tokens[number - len(SPECIALS)]
        return REPLACEMENT if number == UNK else SPECIALS[number]

    def save(self, path: Path) -> None:
        """Write the tokens as JSON, down to the disk."""
        text = json.dumps(self.tokens, ensure_ascii=False, indent=0)
        if any("\ud800" <= character <= "\udfff" for character in text):  # of a file's name
            text = json.dumps(self.tokens, indent=0)
        write_file(path, [f"{text}\n".encode()])

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read what :meth:`save` wrote."""
        if not path.exists() and not path.is_symlink():
            raise FenchelError(
                f"{path}: expected the vocabulary of a run, but there is no such file."
            )
        try:
            tokens = parse_json(read_plain(path, LARGE))
        except Unreadable as error:
            raise FenchelError(
                f"{path}: expected a JSON list of tokens, but the file is damaged ({error})."
            ) from error
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise FenchelError(f"{path}: expected a JSON list of tokens.")
        try:
            return cls(tokens)
        except FenchelError as error:
            raise FenchelError(f"{path}: {error}") from None
