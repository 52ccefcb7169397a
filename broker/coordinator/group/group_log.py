"""Appends the groups' records to `__consumer_offsets`, waits until they are durable, and replays them.

Memory follows the log, not the disk: a record takes effect when it is appended, so memory always equals the result of a
replay. Therefore no response, not even one to a request that only reads, may be sent before the log is durable up to
the state that the response reports. `settled` returns the future to wait for. With durability=os there is never a wait.

Errors of the log are translated into coordinator error codes, such as NOT_COORDINATOR. After a failed flush, no further
append can become durable, so no response reports records that may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ....protocol.codec import UnknownRecord
from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ...scheduling.slices import in_slices
from ...system.ports import Clock
from ..last_records import LastOffsets
from ..state_loader import StateLoader
from ..state_log import StateLog, StateRecord
from .classic_group import ClassicGroup
from .offset_reader import OffsetReader
from .offsets import OffsetAndMetadata, OffsetStore, TopicPartition
from .prepared_commit import PreparedCommit
from .prepared_deletion import PreparedDeletion
from .rebalance import Stored
from .records import decode_group, encode_group, encode_offset, group_key, offset_key

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
_DECODED_AT_ONCE: Final = 100
"""How many values are decoded before the event loop runs other tasks."""

_COORDINATOR_CODES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The coordinator error code for each error code of the log."""


