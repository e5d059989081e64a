"""What a native call needs beside its result is given back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fenchel.kernels.native import _library

pytestmark = [
    pytest.mark.skipif(_library.LIBRARY is None, reason=_library.REASON),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

CALLS = {  # each needs 100 MB and more
    "columns": "fy.renyimax(torch.zeros(10**6, 16), 0.5, 0)",
    "backward": "fy.entmax15(torch.zeros(10**6, 16, requires_grad=True), 0).sum().backward()",
    "alignments": "fy.soft_dtw(torch.ones(2000, 2000, requires_grad=True)).backward()",
}


@pytest.mark.parametrize("name", CALLS)
def test_large_scratch_is_given_back(name):
    program = f"""
import torch, fenchel as fy
def resident():
    with open("/proc/self/status") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])
def call():
    {CALLS[name]}
for small in ((40, 16), (5, 5)):
    fy.entmax15(torch.zeros(*small, requires_grad=True), 0).sum().backward()
before, _ = resident()
call()
after, most = resident()
print((after - before) // 1024, (most - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    kept, used = map(int, done.stdout.split())
    assert used > 100, "the call is too small to show anything"
    assert kept < 64
