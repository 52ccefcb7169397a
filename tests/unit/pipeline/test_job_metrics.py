"""The metrics of a job."""

from __future__ import annotations

import pytest
from oncelog.pipeline.jobs.progress import JobMetrics


@pytest.mark.parametrize("name", ["rows", "batches", "late_rows", "bad_records", "tombstones", "restarts"])
def test_counters_begin_with_zero(name: str) -> None:
    """A rate can be computed only if the counter was there before its first increase."""
    metrics = JobMetrics(["hours", "latest"])
    metrics.restarted("latest")
    value = metrics.registry.get_sample_value(f"oncelog_pipeline_{name}_total", {"query": "hours"})
    assert value == 0
