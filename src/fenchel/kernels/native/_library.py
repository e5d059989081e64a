"""The C++ core as a loaded library, or the sentence that says why there is none.

The core has a plain C ABI and links the OpenMP runtime that torch has already loaded, so
``torch.set_num_threads`` governs it too. ``FENCHEL_NATIVE=0`` in the environment turns it off;
``FENCHEL_LIBRARY`` names another build of it (the sanitizer's, say);
``FENCHEL_INSTRUCTION_SET`` asks for less than the machine has (``baseline``, ``avx2``).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import warnings
from ctypes import c_char_p, c_int
from pathlib import Path

import torch  # before the core: its OpenMP runtime must be there first

from fenchel.kernels.native._numbers import ABI_VERSION


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The core and "", or None and the sentence that says why there is none."""
    if os.environ.get("FENCHEL_NATIVE", "1") == "0":
        return None, "the native core is disabled by FENCHEL_NATIVE=0."
    wanted = os.environ.get("FENCHEL_INSTRUCTION_SET", "baseline")
    if wanted not in ("baseline", "avx2", "avx512"):
        return None, (
            "FENCHEL_INSTRUCTION_SET must be baseline, avx2 or avx512, but it is "
            + repr(wanted)
            + "."
        )
    name = "libfenchel_core.dylib" if sys.platform == "darwin" else "libfenchel_core.so"
    path = Path(os.environ["FENCHEL_LIBRARY"]) if "FENCHEL_LIBRARY" in os.environ else find(name)
    if path is None or not path.exists():
        return None, _why_not_built(name if path is None else path.name)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the native core could not be loaded ({error})."
    library.fenchel_abi_version.argtypes = []
    library.fenchel_abi_version.restype = c_int
    version = library.fenchel_abi_version()
    if version != ABI_VERSION:
        return None, (
            f"the native core has ABI version {version}, but this fenchel needs {ABI_VERSION}; "
            "reinstall fenchel."
        )
    return library, ""


def find(name: str) -> Path | None:
    """A file that the build put beside the kernels, or None.

    An editable install leaves the sources where they are and builds into site-packages: the package
    then has two folders, of which ``__file__`` names only one.
    """
    for folder in sys.modules["fenchel.kernels"].__path__:
        path = Path(folder) / name
        if path.exists():
            return path
    return None


def _why_not_built(name: str) -> str:
    info = find("_build_info.json")
    if info is not None:
        built = json.loads(info.read_text())
        if not built["native"]:
            return f"the native core was not built: {built['reason']}."
    return f"the native core was not found (no {name} beside fenchel's kernels)."


LIBRARY, REASON = _load()
#: What it means that there is none, unless someone asked for that.
CONSEQUENCE = ""
if LIBRARY is None and os.environ.get("FENCHEL_NATIVE", "1") != "0":
    CONSEQUENCE = (
        "The reference kernels run instead: same results, 10 to 100 times slower on the CPU."
    )
_warned = False
if LIBRARY is not None:
    LIBRARY.fenchel_instruction_set.argtypes = []
    LIBRARY.fenchel_instruction_set.restype = c_char_p


def instruction_set() -> str | None:
    """What the core runs on (``"avx512"``, ``"avx2"``, ``"baseline"``), or None without it."""
    return None if LIBRARY is None else LIBRARY.fenchel_instruction_set().decode()


def warn_of_fallback() -> None:
    """Say once that the core is missing, if nobody asked for that."""
    global _warned
    if _warned or not CONSEQUENCE or torch.compiler.is_compiling():
        return
    _warned = True
    warnings.warn(
        f"fenchel: {REASON} {CONSEQUENCE} Install a C++17 compiler with OpenMP and reinstall "
        "fenchel, or set FENCHEL_NATIVE=0 to go on without this warning.",
        stacklevel=2,
    )
