"""What the codec accepts and refuses, on hand-written bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from oncelog.protocol import codec, compiler_runtime
from oncelog.protocol.codec import UnknownRecord
from oncelog.protocol.compiler import compile_decoder
from oncelog.protocol.compiler_runtime import DECODE_ENVIRONMENT, MAX_TAGS
from oncelog.protocol.errors import AnswerTooLarge, DecodeError, EncodeError, MalformedTag, UnsupportedVersion
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from oncelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse, EntryData, ValueData
from oncelog.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnTopic
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.protocol.messages.group_log import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.schema import Message

T = TypeVar("T")
END_TXN_V3 = b"\x03id" + (7).to_bytes(8, "big") + b"\x00\x01" + b"\x01"


def test_a_flexible_request_is_laid_out_as_kip_482_says() -> None:
    request = EndTxnRequest("id", 7, 1, True)
    assert codec.encode(request, 3) == END_TXN_V3 + b"\x00"
    assert codec.encode(request, 2) == b"\x00\x02id" + END_TXN_V3[3:]
    assert codec.decode(EndTxnRequest, END_TXN_V3 + b"\x00", 3) == request


def test_known_tags_are_written_only_when_not_default_and_merged_with_unknown_ones_in_tag_order() -> None:
    topics = [EndTxnTopic("t", [1])]
    request = EndTxnRequest("id", 7, 1, True, topics=topics, unknown_tags=((3, b"abc"), (9001, b"")))  # type: ignore[call-arg]
    tag_9000 = b"\xa8\x46" + b"\x09" + b"\x02\x02t\x02\x00\x00\x00\x01\x00"
    raw = END_TXN_V3 + b"\x03" + b"\x03\x03abc" + tag_9000 + b"\xa9\x46\x00"
    assert codec.encode(request, 3) == raw
    assert codec.decode(EndTxnRequest, raw, 3) == request


@pytest.mark.parametrize(
    "section",
    [
        b"\x02\x05\x00\x05\x00",
        b"\x02\x06\x00\x05\x00",
        b"\x01\xff\xff\xff\xff\x0f\x00",
        b"\x01\x05\x04abc",
        b"\x01",
        b"\x02\x05\x00",
        b"",
        b"\x00\x00",
        b"\x80\x80\x80\x80\x80\x01",
        b"\xff\xff\xff\xff\x10",
    ],
    ids=[
        "twice",
        "out of order",
        "too large",
        "past end",
        "count",
        "count 2",
        "none",
        "trailing",
        "long",
        "over 32 bits",
    ],
)
@pytest.mark.parametrize("cls", [EndTxnRequest, MetadataRequest])
def test_a_malformed_tag_section_is_refused(cls: type, section: bytes) -> None:
    body, version = (END_TXN_V3, 3) if cls is EndTxnRequest else (b"\x00\x00\x00", 12)
    with pytest.raises(DecodeError):
        codec.decode(cls, body + section, version)
    if section != b"\x00\x00":
        with pytest.raises(DecodeError):
            codec.decode_from(cls, body + section, version)


def test_a_tag_given_twice_is_not_written() -> None:
    with pytest.raises(EncodeError, match="tag 9000 is repeated"):
        codec.encode(EndTxnRequest("id", 7, 1, True, topics=[], unknown_tags=((9000, b""),)), 3)  # type: ignore[call-arg]


def test_tags_cannot_be_written_in_a_version_without_them() -> None:
    with pytest.raises(EncodeError, match="unknown_tags"):
        codec.encode(EndTxnRequest("id", 7, 1, True, unknown_tags=((1, b""),)), 2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "value", [b"\x02\x02t\xff\xff\xff\xff\x0f", b"\x02", b"", b"\x02\x02\xff\x01\x00", b"\x01\x01"]
)
def test_a_malformed_extension_tag_is_told_apart_and_leaves_the_rest_readable(value: bytes) -> None:
    raw = END_TXN_V3 + b"\x01\xa8\x46" + bytes([len(value)]) + value
    with pytest.raises(MalformedTag) as caught:
        codec.decode(EndTxnRequest, raw, 3)
    assert caught.value.tag == 9000
    assert caught.value.partial == EndTxnRequest("id", 7, 1, True, unknown_tags=((9000, value),))  # type: ignore[call-arg]


def test_a_malformed_extension_tag_behind_which_the_frame_is_broken_is_an_ordinary_decode_error() -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode(EndTxnRequest, END_TXN_V3 + b"\x02\xa8\x46\x01\x02\x05\x00", 3)
    assert not isinstance(caught.value, MalformedTag)


def test_a_malformed_extension_tag_inside_a_nested_struct_is_told_apart() -> None:
    transaction = AddPartitionsToTxnTransaction("t", 1, 0, False, [AddPartitionsToTxnTopic("a", [0])])
    raw = codec.encode(AddPartitionsToTxnRequest(transactions=[transaction]), 4)
    assert raw.endswith(b"\x00\x00")
    with pytest.raises(MalformedTag) as caught:
        codec.decode(AddPartitionsToTxnRequest, raw[:-2] + b"\x01\xa8\x46\x02\x01\x01" + b"\x00", 4)
    transaction.unknown_tags = ((9000, b"\x01\x01"),)
    assert caught.value.partial == AddPartitionsToTxnRequest(transactions=[transaction])


def test_init_producer_id_carries_the_group_in_its_tags() -> None:
    request = InitProducerIdRequest("id", 60_000, 5, 2)
    plain = codec.encode(request, 3)
    request.consumer_group_id = "g"
    request.consumer_group_generation = 3
    request.assigned_partitions = [AssignedPartitions("t", [0, 1])]
    tagged = codec.encode(request, 3)
    assert tagged[: len(plain) - 1] == plain[:-1]
    assert codec.decode(InitProducerIdRequest, tagged, 3) == request


def test_a_value_that_a_version_cannot_carry_is_refused_unless_it_is_ignorable() -> None:
    with pytest.raises(EncodeError, match=r"ongoing|keep_prepared_txn|enable2_pc"):
        codec.encode(InitProducerIdRequest("id", 1, enable2_pc=True), 5)
    subscription = ConsumerProtocolSubscription(["t"], generation_id=4)
    assert codec.encode(subscription, 0) == codec.encode(ConsumerProtocolSubscription(["t"]), 0)


def test_fields_of_other_versions_read_as_their_defaults_and_are_not_shared() -> None:
    raw = codec.encode(ConsumerProtocolSubscription(["t"]), 0)
    first, second = (codec.decode(ConsumerProtocolSubscription, raw, 0) for _ in range(2))
    first.owned_partitions.append("x")  # type: ignore[arg-type]
    assert second.owned_partitions == []


@pytest.mark.parametrize("version", [-1, 6, 32767])
def test_a_version_outside_the_definition_is_refused_both_ways(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        codec.encode(EndTxnRequest("id", 7, 1, True), version)
    with pytest.raises(UnsupportedVersion):
        codec.decode(EndTxnRequest, b"", version)
    assert issubclass(UnsupportedVersion, EncodeError)
    assert issubclass(UnsupportedVersion, DecodeError)
    assert issubclass(DecodeError, ValueError)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x02id",
        b"\xff\xff" + END_TXN_V3[3:],
        b"\xff\xfe" + END_TXN_V3[3:],
        b"\x00\x02\xff\xfe" + END_TXN_V3[3:],
        b"\x00\x02id" + END_TXN_V3[3:] + b"\x00",
        b"\x7f\xff" + END_TXN_V3[3:],
    ],
    ids=["cut short", "null", "negative length", "not utf-8", "trailing byte", "length past end"],
)
def test_malformed_plain_fields_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError, match="EndTxnRequest"):
        codec.decode(EndTxnRequest, raw, 2)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00", b"\x00\x00\x00\x02"])
def test_a_count_that_the_frame_cannot_hold_is_refused_before_anything_is_made(count: bytes) -> None:
    with pytest.raises(DecodeError, match="more elements than bytes left"):
        codec.decode(MetadataRequest, count + b"\x00\x00" + b"\x00", 4)


def test_one_message_has_a_bounded_number_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(topics: int, partitions: int, tags: int) -> bytes:
        unknown = tuple((tag, b"") for tag in range(tags))
        added = [AddPartitionsToTxnTopic("t", [7] * partitions, unknown_tags=unknown) for _ in range(topics)]  # type: ignore[call-arg]
        return codec.encode(AddPartitionsToTxnRequest(v3_and_below_topics=added), 3)

    monkeypatch.setitem(DECODE_ENVIRONMENT, "MAX_ELEMENTS", 12)
    decode = compile_decoder(AddPartitionsToTxnRequest, 3)
    for topics, partitions, tags in ((12, 0, 0), (1, 11, 0), (3, 1, 2)):
        assert decode(request(topics, partitions, tags), 0)[0].v3_and_below_topics[-1].partitions == [7] * partitions
    for topics, partitions, tags in ((13, 0, 0), (1, 12, 0), (1, 0, 12), (4, 0, 3)):
        with pytest.raises(DecodeError, match="too many elements"):
            decode(request(topics, partitions, tags), 0)


def test_a_frame_of_tiny_elements_is_refused_before_they_are_made() -> None:
    topics = (1 << 20) + 1
    with pytest.raises(DecodeError, match="too many elements"):
        codec.decode(MetadataRequest, topics.to_bytes(4, "big") + bytes(2 * topics) + b"\x00", 4)
    tags = b"\x81\x80\xc0\x00" + bytes(2 * topics)
    with pytest.raises(DecodeError, match="too many elements"):
        codec.decode(EndTxnRequest, END_TXN_V3 + tags, 3)
    with pytest.raises(DecodeError, match="too many elements"):
        codec.decode(MetadataRequest, b"\x00\x00\x00" + tags, 12)


def test_a_frame_of_numbers_is_refused_before_they_are_made() -> None:
    count = 5_000_000
    raw = codec.encode(AddPartitionsToTxnRequest(v3_and_below_topics=[AddPartitionsToTxnTopic("t", [])]), 2)
    raw = raw[:-4] + count.to_bytes(4, "big") + bytes(4 * count)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="too many elements"):
            codec.decode(AddPartitionsToTxnRequest, raw, 2, 0, 200_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_coding_in_steps_gives_the_same_as_at_once_and_pauses() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_topics=[AddPartitionsToTxnTopic(f"t{number}", [number, 7]) for number in range(2600)]
    )
    encoding = codec.encode_in_steps(request, 3, 1 << 20)
    pieces, pauses = finished(encoding)
    assert b"".join(pieces) == codec.encode(request, 3)
    assert pauses == len(pieces) - 1 == 5
    decoding = codec.decode_in_steps(AddPartitionsToTxnRequest, b"".join(pieces), 3, 0, 10_000)
    (read, end), pauses = finished(decoding)
    assert read == request
    assert (end, pauses) == (sum(map(len, pieces)), 5)


def test_coding_a_small_message_in_steps_never_pauses() -> None:
    pieces, pauses = finished(codec.encode_in_steps(EndTxnRequest("id"), 3, 1 << 20))
    assert (pieces, pauses) == ([codec.encode(EndTxnRequest("id"), 3)], 0)
    assert finished(codec.decode_in_steps(EndTxnRequest, pieces[0], 3, 0, 10))[0][0] == EndTxnRequest("id")


def test_encoding_in_steps_stops_where_the_message_gets_too_large() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_topics=[AddPartitionsToTxnTopic("t" * 100, [1]) for _ in range(2600)]
    )
    whole = len(codec.encode(request, 3))
    assert finished(codec.encode_in_steps(request, 3, whole))[1], "it pauses"
    for room in (10, whole // 2, whole - 1):
        with pytest.raises(AnswerTooLarge):
            finished(codec.encode_in_steps(request, 3, room))


def test_tagged_fields_count_in_the_steps_of_decoding() -> None:
    tags = tuple((tag, b"") for tag in range(400))
    topics = [AddPartitionsToTxnTopic("t", [], unknown_tags=tags) for _ in range(50)]  # type: ignore[call-arg]
    raw = codec.encode(AddPartitionsToTxnRequest(v3_and_below_topics=topics), 3)
    (decoded, _), pauses = finished(codec.decode_in_steps(AddPartitionsToTxnRequest, raw, 3, 0, 100_000))
    assert decoded.v3_and_below_topics == topics
    assert pauses == 25


@pytest.mark.parametrize("message", [EndTxnRequest("id"), MetadataRequest([])], ids=["known tags", "no known tags"])
def test_one_section_has_a_bounded_number_of_tagged_fields(message: EndTxnRequest | MetadataRequest) -> None:
    version = 3 if isinstance(message, EndTxnRequest) else 12
    message.unknown_tags = tuple((tag, b"") for tag in range(MAX_TAGS))
    raw = codec.encode(message, version)
    assert codec.decode(type(message), raw, version) == message
    assert finished(codec.decode_in_steps(type(message), raw, version, 0, 10_000))[0][0] == message
    message.unknown_tags += ((MAX_TAGS, b""),)
    raw = codec.encode(message, version)
    with pytest.raises(DecodeError, match="too many tagged fields"):
        codec.decode(type(message), raw, version)
    with pytest.raises(DecodeError, match="too many tagged fields"):
        finished(codec.decode_in_steps(type(message), raw, version, 0, 10_000))


def test_a_message_decoded_in_steps_has_a_bounded_number_of_elements() -> None:
    raw = codec.encode(AddPartitionsToTxnRequest(v3_and_below_topics=[AddPartitionsToTxnTopic("t", [7] * 100)]), 3)
    with pytest.raises(DecodeError, match="too many elements"):
        finished(codec.decode_in_steps(AddPartitionsToTxnRequest, raw, 3, 0, 100))
    (decoded, _), _ = finished(codec.decode_in_steps(AddPartitionsToTxnRequest, raw, 3, 0, 101))
    assert decoded.v3_and_below_topics[0].partitions == [7] * 100


def finished(steps: Generator[int, None, T]) -> tuple[T, int]:
    """What the steps return, and how often they paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def test_a_null_array_is_kept_apart_from_an_empty_one() -> None:
    assert codec.decode(MetadataRequest, b"\xff\xff\xff\xff\x00", 4).topics is None
    assert codec.decode(MetadataRequest, b"\x00\x00\x00\x00\x00", 4).topics == []


