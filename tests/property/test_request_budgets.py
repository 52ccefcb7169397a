"""No request is worth more than it costs: arrays as long as a request may have make answers of bounded size."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from oncelog.broker.dispatcher import MalformedRequest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.apis import all_apis
from oncelog.protocol.framing import decode_response
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.schema import FieldSpec, Request, Struct, WireType
from support.definitions import case_name
from support.dispatching import Bugs, frame_of, sent

MAX_ELEMENTS = 1500
MAX_ROWS = 1500
MAX_BYTES = 1 << 20
MAX_NEW_PARTITIONS = 60
SETTINGS_OF_A_TOPIC = 60
"""More than a topic has: CreateTopics answers with all of them."""

Runner = asyncio.Runner
World = tuple[BrokerNode, Runner, Bugs]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        broker = BrokerNode(
            durability="os",
            logging_level="error",
            request_max_elements=MAX_ELEMENTS,
            response_max_rows=MAX_ROWS,
            response_max_bytes=MAX_BYTES,
            request_max_new_partitions=MAX_NEW_PARTITIONS,
        )
        bugs = Bugs()
        runner.run(broker.start())
        broker.dispatcher._log = bugs
        runner.run(_fill(broker))
        yield broker, runner, bugs
        runner.run(broker.stop())


async def _fill(broker: BrokerNode) -> None:
    """A topic "t" of some partitions, on each of which the group "t" has committed with metadata."""
    partitions = MAX_NEW_PARTITIONS
    await sent(broker, frame_of(CreateTopicsRequest([CreatableTopic("t", partitions, 1)]), 5))
    commits = [OffsetCommitRequestPartition(index, 7, committed_metadata="m" * 4000) for index in range(partitions)]
    committed = OffsetCommitRequest("t", topics=[OffsetCommitRequestTopic("t", partitions=commits)])
    assert await sent(broker, frame_of(committed, 8))


def cases() -> Iterator[tuple[type[Request[Any]], int]]:
    for api in all_apis():
        for version in api.spec.stable:
            yield api, version


def value(spec: FieldSpec, version: int, number: int) -> Any:
    """A value of one field: "t" and 0 for number 0, else one of its own."""
    if spec.struct is not None:
        return filled(spec.struct, version, number)
    match spec.wire_type:
        case WireType.STRING:
            return f"t{number}" if number else "t"
        case WireType.INT8 | WireType.BOOL | WireType.BYTES | WireType.RECORDS | WireType.UUID | WireType.FLOAT64:
            return (
                spec.default if not spec.is_array else {WireType.BOOL: False, WireType.INT8: 2}.get(spec.wire_type, b"")
            )
        case _:
            return number


def filled(cls: type[Struct], version: int, number: int = 0) -> Any:
    """An instance whose strings are names, and whose arrays have one element each."""
    made = cls()
    for spec in cls.fields:
        if version not in spec.versions or (spec.tag is not None and spec.tag >= 9000):
            continue
        if spec.is_array:
            setattr(made, spec.name, [value(spec, version, number)] if spec.wire_type is not WireType.UUID else [])
        elif spec.struct is not None or spec.wire_type is WireType.STRING:
            setattr(made, spec.name, value(spec, version, number))
        elif spec.name in ("resource_type", "key_type"):
            setattr(made, spec.name, {"resource_type": 2, "key_type": 0}[spec.name])
    return made


def long_arrays(cls: type[Struct], version: int, length: int) -> Iterator[Any]:
    """Instances in which one array, at any depth, is long: of the same element over and over, or of different ones."""
    for spec in cls.fields:
        if version not in spec.versions or (spec.tag is not None and spec.tag >= 9000):
            continue
        if spec.is_array and spec.wire_type is not WireType.UUID:
            inner = sum(1 for _ in _elements(value(spec, version, 0)))
            count = length // (1 + inner)
            for elements in ([value(spec, version, 0)] * count, [value(spec, version, n) for n in range(count)]):
                made = filled(cls, version)
                setattr(made, spec.name, elements)
                yield made
        if spec.struct is not None:
            for deeper in long_arrays(spec.struct, version, length):
                made = filled(cls, version)
                setattr(made, spec.name, [deeper] if spec.is_array else deeper)
                yield made


def _elements(item: Any) -> Iterator[Any]:
    """Every array element in a value."""
    if isinstance(item, Struct):
        for spec in item.fields:
            for element in getattr(item, spec.name) or () if spec.is_array else ():
                yield element
                yield from _elements(element)
            if spec.struct is not None and not spec.is_array:
                yield from _elements(getattr(item, spec.name))


@pytest.mark.parametrize(("api", "version"), list(cases()), ids=case_name)
def test_a_request_of_long_arrays_is_answered_within_bounds(
    world: World, api: type[Request[Any]], version: int
) -> None:
    broker, runner, bugs = world
    if api.spec.key not in {served.key for served in broker.dispatcher.apis()}:
        return
    for request in long_arrays(api, version, MAX_ELEMENTS - 40):
        answer = runner.run(sent(broker, frame_of(copy.copy(request), version)))
        assert not bugs.found
        if answer is None:
            continue
        assert len(answer) <= MAX_BYTES + 1000
        _, response = decode_response(api.response, version, answer)
        elements = sum(1 for _ in _elements(response))
        assert elements <= 3 * (MAX_ELEMENTS + MAX_ROWS) + MAX_NEW_PARTITIONS * SETTINGS_OF_A_TOPIC


@pytest.mark.parametrize(("api", "version"), list(cases()), ids=case_name)
def test_a_request_of_longer_arrays_is_refused_before_it_is_executed(
    world: World, api: type[Request[Any]], version: int
) -> None:
    broker, runner, _ = world
    if api.spec.key not in {served.key for served in broker.dispatcher.apis()}:
        return
    for request in long_arrays(api, version, 3 * MAX_ELEMENTS):
        runner.run(_refused(broker, frame_of(request, version)))


async def _refused(broker: BrokerNode, frame: bytes) -> None:
    with pytest.raises(MalformedRequest, match="too many elements"):
        await _decoded(broker, frame)


async def _decoded(broker: BrokerNode, frame: bytes) -> None:
    exchange = broker.dispatcher.accept(None, memoryview(frame))  # type: ignore[arg-type]
    assert exchange.decoding is not None, "it was decoded whole"
    await broker.dispatcher.execute(exchange)  # type: ignore[misc]
