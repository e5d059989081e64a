from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel._compat import require
from fenchel.tasks._vocabulary import SPECIALS


class BPE:
    """Byte pair encoding by the ``tokenizers`` library, on bytes: it knows every text.

    What is decoded is what was encoded, to the character, apart from white space at the ends.

    Args:
        tokenizer: a ``tokenizers.Tokenizer``, as :meth:`learn` and :meth:`load` make it.

    Example:
        >>> from fenchel.tasks import BPE
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
        least = len(SPECIALS) + 256
        if size < least:
            raise FenchelError(
                f"BPE: expected a vocabulary of at least {least} (every byte, and "
                f"{len(SPECIALS)} special tokens), but got {size}."
            )
        library = _library()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.normalizer = library.normalizers.Strip()
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = library.decoders.ByteLevel()
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
        """Write the JSON of the ``tokenizers`` library."""
        self._tokenizer.save(str(path))

    @classmethod
    def load(cls, path: Path) -> BPE:
        """Read what :meth:`save` wrote."""
        if not path.is_file():
            raise FenchelError(f"{path}: expected the tokenizer of a run, but there is none.")
        library = _library()
        try:
            return cls(library.Tokenizer.from_file(str(path)))
        except Exception:  # the library raises bare Exception
            raise FenchelError(f"{path}: expected JSON of the tokenizers library.") from None


def _library() -> Any:
    return require("tokenizers", extra="train", purpose="byte pair encoding")
