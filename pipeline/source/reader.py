"""`format("oncelog")` as a source: Spark's readers for batches and streams.

Plans only: which offsets a batch has, and how they are divided among tasks. The records are read by `RangeReader` in
the tasks. A stream's position is Spark's checkpoint alone; no consumer group is joined and no offset committed.

A micro-batch is an exact range of offsets per partition: read again after a crash, it has the same records.
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
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...client.config import ConsumerConfig
from ...client.errors import ConfigError, InvalidTopicError
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode
from ..blocking import BlockingCluster
from ..options import EARLIEST, LATEST, SOURCE_OPTIONS, Options, Position, Subscription
from .offsets import (
    OffsetFinder,
    OffsetRange,
    Offsets,
    find_partitions,
    from_json,
    limited,
    lost,
    split,
    to_json,
)
from .range_reader import CLIENT_DEFAULTS, RangeReader

ASK_AGAIN_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Waits, before a partition that is not told of counts as gone."""


def source_schema(headers: bool) -> StructType:
    """The schema of Spark's Kafka source."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


@dataclass
class RangePartition(InputPartition):
    """What Spark hands to a task."""

    range: OffsetRange


class SourceSettings:
    """The options of a source, read and checked. Travels to the tasks."""

    def __init__(self, given: MutableMapping[str, str], *, streaming: bool) -> None:
        options = Options(given, SOURCE_OPTIONS)
        self.subscription = Subscription.of(options)
        self.config = options.client(ConsumerConfig, **CLIENT_DEFAULTS)
        self.start = Position.of(options, "starting", LATEST if streaming else EARLIEST)
        self.end = Position.of(options, "ending", LATEST)
        self.headers = options.flag("includeHeaders", False)
        self.fail_on_data_loss = options.flag("failOnDataLoss", True)
        self.most_offsets = options.number("maxOffsetsPerTrigger")
        self.least_partitions = options.number("minPartitions")
        self.most_records = options.number("maxRecordsPerPartition")
        if streaming:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name in options:
                    raise ConfigError(
                        name, "applies to batch reads only: a stream has no end; use Trigger.AvailableNow"
                    )
        elif self.most_offsets is not None:
            raise ConfigError("maxOffsetsPerTrigger", "applies to streams only: a batch read has no triggers")
        elif self.start.offset == LATEST:
            raise ConfigError("startingOffsets", "latest would read nothing: use earliest or JSON")

    @property
    def timeout_s(self) -> float:
        """How long a question to the cluster may take, retries included."""
        return self.config.default_api_timeout_ms / 1000

    def finder(self, kafka: BlockingCluster, committed: bool | None = None) -> OffsetFinder:
        """Who asks for offsets as these settings see them, unless `committed` says what to see."""
        committed = self.config.isolation_level == "read_committed" if committed is None else committed
        return OffsetFinder(kafka.cluster, read_committed=committed, timeout_s=self.timeout_s)

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read a range, within a task."""
        return iter(RangeReader(wanted, self.config, headers=self.headers, fail_on_data_loss=self.fail_on_data_loss))

    def tasks(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """Divide what is between start and end; partitions without records get no task."""
        ranges = [OffsetRange(*one, start[one], end[one]) for one in sorted(end) if end[one] > start[one]]
        return [RangePartition(one) for one in split(ranges, self.least_partitions, self.most_records)]


class BatchReader(DataSourceReader):
    """`spark.read.format("oncelog")`: offsets are resolved once, when the read is planned."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """Resolve start and end, and divide the offsets between them."""
        settings = self._settings
        with BlockingCluster(settings.config, settings.timeout_s) as kafka:
            found = _found_all(kafka, settings)
            finder = settings.finder(kafka)
            start = kafka.run(finder.resolve(settings.start, found, "startingOffsets"))
            end = kafka.run(finder.resolve(settings.end, found, "endingOffsets"))
            end = self._within_the_log(kafka, start, end)
        tasks: list[InputPartition] = list(settings.tasks(start, end))
        return tasks or [RangePartition(OffsetRange("", -1, 0, 0))]  # Spark makes one of its own from an empty list

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's range."""
        assert isinstance(partition, RangePartition)
        return self._settings.read(partition.range) if partition.range.topic else iter(())

    def _within_the_log(self, kafka: BlockingCluster, start: Offsets, end: Offsets) -> Offsets:
        """The ends, of which none may lie behind what is written, nor before its beginning.

        What an open transaction still hides is written: readers wait for an end there, and begin there with nothing.
        """
        settings = self._settings
        turned = {one: offset for one, offset in start.items() if offset > end[one]}
        if turned and settings.start.offset is None and settings.end.offset is None:
            one = min(turned)
            raise ConfigError("endingOffsets", f"{one} would end at {end[one]}, before its beginning, {start[one]}")
        wanted = turned if settings.end.offsets is None else {one: max(start[one], end[one]) for one in end}
        written = kafka.run(settings.finder(kafka, committed=False).latest(wanted))
        for one, offset in sorted(wanted.items()):
            if offset > written[one]:
                lost(
                    f"{one} ends at offset {written[one]}, before offset {offset} of the options",
                    settings.fail_on_data_loss,
                )
        return {one: min(offset, written.get(one, offset)) for one, offset in end.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("oncelog")`: lives in a process beside the driver as long as the query runs."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._kafka: BlockingCluster | None = None
        self._newest: Offsets = {}
        self._target: Offsets | None = None
        self._given: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_kafka": None, "_newest": {}, "_target": None, "_given": None}

    # -- planning, beside the driver

    def initialOffset(self) -> dict[str, Any]:  # Spark's name, as those below
        """Where a new query begins."""
        finder = self._finder
        # Trigger.AvailableNow ends with what is there: it cannot wait for a topic.
        ends = self._target is not None and self._fail
        found = _found_all(self._open, self._settings) if ends else self._partitions()
        return to_json(self._open.run(finder.resolve(self._settings.start, found, "startingOffsets")))

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger."""
        most = self._settings.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, what comes later is not there."""
        self._target = self._open.run(self._finder.latest(self._partitions()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends. Raises DataLossError for partitions that are gone or were cut off."""
        begin = from_json(start)
        if self._target is None:
            end = self._open.run(self._finder.latest(self._present(begin)))
        else:
            end = dict(self._target)
            if missing := [one for one in begin if one not in end]:
                # Either gone, or not told of when the query started: then it is left for the next start.
                end |= {one: begin[one] for one in self._present(missing) if one in missing}
        self._newest = end
        gone = [str(one) for one in begin if one not in end]
        if gone:
            lost(f"{', '.join(sorted(gone))} of the query's checkpoint is no longer there", self._fail)
        if behind := [one for one in end if begin.get(one, 0) > end[one]]:
            written = self._open.run(self._settings.finder(self._open, committed=False).latest(behind))
            for one in behind:
                if begin[one] <= written[one]:
                    end[one] = begin[one]  # an open transaction hides what is there
                else:
                    lost(f"{one} ends at offset {end[one]}, but was read up to {begin[one]} already", self._fail)
        # A new partition is read from its beginning: what was written before it was noticed counts.
        new = [one for one in end if one not in begin]
        begin |= self._open.run(self._finder.earliest(new))
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        self._given = {one: end[one] for one in begin if one in end}
        return to_json(self._given)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end that the last micro-batch could have had without a limit: Spark tells the lag from it."""
        return to_json(self._newest) if self._newest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch. Raises DataLossError where the log begins behind the start."""
        until, begin = from_json(end), from_json(start)
        if until == begin:
            return []
        if until != self._given:  # planned before this reader was made
            for one in sorted(until.keys() - self._present(until)):
                if begin.get(one, 0) < until[one]:
                    lost(f"Offsets {begin.get(one, 0)} to {until[one] - 1} of {one} cannot be read", self._fail)
                del until[one]
        earliest = self._open.run(self._finder.earliest(sorted(until)))
        for one, offset in earliest.items():
            if one not in begin:
                # Added while the query ran: as Spark's Kafka source, it misses what was deleted before it looked.
                if offset and until[one]:
                    lost(f"Offsets 0 to {min(offset, until[one]) - 1} of {one} cannot be read", self._fail)
                begin[one] = min(offset, until[one])
            elif begin[one] > until[one]:
                begin[one] = offset  # made anew; `latestOffset` has told
            elif offset > begin[one] < until[one]:
                lost(f"Offsets {begin[one]} to {min(offset, until[one]) - 1} of {one} cannot be read", self._fail)
                begin[one] = min(offset, until[one])
        return list(self._settings.tasks(begin, until))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the position is Spark's checkpoint."""

    def stop(self) -> None:
        """Close the connections."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    # -- reading, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's range."""
        assert isinstance(partition, RangePartition)
        return self._settings.read(partition.range)

    # -- inside

    @property
    def _fail(self) -> bool:
        return self._settings.fail_on_data_loss

    @property
    def _open(self) -> BlockingCluster:
        if self._kafka is None:
            self._kafka = BlockingCluster(self._settings.config, self._settings.timeout_s)
        return self._kafka

    @property
    def _finder(self) -> OffsetFinder:
        return self._settings.finder(self._open)

    def _partitions(self) -> set[TopicPartition]:
        return _found(self._open, self._settings)

    def _present(self, wanted: Collection[TopicPartition]) -> set[TopicPartition]:
        """The partitions that are there. Those wanted are asked for again when they are missing: a broker that has just
        started may not know of all, and a topic that is taken for a new one would be read from its beginning.
        """
        return _found_again(self._open, self._settings, lambda found: all(one in found for one in wanted))


def _found(kafka: BlockingCluster, settings: SourceSettings) -> set[TopicPartition]:
    """The partitions that the subscription means now."""
    return kafka.run(find_partitions(kafka.cluster, settings.subscription, settings.timeout_s))


def _found_again(
    kafka: BlockingCluster, settings: SourceSettings, complete: Callable[[set[TopicPartition]], bool]
) -> set[TopicPartition]:
    """The same, asked for again for a while until they are complete."""
    found = _found(kafka, settings)
    for wait_s in ASK_AGAIN_S:
        if complete(found):
            break
        time.sleep(wait_s)
        found = _found(kafka, settings)
    return found


def _found_all(kafka: BlockingCluster, settings: SourceSettings) -> set[TopicPartition]:
    """The same, of all topics that `subscribe` names. Raises InvalidTopicError when one is not there."""
    named = settings.subscription.topics or frozenset()
    found = _found_again(kafka, settings, lambda found: named <= {one.topic for one in found})
    if missing := sorted(named - {one.topic for one in found}):
        raise InvalidTopicError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"subscribe: there is no topic {' and no topic '.join(missing)}: correct the name, or create it before",
        )
    return found
