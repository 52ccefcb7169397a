"""The coordinator on simulated ports: what is told when, what waits, what survives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import re2  # type: ignore[import-untyped]
from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.claims.homes import LocalTransactionHomes
from oncelog.broker.coordinator.transaction import maintenance, state_manager
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity, Step
from oncelog.broker.coordinator.transaction.queries import TransactionFilter
from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import decode_value
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.batch_limit import limit_batches
from support.transaction_ports import CoordinatorWorld, settle

S = TransactionState
TV1, TV2 = TransactionVersion.TV_0, TransactionVersion.TV_2
P0, P1 = ("t", 0), ("t", 1)


async def code_of(awaitable: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await awaitable  # type: ignore[misc]
    return raised.value.code


def world(**settings: Any) -> CoordinatorWorld:
    return CoordinatorWorld(**settings)


async def begin(w: CoordinatorWorld, *partitions: tuple[str, int], tid: str = "id") -> ProducerIdentity:
    who = await w.coordinator.init_producer_id(tid, 60_000)
    await w.coordinator.registration.add_partitions(tid, *who, partitions or (P0,))
    return who


def state_of(w: CoordinatorWorld, tid: str = "id") -> TransactionState:
    return w.coordinator.describe(tid).state


class TestInitProducerId:
    async def test_without_transactional_id_every_call_gives_a_fresh_producer_id(self) -> None:
        async with world() as w:
            ids = [await w.coordinator.init_producer_id(None, 60_000) for _ in range(2500)]
        assert [who.producer_id for who in ids] == list(range(1000, 3500))
        assert {who.producer_epoch for who in ids} == {0}

    async def test_blocks_are_fetched_ahead_so_that_nobody_waits(self) -> None:
        async with world() as w:
            for _ in range(950):
                await w.coordinator.init_producer_id(None, 60_000)
            await settle()
            assert w.metadata.blocks == 2

    async def test_block_that_cannot_be_made_durable_is_not_used(self) -> None:
        async with world() as w:
            w.metadata.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            code = await code_of(w.coordinator.init_producer_id(None, 60_000))
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            w.metadata.refuse = None
            assert await w.coordinator.init_producer_id(None, 60_000) == (1000, 0)

    @pytest.mark.parametrize(
        ("tid", "timeout_ms", "code"),
        [
            ("", 60_000, ErrorCode.INVALID_REQUEST),
            ("x" * 1001, 60_000, ErrorCode.INVALID_REQUEST),
            ("é" * 501, 60_000, ErrorCode.INVALID_REQUEST),
            ("id", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ("id", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ("id", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    async def test_invalid_requests(self, tid: str, timeout_ms: int, code: ErrorCode) -> None:
        async with world() as w:
            assert await code_of(w.coordinator.init_producer_id(tid, timeout_ms)) is code

    async def test_known_id_is_served_whatever_its_length(self) -> None:
        async with world() as w:
            first = await w.coordinator.init_producer_id("x" * 1000, 60_000)
            w.config = BrokerConfig({"transactional.id.max.bytes": 4})
            await w.restart()
            again = await w.coordinator.init_producer_id("x" * 1000, 60_000)
            assert again.producer_id == first.producer_id
            assert await code_of(w.coordinator.init_producer_id("longer", 60_000)) is ErrorCode.INVALID_REQUEST

    async def test_ongoing_transaction_is_aborted_before_the_answer_and_its_epoch_fenced(self) -> None:
        async with world() as w:
            old = await begin(w, P0, P1)
            new = await w.coordinator.init_producer_id("id", 60_000)
            assert new == (old.producer_id, old.producer_epoch + 2)
            (marker,) = w.partitions.written
            assert (marker.commit, marker.producer_epoch, marker.partitions) == (False, 1, [P0, P1])
            assert await code_of(w.coordinator.end_txn("id", *old, True, TV1)) is ErrorCode.PRODUCER_FENCED

    async def test_recovering_producer_keeps_its_id_when_its_own_transaction_has_to_be_aborted(self) -> None:
        async with world() as w:
            old = await begin(w)
            assert await w.coordinator.init_producer_id("id", 60_000, old) == (old.producer_id, 2)

    async def test_waits_no_longer_than_the_bound_for_a_partition_that_takes_no_marker(self) -> None:
        async with world(**{"transaction.pending.wait.max.ms": 30}) as w:
            await begin(w)
            w.partitions.fail[P0] = ErrorCode.KAFKA_STORAGE_ERROR
            call = w.coordinator.init_producer_id("id", 60_000)
            assert await code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert w.coordinator.describe("id").producer_epoch == 1
            again = w.coordinator.init_producer_id("id", 60_000)
            assert await code_of(again) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert w.coordinator.describe("id").producer_epoch == 1, "a retry does not bump again"

    async def test_two_instances_at_once_get_two_epochs(self) -> None:
        async with world(flush_on_ask=False) as w:
            calls = [asyncio.ensure_future(w.coordinator.init_producer_id("id", 60_000)) for _ in range(2)]
            for _ in range(3):
                await settle()
                w.log.disk.flush()
            assert sorted([(await call).producer_epoch for call in calls]) == [0, 1]


class TestDurability:
    async def test_nobody_is_told_before_the_record_is_durable(self) -> None:
        async with world(flush_on_ask=False) as w:
            call = asyncio.ensure_future(w.coordinator.init_producer_id("id", 60_000))
            await settle()
            assert not call.done()
            w.log.disk.flush()
            assert (await call).producer_epoch == 0

    async def test_no_marker_before_the_decision_is_durable_and_no_completion_before_the_markers_are(self) -> None:
        async with world(flush_on_ask=False) as w:
            who = await self._begin(w)
            call = asyncio.ensure_future(w.coordinator.end_txn("id", *who, True, TV1))
            await settle()
            assert not call.done()
            assert w.partitions.written == []
            w.log.disk.flush()
            await settle()
            assert call.done()
            assert [marker.commit for marker in w.partitions.written] == [True]
            assert state_of(w) is S.PREPARE_COMMIT
            w.partitions.flush()
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT

    async def test_partition_is_not_registered_until_durable(self) -> None:
        async with world(flush_on_ask=False) as w:
            call = asyncio.ensure_future(w.coordinator.init_producer_id("id", 60_000))
            await settle()
            w.log.disk.flush()
            who = await call
            added = w.coordinator.registration.add_partitions_now("id", *who, [P0])
            assert isinstance(added, asyncio.Future)
            assert w.coordinator.registration.verify("id", *who, P0) is ErrorCode.TRANSACTION_ABORTABLE
            w.log.disk.flush()
            await settle()
            assert added.done()
            assert w.coordinator.registration.verify("id", *who, P0) is ErrorCode.NONE
            assert w.coordinator.registration.add_partitions_now("id", *who, [P0]) is None

    async def test_decision_is_carried_out_even_if_the_request_is_gone(self) -> None:
        async with world(flush_on_ask=False) as w:
            who = await self._begin(w)
            call = asyncio.ensure_future(w.coordinator.end_txn("id", *who, True, TV1))
            await settle()
            call.cancel()
            await settle()
            w.log.disk.flush()
            await settle()
            w.partitions.flush()
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT

    async def test_failed_flush_changes_nothing_and_tells_a_retriable_error(self) -> None:
        async with world(flush_on_ask=False) as w:
            who = await self._begin(w)
            call = asyncio.ensure_future(w.coordinator.end_txn("id", *who, True, TV1))
            await settle()
            w.log.disk.fail()
            assert await code_of(call) is ErrorCode.NOT_COORDINATOR
            assert state_of(w) is S.ONGOING
            assert w.partitions.written == []

    async def test_new_id_that_could_not_be_written_is_unknown(self) -> None:
        async with world() as w:
            w.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            assert await code_of(w.coordinator.init_producer_id("id", 60_000)) is ErrorCode.NOT_COORDINATOR
            with pytest.raises(KafkaError) as raised:
                w.coordinator.describe("id")
            assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            w.log.refuse = None
            assert (await w.coordinator.init_producer_id("id", 60_000)).producer_epoch == 0

    async def test_log_that_goes_offline_before_the_flush_is_told_as_a_failed_flush(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def offline(partition: int, end_offset: int) -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        async with world() as w:
            who = await begin(w)
            monkeypatch.setattr(w.log, "pending_flush", offline)
            assert await code_of(w.coordinator.end_txn("id", *who, True, TV1)) is ErrorCode.NOT_COORDINATOR
            assert state_of(w) is S.ONGOING
            assert await code_of(w.coordinator.init_producer_id("new", 60_000)) is ErrorCode.NOT_COORDINATOR
            with pytest.raises(KafkaError) as raised:
                w.coordinator.describe("new")
            assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert [entry["event"] for entry in w.logs].count("transaction_state_not_written") == 2
            monkeypatch.undo()
            await w.coordinator.end_txn("id", *who, True, TV1)

    async def _begin(self, w: CoordinatorWorld) -> ProducerIdentity:
        w.log.disk.flush_on_ask = True
        who = await begin(w)
        w.log.disk.flush_on_ask = False
        return who


class TestWaitingForThePreviousTransaction:
    async def test_next_transaction_waits_for_the_markers_of_the_last(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            assert w.coordinator.registration.add_partitions_now("id", *who, [P1], TV1) is Step.WAIT
            call = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *who, [P1]))
            await settle()
            assert not call.done()
            w.partitions.flush()
            await call
            assert w.coordinator.describe("id").topic_partitions == {P1}

    async def test_version_2_client_begins_with_its_new_epoch(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            next_who = await w.coordinator.end_txn("id", *who, True, TV2)
            assert next_who == (who.producer_id, who.producer_epoch + 1)
            call = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *next_who, [P0], TV2))
            await settle()
            assert not call.done()
            w.partitions.flush()
            await call
            assert w.coordinator.registration.verify("id", *next_who, P0) is ErrorCode.NONE
            late = w.coordinator.registration.add_partitions("id", *who, [P0], TV2)
            assert await code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH

    async def test_retried_commit_waits_and_is_answered_once(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            first = await w.coordinator.end_txn("id", *who, True, TV2)
            retry = asyncio.ensure_future(w.coordinator.end_txn("id", *who, True, TV2))
            await settle()
            assert not retry.done()
            w.partitions.flush()
            assert await retry == first
            assert len(w.partitions.written) == 1

    async def test_no_more_than_the_allowed_number_wait(self) -> None:
        async with world(flush_on_ask=False, **{"transaction.pending.wait.max.requests": 1}) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            parked = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *who, [P0]))
            await settle()
            refused = w.coordinator.registration.add_partitions("id", *who, [P1])
            assert await code_of(refused) is ErrorCode.CONCURRENT_TRANSACTIONS
            parked.cancel()
            await settle()
            third = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *who, [P0]))
            await settle()
            assert not third.done(), "the cancelled one has made room"
            w.partitions.flush()
            await third

    async def test_parked_request_is_judged_anew_when_it_wakes(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            fencing = asyncio.ensure_future(w.coordinator.init_producer_id("id", 60_000))
            late = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *who, [P1]))
            await settle()
            w.partitions.flush()
            await fencing
            assert await code_of(late) is ErrorCode.PRODUCER_FENCED

    async def test_older_clients_batch_after_the_decision_is_late(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            assert w.coordinator.registration.verify("id", *who, P0) is ErrorCode.INVALID_TXN_STATE
            w.partitions.flush()


class TestMarkers:
    async def test_transactions_follow_one_another_without_a_pause(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            for _ in range(20):
                assert w.coordinator.registration.add_partitions_now("id", *who, [P0], TV1) is None
                assert w.coordinator.end_txn_now("id", *who, True, TV1) == (who, None)
                while state_of(w) is not S.COMPLETE_COMMIT:
                    await asyncio.sleep(0)
            assert len(w.partitions.written) == 20

    async def test_partition_that_fails_is_retried_until_it_takes_the_marker(self) -> None:
        async with world() as w:
            who = await begin(w, P0, P1)
            w.partitions.fail[P1] = ErrorCode.KAFKA_STORAGE_ERROR
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            assert state_of(w) is S.PREPARE_COMMIT
            w.partitions.fail.clear()
            await w.coordinator.registration.add_partitions("id", *who, [P0])
            assert [marker.partitions for marker in w.partitions.written] == [[P0, P1], [P1]]

    async def test_deleted_partition_drops_out(self) -> None:
        async with world() as w:
            who = await begin(w, P0, P1)
            w.partitions.deleted.add(P1)
            await w.coordinator.end_txn("id", *who, False, TV1)
            await settle()
            assert state_of(w) is S.COMPLETE_ABORT

    async def test_abort_without_partitions_moves_the_epoch_and_writes_no_marker(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            assert await w.coordinator.end_txn("id", *who, False, TV2) == (who.producer_id, 1)
            await settle()
            assert state_of(w) is S.COMPLETE_ABORT
            assert w.partitions.written == []

    async def test_epochs_run_out_and_the_producer_goes_on_under_a_new_id(self) -> None:
        async with world() as w:
            who = await begin(w)
            entry = w.coordinator.state.get("id")
            assert entry is not None
            object.__setattr__(entry.metadata, "producer_epoch", 32766)
            answer = await w.coordinator.end_txn("id", who.producer_id, 32766, True, TV2)
            assert answer == (who.producer_id + 1, 0)
            await w.coordinator.registration.add_partitions("id", *answer, [P0], TV2)
            retry = await code_of(w.coordinator.end_txn("id", who.producer_id, 32766, True, TV2))
            assert retry is ErrorCode.PRODUCER_FENCED, "the next transaction has begun"
            assert w.partitions.written[0].producer_epoch == 32767


class TestCompletion:
    """COMPLETE_* is current when the markers are durable, and written in front of the id's next record."""

    def written(self, w: CoordinatorWorld) -> list[TransactionState]:
        return [decode_value("id", record.value).state for _, record in w.log.records if record.value is not None]

    async def test_it_goes_to_the_log_with_the_next_record(self) -> None:
        async with world() as w:
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT
            assert self.written(w)[-1] is S.PREPARE_COMMIT
            await w.coordinator.registration.add_partitions("id", *who, [P0])
            assert self.written(w)[-3:] == [S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.ONGOING]

    async def test_it_goes_there_by_itself_when_nothing_follows(self) -> None:
        async with world() as w:
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            w.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            w.coordinator.state.write_completed()
            w.log.refuse = None
            while self.written(w)[-1] is not S.COMPLETE_COMMIT:  # the suite's timeout bounds it
                await asyncio.sleep(0.01)
            await w.coordinator.registration.add_partitions("id", *who, [P0])
            assert self.written(w)[-2:] == [S.COMPLETE_COMMIT, S.ONGOING], "once"

    async def test_it_follows_again_from_the_decision_after_a_crash(self) -> None:
        async with world() as w:
            who = await begin(w)
            w.partitions.produce(P0, *who, "committed")
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            await w.crash()
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT
            assert w.partitions.logs[P0].decisions() == {"committed": {True}}

    async def test_it_is_written_before_the_broker_stops(self) -> None:
        async with world() as w:
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, False, TV1)
            await settle()
        assert self.written(w)[-1] is S.COMPLETE_ABORT


