"""Where state lives and how it is read back."""

from __future__ import annotations

import pytest
from oncelog.broker.coordinator.state_log import java_string_hash, partition_for_key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-transactional-id", -959806496),
        ("polygenelubricants", -(1 << 31)),
        ("äöü", 226986),
        ("😀", 1772899),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partition_of_the_hash_without_a_positive_counterpart_is_0() -> None:
    assert partition_for_key("polygenelubricants", 50) == 0


def test_negative_hash_gives_a_partition_of_its_absolute_value() -> None:
    assert partition_for_key("my-transactional-id", 50) == 959806496 % 50
