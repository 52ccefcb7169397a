"""Find the partitions that this broker leads, and append transaction markers to them.

This module keeps the map from (topic, index) to Partition. It follows the metadata: it applies new topic settings, and
deletes the partitions of deleted topics. It makes no decisions about transactions or groups.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from ...protocol.control_records import control_batch
from ...protocol.errors import ErrorCode, KafkaError
from ..config import BrokerConfig
from ..log import AppendOrigin, Log, LogConfig, Logs
from ..metadata import Metadata, Topic
from ..metadata.topic_config import log_config
from ..scheduling.shared_turns import SharedTurns
from ..scheduling.slices import in_slices
from ..scheduling.steps import SLICE, Steps, run_in_slices, run_slice, waited
from ..system.ports import Clock
from ..topic_names import METADATA_TOPIC, OFFSETS_TOPIC
from .markers import Marker, TopicPartition
from .partition import FIRST_LEADER_EPOCH, Partition

_KNOWN_LOG_CONFIGS: Final = 256
"""How many different log settings are cached, so that the partitions of a topic share one object."""

_MARKER: Final = 10
"""The cost of appending one marker, in units of work (`steps.py`)."""

_MARKERS_AT_ONCE: Final = SLICE // _MARKER
"""The number of markers that are appended in one slice of work."""

_COMBINED: Final = 150
"""The cost of combining a topic's own settings with those of the broker, in units of work."""

_FLUSHES_PER_TURN: Final = 500
"""How many completed flushes are handled before other tasks run."""


_LOOKED_UP_AT_ONCE: Final = 50
"""How many partitions of a deleted topic are looked up before the next check whether the slice of work has ended."""

_CONFIGURED_AT_ONCE: Final = 50
"""How many logs get new settings before the next check whether the slice of work has ended."""


class OffsetsOwner(Protocol):
    """The owner of offsets that a transaction's marker commits or drops: the group coordinator."""

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, commit: bool, marker_offset: int
    ) -> None:
        """Commit or drop the offsets of a transaction whose marker has been appended to `__consumer_offsets`.

        `partition` is the partition's index in this topic. The marker may not be on disk yet.
        """


