"""Sessions and fencing at the coordinator, on simulated ports: what opens, what gets a marker, what survives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity, Step
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.coordinator.transaction.fencing import FenceOutcome
from oncelog.broker.coordinator.transaction.state import TopicPartition, TransactionState, TransactionVersion
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.batch_limit import limit_batches
from support.transaction_ports import CoordinatorWorld, settle

S = TransactionState
TV1, TV2 = TransactionVersion.TV_0, TransactionVersion.TV_2
A, B, C = ("t", 0), ("t", 1), ("u", 0)
OPERATOR = Cause("FenceProducers", "admin", "10.0.0.1")


def world(**settings: Any) -> CoordinatorWorld:
    return CoordinatorWorld(**settings)


def state_of(w: CoordinatorWorld) -> TransactionState:
    return w.coordinator.describe("id").state


def events(w: CoordinatorWorld, name: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in w.logs if entry["event"] == name]


async def code_of(awaitable: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await awaitable
    return raised.value.code


def write(w: CoordinatorWorld, who: ProducerIdentity, partition: TopicPartition, number: object) -> None:
    """Append a batch the way Produce does: admitted, appended and said, in one step."""
    assert w.coordinator.registration.admit_now("id", *who, partition, registers=False) is None
    w.partitions.produce(partition, *who, number)
    w.coordinator.registration.wrote("id", partition)


async def session(w: CoordinatorWorld, *partitions: TopicPartition, version: TransactionVersion) -> ProducerIdentity:
    """A session of these partitions after a first transaction that wrote all of them."""
    who = await w.coordinator.init_producer_id("id", 60_000)
    await w.coordinator.registration.add_partitions("id", *who, partitions)
    for partition in partitions:
        write(w, who, partition, 0)
    who = await end(w, who, *partitions, version=version)
    await settle()
    w.partitions.written.clear()
    return who


async def end(
    w: CoordinatorWorld,
    who: ProducerIdentity,
    *named: TopicPartition,
    commit: bool = True,
    version: TransactionVersion = TV2,
) -> ProducerIdentity:
    return await w.coordinator.end_txn("id", *who, commit, version, written=frozenset(named), keeps_session=True)


def marked(w: CoordinatorWorld) -> list[TopicPartition]:
    return [partition for marker in w.partitions.written for partition in marker.partitions]


class TestOpening:
    @pytest.mark.parametrize("version", [TV1, TV2])
    async def test_a_batch_opens_the_next_transaction_with_one_record(self, version: TransactionVersion) -> None:
        async with world() as w:
            who = await session(w, A, B, version=version)
            records = len(w.log.records)
            w.clock.advance(10_000)
            assert w.coordinator.registration.admit_now("id", *who, A, registers=version is TV2) is None, (
                "simulated disks are quick"
            )
            opened = w.coordinator.describe("id")
            assert (opened.state, opened.topic_partitions) == (S.ONGOING, frozenset({A, B}))
            assert opened.start_timestamp_ms == w.clock.now_ms()
            assert len(w.log.records) == records + 2, "COMPLETE_COMMIT and ONGOING, in one batch"
            write(w, who, A, 1)
            write(w, who, B, 1)
            assert len(w.log.records) == records + 2, "the session's partitions need no further record"
            await end(w, who, A, B, version=version)
            assert len(w.log.records) == records + 3

    async def test_nothing_is_admitted_before_the_opening_is_durable(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, B, version=TV1)
            w.log.disk.flush_on_ask = False
            opening = w.coordinator.registration.admit_now("id", *who, A, registers=False)
            assert isinstance(opening, asyncio.Future)
            assert w.coordinator.registration.admit_now("id", *who, B, registers=False) is Step.WAIT, (
                "behind the same opening"
            )
            assert w.coordinator.registration.verify("id", *who, A) is not ErrorCode.NONE
            w.log.disk.flush()
            await opening
            write(w, who, A, 1)
            write(w, who, B, 1)

    async def test_who_comes_to_wait_for_what_is_over_does_not_wait(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, version=TV1)
            w.log.disk.flush_on_ask = False
            opening = w.coordinator.registration.admit_now("id", *who, A, registers=False)
            assert w.coordinator.registration.admit_now("id", *who, A, registers=False) is Step.WAIT
            w.log.disk.flush()
            assert isinstance(opening, asyncio.Future)
            await opening
            # Nobody will wake it any more: the end of the transition came before the request was parked.
            waiting = asyncio.ensure_future(w.coordinator.until_settled("id", w.coordinator.wait_deadline(), OPERATOR))
            await settle()
            assert waiting.done()
            assert not events(w, "request_waited")

    async def test_outside_of_the_session_an_older_batch_is_refused_at_once(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV1)
            with pytest.raises(KafkaError) as raised:
                w.coordinator.registration.admit_now("id", *who, B, registers=False)
            assert raised.value.code is ErrorCode.TRANSACTION_ABORTABLE
            assert state_of(w) is S.COMPLETE_COMMIT, "nothing was opened"

    async def test_it_waits_while_the_transaction_before_is_incomplete(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, version=TV1)
            write_now = w.coordinator.registration.admit_now("id", *who, A, registers=False)
            assert write_now is None
            write(w, who, A, 1)
            w.partitions.flush_on_ask = False
            await end(w, who, A, version=TV1)
            await settle()
            assert state_of(w) is S.PREPARE_COMMIT
            assert w.coordinator.registration.admit_now("id", *who, A, registers=False) is Step.WAIT
            with pytest.raises(KafkaError) as raised:
                w.coordinator.registration.admit_now("id", *who, B, registers=False)
            assert raised.value.code is ErrorCode.INVALID_TXN_STATE, "outside of the session it is late by definition"
            w.partitions.flush()
            await settle()
            assert w.coordinator.registration.admit_now("id", *who, A, registers=False) is None

    async def test_a_late_repair_in_the_session_cannot_end_the_next_transaction(self) -> None:
        """The transaction includes the whole session: it can't begin while one of its partitions is being repaired."""
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *who, [A, B], session=True)
            who = await end(w, who)
            who = await end(w, who, commit=False)
            await settle()
            w.partitions.produce(B, who.producer_id, 0, "older")
            w.partitions.fail[B] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.restart()
            with pytest.raises(KafkaError) as raised:
                w.coordinator.registration.admit_now("id", *who, A, registers=False)
            assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
            w.partitions.fail.clear()
            async with asyncio.timeout(60):
                while w.coordinator.maintenance.is_repairing(who.producer_id, [B]):
                    await asyncio.sleep(0.001)
            assert w.coordinator.registration.admit_now("id", *who, A, registers=False) is None
            assert w.partitions.logs[B].decisions()["older"] == {False}

    async def test_a_deleted_topic_drops_out(self) -> None:
        async with world() as w:
            who = await session(w, A, C, version=TV2)
            w.partitions.deleted.add(C)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            opened = w.coordinator.describe("id")
            assert (opened.topic_partitions, opened.session_partitions) == (frozenset({A}), frozenset({A}))


