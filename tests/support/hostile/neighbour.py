"""Run a well-behaved client as a separate process, which measures how long the broker takes to respond.

`python -m support.hostile.neighbour HOST:PORT` creates a topic and then sends one request after another until it is
terminated: Metadata, a small Produce, a Fetch, and at times a Produce of 500 KB. Each response is one line of stdout:
the request's name, when it was sent (`time.monotonic()`, seconds) and how long the response took (seconds). A failed
request is the line `failed`, the time and the reason; the client then connects again.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import cast

from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.schema import Request
from support.raw_connection import R, batch

TOPIC = "neighbour"
PAUSE_S = 0.005
TIMEOUT_S = 20.0
LARGE_EVERY = 20
"""Rounds between two large requests."""


class Failed(Exception):
    """The broker refused a request, or closed the connection."""


class Wire:
    """A connection that sends one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._id = 0

    def call(self, request: Request[R], version: int) -> R:
        self._id += 1
        self._socket.sendall(b"".join(encode_request(request, version, self._id, "neighbour")))
        (size,) = struct.unpack(">i", self._read(4))
        correlation_id, response = decode_response(cast(type[R], type(request).response), version, self._read(size))
        if correlation_id != self._id:
            raise Failed(f"answer {correlation_id} to request {self._id}")
        return response

    def _read(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            piece = self._socket.recv(count - len(got))
            if not piece:
                raise Failed("the broker closed the connection")
            got += piece
        return bytes(got)

    def close(self) -> None:
        self._socket.close()


def produce(wire: Wire, size: int) -> int:
    data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch(bytes(size)))])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
    partition = answer.responses[0].partition_responses[0]
    if partition.error_code:
        raise Failed(f"Produce was answered with code {partition.error_code}")
    return partition.base_offset


def requests(wire: Wire) -> Iterator[tuple[str, float, float]]:
    """Send requests for ever. Yield the name of each, when it was sent, and how long its response took, in seconds."""
    rounds = 0
    while True:
        rounds += 1
        begun = time.monotonic()
        if not wire.call(MetadataRequest([MetadataRequestTopic(name=TOPIC)], False), 12).brokers:
            raise Failed("Metadata names no broker")
        yield "metadata", begun, time.monotonic() - begun
        time.sleep(PAUSE_S)
        begun = time.monotonic()
        offset = produce(wire, 500_000 if rounds % LARGE_EVERY == 0 else 100)
        yield "produce", begun, time.monotonic() - begun
        time.sleep(PAUSE_S)
        begun = time.monotonic()
        asked = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=[asked])])
        part = wire.call(fetch, 12).responses[0].partitions[0]
        if part.error_code or not part.records:
            raise Failed(f"Fetch of offset {offset} was answered with code {part.error_code} and no records")
        yield "fetch", begun, time.monotonic() - begun
        time.sleep(PAUSE_S)


def main() -> None:
    address = sys.argv[1]
    wire = Wire(address)
    wire.call(CreateTopicsRequest([CreatableTopic(TOPIC, 1, -1, [], [])], 10_000), 7)
    while True:
        begun = time.monotonic()
        try:
            for name, begun, took in requests(wire):
                print(name, begun, took, flush=True)
        except (OSError, Failed) as failure:
            print("failed", begun, repr(failure), flush=True)
            wire.close()
        while True:
            try:
                wire = Wire(address)
                break
            except OSError:
                time.sleep(0.05)


if __name__ == "__main__":
    main()
