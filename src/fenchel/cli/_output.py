"""The one door to the screen: everything that a command prints goes through here."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from fenchel._before_torch import hold_descriptors
from fenchel._compat import require
from fenchel.cli._shown import cut, json_text, shown

LONGEST = 2000  # characters of a sentence


def answer(line: str) -> None:
    """Print a line of output, which is TSV: each column has been through :func:`column`."""
    sys.stdout.write(line + "\n")


def answer_json(text: str) -> None:
    """Print a JSON object as one line of output."""
    sys.stdout.write(json_text(text) + "\n")


def note(sentence: str) -> None:
    """Say something on standard error that is no error."""
    _say(f"note: {sentence}")


def complain(sentence: str, code: int) -> int:
    """Say on standard error, after all output, what went wrong; returns the exit code."""
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        _say(f"fenchel: {sentence}")
    return code


def _say(sentence: str) -> None:
    sys.stderr.write(cut(shown(sentence), LONGEST) + "\n")
    sys.stderr.flush()


def make_console(*, extra: str, purpose: str, **options: Any) -> Any:
    """A ``rich`` console on standard output, for text of ours: see :func:`literal`."""
    base = require("rich.console", extra=extra, purpose=purpose).Console

    class Console(base):  # type: ignore[misc, valid-type]
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # as everywhere else; rich would exit with 1

    return Console(highlight=False, **options)


def literal(text: object, extra: str = "train") -> str:
    """Somebody else's text for a ``rich`` console: safe to print, and no markup."""
    module = require("rich.markup", extra=extra, purpose="a table")
    escaped: str = module.escape(shown(str(text)))
    return escaped


@contextmanager
def standard_streams() -> Iterator[None]:
    """Standard output and error as the commands want them: in UTF-8, and there, even if closed."""
    hold_descriptors()
    kept = sys.stdout, sys.stderr
    sys.stdout = _Stream(sys.stdout, "standard output")
    sys.stderr = _Errors(sys.stderr, "standard error")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, _Stream):
                stream.settle()
        sys.stdout, sys.stderr = kept


class _Stream:
    """A standard stream under its own name: the OSError of a write says which one it was.

    Args:
        stream: as Python has opened it; None if it was closed.
        name: for messages.
    """

    def __init__(self, stream: TextIO | None, name: str) -> None:
        if isinstance(stream, io.TextIOWrapper):
            # As the files, whatever the terminal says.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        self._stream, self._name = stream, name

    encoding = "utf-8"

    def write(self, text: str) -> int:
        try:
            return self._inner().write(text)
        except OSError as error:
            error.filename = self._name
            raise

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            error.filename = self._name
            raise

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        return self._inner().fileno()

    def __getattr__(self, name: str) -> Any:
        if name == "_stream" or self._stream is None:
            raise AttributeError(name)
        return getattr(self._stream, name)

    def settle(self) -> None:
        """Write what is left, or drop it: Python flushes once more when it ends, and complains."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # a stream of a test may have no descriptor
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)

    def _inner(self) -> TextIO:
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._stream


class _Errors(_Stream):
    """Standard error: where it is closed or full, work goes on without it."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError:
            pass