class TestMarkers:
    async def test_they_go_where_something_was_written(self) -> None:
        async with world() as w:
            who = await session(w, A, B, C, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            write(w, who, B, 1)
            await end(w, who, A)
            await settle()
            assert marked(w) == [A, B], "B is known to be written although not named; C was registered only"
            assert w.coordinator.describe("id").session_partitions == {A, B}

    async def test_without_topics_every_registered_partition_gets_one(self) -> None:
        async with world() as w:
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            await w.coordinator.end_txn("id", *who, True, TV2)
            await settle()
            assert marked(w) == [A, B]
            assert w.coordinator.describe("id").session_partitions == {A, B}

    async def test_a_partition_outside_changes_nothing(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            before = w.coordinator.describe("id")
            records = len(w.log.records)
            assert await code_of(end(w, who, A, C)) is ErrorCode.INVALID_REQUEST
            assert w.coordinator.describe("id") == before
            assert len(w.log.records) == records
            await end(w, who, A)

    @pytest.mark.parametrize("who_registers", ["another broker", "a verifying broker"])
    async def test_a_leader_that_appends_next_counts_as_having_written(self, who_registers: str) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            if who_registers == "another broker":
                await w.coordinator.registration.add_partitions("id", *who, [A, B], writes=True)
            else:
                await w.coordinator.registration.add_partitions("id", *who, [A, B])
                verified = w.coordinator.registration.verify_all("id", *who, [A, B, C])
                assert [verified.code_of(partition) for partition in (A, B, C)] == [
                    ErrorCode.NONE,
                    ErrorCode.NONE,
                    ErrorCode.TRANSACTION_ABORTABLE,
                ]
            await end(w, who)
            await settle()
            assert marked(w) == [A, B]

    async def test_after_a_restart_every_partition_of_the_record_counts(self) -> None:
        async with world() as w:
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, B, 1)
            await w.restart()
            await end(w, who)
            await settle()
            assert marked(w) == [A, B]
            assert w.partitions.logs[B].open_by_producer() == {}

    async def test_what_is_added_after_a_restart_does_not_hide_what_was_there(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            await w.restart()
            await w.coordinator.registration.add_partitions("id", *who, [B], TV2)
            await end(w, who, B)
            await settle()
            assert marked(w) == [A, B]

    async def test_a_timeout_marks_every_partition_of_the_record(self) -> None:
        async with world() as w:
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            w.clock.advance(60_001)
            run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()))
            await settle()
            assert marked(w) == [A, B]
            assert w.coordinator.describe("id").session_partitions == frozenset()

    async def test_the_record_of_the_decision_is_the_marker_set_also_after_a_restart(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            w.partitions.flush_on_ask = False
            await end(w, who, A)
            await settle()
            w.partitions.written.clear()
            await w.crash()
            assert w.coordinator.describe("id").topic_partitions == {A}
            w.partitions.flush()
            await settle()
            assert marked(w) == [A]
            assert w.coordinator.describe("id").session_partitions == {A}

    async def test_a_failed_decision_forgets_nothing_that_was_written(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, B, 1)
            w.log.disk.flush_on_ask = False
            ending = asyncio.ensure_future(end(w, who))
            await settle()
            w.log.disk.fail()
            assert await code_of(ending) is ErrorCode.NOT_COORDINATOR
            w.log.disk.flush_on_ask = True
            await end(w, who)
            await settle()
            assert marked(w) == [B]


class TestItsEnd:
    @pytest.mark.parametrize(
        ("version", "commit", "survives"),
        [(TV2, True, True), (TV2, False, True), (TV1, True, True), (TV1, False, False)],
    )
    async def test_with_an_end_of_each_kind(self, version: TransactionVersion, commit: bool, survives: bool) -> None:
        async with world() as w:
            who = await session(w, A, version=version)
            await w.coordinator.registration.add_partitions("id", *who, [A], version)
            write(w, who, A, 1)
            who = await end(w, who, A, commit=commit, version=version)
            await settle()
            assert w.coordinator.describe("id").session_partitions == ({A} if survives else frozenset())
            if survives:
                assert w.coordinator.registration.admit_now("id", *who, A, registers=False) is None
            else:
                with pytest.raises(KafkaError) as raised:
                    w.coordinator.registration.admit_now("id", *who, A, registers=False)
                assert raised.value.code is ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("by", ["abort", "timeout", "fence", "init"])
    async def test_what_comes_later_from_an_older_client_is_told_so(self, by: str) -> None:
        async with world() as w:
            who = await session(w, A, version=TV1)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV1)
            if by == "abort":
                await end(w, who, A, commit=False, version=TV1)
            elif by == "timeout":
                w.clock.advance(60_001)
                run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()))
            elif by == "fence":
                await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            else:
                await w.coordinator.init_producer_id("id", 60_000)
            await settle()
            for partition in (A, B):
                with pytest.raises(KafkaError) as raised:
                    w.coordinator.registration.admit_now("id", *who, partition, registers=False)
                assert raised.value.code is ErrorCode.INVALID_TXN_STATE
            assert state_of(w) is not S.ONGOING

    async def test_an_older_client_may_abort_before_its_first_batch_came(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV1)
            assert await end(w, who, A, commit=False, version=TV1) == who
            await settle()
            assert (state_of(w), marked(w)) == (S.COMPLETE_ABORT, [A])
            with pytest.raises(KafkaError):
                w.coordinator.registration.admit_now("id", *who, A, registers=False)

    @pytest.mark.parametrize("ongoing", [True, False])
    async def test_below_the_level_it_is_aborted_at_start(self, ongoing: bool) -> None:
        async with world() as w:
            who = await session(w, A, B, version=TV2)
            if ongoing:
                await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
                write(w, who, A, 1)
            w.group_aware = False
            await w.restart()
            after = w.coordinator.describe("id")
            assert after.session_partitions == frozenset()
            assert after.state is (S.COMPLETE_ABORT if ongoing else S.COMPLETE_COMMIT)
            assert after.producer_epoch == who.producer_epoch + ongoing
            assert w.partitions.logs[A].open_by_producer() == {}
            assert marked(w) == ([A, B] if ongoing else []), "each marker is written once"
            assert not events(w, "transaction_not_completed")
            with pytest.raises(KafkaError):
                w.coordinator.registration.admit_now("id", *who, A, registers=False)
            (said,) = events(w, "session_ended")
            assert "inter.broker.protocol.version" in said["reason"]

    async def test_below_the_level_a_decided_transaction_is_completed_as_decided(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, 1)
            w.partitions.flush_on_ask = False
            await end(w, who, A)
            await settle()
            w.group_aware = False
            await w.crash()
            await settle()
            w.partitions.flush()
            await settle()
            after = w.coordinator.describe("id")
            assert (after.state, after.session_partitions) == (S.COMPLETE_COMMIT, frozenset())