def test_a_compact_string_over_the_limit_is_refused_both_ways() -> None:
    limit = "x" * 32767
    assert codec.decode(EndTxnRequest, codec.encode(EndTxnRequest(limit), 3), 3).transactional_id == limit
    for version in (2, 3):
        with pytest.raises(EncodeError):
            codec.encode(EndTxnRequest(limit + "x"), version)
    with pytest.raises(DecodeError, match="too long"):
        codec.decode(EndTxnRequest, b"\x81\x80\x02" + b"x" * 32768 + END_TXN_V3[3:] + b"\x00", 3)


def test_a_nullable_struct_is_led_by_minus_one_or_one() -> None:
    null = ConsumerGroupHeartbeatResponse(member_epoch=1)
    assert codec.encode(null, 0)[-2:] == b"\xff\x00"
    full = ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=Assignment([]))
    raw = codec.encode(full, 0)
    assert raw[-4:] == b"\x01\x01\x00\x00"
    assert codec.decode(ConsumerGroupHeartbeatResponse, raw, 0) == full
    with pytest.raises(DecodeError, match="neither null nor a struct"):
        codec.decode(ConsumerGroupHeartbeatResponse, raw[:-4] + b"\x02" + raw[-3:], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"transactional_id": None},
        {"transactional_id": b"id"},
        {"transactional_id": 5},
        {"transactional_id": "\ud800"},
        {"producer_id": 2**63},
        {"producer_id": "7"},
        {"producer_id": None},
        {"producer_epoch": -(2**15) - 1},
        {"producer_epoch": 1.5},
        {"committed": 1},
        {"committed": None},
        {"topics": "ab"},
        {"topics": [None]},
        {"topics": [EndTxnTopic("t", b"12")]},  # type: ignore[arg-type]
        {"topics": [EndTxnTopic("t", [2**31])]},
        {"topics": {}},
        {"unknown_tags": ((-1, b""),)},
        {"unknown_tags": ((2**31, b""),)},
        {"unknown_tags": ((1, "text"),)},
        {"unknown_tags": ((1, None),)},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_or_range_is_refused(change: dict[str, Any]) -> None:
    request = EndTxnRequest(**{"transactional_id": "id", "producer_id": 7, "producer_epoch": 1, **change})
    with pytest.raises(EncodeError, match="EndTxnRequest"):
        codec.encode(request, 3)


