"""How long a job pauses before it tries again."""

from __future__ import annotations

import pytest
from oncelog.pipeline.jobs.waiting import LONGEST_PAUSE_S, pause_s


@pytest.mark.parametrize("attempt", [10, 1_024, 1_000_000])
def test_the_pause_is_bounded_however_many_attempts_there_were(attempt: int) -> None:
    assert pause_s(0.1, attempt) == pause_s(1.0, attempt) == LONGEST_PAUSE_S


def test_the_pause_doubles() -> None:
    assert [pause_s(1.0, attempt) for attempt in range(5)] == [1.0, 2.0, 4.0, 8.0, 10.0]
