"""csrc/fenchel.h against the library, the ctypes signatures of kernels/native/, and the fuzzer."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fenchel.kernels import _faces, _table
from fenchel.kernels.native import _library, _numbers, _signals
from fenchel.kernels.native._door import NativeFunction, Strided
from fenchel.structures import _sequence

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src/fenchel/kernels/csrc"
HEADER = CSRC / "fenchel.h"
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "g++"))), None)

needs_library = pytest.mark.skipif(_library.LIBRARY is None, reason=_library.REASON)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the header is read by a C compiler")

NUMBERS = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "double": ctypes.c_double}
DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "int32_t": torch.int32,
    "int64_t": torch.int64,
}
RESULTS = {**NUMBERS, "void": None, "const char*": ctypes.c_char_p}


class Function(NamedTuple):
    result: str
    arguments: tuple[str, ...]  # their types; "callback" for a function of the host


def compiled(*options: str) -> str:
    command = [COMPILER, "-x", "c", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    run = subprocess.run(
        [*command, *options, str(HEADER)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@cache
def header() -> str:
    """The header as the compiler sees it, without what it includes."""
    ours, text = False, []
    for line in compiled("-E").splitlines():
        place = re.match(r'# \d+ "(.*?)"', line)
        if place:
            ours = Path(place[1]).name == HEADER.name
        elif ours:
            text.append(line)
    return re.sub(r"__attribute__\(\(visibility\(\"default\"\)\)\)", "", "\n".join(text))


def declared() -> dict[str, Function]:
    """Every function of the header, by name."""
    text = re.sub(r"enum \w+ \{.*?\};", "", header(), flags=re.DOTALL)
    functions = {}
    for declaration in filter(None, map(str.strip, text.split(";"))):
        whole = re.fullmatch(r"(.*?)(\w+)\s*\((.*)\)", declaration, flags=re.DOTALL)
        assert whole, declaration
        result, name, arguments = whole.groups()
        arguments = re.sub(r"\w+ \(\*\w+\)\(.*?\)", "callback x", arguments)
        types = () if arguments == "void" else tuple(map(type_of, arguments.split(",")))
        functions[name] = Function(" ".join(result.split()), types)
    return functions


def type_of(argument: str) -> str:
    """``const double* x`` is ``const double*``."""
    found = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", argument, flags=re.DOTALL)
    assert found, argument
    return " ".join(found[1].split()).replace(" *", "*")


def enums() -> dict[str, dict[str, int]]:
    """The enums of the header: names without the prefix, and their numbers."""
    found: dict[str, dict[str, int]] = {}
    for enum, body in re.findall(r"enum fenchel_(\w+) \{(.*?)\};", header(), flags=re.DOTALL):
        found[enum], number = {}, -1
        for member in filter(None, map(str.strip, body.split(","))):
            name, _, value = (part.strip() for part in member.partition("="))
            number = int(value) if value else number + 1
            found[enum][name.removeprefix("FENCHEL_")] = number
    return found


def listed(macro: str) -> list[str]:
    """The names of an X-macro list of the header."""
    lines = re.search(rf"#define {macro}\(X\)((?:.*\\\n)*.*)", HEADER.read_text())
    assert lines, macro
    return re.findall(r"X\((\w+)", lines[1])


def expected(argument: str) -> object:
    """What a :class:`NativeFunction` must have in its signature."""
    if argument in NUMBERS:
        return NUMBERS[argument]
    if argument in ("void*", "void**"):
        return ctypes.c_void_p
    if argument == "const void*":
        return Strided
    return DTYPES[argument.removeprefix("const ").removesuffix("*")]


def by_hand() -> dict[str, object]:
    """The functions that are not a :class:`NativeFunction`, with the types that ctypes was told."""
    names = ("abi_version", "instruction_set", "set_host", "kind_named")
    functions = {f"fenchel_{name}": getattr(_library.LIBRARY, f"fenchel_{name}") for name in names}
    return {**functions, "fenchel_raise": _signals._raise}  # with the GIL, by another door


def test_the_header_is_c99():
    compiled("-fsyntax-only")


def test_the_header_is_read_whole():
    functions = declared()
    assert len(functions) == len(re.findall(r"\bfenchel_\w+\s*\(", header())) >= 60
    assert functions["fenchel_most_parts"] == Function("int64_t", ("int", "const int64_t*"))
    assert functions["fenchel_sparse_take_f32"].arguments == ("void*", "int64_t*", "float*")
    assert functions["fenchel_set_host"].arguments == ("callback",) * 5


@needs_library
def test_every_function_has_a_python_signature():
    natives = {f"fenchel_{name}" for name in NativeFunction.every}
    assert natives | set(by_hand()) == set(declared())
    assert not natives & set(by_hand())


@needs_library
def test_signatures_argument_by_argument():
    for name, function in declared().items():
        native = NativeFunction.every.get(name.removeprefix("fenchel_"))
        if native is None:
            continue
        assert native.signature == tuple(map(expected, function.arguments)), name
        assert native.function.restype is RESULTS[function.result], name
        pointers = [argument.endswith("*") for argument in function.arguments]
        given = [kind is ctypes.c_void_p for kind in native.function.argtypes]
        assert given == pointers, name
        # An int is a status, and a count is none.
        assert native.has_status == (function.result == "int"), name


@needs_library
def test_signatures_by_hand():
    types = {**NUMBERS, "callback": ctypes.c_void_p, "const char*": ctypes.c_char_p}
    functions = declared()
    for name, function in by_hand().items():
        assert function.argtypes == [types[kind] for kind in functions[name].arguments], name
        assert function.restype is RESULTS[functions[name].result], name


@needs_library
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("nm") is None, reason="needs nm -D")
def test_the_library_exports_what_the_header_declares():
    command = ["nm", "-D", "--defined-only", _library.LIBRARY._name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(line.split()[-1] for line in lines) == sorted(declared())


def test_numbers():
    numbers = enums()
    version = re.search(r"#define FENCHEL_ABI_VERSION (\d+)", HEADER.read_text())
    assert int(version[1]) == _numbers.ABI_VERSION
    for name, number in numbers["status"].items():
        assert getattr(_numbers, name) == number, name
    assert {name.upper(): number for name, number in _numbers.OMEGAS.items()} == numbers["omega"]
    assert {name.upper(): number for name, number in _numbers.GROUPS.items()} == numbers["groups"]
    for name, number in numbers["mask"].items():
        assert getattr(_numbers, name) == number, name
    for name, number in numbers["face_status"].items():
        assert getattr(_faces, name) == number, name
    names = {None: "NO_TRANSITIONS", "shared": "SHARED", "each": "EACH_POSITION"}
    transitions = {names[name]: number for name, number in _sequence._KINDS.items()}
    assert transitions == numbers["transitions"]
    assert numbers["list"] == {"NO_PART": -1, "NO_MEMBER": -2}  # as kernels/_ops.py says


def test_the_shape_of_attention():
    shape = {f"SHAPE_{name.upper()}": _numbers.SHAPE.index(name) for name in _numbers.SHAPE}
    assert {**shape, "SHAPE_COUNT": len(_numbers.SHAPE)} == enums()["shape"]


@needs_library
def test_the_core_knows_the_kinds_by_name():
    kinds = enums()["kind"]
    count = kinds.pop("KIND_COUNT")
    assert list(kinds) == listed("FENCHEL_KINDS")
    assert list(kinds.values()) == list(range(count))
    for name, number in kinds.items():
        assert _library.LIBRARY.fenchel_kind_named(name.encode()) == number
    assert _library.LIBRARY.fenchel_kind_named(b"no such kind") == -1


def registered(ending: str = "", *, prefix: str = "") -> set[str]:
    """The ops of the core with this ending or prefix, without it."""
    ops = {op for op, kernels in _table._kernels.items() for b, _ in kernels if b.name == "native"}
    return {
        op.removesuffix(ending).removeprefix(prefix)
        for op in ops
        if op.endswith(ending) and op.startswith(prefix)
    }


def test_every_map_and_kind_of_the_header_is_registered():
    kinds = {kind.lower() for kind in listed("FENCHEL_KINDS")}
    assert registered(prefix="oracle.") == kinds
    assert registered(prefix="active_set.") == kinds
    maps = set(listed("FENCHEL_MAPS"))
    assert maps <= registered()
    assert maps <= registered(".backward")


def test_every_map_and_kind_has_its_file():
    files = {path.stem for path in (CSRC / "maps").glob("*.h")}
    assert files == set(listed("FENCHEL_MAPS"))
    files = {path.stem for path in (CSRC / "structures/oracles").glob("*.h")}
    assert files == {kind.lower() for kind in listed("FENCHEL_KINDS")}


def test_the_fuzzer_calls_every_function():
    text = "\n".join(path.read_text() for path in (ROOT / "tests/fuzz").iterdir())
    text = re.sub(r"//.*", "", text)
    maps = "|".join(listed("FENCHEL_MAPS"))
    for name in declared():
        # forward<T>(map, ...), entmax_loss<T>(...) and fenchel_raise(): see fuzz_api.h.
        family = re.sub(r"^fenchel_|_f(32|64)$", "", name)
        family = re.sub(rf"^({maps})_(forward|backward)$", r"\2", family)
        call = name if name == f"fenchel_{family}" else f"{family}<T>"
        assert re.search(rf"(?<!\w){re.escape(call)}\(", text), f"tests/fuzz never calls {call}"