class TestTime:
    async def test_transition_under_way_at_the_deadline_delays_the_abort_for_a_moment_only(self) -> None:
        async with world(flush_on_ask=False) as w:
            beginning = asyncio.ensure_future(begin(w))
            while not beginning.done():
                await settle()
                w.log.disk.flush()
            who = beginning.result()
            more = asyncio.ensure_future(w.coordinator.registration.add_partitions("id", *who, [P1]))
            await settle()
            w.clock.advance(60_001)
            now_ms = w.clock.now_ms()
            again_ms = run_at_once(w.coordinator.maintenance.abort_timed_out(now_ms))
            assert again_ms is not None
            assert now_ms < again_ms <= now_ms + 1000
            w.log.disk.flush()
            await more
            run_at_once(w.coordinator.maintenance.abort_timed_out(again_ms))
            w.log.disk.flush()
            await settle()
            assert state_of(w).is_prepare

    async def test_transaction_past_its_timeout_is_aborted_under_a_fenced_epoch(self) -> None:
        async with world() as w:
            who = await begin(w)
            w.clock.advance(60_000)
            assert run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms())) == w.clock.now_ms(), (
                "due, not yet over"
            )
            assert state_of(w) is S.ONGOING
            w.clock.advance(1)
            assert run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms())) is None
            await settle()
            assert state_of(w) is S.COMPLETE_ABORT
            assert w.partitions.written[0].producer_epoch == who.producer_epoch + 1
            assert await code_of(w.coordinator.end_txn("id", *who, True, TV1)) is ErrorCode.PRODUCER_FENCED

    async def test_timer_is_set_to_the_transactions_own_deadline(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 50)
            await w.coordinator.registration.add_partitions("id", *who, [P0])
            w.clock.advance(51)
            while state_of(w) is not S.COMPLETE_ABORT:  # the suite's timeout bounds it; the interval is 10 s
                await asyncio.sleep(0.005)

    async def test_idle_id_expires_and_stays_forgotten_after_a_restart(self) -> None:
        async with world() as w:
            who = await begin(w)
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            w.clock.advance(604_800_000 - 1)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            assert state_of(w) is S.COMPLETE_COMMIT
            w.clock.advance(1)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            await w.restart()
            with pytest.raises(KafkaError) as raised:
                w.coordinator.describe("id")
            assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    async def test_long_ids_expire_as_well_and_hold_up_no_others(self) -> None:
        async with world(transactional_id_max_bytes=32_767) as w:
            for index in range(400):
                await w.coordinator.init_producer_id(f"{index:03}" + "x" * (32_000 if index % 2 else 1), 60_000)
            limit_batches(w.log)
            w.clock.advance(604_800_000)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            assert run_at_once(w.coordinator.list(TransactionFilter())) == []

    async def test_many_ids_expire_in_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(maintenance, "EXPIRED_AT_ONCE", 4)
        async with world() as w:
            for index in range(10):
                await w.coordinator.init_producer_id(f"id-{index}", 60_000)
            w.clock.advance(604_800_000)
            left = []
            while w.coordinator.maintenance.remove_expired(w.clock.now_ms()):
                left.append(len(run_at_once(w.coordinator.list(TransactionFilter()))))
            assert left == [6, 2]
            assert run_at_once(w.coordinator.list(TransactionFilter())) == []

    async def test_many_ids_are_checked_in_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(state_manager, "_CHECKED_AT_ONCE", 4)
        async with world() as w:
            for index in range(9):
                await w.coordinator.init_producer_id(f"used-{index}", 60_000)
            await w.coordinator.init_producer_id("idle", 60_000)
            w.clock.advance(604_800_000)
            for index in range(9):
                await w.coordinator.init_producer_id(f"used-{index}", 60_000)
            more = [w.coordinator.maintenance.remove_expired(w.clock.now_ms()) for _ in range(3)]
            assert more == [True, True, False]
            left = {metadata.transactional_id for metadata in run_at_once(w.coordinator.list(TransactionFilter()))}
            assert left == {f"used-{index}" for index in range(9)}

    async def test_id_with_an_open_transaction_never_expires(self) -> None:
        async with world() as w:
            await begin(w)
            w.clock.advance(10 * 604_800_000)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            assert state_of(w) is S.ONGOING

    async def test_expired_producer_id_is_an_invalid_mapping(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            w.clock.advance(604_800_000)
            w.coordinator.maintenance.remove_expired(w.clock.now_ms())
            late = w.coordinator.registration.add_partitions("id", *who, [P0])
            assert await code_of(late) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            new = await w.coordinator.init_producer_id("id", 60_000, who)
            assert new == (who.producer_id + 1, 0)


class TestRestart:
    @pytest.mark.parametrize("level", [0, 1, 2])
    async def test_state_comes_back_as_it_was(self, level: int) -> None:
        async with world(transaction_version=level) as w:
            who = await begin(w, P0, P1)
            before = w.coordinator.describe("id")
            await w.restart()
            assert w.coordinator.describe("id") == before
            await w.coordinator.end_txn("id", *who, True, TV1)

    async def test_decided_transaction_is_carried_out(self) -> None:
        async with world(flush_on_ask=False) as w:
            w.log.disk.flush_on_ask = True
            who = await begin(w, P0, P1)
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            assert state_of(w) is S.PREPARE_COMMIT
            await w.restart()
            w.partitions.flush()
            await settle()
            assert state_of(w) is S.COMPLETE_COMMIT
            assert [marker.commit for marker in w.partitions.written] == [True, True]

    async def test_open_transaction_of_an_unknown_producer_is_aborted(self) -> None:
        async with world() as w:
            w.partitions.produce(P0, 77, 3, "orphan")
            await w.restart()
            assert w.partitions.logs[P0].decisions() == {"orphan": {False}}

    async def test_open_transaction_of_an_older_epoch_is_aborted_and_the_current_one_left_alone(self) -> None:
        async with world() as w:
            who = await begin(w, P0)
            w.partitions.produce(P0, *who, "current")
            w.partitions.produce(P1, who.producer_id, who.producer_epoch - 1, "older")
            await w.restart()
            assert w.partitions.logs[P0].decisions() == {}
            assert w.partitions.logs[P1].decisions() == {"older": {False}}
            await w.coordinator.end_txn("id", *who, True, TV1)
            await settle()
            assert w.partitions.logs[P0].decisions() == {"current": {True}}

    @pytest.mark.parametrize("version", [TV1, TV2])
    async def test_marker_lost_after_completion_is_written_again_as_decided(self, version: TransactionVersion) -> None:
        async with world() as w:
            who = await begin(w, P0)
            w.partitions.produce(P0, *who, "committed")
            await w.coordinator.end_txn("id", *who, True, version)
            await settle()
            w.partitions.logs[P0].events.pop()
            await w.restart()
            assert w.partitions.logs[P0].decisions() == {"committed": {True}}

    @pytest.mark.parametrize("later", [True, False])
    async def test_last_transaction_of_a_used_up_producer_id_is_not_committed_by_a_later_one(self, later: bool) -> None:
        async with world() as w:
            who = await begin(w, P0)
            entry = w.coordinator.state.get("id")
            assert entry is not None
            object.__setattr__(entry.metadata, "producer_epoch", 32766)
            w.partitions.produce(P0, who.producer_id, 32766, "first")
            following = await w.coordinator.end_txn("id", who.producer_id, 32766, not later, TV2)
            await settle()
            w.partitions.logs[P0].events.pop()
            if later:
                await w.coordinator.registration.add_partitions("id", *following, [P1], TV2)
                await w.coordinator.end_txn("id", *following, True, TV2)
                await settle()
            await w.restart()
            assert w.partitions.logs[P0].decisions() == {"first": {not later}}

    async def test_unreadable_state_is_not_served_and_nothing_is_concluded_from_it(self) -> None:
        async with world() as w:
            await begin(w)
            partition, record = w.log.records[-1]
            record.value = b"\x00\x63garbage"
            w.partitions.produce(P0, 77, 3, "orphan")
            await w.restart()
            assert await code_of(w.coordinator.init_producer_id("id", 60_000)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert w.partitions.logs[P0].decisions() == {}
            other = next(f"x{n}" for n in range(50) if w.log.partition_for(f"x{n}") != partition)
            assert (await w.coordinator.init_producer_id(other, 60_000)).producer_epoch == 0

    async def test_a_value_that_was_replaced_cannot_make_state_unreadable(self) -> None:
        async with world() as w:
            await begin(w)
            w.log.records[0][1].value = b"\x00\x63garbage"
            await w.restart()
            assert state_of(w) is S.ONGOING

    async def test_records_of_a_newer_version_are_left_alone(self) -> None:
        async with world() as w:
            await begin(w)
            w.log.append(0, [(b"\x7f\x00anything", b"\x00\x00?")], timestamp_ms=0)
            await w.restart()
            assert state_of(w) is S.ONGOING

    async def test_requests_before_the_replay_are_told_to_come_back(self) -> None:
        w = world()
        assert await code_of(w.coordinator.init_producer_id("id", 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class TestQueries:
    async def test_list_filters_by_state_producer_duration_and_pattern(self) -> None:
        async with world() as w:
            first = await begin(w, tid="orders-1")
            w.clock.advance(5_000)
            await begin(w, tid="orders-2")
            idle = await w.coordinator.init_producer_id("audit", 60_000)

            def listed(**wanted: Any) -> set[str]:
                found = run_at_once(w.coordinator.list(TransactionFilter(**wanted)))
                return {metadata.transactional_id for metadata in found}

            assert listed() == {"orders-1", "orders-2", "audit"}
            assert listed(states=["Ongoing"]) == {"orders-1", "orders-2"}
            assert listed(states=["Nonsense"]) == set()
            assert listed(states=["Nonsense", "Empty"]) == {"audit"}
            assert listed(producer_ids={first.producer_id, idle.producer_id}) == {"orders-1", "audit"}
            assert listed(states=["Ongoing"], duration_ms=4_000) == {"orders-1"}
            assert listed(transactional_id_pattern="orders-.*") == {"orders-1", "orders-2"}
            assert listed(transactional_id_pattern="orders") == set(), "the whole id has to match"
            with pytest.raises(KafkaError) as raised:
                listed(transactional_id_pattern="(")
            assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    async def test_describe_tells_what_is_not_known(self) -> None:
        async with world() as w:
            for tid, code in (("", ErrorCode.INVALID_REQUEST), ("?", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)):
                with pytest.raises(KafkaError) as raised:
                    w.coordinator.describe(tid)
                assert raised.value.code is code

    @pytest.mark.parametrize(
        "pattern",
        [
            "((a{1,30}){1,30})x",
            "(" * 2000 + "a" + ")" * 2000,
            "a" * 5000,
            "(",
            "(?P<a>x)\\1",
            ".*" * 10 + "(.{1,20}){1,20}",
        ],
    )
    async def test_pattern_that_is_too_dear_or_wrong_is_refused(self, pattern: str) -> None:
        async with world() as w:
            with pytest.raises(KafkaError) as caught:
                run_at_once(w.coordinator.list(TransactionFilter(transactional_id_pattern=pattern)))
            assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
            assert len(str(caught.value)) < 500

    @pytest.mark.parametrize("pattern", [r"(?i)\pL{1000}", "((a{1,30}){1,30}){1,30}", "(a.{1,3}){1,99}" * 60])
    async def test_pattern_that_is_far_too_large_is_given_up_early(
        self, pattern: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """RE2 compiles until it has used its memory, so little memory means little time."""
        memory = []
        compile_whole = re2.compile

        def compile(pattern: str, options: Any) -> Any:
            memory.append(options.max_mem)
            return compile_whole(pattern, options)

        monkeypatch.setattr(re2, "compile", compile)
        async with world() as w:
            with pytest.raises(KafkaError):
                run_at_once(w.coordinator.list(TransactionFilter(transactional_id_pattern=pattern)))
        assert max(memory) < 200_000

    @pytest.mark.parametrize("pattern", ["a{990}", "[" + "".join(map(chr, range(256, 2056, 2))) + "]", r"\d{99}" * 3])
    async def test_pattern_below_the_limit_is_accepted(self, pattern: str) -> None:
        async with world() as w:
            assert run_at_once(w.coordinator.list(TransactionFilter(transactional_id_pattern=pattern))) == []

    async def test_size_of_patterns_is_a_setting(self) -> None:
        dear = TransactionFilter(transactional_id_pattern="((a{1,30}){1,30})x")
        async with world(transactional_id_pattern_max_size=2000) as w:
            assert run_at_once(w.coordinator.list(dear)) == []

    async def test_ids_are_listed_in_steps_of_known_cost(self) -> None:
        async with world(transactional_id_max_bytes=2000) as w:
            for number in range(50):
                await begin(w, tid=f"orders-{number}" + "x" * 1000)
            plain: list[Any] = list(w.coordinator.list(TransactionFilter()))
            dear: list[Any] = list(w.coordinator.list(TransactionFilter(transactional_id_pattern=".*(x{1,50}y){1,5}")))
            assert len(plain) == len(dear) == 50
            assert min(dear) > 10 * max(plain), "a pattern costs what it takes to match it"


async def test_refusal_of_an_assigned_id_names_what_the_client_has_set() -> None:
    async with world() as w:
        homes = LocalTransactionHomes(w.coordinator, 900_000)
        with pytest.raises(KafkaError) as refused:
            await homes.unused_transactional_id("g" * 1000)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "Shorten the group id, or set transactional.id." in refused.value.message


class TestMaxPartitions:
    """transaction.max.partitions limits the partitions of a transaction, because each change writes all of them."""

    async def test_partitions_beyond_the_limit_are_refused_and_the_transaction_can_be_aborted(self) -> None:
        async with world(transaction_max_partitions=3) as w:
            who = await begin(w, P0, P1)
            add = w.coordinator.registration.add_partitions
            written = len(w.log.records)
            assert await code_of(add("id", *who, [("u", 0), ("u", 1)])) is ErrorCode.POLICY_VIOLATION
            assert len(w.log.records) == written
            assert w.coordinator.describe("id").topic_partitions == {P0, P1}
            (refusal,) = [event for event in w.logs if event["event"] == "request_refused"]
            assert "transaction.max.partitions = 3" in refusal["reason"]
            await add("id", *who, [("u", 0)])
            await add("id", *who, [P0, P1, ("u", 0)])
            await w.coordinator.end_txn("id", *who, False, TV1)
            await settle()
            assert state_of(w) is S.COMPLETE_ABORT

    async def test_first_request_of_a_transaction_is_limited_too(self) -> None:
        async with world(transaction_max_partitions=3) as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            many = [("t", index) for index in range(4)]
            assert await code_of(w.coordinator.registration.add_partitions("id", *who, many)) is (
                ErrorCode.POLICY_VIOLATION
            )
            assert state_of(w) is S.EMPTY

    @pytest.mark.parametrize("registers", [False, True])
    async def test_batch_that_registers_its_partition_is_limited(self, registers: bool) -> None:
        async with world(transaction_max_partitions=2) as w:
            who = await begin(w, P0, P1)
            admit = w.coordinator.registration.admit_now
            assert admit("id", *who, P1, registers=registers) is None
            with pytest.raises(KafkaError) as raised:
                admit("id", *who, ("u", 0), registers=registers)
            expected = ErrorCode.POLICY_VIOLATION if registers else ErrorCode.TRANSACTION_ABORTABLE
            assert raised.value.code is expected

    async def test_session_larger_than_a_lowered_limit_goes_on_but_does_not_grow(self) -> None:
        async with world() as w:
            who = await w.coordinator.init_producer_id("id", 60_000)
            many = [("t", index) for index in range(4)]
            await w.coordinator.registration.add_partitions("id", *who, many, session=True)
            await w.coordinator.end_txn("id", *who, True, TV1, written=frozenset(many), keeps_session=True)
            w.config = BrokerConfig({"transaction.max.partitions": 2})
            await w.restart()
            add = w.coordinator.registration.add_partitions
            assert await code_of(add("id", *who, [("u", 0)])) is ErrorCode.POLICY_VIOLATION
            await add("id", *who, [P0])
            assert state_of(w) is S.ONGOING
            assert await code_of(add("id", *who, [("u", 0)])) is ErrorCode.POLICY_VIOLATION
