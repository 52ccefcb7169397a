"""Transactions of the producer, by both protocols: all or nothing, once, whatever answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from oncelog import (
    AbortableError,
    Admin,
    Broker,
    CommitUnknownError,
    Consumer,
    ConsumerGroupMetadata,
    IllegalStateError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ProducerFencedError,
    UnknownTopicError,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from support.proxy import FaultProxy
from support.reading import committed_offset, make_topic, values

Fresh = Callable[[str], str]
FAST = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "linger_ms": 0}


@pytest.fixture(params=[1, 2], ids=["transaction.version=1", "transaction.version=2"])
async def proxy(bootstrap: str, request: pytest.FixtureRequest) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(bootstrap) as running:
        running.features["transaction.version"] = request.param
        yield running


def refuse_for_good(request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, ErrorCode.INVALID_RECORD, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


async def test_commit_and_abort(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        async with producer.transaction() as txn:
            delivery = txn.send(topic, b"one")
            await txn.enqueue(topic, b"two")
        assert (await delivery).offset == 0
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction() as txn:
                await txn.send(topic, b"aborted")
                raise ZeroDivisionError
        async with producer.transaction() as txn:
            txn.send(topic, b"aborted as well")
            await txn.abort()
        async with producer.transaction() as txn:
            txn.send(topic, b"three")
    assert values(bootstrap, topic) == [b"one", b"two", b"three"]
    assert b"aborted" in values(bootstrap, topic, committed=False)


async def test_the_protocol_of_each_version(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        for _ in range(2):
            async with producer.transaction() as txn:
                txn.send(topic, b"x")
                await txn.send_offsets({(topic, 0): 5}, ConsumerGroupMetadata(fresh_name("group")))
    if proxy.features["transaction.version"] == 1:
        assert proxy.seen["AddPartitionsToTxn"] >= 2  # again while the last transaction is being completed
        assert proxy.seen["AddOffsetsToTxn"] >= 2
        assert proxy.versions["Produce"] <= 11
        assert proxy.versions["EndTxn"] <= 4
    else:
        assert proxy.seen["AddPartitionsToTxn"] == proxy.seen["AddOffsetsToTxn"] == 0
        assert proxy.versions["Produce"] >= 12
        assert (proxy.versions["EndTxn"], proxy.versions["TxnOffsetCommit"]) == (5, 5)
    assert proxy.seen["InitProducerId"] == 1


@pytest.mark.parametrize("partitions", [1, 150])
async def test_offsets_of_a_deleted_topic_are_not_committed_for_a_new_topic_of_its_name(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, request: pytest.FixtureRequest, partitions: int
) -> None:
    if request.config.getoption("--kafka"):
        pytest.skip("Apache Kafka's TxnOffsetCommit has no topic ids")
    name, group = fresh_name("topic"), ConsumerGroupMetadata(fresh_name("group"))
    make_topic(bootstrap, name, partitions)
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", allow_auto_create_topics=False) as consumer,
        Producer(FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn")) as producer,
    ):
        async with Producer(bootstrap_servers=bootstrap) as plain:
            await plain.send(name, b"old", partition=0)
        consumer.assign([(name, 0)])
        while not await consumer.poll(1000):
            pass
        read = consumer.consumed_offset((name, 0))
        offsets = {(name, index): read for index in range(partitions)}
        await producer.init_transactions()
        async with producer.transaction() as transaction:
            await transaction.send_offsets(offsets, group)
        assert committed_offset(bootstrap, group.group_id, name, 0) == 1
        await admin.delete_topics([name])
        make_topic(bootstrap, name, partitions)
        with pytest.raises(AbortableError, match="deleted and created again"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(offsets, group)
        async with producer.transaction() as transaction:  # the producer can be used further
            await transaction.send_offsets({(name, 0): 0}, group)
        assert committed_offset(bootstrap, group.group_id, name, 0) == 0


async def test_the_classic_calls(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn"), fresh_name("group")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        with pytest.raises(IllegalStateError, match="call init_transactions"):
            await producer.begin_transaction()
        await producer.init_transactions()
        with pytest.raises(IllegalStateError, match="call begin_transaction"):
            producer.send(topic, b"outside")
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="in a transaction"):
            await producer.begin_transaction()
        producer.send(topic, b"one")
        await producer.send_offsets_to_transaction(
            {(topic, 0): OffsetAndMetadata(17, "note")}, ConsumerGroupMetadata(group)
        )
        await producer.commit_transaction()
        assert committed_offset(bootstrap, group, topic, 0) == 17
        with pytest.raises(IllegalStateError):
            await producer.commit_transaction()
        await producer.begin_transaction()
        producer.send(topic, b"aborted")
        await producer.send_offsets({(topic, 0): 18}, ConsumerGroupMetadata(group))
        await producer.abort_transaction()
        assert committed_offset(bootstrap, group, topic, 0) == 17
    assert values(bootstrap, topic) == [b"one"]


async def test_an_empty_transaction_costs_nothing(proxy: FaultProxy, fresh_name: Fresh) -> None:
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn")) as producer:
        async with producer.transaction():
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                raise ZeroDivisionError
    assert proxy.seen["EndTxn"] == 0


async def test_an_older_producer_is_fenced(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with (
        Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as old,
        Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as new,
    ):
        await old.init_transactions()
        await old.begin_transaction()
        await old.send(topic, b"of the old one")
        async with new.transaction() as txn:
            txn.send(topic, b"of the new one")
        with pytest.raises(ProducerFencedError, match=name):
            await old.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await old.begin_transaction()
    assert values(bootstrap, topic) == [b"of the new one"]


async def test_a_failed_batch_makes_the_transaction_abortable(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        async with producer.transaction() as txn:
            txn.send(topic, b"first")
        proxy.answer(ProduceRequest, refuse_for_good)
        with pytest.raises(AbortableError, match="failed the broker's validation"):
            async with producer.transaction() as txn:
                txn.send(topic, b"refused")
        for attempt in range(2):
            try:
                await producer.begin_transaction()
                await producer.send(topic, b"second")
                if not attempt:
                    proxy.answer(ProduceRequest, refuse_for_good)
                    producer.send(topic, b"refused again")
                    with pytest.raises(AbortableError):
                        await producer.flush()
                    with pytest.raises(AbortableError):
                        producer.send(topic, b"too late")
                await producer.commit_transaction()
            except AbortableError:
                assert not attempt
                await producer.abort_transaction()
    assert values(bootstrap, topic) == [b"first", b"second"]


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize(
    "api",
    [
        FindCoordinatorRequest,
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    ],
)
async def test_every_request_and_answer_may_be_lost(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, api: type, fault: str
) -> None:
    topic, name, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn"), fresh_name("group")
    lose = proxy.break_before if fault == "before" else proxy.break_after
    lose(api)
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name, batch_size=200) as producer:
        for round_ in range(3):
            async with producer.transaction() as txn:
                for number in range(20):
                    await txn.enqueue(topic, b"%d-%02d" % (round_, number))
                await txn.send_offsets({(topic, 0): round_}, ConsumerGroupMetadata(group))
            lose(api, skip=1)
    assert values(bootstrap, topic) == [b"%d-%02d" % (round_, number) for round_ in range(3) for number in range(20)]
    assert committed_offset(bootstrap, group, topic, 0) == 2


async def test_a_commit_whose_answer_never_comes_is_unknown_until_asked_again(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name, max_block_ms=400) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        producer.send(topic, b"one")
        proxy.break_after(EndTxnRequest, times=1000)
        with pytest.raises(CommitUnknownError, match=r"commit_transaction\(\) again") as caught:
            await producer.commit_transaction()
        assert caught.value.can_ask_again
        with pytest.raises(IllegalStateError, match="learn whether its commit succeeded"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            await producer.abort_transaction()
        proxy._faults.clear()
        await producer.commit_transaction()
        async with producer.transaction() as txn:
            txn.send(topic, b"two")
    assert values(bootstrap, topic) == [b"one", b"two"]


async def test_a_commit_that_was_never_sent_can_be_aborted(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name, max_block_ms=300) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"one")
        proxy.down = True
        proxy.break_connections()
        await asyncio.sleep(0.05)
        with pytest.raises(KafkaError) as caught:
            await producer.commit_transaction()
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not isinstance(caught.value, CommitUnknownError)
        proxy.down = False
        await producer.abort_transaction()
    assert values(bootstrap, topic) == []


async def test_a_fenced_answer_after_a_lost_one_leaves_the_commit_unknown(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        proxy.break_after(EndTxnRequest)
        proxy.answer(EndTxnRequest, lambda request: EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
        with pytest.raises(CommitUnknownError, match="read what was committed") as caught:
            async with producer.transaction() as txn:
                txn.send(topic, b"one")
        assert not caught.value.can_ask_again
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction()


async def test_a_member_of_an_old_generation_must_abort(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        with pytest.raises(AbortableError):
            async with producer.transaction() as txn:
                await txn.send_offsets({(topic, 0): 1}, ConsumerGroupMetadata(fresh_name("group"), 7, "nobody"))
        async with producer.transaction() as txn:
            txn.send(topic, b"one")
    assert values(bootstrap, topic) == [b"one"]


async def test_a_cancelled_block_aborts(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(0.3), producer.transaction() as txn:
                await txn.send(topic, b"one")
                await asyncio.sleep(60)
        async with producer.transaction() as txn:
            txn.send(topic, b"two")
    assert values(bootstrap, topic) == [b"two"]


async def test_closing_aborts_an_open_transaction(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"one")
    assert proxy.seen["EndTxn"] == 1
    assert values(bootstrap, topic) == []


async def test_a_task_that_cannot_begin_leaves_the_transaction_of_another_task_alone(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with (
        Producer(FAST, bootstrap_servers=bootstrap, transactional_id=fresh_name("txn")) as producer,
        producer.transaction() as txn,
    ):
        await txn.send(topic, b"one")
        with pytest.raises(IllegalStateError, match="in a transaction"):
            await asyncio.create_task(producer.transaction().__aenter__())
        txn.send(topic, b"two")
    assert values(bootstrap, topic) == [b"one", b"two"]


@pytest.mark.parametrize("begins_again", [False, True])
@pytest.mark.parametrize("how", ["abort_transaction", "init_transactions", "close"])
async def test_a_block_whose_transaction_is_aborted_by_another_task_does_not_end_normally(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, how: str, begins_again: bool
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))

    async def interfere(producer: Producer) -> None:
        if how == "init_transactions":  # it is possible after an error only
            proxy.answer(ProduceRequest, refuse_for_good)
            producer.send(topic, b"refused")
            with pytest.raises(AbortableError):
                await producer.flush()
        await getattr(producer, how)()
        if begins_again and how != "close":
            await producer.begin_transaction()
            await producer.send(topic, b"of the other task")

    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn")) as producer:
        with pytest.raises(AbortableError, match="before the end of its block"):  # noqa: PT012
            async with producer.transaction() as txn:
                await txn.send(topic, b"acknowledged")
                await asyncio.create_task(interfere(producer))
        if begins_again and how != "close":
            await producer.commit_transaction()
            assert values(bootstrap, topic) == [b"of the other task"]
        else:
            assert values(bootstrap, topic) == []


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_block_whose_commit_has_no_response_does_not_say_that_it_was_aborted(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, arrives: bool
) -> None:
    """Neither does it end normally: if the commit has not arrived, init_transactions aborts the transaction."""
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = Producer(FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn"), max_block_ms=1000)
    async with producer:
        with pytest.raises(CommitUnknownError) as caught:  # noqa: PT012
            async with producer.transaction() as txn:
                await txn.send(topic, b"one")
                (proxy.break_after if arrives else proxy.break_before)(EndTxnRequest, 1000)
                with pytest.raises(CommitUnknownError):
                    await producer.commit_transaction()
                proxy.clear_faults()
                await producer.init_transactions()
        assert not caught.value.can_ask_again
    assert values(bootstrap, topic) == ([b"one"] if arrives else [])


async def test_a_block_whose_commit_was_cancelled_does_not_say_that_it_was_aborted(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn")) as producer:
        with pytest.raises(CommitUnknownError):  # noqa: PT012
            async with producer.transaction() as txn:
                await txn.send(topic, b"one")
                proxy.hold(EndTxnRequest, 1.0)
                committing = asyncio.create_task(producer.commit_transaction())
                while not proxy.seen["EndTxn"]:
                    await asyncio.sleep(0.01)
                committing.cancel()
                await asyncio.gather(committing, return_exceptions=True)
                await producer.init_transactions()
    assert values(bootstrap, topic) == [b"one"]


async def test_a_block_that_has_committed_its_transaction_leaves_the_next_one_open(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=bootstrap, transactional_id=fresh_name("txn")) as producer:
        async with producer.transaction() as txn:
            txn.send(topic, b"one")
            await producer.commit_transaction()
            await producer.begin_transaction()
            producer.send(topic, b"two")
        await producer.commit_transaction()
    assert values(bootstrap, topic) == [b"one", b"two"]


async def test_a_task_that_lets_the_sender_run_gets_into_no_other_transaction(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(
        FAST, bootstrap_servers=bootstrap, transactional_id=fresh_name("txn"), batch_size=1000
    ) as producer:
        async with producer.transaction() as txn:
            await txn.send(topic, b"one")

        async def feed() -> None:
            for _ in range(1000):
                await producer.enqueue(topic, b"aborted")

        await producer.begin_transaction()
        feeding = asyncio.create_task(feed())
        await asyncio.sleep(0)  # it runs until a batch is full
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="has ended"):
            await feeding
        await producer.commit_transaction()
    assert values(bootstrap, topic) == [b"one"]


async def test_a_transaction_that_takes_too_long_is_over(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with Producer(
        FAST, bootstrap_servers=proxy.address, transactional_id=name, transaction_timeout_ms=500
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"one")
        for _ in range(600):  # the coordinator looks for such transactions every so often
            await asyncio.sleep(0.05)
            try:
                await producer.send(topic, b"more")
            except KafkaError:
                break
        with pytest.raises((AbortableError, ProducerFencedError)):
            await producer.commit_transaction()
    assert values(bootstrap, topic) == []


async def test_a_missing_topic_of_an_aborted_transaction_does_not_fail_the_next_one() -> None:
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        Admin(bootstrap_servers=broker.address) as admin,
        Producer(bootstrap_servers=broker.address, transactional_id="t", max_block_ms=300) as producer,
    ):
        await admin.create_topic("out")
        await producer.init_transactions()
        await producer.begin_transaction()
        producer.send("missing", b"")
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            with pytest.raises(UnknownTopicError):  # the look-up of the first transaction has ended before this one
                await producer.partitions_for("missing")
            await transaction.enqueue("out", b"value")


async def test_an_enqueue_of_an_aborted_transaction_does_not_wait_for_the_topic_with_the_next_one() -> None:
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        Producer(bootstrap_servers=broker.address, transactional_id="t") as producer,
        asyncio.timeout(20),
    ):
        await producer.init_transactions()
        waiting = []
        for _ in range(2):
            await producer.begin_transaction()
            waiting.append(asyncio.create_task(producer.enqueue("missing", b"")))
            await asyncio.sleep(0)
            await producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="another one has begun"):
            await waiting[0]
        waiting[1].cancel()


async def test_a_missing_topic_fails_the_transaction_in_which_enqueue_waits_for_it() -> None:
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        Producer(bootstrap_servers=broker.address, transactional_id="t", max_block_ms=300) as producer,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(UnknownTopicError):
            await producer.enqueue("missing", b"")
        with pytest.raises(AbortableError):
            await producer.commit_transaction()


@pytest.mark.parametrize("how", ["late", "cancelled"])
async def test_no_commit_succeeds_without_a_record_that_closing_gives_up(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, how: str
) -> None:
    """The record waits for the metadata of its topic, so that no batch has it."""
    topic, late = make_topic(bootstrap, fresh_name("topic")), make_topic(bootstrap, fresh_name("late"))
    name = fresh_name("txn")
    producer = Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name)
    await producer.start()
    await producer.init_transactions()
    await producer.partitions_for(topic)
    await producer.begin_transaction()
    await producer.send(topic, b"one")
    proxy.hold(MetadataRequest, 60.0)
    delivery = producer.send(late, b"two")
    committing = asyncio.create_task(producer.commit_transaction())
    await asyncio.sleep(0)  # it waits for the record
    if how == "late":
        await producer.close(0.05)
    else:
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
    with pytest.raises(KafkaError):
        await committing
    with pytest.raises(KafkaError):
        delivery.result()
    async with Producer(FAST, bootstrap_servers=bootstrap, transactional_id=name) as successor:
        await successor.init_transactions()
    assert values(bootstrap, topic) == values(bootstrap, late) == []


async def test_an_initialisation_that_has_waited_takes_no_record_from_the_next_transaction(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic, late = make_topic(bootstrap, fresh_name("topic")), make_topic(bootstrap, fresh_name("late"))
    async with Producer(
        FAST, bootstrap_servers=proxy.address, transactional_id=fresh_name("txn"), max_block_ms=60_000
    ) as producer:
        await producer.init_transactions()
        await producer.partitions_for(topic)
        await producer.begin_transaction()
        proxy.hold(ProduceRequest, 0.5)
        producer.send(topic, b"aborted")
        while not proxy.seen["Produce"]:
            await asyncio.sleep(0.01)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        assert producer._transactions is not None
        producer._transactions.manager.fail_abortable(ErrorCode.MESSAGE_TOO_LARGE)
        initialising = asyncio.create_task(producer.init_transactions())
        with pytest.raises(AbortableError):
            await committing
        await producer.abort_transaction()
        await producer.begin_transaction()
        proxy.hold(MetadataRequest, 0.3)
        producer.send(late, b"one")
        with pytest.raises(IllegalStateError):
            await initialising
        await producer.commit_transaction()
    assert values(bootstrap, late) == [b"one"]
