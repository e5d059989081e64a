from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from fenchel._checks import FenchelError

STDIN = "-"
LONGEST_LINE = 1 << 20  # bytes; a file without line ends must not fill the memory
_QUOTED = 60  # characters of a line that a message shows
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


class LineError(FenchelError):
    """A line that is not what it should be: what is wrong, and the start of the line.

    Args:
        line: the line.
        problem: what was expected and what came, without a full stop.
    """

    def __init__(self, line: Line, problem: str) -> None:
        text = line.text if len(line.text) <= _QUOTED else line.text[: _QUOTED - 1] + "…"
        self.unquoted = f"{line.place}: {problem}."
        super().__init__(f"{line.place}: {problem}: {text!r}.")


def read_lines(path: str | Path) -> Iterator[Line]:
    """The lines of a UTF-8 text file, one at a time; ``-`` is standard input, ``.gz`` is unpacked.

    Raises:
        FenchelError: one sentence that names the file, and the line where there is one.
    """
    if str(path) == STDIN:
        yield from _decoded(_standard_input(), "<stdin>")
        return
    name = str(path)
    with _open(Path(path)) as stream:
        if name.endswith(".gz"):
            with gzip.open(stream) as packed:
                yield from _decoded(packed, name)
        else:
            yield from _decoded(stream, name)


@contextmanager
def unquoted() -> Iterator[None]:
    """Say which line is wrong, but not what it says.

    For files that a run's own config names: a run from a stranger may name any file, and a message
    must not show what stands in it.
    """
    try:
        yield
    except LineError as error:
        raise FenchelError(error.unquoted) from None


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except IsADirectoryError:
        raise FenchelError(f"{path}: expected a text file, but it is a directory.") from None
    except FileNotFoundError:
        raise FenchelError(f"{path}: expected a text file, but there is no such file.") from None
    except OSError as error:
        raise FenchelError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError:
        raise FenchelError(f"{path}: expected a file name without a zero byte.") from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise FenchelError("<stdin>: expected lines on standard input, but it is closed.")
    return sys.stdin.buffer


def check_not_empty(lines: Iterable[Line], path: str | Path, expected: str) -> Iterator[Line]:
    """Pass the lines on; refuse a file that has none."""
    empty = True
    for line in lines:
        empty = False
        yield line
    if empty:
        name = "<stdin>" if str(path) == STDIN else path
        raise FenchelError(f"{name}: expected lines of {expected}, but the file is empty.")


class _Readable(Protocol):
    def readline(self, size: int, /) -> bytes: ...


def _raw_lines(stream: _Readable, name: str) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            raw = stream.readline(LONGEST_LINE + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise FenchelError(f"{name}: expected a whole gzip file, as its name says.") from None
        except OSError as error:
            raise FenchelError(
                f"{name}: cannot be read ({error.strerror or error}) after line {number}."
            ) from None
        if not raw:
            return
        number += 1
        if len(raw) > LONGEST_LINE:
            raise FenchelError(
                f"{name}:{number}: expected a line of text of at most {LONGEST_LINE:,} bytes, but "
                "this one is longer."
            )
        yield raw


def _decoded(stream: _Readable, name: str) -> Iterator[Line]:
    for number, raw in enumerate(_raw_lines(stream, name), 1):
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
