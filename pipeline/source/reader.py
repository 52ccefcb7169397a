"""Provide `format("oncelog")` as a source: Spark's readers for batches and streams.

The readers only plan: they determine the offsets of a batch and divide them among tasks. In the tasks, `RangeReader`
reads the records. A stream's position is stored only in Spark's checkpoint: the source joins no consumer group and
commits no offset.

A micro-batch is an exact range of offsets per partition. When it is read again after a crash, it contains the same
records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ...client.config import ConsumerConfig
from ...client.errors import ConfigError, InvalidTopicError
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode
from ..blocking import BlockingCluster
from ..options import EARLIEST, LATEST, Position, SourceOptions, Subscription
from .offsets import (
    OffsetFinder,
    OffsetRange,
    Offsets,
    deleted,
    find_partitions,
    from_json,
    limited,
    lost,
    split,
    to_json,
)
from .range_reader import CLIENT_DEFAULTS, RangeReader

ASK_AGAIN_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""The pauses in seconds between requests for metadata, before a missing partition counts as deleted."""


@dataclass
class RangePartition(InputPartition):
    """The range of offsets that Spark passes to a task."""

    range: OffsetRange


class SourceSettings:
    """The options of a source, read and checked. They are pickled and sent to the tasks."""

    def __init__(self, raw_options: MutableMapping[str, str], *, streaming: bool) -> None:
        options = SourceOptions(raw_options)
        self.subscription = Subscription.of(options)
        self.config = options.client(ConsumerConfig, **CLIENT_DEFAULTS)
        self.start = Position.of(options, "starting", LATEST if streaming else EARLIEST)
        self.end = Position.of(options, "ending", LATEST)
        self.headers = options.include_headers
        self.fail_on_data_loss = options.fail_on_data_loss
        self.most_offsets = options.max_offsets_per_trigger
        self.least_partitions = options.min_partitions
        self.most_records = options.max_records_per_partition
        if streaming:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name in options.explicit:
                    raise ConfigError(
                        name, "applies to batch reads only: a stream has no end; use Trigger.AvailableNow"
                    )
        elif self.most_offsets is not None:
            raise ConfigError("maxOffsetsPerTrigger", "applies to streams only: a batch read has no triggers")
        elif self.start.offset == LATEST:
            raise ConfigError("startingOffsets", "latest would read nothing: use earliest or JSON")

    @property
    def timeout_s(self) -> float:
        """The limit in seconds of one request to the cluster, retries included."""
        return self.config.default_api_timeout_ms / 1000

    def finder(self, kafka: BlockingCluster, committed: bool | None = None) -> OffsetFinder:
        """Return an OffsetFinder. It uses the isolation level of these settings, unless `committed` overrides it."""
        committed = self.config.isolation_level == "read_committed" if committed is None else committed
        return OffsetFinder(kafka.cluster, read_committed=committed, timeout_s=self.timeout_s)

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read a range of offsets within a task. Yield Arrow record batches."""
        return iter(RangeReader(wanted, self.config, headers=self.headers, fail_on_data_loss=self.fail_on_data_loss))

    def tasks(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """Divide the offsets between `start` and `end` into tasks. Partitions without offsets to read get no task."""
        ranges = [OffsetRange(*one, start[one], end[one]) for one in sorted(end) if end[one] > start[one]]
        return [RangePartition(one) for one in split(ranges, self.least_partitions, self.most_records)]


class BatchReader(DataSourceReader):
    """The reader of `spark.read.format("oncelog")`. It resolves the offsets once, when the read is planned."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """Resolve start and end, and divide the offsets between them into tasks."""
        settings = self._settings
        with BlockingCluster(settings.config, settings.timeout_s) as kafka:
            found = _found_all(kafka, settings)
            finder = settings.finder(kafka)
            start = kafka.run(finder.resolve(settings.start, found, "startingOffsets"))
            end = kafka.run(finder.resolve(settings.end, found, "endingOffsets"))
            end = self._within_the_log(kafka, start, end)
        tasks: list[InputPartition] = list(settings.tasks(start, end))
        return tasks or [RangePartition(OffsetRange("", -1, 0, 0))]  # Spark adds a partition to an empty list

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        assert isinstance(partition, RangePartition)
        return self._settings.read(partition.range) if partition.range.topic else iter(())

    def _within_the_log(self, kafka: BlockingCluster, start: Offsets, end: Offsets) -> Offsets:
        """Check the offsets against each other and against the end of the log. Return the end offsets.

        The end of the log is the high watermark, so the log includes records of an open transaction. A read that ends
        within them waits for the transaction. With failOnDataLoss=false, an end offset beyond the end of the log is
        replaced with the end of the log.

        Raises DataLossError if the options name an offset beyond the end of the log. Raises ConfigError if a partition
        would end before it begins, unless the start is earliest or the end is latest: then nothing is read from it.
        """
        settings = self._settings
        turned = {one: offset for one, offset in start.items() if offset > end[one]}
        if turned and settings.start.offset is None and settings.end.offset is None:
            one = min(turned)
            raise ConfigError("endingOffsets", f"{one} would end at {end[one]}, before it begins at {start[one]}")
        wanted = turned if settings.end.offsets is None else {one: max(start[one], end[one]) for one in end}
        written = kafka.run(settings.finder(kafka, committed=False).latest(wanted))
        for one, offset in sorted(wanted.items()):
            if offset > written[one]:
                lost(
                    f"{one} ends at offset {written[one]}, before the offset {offset} that the options name",
                    settings.fail_on_data_loss,
                )
        return {one: min(offset, written.get(one, offset)) for one, offset in end.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream.format("oncelog")`.

    It lives in a separate process on the driver's machine as long as the query runs.
    """

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._kafka: BlockingCluster | None = None
        self._newest: Offsets = {}
        self._target: Offsets | None = None
        self._last_end: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_kafka": None, "_newest": {}, "_target": None, "_last_end": None}

    # -- planning, in the driver's Python process

    def initialOffset(self) -> dict[str, Any]:  # a name of Spark's API, like those below
        """Return the offsets at which a new query begins."""
        finder = self._finder
        # Trigger.AvailableNow ends at the current ends, so it cannot wait for a topic.
        ends = self._target is not None and self._fail
        found = _found_all(self._open, self._settings) if ends else self._partitions()
        return to_json(self._open.run(finder.resolve(self._settings.start, found, "startingOffsets")))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxOffsetsPerTrigger as Spark's read limit."""
        most = self._settings.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the current ends the end of the query: records that arrive later are not read."""
        self._target = self._open.run(self._finder.latest(self._partitions()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. Raises DataLossError for deleted or truncated partitions."""
        begin = from_json(start)
        if self._target is None:
            end = self._open.run(self._finder.latest(self._present(begin)))
        else:
            end = dict(self._target)
            if missing := [one for one in begin if one not in end]:
                # Either the partition was deleted, or the metadata missed it when the query started. In the second
                # case, the next start reads it.
                end |= {one: begin[one] for one in self._present(missing) if one in missing}
        self._newest = end
        gone = [str(one) for one in begin if one not in end]
        if gone:
            lost(
                f"The query has read partitions that no longer exist: {', '.join(sorted(gone))}. Their topic was"
                " deleted, or created again with fewer partitions",
                self._fail,
            )
        if behind := [one for one in end if begin.get(one, 0) > end[one]]:
            written = self._open.run(self._settings.finder(self._open, committed=False).latest(behind))
            for one in behind:
                if begin[one] <= written[one]:
                    end[one] = begin[one]  # the records there belong to an open transaction
                else:
                    lost(
                        f"{one} ends at offset {end[one]}, but the query has read up to offset {begin[one]}: the"
                        " partition was truncated, or its topic was deleted and created again",
                        self._fail,
                    )
        # A new partition is read from its beginning, because it may have got records before this reader noticed it.
        new = [one for one in end if one not in begin]
        begin |= self._open.run(self._finder.earliest(new))
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        self._last_end = {one: end[one] for one in begin if one in end}
        return to_json(self._last_end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end that the last micro-batch would have had without a limit. Spark computes the lag from it."""
        return to_json(self._newest) if self._newest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one micro-batch. Raises DataLossError if some of its offsets no longer exist."""
        until, begin = from_json(end), from_json(start)
        if until == begin:
            return []
        if until != self._last_end:  # planned before this reader was created
            for one in sorted(until.keys() - self._present(until)):
                if begin.get(one, 0) < until[one]:
                    lost(deleted(one, begin.get(one, 0), until[one]), self._fail)
                del until[one]
        earliest = self._open.run(self._finder.earliest(sorted(until)))
        for one, offset in earliest.items():
            if one not in begin:
                # The partition was added while the query ran. As in Spark's Kafka source, records that were deleted
                # before this look-up are not read.
                if offset and until[one]:
                    lost(deleted(one, 0, min(offset, until[one])), self._fail)
                begin[one] = min(offset, until[one])
            elif begin[one] > until[one]:
                begin[one] = offset  # the topic was created again, which `latestOffset` has reported
            elif offset > begin[one] < until[one]:
                lost(deleted(one, begin[one], min(offset, until[one])), self._fail)
                begin[one] = min(offset, until[one])
        return list(self._settings.tasks(begin, until))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the position is stored in Spark's checkpoint."""

    def stop(self) -> None:
        """Close the connections."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    # -- reading, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        assert isinstance(partition, RangePartition)
        return self._settings.read(partition.range)

    # -- inside

    @property
    def _fail(self) -> bool:
        return self._settings.fail_on_data_loss

    @property
    def _open(self) -> BlockingCluster:
        """The connection to the cluster. It is opened when it is first needed."""
        if self._kafka is None:
            self._kafka = BlockingCluster(self._settings.config, self._settings.timeout_s)
        return self._kafka

    @property
    def _finder(self) -> OffsetFinder:
        return self._settings.finder(self._open)

    def _partitions(self) -> set[TopicPartition]:
        return _found(self._open, self._settings)

    def _present(self, wanted: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that exist. If some of `wanted` are missing, ask again several times.

        A broker that has just started may not know all partitions yet. A partition that is missing now and exists at
        the next call would be regarded as new, and read from its beginning.
        """
        return _found_again(self._open, self._settings, lambda found: all(one in found for one in wanted))


def _found(kafka: BlockingCluster, settings: SourceSettings) -> set[TopicPartition]:
    """Return the partitions that the subscription selects now."""
    return kafka.run(find_partitions(kafka.cluster, settings.subscription, settings.timeout_s))


def _found_again(
    kafka: BlockingCluster, settings: SourceSettings, complete: Callable[[set[TopicPartition]], bool]
) -> set[TopicPartition]:
    """Return the partitions that the subscription selects. Ask again, up to five times, until they are `complete`."""
    found = _found(kafka, settings)
    for wait_s in ASK_AGAIN_S:
        if complete(found):
            break
        time.sleep(wait_s)
        found = _found(kafka, settings)
    return found


def _found_all(kafka: BlockingCluster, settings: SourceSettings) -> set[TopicPartition]:
    """Return the partitions of all topics that `subscribe` names. Raises InvalidTopicError for a missing topic."""
    named = settings.subscription.topics or frozenset()
    found = _found_again(kafka, settings, lambda found: named <= {one.topic for one in found})
    if missing := sorted(named - {one.topic for one in found}):
        raise InvalidTopicError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"subscribe: there is no topic {' and no topic '.join(missing)}: correct the name, or create it first",
        )
    return found
