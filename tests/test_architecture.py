"""The layers of the package: an import points to the same folder or to a lower level."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import fenchel

LEVEL = {
    "_short": -1,  # a value in a message: below all that complain
    "_before_torch": 0,
    "_checks": 0,
    "_compat": 0,
    "_dtypes": 0,
    "_graphs": 0,
    "_guarded": 0,
    "_special": 0,
    "_warn": 0,
    "_expansion": 1,
    "kernels": 1,
    "_targets": 2,
    "maps": 2,
    "structures": 2,
    "solvers": 3,
    "distributions": 3,
    "metrics": 3,
    "regularizers": 4,
    "losses": 5,
    "attention": 5,
    "nn": 6,
    "estimators": 6,
    "integrations": 6,
    "testing": 6,
    "models": 7,
    "decoding": 7,
    "analysis": 7,
    "runs": 8,
    "training": 9,
    "tasks": 10,
    "cli": 12,
    "__main__": 13,
}
ROOT = Path(fenchel.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
SOFT_LIMIT = 500


def part_of(path: Path) -> str:
    """The folder, or top-level file, of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> list[str]:
    """Which parts of fenchel a file imports, at its top or inside a function."""
    parts = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "fenchel":
                names = [f"fenchel.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""]
        parts += [name.split(".")[1] for name in names if name.startswith("fenchel.")]
    return parts


def test_every_part_has_a_level():
    assert {part_of(path) for path in FILES} <= LEVEL.keys()


def test_imports_point_down():
    wrong = [
        f"{path.relative_to(ROOT)} imports fenchel.{part}"
        for path in FILES
        for part in imported_parts(path)
        if part != part_of(path) and LEVEL[part] >= LEVEL[part_of(path)]
    ]
    assert not wrong


def private_doors(path: Path, part: str) -> list[str]:
    """Underscored modules of another part that a file imports."""
    doors = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "fenchel" and len(rest) > 1 and rest[0] != part:
                doors += [name] if any(step.startswith("_") for step in rest[1:]) else []
    return doors


def private_names(paths: list[Path]) -> set[str]:
    """Underscored functions, methods, classes and attributes that files define."""
    names: set[str] = set()
    for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def foreign_underscores(path: Path, own: set[str], known: set[str]) -> list[str]:
    """Uses of an underscored name that fenchel defines, but not in the file's own part."""
    return [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in known - own
        # ctypes' library handles have a `_name`, and named tuples a public `_replace`
        and node.attr not in {"_name", "_replace"}
    ]


def test_no_part_uses_another_part_s_private_files():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        for name in private_doors(path, part_of(path))
    ]
    assert not wrong


def test_no_part_uses_underscored_names_of_another():
    """Of a class as well: what another part needs is a public hook, with a name and a docstring."""
    names = {
        part: private_names([path for path in FILES if part_of(path) == part]) for part in LEVEL
    }
    known = set().union(*names.values())
    wrong = [
        f"{part_of(path)}/{line}"
        for path in FILES
        for line in foreign_underscores(path, names[part_of(path)], known)
    ]
    assert not wrong


def test_the_checks_see_private_doors(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(
        "from fenchel.maps._family import Family\nfrom fenchel.maps import _rows\n"
        "import fenchel.nn._maps\nfrom fenchel._checks import FenchelError\nx._hook(1)\n"
    )
    doors = private_doors(path, "losses")
    assert doors == ["fenchel.maps._family.Family", "fenchel.maps._rows", "fenchel.nn._maps"]
    assert private_doors(path, "maps") == ["fenchel.nn._maps"]
    assert foreign_underscores(path, set(), {"_hook"}) == ["bad.py:5: x._hook"]
    assert foreign_underscores(path, {"_hook"}, {"_hook"}) == []


def test_backends_are_the_table_s_affair():
    """Nothing above the kernels names a backend or imports its files."""
    names = [path.name for path in (ROOT / "kernels").iterdir() if (path / "__init__.py").exists()]
    assert {"native", "reference"} <= set(names)
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        if part_of(path) != "kernels"
        for line in path.read_text().splitlines()
        if any(f"kernels.{name}" in line or f'"{name}"' in line for name in names)
        or re.search(r"from fenchel.kernels(\._\w+ import| import .*\b_)", line)
    ]
    assert not wrong


