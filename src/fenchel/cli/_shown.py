"""Text from files, names and models as it may be printed: nothing in it can steer a terminal."""

from __future__ import annotations

import unicodedata

# Format characters that writing systems need: joiners, soft hyphens, signs over Arabic, Syriac and
# Kaithi numbers. The others are invisible, or turn the direction of what follows.
_NUMBER_SIGNS = (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)
_NEEDED = frozenset([0xAD, 0x200C, 0x200D, *_NUMBER_SIGNS])
_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def shown(text: str) -> str:
    r"""Text with its control characters as escapes: ``\x1b``, ``\n``, ``\u0085``, ``\u202e``.

    That is all of C0 and C1, line and paragraph separators, characters that turn the direction of
    writing or are invisible, and what is not Unicode: a byte of a name that is not UTF-8 becomes
    ``\xff``, which no character does. Applied twice it does no more than once.
    """
    if text.isprintable():  # most is
        return text
    return "".join(_escape(character) if _is_unsafe(character) else character for character in text)


def column(text: str) -> str:
    r"""Text as a column of tab-separated values: as :func:`shown`, and a backslash is doubled.

    So no two texts look alike, and each column can be read back.
    """
    return shown(text.replace("\\", "\\\\"))


def json_text(text: str) -> str:
    r"""JSON that says the same, with unsafe characters as ``\u``: they occur in strings only."""
    if text.isprintable():
        return text
    return "".join(_json_escape(c) if _is_unsafe(c) else c for c in text)


def cut(text: str, length: int = 300) -> str:
    """The start of a text, with … where something is left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _is_unsafe(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Cf":
        return ord(character) not in _NEEDED
    if category == "Cn":
        return 0xE0000 <= ord(character) < 0xE1000  # kept for more invisible ones
    return category in ("Cc", "Cs", "Zl", "Zp")


def _escape(character: str) -> str:
    number = ord(character)
    if character in _NAMES:
        return _NAMES[character]
    if 0xDC80 <= number <= 0xDCFF:  # how Python keeps a byte that it could not decode
        return f"\\x{number - 0xDC00:02x}"
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2] for i in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)
