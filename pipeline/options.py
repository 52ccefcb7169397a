"""Define and check the options of `format("oncelog")`: a table for the source and one for the sink.

The names are those of Spark's Kafka source and sink, and upper and lower case are the same. Options with the prefix
`kafka.` are settings of the client (docs/pipeline.md). An unknown option is refused with a suggestion, because a
misspelt option must not silently get its default.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from ..client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ..client.errors import ConfigError

C = TypeVar("C", bound=ClientConfig)

NAME: Final = "oncelog"
"""The format's name."""

EARLIEST: Final = -2
LATEST: Final = -1


class Option(NamedTuple):
    """One row of a table of options, for the docs and for checking names."""

    name: str
    default: str
    doc: str


SOURCE_OPTIONS: Final = (
    Option("kafka.bootstrap.servers", "", "host:port of one or more brokers, comma-separated. Required."),
    Option("subscribe", "", "Topics, comma-separated. One of subscribe, subscribePattern and assign is required."),
    Option("subscribePattern", "", "Regular expression (Python's) that must match the whole topic name."),
    Option("assign", "", 'Partitions as JSON: `{"topic": [0, 1]}`.'),
    Option(
        "startingOffsets",
        "latest (stream), earliest (batch)",
        'earliest, latest, or JSON for every partition: `{"topic": {"0": 23, "1": -2}}`, where -2 is earliest and -1 '
        "latest. Applies only to a new query: a restarted query continues from its checkpoint. Partitions that are "
        "added while the query runs are read from earliest.",
    ),
    Option("startingTimestamp", "", "Begin at the first record at or after this time (ms since the epoch)."),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'Begin each partition at its first record at or after a time in ms, as JSON: `{"topic": {"0": '
        "1700000000000}}`.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do if a partition has no record at or after its start time: error, or latest to begin at its end.",
    ),
    Option(
        "endingOffsets",
        "latest",
        "Where a batch read ends (exclusive): latest, or JSON as in startingOffsets.",
    ),
    Option(
        "endingTimestamp",
        "",
        "End a batch read before the first record at or after this time (ms since the epoch).",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "",
        "End each partition of a batch read before its first record at or after a time in ms, as JSON.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        "Maximum number of offsets per micro-batch. The partitions share them in proportion to their unread offsets.",
    ),
    Option("minPartitions", "", "Minimum number of Spark tasks: large offset ranges are split into several tasks."),
    Option(
        "maxRecordsPerPartition",
        "",
        "Maximum number of offsets per Spark task: larger ranges are split into several tasks.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "true: fail if offsets that the query has not read yet were deleted (retention, deleted topic). false: "
        "log a warning and continue after the deleted offsets.",
    ),
    Option("includeHeaders", "false", "Add the column headers: array of struct of key (string) and value (binary)."),
)

SINK_OPTIONS: Final = (
    Option("kafka.bootstrap.servers", "", "host:port of one or more brokers, comma-separated. Required."),
    Option("topic", "", "Topic of all rows. Without it, the column topic names the topic of each row."),
    Option(
        "includeHeaders",
        "true",
        "Write the column headers, if the frame has it: array of struct of key (string) and value (binary).",
    ),
    Option(
        "transactionalId",
        "from checkpointLocation (stream)",
        "Transactional id of the query, and id of the group that stores its state. It must stay the same over "
        "restarts, and no other query may use it: the query that starts last with an id fences the others.",
    ),
    Option(
        "writeId",
        "",
        "Name of a batch write (not together with transactionalId). If a write with this id was committed "
        "before, nothing is written. Kafka remembers the id for the broker's offsets.retention.minutes (7 days by"
        " default).",
    ),
    Option(
        "stateTopic",
        "__oncelog_pipeline",
        "Topic to which the group offsets that store the sink's state refer. No record is written to it. If the "
        "topic is missing, it is created with one partition.",
    ),
    Option(
        "adoptQuery",
        "false",
        "Write the pending batch of a checkpoint although Kafka has no state of the query, because the state has "
        "expired or the checkpoint belonged to another sink. Check first what was written last: otherwise the "
        "batch may be written twice.",
    ),
)

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode", "mode"})
"""Options of Spark's reader and writer themselves, which the check of names accepts."""

