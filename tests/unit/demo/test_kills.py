"""Schedules of kills."""

from __future__ import annotations

import pytest
from oncelog.demo.kills import PIPELINE_TARGETS, Kill, parse, random_schedule


def test_parse_sorts_by_moment() -> None:
    assert parse("broker@0.5, transformer@0.25") == (
        Kill(0.25, "transformer", aimed=True),
        Kill(0.5, "broker", aimed=True),
    )
    assert parse("none") == ()


@pytest.mark.parametrize("text", ["", "broker", "broker@x", "broker@1", "broker@-0.1", "me@0.5", "broker@nan"])
def test_parse_refuses_what_can_not_be(text: str) -> None:
    with pytest.raises(ValueError, match="is not broker@FRACTION"):
        parse(text)


def test_each_half_has_targets_of_its_own() -> None:
    assert parse("driver@0.2", PIPELINE_TARGETS) == (Kill(0.2, "driver", aimed=True),)
    with pytest.raises(ValueError, match="is not broker@FRACTION or driver@FRACTION"):
        parse("transformer@0.2", PIPELINE_TARGETS)
    with pytest.raises(ValueError, match="is not broker@FRACTION or transformer@FRACTION"):
        parse("driver@0.2")


def test_random_schedule_depends_on_the_seed_only() -> None:
    assert random_schedule(7) == random_schedule(7)
    assert random_schedule(7) != random_schedule(8)
    schedule = random_schedule(7, brokers=2, transformers=3)
    assert sorted(kill.target for kill in schedule) == ["broker"] * 2 + ["transformer"] * 3
    assert list(schedule) == sorted(schedule)
    assert all(0 <= kill.at < 1 and not kill.aimed for kill in schedule)
