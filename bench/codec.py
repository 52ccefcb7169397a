"""Compare the time to encode and decode a message with construct, construct's compile(), and oncelog's generated code.

    python bench/codec.py [--seconds 0.2]

Each figure is the best of five runs. construct's compile() translates only construct's own classes. It calls oncelog's
classes (compact strings, arrays, tagged fields) without translating them, and so gains little. Therefore oncelog has a
separate compiler.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from oncelog.protocol import codec
from oncelog.protocol.formats import format_of
from oncelog.protocol.framing import decode_request_header, encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.protocol.messages.headers import RequestHeader
from oncelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.schema import Message
from rich.console import Console
from rich.table import Table


def produce(size: int) -> ProduceRequest:
    """Return a Produce request for one partition with `size` bytes of records."""
    return ProduceRequest(
        None, -1, 30_000, [TopicProduceData("bench", partition_data=[PartitionProduceData(3, bytes(size))])]
    )


def fetch(size: int) -> FetchResponse:
    """Return a Fetch response for one partition with `size` bytes of records."""
    return FetchResponse(responses=[FetchableTopicResponse("bench", partitions=[PartitionData(records=bytes(size))])])


METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(1, "127.0.0.1", 9092)],
    cluster_id="5L6g3nShT-eMCtK--X86sw",
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            0,
            "bench",
            bytes(range(16)),
            partitions=[MetadataResponsePartition(0, index, 1, 0, [1], [1], []) for index in range(50)],
        )
    ],
)
CASES: list[tuple[str, Message, int]] = [
    ("request header v2", RequestHeader(0, 9, 77, "rdkafka"), 2),
    (
        "AddPartitionsToTxn v3",
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="job-0",
            v3_and_below_producer_id=4001,
            v3_and_below_topics=[AddPartitionsToTxnTopic("bench", [0, 1, 2, 3])],
        ),
        3,
    ),
    (
        "OffsetCommit v8",
        OffsetCommitRequest(
            "group",
            5,
            "member-1",
            None,
            -1,
            [OffsetCommitRequestTopic("bench", b"\0" * 16, [OffsetCommitRequestPartition(0, 123, 0, "x")])],
        ),
        8,
    ),
    ("Produce v9, 16 KB", produce(1 << 14), 9),
    ("Produce v9, 1 MB", produce(1 << 20), 9),
    ("Fetch response v12, 1 MB", fetch(1 << 20), 12),
    ("Metadata response v12, 50 partitions", METADATA, 12),
]


def microseconds(function: Callable[[], Any], seconds: float) -> float:
    """Return the time of one call in µs: the best of five runs of about `seconds` each."""
    timer = timeit.Timer(function)
    once = max(timer.timeit(1), 1e-7)
    number = max(1, int(seconds / once))
    return min(timer.repeat(5, number)) / number * 1e6


def main() -> None:
    """Measure all messages and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="duration of each of the five runs in seconds (default: 0.1)"
    )
    seconds = parser.parse_args().seconds
    decoding = Table("message", "construct", "its compile()", "oncelog", title="decode, µs")
    encoding = Table("message", "construct", "oncelog", "oncelog, pieces", title="encode, µs")
    for table in (decoding, encoding):
        for column in table.columns[1:]:
            column.justify = "right"
    for title, message, version in CASES:
        cls = type(message)
        format = format_of(cls, version)
        compiled = format.compile()
        raw = codec.encode(message, version)
        assert format.parse(raw) == compiled.parse(raw) == codec.decode(cls, raw, version) == message
        decoders: list[Callable[[], Any]] = [
            partial(format.parse, raw),
            partial(compiled.parse, raw),
            partial(codec.decode_from, cls, raw, version),
        ]
        encoders: list[Callable[[], Any]] = [
            partial(format.build, message),
            partial(codec.encode, message, version),
            partial(codec.encode_pieces, message, version),
        ]
        decoding.add_row(title, *(f"{microseconds(function, seconds):.2f}" for function in decoders))
        encoding.add_row(title, *(f"{microseconds(function, seconds):.2f}" for function in encoders))
    frame = b"".join(encode_request(produce(0), 9, 77, "rdkafka"))[4:]
    decoding.add_row(
        "framing.decode_request_header", "", "", f"{microseconds(lambda: decode_request_header(frame), seconds):.2f}"
    )
    console = Console()
    console.print(decoding)
    console.print(encoding)


if __name__ == "__main__":
    main()
