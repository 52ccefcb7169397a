"""Send raw requests over one asyncio connection: the broker gets exactly what a test sends, and nothing is retried.

`async with RawConnection(address) as wire: await wire.call(request, version)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from types import TracebackType
from typing import Any, TypeVar

from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches
from oncelog.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
TIMEOUT_S = 60.0
STAMP_MS = 1_700_000_000_000


def batch(*values: bytes, **fields: Any) -> bytes:
    """Return one record batch with these values, as a producer sends it."""
    return encode_batch([Record(index, STAMP_MS, None, value, []) for index, value in enumerate(values)], **fields)


def values_in(records: bytes | bytearray | memoryview | None) -> list[bytes | None]:
    """Return the values of all records, without control batches."""
    found: list[bytes | None] = []
    for position, header in iter_batches(records or b""):
        if not header.is_control:
            found += [record.value for record in decode_batch(records or b"", position, header)]
    return found


class RawConnection:
    """One connection to a broker. `source` is the client's own address, if it matters."""

    def __init__(self, address: str, client_id: str | None = "raw", *, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._source = (source, 0) if source else None
        self._client_id = client_id
        self._ids = itertools.count(1)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> RawConnection:
        self._reader, self._writer = await asyncio.open_connection(*self._target, local_addr=self._source)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()

    def send(self, request: Request[Any], version: int, extension_version: int = -1) -> int:
        """Send a request without waiting for the response. Return the correlation id."""
        correlation_id = next(self._ids)
        self._writer.writelines(encode_request(request, version, correlation_id, self._client_id, extension_version))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes."""
        self._writer.write(data)

    async def receive_bytes(self) -> bytes:
        """Return the next response's frame. Raises IncompleteReadError if the broker has closed the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def receive(self, request_class: type[Request[R]], version: int) -> tuple[int, R]:
        """Return (correlation id, response) of the next response."""
        return decode_response(request_class.response, version, await self.receive_bytes())  # type: ignore[arg-type]

    async def call(self, request: Request[R], version: int, extension_version: int = -1) -> R:
        """Send a request, and return the next response, which must belong to it."""
        correlation_id = self.send(request, version, extension_version)
        got, response = await self.receive(type(request), version)
        assert got == correlation_id
        return response

    async def closed(self) -> bool:
        """Return whether the broker closes the connection without sending anything more."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    # ---- what most tests need

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic (configs in snake case), and return its id as soon as it can be used."""
        rows = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        response = await self.call(CreateTopicsRequest([CreatableTopic(name, partitions, -1, [], rows)], 10_000), 7)
        assert [topic.error_code for topic in response.topics] == [0], response
        asked = [ListOffsetsPartition(index, -1, -1) for index in range(partitions)]
        async with asyncio.timeout(TIMEOUT_S):
            while True:  # Apache Kafka shows a topic in metadata before its leaders answer
                known = await self.call(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
                ends = await self.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, asked)]), 6)
                codes = [row.error_code for row in known.topics[0].partitions]
                codes += [row.error_code for row in ends.topics[0].partitions]
                if codes == [0] * 2 * partitions:
                    return known.topics[0].topic_id
                await asyncio.sleep(0.05)

    async def produce(
        self, topic: str, records: bytes, partition: int = 0, acks: int = -1, version: int = 9, **fields: Any
    ) -> PartitionProduceResponse:
        """Produce one batch to one partition."""
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, records)])
        response = await self.call(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data], **fields), version)
        return response.responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: str,
        offset: int = 0,
        partition: int = 0,
        *,
        version: int = 12,
        partition_max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        **fields: Any,
    ) -> FetchResponse:
        """Fetch from one partition, without a fetch session unless `fields` say so."""
        fields.setdefault("min_bytes", 1)
        asked = FetchPartition(partition, -1, offset, partition_max_bytes=partition_max_bytes)
        topics = [FetchTopic(topic, partitions=[asked])]
        return await self.call(FetchRequest(max_wait_ms=max_wait_ms, topics=topics, **fields), version)
