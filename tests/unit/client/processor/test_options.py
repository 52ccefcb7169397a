"""What a processor refuses at once, instead of idling, looping or failing at the first record."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog import OutputRecord, Processor
from oncelog.client.errors import ConfigError
from oncelog.client.processor import WorkerProcesses
from oncelog.client.processor.options import each


def make(**given: Any) -> Processor:
    common: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:9092", "group_id": "g", "transactional_id": "x"}
    return Processor(**{**common, "process": lambda records, transaction: None, **given})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "topics"),
        ({"topics": ["a"], "pattern": "b"}, "topics"),
        ({"topics": [1]}, "topics"),
        ({"pattern": "("}, "pattern"),
        ({"topics": ["a"], "process": "f"}, "process"),
        ({"topics": ["a"], "process": None, "transform": 1}, "transform"),
        ({"topics": ["a"], "max_batch_ms": -1}, "max_batch_ms"),
        ({"topics": ["a"], "dead_letter_topic": "a"}, "dead_letter_topic"),
        ({"pattern": "a.*", "dead_letter_topic": "a-dead"}, "dead_letter_topic"),
    ],
)
def test_options_that_cannot_be_are_named(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(**given)
    assert caught.value.key == key


def test_options_that_can_be() -> None:
    make(topics=["a"], dead_letter_topic="a-dead")
    make(pattern="a", dead_letter_topic="a-dead")


async def test_a_transform_that_returns_one_record_is_told_to_return_a_list() -> None:
    process: Any = each(lambda record: OutputRecord("t", b"1"), dead_letters=False)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="list"):
        await process([None], None)


def test_arguments_that_cannot_be_sent_to_a_process_are_refused() -> None:
    with pytest.raises(ConfigError, match="arguments"):
        WorkerProcesses("module:factory", arguments={"a": lambda: 1})
