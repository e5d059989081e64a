from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(show_default=False)]
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True)]
Runs = list[Path]  # --run A --run B: files may follow, so that one value a flag is all
Kind = Literal["lstm", "transformer"]
