"""Without ``transformers``, or with one that is too old, the message says what to install."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from types import SimpleNamespace

import pytest

from fenchel._compat import MissingDependency
from fenchel.integrations.transformers._library import OLDEST, check_registries

BOTH = {"AttentionInterface": object, "AttentionMaskInterface": object}


@pytest.mark.parametrize(
    ("version", "has"),
    [("4.40.0", {}), ("4.40.0", {"AttentionInterface": object}), ("4.53.3", BOTH)],
)
def test_an_old_version_is_named(version, has):
    with pytest.raises(
        MissingDependency,
        match=r"fenchel\.integrations\.transformers needs transformers 4\.54 or newer, the first "
        r"whose models take a registered attention function, but [0-9.]+ is installed; run "
        r'`pip install -U "transformers>=4\.54"`\.',
    ):
        check_registries(SimpleNamespace(__version__=version, **has))


@pytest.mark.parametrize("version", ["4.54.0", "4.57.1", "5.0.0rc1", "5.22.0", "10.0.dev0"])
def test_a_newer_version_passes(version):
    check_registries(SimpleNamespace(__version__=version, **BOTH))


def test_the_extra_asks_for_the_version_of_the_message():
    wanted = [r for r in requires("fenchel") if 'extra == "transformers"' in r.replace("'", '"')]
    assert [re.split("[;]", r)[0].strip() for r in wanted] == [f"transformers>={OLDEST}"]


def test_a_missing_one_is_named():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import fenchel\n"
        "try: import fenchel.integrations.transformers\n"
        "except ImportError as error: assert 'fenchel[transformers]' in str(error), error\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
