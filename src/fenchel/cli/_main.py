from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence

from fenchel._checks import FenchelError
from fenchel._compat import MissingDependency, require

WRONG, FAILED, INTERRUPTED, CLOSED_PIPE = 2, 1, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done; 2: the input was wrong, and one sentence on standard error says how; 1: something
    failed that was not the input; 130: interrupted; 141: whoever read the output went away.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # as the files, whatever the terminal says
    try:
        return _run(tokens)
    except FenchelError as error:
        return _complain(str(error), WRONG)
    except MissingDependency as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted.", INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more when it ends: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE


def _run(tokens: list[str]) -> int:
    cyclopts = require("cyclopts", extra="train", purpose="the command line")
    from fenchel.cli._app import make_app
    from fenchel.training import RankError, TrainingError
    from fenchel.training.distributed import launched

    try:
        command, bound, *_ = make_app().parse_args(tokens, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        if launched() and os.environ["RANK"] != "0":
            return _follow(WRONG)  # all ranks have the same command line
        raise FenchelError(" ".join(str(error).split())) from None
    try:
        code = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
    except RankError:
        return _follow(FAILED)
    except TrainingError as error:
        return _complain(str(error), FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _complain(f"{error.filename or 'a file'}: {error.strerror}.", FAILED)
    return code if isinstance(code, int) else 0


def _follow(code: int) -> int:
    """End after the rank that says why: torchrun ends all others as soon as one has ended."""
    time.sleep(1)
    return code


def _complain(sentence: str, code: int) -> int:
    print(f"fenchel: {' '.join(sentence.split())}", file=sys.stderr)
    return code
