"""The transaction extension is there at level 4.1 and not at 4.0: what is advertised, understood and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog import Broker
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from support.raw_connection import RawConnection

FEATURE = "group.aware.transaction"


@pytest.fixture(params=["4.0", "4.1"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def connection(level: Any) -> AsyncIterator[RawConnection]:
    async with Broker(inter_broker_protocol_version=level) as broker, RawConnection(broker.address) as connection:
        yield connection


async def features(connection: RawConnection, version: int) -> tuple[set[str], set[str]]:
    answer = await connection.call(ApiVersionsRequest("test", "1"), version)
    supported = {(key.name, key.min_version, key.max_version) for key in answer.supported_features}
    finalized = {(key.name, key.min_version_level, key.max_version_level) for key in answer.finalized_features}
    return {str(item) for item in supported}, {str(item) for item in finalized}


@pytest.mark.parametrize("version", [3, 4])
async def test_the_feature_is_advertised_at_its_level(connection: RawConnection, level: str, version: int) -> None:
    supported, finalized = await features(connection, version)
    wanted = str((FEATURE, 1, 1))
    assert (wanted in supported, wanted in finalized) == ((True, True) if level == "4.1" else (False, False))
    assert (str(("transaction.version", 0, 2)) in supported) == (version >= 4), "Java 2.8 fails on a minimum of 0"


@pytest.mark.parametrize("version", range(1, 7))
async def test_key_type_64_finds_the_home_of_a_group(connection: RawConnection, level: str, version: int) -> None:
    request = FindCoordinatorRequest(key="g" if version < 4 else "", key_type=64)
    if version >= 4:
        request.coordinator_keys = ["g", "h"]
    answer: Any = await connection.call(request, version)
    found = answer.coordinators if version >= 4 else [answer]
    expected = 0 if level == "4.1" else ErrorCode.INVALID_REQUEST
    assert [item.error_code for item in found] == [expected] * len(found)


def tagged_requests() -> list[Any]:
    """Each request of the extension, with one of its fields set, and in which version."""
    topics = [AddPartitionsToTxnTopic("t", [0])]
    transaction = AddPartitionsToTxnTransaction("x", 1, 0, False, topics, session=True)
    return [
        pytest.param(InitProducerIdRequest("x", 60_000, consumer_group_id="g"), 2, id="group"),
        pytest.param(InitProducerIdRequest("x", 60_000, consumer_group_generation=3), 5, id="generation"),
        pytest.param(
            InitProducerIdRequest("x", 60_000, assigned_partitions=[AssignedPartitions("t", [0])]), 4, id="partitions"
        ),
        pytest.param(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=topics,
                session=True,
            ),
            3,
            id="session",
        ),
        pytest.param(AddPartitionsToTxnRequest(transactions=[transaction]), 4, id="session of one of several"),
        pytest.param(EndTxnRequest("x", 1, 0, True, topics=[EndTxnTopic("t", [0])]), 3, id="written"),
    ]


def codes_of(answer: Any) -> set[int]:
    """Every code in an answer, whatever its form."""
    found = set()
    for spec in answer.fields:
        value = getattr(answer, spec.name)
        if spec.name in ("error_code", "partition_error_code"):
            found.add(value)
        elif spec.struct is not None:
            for item in value or ():
                found |= codes_of(item)
    return found - {0} or {0}


@pytest.mark.parametrize(("request_", "version"), tagged_requests())
@pytest.mark.parametrize("level", ["4.0"], indirect=True)
async def test_below_its_level_a_field_of_the_extension_is_unsupported(
    connection: RawConnection, request_: Any, version: int
) -> None:
    answer = await connection.call(request_, version)
    assert codes_of(answer) == {ErrorCode.UNSUPPORTED_VERSION}
    described = await connection.call(DescribeTransactionsRequest(["x"]), 0)
    assert described.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "nothing has changed"


@pytest.mark.parametrize("level", ["4.0"], indirect=True)
async def test_below_its_level_the_header_tag_is_ignored(connection: RawConnection) -> None:
    answer = await connection.call(InitProducerIdRequest("x", 60_000), 4, extension_version=1)
    assert answer.error_code == 0


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01\x00"])
async def test_a_malformed_header_tag_fails_its_request_only(
    connection: RawConnection, level: str, value: bytes
) -> None:
    frame = bytearray(b"".join(encode_request(HeartbeatRequest("g", 1, "m"), 4, 77, "raw", extension_version=1)))
    at = frame.index(b"\xa8\x46\x02\x00\x01")
    frame[at + 2 : at + 5] = bytes([len(value)]) + value
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    connection.send_bytes(bytes(frame))
    correlation_id, answer = await connection.receive(HeartbeatRequest, 4)
    expected = ErrorCode.INVALID_REQUEST if level == "4.1" else ErrorCode.UNKNOWN_MEMBER_ID
    assert (correlation_id, answer.error_code) == (77, expected)


async def test_a_malformed_field_of_the_extension_is_answered_and_the_connection_lives(
    connection: RawConnection, level: str
) -> None:
    request = EndTxnRequest("x", 1, 0, True, unknown_tags=((9000, b"\x02\x02t"),))  # type: ignore[call-arg]
    answer = await connection.call(request, 3)
    malformed = ErrorCode.INVALID_REQUEST if level == "4.1" else ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_code == malformed
    assert (await connection.call(HeartbeatRequest("g", 1, "m"), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_tags_that_no_definition_knows_are_ignored(connection: RawConnection) -> None:
    request = HeartbeatRequest("g", 1, "m", unknown_tags=((9000, b"?"), (12345, b"")))  # type: ignore[call-arg]
    assert (await connection.call(request, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
