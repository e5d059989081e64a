"""What every ``plot_*.py`` here does with its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib


def draw(
    figures: Mapping[str, Callable[[], Any]], settings: dict[str, Any], directory: str | Path
) -> list[Path]:
    """Draw every picture into ``directory`` as PNG and return their paths."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(settings):
        for name, figure in figures.items():
            paths.append(directory / f"{name}.png")
            figure().savefig(paths[-1])
    return paths
