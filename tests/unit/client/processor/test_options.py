"""What a processor refuses at once, instead of idling, looping or failing at the first record."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog import ConsumerRecord, OutputRecord, Processor, TimestampType, TopicPartition
from oncelog.client.consumer.record import BatchOrigin
from oncelog.client.errors import ConfigError
from oncelog.client.processor import WorkerProcesses
from oncelog.client.processor.options import each


def make(**given: Any) -> Processor:
    common: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:9092", "group_id": "g", "transactional_id": "x"}
    settings: dict[str, Any] = {**common, "process": lambda records, transaction: None, **given}
    return Processor(**settings)


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


def record_at(offset: int) -> ConsumerRecord:
    origin = BatchOrigin(TopicPartition("orders", 2), -1, TimestampType.CREATE_TIME)
    return ConsumerRecord(origin, offset, 0, None, b"v", [])


class Sink:
    """What a transformed record is sent to."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, *record: Any) -> None:
        self.sent.append(record)

    def is_poison(self, error: BaseException) -> bool:
        return False


async def transformed(transform: Any) -> list[Any]:
    sink: Any = Sink()
    working = each(transform, dead_letters=False)([record_at(5), record_at(6)], sink)
    assert working is not None
    await working
    return [record[1] for record in sink.sent]


async def test_a_transform_that_returns_none_filters_the_record_out() -> None:
    assert await transformed(lambda record: None) == []
    assert await transformed(lambda record: [OutputRecord("t", b"6")] if record.offset == 6 else None) == [b"6"]

    async def later(record: ConsumerRecord) -> None:
        return None

    assert await transformed(later) == []


async def test_a_transform_may_be_a_generator_of_either_kind() -> None:
    def plain(record: ConsumerRecord) -> Any:
        yield OutputRecord("t", b"%d" % record.offset)

    async def later(record: ConsumerRecord) -> Any:
        yield OutputRecord("t", b"%d" % record.offset)

    assert await transformed(plain) == await transformed(later) == [b"5", b"6"]


@pytest.mark.parametrize("made", ["text", b"bytes", 5, True, {"t": b"v"}, [b"v"], [("t",)], ["tv"], [None], object()])
async def test_a_transform_that_returns_something_else_is_told_what_is_wanted(made: object) -> None:
    with pytest.raises(TypeError, match=r"list of OutputRecord.*or return None") as failed:
        await transformed(lambda record: made)
    assert failed.value.__notes__ == ["while transforming the record of orders-2 at offset 5"]


async def test_an_exception_of_a_transform_says_where_the_record_is_and_keeps_its_traceback() -> None:
    def transform(record: ConsumerRecord) -> Any:
        if record.offset == 6:
            raise LookupError("no such customer")
        return []

    with pytest.raises(LookupError, match="no such customer") as failed:
        await transformed(transform)
    assert failed.value.__notes__ == ["while transforming the record of orders-2 at offset 6"]
    assert failed.traceback[-1].name == "transform"
