"""What `oncelog group reset` advises if there are no offsets to move."""

from __future__ import annotations

import pytest
from oncelog.cli.group_reset import Target, without_offsets
from oncelog.cli.parameters import TopicSelection
from oncelog.client.values import TopicPartition

OF_DELETED = {TopicPartition("deleted", 0): 5}
NAMED = [TopicSelection("orders", ())]


@pytest.mark.parametrize(
    ("committed", "topics", "target", "message"),
    [
        ({}, [], Target(earliest=True), "offsets. To set its first offsets, name a topic with --topic."),
        (
            {},
            [],
            Target(shift_by=1),
            "offsets. To set its first offsets, name a topic with --topic and use a target other than --shift-by.",
        ),
        (
            OF_DELETED,
            NAMED,
            Target(shift_by=1),
            "offsets in these topics. To set its first offsets, use a target other than --shift-by.",
        ),
        (
            OF_DELETED,
            [],
            Target(latest=True),
            "offsets in topics that still exist. To set its first offsets, name a topic with --topic.",
        ),
    ],
)
def test_the_advice_fits_what_was_given(
    committed: dict[TopicPartition, int], topics: list[TopicSelection], target: Target, message: str
) -> None:
    assert without_offsets("g", committed, topics, target) == f"group g has no committed {message}"
