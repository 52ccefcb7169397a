"""How moments and durations read."""

from __future__ import annotations

import pytest
from oncelog.cli.times import duration, moment


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (61_500, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (-5000, "5 s"),
    ],
)
def test_duration_has_its_two_largest_units(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_moment_says_how_long_ago_or_ahead() -> None:
    assert moment(1_700_000_000_000, 1_700_000_005_000).endswith(" (5 s ago)")
    assert moment(1_700_000_000_000, 1_699_999_995_000).endswith(" (in 5 s)")
