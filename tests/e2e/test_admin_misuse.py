"""What a program passes to the admin client wrongly is refused with the argument's name, before anything is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from oncelog import AbortTransactionSpec, Admin, ConfigResource, NewTopic, Producer, ResourceType, TopicPartition

Names = Callable[[str], str]
Call = Callable[[Admin], Awaitable[Any]]
ONE = TopicPartition("t", 0)
TOPIC = ConfigResource(ResourceType.TOPIC, "t")


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


NOT_NUMBERS: list[Any] = ["0", 1.0, None, True, b"1"]
NUMBERS: dict[str, Callable[[Any], Call]] = {
    "time of t-0": lambda wrong: lambda a: a.list_offsets({ONE: wrong}),
    "offset of t-0": lambda wrong: lambda a: a.delete_records({ONE: wrong}),
    "offset .* of t-0": lambda wrong: lambda a: a.alter_group_offsets("g", {ONE: wrong}),
    "total of partitions of topic 't'": lambda wrong: lambda a: a.create_partitions({"t": wrong}),
    "partitions of topic 't'": lambda wrong: lambda a: a.create_topic("t", wrong),
    "replication_factor of topic 't'": lambda wrong: lambda a: a.create_topic("t", 1, wrong),
    "producer id": lambda wrong: lambda a: a.list_transactions(producer_ids=[wrong]),
    "min_duration_ms": lambda wrong: lambda a: a.list_transactions(min_duration_ms=wrong),
    "older_than_ms": lambda wrong: lambda a: a.find_hanging_transactions([], older_than_ms=wrong),
    "producer_epoch": lambda wrong: lambda a: a.abort_transaction(AbortTransactionSpec(ONE, 1, wrong)),
}


@pytest.mark.parametrize("wrong", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
async def test_what_is_no_whole_number_is_a_type_error(admin: Admin, name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=name):
        await NUMBERS[name](wrong)(admin)


@pytest.mark.parametrize("wrong", [-(2**31), 2**70], ids=str)
@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "offset .* of t-0"])
async def test_a_number_that_no_request_carries_is_a_value_error(admin: Admin, name: str, wrong: int) -> None:
    with pytest.raises(ValueError, match=name):
        await NUMBERS[name](wrong)(admin)


@pytest.mark.parametrize("wrong", ["1", 0.5, True, -1, float("nan")], ids=repr)
async def test_a_timeout_that_is_none_is_refused(admin: Admin, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout_ms"):
        await admin.fence_producers(["x"], timeout_ms=wrong)


NAMES: dict[str, Callable[[Any], Call]] = {
    "create_topic": lambda wrong: lambda a: a.create_topic(wrong),
    "create_topics": lambda wrong: lambda a: a.create_topics([NewTopic(wrong)], raise_errors=False),
    "delete_topics": lambda wrong: lambda a: a.delete_topics([wrong], raise_errors=False),
    "describe_topics": lambda wrong: lambda a: a.describe_topics([wrong]),
    "create_partitions": lambda wrong: lambda a: a.create_partitions({wrong: 3}, raise_errors=False),
    "describe_configs": lambda wrong: lambda a: a.describe_configs([ConfigResource(ResourceType.TOPIC, wrong)]),
    "alter_configs": lambda wrong: lambda a: a.alter_configs({ConfigResource(ResourceType.TOPIC, wrong): {}}),
    "config name": lambda wrong: lambda a: a.alter_configs({TOPIC: {wrong: "1"}}),
    "list_groups": lambda wrong: lambda a: a.list_groups([wrong]),
    "describe_groups": lambda wrong: lambda a: a.describe_groups([wrong]),
    "delete_groups": lambda wrong: lambda a: a.delete_groups([wrong], raise_errors=False),
    "group_offsets": lambda wrong: lambda a: a.group_offsets(wrong),
    "alter_group_offsets": lambda wrong: lambda a: a.alter_group_offsets(wrong, {ONE: 1}),
    "delete_group_offsets": lambda wrong: lambda a: a.delete_group_offsets(wrong, [ONE]),
    "group_claims": lambda wrong: lambda a: a.group_claims(wrong),
    "unfence_group": lambda wrong: lambda a: a.unfence_group(wrong),
    "fence_producers": lambda wrong: lambda a: a.fence_producers([wrong]),
    "describe_transactions": lambda wrong: lambda a: a.describe_transactions([wrong]),
}


@pytest.mark.parametrize("wrong", [b"t", None, 1, "\ud800", "x" * 40_000], ids=lambda wrong: repr(wrong)[:10])
@pytest.mark.parametrize("name", NAMES)
async def test_what_is_no_name_is_refused(admin: Admin, name: str, wrong: Any) -> None:
    kind = ValueError if isinstance(wrong, str) else TypeError
    with pytest.raises(kind, match=r"must be a str, not|cannot be encoded|40000 bytes"):
        await NAMES[name](wrong)(admin)


SHAPES: dict[str, Call] = {
    "totals must be a mapping": lambda a: a.create_partitions([("t", 1)]),  # type: ignore[arg-type]
    "before must be a mapping": lambda a: a.delete_records([ONE]),  # type: ignore[arg-type]
    "wanted must be a mapping": lambda a: a.list_offsets([ONE]),  # type: ignore[arg-type]
    "changes must be a mapping": lambda a: a.alter_configs([TOPIC]),  # type: ignore[arg-type]
    "configs of topic 't' must be a mapping": lambda a: a.alter_configs({TOPIC: "retention.ms=1"}),  # type: ignore[dict-item]
    "'t' is not a ConfigResource": lambda a: a.describe_configs(["t"]),  # type: ignore[list-item]
    "resources must be an iterable of ConfigResource": lambda a: a.describe_configs(TOPIC),  # type: ignore[arg-type]
    "'t' is not a NewTopic": lambda a: a.create_topics(["t"]),  # type: ignore[list-item]
    "new_topics must be an iterable": lambda a: a.create_topics(NewTopic("t")),  # type: ignore[arg-type]
    "spec must be an AbortTransactionSpec": lambda a: a.abort_transaction(ONE),  # type: ignore[arg-type]
    "give '5000'": lambda a: a.alter_configs({TOPIC: {"retention.ms": 5000}}),  # type: ignore[dict-item]
    "give 'false'": lambda a: a.create_topic("t", configs={"preallocate": False}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("text", SHAPES)
async def test_what_has_another_shape_is_a_type_error(admin: Admin, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        await SHAPES[text](admin)


async def test_a_misspelt_isolation_level_is_not_read_uncommitted(admin: Admin) -> None:
    with pytest.raises(ValueError, match="'read-committed' is neither"):
        await admin.list_offsets({ONE: -1}, isolation_level="read-committed")


async def test_true_deletes_no_record(admin: Admin, bootstrap: str, fresh_name: Names) -> None:
    one = TopicPartition(fresh_name("topic"), 0)
    await admin.create_topic(one.topic, 1)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send(one.topic, b"kept")
    with pytest.raises(TypeError):
        await admin.delete_records({one: True})
    assert (await admin.list_offsets({one: -2}))[one].offset == 0
