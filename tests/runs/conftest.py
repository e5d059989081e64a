"""What every test of run directories runs under."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """No test pulls the plug, and on a busy disk hundreds of fsyncs take minutes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
