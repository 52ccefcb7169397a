"""How many tasks write a frame: what the session tells, as it is and through Spark Connect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from oncelog.pipeline.sink.frames import _tasks_at_once


@pytest.mark.parametrize(
    ("session", "tasks"),
    [
        (SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=7)), 7),
        (SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=0)), 1),
        (SimpleNamespace(conf={"spark.sql.shuffle.partitions": "5"}), 5),  # Connect has no sparkContext
    ],
)
def test_as_many_tasks_write_as_there_are_cores_or_as_a_shuffle_has(session: Any, tasks: int) -> None:
    assert _tasks_at_once(session) == tasks
