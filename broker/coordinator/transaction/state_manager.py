"""Every transactional id that this broker coordinates, in memory and in `__transaction_state`.

Owns the entries, the appends that change them, and their replay. Never decides a transition and never talks to
partitions.

A transition is appended, and becomes current when it is durable. In between the entry is `pending` and no other
transition is accepted, so what anyone is told is always on disk. One may become current at once (`complete`):
COMPLETE_*, which nobody is told of and which follows again from PREPARE_* after a crash. What is appended to the id
later is durable only together with it, so no batch of the next transaction is in a log before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from ....protocol.codec import UnknownRecord
from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages.transaction_log import TransactionLogKey
from ...ports import Clock
from ..state_log import StateLog
from .entry import TransactionEntry
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, TransactionVersion
from .transaction_log import decode_key, decode_value, encode_key, encode_value

_REPLAY_SLICE = 2000
"""Records after which a replay lets the event loop run."""

_TOMBSTONES_PER_BATCH = 500

_APPEND_ERRORS = {
    # What clients of a coordinator understand, and retry; as Kafka maps them.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TransactionStateManager:
    """The transactional ids of this broker."""

    def __init__(self, state_log: StateLog, clock: Clock, level: Callable[[], TransactionVersion], logger: Any) -> None:
        """`level` is the finalized transaction.version at the time of asking."""
        self._state_log = state_log
        self._clock = clock
        self._level = level
        self._logger = logger
        self._entries: dict[str, TransactionEntry] = {}
        self._loaded = False
        self.unreadable: dict[int, str] = {}
        """State partitions that could not be replayed, and why; their ids are not served, and nothing is concluded
        from an id's absence."""

    def entries(self) -> Iterator[TransactionEntry]:
        """Every known id, new ones (epoch -1, not yet in the log) left out."""
        return (entry for entry in self._entries.values() if entry.metadata.producer_epoch != NO_PRODUCER_EPOCH)

    def check_loaded(self) -> None:
        """Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS until the replay is done."""
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def get(self, transactional_id: str) -> TransactionEntry | None:
        """The id's entry, None when it isn't known.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, or COORDINATOR_NOT_AVAILABLE when its state can't be read.
        """
        entry = self._entries.get(transactional_id)
        if entry is None or not self._loaded:
            self._check_readable(transactional_id)
        return entry

    def create(self, metadata: TransactionMetadata) -> TransactionEntry:
        """Remember a new id; it is forgotten again if its first transition fails."""
        assert metadata.transactional_id not in self._entries
        entry = TransactionEntry(metadata, self._state_log.partition_for(metadata.transactional_id))
        self._entries[metadata.transactional_id] = entry
        return entry

    def transition(self, entry: TransactionEntry, new: TransactionMetadata) -> asyncio.Future[None] | None:
        """Append `new`. None: it is current. Else the future resolves when it has become durable and current.

        The future is shared property: await it through `asyncio.shield`. It fails, as this call does, with KafkaError
        in a coordinator's codes; the id's value is then unchanged.
        """
        end_offset = self._append(entry, new)
        flush = self._state_log.pending_flush(entry.partition, end_offset)
        if flush is None:
            self._become(entry, new)
            return None
        entry.pending = new
        done: asyncio.Future[None] = flush.get_loop().create_future()
        flush.add_done_callback(lambda flush: self._flushed(entry, new, flush, done))
        return done

    def complete(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        """Append `new` and make it current without a flush: the id's next record takes it to disk with it.

        Raises KafkaError and changes nothing.
        """
        self._append(entry, new)
        self._become(entry, new)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> list[TransactionMetadata]:
        """Write tombstones for ids that have been idle too long, and forget them; returns what was forgotten."""
        removed = []
        for partition, entries in self._expired(now_ms, expiration_ms).items():
            for start in range(0, len(entries), _TOMBSTONES_PER_BATCH):
                batch = entries[start : start + _TOMBSTONES_PER_BATCH]
                keys = [(encode_key(entry.metadata.transactional_id), None) for entry in batch]
                try:
                    self._state_log.append(partition, keys, timestamp_ms=now_ms)
                except KafkaError as error:
                    self._logger.warning("expiry_not_written", partition=partition, ids=len(batch), error=str(error))
                    continue
                for entry in batch:
                    del self._entries[entry.metadata.transactional_id]
                    removed.append(entry.metadata)
        return removed

    async def load(self) -> None:
        """Replay every partition of the topic; a partition that can't be read is noted in `unreadable` and left out."""
        for partition in self._state_log.existing():
            try:
                await self._load_partition(partition)
            except (KafkaError, DecodeError, ValueError) as error:
                self.unreadable[partition] = str(error)
                self._logger.error(
                    "transaction_state_unreadable",
                    partition=partition,
                    error=str(error),
                    remedy="its transactional ids are not served; repair the log (oncelog log repair), then restart",
                )
        self._loaded = True

    async def _load_partition(self, partition: int) -> None:
        loaded: dict[str, TransactionMetadata] = {}
        foreign = 0
        for count, record in enumerate(self._state_log.replay(partition), 1):
            if count % _REPLAY_SLICE == 0:
                await asyncio.sleep(0)
            if record.control is not None or record.key is None:
                continue
            key = decode_key(record.key)
            if isinstance(key, UnknownRecord) or not isinstance(key, TransactionLogKey):
                foreign += 1
            elif record.value is None:
                loaded.pop(key.transactional_id, None)
            else:
                loaded[key.transactional_id] = decode_value(key.transactional_id, record.value)
        for transactional_id, metadata in loaded.items():
            self._entries[transactional_id] = TransactionEntry(metadata, partition)
        self._logger.info("transaction_state_loaded", partition=partition, ids=len(loaded), unknown_records=foreign)

    def _check_readable(self, transactional_id: str) -> None:
        self.check_loaded()
        if self.unreadable:
            reason = self.unreadable.get(self._state_log.partition_for(transactional_id))
            if reason is not None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def _expired(self, now_ms: int, expiration_ms: int) -> dict[int, list[TransactionEntry]]:
        expired: dict[int, list[TransactionEntry]] = {}
        for entry in self.entries():
            if entry.pending is None and entry.metadata.has_expired(now_ms, expiration_ms):
                expired.setdefault(entry.partition, []).append(entry)
        return expired

    def _append(self, entry: TransactionEntry, new: TransactionMetadata) -> int:
        """Append the record; returns the offset below which it has to be flushed."""
        assert entry.pending is None, "one transition at a time"
        assert self._entries.get(new.transactional_id) is entry
        records = [(encode_key(new.transactional_id), encode_value(new, self._level()))]
        try:
            result = self._state_log.append(entry.partition, records, timestamp_ms=self._clock.now_ms())
        except KafkaError as error:
            self._forget_if_new(entry)
            raise self._coordinator_error(entry, new, error) from error
        return result.last_offset + 1

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
        self._forget_if_new(entry)
        entry.wake()
        if not done.done():
            known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NOT_COORDINATOR, str(error))
            done.set_exception(self._coordinator_error(entry, new, known))
            done.exception()  # whoever waited may be gone; the failure is logged

    def _become(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        entry.metadata = new
        if entry.waiters:
            entry.wake()

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
        return KafkaError(_APPEND_ERRORS.get(error.code, error.code), str(error))
