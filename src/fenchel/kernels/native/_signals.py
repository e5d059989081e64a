"""Ctrl-C during a native call.

A call runs without the GIL, so Python's own signal handler only sets a flag, which is looked at
when the call is over. So a long call looks at it every tenth of a second: the thread that was
called takes the GIL and lets Python run its handlers, ours or the user's, as between two lines of
Python. If one raises, all threads of the call stop, and the exception goes on from here. In other
threads than the main one nothing is ever pending: there Ctrl-C belongs to the main thread.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from ctypes import c_void_p

from fenchel._checks import FenchelError
from fenchel.kernels.native._library import LIBRARY
from fenchel.kernels.native._numbers import DONE, OUT_OF_RANGE, STOPPED

_FUNCTIONS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyErr_Restore",
)


def _listen(library: ctypes.CDLL) -> Callable[[], None]:
    """Let the core ask Python; returns the function that raises what it heard."""
    library.fenchel_set_host.argtypes = [c_void_p] * len(_FUNCTIONS)
    library.fenchel_set_host.restype = None
    library.fenchel_set_host(
        *(ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p) for name in _FUNCTIONS)
    )
    # A daemon thread that asks an interpreter on its way out would never come back.
    atexit.register(library.fenchel_set_host, *[None] * len(_FUNCTIONS))
    with_gil = ctypes.PyDLL(library._name, handle=library._handle)
    with_gil.fenchel_raise.argtypes = []
    with_gil.fenchel_raise.restype = None
    return with_gil.fenchel_raise


_raise = None if LIBRARY is None else _listen(LIBRARY)


def check_status(status: int) -> None:
    """Raise what a native call reports."""
    if status == DONE:
        return
    if status == STOPPED and _raise is not None:
        _raise()  # and does not return
    if status == OUT_OF_RANGE:
        raise FenchelError("fenchel's native core: expected indices in range, but one is not.")
    raise MemoryError("fenchel: the native core ran out of memory for its scratch rows.")