QUERY: Final = "oncelog.query"
BATCH: Final = "oncelog.batch"
PLAN: Final = "oncelog.plan"
"""Options with which `write_stream` describes a micro-batch to the sink if Spark writes it as a batch."""

RUN: Final = "oncelog.run"
DONE: Final = "oncelog.done"
"""Options with which `write_stream` describes the start of a query to the sink."""

_PRIVATE: Final = frozenset({QUERY, BATCH, PLAN, RUN, DONE})

_NOT_OFFERED: Final = {
    "minoffsetspertrigger": "use maxOffsetsPerTrigger, and a trigger interval to gather more",
    "maxtriggerdelay": "use a trigger interval",
    "groupidprefix": "this source joins no group",
    "kafka.group.id": "this source joins no group and commits no offsets: Spark's checkpoint has them",
    "kafka.auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "kafka.enable.auto.commit": "this source commits no offsets: Spark's checkpoint has them",
    "kafka.transactional.id": "use transactionalId",
    "kafka.enable.idempotence": "the sink is always idempotent and transactional",
    "kafka.acks": "the sink always waits for all in-sync replicas",
    "kafka.key.serializer": "keys are bytes: cast the column key to binary or string",
    "kafka.value.serializer": "values are bytes: cast the column value to binary or string",
    "kafka.key.deserializer": "keys are bytes: cast the column key in the query",
    "kafka.value.deserializer": "values are bytes: cast the column value in the query",
    "kafka.partitioner.class": "give each row its partition, in the column partition",
    "kafka.partitioner.ignore.keys": "give each row its partition, in the column partition",
    "kafka.interceptor.classes": "this source loads no Java classes",
}
_IGNORED: Final = frozenset(
    {"kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms", "writer"}
)
"""Tuning options of Spark's own connector. kafka.default.api.timeout.ms and kafka.retry.backoff.ms replace them here.
"""


class Options:
    """The options of one reader or writer, by lower-case name. Raises ConfigError for unknown or missing options."""

    def __init__(self, options: Mapping[str, str], table: tuple[Option, ...]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        known = {option.name.lower(): option.name for option in table}
        for name in self._options:
            if name in known or name.startswith("kafka.") or name in _OF_SPARK | _IGNORED | _PRIVATE:
                if name in _NOT_OFFERED:
                    raise ConfigError(name, f"is not offered: {_NOT_OFFERED[name]}")
                continue
            if name in _NOT_OFFERED:
                raise ConfigError(name, f"is not offered: {_NOT_OFFERED[name]}")
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"did you mean {known[near[0]]}?" if near else f"its options are {', '.join(known.values())}"
            raise ConfigError(name, f'is not an option of format("oncelog"); {hint}')
        if not self._options.get("kafka.bootstrap.servers", "").strip():
            raise ConfigError("kafka.bootstrap.servers", 'is required: .option("kafka.bootstrap.servers", "host:port")')

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str, default: str = "") -> str:
        """Return the option's text without surrounding blanks, or `default` if the option is not given."""
        return self._options.get(name.lower(), default).strip()

    def flag(self, name: str, default: bool) -> bool:
        """Return the option as true or false. Raises ConfigError for any other text."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise ConfigError(name, f"{text!r} is not true or false")
        return text == "true"

    def number(self, name: str, at_least: int = 1) -> int | None:
        """Return the option as a whole number, or None if it is not given. Raises ConfigError."""
        if not self.text(name) and (name not in self or name in _PRIVATE):
            return None
        text = self.text(name)
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(name, f"{text!r} is not a whole number") from None
        if number < at_least:
            raise ConfigError(name, f"{number} is below the minimum, {at_least}")
        return number

    def by_partition(self, name: str, at_least: int) -> dict[tuple[str, int], int]:
        """Return JSON such as `{"topic": {"0": 23}}` as {(topic, partition): number}. Raises ConfigError."""
        try:
            parsed = json.loads(self.text(name))
            found = {
                (topic, int(partition)): number
                for topic, partitions in parsed.items()
                for partition, number in partitions.items()
            }
        except (ValueError, AttributeError):
            raise ConfigError(name, f'{self.text(name)!r} is not JSON such as {{"topic": {{"0": 23}}}}') from None
        for partition, number in found.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < at_least:
                raise ConfigError(
                    name, f"{number!r} of {partition[0]}-{partition[1]} is not a whole number >= {at_least}"
                )
        return found

    def client(self, config: type[C], **defaults: object) -> C:
        """Return the options with the prefix `kafka.` as a client's settings. They override `defaults`."""
        settings = {
            name.removeprefix("kafka."): value for name, value in self._options.items() if name.startswith("kafka.")
        }
        offered = {row.name for row in config.settings()}
        # Source and sink may share their options, so a setting of the other side's client is ignored.
        other = {row.name for kind in (ConsumerConfig, ProducerConfig) for row in kind.settings()} - offered
        mine = {name: value for name, value in settings.items() if name not in other}
        rest = {name: value for name, value in defaults.items() if name.replace("_", ".") not in mine}
        return config.of(mine, **rest)


