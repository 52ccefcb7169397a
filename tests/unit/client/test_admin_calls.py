"""The calls of the admin client: bounded as a whole, and nothing goes on behind a failed one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from oncelog import Admin, ConfigResource, KafkaError, NewTopic, ResourceType, TopicPartition
from oncelog.client.admin.calls import AdminCalls
from oncelog.client.errors import InvalidTopicError, KafkaTimeoutError, NetworkError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from oncelog.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from oncelog.protocol.messages.describe_producers import DescribeProducersResponse, PartitionResponse, TopicResponse
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from support.virtual_time import VirtualTimeLoop

GONE = NetworkError(ErrorCode.NETWORK_EXCEPTION, "the broker is gone")


class SilentCluster:
    """Brokers 1 to 3, of which none answers about a coordinator."""

    class metadata:
        brokers = (1, 2, 3)

    async def refresh(self) -> None: ...

    def retry_backoff(self, attempt: int) -> float:
        return 0.1

    async def coordinator(self, *_: object) -> int:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def forget_coordinator(self, *_: object) -> None: ...


def admin_of(cluster: Any) -> Admin:
    admin = Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=10_000)
    admin._cluster = cluster
    return admin


def test_all_requests_of_a_call_share_its_timeout() -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        calls = AdminCalls(SilentCluster(), 10.0)  # type: ignore[arg-type]
        await calls.retrying(lambda: asyncio.sleep(6), "describe the first")
        with pytest.raises(KafkaTimeoutError, match="could not describe the second within 10000 ms"):
            await calls.retrying(lambda: asyncio.sleep(6), "describe the second")
        return loop.time() - began

    assert in_virtual_time(go()) == pytest.approx(10)


def test_fencing_more_ids_than_are_fenced_at_once_ends_within_one_timeout() -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        fenced = await admin_of(SilentCluster()).fence_producers([f"id-{number}" for number in range(500)])
        assert len(fenced) == 500
        assert all(isinstance(one.error, KafkaTimeoutError) for one in fenced.values())
        return loop.time() - began

    assert in_virtual_time(go()) == pytest.approx(10, abs=0.2)


def test_no_request_goes_on_behind_a_broker_that_failed() -> None:
    async def go() -> None:
        under_way: set[int] = set()

        async def ask(node_id: int) -> str:
            if node_id == 2:
                raise GONE
            under_way.add(node_id)
            try:
                await asyncio.sleep(60)
            finally:
                under_way.remove(node_id)
            return "late"

        calls = AdminCalls(SilentCluster(), 1.0)  # type: ignore[arg-type]
        with pytest.raises(KafkaTimeoutError, match="the broker is gone"):
            await calls.of_every_broker(ask, "list things")
        assert not under_way

    in_virtual_time(go())


class AnsweringCluster:
    """One broker that gives the same response to every request, and metadata of single partitions, led by node 1.

    `missing`: the topics that each metadata response in turn does not know.
    """

    def __init__(self, answer: object = None, missing: Iterable[str] = ()) -> None:
        self.answer = answer
        self.metadata = SimpleNamespace(topics={})
        self.config = SimpleNamespace(request_timeout_ms=1000)
        self._missing = iter(missing)
        self._unknown: str | None = None

    async def refresh(self, names: object) -> None:
        self._unknown = next(self._missing, None)

    def leader_of(self, one: TopicPartition) -> int | None:
        return None if one.topic == self._unknown else 1

    def any_node(self) -> int:
        return 1

    def untrack(self, names: object) -> None: ...

    def retry_backoff(self, attempt: int) -> float:
        return 0.1

    async def connection(self, node_id: int) -> AnsweringCluster:
        return self

    async def coordinator(self, *_: object) -> int:
        return 1

    def version_of(self, request: type[Any]) -> int:
        return int(request.spec.stable.high)

    async def send(self, request: object, version: int) -> object:
        if isinstance(request, MetadataRequest):
            return MetadataResponse()
        return self.answer

    async def call(self, node_id: int, request: object) -> object:
        return self.answer


A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TOPIC_A, TOPIC_B = ConfigResource(ResourceType.TOPIC, "a"), ConfigResource(ResourceType.TOPIC, "b")
CASES: dict[str, tuple[Callable[[Admin], Awaitable[Any]], Callable[[list[str]], object], str]] = {
    "create topics": (
        lambda admin: admin.create_topics([NewTopic("a"), NewTopic("b")]),
        lambda names: CreateTopicsResponse(topics=[CreatableTopicResult(name) for name in names]),
        "topic 'b'",
    ),
    "delete topics": (
        lambda admin: admin.delete_topics(["a", "b"]),
        lambda names: DeleteTopicsResponse(responses=[DeletableTopicResult(name) for name in names]),
        "topic 'b'",
    ),
    "create partitions": (
        lambda admin: admin.create_partitions({"a": 2, "b": 2}),
        lambda names: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name) for name in names]),
        "topic 'b'",
    ),
    "describe configs": (
        lambda admin: admin.describe_configs([TOPIC_A, TOPIC_B]),
        lambda names: DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=2, resource_name=name) for name in names]
        ),
        "configs of 'b'",
    ),
    "alter configs": (
        lambda admin: admin.alter_configs({TOPIC_A: {"x": "1"}, TOPIC_B: {"x": "1"}}),
        lambda names: IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=2, resource_name=name) for name in names]
        ),
        "configs of 'b'",
    ),
    "delete records": (
        lambda admin: admin.delete_records({A: 1, B: 1}),
        lambda names: DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name, [DeleteRecordsPartitionResult(0)]) for name in names]
        ),
        "b-0",
    ),
    "alter offsets": (
        lambda admin: admin.alter_group_offsets("g", {A: 1, B: 1}),
        lambda names: OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=name, partitions=[OffsetCommitResponsePartition(0)]) for name in names
            ]
        ),
        "group 'g', b-0",
    ),
    "delete offsets": (
        lambda admin: admin.delete_group_offsets("g", [A, B]),
        lambda names: OffsetDeleteResponse(
            topics=[OffsetDeleteResponseTopic(name, [OffsetDeleteResponsePartition(0)]) for name in names]
        ),
        "group 'g', b-0",
    ),
    "describe producers": (
        lambda admin: admin.describe_producers([A, B]),
        lambda names: DescribeProducersResponse(
            topics=[TopicResponse(name, [PartitionResponse(0, active_producers=[])]) for name in names]
        ),
        "b-0",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_response_leaves_out_or_names_twice_is_an_error(case: str) -> None:
    call, answer, subject = CASES[case]

    async def go(*names: str) -> Any:
        return await call(admin_of(AnsweringCluster(answer(list(names)))))

    assert len(in_virtual_time(go("b", "a"))) == 2
    left_out, twice = "does not name it", "names it more than once"
    for names, problem in ((["a"], left_out), (["a", "b", "b"], twice), (["a", "c"], left_out)):
        with pytest.raises(KafkaError) as caught:
            in_virtual_time(go(*names))
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert caught.value.message == f"{subject}: the broker's response {problem}, so the outcome is unknown"


def test_failure_of_one_topic_is_not_reported_for_another() -> None:
    async def go() -> dict[str, KafkaError | None]:
        refused = CreatableTopicResult("b", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        cluster = AnsweringCluster(CreateTopicsResponse(topics=[refused, CreatableTopicResult("a")]))
        return await admin_of(cluster).create_topics([NewTopic(name) for name in "abc"], raise_errors=False)

    outcomes = in_virtual_time(go())
    assert {name: error and error.code for name, error in outcomes.items()} == {
        "a": None,
        "b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": ErrorCode.UNKNOWN_SERVER_ERROR,
    }


def test_topics_that_are_missing_one_after_another_are_waited_for() -> None:
    """New topics become known to a broker one by one. Only one that stays missing is an error."""
    names = ["a", "b", "c", "d"]

    async def go(missing: list[str]) -> dict[TopicPartition, int]:
        rows = [DeleteRecordsTopicResult(name, [DeleteRecordsPartitionResult(0)]) for name in names]
        cluster = AnsweringCluster(DeleteRecordsResponse(topics=rows), missing)
        return await admin_of(cluster).delete_records({TopicPartition(name, 0): 1 for name in names})

    assert len(in_virtual_time(go(names))) == 4
    with pytest.raises(InvalidTopicError, match="topic 'b' does not exist"):
        in_virtual_time(go(["a", "b", "b", "b"]))


def in_virtual_time(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
