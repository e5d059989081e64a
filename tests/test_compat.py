"""Optional libraries: imported when needed, or a sentence that says how to install them."""

from __future__ import annotations

import json

import pytest

from fenchel._compat import MissingDependency, require


def test_what_is_installed_is_imported():
    assert require("json", extra="train", purpose="this test") is json


@pytest.mark.parametrize(("package", "name"), [(None, "no_such_library"), ("NoSuch", "NoSuch")])
def test_what_is_missing_is_named_with_its_extra(package, name):
    with pytest.raises(MissingDependency) as error:
        require("no_such_library.part", extra="train", purpose="this test", package=package)
    assert str(error.value) == (
        f"this test needs {name}, which cannot be imported (No module named 'no_such_library'); "
        f'install it with `pip install "fenchel[train]"`.'
    )
