"""What the command line does before torch is imported, seen from a torch that is not torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = ["-m", "fenchel"]
SCRIPT = ["-c", "import sys; sys.argv[0] = '/usr/bin/fenchel'; import fenchel.cli"]
EXAMPLE = [str(ROOT / "examples" / "demo_inflection.py")]
LIBRARY = ["-c", "import fenchel"]
OTHER = ["-m", "fenchel.cli"]
LOOK = "import os; print([os.environ.get(n) for n in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')])"
WAIT = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def start(tmp_path):
    """Start Python where ``import torch`` runs some code, and then ends the process."""

    def run(arguments: list[str], code: str, **variables: str) -> subprocess.Popen:
        (tmp_path / "torch").mkdir(exist_ok=True)
        (tmp_path / "torch" / "__init__.py").write_text(f"{code}\nimport os\nos.sys.exit(0)\n")
        paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
        environment = {**kept, "PYTHONPATH": os.pathsep.join(paths), **variables}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=pipe, stderr=pipe, text=True
        )

    return run


@pytest.mark.parametrize("arguments", [MODULE, ["-u", "-m", "fenchel", "x"], SCRIPT, EXAMPLE])
def test_threads_wait_passively(start, arguments):
    assert start(arguments, LOOK).communicate()[0] == "['passive', None]\n"


def test_what_the_user_has_chosen_stays(start):
    done = start(MODULE, LOOK, OMP_WAIT_POLICY="active")
    assert done.communicate()[0] == "['active', None]\n"
    assert start(MODULE, LOOK, GOMP_SPINCOUNT="9").communicate()[0] == "[None, '9']\n"


@pytest.mark.parametrize("arguments", [LIBRARY, OTHER])
def test_the_library_leaves_a_process_as_it_is(start, arguments):
    assert start(arguments, LOOK).communicate()[0] == "[None, None]\n"


@pytest.mark.parametrize("arguments", [MODULE, SCRIPT, EXAMPLE])
def test_an_interrupt_during_the_imports_is_one_line(start, arguments):
    process = start(arguments, WAIT)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "fenchel: interrupted.\n")
    assert process.returncode == 130


def test_closed_streams_are_held_before_torch_opens_files(start, tmp_path):
    code = "import os; number = os.open('/dev/null', 0); os.write(9, str(number).encode())"
    process = start(["-c", "pass"], code)
    process.communicate()
    line = f'exec 9>{tmp_path}/said <&- >&- 2>&-; exec "{sys.executable}" -m fenchel'
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(["sh", "-c", line], env=environment, check=False)
    assert int((tmp_path / "said").read_text()) > 2