class TestFence:
    async def test_an_idle_id(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            outcome = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert outcome == FenceOutcome(who.producer_id, 0, 1, aborted=False)
            assert (
                await code_of(w.coordinator.registration.add_partitions("id", *who, [A])) is ErrorCode.PRODUCER_FENCED
            )
            again = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert again == FenceOutcome(who.producer_id, 1, 1, aborted=False)
            await w.restart()
            assert (
                await code_of(w.coordinator.registration.add_partitions("id", *who, [A])) is ErrorCode.PRODUCER_FENCED
            )

    async def test_nobody_holds_an_unknown_id(self) -> None:
        async with world() as w:
            assert await w.coordinator.fencing.fence("?", cause=OPERATOR, reason="operator") is None

    async def test_an_ongoing_transaction_is_aborted_and_complete_when_it_returns(self) -> None:
        async with world() as w:
            who = await session(w, A, B, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, "open")
            outcome = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert outcome == FenceOutcome(who.producer_id, who.producer_epoch, who.producer_epoch + 1, aborted=True)
            assert w.partitions.logs[A].decisions()["open"] == {False}
            assert marked(w) == [A, B]
            for epoch in (who.producer_epoch, who.producer_epoch + 1):
                for commit in (True, False):
                    answer = w.coordinator.end_txn("id", who.producer_id, epoch, commit, TV2)
                    assert await code_of(answer) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("version", [TV1, TV2])
    async def test_a_decided_transaction_is_completed_as_decided(self, version: TransactionVersion) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = w.partitions.flush_on_ask = True
            who = await session(w, A, version=version)
            await w.coordinator.registration.add_partitions("id", *who, [A], version)
            write(w, who, A, "decided")
            w.partitions.flush_on_ask = False
            told = await end(w, who, A, version=version)
            fencing = asyncio.ensure_future(w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator"))
            await settle()
            assert not fencing.done()
            w.partitions.flush()
            outcome = await fencing
            assert outcome == FenceOutcome(who.producer_id, told.producer_epoch, told.producer_epoch + 1, aborted=False)
            assert w.partitions.logs[A].decisions()["decided"] == {True}
            assert await code_of(w.coordinator.end_txn("id", *told, False, TV2)) is ErrorCode.PRODUCER_FENCED

    async def test_a_retry_waits_for_the_rest_and_bumps_nothing(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            write(w, who, A, "open")
            w.partitions.fail[A] = ErrorCode.KAFKA_STORAGE_ERROR
            loop = asyncio.get_running_loop()
            for _ in range(3):
                call = w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator", deadline=loop.time() + 0.01)
                assert await code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert w.coordinator.describe("id").producer_epoch == who.producer_epoch + 1, "one bump"
            w.partitions.fail.clear()
            outcome = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert outcome is not None
            assert outcome.epoch_after == who.producer_epoch + 1
            assert len(events(w, "producer_fenced")) == 1

    async def test_two_at_once_bump_once(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *who, [A])
            w.log.disk.flush_on_ask = False
            calls = [
                asyncio.ensure_future(w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator"))
                for _ in range(2)
            ]
            for _ in range(4):
                await settle()
                w.log.disk.flush()
                w.partitions.flush()
            outcomes = [await call for call in calls]
            assert {outcome.epoch_after for outcome in outcomes if outcome is not None} == {1}
            assert [outcome.aborted for outcome in outcomes if outcome is not None] == [True, False]

    async def test_it_takes_no_place_among_parked_requests(self) -> None:
        async with world(**{"transaction.pending.wait.max.requests": 0}) as w:
            who = await session(w, A, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            outcome = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert outcome is not None
            assert outcome.aborted

    async def test_the_holder_after_an_initialisation_is_left_alone_by_nobody_but_the_next_fence(self) -> None:
        async with world() as w:
            await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            new = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *new, [A])
            outcome = await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            assert outcome is not None
            assert outcome.epoch_after == new.producer_epoch + 1


class TestWhoHasAProducerId:
    async def test_now_and_before(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            assert w.coordinator.transactional_id_of(who.producer_id) == "id"
            assert w.coordinator.transactional_id_of(-1) is None
            assert w.coordinator.transactional_id_of(99) is None
            entry = w.coordinator.state.get("id")
            assert entry is not None
            object.__setattr__(entry.metadata, "producer_epoch", 32766)
            new = await w.coordinator.init_producer_id("id", 60_000)
            assert new.producer_id != who.producer_id
            for _ in range(2):
                assert w.coordinator.transactional_id_of(who.producer_id) == "id"
                assert w.coordinator.transactional_id_of(new.producer_id) == "id"
                await w.restart()

    async def test_nobody_after_the_id_expired(self) -> None:
        forgotten: list[str] = []
        async with world() as w:
            w.coordinator.on_transactional_id_expired.append(forgotten.append)
            who = await w.coordinator.init_producer_id("id", 60_000)
            w.clock.advance(604_800_000)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            assert w.coordinator.transactional_id_of(who.producer_id) is None
        assert forgotten == ["id"]


class TestEvents:
    """Each says why, who, by which request, and the epochs before and after; and counts."""

    CLIENT = Cause("EndTxn", "billing", "10.0.0.7")

    async def test_fence_and_abort(self) -> None:
        async with world() as w:
            who = await session(w, A, version=TV2)
            await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
            await w.coordinator.fencing.fence("id", cause=OPERATOR, reason="operator")
            (fenced,) = events(w, "producer_fenced")
            (aborted,) = events(w, "transaction_aborted")
            for said in (fenced, aborted):
                assert (said["reason"], said["request"]) == ("operator", "FenceProducers")
                assert (said["client_id"], said["host"]) == ("admin", "10.0.0.1")
                assert (said["transactional_id"], said["producer_id"]) == ("id", who.producer_id)
                assert (said["epoch_before"], said["epoch_after"]) == (who.producer_epoch, who.producer_epoch + 1)
            assert w.metrics.value("oncelog_transaction_fences_total", "operator") == 1
            assert w.metrics.value("oncelog_transactions_ended_total", "abort", "operator") == 1
            assert w.metrics.value("oncelog_transactions_ended_total", "commit", "EndTxn") == 1

    async def test_a_new_instance_fences_once_even_when_it_has_to_abort_first(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *who, [A])
            cause = Cause("InitProducerId", "second", "10.0.0.2")
            await w.coordinator.init_producer_id("id", 60_000, cause=cause)
            (fenced,) = events(w, "producer_fenced")
            assert (fenced["epoch_before"], fenced["epoch_after"], fenced["client_id"]) == (0, 2, "second")
            (aborted,) = events(w, "transaction_aborted")
            assert (aborted["epoch_before"], aborted["epoch_after"], aborted["client_id"]) == (0, 1, "second")

    async def test_timeout(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *who, [A])
            w.clock.advance(60_001)
            run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()))
            for name in ("producer_fenced", "transaction_aborted"):
                (said,) = events(w, name)
                assert (said["reason"], said["timeout_ms"]) == ("transaction timeout", 60_000)
                assert (said["epoch_before"], said["epoch_after"]) == (0, 1)
                assert (said["client_id"], said["host"]) == (None, None)

    async def test_expiry(self) -> None:
        async with world() as w:
            await w.coordinator.init_producer_id("id", 60_000)
            w.clock.advance(604_800_000)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            (said,) = events(w, "transactional_id_expired")
            assert (said["reason"], said["idle_ms"]) == ("transactional id expiration", 604_800_000)
            assert w.metrics.value("oncelog_transactional_ids_expired_total") == 1

    @pytest.mark.parametrize(("max_ms", "outcome"), [(20, "gave_up"), (60_000, "done"), (60_000, "closed")])
    async def test_wait(self, max_ms: int, outcome: str) -> None:
        async with world(flush_on_ask=False, **{"transaction.pending.wait.max.ms": max_ms}) as w:
            w.log.disk.flush_on_ask = True
            who = await w.coordinator.init_producer_id("id", 60_000)
            await w.coordinator.registration.add_partitions("id", *who, [A])
            await w.coordinator.end_txn("id", *who, True, TV1)
            call = asyncio.ensure_future(w.coordinator.end_txn("id", *who, True, TV1, by=self.CLIENT))
            await settle()
            assert w.metrics.value("oncelog_transaction_requests_parked") == 1
            if outcome == "done":
                w.partitions.flush()
                await call
            elif outcome == "closed":
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            else:
                assert await code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS
                (said,) = events(w, "request_waited")
                assert (said["request"], said["client_id"], said["host"]) == self.CLIENT
                assert (said["reason"], said["outcome"]) == ("PrepareCommit is incomplete", "gave_up")
                assert said["waited_ms"] >= 20
                assert said["epoch_before"] == who.producer_epoch
            assert w.metrics.value("oncelog_transaction_wait_seconds", "EndTxn", outcome) == 1
            assert w.metrics.value("oncelog_transaction_requests_parked") == 0
            w.partitions.flush()

    async def test_refusal(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            new = await w.coordinator.init_producer_id("id", 60_000)
            w.logs.clear()
            assert await code_of(w.coordinator.end_txn("id", *who, True, TV1, by=self.CLIENT))
            (said,) = w.logs
            assert (said["event"], said["code"], said["request"]) == ("request_refused", "PRODUCER_FENCED", "EndTxn")
            assert (said["client_id"], said["host"]) == ("billing", "10.0.0.7")
            assert (said["epoch_before"], said["epoch_after"]) == (who.producer_epoch, new.producer_epoch)
            assert w.metrics.value("oncelog_transaction_requests_refused_total", "EndTxn", "PRODUCER_FENCED") == 1


async def test_session_that_makes_the_record_too_large_drops_itself() -> None:
    async with world() as w:
        limit_batches(w.log)
        partitions = frozenset((f"{number:04}" + "x" * 200, 0) for number in range(3_000))
        who = await w.coordinator.init_producer_id("id", 60_000)
        for number in range(3):
            await w.coordinator.registration.add_partitions("id", *who, partitions, TV2, writes=True)
            assert w.coordinator.describe("id").session_partitions == frozenset()
            assert len(events(w, "session_dropped")) == number
            who = await w.coordinator.end_txn("id", *who, True, TV2, written=partitions, keeps_session=True)
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT
        assert {marker.commit for marker in w.partitions.written} == {True}
        few = frozenset([A, B])
        await w.coordinator.registration.add_partitions("id", *who, few, TV2, writes=True)
        await w.coordinator.end_txn("id", *who, True, TV2, written=few, keeps_session=True)
        await settle()
        assert w.coordinator.describe("id").session_partitions == few


async def test_completion_and_next_record_that_do_not_fit_together_are_written_apart() -> None:
    async with world() as w:
        limit_batches(w.log)
        partitions = frozenset((f"{number:04}" + "x" * 200, 0) for number in range(2_200))
        who = await w.coordinator.init_producer_id("id", 60_000)
        await w.coordinator.registration.add_partitions("id", *who, partitions, TV2, writes=True)
        who = await w.coordinator.end_txn("id", *who, True, TV2, written=partitions, keeps_session=True)
        await settle()
        assert w.coordinator.describe("id").session_partitions == partitions
        await w.coordinator.registration.add_partitions("id", *who, [A], TV2)
        assert state_of(w) is S.ONGOING
