"""`TimestampConverter`: converts points in time between text, Unix time, Date, Time and Timestamp."""

from __future__ import annotations

import datetime
from typing import Any, Final

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, OneOf, Type
from ..data.logical import DATE, TIME, TIMESTAMP, date_schema, time_schema, timestamp_schema
from ..data.schema import INT64, STRING, Schema, SchemaType
from ..errors import ConfigValueError, DataError
from .date_patterns import DatePattern
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of, with_fields
from .transformation import PartTransformation

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PER_SECOND: Final = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_TARGETS: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": date_schema(),
    "Time": time_schema(),
    "Timestamp": timestamp_schema(),
}
_LOGICAL: Final = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}


class TimestampConverter(PartTransformation):
    """Converts timestamps as Kafka Connect's transform does; all texts and dates are in UTC."""

    purpose = "converting timestamp formats"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
        return ConfigDef(
            ConfigKey("field", Type.STRING, "", high, "The timestamp's field; empty: the whole key or value."),
            ConfigKey(
                "target.type", Type.STRING, REQUIRED, high,
                "The desired timestamp representation: string, unix, Date, Time, or Timestamp.", OneOf(*_TARGETS),
            ),
            ConfigKey(
                "format", Type.STRING, "", medium,
                "Pattern of Java's SimpleDateFormat, for text that is written (target.type=string) or read.",
            ),
            ConfigKey(
                "unix.precision", Type.STRING, "milliseconds", low,
                "The unit of numbers that are written or read.", OneOf(*_PER_SECOND),
            ),
            REPLACE_NULL,
        )  # fmt: skip

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError for a missing or invalid format."""
        super().configure(config)
        self._target, pattern = self.settings["target.type"], self.settings["format"].strip()
        if self._target == "string" and not pattern:
            problem = "TimestampConverter requires format option to be specified when using string timestamps"
            raise ConfigValueError("format", pattern, problem)
        try:
            self._pattern = DatePattern(pattern) if pattern else None
        except ValueError as error:
            raise ConfigValueError(
                "format", pattern, f"TimestampConverter requires a SimpleDateFormat-compatible pattern: {error}"
            ) from None

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the converted timestamp. Raises DataError for a value that is not a timestamp."""
        schema, value = self.operand(record)
        name = self.settings["field"]
        if not name:
            target = None if schema is None else self._target_schema(schema)
            return self.changed(record, target, self._converted(schema, value))
        if schema is None:
            if value is None:
                return record
            fields = dict(self.require_map(value))
            return self.changed(record, None, {**fields, name: self._converted(None, fields.get(name))})
        target = self._schemas.get(schema, self._with_target)
        if value is None:
            return self.changed(record, target, None)
        row = self.require_struct(value)
        defaults = self.settings["replace.null.with.default"]
        values = {field.name: field_value(row, field, defaults) for field in schema.fields}
        field = schema.field(name)
        if field is not None:
            values[name] = self._converted(field.schema, values[name])
        return self.changed(record, target, struct_of(target, values))

    def _with_target(self, schema: Schema) -> Schema:
        name = self.settings["field"]
        fields = (
            (field.name, self._target_schema(field.schema) if field.name == name else field.schema)
            for field in schema.fields
        )
        return with_fields(schema, fields, schema.optional)

    def _target_schema(self, schema: Schema) -> Schema:
        target = _TARGETS[self._target]
        return target.as_optional() if schema.optional else target

    def _converted(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        at = self._point_in_time(_source_type(schema, value), value)
        match self._target:
            case "string":
                assert self._pattern is not None
                return self._pattern.format(at)
            case "unix":
                micros = (at - _EPOCH) // datetime.timedelta(microseconds=1)
                return _quotient(micros * _PER_SECOND[self.settings["unix.precision"]], 1_000_000)
            case "Date":
                return at.date()
            case "Time":
                return at.time()
        return at

    def _point_in_time(self, kind: str, value: Any) -> datetime.datetime:
        match kind:
            case "unix":
                per_second = _PER_SECOND[self.settings["unix.precision"]]
                try:
                    return _EPOCH + datetime.timedelta(milliseconds=_quotient(value * 1_000, per_second))
                except OverflowError:
                    raise DataError(f"Unix timestamp {value} is outside the years 1 to 9999") from None
            case "string":
                if self._pattern is None:
                    raise DataError(
                        "Could not parse timestamp: TimestampConverter requires format option to be specified when "
                        "using string timestamps"
                    )
                try:
                    return self._pattern.parse(value)
                except ValueError as error:
                    raise DataError(
                        f"Could not parse timestamp: value ({value}) does not match pattern ({self._pattern.text}): "
                        f"{error}"
                    ) from None
            case "Date":
                return datetime.datetime.combine(value, datetime.time(), datetime.UTC)
            case "Time":
                return datetime.datetime.combine(_EPOCH.date(), value, datetime.UTC)
        return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)  # type: ignore[no-any-return]


def _quotient(number: int, divisor: int) -> int:
    """Return a quotient that is rounded towards zero, as Java's TimeUnit does."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _source_type(schema: Schema | None, value: Any) -> str:
    if schema is not None:
        if schema.name in _LOGICAL:
            return _LOGICAL[schema.name]
        if schema.type is SchemaType.STRING:
            return "string"
        if schema.type is SchemaType.INT64:
            return "unix"
        raise DataError(f"Schema {schema.type.value} does not correspond to a known timestamp type format")
    match value:
        case str():
            return "string"
        case int() if not isinstance(value, bool):
            return "unix"
        case datetime.datetime():
            return "Timestamp"
        case datetime.date():
            return "Date"
        case datetime.time():
            return "Time"
    raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")


class Key(TimestampConverter):
    """Converts timestamps in the key of records."""

    part = "key"


class Value(TimestampConverter):
    """Converts timestamps in the value of records."""

    part = "value"
