"""Without ``transformers``, or with one that is too old, the message says what to install."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fenchel._compat import MissingDependency
from fenchel.integrations.transformers._library import check_registries


@pytest.mark.parametrize("has", [{}, {"AttentionInterface": object}])
def test_an_old_version_is_named(has):
    with pytest.raises(
        MissingDependency,
        match=r"fenchel\.integrations\.transformers needs transformers 4\.53 or newer, the first "
        r"in which attention functions and masks can be registered, but 4\.40\.0 is installed; run "
        r'`pip install -U "transformers>=4\.53"`\.',
    ):
        check_registries(SimpleNamespace(__version__="4.40.0", **has))


def test_a_missing_one_is_named():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import fenchel\n"
        "try: import fenchel.integrations.transformers\n"
        "except ImportError as error: assert 'fenchel[transformers]' in str(error), error\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
