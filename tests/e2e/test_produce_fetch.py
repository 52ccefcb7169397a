"""Produce and Fetch as they are on the wire, in the cases where brokers differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records import iter_batches
from support.raw_connection import TIMEOUT_S, RawConnection, batch, values_in

Name = Callable[[str], str]
E = ErrorCode


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_of_produce_appends(bootstrap: str, fresh_name: Name, version: int) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        first = await wire.produce(topic, batch(b"a", b"b"), version=version)
        second = await wire.produce(topic, batch(b"c"), version=version)
        assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
        assert values_in((await wire.fetch(topic)).responses[0].partitions[0].records) == [b"a", b"b", b"c"]


async def test_from_version_13_produce_names_topics_by_id(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(topic)
        for id, code in ((topic_id, E.NONE), (b"\x07" * 16, E.UNKNOWN_TOPIC_ID)):
            data = TopicProduceData(topic_id=id, partition_data=[PartitionProduceData(0, batch(b"a"))])
            response = await wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 13)
            assert response.responses[0].topic_id == id
            assert response.responses[0].partition_responses[0].error_code == code


def patient_fetch(topic: str) -> FetchRequest:
    """A request that waits ten minutes for a record in partition 0."""
    partition = FetchPartition(0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic(topic, partitions=[partition])])


@pytest.mark.oncelog_only(reason="Apache Kafka executes a request only when the one before it is answered")
async def test_a_request_behind_a_fetch_that_waits_is_answered_soon(bootstrap: str, fresh_name: Name) -> None:
    """The response to the later request has to wait for that of the Fetch, which therefore ends its wait early."""
    topic = fresh_name("topic")
    asked = patient_fetch(topic)
    ends = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])])
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        fetches = [wire.send(asked, 12), wire.send(asked, 12)]
        later = wire.send(ends, 6)
        for sent in fetches:
            got, response = await wire.receive(FetchRequest, 12)
            assert (got, response.error_code) == (sent, 0)
            assert not response.responses[0].partitions[0].records
        got, offsets = await wire.receive(ListOffsetsRequest, 6)
        assert (got, offsets.topics[0].partitions[0].offset) == (later, 0)


async def test_only_another_kind_of_request_ends_the_wait_of_a_fetch(bootstrap: str, fresh_name: Name) -> None:
    """Two Fetch requests of one connection wait together: if each ended the other, their client would never pause."""
    topic = fresh_name("topic")
    asked = patient_fetch(topic)
    async with RawConnection(bootstrap) as wire, RawConnection(bootstrap) as writer:
        await wire.create_topic(topic)
        fetches = [wire.send(asked, 12), wire.send(asked, 12)]
        await writer.produce(topic, batch(b"a"))
        for sent in fetches:
            got, response = await wire.receive(FetchRequest, 12)
            assert got == sent
            assert values_in(response.responses[0].partitions[0].records)


async def test_acks_0_is_not_answered_and_its_records_are_there(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch(b"silent"))])
        wire.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=[data]), 9)
        acked = await wire.produce(topic, batch(b"loud"), acks=1)
        assert acked.base_offset == 1


async def test_a_client_that_closes_behind_requests_with_acks_0_loses_none_of_them(
    bootstrap: str, fresh_name: Name
) -> None:
    topic = fresh_name("topic")
    # Each batch expands to 8 MB, so it is still being checked when the end of the connection arrives.
    expanding = batch(*[bytes(1_000_000)] * 8, compression=Compression.GZIP)
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, expanding)])
    small = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch(b"last"))])
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        async with RawConnection(bootstrap) as closing:
            for topic_data in (data, small, data, small):
                closing.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=[topic_data]), 9)
        ends = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])])
        async with asyncio.timeout(TIMEOUT_S):
            while (await wire.call(ends, 6)).topics[0].partitions[0].offset < 18:
                await asyncio.sleep(0.02)


async def test_a_failing_produce_with_acks_0_closes_the_connection(bootstrap: str, fresh_name: Name) -> None:
    async with RawConnection(bootstrap) as wire:
        data = TopicProduceData(fresh_name("no-such"), partition_data=[PartitionProduceData(0, batch(b"x"))])
        wire.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=[data]), 9)
        assert await wire.closed()


async def test_acks_other_than_0_1_and_all_are_refused(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        refused = await wire.produce(topic, batch(b"x"), acks=2)
        assert refused.error_code == E.INVALID_REQUIRED_ACKS
        assert (await wire.produce(topic, batch(b"x"))).base_offset == 0


async def test_one_bad_partition_fails_alone(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, 2)
        parts = [
            PartitionProduceData(0, batch(b"good")),
            PartitionProduceData(1, bytes(broken)),
            PartitionProduceData(7, batch(b"nowhere")),
        ]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(topic, partition_data=parts)])
        answers = (await wire.call(request, 9)).responses[0].partition_responses
        codes = {answer.index: answer.error_code for answer in answers}
        assert codes == {0: E.NONE, 1: E.CORRUPT_MESSAGE, 7: E.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_batch_larger_than_max_message_bytes_is_refused(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, max_message_bytes="1000")
        assert (await wire.produce(topic, batch(bytes(2000)))).error_code == E.MESSAGE_TOO_LARGE
        assert (await wire.produce(topic, batch(bytes(500)))).base_offset == 0


async def test_an_idempotent_batch_sent_twice_is_there_once(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)

        def numbered(sequence: int, epoch: int = 0) -> bytes:
            return batch(b"%d" % sequence, producer_id=91_000, producer_epoch=epoch, base_sequence=sequence)

        assert (await wire.produce(topic, numbered(0))).base_offset == 0
        assert (await wire.produce(topic, numbered(1))).base_offset == 1
        again = await wire.produce(topic, numbered(0))
        assert (again.error_code, again.base_offset) == (E.NONE, 0)
        assert (await wire.produce(topic, numbered(3))).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await wire.produce(topic, numbered(0, epoch=1))).base_offset == 2
        assert (await wire.produce(topic, numbered(2))).error_code == E.INVALID_PRODUCER_EPOCH
        assert values_in((await wire.fetch(topic)).responses[0].partitions[0].records) == [b"0", b"1", b"0"]


async def test_a_transactional_batch_without_transactional_id_is_not_authorized(
    bootstrap: str, fresh_name: Name
) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        records = batch(b"x", producer_id=91_001, producer_epoch=0, base_sequence=0, transactional=True)
        refused = await wire.produce(topic, records)
        assert refused.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_log_append_time_topic_stamps_and_says_so(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, message_timestamp_type="LogAppendTime")
        before = int(time.time() * 1000) - 1000
        answer = await wire.produce(topic, batch(b"x"))
        assert before < answer.log_append_time_ms < before + 60_000
        records = (await wire.fetch(topic)).responses[0].partitions[0].records
        [(_, header)] = list(iter_batches(records or b""))
        assert header.max_timestamp == answer.log_append_time_ms


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_of_fetch_reads(bootstrap: str, fresh_name: Name, version: int) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a", b"b"))
        data = (await wire.fetch(topic, 1, version=version)).responses[0].partitions[0]
        assert values_in(data.records) == [b"a", b"b"], "the whole batch that holds the offset"
        assert data.high_watermark == 2


@pytest.mark.parametrize("version", range(13, 18))
async def test_from_version_13_fetch_names_topics_by_id(bootstrap: str, fresh_name: Name, version: int) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a"))
        for id, code in ((topic_id, E.NONE), (b"\x07" * 16, E.UNKNOWN_TOPIC_ID)):
            topics = [FetchTopic(topic_id=id, partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1000)])]
            response = await wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version)
            assert response.responses[0].topic_id == id
            assert response.responses[0].partitions[0].error_code == code


async def test_an_offset_outside_of_the_log_is_out_of_range(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a"))
        for offset in (2, -1):
            data = (await wire.fetch(topic, offset, max_wait_ms=5000)).responses[0].partitions[0]
            assert data.error_code == E.OFFSET_OUT_OF_RANGE
        assert (await wire.fetch(topic, 1)).responses[0].partitions[0].error_code == E.NONE


async def test_a_reader_whose_log_diverges_learns_where(bootstrap: str, fresh_name: Name) -> None:
    """A reader that has records which the log has lost (KIP-595): Java's consumer then goes back to this offset."""
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a", b"b", b"c"))

        async def fetch(offset: int, last_epoch: int) -> tuple[int, int, int, list[bytes | None]]:
            asked = FetchPartition(0, -1, offset, last_fetched_epoch=last_epoch, partition_max_bytes=1000)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic, partitions=[asked])])
            (got,) = (await wire.call(request, 12)).responses[0].partitions
            assert got.error_code or got.high_watermark == 3
            return got.error_code, got.diverging_epoch.epoch, got.diverging_epoch.end_offset, values_in(got.records)

        assert await fetch(1, 0) == (E.NONE, -1, -1, [b"a", b"b", b"c"])
        assert await fetch(3, 0) == (E.NONE, -1, -1, [])
        assert await fetch(4, 0) == (E.NONE, 0, 3, [])
        assert await fetch(4, -1) == (E.OFFSET_OUT_OF_RANGE, -1, -1, [])


