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
    "_graphs": 0,
    "_special": 0,
    "_warn": 0,
    "_expansion": 1,
    "_gold": 1,
    "kernels": 1,
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
    "models": 7,
    "decoding": 7,
    "analysis": 7,
    "training": 8,
    "tasks": 9,
    "cli": 10,
    "__main__": 11,
}
ROOT = Path(fenchel.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
SOFT_LIMIT = 300


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


def test_files_stay_short():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if (lines := len(path.read_text().splitlines())) > SOFT_LIMIT
    }
    assert not long


def test_init_files_only_export():
    for path in ROOT.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr)
            assert plain, f"{path}: {ast.unparse(node)}"


def test_import_needs_torch_only():
    code = (
        "import sys, fenchel; "
        # torch's compiler alone would take seven times as long as all of fenchel
        "heavy = {'sklearn', 'transformers', 'matplotlib', 'scipy', 'entmax', 'torch._dynamo'}; "
        "sys.exit(str(heavy & sys.modules.keys()) if heavy & sys.modules.keys() else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
