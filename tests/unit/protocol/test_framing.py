"""Headers and sizes around messages."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.protocol import framing
from oncelog.protocol.codec import decode
from oncelog.protocol.errors import DecodeError, EncodeError, MalformedTag
from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.headers import RequestHeader
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def frame_of(pieces: list[Any]) -> bytes:
    """Join what goes to the socket and take the size off, which must be right."""
    raw = b"".join(pieces)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    return raw[4:]


@pytest.mark.parametrize(("version", "header_version"), [(0, 1), (2, 1), (3, 2), (5, 2)])
def test_a_request_survives_its_frame(version: int, header_version: int) -> None:
    request = EndTxnRequest("id", 7, 1, True)
    frame = frame_of(framing.encode_request(request, version, 5, "me"))
    header, position = framing.decode_request_header(frame)
    assert header == RequestHeader(26, version, 5, "me")
    assert decode(EndTxnRequest, frame, version, position) == request
    assert framing.request_header_version(26, version) == header_version


def test_the_client_id_has_a_plain_length_even_in_a_flexible_header_and_may_be_null() -> None:
    frame = frame_of(framing.encode_request(EndTxnRequest("id", 7, 1, True), 3, 5, "me"))
    assert frame[:13] == b"\x00\x1a\x00\x03\x00\x00\x00\x05\x00\x02me\x00"
    frame = frame_of(framing.encode_request(EndTxnRequest("id", 7, 1, True), 2, 5, None))
    assert frame[:10] == b"\x00\x1a\x00\x02\x00\x00\x00\x05\xff\xff"
    assert framing.decode_request_header(frame) == (RequestHeader(26, 2, 5, None), 10)


def test_the_extension_version_travels_in_flexible_headers_only() -> None:
    request = EndTxnRequest("id", 7, 1, True)
    flexible = frame_of(framing.encode_request(request, 3, 5, "me", extension_version=1))
    assert flexible[12:18] == b"\x01\xa8\x46\x02\x00\x01"
    assert framing.decode_request_header(flexible)[0].extension_version == 1
    plain = frame_of(framing.encode_request(request, 2, 5, "me", extension_version=1))
    assert framing.decode_request_header(plain)[0].extension_version == -1


def test_a_malformed_extension_version_is_told_apart() -> None:
    flexible = frame_of(framing.encode_request(EndTxnRequest("id", 7, 1, True), 3, 5, "me", extension_version=1))
    with pytest.raises(MalformedTag) as caught:
        framing.decode_request_header(flexible[:15] + b"\x01\x01" + flexible[18:])
    assert caught.value.tag == 9000


@pytest.mark.parametrize(("version", "header_version"), [(0, 0), (2, 0), (3, 1), (5, 1)])
def test_a_response_survives_its_frame(version: int, header_version: int) -> None:
    response = EndTxnResponse(0, 90)
    frame = frame_of(framing.encode_response(response, version, 2**31 - 1))
    assert framing.decode_response(EndTxnResponse, version, frame) == (2**31 - 1, response)
    assert framing.response_header_version(EndTxnResponse, version) == header_version


@pytest.mark.parametrize("version", range(5))
def test_api_versions_responses_always_have_header_v0(version: int) -> None:
    response = ApiVersionsResponse(0, [ApiVersion(18, 0, 4)])
    frame = frame_of(framing.encode_response(response, version, 9))
    assert frame[:6] == b"\x00\x00\x00\x09\x00\x00"
    assert framing.decode_response(ApiVersionsResponse, version, frame) == (9, response)


def test_api_versions_requests_of_unknown_newer_versions_have_a_flexible_header() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x05\x00\x02me\x00" + b"\x01\x01\x00"
    assert framing.decode_request_header(frame) == (RequestHeader(18, 99, 5, "me"), 13)


@pytest.mark.parametrize("api_key", [-1, 7, 99, 9000, 32767])
def test_of_an_unknown_api_the_header_v1_fields_are_read(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x00\x00\x05\x00\x02me\x00 and more"
    assert framing.decode_request_header(frame) == (RequestHeader(api_key, 0, 5, "me"), 12)


@pytest.mark.parametrize("size", range(13))
def test_a_header_that_is_cut_short_is_refused(size: int) -> None:
    frame = frame_of(framing.encode_request(EndTxnRequest("id", 7, 1, True), 3, 5, "me"))
    with pytest.raises(DecodeError):
        framing.decode_request_header(frame[:size])


def test_a_response_with_bytes_left_over_is_refused() -> None:
    frame = frame_of(framing.encode_response(ApiVersionsResponse(), 0, 9))
    with pytest.raises(DecodeError):
        framing.decode_response(ApiVersionsResponse, 0, frame + b"\x00")


@pytest.mark.parametrize("version", [9, 13])
def test_large_records_leave_uncopied(version: int) -> None:
    records = bytes(1 << 20)
    topic = TopicProduceData("t" if version < 13 else "", partition_data=[PartitionProduceData(0, records)])
    pieces = framing.encode_request(ProduceRequest(topic_data=[topic]), version, 1, "me")
    assert [piece is records for piece in pieces] == [False, True, False]
    frame_of(pieces)


def test_a_large_response_is_not_copied_for_its_header() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(0, f"topic-{number}") for number in range(5000)])
    pieces = framing.encode_response(response, 12, 1)
    assert len(pieces) == 2
    assert framing.decode_response(MetadataResponse, 12, frame_of(pieces)) == (1, response)


@pytest.mark.parametrize("correlation_id", [2**31, "1", None])
def test_what_does_not_fit_a_request_header_is_refused(correlation_id: object) -> None:
    with pytest.raises(EncodeError):
        framing.encode_request(ApiVersionsRequest(), 0, correlation_id, "me")  # type: ignore[arg-type]
