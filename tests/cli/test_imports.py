"""Who only uses a trained model does not wait for, or depend on, what trains one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import json, sys
from fenchel.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(name for name in sys.modules if "fenchel." in name)]))
"""


def imported(*arguments: object) -> tuple[int, list[str]]:
    """Run a command in a new process: its exit code, and which modules of fenchel it imported."""
    words = [sys.executable, "-c", CODE, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, modules


@pytest.mark.parametrize(
    ("command", "options", "wanted"),
    [
        ("predict", (), 0),
        ("predict", ("--exact", "--support", "--format", "json"), 0),
        ("evaluate", (), 0),
        ("evaluate", ("--format", "json"), 0),
        ("predict", ("--beam", "none"), 2),  # what is wrong is said without it as well
    ],
)
def test_using_a_run_imports_no_training(trained, command, options, wanted):
    run, data = trained
    code, modules = imported(command, data, "--run", run, *options)
    assert code == wanted
    assert "fenchel.runs" in modules
    assert not [name for name in modules if name.startswith("fenchel.training")]


def test_the_check_sees_training(tmp_path, trained):
    """A command that trains does import it."""
    _, data = trained
    code, modules = imported("train", "inflection", "--run", tmp_path / "no", "--train", data)
    assert code == 2
    assert "fenchel.training" in modules
