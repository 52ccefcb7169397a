"""What the broker does with requests that it does not serve, or that make no sense."""

from __future__ import annotations

import struct

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.metadata import MetadataRequest
from support.raw_connection import RawConnection

E = ErrorCode


def header(api_key: int, version: int, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_what_is_served(bootstrap: str, version: int) -> None:
    async with RawConnection(bootstrap) as wire:
        response = await wire.call(ApiVersionsRequest("test-client", "1.0"), version)
        served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert response.error_code == 0
        assert served[18][0] == 0
        assert served[0][0] <= 3 <= served[0][1]
        for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 24, 25, 26, 28):
            assert key in served
        # Older clients fail on a feature whose minimum is 0.
        names = {feature.name for feature in response.supported_features}
        assert ("transaction.version" in names) == (version >= 4), (
            "left out where older clients can't read a minimum of 0"
        )
        if version >= 3:
            finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
            assert finalized["transaction.version"] == 2


@pytest.mark.parametrize("version", [9, 500])
async def test_an_unknown_api_versions_version_is_told_which_are_known(bootstrap: str, version: int) -> None:
    async with RawConnection(bootstrap) as wire:
        wire.send_bytes(framed(header(18, version) + b"\0\0\0\0"))
        correlation_id, response = decode_response(ApiVersionsResponse, 0, await wire.receive_bytes())
        assert (correlation_id, response.error_code) == (7, E.UNSUPPORTED_VERSION)
        assert [api.api_key for api in response.api_keys] == [18]
        assert (await wire.call(ApiVersionsRequest("test-client", "1.0"), 3)).error_code == 0


async def test_a_client_name_that_is_none_is_an_invalid_request(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        assert (await wire.call(ApiVersionsRequest("-?-", "1.0"), 3)).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    "payload",
    [
        header(999, 0),
        header(3, 99),
        header(0, 1),
        b"",
        b"\0\3",
        header(3, 12)[:-2],
        header(3, 1) + b"\x7f\xff\xff\xff",
        header(19, 2) + b"\xff" * 40,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "unknown API",
        "unknown version",
        "version of old",
        "empty",
        "cut",
        "cut header",
        "huge count",
        "rubbish",
        "http",
    ],
)
async def test_what_cannot_be_answered_closes_the_connection(bootstrap: str, payload: bytes) -> None:
    async with RawConnection(bootstrap) as wire:
        wire.send_bytes(framed(payload))
        assert await wire.closed()
    async with RawConnection(bootstrap) as wire:
        assert (await wire.call(MetadataRequest([]), 12)).brokers


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
async def test_a_frame_of_impossible_size_closes_the_connection(bootstrap: str, size: int) -> None:
    async with RawConnection(bootstrap) as wire:
        wire.send_bytes(struct.pack(">i", size) + b"x")
        assert await wire.closed()


async def test_pipelined_requests_are_answered_in_their_order(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        sent = [wire.send(MetadataRequest([]), 12) for _ in range(100)]
        got = [(await wire.receive(MetadataRequest, 12))[0] for _ in range(100)]
        assert got == sent
