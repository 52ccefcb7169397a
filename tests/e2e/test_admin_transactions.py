"""What the admin client knows and does about transactions. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, KafkaError, Producer, ProducerFencedError, TopicPartition, UnsupportedVersionError
from oncelog.client.admin import AbortTransactionSpec, WhyHanging, transactions
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from support.hanging import broker_where_transactions_hang
from support.proxy import FaultProxy
from support.reading import values

Names = Callable[[str], str]


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
async def topic(admin: Admin, fresh_name: Names) -> str:
    name = fresh_name("topic")
    await admin.create_topic(name, 2)
    return name


@pytest.fixture
async def producer(bootstrap: str, fresh_name: Names) -> AsyncIterator[Producer]:
    """A producer that is ready for its first transaction."""
    name = fresh_name("id")
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=50_000, linger_ms=0
    ) as producer:
        await producer.init_transactions()
        yield producer


async def open_transaction(producer: Producer, topic: str, partition: int = 0) -> str:
    """Begin a transaction with one record in it; returns the transactional id."""
    await producer.begin_transaction()
    await producer.send(topic, b"open", partition=partition)
    assert producer.config.transactional_id is not None
    return producer.config.transactional_id


async def committed(bootstrap: str, topic: str) -> list[bytes]:
    """All committed records, once no transaction is open: a commit is answered before its markers are written."""
    return await asyncio.to_thread(values, bootstrap, topic)


class TestFence:
    async def test_older_producer_is_locked_out_and_its_transaction_aborted(
        self, bootstrap: str, admin: Admin, producer: Producer, topic: str
    ) -> None:
        name = await open_transaction(producer, topic)
        before = (await admin.describe_transactions([name]))[name]
        fenced = (await admin.fence_producers([name]))[name]
        assert fenced.error is None
        assert fenced.producer_id == before.producer_id
        assert fenced.producer_epoch > before.producer_epoch
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        assert await committed(bootstrap, topic) == []
        async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as successor:
            await successor.init_transactions()
            async with successor.transaction() as txn:
                txn.send(topic, b"goes on")
        assert await committed(bootstrap, topic) == [b"goes on"]

    async def test_each_id_has_its_own_result(self, admin: Admin, fresh_name: Names) -> None:
        new = [fresh_name("id") for _ in range(40)]
        first = await admin.fence_producers([*new, ""])
        assert {one.producer_epoch for name, one in first.items() if name} == {0}
        assert len({one.producer_id for name, one in first.items() if name}) == len(new)
        assert first[""].error is not None
        assert (first[""].producer_id, first[""].producer_epoch) == (-1, -1)
        again = await admin.fence_producers(new[:1])
        assert again[new[0]] == (first[new[0]].producer_id, 1, None)

    async def test_timeout_beyond_what_transactions_may_have_says_so(self, admin: Admin, fresh_name: Names) -> None:
        name = fresh_name("id")
        error = (await admin.fence_producers([name], timeout_ms=900_001))[name].error
        assert error is not None
        assert error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert "transaction.max.timeout.ms" in str(error)

    async def test_abort_under_way_is_waited_for_within_the_timeout(self, bootstrap: str, fresh_name: Names) -> None:
        name = fresh_name("id")

        def busy(_: InitProducerIdRequest) -> InitProducerIdResponse:
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)

        async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
            await admin.fence_producers([name])
            proxy.answer(InitProducerIdRequest, busy, times=3)
            assert (await admin.fence_producers([name]))[name].producer_epoch == 1
            proxy.answer(InitProducerIdRequest, busy, times=10_000)
            begun = time.monotonic()
            error = (await admin.fence_producers([name], timeout_ms=300))[name].error
            assert time.monotonic() - begun < 10
            assert error is not None
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            assert name in str(error)
            assert "CONCURRENT_TRANSACTIONS" in str(error)

    async def test_lost_connection_and_moved_coordinator_are_asked_again(
        self, bootstrap: str, fresh_name: Names
    ) -> None:
        name = fresh_name("id")
        async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
            proxy.break_before(InitProducerIdRequest)
            proxy.change(
                InitProducerIdRequest, lambda answer: setattr(answer, "error_code", ErrorCode.NOT_COORDINATOR), skip=0
            )
            assert (await admin.fence_producers([name]))[name].error is None
            assert proxy.seen[FindCoordinatorRequest.__name__.removesuffix("Request")] == 3


class TestDescribe:
    async def test_open_transaction_shows_what_it_holds_and_until_when(
        self, admin: Admin, producer: Producer, topic: str
    ) -> None:
        before_ms = int(time.time() * 1000)
        name = await open_transaction(producer, topic, 1)
        described = (await admin.describe_transactions([name]))[name]
        assert (described.transactional_id, described.state, described.timeout_ms) == (name, "Ongoing", 50_000)
        assert described.partitions == (TopicPartition(topic, 1),)
        assert described.started_ms is not None
        assert before_ms - 1000 <= described.started_ms <= time.time() * 1000 + 1000
        assert described.deadline_ms == described.started_ms + 50_000
        brokers = (await admin.describe_cluster()).brokers
        assert described.coordinator == brokers[0].id
        await producer.abort_transaction()

        async with asyncio.timeout(60):
            while (over := (await admin.describe_transactions([name]))[name]).state != "CompleteAbort":
                pass
        assert over.partitions == ()
        assert over.deadline_ms is None

    async def test_unknown_id_is_an_error(self, admin: Admin, fresh_name: Names) -> None:
        unknown = fresh_name("nobody")
        with pytest.raises(KafkaError, match=unknown) as raised:
            await admin.describe_transactions([unknown])
        assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    async def test_producers_of_a_partition(self, admin: Admin, producer: Producer, topic: str) -> None:
        await producer_commits(producer, topic)
        name = await open_transaction(producer, topic)
        transaction = (await admin.describe_transactions([name]))[name]
        described = await admin.describe_producers([(topic, 0), (topic, 1)])
        assert list(described) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        (one,) = described[TopicPartition(topic, 0)]
        assert (one.producer_id, one.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        assert one.transaction_start_offset == 2
        assert abs(one.last_timestamp_ms - time.time() * 1000) < 60_000
        assert described[TopicPartition(topic, 1)] == ()
        await producer.abort_transaction()

    async def test_partition_that_is_not_there_is_told_in_time(self, bootstrap: str, topic: str) -> None:
        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=500) as admin:
            with pytest.raises(KafkaError, match=f"topic '{topic}' has no partition 7"):
                await admin.describe_producers([(topic, 7)])


async def producer_commits(producer: Producer, topic: str) -> None:
    async with producer.transaction() as txn:
        await txn.send(topic, b"committed", partition=0)


class TestList:
    async def test_filters_leave_only_what_they_name(self, admin: Admin, producer: Producer, topic: str) -> None:
        name = await open_transaction(producer, topic)
        other = f"{name}-other"
        await admin.fence_producers([other])

        async def listed(**filters: Any) -> set[str]:
            found = await admin.list_transactions(**filters)
            return {one.transactional_id for one in found} & {name, other}

        (mine,) = [one for one in await admin.list_transactions() if one.transactional_id == name]
        assert mine.state == "Ongoing"
        assert await listed() == {name, other}
        assert await listed(states=["Ongoing"]) == {name}
        assert await listed(states=["Empty", "CompleteAbort"]) == {other}
        assert await listed(producer_ids=[mine.producer_id]) == {name}
        assert await listed(pattern=f"{name}.*") == {name, other}
        assert await listed(pattern=f"{name}.+") == {other}
        assert await listed(states=["Ongoing"], min_duration_ms=3_600_000) == set()
        async with asyncio.timeout(60):
            while await listed(states=["Ongoing"], min_duration_ms=0) != {name}:
                pass
        await producer.abort_transaction()

    async def test_state_and_pattern_that_are_none_are_refused(self, admin: Admin, fresh_name: Names) -> None:
        await admin.fence_producers([fresh_name("id")])
        with pytest.raises(KafkaError, match="'Sleeping'"):
            await admin.list_transactions(states=["Sleeping"])
        with pytest.raises(KafkaError, match="regular expression"):
            await admin.list_transactions(pattern="(")

    @pytest.mark.parametrize(("newest", "filters"), [(0, {"min_duration_ms": 5}), (1, {"pattern": "a.*"})])
    async def test_broker_that_cannot_filter_so_is_not_asked(
        self, bootstrap: str, newest: int, filters: dict[str, object]
    ) -> None:
        def older(answer: ApiVersionsResponse) -> None:
            for api in answer.api_keys:
                if api.api_key == ListTransactionsRequest.spec.key:
                    api.max_version = newest

        async with FaultProxy(bootstrap) as proxy:
            proxy.change(ApiVersionsRequest, older, times=100)
            async with Admin(bootstrap_servers=proxy.address) as admin:
                assert await admin.list_transactions(states=["Dead"]) == []
                with pytest.raises(UnsupportedVersionError, match=f"up to v{newest}"):
                    await admin.list_transactions(**filters)  # type: ignore[arg-type]
                assert proxy.seen["ListTransactions"] == 1


class TestHanging:
    async def test_is_found_and_aborted_and_readers_go_on(
        self, request: pytest.FixtureRequest, tmp_path: Path, fresh_name: Names
    ) -> None:
        kafka, topic = bool(request.config.getoption("--kafka")), fresh_name("topic")
        async with (
            broker_where_transactions_hang(tmp_path, kafka=kafka) as (address, hang),
            Admin(bootstrap_servers=address) as admin,
            Producer(bootstrap_servers=address) as producer,
        ):
            await admin.create_topic(topic, 2)
            await producer.send(topic, b"before", partition=1)
            nobody = 4_711_000
            await hang(topic, 1, nobody, 3)
            assert await admin.find_hanging_transactions([(topic, 0)]) == []
            (found,) = await admin.find_hanging_transactions()
            assert found.partition == TopicPartition(topic, 1)
            assert (found.producer.producer_id, found.producer.producer_epoch) == (nobody, 3)
            assert found.producer.transaction_start_offset == 1
            assert (found.transactional_id, found.why) == (None, WhyHanging.NO_TRANSACTIONAL_ID)

            with pytest.raises(KafkaError, match="newer epoch"):
                await admin.abort_transaction(found.abort_spec._replace(producer_epoch=2))
            await admin.abort_transaction(found.abort_spec)
            assert await admin.find_hanging_transactions() == []
            await producer.send(topic, b"after", partition=1)
            assert await committed(address, topic) == [b"before", b"after"]

    async def test_batch_behind_the_end_of_its_transaction_hangs(
        self, request: pytest.FixtureRequest, tmp_path: Path, fresh_name: Names
    ) -> None:
        kafka, topic, name = bool(request.config.getoption("--kafka")), fresh_name("topic"), fresh_name("id")
        async with (
            broker_where_transactions_hang(tmp_path, kafka=kafka) as (address, hang),
            Admin(bootstrap_servers=address) as admin,
        ):
            await admin.create_topic(topic, 2)
            identity = (await admin.fence_producers([name]))[name]
            await hang(topic, 0, identity.producer_id, identity.producer_epoch)
            (found,) = await admin.find_hanging_transactions()
            assert (found.transactional_id, found.why) == (name, WhyHanging.NOT_ITS_TRANSACTION)
            await admin.abort_transaction(found.abort_spec)
            assert await committed(address, topic) == []
            async with Producer(bootstrap_servers=address, transactional_id=name) as producer:
                await producer.init_transactions()
                await producer_commits(producer, topic)
            assert await committed(address, topic) == [b"committed"]

    @pytest.mark.parametrize("look", [1, 2], ids=["first look", "second look"])
    async def test_topic_that_is_deleted_during_the_search_is_left_out(
        self,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        fresh_name: Names,
        monkeypatch: pytest.MonkeyPatch,
        look: int,
    ) -> None:
        kafka, topic = bool(request.config.getoption("--kafka")), fresh_name("topic")
        describe_producers = transactions.describe_producers
        looks = 0

        async def topic_is_deleted_first(*arguments: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == look:
                await owner.delete_topics([topic])
                async with asyncio.timeout(60):
                    while topic in await owner.list_topics():
                        await asyncio.sleep(0.01)
            return await describe_producers(*arguments, **options)

        async with (
            broker_where_transactions_hang(tmp_path, kafka=kafka) as (address, hang),
            Admin(bootstrap_servers=address) as owner,
        ):
            await owner.create_topic(topic, 1)
            await hang(topic, 0, 4_711_000, 3)
            monkeypatch.setattr(transactions, "describe_producers", topic_is_deleted_first)
            assert await owner.find_hanging_transactions() == []
            assert looks >= look

    async def test_transaction_of_a_living_coordinator_is_not_hanging(
        self, admin: Admin, producer: Producer, topic: str
    ) -> None:
        await open_transaction(producer, topic)
        assert await admin.find_hanging_transactions([(topic, 0)], older_than_ms=0) == []
        await producer.commit_transaction()

    async def test_abort_on_a_partition_that_is_not_there_is_told(self, bootstrap: str, topic: str) -> None:
        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=500) as admin:
            with pytest.raises(KafkaError, match="no partition 9"):
                await admin.abort_transaction(AbortTransactionSpec(TopicPartition(topic, 9), 1, 0))
