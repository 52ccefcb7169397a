"""Define and check the options of `format("oncelog")`: a table for the source and one for the sink.

The names are those of Spark's Kafka source and sink. Upper and lower case make no difference. Options with the prefix
`kafka.` are settings of the client (docs/pipeline.md). An unknown option is refused with a suggestion, because a
misspelt option must not silently get its default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, TypeVar

from ..client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ..settings import ConfigError, Setting, Table, at_least, boolean, long, text

C = TypeVar("C", bound=ClientConfig)

NAME: Final = "oncelog"
"""The format's name."""

_OF_CLIENT: Final = "kafka."
_SERVERS: Final = "kafka.bootstrap.servers"

EARLIEST: Final = -2
LATEST: Final = -1

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode", "mode"})
"""Options that Spark itself reads. The check for unknown options accepts them."""

QUERY: Final = "oncelog.query"
BATCH: Final = "oncelog.batch"
PLAN: Final = "oncelog.plan"
"""Three options with which `write_stream` describes a micro-batch to the sink if Spark writes it as a batch.

They contain the query's id, the number of the batch and the digest of its plan.
"""

RUN: Final = "oncelog.run"
DONE: Final = "oncelog.done"
"""Two options with which `write_stream` describes the start of a query to the sink.

RUN is the id of the start, and DONE is the newest batch that was done before it. Jobs also set RUN for batch writes.
"""

WRITE: Final = "oncelog.write"
"""Option with which a job names a batch write that has no writeId."""

_PRIVATE: Final = frozenset({QUERY, BATCH, PLAN, RUN, DONE, WRITE})

_NOT_OFFERED: Final = {
    "minoffsetspertrigger": "use maxOffsetsPerTrigger, and a trigger interval to gather more",
    "maxtriggerdelay": "use a trigger interval",
    "groupidprefix": "the pipeline joins no group",
    "kafka.group.id": "the pipeline joins no group and commits no offsets: Spark's checkpoint stores them",
    "kafka.auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "kafka.enable.auto.commit": "the pipeline commits no offsets: Spark's checkpoint stores them",
    "kafka.transactional.id": "use transactionalId",
    "kafka.enable.idempotence": "the sink is always idempotent and transactional",
    "kafka.acks": "the sink always waits for all in-sync replicas",
    "kafka.key.serializer": "keys are bytes: cast the column key to binary or string",
    "kafka.value.serializer": "values are bytes: cast the column value to binary or string",
    "kafka.key.deserializer": "keys are bytes: cast the column key in the query",
    "kafka.value.deserializer": "values are bytes: cast the column value in the query",
    "kafka.partitioner.class": "give each row its partition, in the column partition",
    "kafka.partitioner.ignore.keys": "give each row its partition, in the column partition",
    "kafka.interceptor.classes": "the pipeline loads no Java classes",
}
_IGNORED: Final = frozenset(
    {"kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms", "writer"}
)
"""Tuning options of Spark's own connector, which are ignored.

The options kafka.default.api.timeout.ms and kafka.retry.backoff.ms replace them.
"""


