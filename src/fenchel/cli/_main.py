from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Sequence

from fenchel._before_torch import INTERRUPTED, interrupt_as_usual
from fenchel._checks import FenchelError
from fenchel._compat import MissingDependency, require
from fenchel.cli._output import complain, standard_streams
from fenchel.cli._shown import cut

WRONG, FAILED, CLOSED_PIPE = 2, 1, 141
TRACEBACK = "FENCHEL_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done; 2: the input was wrong, and one sentence on standard error says how; 1: something
    failed that was not the input; 130: interrupted; 141: whoever read the output went away.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams():
        try:
            return _run(tokens)
        except FenchelError as error:
            return complain(str(error), WRONG)
        except MissingDependency as error:
            return complain(str(error), FAILED)
        except KeyboardInterrupt:
            return complain("interrupted.", INTERRUPTED)
        except BrokenPipeError:
            return CLOSED_PIPE
        except OSError as error:
            return complain(_sentence(error), FAILED)
        except Exception as error:
            return _unforeseen(error)


def _run(tokens: list[str]) -> int:
    cyclopts = require("cyclopts", extra="train", purpose="the command line")
    from fenchel.cli._app import make_app
    from fenchel.cli._options import WrongOption, hide_dashes, restore_dashes
    from fenchel.runs.errors import RankError, TrainingError
    from fenchel.runs.owner import launched

    interrupt_as_usual()
    try:
        words = hide_dashes(tokens)
        command, bound, *_ = make_app(words).parse_args(
            words, exit_on_error=False, print_error=False
        )
    except (cyclopts.CycloptsError, WrongOption, FenchelError) as error:
        if launched() and os.environ["RANK"] != "0":
            return _follow(WRONG)  # all ranks have the same command line
        raise FenchelError(restore_dashes(re.sub(r"\s*\n\s*", " ", str(error)))) from None
    try:
        code = command(*restore_dashes(bound.args), **restore_dashes(bound.kwargs))
        sys.stdout.flush()
    except RankError:
        return _follow(FAILED)
    except TrainingError as error:
        return complain(str(error), FAILED)
    return code if isinstance(code, int) else 0


def _follow(code: int) -> int:
    """End after the rank that says why: torchrun ends all others as soon as one has ended."""
    time.sleep(1)
    return code


def _sentence(error: OSError) -> str:
    name = error.filename if isinstance(error.filename, str) else "a file"
    return f"{name}: {error.strerror or error}."


def _unforeseen(error: Exception) -> int:
    """No traceback for what no check has foreseen: one line, and how to see more."""
    if _is_out_of_memory(error):
        return complain(
            "expected to fit into memory, but it is used up; a smaller --batch, --beam or model "
            "needs less.",
            FAILED,
        )
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    return complain(
        f"expected no error here, but got {type(error).__name__}: {cut(str(error))!r}; this is a "
        f"fault of fenchel, please report it with what {TRACEBACK}=1 shows.",
        FAILED,
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(text in str(error) for text in ("can't allocate memory", "out of memory"))
    )
