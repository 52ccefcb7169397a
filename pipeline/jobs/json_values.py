"""Parse JSON values into columns, and apply the job's policies to bad records and tombstones: `columns_of`.

A bad record has a value that is not one JSON object of the source's columns: text that is not JSON, a field whose type
differs from its column's, bytes that are not UTF-8, or anything after the object. A tombstone has no value and is not
bad: it says that its key was deleted. With the policy "keep", bad records and tombstones become rows of nulls. In
streams, they are counted with every policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType, _parse_datatype_string

from .spec import BAD_RECORD, METRICS, JobError, Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD: Final = ("key", "topic", "partition", "offset", "timestamp")
"""Columns of the record that are kept, with `_` before their names."""

BAD: Final = "_bad"
TOMBSTONE: Final = "_tombstone"

_CORRUPT: Final = "_corrupt_record_of_oncelog"
_SHOWN: Final = 120


def columns_of(frame: DataFrame, source: Source) -> DataFrame:
    """Return a frame with the JSON value's fields as columns, and the record's own columns as `_key`, `_offset`, …

    With on_bad_record = "keep", add `_bad`, the value of a bad record. With on_tombstone = "keep", add `_tombstone`,
    which is true for a tombstone. Raises JobError, or Spark's ParseException, if `source.json` is not a list of columns
    in DDL.
    """
    schema = _parse_datatype_string(source.json)
    if not isinstance(schema, StructType):
        raise JobError(f"source {source.name!r}: json = {source.json!r} is not a list of columns such as 'id BIGINT'")
    value, text = sf.col("value"), sf.col("value").cast("string")
    parsed = sf.from_json(
        text,
        StructType([*schema.fields]).add(_CORRUPT, StringType()),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    # The generator (explode) makes Spark parse the value once: otherwise it would copy the expression into each filter
    # and column.
    frame = frame.select(sf.explode(sf.array(parsed)).alias("json"), "value", *RECORD)
    tombstone = value.isNull()
    bad = ~tombstone & (sf.col("json").isNull() | sf.col(f"json.{_CORRUPT}").isNotNull() | _is_more(text))
    frame = frame.withColumn(BAD, bad)
    if frame.isStreaming:
        frame = frame.observe(
            f"{METRICS}{source.name}",
            sf.count_if(BAD).alias("bad"),
            sf.count_if(tombstone).alias("tombstones"),
        )
    kept = []
    if source.on_bad_record == "keep":
        kept.append(sf.when(sf.col(BAD), value).alias(BAD))
    else:
        what = f"the value is not JSON of the columns {schema.simpleString()[7:-1]}"
        remedy = 'Set on_bad_record = "drop", or "keep" to have it in the column _bad'
        frame = _without(frame, sf.col(BAD), source.on_bad_record, _error(source, what, remedy, text))
    if source.on_tombstone == "keep":
        kept.append(tombstone.alias(TOMBSTONE))
    else:
        remedy = 'Set on_tombstone = "drop", or "keep" to have a row of nulls'
        frame = _without(frame, tombstone, source.on_tombstone, _error(source, "the value is null", remedy, None))
    columns = [sf.when(~sf.col(BAD), sf.col("json").getField(name)).alias(name) for name in schema.fieldNames()]
    return frame.select(*columns, *(sf.col(name).alias(f"_{name}") for name in RECORD), *kept)


def _is_more(text: Column) -> Column:
    """Return whether the text has invalid UTF-8 or anything after one JSON object. Spark's parser ignores both."""
    behind = ~text.rlike(r"\}\s*$")
    # Nested objects have two closing braces, as consecutive objects do, so the objects are counted.
    count = sf.json_array_length(sf.concat(sf.lit("["), text, sf.lit("]")))
    second = sf.when(text.rlike(r"(?s)\}.*\}"), sf.coalesce(count, sf.lit(0)) != 1).otherwise(sf.lit(False))
    return ~sf.is_valid_utf8(text) | behind | second


def _without(frame: DataFrame, condition: Column, policy: str, error: Column) -> DataFrame:
    """Return the frame without the rows that meet a condition.

    With the policy "fail", the first such row ends the query with an error instead.
    """
    if policy == "fail":
        return frame.filter(sf.when(condition, sf.raise_error(error).cast("boolean")).otherwise(sf.lit(True)))
    return frame.filter(~condition)


def _error(source: Source, what: str, remedy: str, text: Column | None) -> Column:
    """Return the message of the error that ends the query because of a record."""
    shown = sf.lit("") if text is None else sf.concat(sf.lit(": "), _shown(text))
    return sf.concat(
        sf.lit(f"{BAD_RECORD}source {source.name!r}: the record at offset "),
        sf.col("offset"),
        sf.lit(" of "),
        sf.col("topic"),
        sf.lit("-"),
        sf.col("partition"),
        sf.lit(f": {what}"),
        shown,
        sf.lit(f". {remedy}"),
    )


def _shown(text: Column) -> Column:
    """Return the beginning of a value as one line."""
    return sf.substring(sf.regexp_replace(sf.make_valid_utf8(text), r"\s+", " "), 1, _SHOWN)