class GroupLog:
    """The access of a group coordinator to `__consumer_offsets`: appends, durability and replay."""

    def __init__(
        self, state_log: StateLog, offsets: OffsetStore, clock: Clock, commit_timeout_ms: int, logger: Any
    ) -> None:
        self._loader = StateLoader(self._load_partition, logger, "group_state_unreadable", "groups")
        self.unreadable = self._loader.unreadable
        """The partitions that could not be replayed, with the reason.

        A group that is not in memory may be in one of them.
        """
        self.unreadable_groups: dict[str, str] = {}
        """The groups with an undecodable record, with the reason. Their offsets in memory may be wrong."""
        self._state_log = state_log
        self._offsets = offsets
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._logger = logger
        self._end_offsets: dict[int, int] = {}
        self._meanwhile: dict[int, list[tuple[int, bool, int]]] = {}
        """The markers (producer id, commit, offset) that have been appended to each partition during its replay."""
        self.take_up: Callable[[dict[str, ClassicGroup | None]], Awaitable[None]] = _ignore
        """The function to call for each replayed partition, before its groups are served.

        Receives the groups that have records, by id. The value is None if a group has only offsets.
        """

    def partition_for(self, group_id: str) -> int:
        """Return the index of the partition that holds the group."""
        return self._state_log.partition_for(group_id)

    def is_unreadable(self, group_id: str) -> bool:
        """Whether the group cannot be served because some of its records are unreadable."""
        if not (self.unreadable or self.unreadable_groups):
            return False
        return group_id in self.unreadable_groups or self.partition_for(group_id) in self.unreadable

    # ---- appending

    def put_offsets(
        self,
        group_id: str,
        offsets: Sequence[tuple[TopicPartition, OffsetAndMetadata | None]],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Append offsets, or tombstones (None), in one batch: either all of them take effect or none does.

        With a `producer_id`, the offsets stay pending until the producer's marker is written. Raise KafkaError with a
        coordinator error code.
        """
        partition = self.partition_for(group_id)
        records = [
            (offset_key(group_id, target), None if value is None else encode_offset(value)) for target, value in offsets
        ]
        base_offset = self._append(partition, records, producer_id, producer_epoch)
        producer = (partition, producer_id) if producer_id >= 0 else None
        for record_offset, (target, value) in enumerate(offsets, base_offset):
            self._offsets.replay(group_id, target, value, record_offset, producer)

    def largest_batch(self) -> int:
        """Return the size in bytes of the largest batch that a partition accepts.

        A batch of tombstones may be larger.
        """
        try:
            return self._state_log.largest_batch()
        except KafkaError as error:
            raise _coordinator_error(error) from error

    def put_prepared(self, prepared: PreparedCommit, *, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Do the same as `put_offsets` with offsets that are already encoded."""
        prepared.check_size()
        partition = self.partition_for(prepared.group_id)
        try:
            result = self._state_log.append_encoded(
                partition,
                prepared.records,
                timestamp_ms=self._clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer_id >= 0,
            )
        except KafkaError as error:
            raise _coordinator_error(error) from error
        self._end_offsets[partition] = result.last_offset + 1
        producer = (partition, producer_id) if producer_id >= 0 else None
        for record_offset, (target, value) in enumerate(prepared.offsets, result.base_offset):
            self._offsets.replay(prepared.group_id, target, value, record_offset, producer)

    def remove(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Append tombstones for the group's offsets on these partitions, in one batch."""
        self.put_offsets(group_id, [(target, None) for target in partitions])

    def remove_group(self, group_id: str) -> None:
        """Append one batch of tombstones: one for each offset of a group and, last, one for the group itself."""
        records: list[tuple[bytes, None]] = [
            (offset_key(group_id, p), None) for p in self._offsets.partitions(group_id)
        ]
        self._append(self.partition_for(group_id), [*records, (group_key(group_id), None)])
        self._offsets.remove_group(group_id)

    def remove_prepared(self, prepared: PreparedDeletion) -> None:
        """Do the same as `remove_group` with tombstones that are already encoded.

        `prepared.is_current` must have returned True in the same event-loop turn.
        """
        partition = self.partition_for(prepared.group_id)
        try:
            result = self._state_log.append_encoded(
                partition, prepared.records, timestamp_ms=self._clock.now_ms(), essential=True
            )
        except KafkaError as error:
            raise _coordinator_error(error) from error
        self._end_offsets[partition] = result.last_offset + 1
        self._offsets.remove_group(prepared.group_id)

    def store_group(self, group: ClassicGroup, assignments: Mapping[str, bytes], stored: Stored) -> None:
        """Append a group's metadata.

        `stored` is called once, with None when the record is durable, or with the error if its append or flush failed.
        There is no timeout, because the record is in the log even if the disk is slow, and memory must agree with the
        log.
        """
        try:
            self._check_size(group, assignments)
            partition = self.partition_for(group.group_id)
            self._append(partition, [(group_key(group.group_id), encode_group(group, assignments))])
            flush = self._pending_flush(partition)
        except KafkaError as error:
            stored(error)
            return
        if flush is None:
            stored(None)
        else:
            flush.add_done_callback(lambda done: stored(_failure(done)))

    def _check_size(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Raise KafkaError UNKNOWN_SERVER_ERROR, as an append would, if the group is certainly too large for a batch.

        This check avoids encoding a group of many megabytes that the append would refuse.
        """
        protocol = group.protocol_name or ""
        size = sum(map(len, assignments.values()))
        size += sum(len(member.metadata(protocol)) for member in group.members.values())
        largest = self.largest_batch()
        if size > largest:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The subscriptions and assignments of group {group.group_id!r} have {size} bytes. The largest batch"
                f" that {GROUP_METADATA_TOPIC} accepts has {largest}. Use fewer members or partitions, or raise the"
                " topic's max.message.bytes.",
            )

    def marker_appended(self, partition: int, producer_id: int, commit: bool, marker_offset: int) -> None:
        """Apply an appended marker: commit or drop the producer's pending offsets.

        Afterwards `settled` returns a future that resolves when the marker is durable.
        """
        self._extend(partition, marker_offset + 1)
        if partition in self._meanwhile:
            self._meanwhile[partition].append((producer_id, commit, marker_offset))
        else:
            self._offsets.complete_transaction((partition, producer_id), commit, marker_offset)

    def _extend(self, partition: int, end_offset: int) -> None:
        self._end_offsets[partition] = max(self._end_offsets.get(partition, 0), end_offset)

    def _append(
        self,
        partition: int,
        records: list[tuple[bytes, bytes | None]],
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> int:
        try:
            result = self._state_log.append(
                partition,
                records,
                timestamp_ms=self._clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer_id >= 0,
                essential=all(value is None for _, value in records),
            )
        except KafkaError as error:
            raise _coordinator_error(error) from error
        self._end_offsets[partition] = result.last_offset + 1
        return result.base_offset

    # ---- durability

    def _pending_flush(self, partition: int) -> asyncio.Future[None] | None:
        end_offset = self._end_offsets.get(partition)
        if end_offset is None:
            return None  # no record was ever appended; asking the log would create the partition
        try:
            return self._state_log.pending_flush(partition, end_offset)
        except KafkaError as error:
            raise _coordinator_error(error) from error

    def settled(self, partition: int) -> asyncio.Future[None] | None:
        """Return None if all records appended to the partition are durable, else a future that resolves when they are.

        Each caller gets a new future. The call, or the future, raises KafkaError with a coordinator error code. The
        code is COORDINATOR_NOT_AVAILABLE if the flush takes longer than `offsets.commit.timeout.ms`.
        """
        flush = self._pending_flush(partition)
        if flush is None:
            return None
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()

        def timed_out() -> None:
            if not settled.done():
                message = "The flush takes longer than offsets.commit.timeout.ms. Retry, or raise the setting."
                settled.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
                settled.exception()  # mark the exception as retrieved: the caller may be gone

        timeout = loop.call_later(self._commit_timeout_ms / 1000, timed_out)

        def flushed(done: asyncio.Future[None]) -> None:
            timeout.cancel()
            failure = _failure(done)
            if settled.done():
                return
            if failure is None:
                settled.set_result(None)
            else:
                settled.set_exception(failure)
                settled.exception()

        flush.add_done_callback(flushed)
        return settled

    # ---- reading

    async def load(self) -> None:
        """Replay every partition of `__consumer_offsets`.

        The offsets are restored in the OffsetStore, and `take_up` receives the groups. A partition that cannot be read
        is recorded in `unreadable`. A group is recorded in `unreadable_groups` if the last record of any of its keys
        cannot be decoded. All other groups are served.
        """
        for partition in self._state_log.existing():
            await self._loader.load(partition)

    @property
    def is_incomplete(self) -> bool:
        """Whether there are unreadable partitions that `load_again` reads again."""
        return bool(self._loader.read_later)

    async def load_again(self) -> None:
        """Replay the partitions that could not be read, but may have become readable."""
        for partition in sorted(self._loader.read_later):
            await self._loader.load(partition)

    async def _load_partition(self, partition: int) -> None:
        """Replay a partition. Meanwhile transactions may end, but nothing else is appended to an unread partition.

        A marker that is appended meanwhile may or may not be among the records that are read. In both cases, it is
        applied to the result of the replay. If it was read, applying it again changes nothing.
        """
        self._meanwhile[partition] = []
        try:
            last_offsets = LastOffsets()
            async for batches in in_slices(self._state_log.replay(partition), 1):
                last_offsets.take(batches)
                self._extend(partition, last_offsets.end_offset)
            groups: dict[str, ClassicGroup | None] = {}
            reader = OffsetReader()
            async for producer_id, record in in_slices(last_offsets.records(), _DECODED_AT_ONCE):
                self._take_up(partition, producer_id, record, groups, reader)
        finally:
            meanwhile = self._meanwhile.pop(partition)
        for producer_id, commit, marker_offset in meanwhile:
            self._offsets.complete_transaction((partition, producer_id), commit, marker_offset)
        await self.take_up(groups)
        self._logger.info("group_state_loaded", partition=partition, records=last_offsets.count)

    def _take_up(
        self,
        partition: int,
        producer_id: int | None,
        record: StateRecord,
        groups: dict[str, ClassicGroup | None],
        reader: OffsetReader,
    ) -> None:
        """Apply the last record of a key to the groups or offsets.

        With a producer id, the record is an offset of an open transaction.
        """
        offset, _, raw_key, value = record
        if value is None:
            return
        try:
            key = reader.key(raw_key)
        except DecodeError as error:
            self._logger.warning("group_record_unreadable", partition=partition, offset=offset, why=str(error))
            return
        if isinstance(key, UnknownRecord):
            return  # the record belongs to another kind of group, or a newer release wrote it
        group_id, target = key
        try:
            if target is None:
                groups[group_id] = decode_group(group_id, value)
            else:
                producer = None if producer_id is None else (partition, producer_id)
                self._offsets.put(group_id, target, reader.offset(value, offset), producer)
                groups.setdefault(group_id, None)
        except DecodeError as error:
            why = f"{GROUP_METADATA_TOPIC}-{partition}, offset {offset}: {error}"
            self.unreadable_groups[group_id] = why
            self._logger.error(
                "group_unreadable", group=group_id, why=why, remedy="use the broker release that wrote the record"
            )


async def _ignore(groups: dict[str, ClassicGroup | None]) -> None: ...


def _failure(done: asyncio.Future[None]) -> KafkaError | None:
    if done.cancelled():
        return KafkaError(ErrorCode.NOT_COORDINATOR, "The broker is stopping.")
    error = done.exception()
    if error is None or isinstance(error, KafkaError):
        return None if error is None else _coordinator_error(error)
    return KafkaError(ErrorCode.NOT_COORDINATOR, str(error))


def _coordinator_error(error: KafkaError) -> KafkaError:
    return KafkaError(_COORDINATOR_CODES.get(error.code, error.code), error.message)