@pytest.mark.parametrize("version", [4, 5])
def test_a_string_that_is_too_long_is_refused_without_the_slow_reference(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions 4 and 5 have strings of the two kinds."""

    def built(*arguments: object) -> None:
        raise AssertionError("the message was built by the reference")

    monkeypatch.setattr(compiler_runtime, "format_of", built)
    members = [DescribedGroupMember(member_id="m" * 32_768)]
    response = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=members)])
    with pytest.raises(EncodeError, match=r"groups\.members\.member_id: string too long"):
        codec.encode(response, version)


@pytest.mark.parametrize("topic_id", [b"", b"1" * 15, b"1" * 17, "1" * 16, None])
def test_a_uuid_has_sixteen_bytes(topic_id: object) -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(topic_id=topic_id)])  # type: ignore[arg-type]
    with pytest.raises(EncodeError):
        codec.encode(request, 13)


def test_floats_are_doubles() -> None:
    response = DescribeClientQuotasResponse(entries=[EntryData([], [ValueData("rate", 1.25)])])
    assert codec.decode(DescribeClientQuotasResponse, codec.encode(response, 1), 1) == response


@pytest.mark.parametrize("size", [0, 1, 126, 127, 2047, 2048, 1 << 20])
@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_never_copied(size: int, version: int) -> None:
    records = bytearray(size)
    topic = TopicProduceData("t" if version < 13 else "", partition_data=[PartitionProduceData(3, records)])
    pieces = codec.encode_pieces(ProduceRequest(None, -1, 1000, [topic]), version)
    assert any(piece is records for piece in pieces) == (size >= 2048)
    frame = bytearray(b"".join(pieces))
    view = codec.decode(ProduceRequest, frame, version).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame
    assert len(view) == size


def test_pieces_of_several_records_keep_their_order() -> None:
    partitions = [
        PartitionData(index, records=bytes([index]) * size) for index, size in enumerate((4000, 5, 3000, 2999))
    ]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
    pieces = codec.encode_pieces(response, 12)
    assert len(pieces) == 7
    assert b"".join(pieces) == codec.encode(response, 12)


@pytest.mark.parametrize("records", ["text", 5, [1], memoryview(b"1234").cast("H")])
def test_records_are_bytes(records: Any) -> None:
    with pytest.raises(EncodeError):
        codec.encode_pieces(
            ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, records)])]), 9
        )


def test_bytes_fields_are_copies() -> None:
    raw = bytearray(codec.encode(ConsumerProtocolSubscription([], b"abc"), 0))
    subscription = codec.decode(ConsumerProtocolSubscription, raw, 0)
    raw[:] = bytes(len(raw))
    assert subscription.user_data == b"abc"


def test_an_empty_message_is_one_empty_piece() -> None:
    assert codec.encode_pieces(ApiVersionsRequest(), 0) == [b""]
    assert codec.decode(ApiVersionsRequest, b"", 0) == ApiVersionsRequest()


def test_a_position_in_a_larger_buffer_is_respected() -> None:
    raw = codec.encode(ApiVersionsResponse(35), 3)
    assert codec.decode_from(ApiVersionsResponse, b"12345" + raw + b"6", 3, 5) == (
        ApiVersionsResponse(35),
        5 + len(raw),
    )
    with pytest.raises(DecodeError, match="1 bytes follow"):
        codec.decode(ApiVersionsResponse, b"12345" + raw + b"6", 3, 5)


def test_record_keys_are_led_by_their_id_and_unknown_ones_are_kept() -> None:
    classes: list[type[Message]] = [OffsetCommitKey, GroupMetadataKey]
    key = OffsetCommitKey("g", "t", 3)
    raw = codec.encode_record_key(key)
    assert raw == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert codec.decode_record_key(raw, classes) == key
    assert codec.decode_record_key(b"\x23\x28whatever", classes) == UnknownRecord(9000, b"\x23\x28whatever")
    for malformed in (b"", b"\x00", raw[:-1], raw + b"\x00"):
        with pytest.raises(DecodeError):
            codec.decode_record_key(malformed, classes)
    with pytest.raises(EncodeError, match="not a record key"):
        codec.encode_record_key(OffsetCommitValue())


def test_record_values_are_led_by_their_version_and_newer_ones_are_refused_by_type() -> None:
    value = OffsetCommitValue(5, metadata="m", commit_timestamp=9)
    raw = codec.encode_record_value(value, 3)
    assert raw[:2] == b"\x00\x03"
    assert codec.decode_record_value(OffsetCommitValue, raw) == value
    with pytest.raises(UnsupportedVersion):
        codec.decode_record_value(OffsetCommitValue, b"\x00\x05" + raw[2:])


def test_the_transaction_log_keeps_kafkas_bytes() -> None:
    assert codec.encode_record_key(TransactionLogKey("id")) == b"\x00\x00\x00\x02id"
    value = TransactionLogValue(1, producer_epoch=2, transaction_timeout_ms=3, transaction_status=4)
    v0 = codec.encode_record_value(value, 0)
    assert v0 == b"\x00\x00" + bytes(7) + b"\x01\x00\x02\x00\x00\x00\x03\x04" + b"\x00\x00\x00\x00" + bytes(16)
    value.next_producer_id = 8
    with pytest.raises(EncodeError, match="next_producer_id"):
        codec.encode_record_value(value, 0)
    assert codec.encode_record_value(value, 1)[-11:] == b"\x01\x01\x08" + (8).to_bytes(8, "big")


def test_versioned_data_of_a_newer_version_is_read_as_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(["t"], None, [], 7, "rack")
    raw = codec.encode_versioned(subscription, 3)
    assert raw[:2] == b"\x00\x03"
    assert codec.decode_versioned(ConsumerProtocolSubscription, raw) == subscription
    assert codec.decode_versioned(ConsumerProtocolSubscription, b"\x00\x09" + raw[2:] + b"more") == subscription
    with pytest.raises(DecodeError):
        codec.decode_versioned(ConsumerProtocolSubscription, b"\xff\xff" + raw[2:])
    with pytest.raises(DecodeError):
        codec.decode_versioned(ConsumerProtocolSubscription, b"\x00")


def test_messages_compare_by_value_and_show_their_fields() -> None:
    assert EndTxnRequest("id") == EndTxnRequest("id")
    assert EndTxnRequest("id") != EndTxnRequest("id", unknown_tags=((1, b""),))  # type: ignore[call-arg]
    assert EndTxnRequest("id") != ApiVersionsRequest()
    assert repr(EndTxnTopic("t", [1])) == "EndTxnTopic(name='t', partitions=[1])"
    assert repr(SaslAuthenticateRequest(b"hunter2")) == "SaslAuthenticateRequest(auth_bytes=...)"
    with pytest.raises(TypeError):
        hash(EndTxnRequest("id"))
    with pytest.raises(AttributeError):
        EndTxnRequest("id").transactionalid = "x"  # type: ignore[attr-defined]