def test_the_check_sees_an_upward_import(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    from fenchel.maps import entmax\n    import fenchel.nn\n")
    assert imported_parts(path) == ["maps", "nn"]
    assert LEVEL["maps"] > LEVEL["kernels"]


def module_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file; a folder's `__init__` has that of the folder."""
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_within(files: list[Path], root: Path = ROOT) -> dict[str, set[str]]:
    """Which of some files import which, at the top or in a function; not for annotations alone."""
    modules = {module_of(path, root): path for path in files}
    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        annotations = {
            child
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for child in ast.walk(node)
        }
        names: set[str] = set()
        for node in (node for node in ast.walk(tree) if node not in annotations):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                # `from folder import file` needs the file; anything else comes from the module
                names |= whole & modules.keys() or {node.module}
        edges[module] = names & modules.keys()
    return edges


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, by whatever way round: one list for each such group."""
    reach = {module: set(found) for module, found in edges.items()}
    for middle in reach:  # Warshall's closure
        for found in reach.values():
            if middle in found:
                found |= reach[middle]
    groups = [
        sorted(other for other in reach[module] if module in reach[other])
        for module in reach
        if module in reach[module]
    ]
    return [group for i, group in enumerate(groups) if group not in groups[:i]]


def test_no_import_cycles():
    """Rooms cannot import in a circle, because of their levels; nor can the files of one."""
    assert not cycles(imports_within(FILES))


def test_the_check_sees_a_cycle(tmp_path):
    root = tmp_path / "house"
    root.mkdir()
    (root / "__init__.py").write_text("from house.a import x\n")
    (root / "a.py").write_text("def f():\n    from house import b\n")
    (root / "b.py").write_text("import house.c\n")
    (root / "c.py").write_text("from house.a import f\n")
    (root / "d.py").write_text(
        "from house.e import g\nif TYPE_CHECKING:\n    from house.f import H\n"
    )
    (root / "e.py").write_text("")
    (root / "f.py").write_text("import house.d\n")
    edges = imports_within(sorted(root.iterdir()), root)
    assert edges["house"] == {"house.a"}
    assert cycles(edges) == [["house.a", "house.b", "house.c"]]


# They stand in for the classes of other packages, and so have their names.
NAMESAKES = ROOT / "integrations"


def twice(files: list[Path]) -> dict[str, list[str]]:
    """Class names that stand for several classes, with their files; private ones of a part."""
    found: dict[str, list[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                name = f"{path.parent.name}.{node.name}" if node.name[0] == "_" else node.name
                found.setdefault(name, []).append(path.name)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_class_name_means_one_class():
    assert not twice([path for path in FILES if NAMESAKES not in path.parents])


def test_the_check_sees_two_classes_of_one_name(tmp_path):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("class Task: ...\nclass _Own: ...\n")
    other.write_text("class Task: ...\nclass _Own: ...\nclass Else: ...\n")
    places = ["one.py", "other.py"]
    assert twice([one, other]) == {"Task": places, f"{tmp_path.name}._Own": places}


def test_files_stay_short():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if (lines := len(path.read_text().splitlines())) > SOFT_LIMIT
    }
    assert not long


KINDS = ast.Import | ast.ImportFrom | ast.Assign | ast.AugAssign | ast.Expr


def test_init_files_only_export():
    for path in ROOT.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            plain = isinstance(node, KINDS)
            assert plain, f"{path}: {ast.unparse(node)}"


def test_import_needs_torch_only():
    code = (
        "import sys, fenchel; "
        # torch's compiler alone would take seven times as long as all of fenchel
        "heavy = {'sklearn', 'transformers', 'matplotlib', 'scipy', 'entmax', 'torch._dynamo'}; "
        "sys.exit(str(heavy & sys.modules.keys()) if heavy & sys.modules.keys() else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
