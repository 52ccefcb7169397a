"""Requests that are cheap to send and were dear to execute: each is answered or refused within little memory."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.schema import Request
from support.broker import BrokerProcess
from support.raw_connection import batch
from support.wire import Wire

OWN_PROCESS = "bounds the broker's memory"
OFFSETS = 5_000
PRODUCERS = 500
ALLOWED_GROWTH = 256 << 20
ADDRESS_SPACE = 3 << 30

pytestmark = [pytest.mark.oncelog_only(reason=OWN_PROCESS), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a topic of 5,000 partitions, as many offsets of a group, and a partition of 500 producers."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), "--durability", "os") as process:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        with Wire(process.address) as wire:
            wire.create_topic("wide", OFFSETS)
            wire.create_topic("t")
            commits = [OffsetCommitRequestPartition(index, 7, committed_metadata="m") for index in range(OFFSETS)]
            topics = [OffsetCommitRequestTopic("wide", partitions=commits)]
            committed = wire.call(OffsetCommitRequest("group", topics=topics), 8)
            assert all(row.error_code == 0 for row in committed.topics[0].partitions)
            for _ in range(PRODUCERS):
                made = wire.call(InitProducerIdRequest(None, 60_000), 4)
                records = batch(b"x", producer_id=made.producer_id, producer_epoch=0, base_sequence=0)
                data = TopicProduceData("t", partition_data=[PartitionProduceData(0, records)])
                produced = wire.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
                assert produced.responses[0].partition_responses[0].error_code == 0
        yield process


def peak(process: BrokerProcess) -> int:
    """The most bytes of memory that the process had since `forget_peak`."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def forget_peak(process: BrokerProcess) -> int:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return peak(process)


def add_partitions(count: int) -> Request[Any]:
    return AddPartitionsToTxnRequest(v3_and_below_topics=[AddPartitionsToTxnTopic("wide", [0] * count)])


def offset_fetch(count: int) -> Request[Any]:
    return OffsetFetchRequest(group_id="group", topics=[OffsetFetchRequestTopic("wide", [0] * count)])


REFUSED: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "five million numbers in OffsetFetch": (lambda: offset_fetch(5_000_000), 7),
    "five million numbers in AddPartitionsToTxn": (lambda: add_partitions(5_000_000), 2),
    "a million partitions in ListOffsets": (
        lambda: ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0)] * 1_000_000)]),
        6,
    ),
    "half a million partitions in Fetch": (
        lambda: FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0)] * 500_000)]),
        12,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_of_too_many_elements_closes_its_connection_before_they_are_made(
    broker: BrokerProcess, name: str
) -> None:
    build, version = REFUSED[name]
    frame = b"".join(encode_request(build(), version, 1, "c"))
    before = forget_peak(broker)
    with Wire(broker.address) as wire:
        wire._socket.sendall(frame)
        with pytest.raises(ConnectionError):
            wire._read(4)
    # The frame itself is received whole, into one buffer that doubles.
    assert peak(broker) - before < 4 * len(frame) + (16 << 20)
    serves(broker)


def serves(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        assert wire.call(MetadataRequest([]), 12).brokers


def call(broker: BrokerProcess, request: Request[Any], version: int) -> object:
    """The answer, which must not cost more memory than `ALLOWED_GROWTH`."""
    before = forget_peak(broker)
    with Wire(broker.address, 120) as wire:
        response = wire.call(request, version)
    assert peak(broker) - before < ALLOWED_GROWTH
    return response


def test_a_group_named_ten_thousand_times_is_answered_once(broker: BrokerProcess) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=None)] * 10_000)
    (group,) = call(broker, request, 8).groups  # type: ignore[attr-defined]
    assert sum(len(topic.partitions) for topic in group.topics) == OFFSETS


def test_a_partition_whose_offset_is_asked_for_many_times_is_answered_once(broker: BrokerProcess) -> None:
    (topic,) = call(broker, offset_fetch(150_000), 7).topics  # type: ignore[attr-defined]
    assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [(0, 7)]


def test_groups_of_more_offsets_than_an_answer_may_have_are_refused(broker: BrokerProcess) -> None:
    groups = [OffsetFetchRequestGroup("group", topics=None)]
    groups += [
        OffsetFetchRequestGroup(f"g{n}", topics=[OffsetFetchRequestTopics("wide", partition_indexes=list(range(2500)))])
        for n in range(79)
    ]
    answer = call(broker, OffsetFetchRequest(groups=groups), 8)
    assert {group.error_code for group in answer.groups} == {ErrorCode.INVALID_REQUEST}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "name", "times"), [(4, "1", 20_000), (2, "t", 100_000)])
def test_a_resource_named_many_times_is_described_once(broker: BrokerProcess, kind: int, name: str, times: int) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)] * times, True, True)
    (result,) = call(broker, request, 4).results  # type: ignore[attr-defined]
    assert len(result.configs) > 20


def test_a_partition_named_ten_thousand_times_is_described_once(broker: BrokerProcess) -> None:
    request = DescribeProducersRequest([TopicRequest("t", [0] * 10_000)])
    (topic,) = call(broker, request, 0).topics  # type: ignore[attr-defined]
    (partition,) = topic.partitions
    assert len(partition.active_producers) == PRODUCERS


def test_a_group_described_many_times_is_described_once(broker: BrokerProcess) -> None:
    assert len(call(broker, DescribeGroupsRequest(["group"] * 100_000), 5).groups) == 1  # type: ignore[attr-defined]


def test_a_partition_listed_many_times_is_refused_each_time(broker: BrokerProcess) -> None:
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0)] * 150_000)])
    (topic,) = call(broker, request, 6).topics  # type: ignore[attr-defined]
    assert {row.error_code for row in topic.partitions} == {ErrorCode.INVALID_REQUEST}


def test_a_partition_fetched_many_times_is_answered_once(broker: BrokerProcess) -> None:
    partitions = [FetchPartition(0, -1, 0, partition_max_bytes=100)] * 150_000
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[FetchTopic("t", partitions=partitions)])
    (topic,) = call(broker, request, 12).responses  # type: ignore[attr-defined]
    assert len(topic.partitions) == 1


def test_more_topics_than_one_request_may_create_are_refused(broker: BrokerProcess) -> None:
    request = CreateTopicsRequest([CreatableTopic(f"many-{n}", 1, 1) for n in range(20_000)])
    answer = call(broker, request, 7)
    codes = {topic.error_code for topic in answer.topics}  # type: ignore[attr-defined]
    assert codes == {ErrorCode.POLICY_VIOLATION}
    with Wire(broker.address) as wire:
        assert not any((topic.name or "").startswith("many") for topic in wire.call(MetadataRequest(None), 12).topics)


def test_two_thousand_topics_are_created_and_deleted(broker: BrokerProcess) -> None:
    from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    names = [f"some_{n}" for n in range(2_000)]
    created = call(broker, CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names]), 7)
    assert {topic.error_code for topic in created.topics} == {0}  # type: ignore[attr-defined]
    deleted = call(broker, DeleteTopicsRequest([DeleteTopicState(name) for name in names]), 6)
    assert {topic.error_code for topic in deleted.responses} == {0}  # type: ignore[attr-defined]
