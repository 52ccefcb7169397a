"""Moments and partitions as they are written on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest
from oncelog.cli.parameters import TopicSelection, moment_ms, time_of, topic_selection

NOW_MS = 1_772_368_200_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("15m", NOW_MS - 900_000),
        ("15min", NOW_MS - 900_000),
        ("-2h", NOW_MS - 7_200_000),
        ("7d ago", NOW_MS - 7 * 86_400_000),
        ("250ms", NOW_MS - 250),
        ("1000000000000", 1_000_000_000_000),
        ("2001-09-09T01:46:40Z", 1_000_000_000_000),
        ("2001-09-09T03:46:40.5+02:00", 1_000_000_000_500),
        ("2001-09-09 01:46:40+00:00", 1_000_000_000_000),
        ("2001-09-09", round(datetime(2001, 9, 9).timestamp() * 1000)),
    ],
)
def test_moment(text: str, ms: int) -> None:
    assert moment_ms(text, NOW_MS) == ms


def test_moment_without_a_zone_is_local_time() -> None:
    local = datetime.fromtimestamp(1_000_000_000, UTC).astimezone().replace(tzinfo=None)
    assert moment_ms(local.isoformat(), NOW_MS) == 1_000_000_000_000


@pytest.mark.parametrize("text", ["", "soon", "15 months", "1.5h", "1700000000", "2001-13-01", "9" * 20])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a time\. Write 2026-03-01T12:30"):
        time_of(text)


def test_topic_selection() -> None:
    assert topic_selection("orders") == TopicSelection("orders", ())
    assert topic_selection("orders:2,0,2") == TopicSelection("orders", (0, 2))
    assert topic_selection("orders").includes(("orders", 9))
    assert topic_selection("orders:1").includes(("orders", 1))
    assert not topic_selection("orders:1").includes(("orders", 0))
    assert not topic_selection("orders:1").includes(("returns", 1))
    for wrong in ("", ":1", "orders:", "orders:a", "orders:1,"):
        with pytest.raises(click.BadParameter, match="is not TOPIC"):
            topic_selection(wrong)
