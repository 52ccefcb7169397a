"""Error responses come from the definitions: every API gets one that can be sent, with the code where clients look."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.broker.api.error_response import error_response, has_error_codes
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.apis import all_apis
from oncelog.protocol.codec import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.protocol.schema import Request, Struct, WireType

CODE = int(ErrorCode.UNKNOWN_SERVER_ERROR)
REQUESTS = [cls for cls in all_apis() if has_error_codes(cls.response)]


IDENTITIES = {
    **dict.fromkeys(("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "user"), "some"),
    **dict.fromkeys(("partition", "partition_index", "index", "producer_id", "resource_type"), 7),
    "topic_id": b"u" * 16,
}
"""Fields that name an item, with their values in a sample."""

RESULTS = {
    ("CreatableTopicResult", "topic_id"),
    ("DescribeTopicPartitionsResponseTopic", "topic_id"),
    ("MetadataResponseTopic", "topic_id"),
    ("TransactionState", "producer_id"),
}
"""Fields whose values come from the broker, and not from the request."""


def sample(struct: type[Struct], version: int) -> Any:
    """A message with one item in every array, so that there is something to mirror."""
    made = struct()
    for spec in struct.fields:
        if version not in spec.versions:
            continue
        if spec.is_array:
            if spec.struct is not None:
                item: Any = sample(spec.struct, version)
            else:
                item = {WireType.STRING: "some", WireType.UUID: b"u" * 16}.get(spec.wire_type, 7)
            setattr(made, spec.name, [item])
        elif spec.struct is None and spec.name in IDENTITIES:
            setattr(made, spec.name, IDENTITIES[spec.name])
    return made


def unnamed_in(message: Struct, version: int) -> list[tuple[str, str]]:
    """The (struct, field) pairs in a response, except for its first level, that should name an item but do not."""
    found = []
    for field in message.fields:
        for item in getattr(message, field.name) or () if field.is_array and version in field.versions else ():
            if isinstance(item, Struct) and has_error_codes(type(item)):
                names = {part.name for part in item.fields if version in part.versions} & IDENTITIES.keys()
                found += [(type(item).__name__, name) for name in names if getattr(item, name) != IDENTITIES[name]]
                found += unnamed_in(item, version)
    return found


def codes_in(message: Any) -> list[int]:
    found = []
    for field in message.fields:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    found += codes_in(item)
        elif isinstance(value, Struct):
            found += codes_in(value)
    return found


@pytest.mark.parametrize("request_class", REQUESTS, ids=lambda cls: cls.__name__)
def test_every_version_of_every_api_can_say_that_everything_failed(request_class: type[Request[Any]]) -> None:
    for version in request_class.spec.versions:
        request = sample(request_class, version)
        response = run_at_once(error_response(request, version, CODE, "why"))
        sent = decode(request_class.response, encode(response, version), version)
        assert CODE in codes_in(sent), version
        assert set(unnamed_in(sent, version)) <= RESULTS, version


def test_produce_blames_every_partition_by_its_name_and_index() -> None:
    from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    request = ProduceRequest(
        topic_data=[
            TopicProduceData("a", partition_data=[PartitionProduceData(3), PartitionProduceData(4)]),
            TopicProduceData("b", partition_data=[PartitionProduceData(0)]),
        ]
    )
    response = run_at_once(error_response(request, 9, 21, "acks"))
    seen = [(t.name, p.index, p.error_code, p.error_message) for t in response.responses for p in t.partition_responses]  # type: ignore[attr-defined]
    assert seen == [("a", 3, 21, "acks"), ("a", 4, 21, "acks"), ("b", 0, 21, "acks")]


def test_alter_replica_log_dirs_blames_the_partitions_of_all_directories() -> None:
    dirs = [
        AlterReplicaLogDir("/a", [AlterReplicaLogDirTopic("x", [3, 4]), AlterReplicaLogDirTopic("y", [1])]),
        AlterReplicaLogDir("/b", []),
        AlterReplicaLogDir("/c", [AlterReplicaLogDirTopic("x", [5])]),
    ]
    response = run_at_once(error_response(AlterReplicaLogDirsRequest(dirs), 2, 31, None))
    seen = [(t.topic_name, p.partition_index, p.error_code) for t in response.results for p in t.partitions]  # type: ignore[attr-defined]
    assert seen == [("x", 3, 31), ("x", 4, 31), ("y", 1, 31), ("x", 5, 31)]


def test_alter_user_scram_credentials_blames_the_users_of_all_changes() -> None:
    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion("a")], [ScramCredentialUpsertion("b")])
    response = run_at_once(error_response(request, 0, 31, None))
    assert [(result.user, result.error_code) for result in response.results] == [("a", 31), ("b", 31)]  # type: ignore[attr-defined]


def test_alter_user_scram_credentials_blames_a_user_with_several_changes_once() -> None:
    deletions = [ScramCredentialDeletion("a", 1), ScramCredentialDeletion("a", 2), ScramCredentialDeletion("b", 1)]
    request = AlterUserScramCredentialsRequest(deletions, [ScramCredentialUpsertion("b", 2)])
    response = run_at_once(error_response(request, 0, 31, None))
    assert [result.user for result in response.results] == ["a", "b"]  # type: ignore[attr-defined]


def test_delete_topics_blames_plain_names_and_ids() -> None:
    from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    old = run_at_once(error_response(DeleteTopicsRequest(topic_names=["a", "b"]), 5, 41, None))
    assert [(item.name, item.error_code) for item in old.responses] == [("a", 41), ("b", 41)]  # type: ignore[attr-defined]
    new = run_at_once(error_response(DeleteTopicsRequest(topics=[DeleteTopicState(None, b"i" * 16)]), 6, 41, None))
    assert [(item.topic_id, item.error_code) for item in new.responses] == [(b"i" * 16, 41)]  # type: ignore[attr-defined]


def test_what_a_failed_response_may_leave_out_is_null() -> None:
    quotas = run_at_once(error_response(DescribeClientQuotasRequest(), 1, CODE, "refused"))
    assert isinstance(quotas, DescribeClientQuotasResponse)
    assert (quotas.error_code, quotas.error_message, quotas.entries) == (CODE, "refused", None)
    joined = [run_at_once(error_response(JoinGroupRequest(), version, CODE, None)) for version in (6, 7)]
    assert [response.protocol_name for response in joined if isinstance(response, JoinGroupResponse)] == ["", None]


def test_an_api_with_a_top_level_code_is_blamed_there() -> None:
    from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    response = run_at_once(error_response(request, 12, 70, None))
    assert (response.error_code, response.responses) == (70, [])  # type: ignore[attr-defined]
    older = run_at_once(error_response(request, 6, 70, None))
    assert [p.error_code for t in older.responses for p in t.partitions] == [70]  # type: ignore[attr-defined]


def test_a_failed_fetch_states_no_offsets_as_in_kafka() -> None:
    from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(3, log_start_offset=5)])])
    response = run_at_once(error_response(request, 6, 70, None))
    seen = [(p.partition_index, p.high_watermark, p.log_start_offset) for t in response.responses for p in t.partitions]  # type: ignore[attr-defined]
    assert seen == [(3, -1, -1)]
