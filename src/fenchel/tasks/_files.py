from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from fenchel._checks import FenchelError

STDIN = "-"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a file, without its end, and where it stands."""

    text: str
    number: int
    file: str

    @property
    def place(self) -> str:
        """``file:number``, as compilers and editors write it."""
        return f"{self.file}:{self.number}"


def read_lines(path: str | Path) -> Iterator[Line]:
    """The lines of a UTF-8 text file, one at a time; ``-`` is standard input, ``.gz`` is unpacked.

    Raises:
        FenchelError: one sentence that names the file, and the line where there is one.
    """
    if str(path) == STDIN:
        yield from _decoded(sys.stdin.buffer, "<stdin>")
        return
    file = Path(path)
    check_readable(file)
    if file.suffix != ".gz":
        with file.open("rb") as stream:
            yield from _decoded(stream, str(path))
        return
    try:
        with gzip.open(file) as packed:
            yield from _decoded(packed, str(path))
    except (gzip.BadGzipFile, EOFError):
        raise FenchelError(f"{path}: expected a whole gzip file, as its name says.") from None


def check_readable(path: Path) -> None:
    """Refuse what is missing, a directory, or not ours to read."""
    if path.is_dir():
        raise FenchelError(f"{path}: expected a text file, but it is a directory.")
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise FenchelError(f"{path}: expected a text file, but there is no such file.") from None
    except OSError as error:
        raise FenchelError(f"{path}: cannot be read ({error.strerror}).") from None


def check_not_empty(lines: Iterable[Line], path: str | Path, expected: str) -> Iterator[Line]:
    """Pass the lines on; refuse a file that has none."""
    empty = True
    for line in lines:
        empty = False
        yield line
    if empty:
        name = "<stdin>" if str(path) == STDIN else path
        raise FenchelError(f"{name}: expected lines of {expected}, but the file is empty.")


def _decoded(stream: Iterable[bytes] | IO[bytes], name: str) -> Iterator[Line]:
    for number, raw in enumerate(stream, 1):
        if number == 1:
            if raw.startswith(_UTF16):
                raise FenchelError(
                    f"{name}: expected UTF-8 text, but it starts like UTF-16; convert it with "
                    "`iconv -f UTF-16 -t UTF-8`."
                )
            raw = raw.removeprefix(_BOM)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FenchelError(
                f"{name}:{number}: expected UTF-8 text, but byte {error.start + 1} is "
                f"0x{raw[error.start]:02x}; if the file is Latin-1, convert it with "
                "`iconv -f LATIN1 -t UTF-8`."
            ) from None
        if "\0" in text:
            raise FenchelError(f"{name}:{number}: expected text, but the line has a zero byte.")
        yield Line(text.rstrip("\r\n"), number, name)
