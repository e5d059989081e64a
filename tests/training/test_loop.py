"""The loop as a whole: it learns, stops, logs, and ends with the right numbers."""

from __future__ import annotations

import json

from tests.training.tiny import trainer


def records(run_dir, kind=None):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if kind is None or r["kind"] == kind]


def test_it_learns(tmp_path):
    result = trainer(tmp_path, max_epochs=20).run()
    losses = [r["metrics"]["loss"] for r in records(tmp_path, "validation")]
    assert len(losses) == 20
    assert losses[-1] < 0.6 * losses[0]
    assert result.reason == "max_epochs"
    assert (result.step, result.epoch) == (100, 20)
    assert result.best == min(losses)