async def test_a_fetch_at_the_end_waits_for_the_next_record(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as consumer, RawConnection(bootstrap) as producer:
        await producer.create_topic(topic)
        await producer.produce(topic, batch(b"a"))
        waiting = asyncio.create_task(consumer.fetch(topic, 1, max_wait_ms=15_000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        began = time.monotonic()
        await producer.produce(topic, batch(b"b"))
        data = (await waiting).responses[0].partitions[0]
        assert values_in(data.records) == [b"b"]
        assert time.monotonic() - began < 5


async def test_a_fetch_waits_for_min_bytes_and_no_longer_than_max_wait(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire, RawConnection(bootstrap) as producer:
        await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a"))
        began = time.monotonic()
        data = (await wire.fetch(topic, 0, max_wait_ms=300, min_bytes=10_000)).responses[0].partitions[0]
        assert 0.25 < time.monotonic() - began < 10
        assert values_in(data.records) == [b"a"]
        waiting = asyncio.create_task(wire.fetch(topic, 0, max_wait_ms=60_000, min_bytes=10_000))
        await asyncio.sleep(0.05)
        await producer.produce(topic, batch(b"b"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await producer.produce(topic, batch(bytes(10_000)))
        assert len(values_in((await waiting).responses[0].partitions[0].records)) == 3


async def test_the_first_batch_comes_whole_however_small_the_limit(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        for _ in range(3):
            await wire.produce(topic, batch(bytes(5000)))
        data = (await wire.fetch(topic, 0, partition_max_bytes=10)).responses[0].partitions[0]
        assert len(values_in(data.records)) == 1
        limited = (await wire.fetch(topic, 0, max_bytes=11_000)).responses[0].partitions[0]
        assert len(values_in(limited.records)) == 2


async def test_an_incremental_session_tells_only_what_changed(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")

    def request(session_id: int, epoch: int, offsets: dict[int, int], forget: list[int] | None = None) -> FetchRequest:
        parts = [FetchPartition(index, -1, at, partition_max_bytes=1000) for index, at in offsets.items()]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic, partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic, partitions=forget)] if forget else [],
        )

    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, 2)
        full = await wire.call(request(0, 0, {0: 0, 1: 0}), 12)
        assert full.session_id != 0
        assert sorted(p.partition_index for t in full.responses for p in t.partitions) == [0, 1]
        assert (await wire.call(request(full.session_id, 1, {}), 12)).responses == []
        await wire.produce(topic, batch(b"a"), partition=1)
        changed = await wire.call(request(full.session_id, 2, {}), 12)
        assert [p.partition_index for t in changed.responses for p in t.partitions] == [1]
        assert values_in(changed.responses[0].partitions[0].records) == [b"a"]
        assert (await wire.call(request(full.session_id, 3, {1: 1}), 12)).responses == []
        await wire.produce(topic, batch(b"b"), partition=0)
        assert (await wire.call(request(full.session_id, 4, {}, forget=[0]), 12)).responses == []
        wrong = await wire.call(request(full.session_id, 9, {}), 12)
        assert wrong.error_code == E.INVALID_FETCH_SESSION_EPOCH
        unknown = await wire.call(request(12345, 1, {}), 12)
        assert unknown.error_code == E.FETCH_SESSION_ID_NOT_FOUND


async def test_offsets_are_listed_by_time_and_by_their_special_names(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")

    async def list_offset(wire: RawConnection, timestamp: int, version: int = 7) -> tuple[int, int, int]:
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])])
        answer = (await wire.call(request, version)).topics[0].partitions[0]
        return answer.error_code, answer.timestamp, answer.offset

    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        assert await list_offset(wire, -1) == (0, -1, 0)
        assert await list_offset(wire, -3) == (0, -1, -1)
        stamp = 1_700_000_000_000
        await wire.produce(topic, batch(b"a", b"b"))
        await wire.produce(topic, batch(b"c"))
        for version in range(1, 8):
            assert await list_offset(wire, -1, version) == (0, -1, 3)
            assert await list_offset(wire, -2, version) == (0, -1, 0)
        assert await list_offset(wire, stamp) == (0, stamp, 0)
        assert await list_offset(wire, stamp - 5) == (0, stamp, 0)
        assert await list_offset(wire, stamp + 1) == (0, -1, -1)
        assert (await list_offset(wire, -3))[:2] == (0, stamp)
        assert (await list_offset(wire, -3, 6))[0] == E.UNSUPPORTED_VERSION


async def test_deleted_records_are_out_of_range(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")

    def delete(offset: int, index: int = 0) -> DeleteRecordsRequest:
        return DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])], 5000)

    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        for _ in range(4):
            await wire.produce(topic, batch(b"a"))
        answer = (await wire.call(delete(2), 2)).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        assert (await wire.fetch(topic, 1)).responses[0].partitions[0].error_code == E.OFFSET_OUT_OF_RANGE
        data = (await wire.fetch(topic, 2)).responses[0].partitions[0]
        assert (data.log_start_offset, len(values_in(data.records))) == (2, 2)
        assert (await wire.call(delete(99), 2)).topics[0].partitions[0].error_code == E.OFFSET_OUT_OF_RANGE
        assert (await wire.call(delete(-1), 2)).topics[0].partitions[0].low_watermark == 4
        assert (await wire.call(delete(0, 5), 2)).topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_wrong_leader_epoch_is_refused(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        await wire.produce(topic, batch(b"a"))
        topics = [FetchTopic(topic, partitions=[FetchPartition(0, 1000, 0, partition_max_bytes=1000)])]
        fetched = await wire.call(FetchRequest(max_wait_ms=9000, min_bytes=1, topics=topics), 12)
        assert fetched.responses[0].partitions[0].error_code == E.UNKNOWN_LEADER_EPOCH
        asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, 0)])
        answer = (await wire.call(OffsetForLeaderEpochRequest(-1, [asked]), 4)).topics[0].partitions[0]
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 1)


async def test_the_brokers_own_topics_can_be_read_but_not_written(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        refused = await wire.produce("__transaction_state", batch(b"x"))
        assert refused.error_code in (E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION)
