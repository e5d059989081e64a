"""How training looks: one live line in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from fenchel._compat import require


class Display(Protocol):
    """Shows where a run is."""

    def step(self, record: Mapping[str, Any]) -> None:
        """After each update."""

    def log(self, record: Mapping[str, Any]) -> None:
        """After each line of metrics, of training or of validation."""

    def say(self, text: str) -> None:
        """Show a sentence that stays."""

    def close(self) -> None:
        """Give the terminal back."""


def make_progress(show: bool, total_steps: int | None, stream: TextIO | None = None) -> Display:
    """A live line if ``stream`` (standard error) is a terminal, plain lines if it is not.

    Args:
        show: False shows nothing.
        total_steps: how many updates there will be, if that is known.
        stream: where to write.
    """
    if not show:
        return Silent()
    stream = sys.stderr if stream is None else stream
    return Live(total_steps, stream) if stream.isatty() else Lines(stream)


def describe(record: Mapping[str, Any]) -> str:
    """One record of metrics as one line."""
    parts = [f"epoch {record['epoch']}", f"step {record['step']}"]
    if record["kind"] == "validation":
        parts += [f"{name} {_number(value)}" for name, value in record["metrics"].items()]
        parts += ["best so far"] if record["improved"] else []
    else:
        parts += [f"loss {_number(record['loss'])}", f"lr {record['learning_rate']:.2e}"]
    if record.get("tokens_per_second") is not None:
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
    if "support_size" in record:
        parts.append(f"support {record['support_size']:.1f}")
    if "alphas" in record:
        values = [value for group in record["alphas"].values() for value in group]
        low, high = f"{min(values):.2f}", f"{max(values):.2f}"
        parts.append(f"α {low}" if low == high else f"α {low}–{high}")
    return " · ".join(parts)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


class Silent:
    """Shows nothing."""

    def step(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def log(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines(Silent):
    """A line for each record."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def log(self, record: Mapping[str, Any]) -> None:
        """Print the record."""
        mark = "validation: " if record["kind"] == "validation" else ""
        self.say(mark + describe(record))

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream, flush=True)


class Live:
    """A bar with the latest numbers; validations stay above it."""

    def __init__(self, total_steps: int | None, stream: TextIO) -> None:
        purpose = "the progress display"
        console = require("rich.console", extra="train", purpose=purpose).Console(file=stream)
        rich = require("rich.progress", extra="train", purpose=purpose)
        self._bar = rich.Progress(
            rich.SpinnerColumn(),
            rich.BarColumn(bar_width=24),
            rich.TextColumn("{task.description}", markup=False),
            rich.TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=total_steps)
        self._last: dict[str, Any] = {}
        self._bar.start()

    def step(self, record: Mapping[str, Any]) -> None:
        """Move the bar, with the numbers of the last log line where this step has none."""
        kept = {k: v for k, v in self._last.items() if k not in ("epoch", "step", "loss")}
        text = describe({**kept, **record})
        self._bar.update(self._task, completed=record["step"], description=text)

    def log(self, record: Mapping[str, Any]) -> None:
        """Keep a training record for the bar; print a validation above it."""
        if record["kind"] == "validation":
            style = "green" if record["improved"] else None
            self.say(("✓ " if record["improved"] else "  ") + describe(record), style)
        else:
            self._last = dict(record)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, style=style, markup=False, highlight=False)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()