class Options(Table):
    """The options of one reader or writer: a table, and the settings of the client, which have the prefix `kafka.`.

    Raises ConfigError for unknown, invalid or missing options.
    """

    ignores_case: ClassVar[bool] = True

    _given: dict[str, str]
    """All options as they were given, by lower-case name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value.strip() for name, value in options.items()}
        self.__dict__["_given"] = given
        for name in given:
            if name in _NOT_OFFERED:
                raise ConfigError(name, f"is not offered: {_NOT_OFFERED[name]}")
        super().__init__({name: value for name, value in given.items() if not self._is_of_others(name)})
        if not self.get(_SERVERS):
            raise ConfigError(_SERVERS, f'is required: .option("{_SERVERS}", "host:port")')

    @classmethod
    def _is_of_others(cls, name: str) -> bool:
        """Return whether an option belongs to the client, Spark, `write_stream` or a job, and not to this table."""
        if name in cls.names:
            return False
        return name.startswith(_OF_CLIENT) or name in _OF_SPARK | _IGNORED | _PRIVATE

    @classmethod
    def spelled(cls, attribute: str) -> str:
        """Return the name of an option in Spark's spelling, such as startingOffsets."""
        if attribute.startswith("kafka_"):
            return attribute.replace("_", ".")
        first, *others = attribute.split("_")
        return first + "".join(map(str.capitalize, others))

    @classmethod
    def normal(cls, key: str) -> str:
        """Return the name in lower case."""
        return key.lower()

    @classmethod
    def unknown(cls, key: str) -> ConfigError:
        """Return the error for an option that does not exist."""
        near = cls.similar(key)
        hint = f"did you mean {near}?" if near else f"its options are {', '.join(cls.rows)}"
        return ConfigError(key, f'is not an option of format("oncelog"); {hint}')

    def of_spark(self, name: str) -> str:
        """Return the text of an option of Spark itself, or "" if the option is not given."""
        return self._given.get(name.lower(), "")

    def of_query(self, name: str) -> str:
        """Return the text of an option that `write_stream` or a job has added, or "" if the option is not given."""
        return self._given.get(name, "")

    def number_of_query(self, name: str) -> int | None:
        """Return the number in an option that `write_stream` has added, or None if the option is not given.

        Raises ConfigError if the option is not a number.
        """
        given = self.of_query(name)
        row: Setting = long(None, at_least(0), doc="", name=name)
        number: int | None = self.parse_value(row, given or None)
        return number

    def by_partition(self, name: str, at_least: int) -> dict[tuple[str, int], int]:
        """Return JSON such as `{"topic": {"0": 23}}` as {(topic, partition): number}.

        Raises ConfigError, also for a number below `at_least`.
        """
        text = self.get(name)
        try:
            parsed = json.loads(text)
            found = {
                (topic, int(partition)): number
                for topic, partitions in parsed.items()
                for partition, number in partitions.items()
            }
        except (ValueError, AttributeError):
            raise ConfigError(name, f'{text!r} is not JSON such as {{"topic": {{"0": 23}}}}') from None
        for partition, number in found.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < at_least:
                raise ConfigError(
                    name, f"{number!r} of {partition[0]}-{partition[1]} is not a whole number >= {at_least}"
                )
        return found

    def client(self, config: type[C], **defaults: object) -> C:
        """Return the options with the prefix `kafka.` as a client's settings. They override `defaults`."""
        settings = {
            name.removeprefix(_OF_CLIENT): value for name, value in self._given.items() if name.startswith(_OF_CLIENT)
        }
        # Source and sink may share their options, so a setting of the other side's client is ignored.
        other = (ConsumerConfig.rows.keys() | ProducerConfig.rows.keys()) - config.rows.keys()
        mine = {name: value for name, value in settings.items() if name not in other}
        rest = {name: value for name, value in defaults.items() if name.replace("_", ".") not in mine}
        return config.of(mine, **rest)


class SourceOptions(Options):
    """The options of a source."""

    kafka_bootstrap_servers: str = text("", doc="host:port of one or more brokers, comma-separated. Required.")
    subscribe: str = text("", doc="Topics, comma-separated. One of subscribe, subscribePattern and assign is required.")
    subscribe_pattern: str = text("", doc="Regular expression (Python's) that must match the whole topic name.")
    assign: str = text("", doc='Partitions as JSON: `{"topic": [0, 1]}`.')
    starting_offsets: str = text(
        "",
        doc='earliest, latest, or JSON for every partition: `{"topic": {"0": 23, "1": -2}}`, where -2 is earliest'
        " and -1 latest. Applies only to a new query: a restarted query continues from its checkpoint."
        " Partitions that are added while the query runs are read from earliest.",
        default_text="latest (stream), earliest (batch)",
    )
    starting_timestamp: int | None = long(
        None, at_least(0), doc="Begin at the first record at or after this time (ms since the epoch)."
    )
    starting_offsets_by_timestamp: str = text(
        "",
        doc='Begin each partition at its first record at or after a time in ms, as JSON: `{"topic": {"0":'
        " 1700000000000}}`.",
    )
    starting_offsets_by_timestamp_strategy: str = text(
        "error",
        doc="What to do if a partition has no record at or after its start time: error, or latest to begin at its end.",
        choices=("error", "latest"),
    )
    ending_offsets: str = text(
        "", doc="Where a batch read ends (exclusive): latest, or JSON as in startingOffsets.", default_text="latest"
    )
    ending_timestamp: int | None = long(
        None,
        at_least(0),
        doc="In a batch read, stop in each partition before its first record at or after this time, in ms since the"
        " epoch.",
    )
    ending_offsets_by_timestamp: str = text(
        "", doc="Like endingTimestamp, but with a separate time for each partition, as JSON."
    )
    max_offsets_per_trigger: int | None = long(
        None,
        at_least(1),
        doc="Maximum number of offsets per micro-batch. The partitions share them in proportion to their unread"
        " offsets.",
    )
    min_partitions: int | None = long(
        None, at_least(1), doc="Minimum number of Spark tasks: large offset ranges are split into several tasks."
    )
    max_records_per_partition: int | None = long(
        None, at_least(1), doc="Maximum number of offsets per Spark task: larger ranges are split into several tasks."
    )
    fail_on_data_loss: bool = boolean(
        True,
        doc="true: fail if offsets that the query has not read yet were deleted (retention, deleted topic)."
        " false: log a warning and continue after the deleted offsets.",
    )
    include_headers: bool = boolean(
        False, doc="Add the column headers: array of struct of key (string) and value (binary)."
    )


