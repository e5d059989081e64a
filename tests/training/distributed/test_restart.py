"""A restarted job goes on with the run that it began, and with no other."""

from __future__ import annotations

import functools
import os

import pytest

from fenchel import FenchelError
from fenchel.runs.owner import claim, release_claim
from fenchel.tasks import DataConfig, prepare_run, train_run
from fenchel.training import _session
from fenchel.training.distributed import Ranks, is_own_restart
from tests.cli.cases import write_inflection
from tests.training import tiny


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
    release_claim(tmp_path)  # the second job, which was refused
    torchrun("latin-7", 1)
    assert not is_own_restart(tmp_path, Ranks())
    claim(tmp_path)
    assert is_own_restart(tmp_path, Ranks())


def test_what_is_refused_is_refused_again_whatever_the_job_s_name(tmp_path, torchrun):
    torchrun("latin-7", 0)
    tiny.trainer(tmp_path, max_epochs=1).run()
    for restarts in (0, 1):
        torchrun("latin-7", restarts)
        with pytest.raises(FenchelError, match="expected a directory without a run, but it holds"):
            tiny.trainer(tmp_path, max_epochs=2).run()


def test_a_rank_that_dies_before_the_first_checkpoint(tmp_path, torchrun, monkeypatch):
    data = DataConfig((str(write_inflection(tmp_path)),), (str(tmp_path / "english-train"),))
    settings = ("model.embedding=8", "model.hidden=8", "train.max_steps=2")
    start = functools.partial(
        prepare_run, tmp_path / "run", "inflection", data, Ranks(), settings=settings
    )
    torchrun("latin-7", 0)
    run, resume = start()
    assert not resume
    with monkeypatch.context() as patched:

        def dies(*_: object) -> None:
            raise RuntimeError("out of memory")

        patched.setattr(_session, "make_parallel", dies)
        with pytest.raises(RuntimeError, match="out of memory"):
            train_run(run, show_progress=False)
    torchrun("latin-7", 1)
    run, resume = start()
    assert resume
    assert train_run(run, resume=True, show_progress=False).step == 2


def test_a_run_that_torchrun_did_not_begin_is_nobody_s(tmp_path, torchrun, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    claim(tmp_path)
    torchrun("latin-7", 1)
    assert not is_own_restart(tmp_path, Ranks())
