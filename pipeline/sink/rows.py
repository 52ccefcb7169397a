"""Prepare the rows of a frame for topics: check the columns, and find out which Kafka partition each row belongs to.

The columns are those of Spark's Kafka sink: value (required), key, topic, partition, headers. Other columns are not
written. A row's partition is given by the column `partition`, else by Kafka's hash of the key. All other rows of a task
go to one partition, because only one task may write each partition. The number of this partition is the task's number
modulo the number of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from ...client.errors import ConfigError
from ...client.values import TopicPartition
from ..arrow.murmur2 import partitions_for_keys

COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
"""The columns that are used, in upper or lower case."""


class Rows(NamedTuple):
    """The rows of one partition, in their order in the frame."""

    partition: TopicPartition
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None


class PartitionCounts(Protocol):
    """The number of partitions of each topic, as known to a task."""

    def __call__(self, topic: str) -> int:
        """Return the number of partitions among which rows without a partition are distributed."""

    def existing(self, topic: str, named: int) -> int:
        """Return the topic's number of partitions. If the partition `named` is not known, ask the cluster again."""


class RowError(ValueError):
    """A row cannot be written. The message names the problem."""


def check_columns(schema: StructType, topic: str, headers: bool) -> None:
    """Raise ConfigError, which names the column and the remedy, for a frame that cannot be written."""
    columns: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name.lower() in columns and field.name.lower() in COLUMNS:
            raise ConfigError(
                field.name, "the frame has this column twice, because upper and lower case are the same: drop one"
            )
        columns[field.name.lower()] = field.dataType
    if "value" not in columns:
        raise ConfigError("value", f"the frame has no column 'value', only {', '.join(schema.fieldNames())}")
    for name in ("key", "value"):
        kind = columns.get(name)
        if kind is not None and not isinstance(kind, BinaryType | StringType):
            raise ConfigError(name, f"the column is {kind.simpleString()}: cast it to binary or string")
    if not topic and "topic" not in columns:
        raise ConfigError("topic", "neither the option topic nor a column topic says where the rows go")
    if not topic and not isinstance(columns["topic"], StringType):
        raise ConfigError("topic", f"the column is {columns['topic'].simpleString()}: cast it to string")
    if not isinstance(columns.get("partition", IntegerType()), IntegerType):
        raise ConfigError("partition", f"the column is {columns['partition'].simpleString()}: cast it to int")
    if headers and "headers" in columns:
        kind = columns["headers"]
        if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
            raise ConfigError("headers", "the column is not array<struct<key: string, value: binary>>")
        parts = {field.name: field.dataType for field in kind.elementType.fields}
        if not isinstance(parts.get("key"), StringType) or not isinstance(parts.get("value"), BinaryType):
            raise ConfigError("headers", "the column is not array<struct<key: string, value: binary>>")


def grouped(
    batch: pa.RecordBatch,
    topic: str,
    headers: bool,
    counts: PartitionCounts,
    own: int,
) -> Iterator[Rows]:
    """Yield the rows of an Arrow batch by partition; `own` is the number of the task. Raises RowError."""
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    value = _binary(columns["value"])
    key = _binary(columns["key"]) if "key" in columns else pa.nulls(len(value), pa.binary())
    given = columns.get("partition")
    header = columns.get("headers") if headers else None
    if header is not None:
        _check_headers(header)
    for name, indexes in _by_topic(columns, topic, len(value)):
        whole = [_some(one, indexes) for one in (key, value, given, header)]
        yield from _by_partition(name, whole, counts, own)


def targets(
    topic: str, key: pa.Array, given: pa.Array | None, counts: PartitionCounts, spread: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the partition of each row of a topic.

    It is the row's `given` partition, else that of its key, else `spread` modulo the number of partitions. Raises
    RowError, which names the topic, for a given partition that the topic does not have.
    """
    if given is not None and not given.null_count:
        return _checked(topic, given.to_numpy(), counts)
    key, count = _binary(key), counts(topic)
    found = (spread % count).astype(np.int32)
    keyed = key.is_valid().to_numpy(zero_copy_only=False)
    if keyed.any():
        found = np.where(keyed, partitions_for_keys(key, count), found)
    if given is not None and given.null_count < len(given):
        named = given.is_valid().to_numpy(zero_copy_only=False)
        found = np.where(named, _checked(topic, pc.fill_null(given, 0).to_numpy(), counts), found)
    return found.astype(np.int32)


def _checked(topic: str, numbers: NDArray[np.int32], counts: PartitionCounts) -> NDArray[np.int32]:
    """Return the partitions that rows name. Raises RowError if the topic lacks any of them."""
    if not numbers.size:
        return numbers
    count = counts(topic)
    if (most := int(numbers.max())) >= count:
        count = counts.existing(topic, most)
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if wrong.size:
        raise RowError(
            f"topic {topic!r}: the column partition is {wrong[0]} in a row, but the topic has {count} partitions"
        )
    return numbers


def _by_topic(columns: dict[str, pa.Array], topic: str, count: int) -> Iterator[tuple[str, pa.Array | None]]:
    """Yield each topic with the indexes of its rows, or with None if all rows belong to it. Raises RowError."""
    if topic:
        yield topic, None
        return
    names = columns["topic"]
    if names.null_count:
        raise RowError("the column topic is null in a row: give each row a topic, or set the option topic")
    distinct = pc.unique(names)
    for name in distinct.to_pylist():
        yield name, None if len(distinct) == 1 else pc.indices_nonzero(pc.equal(names, name))


def _by_partition(topic: str, columns: list[Any], counts: PartitionCounts, own: int) -> Iterator[Rows]:
    """Yield the rows of one topic by partition. Raises RowError, which names the topic."""
    key, value, given, headers = columns
    target = targets(topic, key, given, counts, np.full(len(value), own, np.int64))
    if not len(target):
        return
    if (target == target[0]).all():
        yield Rows(TopicPartition(topic, int(target[0])), key, value, headers)
        return
    # numpy sorts 16-bit numbers in linear time.
    order = np.argsort(target.astype(np.int16) if target.max() < 1 << 15 else target, kind="stable")
    key, value, headers = [_some(one, pa.array(order)) for one in (key, value, headers)]
    target = target[order]
    starts = np.flatnonzero(np.diff(target, prepend=-1))
    bounds = [*starts.tolist(), len(target)]
    for start, end in pairwise(bounds):
        size = end - start
        part = None if headers is None else headers.slice(start, size)
        yield Rows(TopicPartition(topic, int(target[start])), key.slice(start, size), value.slice(start, size), part)


def _check_headers(headers: pa.Array) -> None:
    """Raise RowError if a header is null or has no key."""
    each = pc.list_flatten(headers)
    if each.null_count or (len(each) and pc.struct_field(each, "key").null_count):
        raise RowError("a header in the column headers has no key: each header needs one")


def _some(array: pa.Array, indexes: pa.Array) -> pa.Array:
    return array if array is None or indexes is None else array.take(indexes)


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())