class SinkOptions(Options):
    """The options of a sink."""

    kafka_bootstrap_servers: str = text("", doc="host:port of one or more brokers, comma-separated. Required.")
    topic: str = text("", doc="Topic of all rows. Without it, the column topic names the topic of each row.")
    include_headers: bool = boolean(
        True, doc="Write the column headers, if the frame has it: array of struct of key (string) and value (binary)."
    )
    transactional_id: str = text(
        "",
        doc="Transactional id of the query, and id of the group whose committed offsets store the query's state. It"
        " must stay the same across restarts, and no other query may use it: the query that starts last with an id"
        " fences the others.",
        default_text="from checkpointLocation (stream)",
    )
    write_id: str = text(
        "",
        doc="Name of a batch write (not together with transactionalId). If a write with this id was committed"
        " before, nothing is written. Kafka remembers the id for the broker's offsets.retention.minutes (7"
        " days by default).",
    )
    state_topic: str = text(
        "__oncelog_pipeline",
        doc="The sink stores its state as committed offsets of this topic. No record is written to it. If the"
        " topic is missing, it is created with one partition.",
    )
    adopt_query: bool = boolean(
        False,
        doc="Write the batch that the checkpoint has planned but not recorded as done, even if it is unknown whether"
        " the batch is committed. It is unknown if the query's state in Kafka has expired, or if another sink or"
        " transactionalId was used with this checkpoint. First check what was written last, because the batch may be"
        " written twice.",
    )


class Subscription(NamedTuple):
    """The partitions to read. Exactly one of the three fields is set."""

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[tuple[str, int]] | None = None

    @classmethod
    def of(cls, options: SourceOptions) -> Subscription:
        """Read subscribe, subscribePattern or assign. Raises ConfigError unless exactly one is given."""
        present = [name for name in ("subscribe", "subscribePattern", "assign") if name in options.explicit]
        if len(present) != 1:
            what = f"{' and '.join(present)} cannot be combined" if present else "is missing"
            raise ConfigError("subscribe", f"{what}: give exactly one of subscribe, subscribePattern and assign")
        if present[0] == "subscribe":
            topics = frozenset(name.strip() for name in options.subscribe.split(",") if name.strip())
            if not topics:
                raise ConfigError("subscribe", "names no topic")
            return cls(topics=topics)
        if present[0] == "subscribePattern":
            try:
                return cls(pattern=re.compile(options.subscribe_pattern))
            except re.error as error:
                raise ConfigError("subscribePattern", f"is not a regular expression: {error}") from None
        try:
            parsed = json.loads(options.assign)
            partitions = frozenset((topic, int(index)) for topic, indexes in parsed.items() for index in indexes)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError("assign", f'{options.assign!r} is not JSON such as {{"topic": [0, 1]}}') from None
        if not partitions:
            raise ConfigError("assign", "names no partition")
        return cls(partitions=partitions)


class Position(NamedTuple):
    """Where a read begins or ends: an offset (or EARLIEST, LATEST) or a timestamp, for all partitions or for each."""

    offset: int | None = None
    timestamp: int | None = None
    offsets: Mapping[tuple[str, int], int] | None = None
    timestamps: Mapping[tuple[str, int], int] | None = None
    or_latest: bool = False
    """Whether a timestamp after the last record means the end of the partition instead of an error."""

    @classmethod
    def of(cls, options: SourceOptions, side: str, default: int) -> Position:
        """Read the options that say where a read begins (`side` "starting") or ends (`side` "ending").

        If several are given, the first of these applies, as in Spark: the timestamp for all partitions, the timestamps
        by partition, the offsets. If none is given, the offset is `default`.
        """
        or_latest = side == "ending" or options.starting_offsets_by_timestamp_strategy == "latest"
        timestamp = options.get(f"{side}Timestamp")
        if timestamp is not None:
            return cls(timestamp=timestamp, or_latest=or_latest)
        if f"{side}OffsetsByTimestamp" in options.explicit:
            return cls(timestamps=options.by_partition(f"{side}OffsetsByTimestamp", 0), or_latest=or_latest)
        name = f"{side}Offsets"
        words = {"earliest": EARLIEST, "latest": LATEST}
        text = options.get(name)
        if not text:
            return cls(offset=default)
        if text.lower() in words:
            if side == "ending" and text.lower() == "earliest":
                raise ConfigError(name, "earliest would read nothing: use latest or JSON")
            return cls(offset=words[text.lower()])
        offsets = options.by_partition(name, EARLIEST)
        if side == "ending" and EARLIEST in offsets.values():
            raise ConfigError(name, "-2 (earliest) would read nothing: use -1 (latest) or an offset")
        return cls(offsets=offsets)
