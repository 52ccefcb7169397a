"""Decide whether a batch in a partition's log was sent by this task or by another task: `is_mine`.

If a leader receives a batch whose sequence numbers are already in its log, the leader responds as if it had written the
batch. Spark may run two attempts of a task at the same time when it retries a stage. Each attempt would then write some
batches of a partition, with the rows in its own order. To prevent this, each attempt first sends one batch of a
partition, and compares it with the batch in the log before it sends others. The batch in the log belongs to only one of
the attempts.
"""

from __future__ import annotations

from ...client.cluster import Cluster
from ...client.errors import error_for
from ...client.values import TopicPartition
from ...protocol.batch_header import BatchHeader, iter_batches, read_batch_header
from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.schema import NO_UUID

LAST_VERSION_WITH_NAMES = 12


async def is_mine(cluster: Cluster, partition: TopicPartition, offset: int, data: bytes) -> bool:
    """Return whether the batch at this offset has the content of `data`. Raises KafkaError."""
    leader = cluster.leader_of(partition)
    if leader is None:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
    connection = await cluster.connection(leader)
    known = cluster.metadata.topics[partition.topic]
    # The leader returns one whole batch even if the limit is one byte.
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1, isolation_level=0)
    one = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=1)
    request.topics = [FetchTopic(topic=partition.topic, topic_id=known.topic_id, partitions=[one])]
    newest = 32767 if known.topic_id != NO_UUID else LAST_VERSION_WITH_NAMES
    answer = await connection.send(request, connection.version_of(FetchRequest, newest))
    code, records = answer.error_code, None
    for topic in answer.responses:
        for found in topic.partitions:
            code, records = code or found.error_code, found.records
    if code:
        raise error_for(code, f"{partition}: the task cannot read its first batch back: {error_code(code).text}")
    for _, header in iter_batches(records or b""):
        return _same(header, read_batch_header(data))
    raise KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition}: the leader does not return the task's first batch yet"
    )


def _same(found: BatchHeader, sent: BatchHeader) -> bool:
    """Return whether the headers show that the batch in the log has the same content as the batch that was sent."""
    if found.crc == sent.crc:
        return True
    who = (found.producer_id, found.producer_epoch, found.base_sequence, found.record_count)
    if who != (sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.record_count):
        return False
    # Brokers rewrite batches for topics with a compression.type or a message.timestamp.type.
    if Compression(found.compression) is not Compression(sent.compression):
        return True  # the content cannot be compared further
    return found.timestamp_type != sent.timestamp_type and found.base_timestamp == sent.base_timestamp
