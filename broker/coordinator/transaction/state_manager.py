"""Keeps every transactional id that this broker coordinates, in memory and in `__transaction_state`.

This module keeps the entries, appends the records that change them, and replays these records. It never decides a
transition, and never accesses the partitions of a transaction.

A transition is appended, and becomes current when it is durable. In between, its value is the entry's `pending` value
and no other transition is accepted, so every response reports durable state.

COMPLETE_* is different: no response depends on it, and after a crash it follows again from PREPARE_*. Therefore it
becomes current immediately. It is written before the id's next record, in the same batch, or by itself after a short
delay. This saves a busy id one write and one flush per transaction. Still, no log contains a batch of the next
transaction before COMPLETE_* is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from ....protocol.codec import UnknownRecord
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.transaction_log import GroupAssignmentKey
from ...scheduling.slices import in_slices
from ...system.ports import Clock
from ..last_records import LastRecords
from ..state_loader import StateLoader
from ..state_log import StateLog, StateRecord
from .entry import TransactionEntry
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, TransactionState, TransactionVersion
from .transaction_log import SortedSets, decode_key, decode_value, encode_key, encode_value, is_large

_RECORD_OVERHEAD = 100
"""The maximum bytes that a record adds to its key and its value in the log, including the header of its batch."""

_DECODED_AT_ONCE = 100
"""How many values are decoded before the event loop runs other tasks."""

_TOMBSTONES_PER_BATCH = 30
"""How many tombstones are written in one batch.

Even with the longest ids, such a batch is small enough to be accepted. If it were refused, the transactional ids would
stay in memory forever.
"""

_CHECKED_AT_ONCE = 5000
"""The number of transactional ids that are checked for expiry without an await."""

_COMPLETION_DELAY_S = 0.2
"""How long, in seconds, a COMPLETE_* value waits for its id's next record before it is written by itself."""

