"""What could not be done at once is done later, without a restart: markers, repairs at start, reading the state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog.broker.coordinator.transaction.state import TopicPartition, TransactionState, TransactionVersion
from oncelog.broker.coordinator.transaction.state_manager import TransactionStateManager
from oncelog.broker.partitions.markers import Marker
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.transaction_ports import CoordinatorWorld

P0, P1 = ("t", 0), ("t", 1)
TV1 = TransactionVersion.TV_0


def world() -> CoordinatorWorld:
    settings: Any = {"transaction.retry.backoff.ms": 1, "transaction.retry.backoff.max.ms": 2}
    return CoordinatorWorld(**settings)


async def begin(w: CoordinatorWorld, *partitions: TopicPartition) -> ProducerIdentity:
    who = await w.coordinator.init_producer_id("id", 60_000)
    await w.coordinator.registration.add_partitions("id", *who, partitions)
    return who


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def events(w: CoordinatorWorld, name: str) -> int:
    return sum(entry["event"] == name for entry in w.logs)


class TestMarkers:
    async def test_unexpected_error_does_not_hold_up_an_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with world() as w:
            who = await begin(w, P0, P1)
            write, broken = w.partitions.write_markers, [True]

            async def failing(markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
                if broken[0] and any(P1 in marker.partitions for marker in markers):
                    w.partitions.written.append(Marker(0, 0, 0, True, []))
                    raise RuntimeError("a bug")
                return await write(markers)

            monkeypatch.setattr(w.partitions, "write_markers", failing)
            await w.coordinator.end_txn("id", *who, True, TV1)
            await until(lambda: len(w.partitions.written) > 8)
            assert w.coordinator.describe("id").state is TransactionState.PREPARE_COMMIT
            assert w.partitions.logs[P0].events, "the other partition does not wait"
            broken[0] = False
            await until(lambda: w.coordinator.describe("id").state is TransactionState.COMPLETE_COMMIT)
            assert (events(w, "marker_failed"), events(w, "marker_not_written")) == (1, 1), "not at each attempt"
            assert [entry["exc_info"] for entry in w.logs if entry["event"] == "marker_failed"]
            assert len(w.partitions.logs[P0].events) == 1, "what is written is not written again"

    async def test_completion_that_fails_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        complete, left = TransactionStateManager.complete, [3]

        def failing(self: TransactionStateManager, entry: object, new: TransactionMetadata) -> None:
            if left[0]:
                left[0] -= 1
                raise RuntimeError("a bug")
            complete(self, entry, new)  # type: ignore[arg-type]

        monkeypatch.setattr(TransactionStateManager, "complete", failing)
        async with world() as w:
            who = await begin(w, P0)
            await w.coordinator.end_txn("id", *who, False, TV1)
            await until(lambda: w.coordinator.describe("id").state is TransactionState.COMPLETE_ABORT)
            assert events(w, "transaction_not_completed") == 1
            assert len(w.partitions.written) == 1

    async def test_partition_that_takes_no_marker_is_told_once_until_it_changes(self) -> None:
        async with world() as w:
            who = await begin(w, P0)
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.coordinator.end_txn("id", *who, True, TV1)
            await until(lambda: len(w.partitions.written) > 8)
            w.partitions.fail[P0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            await until(lambda: events(w, "marker_not_written") == 2)
            w.partitions.fail.clear()
            await until(lambda: w.coordinator.describe("id").state is TransactionState.COMPLETE_COMMIT)
            assert (events(w, "marker_not_written"), events(w, "marker_written_at_last")) == (2, 1)

    @pytest.mark.parametrize("commit", [True, False])
    async def test_a_marker_that_an_open_transaction_refuses_does_not_count_as_written(self, commit: bool) -> None:
        async with world() as w:
            who = await begin(w, P0, P1)
            w.partitions.produce(P0, *who, "decided")
            w.partitions.produce(P1, who.producer_id, who.producer_epoch + 5, "unknown to the coordinator")
            await w.coordinator.end_txn("id", *who, commit, TV1)
            await until(lambda: w.coordinator.describe("id").state.is_complete)
            assert w.partitions.logs[P0].decisions() == {"decided": {commit}}
            assert w.partitions.logs[P1].decisions() == {"unknown to the coordinator": {False}}
            assert events(w, "marker_refused_by_open_transaction") == 1


class TestRepairs:
    async def test_marker_that_cannot_be_written_at_start_is_written_as_soon_as_it_can(self) -> None:
        async with world() as w:
            w.partitions.produce(P0, 77, 3, "orphan")
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.restart()
            await until(lambda: len(w.partitions.written) > 8)
            assert w.partitions.logs[P0].decisions() == {}
            w.partitions.fail.clear()
            await until(lambda: w.partitions.logs[P0].decisions() == {"orphan": {False}})
            await until(lambda: events(w, "open_transactions_repaired") == 1)
            told = [entry["written"] for entry in w.logs if entry["event"] == "open_transaction_ended_at_start"]
            assert told == [False, True]

    async def test_nothing_is_retried_after_the_stop(self) -> None:
        async with world() as w:
            w.partitions.produce(P0, 77, 3, "orphan")
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.restart()
            await w.coordinator.stop()
            written = len(w.partitions.written)
            await asyncio.sleep(0.02)
            assert len(w.partitions.written) == written
            assert not [task for task in asyncio.all_tasks() if task.get_name() == "repair-open-transactions"]

    async def test_a_late_repair_cannot_end_the_producers_next_transaction(self) -> None:
        async with world() as w:
            who = await begin(w, P1)
            w.partitions.produce(P0, *who, "stray")
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.restart()
            with pytest.raises(KafkaError) as raised:
                await w.coordinator.registration.add_partitions("id", *who, [P0])
            assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
            assert w.coordinator.registration.verify("id", *who, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
            w.partitions.fail.clear()
            await until(lambda: w.partitions.logs[P0].decisions() == {"stray": {False}})
            await until(lambda: not w.coordinator.maintenance.is_repairing(who.producer_id, [P0]))
            await w.coordinator.registration.add_partitions("id", *who, [P0])
            w.partitions.produce(P0, *who, "next")
            await w.coordinator.end_txn("id", *who, True, TV1)
            await until(lambda: w.coordinator.describe("id").state is TransactionState.COMPLETE_COMMIT)
            assert w.partitions.logs[P0].decisions() == {"stray": {False}, "next": {True}}

    async def test_state_that_is_unreadable_for_a_moment_is_read_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with world() as w:
            who = await begin(w, P0)
            await w.coordinator.end_txn("id", *who, True, TV1)
            w.partitions.produce(P1, who.producer_id, who.producer_epoch, "unregistered")
            w.partitions.produce(P1, 77, 3, "orphan")
            replay, readings = w.log.replay, [0]

            def failing(partition: int) -> Iterator[bytes]:
                readings[0] += 1
                if readings[0] < 6:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")
                return replay(partition)

            monkeypatch.setattr(w.log, "replay", failing)
            await w.restart()
            with pytest.raises(KafkaError) as raised:
                await w.coordinator.init_producer_id("id", 60_000)
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert w.partitions.logs[P1].decisions() == {}, "nothing is concluded from what can't be read"
            await until(lambda: len(w.partitions.logs[P1].decisions()) == 2)
            assert w.partitions.logs[P1].decisions()["orphan"] == {False}
            assert events(w, "transaction_state_unreadable") == 1
            assert (await w.coordinator.init_producer_id("id", 60_000)).producer_id == who.producer_id

    async def test_what_is_known_is_repaired_although_other_state_is_unreadable(self) -> None:
        async with world() as w:
            who = await begin(w, P0)
            w.partitions.produce(P1, who.producer_id, who.producer_epoch, "stray")
            w.partitions.produce(P1, 77, 3, "unknown")
            partition = (w.log.partition_for("id") + 1) % w.log.partitions
            w.log.append(partition, [(b"\x00\x00garbage", b"\x00\x63garbage")], timestamp_ms=0)
            await w.restart()
            assert w.partitions.logs[P1].decisions() == {"stray": {False}}

    async def test_decision_in_state_read_later_is_carried_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with world() as w:
            who = await begin(w, P0)
            w.partitions.produce(P0, *who, "decided")
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.coordinator.end_txn("id", *who, True, TV1)
            replay, readable = w.log.replay, [False]

            def failing(partition: int) -> Iterator[bytes]:
                if not readable[0]:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")
                return replay(partition)

            monkeypatch.setattr(w.log, "replay", failing)
            await w.restart()
            w.partitions.fail.clear()
            assert w.partitions.logs[P0].decisions() == {}
            readable[0] = True
            await until(lambda: w.partitions.logs[P0].decisions() == {"decided": {True}})


async def test_one_id_that_cannot_be_timed_out_does_not_keep_the_others_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        for tid in ("bad", "good"):
            who = await w.coordinator.init_producer_id(tid, 1000)
            await w.coordinator.registration.add_partitions(tid, *who, [P0])
        w.clock.advance(2000)
        transition = TransactionStateManager.transition

        def failing(self: TransactionStateManager, entry: object, new: TransactionMetadata) -> object:
            if new.transactional_id == "bad":
                raise RuntimeError("a bug")
            return transition(self, entry, new)  # type: ignore[arg-type]

        monkeypatch.setattr(TransactionStateManager, "transition", failing)
        run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()))
        await until(lambda: w.coordinator.describe("good").state is TransactionState.COMPLETE_ABORT)
        assert w.coordinator.describe("bad").state is TransactionState.ONGOING


class TestTimeouts:
    async def test_abort_that_cannot_be_written_is_tried_again_soon(self) -> None:
        settings: Any = {"transaction.retry.backoff.ms": 50, "transaction.retry.backoff.max.ms": 150}
        async with CoordinatorWorld(**settings) as w:
            await begin(w, P0)
            w.clock.advance(60_001)
            w.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            pauses = []
            for _ in range(4):
                now_ms = w.clock.now_ms()
                again_ms = run_at_once(w.coordinator.maintenance.abort_timed_out(now_ms))
                assert again_ms is not None
                pauses.append(again_ms - now_ms)
                w.clock.advance(again_ms - now_ms)
            assert pauses == [50, 100, 150, 150]
            w.log.refuse = None
            assert run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms())) is None
            await until(lambda: w.coordinator.describe("id").state is TransactionState.COMPLETE_ABORT)
            await w.coordinator.init_producer_id("id", 60_000)
            await begin(w, P0)
            w.clock.advance(60_001)
            w.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            assert run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms())) == w.clock.now_ms() + 50, (
                "a new series"
            )
