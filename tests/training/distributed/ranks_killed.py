"""``python -m fenchel``, of which one rank kills itself in the middle of an epoch, once.

``KILLED_AT=1:5`` is rank 1 at its fifth batch; ``KILLED`` is a file that says that it has happened.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from fenchel.cli import main
from fenchel.models import Batch
from fenchel.tasks import _train

calls: list[Any] = []


class Deadly(Batch):
    """Collates until its time has come."""

    @staticmethod
    def collate(pairs: Any) -> Batch:
        calls.append(pairs)
        if f"{os.environ['RANK']}:{len(calls)}" == os.environ["KILLED_AT"]:
            Path(os.environ["KILLED"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Batch.collate(pairs)


if __name__ == "__main__":
    if not Path(os.environ["KILLED"]).exists():
        _train.Batch = Deadly
    sys.exit(main())