_APPEND_ERRORS = {
    # The mapping is Kafka's. Clients retry the coordinator's codes. They do not retry UNKNOWN_SERVER_ERROR, which means
    # that the record is too large.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

GroupAssignmentReplay: TypeAlias = Callable[[int, GroupAssignmentKey, StateRecord], None]
"""A callback that is called for each group assignment, in log order, with its state partition, key and record."""


class _TooLarge(KafkaError):
    """The error raised for a record that exceeds `max.message.bytes`."""


class TransactionStateManager:
    """The entries of all transactional ids of this broker, and the appends that change them."""

    def __init__(self, state_log: StateLog, clock: Clock, level: Callable[[], TransactionVersion], logger: Any) -> None:
        """Create an empty manager. `level` returns the finalized level of the feature transaction.version."""
        self._state_log = state_log
        self._clock = clock
        self._level = level
        self._logger = logger
        self._entries: dict[str, TransactionEntry] = {}
        self._by_producer_id: dict[int, TransactionEntry] = {}
        self._completed: dict[str, TransactionEntry] = {}
        self._kept_rooms: dict[str, Callable[[], None]] = {}
        """For aborts without a transaction whose COMPLETE_ABORT is not in the log yet: the function that gives back the
        disk space that is kept for it, by transactional id.
        """
        self._sorted: dict[str, SortedSets] = {}
        """The sorted partitions of the transactional ids whose latest record is large."""
        self._completion_timer: asyncio.TimerHandle | None = None
        self._unchecked: Iterator[TransactionEntry] | None = None
        """The entries that the search for expired ids has not checked yet, or None if no search is under way."""
        self._loaded = False
        self._loader = StateLoader(self._load_partition, logger, "transaction_state_unreadable", "transactional ids")
        self.unreadable = self._loader.unreadable
        """The state partitions that could not be replayed, with the reason.

        Their transactional ids are not served. An id that is not in memory may be stored in one of them, so it does not
        count as unknown.
        """
        self.read_later = self._loader.read_later
        """The unreadable partitions that are read again later, because they may have become readable.

        A partition with undecodable records is not among them.
        """
        self.on_group_assignment: GroupAssignmentReplay | None = None

    def entries(self) -> Iterator[TransactionEntry]:
        """Iterate over the entries of all known transactional ids, except new ones (epoch -1, not yet in the log)."""
        return (entry for entry in self._entries.values() if entry.metadata.producer_epoch != NO_PRODUCER_EPOCH)

    @property
    def count(self) -> int:
        """The number of known transactional ids, including new ones that are not in the log yet."""
        return len(self._entries)

    def snapshot(self) -> Iterator[TransactionEntry]:
        """Iterate over a snapshot of the entries, so that the caller may pause while entries are added or removed."""
        known = list(self._entries.values())
        return (entry for entry in known if entry.metadata.producer_epoch != NO_PRODUCER_EPOCH)

    def check_loaded(self) -> None:
        """Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS until the replay is done."""
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def get(self, transactional_id: str) -> TransactionEntry | None:
        """Return the entry of a transactional id, or None if the id is unknown.

        Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS until the replay is done, or COORDINATOR_NOT_AVAILABLE if the id's
        state cannot be read.
        """
        entry = self._entries.get(transactional_id)
        if entry is None or not self._loaded:
            self.check_readable(transactional_id)
        return entry

    def peek(self, transactional_id: str) -> TransactionEntry | None:
        """Return the entry of a transactional id if it is in memory, without checking whether its state is loaded."""
        return self._entries.get(transactional_id)

    def transactional_id_of(self, producer_id: int) -> str | None:
        """Return the transactional id whose current or previous producer id this is, or None if none is known."""
        entry = self._by_producer_id.get(producer_id)
        if entry is None or producer_id not in (entry.metadata.producer_id, entry.metadata.previous_producer_id):
            return None
        return entry.metadata.transactional_id

    def create(self, metadata: TransactionMetadata) -> TransactionEntry:
        """Add an entry for a new transactional id. The entry is removed again if its first transition fails."""
        assert metadata.transactional_id not in self._entries
        entry = TransactionEntry(metadata, self._state_log.partition_for(metadata.transactional_id))
        self._entries[metadata.transactional_id] = entry
        return entry

    def transition(self, entry: TransactionEntry, new: TransactionMetadata) -> asyncio.Future[None] | None:
        """Append the value `new`. Return None if it is current, else a future that resolves when it becomes current.

        The future is shared, so callers must await it through `asyncio.shield`. The call and the future raise
        KafkaError with a coordinator error code; the transactional id's value is then unchanged. A record larger than
        `max.message.bytes` is refused with UNKNOWN_SERVER_ERROR while partitions are added, never when the transaction
        ends: a record that ends a transaction may have any size.
        """
        try:
            end_offset = self._append(entry, new)
        except _TooLarge:
            if not new.session_partitions:
                raise
            # The session is optional and can double the record's size, so begin the transaction without it.
            self._logger.warning(
                "session_dropped",
                transactional_id=new.transactional_id,
                partitions=len(new.session_partitions),
                reason="the transaction's record is too large with the session's partitions",
            )
            new = replace(new, session_partitions=frozenset(), preregistered=frozenset())
            end_offset = self._append(entry, new)
        try:
            flush = self._state_log.pending_flush(entry.partition, end_offset)
        except KafkaError as error:
            raise self._unflushed(entry, new, error) from error
        if flush is None:
            self._become(entry, new)
            return None
        entry.pending = new
        done: asyncio.Future[None] = flush.get_loop().create_future()
        flush.add_done_callback(lambda flush: self._flushed(entry, new, flush, done))
        return done

    def complete(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        """Make a COMPLETE_* value current.

        It is written with the id's next record, or by itself after a short delay.
        """
        assert new.state.is_complete
        assert entry.pending is None
        entry.unwritten = new
        self._completed[new.transactional_id] = entry
        if self._completion_timer is None:
            loop = asyncio.get_running_loop()
            self._completion_timer = loop.call_later(_COMPLETION_DELAY_S, self._completion_due)
        self._become(entry, new)

    def write_completed(self) -> None:
        """Write every COMPLETE_* value that is not in the log yet. If a write fails, the next call retries it."""
        for entry in list(self._completed.values()):
            if entry.pending is None and entry.unwritten is not None:
                try:
                    self._write(entry, [entry.unwritten])
                except KafkaError:  # logged by `_coordinator_error`
                    continue

    def stop(self) -> None:
        """Write every COMPLETE_* value that is not in the log yet, and stop the timer."""
        if self._completion_timer is not None:
            self._completion_timer.cancel()
        self.write_completed()

    def remove_expired(self, now_ms: int, expiration_ms: int, most: int) -> tuple[list[TransactionMetadata], bool]:
        """Write tombstones for at most `most` expired transactional ids and remove their entries.

        Each call checks only a portion of the ids. Return the last values of the removed ids, and whether another call
        is needed to check the rest. If a tombstone cannot be written, the next call begins with the first id.
        """
        removed = []
        for partition, entries in self._expired(now_ms, expiration_ms, most).items():
            for start in range(0, len(entries), _TOMBSTONES_PER_BATCH):
                batch = entries[start : start + _TOMBSTONES_PER_BATCH]
                keys = [(encode_key(entry.metadata.transactional_id), None) for entry in batch]
                try:
                    self._state_log.append(partition, keys, timestamp_ms=now_ms, essential=True)
                except KafkaError as error:
                    self._logger.warning("expiry_not_written", partition=partition, ids=len(batch), error=str(error))
                    self._unchecked = None
                    continue
                for entry in batch:
                    entry.unwritten = None
                    self._give_room_back(entry)
                    self._completed.pop(entry.metadata.transactional_id, None)
                    self._sorted.pop(entry.metadata.transactional_id, None)
                    del self._entries[entry.metadata.transactional_id]
                    self._forget_producer_ids(entry.metadata)
                    removed.append(entry.metadata)
        return removed, self._unchecked is not None

    async def load(self) -> None:
        """Replay every partition of `__transaction_state`.

        Partitions that cannot be read are recorded in `unreadable`.
        """
        for partition in self._state_log.existing():
            await self.load_partition(partition)
        self._loaded = True

    async def load_partition(self, partition: int) -> bool:
        """Replay one state partition. Return whether it could be read.

        May be called again for a partition that was `unreadable`.
        """
        return await self._loader.load(partition)

    async def _load_partition(self, partition: int) -> None:
        last_records = LastRecords()
        async for batches in in_slices(self._state_log.replay(partition), 1):
            last_records.take(batches)
        entries: list[TransactionEntry] = []
        claims: list[tuple[GroupAssignmentKey, StateRecord]] = []
        foreign = 0
        async for record in in_slices(last_records.records(), _DECODED_AT_ONCE):
            key = decode_key(record.key)
            if isinstance(key, GroupAssignmentKey):
                claims.append((key, record))
            elif isinstance(key, UnknownRecord):
                foreign += 1
            elif record.value is not None:
                entries.append(TransactionEntry(decode_value(key.transactional_id, record.value), partition))
        # Without an await: a request must find either no id of the partition or all of them.
        for entry in entries:
            self._entries[entry.metadata.transactional_id] = entry
            self._remember_producer_ids(entry)
        if self.on_group_assignment is not None:
            for key, record in claims:
                self.on_group_assignment(partition, key, record)
        self._logger.info("transaction_state_loaded", partition=partition, ids=len(entries), unknown_records=foreign)

    def check_readable(self, key: str) -> None:
        """Raise KafkaError like `get` if the state partition of `key` (a transactional or group id) is not readable."""
        self.check_loaded()
        if self.unreadable:
            reason = self.unreadable.get(self._state_log.partition_for(key))
            if reason is not None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def _expired(self, now_ms: int, expiration_ms: int, most: int) -> dict[int, list[TransactionEntry]]:
        """Check the next portion of entries; return the expired ones by partition."""
        if self._unchecked is None:
            self._unchecked = iter(list(self._entries.values()))
        expired: dict[int, list[TransactionEntry]] = {}
        count = 0
        for checked, entry in enumerate(self._unchecked, 1):
            metadata = entry.metadata
            if (
                entry.pending is None
                and metadata.has_expired(now_ms, expiration_ms)
                and metadata.producer_epoch != NO_PRODUCER_EPOCH
                and self._entries.get(metadata.transactional_id) is entry
            ):
                expired.setdefault(entry.partition, []).append(entry)
                count += 1
            if count == most or checked == _CHECKED_AT_ONCE:
                return expired
        self._unchecked = None
        return expired

    def _completion_due(self) -> None:
        self._completion_timer = None
        self.write_completed()
        if self._completed:
            loop = asyncio.get_running_loop()
            self._completion_timer = loop.call_later(_COMPLETION_DELAY_S, self._completion_due)

    def _append(self, entry: TransactionEntry, new: TransactionMetadata) -> int:
        """Append `new`. If the id has a COMPLETE_* value that is not in the log yet, append that value first.

        Return the end offset to flush.
        """
        assert entry.pending is None, "one transition at a time"
        assert self._entries.get(new.transactional_id) is entry
        try:
            if entry.unwritten is None:
                return self._write(entry, [new])
            try:
                return self._write(entry, [entry.unwritten, new])
            except _TooLarge:  # each record may fit by itself
                self._write(entry, [entry.unwritten])
                return self._write(entry, [new])
        except KafkaError:
            self._forget_if_new(entry)
            raise

    def _write(self, entry: TransactionEntry, values: list[TransactionMetadata]) -> int:
        """Append values of one transactional id as one batch; return the batch's end offset.

        Raise KafkaError with a coordinator error code, or _TooLarge.
        """
        key = encode_key(values[0].transactional_id)
        level = self._level()
        sets = self._sorted_sets(values)
        records = [(key, encode_value(value, level, sets)) for value in values]
        give_back: Callable[[], None] | None = None
        try:
            state = values[-1].state
            ends = state.is_prepare or state.is_complete
            if state.is_prepare and entry.metadata.state is not TransactionState.ONGOING:
                # An abort without a transaction may have any size, because a session may have very many partitions. But
                # clients that repeat such aborts must not use up the last part of the disk reserve, neither with this
                # batch nor with the COMPLETE_ABORT that follows it, which is as large.
                size = sum(len(key) + len(value) + _RECORD_OVERHEAD for key, value in records)
                give_back = self._state_log.keep_room(entry.partition, 2 * size)
            now_ms = self._clock.now_ms()
            result = self._state_log.append(entry.partition, records, timestamp_ms=now_ms, essential=ends)
        except KafkaError as error:
            if give_back is not None:
                give_back()
            raise self._coordinator_error(entry, values[-1], error) from error
        if entry.unwritten is not None:
            entry.unwritten = None
            del self._completed[values[0].transactional_id]
            self._give_room_back(entry)
        if give_back is not None:
            self._kept_rooms[values[0].transactional_id] = give_back
        return result.last_offset + 1

    def _give_room_back(self, entry: TransactionEntry) -> None:
        """Give back the disk space that is kept for a COMPLETE_ABORT of this transactional id, if there is any."""
        give_back = self._kept_rooms.pop(entry.metadata.transactional_id, None)
        if give_back is not None:
            give_back()

    def _sorted_sets(self, values: list[TransactionMetadata]) -> SortedSets | None:
        transactional_id = values[-1].transactional_id
        if any(map(is_large, values)):
            return self._sorted.setdefault(transactional_id, SortedSets.unknown())
        if self._sorted:
            self._sorted.pop(transactional_id, None)
        return None

    def _flushed(
        self,
        entry: TransactionEntry,
        new: TransactionMetadata,
        flush: asyncio.Future[None],
        done: asyncio.Future[None],
    ) -> None:
        entry.pending = None
        error = KafkaError(ErrorCode.NOT_COORDINATOR) if flush.cancelled() else flush.exception()
        if error is None:
            self._become(entry, new)
            if not done.done():
                done.set_result(None)
            return
        known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NOT_COORDINATOR, str(error))
        failure = self._unflushed(entry, new, known)
        entry.wake()
        if not done.done():
            done.set_exception(failure)
            done.exception()  # mark the exception as retrieved: the caller may be gone, and the failure is logged

    def _unflushed(self, entry: TransactionEntry, new: TransactionMetadata, error: KafkaError) -> KafkaError:
        """Undo what the append of `new` has changed, because it cannot be flushed; return the error for the caller."""
        self._forget_if_new(entry)
        self._give_room_back(entry)
        return self._coordinator_error(entry, new, error)

    def _become(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        before = entry.metadata
        entry.metadata = new
        if before.producer_id != new.producer_id or before.producer_epoch == NO_PRODUCER_EPOCH:
            self._forget_producer_ids(before)
            self._remember_producer_ids(entry)
        if entry.waiters:
            entry.wake()

    def _remember_producer_ids(self, entry: TransactionEntry) -> None:
        metadata = entry.metadata
        if metadata.previous_producer_id >= 0:
            self._by_producer_id.setdefault(metadata.previous_producer_id, entry)
        self._by_producer_id[metadata.producer_id] = entry

    def _forget_producer_ids(self, metadata: TransactionMetadata) -> None:
        for producer_id in (metadata.producer_id, metadata.previous_producer_id):
            self._by_producer_id.pop(producer_id, None)

    def _forget_if_new(self, entry: TransactionEntry) -> None:
        if entry.metadata.producer_epoch == NO_PRODUCER_EPOCH:
            self._entries.pop(entry.metadata.transactional_id, None)

    def _coordinator_error(self, entry: TransactionEntry, new: TransactionMetadata, error: KafkaError) -> KafkaError:
        self._logger.warning(
            "transaction_state_not_written",
            transactional_id=new.transactional_id,
            partition=entry.partition,
            state=new.state.label,
            error=str(error),
        )
        too_large = error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
        kind = _TooLarge if too_large else KafkaError
        return kind(_APPEND_ERRORS.get(error.code, error.code), str(error))
