"""The calls of the admin client: bounded as a whole, and nothing goes on behind a failed one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from oncelog import (
    AbortTransactionSpec,
    Acl,
    AclFilter,
    Admin,
    ConfigResource,
    KafkaError,
    NewTopic,
    ResourceType,
    TopicPartition,
)
from oncelog.client.admin.calls import AdminCalls
from oncelog.client.admin.transaction_values import WhyHanging
from oncelog.client.errors import InvalidTopicError, KafkaTimeoutError, NetworkError, error_for
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, EntityData, EntryData
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from oncelog.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from oncelog.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from oncelog.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from oncelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog.protocol.messages.describe_transactions import TransactionState as DescribedState
from oncelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
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
from oncelog.protocol.messages.offset_fetch import OffsetFetchResponse
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
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
        self.metadata = SimpleNamespace(topics={}, brokers={1: None}, controller_id=-1)
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


SINGLE: dict[str, tuple[Callable[[Admin], Awaitable[Any]], Callable[[list[str]], object], str]] = {
    "describe group": (
        lambda admin: admin.describe_groups(["b"]),
        lambda names: DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in names]),
        "group 'b'",
    ),
    "delete group": (
        lambda admin: admin.delete_groups(["b"]),
        lambda names: DeleteGroupsResponse(results=[DeletableGroupResult(name) for name in names]),
        "group 'b'",
    ),
    "delete a password": (
        lambda admin: admin.delete_password("b"),
        lambda names: AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(name) for name in names]
        ),
        "user 'b'",
    ),
    "list users": (
        lambda admin: admin.scram_users(["b"]),
        lambda names: DescribeUserScramCredentialsResponse(
            results=[DescribeUserScramCredentialsResult(name) for name in names]
        ),
        "user 'b'",
    ),
    "set quotas": (
        lambda admin: admin.set_quotas({"user": "b"}, {"request_percentage": 5.0}),
        lambda names: AlterClientQuotasResponse(
            entries=[EntryData(entity=[EntityData("user", name)]) for name in names]
        ),
        "quotas of {'user': 'b'}",
    ),
    "abort a transaction": (
        lambda admin: admin.abort_transaction(AbortTransactionSpec(B, 1, 0, 0)),
        lambda names: WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    1, [WritableTxnMarkerTopicResult(name, [WritableTxnMarkerPartitionResult(0, 0)]) for name in names]
                )
            ]
        ),
        "could not abort the transaction of producer id 1 on b-0",
    ),
}


@pytest.mark.parametrize("case", SINGLE)
def test_a_response_about_something_else_is_no_success(case: str) -> None:
    call, answer, subject = SINGLE[case]

    async def go(*names: str) -> Any:
        return await call(admin_of(AnsweringCluster(answer(list(names)))))

    in_virtual_time(go("a", "b"))
    left_out, twice = "does not name it", "names it more than once"
    for names, problem in (([], left_out), (["a"], left_out), (["b", "b"], twice)):
        with pytest.raises(KafkaError) as caught:
            in_virtual_time(go(*names))
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert caught.value.message == f"{subject}: the broker's response {problem}, so the outcome is unknown"


def test_a_transaction_that_a_response_leaves_out_has_an_error() -> None:
    with pytest.raises(KafkaError, match="transactional id 'x': the broker's response does not name it"):
        in_virtual_time(
            admin_of(AnsweringCluster(DescribeTransactionsResponse(transaction_states=[]))).describe_transactions(["x"])
        )


def test_a_transaction_whose_id_has_expired_meanwhile_hangs() -> None:
    producer = ProducerState(producer_id=7, producer_epoch=0, current_txn_start_offset=5)
    answers: dict[type[Any], object] = {
        DescribeProducersRequest: DescribeProducersResponse(
            topics=[TopicResponse("a", [PartitionResponse(0, active_producers=[producer])])]
        ),
        ListTransactionsRequest: ListTransactionsResponse(transaction_states=[TransactionState("x", 7, "Ongoing")]),
        DescribeTransactionsRequest: DescribeTransactionsResponse(
            transaction_states=[DescribedState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "x")]
        ),
    }

    class Answers(AnsweringCluster):
        async def refresh(self, names: object = None) -> None:
            pass

        async def send(self, request: object, version: int) -> object:
            return answers[type(request)]

        async def call(self, node_id: int, request: object) -> object:
            return answers[type(request)]

    (hanging,) = in_virtual_time(admin_of(Answers()).find_hanging_transactions([A], older_than_ms=0))
    assert (hanging.transactional_id, hanging.why) == ("x", WhyHanging.NO_TRANSACTIONAL_ID)


def test_offsets_of_a_group_that_a_response_leaves_out_are_unknown() -> None:
    with pytest.raises(KafkaError, match="does not name group 'g'"):
        in_virtual_time(admin_of(AnsweringCluster(OffsetFetchResponse(groups=[]))).group_offsets("g"))


RULE = Acl("TOPIC", "t", "User:alice", "READ")


@pytest.mark.parametrize("results", [0, 2])
def test_access_rules_without_a_result_each_are_an_error(results: int) -> None:
    created = CreateAclsResponse(results=[AclCreationResult() for _ in range(results)])
    deleted = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult() for _ in range(results)])
    for work in (
        lambda: admin_of(AnsweringCluster(created)).create_acls([RULE]),
        lambda: admin_of(AnsweringCluster(deleted)).delete_acls([AclFilter("TOPIC")]),
    ):
        with pytest.raises(KafkaError, match=f"has {results} results for 1 of them, so the outcome is unknown"):
            in_virtual_time(work())


class QuotaCluster(AnsweringCluster):
    """A broker that accepts one topic of each request, and none until the throttle time of its last response has
    passed.
    """

    THROTTLE_S = 2.0

    def __init__(self, response: Callable[[str, int], Any], rows: str) -> None:
        super().__init__()
        self._response, self._rows = response, rows
        self._free_at = 0.0
        self.asked: list[list[str]] = []

    async def send(self, request: Any, version: int) -> object:
        if isinstance(request, MetadataRequest):
            return MetadataResponse()
        names = [topic.name for topic in request.topics]
        self.asked.append(names)
        now = asyncio.get_running_loop().time()
        accepted = names[0] if now >= self._free_at else ""
        self._free_at = now + self.THROTTLE_S
        quota = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        parts = [self._response(name, 0 if name == accepted else quota) for name in names]
        merged = parts[0]
        setattr(merged, self._rows, [row for part in parts for row in getattr(part, self._rows)])
        merged.throttle_time_ms = round(self.THROTTLE_S * 1000)
        return merged


WITHIN_QUOTA: dict[str, tuple[Callable[..., Awaitable[Any]], Callable[[str, int], Any], str]] = {
    "create topics": (
        lambda admin, names, **options: admin.create_topics([NewTopic(name) for name in names], **options),
        lambda name, code: CreateTopicsResponse(topics=[CreatableTopicResult(name, error_code=code)]),
        "topics",
    ),
    "delete topics": (
        lambda admin, names, **options: admin.delete_topics(names, **options),
        lambda name, code: DeleteTopicsResponse(responses=[DeletableTopicResult(name, error_code=code)]),
        "responses",
    ),
    "create partitions": (
        lambda admin, names, **options: admin.create_partitions(dict.fromkeys(names, 2), **options),
        lambda name, code: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name, code)]),
        "results",
    ),
}


@pytest.mark.parametrize("case", WITHIN_QUOTA)
def test_topics_that_exceed_a_quota_are_sent_again_after_the_throttle_time(case: str) -> None:
    call, response, rows = WITHIN_QUOTA[case]
    cluster = QuotaCluster(response, rows)

    async def go() -> Any:
        return await call(admin_of(cluster), ["a", "b", "c"])

    assert in_virtual_time(go()) == {"a": None, "b": None, "c": None}
    assert cluster.asked == [["a", "b", "c"], ["b", "c"], ["c"]]


@pytest.mark.parametrize("case", WITHIN_QUOTA)
def test_a_quota_is_waited_for_until_the_timeout_or_not_at_all(case: str) -> None:
    call, response, rows = WITHIN_QUOTA[case]

    async def go(**options: Any) -> tuple[float, list[ErrorCode | None], int]:
        loop = asyncio.get_running_loop()
        began, cluster = loop.time(), QuotaCluster(response, rows)
        outcomes = await call(admin_of(cluster), list("abcdefgh"), raise_errors=False, **options)
        return loop.time() - began, [error and error.code for error in outcomes.values()], len(cluster.asked)

    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert in_virtual_time(go()) == (8.0, [None] * 5 + [refused] * 3, 5)
    assert in_virtual_time(go(retry_on_quota_violation=False)) == (0.0, [None] + [refused] * 7, 1)


class SeveralBrokers(AnsweringCluster):
    """Brokers 1 and 2. `asked` has the id of the broker to which each request was sent, and the request."""

    def __init__(self, answer: Callable[[int, Any], object]) -> None:
        super().__init__()
        self.metadata.brokers = {1: None, 2: None}
        self.asked: list[tuple[int, Any]] = []
        self._answer_of = answer
        self._node_id = 0

    async def refresh(self, names: object = None) -> None:
        self.metadata.controller_id = 2

    async def connection(self, node_id: int) -> AnsweringCluster:
        self._node_id = node_id
        return self

    async def send(self, request: Any, version: int) -> object:
        if isinstance(request, MetadataRequest):
            return MetadataResponse()
        self.asked.append((self._node_id, request))
        return self._answer_of(self._node_id, request)


@pytest.mark.parametrize("case", WITHIN_QUOTA)
def test_topics_are_changed_by_the_controller_even_if_it_has_moved(case: str) -> None:
    """Before KRaft, only the controller changes topics, and other brokers do not forward the request."""
    call, response, _ = WITHIN_QUOTA[case]
    cluster = SeveralBrokers(lambda node_id, _: response("a", 0 if node_id == 2 else ErrorCode.NOT_CONTROLLER))
    cluster.metadata.controller_id = 1

    async def go() -> Any:
        return await call(admin_of(cluster), ["a"])

    assert in_virtual_time(go()) == {"a": None}
    assert [node_id for node_id, _ in cluster.asked] == [1, 2]


BROKERS = [ConfigResource(ResourceType.BROKER, name) for name in ("2", "", "1")]


def test_configs_of_a_broker_are_read_and_changed_at_this_broker() -> None:
    """Each broker knows only its own configs, and those that apply to all brokers."""

    def answer(node_id: int, request: Any) -> object:
        names = [resource.resource_name for resource in request.resources]
        codes = [0 if name in ("", str(node_id)) else ErrorCode.INVALID_REQUEST for name in names]
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(code, resource_type=4, resource_name=name)
                    for name, code in zip(names, codes, strict=True)
                ]
            )
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(code, resource_type=4, resource_name=name)
                for name, code in zip(names, codes, strict=True)
            ]
        )

    cluster = SeveralBrokers(answer)
    assert list(in_virtual_time(admin_of(cluster).describe_configs(BROKERS))) == BROKERS
    outcomes = in_virtual_time(admin_of(cluster).alter_configs({one: {"x": "1"} for one in BROKERS}))
    assert outcomes == dict.fromkeys(BROKERS)
    unknown = ConfigResource(ResourceType.BROKER, "7")
    with pytest.raises(KafkaError) as refused:
        in_virtual_time(admin_of(cluster).describe_configs([unknown]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_group_whose_coordinator_may_not_be_looked_up_does_not_hide_the_outcomes_of_others() -> None:
    class Cluster(AnsweringCluster):
        async def coordinator(self, *key: object) -> int:
            if "a" in key:
                raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'a'")
            return 1

    admin = admin_of(Cluster(DeleteGroupsResponse(results=[DeletableGroupResult("b")])))
    outcomes = in_virtual_time(admin.delete_groups(["b", "a"], raise_errors=False))
    assert {name: error and error.code for name, error in outcomes.items()} == {
        "b": None,
        "a": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }


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
