"""How text becomes numbers: vocabularies of symbols, and byte-pair encodings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel._compat import require
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
        >>> from fenchel.tasks.tokens import Vocabulary
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


LEAST = len(SPECIALS) + 256  # tokens: every byte has one


class BPE:
    """Byte pair encoding by the ``tokenizers`` library, on bytes: it knows every text.

    What is decoded is what was encoded, to the character, apart from white space at the ends.

    Args:
        tokenizer: a ``tokenizers.Tokenizer``, as :meth:`learn` and :meth:`load` make it.

    Example:
        >>> from fenchel.tasks.tokens import BPE
        >>> bpe = BPE.learn(["low lower lowest", "new newer newest"], 267)
        >>> bpe.names(bpe.encode("lower"))
        [' lo', 'wer']
        >>> bpe.decode(bpe.encode("Ω never seen"))
        'Ω never seen'
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # "<s>" in a text is three characters

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> BPE:
        """Learn merges until there are ``size`` tokens; at least 260, the bytes and specials."""
        if size < LEAST:
            raise FenchelError(
                f"BPE: expected a vocabulary of at least {LEAST} (every byte, and "
                f"{len(SPECIALS)} special tokens), but got {size}."
            )
        library = _library()
        tokenizer = _tokenizer(library.models.BPE())
        trainer = library.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIALS),
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def names(self, tokens: Sequence[int]) -> list[str]:
        """Each token as text; a space stands for the start of a word."""
        return [
            SPECIALS[token] if token < len(SPECIALS) else str(self._tokenizer.decode([token]))
            for token in tokens
        ]

    def save(self, path: Path) -> None:
        """Write the JSON of the ``tokenizers`` library, down to the disk."""
        write_file(path, [self._tokenizer.to_str(pretty=True).encode()])

    @classmethod
    def load(cls, path: Path) -> BPE:
        """Read what :meth:`save` wrote: tokens and merges, all else is as :meth:`learn` has it."""
        if not path.exists() and not path.is_symlink():
            raise FenchelError(f"{path}: expected the tokenizer of a run, but there is none.")
        try:
            document = parse_json(read_plain(path, LARGE))
        except Unreadable as error:
            raise FenchelError(
                f"{path}: expected JSON of the tokenizers library, but it is damaged ({error})."
            ) from error
        vocabulary, merges = _parts(document)
        if vocabulary is None or merges is None:
            raise FenchelError(f"{path}: expected JSON of the tokenizers library.")
        library = _library()
        try:
            tokenizer = _tokenizer(library.models.BPE(vocabulary, merges))
            tokenizer.add_special_tokens(list(SPECIALS))
            return cls(tokenizer)
        except Exception as error:  # the library raises bare Exception
            reason = str(error)[:100]
            raise FenchelError(
                f"{path}: expected JSON of the tokenizers library ({reason})."
            ) from error


Merges = list[tuple[str, str]]


def _parts(document: Any) -> tuple[dict[str, int] | None, Merges | None]:
    """The numbered tokens and the merges of a file, or None of what is not as it should be."""
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict) or model.get("type") != "BPE":
        return None, None
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        return None, None
    numbers = {name: n for name, n in vocabulary.items() if type(n) is int}
    good = sorted(numbers.values()) == list(range(len(vocabulary)))
    good = good and all(numbers.get(name) == i for i, name in enumerate(SPECIALS))
    # Older versions of the library write a merge as one text.
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in merges]
    fine = all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(part, str) and part in numbers for part in pair)
        and pair[0] + pair[1] in numbers
        for pair in pairs
    )
    return (numbers if good else None), ([(a, b) for a, b in pairs] if fine else None)


def _tokenizer(model: Any) -> Any:
    """Byte pair encoding of bytes, with no white space at the ends of a text."""
    library = _library()
    tokenizer = library.Tokenizer(model)
    tokenizer.normalizer = library.normalizers.Strip()
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _library() -> Any:
    return require("tokenizers", extra="train", purpose="byte pair encoding")
