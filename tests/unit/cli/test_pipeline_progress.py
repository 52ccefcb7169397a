"""Progress of `oncelog pipeline run`, as text and as JSON."""

from __future__ import annotations

import json

from oncelog.cli.pipeline import progress_line
from oncelog.pipeline.jobs.progress import Progress


def test_progress_is_a_sentence_or_one_json_object() -> None:
    progress = Progress("hourly", 3, 1000, 50.0, 20_000, lag=None, late=2)
    assert progress_line(progress, as_json=False).startswith("hourly: batch 3, 1,000 rows in 20,000 ms")
    assert json.loads(progress_line(progress, as_json=True)) == {
        "query": "hourly",
        "batch_id": 3,
        "rows": 1000,
        "rows_per_second": 50.0,
        "duration_ms": 20_000,
        "lag": None,
        "late": 2,
        "bad": 0,
        "tombstones": 0,
    }
