from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fenchel.cli import main
from tests.cli.cases import train, write_inflection


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> tuple[Path, Path]:
    """A run that has learned a few words by heart, and their file. Not to be written to."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_inflection(folder)
    assert train(folder / "run", data) == 0
    return folder / "run", data


@pytest.fixture
def fenchel(capfd):
    """Run a command in this process."""

    def call(*arguments: object) -> Output:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Output(code, captured.out, captured.err)

    return call