class Subscription(NamedTuple):
    """The partitions to read. Exactly one of the three fields is set."""

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[tuple[str, int]] | None = None

    @classmethod
    def of(cls, options: Options) -> Subscription:
        """Read subscribe, subscribePattern or assign. Raises ConfigError unless exactly one is given."""
        present = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
        if len(present) != 1:
            what = f"{' and '.join(present)} cannot be combined" if present else "is missing"
            raise ConfigError("subscribe", f"{what}: give exactly one of subscribe, subscribePattern and assign")
        if present[0] == "subscribe":
            topics = frozenset(name.strip() for name in options.text("subscribe").split(",") if name.strip())
            if not topics:
                raise ConfigError("subscribe", "names no topic")
            return cls(topics=topics)
        if present[0] == "subscribePattern":
            try:
                return cls(pattern=re.compile(options.text("subscribePattern")))
            except re.error as error:
                raise ConfigError("subscribePattern", f"is not a regular expression: {error}") from None
        try:
            parsed = json.loads(options.text("assign"))
            partitions = frozenset((topic, int(index)) for topic, indexes in parsed.items() for index in indexes)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError("assign", f'{options.text("assign")!r} is not JSON such as {{"topic": [0, 1]}}') from None
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
    def of(cls, options: Options, side: str, default: int) -> Position:
        """Read the options of one side, "starting" or "ending". As in Spark, the most specific option counts."""
        strategy = options.text("startingOffsetsByTimestampStrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise ConfigError("startingOffsetsByTimestampStrategy", f"{strategy!r} is neither error nor latest")
        or_latest = side == "ending" or strategy == "latest"
        timestamp = options.number(f"{side}Timestamp", at_least=0)
        if timestamp is not None:
            return cls(timestamp=timestamp, or_latest=or_latest)
        if f"{side}OffsetsByTimestamp" in options:
            return cls(timestamps=options.by_partition(f"{side}OffsetsByTimestamp", 0), or_latest=or_latest)
        name = f"{side}Offsets"
        words = {"earliest": EARLIEST, "latest": LATEST}
        text = options.text(name)
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


def options_markdown(table: tuple[Option, ...]) -> str:
    """Return a table of options for docs/pipeline.md."""
    rows = [f"| `{option.name}` | {option.default} | {option.doc} |" for option in table]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"
