"""A restarted job goes on with the run that it began, and with no other."""

from __future__ import annotations

import os

import pytest

from fenchel.training.distributed import Ranks
from fenchel.training.distributed._restart import claim, is_own_restart


@pytest.fixture
def torchrun(monkeypatch):
    """Pretend to be started by torchrun."""

    def start(job: str, restarts: int) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", job)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))

    return start


def test_without_torchrun_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    claim(tmp_path)
    assert not list(tmp_path.iterdir()) and not is_own_restart(tmp_path, Ranks())


@pytest.mark.parametrize("job", ["latin-7", "none"])
def test_a_restart_knows_its_own_run(tmp_path, torchrun, job):
    torchrun(job, 0)
    assert not is_own_restart(tmp_path, Ranks())  # the first start
    claim(tmp_path)
    torchrun(job, 1)
    assert is_own_restart(tmp_path, Ranks()) and not is_own_restart(tmp_path / "new", Ranks())


def test_another_job_does_not(tmp_path, torchrun, monkeypatch):
    torchrun("latin-7", 0)
    claim(tmp_path)
    torchrun("latin-8", 1)
    assert not is_own_restart(tmp_path, Ranks())
    torchrun("none", 0)  # has no name: it is known by its process
    claim(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    torchrun("none", 1)
    assert not is_own_restart(tmp_path, Ranks())


def test_a_job_with_the_name_of_an_earlier_one_does_not(tmp_path, torchrun):
    torchrun("latin-7", 0)
    claim(tmp_path)
    assert not is_own_restart(tmp_path, Ranks())  # the second job, which refuses the directory
    torchrun("latin-7", 1)
    assert not is_own_restart(tmp_path, Ranks())
    claim(tmp_path)
    assert is_own_restart(tmp_path, Ranks())


def test_a_run_that_torchrun_did_not_begin_is_nobody_s(tmp_path, torchrun, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    claim(tmp_path)
    torchrun("latin-7", 1)
    assert not is_own_restart(tmp_path, Ranks())