class ReplicaManager:
    """The partitions that this broker leads. They are found by topic name or topic id."""

    def __init__(self, config: BrokerConfig, log_manager: Logs, metadata: Metadata, clock: Clock, logger: Any) -> None:
        self.offsets_owner: OffsetsOwner | None = None
        self.decompression_slots = asyncio.Semaphore(config.max_concurrent_decompressions)
        """The slots that limit how many large batches of producers are decompressed and checked at a time."""
        self._config = config
        self._log_config = lru_cache(maxsize=_KNOWN_LOG_CONFIGS)(
            lambda own, internal: log_config(config, dict(own), internal=internal)
        )
        self._log_manager = log_manager
        self._metadata = metadata
        self._clock = clock
        self._logger = logger
        self._partitions: dict[str, dict[int, Partition]] = {}
        """The partitions that were used, by topic name and index."""
        self._strays: set[str] = set()
        self._beyond_deletion: defaultdict[str, list[int]] = defaultdict(list)
        """The indexes, by topic name, of partitions that were on disk at the start although the record of their topic's
        deletion has fewer partitions."""
        self._marker_turns = SharedTurns(lambda: self._log_manager.crowding.end)
        self._leader_epochs: dict[str, dict[int, int]] = {}
        """The leader epochs above the first one, by topic name and partition index."""

    def start(self) -> None:
        """Apply the topics' settings to their logs on disk, and begin to follow the metadata.

        Logs of unknown topics are kept, but not served. If the directory of an existing topic's partition is lost, the
        partition is taken offline.
        """
        self._metadata.on_topic_changed.append(self._topic_changed)
        self._metadata.on_topic_deleted.append(self._topic_deleted)
        self._metadata.on_broker_configs_changed.append(self._defaults_changed)
        deleting = {topic.name: topic for topic in self._metadata.deleting()}
        self._find_unknown(deleting)
        for log in list(self._log_manager.logs()):
            if log.topic == METADATA_TOPIC:
                continue
            topic = self._metadata.topic(log.topic)
            if topic is not None and topic.has_partition(log.partition):
                log.update_config(self.log_config(topic))
                self._note_leader_epoch(log)
            elif log.topic not in deleting:
                log.update_config(LogConfig(retention_ms=-1, retention_bytes=-1, durability=self._config.durability))
                self._logger.warning(
                    "stray_partition",
                    topic=log.topic,
                    partition=log.partition,
                    remedy="the topic is not in the metadata, so the partition is kept but not served;"
                    " stop the broker and move its directory away",
                )
        for log in self._log_manager.read_only.values():
            self._note_leader_epoch(log)
        for key in list(self._log_manager.lost):
            topic = self._metadata.topic(key[0])
            if topic is not None and topic.has_partition(key[1]):
                self._log_manager.miss(key)
            elif key[0] not in deleting:
                self._log_manager.forget(key)

    def _find_unknown(self, deleting: Mapping[str, Topic]) -> None:
        """Find the partitions on disk, even damaged ones, that belong to no topic, not even to one being deleted."""
        on_disk = [(log.topic, log.partition) for log in self._log_manager.logs()]
        for name, index in (*on_disk, *self._log_manager.offline):
            topic = deleting.get(name) or self._metadata.topic(name)
            if name == METADATA_TOPIC or (topic is not None and topic.has_partition(index)):
                continue
            if name in deleting:
                self._beyond_deletion[name].append(index)
            else:
                self._strays.add(name)
                self._log_manager.note_stray((name, index))

    def _note_leader_epoch(self, log: Log) -> None:
        """Give the partition the newest leader epoch of its log, if that epoch is not the first one.

        Clients would consider the epochs in Metadata responses outdated if batches or ListOffsets responses contained
        newer epochs.
        """
        if log.leader_epoch > FIRST_LEADER_EPOCH:
            self._leader_epochs.setdefault(log.topic, {})[log.partition] = log.leader_epoch

    # ---- lookups

    def partition(self, topic: str, index: int) -> Partition:
        """Return the partition. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        used = self._partitions.get(topic)
        partition = None if used is None else used.get(index)
        return partition if partition is not None else self._make(self._metadata.topic(topic), index)

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the partition of the topic with this id.

        Raises KafkaError UNKNOWN_TOPIC_ID, or UNKNOWN_TOPIC_OR_PARTITION if the topic has no partition `index`.
        """
        topic = self._metadata.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        used = self._partitions.get(topic.name)
        partition = None if used is None else used.get(index)
        return partition if partition is not None else self._make(topic, index)

    def _make(self, topic: Topic | None, index: int) -> Partition:
        """Create the Partition object. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the metadata lacks it."""
        if topic is None or not topic.has_partition(index):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader_epoch = self.leader_epochs(topic.name).get(index, FIRST_LEADER_EPOCH)
        made = Partition(topic, index, self._find_log, self._open_log, leader_epoch)
        self._partitions.setdefault(topic.name, {})[index] = made
        return made

    def _topic_of(self, partition: Partition) -> Topic:
        """Return the partition's topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted."""
        topic = self._metadata.topic(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _find_log(self, partition: Partition) -> Log | None:
        """Return the partition's log, or None if the partition has never been used.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted. Raises KAFKA_STORAGE_ERROR if the
        partition is offline, or if it has never been used and the data directory has failed.
        """
        self._topic_of(partition)
        log = self._log_manager.read_only.get((partition.topic, partition.index))
        log = log or self._log_manager.get(partition.topic, partition.index)
        if log is None and self._log_manager.failed is not None:
            raise self._log_manager.failed.anew()
        return log

    def _open_log(self, partition: Partition) -> Log | Steps[Log]:
        """Return the partition's log, or steps that return it; create the log if the partition has none.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted, or KAFKA_STORAGE_ERROR.
        """
        return self._find_log(partition) or self._log_manager.create(
            partition.topic, partition.index, self.log_config(self._topic_of(partition))
        )

    def log_config(self, topic: Topic) -> LogConfig:
        """Return the log settings of a topic. Topics with equal settings share one object."""
        return self._log_config(tuple(topic.configs.items()), topic.is_internal)

    def largest_batch(self, topic: str) -> int:
        """Return the size in bytes of the largest batch that the topic accepts.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic does not exist.
        """
        known = self._metadata.topic(topic)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.log_config(known).max_batch_bytes

    def unflushed(self, topic: str, index: int, producer_id: int) -> asyncio.Future[None] | None:
        """Return None if the producer's last batch in the partition is durable, else a future to await.

        The caller must shield the future, because other callers may await it. Both this call and the future raise
        KafkaError, with these codes:

        * KAFKA_STORAGE_ERROR if the log has failed, so that the batch may be lost,
        * NOT_LEADER_OR_FOLLOWER if the log is closed because the broker is stopping,
        * UNKNOWN_TOPIC_OR_PARTITION if the partition is being deleted.
        """
        try:
            log = self._log_manager.get(topic, index)
        except KafkaError:
            return None  # offline since the start: nothing was written to it
        entry = None if log is None else log.producers.entry(producer_id)
        return None if log is None or entry is None else log.flushed(entry.last_offset + 1)

    def existing_log(self, topic: str, index: int) -> Log | None:
        """Return the partition's log, or None if the partition has never been used and has no log yet.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR if the partition is offline or its log has
        failed.
        """
        known = self._metadata.topic(topic)
        if known is None or not known.has_partition(index):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = self._log_manager.get(topic, index)
        if log is not None and log.failure is not None:
            raise log.failure.anew()
        return log

    def existing_partitions(self, topic: str) -> set[int]:
        """Return the indexes of the topic's partitions that are on disk, including offline partitions."""
        known = self._metadata.topic(topic)
        if known is None:
            return set()
        on_disk = {log.partition for log in self._log_manager.logs() if log.topic == topic}
        on_disk |= {index for name, index in self._log_manager.offline if name == topic}
        return {index for index in on_disk if index < known.partitions}

    def leader_epochs(self, topic: str) -> Mapping[int, int]:
        """Return the leader epochs of a topic's partitions by index, without those that are `FIRST_LEADER_EPOCH`."""
        return self._leader_epochs.get(topic, {})

    def offline_partitions(self) -> dict[str, set[int]]:
        """Return the indexes of the offline partitions by topic name, without those that can still be read."""
        offline: dict[str, set[int]] = {}
        for topic, index in self._log_manager.offline.keys() - self._log_manager.read_only.keys():
            offline.setdefault(topic, set()).add(index)
        return offline

    def logs(self) -> Iterator[Log]:
        """Yield the logs of all partitions in the metadata, except offline and read-only partitions."""
        for log in list(self._log_manager.logs()):
            topic = self._metadata.topic(log.topic)
            if topic is not None and topic.has_partition(log.partition):
                yield log

    def size_on_disk(self, topic: str, index: int) -> int | None:
        """Return the size of a partition in bytes: 0 if it has never been used, or None if it is offline.

        A damaged partition that can be read up to the damage has a size, too. The partition must exist.
        """
        key = topic, index
        log = self._log_manager.read_only.get(key)
        if log is None:
            if key in self._log_manager.offline:
                return None
            log = self._log_manager.get(topic, index)
        return 0 if log is None else log.size

    def is_stray(self, topic: str) -> bool:
        """Whether the data directory has partitions of this topic that the metadata does not have.

        A new topic with this name must not be created then, and an existing topic must not get more partitions: they
        would contain the records of another topic.
        """
        return topic in self._strays

    # ---- following the metadata

    def _topic_changed(self, topic: Topic) -> Coroutine[Any, Any, None] | None:
        """Apply the topic's new settings to its logs; return a coroutine for the rest, or None if nothing is left."""
        applying = self._apply_config(topic)
        return None if run_slice(applying) is not None else run_in_slices(applying)

    def _defaults_changed(self) -> Coroutine[Any, Any, None] | None:
        """Apply the broker's new settings to all logs; return a coroutine for the rest, or None if nothing is left."""
        self._log_config.cache_clear()
        applying = self._apply_defaults()
        return None if run_slice(applying) is not None else run_in_slices(applying)

    def _apply_defaults(self) -> Steps[None]:
        for topic in list(self._metadata.topics.values()):
            if topic.configs:
                yield _COMBINED
            yield from self._apply_config(topic)

    def _apply_config(self, topic: Topic) -> Steps[None]:
        """Apply the topic's current settings to the logs of its partitions. Stop early if the topic is deleted.

        Logs that are created in the meantime have these settings already.
        """
        partitions = range(topic.partitions)
        for start in range(0, len(partitions), _CONFIGURED_AT_ONCE):
            if self._metadata.topic(topic.name) is not topic:
                return
            config = self.log_config(topic)  # the settings may have changed again
            part = partitions[start : start + _CONFIGURED_AT_ONCE]
            for index in part:
                if (topic.name, index) not in self._log_manager.offline:
                    log = self._log_manager.get(topic.name, index)
                    if log is not None:
                        log.update_config(config)
            yield 2 * len(part)

    def _topic_deleted(self, topic: Topic) -> Coroutine[Any, Any, None] | None:
        """Forget the topic's partitions; return a coroutine that deletes their data, or None if they have no data."""
        self._leader_epochs.pop(topic.name, None)
        looking = self._held(topic, self._partitions.pop(topic.name, {}))
        finished = run_slice(looking)
        if finished is None:
            return self._delete_held(looking)
        return self._log_manager.delete(finished.result) if finished.result else None

    def _held(self, topic: Topic, used: dict[int, Partition]) -> Steps[list[TopicPartition]]:
        """Return the partitions of a deleted topic that have stored data. Remove all of its partitions from `used`."""
        held: list[TopicPartition] = []
        beyond = (index for index in self._beyond_deletion.get(topic.name, ()) if not topic.has_partition(index))
        indexes = [*range(topic.partitions), *beyond]
        for start in range(0, len(indexes), _LOOKED_UP_AT_ONCE):
            for index in indexes[start : start + _LOOKED_UP_AT_ONCE]:
                used.pop(index, None)
                if self._log_manager.holds(topic.name, index):
                    held.append((topic.name, index))
            yield 2 * _LOOKED_UP_AT_ONCE  # ten topics are deleted at the same time
        return held

    async def _delete_held(self, looking: Steps[list[TopicPartition]]) -> None:
        """Delete the partitions that `looking` finds."""
        held = await run_in_slices(looking)
        if held:
            await self._log_manager.delete(held)

    # ---- transaction markers

    async def append_markers(self, markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
        """Append each marker to its partitions, and wait until all are durable.

        Return for each marker the error code of each partition. In a partition of `__consumer_offsets`, the group
        coordinator commits or drops the pending offsets directly after the append, without an await. Therefore no later
        record is appended in between, and the cancellation of the caller cannot leave the offsets pending.
        """
        results: list[dict[TopicPartition, ErrorCode]] = []
        waiting: list[tuple[dict[TopicPartition, ErrorCode], list[tuple[TopicPartition, asyncio.Future[None]]]]] = []
        for marker in markers:
            codes: dict[TopicPartition, ErrorCode] = {}
            results.append(codes)
            steps = self._append_to_all(marker, codes)
            if len(marker.partitions) > 1:
                unflushed = await self._marker_turns.run_in_slices(steps, _MARKER * len(marker.partitions))
            else:
                unflushed = await run_in_slices(steps)  # does not wait if the partition `is_ready`
            waiting.append((codes, unflushed))
        for codes, unflushed in waiting:
            async for key, flush in in_slices(unflushed, _FLUSHES_PER_TURN):
                try:
                    await asyncio.shield(flush)
                    codes[key] = ErrorCode.NONE
                except KafkaError as error:
                    codes[key] = error.code
        return results

    def is_ready(self, key: TopicPartition, *, has_waited: bool = False) -> bool:
        """Whether a marker can be appended without waiting: the log is open, and further files may be opened.

        After `until_ready` (`has_waited`), one more file may always be opened: otherwise, other writers could delay the
        marker indefinitely. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
        """
        return (has_waited or self._log_manager.crowding.end is None) and self.partition(*key).is_open

    async def until_ready(self, key: TopicPartition) -> None:
        """Wait until a marker can be appended to the partition immediately; open its log if necessary.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR if the log cannot be opened.
        """
        if self._log_manager.crowding.end is not None:
            await self._marker_turns.wait(_MARKER)
        await run_in_slices(self._opened(key))

    def _append_to_all(
        self, marker: Marker, codes: dict[TopicPartition, ErrorCode]
    ) -> Steps[list[tuple[TopicPartition, asyncio.Future[None]]]]:
        """Append a marker to its partitions. Return the partitions whose flush must be awaited, each with its future.

        For all other partitions, add the error code to `codes`.
        """
        unflushed: list[tuple[TopicPartition, asyncio.Future[None]]] = []
        crowding = self._log_manager.crowding
        turn_ends = _MARKERS_AT_ONCE if marker.has_waited else 0
        for number, key in enumerate(marker.partitions):
            # After the wait, a slice of markers is appended even if the descriptors become crowded again: otherwise,
            # other writers could delay the markers indefinitely.
            if crowding.end is not None and number >= turn_ends:
                yield from waited(self._marker_turns.wait(_MARKER * (len(marker.partitions) - number)))
                turn_ends = number + _MARKERS_AT_ONCE
            try:
                yield from self._opened(key)
                flush = self._append_marker(key, marker)
            except KafkaError as error:
                codes[key] = error.code
            else:
                if flush is None:
                    codes[key] = ErrorCode.NONE
                else:
                    unflushed.append((key, flush))
            yield _MARKER
        return unflushed

    def _opened(self, key: TopicPartition) -> Steps[None]:
        """Open the log of a partition, unless it is open.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR if the log cannot be opened.
        """
        partition = self.partition(*key)
        if not partition.is_open:
            yield from partition.open()

    def _append_marker(self, key: TopicPartition, marker: Marker) -> asyncio.Future[None] | None:
        """Append a marker to one partition, and let the group coordinator apply the marker to pending offsets.

        Return a future that is done when the marker is durable, or None if the marker is durable already. Raises
        KafkaError if the log refuses the marker.
        """
        partition = self.partition(*key)
        log = partition.log
        # With a single broker the coordinator epoch is always 0. A log that Apache Kafka has written may have recorded
        # a higher epoch, and would refuse 0 forever.
        recorded = log.producers.entry(marker.producer_id)
        coordinator_epoch = marker.coordinator_epoch
        if recorded is not None and recorded.coordinator_epoch > coordinator_epoch:
            coordinator_epoch = recorded.coordinator_epoch
        batch = control_batch(
            marker.commit,
            coordinator_epoch,
            marker.producer_id,
            marker.producer_epoch,
            self._clock.now_ms(),
            leader_epoch=partition.leader_epoch,
        )
        result = log.append(
            bytearray(batch),
            origin=AppendOrigin.COORDINATOR,
            leader_epoch=partition.leader_epoch,
            transaction_version=marker.transaction_version,
        )
        if key[0] == OFFSETS_TOPIC and self.offsets_owner is not None:
            self.offsets_owner.complete_transaction(
                key[1], marker.producer_id, marker.producer_epoch, marker.commit, result.last_offset
            )
        return log.flushed(result.last_offset + 1)
